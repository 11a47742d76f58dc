import RSocket
import StreamRuntime

/// Why a remote stream failed. The texts are the server's own sentences, except where said.
public enum StreamError: Error, Equatable, Sendable {
  /// Nobody serves the socket, or it may not be reached: the call that failed, with the path.
  case cannotConnect(SystemError)
  /// The server refuses the request: no such stream, not allowed, or over a limit. Asking again changes nothing.
  case rejected(String)
  /// The request makes no sense: an option or a name that the server, or this library, cannot take; or the stream has an
  /// event over the connection's `maximumEventBytes`. Asking again changes nothing.
  case invalid(String)
  /// The server gave the request up: it is stopping.
  case canceled(String)
  /// The subscriber fell behind and had asked to fail then.
  case lagged(String)
  /// The stream itself failed, with any other code.
  case failed(ErrorCode, String)
  /// The connection is gone, and every stream on it: this library's sentence, or the server's last word. What was sent
  /// before has been delivered.
  case disconnected(String)
  /// The server has closed the connection for something that came from here, such as a value over its limit for one
  /// request: its sentence. Doing the same again leads to the same.
  case cutOff(String)

  /// The server's ERROR on one request.
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
  /// One line for a person.
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
