import Glibc

/// A string, a number, true, false or null, as written in a valid JSON text.
package enum JSONScalar {
  /// The kind of the value that begins with this byte.
  package enum Kind: Sendable {
    case string, number, boolean, null, array, object
  }

  package static func kind(_ first: UInt8) -> Kind {
    switch first {
    case UInt8(ascii: "\""): .string
    case UInt8(ascii: "t"), UInt8(ascii: "f"): .boolean
    case UInt8(ascii: "n"): .null
    case UInt8(ascii: "["): .array
    case UInt8(ascii: "{"): .object
    case _: .number
    }
  }

  /// `text` as a JSON string: RFC 8259 requires quotes, backslashes and control characters to be escaped.
  /// - Parameter isPlain: whether another character may stand for itself.
  package static func quoted(_ text: String, unescaped isPlain: (Unicode.Scalar) -> Bool = { _ in true }) -> String {
    var result = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"", "\\": result += "\\\(scalar)"
      case "\n": result += "\\n"
      case "\r": result += "\\r"
      case "\t": result += "\\t"
      case _ where scalar.value >= 0x20 && isPlain(scalar): result.unicodeScalars.append(scalar)
      default:
        for unit in scalar.utf16 {
          let digits = String(unit, radix: 16)
          result += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }
      }
    }
    return result + "\""
  }

  /// Appends the characters of a string in UTF-8. An unpaired surrogate, which is not a character, becomes the three
  /// bytes that UTF-8 would have for it. No text has such bytes. Source: WTF-8, section 3.
  /// - Parameter content: the bytes between the quotes, as written.
  package static func appendUnescaped(_ content: Span<UInt8>, to bytes: inout [UInt8]) {
    let isPlain = unsafe content.withUnsafeBytes { unsafe appendIfPlain($0, to: &bytes) }
    guard !isPlain else { return }
    var index = 0
    while index < content.count {
      let byte = content[index]
      guard byte == UInt8(ascii: "\\") else {
        bytes.append(byte)
        index += 1
        continue
      }
      let escaped = content[index + 1]
      index += 2
      switch escaped {
      case UInt8(ascii: "b"): bytes.append(0x08)
      case UInt8(ascii: "f"): bytes.append(0x0C)
      case UInt8(ascii: "n"): bytes.append(0x0A)
      case UInt8(ascii: "r"): bytes.append(0x0D)
      case UInt8(ascii: "t"): bytes.append(0x09)
      case UInt8(ascii: "u"):
        let unit = codeUnit(content, at: index)
        index += 4
        var scalar = UnicodeScalar(unit)
        if 0xD800..<0xDC00 ~= unit, index + 6 <= content.count, content[index] == UInt8(ascii: "\\"),
          content[index + 1] == UInt8(ascii: "u")
        {
          let low = codeUnit(content, at: index + 2)
          if 0xDC00..<0xE000 ~= low {
            scalar = UnicodeScalar(0x10000 + (unit - 0xD800) << 10 + (low - 0xDC00))
            index += 6
          }
        }
        if let scalar {
          bytes += String(scalar).utf8
        } else {
          bytes += [0xED, UInt8(0x80 | unit >> 6 & 0x3F), UInt8(0x80 | unit & 0x3F)]
        }
      case _: bytes.append(escaped)
      }
    }
  }

  /// Appends a string without escapes in one piece; most strings have none.
  @inline(__always) private static func appendIfPlain(
    _ content: UnsafeRawBufferPointer, to bytes: inout [UInt8]
  ) -> Bool {
    if let start = content.baseAddress, unsafe memchr(start, 0x5C, content.count) != nil { return false }
    unsafe bytes.append(contentsOf: content)
    return true
  }

  private static func codeUnit(_ content: Span<UInt8>, at start: Int) -> UInt32 {
    (start..<start + 4).reduce(0) { $0 << 4 | digit(content[$1]) }
  }

  private static func digit(_ byte: UInt8) -> UInt32 {
    UInt32(byte <= UInt8(ascii: "9") ? byte - UInt8(ascii: "0") : (byte | 0x20) - UInt8(ascii: "a") + 10)
  }
}

