import CSimulation

// A plain WebSocket: each event, gap and marker is a message.

/// What a client knows of its WebSocket besides the events.
struct SocketState {
  /// The pings that the server has not answered.
  var pings: [[UInt8]] = []
  /// When the last frame came, or another process had continued.
  var heardAt = sim_now()
  var pingedAt = sim_now()
  var random: Random
}

extension HTTPClient {
  /// Sends a ping now and then.
  func ping() {
    guard var state = socket, state.pings.count < 3, sim_now() - state.pingedAt > 2_000_000_000 else { return }
    state.pingedAt = sim_now()
    state.pings.append(state.random.bytes(state.random.below(126)))
    send(9, state.pings.last!, &state)
    socket = state
  }

  private func send(_ opcode: UInt8, _ payload: [UInt8], _ state: inout SocketState) {
    var output: [UInt8] = []
    WebSocketFrames.append(opcode, payload, to: &output, &state.random)
    send(output)
  }

  func openSocket(_ head: ResponseReader.Head) {
    socket = SocketState(random: Random(UInt64(number)))
    require(WebSocketFrames.isAnswer(head), "responses", "\(name) wants a WebSocket, and got \(head.fields)")
    Report.shared.count("HTTP: WebSockets with events")
  }

  func judge(_ frame: WebSocketFrames.Frame, of bytes: UnsafeRawBufferPointer, at place: Int) {
    guard var state = socket, var response = events else { fail("frames", "\(name) got a frame without a WebSocket") }
    state.heardAt = sim_now()
    let payload = UnsafeRawBufferPointer(rebasing: bytes[frame.payload])
    switch frame.opcode {
    case 8: return close(payload)
    case 9: send(10, Array(payload), &state)
    case 10:
      require(state.pings.first.map { payload.elementsEqual($0) } ?? false, "frames", "\(name) got a pong for no ping")
      state.pings.removeFirst()
    default: response.receive(payload, frame, at: place + frame.payload.lowerBound, self)
    }
    (events, socket) = (response, state)
  }

  /// The last frame: a code, and a sentence.
  private func close(_ payload: UnsafeRawBufferPointer) {
    guard var response = events, var exchange = exchanges.first else { return }
    exchange.review(for: self)
    let code = payload.prefix(2).reduce(0) { $0 << 8 | Int($1) }
    let sentence = String(decoding: payload.dropFirst(2), as: UTF8.self)
    Report.shared.say("\(name) is at its WebSocket's end: \(code) \(sentence)")
    Report.shared.count("HTTP: WebSockets that ended with \(code)")
    let isPermitted =
      switch code {
      case 1000, 1001, 1011, 1012, 1013: true
      case 1008: exchange.mayBeForbidden || response.isFromState
      case 4404: exchange.mayBeUnserved || exchange.streams.contains(where: world.isOfTemplate)
      default: false
      }
    require(isPermitted, "access", "\(name) keeps to the protocol, and got \(code) \(sentence) for \(exchange.path)")
    response.close(sentence, self)
    events = response
    exchanges.removeFirst()
    socket = nil
    endInput()
  }

  func checkSocketAtRest() {
    guard let socket else { return }
    let silence = (sim_now() - socket.heardAt) / 1_000_000
    require(silence <= 17_000, "frames", "\(name) has heard nothing from its WebSocket for \(silence) ms")
  }
}
