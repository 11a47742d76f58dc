/// The status of a response: those that a server of streams needs. Source: RFC 9110, section 15; RFC 6585 (431).
public enum Status: Int, Sendable, CaseIterable {
  case `continue` = 100
  case switchingProtocols = 101
  case ok = 200
  case created = 201
  case noContent = 204
  case notModified = 304
  case badRequest = 400
  case unauthorized = 401
  case forbidden = 403
  case notFound = 404
  case methodNotAllowed = 405
  case notAcceptable = 406
  case requestTimeout = 408
  case conflict = 409
  case contentTooLarge = 413
  case uriTooLong = 414
  case unsupportedMediaType = 415
  case unprocessableContent = 422
  case upgradeRequired = 426
  case tooManyRequests = 429
  case requestHeaderFieldsTooLarge = 431
  case internalServerError = 500
  case notImplemented = 501
  case badGateway = 502
  case serviceUnavailable = 503
  case httpVersionNotSupported = 505

  /// The reason phrase, and a problem's title.
  public var title: String {
    switch self {
    case .continue: "Continue"
    case .switchingProtocols: "Switching Protocols"
    case .ok: "OK"
    case .created: "Created"
    case .noContent: "No Content"
    case .notModified: "Not Modified"
    case .badRequest: "Bad Request"
    case .unauthorized: "Unauthorized"
    case .forbidden: "Forbidden"
    case .notFound: "Not Found"
    case .methodNotAllowed: "Method Not Allowed"
    case .notAcceptable: "Not Acceptable"
    case .requestTimeout: "Request Timeout"
    case .conflict: "Conflict"
    case .contentTooLarge: "Content Too Large"
    case .uriTooLong: "URI Too Long"
    case .unsupportedMediaType: "Unsupported Media Type"
    case .unprocessableContent: "Unprocessable Content"
    case .upgradeRequired: "Upgrade Required"
    case .tooManyRequests: "Too Many Requests"
    case .requestHeaderFieldsTooLarge: "Request Header Fields Too Large"
    case .internalServerError: "Internal Server Error"
    case .notImplemented: "Not Implemented"
    case .badGateway: "Bad Gateway"
    case .serviceUnavailable: "Service Unavailable"
    case .httpVersionNotSupported: "HTTP Version Not Supported"
    }
  }
}

/// A request that is answered with an error. After a rejection by ``RequestParser`` or ``BodyDecoder`` the connection
/// must be closed, because the end of the request is unknown; after any other it may be used again.
public struct Rejection: Error, Equatable, Sendable {
  /// The status of the response.
  public package(set) var status: Status
  /// One sentence for the client, without the bytes that it sent.
  public let detail: String
  /// A URI for its reason, which a program can compare; nil: the status says all.
  package var type: String?
  /// The server has counted and reported it.
  package var isReported = false

  /// Creates a rejection.
  public init(_ status: Status, _ detail: String) {
    self.status = status
    self.detail = detail
  }

  /// 400 Bad Request.
  static func malformed(_ detail: String) -> Rejection { Rejection(.badRequest, detail) }
}
