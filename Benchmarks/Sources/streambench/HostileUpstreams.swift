import CLinux
import Glibc
import HTTP
import StreamRuntime

/// Hostile servers of sources, on a thread each: one of WebSockets and one of lines. They flood, violate the protocol, send
/// what inflates to megabytes, stop in the middle, and close at random bytes.
final class HostileUpstreams {
  /// The streams that read them, always.
  let streams: String

  init(seed: UInt64) throws {
    var streams = ""
    for (number, isWebSocket) in [true, false, true, false].enumerated() {
      let listener = try HTTPUpstream.listen()
      let port = HTTPUpstream.port(of: listener.raw)
      streams += "[streams.upstream-\(number)]\nstart = \"always\"\nretry = { first = \"1ms\", max = \"50ms\" }\n"
      streams += "buffer = { events = 256, bytes = \"16MiB\" }\ntype = \"text/plain\"\n"
      streams +=
        isWebSocket
        ? "websocket = { url = \"ws://127.0.0.1:\(port)/\", send = [\"hello\"] }\n"
        : "socket = { address = \"tcp:127.0.0.1:\(port)\", max_body = \"64KiB\" }\n"
      try HostileUpstream(listener.release(), isWebSocket: isWebSocket, seed: seed &+ UInt64(number)).start()
    }
    self.streams = streams
  }
}

/// One of them. Serves one connection at a time, and is never released.
@safe private final class HostileUpstream: @unchecked Sendable {  // confined to its thread
  private let listener: CInt
  private let isWebSocket: Bool
  private var dice: Dice

  /// A message of 8 MiB, compressed as RFC 7692 says: blocks of deflate with one repeated byte.
  private static let bomb: [UInt8] = {
    // A stored byte, then for 8 MiB the longest match at distance 1, in fixed codes: 258 bytes in 13 bits.
    var bits = BitWriter()
    bits.write(0b010, 3)  // not the last block; fixed codes
    bits.writeReversed(0x30 + 97, 8)  // the literal "a"
    for _ in 0..<(8 << 20) / 258 {
      bits.writeReversed(0b1100_0101, 8)  // a match of 258 bytes
      bits.write(0, 5)  // at distance 1
    }
    bits.write(0, 7)  // the end of the block
    bits.write(0, 3)  // an empty stored block, whose end the sender removes
    return bits.bytes
  }()

  init(_ listener: CInt, isWebSocket: Bool, seed: UInt64) {
    (self.listener, self.isWebSocket, dice) = (listener, isWebSocket, Dice(state: seed))
  }

