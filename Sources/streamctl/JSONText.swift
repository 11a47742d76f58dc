/// JSON as bytes, validated without decoding, so that numbers keep their precision. Source: RFC 8259.
enum JSONText {
  /// Whether `bytes` are one JSON value, nested at most ``depthLimit`` deep, and white space around it.
  static func isValid(_ bytes: [UInt8]) -> Bool {
    guard String(validating: bytes, as: UTF8.self) != nil else { return false }
    var reader = Reader(rest: bytes[...])
    return reader.skipValue(depth: 0) && reader.isAtEnd
  }

  /// Valid JSON with its line breaks, which cannot occur inside a string, replaced by spaces; trimmed.
  static func onOneLine(_ json: [UInt8]) -> [UInt8] {
    let space = UInt8(ascii: " ")
    let line = json.map { $0 == UInt8(ascii: "\n") || $0 == UInt8(ascii: "\r") ? space : $0 }
    guard let first = line.firstIndex(where: { $0 != space }), let last = line.lastIndex(where: { $0 != space }) else {
      return []
    }
    return Array(line[first...last])
  }

  /// Valid JSON with a line for each element and member, indented by two spaces.
  static func indented(_ json: [UInt8]) -> [UInt8] {
    var result: [UInt8] = []
    var (depth, isInString, isEscaped) = (0, false, false)
    func breakLine() {
      result.append(UInt8(ascii: "\n"))
      result += [UInt8](repeating: UInt8(ascii: " "), count: 2 * depth)
    }
    for byte in json {
      if isInString {
        result.append(byte)
        isInString = isEscaped || byte != UInt8(ascii: "\"")
        isEscaped = !isEscaped && byte == UInt8(ascii: "\\")
        continue
      }
      switch byte {
      case UInt8(ascii: " "), UInt8(ascii: "\t"), UInt8(ascii: "\n"), UInt8(ascii: "\r"): break
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        depth -= 1
        if result.last != UInt8(ascii: "{"), result.last != UInt8(ascii: "[") { breakLine() }
        result.append(byte)
      default:
        if let last = result.last, last == UInt8(ascii: "{") || last == UInt8(ascii: "[") { breakLine() }
        result.append(byte)
        switch byte {
        case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
        case UInt8(ascii: ","): breakLine()
        case UInt8(ascii: ":"): result.append(UInt8(ascii: " "))
        default: isInString = byte == UInt8(ascii: "\"")
        }
      }
    }
    return result + [UInt8(ascii: "\n")]
  }

  /// `text` in quotes, with quotes, backslashes and what is not printable as it is escaped: see `Columns.printable`.
  static func string(_ text: String) -> String {
    var result = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"", "\\": result += "\\\(scalar)"
      case "\n": result += "\\n"
      case "\r": result += "\\r"
      case "\t": result += "\\t"
      case _ where Columns.isHarmless(scalar): result.unicodeScalars.append(scalar)
      default:
        for unit in scalar.utf16 {
          let digits = String(unit, radix: 16)
          result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }
      }
    }
    return result + "\""
  }

  /// Bounds the stack; a deeper text is not treated as JSON.
  static let depthLimit = 512

  private struct Reader {
    var rest: ArraySlice<UInt8>

    /// Called after a value, which includes the white space after it.
    var isAtEnd: Bool { rest.isEmpty }

    mutating func skipValue(depth: Int) -> Bool {
      skipSpace()
      guard depth < JSONText.depthLimit, let first = rest.first else { return false }
      defer { skipSpace() }
      switch first {
      case UInt8(ascii: "{"): return skipList(closedBy: UInt8(ascii: "}")) { $0.skipMember(depth: depth + 1) }
      case UInt8(ascii: "["): return skipList(closedBy: UInt8(ascii: "]")) { $0.skipValue(depth: depth + 1) }
      case UInt8(ascii: "\""): return skipString()
      case UInt8(ascii: "t"): return skip("true")
      case UInt8(ascii: "f"): return skip("false")
      case UInt8(ascii: "n"): return skip("null")
      default: return skipNumber()
      }
    }

    private mutating func skipMember(depth: Int) -> Bool {
      skipSpace()
      guard skipString() else { return false }
      skipSpace()
      return skip(":") && skipValue(depth: depth)
    }

    private mutating func skipList(closedBy end: UInt8, _ skipItem: (inout Reader) -> Bool) -> Bool {
      rest.removeFirst()
      skipSpace()
      if rest.first == end {
        rest.removeFirst()
        return true
      }
      while skipItem(&self) {
        skipSpace()
        guard let next = rest.popFirst() else { return false }
        if next == end { return true }
        guard next == UInt8(ascii: ",") else { return false }
      }
      return false
    }

    private mutating func skipString() -> Bool {
      guard skip("\"") else { return false }
      while let byte = rest.popFirst() {
        switch byte {
        case UInt8(ascii: "\""): return true
        case UInt8(ascii: "\\"):
          guard let escaped = rest.popFirst() else { return false }
          if escaped == UInt8(ascii: "u") {
            guard rest.count >= 4, rest.prefix(4).allSatisfy(Self.isHexDigit) else { return false }
            rest = rest.dropFirst(4)
          } else if !"\"\\/bfnrt".utf8.contains(escaped) {
            return false
          }
        case 0..<0x20: return false
        default: break
        }
      }
      return false
    }

    private mutating func skipNumber() -> Bool {
      _ = skip("-")
      if !skip("0"), !skipDigits() { return false }
      if skip("."), !skipDigits() { return false }
      guard skip("e") || skip("E") else { return true }
      _ = skip("+") || skip("-")
      return skipDigits()
    }

    private mutating func skipDigits() -> Bool {
      let others = rest.drop { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
      defer { rest = others }
      return others.count < rest.count
    }

    private mutating func skip(_ text: StaticString) -> Bool {
      let wanted = unsafe UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
      guard unsafe rest.starts(with: wanted) else { return false }
      rest = rest.dropFirst(wanted.count)
      return true
    }

    private mutating func skipSpace() {
      rest = rest.drop { $0 == 0x20 || $0 == 0x0A || $0 == 0x0D || $0 == 0x09 }
    }

    private static func isHexDigit(_ byte: UInt8) -> Bool {
      switch byte {
      case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"),
        UInt8(ascii: "A")...UInt8(ascii: "F"):
        true
      default: false
      }
    }
  }
}
