/// The target of a request: a path and parameters, percent-decoded once. Characters beyond ASCII need not be encoded,
/// because curl does not encode them.
///
/// Accepted: the origin form `/path?query`, the absolute form `http://host/path?query`, and `*` for OPTIONS. Refused:
/// the authority form of CONNECT. A path with a segment `.` or `..`, or with an encoded slash, is refused rather than
/// normalised, since a proxy before the server may have decided on another reading. Source: RFC 9112, section 3.2.
public struct RequestTarget: Equatable, Sendable {
  /// A parameter of the query; without `=` its value is empty.
  public struct Parameter: Equatable, Sendable {
    /// The decoded name.
    public let name: String
    /// The decoded value.
    public let value: String
  }

  /// The decoded path, without control characters; begins with a slash, or is `*` for the server as a whole.
  public let path: String
  /// The parameters in the order of the query, duplicates included; `&` separates them. A `+` is a space, as HTML forms,
  /// URLSearchParams and the libraries of most languages encode it; a `+` itself is `%2B`. In the path it is a `+`.
  public let parameters: [Parameter]
  /// The host of the absolute form, which overrides the Host field.
  public let authority: Authority?

  /// - Parameter bytes: visible ASCII characters and bytes beyond ASCII, at least one.
  /// - Throws: 400.
  init(_ bytes: ArraySlice<UInt8>, isOptions: Bool) throws(Rejection) {
    var rest = bytes
    var authority: Authority?
    switch bytes.first {
    case .asterisk? where isOptions && bytes.count == 1:
      (path, parameters, self.authority) = ("*", [], nil)
      return
    case .slash?: break
    case _:
      let text = String(decoding: bytes, as: UTF8.self)
      guard let scheme = ["http://", "https://"].first(where: { text.prefix($0.count).equalsIgnoringCase($0) }) else {
        throw .malformed("the request's target must be a path that begins with a slash, or an http URL")
      }
      rest = rest.dropFirst(scheme.utf8.count)
      let end = rest.firstIndex { $0 == .slash || $0 == UInt8(ascii: "?") } ?? rest.endIndex
      authority = Authority(String(decoding: rest[..<end], as: UTF8.self))
      guard let authority, !authority.host.isEmpty else {
        throw .malformed("the request's target has a malformed host")
      }
      rest = rest[end...]
    }
    let end = rest.firstIndex(of: UInt8(ascii: "?")) ?? rest.endIndex
    let path = try Self.decoded(rest[..<end], .path)
    let segments = path.utf8.contains(UInt8(ascii: ".")) ? path.utf8.split(separator: .slash) : []
    guard !segments.contains(where: { $0.elementsEqual(".".utf8) || $0.elementsEqual("..".utf8) }) else {
      throw .malformed("the request's path contains a segment \".\" or \"..\"")
    }
    self.path = path.isEmpty ? "/" : path
    self.authority = authority
    parameters = try Self.parameters(rest[end...].dropFirst())
  }

  private static func parameters(_ query: ArraySlice<UInt8>) throws(Rejection) -> [Parameter] {
    var parameters: [Parameter] = []
    for part in query.split(separator: UInt8(ascii: "&")) {
      let end = part.firstIndex(of: UInt8(ascii: "=")) ?? part.endIndex
      let name = try decoded(part[..<end], .name)
      parameters.append(Parameter(name: name, value: try decoded(part[end...].dropFirst(), .value)))
    }
    return parameters
  }

  private enum Part { case path, name, value }

  /// White space that JSON has between its tokens, as in the value of `where`.
  private static let space: [UInt8] = [0x09, 0x0A, 0x0D]

  private static func decoded(_ bytes: ArraySlice<UInt8>, _ part: Part) throws(Rejection) -> String {
    guard bytes.contains(where: { $0 == .percent || $0 == .plus && part != .path || $0 >= 0x80 }) else {
      return String(decoding: bytes, as: UTF8.self)  // visible ASCII
    }
    var decoded: [UInt8] = []
    decoded.reserveCapacity(bytes.count)
    var index = bytes.startIndex
    while index < bytes.endIndex {
      var byte = bytes[index]
      index += 1
      if byte == .plus, part != .path {
        byte = .space
      } else if byte == .percent {
        guard bytes.endIndex - index >= 2, let high = bytes[index].hexValue, let low = bytes[index + 1].hexValue else {
          throw .malformed("a percent sign in the request's target is not followed by two hexadecimal digits")
        }
        byte = high << 4 | low
        index += 2
        guard !byte.isControl || part == .value && Self.space.contains(byte) else {
          throw .malformed("the request's target contains an encoded control character")
        }
        guard part != .path || byte != .slash else { throw .malformed("the request's path contains an encoded slash") }
      }
      decoded.append(byte)
    }
    guard let text = String(validating: decoded, as: UTF8.self) else {
      throw .malformed("the request's target is not valid UTF-8")
    }
    return text
  }
}
