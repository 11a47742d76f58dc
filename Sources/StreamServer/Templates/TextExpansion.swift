import Events
import StreamRuntime

/// Replaces expressions such as `{city}` in the texts of a template's configuration by the values of one stream.
///
/// Values have letters, digits, `.`, `_` and `-` only (`NameValues`), so that the place of an expression decides what a value can
/// do there. Braces around anything that is not an expression are themselves.
package struct TextExpansion: Sendable {
  /// What a text is, which says where expressions may be.
  package enum Place: Sendable, Equatable {
    /// Expressions are errors.
    case fixed
    /// A program of jq, in which braces are its own.
    case program
    /// Expressions may be anywhere.
    case text
    /// The path and the query: `{x}`, `{/x}`, and `{?x}` or `{&x}`. Source: RFC 6570.
    case url
    /// A text that is JSON, where expressions are within strings; in another text they may be anywhere.
    case json
    /// A word of a command: not the first one, and only values that cannot begin with `-` at its beginning.
    case word
    /// The name in `user:NAME` and `group:NAME`.
    case rule
    /// The value in `FIELD=VALUE`.
    case match
  }

  let template: NameTemplate
  /// The values of the stream.
  package let values: NameValues
  /// The names in expressions that stay as they are in texts of the places `url` and `json`, because many streams have the text
  /// together. At other places they are errors.
  package var together: [String] = []

  /// - Parameter values: of that template.
  package init(_ values: NameValues, of template: NameTemplate) { (self.values, self.template) = (values, template) }

  /// The text with values in place of its expressions.
  ///
  /// - Parameters:
  ///   - index: the place of a word in its command.
  /// - Returns: nil if the text has no expression.
  /// - Throws: one sentence, for an expression that is unknown, of another form, or not permitted at its place.
  package func expand(
    _ text: String, in place: Place, at index: Int = 0
  ) throws(NameTemplate.Fault) -> String? {
    guard place != .program, text.utf8.contains(UInt8(ascii: "{")) else { return nil }
    let pieces = Piece.pieces(of: Array(text.utf8)[...])
    guard pieces.contains(where: { $0.expression != nil }) else { return nil }
    var position = Position(place, index, pieces)
    var expanded: [UInt8] = []
    var hasExpression = false
    for piece in pieces {
      guard let expression = piece.expression else {
        position.pass(piece.bytes)
        expanded += piece.bytes
        continue
      }
      if place == .fixed {
        guard let name = expression.names.first(where: { values[$0] != nil }) else {
          expanded += piece.bytes
          continue
        }
        throw .init(sentence: "expected no expression in this text, got {\(name)}")
      }
      if let name = expression.names.first(where: { together.contains($0) }) {
        guard place == .url || place == .json else {
          throw .init(sentence: "expected no \(expression) in this text, which is for all values together")
        }
        try position.check(expression, name, template)
        expanded += piece.bytes
        continue
      }
      let name = try name(in: expression, of: place)
      try position.check(expression, name, template)
      hasExpression = true
      switch expression.operation {
      case UInt8(ascii: "/"): expanded.append(UInt8(ascii: "/"))
      case let sign?: expanded += [sign] + name.utf8 + [UInt8(ascii: "=")]
      case nil: break
      }
      expanded += (values[name] ?? "").utf8
    }
    return hasExpression ? String(decoding: expanded, as: UTF8.self) : nil
  }

  /// The parameter of an expression.
  /// - Throws: if it is not one parameter in a form that the place permits.
  private func name(in expression: Expression, of place: Place) throws(NameTemplate.Fault) -> String {
    let known = values.names
    if let unknown = expression.names.first(where: { !known.contains($0) }) {
      let names = known.map { "{\($0)}" }
      let meant = nearest(to: unknown, among: Set(known)).map { "did you mean {\($0)}?" }
      let choice = names.dropLast().joined(separator: ", ") + (names.count > 1 ? " or " : "") + (names.last ?? "")
      throw .init(
        sentence:
          "unknown parameter \(expression); \(meant ?? "expected \(choice), or { \(unknown) } for the text itself")")
    }
    let mayHaveOperation = place == .url && "/?&".utf8.contains { $0 == expression.operation }
    guard expression.isPlain, expression.names.count == 1, expression.operation == nil || mayHaveOperation else {
      let separate = expression.names.map { "{\(mayHaveOperation ? expression.sign : "")\($0)}" }.joined()
      throw .init(sentence: "expected \(separate) in place of \(expression)")
    }
    return expression.names[0]
  }
}

