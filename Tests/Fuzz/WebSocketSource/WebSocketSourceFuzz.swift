// An input is one byte of choices, one that seeds the splits, and then what the server sends: the values of fields in the
// response to the handshake, or frames.

import Events
import HTTP

// Tests/Fuzz/run compiles the sources under test into the module of this file.
#if canImport(StreamSources)
  @testable import StreamSources
#endif

/// Reads one input; a broken invariant traps.
func fuzzWebSocketSource(_ input: UnsafeRawBufferPointer) {
  guard input.count >= 2 else { return }
  let (choice, bytes) = (input[0], [UInt8](input[2...]))
  guard choice & 3 != 3 else { return checkAnswer(bytes) }
  let (limit, compresses) = (choice & 4 == 0 ? 200 : 100_000, choice & 1 != 0)
  let whole = Received(bytes, limit: limit, compresses: compresses) { $0 }
  var state = UInt32(input[1]) | 1
  let pieces = Received(bytes, limit: limit, compresses: compresses) { left in
    state = state &* 1_664_525 &+ 1_013_904_223
    return min(left, Int(state >> 24 & 15) + 1)
  }
  precondition(whole.events == pieces.events, "a split made a difference to the events")
  // A fault of the frames is found before others in the same piece.
  precondition((whole.ending == nil) == (pieces.ending == nil), "a split decided whether the connection ends")
  precondition(whole.events.allSatisfy { $0.count <= limit }, "an event over the limit")
}

/// What a connection has received.
private struct Received {
  private(set) var events = EventBatch()
  private(set) var ending: WebSocketMachine.Ending?

  init(_ bytes: [UInt8], limit: Int, compresses: Bool, _ size: (_ left: Int) -> Int) {
    let configuration = WebSocketConfiguration(HTTPConfiguration(url: "ws://localhost/", maximumBodyBytes: limit))
    var (machine, offset) = (WebSocketMachine(configuration, compresses: compresses, at: .zero) { 1 }, 0)
    do throws(WebSocketMachine.Ending) {
      while offset < bytes.count {
        let end = offset + max(1, size(bytes.count - offset))
        bytes[offset..<end].withUnsafeBytes { machine.receive($0, at: .zero) }
        while true {
          let before = events.byteCount
          let isUsedUp = try machine.read(into: &events, at: .zero)
          precondition(events.byteCount - before <= bytes.count + 10 * limit + (1 << 17), "a turn has too many bytes")
          if isUsedUp { break }
        }
        offset = end
      }
    } catch {
      ending = error
      machine.close(error.code)
    }
    var (room, sent) = ([UInt8](repeating: 0, count: 100), 0)
    while case let count = room.withUnsafeMutableBytes({ machine.fill($0) }), count > 0 { sent += count }
    precondition(sent <= 2 * (6 + 125), "more is sent than a pong and a close frame")
  }
}

/// The lines are the values of fields, in turn.
private func checkAnswer(_ bytes: [UInt8]) {
  let offer = WebSocketOffer(nonce: Array("the sample nonce".utf8), subprotocols: ["a", "b"])
  var fields = [
    "Upgrade": ["websocket"], "Connection": ["Upgrade"], "Sec-WebSocket-Protocol": ["a"],
    "Sec-WebSocket-Accept": ["s3pPLMBiTxaQ9kYGzzhZRbK+xOo="],
  ]
  for (index, line) in bytes.split(separator: 10).enumerated() {
    let name = ["Sec-WebSocket-Extensions", "Sec-WebSocket-Protocol", "Connection", "Sec-WebSocket-Accept"][index % 4]
    fields[name, default: []].append(String(decoding: line, as: UTF8.self))
  }
  guard let compresses = try? offer.accepts({ fields[$0] ?? [] }) else { return }
  precondition(fields["Sec-WebSocket-Protocol"]?.count == 1, "two subprotocols are accepted")
  // Empty elements of a list are ignored (RFC 9110, 5.6.1).
  let extensions = fields["Sec-WebSocket-Extensions"]?.flatMap { $0.split { ",\t ".contains($0) } } ?? []
  precondition(compresses == !extensions.isEmpty, "another extension is accepted")
}
