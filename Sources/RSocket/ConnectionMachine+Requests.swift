/// Processes the frames of requests, on either side.
extension ConnectionMachine {
  /// Processes the first frame of a request.
  mutating func receiveRequest(
    _ id: StreamID, _ request: Assembly, follows: Bool, into events: inout [Event]
  ) throws(ProtocolViolation) {
    guard let kind = request.kind else { return }
    guard id != .connection else { throw .malformed("a request has ID 0") }
    guard id.rawValue % 2 == (isServer ? 1 : 0) else {
      throw .malformed("request ID \(id) is \(isServer ? "even: a client's are odd" : "odd: a server's are even")")
    }
    guard live.index(of: id) == nil else { throw .malformed("request ID \(id) is in use") }
    if let (code, message) = refusal(of: request) {
      if kind != .fireAndForget { output += encodedError(id, code, message) }
      return
    }
    if kind != .fireAndForget || follows {
      live.insert(LiveRequest(id: id, inboundCredit: 0, kind: kind, state: follows ? .assemblingRequest : []))
    }
    if follows {
      guard let index = live.index(of: id) else { return }
      try keep(request, of: id, at: index, into: &events)
    } else {
      begin(id, request, into: &events)
    }
  }

  /// Returns the reason for refusing the request, if any. Counts the request against the lease, as its sender did.
  private mutating func refusal(of request: Assembly) -> (ErrorCode, String)? {
    guard isServer else { return (.rejected, "this client accepts no requests") }
    if usesLeases {
      guard leaseCount > 0 else { return (.tooManyRequests, "the lease allows no more requests") }
      leaseCount -= 1
    }
    if request.kind?.hasInitialRequest == true, !(1...Credit.unlimited).contains(request.initialRequest) {
      return (.invalid, "an initial demand of \(request.initialRequest) is not 1...2147483647")
    }
    guard live.count < limits.maximumRequests else {
      return (.tooManyRequests, "more than \(limits.maximumRequests) requests at once on one connection")
    }
    return nil
  }

  /// Starts a complete request: opens its halves and reports it to the owner.
  private mutating func begin(_ id: StreamID, _ request: Assembly, into events: inout [Event]) {
    guard let kind = request.kind else { return }
    let isComplete = kind != .channel || request.isComplete
    if let index = live.index(of: id) {
      switch kind {
      case .fireAndForget: live.remove(at: index)
      case .response, .stream: live[index].state = .outbound
      case .channel: live[index].state = isComplete ? .outbound : [.inbound, .outbound]
      }
    }
    events.append(
      .request(id, kind, initialRequest: request.initialRequest, request.payload, isComplete: isComplete))
  }

  mutating func receivePayload(
    at index: LiveRequests.Index, _ payload: Payload, follows: Bool, isComplete: Bool, isNext: Bool,
    into events: inout [Event]
  ) throws(ProtocolViolation) {
    let id = live[index].id
    if !live[index].state.isDisjoint(with: .assembling) {
      try receiveFragment(at: index, payload, follows: follows, isComplete: isComplete, into: &events)
      return
    }
    guard live[index].state.contains(.inbound) else { return }
    guard isNext || follows else {
      guard isComplete else { throw .malformed("PAYLOAD for request \(id) has neither next nor complete") }
      endHalf(.inbound, at: index)
      events.append(.complete(id))
      return
    }
    let credit = live[index].inboundCredit
    guard credit > 0 else { throw .malformed("a value for request \(id) exceeds the credit") }
    if credit != Credit.unlimited { live[index].inboundCredit = credit - 1 }
    guard isServer || isWithinLimit(payload) else { return giveUp(at: index, into: &events) }
    if follows {
      live[index].state.insert(.assemblingValue)
      let assembly = Assembly(kind: nil, initialRequest: 0, payload: payload, isComplete: false)
      try keep(assembly, of: id, at: index, into: &events)
    } else {
      deliver(at: index, payload, isComplete: isComplete, into: &events)
    }
  }

  private mutating func deliver(
    at index: LiveRequests.Index, _ payload: Payload, isComplete: Bool, into events: inout [Event]
  ) {
    let id = live[index].id
    let isLast = isComplete || live[index].kind == .response
    if isLast { endHalf(.inbound, at: index) }
    events.append(.payload(id, payload, isComplete: isLast))
  }

