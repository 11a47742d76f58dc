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
    _ = unsafe receive(bytes, gathersValues: gathersValues, frameLimit: .max, into: &events)
  }

  /// Processes at most `frameLimit` frames; a frame that was split, and a run of gathered frames, count as one.
  ///
  /// - Returns: the number of bytes read: all, unless the limit was reached. The caller passes the rest again.
  public mutating func receive(
    _ bytes: UnsafeRawBufferPointer, gathersValues: Bool, frameLimit: Int, into events: inout [Event]
  ) -> Int {
    var rest = unsafe bytes
    var frameCount = 0
    do {
      while phase != .closed, unsafe !rest.isEmpty, frameCount < frameLimit {
        frameCount += 1
        if incomplete.isEmpty || incomplete[0].tail.isEmpty {
          let offset = bytes.count - rest.count
          if gathersValues, let (id, byteCount) = unsafe receiveRun(rest) {
            events.append(.payloads(id, offset..<offset + byteCount))
            unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest[byteCount...])
          } else {
            try unsafe receiveInPlace(&rest, into: &events)
          }
        } else {
          try unsafe receiveWithTail(&rest, into: &events)
        }
      }
    } catch {
      let code: ErrorCode
      switch phase {
      case .awaitingSetup: code = error.code == .connectionError ? .invalidSetup : error.code
      case .open, .closed: code = error.code.base == .connectionError ? error.code : .connectionError
      }
      close(code, error.message)
      events.append(.closed(code.base, error.message))
    }
    return phase == .closed ? bytes.count : bytes.count - rest.count
  }

  /// Values of at least so many bytes are reported one by one, as ``Event/payload(_:_:isComplete:)``.
  public static let largeValueBytes = 64 << 10

  /// Reads values at the head of `rest` that are one frame each and belong to one request, within its credit.
  /// - Returns: nil for none; an error in the next frame is reported when that frame is read separately.
  private mutating func receiveRun(_ rest: UnsafeRawBufferPointer) -> (StreamID, byteCount: Int)? {
    guard phase == .open, let frames = rest.baseAddress, unsafe PayloadFrame.isWholeValue(rest) else { return nil }
    let id = unsafe PayloadFrame.streamID(at: frames)
    guard let index = live.index(of: id), live[index].state.receivesWholeValues, live[index].kind != .response
    else { return nil }
    let credit = live[index].inboundCredit
    var (left, byteCount) = (credit, 0)
    while left > 0 {
      let frame = unsafe UnsafeRawBufferPointer(rebasing: rest[byteCount...])
      guard unsafe PayloadFrame.isWholeValue(frame), unsafe PayloadFrame.streamID(at: frames + byteCount) == id else {
        break
      }
      // A frame or a value that may exceed a limit is read separately, and so is a large value: a caller may have much to do
      // for it.
      let content = unsafe PayloadFrame.byteCount(at: frames + byteCount) - PayloadFrame.headerByteCount
      guard content <= min(limits.maximumFrameBytes - FrameLayout.headerByteCount, limits.maximumRequestBytes),
        content < Self.largeValueBytes
      else { break }
      unsafe byteCount += PayloadFrame.byteCount(at: frames + byteCount)
      left -= 1
    }
    if credit != Credit.unlimited { live[index].inboundCredit = left }
    return byteCount > 0 ? (id, byteCount) : nil
  }

  /// Reads the frame at the head of `rest`, or stores `rest` if the frame is incomplete.
  private mutating func receiveInPlace(
    _ rest: inout UnsafeRawBufferPointer, into events: inout [Event]
  ) throws(ProtocolViolation) {
    let wanted = try unsafe wantedByteCount(rest)
    guard rest.count >= wanted else {
      partial.tail = unsafe [UInt8](rest)
      unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest[rest.count...])
      return
    }
    let frame = unsafe UnsafeRawBufferPointer(rebasing: rest[..<wanted])
    unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest[wanted...])
    try unsafe receive(frame: frame, into: &events)
  }

  /// Moves the missing bytes of the frame in `tail` from `rest`, and reads the frame once it is complete.
  private mutating func receiveWithTail(
    _ rest: inout UnsafeRawBufferPointer, into events: inout [Event]
  ) throws(ProtocolViolation) {
    let wanted = try wantedByteCountOfTail()
    let (before, capacity) = (partial.tail.count, partial.tail.capacity)
    let missing = wanted - before
    let count = before + min(rest.count, missing)
    // The capacity doubles, as without this, but does not exceed the frame: it counts in the user's account.
    if count > capacity { partial.tail.reserveCapacity(min(wanted, max(count, 2 * capacity))) }
    unsafe partial.tail.append(contentsOf: rest.prefix(missing))
    unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest.dropFirst(missing))
    guard try wantedByteCountOfTail() == partial.tail.count else { return }
    let frame = partial.tail
    partial.tail = []
    try unsafe frame.withUnsafeBufferPointer { bytes throws(ProtocolViolation) in
      try unsafe receive(frame: UnsafeRawBufferPointer(bytes), into: &events)
    }
  }

  /// The limit of SETUP: its first byte is 0, so that the first byte of a connection can select the protocol.
  private static let maximumSetupBytes = 0xffff

  private func wantedByteCountOfTail() throws(ProtocolViolation) -> Int {
    try unsafe partial.tail.withUnsafeBufferPointer { head throws(ProtocolViolation) in
      try unsafe wantedByteCount(UnsafeRawBufferPointer(head))
    }
  }

  /// Returns the number of bytes of a frame that the next step needs: its length, before SETUP also its header, then
  /// all.
  ///
  /// - Throws: for a length out of bounds, and for a frame that cannot be a SETUP, before any of it is buffered.
  private func wantedByteCount(_ head: UnsafeRawBufferPointer) throws(ProtocolViolation) -> Int {
    guard head.count >= FrameLayout.lengthByteCount else { return FrameLayout.lengthByteCount }
    let length = unsafe Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
    guard length >= FrameLayout.headerByteCount else {
      throw .malformed("a frame length of \(length) is shorter than the header of \(FrameLayout.headerByteCount)")
    }
    if phase == .awaitingSetup {
      guard length <= Self.maximumSetupBytes else {
        // The head of a TLS record: a handshake (22), of version 3.x.
        if length >> 8 == 0x1603 {
          throw ProtocolViolation(.invalidSetup, "the client speaks TLS, and this port does not")
        }
        throw ProtocolViolation(
          .invalidSetup, "the first frame must be SETUP, with at most \(Self.maximumSetupBytes) bytes")
      }
      guard head.count >= PayloadFrame.headerByteCount else { return PayloadFrame.headerByteCount }
      let type = unsafe FrameType(rawValue: head[7] >> 2)
      guard type == .setup || type == .resume, unsafe PayloadFrame.streamID(at: head.baseAddress!) == .connection else {
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
    let body = unsafe UnsafeRawBufferPointer(rebasing: frame[FrameLayout.lengthByteCount...])
    guard let frame = try unsafe Frame.decode(body) else { return }
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
