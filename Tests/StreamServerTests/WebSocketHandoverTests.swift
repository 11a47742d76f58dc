import CLinux
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

/// Plain WebSockets that continue in another server, as in the next process.
@Suite struct WebSocketHandoverTests {
  /// The same stream in both servers, with the same events, from the id 1000 on.
  private static func add(
    _ harnesses: [ServerHarness], _ name: String, _ events: [[UInt8]], type: String = "text/plain",
    limits: EventLog.Limits = .init(events: 1000, bytes: 64 << 20)
  ) throws {
    for harness in harnesses {
      let log = try #require(EventLog(name: name, limits: limits, firstID: 1000))
      log.append(EventBatch(events))
      let configuration = StreamConfiguration(name: name, type: type, replay: 1000, limits: limits, start: .always)
      try harness.server.add(configuration, log: log, source: HandFedSource())
    }
  }

  private static func settle(_ harness: ServerHarness) {
    var (writes, rounds): (UInt64, Int) = (0, 0)
    harness.eventually {
      defer { writes = harness.server.statistics.writes }
      rounds = writes > 0 && writes == harness.server.statistics.writes ? rounds + 1 : 0
      return rounds > 20
    }
  }

  @Test(arguments: ["", "ids=1"], ["text/plain", "image/png", "application/json"])
  func itContinuesInTheMiddleOfAnEvent(query: String, type: String) async throws {
    try await withTwoServers { first, next in
      let text = "\"" + String(repeating: "aé€😀", count: 30_000) + "\""
      try Self.add([first, next], "s", [[UInt8]](repeating: Array(text.utf8), count: 4), type: type)
      let client = try WebSocketClient(first, at: "/streams/s?\(query)", receiveBuffer: 4096)
      Self.settle(first)
      try await first.handOver(to: next)
      for _ in 0..<4 {
        let (isText, payload) = try #require(try client.whole())
        #expect(isText == (type != "image/png" || query == "ids=1"))
        guard query == "ids=1" else {
          #expect(payload == Array(text.utf8))
          continue
        }
        #expect(payload.count > text.utf8.count)
      }
      next.server.streams["s"]?.append([[49]]) { _ in }
      #expect(try client.whole() != nil)
      client.send(WebSocketClient.message([7], opcode: 9))
      #expect(try client.message()?.opcode == 10)
      client.send(WebSocketClient.message([3, 232], opcode: 8))
      #expect(try client.closing()?.code == 1000)
    }
  }

  @Test func aFrameInPartIsReadByTheNextServer() async throws {
    let bytes = WebSocketClient.message(Array(repeating: 7, count: 125), opcode: 9)
    try await withTwoServers { first, next in
      try Self.add([first, next], "s", [])
      let clients = try bytes.indices.map { cut in
        let client = try WebSocketClient(first, at: "/streams/s")
        client.send(Array(bytes[..<cut]))
        return client
      }
      first.eventually { first.server.statistics.subscribers == bytes.count }
      usleep(50_000)
      try await first.handOver(to: next)
      for (cut, client) in zip(bytes.indices, clients) {
        client.send(Array(bytes[cut...]))
        #expect(try client.message()?.opcode == 10, "cut at \(cut)")
      }
    }
  }

