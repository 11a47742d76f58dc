import CSystemd
import Events
import Glibc

/// Reads the entries of a journal that fit, in order. Confined to a thread of a process of its own: libsystemd ends the
/// process on some damaged files, opens each file of the journal, and waits for the disk.
@safe final class JournalReader {
  /// Why the journal cannot be read, as a sentence.
  struct Failure: Error, Equatable {
    let sentence: String

    init(_ sentence: String) { self.sentence = sentence }
  }

  /// An entry that was read.
  enum Entry {
    case event([UInt8])
    /// The daemon has caused it.
    case own
    /// It cannot be an event, for this reason.
    case dropped(String)
  }

  /// What has changed since the last call.
  enum Change {
    case nothing, grown
    /// Files have appeared, or have gone.
    case otherFiles
  }

  private let journal: OpaquePointer
  private let matches: [String]
  private let eventLimit: Int
  private let own = OwnJournalEntries.ofParent()
  /// Whether the present entry has not been read yet.
  private var isAtUnread = false

  /// - Parameters:
  ///   - directory: nil: the journal of this machine.
  ///   - matches: as those of `JournalConfiguration`.
  init(directory: String?, matches: [String], eventLimit: Int) throws(Failure) {
    (self.matches, self.eventLimit) = (matches, eventLimit)
    var opened: OpaquePointer?
    let code =
      if let directory { unsafe sd_journal_open_directory(&opened, directory, 0) } else {
        unsafe sd_journal_open(&opened, CInt(SD_JOURNAL_LOCAL_ONLY))
      }
    guard code >= 0, let opened = unsafe opened else { throw Self.failure("cannot open the journal", code) }
    unsafe journal = opened
    // Watches the files before the first one is read. Compressed fields are cut where they are too long.
    try check(unsafe sd_journal_get_fd(journal), "cannot watch the journal")
    try check(unsafe sd_journal_set_data_threshold(journal, eventLimit + 1), "cannot open the journal")
    try addMatches()
  }

  deinit { unsafe sd_journal_close(journal) }

  private static func failure(_ what: String, _ code: CInt) -> Failure {
    unsafe Failure("\(what): \(String(cString: strerror(-code)))")
  }

  private func check(_ code: CInt, _ what: String) throws(Failure) {
    if code < 0 { throw Self.failure(what, code) }
  }

  // MARK: Its files

  /// Readable when `takeChanges` has something to do.
  var descriptor: CInt { unsafe sd_journal_get_fd(journal) }

