import Dispatch
import Glibc
import RSocket
import Reactive
import ReplayLog
import Synchronization
import Testing

@testable import StreamServer

/// Changes of streams while clients read them.
@Suite struct ChangingTests {
  private static let unlimited: UInt32 = 0x7FFF_FFFF

  private func numbers(_ range: Range<Int>) -> [[UInt8]] { range.map { Array("event \($0)".utf8) } }

  /// As `ServerHarness.add` makes it.
  private func terms(_ change: (inout StreamConfiguration) -> Void = { _ in }) -> StreamConfiguration {
    var configuration = StreamConfiguration(name: "s", start: .always)
    change(&configuration)
    return configuration
  }

  /// A log of the configuration's limits that takes over the present one.
  private func another(_ configuration: StreamConfiguration) -> (EventLog) -> EventLog {
    { old in
      guard let log = EventLog(name: "s", limits: configuration.limits, takingOver: old) else {
        preconditionFailure("no memory for a test's log")
      }
      return log
    }
  }

  private func isLagged(_ frame: Frame?, _ id: UInt32) -> Bool {
    if case .error(StreamID(id), .lagged, _)? = frame { true } else { false }
  }

  // MARK: The feed

  @Test(arguments: [1, 2]) func subscribersKeepTheirCreditWhenTheSourceIsReplaced(workers: Int) async throws {
    try await withServer(ServerLimits(workers: workers)) { harness in
      let source = try harness.add("s")
      let next = HandFedSource()
      let clients = try (0..<20).map { _ in try WireClient.ready(harness.path) }
      for client in clients { client.subscribe("s", credit: 5) }
      harness.eventually { harness.server.statistics.subscribers == 20 }
      source.send([0], [1])
      var last: UInt64 = 0
      for client in clients {
        let events = try (0..<2).map { _ in try client.event() }
        #expect(events.map(\.data) == [[0], [1]])
        last = events[1].id
      }
      #expect(harness.server.change([StreamChange(terms(), feed: .init(source: next))], removing: []).isEmpty)
      #expect(source.cancellations == 1 && next.subscriptions == 1 && next.demand == .max(1))
      source.send([99])
      next.send([2], [3], [4], [5], [6])
      for client in clients {
        let events = try (0..<3).map { _ in try client.event() }
        #expect(events.map(\.data) == [[2], [3], [4]] && events.map(\.id) == Array(last + 1...last + 3))
        #expect(try client.isSilent())
        client.send(.requestN(StreamID(1), 1))
        #expect(try client.events(1) == [[5]])
      }
      #expect(harness.server.statistics.subscribers == 20 && harness.server.statistics.eventsIn == 7)
    }
  }

  @Test func anUnchangedSourceContinuesWithoutLoss() async throws {
    try await withServer { harness in
      let source = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([0])
      var larger = terms { $0.limits = .init(events: 100, bytes: 16 << 20) }
      larger.description = "larger"
      let change = StreamChange(larger) { old in
        source.send([1], [2])  // sent while the log is made
        #expect(old.endPosition == old.newestID! + 1)
        return another(larger)(old)
      }
      let unknown = StreamChange(StreamConfiguration(name: "unknown"))
      #expect(harness.server.change([change, unknown], removing: []).isEmpty)
      source.send([3])
      let events = try (0..<4).map { _ in try client.event() }
      #expect(events.map(\.data) == [[0], [1], [2], [3]])
      #expect(events.map(\.id) == Array(events[0].id...events[0].id + 3))
      #expect(source.subscriptions == 1 && source.cancellations == 0 && source.demand == .max(1))
      client.get("$streams", id: 3)
      #expect(String(decoding: try client.event().data, as: UTF8.self).contains(#""description":"larger""#))
      #expect(harness.server.statistics.bytesIn == 4)
    }
  }

