/// The tag of what a response contains. Source: RFC 9110, section 8.8.3.
public struct EntityTag: Equatable, Sendable {
  private let opaque: String

  /// The tag of an event.
  public init(eventID: UInt64) { opaque = String(eventID) }

  /// A tag of other content.
  /// - Parameter digest: shown in hexadecimal digits.
  public init(digest: UInt64) { opaque = "x" + String(digest, radix: 16) }

  /// The value of an ETag field: a strong tag, in quotes.
  public var fieldValue: String { "\"\(opaque)\"" }

  /// Whether an If-None-Match field names every tag, including that of a future event.
  public static func isAny(_ condition: String) -> Bool { condition.trimmed == "*" }

  /// Whether an If-None-Match field names this tag: the answer is 304 to GET and HEAD. The comparison is weak.
  ///
  /// A proxy that compresses a response adds a suffix to its tag, and leaves the suffix in the next condition. No tag
  /// of ``fieldValue`` equals another one with a suffix.
  ///
  /// - Parameter condition: the field's value. `*` names every tag; nothing after a syntax error does. Source: RFC
  ///   9110, section 13.1.2. Some clients remove the quotes of a tag that they send back.
  public func isNamed(by condition: String) -> Bool {
    if Self.isAny(condition) { return true }
    var rest = condition.utf8[...]
    while true {
      rest = rest.drop { $0.isWhitespace || $0 == .comma }
      if rest.starts(with: "W/".utf8) { rest = rest.dropFirst(2) }
      guard let tag = Self.tag(atHeadOf: &rest) else { return false }
      if tag.starts(with: opaque.utf8), Self.isSuffix(tag.dropFirst(opaque.utf8.count)) { return true }
      guard rest.isEmpty || rest.first == .comma || rest.first?.isWhitespace == true else { return false }
    }
  }

  /// - Returns: nil if there is none.
  private static func tag(atHeadOf rest: inout Substring.UTF8View) -> Substring.UTF8View? {
    let tag: Substring.UTF8View
    if rest.first == .quote {
      rest = rest.dropFirst()
      guard let end = rest.firstIndex(of: .quote) else { return nil }
      tag = rest[..<end]
      rest = rest[end...].dropFirst()
    } else {
      tag = rest.prefix { !$0.isWhitespace && $0 != .comma && $0 != .quote }
      rest = rest.dropFirst(tag.count)
      if tag.isEmpty { return nil }
    }
    return tag
  }

  /// Nothing, or a coding as proxies add it: `-gzip` (Apache httpd, Caddy), `--gzip` (Jetty), `;gz` (LiteSpeed).
  private static func isSuffix(_ bytes: Substring.UTF8View) -> Bool {
    let coding = bytes.drop { $0 == UInt8(ascii: "-") || $0 == .semicolon }
    let isCoding = coding.allSatisfy { UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0.lowercased }
    return bytes.isEmpty || isCoding && !coding.isEmpty && coding.count < bytes.count
  }
}
