import CToml
import FoundationEssentials
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
    guard let json = unsafe outcome.json else {
      let message = unsafe outcome.message.map { unsafe String(cString: $0) } ?? "out of memory"
      // A number that the parser quotes may be a secret without its quotation marks.
      let parts = message.split(separator: "'", omittingEmptySubsequences: false)
      let shown = parts.map { $0.count > 8 && $0.allSatisfy(\.isHexDigit) ? "…" : $0 }.joined(separator: "'")
      throw unsafe .init(line: Int(outcome.line), column: Int(outcome.column), text: shown.escapedForTerminal)
    }
    do {
      return try unsafe JSONDecoder().decode(Self.self, from: Data(bytes: json, count: outcome.json_length))
    } catch {
      throw .init(text: "\(error)")
    }
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

extension ConfigurationNode: Decodable {
  /// The members of a node in the JSON that `toml_read` returns.
  private enum Member: String, CodingKey {
    case line, string, integer, float, boolean, date, array, table
  }

  init(from decoder: any Decoder) throws {
    let members = try decoder.container(keyedBy: Member.self)
    line = try members.decode(Int.self, forKey: .line)
    if let text = try members.decodeIfPresent(String.self, forKey: .string) {
      value = .string(text)
    } else if let number = try members.decodeIfPresent(Int.self, forKey: .integer) {
      value = .integer(number)
    } else if let text = try members.decodeIfPresent(String.self, forKey: .float) {
      value = .float(text)
    } else if let flag = try members.decodeIfPresent(Bool.self, forKey: .boolean) {
      value = .boolean(flag)
    } else if let text = try members.decodeIfPresent(String.self, forKey: .date) {
      value = .date(text)
    } else if let nodes = try members.decodeIfPresent([ConfigurationNode].self, forKey: .array) {
      value = .array(nodes)
    } else {
      value = .table(try members.decode([String: ConfigurationNode].self, forKey: .table))
    }
  }
}