  @Test(arguments: [OverflowPolicy.drop, .block(timeout: nil)]) func eachEventArrivesOnceThroughManyChangesUnderLoad(
    overflow: OverflowPolicy
  ) async throws {
    try await withServer { harness in
      let source = try harness.add("s") {
        $0.overflow = overflow
        $0.limits = .init(events: 200_000, bytes: 16 << 20)
      }
      let clients = try (0..<8).map { _ in try WireClient.ready(harness.path) }
      for client in clients { client.subscribe("s", credit: Self.unlimited) }
      harness.eventually { harness.server.statistics.subscribers == 8 }
      let isOver = Atomic(false)
      async let sent = withCheckedContinuation { continuation in
        DispatchQueue.global().async {
          var count = 0
          while count < 4000 || !isOver.load(ordering: .acquiring) {
            source.send([UInt8](count.description.utf8), [UInt8]((count + 1).description.utf8))
            count += 2
            usleep(200)
          }
          source.send([])
          continuation.resume(returning: count)
        }
      }
      // Each of three sizes, and between dropping and waiting in both directions.
      for round in 0..<60 {
        let configuration = terms {
          $0.limits = .init(events: 200_000, bytes: (16 << 20) + (round % 3) << 16)
          $0.overflow = round % 4 < 2 ? overflow : .drop
        }
        // A smaller log resubscribes to its source: values sent at that moment are lost.
        _ = harness.server.change(
          [StreamChange(configuration, makeLog: round % 3 == 0 ? nil : another(configuration))], removing: [])
      }
      isOver.store(true, ordering: .releasing)
      let count = await sent
      for client in clients {
        var last: (id: UInt64, number: Int)?
        while true {
          let (id, data) = try client.event()
          if data.isEmpty { break }
          let number = try #require(Int(String(decoding: data, as: UTF8.self)))
          if let last { #expect(id == last.id + 1 && number > last.number) }
          last = (id, number)
        }
        #expect(last?.number == count - 1)
      }
      #expect(harness.server.statistics.laggedEvents == 0)
    }
  }

  @Test func aFinishedStreamRestartsOnlyWithANewSource() async throws {
    try await withServer { harness in
      let source = try harness.add("s")
      source.send([0])
      source.finish()
      _ = harness.server.change([StreamChange(terms { $0.replay = 5 })], removing: [])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 5)
      #expect(try client.events(1) == [[0]])
      #expect(try client.receive() == .payload(StreamID(1), Payload(), follows: false, isComplete: true, isNext: false))
      let next = HandFedSource()
      _ = harness.server.change([StreamChange(terms(), feed: .init(source: next))], removing: [])
      client.subscribe("s", credit: 1, id: 3)
      #expect(try client.events(1) == [[0]])
      next.send([1])
      #expect(try client.isSilent())
      next.finish()
      client.send(.requestN(StreamID(3), 5))
      #expect(try client.events(1) == [[1]])
      #expect(try client.receive() == .payload(StreamID(3), Payload(), follows: false, isComplete: true, isNext: false))
    }
  }

