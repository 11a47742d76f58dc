import CCurl

/// A name and a value in the query of a URL.
public struct HTTPQueryItem: Sendable, Equatable {
  /// Any text except an empty one.
  public let name: String
  /// Any text. May be a secret: never printed.
  public let value: String

  /// Takes both unencoded; they are encoded when sent.
  public init(name: String, value: String) {
    self.name = name
    self.value = value
  }

  /// `name=value`, percent-encoded.
  var encoded: String { Self.encoded(name) + "=" + Self.encoded(value) }

  /// The text, percent-encoded except for RFC 3986's unreserved characters.
  static func encoded(_ text: String) -> String {
    var bytes: [UInt8] = []
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
        UInt8(ascii: "~"):
        bytes.append(byte)
      default: bytes += byte.percentEncoded
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}

extension UInt8 {
  fileprivate var percentEncoded: [UInt8] {
    let digits = Array("0123456789abcdef".utf8)
    return [UInt8(ascii: "%"), digits[Int(self >> 4)], digits[Int(self & 15)]]
  }

  /// Whether a URL cannot contain this ASCII character (RFC 3986, section 2), except for a space and `%`. libcurl encodes
  /// spaces and other bytes; a `%` may be that of an encoded one.
  fileprivate var isExcludedFromURLs: Bool {
    self < 0x20 || self == 0x7F || "\"<>\\^`{|}".utf8.contains(self)
  }
}

/// An absolute http or https URL, parsed by libcurl's own parser, so that the checked URL is the used one.
struct HTTPURL: Equatable, Sendable {
  /// The server: secrets are sent only to this origin.
  struct Origin: Hashable, Sendable {
    /// `http` or `https`.
    let scheme: String
    /// As in the URL; an IPv6 address in brackets.
    let host: String
    /// The explicit port, or the scheme's default.
    let port: String

    /// `host:port`, without the scheme's default port.
    var authority: String {
      (scheme, port) == ("http", "80") || (scheme, port) == ("https", "443") ? host : "\(host):\(port)"
    }
  }

  /// Normalised; without user, password and fragment. Its query may contain a secret: never printed.
  let string: String
  /// Scheme, host and port.
  let origin: Origin
  /// The URL's user, decoded.
  let user: String?
  /// The URL's password, decoded.
  let password: String?

  /// - Parameters:
  ///   - text: absolute.
  ///   - query: appended to the query of `text`.
  /// - Throws: a sentence, when it is not a URL or has another scheme. Never repeats `text`, which may contain a
  ///   password.
  init(_ text: String, adding query: [HTTPQueryItem] = []) throws(SourceFailure) {
    try self.init(FieldValue(Array(text.utf8)), relativeTo: nil, adding: query)
  }

  /// - Parameters:
  ///   - location: the value of a Location field, absolute or relative to `base`. Bytes that a URL cannot contain are
  ///     percent-encoded, whether they are UTF-8 or not.
  /// - Throws: as for a text.
  init(_ location: FieldValue, relativeTo base: HTTPURL?, adding query: [HTTPQueryItem] = []) throws(SourceFailure) {
    let bytes =
      base == nil ? location.bytes : location.bytes.flatMap { $0.isExcludedFromURLs ? $0.percentEncoded : [$0] }
    let text = bytes.map { CChar(bitPattern: $0) } + [0]
    guard let url = unsafe curl_url() else { throw SourceFailure("out of memory") }
    defer { unsafe curl_url_cleanup(url) }
    if let base { unsafe curl_url_set(url, CURLUPART_URL, base.string, 0) }
    switch unsafe curl_url_set(url, CURLUPART_URL, text, UInt32(CURLU_URLENCODE)) {
    case CURLUE_OK: break
    case CURLUE_UNSUPPORTED_SCHEME: throw .otherScheme
    default: throw .malformedURL
    }
    func part(_ part: CURLUPart, _ flags: Int32 = 0) -> String? {
      var bytes: UnsafeMutablePointer<CChar>?
      guard unsafe curl_url_get(url, part, &bytes, UInt32(flags)) == CURLUE_OK, let bytes = unsafe bytes else {
        return nil
      }
      defer { unsafe curl_free(bytes) }
      return unsafe String(validatingCString: bytes)
    }
    guard let scheme = part(CURLUPART_SCHEME), scheme == "http" || scheme == "https" else { throw .otherScheme }
    // A host with a malformed percent-encoding is kept; connecting to it then fails.
    guard let host = part(CURLUPART_HOST), !host.contains("%") || host.hasPrefix("["),
      let port = part(CURLUPART_PORT, CURLU_DEFAULT_PORT)
    else {
      throw .malformedURL
    }
    origin = Origin(scheme: scheme, host: host.lowercased(), port: port)
    user = part(CURLUPART_USER, CURLU_URLDECODE)
    password = part(CURLUPART_PASSWORD, CURLU_URLDECODE)
    // A user or password that is not UTF-8 cannot be sent as it is meant.
    guard (user != nil) == (part(CURLUPART_USER) != nil), (password != nil) == (part(CURLUPART_PASSWORD) != nil) else {
      throw .malformedURL
    }
    for secret in [CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_OPTIONS, CURLUPART_FRAGMENT] {
      unsafe curl_url_set(url, secret, nil, 0)
    }
    for item in query { unsafe curl_url_set(url, CURLUPART_QUERY, item.encoded, UInt32(CURLU_APPENDQUERY)) }
    guard let string = part(CURLUPART_URL) else { throw .malformedURL }
    self.string = string
  }

  /// The URL with a further parameter.
  func adding(_ item: HTTPQueryItem) throws(SourceFailure) -> HTTPURL {
    try HTTPURL(FieldValue(Array(string.utf8)), relativeTo: self, adding: [item])
  }

  /// The path and the query without these parameters.
  func relative(without query: [HTTPQueryItem]) -> String {
    let names = Set(query.map { $0.encoded.prefix { $0 != "=" } })
    let place = string.firstRange(of: "://").map { string[$0.upperBound...].drop { !"/?".contains($0) } } ?? ""
    let path = place.prefix { $0 != "?" }
    let rest = place.dropFirst(path.count + 1).split(separator: "&").filter { !names.contains($0.prefix { $0 != "=" }) }
    return path + (rest.isEmpty ? "" : "?" + rest.joined(separator: "&"))
  }

  /// The URL with another host.
  func replacingHost(by name: String) -> String {
    guard let url = unsafe curl_url() else { return string }
    defer { unsafe curl_url_cleanup(url) }
    var bytes: UnsafeMutablePointer<CChar>?
    guard unsafe curl_url_set(url, CURLUPART_URL, string, 0) == CURLUE_OK,
      unsafe curl_url_set(url, CURLUPART_HOST, name, 0) == CURLUE_OK,
      unsafe curl_url_get(url, CURLUPART_URL, &bytes, 0) == CURLUE_OK, let bytes = unsafe bytes
    else { return string }
    defer { unsafe curl_free(bytes) }
    return unsafe String(cString: bytes)
  }

  /// The URL of a request for a WebSocket. `ws:` and `wss:` become `http:` and `https:`, which have the same forms, ports
  /// and origins; anything else stays.
  static func ofHandshake(_ url: [UInt8]) -> [UInt8] {
    let scheme = String(decoding: url.prefix(4), as: UTF8.self).lowercased()
    return scheme.hasPrefix("ws:") || scheme == "wss:" ? Array("http".utf8) + url.dropFirst(2) : url
  }
}
