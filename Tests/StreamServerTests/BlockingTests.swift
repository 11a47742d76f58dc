import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import Testing

@testable import StreamServer

/// Streams that drop nothing: the source waits for the slowest subscriber.
@Suite struct BlockingTests {
  private static let unlimited: UInt32 = 0x7FFF_FFFF

  private func numbers(_ range: Range<Int>) -> [[UInt8]] { range.map { Array("event \($0)".utf8) } }

  private func block(_ configuration: inout StreamConfiguration, timeout: Duration? = nil) {
    configuration.limits = .init(events: 16)
    configuration.overflow = .block(timeout: timeout)
  }

  @Test(arguments: [1, 2]) func theSourceWaitsForASubscriberWithoutDemandAndNoEventIsLost(
    workers: Int
  ) async throws {
    try await withServer(ServerLimits(workers: workers)) { harness in
      let source = try harness.add("s") { block(&$0) }
      let slow = try WireClient.ready(harness.path)
      slow.subscribe("s", credit: 10)
      let fast = try WireClient.ready(harness.path)
      fast.subscribe("s", credit: Self.unlimited)
      harness.eventually { harness.server.statistics.subscribers == 2 }
      source.send(batch: numbers(0..<500))
      #expect(try slow.events(10) == numbers(0..<10))
      #expect(try fast.events(26) == numbers(0..<26))
      #expect(try slow.isSilent() && fast.isSilent())
      #expect(source.demand == .none)
      slow.send(.requestN(StreamID(1), 490))
      #expect(try slow.events(490) == numbers(10..<500))
      #expect(try fast.events(474) == numbers(26..<500))
      harness.eventually { source.demand == .max(1) }
      #expect(harness.server.statistics.laggedEvents == 0)
    }
  }

  @Test func aSubscriptionThatEndsNoLongerStallsTheStream() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { block(&$0) }
      for leaves in [true, false] {
        let slow = try WireClient.ready(harness.path)
        slow.subscribe("s", credit: 1, options: #"{"from": "new"}"#)
        let fast = try WireClient.ready(harness.path)
        fast.subscribe("s", credit: Self.unlimited, options: #"{"from": "new"}"#)
        harness.eventually { harness.server.statistics.subscribers == 2 }
        source.send(batch: numbers(0..<100))
        #expect(try fast.events(17) == numbers(0..<17))
        #expect(try fast.isSilent())
        if leaves { slow.send(.cancel(StreamID(1))) } else { shutdown(slow.descriptor.raw, CInt(SHUT_RDWR)) }
        #expect(try fast.events(83) == numbers(17..<100))
        shutdown(fast.descriptor.raw, CInt(SHUT_RDWR))
        harness.eventually { harness.server.statistics.subscribers == 0 }
      }
    }
  }

