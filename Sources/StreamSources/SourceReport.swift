/// What an operator has to know about a source.
public enum SourceReport: Sendable, Equatable {
  /// Why it failed, in a sentence without a full stop and without anything secret: `HTTP 503 Service Unavailable`. Said of
  /// every failure; `attempt` counts those in a row, from 1.
  case failing(String, attempt: Int, retryIn: Duration)
  /// It has not been asked for longer than a moment, though somebody wants it, because its host is not to be asked now:
  /// `example.org asks for patience until …`. Followed by `failing` or `recovered`.
  case waiting(String)
  /// It works again. After no failures at all, if it had only to wait.
  case recovered(afterFailures: Int)
  /// Something of the upstream's is too large to be kept, in a sentence. Said once.
  case limited(String)
  /// A line that a program wrote to its standard error, without its end; cut at 2 KiB, not to be trusted.
  case said(String)
}
