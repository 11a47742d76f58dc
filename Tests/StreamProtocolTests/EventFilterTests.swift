import StreamProtocol
import Testing

@Suite struct EventFilterTests {
  private static func filter(_ json: String) throws -> EventFilter { try EventFilter(json: Array(json.utf8)) }

  @Test(arguments: [
    #"{"/symbol":"AAPL"}"#, #"{"/a":1.5,"/b":null,"/c":true}"#, #"{"/a":{"ge":1,"lt":2}}"#, #"{"":{"exists":true}}"#,
    #"{"/a":{"in":["x",1,null,false]},"/b":{"prefix":"é\"\\"}}"#,
    #"{"/a~0b~1c/0":{"gt":-123456789012345678901234567890}}"#,
  ]) func filterIsReadAndWritten(json: String) throws {
    let filter = try Self.filter(json)
    #expect(String(decoding: filter.json, as: UTF8.self) == json)
    var options = SubscribeOptions(filter: filter, marker: true)
    options.gaps = true
    #expect(try SubscribeOptions(json: options.json) == options)
  }

  @Test func orderDoesNotMatter() throws {
    let one = try Self.filter(#"{"/b":{"lt":2,"ge":1},"/a":"x"}"#)
    #expect(try one == Self.filter(#" {"/a" : "x", "/b":{"ge":1.0,"lt":2}}"#))
    #expect(try one == EventFilter(.init("/b", .atLeast(1)), .init("/a", .equals("x")), .init("/b", .lessThan(2))))
    #expect(try one != Self.filter(#"{"/b":{"lt":2,"gt":1},"/a":"x"}"#))
  }

  @Test func equalLookingStringsOfOtherCodePointsAreOtherFilters() throws {
    #expect(try Self.filter("{\"/a\":\"\u{e9}\"}") != Self.filter("{\"/a\":\"e\u{301}\"}"))
  }

  @Test func severalTestsOfOneValueAreOneMember() throws {
    let filter = try EventFilter(.init("/a", .equals(1)), .init("/a", .exists(true)))
    #expect(String(decoding: filter.json, as: UTF8.self) == #"{"/a":{"exists":true,"in":[1]}}"#)
  }

  @Test(arguments: [
    "{}", "[]", #""x""#, "{", #"{"a":1}"#, #"{"/~2":1}"#, #"{"/a":[1]}"#, #"{"/a":{}}"#, #"{"/a":{"eq":1}}"#,
    #"{"/a":{"gt":"1"}}"#, #"{"/a":{"in":1}}"#, #"{"/a":{"in":[[1]]}}"#, #"{"/a":{"prefix":1}}"#,
    #"{"/a":{"exists":1}}"#,
    #"{"/a":{"gt":1e999}}"#, #"{"/a":1e999}"#, #"{"/a":{"in":[{"b":1}]}}"#,
    "{" + (0..<17).map { #""/\#($0)":1"# }.joined(separator: ",") + "}",
    #"{"/a":""# + String(repeating: "x", count: 4096) + #""}"#,
    #"{"/a":"# + String(repeating: "[", count: 2000) + String(repeating: "]", count: 2000) + "}",
  ]) func filterThatIsNoneIsRefusedInOneSentence(json: String) throws {
    let error = #expect(throws: SubscribeOptions.Malformed.self) { try Self.filter(json) }
    #expect(error?.sentence.contains("where") == true && error?.sentence.contains("\n") == false)
    #expect(throws: SubscribeOptions.Malformed.self) { try SubscribeOptions(json: Array(#"{"where":\#(json)}"#.utf8)) }
  }

  @Test func twoTestsOfOneKindAreRefused() {
    #expect(throws: SubscribeOptions.Malformed.self) {
      try EventFilter(.init("/a", .atLeast(1)), .init("/a", .atLeast(2)))
    }
  }

  @Test func markerRequiresIDs() {
    #expect(throws: SubscribeOptions.Malformed("option \"marker\" requires ids")) {
      try SubscribeOptions(json: Array(#"{"marker":true,"ids":false}"#.utf8))
    }
  }
}
