// A server's half of a connection that goes on in another process: the terms, the requests under way, what has arrived
// of a frame or a payload, and what has not been written yet.

extension ConnectionMachine {
  /// Writes all that `init(saved:)` needs. The machine is a server's and has not been closed.
  package func save(to state: inout StateWriter) {
    precondition(isServer && phase != .closed, "only a server's open connection goes on elsewhere")
    state.write(phase == .open)
    state.write(metadataFormat.rawValue)
    state.write(usesLeases)
    for number in [keepaliveMilliseconds, lifetimeMilliseconds, leaseCount] { state.write(number) }
    state.write(tail)
    state.write(output)
    state.write(UInt32(live.count))
    for request in live.all {
      state.write(request.id.rawValue)
      state.write(request.inboundCredit)
      state.write(request.kind.rawValue)
      state.write(request.state.rawValue)
      if let assembly = assemblies[request.id] { assembly.save(to: &state) }
    }
  }

  /// Goes on where the machine that was saved stood.
  package init(saved: inout StateReader, limits: ConnectionLimits) throws(StateReader.Broken) {
    self.init(acceptingWith: limits)
    phase = try saved.flag() ? .open : .awaitingSetup
    metadataFormat = try saved.choice(MetadataFormat.init)
    usesLeases = try saved.flag()
    keepaliveMilliseconds = try saved.number()
    lifetimeMilliseconds = try saved.number()
    leaseCount = try saved.number()
    tail = try saved.data()
    // What is kept of a frame is not all of it.
    if tail.count >= FrameLayout.lengthByteCount {
      let length = Int(tail[0]) << 16 | Int(tail[1]) << 8 | Int(tail[2])
      guard tail.count < FrameLayout.lengthByteCount + length else { throw StateReader.Broken() }
    }
    output = try saved.data()
    for _ in 0..<(try saved.number(UInt32.self)) {
      let id = StreamID(try saved.number())
      let request = LiveRequest(
        id: id, inboundCredit: min(try saved.number(), Credit.unlimited), kind: try saved.choice(RequestKind.init),
        state: LiveRequest.State(rawValue: try saved.number()))
      guard id.rawValue % 2 == 1, live.index(of: id) == nil else { throw StateReader.Broken() }
      live.insert(request)
      guard !request.state.isDisjoint(with: [.assemblingRequest, .assemblingValue]) else { continue }
      let assembly = try Assembly(saved: &saved)
      assemblyByteCount += assembly.payload.byteCount
      assemblies[id] = assembly
    }
  }
}

extension Assembly {
  fileprivate func save(to state: inout StateWriter) {
    state.write(kind?.rawValue ?? UInt8.max)
    state.write(initialRequest)
    state.write(isComplete)
    state.write(payload.metadata != nil)
    state.write(payload.metadata ?? [])
    state.write(payload.data)
  }

  fileprivate init(saved: inout StateReader) throws(StateReader.Broken) {
    let code = try saved.number(UInt8.self)
    kind = RequestKind(rawValue: code)
    guard kind != nil || code == .max else { throw StateReader.Broken() }
    initialRequest = min(try saved.number(), Credit.unlimited)
    isComplete = try saved.flag()
    let hasMetadata = try saved.flag()
    let metadata = try saved.data()
    payload = Payload(metadata: hasMetadata ? metadata : nil, data: try saved.data())
  }
}