/// A number by its written decimal value: exact, at any size.
///
/// The value is 0.DIGITS × 10^magnitude. Neither the first nor the last digit is 0; without digits the value is 0.
package struct JSONNumber: Sendable {
  package let isNegative: Bool
  /// The range of the digits in the text, with or without a point between them.
  private let digits: Range<Int>
  private let magnitude: Int

  /// Exponents beyond this count as this: such numbers differ by their digits only.
  private static let exponentLimit = 1 << 58

  /// - Parameter text: a number as JSON allows it.
  package init(_ text: Span<UInt8>) {
    var (index, isPointSeen, integerDigits, leadingZeros) = (0, false, 0, 0)
    var (first, last): (Int?, Int) = (nil, 0)
    let hasSign = text.count > 0 && text[0] == UInt8(ascii: "-")
    if hasSign { index = 1 }
    while index < text.count {
      let byte = text[index]
      if byte == UInt8(ascii: ".") {
        isPointSeen = true
      } else {
        guard 0x30...0x39 ~= byte else { break }
        if byte != 0x30 {
          if first == nil { first = index }
          last = index
        } else if first == nil, isPointSeen {
          leadingZeros += 1
        }
        if !isPointSeen, first != nil { integerDigits += 1 }
      }
      index += 1
    }
    guard let first else {
      (isNegative, digits, magnitude) = (false, 0..<0, 0)
      return
    }
    isNegative = hasSign
    digits = first..<last + 1
    magnitude = integerDigits - leadingZeros + Self.exponent(text, from: index + 1)
  }

  private static func exponent(_ text: Span<UInt8>, from start: Int) -> Int {
    var (index, value) = (start, 0)
    let isNegative = index < text.count && text[index] == UInt8(ascii: "-")
    while index < text.count {
      if 0x30...0x39 ~= text[index] { value = min(exponentLimit, value * 10 + Int(text[index] - 0x30)) }
      index += 1
    }
    return isNegative ? -value : value
  }

  /// -1, 0 or 1: this number is less than, equal to, or greater than the other.
  package func compared(in text: Span<UInt8>, to other: JSONNumber, in otherText: Span<UInt8>) -> Int {
    let (sign, otherSign) = (signum, other.signum)
    guard sign == otherSign else { return sign < otherSign ? -1 : 1 }
    guard sign != 0 else { return 0 }
    guard magnitude == other.magnitude else { return magnitude < other.magnitude ? -sign : sign }
    var (index, otherIndex) = (digits.lowerBound, other.digits.lowerBound)
    while true {
      if index < digits.upperBound, text[index] == UInt8(ascii: ".") { index += 1 }
      if otherIndex < other.digits.upperBound, otherText[otherIndex] == UInt8(ascii: ".") { otherIndex += 1 }
      let (isOver, isOtherOver) = (index >= digits.upperBound, otherIndex >= other.digits.upperBound)
      guard !isOver, !isOtherOver else { return isOver == isOtherOver ? 0 : isOver ? -sign : sign }
      if text[index] != otherText[otherIndex] { return text[index] < otherText[otherIndex] ? -sign : sign }
      (index, otherIndex) = (index + 1, otherIndex + 1)
    }
  }

  /// Whether the decimal point is so far from the digits that no program means such a number.
  package var isExtreme: Bool { !(-1_000_000_000...1_000_000_000).contains(magnitude) }

  /// Appends the JSON number that stands for all texts of this value, with an exponent instead of many zeros.
  /// - Precondition: the number is not extreme.
  package func appendJSON(in text: Span<UInt8>, to bytes: inout [UInt8]) {
    guard !digits.isEmpty else { return bytes.append(UInt8(ascii: "0")) }
    var plain: [UInt8] = []
    for index in digits where text[index] != UInt8(ascii: ".") { plain.append(text[index]) }
    if isNegative { bytes.append(UInt8(ascii: "-")) }
    switch magnitude {
    case 1...max(1, plain.count + 15):
      bytes += plain.prefix(magnitude)
      bytes += repeatElement(UInt8(ascii: "0"), count: max(0, magnitude - plain.count))
      if magnitude < plain.count { bytes += [UInt8(ascii: ".")] + plain[magnitude...] }
    case -5...0:
      bytes += Array("0.".utf8) + repeatElement(UInt8(ascii: "0"), count: -magnitude) + plain
    case _:
      bytes.append(plain[0])
      if plain.count > 1 { bytes += [UInt8(ascii: ".")] + plain[1...] }
      bytes += "e\(magnitude - 1)".utf8
    }
  }

  private var signum: Int { digits.isEmpty ? 0 : isNegative ? -1 : 1 }

  /// Appends the one form that all texts of this value have.
  package func appendNormalForm(in text: Span<UInt8>, to bytes: inout [UInt8]) {
    guard !digits.isEmpty else { return bytes.append(0x30) }
    if isNegative { bytes.append(UInt8(ascii: "-")) }
    for index in digits where text[index] != UInt8(ascii: ".") { bytes.append(text[index]) }
    bytes.append(UInt8(ascii: "e"))
    bytes += String(magnitude).utf8
  }
}
