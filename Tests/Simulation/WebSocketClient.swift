import CSimulation
import Glibc
import RSocket

/// A client that keeps to RSocket over a WebSocket, and judges what is around each frame. It shares no code with the server.
final class WebSocketClient: RSocketClient {
  private var random = Random(0)
  private var hasAsked = false
  private var isOpen = false
  private var isRefused = false
  /// Whether the server has closed the WebSocket.
  private var isClosed = false
  /// Frames for which the server has to agree to the protocol first.
  private var waiting: [UInt8] = []
  /// Pings that the server has not answered.
  private var pings: [[UInt8]] = []
  /// Where in the connection another process has continued.
  private var handovers: [Int] = []

  override var mayEnd: Bool { !isOpen || isClosed }

  override func send(_ bytes: [UInt8]) {
    if !hasAsked {
      hasAsked = true
      random = Random(UInt64(number))
      // Key and answer are those of RFC 6455, section 1.3.
      let head = [
        "GET /rsocket HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: keep-alive, Upgrade",
        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
      ]
      super.send(Array((head.joined(separator: "\r\n") + "\r\n\r\n").utf8))
    }
    guard isOpen else {
      waiting += bytes
      return
    }
    var output: [UInt8] = []
    var rest = bytes[...]
    while rest.count >= 3 {
      let count = rest.prefix(3).reduce(0) { $0 << 8 | Int($1) }
      append(Array(rest.dropFirst(3).prefix(count)), to: &output)
      rest = rest.dropFirst(3 + count)
    }
    super.send(output)
  }

  /// A message, in one frame or in several, with pings among them.
  private func append(_ message: [UInt8], to output: inout [UInt8]) {
    var rest = message[...]
    var opcode: UInt8 = 2
    repeat {
      let part = random.chance(85) ? rest : rest.prefix(random.below(rest.count + 1))
      rest = rest.dropFirst(part.count)
      append(opcode, Array(part), isLast: rest.isEmpty, to: &output)
      opcode = 0
      if random.chance(5) {
        pings.append(random.bytes(random.below(126)))
        append(9, pings.last!, isLast: true, to: &output)
      }
    } while !rest.isEmpty
  }

  private func append(_ opcode: UInt8, _ payload: [UInt8], isLast: Bool, to output: inout [UInt8]) {
    output.append((isLast ? 0x80 : 0) | opcode)
    let (short, lengthBytes) = payload.count < 126 ? (payload.count, 0) : payload.count < 1 << 16 ? (126, 2) : (127, 8)
    output.append(0x80 | UInt8(short))
    for index in (0..<lengthBytes).reversed() { output.append(UInt8(truncatingIfNeeded: payload.count >> (8 * index))) }
    let mask = random.bytes(4)
    output += mask
    output += payload.enumerated().map { $1 ^ mask[$0 % 4] }
  }

  override func keepAlive() {
    if !isOpen { receive() }
    super.keepAlive()
  }

  override func handedOver(at place: Int) {
    handovers.append(place)
    super.handedOver(at: place)
  }

  override func checkAtRest() {
    require(
      isOpen || isOver || isRefused, "every request is answered",
      "\(name) has no response to its request for a WebSocket")
    super.checkAtRest()
  }

  // MARK: Judgement

  override func judge(_ bytes: UnsafeRawBufferPointer, at place: Int) -> Int {
    if place == 0, bytes.first == 0 { return super.judge(bytes, at: place) }
    var offset = 0
    guard !isRefused else { return bytes.count }
    if !isOpen {
      guard let count = open(bytes) else { return 0 }
      offset = count
    }
    while !isOver, let (opcode, range) = frame(in: bytes, from: offset) {
      let payload = UnsafeRawBufferPointer(rebasing: bytes[range])
      let within = handovers.count { $0 > place + offset && $0 < place + range.upperBound }
      if within > 0 { Report.shared.count("WebSocket: handovers in the middle of a message", within) }
      handovers.removeAll { $0 < place + range.upperBound }
      judge(opcode, payload, at: place + offset)
      offset = range.upperBound
    }
    return offset
  }

  /// - Returns: the size of the response; nil: not all of it is there.
  private func open(_ bytes: UnsafeRawBufferPointer) -> Int? {
    var reader = ResponseReader(client: name)
    var offset = 0
    guard case .head(let head)? = reader.next(in: bytes, &offset, hasBody: true) else { return nil }
    guard head.status != 503 else {
      isRefused = true
      world.connectionFailed(self, .rejectedSetup, "connections already, or the server is busy: \(head.status)")
      return nil
    }
    require(
      head.status == 101 && head["upgrade"] == "websocket" && head["connection"] == "Upgrade"
        && head["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "responses",
      "\(name) wants a WebSocket, and got \(head.status) with \(head.fields)")
    isOpen = true
    let frames = waiting
    waiting = []
    send(frames)
    return offset
  }

  private func frame(in bytes: UnsafeRawBufferPointer, from start: Int) -> (opcode: UInt8, payload: Range<Int>)? {
    guard bytes.count - start >= 2 else { return nil }
    let (opcode, short) = (bytes[start] & 15, Int(bytes[start + 1]))
    require(
      bytes[start] & 0x70 == 0 && bytes[start] & 0x80 != 0 && [2, 8, 9, 10].contains(opcode) && short < 128, "frames",
      "\(name) got a frame of a WebSocket that begins with \(bytes[start]) \(short)")
    let lengthBytes = short < 126 ? 0 : short == 126 ? 2 : 8
    let payload = start + 2 + lengthBytes
    guard bytes.count >= payload else { return nil }
    let count = lengthBytes == 0 ? short : bytes[start + 2..<payload].reduce(0) { $0 << 8 | Int($1) }
    require(
      count > (lengthBytes == 8 ? 0xffff : lengthBytes == 2 ? 125 : -1) && count < 1 << 24, "frames",
      "\(name) got a frame of a WebSocket of \(count) bytes, with a length of \(lengthBytes) bytes")
    guard bytes.count >= payload + count else { return nil }
    return (opcode, payload..<payload + count)
  }

  private func judge(_ opcode: UInt8, _ payload: UnsafeRawBufferPointer, at place: Int) {
    require(!isClosed, "frames", "\(name) got something after the end of a WebSocket")
    switch opcode {
    case 2:
      guard let frame = try? Frame.decode(payload) else { fail("frames", "\(name) got a message that is no frame") }
      judge(frame, at: place)
    case 8:
      isClosed = true
      let code = payload.prefix(2).reduce(0) { $0 << 8 | Int($1) }
      Report.shared.say("\(name) is at its WebSocket's end: \(code)")
      require(
        [1000, 1001, 1008, 1011].contains(code), "frames", "\(name) keeps to the protocol, and got the code \(code)")
    case 10:
      require(pings.first.map { payload.elementsEqual($0) } ?? false, "frames", "\(name) got a pong for no ping")
      pings.removeFirst()
    default: break
    }
  }
}
