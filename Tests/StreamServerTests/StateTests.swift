import Events
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// The position `state`: the newest event of each key, then every event.
@Suite struct StateTests {
  private static let unlimited: UInt32 = 0x7FFF_FFFF
  private static let state = #"{"from":"state"}"#

  /// `{"k":"a","v":7,"d":false}`
  private static func event(_ key: String, _ value: Int = 0, isTombstone: Bool = false) -> [UInt8] {
    Array(#"{"k":"\#(key)","v":\#(value),"d":\#(isTombstone)}"#.utf8)
  }

  /// Ids 1000 and so on.
  private func add(
    _ harness: ServerHarness, name: String = "s", events: Int = 1024, keys: Int = 100, firstID: UInt64 = 1000,
    stored: [[UInt8]] = [], _ change: (inout StreamConfiguration) -> Void = { _ in }
  ) throws -> HandFedSource {
    let source = HandFedSource()
    let configuration = Self.configuration(name: name, events: events, keys: keys, change)
    let log = try #require(EventLog(name: name, limits: configuration.limits, firstID: firstID))
    var batch = EventBatch(stored)
    var reader = try #require(EventKeyReader(KeyDefinition(key: ".k", tombstone: ".d")))
    batch.setKeys(reader.keys(of: batch))
    log.append(batch)
    try harness.server.add(configuration, log: log, source: source)
    return source
  }

  private static func configuration(
    name: String = "s", events: Int = 1024, keys: Int = 100,
    _ change: (inout StreamConfiguration) -> Void = { _ in }
  ) -> StreamConfiguration {
    var configuration = StreamConfiguration(name: name, replay: 65536, start: .always)
    configuration.key = KeyDefinition(key: ".k", tombstone: ".d")
    configuration.limits = EventLog.Limits(
      events: events, bytes: 8 << 20,
      state: KeyedState.Settings(keys: keys, bytes: 1 << 20, keyDigest: 1) { event in
        var reader = EventKeyReader(KeyDefinition(key: ".k", tombstone: ".d"))
        return reader?.key(of: event.bindMemory(to: UInt8.self).span)
      })
    change(&configuration)
    return configuration
  }

  private func expect(_ client: WireClient, _ id: UInt64, _ data: [UInt8], leftOut: UInt64? = nil) throws {
    let (metadata, found) = try client.payload()
    let numbers = stride(from: 0, to: metadata.count, by: 8).map { start in
      metadata[start..<start + 8].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    }
    #expect(numbers[0] == id && found == data)
    #expect(numbers.dropFirst(2).first == leftOut)
  }

  @Test func newestEventOfEachKeyPrecedesEveryLaterEvent() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Self.event("a"), Self.event("b"), Self.event("a", 1), Array("no JSON".utf8), Self.event("c"))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited, options: Self.state)
      try expect(client, 1001, Self.event("b"))
      try expect(client, 1002, Self.event("a", 1))
      try expect(client, 1004, Self.event("c"))
      #expect(try client.isSilent())
      source.send(Self.event("a", 2), Array("x".utf8), Self.event("a", 3))
      try expect(client, 1005, Self.event("a", 2))
      try expect(client, 1006, Array("x".utf8))
      try expect(client, 1007, Self.event("a", 3))
    }
  }

  @Test func stateIsThatOfTheBeginningHoweverSlowTheSubscriberIs() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Self.event("a"), Self.event("b"), Self.event("c"))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: Self.state)
      try expect(client, 1000, Self.event("a"))
      #expect(try client.isSilent())
      for (value, key) in ["b", "c", "a", "b", "d"].enumerated() { source.send(Self.event(key, value)) }
      client.send(.requestN(StreamID(1), 1))
      try expect(client, 1001, Self.event("b"))
      client.send(.requestN(StreamID(1), Self.unlimited))
      try expect(client, 1002, Self.event("c"))
      for (value, key) in ["b", "c", "a", "b", "d"].enumerated() {
        try expect(client, UInt64(1003 + value), Self.event(key, value))
      }
    }
  }

  @Test func stateIsReadOnWhereTheLogHasLostTheEventsAfterIt() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 4)
      source.send(Self.event("a"), Self.event("b"), Self.event("c"))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"from":"state","on_lag":"fail"}"#)
      try expect(client, 1000, Self.event("a"))
      for value in 1...20 { source.send(Self.event(value.isMultiple(of: 2) ? "a" : "b", value)) }
      harness.eventually { harness.server.statistics.eventsIn == 23 }
      client.send(.requestN(StreamID(1), Self.unlimited))
      try expect(client, 1001, Self.event("b"))
      try expect(client, 1002, Self.event("c"))
      try expect(client, 1021, Self.event("b", 19))
      try expect(client, 1022, Self.event("a", 20))
      #expect(try client.isSilent())
      source.send(Self.event("c", 21))
      try expect(client, 1023, Self.event("c", 21))
    }
  }

  @Test func tombstoneRemovesAKeyAndIsAnEventForOthers() async throws {
    try await withServer { harness in
      let source = try add(harness)
      let other = try WireClient.ready(harness.path)
      other.subscribe("s", credit: Self.unlimited)
      source.send(Self.event("a"), Self.event("b"), Self.event("a", isTombstone: true))
      try expect(other, 1000, Self.event("a"))
      try expect(other, 1001, Self.event("b"))
      try expect(other, 1002, Self.event("a", isTombstone: true))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited, options: Self.state)
      try expect(client, 1001, Self.event("b"))
      #expect(try client.isSilent())
    }
  }

  @Test func streamWithoutKeysHasNoState() async throws {
    try await withServer { harness in
      _ = try harness.add("plain")
      let client = try WireClient.ready(harness.path)
      for name in ["plain", "$streams"] {
        client.subscribe(name, credit: 1, options: Self.state)
        #expect(try client.receive() == .error(StreamID(1), .invalid, "the stream has no keys, and so no state"))
      }
    }
  }

  @Test func incompleteStateIsRefused() async throws {
    try await withServer { harness in
      let source = try add(harness, keys: 2)
      source.send(Self.event("a"), Self.event("b"), Self.event("c"))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: Self.state)
      let sentence = "the state is incomplete since event 1002: there are more keys than max_keys"
      #expect(try client.receive() == .error(StreamID(1), .invalid, sentence))
    }
  }

  @Test func filterAppliesToTheStateToo() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Self.event("a", 1), Self.event("b", 2), Self.event("c", 3), Self.event("d", 4))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited, options: #"{"from":"state","where":{"/v":{"in":[2,4,6]}}}"#)
      try expect(client, 1001, Self.event("b", 2), leftOut: 1)
      try expect(client, 1003, Self.event("d", 4), leftOut: 1)
      source.send(Self.event("a", 5), Self.event("b", 6))
      try expect(client, 1005, Self.event("b", 6), leftOut: 1)
    }
  }

  @Test func filterThatFitsNothingOfTheStatePassesIt() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Self.event("a", 1), Self.event("b", 2))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 5, options: #"{"from":"state","where":{"/v":9},"marker":true}"#)
      let metadata = try client.payload().metadata
      #expect(Array(metadata[16...]) == [0, 0, 0, 0, 0, 0, 0, 2, 1])
      source.send(Self.event("a", 9))
      #expect(Array(try client.payload().metadata[16...]) == [0, 0, 0, 0, 0, 0, 0, 0, 0])
    }
  }

  @Test func largeEventsOfTheStateAreSentInFragments() async throws {
    try await withServer { harness in
      let source = try add(harness)
      let large = Array(#"{"k":"a","v":""#.utf8) + [UInt8](repeating: 120, count: 300_000) + Array("\"}".utf8)
      source.send(large, Self.event("b"))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: Self.state)
      try expect(client, 1000, large)
      source.send(Self.event("a", 1))
      client.send(.requestN(StreamID(1), 2))
      try expect(client, 1001, Self.event("b"))
      try expect(client, 1002, Self.event("a", 1))
    }
  }

  @Test func largeEventOfAStateIsExaminedOnceForAFilterWhateverReadsIt() async throws {
    try await withServer { harness in
      let source = try add(harness) { $0.type = "application/json" }
      let large = Array(#"{"k":"a","v":""#.utf8) + [UInt8](repeating: 120, count: 500_000) + Array("\"}".utf8)
      source.send(large, Self.event("b"))
      let where_ = #"{"from":"state","where":{"/k":"a"}}"#
      let clients = try (0..<3).map { _ in try WireClient.ready(harness.path) }
      for client in clients {
        client.subscribe("s", credit: 1, options: where_)
        try expect(client, 1000, large, leftOut: 0)
      }
      let other = try HTTPWireClient(harness)
      other.request("GET", "/streams/s?as=ndjson&from=state&follow=0&where=%7B%22/k%22:%22a%22%7D", [])
      #expect(try other.response().text.utf8.elementsEqual(large + [0x0A]))
      let stream = try #require(harness.server.streams["s"])
      #expect(stream.log.read { _, _ in stream.filters.all.map(\.examinationCount) } == [2])
    }
  }

  /// The log's lock is held meanwhile.
  @Test func largeEventOfAStateIsExaminedInSlicesAndThenRemembered() throws {
    let log = try #require(EventLog(name: "s", limits: Self.configuration().limits, firstID: 1000))
    var batch: EventBatch = [
      Array(#"{"k":"a","v":""#.utf8) + [UInt8](repeating: 120, count: 500_000) + Array("\"}".utf8)
    ]
    var reader = try #require(EventKeyReader(KeyDefinition(key: ".k", tombstone: ".d")))
    batch.append(Self.event("b"))
    batch.setKeys(reader.keys(of: batch))
    log.append(batch)
    let state = try #require(log.state)
    let small = try #require(EventKeyReader.keys(namedBy: "b")[0].withUnsafeBytes { state.newest($0) })
    let verdicts = FilterVerdicts(RequestFilter(try EventFilter(.init("/k", .equals("a")))), eventCount: 64)
    let walk = state.walk(asOf: log.endPosition)
    defer { state.finish(walk) }
    var (parts, verdict) = (0, Bool?.none)
    while verdict == nil, parts < 100 {
      var budget = EventBlock.examinedBytes
      parts += 1
      _ = state.advance(walk, atMost: 1) { event, id in
        verdict = verdicts.fits(event, at: id, &budget)
        // Another large event waits for this one, and a small one does not.
        var other = EventBlock.examinedBytes
        #expect(verdict != nil || verdicts.fits(event, at: id + 5, &other) == nil)
        other = EventBlock.examinedBytes
        #expect(verdicts.fits(small, at: id + 1, &other) == false)
        return false
      }
      #expect(budget <= 0)
    }
    #expect(verdict == true && parts == (500_000 + EventBlock.examinedBytes) / EventBlock.examinedBytes)
    _ = state.advance(walk, atMost: 1) { event, id in
      var budget = 1
      #expect(verdicts.fits(event, at: id, &budget) == true)
      return false
    }
    #expect(verdicts.examinationCount == 2)
  }

  @Test func nextProcessReadsOn() async throws {
    try await withTwoServers { first, next in
      let source = try add(first)
      let stored = ["a", "b", "c"].map { Self.event($0) }
      _ = try add(next, stored: stored)  // as if the log had been restored, too
      for event in stored { source.send(event) }
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 1, options: #"{"from":"state","marker":true}"#)
      #expect(try client.payload().data == stored[0])
      try await first.handOver(to: next)
      client.send(.requestN(StreamID(1), Self.unlimited))
      #expect(try client.payload().data == stored[1])
      #expect(try client.payload().data == stored[2])
      #expect(try client.payload().metadata.last == 1)
    }
  }

  /// With tombstones that the subscriber needs, as it may have their keys.
  @Test func nextProcessReadsOnInAStateThatWasRenewed() async throws {
    try await withTwoServers { first, next in
      let source = try add(first, events: 4)
      let events = ["a", "b", "c", "d"].map { Self.event($0) }
      let later = [
        Self.event("a", isTombstone: true), Self.event("e"), Self.event("c", 1), Self.event("f"), Self.event("f", 1),
        Self.event("f", 2),
      ]
      _ = try add(next, events: 4, stored: events + later)  // as if the log had been restored, too
      for event in events { source.send(event) }
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 1, options: #"{"from":"state","marker":true}"#)
      #expect(try client.payload().data == events[0])
      for event in later { source.send(event) }
      first.eventually { first.server.statistics.eventsIn == 10 }
      client.send(.requestN(StreamID(1), 4))
      for event in [events[1], events[2], events[3], later[0]] { #expect(try client.payload().data == event) }
      try await first.handOver(to: next)
      client.send(.requestN(StreamID(1), Self.unlimited))
      for event in [later[1], later[2], later[5]] { #expect(try client.payload().data == event) }
      #expect(try client.payload().metadata.last == 1)
    }
  }

  /// The next log has fewer events than the subscriber has not read: it has missed none of the state.
  @Test func smallerLogThatDropsNothingIsNoGapInAState() async throws {
    try await withTwoServers { first, next in
      func block(_ configuration: inout StreamConfiguration) { configuration.overflow = .block(timeout: nil) }
      let events = ["a", "b", "c"].map { Self.event($0) }
      let later = (1...8).map { Self.event("c", $0) }
      let source = try add(first, events: 16, block)
      let nextSource = try add(next, events: 4, stored: events + later, block)  // as if the log had been restored, too
      for event in events { source.send(event) }
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 1, options: #"{"from":"state","gaps":true}"#)
      try expect(client, 1000, events[0])
      for event in later { source.send(event) }
      first.eventually { first.server.statistics.eventsIn == 11 }
      try await first.handOver(to: next)
      client.send(.requestN(StreamID(1), Self.unlimited))
      for (id, event) in [(1001, events[1]), (1010, later[7])] as [(UInt64, [UInt8])] {
        let (metadata, found) = try client.payload()
        #expect(found == event)
        #expect(metadata.count == 16, "a gap before \(id)")
      }
      // The source does not wait for what the subscriber has read.
      nextSource.send(batch: (9..<100).map { Self.event("c", $0) })
      for value in 9..<100 { #expect(try client.payload().data == Self.event("c", value)) }
    }
  }

  @Test func whoReadsAStateAndStallsTheStreamIsCutOff() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 16) { $0.overflow = .block(timeout: .milliseconds(40)) }
      for key in ["a", "b", "c"] { source.send(Self.event(key)) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: Self.state)
      try expect(client, 1000, Self.event("a"))
      source.send(batch: (0..<100).map { Self.event("c", $0) })
      guard case .error(StreamID(1), ErrorCode(rawValue: 0x301), _) = try client.receive() else {
        Issue.record("not cut off")
        return
      }
      harness.eventually { harness.server.statistics.eventsIn == 103 }
    }
  }

  /// Each event of the state reduces the time as one event does, whatever their ids are.
  @Test(arguments: [(Duration.milliseconds(1), true), (.seconds(2), false)])
  func eventsOfAStateCountOneEachForWhoStallsTheStream(pace: Duration, isCutOff: Bool) async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try add(harness, events: 16) { $0.overflow = .block(timeout: .milliseconds(300), pace: pace) }
      for number in 0..<400 { source.send(Self.event(number.isMultiple(of: 20) ? "\(number)" : "other")) }
      harness.eventually { harness.server.statistics.eventsIn == 400 }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: Self.state)
      try expect(client, 1000, Self.event("0"))
      source.send(batch: (0..<100).map { Self.event("later", $0) })
      var taken = 1
      while taken < 20 {
        let time = EventLoop.monotonicNow() + 60_000_000
        harness.eventually { EventLoop.monotonicNow() > time || client.hasInput }
        client.send(.requestN(StreamID(1), 1))
        guard case .payload = try client.receive() else { break }
        taken += 1
      }
      #expect((taken < 20) == isCutOff)
    }
  }

  @Test func lossOfTheLogInARestartEndsWhoReadsTheState() async throws {
    try await withTwoServers { first, next in
      let source = try add(first)
      for key in ["a", "b", "c"] { source.send(Self.event(key)) }
      _ = try add(next, firstID: 2000)
      let client = try WireClient.ready(first.path)
      client.subscribe("s", credit: 1, options: Self.state)
      try expect(client, 1000, Self.event("a"))
      try await first.handOver(to: next)
      client.send(.requestN(StreamID(1), Self.unlimited))
      guard case .error(StreamID(1), .canceled, let message)? = try client.receive() else {
        Issue.record("it goes on")
        return
      }
      #expect(message == #"the rest of the state of "s" is lost: subscribe again"#)
    }
  }

  @Test func reloadWithAnotherBufferKeepsTheTombstonesForThoseWhoReadTheState() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 4)
      source.send(Self.event("a"), Self.event("b"), Self.event("c"))
      let clients = try (0..<2).map { _ in try WireClient.ready(harness.path) }
      for client in clients {
        client.subscribe("s", credit: 1, options: Self.state)
        try expect(client, 1000, Self.event("a"))
      }
      source.send(Self.event("a", isTombstone: true))
      harness.eventually { harness.server.statistics.eventsIn == 4 }
      let changed = Self.configuration { $0.limits.events = 3 }
      let change = StreamChange(changed) { old in
        try #require(EventLog(name: "s", limits: changed.limits, takingOver: old))
      }
      #expect(harness.server.change([change], removing: []).isEmpty)
      for value in 1...9 { source.send(Self.event("c", value)) }
      harness.eventually { harness.server.statistics.eventsIn == 13 }
      for client in clients {
        client.send(.requestN(StreamID(1), Self.unlimited))
        try expect(client, 1001, Self.event("b"))
        try expect(client, 1003, Self.event("a", isTombstone: true))
        try expect(client, 1012, Self.event("c", 9))
      }
    }
  }

  @Test func reloadThatChangesTheKeyEndsWhoReadsTheState() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Self.event("a"), Self.event("b"))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: Self.state)
      try expect(client, 1000, Self.event("a"))
      let changed = Self.configuration { configuration in
        configuration.key = nil
        configuration.limits.state = nil
      }
      let change = StreamChange(changed) { old in
        try #require(EventLog(name: "s", limits: changed.limits, takingOver: old))
      }
      #expect(harness.server.change([change], removing: []).isEmpty)
      client.send(.requestN(StreamID(1), 1))
      guard case .error(StreamID(1), .canceled, _)? = try client.receive() else {
        Issue.record("it goes on")
        return
      }
    }
  }

  @Test func partOfAnEventThatIsReplacedAndGoneEndsTheSubscription() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 4)
      func large(_ letter: UInt8) -> [UInt8] {
        Array(#"{"k":"a","v":""#.utf8) + [UInt8](repeating: letter, count: 500_000) + Array("\"}".utf8)
      }
      source.send(large(120))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited, options: Self.state)
      harness.eventually { harness.server.statistics.bytesOut > 100_000 }
      for letter in 97...104 as ClosedRange<UInt8> { source.send(large(letter)) }
      harness.eventually { harness.server.statistics.eventsIn == 9 }
      var last: Frame?
      while let frame = try client.receive() {
        last = frame
        if case .error = frame { break }
      }
      #expect(last == .error(StreamID(1), .canceled, #"the rest of the state of "s" is lost: subscribe again"#))
    }
  }

  @Test func incompleteStateIsListedAndReportedOnce() async throws {
    try await withServer { harness in
      let source = try add(harness, keys: 2)
      func entry() -> CatalogueEntry? { harness.server.streams["s"]?.summary(showsNames: true) }
      source.send(Self.event("a"), Self.event("b"))
      harness.eventually { entry()?.keys == 2 }
      #expect(entry()?.incompleteSince == nil)
      for key in ["c", "d", "e"] { source.send(Self.event(key)) }
      harness.eventually { entry()?.incompleteSince == 1002 }
      let sentence = "the state is incomplete since event 1002: there are more keys than max_keys"
      #expect(entry()?.message == sentence)
      let larger = Self.configuration(keys: 10)
      let change = StreamChange(larger) { old in
        try #require(EventLog(name: "s", limits: larger.limits, takingOver: old))
      }
      #expect(harness.server.change([change], removing: []).isEmpty)
      harness.eventually { entry()?.incompleteSince == nil }
      let lacks = harness.reports.compactMap { report in
        if case .stateIncomplete("s", let lack) = report { lack } else { nil }
      }
      let isComplete = harness.reports.contains { if case .stateComplete("s") = $0 { true } else { false } }
      #expect(lacks == [.init(since: 1002, cause: .keys)] && isComplete)
    }
  }

  @Test func newestEventOfAKeyHasATag() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 2)
      let number = Array(#"{"k":1.50,"v":1}"#.utf8)
      source.send(Self.event("a"), Self.event("b"), number, Self.event("true"), Self.event("a", 1))
      source.send(Self.event("x"), Self.event("x", isTombstone: true), Self.event("new york"))
      let client = try HTTPWireClient(harness)
      func get(_ key: String, _ fields: [String] = []) throws -> (status: Int, text: String, tag: String?) {
        client.request("GET", "/streams/s?key=\(key)", fields)
        let response = try client.response()
        return (response.status, response.text, response["ETag"])
      }
      let a = try get("a")
      #expect(a.status == 200 && Array(a.text.utf8) == Self.event("a", 1) && a.tag == "\"1004\"")
      #expect(try get("a", ["If-None-Match: \"1004\""]).status == 304)
      #expect(try get("a", ["If-None-Match: \"1000\""]).status == 200)
      for name in ["1.5", "15e-1"] { #expect(try get(name).text == #"{"k":1.50,"v":1}"#) }
      // A string, because no event has the boolean.
      #expect(try get("true").text.utf8.elementsEqual(Self.event("true")))
      #expect(try get("%22a%22").tag == "\"1004\"")
      for name in ["new%20york", "new+york"] { #expect(try get(name).tag == "\"1007\"") }
      for name in ["x", "c", "%221.5%22", "", "%22a"] { #expect(try get(name).status == 404) }
      client.request("GET", "/streams/s?key=a&from=state", [])
      #expect(try client.response().status == 400)
    }
  }

  @Test func largeEventOfAKeyIsSentFromTheState() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 2)
      let large = Array(#"{"k":"a","v":""#.utf8) + [UInt8](repeating: 120, count: 300_000) + Array("\"}".utf8)
      source.send(large, Self.event("b"), Self.event("c"), Self.event("d"))
      let client = try HTTPWireClient(harness)
      harness.eventually { harness.server.statistics.eventsIn == 4 }
      for _ in 0..<2 {
        client.request("GET", "/streams/s?key=a", [])
        let response = try client.response()
        #expect(response.status == 200 && response.text.utf8.elementsEqual(large))
      }
    }
  }

  @Test func responseBeginsWithTheState() async throws {
    try await withServer { harness in
      let source = try add(harness)
      source.send(Self.event("a"), Self.event("b"), Self.event("a", 1))
      let client = try HTTPWireClient(harness)
      client.request("GET", "/streams/s?as=ndjson&from=state&follow=0", [])
      let text = try client.response().text
      #expect(
        text == [Self.event("b"), Self.event("a", 1)].map { String(decoding: $0, as: UTF8.self) + "\n" }.joined())
    }
  }

  @Test func responseContinuesWithTheStateWhereTheLogHasLostTheEvents() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 4)
      for (value, key) in ["a", "b", "c", "d", "b", "b", "b", "b"].enumerated() { source.send(Self.event(key, value)) }
      harness.eventually { harness.server.statistics.eventsIn == 8 }
      func ids(_ query: String) throws -> (ids: [String], hasGap: Bool, before: String?) {
        let client = try HTTPWireClient(harness)
        client.request("GET", "/streams/s?as=sse&follow=0&from=state\(query)", [])
        let response = try client.response()
        let ids = response.text.split(separator: "\n").filter { $0.hasPrefix("id: ") }.map { String($0.dropFirst(4)) }
        return (ids, response.text.contains("event: gap\ndata: {\"lost\":null}\n\n"), response["Last-Event-ID"])
      }
      #expect(try ids("") == (["1000", "1002", "1003", "1007"], false, nil))
      #expect(try ids("&lastEventID=1000") == (["1002", "1003", "1007"], false, "1000"))
      // The log has what follows.
      #expect(try ids("&lastEventID=1003") == (["1004", "1005", "1006", "1007"], false, "1003"))
      #expect(try ids("&lastEventID=2000") == (["1000", "1002", "1003", "1007"], true, nil))
      #expect(try ids("&lastEventID=\(UInt64.max)") == (["1000", "1002", "1003", "1007"], true, nil))
      // A key that the client may have is gone.
      source.send(Self.event("d", isTombstone: true))
      harness.eventually { harness.server.statistics.eventsIn == 9 }
      #expect(try ids("&lastEventID=1000") == (["1000", "1002", "1007"], true, nil))
    }
  }

  /// A gap before the first event means that the whole state follows: a client forgets the keys that it has.
  @Test func responseContinuesWithTheStateOverAHoleInTheIDs() async throws {
    try await withServer { harness in
      let configuration = Self.configuration()
      let log = try #require(EventLog(name: "s", limits: configuration.limits, followsFleet: true))
      var reader = try #require(EventKeyReader(KeyDefinition(key: ".k", tombstone: ".d")))
      for (first, keys) in [(1000, ["a", "b"]), (1010, ["a", "c"])] as [(UInt64, [String])] {
        var batch = EventBatch(keys.map { Self.event($0) })
        batch.setKeys(reader.keys(of: batch))
        #expect(batch.setStamps(try #require(EventStamps(firstID: first, time: 7, position: [1]))))
        log.append(batch)
      }
      try harness.server.add(configuration, log: log, source: HandFedSource())
      for (position, expected) in [(1000, [1001, 1010, 1011]), (1001, [1010, 1011]), (1005, [1010, 1011])] {
        let client = try HTTPWireClient(harness)
        client.request("GET", "/streams/s?as=sse&follow=0&from=state&lastEventID=\(position)", [])
        let text = try client.response().text
        let ids = text.split(separator: "\n").filter { $0.hasPrefix("id: ") }.compactMap { Int($0.dropFirst(4)) }
        #expect(ids == expected)
        #expect(position == 1000 || !text.contains("event: gap"))
      }
    }
  }

  @Test func theCatalogueSaysWhereTheKeysAre() async throws {
    try await withServer { harness in
      _ = try add(harness)
      _ = try harness.add("t")
      let client = try HTTPWireClient(harness)
      client.get("/streams")
      let text = try client.response().text
      #expect(text.contains(#""key":"/k""#) && text.contains(#""tombstone":"/d""#) && text.contains(#""keys":0"#))
      #expect(text.split(separator: "\"key\"").count == 2)
    }
  }

  @Test func positionIsZeroInAStateOfWhichNothingWasSent() async throws {
    try await withServer { harness in
      for name in ["s", "t"] { _ = try add(harness, name: name, stored: [Self.event("a"), Self.event("b")]) }
      func ids(_ query: String) throws -> [String] {
        let client = try HTTPWireClient(harness)
        client.request("GET", "/streams/s,t?as=sse&follow=0&from=state\(query)", [])
        let text = try client.response().text
        #expect(!text.contains("event: gap"))
        return text.split(separator: "\n").filter { $0.hasPrefix("id: ") }.map { String($0.dropFirst(4)) }
      }
      #expect(try ids("") == ["1000,0", "1001,0", "1001,1000", "1001,1001"])
      #expect(try ids("&lastEventID=1001,0") == ["1001,1000", "1001,1001"])
    }
  }

  @Test func responseBeginsAgainWithTheStateOfAnotherLog() async throws {
    try await withServer { harness in
      _ = try add(harness, firstID: 2000, stored: [Self.event("a")])
      let client = try HTTPWireClient(harness)
      client.request("GET", "/streams/s?as=sse&follow=0&from=state&lastEventID=1000", [])
      let text = try client.response().text
      #expect(text.contains("event: gap\ndata: {\"lost\":null}\n\nid: 2000\n"))
    }
  }

  @Test func stateIsRefusedAfterItsKeysWereChangedWithoutAnotherLog() async throws {
    struct Full: Error {}
    try await withServer { harness in
      let source = try add(harness)
      source.send(Self.event("a"))
      let changed = Self.configuration { configuration in
        configuration.key = KeyDefinition(key: ".v")
        configuration.limits.state = KeyedState.Settings(keyDigest: 2)
      }
      #expect(harness.server.change([StreamChange(changed) { _ in throw Full() }], removing: []).count == 1)
      source.send(Self.event("a", 1))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: Self.state)
      guard case .error(StreamID(1), .invalid, let message)? = try client.receive() else {
        Issue.record("it is served")
        return
      }
      #expect(message == "the state is incomplete since event 1001: events were lost")
    }
  }

  /// A definition that is more than paths: the events bring their keys.
  private static func programConfiguration(events: Int, digest: UInt64) -> StreamConfiguration {
    configuration(events: events) { configuration in
      configuration.key = KeyDefinition(key: digest == 1 ? ".k | ." : ".l | .")
      configuration.overflow = .block(timeout: nil)
      configuration.limits.state = KeyedState.Settings(keys: 100, bytes: 1 << 20, keyDigest: digest)
    }
  }

  private static func keyed(_ keys: String...) -> EventBatch {
    var batch = EventBatch(keys.map { event($0) })
    batch.setKeys(keys.reduce(into: EventKeys(definition: 1)) { $0.append(EventKey(Array($1.utf8))) })
    return batch
  }

  @Test(arguments: [1, 2] as [UInt64]) func eventsThatWaitKeepTheirKeysOverAHandover(digest: UInt64) async throws {
    try await withTwoServers { first, next in
      let source = HandFedSource()
      let former = Self.programConfiguration(events: 4, digest: 1)
      let log = try #require(EventLog(name: "s", limits: former.limits, firstID: 1000))
      try first.server.add(former, log: log, source: source)
      let later = Self.programConfiguration(events: 16, digest: digest)
      let nextLog = try #require(EventLog(name: "s", limits: later.limits, firstID: 1005))
      try next.server.add(later, log: nextLog, source: HandFedSource())
      let slow = try WireClient.ready(first.path)
      slow.subscribe("s", credit: 1)
      first.eventually { first.server.statistics.subscribers == 1 }
      source.send(batch: Self.keyed("a", "b", "c", "d", "e"))
      try expect(slow, 1000, Self.event("a"))
      source.send(batch: Self.keyed("f", "g"))
      try await first.handOver(to: next)
      let found = next.server.streams["s"]?.log.read { storage, _ in
        [Int(storage.endPosition), storage.state?.count ?? 0]
      }
      #expect(found == [1007, digest == 1 ? 2 : 0])
    }
  }

  @Test(arguments: [1, 2] as [UInt64]) func eventsThatWaitKeepTheirKeysOverAReload(digest: UInt64) async throws {
    try await withServer { harness in
      let source = HandFedSource()
      let former = Self.programConfiguration(events: 4, digest: 1)
      let log = try #require(EventLog(name: "s", limits: former.limits, firstID: 1000))
      try harness.server.add(former, log: log, source: source)
      let slow = try WireClient.ready(harness.path)
      slow.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(batch: Self.keyed("a", "b", "c", "d", "e"))
      try expect(slow, 1000, Self.event("a"))
      source.send(batch: Self.keyed("f", "g"))
      let later = Self.programConfiguration(events: 16, digest: digest)
      let change = StreamChange(later) { old in
        try #require(EventLog(name: "s", limits: later.limits, takingOver: old))
      }
      #expect(harness.server.change([change], removing: []).isEmpty)
      harness.eventually { harness.server.statistics.eventsIn == 7 }
      let count = harness.server.streams["s"]?.log.read { storage, _ in storage.state?.count }
      #expect(count == (digest == 1 ? 7 : 0))
    }
  }

  @Test func manyReplacedVersionsArePassed() async throws {
    try await withServer { harness in
      let source = try add(harness, events: 10_000)
      source.send(Self.event("a"), Self.event("b"))
      let slow = try WireClient.ready(harness.path)
      slow.subscribe("s", credit: 1, options: Self.state)
      try expect(slow, 1000, Self.event("a"))
      source.send(batch: EventBatch((0..<5000).map { Self.event("a", $0) }))
      source.send(Self.event("c"))
      harness.eventually { harness.server.statistics.eventsIn == 5003 }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: Self.unlimited, options: Self.state)
      try expect(client, 1001, Self.event("b"))
      try expect(client, 6001, Self.event("a", 4999))
      try expect(client, 6002, Self.event("c"))
    }
  }

  /// Large events are examined in slices: readers at different events do not take the slices from each other.
  @Test func largeEventsThatTheLogHasLostAreExaminedSideBySide() throws {
    let log = try #require(EventLog(name: "s", limits: EventLog.Limits(events: 2), firstID: 1000))
    let verdicts = ContentVerdicts()
    let slices = 4
    let text = [UInt8](repeating: 0x20, count: slices * ContentVerdicts.sliceByteCount - 1) + [0x31]
    let record = [UInt8](repeating: 0, count: EventLog.stampBytes) + text
    for slice in 1...slices {
      for id in 1...3 as ClosedRange<UInt64> {
        let verdict = record.withUnsafeBytes { verdicts.holds(.json, for: $0, at: id, in: log) }
        #expect(verdict == (slice == slices ? true : nil))
      }
    }
  }

  /// Whatever is granted, evicted and replaced: at a marker a subscriber has the state as of its id, and no id comes twice.
  @Test(arguments: seeds(40)) func foldOfWhatIsReceivedIsTheState(seed: UInt64) async throws {
    try await withServer { harness in
      var random = SplitMix64(seed)
      let source = try add(harness, events: 8)
      let clients = try (0..<6).map { _ in try WireClient.ready(harness.path) }
      var (events, nextID) = ([UInt64: (key: String, data: [UInt8], isTombstone: Bool)](), UInt64(1000))
      var last = [UInt64](repeating: 0, count: clients.count)
      var folds = [[String: [UInt8]]](repeating: [:], count: clients.count)
      var hasGap = [Bool](repeating: false, count: clients.count)
      var markers = 0
      func send(_ count: Int) {
        let batch = (0..<count).map { _ in
          (key: "k\(random.next() % 12)", value: Int(random.next() % 1000), isTombstone: random.next() % 5 == 0)
        }
        for event in batch {
          let data = Self.event(event.key, event.value, isTombstone: event.isTombstone)
          events[nextID] = (event.key, data, event.isTombstone)
          nextID += 1
        }
        source.send(batch: EventBatch(batch.map { Self.event($0.key, $0.value, isTombstone: $0.isTombstone) }))
      }
      func takeAll() throws {
        for (index, client) in clients.enumerated() {
          while client.hasInput {
            let (metadata, data) = try client.payload()
            let id = metadata.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
            if metadata.count > 17 { hasGap[index] = true }  // it fell behind in the log
            guard metadata.last == 1 else {
              let event = try #require(events[id])
              #expect(id > last[index] && event.data == data)
              folds[index][event.key] = event.isTombstone ? nil : data
              last[index] = id
              continue
            }
            markers += 1
            var truth: [String: [UInt8]] = [:]
            for (_, event) in events.filter({ $0.key <= id }).sorted(by: { $0.key < $1.key }) {
              truth[event.key] = event.isTombstone ? nil : event.data
            }
            #expect(hasGap[index] || folds[index] == truth)
          }
        }
      }
      send(30)
      for client in clients {
        client.subscribe(
          "s", credit: UInt32(random.next() % 4 + 1), options: #"{"from":"state","marker":true,"gaps":true}"#)
      }
      harness.eventually { harness.server.statistics.subscribers == clients.count }
      for _ in 0..<60 {
        if random.next() % 2 == 0 { send(Int(random.next() % 3) + 1) }
        for client in clients where random.next() % 3 == 0 {
          client.send(.requestN(StreamID(1), UInt32(random.next() % 3 + 1)))
        }
        try takeAll()
      }
      for client in clients { client.send(.requestN(StreamID(1), Self.unlimited)) }
      harness.eventually {
        try? takeAll()
        return markers >= clients.count
      }
    }
  }

  // MARK: The newest event of one key

  @Test func aRequestForOneValueMayBeForAKey() async throws {
    try await withServer { harness in
      let source = try add(harness)
      let numbers = #"{"k":5,"v":"number"}"#, text = #"{"k":"5","v":"text"}"#
      source.send(Self.event("a"), Self.event("b", 1), Self.event("a", 2), Array(numbers.utf8), Array(text.utf8))
      source.send(Self.event("c"), Self.event("c", isTombstone: true))
      let client = try WireClient.ready(harness.path)
      for (key, id, data) in [
        ("a", 1002, Self.event("a", 2)), (#"\"b\""#, 1001, Self.event("b", 1)), ("5.0", 1003, Array(numbers.utf8)),
        (#"\"5\""#, 1004, Array(text.utf8)),
      ] as [(String, UInt64, [UInt8])] {
        client.get("s", options: #"{"key":"\#(key)"}"#)
        guard case .payload(_, let payload, _, true, true)? = try client.receive() else { throw WireClient.Silence() }
        #expect(payload.data == data && payload.metadata?.prefix(8).reduce(0) { $0 << 8 | UInt64($1) } == id)
      }
      client.get("s", options: #"{"key":"a","ids":false}"#)
      guard case .payload(_, let bare, _, true, true)? = try client.receive() else { throw WireClient.Silence() }
      #expect(bare.metadata?.isEmpty ?? true)
      for key in ["c", "d", "", "null"] {
        client.get("s", options: #"{"key":"\#(key)"}"#)
        #expect(try client.receive() == .error(StreamID(1), .rejected, "no event of \"s\" has this key"))
      }
      #expect(try client.isSilent())
    }
  }

  @Test func aRequestForAKeyRequiresOneValueAndKeys() async throws {
    try await withServer { harness in
      _ = try add(harness)
      try harness.add("plain").send([1])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 1, options: #"{"key":"a"}"#)
      #expect(
        try client.receive() == .error(StreamID(1), .invalid, "option \"key\" is for a request for one value"))
      client.get("s", options: #"{"key":1}"#)
      #expect(try client.receive() == .error(StreamID(1), .invalid, "option \"key\" must be a string"))
      client.get("plain", options: #"{"key":"a"}"#)
      #expect(try client.receive() == .error(StreamID(1), .invalid, "the stream has no keys, and so no state"))
    }
  }

  @Test func theNewestEventOfAKeyIsWholeHoweverLargeItIs() async throws {
    try await withServer { harness in
      let source = try add(harness)
      let large = Array(#"{"k":"a","v":"\#(String(repeating: "x", count: 200_000))"}"#.utf8)
      source.send(large, Self.event("b"))
      let client = try WireClient.ready(harness.path)
      client.get("s", options: #"{"key":"a"}"#)
      #expect(try client.event().data == large)
    }
  }
}
