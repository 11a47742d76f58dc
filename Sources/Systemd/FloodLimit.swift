import Glibc

/// Admits a burst of entries per kind, subject and window, counts the rest, and returns the count when the window is
/// over. Has no clock: the caller passes the time.
struct FloodLimit {
  enum Verdict: Equatable {
    case pass
    /// The entry is not written. `firstUntil` is set for the first suppressed entry of a window: the time from which
    /// `takeSuppressed` returns its summary.
    case suppress(firstUntil: ContinuousClock.Instant?)
  }

  /// The use of one subject's window.
  private struct Window {
    let end: ContinuousClock.Instant
    var passedCount = 0
    var suppressedCount = 0
    var last: Journal.Entry?
  }

  /// Entries of one kind about one subject per window. Limits a flood to 2 lines per second, more than a person reads.
  static let burst = 20
  static let window = Duration.seconds(10)
  /// Subjects of one kind with their own burst in a window; all others share one. Bounds both the memory and the lines
  /// of one kind, to 130 per second, however many streams fail at once.
  static let subjectLimit = 64
  /// Those that may be users: streams have the others. Further users share the burst of clients without a user.
  static let userLimit = 48

  /// By message id: as many as the catalogue has, and one for all entries without an id.
  private var kinds: [MessageID?: [Journal.Entry.Subject: Window]] = [:]
  /// The end of the first window with suppressed entries.
  private var nextSummary: ContinuousClock.Instant?

  /// Call `takeSuppressed(at:)` before, with the same time, so that a summary precedes later entries.
  mutating func admit(_ entry: Journal.Entry, at now: ContinuousClock.Instant) -> Verdict {
    let subject = Self.subject(of: entry, in: &kinds[entry.messageID, default: [:]], at: now)
    var window = kinds[entry.messageID]?[subject] ?? Window(end: now + Self.window)
    if now >= window.end { window = Window(end: now + Self.window) }
    defer { kinds[entry.messageID, default: [:]][subject] = window }
    guard window.passedCount == Self.burst else {
      window.passedCount += 1
      return .pass
    }
    window.suppressedCount += 1
    window.last = entry
    nextSummary = min(nextSummary ?? window.end, window.end)
    return .suppress(firstUntil: window.suppressedCount == 1 ? window.end : nil)
  }

  /// One summary for each kind and subject whose window is over (all when `now` is nil) and which exceeded its burst.
  mutating func takeSuppressed(at now: ContinuousClock.Instant?) -> [Journal.Entry] {
    guard let next = nextSummary, now.map({ $0 >= next }) ?? true else { return [] }
    var summaries: [Journal.Entry] = []
    nextSummary = nil
    for (id, windows) in kinds {
      for (subject, window) in windows {
        guard let last = window.last else { continue }
        guard now.map({ $0 >= window.end }) ?? true else {
          nextSummary = min(nextSummary ?? window.end, window.end)
          continue
        }
        kinds[id]?[subject] = nil
        summaries.append(
          Journal.Entry(
            id, last.priority, "\(window.suppressedCount) more such messages suppressed, the last: \(last.message)",
            last.fields + [Journal.Field("STREAMD_SUPPRESSED", "\(window.suppressedCount)")]))
      }
    }
    return summaries
  }

  /// The entry's own subject, or a shared one when too many other subjects of the kind have a window. Root and the
  /// process's own user always have their own.
  private static func subject(
    of entry: Journal.Entry, in windows: inout [Journal.Entry.Subject: Window], at now: ContinuousClock.Instant
  ) -> Journal.Entry.Subject {
    let own = entry.subject
    guard own != .shared, own != .clients, !owners.contains(own), windows[own] == nil else { return own }
    func isFull() -> Bool {
      if case .user = own { windows.keys.count { $0.isUser } >= userLimit } else { windows.count >= subjectLimit }
    }
    guard isFull() else { return own }
    windows = windows.filter { $0.value.last != nil || now < $0.value.end }
    guard isFull() else { return own }
    return own.isUser ? .clients : .shared
  }

  private static let owners: Set<Journal.Entry.Subject> = [.user("0"), .user("\(geteuid())")]
}

extension Journal.Entry {
  /// The subject to which an entry counts, so that one noisy client or program cannot suppress another's entries.
  enum Subject: Hashable {
    /// A user, with all its clients together; the client may have chosen the stream's name.
    case user(String)
    case stream(String)
    /// All clients without a user together, and further users.
    case clients
    /// Everything else of the kind.
    case shared

    fileprivate var isUser: Bool { if case .user = self { true } else { false } }
  }

  var subject: Subject {
    func value(_ name: String) -> String? { fields.first { $0.name == name }?.value }
    if let user = value(Journal.Field.uid(0).name) { return .user(user) }
    if let token = value(Journal.Field.token("").name) { return .user("token \(token)") }
    guard value(Journal.Field.client(0).name) == nil else { return .clients }
    return value(Journal.Field.stream("").name).map { .stream($0) } ?? .shared
  }
}
