import Events
import StreamProtocol

extension EventFilter {
  /// - Parameter words: the values of `--where`. Each is a condition such as `/price>=100`, or a filter as JSON. All
  ///   must hold.
  init(_ words: [String]) throws(Stop) {
    var conditions: [Condition] = []
    do throws(SubscribeOptions.Malformed) {
      for word in words {
        if word.hasPrefix("{") {
          conditions += try EventFilter(json: Array(word.utf8)).conditions
        } else {
          conditions.append(try Condition(word))
        }
      }
      try self.init(conditions)
    } catch {
      throw .usage("--where: \(error.sentence)")
    }
  }
}

extension EventFilter.Condition {
  private static let operatorBytes = Set("=<>^!".utf8)

  /// - Parameter word: a JSON pointer, an operator and a value. A pointer alone means that the value must exist; after
  ///   `!` it must not.
  fileprivate init(_ word: String) throws(SubscribeOptions.Malformed) {
    guard !word.isEmpty else { throw .init("a condition is empty") }
    let bytes = Array(word.utf8)
    guard let sign = bytes.firstIndex(where: { "=<>".utf8.contains($0) }) else {
      self = word.hasPrefix("!") ? .init(String(word.dropFirst()), .exists(false)) : .init(word, .exists(true))
      return
    }
    let start = (bytes[..<sign].lastIndex { !Self.operatorBytes.contains($0) } ?? -1) + 1
    let end = bytes[sign...].firstIndex { !Self.operatorBytes.contains($0) } ?? bytes.endIndex
    let (name, value) = (String(decoding: bytes[start..<end], as: UTF8.self), Array(bytes[end...]))
    let test: EventFilter.Test
    switch name {
    case "=": test = .equals(try EventFilter.Scalar(value))
    case "^=":
      guard case .string(let prefix) = try EventFilter.Scalar(value) else {
        test = .hasPrefix(String(decoding: value, as: UTF8.self))
        break
      }
      test = .hasPrefix(prefix)
    case ">", ">=", "<", "<=":
      guard case .number(let number) = try EventFilter.Scalar(value) else {
        throw .init("\"\(word)\" compares with something that is no number")
      }
      test =
        switch name {
        case ">": .greaterThan(number)
        case ">=": .atLeast(number)
        case "<": .lessThan(number)
        default: .atMost(number)
        }
    default:
      throw .init(
        "\"\(word)\" has the unknown operator \(name); a value that begins with an operator must be a JSON string")
    }
    self.init(String(decoding: bytes[..<start], as: UTF8.self), test)
  }
}

extension EventFilter.Scalar {
  /// - Parameter text: JSON, or text that means itself.
  fileprivate init(_ text: [UInt8]) throws(SubscribeOptions.Malformed) {
    self = .string(String(decoding: text, as: UTF8.self))
    guard let first = text.first, !"[{".utf8.contains(first), JSONSyntax.holds(for: text.span) else { return }
    let filter = try EventFilter(json: Array(#"{"":"#.utf8) + text + Array("}".utf8))
    if case .equals(let scalar)? = filter.conditions.first?.test { self = scalar }
  }
}
