import Events

/// A text of a request or a message that has the values of many streams in place of its expressions.
///
/// In a URL `{?symbols}`, `{&symbols}`, `{/symbols}` or `{symbols}` are all values, separated by commas. In a JSON text the star
/// of `{symbol*}` repeats the element of the innermost array around it, once for each value; `{symbols}` is all of them in one
/// string. `{symbol}` is one value: the text is sent once for each. Values need no escape anywhere (`NameValues`).
package struct UnionText: Sendable, Equatable {
  /// How many values one text has.
  package enum Extent: Sendable, Equatable {
    /// It has no expression.
    case none
    case one
    case many
  }

  private enum Piece: Sendable, Equatable {
    case literal(String)
    case one
    /// All values, after this text.
    case list(before: String)
    /// Repeated for each value, with commas between.
    case element([Piece])
  }

  private let pieces: [Piece]
  package let extent: Extent

  /// Why a text cannot be used.
  package struct Fault: Error, Equatable {
    package let sentence: String
  }

  /// - Parameters:
  ///   - parameter: the name of the parameter, as in `{symbol}`.
  ///   - list: the name of all its values, as in `{symbols}`; nil: there is none.
  package init(_ text: String, parameter: String, list: String?) throws(Fault) {
    let text = Array(text.utf8)
    let (star, plain) = (Array("{\(parameter)*}".utf8), Array("{\(parameter)}".utf8))
    var pieces: [Piece] = []
    var start = 0
    while let place = Self.first(star, in: text, from: start) {
      let element = try Self.element(of: text, around: place, name: parameter)
      guard element.lowerBound >= start else { throw Self.nested(parameter) }
      pieces += Self.pieces(text[start..<element.lowerBound], plain, list)
      let parts = Self.split(text[element], at: star)
      guard !parts.contains(where: { Self.first(plain, in: Array($0), from: 0) != nil }) else {
        throw Self.mixed(parameter)
      }
      pieces.append(
        .element(
          parts.enumerated().flatMap { index, part in
            let literal = Piece.literal(String(decoding: part, as: UTF8.self))
            return index == 0 ? [literal] : [.one, literal]
          }))
      start = element.upperBound
    }
    pieces += Self.pieces(text[start...], plain, list)
    let isMany = pieces.contains { if case .literal = $0 { false } else { $0 != .one } }
    let isOne = pieces.contains(.one)
    guard !(isMany && isOne) else { throw Self.mixed(parameter) }
    self.pieces = pieces
    extent = isMany ? .many : isOne ? .one : .none
  }

  /// The text with these values.
  package func text(_ values: [String]) -> String {
    var text = ""
    Self.append(pieces, values, to: &text)
    return text
  }

  private static func append(_ pieces: [Piece], _ values: [String], to text: inout String) {
    for piece in pieces {
      switch piece {
      case .literal(let literal): text += literal
      case .one: text += values.first ?? ""
      case .list(let before): text += before + values.joined(separator: ",")
      case .element(let parts):
        for (index, value) in values.enumerated() {
          if index > 0 { text += "," }
          append(parts, [value], to: &text)
        }
      }
    }
  }

  // MARK: Reading

  private static func nested(_ name: String) -> Fault {
    Fault(sentence: "expected the arrays around {\(name)*} one after the other, not within one another")
  }

  private static func mixed(_ name: String) -> Fault {
    Fault(sentence: "expected {\(name)*} for many values or {\(name)} for one, got both")
  }

  private static func pieces(_ text: ArraySlice<UInt8>, _ plain: [UInt8], _ list: String?) -> [Piece] {
    let lists = list.map { name in ["", "?", "&", "/"].map { (Array("{\($0)\(name)}".utf8), $0) } } ?? []
    var pieces: [Piece] = []
    var (start, index) = (text.startIndex, text.startIndex)
    while index < text.endIndex {
      let rest = text[index...]
      var found: (count: Int, piece: Piece)?
      if rest.starts(with: plain) { found = (plain.count, .one) }
      for (form, sign) in lists where rest.starts(with: form) {
        found = (form.count, .list(before: ["?", "&"].contains(sign) ? "\(sign)\(list ?? "")=" : sign))
      }
      guard let found else {
        index += 1
        continue
      }
      if start < index { pieces.append(.literal(String(decoding: text[start..<index], as: UTF8.self))) }
      pieces.append(found.piece)
      index += found.count
      start = index
    }
    if start < index { pieces.append(.literal(String(decoding: text[start..<index], as: UTF8.self))) }
    return pieces
  }

  private static func first(_ part: [UInt8], in text: [UInt8], from start: Int) -> Int? {
    guard start + part.count <= text.count else { return nil }
    return (start...text.count - part.count).first { text[$0] == part[0] && text[$0...].starts(with: part) }
  }

  private static func split(_ text: ArraySlice<UInt8>, at part: [UInt8]) -> [ArraySlice<UInt8>] {
    var parts: [ArraySlice<UInt8>] = []
    var start = text.startIndex
    while let place = first(part, in: Array(text[start...]), from: 0) {
      parts.append(text[start..<start + place])
      start += place + part.count
    }
    return parts + [text[start...]]
  }

  /// The element of the innermost array around a place in a JSON text.
  private static func element(
    of text: [UInt8], around place: Int, name: String
  ) throws(Fault) -> Range<Int> {
    guard JSONSyntax.holds(for: text.span) else {
      throw Fault(sentence: "expected a JSON text with {\(name)*}, whose star repeats an element of an array")
    }
    // For each open array and object: whether it is an array, and where its present element begins.
    var open: [(isArray: Bool, start: Int)] = []
    var (isString, isEscaped) = (false, false)
    var target: Int?
    for (index, byte) in text.enumerated() {
      if index == place {
        guard isString, let depth = open.lastIndex(where: \.isArray) else {
          throw Fault(sentence: "expected {\(name)*} within a string in an array, of which it repeats an element")
        }
        target = depth
      }
      if isString {
        if !isEscaped, byte == UInt8(ascii: "\"") { isString = false }
        isEscaped = !isEscaped && byte == UInt8(ascii: "\\")
        continue
      }
      switch byte {
      case UInt8(ascii: "\""): isString = true
      case UInt8(ascii: "["), UInt8(ascii: "{"): open.append((byte == UInt8(ascii: "["), index + 1))
      case UInt8(ascii: "]"), UInt8(ascii: "}"), UInt8(ascii: ","):
        if let target, open.count == target + 1 { return open[target].start..<index }
        if byte != UInt8(ascii: ",") {
          open.removeLast()
        } else if !open.isEmpty {
          open[open.count - 1].start = index + 1
        }
      default: break
      }
    }
    throw Fault(sentence: "expected {\(name)*} within an array")
  }
}
