import StreamProtocol
import Testing

@testable import StreamServer

@Suite struct EventMatcherTests {
  private static func fits(_ filter: String, _ event: String) throws -> Bool {
    var matcher = EventMatcher(try EventFilter(json: Array(filter.utf8)))
    return matcher.fits(Array(event.utf8).span)
  }

  @Test(arguments: [
    (#"{"/a":"x"}"#, #"{"a":"x"}"#, true), (#"{"/a":"x"}"#, #"{"a":"\u0078"}"#, true),
    (#"{"/a":"\\n"}"#, #"{"a":"\n"}"#, false), (#"{"/a":"\\n"}"#, #"{"a":"\\n"}"#, true),
    (#"{"/a":""}"#, #"{"a":""}"#, true), (#"{"/a":""}"#, #"{"a":"x"}"#, false),
    (#"{"/a":null}"#, #"{"a":true}"#, false),
    (#"{"/a":"x"}"#, #"{"a":"y"}"#, false), (#"{"/a":"x"}"#, #"{"a":["x"]}"#, false),
    (#"{"/a":1}"#, #"{"a":1.0}"#, true), (#"{"/a":1}"#, #"{"a":"1"}"#, false), (#"{"/a":-0}"#, #"{"a":0.0}"#, true),
    (#"{"/a":{"in":[100,"b",null]}}"#, #"{"a":1e2}"#, true), (#"{"/a":{"in":[100,"b",null]}}"#, #"{"a":null}"#, true),
    (#"{"/a":{"in":[100,"b",null]}}"#, #"{"a":true}"#, false), (#"{"/a":{"in":[]}}"#, #"{"a":1}"#, false),
    (#"{"/a":true}"#, #"{"a":true}"#, true), (#"{"/a":true}"#, #"{"a":"true"}"#, false),
    (#"{"/a":{"prefix":"é"}}"#, #"{"a":"\u00e9t"}"#, true), (#"{"/a":{"prefix":"ét"}}"#, #"{"a":"\u00e9"}"#, false),
    (#"{"/a":{"prefix":""}}"#, #"{"a":""}"#, true), (#"{"/a":{"prefix":"𝄞"}}"#, #"{"a":"\ud834\udd1e x"}"#, true),
    (#"{"/a":{"prefix":"a"}}"#, #"{"a":"\ud834"}"#, false), (#"{"/a":{"prefix":"ab"}}"#, #"{"a":"a\\"}"#, false),
    (#"{"/a":{"gt":9007199254740992}}"#, #"{"a":9007199254740993}"#, true),
    (#"{"/a":{"lt":1e400}}"#, #"{"a":1e399}"#, true), (#"{"/a":{"ge":0.1,"le":0.1}}"#, #"{"a":10e-2}"#, true),
  ]) func valuesAreCompared(filter: String, event: String, isFit: Bool) throws {
    #expect(try Self.fits(filter, event) == isFit)
  }

  @Test func numbersAreComparedExactlyWhateverTheirLength() throws {
    let digits = String(repeating: "7", count: 60)
    #expect(try Self.fits(#"{"/a":\#(digits)1}"#, #"{"a":\#(digits)1}"#))
    #expect(try !Self.fits(#"{"/a":\#(digits)1}"#, #"{"a":\#(digits)2}"#))
    #expect(try Self.fits(#"{"/a":{"lt":\#(digits)2}}"#, #"{"a":\#(digits)1}"#))
  }

  @Test func numberBeyondTheLimitFitsNoConditionOnNumbers() throws {
    let limit = EventFilter.Number.characterLimit
    let (longest, longer) = (String(repeating: "1", count: limit), String(repeating: "1", count: limit + 1))
    for filter in [#"{"/a":{"gt":1}}"#, #"{"/a":\#(longest)}"#] {
      #expect(try Self.fits(filter, #"{"a":\#(longest)}"#))
      #expect(try !Self.fits(filter, #"{"a":\#(longer)}"#))
    }
    #expect(try Self.fits(#"{"/a":{"exists":true}}"#, #"{"a":\#(longer)}"#))
  }

  /// The part of the examination that is not sliced: it may not grow with the event.
  @Test func longStringIsComparedNoFurtherThanTheFilterReaches() throws {
    let long = String(repeating: #"\u0061"#, count: 1 << 20)
    #expect(try Self.fits(#"{"/a":{"prefix":"aaa"}}"#, #"{"a":"\#(long)"}"#))
    #expect(try !Self.fits(#"{"/a":"aaa"}"#, #"{"a":"\#(long)"}"#))
    #expect(try Self.fits(#"{"/a":"aaa"}"#, #"{"a":"\u0061\u0061\u0061"}"#))
  }

  @Test func halvesOfSurrogatePairsEqualNoText() throws {
    #expect(try !Self.fits("{\"/a\":\"\u{fffd}\"}", #"{"a":"\ud800"}"#))
    #expect(try Self.fits("{\"/a\":\"\u{fffd}\"}", #"{"a":"\ufffd"}"#))
    #expect(try !Self.fits("{\"/a\":{\"prefix\":\"\u{fffd}\"}}", #"{"a":"\udc00"}"#))
  }
}
