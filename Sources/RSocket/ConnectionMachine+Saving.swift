// The server's side of a connection as a value, from which another process restores the machine.

extension ConnectionMachine {
  /// The terms, the live requests, incomplete frames and payloads, and the output that has not been written.
  package struct Saved: Equatable, Sendable {
    /// A live request.
    package struct Request: Equatable, Sendable {
      package var id = StreamID.connection
      package var kind = RequestKind.response
      /// Bits of `LiveRequest.State`.
      package var state: UInt8 = 0
      package var inboundCredit: UInt32 = 0
      /// The fragments gathered so far, if `state` requires any.
      package var assembly: Assembly?

      package init() {}
    }

    /// An incomplete request or value.
    package struct Assembly: Equatable, Sendable {
      /// The kind of a request; `nil` for a value.
      package var kind: RequestKind?
      package var initialRequest: UInt32 = 0
      package var isComplete = false
      package var payload = Payload()

      package init() {}
    }

    /// Whether the SETUP was accepted.
    package var isOpen = false
    package var metadataFormat = MetadataFormat.composite
    package var usesLeases = false
    package var keepaliveMilliseconds: UInt32 = 0
    package var lifetimeMilliseconds: UInt32 = 0
    package var leaseCount: UInt32 = 0
    package var knowsReasons = false
    /// The start of an incomplete frame.
    package var tail: [UInt8] = []
    package var output: [UInt8] = []
    /// The requests in ascending order of ID.
    package var requests: [Request] = []

    package init() {}

    /// Whether a machine can be in this state: each request has a unique ID that a client may choose, and an assembly
    /// where its state requires one; `tail` is an incomplete frame.
    package var isPossible: Bool {
      let ids = requests.map(\.id.rawValue)
      guard ids.allSatisfy({ $0 % 2 == 1 }), Set(ids).count == ids.count,
        requests.allSatisfy({
          ($0.assembly == nil) == LiveRequest.State(rawValue: $0.state).isDisjoint(with: .assembling)
        })
      else { return false }
      guard tail.count >= FrameLayout.lengthByteCount else { return true }
      return tail.count < FrameLayout.lengthByteCount + (Int(tail[0]) << 16 | Int(tail[1]) << 8 | Int(tail[2]))
    }
  }

  /// Returns the input of `init(restoring:limits:)`. The machine must be a server's and not closed.
  package func save() -> Saved {
    precondition(isServer && phase != .closed, "only a server's open connection is saved")
    var saved = Saved()
    saved.isOpen = phase == .open
    saved.metadataFormat = metadataFormat
    saved.usesLeases = usesLeases
    (saved.keepaliveMilliseconds, saved.lifetimeMilliseconds) = (keepaliveMilliseconds, lifetimeMilliseconds)
    saved.leaseCount = leaseCount
    saved.knowsReasons = knowsReasons
    (saved.tail, saved.output) = (partial.tail, output)
    saved.requests = live.all.map { live in
      var request = Saved.Request()
      (request.id, request.kind, request.state) = (live.id, live.kind, live.state.rawValue)
      request.inboundCredit = live.inboundCredit
      request.assembly = partial.assemblies[live.id].map { assembly in
        var saved = Saved.Assembly()
        (saved.kind, saved.initialRequest) = (assembly.kind, assembly.initialRequest)
        (saved.isComplete, saved.payload) = (assembly.isComplete, assembly.payload)
        return saved
      }
      return request
    }
    return saved
  }
}

extension ConnectionMachine {
  /// Creates a server's machine that continues from a saved one.
  /// - Parameter saved: must be possible.
  package init(restoring saved: Saved, limits: ConnectionLimits) {
    precondition(saved.isPossible, "an impossible state of a connection: \(saved)")
    self.init(acceptingWith: limits)
    phase = saved.isOpen ? .open : .awaitingSetup
    metadataFormat = saved.metadataFormat
    usesLeases = saved.usesLeases
    (keepaliveMilliseconds, lifetimeMilliseconds) = (saved.keepaliveMilliseconds, saved.lifetimeMilliseconds)
    leaseCount = saved.leaseCount
    knowsReasons = saved.knowsReasons
    (partial.tail, output) = (saved.tail, saved.output)
    for request in saved.requests {
      live.insert(
        LiveRequest(
          id: request.id, inboundCredit: min(request.inboundCredit, Credit.unlimited), kind: request.kind,
          state: LiveRequest.State(rawValue: request.state)))
      guard let saved = request.assembly else { continue }
      partial.assemblies[request.id] = Assembly(
        kind: saved.kind, initialRequest: min(saved.initialRequest, Credit.unlimited), payload: saved.payload,
        isComplete: saved.isComplete)
      partial.assemblyByteCount += saved.payload.byteCount
    }
  }
}
