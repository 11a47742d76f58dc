/// What an operator has to know about a source.
public enum SourceReport: Sendable, Equatable {
  /// Why it failed, in a sentence without a full stop and without anything secret: `HTTP 503 Service Unavailable`. Said of
  /// every failure; `attempt` counts those in a row, from 1.
  case failing(String, attempt: Int, retryIn: Duration)
  /// It works again.
  case recovered(afterFailures: Int)
  /// A line that a program wrote to its standard error, without its end; cut at 2 KiB, not to be trusted.
  case said(String)
}
