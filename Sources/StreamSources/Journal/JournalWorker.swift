import CLinux
import CSystemd
import Glibc
import StreamRuntime

/// The process in which a journal is read: this executable again, with a socket to the daemon.
///
/// libsystemd reads mapped files, so it waits for the disk, and a file that is cut off or that the disk cannot read ends
/// a process with SIGBUS. It also has one descriptor for each file of the journal. In its own process all this affects
/// one stream only. A page that cannot be read has zeros there, and libsystemd then leaves the file out.
enum JournalWorker {
  /// The argument of such a process. Its values are the stream's name and those of a `JournalSetup`.
  static let argument = "--journal"

  /// Reads batches until the daemon closes the socket, which is standard input.
  static func run() -> Never {
    end_with_parent(SIGKILL)
    replace_pages_that_cannot_be_read()
    limit(RLIMIT_CORE) { $0 = 0 }
    limit(RLIMIT_NOFILE) { [most = maximum(of: RLIMIT_NOFILE)] in $0 = most }
    guard let setup = JournalSetup(values: Array(HelperProcess.takeValues().dropFirst())) else { exit(EX_USAGE) }
    do throws(JournalReader.Failure) {
      if let remark = try JournalAccess.check(setup.directory) { send(.limited(remark)) }
      var reading = try JournalReading(setup)
      while true { try reading.readBatch() }
    } catch {
      send(.failed(error.sentence))
    }
    exit(0)
  }

  /// Waits for the daemon, the journal, or a time.
  ///
  /// - Parameters:
  ///   - journal: its descriptor; nil: only for the daemon.
  ///   - milliseconds: nil: without limit.
  /// - Returns: whether a batch is wanted now; nil: the daemon has said nothing.
  static func wait(_ journal: CInt?, _ milliseconds: Int?) -> Bool? {
    var watched = [pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)]
    if let journal { watched.append(pollfd(fd: journal, events: Int16(POLLIN), revents: 0)) }
    let time = milliseconds.map { CInt(clamping: $0) } ?? -1
    guard unsafe poll(&watched, nfds_t(watched.count), time) > 0, watched[0].revents != 0 else { return nil }
    var bytes: [UInt8] = Array(repeating: 0, count: 64)
    let count = unsafe read(STDIN_FILENO, &bytes, bytes.count)
    guard count > 0 else { exit(0) }
    return bytes[count - 1] == JournalMessage.wants
  }

  static func send(_ messages: JournalMessage...) { send(messages) }

  static func send(_ messages: [JournalMessage]) {
    var bytes: [UInt8] = []
    for message in messages { bytes.appendMessage(message.encoded) }
    HelperProcess.send(bytes)
  }

  private static func maximum(of resource: __rlimit_resource) -> rlim_t {
    var limit = rlimit()
    unsafe getrlimit(__rlimit_resource_t(resource.rawValue), &limit)
    return limit.rlim_max
  }

  private static func limit(_ resource: __rlimit_resource, _ change: (inout rlim_t) -> Void) {
    var limit = rlimit()
    unsafe getrlimit(__rlimit_resource_t(resource.rawValue), &limit)
    change(&limit.rlim_cur)
    unsafe setrlimit(__rlimit_resource_t(resource.rawValue), &limit)
  }
}

/// Reads a journal batch by batch, and keeps the position.
///
/// The position is the last entry that was examined. A stream whose matches fit few entries would keep an old one, which
/// journald may remove long before the next entry fits. At the end of the journal its newest entry is therefore the
/// *mark*: once everything that fits was read up to there, it becomes the position.
struct JournalReading {
  private let setup: JournalSetup
  private let reader: JournalReader
  private var cursor: [UInt8]
  /// The next event, which has no room in its batch, and its cursor.
  private var carried: (event: [UInt8], cursor: [UInt8])?
  private var mark: [UInt8]?
  private var markedAt: UInt64?
  /// The position of the last loss that was sent.
  private var lossCursor: [UInt8]?
  /// Whether the journal has grown since the last mark.
  private var hasGrown = true
  /// When a position was last sent, and whether that was the present one.
  private var sentAt: UInt64?
  private var isSent: Bool

  /// Entries that are examined for one batch.
  private static let examinedLimit = 4096
  /// The least time between two marks: each costs some searches in every file of the journal.
  private static let markPause: UInt64 = 10_000_000_000
  /// The least time between two positions without an event, each of which the stream's log stores.
  private static let positionPause: UInt64 = 600_000_000_000

