import Events
import Glibc
import HTTP
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Requests for all streams that a pattern fits.
@Suite struct PatternTests {
  private static func isText(_ configuration: inout StreamConfiguration) {
    (configuration.type, configuration.replay) = ("text/plain", 100)
  }

  /// What comes with an event for the option `names`.
  struct Named: Equatable {
    let name: String
    let position: UInt64
    let gap: UInt64
    let id: UInt64
    let time: UInt64
    let isMarker: Bool

    init(_ metadata: [UInt8], hasKind: Bool = false) {
      func number(_ offset: Int) -> UInt64 { metadata[offset..<offset + 8].reduce(0) { $0 << 8 | UInt64($1) } }
      let start = hasKind ? 25 : 24
      (id, time, gap, position) = (number(0), number(8), number(16), number(start))
      isMarker = hasKind && metadata[24] == 1
      name = String(decoding: metadata[(start + 9)...], as: UTF8.self)
      #expect(Int(metadata[start + 8]) == name.utf8.count)
    }
  }

  /// Events of a response until this number has come, without chunks that have none.
  private static func events(_ client: HTTPWireClient, _ count: Int) throws -> [ParsedEvent] {
    var events: [ParsedEvent] = []
    while events.count < count {
      guard let text = try client.chunkText(), !text.isEmpty else { break }
      events += ParsedEvent.all(in: text)
    }
    return events
  }

  private static func subscribers(_ harness: ServerHarness, _ name: String) -> Int {
    harness.server.streams[name]?.log.subscriberCount ?? -1
  }

  // MARK: Which streams

