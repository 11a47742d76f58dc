// An input is two bytes of choices and then what the peer sends. The first byte's lowest two bits choose the receiver
// (a server before SETUP, a server after it, a client with requests under way; 3: one frame for the codec alone), bit
// 2 asks for leases, bit 3 takes the default limits instead of tight ones. The second byte seeds the splits.

@testable import RSocket

/// Reads one input; a broken invariant traps.
func fuzzRSocket(_ input: UnsafeRawBufferPointer) {
  guard input.count >= 2 else { return }
  let peerBytes = UnsafeRawBufferPointer(rebasing: input[2...])
  if input[0] & 3 == 3 {
    checkCodec(peerBytes)
    return
  }
  let listener = Listener(choices: input[0])
  let whole = listener.listen(to: peerBytes, splitSeed: nil)
  precondition(whole == listener.listen(to: peerBytes, splitSeed: UInt32(input[1])), "a split made a difference")
  let gathered = listener.listen(to: peerBytes, splitSeed: nil, gathersValues: true)
  precondition(whole == gathered, "gathering made a difference")
  listener.talk(to: peerBytes, splitSeed: UInt32(input[1]))
}

/// A decoded frame encodes to bytes that decode to the same frame.
private func checkCodec(_ body: UnsafeRawBufferPointer) {
  let metadata = [UInt8](body)
  for format in MetadataFormat.allCases {
    guard let route = try? format.route(in: metadata), let again = try? format.metadata(route: route) else { continue }
    precondition((try? format.route(in: again)) == route, "a route changed")
  }
  if let token = try? MetadataFormat.composite.bearerToken(in: metadata) {
    let again = MetadataFormat.metadata(bearerToken: token)
    precondition((try? MetadataFormat.composite.bearerToken(in: again)) == token, "a token changed")
  }
  guard let frame = try? Frame.decode(body) else { return }
  precondition(decodeAll(encoded(frame)) == [frame], "\(frame) changed")
}

private func encoded(_ frame: Frame) -> [UInt8] {
  var bytes: [UInt8] = []
  frame.encode(into: &bytes)
  return bytes
}

/// Every frame of an output, which must be well formed.
private func decodeAll(_ bytes: [UInt8]) -> [Frame] {
  var frames: [Frame] = []
  bytes.withUnsafeBytes { bytes in
    var rest = bytes
    while let start = rest.baseAddress, !rest.isEmpty {
      let end = PayloadFrame.byteCount(at: start)
      let body = UnsafeRawBufferPointer(rebasing: rest[3..<end])
      guard let frame = try? Frame.decode(body) else {
        preconditionFailure("a machine wrote a frame that cannot be read")
      }
      frames.append(frame)
      rest = UnsafeRawBufferPointer(rebasing: rest[end...])
    }
  }
  return frames
}

/// Makes machines of the chosen kind.
private struct Listener {
  let choices: UInt8

  private var limits: ConnectionLimits {
    choices & 8 != 0
      ? ConnectionLimits() : ConnectionLimits(maximumRequestBytes: 256, maximumFrameBytes: 512, maximumRequests: 3)
  }

  private func make() -> ConnectionMachine {
    let setup = Setup(honorsLease: choices & 4 != 0, metadataMIMEType: MetadataFormat.text.mimeType)
    guard choices & 3 != 0 else { return ConnectionMachine(acceptingWith: limits) }
    if choices & 3 == 1 {
      var server = ConnectionMachine(acceptingWith: limits)
      var events: [ConnectionMachine.Event] = []
      encoded(.setup(setup)).withUnsafeBytes { server.receive($0, into: &events) }
      server.sendLease(timeToLive: .seconds(1), count: 2)
      _ = server.takeOutput()
      return server
    }
    var client = ConnectionMachine(connectingWith: setup, limits: limits)
    for kind in RequestKind.allCases { _ = client.request(kind, initialRequest: 3, Payload()) }
    _ = client.takeOutput()
    return client
  }

  struct Outcome: Equatable {
    var events: [ConnectionMachine.Event] = []
    var output: [UInt8] = []
    var liveCount = 0
    var isClosed = false
  }