  @Test func severalStreamsAndPatternsContinue() async throws {
    try await withTwoServers { first, next in
      for (name, event) in [("a/1", 49), ("a/2", 50)] as [(String, UInt8)] {
        try Self.add([first, next], name, [[event]])
      }
      let clients = try ["a/1,a/2?ids=1", "a/*?ids=1"].map { try WebSocketClient(first, at: "/streams/\($0)") }
      for client in clients { #expect(try client.text() != nil && client.text() != nil) }
      try await first.handOver(to: next)
      next.server.streams["a/2"]?.append([[51]]) { _ in }
      for client in clients {
        let text = try #require(try client.text())
        #expect(text.hasPrefix("{\"stream\":\"a/2\"") && text.hasSuffix("\"data\":\"3\"}"), "\(text)")
      }
    }
  }

  @Test func whatTheNextServerDoesNotServeIsClosedWithItsCode() async throws {
    try await withTwoServers { first, next in
      for name in ["gone", "denied", "typed", "lost"] { try Self.add([first], name, [[49]]) }
      let clients = try ["gone", "denied", "typed"].map { try WebSocketClient(first, at: "/streams/\($0)") }
      for client in clients { #expect(try client.text() == "1") }
      _ = try next.add("denied") { $0.read = AccessRules([.user(4_000_000)]) }
      try Self.add([next], "typed", [[49]], type: "image/png")
      try await first.handOver(to: next)
      for (client, code) in zip(clients, [4404, 1008, 1012]) { #expect(try client.closing()?.code == code) }
    }
  }

  /// The next process has no room for them.
  @Test func aConnectionWithoutRoomIsClosedWith1012() async throws {
    try await withTwoServers { first, next in
      try Self.add([first, next], "s", [[UInt8](repeating: 65, count: 3_000_000)])
      try first.addPublished("p")
      let within = try WebSocketClient(first, at: "/streams/s", receiveBuffer: 4096)
      Self.settle(first)
      let idle = try WebSocketClient(first, at: "/streams/s?from=new")
      let publisher = try WebSocketClient(first, at: "/streams/p?publish=1")
      first.eventually { first.server.statistics.subscribers == 2 && first.server.statistics.publishers == 1 }
      let saved = await first.save()
      saved.cancel(from: 0)
      for client in [idle, publisher] {
        let closing = try #require(try client.closing())
        #expect(closing.code == 1012 && closing.reason == "streamd is restarting", "\(closing)")
      }
      withExtendedLifetime(within) {}
      await next.finishRestore()
    }
  }

  /// Whatever a state says, another connection is served.
  @Test func aDamagedStateEndsItsConnectionAlone() async throws {
    for (phase, change) in [
      (SavedHTTP.Phase.streaming, { $0.socket = SavedWebSocket(.init(), message: [1], headerPart: []) }),
      (.streaming, { $0.socket = nil }), (.streaming, { $0.names = [.init("none".utf8)] }),
      (.publishing, { $0.socket = SavedWebSocket(.init(), message: [], headerPart: Array(repeating: 0, count: 200)) }),
      (.publishing, { $0.names = [.init("s".utf8)] }), (.publishing, { $0.names = [] }),
      (.publishing, { $0.values = [.init([UInt8](repeating: 65, count: 8192))] }),
      (.publishing, { ($0.receivedCount, $0.confirmedCount, $0.count) = (0, .max, 5) }),
    ] as [(SavedHTTP.Phase, (inout SavedHTTP) -> Void)] {
      var http = SavedHTTP()
      (http.phase, http.hasRequested, http.request) = (phase, true, 6)
      http.names = [.init((phase == .streaming ? "s" : "p").utf8)]
      http.socket = SavedWebSocket()
      let encoding = EventFormat.Encoding.body(
        .init(.message, .text, hasEnvelope: false)!, .init(isChunked: false, isNamed: false))
      http.encoding = EventFormat(encoding, ids: true, completes: false).savedEncoding
      change(&http)
      var connection = SavedConnection(descriptor: -1, number: 1)
      connection.http = http
      var saved = try SavedConnections(state: SavedConnections([connection]).state(ofFirst: 1))
      #expect(saved.connections[0].http == http)
      var pair: [CInt] = [-1, -1]
      let kind = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
      #expect(socketpair(AF_UNIX, kind, 0, &pair) == 0)
      saved.attach(pair[0], to: 0)
      let next = try ServerHarness(ServerLimits(workers: 1), restores: true)
      try Self.add([next], "s", [[49]])
      try next.addPublished("p") { $0.limits = .init(events: 4, bytes: 4096) }
      await next.restore(saved)
      let damaged = HTTPWireClient(WireClient(taking: pair[1]))
      #expect(try HTTPWireClient(next).fetch("/healthz").status == 200)
      damaged.closeWriting()
      next.eventually { next.server.statistics.connections == 0 }
      await next.stop()
    }
  }
}
