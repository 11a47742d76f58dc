// Bytes and character classes of HTTP's grammar. Source: RFC 9110, section 5.6; RFC 3986, appendix A.

extension UInt8 {
  static let tab = UInt8(ascii: "\t")
  static let lineFeed = UInt8(ascii: "\n")
  static let carriageReturn = UInt8(ascii: "\r")
  static let space = UInt8(ascii: " ")
  static let quote = UInt8(ascii: "\"")
  static let percent = UInt8(ascii: "%")
  static let plus = UInt8(ascii: "+")
  static let asterisk = UInt8(ascii: "*")
  static let comma = UInt8(ascii: ",")
  static let slash = UInt8(ascii: "/")
  static let colon = UInt8(ascii: ":")
  static let semicolon = UInt8(ascii: ";")
  static let backslash = UInt8(ascii: "\\")

  var isDigit: Bool { UInt8(ascii: "0")...UInt8(ascii: "9") ~= self }
  var isWhitespace: Bool { self == .space || self == .tab }
  /// Whether this is a control character of ASCII, the tab included.
  var isControl: Bool { self < 0x20 || self == 0x7f }
  /// Whether this may be a part of a field value: text, space and tab, but no other control character.
  var isFieldText: Bool { !isControl || self == .tab }
  /// A capital letter of ASCII as a small one, any other byte unchanged.
  var lowercased: UInt8 { UInt8(ascii: "A")...UInt8(ascii: "Z") ~= self ? self | 0x20 : self }

  /// The value of a hexadecimal digit.
  var hexValue: UInt8? {
    switch self {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): self - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): self - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): self - UInt8(ascii: "A") + 10
    default: nil
    }
  }

  /// Whether this may be a part of a token, such as a method or a field name.
  var isToken: Bool {
    switch self {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "!"), UInt8(ascii: "#")...UInt8(ascii: "'"),
      UInt8(ascii: "*"), UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "^"),
      UInt8(ascii: "_"), UInt8(ascii: "`"), UInt8(ascii: "|"), UInt8(ascii: "~"):
      true
    default: false
    }
  }
}

extension StringProtocol {
  /// Whether both are equal, but for the case of ASCII letters.
  func equalsIgnoringCase(_ other: some StringProtocol) -> Bool {
    utf8.count == other.utf8.count && zip(utf8, other.utf8).allSatisfy { $0.lowercased == $1.lowercased }
  }

  /// The text with ASCII capital letters replaced by small ones.
  var asciiLowercased: String {
    utf8.contains { $0 != $0.lowercased } ? String(decoding: utf8.map(\.lowercased), as: UTF8.self) : String(self)
  }

  /// The text without spaces and tabs at its ends.
  var trimmed: Substring {
    var rest = Substring(self).utf8
    while rest.first?.isWhitespace == true { rest.removeFirst() }
    while rest.last?.isWhitespace == true { rest.removeLast() }
    return Substring(rest)
  }

  /// The elements of a list, without spaces and tabs at their ends and without the empty ones. A separator within a
  /// quoted string separates nothing.
  func elements(separatedBy separator: UInt8) -> [Substring] {
    var (isQuoted, isEscaped) = (false, false)
    let parts = Substring(self).utf8.split { byte in
      defer { isEscaped = isQuoted && !isEscaped && byte == .backslash }
      if byte == .quote && !isEscaped { isQuoted.toggle() }
      return byte == separator && !isQuoted
    }
    return parts.map { Substring($0).trimmed }.filter { !$0.isEmpty }
  }
}
