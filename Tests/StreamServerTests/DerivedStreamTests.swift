import Dispatch
import Events
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Testing

@testable import StreamServer

/// Streams that are made of other streams.
@Suite(.timeLimit(.minutes(5))) struct DerivedStreamTests {
  private static let unlimited: UInt32 = 0x7FFF_FFFF

  private func text(_ text: String) -> [UInt8] { Array(text.utf8) }

  @Test func tenStreamsOfOneAskItOnceAndOnlyWithCredit() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base", start: .whileSubscribed(linger: .zero))
      for number in 0..<10 { try derivations.add("d\(number)", of: ["base"]) }
      #expect(source.subscriptions == 0)
      let clients = try (0..<10).map { number in
        let client = try WireClient.ready(harness.path)
        client.subscribe("d\(number)", credit: 1)
        return client
      }
      harness.eventually { source.demand == .max(1) }
      source.send(text("1"))
      for client in clients { #expect(try client.events(1) == [text("1")]) }
      harness.eventually { source.demand == .none }
      source.send(text("2"))  // not requested
      for client in clients { #expect(try client.isSilent()) }
      #expect(source.demand == .none)
      clients[3].send(.requestN(StreamID(1), 2))
      #expect(try clients[3].events(1) == [text("2")])
      harness.eventually { source.demand == .max(1) }
      #expect(source.subscriptions == 1)
      clients.forEach { $0.send(.cancel(StreamID(1))) }
      harness.eventually { !source.isSubscribed }
    }
  }

  @Test func aFilterLeavesEventsOutAndCostsNoCredit() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base")
      try derivations.add("d", of: ["base"], where: EventFilter(.init("/n", .atLeast(3))))
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: 2)
      for number in 0..<6 { source.send(text("{\"n\":\(number)}")) }
      #expect(try client.events(2) == [text("{\"n\":3}"), text("{\"n\":4}")])
      #expect(try client.isSilent())
    }
  }

  @Test func eventsOfSeveralStreamsComeInTheOrderOfTheirArrival() async throws {
    try await withDerivations { harness, derivations in
      let sources = try ["a", "b", "c"].map { try harness.add($0) }
      var sent: [[UInt8]] = []
      for number in 0..<60 {
        sent.append(text("\(number)"))
        sources[number * number % 3].send(sent[number])
        let time = EventLoop.wallClock()
        while EventLoop.wallClock() == time {}  // each event has a time of its own
      }
      try derivations.add("d", of: ["a", "b", "c"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: Self.unlimited)
      #expect(try client.events(60) == sent)
      for number in 60..<80 {
        sources[number % 3].send(text("\(number)"))
        #expect(try client.events(1) == [text("\(number)")])
      }
      harness.eventually { sources.allSatisfy { $0.demand == .max(1) } }
    }
  }

  @Test func aStreamOfAStreamOfAStream() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base", start: .whileSubscribed(linger: .zero))
      try derivations.add("d1", of: ["base"])
      try derivations.add("d2", of: ["d1", "base"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("d2", credit: 2)
      harness.eventually { source.demand == .max(1) }
      source.send(text("x"))
      #expect(try client.events(2) == [text("x"), text("x")])
      client.send(.cancel(StreamID(1)))
      harness.eventually { !source.isSubscribed }
    }
  }

  @Test func eventsThatNobodyReadInTimeAreAGap() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base") { $0.limits = EventLog.Limits(events: 4, bytes: 8 << 20) }
      let stream = try derivations.add("d", of: ["base"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: 1, options: #"{"gaps":true}"#)
      source.send([0])
      let first = try client.payload()
      #expect(first.data == [0] && first.metadata.count == 16)
      #expect(try client.isSilent())
      source.send(batch: (1...10).map { [$0] })
      client.send(.requestN(StreamID(1), 4))
      let next = try client.payload()
      #expect(next.data == [7] && next.metadata.count == 24)
      #expect(next.metadata[16...] == ArraySlice(repeating: 0xFF, count: 8), "an unknown number")
      #expect(try client.events(3) == [[8], [9], [10]])
      let ids = [first, next].map { $0.metadata[..<8].reduce(0 as UInt64) { $0 << 8 | UInt64($1) } }
      #expect(ids[1] - ids[0] == 7)
      client.send(.requestN(StreamID(1), 1))
      harness.eventually { derivations.reports.withLock { $0 } == [.missed(.known(6), base: "base"), .current] }
      #expect(stream.summary(showsNames: true).missed == 6)
      #expect(harness.server.statistics.byStream.map(\.missed) == [nil, 6])
      let metrics = try HTTPWireClient(harness).fetch("/metrics").text
      #expect(metrics.contains("streamd_stream_missed_events_total{stream=\"\(stream.name)\"} 6\n"))
      #expect(!metrics.contains("streamd_stream_missed_events_total{stream=\"base\"}"))
    }
  }

  @Test func eachEventHasItsEffectOnceOverSubscriptions() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base")
      let stream = try derivations.add("d", of: ["base"], where: EventFilter(.init("/x", .exists(true))))
      for round in 0..<3 {
        let client = try WireClient.ready(harness.path)
        client.subscribe("d", credit: Self.unlimited, options: round == 0 ? "" : #"{"from":"new"}"#)
        harness.eventually { harness.server.streams["base"]?.log.subscriberCount == 1 }
        let events = (0..<100).map { text("{\"x\":\(round * 100 + $0)}") }
        source.send(batch: events)
        #expect(try client.events(100) == events)
        source.send(text("{}"))
        client.send(.cancel(StreamID(1)))
        harness.eventually { !stream.log.isConnected }
      }
      #expect(stream.log.read { storage, _ in storage.appendedEvents } == 300)
      let other = try derivations.add("e", of: ["d"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("e", credit: Self.unlimited)
      #expect(try client.events(300).last == text("{\"x\":299}"))
      #expect(other.log.read { storage, _ in storage.appendedEvents } == 300)
    }
  }

  @Test func itEndsWithItsBases() async throws {
    try await withDerivations { harness, derivations in
      let (one, other) = (try harness.add("a"), try harness.add("b"))
      let stream = try derivations.add("d", of: ["a", "b"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: 1)
      one.send([1], [2])
      one.finish()
      other.finish()
      #expect(try client.events(1) == [[1]])
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 1))
      #expect(try client.events(1) == [[2]])
      harness.eventually { stream.state(showsNames: true).word == "finished" }
      #expect(harness.server.streams["a"]?.log.subscriberCount == 0)
    }
  }

  @Test func aBaseThatBlocksWaitsForItForBlockTimeout() async throws {
    try await withDerivations { harness, derivations in
      let source = try harness.add("base") {
        $0.limits = EventLog.Limits(events: 16)
        $0.overflow = .block(timeout: .seconds(2))
      }
      try derivations.add("d", of: ["base"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("d", credit: 1)
      harness.eventually { harness.server.streams["base"]?.log.subscriberCount == 1 }
      // Six of these are a batch.
      source.send(batch: (0..<100).map { [UInt8](repeating: $0, count: 10_000) })
      #expect(try client.events(1).map(\.first) == [0])
      #expect(source.demand == .none)
      client.send(.requestN(StreamID(1), 49))
      #expect(try client.events(49).map(\.first) == (1..<50).map { $0 }, "nothing was lost")
      #expect(source.demand == .none)
      // Nobody asks: the base goes on after the timeout.
      harness.eventually { source.demand == .max(1) }
      client.send(.requestN(StreamID(1), Self.unlimited))
      var read = 50
      while try client.event().data.first != 99 { read += 1 }
      #expect(read < 99)
    }
  }

  /// A reload may follow another one before the loop has had a turn.
  @Test func aChangeHoldsTheBasesOfASourceThatHasJustBegun() async throws {
    try await withDerivations { harness, derivations in
      _ = try harness.add("base")
      let status = SourceStatus()
      let source = derivations.source("d", of: ["base"], status: status)
      let isFree = DispatchSemaphore(value: 0)
      derivations.loop.execute { isFree.wait() }
      let subscription = source.sink { _ in }
      let holds = status.derivation?.holds() ?? []
      isFree.signal()
      #expect(holds.count == 1)
      for hold in holds { hold.end() }
      subscription.cancel()
    }
  }

  @Test func itShowsTheStateOfItsBase() async throws {
    try await withDerivations { harness, derivations in
      let status = SourceStatus()
      _ = try harness.add("base", status: status)
      let stream = try derivations.add("d", of: ["base"], start: .always)
      harness.eventually { stream.state(showsNames: false).word == "running" }
      var survey = BaseSurvey()
      #expect(survey.finding(on: stream).basesProvedAt == nil)
      status.noteFetch()
      harness.eventually {
        survey = BaseSurvey()
        return survey.finding(on: stream).basesProvedAt == status.fetchedAt
      }
      status.set(.failing("HTTP 503"))
      #expect(stream.state(showsNames: false) == ("failing", "a base is failing"))
      #expect(stream.state(showsNames: true) == ("failing", "\"base\" is failing: HTTP 503"))
    }
  }

  @Test func aPositionSurvivesItsCheckpointAndNoOtherBytesDoHarm() throws {
    let position = DerivedPosition(["a": 1, "home/door": .max, "": 0])
    let bytes = try #require(position.checkpoint).bytes
    #expect(DerivedPosition(Checkpoint(bytes)) == position)
    #expect(DerivedPosition(nil) == nil && DerivedPosition(Checkpoint([])) == nil)
    for count in 0..<bytes.count {
      let part = DerivedPosition(Checkpoint(Array(bytes[..<count])))
      #expect(part.map { $0.positions.allSatisfy { position.positions[$0.key] == $0.value } } ?? true)
    }
    for index in bytes.indices {
      var damaged = bytes
      damaged[index] ^= 0xFF
      _ = DerivedPosition(Checkpoint(damaged))
    }
  }
}
