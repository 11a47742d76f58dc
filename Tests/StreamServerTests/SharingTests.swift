import Glibc
import RSocket
import Reactive
import StreamRuntime
import Testing

@testable import StreamServer

@Suite struct SharingTests {
  @Test func sixtyClientsAreOneSubscriptionAndOneDemand() async throws {
    try await withServer { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero))
      #expect(source.subscriptions == 0)
      let clients = try (0..<60).map { _ in try WireClient.ready(harness.path) }
      for client in clients { client.subscribe("s", credit: 1000) }
      harness.eventually { harness.server.statistics.subscribers == 60 }
      #expect(source.subscriptions == 1)
      #expect(source.demand == .max(1))
      for number in 0..<100 as Range<UInt8> { source.send([number]) }
      for client in clients { #expect(try client.events(100) == (0..<100).map { [$0] }) }
    }
  }

  @Test func nothingIsRequestedFromTheSourceWithoutCredit() async throws {
    try await withServer { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"from": "new"}"#)
      harness.eventually { source.demand == .max(1) }
      source.send([1])
      #expect(try client.events(1) == [[1]])
      #expect(try client.isSilent())
      #expect(source.demand == .none)
      client.send(.requestN(StreamID(1), 5))
      harness.eventually { source.demand == .max(1) }
    }
  }

  @Test func aSubscriptionThatEndsTakesItsCreditBack() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero))
      let poor = try WireClient.ready(harness.path)
      poor.subscribe("s", credit: 1, options: #"{"from": "new"}"#)
      let rich = try WireClient.ready(harness.path)
      rich.subscribe("s", credit: 0x7FFF_FFFF, options: #"{"from": "new"}"#)
      harness.eventually { harness.server.statistics.subscribers == 2 && source.demand == .max(1) }
      rich.send(.cancel(StreamID(1)))
      #expect(try rich.isSilent())
      source.send([1])
      #expect(try poor.events(1) == [[1]])
      #expect(source.demand == .none)
    }
  }

  @Test(arguments: [1, 2]) func demandOfOnlyASubscriptionThatEndedIsTakenBack(workers: Int) async throws {
    try await withServer(ServerLimits(workers: workers)) { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .seconds(3600)))
      let poor = try WireClient.ready(harness.path)
      poor.subscribe("s", credit: 1, options: #"{"from": "new"}"#)
      harness.eventually { source.demand == .max(1) }
      source.send([1])
      #expect(try poor.events(1) == [[1]])
      for leaves in [true, false] {
        let rich = try WireClient.ready(harness.path)
        rich.subscribe("s", credit: 0x7FFF_FFFF, options: #"{"from": "new"}"#)
        harness.eventually { source.demand == .max(1) }
        if leaves { rich.send(.cancel(StreamID(1))) } else { shutdown(rich.descriptor.raw, CInt(SHUT_RDWR)) }
        harness.eventually { source.demand == .none }
      }
      #expect(source.subscriptions == 1)
      poor.send(.requestN(StreamID(1), 1))
      harness.eventually { source.demand == .max(1) }
      source.send([2])
      #expect(try poor.events(1) == [[2]])
    }
  }

  @Test func theSourceIsCancelledWithTheLastSubscriberAndRestartedForTheNext() async throws {
    try await withServer { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero))
      for round in 1...5 {
        let client = try WireClient.ready(harness.path)
        client.subscribe("s", credit: 1)
        harness.eventually { source.subscriptions == round && source.isSubscribed }
        if round % 2 == 0 {
          client.send(.cancel(StreamID(1)))
        } else {
          shutdown(client.descriptor.raw, CInt(SHUT_RDWR))
        }
        harness.eventually { source.cancellations == round }
      }
    }
  }

  @Test func clientsWithoutReadsOrCreditDoNotAffectOthers() async throws {  // SEMANTICS 29
    try await withServer { harness in
      let source = try harness.add("s") { $0.limits = .init(events: 65536, bytes: 16 << 20) }
      let stuck = try (0..<20).map { _ in try WireClient(harness.path, receiveBuffer: 4096) }
      for client in stuck {
        client.send(.setup(Setup()))
        client.subscribe("s", credit: 0x7FFF_FFFF)
      }
      let idle = try (0..<1000).map { _ in try WireClient.ready(harness.path) }
      for client in idle { client.subscribe("s", credit: 1, options: #"{"from": "new"}"#) }
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("s", credit: 0x7FFF_FFFF)
      harness.eventually { harness.server.statistics.subscribers == 1021 }
      let event = [UInt8](repeating: 7, count: 1000)
      for _ in 0..<40 {
        source.send(batch: [[UInt8]](repeating: event, count: 100))
        #expect(try reader.events(100).allSatisfy { $0 == event })
      }
      #expect(harness.server.statistics.laggedEvents == 0)
    }
  }

  /// An event between a read of the log and the wait after it must wake the subscription.
  @Test func aSubscriptionThatBeginsToWaitMissesNoEvent() async throws {
    try await withServer { harness in
      let source = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 0x7FFF_FFFF)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      // The delay of the second event varies: sometimes it arrives while the loop sends the first.
      for round in 0..<2000 {
        source.send([1])
        let moment = EventLoop.monotonicNow() + UInt64(round % 100) * 500
        while EventLoop.monotonicNow() < moment {}
        source.send([2])
        #expect(try client.events(2) == [[1], [2]])
      }
    }
  }

  @Test func twoFirstSubscribersAtOnceConnectOnce() async throws {  // SEMANTICS 1
    try await withServer { harness in
      for round in 0..<50 {
        let source = try harness.add("s\(round)", start: .fromFirstSubscriber)
        // Consecutive connections are on different loops, so the two subscribe from two threads.
        let clients = try (0..<2).map { _ in try WireClient.ready(harness.path) }
        for client in clients { client.subscribe("s\(round)", credit: 1) }
        harness.eventually {
          source.isSubscribed && harness.server.statistics.subscribers == 2 * (round + 1) - round * 2
        }
        #expect(source.subscriptions == 1)
        for client in clients { shutdown(client.descriptor.raw, CInt(SHUT_RDWR)) }
        harness.eventually { harness.server.statistics.subscribers == 0 }
      }
    }
  }
}

