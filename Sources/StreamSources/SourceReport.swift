import Events

/// A source's report for the operator.
public enum SourceReport: Sendable, Equatable {
  /// The reason of a failure, as a sentence without full stop and without secrets: `HTTP 503 Service Unavailable`.
  /// Reported for every failure; `attempt` counts failures in a row, from 1.
  case failing(String, attempt: Int, retryIn: Duration)
  /// As above, without another attempt before a refresh.
  case halted(String)
  /// A request with demand has waited for more than a moment, because its host is rate-limited or busy: the reason, as
  /// a sentence. Followed by `failing` or `recovered`.
  case waiting(String)
  /// The source works again; after no failures if it only waited.
  case recovered(afterFailures: Int)
  /// A validator or id of the upstream exceeds its limit and is not stored, as a sentence. Reported once.
  case limited(String)
  /// Events that are left out, and their number: the reason, as a sentence. Followed by `complete`.
  case lost(String, count: Int)
  /// The next events came without a loss.
  case complete
  /// A line of a program's standard error, without its line end; cut at 2 KiB, untrusted.
  case said(String)
  /// Events were lost before the source could read them; with the stream whose events they are.
  case missed(EventLoss, of: String)
  /// Events are read again, after a loss.
  case current
}
