import Events
import RSocket
import Reactive
import Testing

@testable import ReplayLog
@testable import StreamServer

/// A stream after a power failure: only its ids have a hole.
@Suite struct HoleTests {
  /// Ids 1000 and so on, then a hole up to 5000 and more.
  private func log(_ limits: EventLog.Limits, before: EventBatch, after: EventBatch = []) throws -> EventLog {
    let old = try #require(EventLog(name: "s", limits: limits, firstID: 1000))
    old.append(before)
    let extent = old.layout.salvagedExtent(try old.layout.extent(), at: 5000)
    old.layout.write(extent)
    let log = EventLog(old.layout, extent, limits: limits, owner: old.owner)
    log.append(after)
    return log
  }

  private func add(
    _ harness: ServerHarness, before: EventBatch, after: EventBatch = [], start: ShareStart = .always,
    _ change: (inout StreamConfiguration) -> Void = { _ in }
  ) throws -> HandFedSource {
    var configuration = StreamConfiguration(name: "s", replay: 100, start: start)
    configuration.limits = EventLog.Limits(events: 16, bytes: 8 << 20)
    change(&configuration)
    let source = HandFedSource()
    try harness.server.add(
      configuration, log: log(configuration.limits, before: before, after: after), source: source)
    return source
  }

  @Test func aReplayCrossesTheHoleAndCountsEvents() async throws {
    try await withServer { harness in
      let source = try add(harness, before: [[1], [2], [3]], after: [[4], [5]]) { $0.replay = 4 }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100)
      var events = try (0..<4).map { _ in try client.event() }
      source.send([6])
      events.append(try client.event())
      #expect(events.map(\.data) == [[2], [3], [4], [5], [6]])
      let ids = events.map(\.id)
      #expect(ids[0] == 1001 && ids[1] == 1002 && ids[2] >= 5000 && ids[3] == ids[2] + 1 && ids[4] == ids[2] + 2)
      client.get("s", id: 3)
      #expect(try client.event().data == [6])
    }
  }

  @Test func creditThatEndsBeforeAtOrAfterTheHoleIsUsed() async throws {
    try await withServer { harness in
      _ = try add(harness, before: [[1], [2], [3]], after: [[4], [5]])
      for credit in 1...5 as ClosedRange<UInt8> {
        let client = try WireClient.ready(harness.path)
        client.subscribe("s", credit: UInt32(credit))
        #expect(try client.events(Int(credit)) == (1...credit).map { [$0] })
        #expect(try client.isSilent())
        client.send(.requestN(StreamID(1), 10))
        #expect(try client.events(5 - Int(credit)) == (credit...5).dropFirst().map { [$0] })
        #expect(try client.isSilent())
      }
    }
  }

  @Test func aSubscriptionResumesFromAnIdBeforeOrInTheHole() async throws {
    try await withServer { harness in
      _ = try add(harness, before: [[1], [2], [3]], after: [[4], [5]])
      let client = try WireClient.ready(harness.path)
      for (id, from, first) in [(1, 1001, 3), (3, 1002, 4), (5, 1003, 4), (7, 4000, 4)] as [(UInt32, Int, UInt8)] {
        client.subscribe("s", credit: 1, options: #"{"from": \#(from)}"#, id: id)
        #expect(try client.event().data == [first])
      }
    }
  }

  @Test func theHoleIsAGapAndNothingThatAFilterHasLeftOut() async throws {
    try await withServer { harness in
      func event(_ number: Int) -> [UInt8] { Array("{\"n\":\(number)}".utf8) }
      _ = try add(harness, before: EventBatch((1...3).map(event)), after: [event(9)]) { $0.type = "application/json" }
      let client = try WireClient.ready(harness.path)
      for index in 0..<20 {
        client.subscribe("s", credit: 1, options: #"{"gaps":true,"where":{"/n":9}}"#, id: UInt32(2 * index + 1))
      }
      for _ in 0..<20 {
        let metadata = try client.payload().metadata
        let numbers = stride(from: 16, to: metadata.count, by: 8).map { start in
          metadata[start..<start + 8].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        }
        #expect(numbers == [3, .max], "events left out, and the gap")
      }
    }
  }

  @Test func demandPastTheHoleIsRequestedFromTheSource() async throws {
    try await withServer { harness in
      let source = try add(harness, before: [[1], [2]], start: .whileSubscribed(linger: .zero))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 3)
      #expect(try client.events(2) == [[1], [2]])
      harness.eventually { source.demand > .none }
      source.send([3])
      #expect(try client.event().data == [3])
      #expect(try client.isSilent())
      #expect(source.demand == .none)
    }
  }

  @Test func aLargeEventBeforeTheHoleArrivesInPieces() async throws {
    try await withServer { harness in
      let large = [UInt8](repeating: 7, count: 1 << 20)
      _ = try add(harness, before: [[1], large], after: [[2]])
      let client = try WireClient(harness.path, receiveBuffer: 4096)
      client.send(.setup(Setup()))
      client.subscribe("s", credit: 100)
      #expect(try client.events(3) == [[1], large, [2]])
    }
  }

  @Test func lostEventsAreCountedWithoutTheHole() async throws {
    try await withServer { harness in
      let source = try add(harness, before: [[1], [2], [3]], after: [[4]])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"on_lag": "fail"}"#)
      #expect(try client.event().data == [1])
      #expect(try client.isSilent())
      source.send(batch: (5...24).map { [$0] })
      client.send(.requestN(StreamID(1), 1))
      guard case .error(StreamID(1), let code, let text)? = try client.receive() else { throw WireClient.Silence() }
      #expect(code == .lagged && text == "lagged: 7 events lost")
    }
  }

  @Test func aLosslessStreamContinuesAcrossTheHole() async throws {
    try await withServer { harness in
      let source = try add(harness, before: [[1], [2]]) { $0.overflow = .block(timeout: nil) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 2)
      #expect(try client.events(2) == [[1], [2]])
      #expect(try client.isSilent())
      source.send(batch: (3...30).map { [$0] })
      client.send(.requestN(StreamID(1), 100))
      #expect(try client.events(28) == (3...30).map { [$0] })
      harness.eventually { source.demand > .none }
    }
  }

  @Test func theCatalogueAndTheStatisticsExcludeTheHole() async throws {
    try await withServer { harness in
      let source = try add(harness, before: [[1], [2], [3]])
      let client = try WireClient.ready(harness.path)
      client.get("$streams")
      #expect(String(decoding: try client.event().data, as: UTF8.self).contains(#""last_id":1002,"#))
      client.subscribe("s", credit: 1, id: 3)
      #expect(try client.event().data == [1])
      source.send([4], [5])
      client.subscribe("$stats", credit: 100, id: 5)
      harness.eventually { harness.server.statistics.byStream.first?.lag == 4 }
      #expect(harness.server.statistics.eventsIn == 2)
    }
  }

  @Test func theCatalogueSaysThatAStreamIsNotOnDisk() async throws {
    try await withServer { harness in
      _ = try add(harness, before: [])
      func catalogue() throws -> String {
        let client = try WireClient.ready(harness.path)
        client.get("$streams")
        return String(decoding: try client.event().data, as: UTF8.self)
      }
      #expect(!(try catalogue().contains("on_disk")))
      harness.server.setStorage(.disk, of: "s")
      #expect(try catalogue().contains(#""on_disk":true"#))
      harness.server.setStorage(.notOnDisk(reason: "it is full"), of: "s")
      let text = try catalogue()
      #expect(text.contains(#""message":"not on disk: it is full""#) && text.contains(#""on_disk":false"#))
    }
  }

  @Test func subscribersAtAHoleReceiveTheNextEventOfALargerLog() async throws {
    try await withServer { harness in
      let source = try add(harness, before: [[1], [2], [3]], start: .whileSubscribed(linger: .zero))
      let (waiting, resting) = (try WireClient.ready(harness.path), try WireClient.ready(harness.path))
      waiting.subscribe("s", credit: 5)
      resting.subscribe("s", credit: 3)
      for client in [waiting, resting] {
        #expect(try client.events(3) == [[1], [2], [3]])
        #expect(try client.isSilent())
      }
      var larger = StreamConfiguration(name: "s", replay: 100, start: .whileSubscribed(linger: .zero))
      larger.limits = EventLog.Limits(events: 60_000, bytes: 8 << 20)
      let change = StreamChange(larger) { [larger] old in
        let log = try #require(EventLog(name: "s", limits: larger.limits, takingOver: old))
        #expect(log.endPosition == old.endPosition)
        return log
      }
      #expect(harness.server.change([change], removing: []).isEmpty)
      #expect(try waiting.isSilent() && resting.isSilent())
      harness.eventually { source.demand > .none }
      source.send([4])
      source.send([5])
      resting.send(.requestN(StreamID(1), 1))
      #expect(try waiting.events(2) == [[4], [5]])
      #expect(try resting.events(1) == [[4]])
      #expect(harness.server.statistics.laggedEvents == 0)
    }
  }

  @Test func aLosslessStreamWaitsForASubscriberAtAHoleOfALargerLog() async throws {
    try await withServer { harness in
      let source = try add(harness, before: [[1], [2], [3]]) { $0.overflow = .block(timeout: nil) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 3)
      #expect(try client.events(3) == [[1], [2], [3]])
      var larger = StreamConfiguration(name: "s", replay: 100, start: .always, overflow: .block(timeout: nil))
      larger.limits = EventLog.Limits(events: 60_000, bytes: 8 << 20)
      let change = StreamChange(larger) { [larger] in
        try #require(EventLog(name: "s", limits: larger.limits, takingOver: $0))
      }
      #expect(harness.server.change([change], removing: []).isEmpty)
      source.send(batch: (0..<70_000).map { [UInt8(truncatingIfNeeded: $0)] })
      #expect(source.demand == .none)
      client.send(.requestN(StreamID(1), 70_000))
      #expect(try client.events(70_000) == (0..<70_000).map { [UInt8(truncatingIfNeeded: $0)] })
      harness.eventually { source.demand > .none }
    }
  }
}