  @Test func aClientThatDoesNotReadItsSocketStallsTheSource() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { block(&$0) }
      let client = try WireClient(harness.path, receiveBuffer: 4096)
      client.send(.setup(Setup()))
      client.subscribe("s", credit: Self.unlimited)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let events = (0..<500).map { [UInt8](repeating: UInt8(truncatingIfNeeded: $0), count: 10_000) }
      source.send(batch: events)
      harness.eventually { harness.server.statistics.writes > 0 }
      #expect(source.demand == .none)
      #expect(try client.events(500) == events)
    }
  }

  @Test func withoutSubscribersTheOldestEventsAreEvicted() async throws {
    try await withServer { harness in
      let source = try harness.add("s") {
        block(&$0)
        $0.replay = 100
      }
      source.send(batch: numbers(0..<100))
      harness.eventually { source.demand == .max(1) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100)
      #expect(try client.events(16) == numbers(84..<100))
    }
  }

  @Test func subscriptionsThatJoinStallAndLeaveLoseNoEvent() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { block(&$0) }
      let steady = try WireClient.ready(harness.path)
      steady.subscribe("s", credit: Self.unlimited, options: #"{"from": "new"}"#)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      var sent = 0
      for round in 0..<30 {
        let guests = try (0..<4).map { _ in try WireClient.ready(harness.path) }
        for guest in guests { guest.subscribe("s", credit: UInt32(1 + round % 5), options: #"{"from": "new"}"#) }
        harness.eventually { harness.server.statistics.subscribers == 5 }
        source.send(batch: numbers(sent..<sent + 40))
        for guest in guests {
          #expect(try guest.events(1 + round % 5) == numbers(sent..<sent + 1 + round % 5))
          shutdown(guest.descriptor.raw, CInt(SHUT_RDWR))
        }
        #expect(try steady.events(40) == numbers(sent..<sent + 40))
        harness.eventually { harness.server.statistics.subscribers == 1 }
        sent += 40
      }
    }
  }

  @Test func aStallIsReportedOnceInTheCatalogueTheReportsAndACounter() async throws {
    var limits = ServerLimits(workers: 1)
    limits.stallTime = .milliseconds(20)
    try await withServer(limits) { harness in
      let source = try harness.add("s") { block(&$0) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(batch: numbers(0..<40))
      #expect(try client.events(1) == numbers(0..<1))
      harness.eventually { harness.server.statistics.holdUps == 1 }
      guard case .clientHoldsUp(let identity, stream: "s", unread: 16)? = harness.reports.first else {
        Issue.record("not reported: \(harness.reports)")
        return
      }
      let other = try WireClient.ready(harness.path)
      other.get("$streams")
      let catalogue = String(decoding: try other.event().data, as: UTF8.self)
      #expect(catalogue.contains(#""state":"blocked""#))
      #expect(catalogue.contains("stalled by \(identity), 16 events behind"))
      client.send(.requestN(StreamID(1), 39))
      #expect(try client.events(39) == numbers(1..<40))
      try harness.eventually {
        other.get("$streams")
        return String(decoding: try other.event().data, as: UTF8.self).contains(#""state":"running""#)
      }
      #expect(harness.reports.count == 1)
    }
  }

  @Test func aSubscriptionThatStallsForTheTimeoutFailsAndOthersContinue() async throws {
    var limits = ServerLimits(workers: 1)
    limits.stallTime = .milliseconds(20)
    try await withServer(limits) { harness in
      let source = try harness.add("s") { block(&$0, timeout: .milliseconds(40)) }
      let slow = try WireClient.ready(harness.path)
      slow.subscribe("s", credit: 1)
      let fast = try WireClient.ready(harness.path)
      fast.subscribe("s", credit: Self.unlimited)
      harness.eventually { harness.server.statistics.subscribers == 2 }
      source.send(batch: numbers(0..<100))
      #expect(try fast.events(100) == numbers(0..<100))
      #expect(try slow.events(1) == numbers(0..<1))
      guard case .error(StreamID(1), ErrorCode(rawValue: 0x301), let message) = try slow.receive() else {
        Issue.record("not cut off")
        return
      }
      #expect(message == #"stalled "s" for 0.04 seconds, 16 events behind"#)
      slow.subscribe("s", credit: 1, id: 3)
      #expect(try slow.events(1) == numbers(99..<100))
    }
  }

  /// What it has not been sent has left the log: by a reload that makes the stream drop nothing, or in a restart with a
  /// smaller log.
  @Test(arguments: [true, false]) func aSubscriptionBehindTheLogFailsToo(isRestart: Bool) async throws {
    try await withTwoServers { first, next in
      func configuration(_ overflow: OverflowPolicy) -> StreamConfiguration {
        StreamConfiguration(name: "s", limits: .init(events: 4, bytes: 8 << 20), start: .always, overflow: overflow)
      }
      var source = HandFedSource()
      let log = try #require(EventLog(name: "s", limits: .init(events: 4, bytes: 8 << 20), firstID: 1000))
      try first.server.add(configuration(.drop), log: log, source: source)
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 1)
      first.eventually { first.server.statistics.subscribers == 1 }
      source.send(numbers(0..<1)[0])
      #expect(try client.events(1) == numbers(0..<1))
      source.send(batch: numbers(1..<20))
      let blocking = configuration(.block(timeout: .milliseconds(40)))
      if isRestart {
        let log = try #require(EventLog(name: "s", limits: blocking.limits, firstID: 1000))
        log.append(EventBatch(numbers(0..<20)))
        source = HandFedSource()
        try next.server.add(blocking, log: log, source: source)
        try await first.handOver(to: next)
      } else {
        #expect(first.server.change([StreamChange(blocking)], removing: []).isEmpty)
      }
      source.send(batch: numbers(20..<40))
      guard case .error(StreamID(1), ErrorCode(rawValue: 0x301), _) = try client.receive() else {
        Issue.record("not cut off")
        return
      }
    }
  }

  /// An event every 60 ms, each of which reduces the stall time by 1 ms: the timeout is reached without a long wait.
  @Test func aSingleEventDoesNotResetTheStallTime() async throws {
    let (taken, end) = try await dribble(timeout: .milliseconds(300), pace: .milliseconds(1), rounds: 200)
    #expect(taken > 1)
    guard case .error(StreamID(1), ErrorCode(rawValue: 0x301), let message) = end else {
      Issue.record("not cut off: \(String(describing: end))")
      return
    }
    #expect(message.hasPrefix(#"stalled "s" for 0.3 seconds, "#))
  }

  /// The same beyond the timeout, where each event reduces the stall time by more than it adds.
  @Test func aSubscriptionThatKeepsThePaceDoesNotFail() async throws {
    let (taken, end) = try await dribble(timeout: .seconds(2), pace: .seconds(2), rounds: 50)
    #expect(taken == 50 && end == nil)
  }

  /// Takes an event each time that the source has waited for 60 ms.
  /// - Returns: the number of events, and the frame that followed instead of another; nil after all rounds.
  private func dribble(timeout: Duration, pace: Duration, rounds: Int) async throws -> (taken: Int, end: Frame?) {
    var result: (Int, Frame?) = (rounds, nil)
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try harness.add("s") {
        $0.limits = .init(events: 16)
        $0.overflow = .block(timeout: timeout, pace: pace)
      }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(batch: numbers(0..<1000))
      #expect(try client.events(1) == numbers(0..<1))
      for taken in 0..<rounds {
        let time = EventLoop.monotonicNow() + 60_000_000
        harness.eventually { EventLoop.monotonicNow() > time || client.hasInput }
        client.send(.requestN(StreamID(1), 1))
        let frame = try client.receive()
        if case .payload = frame { continue }
        result = (taken, frame)
        return
      }
    }
    return result
  }

  /// Two subscriptions that stall in turn are each behind for half of the time only; both fail.
  @Test func subscriptionsThatStallInTurnBothFail() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try harness.add("s") {
        $0.limits = .init(events: 16)
        $0.overflow = .block(timeout: .milliseconds(300), pace: .milliseconds(1))
      }
      let client = try WireClient.ready(harness.path)
      for id in [1, 3] as [UInt32] { client.subscribe("s", credit: 1, id: id) }
      harness.eventually { harness.server.statistics.subscribers == 2 }
      source.send(batch: numbers(0..<1000))
      var ended = 0
      var round = 0
      while ended < 2, round < 1000 {
        round += 1
        let time = EventLoop.monotonicNow() + 40_000_000
        harness.eventually { EventLoop.monotonicNow() > time }
        // Each in turn overtakes the other by one event.
        client.send(.requestN(StreamID(round % 2 == 0 ? 1 : 3), 2))
        while client.hasInput {
          if case .error(_, ErrorCode(rawValue: 0x301), _)? = try client.receive() { ended += 1 }
        }
      }
      #expect(ended == 2)
    }
  }

  @Test func aSubscriptionWithoutUnreadEventsDoesNotFail() async throws {
    var limits = ServerLimits(workers: 1)
    limits.stallTime = .milliseconds(4)
    try await withServer(limits) { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero)) {
        block(&$0, timeout: .milliseconds(4))
      }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { source.demand == .max(1) }
      source.send([1])
      #expect(try client.events(1) == [[1]])
      let start = EventLoop.monotonicNow()
      harness.eventually { EventLoop.monotonicNow() > start + 100_000_000 }
      #expect(try client.isSilent())
      #expect(harness.reports.isEmpty)
    }
  }

  @Test func completionFollowsTheHeldEvents() async throws {  // SEMANTICS 13
    try await withServer { harness in
      let source = try harness.add("s") { block(&$0) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 10)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(batch: numbers(0..<50))
      source.finish()
      #expect(try client.events(10) == numbers(0..<10))
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 40))
      #expect(try client.events(40) == numbers(10..<50))
      guard case .payload(_, _, _, isComplete: true, isNext: false) = try client.receive() else {
        Issue.record("no COMPLETE")
        return
      }
    }
  }

  /// Before each timeout a client makes a new subscription, and then ends the previous one.
  @Test(arguments: [true, false]) func aNewSubscriptionDoesNotResetTheStallTime(isOneConnection: Bool) async throws {
    try await withServer { harness in
      let source = try harness.add("s") {
        $0.limits = .init(events: 16)
        $0.overflow = .block(timeout: .milliseconds(400), pace: .milliseconds(1))
      }
      var client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(batch: numbers(0..<1000))
      let first = try client.event().id
      var isCutOff = false
      for round in 1...40 where !isCutOff {
        let time = EventLoop.monotonicNow() + 90_000_000
        harness.eventually { EventLoop.monotonicNow() > time }
        let id = UInt32(1 + 2 * round)
        let next = isOneConnection ? client : try WireClient.ready(harness.path)
        next.subscribe("s", credit: 1, options: #"{"from": \#(first)}"#, id: id)
        // Its event arrives, or the previous subscription fails, or both.
        frames: while true {
          switch try next.receive() {
          case .payload(StreamID(id), _, _, _, _)?: break frames
          case .error(_, ErrorCode(rawValue: 0x301), _)?:
            isCutOff = true
            break frames
          case let other:
            Issue.record("expected an event, got \(String(describing: other))")
            throw WireClient.Silence()
          }
        }
        isCutOff = isCutOff || client.hasInput
        if isOneConnection { client.send(.cancel(StreamID(id - 2))) }
        client = next
      }
      #expect(isCutOff)
    }
  }

  /// Each subscription is one event behind the next, so each is the slowest only after the others have failed.
  @Test(arguments: [1, 2]) func severalStalledSubscriptionsFailAfterOneTimeout(workers: Int) async throws {
    try await withServer(ServerLimits(workers: workers)) { harness in
      let source = try harness.add("s") {
        $0.limits = .init(events: 16)
        $0.overflow = .block(timeout: .seconds(1), pace: .milliseconds(1))
      }
      let clients = try (0..<12).map { _ in try WireClient.ready(harness.path) }
      for (index, client) in clients.enumerated() { client.subscribe("s", credit: UInt32(index) + 1) }
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("s", credit: Self.unlimited)
      harness.eventually { harness.server.statistics.subscribers == 13 }
      let start = EventLoop.monotonicNow()
      source.send(batch: numbers(0..<100))
      #expect(try reader.events(100) == numbers(0..<100))
      #expect(EventLoop.monotonicNow() - start < 6_000_000_000)
      for (index, client) in clients.enumerated() {
        #expect(try client.events(index + 1) == numbers(0..<index + 1))
        guard case .error(_, ErrorCode(rawValue: 0x301), _)? = try client.receive() else { throw WireClient.Silence() }
      }
    }
  }
}
