import StreamProtocol
import Testing

@Suite struct EventFilterTests {
  private static func filter(_ json: String) throws -> EventFilter { try EventFilter(json: Array(json.utf8)) }

  @Test(arguments: [
    #"{"/symbol":"AAPL"}"#, #"{"/a":1.5,"/b":null,"/c":true}"#, #"{"/a":{"ge":1,"lt":2}}"#, #"{"":{"exists":true}}"#,
    #"{"/a":{"in":["x",1,null,false]},"/b":{"prefix":"é\"\\"}}"#,
    #"{"/a~0b~1c/0":{"gt":-123456789012345678901234567890}}"#, #"{"/a":1e999}"#, #"{"/a":123456789.000000001}"#,
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

  @Test func canonicallyEquivalentPointersAreTwoConditions() throws {
    #expect(try Self.filter("{\"/\u{e9}\":1,\"/e\u{301}\":1}").conditions.count == 2)
  }

  @Test(arguments: [
    ("0", "-0.0e5"), ("1", "1.000"), ("100", "1e2"), ("0.001", "1e-3"), ("1e999", "10E+998"), ("1.5e-7", "0.00000015"),
    ("-12.5", "-0.0125E3"), ("123456789012345678901234567890.5", "123456789012345678901234567890.50"),
  ]) func numberHasOneTextForAllOfItsValue(number: String, other: String) throws {
    #expect(EventFilter.Number(number)?.description == number)
    #expect(EventFilter.Number(other) == EventFilter.Number(number))
  }

  @Test(arguments: ["", "1 ", " 1", "+1", "01", ".5", "1.", "0x1", "inf", "nan", "true", "1e10000000000", "٣"])
  func textThatIsNoNumberIsNil(text: String) {
    #expect(EventFilter.Number(text) == nil)
  }

  @Test func literalsAndBinaryNumbersAreTheDecimalNumbersThatTheyPrintAs() {
    #expect(0.1 as EventFilter.Number == EventFilter.Number("0.1"))
    #expect(1e23 as EventFilter.Number == EventFilter.Number("1e23"))
    for value in [9_000_000_000_000_000_000, 1_000_000_000_000_000_000, -10, 0] {
      #expect(EventFilter.Number(value) == EventFilter.Number("\(value)"))
    }
    #expect(EventFilter.Number(1 << 60) == EventFilter.Number("1152921504606846976"))
    #expect(EventFilter.Number(Double.nan) == nil && EventFilter.Number(-Double.infinity) == nil)
  }

  @Test func severalTestsOfOneValueAreOneMember() throws {
    let filter = try EventFilter(.init("/a", .equals(1)), .init("/a", .exists(true)))
    #expect(String(decoding: filter.json, as: UTF8.self) == #"{"/a":{"exists":true,"in":[1]}}"#)
  }

  @Test(arguments: [
    "{}", "[]", #""x""#, "{", #"{"a":1}"#, #"{"/~2":1}"#, #"{"/a":[1]}"#, #"{"/a":{}}"#, #"{"/a":{"eq":1}}"#,
    #"{"/a":{"gt":"1"}}"#, #"{"/a":{"in":1}}"#, #"{"/a":{"in":[[1]]}}"#, #"{"/a":{"prefix":1}}"#,
    #"{"/a":{"exists":1}}"#,
    #"{"/a":{"gt":1e9999999999}}"#, #"{"/a":1e-9999999999}"#, #"{"/a":{"in":[{"b":1}]}}"#, #"{"/a":"\ud800"}"#,
    #"{"/\udc00":1}"#, #"{"/a":1,"/a":2}"#, #"{"/é":1,"/\u00e9":2}"#, #"{"/a":{"gt":1},"/a":{"lt":2}}"#,
    #"{"/a":{"gt":1,"gt":2}}"#, #"{"/a":{"gt":1,"\u0067t":1}}"#, #"{"/a":"# + String(repeating: "1", count: 1025) + "}",
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