  func start() throws {
    var thread = pthread_t()
    let result = unsafe pthread_create(
      &thread, nil,
      { argument in
        // As for the hostile clients: only spare processor time. The number of a thread is a process's to the kernel.
        setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 10)
        if let argument = unsafe argument {
          unsafe Unmanaged<HostileUpstream>.fromOpaque(argument).takeRetainedValue().serve()
        }
        return nil
      }, Unmanaged.passRetained(self).toOpaque())
    guard result == 0 else { throw SystemError("pthread_create", code: result) }
    pthread_detach(thread)
  }

  private func serve() {
    while true {
      let raw = accept4(listener, nil, nil, CInt(SOCK_CLOEXEC.rawValue))
      guard raw >= 0 else { return }
      let connection = OwnedDescriptor(raw)
      var patience = timeval(tv_sec: 1, tv_usec: 0)
      unsafe setsockopt(raw, SOL_SOCKET, SO_SNDTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
      guard !isWebSocket || answer(raw) else { continue }
      for _ in 0..<1 + dice.roll(50) {
        guard write(isWebSocket ? frames() : lines(), to: connection.raw) else { break }
      }
      if dice.roll(3) == 0 {
        var abort = linger(l_onoff: 1, l_linger: 0)
        unsafe setsockopt(raw, SOL_SOCKET, SO_LINGER, &abort, socklen_t(MemoryLayout<linger>.size))
      }
    }
  }

  private func answer(_ connection: CInt) -> Bool {
    guard let key = readWebSocketKey(connection) else { return false }
    let accept = dice.roll(20) == 0 ? "wrong" : WebSocketHandshake.accept(key: key)
    let head =
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      + "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Accept: \(accept)\r\n\r\n"
    return write(Array(head.utf8), to: connection)
  }

  private func frames() -> [UInt8] {
    let message = WebSocketFrame.text(Array(repeating: 0x61, count: dice.roll(200)))
    switch dice.roll(12) {
    case 0: return Array(repeatElement(message, count: 5000).joined())
    case 1: return Array(repeatElement(WebSocketFrame.ping(), count: 20_000).joined())
    case 2:
      return [0x01, 0x01, 0x61] + Array(repeatElement([0x00, 0x01, 0x61], count: 50_000).joined()) + [0x80, 0x00]
    case 3: return [0xc1, 0x7f] + bigEndian(Self.bomb.count) + Self.bomb
    case 4: return [0x81, 0x7f] + bigEndian(1 << 40)
    case 5: return [0x81, 0x7f] + bigEndian(4 << 20) + [UInt8](repeating: 0x61, count: 4 << 20)
    case 6: return (0..<1000).map { _ in UInt8(dice.roll(256)) }
    case 7: return WebSocketFrame.close(UInt16(1000 + dice.roll(20)))
    case 8: return Array(message.dropLast())
    default: return message
    }
  }

  private func lines() -> [UInt8] {
    switch dice.roll(8) {
    case 0: return Array(repeatElement([0x61, 0x0a], count: 200_000).joined())
    case 1: return [UInt8](repeating: 0x61, count: 8 << 20)
    case 2: return [UInt8](repeating: 0x0a, count: 4 << 20)
    case 3: return [UInt8](repeating: 0x0d, count: 1 << 20)
    case 4: return (0..<100_000).map { _ in UInt8(dice.roll(256)) }
    case 5:
      usleep(useconds_t(dice.roll(100_000)))
      return [0x61]
    default: return Array(repeating: 0x61, count: dice.roll(70_000)) + [0x0a]
    }
  }

  private func bigEndian(_ number: Int) -> [UInt8] {
    (0..<8).reversed().map { UInt8(truncatingIfNeeded: number >> ($0 * 8)) }
  }
}

/// Writes bits as deflate does, the lowest first.
private struct BitWriter {
  private(set) var bytes: [UInt8] = []
  private var count = 0

  mutating func write(_ value: Int, _ width: Int) {
    for bit in 0..<width {
      if count % 8 == 0 { bytes.append(0) }
      bytes[bytes.count - 1] |= UInt8(value >> bit & 1) << (count % 8)
      count += 1
    }
  }

  /// Codes have their highest bit first.
  mutating func writeReversed(_ code: Int, _ width: Int) {
    for bit in (0..<width).reversed() { write(code >> bit & 1, 1) }
  }
}

/// Reads a request that opens a WebSocket.
/// - Returns: its key; nil: the connection has ended.
func readWebSocketKey(_ connection: CInt) -> String? {
  var request = ""
  while !request.hasSuffix("\r\n\r\n") {
    var room = [UInt8](repeating: 0, count: 4096)
    let count = unsafe recv(connection, &room, room.count, 0)
    guard count > 0 else { return nil }
    request += String(decoding: room[..<count], as: UTF8.self)
  }
  let name = "sec-websocket-key: "
  return request.split(separator: "\r\n").first { $0.lowercased().hasPrefix(name) }.map {
    String($0.dropFirst(name.utf8.count))
  }
}

/// Sends all of it.
/// - Returns: whether it was sent.
func write(_ bytes: [UInt8], to connection: CInt) -> Bool {
  var sent = 0
  while sent < bytes.count {
    let count = unsafe bytes.withUnsafeBytes {
      unsafe Glibc.send(connection, $0.baseAddress.map { unsafe $0 + sent }, bytes.count - sent, CInt(MSG_NOSIGNAL))
    }
    guard count > 0 else { return false }
    sent += count
  }
  return true
}
