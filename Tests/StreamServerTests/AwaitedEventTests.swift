import Events
import Glibc
import RSocket
import ReplayLog
import Testing

@testable import StreamServer

/// A client that comes from another host of a fleet, where it has read events that this host does not have yet.
@Suite struct AwaitedEventTests {
  private static let limits = EventLog.Limits(events: 64, bytes: 64 << 10)

  private static var configuration: StreamConfiguration {
    var configuration = StreamConfiguration(name: "s", type: "text/plain", replay: 100, limits: limits)
    configuration.isOfFleet = true
    return configuration
  }

  private static func add(_ harness: ServerHarness, _ log: EventLog) throws {
    try harness.server.add(configuration, log: log, source: HandFedSource())
    try append(1000...1001, to: harness)
  }

  private static func newLog() throws -> EventLog {
    try #require(EventLog(name: "s", limits: limits, followsFleet: true))
  }

  /// Events whose text is the end of their id.
  private static func append(_ ids: ClosedRange<UInt64>, to harness: ServerHarness) throws {
    var batch = EventBatch(ids.map { Array("{\"n\":\($0 - 1000)}".utf8) })
    #expect(batch.setStamps(try #require(EventStamps(firstID: ids.lowerBound, time: 7, position: [1]))))
    #expect(harness.server.append(batch, to: "s"))
  }

  private static func limits(waiting time: Duration) -> ServerLimits {
    var limits = ServerLimits(workers: 1)
    limits.resumeWait = time
    return limits
  }

  /// The sentence of an INVALID; nil for any other frame.
  private static func refusal(_ client: WireClient) throws -> String? {
    guard case .error(_, .invalid, let sentence)? = try client.receive() else { return nil }
    return sentence
  }

  @Test(arguments: ["", #", "where": {"/n": {"gt": 0}}"#, #", "marker": true"#])
  func nothingIsMissedOrRepeatedOnceItIsThere(option: String) async throws {
    try await withServer { harness in
      try Self.add(harness, try Self.newLog())
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 9, options: #"{"from": 1004, "gaps": true\#(option)}"#)
      #expect(try client.isSilent())
      try Self.append(1002...1003, to: harness)
      #expect(try client.isSilent())
      try Self.append(1004...1005, to: harness)
      try Self.append(1006...1006, to: harness)
      var payloads: [(metadata: [UInt8], data: [UInt8])] = []
      while payloads.count < 2 {
        let payload = try client.payload()
        // The subscription is current between the two batches, if they are apart far enough.
        if !option.contains("marker") || !payload.data.isEmpty { payloads.append(payload) }
      }
      #expect(payloads.map(\.data) == [5, 6].map { Array("{\"n\":\($0)}".utf8) })
      // Id and time, and no gap; with a filter the number of those that it left out.
      let more = option.contains("where") ? 8 : option.contains("marker") ? 1 : 0
      #expect(payloads.allSatisfy { $0.metadata.count == 16 + more && $0.metadata[16...].allSatisfy { $0 == 0 } })
    }
  }

  @Test func othersWithTheSameFilterAreNotHeldUp() async throws {
    try await withServer { harness in
      try Self.add(harness, try Self.newLog())
      let clients = try (0..<4).map { _ in try WireClient.ready(harness.path) }
      for (index, client) in clients.enumerated() {
        client.subscribe("s", credit: 9, options: #"{"from": \#(1001 + index), "where": {"/n": {"in": [3, 5]}}}"#)
        #expect(try client.isSilent())
      }
      for id in 1002...1005 as ClosedRange<UInt64> { try Self.append(id...id, to: harness) }
      let expected: [[UInt64]] = [[1003, 1005], [1003, 1005], [1005], [1005]]
      for (client, ids) in zip(clients, expected) {
        #expect(try ids.map { _ in try client.event().id } == ids)
        #expect(try client.isSilent())
      }
    }
  }

  @Test(arguments: [false, true])
  func aSubscriptionEndsIfItDoesNotCome(hasFilter: Bool) async throws {
    try await withServer(Self.limits(waiting: .zero)) { harness in
      try Self.add(harness, try Self.newLog())
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"from": 1004\#(hasFilter ? #", "where": {"/n": 1}"# : "")}"#)
      let sentence = try Self.refusal(client) ?? ""
      #expect(sentence.hasPrefix("no event has the id 1004 yet: this host was given 0 ms"))
    }
  }

  @Test func anIDThatNoHostCanHaveIsRefusedAtOnce() async throws {
    try await withServer { harness in
      try Self.add(harness, try Self.newLog())
      let client = try WireClient.ready(harness.path)
      for (index, id) in [EventLog.stampedIDLimit + 1, .max].enumerated() {
        client.subscribe("s", credit: 1, options: #"{"from": \#(id)}"#, id: UInt32(1 + 2 * index))
        #expect(try Self.refusal(client) == "no event has the id \(id) yet")
      }
    }
  }

  @Test func aStreamOfThisHostAloneDoesNotWait() async throws {
    try await withServer { harness in
      let source = try harness.add("own")
      source.send([1])
      let client = try WireClient.ready(harness.path)
      client.subscribe("own", credit: 1, options: #"{"from": 9999999999999999}"#)
      #expect(try Self.refusal(client) == "no event has the id 9999999999999999 yet")
    }
  }

  @Test func itIsAwaitedOverARestart() async throws {
    let next = try ServerHarness(restores: true)
    try await withServer { first in
      let log = try Self.newLog()
      try Self.add(first, log)
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 9, options: #"{"from": 1003, "gaps": true}"#)
      #expect(try client.isSilent())
      let saved = try await first.handOver()
      let left = try LogRemains(memory: dup(log.descriptor))
      try next.server.add(Self.configuration, log: left.log(limits: Self.limits), source: HandFedSource())
      await next.restore(saved)
      try Self.append(1002...1004, to: next)
      let payload = try client.payload()
      #expect(payload.data == Array("{\"n\":4}".utf8) && payload.metadata.count == 16)
    }
    await next.stop()
  }

  @Test func anEventStreamContinuesWithoutAGap() async throws {
    try await withServer { harness in
      try Self.add(harness, try Self.newLog())
      let client = try HTTPWireClient(harness)
      client.get("/streams/s?as=sse", "Last-Event-ID: 1003")
      #expect(try client.head()?["Content-Type"] == "text/event-stream")
      #expect(try client.chunkText() == "retry: 2000\n\n")
      try Self.append(1002...1004, to: harness)
      let event = try #require(ParsedEvent.all(in: client.chunkText() ?? "").first)
      #expect(event.id == "1004" && event.type == "message")
    }
  }

  @Test func anEventStreamGoesOnAfterAGapIfItDoesNotCome() async throws {
    try await withServer(Self.limits(waiting: .zero)) { harness in
      try Self.add(harness, try Self.newLog())
      let client = try HTTPWireClient(harness)
      client.get("/streams/s?as=sse", "Last-Event-ID: 2003")
      _ = try client.head()
      #expect(try client.chunkText() == "retry: 2000\n\n")
      let late = try WireClient.ready(harness.path)
      late.subscribe("s", credit: 1, options: #"{"from": 2003}"#)
      _ = try late.receive()  // its time is over, too
      try Self.append(1002...1002, to: harness)
      let events = try (0..<2).flatMap { _ in ParsedEvent.all(in: try client.chunkText() ?? "") }
      #expect(events.map { $0.type + $0.data } == [#"gap{"lost":null}"#, #"message{"n":2}"#])
    }
  }
}