  /// The events of the bytes, without any reply.
  func listen(to bytes: UnsafeRawBufferPointer, splitSeed: UInt32?, gathersValues: Bool = false) -> Outcome {
    var machine = make()
    var outcome = Outcome()
    forEachChunk(of: bytes, splitSeed) { chunk in
      var events: [ConnectionMachine.Event] = []
      machine.receive(chunk, gathersValues: gathersValues, into: &events)
      for event in events {
        guard case .payloads(let id, let range) = event else {
          outcome.events.append(event)
          continue
        }
        outcome.events += PayloadFrames(UnsafeRawBufferPointer(rebasing: chunk[range])).map {
          .payload(id, Payload(metadata: $0.metadata.map { [UInt8]($0) }, data: [UInt8]($0.data)), isComplete: false)
        }
      }
      check(machine)
    }
    outcome.output = machine.takeOutput()
    outcome.liveCount = machine.liveCount
    outcome.isClosed = machine.isClosed
    check(outcome)
    return outcome
  }

  /// The same with an owner that replies, so that splits matter.
  func talk(to bytes: UnsafeRawBufferPointer, splitSeed: UInt32) {
    var machine = make()
    var outcome = Outcome()
    forEachChunk(of: bytes, splitSeed) { chunk in
      var events: [ConnectionMachine.Event] = []
      machine.receive(chunk, gathersValues: true, into: &events)
      for event in events { answer(event, with: &machine) }
      outcome.events += events
      check(machine)
    }
    outcome.output = machine.takeOutput()
    check(outcome)
  }

  private func answer(_ event: ConnectionMachine.Event, with machine: inout ConnectionMachine) {
    switch event {
    case .setup: machine.sendLease(timeToLive: .seconds(1), count: 3)
    case .request(let id, _, let initialRequest, let payload, _):
      machine.sendRequestN(id, max(1, initialRequest))
      machine.sendPayload(id, payload)
      if initialRequest % 3 == 1 { machine.sendComplete(id) }
    case .requestN(let id, let count):
      if count % 4 == 1 { machine.end(id) } else { machine.sendPayload(id, Payload(), isComplete: count % 4 == 2) }
    case .payload(let id, let payload, _):
      if payload.data.count % 5 == 4 { machine.sendError(id, .invalid, "five") } else { machine.sendRequestN(id, 1) }
    case .payloads(let id, let range): machine.sendRequestN(id, UInt32(range.count))
    case .valueTooLarge(let id): machine.sendError(id, .invalid, "too large")
    case .complete(let id): machine.sendComplete(id)
    case .cancel(let id): machine.sendCancel(id)
    case .lease(_, let count):
      for _ in 0..<min(count, 2) { _ = machine.request(.channel, initialRequest: 1, Payload()) }
    case .metadataPush(let metadata): machine.sendKeepalive(data: metadata)
    case .error, .closed: break
    }
  }

  private func check(_ machine: ConnectionMachine) {
    // A client opens any number of requests.
    precondition(!machine.isServer || machine.liveCount <= limits.maximumRequests, "too many requests")
    precondition(machine.partial.tail.count <= limits.maximumFrameBytes + 3, "too much of a frame is kept")
    precondition(machine.partial.assemblyByteCount <= limits.maximumRequestBytes, "too many fragments are kept")
    let assembled = machine.partial.assemblies.values.reduce(0) { $0 + $1.payload.byteCount }
    precondition(machine.partial.assemblyByteCount == assembled, "fragments are miscounted")
  }

  private func check(_ outcome: Outcome) {
    let frames = decodeAll(outcome.output)
    for (index, event) in outcome.events.enumerated() {
      if case .closed = event { precondition(index == outcome.events.count - 1, "an event after the end") }
    }
    for (index, frame) in frames.enumerated() {
      if case .error(.connection, _, _) = frame { precondition(index == frames.count - 1, "a frame after the end") }
    }
  }

  private func forEachChunk(
    of bytes: UnsafeRawBufferPointer, _ splitSeed: UInt32?, _ body: (UnsafeRawBufferPointer) -> Void
  ) {
    guard var state = splitSeed else { return body(bytes) }
    var rest = bytes
    while !rest.isEmpty {
      state = state &* 1_664_525 &+ 1_013_904_223
      let longest = state & 0x100 == 0 ? 4 : 40
      let count = min(rest.count, 1 + Int(state >> 16) % longest)
      body(UnsafeRawBufferPointer(rebasing: rest[..<count]))
      rest = UnsafeRawBufferPointer(rebasing: rest[count...])
    }
  }
}
