/// Decides which failures and recoveries of one thing the journal has: the start of a failure, and the recovery. While
/// they follow each other, the journal has one note in a minute, with the number of failures. Knows no clock; times are
/// those of the caller.
struct FailureNotes {
  enum Note: Equatable {
    /// A failure has begun.
    case began
    /// Another failure, in a row or while notes are held back.
    case repeated
    /// Failures of the last minute, which had no note of their own.
    case many(Int, last: String)
    /// Nothing fails any more: the failures since it began.
    case ended(Int)
  }

  /// The least time between two notes of a thing that fails and recovers again and again.
  static let period = Duration.seconds(60)

  /// Whether the last attempt has failed.
  private var isFailing = false
  /// Failures since the note that they began.
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
  /// - Parameter number: of failures, for the same reason.
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

  /// Time has passed.
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
    // Without a recovery it fails for long, which the journal has by now.
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
