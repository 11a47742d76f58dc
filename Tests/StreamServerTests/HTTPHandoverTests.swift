import CLinux
import Events
import Glibc
import HTTP
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// HTTP connections that continue in another server, as in the next process.
@Suite struct HTTPHandoverTests {
  /// Two servers; `body` calls its last argument in between.
  private func withTwoServers(
    _ body: (ServerHarness, ServerHarness, () async throws -> Void) async throws -> Void
  ) async throws {
    try await StreamServerTests.withTwoServers { first, next in
      try await body(first, next) { try await first.handOver(to: next) }
    }
  }

  /// The same stream in both servers, with the same events, from the id 1000 on.
  private static func add(
    _ harnesses: [ServerHarness], _ name: String, _ events: [[UInt8]],
    type: String = "application/json"
  ) throws -> [EventLog] {
    try harnesses.map { harness in
      let limits = EventLog.Limits(events: 1000, bytes: 64 << 20)
      let log = try #require(EventLog(name: name, limits: limits, firstID: 1000))
      log.append(EventBatch(events))
      let configuration = StreamConfiguration(
        name: name, type: type, replay: 1000, limits: limits, start: .always)
      try harness.server.add(configuration, log: log, source: HandFedSource())
      return log
    }
  }

  /// A stream of both servers that drops nothing, with a subscriber of the first one that takes one event.
  private static func addLossless(
    _ first: ServerHarness, _ firstLimits: EventLog.Limits, _ next: ServerHarness, _ nextLimits: EventLog.Limits
  ) throws -> WireClient {
    for (harness, limits) in [(first, firstLimits), (next, nextLimits)] {
      try harness.addPublished("p") {
        ($0.limits, $0.replay, $0.overflow) = (limits, limits.events, .block(timeout: nil))
      }
    }
    let reader = try WireClient.ready(first.path)
    reader.subscribe("p", credit: 1)
    first.eventually { first.server.statistics.subscribers == 1 }
    return reader
  }

  /// Waits until the server has written all that the sockets take.
  private static func settle(_ harness: ServerHarness) {
    var writes: UInt64 = 0
    var rounds = 0
    harness.eventually {
      defer { writes = harness.server.statistics.writes }
      rounds = writes > 0 && writes == harness.server.statistics.writes ? rounds + 1 : 0
      return rounds > 20
    }
  }

