/// A request without its body. Its syntax is valid; only its meaning remains to be decided.
///
/// It owns a copy of its bytes, at most ``RequestParser/maximumHeadByteCount``; the caller may reuse its buffer.
public struct RequestHead: Equatable, Sendable {
  /// What the request wants. Case matters: `get` is another method than `GET`. Source: RFC 9110, section 9.
  public enum Method: Hashable, Sendable {
    case get
    case head
    case post
    case put
    case delete
    case options
    /// Any other one, which the server refuses with 405 or 501.
    case other(String)

    init(_ name: String) {
      switch name {
      case "GET": self = .get
      case "HEAD": self = .head
      case "POST": self = .post
      case "PUT": self = .put
      case "DELETE": self = .delete
      case "OPTIONS": self = .options
      default: self = .other(name)
      }
    }
  }

  /// A version that is served.
  public enum Version: Sendable {
    case http10
    case http11
  }

  /// Where the body ends. Source: RFC 9112, section 6.3.
  public enum BodyFraming: Equatable, Sendable {
    /// There is no body.
    case none
    /// The number of bytes, which may be 0.
    case length(UInt64)
    /// The body consists of chunks.
    case chunked

    /// Whether no body follows the head: some clients send a length of 0 with every request.
    public var isEmpty: Bool { self == .none || self == .length(0) }
  }

  /// A field line: offsets in `bytes`, which has less than 2^16 of them.
  struct Field: Equatable, Sendable {
    let nameStart: UInt16
    let nameEnd: UInt16
    let valueStart: UInt16
    let valueEnd: UInt16

    init(name: Range<Int>, value: Range<Int>) {
      nameStart = UInt16(name.lowerBound)
      nameEnd = UInt16(name.upperBound)
      valueStart = UInt16(value.lowerBound)
      valueEnd = UInt16(value.upperBound)
    }

    var name: Range<Int> { Int(nameStart)..<Int(nameEnd) }
    var value: Range<Int> { Int(valueStart)..<Int(valueEnd) }
  }

  /// The bytes from the method to the empty line.
  package let bytes: [UInt8]
  let fields: [Field]
  /// The number of bytes that the head takes in the input, empty lines before it included; the body follows.
  public let byteCount: Int
  /// The method.
  public let method: Method
  /// What the request is for.
  public let target: RequestTarget
  /// The client's version.
  public let version: Version
  /// Where the body ends.
  public let framing: BodyFraming
  /// The requested host: that of an absolute target, else that of the Host field. Empty if there is none, which
  /// HTTP/1.0 allows.
  public let authority: Authority

  /// - Throws: for fields that leave the body's end or the host unclear, and for a malformed target.
  init(
    bytes: [UInt8], fields: [Field], byteCount: Int, method: Range<Int>, target: Range<Int>, version: Version
  ) throws(Rejection) {
    self.bytes = bytes
    self.fields = fields
    self.byteCount = byteCount
    self.method = Method(String(decoding: bytes[method], as: UTF8.self))
    self.version = version
    self.target = try RequestTarget(bytes[target], isOptions: self.method == .options)
    framing = try Self.framing(bytes, fields, version)
    let host = try Self.host(bytes, fields, version)
    authority = self.target.authority ?? host
  }

  private static func framing(
    _ bytes: [UInt8], _ fields: [Field], _ version: Version
  ) throws(Rejection) -> BodyFraming {
    var framing = BodyFraming.none
    for field in fields {
      let name = bytes[field.name]
      let isLength = name.equalsIgnoringCase("content-length")
      guard isLength || name.equalsIgnoringCase("transfer-encoding") else { continue }
      switch framing {
      case .none: break
      case .length where isLength: throw .malformed("there are several Content-Length fields")
      case .chunked where !isLength: throw .malformed("there are several Transfer-Encoding fields")
      case .length, .chunked: throw .malformed("there are both a Content-Length and a Transfer-Encoding field")
      }
      let value = bytes[field.value]
      if isLength {
        framing = .length(try length(value))
      } else {
        guard value.equalsIgnoringCase("chunked") else {
          throw .malformed("the only transfer coding that is supported is \"chunked\"")
        }
        guard version == .http11 else { throw .malformed("HTTP/1.0 has no transfer codings") }
        framing = .chunked
      }
    }
    return framing
  }

