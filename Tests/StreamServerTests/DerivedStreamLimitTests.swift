import Events
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Testing

@testable import StreamServer

/// Streams that are made of others, at the limits of both.
@Suite(.timeLimit(.minutes(5))) struct DerivedStreamLimitTests {
  private static let unlimited: UInt32 = 0x7FFF_FFFF

  /// The position in a base that a derived stream's log has stored.
  private func position(of stream: ServedStream, in base: String = "base") -> UInt64? {
    DerivedPosition(stream.log.read { storage, _ in storage.checkpoint })?.positions[base]
  }

  @Test(arguments: [OverflowPolicy.drop, .block(timeout: nil)])
  func aSmallLogStoresEachBatchWithItsPosition(overflow: OverflowPolicy) async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base")
      source.send(batch: (0..<100).map { [$0] })
      let base = try #require(harness.server.streams["base"])
      let first = base.log.read { storage, _ in storage.firstPosition }
      let stream = try derivations.add("d", of: ["base"]) {
        $0.limits = EventLog.Limits(events: 16)
        $0.overflow = overflow
      }
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: 1)
      for number in 0..<100 as Range<UInt8> {
        #expect(try client.events(1) == [[number]])
        let (count, position) = stream.log.read { storage, _ in
          (storage.appendedEvents, DerivedPosition(storage.checkpoint)?.positions["base"])
        }
        #expect(position == first + count && count < UInt64(number) + 16)
        client.send(.requestN(StreamID(1), 1))
      }
    }
  }

  @Test func aLargeEventIsABatchOfItsOwn() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base")
      let events = [3000, 10, 3000, 3000, 10, 10, 10].map { [UInt8](repeating: 1, count: $0) }
      source.send(batch: events)
      try derivations.add("d", of: ["base"]) { $0.limits = EventLog.Limits(events: 64, bytes: 4096) }
      let batches = Locked<[EventBatch]>([])
      let sink = derivations.source("d", of: ["base"]).sink { batch in batches.withLock { $0.append(batch) } }
      harness.eventually { batches.withLock { $0 }.reduce(0) { $0 + $1.count } == 7 }
      #expect(batches.withLock { $0.map(\.count) } == [1, 1, 1, 1, 3])
      #expect(batches.withLock { $0.allSatisfy { $0.checkpoint != nil } })
      sink.cancel()
    }
  }

  @Test func aProgramGetsOneEventAtATime() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base")
      source.send(batch: (0..<20).map { Array("{\"n\":\($0)}".utf8) })
      let batches = Locked<[EventBatch]>([])
      try derivations.add("d", of: ["base"])
      let filter = try EventFilter(.init("/n", .atLeast(10)))
      let sink = derivations.source("d", of: ["base"], where: filter, isSingle: true).sink { batch in
        batches.withLock { $0.append(batch) }
      }
      harness.eventually { batches.withLock { $0 }.count == 10 }
      #expect(batches.withLock { $0.allSatisfy { $0.count == 1 && $0.checkpoint != nil } })
      sink.cancel()
    }
  }

  @Test func whatTheFilterLeavesOutIsNoLossAfterwards() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base") { $0.limits = EventLog.Limits(events: 4) }
      let stream = try derivations.add("d", of: ["base"], where: EventFilter(.init("/x", .exists(true))))
      let base = try #require(harness.server.streams["base"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: Self.unlimited, options: #"{"gaps":true}"#)
      harness.eventually { base.log.subscriberCount == 1 }
      for number in 0..<10 {
        source.send(Array("\(number)".utf8))
        harness.eventually { position(of: stream) == base.log.read { storage, _ in storage.endPosition } }
      }
      client.send(.cancel(StreamID(1)))
      harness.eventually { base.log.subscriberCount == 0 }
      source.send(batch: (0..<4).map { Array("\($0)".utf8) })
      client.subscribe("d", credit: Self.unlimited, options: #"{"gaps":true}"#, id: 3)
      harness.eventually { position(of: stream) == base.log.read { storage, _ in storage.endPosition } }
      #expect(stream.summary(showsNames: true).missed == 0)
      #expect(stream.log.read { storage, _ in storage.newestID } == nil)
    }
  }

  @Test func aLossThatWaitsForARestingSubscriberIsUnderBlockTimeout() async throws {
    var limits = ServerLimits(workers: 1)
    limits.stallTime = .milliseconds(40)
    try await withDerivations(limits) { harness, derivations in
      let source = try harness.add("base") { $0.limits = EventLog.Limits(events: 4) }
      let stream = try derivations.add("d", of: ["base"]) { $0.overflow = .block(timeout: .milliseconds(400)) }
      let (slow, fast) = (try WireClient.ready(harness.path), try WireClient.ready(harness.path))
      slow.subscribe("d", credit: 1)
      fast.subscribe("d", credit: 2)
      harness.eventually { stream.log.subscriberCount == 2 }
      source.send([0], [1])
      #expect(try slow.events(1) == [[0]])
      #expect(try fast.events(2) == [[0], [1]])
      for round in 1...2 as ClosedRange<UInt8> {
        source.send(batch: (0..<10).map { [round * 10 + $0] })
        fast.send(.requestN(StreamID(1), 4))
        // The second loss waits until the slow one has failed.
        #expect(try fast.events(4) == (6..<10).map { [round * 10 + $0] })
      }
      guard case .error(StreamID(1), .lagged, _) = try slow.receive() else {
        Issue.record("not cut off")
        return
      }
      #expect(stream.summary(showsNames: true).missed == 12)
    }
  }

  @Test func aBaseThatNowBlocksKeepsTheEventsOfAStreamWithoutCredit() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base") { $0.limits = EventLog.Limits(events: 16) }
      let stream = try derivations.add("d", of: ["base"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: 1)
      harness.eventually { harness.server.streams["base"]?.log.subscriberCount == 1 }
      source.send([0])
      #expect(try client.events(1) == [[0]])
      #expect(try client.isSilent())
      var configuration = StreamConfiguration(name: "base", start: .always)
      (configuration.limits, configuration.overflow) = (EventLog.Limits(events: 16), .block(timeout: nil))
      #expect(harness.server.change([StreamChange(configuration)], removing: []).isEmpty)
      source.send(batch: (1..<100).map { [$0] })
      #expect(source.demand == .none)
      client.send(.requestN(StreamID(1), 99))
      #expect(try client.events(99) == (1..<100).map { [$0] })
      #expect(stream.summary(showsNames: true).missed == 0)
    }
  }

  @Test func aBlockedBaseNamesTheStreamThatItWaitsFor() async throws {
    var limits = ServerLimits(workers: 1)
    limits.stallTime = .milliseconds(40)
    try await withDerivations(limits) { harness, derivations in
      let source = try harness.add("base") {
        $0.limits = EventLog.Limits(events: 16)
        $0.overflow = .block(timeout: nil)
      }
      try derivations.add("d", of: ["base"])
      let base = try #require(harness.server.streams["base"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: 1)
      harness.eventually { base.log.subscriberCount == 1 }
      source.send([0])
      #expect(try client.events(1) == [[0]])
      source.send(batch: (1..<100).map { [$0] })
      harness.eventually { base.state(showsNames: true).word == "blocked" }
      #expect(base.state(showsNames: true).message == #"stalled by "d", which is made of it, 16 events behind"#)
      #expect(base.state(showsNames: false).message == "stalled by a subscriber, 16 events behind")
      client.send(.requestN(StreamID(1), 99))
      #expect(try client.events(99) == (1..<100).map { [$0] })
      harness.eventually { base.state(showsNames: true).word == "running" }
    }
  }

  /// It rests for less than the timeout each time, but for longer altogether.
  @Test func whoReadsInTimeKeepsItsEvents() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base") {
        $0.limits = EventLog.Limits(events: 16)
        $0.overflow = .block(timeout: .milliseconds(1500))
      }
      let stream = try derivations.add("d", of: ["base"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: 1)
      harness.eventually { harness.server.streams["base"]?.log.subscriberCount == 1 }
      source.send(batch: (0..<60).map { [$0] })
      for number in 0..<60 as Range<UInt8> {
        #expect(try client.events(1) == [[number]])
        try await Task.sleep(for: .milliseconds(60))
        client.send(.requestN(StreamID(1), 1))
      }
      #expect(stream.summary(showsNames: true).missed == 0)
    }
  }

  /// The log of a base in memory begins anew with each process.
  @Test func aBaseThatBeginsAnewLeavesTheHistoryWhole() async throws {
    let log = try #require(EventLog(name: "d", limits: EventLog.Limits(events: 64), firstID: 1))
    for process in 0..<4 as Range<UInt8> {
      try await withDerivations { harness, derivations in
        let source = HandFedSource()
        let base = try #require(EventLog(name: "base", limits: .init(), firstID: 1000 + UInt64(process) * 1000))
        try harness.server.add(StreamConfiguration(name: "base", start: .always), log: base, source: source)
        try derivations.add("d", of: ["base"], log: log)
        let client = try WireClient.ready(harness.path)
        client.subscribe("d", credit: Self.unlimited)
        #expect(try client.events(Int(process)) == (0..<process).map { [$0] })
        source.send([process])
        #expect(try client.events(1) == [[process]])
        let last: DerivedSource.Report? = derivations.reports.withLock { $0.first }
        #expect(last == (process == 0 ? nil : .missed(.possible, base: "base")))
      }
    }
  }

  @Test func layersOfDiamondsCostWhatTheirStreamsDo() async throws {
    try await withDerivations { harness, derivations in
      let status = SourceStatus()
      _ = try harness.add("base", status: status)
      var layer = ["base"]
      for level in 0..<16 {
        let next = (0..<4).map { "l\(level)-\($0)" }
        for name in next { try derivations.add(name, of: layer, start: .always) { $0.expectEvery = .seconds(60) } }
        layer = next
      }
      let top = try #require(harness.server.streams[layer[0]])
      harness.eventually { top.state(showsNames: true).word == "running" }
      status.noteFetch()
      var survey = BaseSurvey()
      harness.eventually {
        survey = BaseSurvey()
        return survey.finding(on: top).basesProvedAt == status.fetchedAt
      }
      status.set(.waiting("the host is busy"))
      #expect(top.state(showsNames: true) == ("waiting", "\"base\" is waiting: the host is busy"))
      #expect(harness.server.statistics.byStream.filter { $0.state == "waiting" }.count == 65)
    }
  }

  @Test func aLongChainIsSurveyed() async throws {
    try await withDerivations { harness, derivations in
      let status = SourceStatus()
      _ = try harness.add("base", status: status)
      var last = "base"
      for number in 0..<300 {
        try derivations.add("d\(number)", of: [last], start: .always) {
          $0.limits = EventLog.Limits(events: 16, bytes: 4096)
        }
        last = "d\(number)"
      }
      status.set(.failing("HTTP 503"))
      let top = try #require(harness.server.streams[last])
      harness.eventually { top.state(showsNames: true) == ("failing", "\"base\" is failing: HTTP 503") }
    }
  }
}
