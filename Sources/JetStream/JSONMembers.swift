import Events

/// The members of a JSON object, in the text as it was received: nothing is built from members that are not asked for.
struct JSONMembers {
  private let text: [UInt8]
  /// Ranges of `text`: a name without its quotes, as written, and its value.
  private var members: [(name: Range<Int>, value: Range<Int>)] = []

  /// - Returns: nil unless the bytes are one JSON text in UTF-8, and an object.
  /// - Complexity: O(n).
  init?(_ text: [UInt8]) {
    guard JSONSyntax.holds(for: text.span) else { return nil }
    self.init(valid: text, from: 0)
  }

  private init?(valid text: [UInt8], from start: Int) {
    self.text = text
    var index = skipSpace(start)
    guard text[index] == UInt8(ascii: "{") else { return nil }
    index = skipSpace(index + 1)
    while text[index] != UInt8(ascii: "}") {
      let nameEnd = endOfValue(index)
      let value = skipSpace(skipSpace(nameEnd) + 1)  // after the colon
      let end = endOfValue(value)
      members.append((index + 1..<nameEnd - 1, value..<end))
      index = skipSpace(end)
      if text[index] == UInt8(ascii: ",") { index = skipSpace(index + 1) }
    }
  }

  func has(_ name: String) -> Bool { members.contains { text[$0.name].elementsEqual(name.utf8) } }

  /// A number without sign, fraction and exponent.
  func number(_ name: String) -> UInt64? { value(name).flatMap { Decimal.number(text[$0]) } }

  /// - Returns: nil also for what is no boolean.
  func flag(_ name: String) -> Bool? {
    switch value(name).map({ text[$0] }) {
    case .some(let value) where value.elementsEqual("true".utf8): true
    case .some(let value) where value.elementsEqual("false".utf8): false
    case _: nil
    }
  }

  func string(_ name: String) -> String? { value(name).flatMap { Self.string(text[$0]) } }

  func object(_ name: String) -> JSONMembers? {
    value(name).flatMap { JSONMembers(valid: text, from: $0.lowerBound) }
  }

  /// An array of strings.
  func strings(_ name: String) -> [String]? {
    guard let value = value(name), text[value.lowerBound] == UInt8(ascii: "[") else { return nil }
    var strings: [String] = []
    var index = skipSpace(value.lowerBound + 1)
    while text[index] != UInt8(ascii: "]") {
      let end = endOfValue(index)
      guard let string = Self.string(text[index..<end]) else { return nil }
      strings.append(string)
      index = skipSpace(end)
      if text[index] == UInt8(ascii: ",") { index = skipSpace(index + 1) }
    }
    return strings
  }

  /// The bytes that a string holds in base64, by RFC 4648 with padding; nothing else is accepted.
  func base64(_ name: String) -> [UInt8]? {
    guard let value = value(name), text[value.lowerBound] == UInt8(ascii: "\"") else { return nil }
    return Base64.decoded(text[value].dropFirst().dropLast())
  }

  /// - Returns: nil also if there are several of that name.
  private func value(_ name: String) -> Range<Int>? {
    var found: Range<Int>?
    for member in members where text[member.name].elementsEqual(name.utf8) {
      if found != nil { return nil }
      found = member.value
    }
    return found
  }

  // MARK: A valid text

  private func skipSpace(_ start: Int) -> Int {
    var index = start
    while text[index] == 0x20 || text[index] == 0x0A || text[index] == 0x0D || text[index] == 0x09 { index += 1 }
    return index
  }

  /// - Returns: the index after the value that begins at this one.
  private func endOfValue(_ start: Int) -> Int {
    var index = start
    var depth = 0
    repeat {
      switch text[index] {
      case UInt8(ascii: "\""): index = endOfString(index)
      case UInt8(ascii: "{"), UInt8(ascii: "["):
        depth += 1
        index += 1
      case UInt8(ascii: "}"), UInt8(ascii: "]"):
        depth -= 1
        index += 1
      case UInt8(ascii: ","), UInt8(ascii: ":"): index += 1  // within an array or an object
      case _ where depth > 0: index += 1
      case _:
        while index < text.count, !Self.endsScalar(text[index]) { index += 1 }
      }
    } while depth > 0
    return index
  }