  @Test func aNewStartPolicyAppliesAtOnce() async throws {
    try await withServer { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero))
      #expect(!source.isSubscribed)
      _ = harness.server.change([StreamChange(terms())], removing: [])
      #expect(source.isSubscribed)
      _ = harness.server.change([StreamChange(terms { $0.start = .whileSubscribed(linger: .zero) })], removing: [])
      #expect(!source.isSubscribed)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { source.isSubscribed }
      _ = harness.server.change([StreamChange(terms { $0.start = .fromFirstSubscriber })], removing: [])
      client.send(.cancel(StreamID(1)))
      harness.eventually { harness.server.statistics.subscribers == 0 }
      #expect(source.isSubscribed && source.subscriptions == 2)
    }
  }

  // MARK: The log

  @Test func aSubscriberBehindASmallerLogLagsByItsPolicy() async throws {
    try await withServer { harness in
      let source = try harness.add("s")
      let clients = try ["skip", "latest", "fail"].map { policy in
        let client = try WireClient.ready(harness.path)
        client.subscribe("s", credit: 1, options: #"{"on_lag": "\#(policy)"}"#)
        return client
      }
      let upToDate = try WireClient.ready(harness.path)
      upToDate.subscribe("s", credit: 20)
      harness.eventually { harness.server.statistics.subscribers == 4 }
      source.send(batch: numbers(0..<10))
      for client in clients { #expect(try client.events(1) == numbers(0..<1)) }
      #expect(try upToDate.events(10) == numbers(0..<10))
      let smaller = terms { $0.limits = .init(events: 4, bytes: 4096) }
      let change = StreamChange(smaller) { old in
        source.send([UInt8](repeating: 0, count: 5000))  // lost: the source is resubscribed to
        return another(smaller)(old)
      }
      #expect(harness.server.change([change], removing: []).isEmpty)
      #expect(source.subscriptions == 2)
      source.send([UInt8](repeating: 0, count: 5000), Array("event 10".utf8))
      for client in clients { client.send(.requestN(StreamID(1), 10)) }
      #expect(try clients[0].events(4) == numbers(7..<11))
      #expect(try clients[1].events(1) == numbers(10..<11))
      #expect(isLagged(try clients[2].receive(), 1))
      #expect(try upToDate.events(1) == numbers(10..<11))
      for client in clients + [upToDate] { #expect(try client.isSilent()) }
    }
  }

  @Test func theStreamKeepsItsLogIfANewOneCannotBeMade() async throws {
    try await withServer { harness in
      let source = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let change = StreamChange(terms { $0.limits = .init(events: 4, bytes: 4096) }) { _ in
        throw StreamFailure("no room")
      }
      #expect(harness.server.change([change], removing: [])["s"] as? StreamFailure == StreamFailure("no room"))
      let large = [UInt8](repeating: 1, count: 5000)
      source.send(large)
      #expect(try client.events(1) == [large])
    }
  }

  @Test func aPartlySentEventContinuesFromTheNewLog() async throws {
    // More than a frame holds. It is made before there is a client, which must not be silent for long.
    let event = (0..<80_000).reduce(into: [UInt8]()) { bytes, number in
      bytes += [UInt8](repeating: UInt8(truncatingIfNeeded: number &* 31), count: 250)
    }
    try await withServer { harness in
      let source = try harness.add("s") { $0.limits = .init(events: 1000, bytes: 64 << 20) }
      let client = try WireClient(harness.path, receiveBuffer: 4096)
      client.send(.setup(Setup()))
      client.subscribe("s", credit: Self.unlimited)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(event, [1])
      harness.eventually { harness.server.statistics.writes > 0 }
      let larger = terms { $0.limits = .init(events: 1000, bytes: 65 << 20) }
      _ = harness.server.change([StreamChange(larger, makeLog: another(larger))], removing: [])
      #expect(try client.event().data == event)
      #expect(try client.events(1) == [[1]])
    }
  }

  @Test func aStalledStreamStaysStalledInALargerLog() async throws {
    try await withServer { harness in
      func block(_ events: Int) -> StreamConfiguration {
        terms {
          $0.limits = .init(events: events)
          $0.overflow = .block(timeout: nil)
        }
      }
      let source = try harness.add("s") { $0 = block(4) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(batch: numbers(0..<10))
      #expect(try client.events(1) == numbers(0..<1))
      harness.eventually { harness.server.statistics.eventsIn == 5 }
      _ = harness.server.change([StreamChange(block(8), makeLog: another(block(8)))], removing: [])
      #expect(harness.server.statistics.eventsIn == 9 && source.demand == .none)
      client.send(.requestN(StreamID(1), 9))
      #expect(try client.events(9) == numbers(1..<10))
      harness.eventually { source.demand == .max(1) }
    }
  }

  @Test func theOverflowPolicyChangesInBothDirections() async throws {
    try await withServer { harness in
      let waits = terms {
        $0.limits = .init(events: 4)
        $0.overflow = .block(timeout: nil)
      }
      var drops = waits
      drops.overflow = .drop
      let source = try harness.add("s") { $0 = waits }
      let slow = try WireClient.ready(harness.path)
      slow.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(batch: numbers(0..<10))
      #expect(try slow.events(1) == numbers(0..<1))
      harness.eventually { harness.server.statistics.eventsIn == 5 }
      _ = harness.server.change([StreamChange(drops)], removing: [])
      #expect(harness.server.statistics.eventsIn == 10 && source.demand == .max(1))
      source.send(batch: numbers(10..<11))
      _ = harness.server.change([StreamChange(waits)], removing: [])
      source.send(batch: numbers(11..<15))
      #expect(harness.server.statistics.eventsIn == 11 && source.demand == .none)
      slow.send(.requestN(StreamID(1), Self.unlimited))
      #expect(try slow.events(8) == numbers(7..<15))
      harness.eventually { source.demand == .max(1) }
      #expect(harness.server.statistics.laggedEvents == 6)
    }
  }

  // MARK: Access and removal

  @Test func onlySubscribersWithoutAccessAreRejected() async throws {
    try await withServer { harness in
      let source = try harness.add("s")
      let other = try harness.add("t")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 5)
      client.subscribe("t", credit: 5, id: 3)
      harness.eventually { harness.server.statistics.subscribers == 2 }
      _ = harness.server.change([StreamChange(terms { $0.read = AccessRules([.user(4_000_000)]) })], removing: [])
      #expect(try client.receive() == .error(StreamID(1), .rejected, #"uid \#(getuid()) may not read "s""#))
      source.send([1])
      other.send([2])
      #expect(try client.events(1) == [[2]])
      guard case .clientRefused(_, stream: "s", _)? = harness.reports.last else {
        Issue.record("not reported: \(harness.reports)")
        return
      }
      _ = harness.server.change([StreamChange(terms { $0.read = AccessRules([.user(getuid())]) })], removing: [])
      client.subscribe("s", credit: 1, id: 5)
      #expect(try client.events(1) == [[1]])
    }
  }

  @Test func requestsToARemovedStreamAreCanceledAndItsNameIsFree() async throws {
    try await withServer { harness in
      let source = try harness.add("s")
      let stays = try harness.add("t")
      try harness.addPublished("p")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 5)
      client.subscribe("t", credit: 5, id: 3)
      client.publish("p", [1], id: 5)
      guard case .requestN = try client.receive() else {
        Issue.record("no credit")
        return
      }
      harness.eventually { harness.server.statistics.subscribers == 2 }
      source.send([0])
      let last = try client.event().id
      #expect(harness.server.change([], removing: ["s", "p", "unknown"]).isEmpty)
      #expect(source.cancellations == 1 && source.subscriptions == 1)
      #expect(try client.receive() == .error(StreamID(1), .canceled, #""s" is no longer served"#))
      #expect(try client.receive() == .error(StreamID(5), .canceled, #""p" is no longer served"#))
      stays.send([7])
      #expect(try client.events(1) == [[7]])
      client.subscribe("s", credit: 5, id: 7)
      #expect(try client.receive() == .error(StreamID(7), .rejected, #"no stream named "s""#))
      let statistics = harness.server.statistics
      #expect(statistics.streams == 1 && statistics.eventsIn == 3 && statistics.bytesIn == 3)
      let later = try harness.add("s")
      client.subscribe("s", credit: 5, id: 9)
      harness.eventually { harness.server.statistics.subscribers == 2 }
      later.send([8])
      #expect(try client.event().id > last)
    }
  }
}