  @Test(arguments: ["as=sse", "as=ndjson&ids=1", "as=json-seq&ids=1"])
  func aPatternHasTheEventsOfTheStreamsThatThereAreAndOfLaterOnes(query: String) async throws {
    try await withServer { harness in
      let a = try harness.add("s/a", Self.isText)
      let other = try harness.add("t/a", Self.isText)
      a.send([65])
      other.send([66])
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/*?\(query)")
      let head = try #require(try client.head())
      #expect(head.status == 200 && head["Last-Event-ID"] == nil)
      func next() throws -> String {
        while true {
          let text = try #require(try client.chunkText())
          if !text.hasPrefix("retry") { return text }
        }
      }
      #expect(try next().contains("s/a"))
      let later = try harness.add("s/b/c", Self.isText)
      // Also the events before the client has joined the stream, and more of them than its replay.
      later.send([67])
      let text = try next()
      #expect(text.contains("s/b/c") && text.contains("C"), "\(text)")
      a.send([68])
      #expect(try next().contains("s/a"))
      #expect(Self.subscribers(harness, "t/a") == 0 && Self.subscribers(harness, "s/b/c") == 1)
    }
  }

  @Test func readersThatBeginOneAfterTheOtherHaveTheStreamsThatCameBetween() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      for index in 0..<20 {
        let source = try harness.add("s/\(index)", Self.isText)
        source.send([UInt8(index)])
        let client = try WireClient.ready(harness.path)
        client.subscribe("s/*", credit: 100, options: #"{"from":"replay"}"#)
        #expect(try client.events(index + 1).map { $0[0] }.sorted() == (0...UInt8(index)).map { $0 })
      }
    }
  }

  @Test func aLaterStreamBeginsWithItsFirstEventWhateverItsReplayIs() async throws {
    try await withServer { harness in
      let client = try WireClient.ready(harness.path)
      client.subscribe("*", credit: 100, options: #"{"from":"new"}"#)
      #expect(try client.isSilent())
      for index in 0..<20 {
        let source = try harness.add("s/\(index)") { ($0.replay, $0.type) = (0, "text/plain") }
        source.send([UInt8(index)], [UInt8(index)])
      }
      let events = try client.events(40)
      #expect(events.map { $0[0] }.sorted() == (0..<40).map { UInt8($0 / 2) })
    }
  }

  @Test func streamsThatAClientMayNotReadAreAbsentUntilAReloadAdmitsIt() async throws {
    try await withServer { harness in
      let open = try harness.add("s/open", Self.isText)
      let closed = try harness.add("s/closed") {
        Self.isText(&$0)
        $0.read = AccessRules([.user(0)])
      }
      closed.send([1])
      let client = try WireClient(harness.server, user: 4711)
      client.subscribe("s/*", credit: 100)
      open.send([2])
      #expect(try client.event().data == [2])
      #expect(try client.isSilent())
      var configuration = try #require(harness.server.streams["s/closed"]).configuration
      configuration.read = AccessRules()
      _ = harness.server.change([StreamChange(configuration)], removing: [])
      harness.eventually { Self.subscribers(harness, "s/closed") == 1 }
      closed.send([3])
      #expect(try client.event().data == [3])
      configuration.read = AccessRules([.user(0)])
      _ = harness.server.change([StreamChange(configuration)], removing: [])
      #expect(Self.subscribers(harness, "s/closed") == 0)
      open.send([4])
      #expect(try client.event().data == [4])
    }
  }

  @Test func aStreamThatEndsLeavesAndThePatternGoesOn() async throws {
    try await withServer { harness in
      let sources = try ["a", "b", "c", "d"].map { try harness.add("s/\($0)", Self.isText) }
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/*")
      #expect(try client.head()?.status == 200)
      harness.eventually { harness.server.statistics.subscribers == 4 }
      _ = harness.server.change([], removing: ["s/a"])
      sources[1].finish()
      sources[2].finish(.failure(StreamFailure("broken")))
      harness.eventually { harness.server.statistics.subscribers == 1 }
      sources[3].send([68])
      #expect(try Self.events(client, 1).map(\.type) == ["s/d"])
      // The name is that of another stream now.
      let again = try harness.add("s/a", Self.isText)
      again.send([69])
      #expect(try Self.events(client, 1).map(\.type) == ["s/a"])
    }
  }

  @Test func aStreamWhoseTypeTheFormatCannotHaveIsAbsentAndComesWithAnotherType() async throws {
    try await withServer { harness in
      let (text, binary) = (try harness.add("s/t", Self.isText), try harness.add("s/b") { $0.type = "image/png" })
      binary.send([0])
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/*?as=sse")
      text.send([65])
      #expect(try client.head()?.status == 200)
      #expect(try Self.events(client, 1).map(\.type) == ["s/t"])
      #expect(Self.subscribers(harness, "s/b") == 0)
      var configuration = try #require(harness.server.streams["s/b"]).configuration
      configuration.type = "text/plain"
      _ = harness.server.change([StreamChange(configuration)], removing: [])
      harness.eventually { Self.subscribers(harness, "s/b") == 1 }
      binary.send([66])
      #expect(try Self.events(client, 1).map(\.type) == ["s/b"])
    }
  }

  @Test func aPatternUsesTheStreamsOfTemplatesAndMakesNone() async throws {
    try await withServer { harness in
      let maker = TestMaker(harness.server, published: true) { _ in (AccessRules(), .owner) }
      let letters = NameTemplate.Parameter(characters: NameCharacters("a-z") ?? .all, length: 20)
      let template = StreamTemplate(
        try NameTemplate("s/{x}", parameters: ["x": letters]), limit: 1, forgetTime: nil, source: "publish",
        takesValues: true, shownTo: AccessRules(), accessWaits: false
      ) { _ in (AccessRules(), .owner) }
      maker.queue.sync { harness.server.setTemplates([template], maker: maker) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/*", credit: 100)
      #expect(try client.isSilent() && harness.server.userStreams.isEmpty)
      func post(_ name: String, _ value: String) throws -> Int {
        let http = try HTTPWireClient(harness)
        http.post("/streams/\(name)", value)
        return try http.response().status
      }
      #expect(try post("s/a", "1") == 200)
      #expect(try client.event().data == Array("1".utf8))
      // The only stream of the template is in use.
      #expect(try post("s/b", "2") == 503)
      client.send(.cancel(StreamID(1)))
      harness.eventually { Self.subscribers(harness, "s/a") == 0 }
      #expect(try post("s/b", "2") == 200)
    }
  }

  @Test func followZeroEndsAfterTheEventsThatThereAre() async throws {
    try await withServer { harness in
      for name in ["a", "b", "c"] { try harness.add("s/\(name)", Self.isText).send([65], [66]) }
      _ = try harness.add("s/empty", Self.isText)
      func fetch(_ target: String) throws -> [ParsedEvent] {
        let response = try HTTPWireClient(harness).fetch(target)
        #expect(response.status == 200 && response.isComplete)
        return ParsedEvent.all(in: response.text)
      }
      let events = try fetch("/streams/s/*?follow=0")
      #expect(events.dropLast().map(\.type).sorted() == ["s/a", "s/a", "s/b", "s/b", "s/c", "s/c"])
      #expect(try fetch("/streams/s/*?follow=0&last=1").dropLast().map(\.data) == ["B", "B", "B"])
      #expect(try fetch("/streams/s/%2A?follow=0&from=new").map(\.type) == ["end"])
      #expect(try fetch("/streams/nothing/*?follow=0").map(\.type) == ["end"])
      #expect(try fetch("/streams/s/*?follow=0&marker=1&from=new").map(\.type) == ["caught-up", "end"])
    }
  }

  // MARK: Positions

  @Test func aResponseResumesAtATimeAndMissesNothing() async throws {
    try await withServer { harness in
      let sources = try (0..<3).map { try harness.add("s/\($0)", Self.isText) }
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/*?from=new")
      #expect(try client.head()?.status == 200)
      harness.eventually { harness.server.statistics.subscribers == 3 }
      var seen: [ParsedEvent] = []
      for index in 0..<9 {
        sources[index % 3].send([UInt8(48 + index)])
        seen += try Self.events(client, 1)
        usleep(10)
      }
      #expect(seen.map(\.data) == (0..<9).map { "\($0)" })
      let ids = seen.compactMap { $0.id.flatMap { UInt64($0) } }
      #expect(ids.count == 9 && ids == ids.sorted(), "\(ids)")
      for index in 0..<9 {
        let again = try HTTPWireClient(harness)
        again.get("/streams/s/*?follow=0", "Last-Event-ID: \(seen[index].id ?? "")")
        let data = ParsedEvent.all(in: try again.response().text).dropLast().map(\.data).sorted()
        // The event of that very microsecond comes again.
        #expect(
          data.suffix(8 - index) == (index + 1..<9).map { "\($0)" } && data.count == 9 - index, "\(index) \(data)")
      }
    }
  }

  @Test func aPositionIsBeforeEachEventThatWasNotSent() async throws {
    try await withServer { harness in
      let sources = try (0..<10).map { try harness.add("s/\($0)", Self.isText) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/*", credit: 1, options: #"{"names":true,"from":"new"}"#)
      harness.eventually { harness.server.statistics.subscribers == 10 }
      for round in 0..<10 { for source in sources { source.send([UInt8(round)]) } }
      var times: [String: [UInt64]] = [:]
      for (name, stream) in harness.server.userStreams.map({ ($0.name, $0) }) {
        times[name] = stream.log.read { log, _ in (log.firstPosition..<log.endPosition).map { log.time(of: $0) } }
      }
      for count in 0..<100 {
        let named = Named(try client.payload().metadata)
        #expect(times[named.name]?.removeFirst() == named.time)
        // 0: as at the beginning.
        let unsent = times.values.joined().filter { $0 < named.position }
        #expect(unsent.isEmpty, "\(count) \(named.position)")
        if count == 99 { #expect(named.position > 0 && named.position <= named.time) }
        client.send(.requestN(StreamID(1), 1))
      }
    }
  }

  @Test func aClientWithoutAPositionBeginsAnewAndGetsTheReplayOfAllStreams() async throws {
    try await withServer { harness in
      for index in 0..<3 { try harness.add("s/\(index)", Self.isText).send([65]) }
      usleep(1000)
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/*")
      #expect(try client.head()?.status == 200)
      let events = try Self.events(client, 3)
      // Only after the last of them does the client have all.
      #expect(events.dropLast().allSatisfy { $0.id == nil })
      let position = try #require(events.last?.id.flatMap { UInt64($0) })
      #expect(position > 0)
      let again = try HTTPWireClient(harness)
      again.get("/streams/s/*?follow=0", "Last-Event-ID: \(position)")
      #expect(ParsedEvent.all(in: try again.response().text).map(\.type) == ["end"])
    }
  }

  @Test func aPositionFromWhichEventsMayBeGoneIsAGap() async throws {
    try await withServer { harness in
      let source = try harness.add("s/a") {
        Self.isText(&$0)
        $0.limits = .init(events: 2, bytes: 4096)
      }
      source.send([65], [66], [67])
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/*?follow=0", "Last-Event-ID: 1000")
      let events = ParsedEvent.all(in: try client.response().text)
      #expect(events.map(\.type) == ["gap", "s/a", "s/a", "end"])
      #expect(events[0].data == #"{"lost":null,"stream":"s/a"}"#)
    }
  }

  @Test func eventsThatASecondHoleHasEvictedMayBeGone() async throws {
    try await withServer { harness in
      let source = try harness.add("s/a", Self.isText)
      source.send([65])
      for byte in [66, 67] as [UInt8] {
        var batch = EventBatch([[byte]])
        batch.loss = .known(5)
        source.send(batch: batch)
      }
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/*?follow=0", "Last-Event-ID: 1000")
      let events = ParsedEvent.all(in: try client.response().text)
      #expect(events.first?.type == "gap" && events.first?.data == #"{"lost":null,"stream":"s/a"}"#, "\(events)")
    }
  }

  // MARK: Credit

  @Test func oneCreditIsForAllStreams() async throws {
    try await withServer { harness in
      let sources = try (0..<20).map { try harness.add("s/\($0)", Self.isText) }
      for source in sources { source.send([1], [2]) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/*", credit: 7)
      #expect(try client.events(7).count == 7)
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 3))
      #expect(try client.events(3).count == 3)
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      #expect(try client.events(30).count == 30)
      for source in sources { source.send([3]) }
      #expect(try client.events(20).allSatisfy { $0 == [3] })
      client.send(.cancel(StreamID(1)))
      harness.eventually { harness.server.statistics.subscribers == 0 }
    }
  }

  @Test func eachPayloadHasTheNameOfItsStreamAndMissingEventsAreCounted() async throws {
    try await withServer { harness in
      let source = try harness.add("s/a") {
        Self.isText(&$0)
        $0.limits = .init(events: 2, bytes: 4096)
      }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/*", credit: 1, options: #"{"names":true}"#)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([1])
      let first = Named(try client.payload().metadata)
      #expect(first.name == "s/a" && first.gap == 0 && first.position == first.time)
      for value in 2...6 { source.send([UInt8(value)]) }
      client.send(.requestN(StreamID(1), 10))
      let second = Named(try client.payload().metadata)
      #expect(second.name == "s/a" && second.gap == 3 && second.id == first.id + 4)
    }
  }

  @Test(arguments: [true, false]) func largeEventsOfSeveralStreamsArriveWhole(isHTTP: Bool) async throws {
    try await withServer { harness in
      let sources = try (0..<5).map { index in
        try harness.add("s/\(index)") {
          Self.isText(&$0)
          $0.limits = .init(events: 16, bytes: 16 << 20)
        }
      }
      let texts = (0..<5).map { index in Array(String(repeating: "\(index)", count: 300_000).utf8) }
      if isHTTP {
        let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
        for (source, text) in zip(sources, texts) { source.send(text, [120], text) }
        client.get("/streams/s/*?follow=0")
        let events = ParsedEvent.all(in: try client.response().text).dropLast()
        #expect(events.count == 15)
        #expect(
          events.allSatisfy {
            $0.data == "x" || $0.data == String(decoding: texts[Int($0.type.suffix(1))!], as: UTF8.self)
          })
      } else {
        let client = try WireClient(harness.path, receiveBuffer: 4096)
        client.send(.setup(Setup(maximumLifetime: .seconds(300))))
        for (source, text) in zip(sources, texts) { source.send(text, [120], text) }
        client.subscribe("s/*", credit: 15)
        let events = try client.events(15)
        #expect(events.filter { $0 == [120] }.count == 5)
        for text in texts { #expect(events.filter { $0 == text }.count == 2) }
      }
    }
  }

  @Test(arguments: [0, 1]) func aPatternWithoutCreditHoldsUpNoOtherWithItsFilter(late: Int) async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let sources = try ["a", "b"].map { try harness.add("s/\($0)") }
      let clients = try (0..<2).map { _ in try WireClient.ready(harness.path) }
      for index in [late, 1 - late] {
        clients[index].subscribe("s/*", credit: index == 0 ? 1 : 100, options: #"{"from":"new","where":{"/x":1}}"#)
        harness.eventually { harness.server.statistics.subscribers >= 2 }
      }
      harness.eventually { harness.server.statistics.subscribers == 4 }
      for (index, source) in sources.enumerated() {
        source.send(Array(#"{"x":2}"#.utf8), Array("{\"x\":1,\"n\":\(index)}".utf8))
        #expect(try clients[1].event().data == Array("{\"x\":1,\"n\":\(index)}".utf8))
      }
      #expect(try clients[0].event().data == Array(#"{"x":1,"n":0}"#.utf8))
      #expect(try clients[0].isSilent())
      clients[0].send(.requestN(StreamID(1), 1))
      #expect(try clients[0].event().data == Array(#"{"x":1,"n":1}"#.utf8))
      sources[0].send(Array(#"{"x":1}"#.utf8))
      #expect(try clients[1].event().data == Array(#"{"x":1}"#.utf8))
    }
  }

  @Test func aSourceIsNotAskedWithoutCreditAndStopsWithThePattern() async throws {
    try await withServer { harness in
      let source = try harness.add("s/a", start: .whileSubscribed(linger: .zero))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/*", credit: 1, options: #"{"from":"new"}"#)
      harness.eventually { source.isSubscribed && source.demand == .max(1) }
      source.send([49])
      _ = try client.event()
      #expect(try client.isSilent() && source.demand == .none)
      client.send(.requestN(StreamID(1), 1))
      harness.eventually { source.demand == .max(1) }
      client.send(.cancel(StreamID(1)))
      harness.eventually { !source.isSubscribed }
    }
  }

  @Test func oneMarkerShowsThatAllMembersAreCurrent() async throws {
    try await withServer { harness in
      for index in 0..<10 { try harness.add("s/\(index)", Self.isText).send([1]) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/*", credit: 100, options: #"{"names":true,"marker":true}"#)
      for _ in 0..<10 { #expect(!Named(try client.payload().metadata, hasKind: true).isMarker) }
      let (metadata, data) = try client.payload()
      let marker = Named(metadata, hasKind: true)
      #expect(marker.isMarker && marker.name.isEmpty && marker.id == 0 && data.isEmpty && marker.position > 0)
    }
  }

  // MARK: Limits and refusals

  @Test func membersCountAsRequestsOfTheUserAndThePatternEndsAtTheLimit() async throws {
    var limits = ServerLimits(workers: 1)
    limits.requestsPerUser = PatternReader.cost + 10
    try await withServer(limits) { harness in
      for index in 0..<10 { _ = try harness.add("s/\(index)", Self.isText) }
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/*", credit: 100)
      harness.eventually { harness.server.statistics.subscribers == 10 }
      #expect(try client.isSilent())
      let other = try WireClient.ready(harness.path)
      other.subscribe("s/1", credit: 1)
      guard case .error(StreamID(1), _, let refusal)? = try other.receive() else { return #expect(Bool(false)) }
      #expect(refusal.hasSuffix("requests already"))
      _ = try harness.add("s/10", Self.isText)
      guard case .error(StreamID(1), _, let sentence)? = try client.receive() else { return #expect(Bool(false)) }
      #expect(sentence.contains("requests already"))
      harness.eventually { harness.server.statistics.subscribers == 0 }
      client.subscribe("s/1", credit: 1, id: 3)
      harness.eventually { harness.server.statistics.subscribers == 1 }
    }
  }

  @Test func whatAPatternCannotDoIsRefusedWithASentence() async throws {
    try await withServer { harness in
      let client = try WireClient.ready(harness.path)
      func refusal(_ id: UInt32) throws -> String? {
        guard case .error(StreamID(id), _, let sentence)? = try client.receive() else { return nil }
        return sentence
      }
      client.get("s/*")
      #expect(try refusal(1) == "\"s/*\" is a pattern, which only REQUEST_STREAM reads")
      client.publish("s/*", [1], id: 3)
      #expect(try refusal(3) == "\"s/*\" is a pattern, which only REQUEST_STREAM reads")
      client.subscribe("s/*", credit: 1, options: #"{"from":"state"}"#, id: 5)
      #expect(try refusal(5) == "option \"from\" must not be \"state\" for a pattern")
      client.subscribe("$*", credit: 1, id: 7)
      #expect(try refusal(7) == "a pattern such as \"$*\" fits no system stream")
      _ = try harness.add("s", Self.isText)
      client.subscribe("s", credit: 1, options: #"{"names":true}"#, id: 9)
      #expect(try refusal(9) == "option \"names\" is for patterns")
      for (target, status) in [
        ("s/*,s", 400), ("s/*?count=1", 400), ("s/*?from=1,2", 400), ("s/*?wait=1s", 400), ("s/*?as=raw&ids=1", 406),
        ("$*", 404), ("s/*?from=state", 400),
      ] {
        #expect(try HTTPWireClient(harness).fetch("/streams/\(target)").status == status, "\(target)")
      }
      #expect(try HTTPWireClient(harness).fetch("/streams/s/*", method: "OPTIONS")["Allow"] == "GET, HEAD, OPTIONS")
      #expect(try HTTPWireClient(harness).fetch("/streams/s/*", method: "HEAD").status == 200)
    }
  }

  @Test func aMemberThatFallsBehindEndsThePatternIfTheClientHasAskedForThat() async throws {
    try await withServer { harness in
      let source = try harness.add("s/a") {
        Self.isText(&$0)
        $0.limits = .init(events: 2, bytes: 4096)
      }
      _ = try harness.add("s/b", Self.isText)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/*", credit: 1, options: #"{"on_lag":"fail"}"#)
      harness.eventually { harness.server.statistics.subscribers == 2 }
      for value in 1...9 { source.send([UInt8(value)]) }
      var frame = try client.receive()
      while case .payload? = frame {
        client.send(.requestN(StreamID(1), 1))
        frame = try client.receive()
      }
      guard case .error(StreamID(1), _, let sentence)? = frame else { return #expect(Bool(false)) }
      #expect(sentence.hasPrefix("lagged"))
      harness.eventually { harness.server.statistics.subscribers == 0 }
    }
  }

  @Test func clientsOfManyStreamsJoinAndLeaveInTurns() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let sources = try (0..<3000).map { try harness.add("s/\($0)") { $0.limits = .init(events: 4, bytes: 4096) } }
      let clients = try (0..<3).map { _ in try WireClient.ready(harness.path) }
      for client in clients { client.subscribe("s/*", credit: 0x7FFF_FFFF, options: #"{"from":"new"}"#) }
      // Another client is answered meanwhile.
      let bystander = try WireClient.ready(harness.path)
      #expect(try bystander.isSilent())
      harness.eventually { harness.server.statistics.subscribers == 9000 }
      for source in sources { source.send([1]) }
      for client in clients { #expect(try client.events(3000).count == 3000) }
      clients[0].send(.cancel(StreamID(1)))
      shutdown(clients[1].descriptor.raw, CInt(SHUT_RDWR))
      harness.eventually { harness.server.statistics.subscribers == 3000 }
      for source in sources { source.send([2]) }
      #expect(try clients[2].events(3000).count == 3000)
    }
  }

  // MARK: Over a restart

  @Test func aPatternGoesOnInTheNextProcessWithItsCreditAndItsStreams() async throws {
    try await withTwoServers { first, next in
      func add(_ harness: ServerHarness, _ name: String) throws -> HandFedSource { try harness.add(name, Self.isText) }
      let before = try (add(first, "s/a"), add(first, "s/b"), add(first, "s/gone"))
      let after = try (add(next, "s/a"), add(next, "s/b"), add(next, "s/new"))
      let client = try WireClient.ready(first.path)
      client.subscribe("s/*", credit: 5, options: #"{"names":true,"from":"new"}"#)
      let http = try HTTPWireClient(first.path)
      http.get("/streams/s/*?from=new")
      #expect(try http.head()?.status == 200)
      first.eventually { first.server.statistics.subscribers == 6 }
      before.0.send([65])
      #expect(Named(try client.payload().metadata).name == "s/a")
      #expect(try Self.events(http, 1).map(\.data) == ["A"])
      try await first.handOver(to: next)
      next.eventually { next.server.statistics.subscribers == 6 }
      after.0.send([66])
      after.1.send([67])
      after.2.send([68])
      let names = try (0..<3).map { _ in Named(try client.payload().metadata).name }
      #expect(Set(names) == ["s/a", "s/b", "s/new"])
      #expect(Set(try Self.events(http, 3).map(\.type)) == ["s/a", "s/b", "s/new"])
      after.0.send([69], [70])
      #expect(try client.payload().data == [69])
      #expect(try client.isSilent())  // the credit of both processes is used up
      client.send(.requestN(StreamID(1), 1))
      #expect(try client.payload().data == [70])
      let later = try add(next, "s/later")
      later.send([71])
      #expect(try Self.events(http, 3).map(\.type) == ["s/a", "s/a", "s/later"])
    }
  }

  @Test func aPatternThatCannotGoOnEndsWithAllItsMembers() async throws {
    try await withTwoServers { first, next in
      let before = try (0..<4).map { try first.add("s/\($0)", Self.isText) }
      let after = try (0..<4).map { try next.add("s/\($0)", Self.isText) }
      let client = try WireClient.ready(first.path)
      client.subscribe("s/*", credit: 1, options: #"{"names":true,"from":"new","on_lag":"fail"}"#)
      first.eventually { first.server.statistics.subscribers == 4 }
      for source in before { source.send([65], [66]) }
      _ = try client.payload()
      try await first.handOver(to: next)
      guard case .error(StreamID(1), _, let sentence)? = try client.receive() else { return #expect(Bool(false)) }
      #expect(sentence.hasPrefix("lagged"))
      next.eventually { next.server.statistics.subscribers == 0 }
      for source in after { source.send([67]) }
      client.send(.requestN(StreamID(1), 9))
      #expect(try client.isSilent())
    }
  }

  @Test func aSavedPatternIsRestoredAsItWas() throws {
    var saved = SavedConnection()
    saved.number = 1
    saved.patterns = [
      .init(
        id: StreamID(1), text: "s/*", options: Array(#"{"names":true}"#.utf8), credit: .max(7), encoding: 0,
        isFinite: true,
        start: 42, isMarked: true)
    ]
    let state = SavedConnections([saved]).state(ofFirst: 1)
    let read = try SavedConnections(state: state).connections[0]
    // Its request is not among those of the connection's machine.
    #expect(read.patterns.isEmpty)
    saved.http = SavedHTTP()
    saved.http?.phase = .streaming
    saved.http?.names = [.init("s/*".utf8)]
    #expect(
      try SavedConnections(state: SavedConnections([saved]).state(ofFirst: 1)).connections[0].patterns == saved.patterns
    )
  }
}
