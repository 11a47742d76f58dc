/// Checks whether bytes are one JSON text in UTF-8. Source: RFC 8259.
package enum JSONSyntax {
  /// Maximum nesting of arrays and objects; a deeper text is rejected, as by many parsers.
  package static let depthLimit = 512

  /// - Complexity: O(n), without an allocation.
  package static func holds(for bytes: Span<UInt8>) -> Bool {
    var examination = Examination()
    return examination.advance(in: bytes, by: bytes.count) ?? false
  }

  /// Whether the first and the last byte are those of a JSON text. A text within white space is examined as a whole.
  ///
  /// This detects most input that is not JSON: pages, plain text and truncated texts.
  package static func hasEnds(_ bytes: Span<UInt8>) -> Bool {
    guard !bytes.isEmpty else { return false }
    let last = bytes[bytes.count - 1]
    if bytes[0] <= 0x20 || last <= 0x20 { return holds(for: bytes) }
    return switch bytes[0] {
    case UInt8(ascii: "{"): last == UInt8(ascii: "}") && bytes.count > 1
    case UInt8(ascii: "["): last == UInt8(ascii: "]") && bytes.count > 1
    case UInt8(ascii: "\""): last == UInt8(ascii: "\"") && bytes.count > 1
    case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): UInt8(ascii: "0")...UInt8(ascii: "9") ~= last
    case UInt8(ascii: "t"), UInt8(ascii: "f"): last == UInt8(ascii: "e")
    case UInt8(ascii: "n"): last == UInt8(ascii: "l")
    default: false
    }
  }

  /// The check of a text in slices, so that a large one does not occupy its caller.
  package typealias Examination = JSONExamination<NoJSONVisitor>
}
