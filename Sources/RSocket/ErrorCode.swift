/// Why a request or a connection ended. Not an enum: a code that we do not know survives.
///
/// Source: RSocket 1.0, "Error Codes"; 0x301 and up belong to the application.
public struct ErrorCode: RawRepresentable, Hashable, Sendable {
  /// The number as sent.
  public let rawValue: UInt32

  /// Any number is a code.
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  /// Connection: the first frame is no readable SETUP.
  public static let invalidSetup = ErrorCode(rawValue: 0x001)
  /// Connection: the SETUP asks for what is not offered, such as another version.
  public static let unsupportedSetup = ErrorCode(rawValue: 0x002)
  /// Connection: the SETUP is understood and refused.
  public static let rejectedSetup = ErrorCode(rawValue: 0x003)
  /// Connection: no resumption.
  public static let rejectedResume = ErrorCode(rawValue: 0x004)
  /// Connection: over at once; what is under way is lost.
  public static let connectionError = ErrorCode(rawValue: 0x101)
  /// Connection: over in good order.
  public static let connectionClose = ErrorCode(rawValue: 0x102)
  /// Request: the stream itself failed.
  public static let applicationError = ErrorCode(rawValue: 0x201)
  /// Request: valid, refused, and certainly without effect.
  public static let rejected = ErrorCode(rawValue: 0x202)
  /// Request: given up by its responder, possibly with effect.
  public static let canceled = ErrorCode(rawValue: 0x203)
  /// Request: makes no sense.
  public static let invalid = ErrorCode(rawValue: 0x204)
  /// Request, streamd's own: the subscriber lagged and had asked to fail then.
  public static let lagged = ErrorCode(rawValue: 0x301)
}

extension ErrorCode: CustomStringConvertible {
  /// The name that RSocket gives, such as `INVALID_SETUP`; for other codes `0x` and the number.
  public var description: String {
    switch self {
    case .invalidSetup: "INVALID_SETUP"
    case .unsupportedSetup: "UNSUPPORTED_SETUP"
    case .rejectedSetup: "REJECTED_SETUP"
    case .rejectedResume: "REJECTED_RESUME"
    case .connectionError: "CONNECTION_ERROR"
    case .connectionClose: "CONNECTION_CLOSE"
    case .applicationError: "APPLICATION_ERROR"
    case .rejected: "REJECTED"
    case .canceled: "CANCELED"
    case .invalid: "INVALID"
    case .lagged: "LAGGED"
    default: "0x" + String(rawValue, radix: 16)
    }
  }
}

/// The peer broke the protocol in a way that ends the connection.
public struct ProtocolViolation: Error, Equatable, Sendable {
  /// What the ERROR frame on stream 0 says.
  public let code: ErrorCode
  /// One sentence for the peer's author: which rule, with the numbers.
  public let message: String

  /// A violation that ends the connection with `code`.
  public init(_ code: ErrorCode, _ message: String) {
    self.code = code
    self.message = message
  }

  /// A frame that cannot be read, or must not come now.
  static func malformed(_ message: String) -> ProtocolViolation { ProtocolViolation(.connectionError, message) }
}
