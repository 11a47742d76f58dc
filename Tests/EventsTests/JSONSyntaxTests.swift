import Events
import Testing

/// What is one JSON text.
@Suite struct JSONSyntaxTests {
  private static func holds(_ bytes: [UInt8]) -> Bool { JSONSyntax.holds(for: bytes.span) }

  @Test(arguments: [
    "0", "-0", "12.5e-3", "1E+9", "true", "false", "null", "\"\"", #""\u00e9\n\"""#, "[]", "{}", " [ 1 , [ ] , { } ] ",
    #"{"a":{"b":[1,{"c":null}]},"a":2}"#, "\n1\t",
  ])
  func aJSONTextHolds(text: String) {
    #expect(Self.holds(Array(text.utf8)))
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
}
