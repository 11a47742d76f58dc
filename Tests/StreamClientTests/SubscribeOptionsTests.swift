import Testing

@testable import StreamClient

@Suite struct SubscribeOptionsTests {
  @Test(arguments: [
    (SubscribeOptions(), #"{"gaps":true}"#),
    (SubscribeOptions(from: .latest), #"{"from":"latest","gaps":true}"#),
    (SubscribeOptions(from: .new, onLag: .skip), #"{"from":"new","on_lag":"skip","gaps":true}"#),
    (SubscribeOptions(from: .after(id: .max)), #"{"from":18446744073709551615,"gaps":true}"#),
    (SubscribeOptions(from: .since("-5m"), onLag: .fail, ids: false), #"{"from":"-5m","on_lag":"fail","ids":false}"#),
    (SubscribeOptions(from: .since("a\"\\\n\u{1}é")), #"{"from":"a\"\\\u000a\u0001é","gaps":true}"#),
  ]) func optionsAreJSONOfWhatIsNotTheDefault(options: SubscribeOptions, json: String) {
    #expect(String(decoding: options.json(gaps: true), as: UTF8.self) == json)
    let plain = json == #"{"gaps":true}"# ? "" : json.replacing(#","gaps":true"#, with: "")
    #expect(String(decoding: options.json(gaps: false), as: UTF8.self) == plain)
  }
}

@Suite struct RemoteDemandTests {
  @Test func finiteDemandStaysBelowTheNumberThatMeansUnlimited() {  // SEMANTICS 15
    var demand = RemoteDemand()
    demand.add(.max(Int.max))
    #expect(demand.takeGrant() == 0x7fff_fffe)
    #expect(demand.takeGrant() == 0)
    demand.spend()
    demand.spend()
    #expect(demand.takeGrant() == 2)
  }

  @Test func unlimitedIsSaidOnceAndStays() {
    var demand = RemoteDemand()
    demand.add(.max(3))
    #expect(demand.takeGrant() == 3)
    demand.add(.unlimited)
    #expect(demand.takeGrant() == 0x7fff_ffff)
    demand.spend()
    demand.add(.max(1))
    demand.add(.unlimited)
    #expect(demand.takeGrant() == 0)
  }
}
