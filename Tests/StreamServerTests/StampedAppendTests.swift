import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import Testing

@testable import StreamServer

/// Batches that come from a fleet, with their ids and times, beside a stream's source.
@Suite struct StampedAppendTests {
  private static let limits = EventLog.Limits(events: 16, bytes: 64 << 10)

  private func batch(_ first: UInt64, _ events: [[UInt8]], position: [UInt8]? = nil) throws -> EventBatch {
    var batch = EventBatch(events)
    #expect(batch.setStamps(try #require(EventStamps(firstID: first, time: 7, position: position))))
    return batch
  }

  private func configuration(_ start: ShareStart = .whileSubscribed(linger: .zero)) -> StreamConfiguration {
    var configuration = StreamConfiguration(name: "s", replay: 100, start: start)
    configuration.limits = Self.limits
    return configuration
  }

  /// A stream that follows a fleet, and its source.
  private func add(_ harness: ServerHarness, _ configuration: StreamConfiguration? = nil) throws -> HandFedSource {
    let source = HandFedSource()
    let log = try #require(EventLog(name: "s", limits: Self.limits, followsFleet: true))
    try harness.server.add(configuration ?? self.configuration(), log: log, source: source)
    return source
  }

  /// The count after id and time; nil without one.
  private func gap(_ metadata: [UInt8]) -> UInt64? {
    metadata.count == 24 ? metadata[16...].reduce(0) { $0 << 8 | UInt64($1) } : nil
  }

  @Test func eventsAreAppendedWhateverTheSubscriptionsAndTheSource() async throws {
    try await withServer { harness in
      let server = harness.server
      let source = try add(harness)
      #expect(server.append(try batch(1000, [[1], [2]], position: [1]), to: "s"))
      #expect(source.subscriptions == 0 && server.fleetPosition(of: "s") == [1])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 3)
      var events = try (0..<2).map { _ in try client.event() }
      harness.eventually { source.demand > .none }
      #expect(server.append(try batch(1002, [[3], [4]]), to: "s"))
      events.append(try client.event())
      #expect(events.map(\.id) == [1000, 1001, 1002] && events.map(\.data) == [[1], [2], [3]])
      #expect(try client.isSilent())
      harness.eventually { source.demand == .none }  // the fleet has met it
      client.send(.cancel(StreamID(1)))
      harness.eventually { source.cancellations == 1 }
      #expect(server.append(try batch(1004, [[5]]), to: "s"))
      #expect(server.statistics.eventsIn == 5 && server.statistics.byStream.first?.newest == 7)
      client.subscribe("s", credit: 10, options: #"{"from": 1001}"#, id: 3)
      #expect(try client.events(3) == [[3], [4], [5]])
    }
  }

  @Test func whatIsNotAcceptedHasNoEffect() async throws {
    try await withServer { harness in
      let source = try add(harness, configuration(.always))
      let server = harness.server
      for name in ["none", "$stats"] { #expect(!server.append(try batch(1, [[1]]), to: name)) }
      #expect(!server.append(try batch(EventLog.stampedIDLimit, [[1]]), to: "s"))
      #expect(server.statistics.eventsIn == 0)
      #expect(server.append([[1]], to: "s") && server.statistics.eventsIn == 1)
      source.finish()
      #expect(!server.append(try batch(1, [[1]]), to: "s"))
      #expect(server.fleetPosition(of: "none") == nil)
    }
    let restoring = try ServerHarness(restores: true)
    _ = try add(restoring)
    #expect(!restoring.server.append(try batch(1, [[1]]), to: "s"))
    await restoring.finishRestore()
    #expect(restoring.server.append(try batch(1, [[1]]), to: "s"))
    await restoring.stop()
  }

  /// The log is frozen while its successor is made.
  @Test func aReloadKeepsTheStampsOfWhatCameMeanwhile() async throws {
    try await withServer { harness in
      _ = try add(harness)
      let server = harness.server
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100)
      #expect(server.append(try batch(50, [[1]], position: [1]), to: "s"))
      #expect(try client.event().id == 50)
      var larger = configuration()
      larger.limits = EventLog.Limits(events: 100, bytes: 256 << 10)
      let large = [UInt8](repeating: 1, count: 300 << 10)
      let (next, last) = (try batch(60, [[2], large, [3]]), try batch(63, [[4]], position: [2]))
      let change = StreamChange(larger) { [larger] old in
        #expect(server.append(next, to: "s") && server.append(last, to: "s"))
        #expect(old.endPosition == 51)
        #expect(harness.reports.isEmpty)
        return try #require(EventLog(name: "s", limits: larger.limits, takingOver: old))
      }
      #expect(server.change([change], removing: []).isEmpty)
      let events = try (0..<3).map { _ in try client.event() }
      #expect(events.map(\.id) == [60, 62, 63] && events.map(\.data) == [[2], [3], [4]])
      #expect(server.fleetPosition(of: "s") == [2] && reportedCounts(harness) == [1])
    }
  }

  private func reportedCounts(_ harness: ServerHarness) -> [Int] {
    harness.reports.compactMap { if case .eventsTooLarge(stream: "s", let count, _) = $0 { count } else { nil } }
  }

  @Test func anEventThatIsTooLargeLeavesAGapAndIsReported() async throws {
    try await withServer { harness in
      _ = try add(harness)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100, options: #"{"gaps": true}"#)
      let large = [UInt8](repeating: 1, count: 64 << 10)
      #expect(harness.server.append(try batch(10, [[1], large, large, [2]]), to: "s"))
      let received = try (0..<2).map { _ in try client.payload() }
      #expect(received.map(\.data) == [[1], [2]] && gap(received[1].metadata) == .max)
      #expect(reportedCounts(harness) == [2])
      #expect(harness.server.append(try batch(14, [large]), to: "s"))
      #expect(harness.server.append(try batch(15, [[3]]), to: "s"))
      #expect(gap(try client.payload().metadata) == .max && reportedCounts(harness) == [2, 1])
    }
  }

  /// Subscribers at the log's end, waiting, without credit, and after their first read at the same place.
  @Test func subscribersSeeAHoleAsAGap() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      _ = try add(harness)
      let clients = try (0..<4).map { _ in try WireClient.ready(harness.path) }
      for (index, client) in clients.enumerated() {
        let options = #"{"gaps": true, "on_lag": "\#(index % 2 == 0 ? "fail" : "skip")"}"#
        client.subscribe("s", credit: index < 2 ? 2 : 100, options: options)
      }
      harness.eventually { harness.server.statistics.subscribers == 4 }
      // Above the log's first id.
      #expect(harness.server.append(try batch(1 << 50, [[1], [2]]), to: "s"))
      for client in clients {
        let received = try (0..<2).map { _ in try client.payload() }
        #expect(received.map(\.data) == [[1], [2]] && gap(received[1].metadata) == nil)
      }
      #expect(try clients[0].isSilent())
      #expect(harness.server.append(try batch((1 << 50) + 5, [[3]]), to: "s"))
      #expect(harness.server.append(try batch((1 << 50) + 6, [[4]]), to: "s"))
      for client in clients[..<2] { client.send(.requestN(StreamID(1), 2)) }
      for client in clients {
        let received = try (0..<2).map { _ in try client.payload() }
        #expect(received.map(\.data) == [[3], [4]])
        #expect(gap(received[0].metadata) == .max && gap(received[1].metadata) == nil)
      }
      #expect(harness.server.statistics.laggedEvents == 0)
      let client = try WireClient.ready(harness.path)
      for (index, from) in [1 << 50, (1 << 50) + 1, (1 << 50) + 3, (1 << 50) + 4, (1 << 50) + 5].enumerated() {
        client.subscribe("s", credit: 1, options: #"{"from": \#(from)}"#, id: UInt32(index * 2 + 1))
        #expect(try client.event().data == [[2], [3], [3], [3], [4]][index])
      }
    }
  }

