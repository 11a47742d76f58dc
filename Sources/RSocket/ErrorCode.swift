/// The reason why a request or a connection ended. Not an enum, so that unknown codes are preserved.
///
/// Source: RSocket 1.0, "Error Codes"; 0x301 and up belong to the application.
public struct ErrorCode: RawRepresentable, Hashable, Sendable {
  /// The number as sent.
  public let rawValue: UInt32

  /// Creates a code; any number is valid.
  public init(rawValue: UInt32) { self.rawValue = rawValue }

  /// Connection: the first frame is not a valid SETUP.
  public static let invalidSetup = ErrorCode(rawValue: 0x001)
  /// Connection: the SETUP requests an unsupported feature, such as another version.
  public static let unsupportedSetup = ErrorCode(rawValue: 0x002)
  /// Connection: the SETUP is valid and refused.
  public static let rejectedSetup = ErrorCode(rawValue: 0x003)
  /// Connection: resumption is refused.
  public static let rejectedResume = ErrorCode(rawValue: 0x004)
  /// Connection: closed immediately; live requests are lost.
  public static let connectionError = ErrorCode(rawValue: 0x101)
  /// Connection: closed in an orderly way.
  public static let connectionClose = ErrorCode(rawValue: 0x102)
  /// Request: the stream itself failed.
  public static let applicationError = ErrorCode(rawValue: 0x201)
  /// Request: valid, but refused, and guaranteed to have had no effect.
  public static let rejected = ErrorCode(rawValue: 0x202)
  /// Request: cancelled by its responder, possibly after an effect.
  public static let canceled = ErrorCode(rawValue: 0x203)
  /// Request: invalid.
  public static let invalid = ErrorCode(rawValue: 0x204)
  /// Request, specific to streamd: the subscriber lagged, and its options make that a failure.
  public static let lagged = ErrorCode(rawValue: 0x301)

  /// Request, specific to streamd: ``invalid``, because a value is larger than its receiver allows. Has the number of
  /// `FailureReason.tooLarge`.
  public static let tooLarge = ErrorCode(rawValue: 0x204_0014)
  /// Request, specific to streamd: ``rejected``, because the connection has too many requests. Has the number of
  /// `FailureReason.tooManyRequests`.
  public static let tooManyRequests = ErrorCode(rawValue: 0x202_0009)
  /// Connection, specific to streamd: ``connectionError``, because a request has too many bytes. Has the number of
  /// `FailureReason.requestTooLarge`.
  public static let requestTooLarge = ErrorCode(rawValue: 0x101_002e)

  /// The code without streamd's number of a reason: the upper 16 bits of such a code.
  public var base: ErrorCode { rawValue > 0xffff ? ErrorCode(rawValue: rawValue >> 16) : self }
}

extension ErrorCode: CustomStringConvertible {
  /// The name in the RSocket specification, such as `INVALID_SETUP`; for other codes `0x` and the number.
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

/// A violation of the protocol by the peer that closes the connection.
public struct ProtocolViolation: Error, Equatable, Sendable {
  /// The code of the ERROR frame on stream 0.
  public let code: ErrorCode
  /// One sentence for the peer's developer: the violated rule, with the numbers.
  public let message: String

  /// Creates a violation that closes the connection with `code`.
  public init(_ code: ErrorCode, _ message: String) {
    self.code = code
    self.message = message
  }

  /// Creates the violation for a frame that is malformed or not allowed now.
  static func malformed(_ message: String) -> ProtocolViolation { ProtocolViolation(.connectionError, message) }
}
