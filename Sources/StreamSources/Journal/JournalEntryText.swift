/// An entry of the journal as a JSON object, in the form of `journalctl --output=json --all`.
///
/// Its fields are text, or arrays of the numbers of their bytes: if they are not UTF-8, or have control characters other
/// than tab and line feed. A field with several values is an array of them. Times are microseconds, as text.
struct JournalEntryText {
  /// Maximum bytes of the object.
  let limit: Int
  private var object: [UInt8] = Array("{".utf8)
  /// The values of each field, of which `places` has the index by name.
  private var fields: [(name: [UInt8], values: [[UInt8]])] = []
  private var places: [[UInt8]: Int] = [:]
  private var byteCount = 0

  private static let bootID = Array("_BOOT_ID".utf8)
  /// A longer name is not read. Source: `JSON_THRESHOLD` of systemd's `logs-show.c`.
  private static let nameLimit = 4096

  /// - Parameters:
  ///   - cursor: the entry's position.
  ///   - bootID: 32 hexadecimal digits.
  init(cursor: [UInt8], realtime: UInt64, monotonic: UInt64, bootID: String, limit: Int) {
    self.limit = limit
    let head = [
      ("__CURSOR", String(decoding: cursor, as: UTF8.self)), ("__REALTIME_TIMESTAMP", "\(realtime)"),
      ("__MONOTONIC_TIMESTAMP", "\(monotonic)"), ("_BOOT_ID", bootID),
    ]
    for (name, text) in head {
      object += Self.string(Array(name.utf8))
      object.append(UInt8(ascii: ":"))
      object += Self.value(Array(text.utf8).span, upTo: .max)
      object.append(UInt8(ascii: ","))
    }
    byteCount = object.count
  }

  /// Whether the object would exceed the limit; no field is added from then on.
  var isTooLarge: Bool { byteCount > limit }

  /// Adds a value of a field.
  /// - Parameter data: `NAME=value`; anything else is ignored, as are names that are no journal's.
  mutating func add(_ data: Span<UInt8>) {
    guard !isTooLarge, let end = Self.nameEnd(data) else { return }
    let key = data.copy(of: 0..<end)
    let value = Self.value(data.extracting((end + 1)..<data.count), upTo: limit - byteCount)
    if key == Self.bootID { return }  // that of the entry itself is exact
    byteCount += key.count + value.count + 4
    if let place = places[key] {
      fields[place].values.append(value)
    } else {
      places[key] = fields.count
      fields.append((key, [value]))
    }
  }

  /// The object.
  consuming func json() -> [UInt8] {
    for (name, values) in fields {
      object += Self.string(name)
      object.append(UInt8(ascii: ":"))
      if values.count > 1 { object.append(UInt8(ascii: "[")) }
      for (index, value) in values.enumerated() {
        if index > 0 { object.append(UInt8(ascii: ",")) }
        object += value
      }
      object += values.count > 1 ? "],".utf8 : ",".utf8
    }
    object[object.count - 1] = UInt8(ascii: "}")
    return object
  }

  /// Names of fields are capital letters, digits and underscores. Two underscores are for what is no field.
  /// - Returns: nil if the bytes are no field.
  private static func nameEnd(_ data: Span<UInt8>) -> Int? {
    var end = 0
    while end < min(data.count, nameLimit), data[end] != UInt8(ascii: "=") {
      guard (0x41...0x5A).contains(data[end]) || (0x30...0x39).contains(data[end]) || data[end] == 0x5F else {
        return nil
      }
      end += 1
    }
    guard end > 0, end < min(data.count, nameLimit) else { return nil }
    return end > 1 && data[0] == 0x5F && data[1] == 0x5F ? nil : end
  }

  private static func string(_ name: [UInt8]) -> [UInt8] { [0x22] + name + [0x22] }

  /// - Parameter limit: what is longer may be cut off: it is not used.
  private static func value(_ bytes: Span<UInt8>, upTo limit: Int) -> [UInt8] {
    text(bytes, upTo: limit) ?? numbers(bytes, upTo: limit)
  }

  /// - Returns: a string; nil: it would not be printable text.
  private static func text(_ bytes: Span<UInt8>, upTo limit: Int) -> [UInt8]? {
    var text: [UInt8] = []
    text.reserveCapacity(min(bytes.count, limit) + 2)
    text.append(0x22)
    var index = 0
    while index < bytes.count {
      let byte = bytes[index]
      switch byte {
      case 0x22, 0x5C: text += [0x5C, byte]
      case 0x09: text += [0x5C, UInt8(ascii: "t")]
      case 0x0A: text += [0x5C, UInt8(ascii: "n")]
      case 0x20...0x7E: text.append(byte)
      default:
        guard let length = printableLength(bytes, at: index) else { return nil }
        for offset in 0..<length { text.append(bytes[index + offset]) }
        index += length - 1
      }
      index += 1
    }
    text.append(0x22)
    return text
  }

  /// The length of a character outside of ASCII; nil: it is not valid UTF-8, no character, or a control character.
  /// Source: `utf8_is_printable` of systemd's `utf8.c`.
  private static func printableLength(_ bytes: Span<UInt8>, at index: Int) -> Int? {
    let (length, least): (Int, UInt32) =
      switch bytes[index] {
      case 0xC2...0xDF: (2, 0x80)
      case 0xE0...0xEF: (3, 0x800)
      case 0xF0...0xF4: (4, 0x10000)
      default: (0, 0)
      }
    guard length > 0, length <= bytes.count - index else { return nil }
    var scalar = UInt32(bytes[index]) & (0xFF >> UInt32(length + 1))
    for offset in 1..<length {
      let byte = bytes[index + offset]
      guard byte & 0xC0 == 0x80 else { return nil }
      scalar = scalar << 6 | UInt32(byte & 0x3F)
    }
    switch scalar {
    case ..<least, 0x80...0x9F, 0xD800...0xDFFF, 0xFDD0...0xFDEF, 0x110000...: return nil
    case _ where scalar & 0xFFFE == 0xFFFE: return nil
    default: return length
    }
  }

  private static func numbers(_ bytes: Span<UInt8>, upTo limit: Int) -> [UInt8] {
    var text = [UInt8(ascii: "[")]
    for index in bytes.indices {
      if index > 0 { text.append(UInt8(ascii: ",")) }
      text += String(bytes[index]).utf8
      if text.count > limit { break }
    }
    text.append(UInt8(ascii: "]"))
    return text
  }
}

extension Span<UInt8> {
  /// A copy of some of the bytes.
  func copy(of range: Range<Int>) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(range.count)
    for index in range { bytes.append(self[index]) }
    return bytes
  }
}
