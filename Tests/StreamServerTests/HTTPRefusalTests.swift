import Events
import Glibc
import HTTP
import RSocket
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Connections over a limit, and requests that are refused before they reach a stream: what they get, and how they are
/// counted.
@Suite struct HTTPRefusalTests {
  // MARK: Over the limit of connections

  private static let full = "the server has 1 connections already (max_connections)"
  private static let type = #""type":"urn:streamd:too-many-connections""#

  /// A server with one connection, which uses the limit up.
  private func withFullServer(
    _ change: (inout ServerLimits) -> Void = { _ in }, _ body: (ServerHarness) async throws -> Void
  ) async throws {
    var limits = ServerLimits(workers: 1, connections: 1)
    change(&limits)
    try await withServer(limits) { harness in
      let first = try WireClient.ready(harness.path)
      #expect(try first.isSilent())
      try await body(harness)
      #expect(try first.isSilent())
      #expect(harness.server.statistics.connections == 1)
    }
  }

  @Test(arguments: [
    ("/streams/s", "Accept: text/event-stream"), ("/streams/s?as=sse", "Accept: */*"),
    ("/streams?as=sse", "X: y"), ("/stats", "Accept: text/event-stream, */*;q=0.1"),
  ]) func anEventSourceOverTheLimitReceivesTheTimeOfItsNextTry(target: String, field: String) async throws {
    try await withFullServer { harness in
      let client = try HTTPWireClient(harness)
      client.get(target, field)
      let response = try client.response()
      #expect(response.status == 200 && response["Content-Type"] == "text/event-stream" && response.isComplete)
      #expect(response.text == "retry: 10000\n\nevent: end\ndata: {\"reason\":\"\(Self.full)\",\(Self.type)}\n\n")
      #expect(response["Connection"] == "close" && response["Cache-Control"] == "no-store, no-transform")
      #expect(try client.isAtEnd())
      #expect(harness.server.statistics.refused == 1)
    }
  }

  @Test(arguments: ["/streams/s", "/streams/s?as=ndjson", "/healthz", "/rsocket", "/streams/s?as=raw"])
  func anotherRequestOverTheLimitIsUnavailable(target: String) async throws {
    try await withFullServer { harness in
      let client = try HTTPWireClient(harness)
      client.get(target, "Accept: */*")
      let response = try client.response()
      #expect(response.status == 503 && response["Retry-After"] == "10", "\(response)")
      #expect(response["Content-Type"] == "application/problem+json" && response.text.contains(Self.full))
      #expect(try client.isAtEnd())
    }
  }

  @Test func theFirstBytesOverTheLimitMayComeInPieces() async throws {
    try await withFullServer { harness in
      let client = try HTTPWireClient(harness)
      for byte in "GET /streams/s?as=sse HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8 { client.send([byte]) }
      #expect(try client.response().text.hasPrefix("retry: 10000\n\n"))
      let value = try HTTPWireClient(harness)
      value.post("/streams/p", String(repeating: "a", count: 20_000))
      let refusal = try value.response()
      #expect(refusal.status == 503 && refusal.text.contains("\"accepted\":0}"), "\(refusal)")
      let head = try HTTPWireClient(harness)
      #expect(try head.fetch("/streams/s", method: "HEAD").status == 503)
      #expect(try head.isAtEnd())
      let malformed = try HTTPWireClient(harness)
      malformed.send("GET / HTTP/1.1\r\n\r\n")
      #expect(try malformed.response().status == 400)
      let foreign = try HTTPWireClient(harness)
      #expect(try foreign.fetch("/streams/s?as=sse", "Origin: http://evil.example").status == 403)
    }
  }

  private static func answer(to bytes: [UInt8], inPiecesOf size: Int) -> [UInt8] {
    var machine = RefusalMachine(full, OriginRules(isUnixSocket: true), date: "now")
    var rest = bytes[...]
    while !rest.isEmpty {
      if let answer = machine.receive(rest.prefix(size)) { return answer }
      rest = rest.dropFirst(size)
    }
    return machine.lateAnswer
  }

  /// The answer depends on no split, and there is one whatever is sent.
  @Test func anythingOverTheLimitIsAnswered() {
    var random = SystemRandomNumberGenerator()
    let head = "GET /streams/s?as=sse HTTP/1.1\r\nHost: a\r\n\r\n"
    var inputs = [
      head, head + head, "GET / HTTP/1.1\r\n\r\n", "G", "PRI * HTTP/2.0\r\n\r\n", "\0\0\u{40}", "\0", " ", "a",
      "GET /" + String(repeating: "a", count: 9000), "Q " + String(repeating: "a:", count: 20_000),
    ].map { Array($0.utf8) }
    for _ in 0..<200 {
      var bytes = Array(head.utf8)
      for _ in 0...Int.random(in: 0..<4, using: &random) {
        bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
      }
      inputs.append(bytes)
    }
    for input in inputs {
      let whole = Self.answer(to: input, inPiecesOf: .max)
      #expect(!whole.isEmpty)
      for size in [1, 2, 3, 7, 1000] {
        let pieces = Self.answer(to: input, inPiecesOf: size)
        #expect(pieces == whole, "\(input.prefix(200)) in pieces of \(size)")
      }
    }
  }

