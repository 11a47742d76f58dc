import Events
import Testing

/// The texts of a message, and why bytes are not one.
@Suite struct JSONTextsTests {
  private func texts(_ message: [UInt8]) -> [String] {
    var texts: [String] = []
    JSONSyntax.forEachText(in: message.span) { range in
      texts.append(String(decoding: message[range], as: UTF8.self))
      return true
    }
    return texts
  }

  @Test(arguments: [
    ("", []), (" \n\u{1e}\u{1e}\n", []), ("1", ["1"]), (" [1] \n", ["[1]"]), ("1 2\t3\r\n4", ["1", "2", "3", "4"]),
    ("{\"type\":6}\u{1e}", ["{\"type\":6}"]), ("{}\u{1e}{\"a\":1}\u{1e}[]\u{1e}", ["{}", "{\"a\":1}", "[]"]),
    ("\u{1e}{\"a\":1}\n\u{1e}2\n", ["{\"a\":1}", "2"]), ("{\"a\":1}{\"a\":2}[3]", ["{\"a\":1}", "{\"a\":2}", "[3]"]),
    ("{\n  \"a\": [\n1\n]\n}\n{\n}\n", ["{\n  \"a\": [\n1\n]\n}", "{\n}"]), ("1\u{1e}2", ["1", "2"]),
    ("\"a\"\"b\"[]", ["\"a\"", "\"b\"", "[]"]),
    ("\u{feff}{} 1", ["{}", "1"]),
    ("\"a\u{1e}b\"", ["\"a", "b\""]), ("\"a\\u001eb\"", ["\"a\\u001eb\""]),
  ])
  func eachTextOfAMessageIsFound(message: String, expected: [String]) {
    #expect(texts(Array(message.utf8)) == expected)
    #expect(expected.count > 1 || expected.first != message || JSONSyntax.holds(for: Array(message.utf8).span))
  }

  @Test(arguments: [
    ("12\u{0}34", ["12\u{0}34"]), ("{\"t\":12\u{0}34}\n{\"t\":5}", ["{\"t\":12\u{0}34}", "{\"t\":5}"]),
    ("{}x\n1", ["{}x", "1"]),
    ("007 1", ["007 1"]), ("1\"a\"", ["1\"a\""]), ("{\"a\":1\n{\"b\":2}\n3", ["{\"a\":1", "{\"b\":2}", "3"]),
    ("[1,\n", ["[1,"]),
    ("nan\u{1e}{}", ["nan", "{}"]), ("{]\r\n \n2", ["{]", "2"]), ("tru\u{1e}e", ["tru", "e"]),
    ("\"\n\"", ["\"", "\""]),
  ])
  func whatIsNoTextEndsWithItsLine(message: String, expected: [String]) {
    #expect(texts(Array(message.utf8)) == expected)
  }

  @Test func aMessageIsReadInLinearTime() {
    // Each of these took quadratic time if any of their bytes were read once for each piece.
    for unit in ["[\n", "{}x\n", "\"\n", "1 ", "\n", "[1,\n1", "\u{1e}", "a"] {
      var count = 0
      JSONSyntax.forEachText(in: Array(String(repeating: unit, count: 2_000_000).utf8).span) { _ in
        count += 1
        return true
      }
      #expect(count <= 2_000_000)
    }
  }

  @Test(arguments: [
    ("", "not JSON: it is empty"), (" \n", "not JSON: it is empty"), ("1 2", "more than one JSON text"),
    ("{}[]", "more than one JSON text"), ("{}\u{1e}", "more than one JSON text"), ("1\n2", "more than one JSON text"),
    ("12\u{0}34", "not JSON: 0x00 at byte 3"), ("007", "not JSON: '0' at byte 2"), ("nan", "not JSON: 'a' at byte 2"),
    ("+1", "not JSON: '+' at byte 1"), ("[1", "not JSON: it is cut off"), ("-", "not JSON: it is cut off"),
    ("{'a':1}", "not JSON: 0x27 at byte 2"), ("{}<", "not JSON: '<' at byte 3"),
    (String(repeating: "[", count: 600), "not JSON: nested more than 512 deep"),
  ])
  func aFaultIsOneSentence(text: String, sentence: String) {
    #expect(JSONSyntax.fault(in: Array(text.utf8).span)?.sentence == sentence)
  }

  @Test func aByteThatIsNotUTF8IsNamed() {
    #expect(JSONSyntax.fault(in: [0x22, 0xE4, 0x22].span)?.sentence == "not JSON: '\"' at byte 3")
    #expect(JSONSyntax.fault(in: [0x22, 0xFF, 0x22].span)?.sentence == "not JSON: 0xFF at byte 2")
    #expect(JSONSyntax.fault(in: Array("[1]".utf8).span) == nil)
  }
}
