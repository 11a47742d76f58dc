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

  /// Whether an If-None-Match field names every tag there is, that of an event which is still to come among them.
  public static func isAny(_ condition: String) -> Bool { condition.trimmed == "*" }

  /// Whether an If-None-Match field names this tag: the answer is 304 to GET and HEAD. The comparison is weak.
  ///
  /// A proxy that compresses a response adds a suffix to its tag, and leaves it in the next condition. No tag of
  /// ``fieldValue`` is another one with a suffix.
  ///
  /// - Parameter condition: the field's value. `*` names every tag; nothing after a syntax error does. Source: RFC
  ///   9110, section 13.1.2.
  public func isNamed(by condition: String) -> Bool {
    if Self.isAny(condition) { return true }
    var rest = condition.utf8[...]
    while true {
      rest = rest.drop { $0.isWhitespace || $0 == .comma }
      if rest.starts(with: "W/".utf8) { rest = rest.dropFirst(2) }
      guard rest.popFirst() == .quote, let end = rest.firstIndex(of: .quote) else { return false }
      let tag = rest[..<end]
      if tag.starts(with: opaque.utf8), Self.isSuffix(tag.dropFirst(opaque.utf8.count)) { return true }
      rest = rest[end...].dropFirst()
      guard rest.isEmpty || rest.first == .comma || rest.first?.isWhitespace == true else { return false }
    }
  }

  /// Nothing, or a coding as proxies add it: `-gzip` (Apache httpd, Caddy), `--gzip` (Jetty), `;gz` (LiteSpeed).
  private static func isSuffix(_ bytes: Substring.UTF8View) -> Bool {
    let coding = bytes.drop { $0 == UInt8(ascii: "-") || $0 == .semicolon }
    let isCoding = coding.allSatisfy { UInt8(ascii: "a")...UInt8(ascii: "z") ~= $0.lowercased }
    return bytes.isEmpty || isCoding && !coding.isEmpty && coding.count < bytes.count
  }
}
