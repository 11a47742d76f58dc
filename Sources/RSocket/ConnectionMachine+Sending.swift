/// Each method appends to the output; it has no effect for a request that is not live.
extension ConnectionMachine {
  // MARK: Requests of a client

  /// Opens a request.
  ///
  /// - Parameters:
  ///   - initialRequest: demand for a stream or a channel, 1...2^31-1, where the maximum means unlimited; a response
  ///     always has 1 and fire-and-forget 0.
  ///   - isComplete: whether a channel's first value is its last.
  /// - Returns: the next odd ID, which is live unless this is fire-and-forget; `nil` if the lease allows no more
  ///   requests or the connection is closed.
  public mutating func request(
    _ kind: RequestKind, initialRequest: UInt32 = Credit.unlimited, _ payload: Payload, isComplete: Bool = false
  ) -> StreamID? {
    precondition(!isServer, "a server makes no requests")
    guard phase == .open, !usesLeases || leaseCount > 0 else { return nil }
    if usesLeases { leaseCount -= 1 }
    let id = nextRequestID()
    let credit: UInt32
    var state = LiveRequest.State.inbound
    switch kind {
    case .response: credit = 1
    case .fireAndForget: credit = 0
    case .stream, .channel:
      credit = min(initialRequest, Credit.unlimited)
      precondition(credit > 0, "a request without demand")
      if kind == .channel && !isComplete { state.insert(.outbound) }
    }
    if kind != .fireAndForget {
      live.insert(LiveRequest(id: id, inboundCredit: credit, kind: kind, state: state))
    }
    appendFragments(of: payload) { part, fragment in
      if fragment.isFirst {
        .request(
          id, kind, initialRequest: credit, part, follows: fragment.follows,
          isComplete: isComplete && !fragment.follows)
      } else {
        .payload(
          id, part, follows: fragment.follows, isComplete: isComplete && kind == .channel && !fragment.follows,
          isNext: true)
      }
    }
    return id
  }

  /// Returns the next odd ID; after 2^31-1 it starts from 1 again and skips those in use.
  private mutating func nextRequestID() -> StreamID {
    var id: StreamID
    repeat {
      lastRequestID = (lastRequestID &+ 2) & 0x7fff_ffff
      id = StreamID(lastRequestID)
    } while live.index(of: id) != nil
    return id
  }

  /// Cancels a request of this side.
  public mutating func sendCancel(_ id: StreamID) {
    guard !isServer, let index = live.index(of: id) else { return }
    remove(at: index)
    Frame.cancel(id).encode(into: &output)
  }

  // MARK: Both sides

  /// Sends a value, in fragments if it is long. The caller must keep within the peer's demand.
  ///
  /// - Parameter isComplete: whether the value is the last: this side's half ends. The value of a response is always
  ///   the last.
  public mutating func sendPayload(_ id: StreamID, _ payload: Payload, isComplete: Bool = false) {
    guard let index = index(sending: id) else { return }
    let isLast = isComplete || live[index].kind == .response
    if isLast { endHalf(.outbound, at: index) }
    appendFragments(of: payload) { part, fragment in
      .payload(id, part, follows: fragment.follows, isComplete: isLast && !fragment.follows, isNext: true)
    }
  }

  /// Ends this side's half without a further value.
  public mutating func sendComplete(_ id: StreamID) {
    guard let index = index(sending: id) else { return }
    endHalf(.outbound, at: index)
    Frame.payload(id, Payload(), follows: false, isComplete: true, isNext: false).encode(into: &output)
  }

  /// Ends this side's half without a frame: the caller writes its own (``PayloadFrame``).
  public mutating func end(_ id: StreamID) {
    guard let index = index(sending: id) else { return }
    endHalf(.outbound, at: index)
  }

  /// Ends the request, both halves.
  public mutating func sendError(_ id: StreamID, _ code: ErrorCode, _ message: String) {
    guard let index = live.index(of: id) else { return }
    remove(at: index)
    output += encodedError(id, code, message)
  }

  /// An ERROR as the peer understands it. The caller has ended the request, and writes the frame in place of another one.
  public func encodedError(_ id: StreamID, _ code: ErrorCode, _ message: String) -> [UInt8] {
    var bytes: [UInt8] = []
    Frame.error(id, isServer && !knowsReasons ? code.base : code, message).encode(into: &bytes)
    return bytes
  }

  /// Grants the peer this many more values, 1...2^31-1; a value beyond the total closes the connection.
  public mutating func sendRequestN(_ id: StreamID, _ count: UInt32) {
    guard let index = live.index(of: id), live[index].state.contains(.inbound) else { return }
    let count = min(count, Credit.unlimited)
    precondition(count > 0, "a demand of 0 for request \(id)")
    live[index].inboundCredit = Credit.sum(live[index].inboundCredit, count)
    Frame.requestN(id, count).encode(into: &output)
  }

  /// Sends a KEEPALIVE. A client sends one per ``keepaliveInterval``, with `respond`.
  public mutating func sendKeepalive(data: [UInt8] = [], respond: Bool = true) {
    guard phase == .open else { return }
    Frame.keepalive(respond: respond, position: 0, data: data).encode(into: &output)
  }

  // MARK: The connection

  /// Server: allows `count` requests from now on, replacing the previous lease; the peer may make them during
  /// `timeToLive`.
  ///
  /// Has no effect unless ``usesLeases``. Further requests are REJECTED here, without an event.
  public mutating func sendLease(timeToLive: Duration, count: UInt32) {
    guard phase == .open, isServer, usesLeases else { return }
    leaseCount = min(count, Credit.unlimited)
    Frame.lease(timeToLive: timeToLive, count: leaseCount, metadata: nil).encode(into: &output)
  }

  /// Adds a PAYLOAD that the caller has encoded, of a live request.
  package mutating func append(_ frame: [UInt8]) { output += frame }

  /// Closes the connection with an ERROR on stream 0 as its last output. There is no event, because the caller decided.
  public mutating func close(_ code: ErrorCode, _ message: String) {
    guard phase != .closed else { return }
    shut()
    output += encodedError(.connection, code, message)
  }

  // MARK: Encoding

  /// Returns the request if this side's half of it is open.
  private func index(sending id: StreamID) -> LiveRequests.Index? {
    guard let index = live.index(of: id), live[index].state.contains(.outbound) else { return nil }
    return index
  }

  /// Encodes the payload as one or more frames, each created by `frame` from its part.
  private mutating func appendFragments(
    of payload: Payload, _ frame: (Payload, (isFirst: Bool, follows: Bool)) -> Frame
  ) {
    if payload.byteCount <= PayloadFrame.maximumContentByteCount {
      frame(payload, (isFirst: true, follows: false)).encode(into: &output)
      return
    }
    var isFirst = true
    for cut in Fragments(metadataByteCount: payload.metadata?.count, dataByteCount: payload.data.count) {
      var part = Payload(data: [UInt8](payload.data[cut.data]))
      if let range = cut.metadata { part.metadata = payload.metadata.map { [UInt8]($0[range]) } }
      frame(part, (isFirst: isFirst, follows: cut.follows)).encode(into: &output)
      isFirst = false
    }
  }
}
