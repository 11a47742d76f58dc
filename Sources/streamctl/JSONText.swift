import Events
import StreamRuntime

/// JSON as bytes, without decoding, so that numbers keep their precision. Source: RFC 8259.
enum JSONText {
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

  /// `text` in quotes. Quotes, backslashes and characters that are not printable are escaped, except joiners.
  static func string(_ text: String) -> String {
    JSONScalar.quoted(text) { !$0.isDeceptive || $0.isJoiner }
  }
}
