import FoundationEssentials
import Testing

@testable import StreamProtocol

private let notAStart =
  #"option "from" must be a position such as "replay", an event id or a number of last events such as -10"#

@Suite struct SubscribeOptionsTests {
  @Test(arguments: [
    (SubscribeOptions(), #"{"gaps":true}"#),
    (SubscribeOptions(from: .latest), #"{"from":"latest","gaps":true}"#),
    (SubscribeOptions(from: .new, onLag: .skip), #"{"from":"new","on_lag":"skip","gaps":true}"#),
    (SubscribeOptions(from: .last(10)), #"{"from":-10,"gaps":true}"#),
    (SubscribeOptions(from: .after(id: .max)), #"{"from":18446744073709551615,"gaps":true}"#),
    (SubscribeOptions(from: .since("-5m"), onLag: .fail, ids: false), #"{"from":"-5m","on_lag":"fail","ids":false}"#),
    (SubscribeOptions(from: .since("a\"\\\n\u{1}é")), #"{"from":"a\"\\\n\u0001é","gaps":true}"#),
  ]) func optionsAreJSONWithoutDefaultValues(options: SubscribeOptions, json: String) {
    #expect(
      String(decoding: options.json, as: UTF8.self)
        == json.replacing(#","gaps":true"#, with: "").replacing(#"{"gaps":true}"#, with: ""))
    var asked = options
    asked.gaps = true
    #expect(String(decoding: asked.json, as: UTF8.self) == json)
  }

  @Test(arguments: [
    SubscribeOptions(), SubscribeOptions(from: .latest, onLag: .fail), SubscribeOptions(from: .new, ids: false),
    SubscribeOptions(from: .after(id: 0), onLag: .skip), SubscribeOptions(from: .after(id: .max), onLag: .latest),
    SubscribeOptions(from: .last(1)), SubscribeOptions(from: .last(.max)), SubscribeOptions(from: .since("-5m")),
    SubscribeOptions(from: .since("2026-02-03T04:05:06.789Z")),
  ]) func theServerReadsTheClientsOptions(options: SubscribeOptions) throws {
    var asked = options
    asked.gaps = options.ids
    asked.key = "a \"b\" é"
    #expect(try SubscribeOptions(json: asked.json) == asked)
    #expect(try SubscribeOptions(json: options.json) == options)
  }

  @Test func theServerReadsTheClientsOptionsOfMaps() throws {
    var map = SubscribeOptions(from: .after(id: 7), onLag: .latest)
    map.map = true
    #expect(map.json == Array(#"{"from":7,"on_lag":"latest","map":true}"#.utf8))
    #expect(try SubscribeOptions(json: map.json) == map)
    var demand = SubscribeOptions()
    (demand.map, demand.position) = (true, .max)
    #expect(try SubscribeOptions(json: demand.json) == demand)
    #expect(try SubscribeOptions(json: Array(#"{"map":false,"marker":true}"#.utf8)) == SubscribeOptions(marker: true))
  }
}

@Suite struct MalformedOptionsTests {
  @Test(arguments: [
    ("[]", "options must be a JSON object"), (#"{"ids":1}"#, #"option "ids" must be true or false"#),
    (#"{"ids":true,"ids":true}"#, #"option "ids" is given twice"#),
    (#"{"ids":true,"\u0069ds":false}"#, #"option "ids" is given twice"#),
    (#"{"where":{"/a":1},"where":{"/b":1}}"#, #"option "where" is given twice"#),
    (#"{"from":-1.5}"#, notAStart),
    (#"{"from":1.5}"#, notAStart),
    (#"{"a\"b":1}"#, #"unknown option "a\"b""#),
    (#"{"map":1}"#, #"option "map" must be true or false"#),
    (#"{"map":true,"gaps":true,"ids":true}"#, #"option "gaps" is not for maps"#),
    (#"{"map":true,"position":"1"}"#, #"option "position" must be a position of a map"#),
    (#"{"on_lag":"x"}"#, #"option "on_lag" must be "skip", "latest" or "fail""#),
  ]) func malformedOptionsAreRefusedInOneSentence(json: String, sentence: String) {
    #expect(throws: SubscribeOptions.Malformed(sentence)) { try SubscribeOptions(json: Array(json.utf8)) }
  }

  @Test func idIsANumberOfAnyNotation() throws {
    #expect(try SubscribeOptions(json: Array(#"{"from":1.5e3}"#.utf8)).from == .after(id: 1500))
    let large = #"{"from":100000000000000000}"#
    #expect(try SubscribeOptions(json: Array(large.utf8)).from == .after(id: 100_000_000_000_000_000))
  }

  @Test func idInTextHasDigitsOnly() throws {
    #expect(try SubscribeOptions.Start(text: "17") == .after(id: 17))
    #expect(throws: SubscribeOptions.Malformed.self) { try SubscribeOptions.Start(text: "+17") }
  }
}

@Suite struct StartTimeTests {
  @Test(arguments: [
    ("-500ms", StartTime.ago(500_000)), ("-10s", .ago(10_000_000)), ("-5m", .ago(300_000_000)),
    ("-1h", .ago(3_600_000_000)), ("-1d", .ago(86_400_000_000)), ("1970-01-01T00:00:01Z", .at(1_000_000)),
    ("1970-01-01T00:00:00.25Z", .at(250_000)), ("1960-01-01T00:00:00Z", .at(0)),
    ("1970-01-01 00:00:01Z", .at(1_000_000)), ("1970-01-01t00:00:01z", .at(1_000_000)),
    ("1970-01-01 01:00:01+01:00", .at(1_000_000)), ("1970-01-01 00:00:00.25z", .at(250_000)),
    ("1969-12-31T23:59:01-00:01", .at(1_000_000)), ("1970-01-01T00:00:00.1234569Z", .at(123_456)),
    ("2026-01-02T03:04:05.678901Z", .at(1_767_323_045_678_901)), ("2000-02-29T00:00:00Z", .at(951_782_400_000_000)),
    ("2024-12-31T23:59:59Z", .at(1_735_689_599_000_000)), ("2016-12-31T23:59:60Z", .at(1_483_228_800_000_000)),
    ("2100-03-01T00:00:00Z", .at(4_107_542_400_000_000)), ("9999-12-31T23:59:59Z", .at(253_402_300_799_000_000)),
    ("0000-01-01T00:00:00Z", .at(0)), ("1970-01-01T00:00:00Z", .at(0)),
  ]) func aTimeIsRFC3339OrADurationBeforeThePresent(text: String, time: StartTime) {
    #expect(StartTime(text) == time)
  }

  @Test(arguments: [
    "", "-", "-5", "5m", "--5m", "-5 m", "-99999999999999999999s", "-18446744073709551615d", "yesterday",
    "1970-01-01  00:00:01Z", "1970-01-01 00:00:01", "1970-01-01", "1970-01-01_00:00:01Z", " 1970-01-01T00:00:01Z",
    "2026-02-31T00:00:00Z", "2026-02-29T00:00:00Z", "2100-02-29T00:00:00Z", "2026-04-31T00:00:00Z",
    "2026-00-01T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-01-32T00:00:00Z",
    "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z", "2026-01-01T00:00:61Z", "99999-01-01T00:00:00Z",
    "2026-1-01T00:00:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00+0100",
    "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+01:60", "2026-01-01T00:00:00Zx", "+026-01-01T00:00:00Z",
  ])
  func otherTextIsNotATime(text: String) {
    #expect(StartTime(text) == nil)
  }
}

@Suite struct EventStampTests {
  @Test func metadataOf16Or24BytesIsAStamp() {
    let metadata: [UInt8] = [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 9]
    #expect(EventStamp(metadata).map { [$0.id, $0.time, $0.missedCount] } == [258, 9, 0])
    let withGap = metadata + [UInt8](repeating: 0xff, count: 8)
    #expect(EventStamp(withGap)?.missedCount == EventStamp.unknownCount)
  }

  @Test(arguments: [0, 1, 8, 15, 17, 23, 25, 32]) func metadataOfAnotherLengthIsNotAStamp(byteCount: Int) {
    #expect(EventStamp([UInt8](repeating: 1, count: byteCount)) == nil)
  }

  @Test func aConfirmationSurvivesARoundTrip() {
    for next in [nil, 1, UInt64.max] {
      let confirmation = PublishConfirmation(confirmed: 1 << 40 | 7, next: next)
      #expect(PublishConfirmation(confirmation.bytes) == confirmation)
    }
    for byteCount in [0, 7, 9, 15, 17] {
      #expect(PublishConfirmation([UInt8](repeating: 0, count: byteCount)) == nil)
    }
  }
}

@Suite struct StatisticsSnapshotTests {
  private static let json =
    #"{"by_stream":[{"bytes_in":1,"bytes_out":2,"errors":3,"events_in":4,"events_out":5,"lag":6,"name":"s","newest":7,"#
    + #""state":"idle","subscribers":8}],"bytes_in":9,"busy_microseconds":[10,11]}"#

  @Test func theServersObjectIsTheClientsObject() throws {
    let snapshot = try JSONDecoder().decode(StatisticsSnapshot.self, from: Data(Self.json.utf8))
    var stream = StatisticsSnapshot.Stream(name: "s")
    (stream.bytesIn, stream.bytesOut, stream.errors, stream.eventsIn, stream.eventsOut) = (1, 2, 3, 4, 5)
    (stream.lag, stream.newest, stream.state, stream.subscribers) = (6, 7, "idle", 8)
    #expect(snapshot.byStream == [stream] && snapshot.bytesIn == 9 && snapshot.busyMicroseconds == [10, 11])
    let encoded = try JSONEncoder().encode(snapshot)
    #expect(try JSONDecoder().decode(StatisticsSnapshot.self, from: encoded) == snapshot)
    #expect(!String(decoding: encoded, as: UTF8.self).contains("null"))
  }

  @Test func onlyTheNamesOfStreamsAreRequired() throws {
    #expect(try JSONDecoder().decode(StatisticsSnapshot.self, from: Data("{\"later\":1}".utf8)) == StatisticsSnapshot())
    #expect(throws: DecodingError.self) {
      try JSONDecoder().decode(StatisticsSnapshot.self, from: Data("{\"by_stream\":[{}]}".utf8))
    }
  }
}

@Suite struct CatalogueEntryTests {
  @Test func theFleetIsPartOfSharedStreamsOnly() throws {
    let encoder = JSONEncoder()
    encoder.outputFormatting = .sortedKeys
    #expect(String(decoding: try encoder.encode(CatalogueEntry(name: "s")), as: UTF8.self) == #"{"name":"s"}"#)
    let shared = CatalogueEntry(
      name: "s",
      fleet: .init(role: "follower", leader: "n2", term: 7, epoch: 1, lag: 3, staleSince: 1_700_000_000_000_000))
    let json =
      #"{"fleet":{"epoch":1,"lag":3,"leader":"n2","role":"follower","stale_since":1700000000000000,"term":7},"name":"s"}"#
    #expect(String(decoding: try encoder.encode(shared), as: UTF8.self) == json)
    #expect(try JSONDecoder().decode(CatalogueEntry.self, from: Data(json.utf8)) == shared)
    let later = try JSONDecoder().decode(CatalogueEntry.self, from: Data(#"{"name":"s","fleet":{"x":1}}"#.utf8))
    #expect(later.fleet == .init())
  }
}

@Suite struct ControlCommandTests {
  @Test(arguments: [
    ControlCommand.kick(client: 0), .kick(client: .max), .refresh(stream: "a"), .refresh(stream: "\"é\\\n"),
  ]) func theServerReadsTheClientsCommand(command: ControlCommand) throws {
    #expect(try ControlCommand(json: command.json) == command)
  }
}
