import Testing

@testable import StreamClient

@Suite struct SubscribeOptionsTests {
  @Test(arguments: [
    (SubscribeOptions(), ""),
    (SubscribeOptions(from: .latest), #"{"from":"latest"}"#),
    (SubscribeOptions(from: .new, onLag: .skip), #"{"from":"new","on_lag":"skip"}"#),
    (SubscribeOptions(from: .after(id: .max)), #"{"from":18446744073709551615}"#),
    (SubscribeOptions(from: .since("-5m"), onLag: .fail, ids: false), #"{"from":"-5m","on_lag":"fail","ids":false}"#),
    (SubscribeOptions(from: .since("a\"\\\n\u{1}é")), #"{"from":"a\"\\\u000a\u0001é"}"#),
  ]) func optionsAreJSONOfWhatIsNotTheDefault(options: SubscribeOptions, json: String) {
    #expect(String(decoding: options.json, as: UTF8.self) == json)
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
