/// The delay between a failed attempt and the next one.
public struct Backoff: Sendable, Equatable {
  /// The delay after the first failure.
  public let first: Duration
  /// The maximum delay; each failure in a row doubles the delay up to it.
  public let max: Duration

  /// - Precondition: `first` is greater than zero. A `max` below `first` counts as `first`.
  public init(first: Duration = .seconds(1), max: Duration = .seconds(300)) {
    precondition(first > .zero, "a backoff that begins with \(first) is none")
    self.first = first
    self.max = Swift.max(first, max)
  }

  /// The delay after `count` failures in a row, at least 1.
  /// - Parameter fraction: 0..<1, drawn anew each time. Half of the delay is fixed and half is random, so that sources
  ///   that failed together do not retry together.
  func delay(afterFailures count: Int, fraction: Double) -> Duration {
    var delay = first
    var left = count - 1
    while left > 0, delay < max {
      delay = delay * 2
      left -= 1
    }
    return Swift.min(delay, max) * (0.5 + fraction / 2)
  }
}
