import Events

/// The members of a JSON object, by their names.
struct JSONMembers {
  private var members: [(name: [UInt8], value: JSONValue)] = []

  /// - Returns: nil unless the bytes are one JSON text in UTF-8, and an object.
  /// - Complexity: O(n).
  init?(_ text: [UInt8]) {
    guard let value = JSONValue(text) else { return nil }
    self.init(value)
  }

  private init?(_ value: JSONValue) {
    guard let members = value.members else { return nil }
    self.members = members.map { ($0.characters ?? [], $1) }
  }

  func has(_ name: String) -> Bool { members.contains { $0.name.elementsEqual(name.utf8) } }

  /// A number without sign, fraction and exponent.
  func number(_ name: String) -> UInt64? { value(name).flatMap { Decimal.number($0.bytes) } }

  /// - Returns: nil also for a value that is not a boolean.
  func flag(_ name: String) -> Bool? { value(name)?.flag }

  func string(_ name: String) -> String? { value(name)?.string }

  func object(_ name: String) -> JSONMembers? { value(name).flatMap { JSONMembers($0) } }

  /// An array of strings.
  func strings(_ name: String) -> [String]? {
    guard let elements = value(name)?.elements else { return nil }
    var strings: [String] = []
    for element in elements {
      guard let string = element.string else { return nil }
      strings.append(string)
    }
    return strings
  }

  /// The bytes that a string contains in base64, by RFC 4648 with padding; nil for any other value.
  func base64(_ name: String) -> [UInt8]? {
    guard let value = value(name), value.kind == .string else { return nil }
    return Base64.decoded(value.bytes.dropFirst().dropLast())
  }

  /// - Returns: nil also if several members have that name.
  private func value(_ name: String) -> JSONValue? {
    var found: JSONValue?
    for member in members where member.name.elementsEqual(name.utf8) {
      if found != nil { return nil }
      found = member.value
    }
    return found
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
  /// - Returns: nil unless the text is the encoding of the result, with padding.
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

  /// Encodes with the alphabet for URLs, and without padding.
  static func encodedForURL(_ bytes: [UInt8]) -> String {
    let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
    var text: [UInt8] = []
    for start in stride(from: 0, to: bytes.count, by: 3) {
      let group = bytes[start...].prefix(3)
      let word = group.reduce(0) { $0 << 8 | Int($1) } << (8 * (3 - group.count))
      for index in 0...group.count { text.append(alphabet[word >> (18 - 6 * index) & 63]) }
    }
    return String(decoding: text, as: UTF8.self)
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

enum Base32 {
  /// - Returns: the bytes of capital letters and the digits 2 to 7, without padding; nil for anything else.
  static func decoded(_ text: some Collection<UInt8>) -> [UInt8]? {
    var bytes: [UInt8] = []
    var (word, bitCount) = (0 as UInt32, 0)
    for character in text {
      switch character {
      case UInt8(ascii: "A")...UInt8(ascii: "Z"): word = word << 5 | UInt32(character - UInt8(ascii: "A"))
      case UInt8(ascii: "2")...UInt8(ascii: "7"): word = word << 5 | UInt32(character - UInt8(ascii: "2") + 26)
      case _: return nil
      }
      bitCount += 5
      if bitCount >= 8 {
        bitCount -= 8
        bytes.append(UInt8(truncatingIfNeeded: word >> UInt32(bitCount)))
      }
    }
    return bitCount < 5 && word & (1 << UInt32(bitCount) - 1) == 0 ? bytes : nil
  }
}