/// An expression as written, or what looks like one. Source: RFC 6570, section 2.2.
private struct Expression: CustomStringConvertible {
  /// The text between the braces.
  let description: String
  /// The operator before the names; nil: none.
  let operation: UInt8?
  let names: [String]
  /// Whether the names have no modifiers.
  let isPlain: Bool

  /// The operator as text.
  var sign: String { operation.map { String(UnicodeScalar($0)) } ?? "" }

  /// - Parameter content: the text between braces.
  /// - Returns: nil for a text that does not look like an expression.
  init?(_ content: ArraySlice<UInt8>) {
    guard let first = content.first else { return nil }
    operation = "+#./;?&=,!@|".utf8.contains(first) ? first : nil
    let text = String(decoding: operation == nil ? content : content.dropFirst(), as: UTF8.self)
    var isPlain = true
    var names: [String] = []
    for variable in text.split(separator: ",", omittingEmptySubsequences: false) {
      let name = variable.prefix { $0 != "*" && $0 != ":" }
      let modifier = variable.dropFirst(name.count)
      let isNumber = modifier.first == ":" && modifier.dropFirst().allSatisfy(\.isNumber)
      guard NameTemplate.isParameterName(name.lowercased()), modifier.isEmpty || modifier == "*" || isNumber else {
        return nil
      }
      if !modifier.isEmpty { isPlain = false }
      names.append(String(name))
    }
    (self.names, self.isPlain) = (names, isPlain)
    description = "{\(String(decoding: content, as: UTF8.self))}"
  }
}

/// A part of a text: literal, or one expression.
private struct Piece {
  var bytes: ArraySlice<UInt8>
  var expression: Expression?

  static func pieces(of text: ArraySlice<UInt8>) -> [Piece] {
    var pieces: [Piece] = []
    var start = text.startIndex
    var index = start
    while index < text.endIndex {
      let content = text[index...].dropFirst().prefix { $0 != UInt8(ascii: "}") && $0 != UInt8(ascii: "{") }
      guard text[index] == UInt8(ascii: "{"), content.endIndex < text.endIndex,
        text[content.endIndex] == UInt8(ascii: "}"), let expression = Expression(content)
      else {
        index += 1
        continue
      }
      if start < index { pieces.append(Piece(bytes: text[start..<index])) }
      start = content.endIndex + 1
      pieces.append(Piece(bytes: text[index..<start], expression: expression))
      index = start
    }
    if start < text.endIndex { pieces.append(Piece(bytes: text[start...])) }
    return pieces
  }
}

/// The place in a text up to which its pieces were read.
private struct Position {
  private enum Part {
    case scheme, authority, path, query, fragment
  }

  private let place: TextExpansion.Place
  /// The place of a word in its command.
  private let index: Int
  private var part = Part.scheme
  /// Whether the text begins with what must be before an expression.
  private let isBehindKey: Bool
  /// Whether a string of JSON is open; nil: the text is not JSON.
  private var isInString: Bool?
  /// The bytes before this place, of which the last ones matter.
  private var last: [UInt8] = []
  private var byteCount = 0

  init(_ place: TextExpansion.Place, _ index: Int, _ pieces: [Piece]) {
    (self.place, self.index) = (place, index)
    let head = pieces.first.flatMap { $0.expression == nil ? $0.bytes : nil } ?? []
    isBehindKey =
      place == .rule
      ? head.starts(with: "user:".utf8) || head.starts(with: "group:".utf8) : head.contains(UInt8(ascii: "="))
    guard place == .json else { return }
    let sample = pieces.flatMap { $0.expression == nil ? Array($0.bytes) : [UInt8(ascii: "0")] }
    let lines = sample.split(separator: UInt8(ascii: "\n")).filter { $0.contains { $0 > 0x20 } }
    if Self.isJSON(sample[...]) || lines.allSatisfy(Self.isJSON) { isInString = false }
  }