  @Test(arguments: ["as=sse", "as=ndjson", "as=ndjson&ids=1", "as=raw", "", "as=json-seq"])
  func aResponseContinuesInTheMiddleOfAChunk(query: String) async throws {
    try await withTwoServers { first, next, handOver in
      let text = "\"" + String(repeating: "0123456789", count: 30_000) + "\""
      let events = [[UInt8]](repeating: Array(text.utf8), count: query.isEmpty ? 1 : 20)
      let large = try Self.add([first, next], "s", events)
      let client = try HTTPWireClient(first.path, receiveBuffer: 4096)
      client.get("/streams/s" + (query.isEmpty ? "" : "?\(query)&count=20"))
      Self.settle(first)
      try await handOver()
      let response = try client.response()
      #expect(response.status == 200 && response.isComplete)
      switch query {
      case "": #expect(response.body == events[0])
      case "as=raw": #expect(response.body == events.flatMap { $0 + [10] })
      case "as=ndjson": #expect(response.text == String(repeating: text + "\n", count: 20))
      case "as=ndjson&ids=1":
        let lines = response.text.split(separator: "\n")
        #expect(lines.count == 20)
        for (index, line) in lines.enumerated() {
          #expect(
            line.hasPrefix("{\"id\":\(1000 + index),") && line.hasSuffix(",\"data\":\(text)}"))
        }
      case "as=json-seq":
        #expect(response.text == String(repeating: "\u{1e}" + text + "\n", count: 20))
      default:
        let parsed = ParsedEvent.all(in: response.text)
        #expect(parsed.count == 21 && parsed.last?.data == "{\"reason\":\"complete\"}")
        for (index, event) in parsed.dropLast().enumerated() {
          let isWhole = event == ParsedEvent(id: String(1000 + index), text)
          #expect(
            isWhole,
            "\(index): \(event.data.utf8.count) bytes of \(text.utf8.count), \(event.id ?? "no id")"
          )
        }
      }
      if query.isEmpty {
        client.get("/healthz")
        #expect(try client.response().text == "ok\n")
      }
      withExtendedLifetime(large) {}
    }
  }

  /// The next process finds again that the event in part is no JSON text.
  @Test(arguments: ["as=ndjson", "as=ndjson&ids=1", "as=json-seq"])
  func anEventThatIsNoJSONContinuesInItsForm(query: String) async throws {
    try await withTwoServers { first, next, handOver in
      let event = Array((String(repeating: "0123456789\n", count: 30_000) + ",").utf8)
      _ = try Self.add([first, next], "s", [[UInt8]](repeating: event, count: 20))
      let client = try HTTPWireClient(first.path, receiveBuffer: 4096)
      client.get("/streams/s?\(query)&count=20")
      Self.settle(first)
      try await handOver()
      let response = try client.response()
      #expect(response.status == 200 && response.isComplete)
      let form =
        query.contains("ids")
        ? ",\"data_base64\":\"\(base64(event))\"}"
        : "\"\(String(decoding: event, as: UTF8.self).replacing("\n", with: "\\n"))\""
      let (lines, end) = (response.body.split(separator: 10), Array(form.utf8))
      #expect(lines.count == 20 && lines.allSatisfy { Array($0.suffix(end.count)) == end }, "\(query)")
    }
  }

  @Test func severalStreamsContinueWithTheirPositions() async throws {
    try await withTwoServers { first, next, handOver in
      _ = try Self.add([first, next], "a", [[49]])
      _ = try Self.add([first, next], "b", [[50], [51]])
      let client = try HTTPWireClient(first)
      client.get("/streams/a,b?as=sse")
      var events: [ParsedEvent] = []
      _ = try client.head()
      while events.count < 3 { events += ParsedEvent.all(in: try #require(try client.chunkText())) }
      try await handOver()
      next.eventually { next.server.statistics.subscribers == 2 }
      next.server.streams["b"]?.append([[52]]) { _ in }
      var text = try client.chunkText()
      while text?.hasPrefix(":") == true { text = try client.chunkText() }
      let event = ParsedEvent.all(in: text ?? "").first
      #expect(event == ParsedEvent("b", id: "1000,1002", "4"), "\(text ?? "the end")")
    }
  }

  @Test func aRequestContinuesWhereverItWasCut() async throws {
    let text =
      "POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
      + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\na\nbcd\r\n4\r\ne\r\nf\r\n0\r\nX: y\r\n\r\n"
      + "POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nxyz"
      + "GET /streams/p?wait=60s HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: \"1\"\r\n\r\n"
    let bytes = Array(text.utf8)
    try await withTwoServers { first, next, handOver in
      for harness in [first, next] { try harness.addPublished("p") { $0.type = "text/plain" } }
      // One client for each place; before the handover every server has read what was sent to it.
      let clients = try bytes.indices.map { cut in
        let client = try HTTPWireClient(first)
        client.send(Array(bytes[..<cut]))
        return client
      }
      let expected = 0..<bytes.count
      let other = try HTTPWireClient(first)
      for _ in 0..<20 {
        other.get("/healthz")
        #expect(try other.response().status == 200)
      }
      first.eventually { first.server.statistics.connections == bytes.count + 1 }
      usleep(50_000)
      try await handOver()
      for (cut, client) in zip(expected, clients) {
        client.send(Array(bytes[cut...]))
        let one = try client.response()
        #expect(one.text == "{\"accepted\":3}\n", "cut at \(cut): \(one)")
        let two = try client.response()
        #expect(two.text == "{\"accepted\":1}\n", "cut at \(cut): \(two)")
        let three = try client.response()
        #expect(three.status == 200 && three.isComplete, "cut at \(cut): \(three)")
      }
    }
  }

  @Test func pipelinedRequestsAreHandedOverWithTheOneInProgress() async throws {
    try await withTwoServers { first, next, handOver in
      _ = try Self.add([first, next], "s", [[49]])
      let client = try HTTPWireClient(first)
      client.get("/streams/s?wait=60s", "If-None-Match: \"1000\"")
      client.get("/streams/s")
      client.get("/healthz")
      client.send("GET /heal")
      first.eventually { first.server.statistics.subscribers == 1 }
      try await handOver()
      next.eventually { next.server.statistics.subscribers == 1 }
      client.send("thz HTTP/1.1\r\nHost: a\r\n\r\n")
      next.server.streams["s"]?.append([[50]]) { _ in }
      for (index, text) in ["2", "2", "ok\n", "ok\n"].enumerated() {
        let response = try client.response()
        #expect(response.text == text, "\(index): \(response)")
      }
    }
  }

  @Test func anEventThatCameMeanwhileEndsAWait() async throws {
    try await withTwoServers { first, next, handOver in
      let logs = try Self.add([first, next], "s", [[49]])
      let client = try HTTPWireClient(first)
      client.get("/streams/s?wait=60s", "If-None-Match: \"1000\"")
      first.eventually { first.server.statistics.subscribers == 1 }
      logs[1].append([[50]])
      try await handOver()
      #expect(try client.response().text == "2")
    }
  }

  @Test func valuesThatWaitForSpaceAreHandedOver() async throws {
    try await withTwoServers { first, next, handOver in
      func isLossless(_ configuration: inout StreamConfiguration) {
        (configuration.limits, configuration.replay) = (.init(events: 4), 4)
        configuration.overflow = .block(timeout: nil)
      }
      try first.addPublished("p", isLossless)
      try next.addPublished("p", isLossless)
      let reader = try WireClient.ready(first.path)
      reader.subscribe("p", credit: 1)
      first.eventually { first.server.statistics.subscribers == 1 }
      let client = try HTTPWireClient(first)
      client.post(
        "/streams/p", (1...20).map { "\($0)\n" }.joined(), "Content-Type: application/x-ndjson")
      let partial = try HTTPWireClient(first)
      partial.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\na")
      #expect(try reader.events(1) == [[49]])
      first.eventually { first.server.statistics.eventsIn == 5 }
      try await handOver()
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      partial.send("bcd")
      #expect(try client.response().text == "{\"accepted\":20}\n")
      #expect(try partial.response().text == "{\"accepted\":1}\n")
      var last = [UInt8]()
      var values = Set<[UInt8]>()
      while last != Array("20".utf8) || !values.contains(Array("abcd".utf8)) {
        let data = try reader.event().data
        if data != Array("abcd".utf8) { last = data }
        values.insert(data)
      }
    }
  }

  @Test func aBodyIsAnsweredWhenTheNextServerHasStoredItsLastValue() async throws {
    try await withTwoServers { first, next, handOver in
      let reader = try Self.addLossless(first, .init(events: 4), next, .init(events: 2))
      let client = try HTTPWireClient(first)
      client.post("/streams/p", (1...8).map { "\($0)\n" }.joined(), "Content-Type: application/x-ndjson")
      #expect(try reader.events(1) == [[49]])
      // Three values of the second batch wait in the stream.
      first.eventually { first.server.statistics.eventsIn == 5 }
      try await handOver()
      next.eventually { next.server.statistics.eventsIn == 2 }
      // An answer would come before this one, from the same loop.
      #expect(try HTTPWireClient(next).fetch("/healthz").status == 200)
      #expect(!client.wire.hasInput)
      reader.send(.requestN(StreamID(1), 2))
      #expect(try client.response().text == "{\"accepted\":8}\n")
      #expect(next.server.statistics.eventsIn == 3)
    }
  }

  @Test func waitingValuesThatTheNextServerCannotHoldAreNotConfirmed() async throws {
    try await withTwoServers { first, next, handOver in
      let reader = try Self.addLossless(first, .init(events: 4), next, .init(events: 4, bytes: 4096))
      let client = try HTTPWireClient(first)
      let lines = (1...8).map { String(repeating: "a", count: $0 == 7 ? 8192 : 1) + "\n" }.joined()
      client.post("/streams/p", lines, "Content-Type: application/x-ndjson")
      first.eventually { first.server.statistics.eventsIn == 5 }
      try await handOver()
      let response = try client.response()
      #expect(response.status == 503 && response.text.contains("\"accepted\":4}"), "\(response)")
      #expect(next.server.statistics.eventsIn == 2)
      withExtendedLifetime(reader) {}
    }
  }

  /// A client is gone, a body has an error, and a value needs no confirmation.
  @Test func valuesThatNoConnectionHoldsAnyMoreAreHandedOver() async throws {
    try await withTwoServers { first, next, handOver in
      let limits = EventLog.Limits(events: 4, bytes: 4096)
      let reader = try Self.addLossless(first, limits, next, limits)
      // The log of the next server is another one, without the first events.
      let faulty = try HTTPWireClient(first)
      faulty.send(
        "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\nContent-Length: 99999\r\n\r\n")
      faulty.send((1...20).map { "\($0)\n" }.joined() + String(repeating: "a", count: 8192))
      #expect(try reader.events(1) == [[49]])
      first.eventually { first.server.statistics.eventsIn == 5 }
      let gone = try WireClient.ready(first.path)
      for (index, value) in ["21", "22", "23"].enumerated() {
        gone.publish("p", Array(value.utf8), id: UInt32(2 * index + 1))
      }
      first.eventually { first.server.statistics.publishers == 4 }
      shutdown(gone.descriptor.raw, CInt(SHUT_RDWR))
      first.eventually { first.server.statistics.publishers == 1 }
      reader.toss("p", Array("24".utf8), id: 3)
      try await handOver()
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      let response = try faulty.response()
      #expect(response.status == 413 && response.text.contains("\"accepted\":20}"), "\(response)")
      var values: Set<Int> = []
      while values.count < 19 { values.insert(Int(String(decoding: try reader.event().data, as: UTF8.self))!) }
      #expect(values == Set(6...24))
    }
  }

  @Test func valuesThatTheNextServerCannotHoldAreRefusedExactly() async throws {
    try await withTwoServers { first, next, handOver in
      let reader = try Self.addLossless(first, .init(events: 4), next, .init(events: 4, bytes: 4096))
      let client = try HTTPWireClient(first)
      let lines = (1...20).map { String(repeating: "a", count: $0 == 20 ? 8192 : 1) + "\n" }
        .joined()
      client.post("/streams/p", lines, "Content-Type: application/x-ndjson")
      let partial = try HTTPWireClient(first)
      partial.send(
        "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n"
          + String(repeating: "a", count: 9000))
      _ = try reader.events(1)
      first.eventually { first.server.statistics.eventsIn == 5 }
      usleep(50_000)
      try await handOver()
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      partial.send(String(repeating: "a", count: 1000))
      let tooLarge = try client.response()
      #expect(tooLarge.status == 413 && tooLarge.text.contains("\"accepted\":19"), "\(tooLarge)")
      #expect(try partial.response().status == 413)
    }
  }

  @Test func valuesThatThePipelineStillHasAreNotConfirmed() async throws {
    try await withTwoServers { first, next, handOver in
      let source = PublishSource()
      // A pipeline that keeps what it takes, as its time does not pass.
      let pipeline = source.delay(for: .seconds(1), scheduler: VirtualTimeScheduler())
      try first.server.add(
        StreamConfiguration(name: "p", source: "publish"), source: pipeline.setFailureType(to: StreamFailure.self),
        publishSource: source)
      try next.addPublished("p")
      let (taken, waiting) = (try HTTPWireClient(first), try HTTPWireClient(first))
      taken.post("/streams/p", "a\nb\n", "Content-Type: application/x-ndjson")
      first.eventually { source.heldBytes == 2 }
      waiting.send(
        "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\nContent-Length: 7\r\n\r\nc\nd\ne")
      first.eventually { source.heldBytes == 4 }
      try await handOver()
      let response = try taken.response()
      #expect(response.status == 503 && response["Retry-After"] != nil, "\(response)")
      #expect(
        response.text.contains("streamd restarts before the stream has stored all values")
          && response.text.contains("\"accepted\":0}"), "\(response)")
      #expect(try taken.fetch("/healthz").status == 200)
      // What the pipeline had not taken is handed over.
      waiting.send("f\n")
      #expect(try waiting.response().text == "{\"accepted\":3}\n")
      #expect(next.server.statistics.eventsIn == 3)
    }
  }

  @Test func aBodyThatIsCutOffInARestartIsAnswered() async throws {
    try await withTwoServers { first, next, handOver in
      for harness in [first, next] { try harness.addPublished("p") }
      let client = try HTTPWireClient(first)
      client.send(
        "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\nContent-Length: 7\r\n\r\na\nb\nc")
      first.eventually { first.server.statistics.eventsIn == 2 }
      try await handOver()
      client.closeWriting()
      let response = try client.response()
      #expect(response.status == 400 && response.text.contains("\"accepted\":2}"), "\(response)")
    }
  }

  @Test func whatTheNextServerNoLongerServesEnds() async throws {
    try await withTwoServers { first, next, handOver in
      _ = try Self.add([first], "s", [[49]])
      try first.addPublished("p")
      let targets = ["/streams/s?as=sse", "/streams/s?as=ndjson", "/streams/s?wait=60s"]
      let clients = try targets.map { target in
        let client = try HTTPWireClient(first)
        client.get(target)
        return client
      }
      let publisher = try HTTPWireClient(first)
      publisher.send("POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\na")
      first.eventually {
        first.server.statistics.subscribers == 3 && first.server.statistics.publishers == 1
      }
      try await handOver()
      let events = try clients[0].response()
      #expect(
        events.isComplete && ParsedEvent.all(in: events.text).last?.type == "end", "\(events)")
      #expect(try clients[1].response().isComplete)
      #expect(try clients[2].response().status == 404)
      #expect(try publisher.response().status == 404)
      #expect(try publisher.isAtEnd())
    }
  }

  // MARK: WebSocket

  @Test func aWebSocketContinuesInTheMiddleOfAMessage() async throws {
    let frames = [
      Frame.setup(Setup()),
      .keepalive(respond: true, position: 0, data: [UInt8](repeating: 7, count: 200)),
    ]
    let bytes = frames.flatMap { WebSocketClient.message(WebSocketClient.encode($0)) }
    try await withTwoServers { first, next, handOver in
      let clients = try bytes.indices.map { cut in
        let client = try WebSocketClient(first)
        client.send(Array(bytes[..<cut]))
        return client
      }
      first.eventually { first.server.statistics.connections == bytes.count }
      usleep(50_000)
      try await handOver()
      for (cut, client) in zip(bytes.indices, clients) {
        client.send(Array(bytes[cut...]))
        let answer = try client.frame()
        #expect(
          answer
            == .keepalive(respond: false, position: 0, data: [UInt8](repeating: 7, count: 200)),
          "cut at \(cut)")
      }
    }
  }

  @Test func largeEventsContinueInAWebSocket() async throws {
    try await withTwoServers { first, next, handOver in
      let event = [UInt8](repeating: 7, count: 3_000_000)
      _ = try Self.add([first, next], "s", [event, event, [1]])
      let client = try WebSocketClient(first, receiveBuffer: 4096)
      client.send(.setup(Setup()))
      client.subscribe("s", credit: 100)
      Self.settle(first)
      try await handOver()
      #expect(try client.event() == event && client.event() == event && client.event() == [1])
    }
  }

  // MARK: Damage

  /// A state that a connection over HTTP can have, for each exchange.
  private static func saved() -> [SavedConnection] {
    [SavedHTTP.Phase.head, .waiting, .publishing, .streaming, .finishing].map { phase in
      var http = SavedHTTP()
      (http.phase, http.hasRequested, http.request) = (phase, true, 7)
      http.input = Array("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n".utf8)
      http.names = [.init("s".utf8)]
      (http.body.byteCountLeft, http.hasLines, http.count) = (10, true, 3)
      (http.part, http.values) = ([1, 2], [.init([3])])
      (http.knownID, http.wait) = (1000, 1_000_000)
      var connection = SavedConnection(descriptor: -1, number: 1)
      if phase == .streaming {
        let encoding = EventFormat.Encoding.body(
          .init(.serverSentEvents, .json, hasEnvelope: false)!,
          .init(isChunked: true, isNamed: true))
        let format = EventFormat(encoding, ids: true, completes: false)
        http.encoding = format.savedEncoding
        connection.subscriptions = [
          .init(
            stream: "s", id: StreamID(1), format: format, onLag: .skip,
            cursor: Cursor(position: 1000, sentBytes: 1),
            credit: .max(3), gap: Gap(count: 2))
        ]
      }
      connection.http = http
      return connection
    }
  }

  /// Whatever a state says, another connection is served.
  private static func restore(_ connection: SavedConnection) async throws {
    let state = SavedConnections([connection]).state(ofFirst: 1)
    guard var saved = try? SavedConnections(state: state) else { return }
    var pair: [CInt] = [-1, -1]
    let kind = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
    #expect(socketpair(AF_UNIX, kind, 0, &pair) == 0)
    saved.attach(pair[0], to: 0)
    saved.dropDetached()
    let next = try ServerHarness(ServerLimits(workers: 1), restores: true)
    _ = try Self.add([next], "s", [Array("12345".utf8), [49]])
    try next.addPublished("p")
    await next.restore(saved)
    let damaged = HTTPWireClient(WireClient(taking: pair[1]))
    let other = try HTTPWireClient(next)
    other.get("/healthz")
    #expect(try other.response().status == 200)
    damaged.closeWriting()
    await next.stop()
  }

  @Test func noSavedStateStopsTheServer() async throws {
    func damage(_ change: (inout SavedConnection) -> Void) async throws {
      for var connection in Self.saved() {
        change(&connection)
        try await Self.restore(connection)
      }
    }
    try await damage { _ in }
    try await damage { $0.http?.names = [] }
    try await damage { $0.http?.names = [.init("p".utf8)] }
    try await damage { $0.http?.names = [.init([255, 0])] }
    try await damage { $0.http?.names = Array(repeating: .init("s".utf8), count: 64) }
    try await damage {
      for index in $0.subscriptions.indices { $0.subscriptions[index].id = StreamID(7) }
    }
    try await damage {
      for index in $0.subscriptions.indices { $0.subscriptions[index].cursor.sentBytes = .max }
    }
    try await damage {
      for index in $0.subscriptions.indices {
        $0.subscriptions[index].cursor = Cursor(position: .max)
      }
    }
    try await damage {
      $0.http?.count = .max
      $0.http?.names = [.init("p".utf8)]
    }
    try await damage {
      $0.http?.count = .max - 1
      $0.http?.names = [.init("p".utf8)]
      $0.input = [10, 65, 10, 66, 10]
    }
    try await damage {
      $0.http?.body.byteCountLeft = .max
      $0.http?.names = [.init("p".utf8)]
      $0.input = [65]
    }
    try await damage {
      $0.http?.wait = .max
      $0.http?.knownID = .max
    }
    try await damage {
      $0.http?.ended = [.init("18446744073709551615".utf8), .init([255])]
      $0.subscriptions = []
    }
    try await damage {
      $0.http?.encoding = 255
      $0.http?.flags = 255
      $0.http?.request = 255
    }
    try await damage { $0.http?.input = [UInt8](repeating: 65, count: 300_000) }
    try await damage {
      $0.unsent = [UInt8](repeating: 65, count: 300_000)
      $0.input = $0.http?.input ?? []
    }
    try await damage { $0.http?.allowedOrigin = [13, 10, 255] }
    for encoding in 0...255 as ClosedRange<UInt8> {
      var connection = Self.saved()[3]
      connection.http?.encoding = encoding
      try await Self.restore(connection)
    }
  }
}
