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
      let head = ["GET /rsocket HTTP/1.1", "Host: localhost"] + WebSocketFrames.handshake
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
      WebSocketFrames.append(opcode, Array(part), isLast: rest.isEmpty, to: &output, &random)
      opcode = 0
      if random.chance(5) {
        pings.append(random.bytes(random.below(126)))
        WebSocketFrames.append(9, pings.last!, to: &output, &random)
      }
    } while !rest.isEmpty
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
    while !isOver, let frame = WebSocketFrames.next(in: bytes, from: offset, client: name) {
      let (opcode, range) = (frame.opcode, frame.payload)
      require(frame.isLast && opcode > 1, "frames", "\(name) got a frame with the opcode \(opcode)")
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
      WebSocketFrames.isAnswer(head), "responses",
      "\(name) wants a WebSocket, and got \(head.status) with \(head.fields)")
    isOpen = true
    let frames = waiting
    waiting = []
    send(frames)
    return offset
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
