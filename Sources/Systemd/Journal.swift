import CSystemd
import Dispatch
import Glibc
import StreamRuntime
import Synchronization

/// The daemon's log: native entries in the journal, or the same lines on standard error, if standard error is not the
/// journal.
///
/// A call never waits and never fails. Entries pass through a bounded queue to a separate thread; when the journal is
/// too slow or unavailable, entries are lost, and counted where the count can be reported. A flood of one kind about
/// one stream or user is limited to `FloodLimit.burst` per window, and the rest counted. Thread-safe.
///
/// A process whose standard error may be a pipe must ignore SIGPIPE, as a process that serves sockets does anyway.
public final class Journal: Sendable {
  /// The destination of entries.
  enum Destination: Sendable, Equatable {
    case journal
    case descriptor(CInt)
  }

  /// The time, and a way to schedule a call: a test replaces both.
  struct Timekeeper: Sendable {
    var now: @Sendable () -> ContinuousClock.Instant = { .now }
    /// Milliseconds since the Unix epoch, for lines with a time; `nil`: lines have none.
    var wallClock: (@Sendable () -> Int)?
    var after: @Sendable (Duration, @escaping @Sendable () -> Void) -> Void = { delay, call in
      DispatchQueue.global().asyncAfter(deadline: .now() + .nanoseconds(delay.wholeNanoseconds), execute: call)
    }
  }

  /// Maximum number of entries that wait for a slow journal: at the flood limit half a minute of the worst kind.
  private static let waitingLimit = 4096

  private let destination: Destination
  private let time: Timekeeper
  private let queue: DroppingQueue
  private let threshold: Atomic<UInt8>
  private let flood = Locked(FloodLimit())
  private let droppedCount = Atomic<Int>(0)

  /// Detects the destination. If standard error is the journal, JOURNAL_STREAM names its file.
  public convenience init(level: Priority = .info) {
    let variable = unsafe getenv("JOURNAL_STREAM").map { unsafe String(cString: $0) }
    let destination = Self.destination(journalStream: variable, standardError: STDERR_FILENO)
    let time = Timekeeper(wallClock: { Int(EventLoop.wallClock() / 1000) })
    self.init(level: level, destination: destination, time: time)
  }

  init(
    level: Priority = .info, destination: Destination, time: Timekeeper = Timekeeper(),
    waitingLimit: Int = waitingLimit
  ) {
    self.destination = destination
    self.time = time
    queue = DroppingQueue(label: "streamd.journal", limit: waitingLimit)
    threshold = Atomic(level.rawValue)
  }

  /// Whether entries go to the journal, not as lines to standard error.
  var isNative: Bool { destination == .journal }

  /// The least urgent level that is written; may change at any time.
  public var level: Priority {
    get { Priority(rawValue: threshold.load(ordering: .relaxed)) ?? .info }
    set { threshold.store(newValue.rawValue, ordering: .relaxed) }
  }

  /// Writes an entry, if the level and the flood limit admit it.
  public func write(_ messageID: MessageID?, _ priority: Priority, _ message: String, _ fields: Field...) {
    write(Entry(messageID, priority, message, fields))
  }

  /// Writes an existing entry, by the same rules.
  public func write(_ entry: Entry) {
    guard entry.priority <= level else { return }
    let now = time.now()
    let (summaries, verdict) = flood.withLock { ($0.takeSuppressed(at: now), $0.admit(entry, at: now)) }
    summaries.forEach(send)
    switch verdict {
    case .pass: send(entry)
    case .suppress(let end?): time.after(end - now) { [weak self] in self?.reportSuppressed() }
    case .suppress: break
    }
  }

  /// Writes the suppressed counts, and waits until everything is written, at most `timeout`. For the end of the
  /// process.
  ///
  /// - Returns: false at the timeout.
  @discardableResult public func flush(within timeout: Duration) -> Bool {
    flood.withLock { $0.takeSuppressed(at: nil) }.forEach(send)
    return queue.flush(within: timeout)
  }

  private func reportSuppressed() {
    let now = time.now()
    flood.withLock { $0.takeSuppressed(at: now) }.forEach(send)
  }

  private func send(_ entry: Entry) {
    let milliseconds = destination == .journal ? nil : time.wallClock?()
    let isTaken = queue.carry { [self] in
      deliver(entry, at: milliseconds)
      let lost = droppedCount.exchange(0, ordering: .relaxed)
      if lost > 0 {
        deliver(
          Entry(nil, .warning, "\(lost) log messages lost: they were not written in time"), at: milliseconds)
      }
    }
    if !isTaken { droppedCount.add(1, ordering: .relaxed) }
  }
}

// Runs on the queue's thread, which may block.
extension Journal {
  /// - Parameter milliseconds: since the Unix epoch; `nil` for a line without a time.
  private func deliver(_ entry: Entry, at milliseconds: Int?) {
    switch destination {
    case .journal:
      if Self.sendToJournal(entry.assignments) < 0 { Self.write(entry.line, to: STDERR_FILENO) }
    case .descriptor(let descriptor):
      let stamp = milliseconds.map { Self.stamp($0) + " " } ?? ""
      Self.write(stamp + entry.line, to: descriptor)
    }
  }

  /// A time in UTC (RFC 3339): `2026-11-22T04:45:12.345Z`.
  static func stamp(_ milliseconds: Int) -> String {
    var seconds = time_t(milliseconds / 1000)
    var parts = unsafe tm()
    unsafe gmtime_r(&seconds, &parts)
    func digits(_ number: Int, _ width: Int = 2) -> String {
      let text = String(number)
      return String(repeating: "0", count: max(0, width - text.utf8.count)) + text
    }
    let date = unsafe [digits(Int(parts.tm_year) + 1900, 4), digits(Int(parts.tm_mon) + 1), digits(Int(parts.tm_mday))]
    let time = unsafe [parts.tm_hour, parts.tm_min, parts.tm_sec].map { digits(Int($0)) }
    return "\(date.joined(separator: "-"))T\(time.joined(separator: ":")).\(digits(milliseconds % 1000, 3))Z"
  }

  /// - Returns: as sd_journal_sendv(3): a negative errno on failure; 0 also when no journal runs.
  private static func sendToJournal(_ assignments: [String]) -> CInt {
    var bytes: [UInt8] = []
    var ends: [Int] = []
    for assignment in assignments {
      bytes += assignment.utf8
      ends.append(bytes.count)
    }
    return unsafe bytes.withUnsafeMutableBytes { buffer in
      var start = 0
      let vectors = unsafe ends.map { end in
        defer { start = end }
        return unsafe iovec(iov_base: buffer.baseAddress.map { unsafe $0 + start }, iov_len: end - start)
      }
      return unsafe sd_journal_sendv(vectors, CInt(vectors.count))
    }
  }

  /// Best effort: output that a closed or full descriptor does not accept is lost.
  private static func write(_ line: String, to descriptor: CInt) {
    var rest = Array(line.utf8)[...]
    while !rest.isEmpty {
      let written = unsafe rest.withUnsafeBytes { unsafe Glibc.write(descriptor, $0.baseAddress, $0.count) }
      if written < 0, errno == EINTR { continue }
      guard written > 0 else { return }
      rest = rest.dropFirst(written)
    }
  }

  /// The journal when `journalStream` ("device:inode", both decimal) names the file that `standardError` is open on.
  static func destination(journalStream: String?, standardError: CInt) -> Destination {
    var file = stat()
    guard let journalStream, unsafe fstat(standardError, &file) == 0, journalStream == "\(file.st_dev):\(file.st_ino)"
    else {
      return .descriptor(standardError)
    }
    return .journal
  }
}
