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

/// RSocket in a WebSocket.
@Suite struct HTTPWebSocketTests {
  private static let echo = Frame.keepalive(respond: false, position: 0, data: [1, 2])
  private static let keepalive = WebSocketClient.encode(.keepalive(respond: true, position: 0, data: [1, 2]))

  @Test func aMessageIsAFrameWithoutItsLength() async throws {
    try await withServer { harness in
      let source = try harness.add("s")
      let client = try WebSocketClient(harness)
      client.send(.setup(Setup()))
      client.subscribe("s", credit: 2)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let large = [UInt8](repeating: 9, count: 2_000_000)
      source.send([1], large, [3])
      #expect(try client.event() == [1] && client.event() == large)
      client.send(WebSocketClient.message(Self.keepalive))
      #expect(try client.frame() == Self.echo)
      client.send(.requestN(StreamID(1), 1))
      #expect(try client.event() == [3])
      let other = try WireClient.ready(harness.path)
      other.subscribe("s", credit: 1)
      #expect(try other.events(1) == [[3]])
    }
  }

  @Test func messagesMayBeFragmentedWithControlFramesBetween() async throws {
    try await withServer { harness in
      let client = try WebSocketClient(harness)
      client.send(.setup(Setup()))
      let bytes = Self.keepalive
      for cut in 0...bytes.count {
        client.send(
          WebSocketClient.message(Array(bytes[..<cut]), isLast: false) + WebSocketClient.message([7], opcode: 9)
            + WebSocketClient.message([], opcode: 10) + WebSocketClient.message([], opcode: 0, isLast: false)
            + WebSocketClient.message(Array(bytes[cut...]), opcode: 0))
        let (opcode, payload) = try #require(try client.message())
        #expect(opcode == 10 && payload == [7])
        #expect(try client.frame() == Self.echo)
      }
      for byte in WebSocketClient.message(bytes) { client.send([byte]) }
      #expect(try client.frame() == Self.echo)
      for byte in WebSocketClient.message([], opcode: 9) { client.send([byte]) }
      #expect(try client.message()?.opcode == 10)
      client.send(WebSocketClient.message([3, 232], opcode: 8))
      let (opcode, payload) = try #require(try client.message())
      #expect(opcode == 8 && payload == [3, 232])
      #expect(try client.http.isAtEnd())
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  @Test func aHandshakeAtAnotherPathIsToldTheRightOne() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { $0.type = "text/plain" }
      source.send([65])
      let client = try HTTPWireClient(harness)
      let handshake = [
        "Upgrade: websocket", "Connection: keep-alive, Upgrade", "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
      ]
      for target in ["/", "/ws", "/metrics", "/streams/"] {
        client.request("GET", target, handshake)
        let response = try client.response()
        #expect(response.status == 426 && response.text.contains("/streams/NAME"), "\(target): \(response)")
        #expect(
          response["Upgrade"] == "websocket" && response.fields.contains { $0 == "connection" && $1 == "Upgrade" },
          "\(target): \(response)")
      }
      // What asks for no WebSocket, or cannot, gets what it asks for.
      for fields in [["Upgrade: h2c", "Connection: Upgrade"], ["Upgrade: websocket"]] {
        client.request("GET", "/streams/s", fields)
        #expect(try client.response().text == "A", "\(fields)")
      }
      client.send("GET /streams/s HTTP/1.0\r\n" + handshake.map { $0 + "\r\n" }.joined() + "\r\n")
      #expect(try client.response().text == "A")
    }
  }

  /// `new WebSocket(url, ["rsocket"])` takes no other answer; nor does a client that offers none.
  @Test func theSubprotocolThatAClientOffersIsChosen() async throws {
    try await withServer { harness in
      for (offer, choice) in [
        ("rsocket", "rsocket"), ("v2.example, rsocket", "rsocket"), ("RSocket", nil), ("mqtt", nil), ("", nil),
      ] as [(String, String?)] {
        let client = try HTTPWireClient(harness)
        let handshake = WebSocketClient.handshake.dropLast() + "Sec-WebSocket-Protocol: \(offer)\r\n\r\n"
        client.send(Array(handshake.utf8))
        let head = try client.head()
        #expect(head?.status == 101 && head?["Sec-WebSocket-Protocol"] == choice, "\(offer)")
      }
    }
  }

  @Test func aResponseBeforeTheHandshakeIsSentFirst() async throws {
    try await withServer { harness in
      let client = try HTTPWireClient(harness.path)
      client.send(Array("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n\(WebSocketClient.handshake)".utf8))
      let response = try client.response()
      #expect(response.status == 200 && response.body == Array("ok\n".utf8))
      #expect(try client.head()?.status == 101)
    }
  }

  @Test func whatComesWithTheHandshakeIsRead() async throws {
    try await withServer { harness in
      let early =
        WebSocketClient.message(WebSocketClient.encode(.setup(Setup()))) + WebSocketClient.message(Self.keepalive)
      let client = try WebSocketClient(harness, early: early)
      #expect(try client.frame() == Self.echo)
    }
  }

  @Test(
    arguments: [
      ([0x82, 0x01, 0x00], 1002), ([0xC2, 0x80, 0, 0, 0, 0], 1002), ([0x83, 0x80, 0, 0, 0, 0], 1002),
      ([0x80, 0x80, 0, 0, 0, 0], 1002), ([0x09, 0x80, 0, 0, 0, 0], 1002), ([0x89, 0xFE, 0, 126, 0, 0, 0, 0], 1002),
      ([0x81, 0x80, 0, 0, 0, 0], 1003), ([0x82, 0xFF, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 1009),
      ([0x82, 0xFF, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0], 1009),  // 2 MiB, over max_request
      ([0x82, 0xFF, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 1002), ([0x88, 0x81, 0, 0, 0, 0, 1], 1002),
      ([0x02, 0x80, 0, 0, 0, 0, 0x02, 0x80, 0, 0, 0, 0], 1002),
    ] as [([UInt8], Int)]) func aViolationClosesWithItsCode(bytes: [UInt8], code: Int) async throws
  {
    try await withServer { harness in
      let client = try WebSocketClient(harness)
      client.send(bytes)
      let (opcode, payload) = try #require(try client.message())
      #expect(opcode == 8 && payload.count >= 2 && Int(payload[0]) << 8 | Int(payload[1]) == code, "\(payload)")
      #expect(try client.http.isAtEnd())
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  @Test func aServerThatStopsClosesWith1001() async throws {
    let harness = try ServerHarness()
    _ = try harness.add("s")
    let client = try WebSocketClient(harness)
    client.send(.setup(Setup()))
    client.subscribe("s", credit: 2)
    harness.eventually { harness.server.statistics.subscribers == 1 }
    await harness.stop()
    #expect(try client.frame() == .error(StreamID(1), .canceled, "streamd is stopping"))
    #expect(try client.frame() == .error(.connection, .connectionClose, "streamd is stopping"))
    let (opcode, payload) = try #require(try client.message())
    #expect(opcode == 8 && payload.prefix(2) == [3, 233])
    #expect(try client.http.isAtEnd())
  }

  @Test func aFrameThatIsNoRSocketIsAnErrorInTheWebSocket() async throws {
    try await withServer { harness in
      for message in [[], [1, 2, 3], [UInt8](repeating: 255, count: 20)] as [[UInt8]] {
        let client = try WebSocketClient(harness)
        client.send(WebSocketClient.message(message))
        guard case .error(.connection, _, _)? = try client.frame() else {
          Issue.record("no ERROR for \(message)")
          return
        }
        while try client.message() != nil {}
      }
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }
}
