/// Lets a burst of each kind of entry through per window, counts the rest, and gives the count when the window is over.
/// Knows no clock: the caller says what time it is.
struct FloodLimit {
  enum Verdict: Equatable {
    case pass
    /// Not to be written. `firstUntil` is set for the first one of a window: the time from which `takeSuppressed`
    /// has something to say about it.
    case suppress(firstUntil: ContinuousClock.Instant?)
  }

  /// What one kind has used up of its window.
  private struct Kind {
    let windowEnd: ContinuousClock.Instant
    var passedCount = 0
    var suppressedCount = 0
    var last: Journal.Entry?
  }

  /// Entries of one kind per window. Few enough that a flood costs 2 lines per second, more than a person reads.
  static let burst = 20
  static let window = Duration.seconds(10)

  /// By message id, those without one together: as many as the catalogue has, plus one.
  private var kinds: [MessageID?: Kind] = [:]

  /// Call `takeSuppressed(at:)` before, with the same time, so that a summary stands before what follows it.
  mutating func admit(_ entry: Journal.Entry, at now: ContinuousClock.Instant) -> Verdict {
    var kind = kinds[entry.messageID] ?? Kind(windowEnd: now + Self.window)
    if now >= kind.windowEnd { kind = Kind(windowEnd: now + Self.window) }
    defer { kinds[entry.messageID] = kind }
    guard kind.passedCount == Self.burst else {
      kind.passedCount += 1
      return .pass
    }
    kind.suppressedCount += 1
    kind.last = entry
    return .suppress(firstUntil: kind.suppressedCount == 1 ? kind.windowEnd : nil)
  }

  /// One summary for each kind whose window is over (all kinds when `now` is nil) and which had more than its burst.
  mutating func takeSuppressed(at now: ContinuousClock.Instant?) -> [Journal.Entry] {
    var summaries: [Journal.Entry] = []
    for (id, kind) in kinds {
      guard let last = kind.last, now.map({ $0 >= kind.windowEnd }) ?? true else { continue }
      kinds[id] = nil
      summaries.append(
        Journal.Entry(
          id, last.priority, "\(kind.suppressedCount) more such messages suppressed, the last: \(last.message)",
          [Journal.Field("STREAMD_SUPPRESSED", "\(kind.suppressedCount)")]))
    }
    return summaries
  }
}