  private mutating func receiveFragment(
    at index: LiveRequests.Index, _ payload: Payload, follows: Bool, isComplete: Bool, into events: inout [Event]
  ) throws(ProtocolViolation) {
    let id = live[index].id
    guard var assembly = partial.assemblies.removeValue(forKey: id) else { return }
    partial.assemblyByteCount -= assembly.payload.byteCount
    assembly.payload.append(payload)
    if isComplete { assembly.isComplete = true }
    guard isServer || isWithinLimit(assembly.payload) else { return giveUp(at: index, into: &events) }
    guard !follows else { return try keep(assembly, of: id, at: index, into: &events) }
    guard !isServer || partial.assemblyByteCount + assembly.payload.byteCount <= limits.maximumRequestBytes else {
      guard assembly.kind == nil else { throw tooLong(id, at: index) }
      return dropRest(at: index, into: &events)
    }
    dropAssembly(at: index)
    if assembly.kind != nil {
      begin(id, assembly, into: &events)
    } else {
      deliver(at: index, assembly.payload, isComplete: assembly.isComplete, into: &events)
    }
  }

  private mutating func keep(
    _ assembly: Assembly, of id: StreamID, at index: LiveRequests.Index, into events: inout [Event]
  ) throws(ProtocolViolation) {
    guard !isServer || partial.assemblyByteCount + assembly.payload.byteCount <= limits.maximumRequestBytes else {
      guard assembly.kind == nil else { throw tooLong(id, at: index) }
      return dropRest(at: index, into: &events)
    }
    partial.assemblyByteCount += assembly.payload.byteCount
    partial.assemblies[id] = assembly
  }

  /// Server: drops a value above the limit. The connection stays open, and so does the request until its owner has
  /// responded.
  private mutating func dropRest(at index: LiveRequests.Index, into events: inout [Event]) {
    live[index].state.subtract([.inbound, .assemblingValue])
    events.append(.valueTooLarge(live[index].id))
  }

  /// Client: applies the limit to data and metadata separately, so that it is exactly a limit of the data.
  private func isWithinLimit(_ value: Payload) -> Bool {
    value.data.count <= limits.maximumRequestBytes
      && value.byteCount - value.data.count <= limits.maximumRequestBytes
  }

  /// Client: cancels the request that received a value above the limit. Other requests are not affected.
  private mutating func giveUp(at index: LiveRequests.Index, into events: inout [Event]) {
    let (id, count) = (live[index].id, limits.maximumRequestBytes)
    remove(at: index)
    hasGivenUp = true
    Frame.cancel(id).encode(into: &output)
    events.append(
      .error(id, .invalid, "a value has more than \(count) byte\(count == 1 ? "" : "s"), the limit of the receiver"))
  }

  /// Ends the connection. A client that knows reasons sees before which of its requests is the cause.
  private mutating func tooLong(_ id: StreamID, at index: LiveRequests.Index) -> ProtocolViolation {
    let limit = "the limit of \(limits.maximumRequestBytes) bytes"
    if knowsReasons, live[index].kind != .fireAndForget {
      output += encodedError(id, .tooLarge, "the fragments of the request exceed \(limit)")
    }
    return ProtocolViolation(.requestTooLarge, "the fragments up to request \(id) exceed \(limit)")
  }

  mutating func receiveRequestN(at index: LiveRequests.Index, _ count: UInt32, into events: inout [Event]) {
    let request = live[index]
    let isWhole = !request.state.contains(.assemblingRequest)
    guard isWhole ? request.state.contains(.outbound) && request.kind != .response : request.kind.hasInitialRequest
    else { return }
    guard (1...Credit.unlimited).contains(count) else {
      let message = "a demand of \(count) is not 1...2147483647"
      Frame.error(request.id, .invalid, message).encode(into: &output)
      remove(at: index)
      if isWhole { events.append(isServer ? .cancel(request.id) : .error(request.id, .invalid, message)) }
      return
    }
    if isWhole {
      events.append(.requestN(request.id, count))
    } else if let sofar = partial.assemblies[request.id]?.initialRequest {
      partial.assemblies[request.id]?.initialRequest = Credit.sum(sofar, count)
    }
  }

  mutating func receiveCancel(at index: LiveRequests.Index, into events: inout [Event]) {
    let request = live[index]
    if isServer {
      remove(at: index)
      if !request.state.contains(.assemblingRequest) { events.append(.cancel(request.id)) }
    } else if request.state.contains(.outbound) {
      endHalf(.outbound, at: index)
      events.append(.cancel(request.id))
    }
  }
}
