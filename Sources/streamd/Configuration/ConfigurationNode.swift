import CToml
import StreamRuntime

/// A value of any type in the file, and its line.
struct ConfigurationNode: Sendable {
  /// The line, from 1, of the value's key or, inside an array, of the value itself.
  let line: Int
  let value: Value
  /// Whether it has values in place of expressions.
  var isExpanded = false

  /// TOML's types.
  indirect enum Value: Sendable, Equatable {
    case string(String)
    case integer(Int)
    /// The text as written by toml++.
    case float(String)
    case boolean(Bool)
    /// Any of TOML's dates and times, as written by toml++.
    case date(String)
    case array([ConfigurationNode])
    case table([String: ConfigurationNode])
  }

  static let emptyTable = ConfigurationNode(line: 0, value: .table([:]))

  /// Parses TOML.
  ///
  /// - Returns: the file's table.
  /// - Throws: the first error in the grammar, where the parser stops.
  static func parse(_ text: [UInt8]) throws(ConfigurationError) -> ConfigurationNode {
    let outcome = unsafe text.withUnsafeBytes { unsafe toml_read($0.baseAddress, $0.count) }
    defer { unsafe toml_outcome_free(outcome) }
    guard let tree = unsafe outcome.tree else {
      let message = unsafe outcome.message.map { unsafe String(cString: $0) } ?? "out of memory"
      // A number that the parser quotes may be a secret without its quotation marks.
      let parts = message.split(separator: "'", omittingEmptySubsequences: false)
      let shown = parts.map { $0.count > 8 && $0.allSatisfy(\.isHexDigit) ? "…" : $0 }.joined(separator: "'")
      throw unsafe .init(line: Int(outcome.line), column: Int(outcome.column), text: shown.escapedForTerminal)
    }
    var reader = unsafe TOMLTree(UnsafeRawBufferPointer(start: tree, count: outcome.tree_length))
    return reader.node()
  }

  /// The value for the end of an error message: short, on one line.
  ///
  /// - Parameter secret: whether to state only the type, because the value may be a secret.
  func described(secret: Bool = false) -> String {
    switch value {
    case .string(let text) where !secret && !text.mayHoldSecret: return Self.shown(text)
    case .integer(let number) where !secret: return "\(number)"
    case .float(let text) where !secret: return text
    case .string(let text): return text.utf8.count > 8192 ? "a string of \(text.utf8.count) bytes" : "a string"
    case .integer, .float: return "a number"
    case .boolean(let flag): return "\(flag)"
    case .date: return "a date or time"
    case .array(let elements): return elements.isEmpty ? "an empty array" : "an array"
    case .table: return "a table"
    }
  }

  /// At most 60 characters of a text, in quotes, with question marks for those that could deceive.
  static func shown(_ text: String) -> String {
    let shown = text.count > 60 ? "\(text.prefix(60))…" : text
    return "\"\(shown.map { $0.unicodeScalars.contains(where: \.isDeceptive) ? "?" : String($0) }.joined())\""
  }
}

extension ConfigurationNode: Equatable {
  /// Whether they have equal values, wherever they are in a file.
  static func == (one: Self, other: Self) -> Bool { one.value == other.value }
}

/// The tree that `toml_read` has returned; toml.h describes its form.
@safe private struct TOMLTree {
  private let bytes: UnsafeRawBufferPointer
  private var offset = 0

  init(_ bytes: UnsafeRawBufferPointer) { unsafe self.bytes = bytes }

  mutating func node() -> ConfigurationNode {
    let line = Int(number(UInt32.self))
    let value: ConfigurationNode.Value =
      switch number(UInt8.self) {
      case UInt8(ascii: "s"): .string(text())
      case UInt8(ascii: "i"): .integer(Int(number(Int64.self)))
      case UInt8(ascii: "f"): .float(text())
      case UInt8(ascii: "b"): .boolean(number(UInt8.self) != 0)
      case UInt8(ascii: "d"): .date(text())
      case UInt8(ascii: "a"): .array((0..<number(UInt32.self)).map { _ in node() })
      default: .table(members())
      }
    return ConfigurationNode(line: line, value: value)
  }

  private mutating func members() -> [String: ConfigurationNode] {
    let count = Int(number(UInt32.self))
    var members = [String: ConfigurationNode](minimumCapacity: count)
    for _ in 0..<count {
      let name = text()
      members[name] = node()
    }
    return members
  }

  private mutating func text() -> String {
    let count = Int(number(UInt32.self))
    defer { offset += count }
    return unsafe String(decoding: bytes[offset..<offset + count], as: UTF8.self)
  }

  private mutating func number<Number: BitwiseCopyable>(_ type: Number.Type) -> Number {
    defer { offset += MemoryLayout<Number>.size }
    return unsafe bytes.loadUnaligned(fromByteOffset: offset, as: Number.self)
  }
}
