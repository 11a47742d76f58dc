/// Checks whether bytes are one JSON text. Source: RFC 8259. The caller checks that they are UTF-8.
enum JSONSyntax {
  /// Maximum nesting of arrays and objects; a deeper text is rejected, as by many parsers.
  static let depthLimit = 512

  /// - Complexity: O(n), and a byte for each level of nesting.
  static func holds(for bytes: [UInt8]) -> Bool {
    unsafe bytes.withUnsafeBufferPointer { bytes in
      var scanner = unsafe Scanner(bytes: bytes)
      return scanner.isText()
    }
  }

  /// Encodes `text` as a string, quotes included.
  static func string(_ text: String) -> [UInt8] {
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
    let bytes: UnsafeBufferPointer<UInt8>
    private var index = 0
    /// The open arrays and objects; true: an object.
    private var open: [Bool] = []

    init(bytes: UnsafeBufferPointer<UInt8>) { unsafe self.bytes = unsafe bytes }

    private var next: UInt8? { unsafe index < bytes.count ? bytes[index] : nil }

    mutating func isText() -> Bool {
      while takeValue() {
        // After a value.
        while true {
          skipSpace()
          guard let isObject = open.last else { return unsafe index == bytes.count }
          if take(",") {
            guard !isObject || takeName() else { return false }
            break
          }
          guard take(isObject ? "}" : "]") else { return false }
          open.removeLast()
        }
      }
      return false
    }

    /// Reads up to the first scalar or empty container.
    private mutating func takeValue() -> Bool {
      while true {
        skipSpace()
        switch next {
        case UInt8(ascii: "{"), UInt8(ascii: "["):
          let isObject = next == UInt8(ascii: "{")
          index += 1
          skipSpace()
          if take(isObject ? "}" : "]") { return true }
          guard open.count < depthLimit else { return false }
          open.append(isObject)
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
      return take(":")
    }

    private mutating func takeString() -> Bool {
      guard take("\"") else { return false }
      while let byte = next {
        index += 1
        switch byte {
        case UInt8(ascii: "\""): return true
        case UInt8(ascii: "\\"):
          guard let escaped = next else { return false }
          index += 1
          if escaped == UInt8(ascii: "u") {
            for _ in 0..<4 {
              guard let digit = next, Character(UnicodeScalar(digit)).isHexDigit, digit < 0x80 else { return false }
              index += 1
            }
          } else if !"\"\\/bfnrt".utf8.contains(escaped) {
            return false
          }
        case 0..<0x20: return false
        default: break
        }
      }
      return false
    }

    private mutating func takeNumber() -> Bool {
      _ = take("-")
      if !take("0") { guard takeDigits() else { return false } }
      if take(".") { guard takeDigits() else { return false } }
      if take("e") || take("E") {
        if !take("+") { _ = take("-") }
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

    private mutating func take(_ text: StaticString) -> Bool {
      let count = text.utf8CodeUnitCount
      guard unsafe count <= bytes.count - index else { return false }
      for offset in 0..<count where unsafe bytes[index + offset] != text.utf8Start[offset] { return false }
      index += count
      return true
    }
  }
}
