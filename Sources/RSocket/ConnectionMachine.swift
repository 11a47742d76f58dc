/// One side of an RSocket connection: bytes in, events and bytes out. It holds no socket, clock or thread.
///
/// The owner passes received bytes to ``receive(_:into:)``, acts on the events, and writes the bytes of
/// ``takeOutput()``. A server responds to requests, a client makes them; a client refuses requests without an event.
/// Each request has two halves, one per direction, and ends when both have: a stream's requester half ends with the
/// request itself, a channel's with its COMPLETE. An ERROR, and a requester's CANCEL, end both immediately.
///
/// Sending for a request that is not live has no effect: its end may have crossed the caller's decision to send.
///
/// The owner keeps two clocks: the handshake timeout and the peer's maximum lifetime (any byte counts as activity). The
/// machine counts the requests of a lease. The server renews the lease, and measures its time.
public struct ConnectionMachine: Sendable {
  /// An event that resulted from received bytes, in order.
  public enum Event: Equatable, Sendable {
    /// Server: the terms are accepted: version 1.0, no resumption, a known ``MetadataFormat``. If they honour leases,
    /// the owner must call ``ConnectionMachine/sendLease(timeToLive:count:)`` immediately.
    indirect case setup(Setup)
    /// Server: a complete request. `initialRequest` is the requester's demand: 1 for a response, 0 for fire-and-forget
    /// (which is not live), 1...2^31-1 otherwise. `isComplete`: the requester sends no further values; true for all
    /// kinds but a channel.
    case request(StreamID, RequestKind, initialRequest: UInt32, Payload, isComplete: Bool)
    /// Additional demand from the peer, 1...2^31-1; the sum saturates.
    case requestN(StreamID, UInt32)
    /// A complete value, within the demand. `isComplete`: it is the peer's last one.
    case payload(StreamID, Payload, isComplete: Bool)
    /// With gathered values: complete values within the demand, one frame each, contiguous in the received bytes;
    /// ``PayloadFrames`` separates them. None is the peer's last one.
    case payloads(StreamID, Range<Int>)
    /// Server: a value exceeds ``ConnectionLimits/maximumRequestBytes``. It is dropped, as are all later frames of this
    /// request, which the owner must end with an error.
    case valueTooLarge(StreamID)
    /// The peer's half ended.
    case complete(StreamID)
    /// The peer requests no more values. Server: the request is over, also if the machine ended it with ERROR[INVALID]
    /// because of an invalid demand. Client: this side's half of a channel is closed.
    case cancel(StreamID)
    /// The request is over: the peer ended it or, with `.invalid`, violated a rule that concerns only this request.
    case error(StreamID, ErrorCode, String)
    /// Client: grants this number of requests for this time; replaces the previous lease.
    case lease(timeToLive: Duration, count: UInt32)
    /// Metadata about the connection.
    case metadataPush([UInt8])
    /// The connection is over with all its requests: because of the peer's ERROR on stream 0, or of its violation,
    /// whose ERROR frame is then the last output. Later bytes are ignored.
    case closed(ErrorCode, String)
  }

  enum Phase {
    case awaitingSetup  // server only; can become: open, closed
    case open  // can become: closed
    case closed
  }

  // The order saves memory: a server has many.
  var output: [UInt8] = []
  /// Input of which parts are missing; at most one element, because few connections have some at a time.
  private(set) var incomplete: [Incomplete] = []
  var live = LiveRequests()
  var phase: Phase
  /// The peer closed the connection; its reason is in ``Event/closed(_:_:)``.
  public internal(set) var isClosedByPeer = false
  /// Client: whether a request has ended because of a value above ``ConnectionLimits/maximumRequestBytes``.
  public internal(set) var hasGivenUp = false
  /// Whether this is the server's side.
  public let isServer: Bool
  /// Whether requests need a lease.
  public internal(set) var usesLeases = false
  /// The format in which request metadata names a stream. Server: `.routing` until the SETUP has arrived.
  public internal(set) var metadataFormat = MetadataFormat.routing
  /// Server: whether the client knows the codes of streamd with a reason. For another client they are sent without it. The
  /// owner sets this when the SETUP has arrived.
  public var knowsReasons = false
  var keepaliveMilliseconds: UInt32 = 0
  var lifetimeMilliseconds: UInt32 = 0
  var leaseCount: UInt32 = 0
  var lastRequestID: UInt32
  /// The limits with which the connection began.
  public let limits: ConnectionLimits

