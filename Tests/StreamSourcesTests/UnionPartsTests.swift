import Events
import StreamRuntime
import Testing

@testable import StreamSources

struct UnionPartsTests {
  private func elements(_ text: String, at place: Int = 0) -> [String] {
    var elements = JSONElements(of: Array(text.utf8), at: place)
    var found: [String] = []
    while let range = elements.next() { found.append(String(decoding: elements.text[range], as: UTF8.self)) }
    return found
  }

  @Test(arguments: [
    ("[]", []), ("[ ]", []), ("[1]", ["1"]),
    (#"[1, "a,]" ,{"b":[1,2]},[],null]"#, ["1", #""a,]""#, #"{"b":[1,2]}"#, "[]", "null"]),
    (#"{"a": {"s":"x"},"b":"}" }"#, [#"{"s":"x"}"#, #""}""#]), (#"["\"]\\",2]"#, [#""\"]\\""#, "2"]), ("7", []),
    (#""ab""#, []),
  ])
  func theElementsAreAsWritten(text: String, expected: [String]) { #expect(elements(text) == expected) }

  @Test(arguments: 0..<100) func atRandomTheElementsAreThoseThatWereWritten(seed: Int) {
    var random = SplitMix(seed: UInt64(seed))
    func value(_ depth: Int) -> String {
      switch Int.random(in: 0..<(depth > 3 ? 4 : 6), using: &random) {
      case 0: "\(Int.random(in: -9...9, using: &random))"
      case 1: #""a\"],}{\\""#
      case 2: "true"
      case 3: "\"\""
      case 4:
        "[" + (0..<Int.random(in: 0...3, using: &random)).map { _ in value(depth + 1) }.joined(separator: " , ") + "]"
      case _:
        "{"
          + (0..<Int.random(in: 0...3, using: &random)).map { "\"k\\\"]\($0)\": " + value(depth + 1) }.joined(
            separator: ",") + "}"
      }
    }
    let values = (0..<Int.random(in: 0...9, using: &random)).map { _ in value(0) }
    #expect(elements("[ " + values.joined(separator: " ,\n") + " ]") == values)
    let members = values.enumerated().map { "\"\($0)\\\\\" : \($1)" }
    #expect(elements("{" + members.joined(separator: ",") + "}") == values)
  }

  @Test func pathsNeedNoProcess() {
    #expect(UnionParts.arePaths(.init(each: ".quotes[]", route: ".symbol", refused: ".error.symbol")))
    #expect(UnionParts.arePaths(.init(each: " .[] ", route: ".")))
    #expect(UnionParts.arePaths(.init(each: nil, route: ".data.s")))
    for programs in [
      UnionParts.Programs(each: ".quotes[] | select(.a)", route: ".s"), .init(each: ".quotes", route: ".s"),
      .init(each: nil, route: ".s | ascii_upcase"), .init(each: nil, route: ".s", refused: ".a // .b"),
    ] { #expect(!UnionParts.arePaths(programs)) }
  }

  @Test(arguments: [
    (#"{"error":{"symbol":"x"}}"#, ["x refused"]), (#"{"error":{"symbol":null},"q":[{"s":"a"}]}"#, ["a"]),
    (#"{"q":[{"s":"a"},{"s":7},{"t":1}]}"#, ["a", "7e1", "none"]), (#"{"q":null}"#, ["failure"]), ("3", ["failure"]),
  ])
  func aProcessFindsRefusalsAndValues(message: String, expected: [String]) throws {
    let transform = UnionParts.transform(
      .init(each: ".q | .[]", route: ".s | select(. != null)", refused: ".error.symbol"))
    let programs = try transform.programs.map { try $0.map { try JQProgram($0) } }
    let answer = JQWorker.answer(Array(message.utf8), programs)
    let found = answer.outputs.map { output in
      let key = output.key.map { String(decoding: $0.bytes.dropFirst(), as: UTF8.self) } ?? "none"
      return key + (output.key?.isTombstone == true ? " refused" : "")
    }
    #expect(found + (answer.failure == nil ? [] : ["failure"]) == expected)
  }
}
