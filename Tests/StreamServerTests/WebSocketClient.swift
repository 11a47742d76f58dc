import HTTP
import Glibc
import RSocket
import StreamRuntime
import Testing

@testable import StreamServer

/// A client that sends the WebSocket frames that a test gives it.
final class WebSocketClient {
  let http: HTTPWireClient
  private var input: [UInt8] = []

  static let handshake = handshake(at: "/rsocket")

  static func handshake(at target: String, _ fields: String...) -> String {
    "GET \(target) HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
      + "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
      + fields.map { $0 + "\r\n" }.joined() + "\r\n"
  }

  /// - Parameter early: sent with the handshake.
  convenience init(
    _ harness: ServerHarness, at target: String = "/rsocket", receiveBuffer: CInt? = nil, early: [UInt8] = []
  ) throws {
    try self.init(HTTPWireClient(harness.path, receiveBuffer: receiveBuffer), at: target, early: early)
  }

  /// - Parameter http: a connection that has no WebSocket yet.
  init(_ http: HTTPWireClient, at target: String, early: [UInt8] = []) throws {
    self.http = http
    http.send(Array(Self.handshake(at: target).utf8) + early)
    let head = try http.head()
    #expect(head?.status == 101 && head?["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    #expect(head?["Sec-WebSocket-Extensions"] == nil && head?["Sec-WebSocket-Protocol"] == nil)
  }

  /// A WebSocket that is open.
  init(_ http: HTTPWireClient) { self.http = http }

  /// The bytes of a frame without their length.
  static func encode(_ frame: Frame) -> [UInt8] {
    var bytes: [UInt8] = []
    frame.encode(into: &bytes)
    return Array(bytes.dropFirst(3))
  }

  /// One WebSocket frame, masked as a client must.
  static func message(
    _ payload: [UInt8], opcode: UInt8 = 2, isLast: Bool = true, mask: [UInt8] = [1, 2, 3, 250]
  ) -> [UInt8] {
    var bytes = [opcode | (isLast ? 0x80 : 0)]
    switch payload.count {
    case ..<126: bytes.append(0x80 | UInt8(payload.count))
    case ..<65536: bytes += [0x80 | 126, UInt8(payload.count >> 8), UInt8(payload.count & 255)]
    default:
      bytes.append(0x80 | 127)
      bytes += (0..<8).map { UInt8(truncatingIfNeeded: payload.count >> (56 - 8 * $0)) }
    }
    return bytes + mask + payload.enumerated().map { $1 ^ mask[$0 & 3] }
  }

  func send(_ bytes: [UInt8]) { http.send(bytes) }
  func send(_ frame: Frame) { send(Self.message(Self.encode(frame))) }

  func subscribe(_ name: String, credit: UInt32) {
    let payload = Payload(metadata: [UInt8(name.utf8.count)] + Array(name.utf8))
    send(.request(StreamID(1), .stream, initialRequest: credit, payload, follows: false, isComplete: false))
  }

  /// The next WebSocket frame; nil at the connection's end.
  func message(sourceLocation: SourceLocation = #_sourceLocation) throws -> (opcode: UInt8, payload: [UInt8])? {
    guard let (opcode, payload, isLast) = try part(sourceLocation) else { return nil }
    #expect(isLast, "a fragment", sourceLocation: sourceLocation)
    return (opcode, payload)
  }

  private func part(_ sourceLocation: SourceLocation) throws -> (opcode: UInt8, payload: [UInt8], isLast: Bool)? {
    guard let start = try http.take(2, sourceLocation) else { return nil }
    #expect(start[0] & 0x70 == 0 && start[1] & 0x80 == 0, "an extension, or a mask", sourceLocation: sourceLocation)
    var count = Int(start[1])
    if count > 125 {
      let size = try #require(try http.take(count == 126 ? 2 : 8, sourceLocation))
      count = size.reduce(0) { $0 << 8 | Int($1) }
    }
    return (start[0] & 15, try #require(try http.take(count, sourceLocation)), start[0] & 0x80 != 0)
  }

  /// The next message, of which a text is valid UTF-8.
  func whole(sourceLocation: SourceLocation = #_sourceLocation) throws -> (isText: Bool, payload: [UInt8])? {
    var (kind, bytes): (UInt8?, [UInt8]) = (nil, [])
    while let (opcode, payload, isLast) = try part(sourceLocation) {
      if opcode == 8 {
        Issue.record("closed: \(Closing(payload))", sourceLocation: sourceLocation)
        return nil
      }
      guard opcode < 8 else { continue }
      #expect(opcode == 0 ? kind != nil : kind == nil, "parts of two messages", sourceLocation: sourceLocation)
      kind = kind ?? opcode
      bytes += payload
      guard isLast else { continue }
      let isText = kind == 1
      #expect(!isText || String(validating: bytes, as: UTF8.self) != nil, sourceLocation: sourceLocation)
      return (isText, bytes)
    }
    return nil
  }

  /// The next message, which is text.
  func text(sourceLocation: SourceLocation = #_sourceLocation) throws -> String? {
    guard let (isText, payload) = try whole(sourceLocation: sourceLocation) else { return nil }
    #expect(isText, sourceLocation: sourceLocation)
    return String(decoding: payload, as: UTF8.self)
  }

  /// The content of a close frame.
  struct Closing: Equatable, CustomStringConvertible {
    var code = 0
    var reason = ""

    init(_ payload: [UInt8]) {
      guard payload.count >= 2 else { return }
      (code, reason) = (Int(payload[0]) << 8 | Int(payload[1]), String(decoding: payload[2...], as: UTF8.self))
    }

    var description: String { "\(code) \(reason)" }
  }

  /// Reads to the close frame, which is the last one, and ends the connection.
  /// - Returns: nil if the connection ends without one.
  func closing(sourceLocation: SourceLocation = #_sourceLocation) throws -> Closing? {
    while let (opcode, payload, _) = try part(sourceLocation) {
      guard opcode == 8 else { continue }
      #expect(try http.isAtEnd(), "something follows a close frame", sourceLocation: sourceLocation)
      return Closing(payload)
    }
    return nil
  }

  /// The next frame of RSocket.
  func frame(sourceLocation: SourceLocation = #_sourceLocation) throws -> Frame? {
    guard let (opcode, payload) = try message(sourceLocation: sourceLocation) else { return nil }
    #expect(opcode == 2, sourceLocation: sourceLocation)
    return try payload.withUnsafeBytes { try Frame.decode($0) }
  }

  /// The next event, fragments joined.
  func event(sourceLocation: SourceLocation = #_sourceLocation) throws -> [UInt8] {
    var data: [UInt8] = []
    while true {
      guard case .payload(_, let payload, let follows, _, true) = try frame(sourceLocation: sourceLocation) else {
        Issue.record("expected an event", sourceLocation: sourceLocation)
        throw HTTPWireClient.Silence()
      }
      data += payload.data
      if !follows { return data }
    }
  }
}