  struct Incomplete {
    /// The start of an incomplete frame.
    var tail: [UInt8] = []
    var assemblies: [StreamID: Assembly] = [:]
    /// The number of payload bytes in `assemblies`.
    var assemblyByteCount = 0

    var isEmpty: Bool { tail.isEmpty && assemblies.isEmpty && assemblyByteCount == 0 }
  }

  /// Input of which parts are missing.
  var partial: Incomplete {
    get { incomplete.first ?? Incomplete() }
    _modify {
      if incomplete.isEmpty { incomplete.append(Incomplete()) }
      defer { if incomplete[0].isEmpty { incomplete = [] } }
      yield &incomplete[0]
    }
  }

  /// Creates a server's side: the peer's SETUP comes first.
  public init(acceptingWith limits: ConnectionLimits = ConnectionLimits()) {
    phase = .awaitingSetup
    isServer = true
    lastRequestID = 0
    self.limits = limits
  }

  /// Creates a client's side. `setup` is its first output; requests may follow immediately unless `setup` honours
  /// leases.
  ///
  /// - Parameter setup: its metadata MIME type must be a ``MetadataFormat``.
  public init(connectingWith setup: Setup, limits: ConnectionLimits = ConnectionLimits()) {
    guard let format = MetadataFormat(mimeType: setup.metadataMIMEType) else {
      preconditionFailure("no metadata format has the MIME type \(setup.metadataMIMEType)")
    }
    phase = .open
    isServer = false
    lastRequestID = UInt32.max  // the first request gets ID 1
    self.limits = limits
    agree(to: setup, format)
    Frame.setup(setup).encode(into: &output)
  }

  mutating func agree(to setup: Setup, _ format: MetadataFormat) {
    metadataFormat = format
    usesLeases = setup.honorsLease
    keepaliveMilliseconds = setup.keepaliveInterval.wireMilliseconds
    lifetimeMilliseconds = setup.maximumLifetime.wireMilliseconds
    phase = .open
  }

  /// The interval between the client's KEEPALIVE frames. Zero until the SETUP has arrived.
  public var keepaliveInterval: Duration { .wire(keepaliveMilliseconds) }

  /// The longest silence allowed to the peer. Zero until the SETUP has arrived.
  public var maximumLifetime: Duration { .wire(lifetimeMilliseconds) }

  /// Whether the connection is over: the owner writes the remaining output, then closes the socket.
  public var isClosed: Bool { phase == .closed }

  /// Whether the terms are known; for a server, whether the SETUP was accepted.
  public var isOpen: Bool { phase == .open }

  /// Whether there is output to write.
  public var hasOutput: Bool { !output.isEmpty }

  /// The number of bytes to write. A peer that does not read makes it grow only by its own frames (KEEPALIVE, refused
  /// requests): the owner stops reading from it beyond a limit.
  public var outputByteCount: Int { output.count }

  /// Returns the memory used by incomplete input: the start of a frame, and of requests and values.
  /// - Parameter perRequest: bytes added for each incomplete request or value.
  public func partialByteCount(perRequest: Int) -> Int {
    incomplete.first.map { $0.tail.capacity + $0.assemblyByteCount + $0.assemblies.count * perRequest } ?? 0
  }

  /// Returns the bytes for the peer, in order. The caller owns them and must write them.
  public mutating func takeOutput() -> [UInt8] {
    let bytes = output
    output = []
    return bytes
  }

  /// Whether frames for this request still have an effect.
  public func isLive(_ id: StreamID) -> Bool { live.index(of: id) != nil }

  /// The number of live requests, including incomplete ones.
  public var liveCount: Int { live.count }

  /// Removes the request from every table.
  mutating func remove(at index: LiveRequests.Index) {
    dropAssembly(at: index)
    live.remove(at: index)
  }

  mutating func dropAssembly(at index: LiveRequests.Index) {
    guard !live[index].state.isDisjoint(with: .assembling) else { return }
    live[index].state.subtract([.assemblingRequest, .assemblingValue])
    if let assembly = partial.assemblies.removeValue(forKey: live[index].id) {
      partial.assemblyByteCount -= assembly.payload.byteCount
    }
  }

  /// Ends one or both halves; the last one ends the request.
  mutating func endHalf(_ half: LiveRequest.State, at index: LiveRequests.Index) {
    live[index].state.subtract(half)
    if live[index].state.isDisjoint(with: [.inbound, .outbound]) { remove(at: index) }
  }

  mutating func shut() {
    phase = .closed
    live = LiveRequests()
    incomplete = []
  }
}
