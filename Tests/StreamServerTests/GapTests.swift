import StreamProtocol
import Events
import RSocket
import Reactive
import Testing

@testable import ReplayLog
@testable import StreamServer

/// The number of lost events in the first event after a gap, on request.
@Suite struct GapTests {
  private static let asked = #"{"gaps":true}"#

  /// Ids 1000 and so on, as many as `events`; the newest 4 are stored.
  private func add(_ harness: ServerHarness, _ events: Int, firstID: UInt64 = 1000) throws -> HandFedSource {
    var configuration = StreamConfiguration(name: "s", replay: 100, start: .always)
    configuration.limits = EventLog.Limits(events: 4, bytes: 8 << 20)
    let log = try #require(EventLog(name: "s", limits: configuration.limits, firstID: firstID))
    log.append(EventBatch((0..<events).map { [UInt8(truncatingIfNeeded: $0)] }))
    let source = HandFedSource()
    try harness.server.add(configuration, log: log, source: source)
    return source
  }

  /// The count after id and time; nil without one.
  private func gap(_ client: WireClient) throws -> UInt64? {
    let metadata = try client.payload().metadata
    #expect(metadata.count == 16 || metadata.count == 24)
    return metadata.count == 24 ? metadata[16...].reduce(0) { $0 << 8 | UInt64($1) } : nil
  }

  @Test func aLaggingSubscriberReceivesTheExactCountOnce() async throws {
    try await withServer { harness in
      let source = try add(harness, 1)
      let (asking, other) = (try WireClient.ready(harness.path), try WireClient.ready(harness.path))
      asking.subscribe("s", credit: 1, options: Self.asked)
      other.subscribe("s", credit: 1)
      for client in [asking, other] {
        #expect(try client.payload().metadata.count == 16)
        #expect(try client.isSilent())
      }
      source.send(batch: (1...10).map { [$0] })
      for client in [asking, other] { client.send(.requestN(StreamID(1), 2)) }
      #expect(try gap(asking) == 6)
      #expect(try gap(asking) == nil)
      #expect(try gap(other) == nil)
      #expect(try gap(other) == nil)
    }
  }

  @Test func aResumptionReportsMissingEventsOnly() async throws {
    try await withServer { harness in
      _ = try add(harness, 10)  // 1006 to 1009 are stored
      let client = try WireClient.ready(harness.path)
      let cases: [(from: Int, missing: UInt64?)] = [
        (1002, 3), (1004, 1), (1005, nil), (1008, nil), (999, 6), (998, .max),
      ]
      for (index, (from, missing)) in cases.enumerated() {
        client.subscribe("s", credit: 1, options: #"{"from":\#(from),"gaps":true}"#, id: UInt32(index * 2 + 1))
        #expect(try gap(client) == missing, "from \(from)")
      }
      client.subscribe("s", credit: 1, options: Self.asked, id: 101)  // a new subscription misses nothing
      #expect(try gap(client) == nil)
    }
  }

  @Test func unreportedGapsAccumulate() async throws {
    try await withServer { harness in
      let source = try add(harness, 10)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"from":1005,"gaps":true}"#)
      #expect(try gap(client) == nil)
      source.send(batch: (1...8).map { [$0] })  // 1010 to 1017, of which 1014 to 1017 are stored
      #expect(try client.isSilent())
      source.send(batch: (1...3).map { [$0] })
      client.send(.requestN(StreamID(1), 1))
      #expect(try gap(client) == 10)
    }
  }

  @Test func aGapAfterAPowerFailureIsUnknown() async throws {
    try await withServer { harness in
      let limits = EventLog.Limits(events: 16, bytes: 8 << 20)
      let old = try #require(EventLog(name: "s", limits: limits, firstID: 1000))
      old.append([[1], [2], [3]])
      let extent = old.layout.salvagedExtent(try old.layout.extent(), at: 5000)
      old.layout.write(extent)
      let log = EventLog(old.layout, extent, limits: limits, owner: old.owner)
      var configuration = StreamConfiguration(name: "s", replay: 100, start: .always)
      configuration.limits = limits
      let source = HandFedSource()
      try harness.server.add(configuration, log: log, source: source)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100, options: Self.asked)
      for _ in 0..<3 { #expect(try gap(client) == nil) }
      #expect(try client.isSilent())
      source.send([4], [5])
      #expect(try gap(client) == .max)
      #expect(try gap(client) == nil)
      client.subscribe("s", credit: 3, options: #"{"from":1001,"gaps":true}"#, id: 3)
      for expected in [nil, .max, nil] as [UInt64?] { #expect(try gap(client) == expected) }
      client.subscribe("s", credit: 3, options: #"{"from":1002,"gaps":true}"#, id: 5)
      for expected in [.max, nil] as [UInt64?] { #expect(try gap(client) == expected) }
    }
  }

  @Test func aFragmentedEventReportsTheGapInItsFirstFragment() async throws {
    try await withServer { harness in
      let source = try add(harness, 1)
      let client = try WireClient(harness.path, receiveBuffer: 4096)
      client.send(.setup(Setup()))
      client.subscribe("s", credit: 1, options: Self.asked)
      #expect(try gap(client) == nil)
      #expect(try client.isSilent())
      let large = (0..<300_000).map { UInt8(truncatingIfNeeded: $0) }
      source.send(batch: Array(repeating: large, count: 6))
      client.send(.requestN(StreamID(1), 2))
      let (metadata, data) = try client.payload()
      #expect(metadata.count == 24 && metadata[23] == 2 && data == large)
      #expect(try client.payload().metadata.count == 16)
    }
  }

  @Test func aGapIsHandedOver() async throws {
    let next = try ServerHarness()
    try await withServer { first in
      let source = try add(first, 1)
      let log = try #require(EventLog(name: "s", limits: .init(events: 4, bytes: 8 << 20), firstID: 1000))
      log.append(EventBatch((0...10).map { [$0] }))
      try next.server.add(
        StreamConfiguration(name: "s", limits: log.limits, start: .always), log: log, source: HandFedSource())
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 1, options: Self.asked)
      #expect(try gap(client) == nil)
      source.send(batch: (1...10).map { [$0] })
      #expect(try client.isSilent())
      try await first.handOver(to: next)
      client.send(.requestN(StreamID(1), 1))
      #expect(try gap(client) == 6)
    }
    await next.stop()
  }

  @Test(arguments: [#"{"gaps":1}"#, #"{"gaps":"yes"}"#]) func theOptionIsTrueOrFalse(options: String) throws {
    #expect(throws: SubscribeOptions.Malformed("option \"gaps\" must be true or false")) {
      try SubscribeOptions(json: Array(options.utf8))
    }
  }
}
