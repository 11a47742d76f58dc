import StreamRuntime

/// The delay between a failed attempt and the next one.
public struct Backoff: Sendable, Equatable {
  /// The delay after the first failure.
  public var first: Duration
  /// The maximum delay; each failure in a row doubles the delay up to it.
  public var max: Duration

  /// - Precondition: `first` is greater than zero. A `max` below `first` counts as `first`.
  public init(first: Duration = .seconds(1), max: Duration = .seconds(300)) {
    precondition(first > .zero, "the first delay must be greater than zero, it is \(first)")
    self.first = first
    self.max = Swift.max(first, max)
  }

  /// The delay after `count` failures in a row, at least 1.
  /// - Parameter fraction: 0..<1, drawn anew each time.
  func delay(afterFailures count: Int, fraction: Double) -> Duration {
    .backoff(afterFailures: count, first: first, longest: max, fraction: fraction)
  }
}

/// The pauses after the failures of a source that runs. Only a source that has worked for `Backoff.max` since its last
/// failure begins again with the least pause: otherwise a source that always fails after its first event would be
/// restarted at that pace for ever. Precedent: Kubernetes, CrashLoopBackOff.
struct BackoffSeries {
  private let backoff: Backoff
  private var failures = 0
  /// The first run since the last failure; nil: none has worked.
  private var worksSince: Duration?

  init(_ backoff: Backoff) { self.backoff = backoff }

  /// Records that a run works since then.
  mutating func works(since time: Duration) {
    if worksSince == nil { worksSince = time }
  }

  /// Records that a run has failed, or could not begin.
  /// - Parameter fraction: as in `Backoff`.
  /// - Returns: the pause.
  mutating func failed(at now: Duration, fraction: Double) -> Duration {
    if let worksSince, now - worksSince >= backoff.max { failures = 0 }
    worksSince = nil
    failures += 1
    return backoff.delay(afterFailures: failures, fraction: fraction)
  }
}