  init(_ setup: JournalSetup) throws(JournalReader.Failure) {
    self.setup = setup
    (cursor, isSent) = (setup.cursor, !setup.cursor.isEmpty)
    reader = try JournalReader(directory: setup.directory, matches: setup.matches, eventLimit: setup.eventLimit)
    sentAt = isSent ? EventLoop.monotonicNow() : nil
    try place()
    JournalWorker.send(.opened)
  }

  /// Continues after the position. A loss there is sent once, and followed by a batch at once.
  private mutating func place() throws(JournalReader.Failure) {
    guard !cursor.isEmpty else { return try reader.seek(to: setup.start) }
    guard let loss = try reader.place(after: cursor), lossCursor != cursor else { return }
    JournalWorker.send(.lost(loss))
    (lossCursor, sentAt, isSent) = (cursor, nil, false)
  }

  /// Waits until a batch is wanted, and then for its first event, which the daemon may cease to want.
  mutating func readBatch() throws(JournalReader.Failure) {
    var isWanted = false
    while !isWanted { isWanted = JournalWorker.wait(nil, nil) ?? false }
    try takeChanges()
    while isWanted {
      if try sendNext() { return }
      if try isMarkTaken() { continue }
      let isDue = sentAt.map { EventLoop.monotonicNow() - $0 >= Self.positionPause } ?? true
      if isDue, !isSent, !cursor.isEmpty { return end([]) }
      isWanted = JournalWorker.wait(reader.descriptor, timeLimit) ?? true
      try takeChanges()
    }
  }

  /// Sends the batch of what follows.
  /// - Returns: false: nothing follows yet.
  private mutating func sendNext() throws(JournalReader.Failure) -> Bool {
    var messages: [JournalMessage] = []
    var (count, byteCount, examined) = (0, 0, 0)
    while count < setup.batchEvents, examined < Self.examinedLimit {
      if carried == nil {
        guard try reader.next() else { break }
        examined += 1
        let next = try reader.cursor()
        switch reader.entry(next) {
        case .event(let event): carried = (event, next)
        case .own: pass(next)
        case .dropped(let reason):
          messages.append(.dropped(reason))
          pass(next)
        }
      }
      guard let (event, next) = carried else { continue }
      guard count == 0 || byteCount + event.count <= setup.batchBytes else { break }
      carried = nil
      (count, byteCount) = (count + 1, byteCount + event.count)
      messages.append(.event(event))
      pass(next)
    }
    guard count > 0 || examined == Self.examinedLimit else {
      JournalWorker.send(messages)
      return false
    }
    end(messages)
    return true
  }

  private mutating func pass(_ next: [UInt8]) { (cursor, mark, isSent) = (next, nil, false) }

  private mutating func end(_ messages: [JournalMessage]) {
    JournalWorker.send(messages + [.end(cursor: cursor)])
    (sentAt, isSent) = (EventLoop.monotonicNow(), true)
  }

  /// At the end of what fits: moves the position to the mark, or sets a mark, up to which must be read again.
  /// - Returns: whether more may follow.
  private mutating func isMarkTaken() throws(JournalReader.Failure) -> Bool {
    if let mark {
      (cursor, isSent) = (mark, false)
      self.mark = nil
    }
    let now = EventLoop.monotonicNow()
    guard hasGrown, markedAt.map({ now - $0 >= Self.markPause }) ?? true else { return false }
    (markedAt, hasGrown) = (now, false)
    let newest = try reader.newestCursor()
    try place()
    if newest != cursor { mark = newest }
    return true
  }

  private mutating func takeChanges() throws(JournalReader.Failure) {
    switch try reader.takeChanges() {
    case .nothing: break
    case .grown: hasGrown = true
    case .otherFiles:
      hasGrown = true
      (carried, mark) = (nil, nil)
      try place()
    }
  }

  /// Milliseconds until the journal must be looked at without a change.
  private var timeLimit: Int? {
    var times = [reader.timeLimit].compactMap(\.self)
    if hasGrown, let markedAt {
      let passed = min(EventLoop.monotonicNow() - markedAt, Self.markPause)
      times.append(Int(clamping: (Self.markPause - passed) / 1_000_000 + 1))
    }
    return times.min()
  }
}
