import CLinux
import Glibc
import HTTP
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// The format of saved connections that speak HTTP, which later versions read: a sample of each kind.
@Suite struct SavedHTTPTests {
  // MARK: What the fixtures have

  private static let keepalive = WebSocketClient.message(
    WebSocketClient.encode(.keepalive(respond: true, position: 0, data: [1, 2, 3])))

  /// One connection in each phase, with every field that the phase has, none at its default.
  private static var http: SavedConnections {
    func connection(_ phase: SavedHTTP.Phase, _ change: (inout SavedConnection, inout SavedHTTP) -> Void)
      -> SavedConnection
    {
      var (connection, http) = (SavedConnection(descriptor: -1, number: UInt64(phase.rawValue) + 1), SavedHTTP())
      (http.phase, http.hasRequested, http.request, connection.silence) = (phase, true, 6, 1_000_000_000)
      change(&connection, &http)
      connection.http = http
      return connection
    }
    return SavedConnections([
      connection(.head) { $1.input = Array("GET /healthz HTTP/1.1\r\nHost: a\r".utf8) },
      connection(.waiting) {
        ($1.names, $1.condition, $1.knownID) = ([.init("s".utf8)], [.init("\"1003\"".utf8)], 1003)
        ($1.wait, $1.flags, $0.input) = (60_000_000_000, 1, Array("GET /heal".utf8))
      },
      connection(.publishing) {
        ($1.names, $1.hasLines, $1.part, $1.count) = ([.init("p".utf8)], true, Array("a".utf8), 2)
        $1.values = [.init("x".utf8), .init("y".utf8)]
        ($1.body.phase, $1.body.byteCountLeft) = (1, 0x4)  // a chunk's size, one digit of which has arrived
        $1.body.lineByteCount = 1
      },
      connection(.streaming) {
        let encoding = EventFormat.Encoding.body(
          .init(.serverSentEvents, .text, hasEnvelope: false)!, .init(isChunked: true, isNamed: true))
        let format = EventFormat(encoding, ids: true, completes: false)
        ($1.names, $1.ended) = ([.init("s".utf8), .init("t".utf8)], [.init(), .init("77".utf8)])
        ($1.encoding, $1.flags, $1.allowedOrigin) = (format.savedEncoding, 1, Array("https://a.example".utf8))
        $0.unsent = Array(":\n\n\r\n".utf8)
        $0.subscriptions = [
          .init(
            stream: "s", id: StreamID(1), format: format, onLag: .latest, cursor: Cursor(position: 1003),
            credit: .max(1), gap: Gap(count: 2))
        ]
      },
      connection(.finishing) { connection, _ in
        connection.unsent = Array("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".utf8)
      },
      connection(.rendering) { $1.flags = 3 },
    ])
  }

  /// One connection in the middle of a message, and one in the middle of a frame's header.
  private static func webSocket() throws -> SavedConnections {
    func connection(_ number: UInt64, cutAt cut: Int) throws -> SavedConnection {
      var decoder = WebSocketDecoder(maximumMessageByteCount: 1 << 20)
      var (offset, message) = (0, [UInt8]())
      let bytes = Array(keepalive[..<cut])
      _ = try decoder.next(in: bytes.span, from: &offset, message: &message)
      var connection = SavedConnection(descriptor: -1, number: number)
      (connection.machine.isOpen, connection.machine.metadataFormat) = (true, .text)
      (connection.machine.keepaliveMilliseconds, connection.machine.lifetimeMilliseconds) = (20_000, 90_000)
      connection.webSocket = SavedWebSocket(decoder.saved, message: message, headerPart: Array(bytes[offset...]))
      return connection
    }
    return SavedConnections([
      try connection(1, cutAt: keepalive.count - 2), try connection(2, cutAt: 4),
    ])
  }

  private static func kinds() throws -> [(name: String, SavedConnections)] {
    [("http-4", http), ("websocket-4", try webSocket())]
  }

  // MARK: Other versions

  /// A change of the format adds fixtures, and does not change these.
  @Test func version4IsReadAndWritten() throws {
    for (name, connections) in try Self.kinds() {
      #expect(try SavedConnections(state: fixture(name)) == connections, "\(name)")
      #expect(try connections.state(ofFirst: connections.count) == fixture(name), "\(name)")
      #expect(connections.connections.allSatisfy { $0.isPossible }, "\(name)")
    }
  }

