import Testing

@testable import StreamSources

struct UnionTextTests {
  private func text(_ text: String, _ values: [String] = ["A", "B-1", "C"]) throws -> String {
    try UnionText(text, parameter: "symbol", list: "symbols").text(values)
  }

  @Test(arguments: [
    (
      #"{"op":"subscribe","args":["trade.{symbol*}"]}"#, #"{"op":"subscribe","args":["trade.A","trade.B-1","trade.C"]}"#
    ),
    (#"{"a":["x", "{symbol*}@t" , "y"]}"#, #"{"a":["x", "A@t" , "B-1@t" ,"C@t" , "y"]}"#),
    (
      #"[{"id":"{symbol*}","n":["{symbol*}"]}]"#,
      #"[{"id":"A","n":["A"]},{"id":"B-1","n":["B-1"]},{"id":"C","n":["C"]}]"#
    ),
    (#"[{"n":["{symbol*}"],"id":"{symbol*}"}]"#, ""),
    (
      #"[{"id":"{symbol*}","also":"{symbol*}"}]"#,
      #"[{"id":"A","also":"A"},{"id":"B-1","also":"B-1"},{"id":"C","also":"C"}]"#
    ),
    (#"[["{symbol*}"],["{symbol*}/"]]"#, #"[["A","B-1","C"],["A/","B-1/","C/"]]"#),
    (#"["a,]\"{symbol*}"]"#, #"["a,]\"A","a,]\"B-1","a,]\"C"]"#),
    ("https://a/q{?symbols}", "https://a/q?symbols=A,B-1,C"),
    ("https://a/q?x=1{&symbols}", "https://a/q?x=1&symbols=A,B-1,C"),
    ("https://a/q{/symbols}/now", "https://a/q/A,B-1,C/now"),
    ("https://a/q?ids={symbols}", "https://a/q?ids=A,B-1,C"),
    (#"{"symbols":"{symbols}"}"#, #"{"symbols":"A,B-1,C"}"#),
    ("{other}{symbols*}", "{other}{symbols*}"),
    ("sub {symbol} {symbol}", "sub A A"),
  ])
  func eachExpressionHasItsForm(form: String, expected: String) throws {
    if expected.isEmpty {
      #expect(throws: UnionText.Fault.self) { try text(form) }
    } else {
      #expect(try text(form).filter { $0 != " " } == expected.filter { $0 != " " })
    }
  }

  @Test(arguments: [
    ("{symbol*}", "expected a JSON text"), (#"{"a":"{symbol*}"}"#, "within a string in an array"),
    (#"["{symbol*}","{symbol}"]"#, "for one, got both"), (#"["{symbol*}{symbol}"]"#, "for one, got both"),
    ("{symbol}{symbols}", "for one, got both"), ("", ""),
  ])
  func whatCannotBeRepeatedIsAFault(form: String, sentence: String) {
    do {
      _ = try UnionText(form, parameter: "symbol", list: "symbols")
      #expect(sentence.isEmpty)
    } catch { #expect(error.sentence.contains(sentence), "\(error.sentence)") }
  }

  @Test func theExtentSaysHowManyValuesATextHas() throws {
    #expect(try UnionText("a", parameter: "s", list: nil).extent == .none)
    #expect(try UnionText("a{s}", parameter: "s", list: nil).extent == .one)
    #expect(try UnionText("[\"a{s*}\"]", parameter: "s", list: nil).extent == .many)
    #expect(try UnionText("a{ss}", parameter: "s", list: "ss").extent == .many)
  }
}
