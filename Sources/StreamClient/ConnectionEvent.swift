/// Something that happens to a connection, for the program's own log: the parameter `onEvent` of a ``StreamConnection``.
public struct ConnectionEvent: Equatable, Sendable {
  /// How important an event is. The names are those of swift-log.
  public enum Level: String, Comparable, Sendable {
    /// A step of the connection that succeeded or was asked for.
    case debug
    /// The connection was made.
    case info
    /// The connection was lost or cannot be made; a later request tries again.
    case warning
    /// The server refuses the connection, or has ended it because of data from this client.
    case error

    /// Whether `lhs` is less important.
    public static func < (lhs: Level, rhs: Level) -> Bool { lhs.order < rhs.order }

    private var order: Int {
      switch self {
      case .debug: 0
      case .info: 1
      case .warning: 2
      case .error: 3
      }
    }
  }

  /// How important it is.
  public let level: Level
  /// A sentence for people, in one line.
  public let message: String
  /// `server`: the path or the address. `requests`: the number of requests that ended with the connection, if there were any.
  /// `reason`: the server's reason, if it has given one.
  public let metadata: [String: String]
}

extension ConnectionEvent {
  /// The end of a connection, or an attempt in vain.
  static func end(_ error: StreamError, of place: String, requests: Int, isRefused: Bool) -> ConnectionEvent {
    var metadata = ["server": place]
    if requests > 0 { metadata["requests"] = "\(requests)" }
    if let reason = error.reason { metadata["reason"] = "\(reason)" }
    let isFinal = if case .cutOff = error { true } else { isRefused }
    return ConnectionEvent(level: isFinal ? .error : .warning, message: "\(error)", metadata: metadata)
  }
}