  /// Whether a text is JSON: an object, an array or a string. Another scalar of its own is a text.
  private static func isJSON(_ text: ArraySlice<UInt8>) -> Bool {
    guard let first = text.first(where: { $0 > 0x20 }), "{[\"".utf8.contains(first) else { return false }
    return JSONSyntax.holds(for: Array(text).span)
  }

  mutating func pass(_ bytes: ArraySlice<UInt8>) {
    for byte in bytes {
      if place == .url { passURL(byte) }
      if isInString != nil, byte == UInt8(ascii: "\""), !isEscaped { isInString?.toggle() }
      note(byte)
    }
  }

  private mutating func note(_ byte: UInt8) {
    // A backslash after another one is a character.
    last.append(byte == UInt8(ascii: "\\") && last.last == byte ? 0 : byte)
    if last.count > 2 { last.removeFirst() }
    byteCount += 1
  }

  private var isEscaped: Bool { last.last == UInt8(ascii: "\\") }

  private mutating func passURL(_ byte: UInt8) {
    switch (part, byte) {
    case (.scheme, UInt8(ascii: "/")) where last.elementsEqual(":/".utf8): part = .authority
    case (.authority, UInt8(ascii: "/")): part = .path
    case (.authority, UInt8(ascii: "?")), (.path, UInt8(ascii: "?")): part = .query
    case (.authority, UInt8(ascii: "#")), (.path, UInt8(ascii: "#")), (.query, UInt8(ascii: "#")): part = .fragment
    default: break
    }
  }

  /// Checks that an expression may be at this place, and passes it.
  mutating func check(_ expression: Expression, _ name: String, _ template: NameTemplate) throws(NameTemplate.Fault) {
    switch place {
    case .fixed, .program, .text: break
    case .url: try checkURL(expression, name)
    case .json:
      if isInString == false || isInString == true && isEscaped {
        throw .init(sentence: "expected {\(name)} within a string of the JSON text")
      }
    case .word:
      guard index > 0 else { throw .init(sentence: "expected a program without an expression, got {\(name)}") }
      let parameter = template.parameterNames.firstIndex(of: name).map { template.parameters[$0] }
      if byteCount == 0, parameter?.canBegin(with: UInt8(ascii: "-")) == true {
        throw .init(
          sentence: "expected values of \(name) that cannot begin with \"-\", as {\(name)} begins an argument; "
            + "parameters.\(name).characters restricts them")
      }
    case .rule, .match:
      let keys = place == .rule ? "\"user:\" or \"group:\"" : "\"=\""
      guard isBehindKey else { throw .init(sentence: "expected {\(name)} behind \(keys) only") }
    }
    note(0)
  }

  private mutating func checkURL(_ expression: Expression, _ name: String) throws(NameTemplate.Fault) {
    let sign = expression.operation
    switch part {
    case .authority where sign == UInt8(ascii: "/"): part = .path
    case .authority where sign == UInt8(ascii: "?"), .path where sign == UInt8(ascii: "?"): part = .query
    case .scheme, .authority, .fragment:
      throw .init(sentence: "expected \(expression) in the path or the query of the URL only")
    case .path where sign == UInt8(ascii: "&"):
      throw .init(sentence: "expected {?\(name)} in place of {&\(name)}: the URL has no \"?\" before it")
    case .query where sign == UInt8(ascii: "?"):
      throw .init(sentence: "expected {&\(name)} in place of {?\(name)}: the URL has a \"?\" before it")
    case .path, .query: break
    }
    // The value would be a part of an escape, and so another character.
    guard sign != nil || !last.contains(UInt8(ascii: "%")) else {
      throw .init(sentence: "expected two digits after the \"%\" before {\(name)}")
    }
  }
}
