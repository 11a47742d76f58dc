/// What a source does with its upstream, for counters. Called on the source thread.
public enum SourceProgress: Sendable, Equatable {
  /// An attempt begins: a request is sent, or a program is started.
  case attempted
  /// The head of the final response has arrived, after any redirects, this long after the request began. The status is
  /// 200 if another streamd has accepted the connection.
  case answered(status: Int, after: Duration)
  /// This number of bytes was taken, decoded: of a response's body, or of a program's output.
  case received(byteCount: Int)
  /// The next attempt is due after this time, if there is demand then.
  case scheduled(after: Duration)
}