  @Test func aSecondHoleReportsAGapToASlowSubscriber() async throws {
    try await withServer { harness in
      _ = try add(harness)
      #expect(harness.server.append(try batch(100, [[1], [2]]), to: "s"))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"gaps": true}"#)
      #expect(try client.payload().data == [1])
      #expect(try client.isSilent())
      #expect(harness.server.append(try batch(1 << 40, [[3]]), to: "s"))
      #expect(harness.server.append(try batch((1 << 50) + 4, [[4]]), to: "s"))
      client.send(.requestN(StreamID(1), 9))
      let received = try (0..<2).map { _ in try client.payload() }
      #expect(received.map(\.data) == [[3], [4]] && received.map { gap($0.metadata) } == [.max, .max])
      #expect(harness.server.statistics.laggedEvents <= 1)
    }
  }

  /// The next process has the same log.
  @Test func aRestoredSubscriptionSeesTheHole() async throws {
    let next = try ServerHarness(restores: true)
    try await withServer { first in
      let log = try #require(EventLog(name: "s", limits: Self.limits, followsFleet: true))
      try first.server.add(configuration(), log: log, source: HandFedSource())
      let clients = try (0..<2).map { _ in try WireClient.ready(first.path) }
      for client in clients { client.subscribe("s", credit: 2, options: #"{"gaps": true}"#) }
      #expect(first.server.append(try batch(100, [[1], [2]], position: [1]), to: "s"))
      for client in clients { #expect(try client.events(2) == [[1], [2]]) }
      #expect(try clients[0].isSilent() && clients[1].isSilent())
      #expect(first.server.append(try batch(1 << 50, [[3]], position: [2]), to: "s"))
      let saved = try await first.handOver()
      let left = try LogRemains(memory: dup(log.descriptor))
      let second = HandFedSource()
      try next.server.add(configuration(), log: left.log(limits: Self.limits), source: second)
      await next.restore(saved)
      #expect(next.server.fleetPosition(of: "s") == [2])
      #expect(next.server.append(try batch((1 << 50) + 1, [[4]]), to: "s"))
      for client in clients {
        client.send(.requestN(StreamID(1), 9))
        let received = try (0..<2).map { _ in try client.payload() }
        #expect(received.map(\.data) == [[3], [4]] && received.map { gap($0.metadata) } == [.max, nil])
      }
      #expect(next.server.statistics.laggedEvents == 0)
    }
    await next.stop()
  }

  /// A batch that was set aside comes again from the fleet.
  @Test func whatIsSetAsideAtTheEndOfAProcessIsNotSaved() async throws {
    try await withServer { harness in
      var blocking = configuration()
      blocking.overflow = .block(timeout: nil)
      let source = try add(harness, blocking)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { source.demand > .none }
      source.send(batch: (0..<18).map { [$0] })
      let end = try #require(harness.server.append([[99]], to: "s") ? UInt64(1) << 55 : nil)
      #expect(harness.server.append(try batch(end, [[7]]), to: "s"))
      let saved = try await harness.handOver()
      #expect(saved.waiting.flatMap { Array($0.events) }.last == [99])
      #expect(saved.waiting.allSatisfy { $0.events.stamps == nil })
    }
  }
}
