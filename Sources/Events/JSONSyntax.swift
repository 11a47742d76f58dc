/// Checks whether bytes are one JSON text in UTF-8. Source: RFC 8259.
package enum JSONSyntax {
  /// Maximum nesting of arrays and objects; a deeper text is rejected, as by many parsers.
  package static let depthLimit = 512

  /// - Complexity: O(n), without an allocation.
  package static func holds(for bytes: Span<UInt8>) -> Bool {
    var examination = Examination()
    return examination.advance(in: bytes, by: bytes.count) ?? false
  }

  /// Encodes `text` as a string, quotes included.
  package static func string(_ text: String) -> [UInt8] {
    var bytes: [UInt8] = [UInt8(ascii: "\"")]
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes += [UInt8(ascii: "\\"), byte]
      case 0x0A: bytes += Array("\\n".utf8)
      case 0..<0x20:
        let digits = Array("0123456789abcdef".utf8)
        bytes += Array("\\u00".utf8) + [digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      default: bytes.append(byte)
      }
    }
    return bytes + [UInt8(ascii: "\"")]
  }

  /// The check of a text in slices, so that a large one does not occupy its caller.
  package struct Examination {
    /// The next byte is…
    private enum Phase: UInt8 {
      case value  // the first of a value, after space
      case firstElement  // the first of a value, or the end of an array
      case firstName  // the first of a name, or the end of an object
      case name  // the first of a name
      case colon
      case afterValue  // a comma, or the end of what is open
      case string  // of a string
      case escape  // after a backslash
      case hexDigit  // one of the four after \u
      case continuation  // within a UTF-8 sequence
      case literal  // of true, false or null
      case minus  // a digit after a sign
      case zero  // after a leading zero
      case integer  // of a number
      case point  // a digit after a point
      case fraction  // of a number after its point
      case exponent  // a sign or a digit after e
      case exponentSign  // a digit after a sign
      case exponentDigits  // of an exponent
    }

    private var phase = Phase.value
    private var index = 0
    /// Whether the string is the name of a member.
    private var isName = false
    /// In a string: hexadecimal digits, or bytes of a UTF-8 sequence, that are missing.
    private var missing = 0
    /// The values of the next byte of a UTF-8 sequence.
    private var range: ClosedRange<UInt8> = 0x80...0xbf
    /// The rest of a literal, the next byte lowest.
    private var literal: UInt64 = 0
    private var depth = 0
    /// For each open array and object, from the outermost on, a bit: 1 for an object.
    private var isObject = InlineArray<8, UInt64>(repeating: 0)

    package init() {}

    /// Examines further bytes.
    ///
    /// - Parameters:
    ///   - bytes: the same in each call.
    ///   - count: of bytes to examine.
    /// - Returns: whether they are one text; nil while that is not known.
    package mutating func advance(in bytes: Span<UInt8>, by count: Int) -> Bool? {
      let end = min(bytes.count, index + min(bytes.count, count))
      let isPossible = unsafe bytes.withUnsafeBytes { unsafe advance(in: $0, to: end) }
      guard isPossible else { return false }
      return index == bytes.count ? isComplete : nil
    }

    private var isComplete: Bool {
      guard depth == 0 else { return false }
      switch phase {
      case .afterValue, .zero, .integer, .fraction, .exponentDigits: return true
      case .value, .firstElement, .firstName, .name, .colon, .string, .escape, .hexDigit, .continuation, .literal,
        .minus, .point, .exponent, .exponentSign:
        return false
      }
    }

    /// - Returns: false once they cannot be the beginning of a text.
    private mutating func advance(in bytes: UnsafeRawBufferPointer, to end: Int) -> Bool {
      while index < end {
        if phase == .string {
          unsafe skipPlain(bytes, end)
          guard index < end else { return true }
        }
        let byte = unsafe bytes[index]
        switch phase {
        case .value, .firstElement, .firstName, .name, .colon, .afterValue:
          index += 1
          if byte == 0x20 || byte == 0x0A || byte == 0x0D || byte == 0x09 { continue }
          guard takeStructure(byte) else { return false }
        case .string, .escape, .hexDigit, .continuation:
          index += 1
          guard takeInString(byte) else { return false }
        case .literal:
          index += 1
          guard byte == UInt8(truncatingIfNeeded: literal) else { return false }
          literal >>= 8
          if literal == 0 { phase = .afterValue }
        case .minus, .zero, .integer, .point, .fraction, .exponent, .exponentSign, .exponentDigits:
          guard let next = Self.numberPhase(after: phase, byte) else { return false }
          phase = next
          if next != .afterValue { index += 1 }
        }
      }
      return true
    }

    private mutating func takeStructure(_ byte: UInt8) -> Bool {
      switch (phase, byte) {
      case (.firstElement, UInt8(ascii: "]")), (.firstName, UInt8(ascii: "}")): close()
      case (.value, _), (.firstElement, _): return begin(byte)
      case (.firstName, UInt8(ascii: "\"")), (.name, UInt8(ascii: "\"")): (phase, isName) = (.string, true)
      case (.colon, UInt8(ascii: ":")): phase = .value
      case (.afterValue, UInt8(ascii: ",")) where depth > 0: phase = isInnermostObject ? .name : .value
      case (.afterValue, UInt8(ascii: "}")) where depth > 0 && isInnermostObject: close()
      case (.afterValue, UInt8(ascii: "]")) where depth > 0 && !isInnermostObject: close()
      case _: return false
      }
      return true
    }

    private mutating func begin(_ byte: UInt8) -> Bool {
      switch byte {
      case UInt8(ascii: "{"), UInt8(ascii: "["): return open(asObject: byte == UInt8(ascii: "{"))
      case UInt8(ascii: "\""): (phase, isName) = (.string, false)
      case UInt8(ascii: "-"): phase = .minus
      case UInt8(ascii: "0"): phase = .zero
      case UInt8(ascii: "1")...UInt8(ascii: "9"): phase = .integer
      case UInt8(ascii: "t"): (phase, literal) = (.literal, 0x65_7572)  // "rue"
      case UInt8(ascii: "f"): (phase, literal) = (.literal, 0x6573_6c61)  // "alse"
      case UInt8(ascii: "n"): (phase, literal) = (.literal, 0x6c_6c75)  // "ull"
      default: return false
      }
      return true
    }

    private var isInnermostObject: Bool { isObject[(depth - 1) >> 6] >> UInt64((depth - 1) & 63) & 1 != 0 }

    private mutating func open(asObject: Bool) -> Bool {
      guard depth < depthLimit else { return false }
      let bit: UInt64 = 1 << UInt64(depth & 63)
      if asObject { isObject[depth >> 6] |= bit } else { isObject[depth >> 6] &= ~bit }
      depth += 1
      phase = asObject ? .firstName : .firstElement
      return true
    }

    private mutating func close() {
      depth -= 1
      phase = .afterValue
    }

    /// - Returns: `afterValue` if the byte follows the number; nil if it cannot.
    private static func numberPhase(after phase: Phase, _ byte: UInt8) -> Phase? {
      switch (phase, byte) {
      case (.minus, UInt8(ascii: "0")): .zero
      case (.minus, UInt8(ascii: "1")...UInt8(ascii: "9")), (.integer, UInt8(ascii: "0")...UInt8(ascii: "9")): .integer
      case (.zero, UInt8(ascii: ".")), (.integer, UInt8(ascii: ".")): .point
      case (.point, UInt8(ascii: "0")...UInt8(ascii: "9")), (.fraction, UInt8(ascii: "0")...UInt8(ascii: "9")):
        .fraction
      case (.zero, UInt8(ascii: "e")), (.zero, UInt8(ascii: "E")), (.integer, UInt8(ascii: "e")),
        (.integer, UInt8(ascii: "E")), (.fraction, UInt8(ascii: "e")), (.fraction, UInt8(ascii: "E")):
        .exponent
      case (.exponent, UInt8(ascii: "+")), (.exponent, UInt8(ascii: "-")): .exponentSign
      case (.exponent, UInt8(ascii: "0")...UInt8(ascii: "9")), (.exponentSign, UInt8(ascii: "0")...UInt8(ascii: "9")),
        (.exponentDigits, UInt8(ascii: "0")...UInt8(ascii: "9")):
        .exponentDigits
      case (.zero, _), (.integer, _), (.fraction, _), (.exponentDigits, _): .afterValue
      case _: nil
      }
    }

    private mutating func takeInString(_ byte: UInt8) -> Bool {
      switch (phase, byte) {
      case (.string, UInt8(ascii: "\"")): phase = isName ? .colon : .afterValue
      case (.string, UInt8(ascii: "\\")): phase = .escape
      case (.string, 0x80...): return beginSequence(byte)
      case (.escape, UInt8(ascii: "u")): (phase, missing) = (.hexDigit, 4)
      case (.escape, UInt8(ascii: "\"")), (.escape, UInt8(ascii: "\\")), (.escape, UInt8(ascii: "/")),
        (.escape, UInt8(ascii: "b")), (.escape, UInt8(ascii: "f")), (.escape, UInt8(ascii: "n")),
        (.escape, UInt8(ascii: "r")), (.escape, UInt8(ascii: "t")):
        phase = .string
      case (.hexDigit, UInt8(ascii: "0")...UInt8(ascii: "9")), (.hexDigit, UInt8(ascii: "A")...UInt8(ascii: "F")),
        (.hexDigit, UInt8(ascii: "a")...UInt8(ascii: "f")):
        missing -= 1
        if missing == 0 { phase = .string }
      case (.continuation, range):
        missing -= 1
        range = 0x80...0xbf
        if missing == 0 { phase = .string }
      case _: return false
      }
      return true
    }

    /// The first byte of a UTF-8 sequence. Source: Unicode 15, table 3-7.
    private mutating func beginSequence(_ byte: UInt8) -> Bool {
      switch byte {
      case 0xc2...0xdf: missing = 1
      case 0xe0: (missing, range) = (2, 0xa0...0xbf)
      case 0xed: (missing, range) = (2, 0x80...0x9f)
      case 0xe1...0xef: missing = 2
      case 0xf0: (missing, range) = (3, 0x90...0xbf)
      case 0xf1...0xf3: missing = 3
      case 0xf4: (missing, range) = (3, 0x80...0x8f)
      default: return false
      }
      phase = .continuation
      return true
    }

    /// Skips bytes of a string that stand for themselves, eight at a time.
    private mutating func skipPlain(_ bytes: UnsafeRawBufferPointer, _ end: Int) {
      let ones: UInt64 = 0x0101_0101_0101_0101
      while index + 8 <= end {
        let word = UInt64(littleEndian: unsafe bytes.loadUnaligned(fromByteOffset: index, as: UInt64.self))
        let quotes = word ^ ones &* UInt64(UInt8(ascii: "\""))
        let backslashes = word ^ ones &* UInt64(UInt8(ascii: "\\"))
        // The lowest bit that is set belongs to the first byte that is below 0x20, over 0x7F, a quote or a backslash;
        // higher ones may be wrong.
        let hits =
          (word | (word &- ones &* 0x20) & ~word | (quotes &- ones) & ~quotes | (backslashes &- ones) & ~backslashes)
          & (ones << 7)
        guard hits == 0 else {
          index += hits.trailingZeroBitCount / 8
          return
        }
        index += 8
      }
      while index < end {
        let byte = unsafe bytes[index]
        guard 0x20..<0x80 ~= byte, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\") else { return }
        index += 1
      }
    }
  }
}
