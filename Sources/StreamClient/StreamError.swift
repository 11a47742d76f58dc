import RSocket
import StreamProtocol
import StreamRuntime

/// The failure of a remote stream. The texts are the server's own sentences, unless stated otherwise; they are for people,
/// and may change: programs use ``reason``.
public enum StreamError: Error, Sendable {
  /// No server listens on the socket, or the socket is not accessible: the system call that failed, with the path or the
  /// address.
  case cannotConnect(SystemError)
  /// The server refuses the request: unknown stream, no access, or a limit is reached. Repeating the request does not
  /// help.
  case rejected(String, FailureReason? = nil)
  /// The request is invalid: the server or this library does not accept an option or a name, or the stream has an event
  /// larger than the connection's `maximumEventBytes`. Repeating the request does not help.
  case invalid(String, FailureReason? = nil)
  /// The server cancelled the request: it is stopping, or the stream was changed or removed.
  case canceled(String, FailureReason? = nil)
  /// The subscriber fell behind, and its options make that a failure.
  case lagged(String, FailureReason? = nil)
  /// The stream itself failed, with another error code.
  case failed(ErrorCode, String, FailureReason? = nil)
  /// The connection ended, and every stream on it: this library's sentence, or the server's last message. Values
  /// received before have been delivered.
  case disconnected(String, FailureReason? = nil)
  /// The server closed the connection because of data from this client, such as a value over its limit for one request:
  /// its sentence. Repeating the request leads to the same failure.
  case cutOff(String, FailureReason? = nil)

  /// Converts the server's ERROR for one request.
  init(_ code: ErrorCode, _ message: String) {
    let reason = FailureReason(code: code.rawValue, sentence: message)
    switch code.base {
    case .rejected: self = .rejected(message, reason)
    case .invalid: self = .invalid(message, reason)
    case .canceled: self = .canceled(message, reason)
    case .lagged: self = .lagged(message, reason)
    case .applicationError: self = .failed(.applicationError, message, reason)
    default: self = .failed(code, message, reason)
    }
  }

  /// Why the server ended the request or the connection; `nil` if the failure is not the server's, or if this version does
  /// not know the reason.
  public var reason: FailureReason? {
    switch self {
    case .cannotConnect: nil
    case .rejected(_, let reason), .invalid(_, let reason), .canceled(_, let reason), .lagged(_, let reason),
      .failed(_, _, let reason), .disconnected(_, let reason), .cutOff(_, let reason):
      reason
    }
  }
}

extension StreamError: Equatable {
  /// Whether kind and text are equal. The reason is not compared: a server of the last release sends none.
  public static func == (one: StreamError, other: StreamError) -> Bool {
    switch (one, other) {
    case (.cannotConnect(let one), .cannotConnect(let other)): one == other
    case (.rejected(let one, _), .rejected(let other, _)), (.invalid(let one, _), .invalid(let other, _)),
      (.canceled(let one, _), .canceled(let other, _)), (.lagged(let one, _), .lagged(let other, _)),
      (.disconnected(let one, _), .disconnected(let other, _)), (.cutOff(let one, _), .cutOff(let other, _)):
      one == other
    case (.failed(let one, let text, _), .failed(let other, let otherText, _)): one == other && text == otherText
    case (.cannotConnect, _), (.rejected, _), (.invalid, _), (.canceled, _), (.lagged, _), (.failed, _),
      (.disconnected, _), (.cutOff, _):
      false
    }
  }
}

extension StreamError: CustomStringConvertible {
  /// A description in one line, in which characters of the daemon's sentence that could control a terminal are escaped in
  /// Swift's notation.
  public var description: String {
    switch self {
    case .cannotConnect(let error): error.description
    case .rejected(let message, _), .invalid(let message, _), .canceled(let message, _), .lagged(let message, _),
      .disconnected(let message, _), .cutOff(let message, _):
      message.escapedForReading
    case .failed(let code, let message, _): message.isEmpty ? code.description : message.escapedForReading
    }
  }
}
