/// Reads the name of a template as written in the configuration.
struct NameTemplateReader {
  enum Piece {
    case literal([UInt8])
    /// `{x}`, with its name.
    case expression(String)
    /// The end of a segment.
    case slash
  }

  private let text: String
  private var rest: ArraySlice<UInt8>
  private var pieces: [Piece] = []
  private var names: Set<String> = []

  init(_ text: String) {
    self.text = text
    rest = Array(text.utf8)[...]
  }

  mutating func read() throws(NameTemplate.Fault) -> [Piece] {
    while let byte = rest.first {
      switch byte {
      case UInt8(ascii: "/"):
        rest.removeFirst()
        pieces.append(.slash)
      case UInt8(ascii: "{"): pieces.append(.expression(try expression()))
      default: pieces.append(.literal(try literal()))
      }
    }
    guard !names.isEmpty else { throw .init(sentence: "expected an expression such as {city}, got none") }
    guard names.count <= NameTemplate.mostExpressions else {
      throw .init(sentence: "expected at most \(NameTemplate.mostExpressions) expressions, got \(names.count)")
    }
    let segments = text.split(separator: "/", omittingEmptySubsequences: false)
    guard !segments.contains(where: { $0 == "." || $0 == ".." }) else {
      throw .init(sentence: "expected a name without the segments \".\" and \"..\", which no URL can have")
    }
    return pieces
  }

  private mutating func literal() throws(NameTemplate.Fault) -> [UInt8] {
    let bytes = Array(rest.prefix { NameCharacters.all.contains($0) })
    guard !bytes.isEmpty else {
      throw .init(
        sentence: "expected a name of letters, digits, \".\", \"_\", \"-\", \"/\" and expressions such as {city}")
    }
    rest = rest.dropFirst(bytes.count)
    return bytes
  }

  private mutating func expression() throws(NameTemplate.Fault) -> String {
    let content = rest.dropFirst().prefix { $0 != UInt8(ascii: "}") && $0 != UInt8(ascii: "{") }
    let name = String(decoding: content, as: UTF8.self)
    rest = rest[content.endIndex...]
    guard rest.popFirst() == UInt8(ascii: "}"), NameTemplate.isParameterName(name) else {
      throw .init(
        sentence: "expected expressions such as {city}, each with small letters, digits and \"_\", a letter first")
    }
    guard names.insert(name).inserted else { throw .init(sentence: "expected {\(name)} once") }
    return name
  }
}

extension NameTemplate {
  /// Whether a parameter can have this name.
  package static func isParameterName(_ name: String) -> Bool {
    let letters = UInt8(ascii: "a")...UInt8(ascii: "z")
    return name.utf8.first.map(letters.contains) == true
      && name.utf8.allSatisfy {
        letters.contains($0) || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) || $0 == UInt8(ascii: "_")
      }
  }
}
