import Dispatch
import Events
import Glibc
import Reactive
import ReplayLog
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Responses whose body is events: formats, positions, what ends them.
@Suite struct HTTPStreamingTests {
  private static func isJSON(_ configuration: inout StreamConfiguration) {
    (configuration.type, configuration.replay) = ("application/json", 100)
  }
  private static func isText(_ configuration: inout StreamConfiguration) {
    (configuration.type, configuration.replay) = ("text/plain", 100)
  }

  /// The events of a whole response.
  private static func events(_ harness: ServerHarness, _ target: String, _ fields: String...) throws -> [ParsedEvent] {
    let client = try HTTPWireClient(harness)
    client.request("GET", target, fields)
    let response = try client.response()
    #expect(response.status == 200 && response.isComplete, "\(response)")
    return ParsedEvent.all(in: response.text)
  }

  // MARK: Formats

  @Test func serverSentEventsKeepTheLinesOfAnEvent() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isText)
      for text in ["a", "", "b\nc\r\nd\re", "\n", "data: x\n\nevent: gap"] { source.send(Array(text.utf8)) }
      let client = try HTTPWireClient(harness)
      client.get("/streams/s", "Accept: text/event-stream")
      let head = try #require(try client.head())
      #expect(head.status == 200 && head["Content-Type"] == "text/event-stream")
      #expect(head["Cache-Control"] == "no-store, no-transform" && head["X-Accel-Buffering"] == "no")
      #expect(head["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox")
      #expect(head["Transfer-Encoding"] == "chunked" && head["Connection"] == "close")
      let before = try #require(head["Last-Event-ID"].flatMap { UInt64($0) })
      #expect(try client.chunkText() == "retry: 2000\n\n")
      var texts: [String] = []
      for index in 1...5 {
        let event = try #require(ParsedEvent.all(in: client.chunkText() ?? "").first)
        #expect(event.id == String(before + UInt64(index)) && event.type == "message")
        texts.append(event.data)
      }
      #expect(texts == ["a", "", "b\nc\nd\ne", "\n", "data: x\n\nevent: gap"])
    }
  }

  @Test func anEventOfJSONIsALineOrASequenceAndOtherTypesGoInEnvelopes() async throws {
    try await withServer { harness in
      let (json, text) = (try harness.add("json", Self.isJSON), try harness.add("text", Self.isText))
      let binary = try harness.add("binary") { ($0.type, $0.replay) = ("image/png", 100) }
      json.send(Array("{\"a\":\n1}".utf8), Array("2".utf8))
      text.send(Array("\"x\"\n".utf8))
      binary.send([0, 255, 10])
      func body(_ target: String) throws -> String {
        let client = try HTTPWireClient(harness)
        client.get(target)
        let response = try client.response()
        #expect(response.status == 200 && response.isComplete, "\(response)")
        return response.text
      }
      #expect(try body("/streams/json?as=ndjson&follow=0") == "{\"a\": 1}\n2\n")
      #expect(try body("/streams/json?as=json-seq&follow=0") == "\u{1e}{\"a\":\n1}\n\u{1e}2\n")
      #expect(try body("/streams/text?as=raw&follow=0") == "\"x\"\n")
      let enveloped = try body("/streams/json?as=ndjson&ids=1&follow=0").split(separator: "\n")
      #expect(
        enveloped.count == 2 && enveloped[0].hasSuffix(",\"data\":{\"a\": 1}}") && enveloped[0].hasPrefix("{\"id\":"))
      #expect(try body("/streams/text?as=ndjson&ids=1&follow=0").hasSuffix(#","data":"\"x\"\n"}"# + "\n"))
      #expect(try body("/streams/binary?as=ndjson&ids=1&follow=0").hasSuffix(",\"data_base64\":\"AP8K\"}\n"))
    }
  }

  @Test(arguments: ["raw", "sse", "ndjson", "ndjson&ids=1"]) func largeEventsArriveWhole(format: String)
    async throws
  {
    try await withServer { harness in
      let source = try harness.add("s") {
        Self.isJSON(&$0)
        $0.limits = .init(events: 8, bytes: 64 << 20)
      }
      let text = "\"" + String(repeating: "0123456789abcdef", count: 300_000) + "\""
      source.send(Array(text.utf8))
      let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
      client.get("/streams/s?as=\(format)&count=1")
      let response = try client.response()
      #expect(response.status == 200 && response.isComplete)
      switch format {
      case "sse": #expect(ParsedEvent.all(in: response.text).first?.data == text)
      case "ndjson": #expect(response.text == text + "\n")
      case "ndjson&ids=1": #expect(response.text.hasSuffix(",\"data\":" + text + "}\n"))
      default: #expect(response.text == text + "\n")
      }
    }
  }

  @Test func severalStreamsShareAResponseAndItsPositions() async throws {
    try await withServer { harness in
      let (a, b) = (try harness.add("a", Self.isText), try harness.add("b/c", Self.isText))
      a.send([65], [66])
      b.send([67])
      let events = try Self.events(harness, "/streams/a,b/c?as=sse&follow=0")
      #expect(events.dropLast().map(\.type).sorted() == ["a", "a", "b/c"] && events.last?.type == "end")
      let position = try #require(events.last?.id)
      #expect(position.split(separator: ",").count == 2)
      a.send([68])
      b.send([69])
      let more = try Self.events(harness, "/streams/a,b/c?as=sse&follow=0", "Last-Event-ID: \(position)")
      #expect(Set(more.dropLast().map { $0.type + $0.data }) == ["aD", "b/cE"])
      // A position after each event: the one in the middle continues with the rest.
      let rest = try Self.events(
        harness, "/streams/a,b/c?as=sse&follow=0", "Last-Event-ID: \(try #require(more.first?.id))")
      #expect(rest.dropLast() == more.dropFirst().dropLast())
    }
  }

  @Test func theParameterGoesBeforeTheField() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isJSON)
      source.send([49])
      let client = try HTTPWireClient(harness)
      let response = try client.fetch("/streams/s?as=ndjson&follow=0", "Accept: text/event-stream")
      #expect(response["Content-Type"] == "application/x-ndjson" && response.text == "1\n")
    }
  }

  @Test func aStreamingResponseIsTheLastOfItsConnection() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isJSON)
      source.send([49])
      let client = try HTTPWireClient(harness)
      client.get("/streams/s?as=ndjson&count=1")
      client.get("/healthz")
      #expect(try client.response().text == "1\n")
      #expect(try client.isAtEnd())
    }
  }

  @Test func noOtherStreamIsInTheMiddleOfALargeEvent() async throws {
    try await withServer { harness in
      let sources = try ["a", "b", "c"].map { name in
        try harness.add(name) {
          Self.isText(&$0)
          $0.limits = .init(events: 8, bytes: 4 << 20)
        }
      }
      let large = [UInt8](repeating: 65, count: 300_000)
      sources[0].send(large, [68])
      sources[1].send([66], [67])
      sources[2].send(large)
      let events = try Self.events(harness, "/streams/a,b,c?as=sse&follow=0").dropLast()
      #expect(events.filter { $0.type == "a" }.map(\.data.utf8.count) == [large.count, 1])
      #expect(events.filter { $0.type == "b" }.map(\.data) == ["B", "C"])
      #expect(events.filter { $0.type == "c" }.map(\.data.utf8.count) == [large.count])
    }
  }

  // MARK: Positions

  @Test func aStartMayBeATime() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65])
      for (start, data) in [
        ("-5m", ["A"]), ("2020-01-02T03:04:05Z", ["A"]), ("2020-01-02T03:04:05+01:00", ["A"]),
        ("2020-01-02T03:04:05%2B01:00", ["A"]), ("2100-01-02T03:04:05+01:00", []),
        ("2020-01-02%2003:04:05%2B01:00", ["A"]), ("2020-01-02+03:04:05+01:00", ["A"]), ("2100-01-02+03:04:05z", []),
        ("2100-01-01T00:00:00Z", []),
      ] {
        let events = try Self.events(harness, "/streams/s?as=sse&follow=0&from=\(start)")
        #expect(events.dropLast().map(\.data) == data, "\(start)")
      }
    }
  }

  @Test func eachOfSeveralStreamsMayHaveAStartOfItsOwn() async throws {
    try await withServer { harness in
      for name in ["s", "t"] { try harness.add(name, Self.isText).send([65], [66], [67]) }
      for (start, wanted) in [
        ("latest", ["s C", "t C"]), ("latest,-2", ["s C", "t B", "t C"]),
        ("new,2020-01-02T03:04:05%2B01:00", ["t A", "t B", "t C"]),
      ] {
        let events = try Self.events(harness, "/streams/s,t?as=sse&follow=0&from=\(start)").dropLast()
        #expect(events.map { "\($0.type) \($0.data)" }.sorted() == wanted, "\(start)")
      }
    }
  }

  @Test func aPositionInAFieldGoesBeforeOneInAParameterAndThatBeforeAStart() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65], [66], [67])
      let all = try Self.events(harness, "/streams/s?as=sse&follow=0")
      let ids = all.compactMap(\.id)
      #expect(all.map(\.data).prefix(3) == ["A", "B", "C"])
      let target = "/streams/s?as=sse&follow=0&from=latest"
      #expect(try Self.events(harness, target).map(\.data).first == "C")
      #expect(try Self.events(harness, target + "&lastEventID=\(ids[0])").map(\.data).first == "B")
      let both = try Self.events(harness, target + "&lastEventID=\(ids[1])", "Last-Event-ID: \(ids[0])")
      #expect(both.map(\.data).prefix(2) == ["B", "C"])
      #expect(try Self.events(harness, "/streams/s?as=sse&from=\(ids[0])&count=1").first?.data == "B")
      #expect(try Self.events(harness, "/streams/s?as=sse&follow=0&from=new").map(\.type) == ["end"])
    }
  }

  /// Its first request may have the parameter or the field without a value.
  @Test func aLibraryMaySpellTheParameterOfThePositionInItsOwnWay() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65], [66], [67])
      let target = "/streams/s?as=sse&follow=0&from=latest"
      let ids = try Self.events(harness, "/streams/s?as=sse&follow=0").compactMap(\.id)
      for name in [
        "lastEventId", "lastEventID", "lasteventid", "Last-Event-ID", "Last-Event-Id", "last-event-id", "last_event_id",
        "evs_last_event_id",
      ] {
        #expect(try Self.events(harness, target + "&\(name)=\(ids[0])").map(\.data).first == "B", "\(name)")
        #expect(try Self.events(harness, target + "&\(name)=").map(\.data).first == "C", "\(name)")
        #expect(try Self.events(harness, target + "&\(name)").map(\.data).first == "C", "\(name)")
      }
      #expect(try Self.events(harness, target, "Last-Event-ID:").map(\.data).first == "C")
      // A library appends its own to that of its user, and at each connection.
      let appended = target + "&lastEventID=\(ids[1])&lastEventId=\(ids[0])&r=1234&_=5"
      #expect(try Self.events(harness, appended).map(\.data).first == "B")
      #expect(try Self.events(harness, appended + "&lastEventId=").map(\.data).first == "B")
      #expect(try Self.events(harness, appended, "Last-Event-Id:").map(\.data).first == "B")
      let polyfill = target + "&evs_buffer_size_limit=262144&evs_preamble=2056"
      #expect(try Self.events(harness, polyfill, "Last-Event-Id: \(ids[0])").map(\.data).first == "B")
    }
  }

  /// An EventSource stops for good at any status but 200.
  @Test(arguments: ["7f3c-abc", "1.5", "-1", "\"5\"", "99999999999999999999", "1,x", "1.7e15", "é"])
  func anEventIDThatIsNoneOfTheServersIsAGapAndTheReplay(id: String) async throws {
    try await withServer { harness in
      for name in ["s", "t"] { try harness.add(name, Self.isText).send([65], [66]) }
      let target = "/streams/s?as=sse&follow=0"
      for events in [
        try Self.events(harness, target, "Last-Event-ID: \(id)"),
        try Self.events(harness, target + "&lastEventId=\(id.replacing("\"", with: "%22"))"),
      ] {
        #expect(events.map(\.type) == ["gap", "message", "message", "end"])
        #expect(events.map(\.data).prefix(3) == ["{\"lost\":null}", "A", "B"])
      }
      let latest = try Self.events(harness, target + "&from=latest", "Last-Event-ID: \(id)")
      #expect(latest.map(\.data).prefix(2) == ["{\"lost\":null}", "B"])
      let both = try Self.events(harness, "/streams/s,t?as=sse&follow=0", "Last-Event-ID: \(id)")
      #expect(both.map(\.type) == ["gap", "s", "s", "gap", "t", "t", "end"])
    }
  }

  @Test func anEventIDIsTheLastOneOfThoseThatALibraryAddsUp() async throws {
    try await withServer { harness in
      for name in ["s", "t"] { try harness.add(name, Self.isText).send([65], [66], [67]) }
      let ids = try Self.events(harness, "/streams/s?as=sse&follow=0").compactMap(\.id)
      let target = "/streams/s?as=sse&follow=0"
      #expect(try Self.events(harness, target, "Last-Event-ID: \(ids[0]), \(ids[1])").map(\.data).first == "C")
      let twice = try Self.events(harness, target, "Last-Event-ID: \(ids[0])", "Last-Event-ID: \(ids[1])")
      #expect(twice.map(\.data).first == "C")
      let several = "/streams/s,t?as=sse&follow=0"
      let positions = try Self.events(harness, several).compactMap(\.id)
      let rest = try Self.events(harness, several, "Last-Event-ID: \(positions[1]), \(positions[3])").map(\.data)
      #expect(rest == (try Self.events(harness, several, "Last-Event-ID: \(positions[3])").map(\.data)))
    }
  }

  @Test(arguments: ["null", "undefined"]) func anEventIDThatJavaScriptDoesNotHaveIsNone(id: String) async throws {
    try await withServer { harness in
      try harness.add("s", Self.isText).send([65])
      let target = "/streams/s?as=sse&follow=0"
      #expect(try Self.events(harness, target, "Last-Event-ID: \(id)").map(\.type) == ["message", "end"])
      #expect(try Self.events(harness, target + "&lastEventId=\(id)").map(\.type) == ["message", "end"])
    }
  }

  @Test func aSpaceInAFilterMayBeAPlus() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isJSON)
      source.send(Array(#"{"city":"New York"}"#.utf8), Array(#"{"city":"New+York"}"#.utf8))
      for (city, data) in [("New+York", "New York"), ("New%20York", "New York"), ("New%2BYork", "New+York")] {
        let target = "/streams/s?as=sse&follow=0&where=%7B%22%2Fcity%22%3A+%22\(city)%22%7D"
        #expect(try Self.events(harness, target).dropLast().map(\.data) == ["{\"city\":\"\(data)\"}"], "\(city)")
      }
    }
  }

  @Test func aPositionThatIsNoLongerHeldIsAGapAndTheOldestEvents() async throws {
    try await withServer { harness in
      let source = try harness.add("s") {
        Self.isText(&$0)
        $0.limits = .init(events: 4)
        $0.replay = 4
      }
      source.send([65])
      let first = try #require(try Self.events(harness, "/streams/s?as=sse&follow=0").first?.id.flatMap { UInt64($0) })
      for byte in 66...75 as ClosedRange<UInt8> { source.send([byte]) }
      let events = try Self.events(harness, "/streams/s?as=sse&follow=0", "Last-Event-ID: \(first)")
      #expect(events.map(\.type) == ["gap", "message", "message", "message", "message", "end"])
      #expect(events[0].data == "{\"lost\":6}" && events[1].data == "H")
      // One of another log is a loss of unknown extent.
      let future = try HTTPWireClient(harness)
      future.get("/streams/s?as=sse&count=1", "Last-Event-ID: \(first + 1_000_000)")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send([90])
      #expect(try ParsedEvent.all(in: future.response().text).prefix(2).map(\.data) == ["{\"lost\":null}", "Z"])
    }
  }

  @Test func aFinishedStreamThatIsReadIsNoContent() async throws {
    try await withServer { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65])
      source.finish()
      let events = try Self.events(harness, "/streams/s?as=sse")
      #expect(events.map(\.data) == ["A", "{\"reason\":\"finished\"}"])
      let client = try HTTPWireClient(harness)
      client.get("/streams/s?as=sse", "Last-Event-ID: \(try #require(events.first?.id))")
      #expect(try client.response().status == 204)
    }
  }

  // MARK: Backpressure

  @Test func aClientThatDoesNotReadDemandsNothingAndMissesEvents() async throws {
    try await withServer { harness in
      let source = try harness.add("s") {
        Self.isText(&$0)
        $0.limits = .init(events: 100, bytes: 4 << 20)
      }
      let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
      client.get("/streams/s?as=sse&from=new")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let event = [UInt8](repeating: 65, count: 10_000)
      for _ in 0..<500 { source.send(event) }
      source.send([66])
      _ = try client.head()
      var (lost, count) = (0, 0)
      while let text = try client.chunkText() {
        for event in ParsedEvent.all(in: text) {
          if event.type == "gap" { lost += Int(event.data.filter(\.isNumber)) ?? 0 } else { count += 1 }
        }
        if text.hasSuffix("data: B\n\n") { break }
      }
      #expect(lost > 0 && lost + count == 501)
    }
  }

  @Test func aStreamThatStartsOnDemandIsFetchedForAStreamingResponse() async throws {
    try await withServer { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero), Self.isText)
      let client = try HTTPWireClient(harness)
      client.get("/streams/s?as=sse")
      harness.eventually { source.subscriptions == 1 }
      harness.eventually { source.demand > .none }
      source.send([65])
      _ = try client.head()
      _ = try client.chunk()
      #expect(try ParsedEvent.all(in: client.chunkText() ?? "").first?.data == "A")
      shutdown(client.wire.descriptor.raw, CInt(SHUT_RDWR))
      harness.eventually { source.cancellations == 1 }
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  @Test func aStreamThatOnlyAStalledClientReadsIsNotFetched() async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.silence = .milliseconds(200)
    try await withServer(limits) { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero)) {
        Self.isText(&$0)
        ($0.limits, $0.replay) = (.init(events: 1000, bytes: 16 << 20), 1000)
      }
      let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
      client.get("/streams/s?as=sse")
      harness.eventually { source.demand > .none }
      // Within its demand, as any source does.
      var count = 0
      while source.demand > .none, count < 500 {
        source.send([UInt8](repeating: 65, count: 10_000))
        count += 1
        usleep(2000)
      }
      harness.eventually { source.demand == .none }
      #expect(count < 500)
      usleep(1_200_000)  // so much silence that six comments would be due
      #expect(source.demand == .none && source.cancellations == 0)
      _ = try client.head()
      var received = 0
      while received < count, let text = try client.chunkText() {
        #expect(!text.hasPrefix(":"), "a comment between events that waited")
        received += ParsedEvent.all(in: text).count
      }
      harness.eventually { source.demand > .none }
    }
  }

  // MARK: Ends

  /// A response in a streaming format under way, after its head.
  private static func begin(_ harness: ServerHarness, _ target: String) throws -> HTTPWireClient {
    let client = try HTTPWireClient(harness)
    client.get(target)
    #expect(try client.head()?.status == 200)
    return client
  }

  /// The rest of a body: its text, and whether it has its last chunk.
  private static func rest(_ client: HTTPWireClient) throws -> (text: String, isComplete: Bool) {
    var text = ""
    while let chunk = try client.chunkText() {
      if chunk.isEmpty { return (text, try client.isAtEnd()) }
      text += chunk
    }
    return (text, false)
  }

  @Test func whatResponsesEndWith() async throws {
    try await withServer { harness in
      let names = ["removed", "revoked", "failed", "finished"]
      let sources = try names.map { try harness.add($0, Self.isJSON) }
      var clients: [(name: String, sse: HTTPWireClient, lines: HTTPWireClient)] = []
      for name in names {
        clients.append(
          (
            name, try Self.begin(harness, "/streams/\(name)?as=sse"),
            try Self.begin(harness, "/streams/\(name)?as=ndjson")
          ))
      }
      harness.eventually { harness.server.statistics.subscribers == 8 }
      var configuration = StreamConfiguration(name: "revoked", start: .always)
      Self.isJSON(&configuration)
      configuration.read = AccessRules([.user(4711)])
      #expect(harness.server.change([StreamChange(configuration)], removing: ["removed"]).isEmpty)
      sources[2].finish(.failure(StreamFailure("it broke")))
      sources[3].finish()
      func type(_ name: String) -> String { "\",\"type\":\"urn:streamd:\(name)" }
      let reasons = [
        "removed": "\\\"removed\\\" is no longer served" + type("removed"),
        "revoked": "uid \(geteuid()) may not read \\\"revoked\\\"" + type("may-not-read"),
        "failed": "it broke" + type("failed"), "finished": "finished",
      ]
      for (name, sse, lines) in clients {
        let (text, isComplete) = try Self.rest(sse)
        #expect(isComplete, "\(name)")
        #expect(text == "retry: 2000\n\nevent: end\ndata: {\"reason\":\"\(reasons[name]!)\"}\n\n")
        let line = try Self.rest(lines)
        #expect(line.text == "" && line.isComplete == (name != "failed"), "\(name)")
        let again = try HTTPWireClient(harness)
        again.get("/streams/\(name)?as=ndjson")
        let status = ["removed": 404, "revoked": 403, "failed": 502, "finished": 200][name]
        #expect(try again.head()?.status == status, "\(name)")
      }
    }
  }

  @Test func aStreamThatHasFailedIsABadGatewayUnlessItHasEvents() async throws {
    try await withServer { harness in
      let (full, empty) = (try harness.add("full", Self.isJSON), try harness.add("empty", Self.isJSON))
      full.send([49])
      for source in [full, empty] { source.finish(.failure(StreamFailure("it broke"))) }
      let client = try HTTPWireClient(harness)
      for target in [
        "empty?as=ndjson", "empty?as=raw", "empty?as=json-seq", "full?as=ndjson&from=new", "full,empty?as=raw",
      ] {
        client.get("/streams/\(target)")
        let response = try client.response()
        #expect(response.status == 502 && response["Content-Type"] == "application/problem+json", "\(response)")
        #expect(response.text.contains("\"detail\":\"it broke\""), "\(response)")
      }
      #expect(try client.fetch("/streams/empty?as=raw", method: "HEAD").status == 502)
      #expect(harness.server.statistics.refused == 0)
      // What is there is sent, and that it is not all is seen at the end.
      let rest = try Self.begin(harness, "/streams/full?as=ndjson")
      let (text, isComplete) = try Self.rest(rest)
      #expect(text == "1\n" && !isComplete)
      let there = try HTTPWireClient(harness).fetch("/streams/full?as=ndjson&follow=0")
      #expect(there.status == 200 && there.text == "1\n" && there.isComplete)
      // An EventSource connects again only after 200.
      let events = try Self.events(harness, "/streams/empty?as=sse")
      #expect(events == [ParsedEvent("end", id: nil, "{\"reason\":\"it broke\",\"type\":\"urn:streamd:failed\"}")])
    }
  }

  @Test func aSubscriberThatStallsALosslessStreamIsEnded() async throws {
    try await withServer { harness in
      let source = try harness.add("s") {
        Self.isText(&$0)
        $0.limits = .init(events: 16, bytes: 4 << 20)
        $0.overflow = .block(timeout: .milliseconds(100))
      }
      let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
      client.get("/streams/s?as=sse&from=new")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      source.send(batch: [[UInt8]](repeating: [UInt8](repeating: 65, count: 50_000), count: 200))
      harness.eventually { harness.server.statistics.subscribers == 0 }
      _ = try client.head()
      let (text, isComplete) = try Self.rest(client)
      let end = try #require(ParsedEvent.all(in: text).last)
      #expect(end.type == "end" && end.data.contains("stalled") && isComplete, "\(end)")
    }
  }

  @Test func aResponseWithSeveralStreamsEndsWithTheLastOfThemOrTheFirstFailure() async throws {
    try await withServer { harness in
      let sources = try ["a", "b", "c", "d"].map { try harness.add($0, Self.isText) }
      let (all, failing) = (
        try Self.begin(harness, "/streams/a,b?as=sse"), try Self.begin(harness, "/streams/c,d?as=sse")
      )
      harness.eventually { harness.server.statistics.subscribers == 4 }
      sources[0].finish()
      harness.eventually { harness.server.statistics.subscribers == 3 }
      sources[1].send([66])
      sources[1].finish()
      sources[2].finish(.failure(StreamFailure("it broke")))
      let finished = try Self.rest(all)
      #expect(
        ParsedEvent.all(in: finished.text).map(\.data) == ["B", "{\"reason\":\"finished\"}"] && finished.isComplete)
      let failed = try Self.rest(failing)
      let end = "{\"reason\":\"it broke\",\"type\":\"urn:streamd:failed\"}"
      #expect(ParsedEvent.all(in: failed.text).map(\.data) == [end] && failed.isComplete)
      harness.eventually { harness.server.statistics.subscribers == 0 }
    }
  }

  @Test func aClientThatWantsTheNewestEventMissesOthers() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try harness.add("s") {
        Self.isText(&$0)
        $0.limits = .init(events: 50, bytes: 4 << 20)
      }
      let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
      client.get("/streams/s?as=sse&on_lag=latest&from=new")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      for _ in 0..<50 { source.send([UInt8](repeating: 65, count: 20_000)) }
      // Once the socket is full, nothing more is sent before the client reads.
      while await !harness.isBlocked() {}
      for _ in 0..<500 { source.send([UInt8](repeating: 65, count: 20_000)) }
      source.send([66])
      _ = try client.head()
      var events: [ParsedEvent] = []
      while events.last?.data != "B", let text = try client.chunkText() { events += ParsedEvent.all(in: text) }
      // After the gap comes the newest, and none of those that are still held before it.
      let gap = try #require(events.lastIndex { $0.type == "gap" })
      #expect(events[gap...].dropFirst().map(\.data) == ["B"])
    }
  }

  /// A client would take the reason for the end of the event.
  @Test(arguments: ["sse", "ndjson", "json-seq", "raw"]) func nothingFollowsAPartOfAnEvent(format: String) async throws
  {
    try await withServer { harness in
      let source = try harness.add("s") {
        Self.isJSON(&$0)
        $0.limits = .init(events: 8, bytes: 64 << 20)
      }
      source.send([UInt8](repeating: 65, count: 5_000_000))
      let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
      client.get("/streams/s?as=\(format)")
      #expect(try client.head()?.status == 200)
      #expect(harness.server.change([], removing: ["s"]).isEmpty)
      let (text, isComplete) = try Self.rest(client)
      #expect(!isComplete && !text.contains("event: end") && text.utf8.count < 5_000_000)
    }
  }

  @Test func lagCanEndAResponse() async throws {
    try await withServer { harness in
      let source = try harness.add("s") {
        Self.isText(&$0)
        $0.limits = .init(events: 10, bytes: 4 << 20)
      }
      for format in ["sse", "raw"] {
        let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
        client.get("/streams/s?as=\(format)&on_lag=fail&from=new")
        harness.eventually { harness.server.statistics.subscribers == 1 }
        for _ in 0..<200 { source.send([UInt8](repeating: 65, count: 20_000)) }
        #expect(try client.head()?.status == 200)
        let (text, isComplete) = try Self.rest(client)
        if format == "sse" {
          let end = try #require(ParsedEvent.all(in: text).last)
          #expect(end.type == "end" && end.data.contains("lagged") && isComplete)
        } else {
          #expect(!isComplete)
        }
        harness.eventually { harness.server.statistics.subscribers == 0 }
      }
    }
  }

  @Test func whenTheServerStops() async throws {
    let harness = try ServerHarness()
    let source = try harness.add("s", Self.isJSON)
    source.send([49])
    let sse = try Self.begin(harness, "/streams/s?as=sse")
    let lines = try Self.begin(harness, "/streams/s?as=ndjson")
    let (waiting, idle) = (try HTTPWireClient(harness), try HTTPWireClient(harness))
    waiting.get("/streams/s?wait=60s")
    idle.get("/healthz")
    _ = try idle.response()
    let halfClosed = try HTTPWireClient(harness)
    halfClosed.get("/streams/s?wait=60s")
    halfClosed.closeWriting()
    harness.eventually { harness.server.statistics.subscribers == 4 }
    #expect(try sse.chunkText() == "retry: 2000\n\n")
    #expect(try ParsedEvent.all(in: sse.chunkText() ?? "").first?.data == "1")
    #expect(try lines.chunkText() == "1\n")
    await harness.stop()
    let (text, isComplete) = try Self.rest(sse)
    let end = "{\"reason\":\"streamd is stopping\",\"type\":\"urn:streamd:stopping\"}"
    #expect(text == "retry: 30000\n\nevent: end\ndata: \(end)\n\n" && isComplete)
    #expect(try Self.rest(lines).isComplete)
    let refusal = try waiting.response()
    #expect(refusal.status == 503 && refusal["Connection"] == "close", "\(refusal)")
    #expect(try halfClosed.response().status == 503)
    #expect(try idle.isAtEnd())
  }

  @Test func aSingleEventIsSentWholeWhenTheServerStops() async throws {
    let harness = try ServerHarness()
    let source = try harness.add("s") { $0.limits = .init(events: 8, bytes: 64 << 20) }
    let event = [UInt8](repeating: 65, count: 3_000_000)
    source.send(event)
    let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
    let stalled = try HTTPWireClient(harness.path, receiveBuffer: 4096)
    for client in [client, stalled] {
      client.get("/streams/s")
      _ = try client.head()
    }
    let stopped = DispatchSemaphore(value: 0)
    harness.server.stop { stopped.signal() }
    let body = try client.take(event.count, #_sourceLocation)
    #expect(body == event)
    #expect(try client.isAtEnd())
    stopped.wait()  // the other one ends after a while
    #expect(try stalled.take(event.count, #_sourceLocation) == nil)
  }
}
