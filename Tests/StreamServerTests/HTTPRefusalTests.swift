import Events
import Glibc
import RSocket
import Reactive
import StreamRuntime
import Testing

@testable import StreamServer

/// Connections over a limit, and requests that are refused before they reach a stream: what they get, and how they are
/// counted.
@Suite struct HTTPRefusalTests {
  // MARK: Nothing is sent

  @Test func aConnectionThatSendsNothingEndsWithoutAWord() async throws {
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
      // Those that name a stream, and those of a client without rights, are in the journal as well.
      #expect(harness.reports.count { if case .clientRefused = $0 { true } else { false } } == 4)
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
}
