/// Why bytes are not one JSON text.
package enum JSONFault: Equatable, Sendable {
  /// There is nothing, or white space alone.
  case empty
  /// A text ends at this index, and another one, or U+001E, follows.
  case severalTexts(firstEnd: Int)
  /// Arrays and objects are nested deeper than `JSONSyntax.depthLimit`.
  case tooDeep
  /// No text has this byte at this index.
  case byte(UInt8, at: Int)
  /// The text is cut off.
  case cutOff
  /// They begin as gzip does.
  case gzip

  /// The fault as a sentence without full stop.
  package var sentence: String {
    if case .severalTexts = self { detail } else { "not JSON: \(detail)" }
  }

  /// The fault, after what says that it is one.
  package var detail: String {
    switch self {
    case .empty: "it is empty"
    case .severalTexts: "more than one JSON text"
    case .tooDeep: "nested more than \(JSONSyntax.depthLimit) deep"
    case .byte(let byte, let index): "\(Self.shown(byte)) at byte \(index + 1)"
    case .cutOff: "it is cut off"
    case .gzip: "it is gzip"
    }
  }

  private static func shown(_ byte: UInt8) -> String {
    if (0x21...0x7E).contains(byte), byte != UInt8(ascii: "'") { return "'\(Character(Unicode.Scalar(byte)))'" }
    let digits = String(byte, radix: 16, uppercase: true)
    return digits.count == 1 ? "0x0\(digits)" : "0x\(digits)"
  }
}

extension JSONSyntax {
  /// The byte that precedes a text in a JSON text sequence (RFC 7464), and ends one in the frames of SignalR. No text has it.
  package static let separator: UInt8 = 0x1E
  /// The most texts of one message.
  package static let mostTexts = 65536

  /// Why bytes are not one JSON text; nil if they are one.
  ///
  /// - Complexity: O(n), without an allocation.
  package static func fault(in bytes: Span<UInt8>) -> JSONFault? {
    var examination = Examination()
    guard examination.advance(in: bytes, by: bytes.count) != true else { return nil }
    guard let index = examination.mistake else { return examination.isBlank ? .empty : .cutOff }
    if let end = examination.end(in: bytes), bytes[index] == separator || isFirst(bytes[index]) {
      return .severalTexts(firstEnd: end)
    }
    if index == 0, bytes.count > 1, bytes[0] == 0x1F, bytes[1] == 0x8B { return .gzip }
    return examination.isTooDeep(bytes[index]) ? .tooDeep : .byte(bytes[index], at: index)
  }

  private static func isFirst(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "{"), UInt8(ascii: "["), UInt8(ascii: "\""), UInt8(ascii: "-"), UInt8(ascii: "t"),
      UInt8(ascii: "f"), UInt8(ascii: "n"), UInt8(ascii: "0")...UInt8(ascii: "9"):
      true
    default: false
    }
  }

  /// Finds the texts of a message, between which there is white space or U+001E, or nothing between arrays, objects and strings.
  ///
  /// What is no text is passed on, too, up to the next line end or U+001E. White space and a byte order mark at the
  /// beginning are left out.
  /// - Parameter body: called with each range in order, until it returns false.
  /// - Complexity: O(n)
  package static func forEachText(in bytes: Span<UInt8>, _ body: (Range<Int>) -> Bool) {
    var start = bytes.count > 2 && bytes[0] == 0xEF && bytes[1] == 0xBB && bytes[2] == 0xBF ? 3 : 0
    var limit = start
    while start < bytes.count {
      if bytes[start].isWhiteSpace || bytes[start] == separator {
        start += 1
        continue
      }
      if limit <= start {
        limit = start
        while limit < bytes.count, bytes[limit] != separator { limit += 1 }
      }
      let (end, next) = pieceEnd(bytes.extracting(start..<limit))
      guard body(start..<start + end) else { return }
      start += next
    }
  }

  /// - Parameter bytes: do not begin with white space, and have no separator.
  /// - Returns: the end of the text, or of what is none, at the beginning, and where to look for the next one.
  private static func pieceEnd(_ bytes: Span<UInt8>) -> (end: Int, next: Int) {
    var examination = Examination()
    guard examination.advance(in: bytes, by: bytes.count) != true, let mistake = examination.mistake else {
      return (bytes.endWithoutSpace(before: bytes.count), bytes.count)
    }
    if let end = examination.end(in: bytes) { return (end, mistake) }
    // A text that breaks off at the end of a line leaves the next line alone.
    var next = mistake
    while next > 0, bytes[next - 1].isWhiteSpace, bytes[next - 1] != UInt8(ascii: "\n") { next -= 1 }
    if next == 0 || bytes[next - 1] != UInt8(ascii: "\n") {
      next = mistake
      while next < bytes.count, bytes[next] != UInt8(ascii: "\n") { next += 1 }
    }
    return (bytes.endWithoutSpace(before: next), next)
  }
}

extension JSONSyntax.Examination {
  /// Whether nothing but white space was examined.
  fileprivate var isBlank: Bool { !hasBegun }

  /// After a mistake: where a text ends before it; nil if none does, or if nothing separates the two.
  fileprivate func end(in bytes: Span<UInt8>) -> Int? {
    guard let mistake, hasEnded else { return nil }
    let end = bytes.endWithoutSpace(before: mistake)
    let (last, next) = (bytes[end - 1], bytes[mistake])
    let isUnambiguous =
      (last == UInt8(ascii: "}") || last == UInt8(ascii: "]") || last == UInt8(ascii: "\""))
      && (next == UInt8(ascii: "{") || next == UInt8(ascii: "[") || next == UInt8(ascii: "\""))
    return end < mistake || next == JSONSyntax.separator || isUnambiguous ? end : nil
  }
}

extension Span<UInt8> {
  fileprivate func endWithoutSpace(before end: Int) -> Int {
    var end = end
    while end > 0, self[end - 1].isWhiteSpace { end -= 1 }
    return end
  }
}
