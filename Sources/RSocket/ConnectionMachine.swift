/// One side of an RSocket connection: bytes in, events and bytes out. Knows no socket, clock or thread.
///
/// The owner feeds what arrives to ``receive(_:into:)``, acts on the events, and writes what ``takeOutput()`` gives. A
/// server answers requests, a client makes them; a client refuses requests by itself. Each request has two halves, one
/// per direction, and ends when both have: a stream's requester half ends with the request itself, a channel's with
/// its COMPLETE. An ERROR, and a requester's CANCEL, end both at once.
///
/// Sending for a request that is not live does nothing: its end may have crossed the caller's decision to send.
///
/// The owner keeps two clocks: the handshake timeout and the peer's maximum lifetime (any byte is a sign of life). Of a
/// lease the machine counts the requests, and leaves its time to the server, which renews it.
public struct ConnectionMachine: Sendable {
  /// What arrived, in order.
  public enum Event: Equatable, Sendable {
    /// Server: the terms are accepted: version 1.0, no resumption, a known ``MetadataFormat``. When they ask for
    /// leases, ``ConnectionMachine/sendLease(timeToLive:count:)`` is due at once.
    indirect case setup(Setup)
    /// Server: a whole request. `initialRequest` is the requester's demand: 1 for a response, 0 for fire-and-forget
    /// (which is not live), 1...2^31-1 otherwise. `isComplete`: the requester sends no further values; true for all
    /// but a channel.
    case request(StreamID, RequestKind, initialRequest: UInt32, Payload, isComplete: Bool)
    /// More demand from the peer, 1...2^31-1, to be added and saturated.
    case requestN(StreamID, UInt32)
    /// A whole value, within the demand. `isComplete`: it is the peer's last one.
    case payload(StreamID, Payload, isComplete: Bool)
    /// For who gathers values: whole ones, within the demand, that stand one behind the other in what was received, a
    /// frame each, which ``PayloadFrames`` takes apart. None is the peer's last one.
    case payloads(StreamID, Range<Int>)
    /// Server: a value is over ``ConnectionLimits/maximumRequestBytes``. It is dropped, and so is whatever else comes for
    /// this request, which the owner is to end with an error.
    case valueTooLarge(StreamID)
    /// The peer's half ended.
    case complete(StreamID)
    /// The peer wants no more values. Server: the request is over, also when the machine ended it with
    /// ERROR[INVALID] because of a demand that is no demand. Client: our half of a channel is closed.
    case cancel(StreamID)
    /// The request is over: the peer ended it, or, with `.invalid`, broke a rule that concerns this request alone.
    case error(StreamID, ErrorCode, String)
    /// Client: so many more requests may be made, for so long; the lease before is void.
    case lease(timeToLive: Duration, count: UInt32)
    /// Metadata about the connection.
    case metadataPush([UInt8])
    /// The connection is over, and every request with it: by the peer's ERROR on stream 0, or by its violation, whose
    /// ERROR frame is then the last output. What arrives later is ignored.
    case closed(ErrorCode, String)
  }

  enum Phase {
    case awaitingSetup  // server only; can become: open, closed
    case open  // can become: closed
    case closed
  }

  var phase: Phase
  /// The connection is over because the peer said so; what it said is in ``Event/closed(_:_:)``.
  public internal(set) var isClosedByPeer = false
  /// Which side this is.
  public let isServer: Bool
  /// Whether requests need a lease.
  public internal(set) var usesLeases = false
  /// How request metadata names a stream. Server: `.routing` until the SETUP is there.
  public internal(set) var metadataFormat = MetadataFormat.routing
  var keepaliveMilliseconds: UInt32 = 0
  var lifetimeMilliseconds: UInt32 = 0
  var leaseCount: UInt32 = 0
  var lastRequestID: UInt32
  let limits: ConnectionLimits
  var output: [UInt8] = []
  /// The start of a frame whose rest has not arrived.
  var tail: [UInt8] = []
  var live = LiveRequests()
  var assemblies: [StreamID: Assembly] = [:]
  /// Payload bytes in `assemblies`.
  var assemblyByteCount = 0

  /// A server: the peer's SETUP comes first.
  public init(acceptingWith limits: ConnectionLimits = ConnectionLimits()) {
    phase = .awaitingSetup
    isServer = true
    lastRequestID = 0
    self.limits = limits
  }

  /// A client: `setup` is its first output, and requests may follow at once unless `setup` honours leases.
  ///
  /// - Parameter setup: its metadata MIME type has to be a ``MetadataFormat``.
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

  /// How often the client sends KEEPALIVE. Zero until the SETUP is there.
  public var keepaliveInterval: Duration { .wire(keepaliveMilliseconds) }

  /// How long the peer may be silent. Zero until the SETUP is there.
  public var maximumLifetime: Duration { .wire(lifetimeMilliseconds) }

  /// After this the owner writes what is left in the output and closes.
  public var isClosed: Bool { phase == .closed }

  /// The terms are known: server, the SETUP was accepted.
  public var isOpen: Bool { phase == .open }

  /// Whether there is something to write.
  public var hasOutput: Bool { !output.isEmpty }

  /// How much there is to write. A peer that reads nothing can make this grow only by what it sends (KEEPALIVE,
  /// refused requests): the owner stops reading from it beyond some number of bytes.
  public var outputByteCount: Int { output.count }

  /// How much room is taken by what has arrived in part: the start of a frame, and of requests and values.
  /// - Parameter perRequest: bytes that each half-assembled one is taken for beside its own.
  public func partialByteCount(perRequest: Int) -> Int {
    tail.capacity + assemblyByteCount + assemblies.count * perRequest
  }

  /// Bytes for the peer, in order. The caller owns them now and has to write them.
  public mutating func takeOutput() -> [UInt8] {
    let bytes = output
    output = []
    return bytes
  }

  /// Whether frames for this request still mean something.
  public func isLive(_ id: StreamID) -> Bool { live.index(of: id) != nil }

  /// Requests under way, those included of which fragments are missing.
  public var liveCount: Int { live.count }

  /// Takes the request out of every table.
  mutating func remove(at index: LiveRequests.Index) {
    dropAssembly(at: index)
    live.remove(at: index)
  }

  mutating func dropAssembly(at index: LiveRequests.Index) {
    guard !live[index].state.isDisjoint(with: .assembling) else { return }
    live[index].state.subtract([.assemblingRequest, .assemblingValue])
    if let assembly = assemblies.removeValue(forKey: live[index].id) {
      assemblyByteCount -= assembly.payload.byteCount
    }
    if assemblies.isEmpty { assemblies = [:] }
  }

  /// Ends one or both halves, and the request with its last one.
  mutating func endHalf(_ half: LiveRequest.State, at index: LiveRequests.Index) {
    live[index].state.subtract(half)
    if live[index].state.isDisjoint(with: [.inbound, .outbound]) { remove(at: index) }
  }

  mutating func shut() {
    phase = .closed
    live = LiveRequests()
    assemblies = [:]
    assemblyByteCount = 0
    tail = []
  }
}
