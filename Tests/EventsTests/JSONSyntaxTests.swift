import Events
import Testing

/// What is one JSON text.
@Suite struct JSONSyntaxTests {
  private static func holds(_ bytes: [UInt8]) -> Bool { JSONSyntax.holds(for: bytes.span) }
  private static func hasEnds(_ bytes: [UInt8]) -> Bool { JSONSyntax.hasEnds(bytes.span) }

  @Test(arguments: [
    "0", "-0", "12.5e-3", "1E+9", "true", "false", "null", "\"\"", #""\u00e9\n\"""#, "[]", "{}", " [ 1 , [ ] , { } ] ",
    #"{"a":{"b":[1,{"c":null}]},"a":2}"#, "\n1\t",
  ])
  func aJSONTextHolds(text: String) {
    #expect(Self.holds(Array(text.utf8)))
    #expect(Self.hasEnds(Array(text.utf8)))
  }

  @Test(arguments: [
    "", " ", "01", "1.", ".5", "-", "+1", "1e", "NaN", "tru", "truer", "1 2", "\"", "\"a", "\"\u{1}\"", #""\x""#,
    #""\u12g4""#,
    "[", "]", "[1", "[1,", "[1,]", "[,1]", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:2}", "[1}",
    "{\"a\":1]", "[]]",
    "{\"event\":1}x", #""\u12é""#,
  ])
  func otherTextDoesNot(text: String) {
    #expect(!Self.holds(Array(text.utf8)))
  }

  @Test(arguments: [
    "", " ", "\n{", "{", "[", "\"", "}", "<html></html>", "{\"a\":1", "[1,2", "[1}", "{1]", "\"a", "a\"", "tru", "1.",
    "-", "Not found", "null,", "\u{FEFF}{}", " {\"a\"} ",
  ])
  func aTextWithOtherEndsIsNoJSON(text: String) {
    #expect(!Self.hasEnds(Array(text.utf8)))
    #expect(!Self.holds(Array(text.utf8)))
  }

  @Test func nestingIsLimited() {
    func nested(_ depth: Int) -> [UInt8] {
      Array((String(repeating: "[", count: depth) + String(repeating: "]", count: depth)).utf8)
    }
    #expect(Self.holds(nested(JSONSyntax.depthLimit)))
    #expect(!Self.holds(nested(JSONSyntax.depthLimit + 1)))
    #expect(!Self.holds(Array(repeating: UInt8(ascii: "["), count: 10_000_000)))
  }

  /// The verdict is the same in slices of any size, and is not given before it is known.
  @Test(arguments: [
    #"{"a":[1,-0.5e+10,true,false,null,{}],"é€😀":"\u00e9\n/","":[[],{"b":""}]} "#, "-12.5E-3", "[tru]", "{\"a\":1,}",
    "\"0123456789é\u{1}\"", "[1,2", "12e", "nul",
  ]) func aTextMayBeExaminedInSlices(text: String) {
    let bytes = Array(text.utf8)
    for size in 1...bytes.count {
      var (examination, verdict, count) = (JSONSyntax.Examination(), Bool?.none, 0)
      while verdict == nil, count <= bytes.count {
        verdict = examination.advance(in: bytes.span, by: size)
        count += 1
      }
      #expect(verdict == Self.holds(bytes), "\(size)")
      if verdict == true { #expect(count == (bytes.count + size - 1) / size) }
    }
  }

  /// Strings are read eight bytes at a time.
  @Test func everyByteOfAStringIsExamined() {
    for count in 1...40 {
      for place in 0..<count {
        func text(_ byte: UInt8) -> [UInt8] {
          var inside = [UInt8](repeating: UInt8(ascii: "a"), count: count)
          inside[place] = byte
          return [UInt8(ascii: "[")] + [UInt8(ascii: "\"")] + inside + Array("\",1]".utf8)
        }
        for byte: UInt8 in [0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f] {
          #expect(Self.holds(text(byte)), "\(byte) at \(place)")
        }
        for byte: UInt8 in [0, 10, 13, 0x1e, 0x1f, 0x22, 0x5c, 0x80, 0xff] {
          #expect(!Self.holds(text(byte)), "\(byte) at \(place)")
        }
      }
    }
  }

  @Test func aTextIsUTF8() {
    for valid in ["é", "€", "😀", "aé€😀z"] {
      #expect(Self.holds(Array("\"\(valid)\"".utf8)) && !Self.holds(Array(valid.utf8)))
    }
    for invalid in [[0xc3], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xe2, 0x82]] as [[UInt8]] {
      #expect(!Self.holds([UInt8(ascii: "\"")] + invalid + [UInt8(ascii: "\"")]), "\(invalid)")
    }
  }

  /// What follows the parts of an object in an envelope would forge the others.
  @Test func moreThanOneTextIsNone() {
    for text in ["1,\"id\":2", "1}\n{\"id\":2", "1 ]", "{}{}", "\"a\",\"b\":1", "[],", "1\u{0}", "\u{feff}1"] {
      #expect(!Self.holds(Array(text.utf8)), "\(text)")
    }
  }

  /// Texts with a few bytes replaced, removed or added, as the grammar of RFC 8259 has them and in slices of any size.
  @Test func verdictAndValuesOfMutatedTextsAreThoseOfTheGrammar() {
    let texts = [
      #"{"k":"10000001","v":187.25,"pad":"xxxxxxxxxxxxxxxxxxxxx"}"#, #" [ 1 , -0 , 0.5e+7 , true , false , null ] "#,
      #"{"a":{"k":[1,{"k":"é€😀"},[]]},"k":"\u00e9\n\"","k":{},"":-12}"#, #"[[[{"k":[{"k":0}]}],""],"\\"]"#, "120.75",
      #"{"k":tru,"v":nul}"#, #"{ "long name with more than sixteen bytes" : falsefalse , "k" : 1E9 }"#,
    ].map { Array($0.utf8) }
    let inserts = Array("{}[]:,\"\\ 0123456789.-+eEtrufalsn\n\tk/\u{1}\u{7f}é".utf8) + [0x80, 0xff, 0xed, 0xf4]
    let paths = JSONPaths([".k", ".a.k[1].k", ".", ".[0]"].map { JSONPaths.steps(ofProgram: $0) ?? [] })
    var random = SystemRandomNumberGenerator()
    var finder = JSONFinder(paths)
    for round in 0..<20_000 {
      var text = texts[round % texts.count]
      for _ in 0..<Int.random(in: 0...3, using: &random) where !text.isEmpty {
        let place = Int.random(in: 0..<text.count, using: &random)
        switch Int.random(in: 0..<4, using: &random) {
        case 0: text.remove(at: place)
        case 1: text.insert(inserts.randomElement(using: &random)!, at: place)
        case 2: text[place] = inserts.randomElement(using: &random)!
        case _: text.removeLast(text.count - place)
        }
      }
      var grammar = Grammar(text)
      let isText = grammar.isText()
      let written = String(decoding: text, as: UTF8.self)
      #expect(Self.holds(text) == isText, "\(written)")
      #expect(finder.find(in: text.span) == isText, "\(written)")
      guard isText else { continue }
      let found = (0..<paths.count).map { finder[$0] }
      for size in [1, 2, 3, 5, 7, 11] {
        finder.begin()
        var verdict = finder.advance(in: text.span, by: size)
        while verdict == nil { verdict = finder.advance(in: text.span, by: size) }
        #expect(verdict == true && (0..<paths.count).map { finder[$0] } == found, "\(written) by \(size)")
      }
    }
  }

  /// The grammar of RFC 8259, rule by rule.
  private struct Grammar {
    private let bytes: [UInt8]
    private var index = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    mutating func isText() -> Bool {
      value() && index == bytes.count && String(validating: bytes, as: UTF8.self) != nil
    }

    private var next: UInt8 { index < bytes.count ? bytes[index] : 0 }

    private mutating func take(_ characters: String) -> Bool {
      guard bytes[index...].starts(with: characters.utf8) else { return false }
      index += characters.utf8.count
      return true
    }

    private mutating func space() { while [0x20, 0x09, 0x0A, 0x0D].contains(next) { index += 1 } }

    private mutating func structure(_ character: String) -> Bool {
      space()
      guard take(character) else { return false }
      space()
      return true
    }

    private mutating func value() -> Bool {
      space()
      defer { space() }
      if structure("{") { return structure("}") || list(end: "}") { $0.string() && $0.structure(":") && $0.value() } }
      if structure("[") { return structure("]") || list(end: "]") { $0.value() } }
      if next == UInt8(ascii: "\"") { return string() }
      return take("true") || take("false") || take("null") || number()
    }

    private mutating func list(end: String, _ element: (inout Grammar) -> Bool) -> Bool {
      repeat { guard element(&self) else { return false } } while structure(",")
      return structure(end)
    }

    private mutating func string() -> Bool {
      guard take("\"") else { return false }
      while index < bytes.count, next >= 0x20 {
        if take("\"") { return true }
        guard take("\\") else {
          index += 1
          continue
        }
        if take("u") {
          guard bytes.count - index >= 4,
            bytes[index..<index + 4].allSatisfy({ Character(UnicodeScalar($0)).isHexDigit && $0 < 0x80 })
          else { return false }
          index += 4
        } else if Array("\"\\/bfnrt".utf8).contains(next) {
          index += 1
        } else {
          return false
        }
      }
      return false
    }

    private mutating func digits() -> Bool {
      let start = index
      while 0x30...0x39 ~= next { index += 1 }
      return index > start
    }

    private mutating func number() -> Bool {
      _ = take("-")
      guard take("0") || digits() else { return false }
      if take("."), !digits() { return false }
      guard take("e") || take("E") else { return true }
      _ = take("+") || take("-")
      return digits()
    }
  }
}