  private static func length(_ digits: ArraySlice<UInt8>) throws(Rejection) -> UInt64 {
    guard !digits.isEmpty, digits.allSatisfy(\.isDigit) else {
      throw .malformed("Content-Length must consist of digits only")
    }
    var length: UInt64 = 0
    for digit in digits {
      let (tenfold, overflow) = length.multipliedReportingOverflow(by: 10)
      let (sum, carry) = tenfold.addingReportingOverflow(UInt64(digit - UInt8(ascii: "0")))
      guard !overflow, !carry, sum <= UInt64(Int64.max) else { throw .malformed("Content-Length is too large") }
      length = sum
    }
    return length
  }

  private static func host(_ bytes: [UInt8], _ fields: [Field], _ version: Version) throws(Rejection) -> Authority {
    var host: Authority?
    for field in fields where bytes[field.name].equalsIgnoringCase("host") {
      guard host == nil else { throw .malformed("there are several Host fields") }
      guard let authority = Authority(String(decoding: bytes[field.value], as: UTF8.self)) else {
        throw .malformed("the Host field is malformed")
      }
      host = authority
    }
    switch (host, version) {
    case (let host?, _): return host
    case (nil, .http10): return Authority()
    case (nil, .http11): throw .malformed("there is no Host field")
    }
  }
}

extension RequestHead {
  /// Returns a field's value. The values of several lines are joined with ", "; only lists may have several.
  ///
  /// - Parameter name: in any case.
  /// - Returns: nil without such a field; invalid UTF-8 becomes U+FFFD.
  public subscript(name: String) -> String? {
    var value: String?
    for field in fields where bytes[field.name].equalsIgnoringCase(name) {
      let line = String(decoding: bytes[field.value], as: UTF8.self)
      value = value.map { $0 + ", " + line } ?? line
    }
    return value
  }

  /// The token of an Authorization field with the scheme Bearer, as it was sent; nil: there is none of this scheme. Source:
  /// RFC 6750, section 2.1.
  public var bearerToken: String? {
    guard let value = self["Authorization"] else { return nil }
    let scheme = value.prefix { $0 != " " }
    return scheme.lowercased() == "bearer" ? String(value.dropFirst(scheme.count).drop { $0 == " " }) : nil
  }

  /// Whether a field that is a list of tokens, such as Connection or Upgrade, contains this one in any case.
  public func contains(_ token: String, in name: String) -> Bool {
    guard let value = self[name] else { return false }
    return value.elements(separatedBy: .comma).contains { $0.equalsIgnoringCase(token) }
  }

  /// Whether the client accepts a further request on this connection. Source: RFC 9112, section 9.3.
  public var keepsConnection: Bool {
    switch version {
    case .http11: !contains("close", in: "Connection")
    case .http10: contains("keep-alive", in: "Connection") && !contains("close", in: "Connection")
    }
  }

  /// Whether the body has a content coding, such as gzip or an unknown one. Source: RFC 9110, section 8.4.
  public var hasContentCoding: Bool {
    (self["Content-Encoding"] ?? "").elements(separatedBy: .comma).contains { !$0.equalsIgnoringCase("identity") }
  }

  /// Whether the client waits for the status 100 before it sends the body. Source: RFC 9110, section 10.1.1.
  public var expectsContinue: Bool { version == .http11 && framing != .none && contains("100-continue", in: "Expect") }
}

extension ArraySlice<UInt8> {
  fileprivate func equalsIgnoringCase(_ text: String) -> Bool {
    count == text.utf8.count && zip(self, text.utf8).allSatisfy { $0.lowercased == $1.lowercased }
  }
}
