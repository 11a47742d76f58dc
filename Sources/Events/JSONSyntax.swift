/// Checks whether bytes are one JSON text in UTF-8. Source: RFC 8259.
package enum JSONSyntax {
  /// Maximum nesting of arrays and objects; a deeper text is rejected, as by many parsers.
  package static let depthLimit = 512

  /// - Complexity: O(n), without an allocation.
  package static func holds(for bytes: Span<UInt8>) -> Bool {
    let scanned = unsafe bytes.withUnsafeBytes { bytes -> (isText: Bool, isASCII: Bool) in
      var scanner = unsafe Scanner(bytes: bytes)
      return (scanner.isText(), scanner.isASCII)
    }
    guard scanned.isText, !scanned.isASCII else { return scanned.isText }
    do {
      _ = try UTF8Span(validating: bytes)
      return true
    } catch {
      return false
    }
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

  @safe private struct Scanner {
    let bytes: UnsafeRawBufferPointer
    private var index = 0
    /// Whether no string so far has a byte over 0x7F; elsewhere such a byte is an error.
    private(set) var isASCII = true
    private var depth = 0
    /// For each open array and object, from the outermost on, a bit: 1 for an object.
    private var isObject = InlineArray<8, UInt64>(repeating: 0)

    init(bytes: UnsafeRawBufferPointer) { unsafe self.bytes = unsafe bytes }

    private var next: UInt8? { unsafe index < bytes.count ? bytes[index] : nil }

    mutating func isText() -> Bool {
      while takeValue() {
        // After a value.
        while true {
          skipSpace()
          guard depth > 0 else { return unsafe index == bytes.count }
          let isObject = isInnermostObject
          if take(UInt8(ascii: ",")) {
            guard !isObject || takeName() else { return false }
            break
          }
          guard take(isObject ? UInt8(ascii: "}") : UInt8(ascii: "]")) else { return false }
          depth -= 1
        }
      }
      return false
    }

    private var isInnermostObject: Bool { isObject[(depth - 1) >> 6] >> UInt64((depth - 1) & 63) & 1 != 0 }

    private mutating func open(asObject: Bool) {
      let bit: UInt64 = 1 << UInt64(depth & 63)
      if asObject { isObject[depth >> 6] |= bit } else { isObject[depth >> 6] &= ~bit }
      depth += 1
    }

    /// Reads up to the first scalar or empty container.
    private mutating func takeValue() -> Bool {
      while true {
        skipSpace()
        switch next {
        case UInt8(ascii: "{"), UInt8(ascii: "["):
          let isObject = next == UInt8(ascii: "{")
          guard depth < depthLimit else { return false }
          index += 1
          skipSpace()
          if take(isObject ? UInt8(ascii: "}") : UInt8(ascii: "]")) { return true }
          open(asObject: isObject)
          guard !isObject || takeName() else { return false }
        case UInt8(ascii: "\""): return takeString()
        case UInt8(ascii: "t"): return take("true")
        case UInt8(ascii: "f"): return take("false")
        case UInt8(ascii: "n"): return take("null")
        default: return takeNumber()
        }
      }
    }

    private mutating func takeName() -> Bool {
      skipSpace()
      guard takeString() else { return false }
      skipSpace()
      return take(UInt8(ascii: ":"))
    }

    private mutating func takeString() -> Bool {
      guard take(UInt8(ascii: "\"")) else { return false }
      while true {
        skipPlain()
        guard let byte = next else { return false }
        index += 1
        switch byte {
        case UInt8(ascii: "\""): return true
        case UInt8(ascii: "\\"): guard takeEscape() else { return false }
        case 0x80...: isASCII = false
        default: return false
        }
      }
    }

    private mutating func takeEscape() -> Bool {
      guard let escaped = next else { return false }
      index += 1
      switch escaped {
      case UInt8(ascii: "u"):
        for _ in 0..<4 {
          switch next ?? 0 {
          case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "A")...UInt8(ascii: "F"),
            UInt8(ascii: "a")...UInt8(ascii: "f"):
            index += 1
          default: return false
          }
        }
        return true
      case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
        UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
        return true
      default: return false
      }
    }

    /// Skips bytes of a string that stand for themselves, eight at a time.
    private mutating func skipPlain() {
      let ones: UInt64 = 0x0101_0101_0101_0101
      while unsafe index + 8 <= bytes.count {
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
      while let byte = next, 0x20..<0x80 ~= byte, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\") { index += 1 }
    }

    private mutating func takeNumber() -> Bool {
      _ = take(UInt8(ascii: "-"))
      if !take(UInt8(ascii: "0")) { guard takeDigits() else { return false } }
      if take(UInt8(ascii: ".")) { guard takeDigits() else { return false } }
      if take(UInt8(ascii: "e")) || take(UInt8(ascii: "E")) {
        if !take(UInt8(ascii: "+")) { _ = take(UInt8(ascii: "-")) }
        return takeDigits()
      }
      return true
    }

    private mutating func takeDigits() -> Bool {
      let start = index
      while let byte = next, (0x30...0x39).contains(byte) { index += 1 }
      return index > start
    }

    private mutating func skipSpace() {
      while let byte = next, byte == 0x20 || (0x09...0x0A).contains(byte) || byte == 0x0D { index += 1 }
    }

    private mutating func take(_ byte: UInt8) -> Bool {
      guard next == byte else { return false }
      index += 1
      return true
    }

    private mutating func take(_ text: StaticString) -> Bool {
      let count = text.utf8CodeUnitCount
      guard unsafe count <= bytes.count - index else { return false }
      for offset in 0..<count where unsafe bytes[index + offset] != text.utf8Start[offset] { return false }
      index += count
      return true
    }
  }
}
