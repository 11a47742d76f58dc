/// Decides which failures and recoveries of one thing have a note in the journal: the start of a failure, and the
/// recovery. While failures and recoveries alternate, there is one note in a minute, with the number of failures. Knows
/// no clock; times are those of the caller.
struct FailureNotes {
  enum Note: Equatable {
    /// A failure has begun.
    case began
    /// A failure after another one, or while notes are held back.
    case repeated
    /// The failures of the last minute, which had no note of their own.
    case many(Int, last: String)
    /// Nothing fails any more; with the number of failures since they began.
    case ended(Int)
  }

  /// The least time between two notes of a thing that fails and recovers again and again.
  static let period = Duration.seconds(60)

  /// Whether the last attempt has failed.
  private var isFailing = false
  /// Failures since the last note of a recovery.
  private var count = 0
  /// Failures since the last note, and the reason of the last one.
  private var unnoted = (count: 0, last: "")
  /// When another note may be written; nil: now.
  private var end: Duration?
  /// Whether a failure has begun before `end`. Its note, and all others, wait until then.
  private var isHeldBack = false
  private var hasRecovered = false

  /// When `passed` must be called; nil: never.
  var due: Duration? { isHeldBack ? end : nil }

  /// Call `passed` before, with the same time.
  /// - Parameter number: the number of failures, all for this reason.
  mutating func failed(_ reason: String, count number: Int = 1, at now: Duration) -> Note {
    defer { isFailing = true }
    count += number
    unnoted = (unnoted.count + number, reason)
    guard !isFailing, !isHeldBack else { return .repeated }
    guard end == nil else {
      (isHeldBack, hasRecovered) = (true, true)
      return .repeated
    }
    begin(at: now)
    return .began
  }

  /// Call `passed` before, with the same time.
  mutating func recovered(at now: Duration) -> Note? {
    guard isFailing else { return nil }
    (isFailing, hasRecovered) = (false, true)
    return isHeldBack ? nil : ended(at: now)
  }

  /// Returns the note that is due by now; nil: there is none.
  mutating func passed(at now: Duration) -> Note? {
    guard let end, now >= end else { return nil }
    guard isHeldBack else {
      self.end = nil
      return nil
    }
    if !isFailing, unnoted.count == 0 {
      isHeldBack = false
      return ended(at: now)
    }
    // Without a recovery since the last note, the failure lasts. The journal has it by now, so notes are no longer held
    // back.
    isHeldBack = hasRecovered
    hasRecovered = !isFailing
    let failures = unnoted
    begin(at: now)
    return failures.count > 0 ? .many(failures.count, last: failures.last) : nil
  }

  private mutating func begin(at now: Duration) {
    end = now + Self.period
    unnoted.count = 0
  }

  private mutating func ended(at now: Duration) -> Note {
    begin(at: now)
    defer { count = 0 }
    return .ended(count)
  }
}