  /// A server with the streams of the fixtures, and its clients, one for each saved connection.
  private static func restore(
    _ saved: SavedConnections, _ body: (ServerHarness, [HTTPWireClient], ReplayLog.EventLog) throws -> Void
  ) async throws {
    var (saved, clients) = (saved, [HTTPWireClient]())
    for index in 0..<saved.count {
      var pair: [CInt] = [-1, -1]
      let kind = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
      #expect(socketpair(AF_UNIX, kind, 0, &pair) == 0)
      saved.attach(pair[0], to: index)
      clients.append(HTTPWireClient(WireClient(taking: pair[1])))
    }
    let harness = try ServerHarness(restores: true)
    var configuration = StreamConfiguration(name: "s", type: "text/plain", start: .always)
    configuration.limits = .init(events: 8)
    let log = try #require(EventLog(name: "s", limits: configuration.limits, firstID: 1000))
    log.append([[0], [1], [2], [65]])
    try harness.server.add(configuration, log: log, source: HandFedSource())
    try harness.addPublished("p")
    await harness.restore(saved)
    do {
      try body(harness, clients, log)
    } catch {
      await harness.stop()
      throw error
    }
    await harness.stop()
  }

  @Test func restoredConnectionsOverHTTPAreServed() async throws {
    try await Self.restore(try SavedConnections(state: fixture("http-4"))) { harness, clients, _ in
      clients[0].send("\n\r\n")
      #expect(try clients[0].response().text == "ok\n")
      harness.eventually { harness.server.streams["s"]?.log.subscriberCount == 1 }
      harness.server.streams["s"]?.append([[66]]) { _ in }
      let news = try clients[1].response()
      #expect(news.status == 200 && news.text == "B" && news["ETag"] == "\"1004\"", "\(news)")
      clients[1].send("thz HTTP/1.1\r\nHost: a\r\n\r\n")
      #expect(try clients[1].response().text == "ok\n")
      clients[2].send("\r\nb\nc\n\r\n0\r\n\r\n")
      #expect(try clients[2].response().text == "{\"accepted\":6}\n")
      // The rest of a chunk, then the event, then the end.
      #expect(try clients[3].take(5, #_sourceLocation) == Array(":\n\n\r\n".utf8))
      var events: [ParsedEvent] = []
      while let text = try clients[3].chunkText(), !text.isEmpty { events += ParsedEvent.all(in: text) }
      #expect(
        events == [
          ParsedEvent("gap", id: nil, #"{"lost":2,"stream":"s"}"#), ParsedEvent("s", id: "1003,77", "A"),
          ParsedEvent("end", id: nil, #"{"reason":"complete"}"#),
        ], "\(events)")
      #expect(try clients[4].response().status == 204 && clients[4].isAtEnd())
      #expect(try clients[5].response().text.hasSuffix("# EOF\n"))
    }
  }

  @Test func restoredWebSocketsAreServed() async throws {
    try await Self.restore(try SavedConnections(state: fixture("websocket-4"))) { _, clients, _ in
      for (client, cut) in zip(clients, [Self.keepalive.count - 2, 4]) {
        let client = WebSocketClient(client)
        client.send(Array(Self.keepalive[cut...]))
        let answer = try client.frame()
        #expect(answer == .keepalive(respond: false, position: 0, data: [1, 2, 3]))
      }
    }
  }

  // MARK: Damage

  @Test(arguments: ["http-4", "websocket-4"]) func anyChangedByteOrLengthIsRefused(name: String) throws {
    let state = try fixture(name)
    for count in 0..<state.count {
      #expect(throws: InvalidSavedState.self) { try SavedConnections(state: Array(state.prefix(count))) }
    }
    // Except the number of attempts, and the free bytes next to it.
    for index in state.indices where !(8..<12).contains(index) {
      var damaged = state
      damaged[index] ^= 0x10
      #expect(throws: InvalidSavedState.self, "byte \(index)") { try SavedConnections(state: damaged) }
    }
  }

  /// With a checksum that matches: the state is refused, or its connections are restored or ended.
  @Test(arguments: ["http-4", "websocket-4"]) func noChangedByteStopsTheServer(name: String) async throws {
    let content = Array(try fixture(name).dropFirst(SavedState.headerBytes))
    var (all, refusals) = ([SavedConnection](), 0)
    for index in content.indices {
      for bits in [1, 0x80, 0xFF] as [UInt8] {
        var damaged = content
        damaged[index] ^= bits
        do {
          all += try SavedConnections(state: SavedState.seal(damaged, as: .connections)).connections
        } catch {
          refusals += 1
        }
      }
    }
    #expect(refusals > 0 && !all.isEmpty)
    // As many as there are descriptors for.
    let step = max(1, all.count / 200)
    let some = stride(from: 0, to: all.count, by: step).map { all[$0] }
    try await Self.restore(SavedConnections(some)) { harness, _, _ in
      let client = try HTTPWireClient(harness)
      #expect(try client.fetch("/healthz").text == "ok\n")
    }
  }
}
