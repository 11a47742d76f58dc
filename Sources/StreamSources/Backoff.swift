/// How long a source that fails is left alone.
public struct Backoff: Sendable, Equatable {
  /// After the first failure.
  public let first: Duration
  /// Each failure doubles the wait up to this.
  public let max: Duration

  /// - Precondition: `first` is more than nothing. A `max` under it counts as `first`.
  public init(first: Duration = .seconds(1), max: Duration = .seconds(300)) {
    precondition(first > .zero, "a backoff that begins with \(first) is none")
    self.first = first
    self.max = Swift.max(first, max)
  }

  /// The wait after so many failures in a row, at least 1.
  /// - Parameter fraction: 0..<1, drawn anew each time. Half of the wait is fixed and half is drawn, so that those who
  ///   failed together do not come back together.
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
