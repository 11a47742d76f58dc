extension ConnectionMachine {
  /// Processes received bytes, which the transport may split anywhere.
  ///
  /// Never throws: a violation produces the appropriate ERROR frame at the end of the output, and `.closed`.
  ///
  /// - Parameters:
  ///   - bytes: whole frames are read in place; only the start of an incomplete one is copied.
  ///   - gathersValues: whether values may be reported as ``Event/payloads(_:_:)``, whose ranges refer to `bytes`.
  ///   - events: the resulting events are appended; the caller empties the array and uses it again.
  /// - Complexity: O(bytes), independent of the splits.
  public mutating func receive(
    _ bytes: UnsafeRawBufferPointer, gathersValues: Bool = false, into events: inout [Event]
  ) {
    _ = receive(bytes, gathersValues: gathersValues, frameLimit: .max, into: &events)
  }

  /// Processes at most `frameLimit` frames; a frame that was split, and a run of gathered frames, count as one.
  ///
  /// - Returns: the number of bytes read: all, unless the limit was reached. The caller passes the rest again.
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

  /// Reads values at the head of `rest` that are one frame each and belong to one request, within its credit.
  /// - Returns: nil for none; an error in the next frame is reported when that frame is read separately.
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

  /// Reads the frame at the head of `rest`, or stores `rest` if the frame is incomplete.
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

  /// Moves the missing bytes of the frame in `tail` from `rest`, and reads the frame once it is complete.
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

  /// Returns the number of bytes of a frame that the next step needs: its length, before SETUP also its header, then
  /// all.
  ///
  /// - Throws: for a length out of bounds, and for a frame that cannot be a SETUP, before any of it is buffered.
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
      // Codes of the handshake have no meaning for a server that accepted it.
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
