import Dispatch
import Events
import Glibc
import Reactive
import ReplayLog
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// What a client may cost: time, memory, turns.
@Suite struct HTTPLimitTests {
  private static func isText(_ configuration: inout StreamConfiguration) { configuration.type = "text/plain" }

  @Test func theTimesAreThoseOfTheManual() {
    let (times, limits) = (HTTPTimes(), ServerLimits())
    #expect(times.idleTime == .seconds(60) && times.stallTime == .seconds(30) && times.fullTime == .seconds(60))
    #expect(times.silence == .seconds(15) && times.drainTime == .seconds(1) && times.lingerTime == .seconds(30))
    #expect(times.stuckTime == .seconds(5))
    #expect(StreamQuery.longestWait == .seconds(60) && limits.refusalTime == .seconds(1))
  }

  @Test func aHeadHasTheHandshakeTimeout() async throws {
    var limits = ServerLimits(workers: 1)
    limits.handshakeTimeout = .milliseconds(100)
    try await withServer(limits) { harness in
      for method in ["GET", "HEAD"] {
        let client = try HTTPWireClient(harness)
        client.send("\(method) /healthz HTTP/1.1\r\n")
        let response = try client.response(isToHead: method == "HEAD")
        #expect(response.status == 408 && response["Connection"] == "close")
        #expect(try client.isAtEnd())
      }
    }
  }