  private func endOfString(_ start: Int) -> Int {
    var index = start + 1
    while text[index] != UInt8(ascii: "\"") { index += text[index] == UInt8(ascii: "\\") ? 2 : 1 }
    return index + 1
  }

  private static func endsScalar(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: ","), UInt8(ascii: "}"), UInt8(ascii: "]"), 0x20, 0x0A, 0x0D, 0x09: true
    case _: false
    }
  }

  /// - Returns: nil for what is no string, and for one with an escaped character beyond ASCII.
  private static func string(_ value: ArraySlice<UInt8>) -> String? {
    guard value.first == UInt8(ascii: "\"") else { return nil }
    var rest = value.dropFirst().dropLast()
    var bytes: [UInt8] = []
    while let byte = rest.popFirst() {
      guard byte == UInt8(ascii: "\\"), let escaped = rest.popFirst() else {
        bytes.append(byte)
        continue
      }
      switch escaped {
      case UInt8(ascii: "b"): bytes.append(0x08)
      case UInt8(ascii: "f"): bytes.append(0x0C)
      case UInt8(ascii: "n"): bytes.append(0x0A)
      case UInt8(ascii: "r"): bytes.append(0x0D)
      case UInt8(ascii: "t"): bytes.append(0x09)
      case UInt8(ascii: "u"):
        guard let code = UInt8(String(decoding: rest.prefix(4), as: UTF8.self), radix: 16), code < 0x80 else {
          return nil
        }
        rest = rest.dropFirst(4)
        bytes.append(code)
      case _: bytes.append(escaped)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}

/// Numbers as the engine writes them.
enum Decimal {
  /// - Parameter digits: 1 to 20 decimal digits and nothing else.
  static func number(_ digits: some Collection<UInt8>) -> UInt64? {
    guard 1...20 ~= digits.count else { return nil }
    var number: UInt64 = 0
    for digit in digits {
      guard UInt8(ascii: "0")...UInt8(ascii: "9") ~= digit else { return nil }
      let (product, overflows) = number.multipliedReportingOverflow(by: 10)
      let (sum, alsoOverflows) = product.addingReportingOverflow(UInt64(digit - UInt8(ascii: "0")))
      guard !overflows, !alsoOverflows else { return nil }
      number = sum
    }
    return number
  }
}

enum Base64 {
  /// - Returns: nil unless it is the encoding of the result, with padding.
  static func decoded(_ text: ArraySlice<UInt8>) -> [UInt8]? {
    guard text.count % 4 == 0 else { return nil }
    let padding = text.reversed().prefix(2).prefix { $0 == UInt8(ascii: "=") }.count
    var bytes: [UInt8] = []
    bytes.reserveCapacity(text.count / 4 * 3)
    var word: UInt32 = 0
    var count = 0
    for character in text.dropLast(padding) {
      guard let value = value(character) else { return nil }
      word = word << 6 | value
      count += 1
      if count == 4 {
        bytes += [UInt8(word >> 16), UInt8(word >> 8 & 0xff), UInt8(word & 0xff)]
        (word, count) = (0, 0)
      }
    }
    switch padding {
    case 1 where word & 0x3 == 0: bytes += [UInt8(word >> 10), UInt8(word >> 2 & 0xff)]
    case 2 where word & 0xf == 0: bytes.append(UInt8(word >> 4))
    case 0: break
    case _: return nil
    }
    return bytes
  }

  private static func value(_ character: UInt8) -> UInt32? {
    switch character {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"): UInt32(character - UInt8(ascii: "A"))
    case UInt8(ascii: "a")...UInt8(ascii: "z"): UInt32(character - UInt8(ascii: "a")) + 26
    case UInt8(ascii: "0")...UInt8(ascii: "9"): UInt32(character - UInt8(ascii: "0")) + 52
    case UInt8(ascii: "+"): 62
    case UInt8(ascii: "/"): 63
    case _: nil
    }
  }
}
