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
  /// - Parameter condition: the field's value. `*` names every tag; nothing after a syntax error does. Source: RFC
  ///   9110, section 13.1.2.
  public func isNamed(by condition: String) -> Bool {
    if Self.isAny(condition) { return true }
    var rest = condition.utf8[...]
    while true {
      rest = rest.drop { $0.isWhitespace || $0 == .comma }
      if rest.starts(with: "W/".utf8) { rest = rest.dropFirst(2) }
      guard rest.popFirst() == .quote, let end = rest.firstIndex(of: .quote) else { return false }
      if rest[..<end].elementsEqual(opaque.utf8) { return true }
      rest = rest[end...].dropFirst()
      guard rest.isEmpty || rest.first == .comma || rest.first?.isWhitespace == true else { return false }
    }
  }
}
