extension Duration {
  /// The delay before the next attempt: `first`, doubled by each further failure in a row up to `longest`.
  /// - Parameters:
  ///   - count: of failures in a row, at least 1.
  ///   - fraction: 0..<1, drawn anew each time. Half of the delay is fixed and half is random, so that those who failed
  ///     together do not retry together.
  package static func backoff(afterFailures count: Int, first: Self, longest: Self, fraction: Double) -> Self {
    var delay = first
    var left = count - 1
    while left > 0, delay < longest {
      delay = delay * 2
      left -= 1
    }
    return min(delay, longest) * (0.5 + fraction / 2)
  }
}