  /// The time after which `takeChanges` must be called at the latest, in milliseconds; nil: there is none.
  var timeLimit: Int? {
    var time: UInt64 = 0
    guard unsafe sd_journal_get_timeout(journal, &time) >= 0, time != .max else { return nil }
    var now = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &now)
    let passed = UInt64(now.tv_sec) * 1_000_000 + UInt64(now.tv_nsec) / 1000
    return Int(clamping: (max(time, passed) - passed) / 1000 + 1)
  }

  /// Notices what has changed.
  func takeChanges() throws(Failure) -> Change {
    let change = unsafe sd_journal_process(journal)
    try check(change, "cannot watch the journal")
    return switch Int(change) {
    case SD_JOURNAL_NOP: .nothing
    case SD_JOURNAL_APPEND: .grown
    default: .otherFiles
    }
  }

  // MARK: The position

  private func addMatches() throws(Failure) {
    for match in matches {
      try check(unsafe sd_journal_add_match(journal, match, match.utf8.count), "the match \"\(match)\" is not valid")
    }
  }

  /// Continues with the first entry that is not older.
  /// - Parameter time: microseconds since the Unix epoch.
  func seek(to time: UInt64) throws(Failure) {
    isAtUnread = false
    try check(unsafe sd_journal_seek_realtime_usec(journal, time), "cannot search the journal")
  }

  /// Continues after an entry.
  /// - Returns: the loss, if entries may have been removed that follow it.
  func place(after cursor: [UInt8]) throws(Failure) -> EventLoss? {
    // The entry need not fit, if the matches were others, or if it is the mark of the end.
    unsafe sd_journal_flush_matches(journal)
    var loss: EventLoss?
    let isThere = try move(to: cursor)
    if isThere != true {
      let next = isThere == nil ? nil : JournalCursor(try self.cursor())
      if JournalCursor(cursor)?.isFollowed(by: next) != true { loss = matches.isEmpty ? .unknown : .possible }
    }
    try addMatches()
    isAtUnread = try move(to: cursor) == false
    return loss
  }

  /// - Returns: whether the present entry is that of the cursor, or follows it; nil: none follows.
  private func move(to cursor: [UInt8]) throws(Failure) -> Bool? {
    isAtUnread = false
    let text = String(decoding: cursor, as: UTF8.self)
    try check(unsafe sd_journal_seek_cursor(journal, text), "cannot search the journal")
    guard try next() else { return nil }
    return unsafe sd_journal_test_cursor(journal, text) > 0
  }

  /// The newest entry, whether it fits or not; nil: there is none. `place` or `seek` must follow.
  func newestCursor() throws(Failure) -> [UInt8]? {
    unsafe sd_journal_flush_matches(journal)
    try check(unsafe sd_journal_seek_tail(journal), "cannot search the journal")
    let code = unsafe sd_journal_previous(journal)
    try check(code, "cannot search the journal")
    let newest = code > 0 ? try cursor() : nil
    try addMatches()
    return newest
  }

  /// Moves to the next entry.
  /// - Returns: false: there is none yet.
  func next() throws(Failure) -> Bool {
    if isAtUnread {
      isAtUnread = false
      return true
    }
    let code = unsafe sd_journal_next(journal)
    try check(code, "cannot read the journal")
    return code > 0
  }

  /// The cursor of the present entry.
  func cursor() throws(Failure) -> [UInt8] {
    var text: UnsafeMutablePointer<CChar>?
    try check(unsafe sd_journal_get_cursor(journal, &text), "cannot read the journal")
    defer { unsafe free(text) }
    return unsafe text.map { unsafe Array(String(cString: $0).utf8) } ?? []
  }

  // MARK: The entry

  /// Reads the present entry.
  /// - Parameter cursor: its cursor.
  func entry(_ cursor: [UInt8]) -> Entry {
    var (realtime, monotonic, boot) = (UInt64(0), UInt64(0), sd_id128_t())
    var code = unsafe sd_journal_get_realtime_usec(journal, &realtime)
    if code >= 0 { code = unsafe sd_journal_get_monotonic_usec(journal, &monotonic, &boot) }
    guard code >= 0 else { return .dropped(unreadable(code)) }
    var text = JournalEntryText(
      cursor: cursor, realtime: realtime, monotonic: monotonic, bootID: boot.hexadecimal, limit: eventLimit)
    var author = OwnJournalEntries.Author()
    unsafe sd_journal_restart_data(journal)
    var isTooLarge = false
    while true {
      var (data, count): (UnsafeRawPointer?, Int) = (nil, 0)
      code = unsafe sd_journal_enumerate_available_data(journal, &data, &count)
      guard code > 0, let data = unsafe data else { break }
      let bytes = unsafe UnsafeRawBufferPointer(start: data, count: count).bindMemory(to: UInt8.self)
      let field = unsafe bytes.span
      author.note(field)
      isTooLarge = isTooLarge || count > eventLimit || text.isTooLarge
      if !isTooLarge { text.add(field) }
    }
    if own.contains(author) { return .own }
    if code < 0 { return .dropped(unreadable(code)) }
    return isTooLarge || text.isTooLarge ? .dropped(tooLarge) : .event(text.json())
  }

  private var tooLarge: String { SourceFailure.over(eventLimit, "an entry").sentence + " was left out (max_body)" }

  private func unreadable(_ code: CInt) -> String { Self.failure("an entry cannot be read", code).sentence }
}

/// The place of an entry in the sequence that one journald has written.
struct JournalCursor: Equatable {
  /// Identifies the sequence.
  let sequence: String
  /// The number of the entry in it.
  let number: UInt64

  /// - Parameter cursor: `s=ID;i=HEX;…`.
  /// - Returns: nil if it does not have both.
  init?(_ cursor: [UInt8]) {
    var parts: [Substring: Substring] = [:]
    for part in String(decoding: cursor, as: UTF8.self).split(separator: ";") {
      guard let end = part.firstIndex(of: "=") else { continue }
      parts[part[..<end]] = part[part.index(after: end)...]
    }
    guard let sequence = parts["s"], let number = parts["i"].flatMap({ UInt64($0, radix: 16) }) else { return nil }
    (self.sequence, self.number) = (String(sequence), number)
  }

  /// Whether the other one is certainly the next entry.
  func isFollowed(by other: JournalCursor?) -> Bool {
    other?.sequence == sequence && number < .max && other?.number == number + 1
  }
}
