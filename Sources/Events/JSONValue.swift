/// A value in a JSON text that is completely in memory. It is read from the text on request, and nothing else is built:
/// a text takes only the memory of its bytes.
package struct JSONValue: Sendable {
  private let text: [UInt8]
  private let range: Range<Int>

  /// - Returns: nil unless the bytes are one JSON text in UTF-8.
  /// - Complexity: O(n).
  package init?(_ text: [UInt8]) {
    guard JSONSyntax.holds(for: text.span) else { return nil }
    self.init(text, from: Self.skipSpace(in: text, from: 0))
  }

  /// The value that begins at an index of a valid text.
  private init(_ text: [UInt8], from start: Int) {
    self.text = text
    range = start..<Self.endOfValue(in: text, from: start)
  }

  /// The value as it is written.
  package var bytes: ArraySlice<UInt8> { text[range] }

  package var kind: JSONScalar.Kind { JSONScalar.kind(text[range.lowerBound]) }

  /// The characters of a string, as `JSONScalar.appendUnescaped` writes them; nil for other values.
  package var characters: [UInt8]? {
    guard kind == .string else { return nil }
    var characters: [UInt8] = []
    JSONScalar.appendUnescaped(text.span.extracting(range.lowerBound + 1..<range.upperBound - 1), to: &characters)
    return characters
  }

  /// A string; nil for other values, and for a string with an unpaired surrogate, which is not text.
  package var string: String? { characters.flatMap { String(validating: $0, as: UTF8.self) } }

  /// True or false; nil for other values.
  package var flag: Bool? { kind == .boolean ? text[range.lowerBound] == UInt8(ascii: "t") : nil }

  /// The members of an object in the order of the text, also those with equal names; nil for other values.
  package var members: Members? { kind == .object ? Members(Elements(text, in: range)) : nil }

  /// The elements of an array; nil for other values.
  package var elements: Elements? { kind == .array ? Elements(text, in: range) : nil }

  /// The values of an array, or the names and the values of an object in turn.
  package struct Elements: Sequence, IteratorProtocol {
    private let text: [UInt8]
    private var index: Int

    fileprivate init(_ text: [UInt8], in container: Range<Int>) {
      self.text = text
      index = container.lowerBound + 1
    }

    package mutating func next() -> JSONValue? {
      index = skipSpace(in: text, from: index)
      guard text[index] != UInt8(ascii: "]"), text[index] != UInt8(ascii: "}") else { return nil }
      let value = JSONValue(text, from: index)
      index = skipSpace(in: text, from: value.range.upperBound)
      if text[index] == UInt8(ascii: ",") || text[index] == UInt8(ascii: ":") { index += 1 }
      return value
    }
  }

  /// The names and the values of an object.
  package struct Members: Sequence, IteratorProtocol {
    private var tokens: Elements

    fileprivate init(_ tokens: Elements) { self.tokens = tokens }

    package mutating func next() -> (name: JSONValue, value: JSONValue)? {
      tokens.next().flatMap { name in tokens.next().map { (name, $0) } }
    }
  }

  // MARK: A valid text

  private static func skipSpace(in text: [UInt8], from start: Int) -> Int {
    var index = start
    while text[index] == 0x20 || text[index] == 0x0A || text[index] == 0x0D || text[index] == 0x09 { index += 1 }
    return index
  }

  private static func endOfValue(in text: [UInt8], from start: Int) -> Int {
    var (index, depth) = (start, 0)
    repeat {
      switch text[index] {
      case UInt8(ascii: "\""):
        index += 1
        while text[index] != UInt8(ascii: "\"") { index += text[index] == UInt8(ascii: "\\") ? 2 : 1 }
        index += 1
      case UInt8(ascii: "{"), UInt8(ascii: "["):
        depth += 1
        index += 1
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        depth -= 1
        index += 1
      case _ where depth > 0: index += 1
      case _: while index < text.count, !endsScalar(text[index]) { index += 1 }
      }
    } while depth > 0
    return index
  }

  private static func endsScalar(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: ","), UInt8(ascii: "}"), UInt8(ascii: "]"), 0x20, 0x0A, 0x0D, 0x09: true
    case _: false
    }
  }
}