  @Test(arguments: [
    ("HEAD / HTTP/1.1\r\n\r\n", "400"), ("HEAD / HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n", "403"),
    ("HEAD /streams/s", "503"), ("HEAD /" + String(repeating: "a", count: 9000), "414"),
  ]) func anAnswerToHEADHasNoBody(request: String, status: String) {
    for size in [1, Int.max] {
      let answer = String(decoding: Self.answer(to: Array(request.utf8), inPiecesOf: size), as: UTF8.self)
      #expect(answer.hasPrefix("HTTP/1.1 \(status) ") && answer.hasSuffix("\r\n\r\n"), "\(answer)")
    }
  }

  @Test func aRequestOverTheLimitThatIsCutOffIsAnswered() async throws {
    try await withFullServer { harness in
      let client = try HTTPWireClient(harness)
      client.send("GET /healthz HTTP/1.1\r\nHo")
      client.closeWriting()
      #expect(try client.response().status == 503 && client.isAtEnd())
    }
  }

  @Test func aClientOverTheLimitThatSendsItsWholeBodyFirstReadsTheRefusal() async throws {
    try await withFullServer({ $0.refusalTime = .seconds(600) }) { harness in
      let client = try HTTPWireClient(harness)
      client.request("POST", "/streams/s", body: [UInt8](repeating: 65, count: 8 << 20))
      #expect(try client.response().status == 503)
    }
  }

  @Test func aPageOfAnAllowedOriginMayReadTheRefusal() async throws {
    try await withFullServer({ $0.httpOrigins = ["https://a.example"] }) { harness in
      let client = try HTTPWireClient(harness)
      let response = try client.fetch("/streams/s?as=sse", "Origin: https://a.example")
      #expect(response.status == 200 && response["Access-Control-Allow-Origin"] == "https://a.example")
    }
  }

  @Test func anRSocketClientOverTheLimitGetsItsError() async throws {
    try await withFullServer { harness in
      let client = try WireClient.ready(harness.path)
      #expect(try client.receive() == .error(.connection, .rejectedSetup, Self.full))
      #expect(try client.receive() == nil)
    }
  }

  @Test func aSilentConnectionOverTheLimitEndsSoon() async throws {
    try await withFullServer({ $0.refusalTime = .milliseconds(50) }) { harness in
      let silent = try WireClient(harness.path)
      #expect(try silent.receive() == .error(.connection, .rejectedSetup, Self.full))
      #expect(try silent.receive() == nil)
      let slow = try HTTPWireClient(harness)
      slow.send("GET / HTTP/1.1\r\nHost:")
      #expect(try slow.response().status == 503)
      #expect(try slow.isAtEnd())
      // One that does not stop sending.
      let noisy = try HTTPWireClient(harness)
      noisy.get("/healthz")
      #expect(try noisy.response().status == 503)
      while true {
        let sent = Glibc.send(noisy.wire.descriptor.raw, [UInt8](repeating: 65, count: 64), 64, CInt(MSG_NOSIGNAL))
        if sent < 0 { break }
        usleep(1000)
      }
    }
  }

  /// Those that wait use no more descriptors than the server has reserved for them; the oldest one makes room.
  @Test func connectionsOverTheLimitThatWaitAreFew() async throws {
    try await withFullServer({ $0.refusalTime = .seconds(600) }) { harness in
      let count = RefusedConnections.capacity
      var silent: [WireClient] = []
      for _ in 0..<count { silent.append(try WireClient(harness.path)) }
      harness.eventually { harness.server.statistics.refused == UInt64(count) }
      #expect(silent.allSatisfy { !$0.hasInput })
      let next = try HTTPWireClient(harness)
      let oldest = silent.removeFirst()
      #expect(try oldest.receive() == .error(.connection, .rejectedSetup, Self.full))
      #expect(try oldest.receive() == nil)
      #expect(silent.allSatisfy { !$0.hasInput })
      #expect(await Self.waiting(harness) == count)
      #expect(try next.fetch("/healthz").status == 503)
      next.closeWriting()
      silent = []
      #expect(try await eventually { await Self.waiting(harness) == 0 })
      silent = [try WireClient(harness.path)]
      harness.eventually { harness.server.statistics.refused == UInt64(count) + 2 }
      #expect(await Self.waiting(harness) == 1)
    }
  }

  /// The number of connections that wait for their first bytes, or for their clients to read the answer.
  private static func waiting(_ harness: ServerHarness) async -> Int {
    await withCheckedContinuation { continuation in
      harness.server.loops[0].execute { continuation.resume(returning: harness.server.refusedConnections.count) }
    }
  }

  // MARK: Nothing is sent

