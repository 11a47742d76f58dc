extension ConnectionMachine {
  /// Takes in what arrived, split wherever the transport pleased.
  ///
  /// Never throws: a violation becomes the ERROR frame that it deserves, at the end of the output, and `.closed`.
  ///
  /// - Parameters:
  ///   - bytes: whole frames are read in place; only the start of an incomplete one is copied.
  ///   - gathersValues: values may come as ``Event/payloads(_:_:)``, whose ranges are of `bytes`.
  ///   - events: what it all means is appended; an array that the caller empties and uses again.
  /// - Complexity: O(bytes), whatever the splits.
  public mutating func receive(
    _ bytes: UnsafeRawBufferPointer, gathersValues: Bool = false, into events: inout [Event]
  ) {
    _ = receive(bytes, gathersValues: gathersValues, frameLimit: .max, into: &events)
  }

  /// The same, but at most `frameLimit` frames, those that were split and those that are gathered counted as one.
  ///
  /// - Returns: how many of `bytes` were read: all, unless the limit was reached. The caller gives the rest again.
  public mutating func receive(
    _ bytes: UnsafeRawBufferPointer, gathersValues: Bool, frameLimit: Int, into events: inout [Event]
  ) -> Int {
    var rest = bytes
    var frameCount = 0
    do {
      while phase != .closed, !rest.isEmpty, frameCount < frameLimit {
        frameCount += 1
        if tail.isEmpty {
          let offset = bytes.count - rest.count
          if gathersValues, let (id, byteCount) = receiveRun(rest) {
            events.append(.payloads(id, offset..<offset + byteCount))
            rest = UnsafeRawBufferPointer(rebasing: rest[byteCount...])
          } else {
            try receiveInPlace(&rest, into: &events)
          }
        } else {
          try receiveWithTail(&rest, into: &events)
        }
      }
    } catch {
      let code: ErrorCode
      switch phase {
      case .awaitingSetup: code = error.code == .connectionError ? .invalidSetup : error.code
      case .open, .closed: code = .connectionError
      }
      close(code, error.message)
      events.append(.closed(code, error.message))
    }
    return phase == .closed ? bytes.count : bytes.count - rest.count
  }

  /// Reads the values at the head of `rest` that are one frame each and of one request, as far as its credit goes.
  /// - Returns: nil for none; what is wrong with the next frame, if anything is, shows when it is read by itself.
  private mutating func receiveRun(_ rest: UnsafeRawBufferPointer) -> (StreamID, byteCount: Int)? {
    guard phase == .open, let frames = rest.baseAddress, PayloadFrame.isWholeValue(rest) else { return nil }
    let id = PayloadFrame.streamID(at: frames)
    guard let index = live.index(of: id), live[index].state.receivesWholeValues, live[index].kind != .response
    else { return nil }
    let credit = live[index].inboundCredit
    var (left, byteCount) = (credit, 0)
    while left > 0 {
      let frame = UnsafeRawBufferPointer(rebasing: rest[byteCount...])
      guard PayloadFrame.isWholeValue(frame), PayloadFrame.streamID(at: frames + byteCount) == id,
        PayloadFrame.byteCount(at: frames + byteCount) - FrameLayout.lengthByteCount <= limits.maximumFrameBytes
      else { break }
      byteCount += PayloadFrame.byteCount(at: frames + byteCount)
      left -= 1
    }
    if credit != Credit.unlimited { live[index].inboundCredit = left }
    return byteCount > 0 ? (id, byteCount) : nil
  }

  /// Reads the frame at the head of `rest`, or keeps `rest` for later.
  private mutating func receiveInPlace(
    _ rest: inout UnsafeRawBufferPointer, into events: inout [Event]
  ) throws(ProtocolViolation) {
    let wanted = try wantedByteCount(rest)
    guard rest.count >= wanted else {
      tail = [UInt8](rest)
      rest = UnsafeRawBufferPointer(rebasing: rest[rest.count...])
      return
    }
    let frame = UnsafeRawBufferPointer(rebasing: rest[..<wanted])
    rest = UnsafeRawBufferPointer(rebasing: rest[wanted...])
    try receive(frame: frame, into: &events)
  }

  /// Moves from `rest` what the frame in `tail` wants, and reads it once it is whole.
  private mutating func receiveWithTail(
    _ rest: inout UnsafeRawBufferPointer, into events: inout [Event]
  ) throws(ProtocolViolation) {
    let missing = try wantedByteCountOfTail() - tail.count
    tail.append(contentsOf: rest.prefix(missing))
    rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(missing))
    guard try wantedByteCountOfTail() == tail.count else { return }
    let frame = tail
    tail = []
    try frame.withUnsafeBufferPointer { bytes throws(ProtocolViolation) in
      try receive(frame: UnsafeRawBufferPointer(bytes), into: &events)
    }
  }

  private func wantedByteCountOfTail() throws(ProtocolViolation) -> Int {
    try tail.withUnsafeBufferPointer { head throws(ProtocolViolation) in
      try wantedByteCount(UnsafeRawBufferPointer(head))
    }
  }

  /// How much of a frame has to be there before the next step: its length, before SETUP also its header, then all.
  ///
  /// - Throws: for a length out of bounds, and for what cannot become a SETUP, before anything of it is buffered.
  private func wantedByteCount(_ head: UnsafeRawBufferPointer) throws(ProtocolViolation) -> Int {
    guard head.count >= FrameLayout.lengthByteCount else { return FrameLayout.lengthByteCount }
    let length = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
    guard length >= FrameLayout.headerByteCount else {
      throw .malformed("a frame length of \(length) is shorter than the header of \(FrameLayout.headerByteCount)")
    }
    if phase == .awaitingSetup {
      guard head.count >= PayloadFrame.headerByteCount else { return PayloadFrame.headerByteCount }
      let type = FrameType(rawValue: head[7] >> 2)
      guard type == .setup || type == .resume, PayloadFrame.streamID(at: head.baseAddress!) == .connection else {
        throw ProtocolViolation(.invalidSetup, "the first frame must be SETUP on stream 0")
      }
    }
    guard length <= limits.maximumFrameBytes else {
      throw .malformed("a frame length of \(length) exceeds the limit of \(limits.maximumFrameBytes)")
    }
    return FrameLayout.lengthByteCount + length
  }

  private mutating func receive(
    frame: UnsafeRawBufferPointer, into events: inout [Event]
  ) throws(ProtocolViolation) {
    let body = UnsafeRawBufferPointer(rebasing: frame[FrameLayout.lengthByteCount...])
    guard let frame = try Frame.decode(body) else { return }
    switch (phase, frame) {
    case (.closed, _): return
    case (.awaitingSetup, .setup(let setup)): try receiveSetup(setup, into: &events)
    case (.awaitingSetup, .resume):
      throw ProtocolViolation(.rejectedResume, "resumption is not supported: subscribe from the last event id")
    case (.awaitingSetup, _): throw ProtocolViolation(.invalidSetup, "the first frame must be SETUP on stream 0")
    case (.open, _): try receiveOpen(frame, into: &events)
    }
  }

  private mutating func receiveSetup(_ setup: Setup, into events: inout [Event]) throws(ProtocolViolation) {
    guard setup.resumeToken == nil else {
      throw ProtocolViolation(.rejectedSetup, "resumption is not supported: subscribe from the last event id")
    }
    guard let format = MetadataFormat(mimeType: setup.metadataMIMEType) else {
      let known = MetadataFormat.allCases.map(\.mimeType).joined(separator: ", ")
      throw ProtocolViolation(
        .unsupportedSetup, "metadata MIME type \"\(setup.metadataMIMEType)\" is not read here, only \(known)")
    }
    agree(to: setup, format)
    events.append(.setup(setup))
  }

  private mutating func receiveOpen(_ frame: Frame, into events: inout [Event]) throws(ProtocolViolation) {
    switch frame {
    case .payload(let id, let payload, let follows, let isComplete, let isNext):
      guard let index = live.index(of: id) else { return }
      try receivePayload(
        at: index, payload, follows: follows && !isComplete, isComplete: isComplete, isNext: isNext, into: &events)
    case .requestN(let id, let count):
      guard let index = live.index(of: id) else { return }
      receiveRequestN(at: index, count, into: &events)
    case .request(let id, let kind, let initialRequest, let payload, let follows, let isComplete):
      try receiveRequest(
        id, Assembly(kind: kind, initialRequest: initialRequest, payload: payload, isComplete: isComplete),
        follows: follows, into: &events)
    case .cancel(let id):
      guard let index = live.index(of: id) else { return }
      receiveCancel(at: index, into: &events)
    case .error(.connection, let code, let message):
      // Codes of the handshake mean nothing to a server that accepted it.
      if isServer && code.rawValue < ErrorCode.connectionError.rawValue { return }
      shut()
      isClosedByPeer = true
      events.append(.closed(code, message))
    case .error(let id, let code, let message):
      guard let index = live.index(of: id) else { return }
      let isKnownToOwner = !live[index].state.contains(.assemblingRequest)
      remove(at: index)
      if isKnownToOwner { events.append(.error(id, code, message)) }
    case .keepalive(let respond, _, let data):
      if respond { Frame.keepalive(respond: false, position: 0, data: data).encode(into: &output) }
    case .lease(let timeToLive, let count, _):
      guard !isServer, usesLeases else { return }
      leaseCount = timeToLive == .zero ? 0 : count
      events.append(.lease(timeToLive: timeToLive, count: count))
    case .metadataPush(let metadata): events.append(.metadataPush(metadata))
    case .resume where isServer: throw .malformed("RESUME came after SETUP")
    case .setup, .resume, .resumeOK: return  // RSocket 1.0, "Handling the Unexpected": ignored
    case .ext(_, let type, let isIgnorable, _, _):
      if !isIgnorable { throw .malformed("extended frame type \(type) is unknown") }
    }
  }
}
