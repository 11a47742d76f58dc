import Events
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Testing

@testable import StreamServer

/// The option `marker`: payloads without data that show that a subscription is current.
@Suite struct MarkerTests {
  private static let asked = #"{"from":"replay","marker":true}"#

  private func add(
    _ harness: ServerHarness, stored: EventBatch = [], expire: Bool = false
  ) throws -> HandFedSource {
    var configuration = StreamConfiguration(name: "s", replay: 100, start: .always)
    configuration.type = "application/json"
    let source = HandFedSource()
    var limits = configuration.limits
    if expire { limits.age = .microseconds(1) }
    let log = try #require(EventLog(name: "s", limits: limits, firstID: 1000))
    log.append(stored)
    while expire, log.firstPosition < log.endPosition { log.dropExpired() }
    try harness.server.add(configuration, log: log, source: source)
    return source
  }

  private func expect(_ client: WireClient, _ id: UInt64, isMarker: Bool, _ rest: [UInt8] = []) throws {
    let (metadata, data) = try client.payload()
    #expect(metadata.prefix(8).reduce(0) { $0 << 8 | UInt64($1) } == id)
    #expect(Array(metadata[16...]) == rest + [isMarker ? 1 : 0])
    #expect(data.isEmpty == isMarker)
  }

  @Test func markerFollowsTheReplayOnceAndCostsCredit() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Array("1".utf8), Array("2".utf8))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 2, options: Self.asked)
      try expect(client, 1000, isMarker: false)
      try expect(client, 1001, isMarker: false)
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 2))
      try expect(client, 1001, isMarker: true)
      source.send(Array("3".utf8), Array("4".utf8))
      try expect(client, 1002, isMarker: false)
      #expect(try client.isSilent())
    }
  }

  @Test func aMarkerThatCostsTheLastCreditLeavesNoRequest() async throws {
    try await withServer { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"marker":true}"#)
      #expect(try client.payload().data.isEmpty)
      harness.eventually { source.demand == .none }
      client.send(.requestN(StreamID(1), 1))
      harness.eventually { source.demand == .max(1) }
      source.send(Array("1".utf8))
      #expect(try client.payload().data == Array("1".utf8))
      harness.eventually { source.demand == .none }
    }
  }

  @Test func timeOfAMarkerIsThePresent() async throws {
    try await withServer { harness in
      _ = try add(harness)
      let client = try WireClient.ready(harness.path)
      let before = EventLoop.wallClock()
      client.subscribe("s", credit: 1, options: Self.asked)
      let time = try client.payload().metadata[8..<16].reduce(0) { $0 << 8 | UInt64($1) }
      #expect(before <= time && time <= EventLoop.wallClock())
    }
  }

  @Test func markerOfAnEmptyStreamHasTheIDBeforeTheFirst() async throws {
    try await withServer { harness in
      _ = try add(harness)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 5, options: Self.asked)
      try expect(client, 999, isMarker: true)
      client.subscribe("s", credit: 5, options: #"{"from":999,"marker":true}"#, id: 3)
      try expect(client, 999, isMarker: true)
    }
  }

  @Test func markersFollowWhileThereIsNothingElse() async throws {
    var limits = ServerLimits(workers: 1)
    limits.markerInterval = .milliseconds(50)
    try await withServer(limits) { harness in
      let source = try add(harness)
      let (client, other) = (try WireClient.ready(harness.path), try WireClient.ready(harness.path))
      client.subscribe("s", credit: 6, options: Self.asked)
      other.subscribe("s", credit: 6)
      for _ in 0..<3 { try expect(client, 999, isMarker: true) }
      source.send(Array("1".utf8))
      var payloads: [(metadata: [UInt8], data: [UInt8])] = []
      for _ in 0..<3 { payloads.append(try client.payload()) }
      #expect(payloads.count { $0.data.isEmpty } == 2)
      #expect(payloads.allSatisfy { ($0.metadata.last == 1) == $0.data.isEmpty })
      #expect(try client.isSilent())
      #expect(try other.event().id == 1000)
      #expect(try other.isSilent())
    }
  }

  @Test func endOfAStreamFollowsTheMarker() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Array("1".utf8))
      source.finish()
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 9, options: Self.asked)
      try expect(client, 1000, isMarker: false)
      try expect(client, 1000, isMarker: true)
      #expect(try client.receive() == .payload(StreamID(1), Payload(), follows: false, isComplete: true, isNext: false))
    }
  }

  @Test func markerCarriesWhatTheFilterLeftOut() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Array("1".utf8), Array("2".utf8), Array("3".utf8))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 9, options: #"{"where":{"":{"lt":2}},"marker":true}"#)
      try expect(client, 1000, isMarker: false, [0, 0, 0, 0, 0, 0, 0, 0])
      try expect(client, 1002, isMarker: true, [0, 0, 0, 0, 0, 0, 0, 2])
      source.send(Array("4".utf8), Array("0".utf8))
      try expect(client, 1004, isMarker: false, [0, 0, 0, 0, 0, 0, 0, 1])
    }
  }

  @Test func markerRequiresIDs() async throws {
    try await withServer { harness in
      _ = try add(harness)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 9, options: #"{"marker":true,"ids":false}"#)
      #expect(try client.receive() == .error(StreamID(1), .invalid, "option \"marker\" requires ids"))
    }
  }

  @Test func nextProcessSendsTheFirstMarkerIfItIsDue() async throws {
    try await withTwoServers { first, next in
      let source = try add(first)
      let later = try add(next, stored: [Array("1".utf8)])  // as if the log had been restored, too
      let (pending, current) = (try WireClient.ready(first.path), try WireClient.ready(first.path))
      source.send(Array("1".utf8))
      pending.subscribe("s", credit: 1, options: Self.asked)
      current.subscribe("s", credit: 9, options: Self.asked)
      try expect(pending, 1000, isMarker: false)
      try expect(current, 1000, isMarker: false)
      try expect(current, 1000, isMarker: true)
      try await first.handOver(to: next)
      pending.send(.requestN(StreamID(1), 1))
      try expect(pending, 1000, isMarker: true)
      #expect(try current.isSilent())
      later.send(Array("2".utf8))
      try expect(current, 1001, isMarker: false)
    }
  }

  @Test func eventStreamHasAnEventOfItsOwn() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Array("1".utf8))
      let client = try HTTPWireClient(harness)
      client.request("GET", "/streams/s?as=sse&follow=0&marker=1", [])
      let events = ParsedEvent.all(in: try client.response().text)
      #expect(events.map(\.type) == ["message", "caught-up", "end"])
      #expect(events[1].id == "1000" && events[1].data.hasPrefix(#"{"id":1000,"time":""#))
    }
  }

  @Test func gapPrecedesAMarkerOfAnEventStream() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Array("1".utf8))
      let client = try HTTPWireClient(harness)
      client.request("GET", "/streams/s?as=sse&follow=0&marker=1&lastEventID=5000", [])
      let events = ParsedEvent.all(in: try client.response().text)
      #expect(events.map(\.type) == ["gap", "caught-up", "end"])
      #expect(events[0].data == #"{"lost":null}"#)
    }
  }

  /// The log has lost its event, and continues with a later id: the client has all events before that.
  @Test func positionOfAMarkerIsNotBeforeTheResponse() async throws {
    try await withServer { harness in
      _ = try add(harness, stored: [Array("1".utf8)], expire: true)
      harness.server.streams["s"]?.begin(after: StreamEnd(position: 3000))
      let client = try HTTPWireClient(harness)
      client.request("GET", "/streams/s?as=sse&follow=0&marker=1&from=new", [])
      let response = try client.response()
      let events = ParsedEvent.all(in: response.text)
      #expect(response["Last-Event-ID"] == "2999")
      #expect(events.map(\.type) == ["caught-up", "end"])
      #expect(events[0].id == "2999" && events[0].data.hasPrefix(#"{"id":1000,"time":""#))
    }
  }

  @Test func lineOfAnEnvelopeSaysThatItIsCurrent() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Array("1".utf8))
      let client = try HTTPWireClient(harness)
      client.request("GET", "/streams/s?as=ndjson&ids=1&follow=0&marker=1", [])
      let lines = try client.response().text.split(separator: "\n")
      #expect(lines.count == 2)
      #expect(
        lines.last?.hasPrefix(#"{"id":1000,"time":""#) == true
          && lines.last?.hasSuffix(#"Z","caught_up":true}"#) == true)
    }
  }

  @Test(arguments: ["as=ndjson&marker=1", "as=raw&marker=1", "marker=1", "as=sse&marker=2"])
  func responseThatHasNoPlaceForAMarkerIsABadRequest(query: String) async throws {
    try await withServer { harness in
      _ = try add(harness)
      let client = try HTTPWireClient(harness)
      client.request("GET", "/streams/s?\(query)", [])
      #expect(try client.response().status == 400)
    }
  }
}
