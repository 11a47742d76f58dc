import CLinux
import Glibc
import HTTP
import StreamRuntime

/// A server on its own thread that sends events of 200 bytes at a steady pace to one connection after the other, as the
/// messages of a WebSocket or as lines.
final class PacedUpstream: @unchecked Sendable {  // all but constants is confined to its thread
  static let dataByteCount = 200

  let port: UInt16
  private let listener: OwnedDescriptor
  private let isWebSocket: Bool
  /// The events of a millisecond.
  private let block: [UInt8]

  /// The symbols in turn of an upstream for many names, at most 1,000 of them.
  static func symbol(_ number: Int) -> String { "S" + String(1000 + number).dropFirst() }

  /// - Parameter symbolCount: that of the events, in turn; 0: all have the same one.
  init(eventsPerMillisecond: Int, isWebSocket: Bool, symbolCount: Int = 0) throws {
    listener = try HTTPUpstream.listen()
    port = HTTPUpstream.port(of: listener.raw)
    self.isWebSocket = isWebSocket
    block = (0..<eventsPerMillisecond).flatMap { index in
      let symbol = symbolCount == 0 ? "BTC-USD" : Self.symbol(index % symbolCount)
      let text = #"{"symbol":"\#(symbol)","price":187.25,"pad":""#
      let data = Array((text + String(repeating: "x", count: Self.dataByteCount - text.utf8.count - 2) + "\"}").utf8)
      return isWebSocket ? WebSocketFrame.text(data) : data + [0x0a]
    }
    var thread = pthread_t()
    let box = unsafe Unmanaged.passRetained(self)
    let result = unsafe pthread_create(
      &thread, nil,
      { argument in
        if let argument = unsafe argument {
          unsafe Unmanaged<PacedUpstream>.fromOpaque(argument).takeRetainedValue().serve()
        }
        return nil
      }, unsafe box.toOpaque())
    guard result == 0 else { throw SystemError("pthread_create", code: result) }
    pthread_detach(thread)
  }

  private func serve() {
    while true {
      let raw = accept4(listener.raw, nil, nil, CInt(SOCK_CLOEXEC.rawValue))
      guard raw >= 0 else { return }
      let connection = OwnedDescriptor(raw)
      if !isWebSocket || answer(connection.raw) { send(to: connection.raw) }
    }
  }

  /// - Returns: whether the connection is open.
  private func answer(_ connection: CInt) -> Bool {
    guard let key = readWebSocketKey(connection) else { return false }
    let head =
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      + "Sec-WebSocket-Accept: \(WebSocketHandshake.accept(key: key))\r\n\r\n"
    return write(Array(head.utf8), to: connection)
  }

  private func send(to connection: CInt) {
    var due = monotonicNanoseconds()
    repeat {
      due += 1_000_000
      var time = timespec(tv_sec: Int(due / 1_000_000_000), tv_nsec: Int(due % 1_000_000_000))
      unsafe clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nil)
    } while write(block, to: connection)
  }
}
