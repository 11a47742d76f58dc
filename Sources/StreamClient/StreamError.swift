import RSocket
import StreamRuntime

/// The failure of a remote stream. The texts are the server's own sentences, unless stated otherwise.
public enum StreamError: Error, Equatable, Sendable {
  /// No server listens on the socket, or the socket is not accessible: the system call that failed, with the path or the
  /// address.
  case cannotConnect(SystemError)
  /// The server refuses the request: unknown stream, no access, or a limit is reached. Repeating the request does not
  /// help.
  case rejected(String)
  /// The request is invalid: the server or this library does not accept an option or a name, or the stream has an event
  /// larger than the connection's `maximumEventBytes`. Repeating the request does not help.
  case invalid(String)
  /// The server cancelled the request because it is stopping.
  case canceled(String)
  /// The subscriber fell behind, and its options make that a failure.
  case lagged(String)
  /// The stream itself failed, with another error code.
  case failed(ErrorCode, String)
  /// The connection ended, and every stream on it: this library's sentence, or the server's last message. Values
  /// received before have been delivered.
  case disconnected(String)
  /// The server closed the connection because of data from this client, such as a value over its limit for one request:
  /// its sentence. Repeating the request leads to the same failure.
  case cutOff(String)

  /// Converts the server's ERROR for one request.
  init(_ code: ErrorCode, _ message: String) {
    switch code {
    case .rejected: self = .rejected(message)
    case .invalid: self = .invalid(message)
    case .canceled: self = .canceled(message)
    case .lagged: self = .lagged(message)
    default: self = .failed(code, message)
    }
  }
}

extension StreamError: CustomStringConvertible {
  /// A description in one line.
  public var description: String {
    switch self {
    case .cannotConnect(let error): error.description
    case .rejected(let message), .invalid(let message), .canceled(let message), .lagged(let message),
      .disconnected(let message), .cutOff(let message):
      message
    case .failed(let code, let message): message.isEmpty ? code.description : message
    }
  }
}