  @Test func aConnectionThatSendsNothingIsClosedWithoutAMessage() async throws {
    try await withServer(ServerLimits(workers: 1, handshakeTimeout: .milliseconds(30))) { harness in
      harness.setWantsDetails(true)
      let client = try WireClient(harness.path)
      #expect(try client.receive() == nil)
      harness.eventually { harness.server.statistics.connections == 0 }
      for report in harness.reports {
        guard case .clientActs = report else {
          Issue.record("\(report)")
          continue
        }
      }
      // One that has begun is named.
      let begun = try WireClient(harness.path)
      begun.send([0, 0])
      #expect(try begun.receive() == nil)
      harness.eventually {
        harness.reports.contains {
          if case .clientDropped(_, "no SETUP within the handshake timeout") = $0 { true } else { false }
        }
      }
    }
  }

  // MARK: Counting

  @Test func everyRefusedRequestIsCountedOnce() async throws {
    var limits = ServerLimits(workers: 1, requestsPerUser: 3)
    limits.handshakeTimeout = .seconds(600)
    try await withServer(limits) { harness in
      _ = try harness.add("s") { $0.type = "text/plain" }
      _ = try harness.add("closed") { $0.read = AccessRules([.user(4711)]) }
      var refused: UInt64 = 0
      func expect(
        _ status: Int, counts: UInt64 = 1, sourceLocation: SourceLocation = #_sourceLocation,
        _ request: (HTTPWireClient) -> Void
      ) throws {
        let client = try HTTPWireClient(harness)
        request(client)
        let response = try client.response()
        #expect(response.status == status, "\(response)", sourceLocation: sourceLocation)
        refused += counts
        #expect(harness.server.statistics.refused == refused, sourceLocation: sourceLocation)
      }
      try expect(204, counts: 0) { $0.get("/streams/s") }
      try expect(400) { $0.send("GET / HTTP/1.1\r\n\r\n") }
      try expect(414) { $0.send("GET /" + String(repeating: "a", count: 9000) + " HTTP/1.1\r\nHost: a\r\n\r\n") }
      try expect(403) { $0.get("/healthz", "Origin: http://evil.example") }
      try expect(404) { $0.get("/nothing") }
      try expect(404) { $0.get("/streams/none") }
      try expect(403) { $0.get("/streams/closed") }
      try expect(405) { $0.request("DELETE", "/healthz") }
      try expect(405) { $0.post("/streams/s", "a") }
      try expect(400) { $0.get("/streams/s?as=xml") }
      try expect(406) { $0.get("/streams/s", "Accept: image/png") }
      try expect(426) { $0.get("/rsocket") }
      let readers = try (0..<3).map { _ in
        let client = try HTTPWireClient(harness)
        client.get("/streams/s?as=raw")
        _ = try client.head()
        return client
      }
      harness.eventually { harness.server.statistics.subscribers == 3 }
      try expect(503) { $0.get("/streams/s") }
      withExtendedLifetime(readers) {}
      // Refusals that name a stream, or are for lack of rights or for another site, are in the journal as well.
      #expect(harness.reports.count { if case .clientRefused = $0 { true } else { false } } == 5)
    }
  }

  // MARK: Limits of requests

  @Test func aRequestForManyStreamsCountsAsMany() async throws {
    try await withServer(ServerLimits(workers: 1, requestsPerConnection: 8, requestsPerUser: 10)) { harness in
      let names = (0..<9).map { "s\($0)" }
      for name in names { _ = try harness.add(name) { $0.type = "text/plain" } }
      let eight = "/streams/" + names.prefix(8).joined(separator: ",")
      let client = try HTTPWireClient(harness)
      client.get(eight + "?as=raw")
      #expect(try client.head()?.status == 200)
      let second = try HTTPWireClient(harness)
      let response = try second.fetch("/streams/s0,s1,s2?as=raw")
      #expect(response.status == 503 && response["Retry-After"] != nil, "\(response)")
      #expect(response.text.contains("has 8 of 10 requests, and this one needs 3"), "\(response)")
      second.get("/streams/s0,s1?as=raw")
      #expect(try second.head()?.status == 200)
      let third = try HTTPWireClient(harness)
      #expect(try third.fetch("/streams/s0").text.contains("has 10 requests already"))
      let source = try third.fetch("/streams/s0?as=sse")
      #expect(source.status == 200 && source.text.hasPrefix("retry: 10000\n\nevent: end\n"), "\(source)")
      #expect(harness.server.statistics.subscribers == 10)
      let ninth = try HTTPWireClient(harness)
      let tooMany = try ninth.fetch("/streams/" + names.joined(separator: ",") + "?as=raw")
      #expect(tooMany.status == 400 && tooMany.text.contains("at most 8 streams"), "\(tooMany)")
    }
  }

  /// A connection has a few places in its user's queue. The streams before the refused one have one each.
  @Test func aConnectionDeliversEventsAfterRefusedRequestsForSeveralStreams() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      for name in ["s", "t"] {
        try harness.add(name) { ($0.type, $0.replay) = ("text/plain", 100) }.send(Array("x".utf8))
      }
      let client = try HTTPWireClient(harness)
      for _ in 0...Slices.subscriptions {
        let refusal = try client.fetch("/streams/s,t?as=raw&from=replay,9000000000000000")
        #expect(refusal.status == 400, "\(refusal)")
      }
      #expect(try client.fetch("/streams/s?as=raw&follow=0").text == "x\n")
    }
  }
}