  @Test func aConnectionBetweenTwoRequestsHasTheIdleTime() async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.idleTime = .milliseconds(50)
    try await withServer(limits) { harness in
      let client = try HTTPWireClient(harness)
      client.get("/healthz")
      #expect(try client.response().status == 200)
      #expect(try client.isAtEnd())
    }
  }

  /// As many libraries do, also if the response comes at the first line.
  @Test(arguments: [("none", 404), ("values", 422)])
  func aClientThatReadsNothingBeforeItHasSentItsWholeBodyGetsTheResponse(stream: String, status: Int) async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      try harness.addPublished("values") { $0.requiresJSON = true }
      let client = try HTTPWireClient(harness)
      let body = Array("{}\n{bad}\n".utf8) + [UInt8](repeating: 0x0A, count: 8 << 20)
      client.request("POST", "/streams/\(stream)", ["Content-Type: application/x-ndjson"], body: body)
      #expect(try client.response().status == status)
      #expect(try client.isAtEnd())
    }
  }

  @Test func aClientThatSendsWithoutEndAfterItsLastResponseIsDisconnected() async throws {
    var limits = ServerLimits(workers: 1)
    (limits.http.drainTime, limits.http.lingerTime) = (.milliseconds(50), .milliseconds(200))
    try await withServer(limits) { harness in
      let client = try HTTPWireClient(harness)
      client.send("POST /streams/none HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
      harness.eventually {
        client.send("1\r\na\r\n")
        return harness.server.statistics.connections == 0
      }
    }
  }

  @Test func aBodyThatDoesNotComeIsARequestTimeout() async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.stallTime = .milliseconds(50)
    try await withServer(limits) { harness in
      try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      client.send(
        "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\nContent-Length: 9\r\n\r\na\nb\nc")
      let response = try client.response()
      #expect(response.status == 408 && response.text.contains("\"accepted\":2"), "\(response)")
      #expect(try client.isAtEnd())
      harness.eventually { harness.server.statistics.publishers == 0 }
    }
  }

  @Test func anEventStreamWithoutEventsShowsThatItIsAlive() async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.silence = .milliseconds(20)
    try await withServer(limits) { harness in
      let source = try harness.add("s", Self.isText)
      let client = try HTTPWireClient(harness)
      client.get("/streams/s?as=sse&from=new")
      _ = try client.head()
      #expect(try client.chunkText() == "retry: 2000\n\n")
      for _ in 0..<3 { #expect(try client.chunkText()?.hasPrefix(":") == true) }
      source.send([65])
      while let text = try client.chunkText() {
        if text.hasPrefix(":") { continue }
        #expect(ParsedEvent.all(in: text).first?.data == "A")
        break
      }
    }
  }

  @Test func anEventStreamWhoseFilterLeavesOutAllEventsShowsThatItIsAlive() async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.silence = .milliseconds(20)
    try await withServer(limits) { harness in
      let source = try harness.add("s", Self.isText)
      let client = try HTTPWireClient(harness)
      client.get("/streams/s?as=sse&from=new&where=%7B%22/x%22:5%7D")
      _ = try client.head()
      #expect(try client.chunkText() == "retry: 2000\n\n")
      for _ in 0..<3 {
        harness.eventually {
          source.send(Array(#"{"x":1}"#.utf8))
          return client.wire.hasInput
        }
        #expect(try client.chunkText()?.hasPrefix(":") == true)
      }
    }
  }

  // MARK: Clients that do not read

  private static let small = "GET /streams/small HTTP/1.1\r\nHost: a\r\n\r\n"

  /// A stream with a large event, and one with an event that is written with its head.
  private static func addSizes(_ harness: ServerHarness) throws {
    let large = try harness.add("large") { $0.limits = .init(events: 8, bytes: 64 << 20) }
    let small = try harness.add("small")
    large.send([UInt8](repeating: 65, count: 3_000_000))
    small.send([UInt8](repeating: 66, count: 60_000))
  }

  @Test func aClientThatReadsNothingOfItsResponseIsDisconnected() async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.stallTime = .milliseconds(200)
    try await withServer(limits) { harness in
      try Self.addSizes(harness)
      let requests = [
        "GET /streams/large HTTP/1.1\r\nHost: a\r\n\r\n", String(repeating: Self.small, count: 10),
        String(repeating: Self.small, count: 9) + "GET /streams/small HTTP/1.0\r\n\r\n",
        String(repeating: Self.small, count: 9) + "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
      ]
      let clients = try requests.map { request in
        let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
        client.send(request)
        return client
      }
      harness.eventually { harness.server.statistics.accepted == UInt64(requests.count) }
      harness.eventually { harness.server.statistics.connections == 0 }
      let dropped = harness.reports.count {
        if case .clientDropped(_, "did not read its response for 200ms") = $0 { true } else { false }
      }
      #expect(dropped == requests.count, "\(harness.reports)")
      withExtendedLifetime(clients) {}
    }
  }

  @Test func aClientThatReadsSlowlyKeepsItsResponse() async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.stallTime = .seconds(2)
    limits.http.idleTime = .seconds(2)
    try await withServer(limits) { harness in
      try Self.addSizes(harness)
      let (large, many) = (
        try HTTPWireClient(harness.path, receiveBuffer: 4096), try HTTPWireClient(harness.path, receiveBuffer: 4096)
      )
      large.get("/streams/large")
      many.send(String(repeating: Self.small, count: 30))
      _ = try large.head()
      for _ in 0..<30 {
        #expect(try large.take(100_000, #_sourceLocation) == [UInt8](repeating: 65, count: 100_000))
        #expect(try many.response().body.count == 60_000)
        usleep(100_000)
      }
      #expect(try large.fetch("/healthz").status == 200 && many.fetch("/healthz").status == 200)
      #expect(harness.reports.isEmpty, "\(harness.reports)")
    }
  }

  /// Another thread appends to the log between the look at the newest event and its last byte.
  @Test(arguments: ["before it is subscribed to", "before its first byte", "after a part of it", "never"])
  func anEventThatIsEvictedEndsItsResponse(when: String) async throws {
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let loop = server.loops[0]
    var configuration = StreamConfiguration(name: "s", start: .always)
    configuration.limits = .init(events: 2, bytes: 64 << 20)
    let source = HandFedSource()
    try server.add(configuration, source: source)
    source.send([UInt8](repeating: 65, count: 3_000_000))
    let client = try HTTPWireClient(server, user: getuid())
    client.send("G")
    for _ in 0..<5 { loop.runOneTurn() }
    let http = try #require(server.workers[0].allConnections.first?.speaker as? HTTPSpeaker)
    let stream = try #require(server.streams["s"])
    let id = stream.log.read { storage, _ in storage.position(ofLast: 1) }
    func evict(_ moment: String) {
      if when == moment { source.send([66], [67], [68]) }
    }
    http.output += "HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n".utf8
    let request = HTTPRequest(isHead: false, keepsConnection: true, allowsChunks: true, allowedOrigin: nil)
    evict("before it is subscribed to")
    let response = SingleEventResponse(request, stream.name, on: http)
    http.connection.speak(response)
    response.begin(on: stream, from: .after(id: id - 1), id: id)
    evict("before its first byte")
    for _ in 0..<5 { loop.runOneTurn() }
    evict("after a part of it")
    try server.start()
    let received = try client.response()
    #expect(received.isComplete == (when == "never"), "\(when): \(received.body.count) bytes")
    #expect(received.body.allSatisfy { $0 == 65 })
    #expect((received.body.count > 0) == (when == "never" || when == "after a part of it"))
    if when != "never" { #expect(try client.isAtEnd()) }
    await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
    #expect(server.statistics.subscribers == 0 && server.statistics.connections == 0)
  }

  /// Requests of a few bytes with responses of many: a client that reads none of them.
  @Test func responsesThatAreNotReadCostLittle() async throws {
    try await withServer(ServerLimits(workers: 1, inputBytes: 4 << 20, inputBytesPerUser: 2 << 20)) { harness in
      let source = try harness.add("s") {
        Self.isText(&$0)
        $0.limits = .init(events: 8, bytes: 4 << 20)
      }
      let event = [UInt8](repeating: 65, count: 60_000)
      source.send(event)
      let client = try HTTPWireClient(harness.path, receiveBuffer: 4096)
      _ = fcntl(client.wire.descriptor.raw, F_SETFL, O_NONBLOCK)
      let count = 1000
      client.send(String(repeating: "GET /streams/s HTTP/1.1\r\nHost: a\r\n\r\n", count: count))
      _ = fcntl(client.wire.descriptor.raw, F_SETFL, 0)
      let other = try HTTPWireClient(harness)
      for _ in 0..<20 {
        other.get("/healthz")
        #expect(try other.response().status == 200)
      }
      #expect(harness.reports.isEmpty, "\(harness.reports)")
      for index in 0..<count {
        let response = try client.response()
        guard response.body == event else {
          Issue.record("response \(index): \(response)")
          return
        }
      }
    }
  }

  @Test func aPublisherThatIsRefusedLeavesItsStream() async throws {
    try await withServer(ServerLimits(workers: 1, inputBytes: 300 << 10, inputBytesPerUser: 100 << 10)) { harness in
      try harness.addPublished("p") {
        $0.limits = .init(events: 8, bytes: 4 << 20)
        $0.replay = 8
      }
      let client = try HTTPWireClient(harness)
      client.send("POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n")
      client.send([UInt8](repeating: 65, count: 400_000))
      let response = try client.response()
      #expect(response.status == 503 && response.text.contains("max_input_per_user"), "\(response)")
      #expect(response.text.contains("\"accepted\":0"))
      #expect(try client.isAtEnd())
      harness.eventually { harness.server.statistics.connections == 0 }
      #expect(harness.server.statistics.publishers == 0)
    }
  }

  @Test func aFloodOfRequestsOnOneConnectionDelaysNoOther() async throws {
    try await withServer(ServerLimits(workers: 1, handshakeTimeout: .seconds(600))) { harness in
      let source = try harness.add("s", Self.isText)
      source.send([65])
      let flood = try HTTPWireClient(harness)
      let other = try HTTPWireClient(harness)
      let count = 2000
      let requests = Array(String(repeating: "GET /streams/s HTTP/1.1\r\nHost: a\r\n\r\n", count: count).utf8)
      // On a thread of its own: other tests may block those of tasks.
      DispatchQueue.global().async { [raw = flood.wire.descriptor.raw] in
        var offset = 0
        while offset < requests.count {
          let count = requests.withUnsafeBytes {
            Glibc.send(raw, $0.baseAddress! + offset, requests.count - offset, CInt(MSG_NOSIGNAL))
          }
          guard count > 0 else { return }
          offset += count
        }
      }
      other.get("/healthz")
      #expect(try other.response().status == 200)
      for _ in 0..<count { #expect(try flood.response().status == 200) }
    }
  }

  @Test func aClientThatIsGoneIsForgotten() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      _ = try harness.add("s", Self.isText)
      let requests = [
        "GET /streams/s?as=sse HTTP/1.1\r\nHost: a\r\n\r\n", "GET /streams/s?as=raw HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /streams/s?wait=60s HTTP/1.1\r\nHost: a\r\n\r\n", "GET /streams/s HTTP/1.1\r\n",
        "POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc", "G",
        "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
      ]
      do {
        var clients: [HTTPWireClient] = []
        for request in requests {
          for _ in 0..<3 {
            let client = try HTTPWireClient(harness)
            client.send(request)
            clients.append(client)
          }
        }
        harness.eventually { harness.server.statistics.subscribers == 9 }
        withExtendedLifetime(clients) {}
      }
      harness.eventually { harness.server.statistics.connections == 0 }
      #expect(harness.server.statistics.subscribers == 0 && harness.server.statistics.publishers == 0)
    }
  }
}