@Suite struct LaggingTests {
  /// A subscriber whose credit arrives after its next event was evicted.
  private func lag(_ options: String, _ check: @Sendable (WireClient, HandFedSource) throws -> Void) async throws {
    try await withServer { harness in
      let source = try harness.add("s") {
        $0.limits = .init(events: 4)
        $0.replay = 1
      }
      source.send([0])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: options)
      let first = try client.event()
      source.send(batch: (1...10).map { [$0] })
      client.send(.requestN(StreamID(1), 100))
      try check(client, source)
      guard case .clientLagged(_, stream: "s", let lost)? = harness.reports.first else {
        Issue.record("the lag was not reported: \(harness.reports)")
        return
      }
      #expect(lost == 6 || lost == 9)
      #expect(harness.server.statistics.laggedEvents == lost)
      _ = first
    }
  }

  @Test func skipContinuesWithTheOldestEventAndTheIdsShowTheGap() async throws {  // SEMANTICS 23, 27
    try await lag(#"{"from": "latest", "on_lag": "skip"}"#) { (client, _) throws in
      let next = try client.event()
      #expect(next.data == [7])
      #expect(try client.events(3) == [[8], [9], [10]])
      #expect(try client.isSilent())
    }
  }

  @Test func latestContinuesWithTheNewestEvent() async throws {
    try await lag(#"{"from": "latest", "on_lag": "latest"}"#) { (client, source) throws in
      #expect(try client.event().data == [10])
      source.send([11])
      #expect(try client.event().data == [11])
    }
  }

  @Test func failEndsTheRequestWithTheNumberOfLostEvents() async throws {
    try await lag(#"{"from": "latest", "on_lag": "fail"}"#) { (client, _) throws in
      #expect(try client.receive() == .error(StreamID(1), ErrorCode(rawValue: 0x301), "lagged: 6 events lost"))
      #expect(try client.isSilent())
    }
  }

  @Test func aPartlySentEvictedEventEndsTheRequestAndNotTheConnection() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { $0.limits = .init(events: 2, bytes: 8 << 20) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([UInt8](repeating: 1, count: 3 << 20))
      harness.eventually { harness.server.statistics.writes > 0 }
      source.send([2], [3])
      var frame = try client.receive()
      while case .payload = frame { frame = try client.receive() }
      guard case .error(StreamID(1), ErrorCode(rawValue: 0x301), let message) = frame else {
        Issue.record("expected 0x301, got \(String(describing: frame))")
        return
      }
      #expect(message.hasSuffix("left the buffer while it was being sent"))
      client.subscribe("s", credit: 100, id: 3)
      #expect(try client.events(1) == [[3]])
    }
  }

  @Test func expiredEventsAreNotSentWhenCreditArrives() async throws {
    try await withServer { harness in
      let age = 20_000_000 as UInt64
      let source = try harness.add("s") { $0.limits = .init(age: .nanoseconds(Int64(age))) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"from": "new"}"#)
      harness.eventually {
        source.send([1])
        return harness.server.statistics.eventsOut == 1
      }
      #expect(try client.events(1) == [[1]])
      source.send([2])
      let sent = EventLoop.monotonicNow()
      harness.eventually { EventLoop.monotonicNow() > sent + 2 * age }
      client.send(.requestN(StreamID(1), 100))
      #expect(try client.isSilent())
      #expect(harness.server.statistics.laggedEvents > 0)
    }
  }

  @Test func aSlowReaderReceivesEveryStoredEventInOrder() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { $0.limits = .init(events: 65536, bytes: 64 << 20) }
      let client = try WireClient(harness.path, receiveBuffer: 4096)
      client.send(.setup(Setup()))
      client.subscribe("s", credit: 0x7FFF_FFFF, options: #"{"from": "new"}"#)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      var sent: [[UInt8]] = []
      for number in 0..<3000 {
        sent.append([UInt8](repeating: UInt8(truncatingIfNeeded: number), count: number * 37 % 9000))
        source.send(sent[number])
      }
      source.send([UInt8](repeating: 9, count: 300_000))
      #expect(try client.events(3000) == sent)
      #expect(try client.event().data.count == 300_000)
    }
  }
}
