/// A pattern of streams' names: each `*` stands for any characters, also for none and for slashes. No name has a `*`, and
/// a pattern fits no system stream.
package struct NamePattern: Hashable, Sendable {
  package let text: String
  /// The text before the first star, between stars, and after the last one.
  private let literals: [[UInt8]]

  /// Maximum bytes of a name, and of a pattern: the size of a routing tag.
  package static let byteLimit = 255

  /// - Returns: nil for a text without a star, and for one that is too long.
  package init?(_ text: String) {
    let parts = text.utf8.split(separator: UInt8(ascii: "*"), omittingEmptySubsequences: false).map(Array.init)
    guard parts.count > 1, text.utf8.count <= Self.byteLimit else { return nil }
    self.text = text
    literals = [parts[0]] + parts.dropFirst().dropLast().filter { !$0.isEmpty } + [parts[parts.count - 1]]
  }

  /// The bytes with which each name begins that it fits.
  package var prefix: [UInt8] { literals[0] }

  /// - Complexity: O(bytes of the name × bytes of the longest literal), without an allocation.
  package func fits(_ name: String) -> Bool {
    let bytes = name.utf8.span
    var start = literals[0].count
    let end = bytes.count - literals[literals.count - 1].count
    guard start <= end, !bytes.isEmpty, bytes[0] != UInt8(ascii: "$"), Self.has(literals[0], bytes, at: 0),
      Self.has(literals[literals.count - 1], bytes, at: end)
    else { return false }
    for index in literals.indices.dropFirst().dropLast() {
      let literal = literals[index]
      while start + literal.count <= end, !Self.has(literal, bytes, at: start) { start += 1 }
      start += literal.count
      guard start <= end else { return false }
    }
    return true
  }

  private static func has(_ literal: [UInt8], _ bytes: Span<UInt8>, at offset: Int) -> Bool {
    for index in literal.indices where bytes[offset + index] != literal[index] { return false }
    return true
  }

  package static func == (one: Self, other: Self) -> Bool { one.text == other.text }
  package func hash(into hasher: inout Hasher) { hasher.combine(text) }
}
