import Events
import RSocket
import StreamProtocol
import StreamRuntime

/// The client's side of a connection to another streamd, with one subscription. Works on bytes and times; uses no
/// socket, clock or thread.
///
/// Credit: a source knows only that an event is wanted, not how many. The first grant is therefore one event. The window
/// doubles while a half of it is used up within 0.1 s, and halves when that takes more than 1 s, so that the other
/// streamd fetches about as much in advance as it sends in that time. Credit that is granted remains: a new subscription
/// with less would lose events that the other streamd has sent, and may have evicted since.
struct PeerMachine {
  /// Events that were read together, a loss, or a position after events that the filter left out.
  struct Part: Equatable {
    /// With the loss before the first event.
    var events = EventBatch()
    /// The id up to which everything is read.
    var lastID: UInt64
  }

  /// Why the connection ends.
  struct Ending: Error, Equatable {
    var failure: SourceFailure
    /// Whether the stream has no event with the id after which the subscription resumes.
    var isOfPosition = false
  }

  /// The time between two KEEPALIVE frames.
  static let keepaliveInterval = Duration.seconds(10)
  /// The time for any byte while the connection is read; the other side applies the same to this one.
  static let patience = Duration.seconds(30)
  /// Maximum window, in events.
  static let windowLimit = 256
  /// A frame of streamd has less: see `PayloadFrame.maximumContentByteCount`.
  private static let frameLimit = 256 << 10
  /// Answers to frames of the other side that may wait for it to read.
  private static let unwrittenLimit = 64 << 10

  let configuration: PeerConfiguration
  /// The owner writes its output.
  var session: ClientSession
  private let request: StreamID?
  /// The events that the other side may still send.
  private(set) var credit: Int
  private var window: Int
  private var grantedAt: Duration
  /// The id up to which everything is received; nil: nothing was.
  private(set) var lastID: UInt64?
  /// Whether events may be missing before the first one, because the stream has no position to resume from any more.
  private let hasLostPosition: Bool
  /// The id after which the subscription resumes.
  private let resumedAfter: UInt64?
  private var parts: [Part] = []
  /// How the connection has ended; the parts before are valid.
  private(set) var ending: Ending?
  /// Whether the other side has accepted the connection.
  private(set) var isAnswered = false

  /// Begins with the connection, while there is demand.
  ///
  /// - Parameters:
  ///   - lastID: the id after which the subscription resumes; nil: it begins with the oldest event.
  ///   - hasLostPosition: whether events may be missing before the first one.
  ///   - window: the number of events that are requested at first.
  init(
    _ configuration: PeerConfiguration, after lastID: UInt64?, hasLostPosition: Bool = false, window: Int = 1,
    at now: Duration
  ) {
    self.configuration = configuration
    (self.lastID, resumedAfter, self.hasLostPosition, self.window) = (lastID, lastID, hasLostPosition, window)
    grantedAt = now
    var setup = Setup(
      keepaliveInterval: Self.keepaliveInterval, maximumLifetime: Self.patience,
      metadataMIMEType: MetadataFormat.composite.mimeType)
    setup.payload.data = FailureReason.announcement
    if let token = configuration.token { setup.payload.metadata = MetadataFormat.metadata(bearerToken: token.utf8) }
    // The limit applies to the metadata, too.
    session = ClientSession(
      connectingWith: setup,
      limits: ConnectionLimits(
        maximumRequestBytes: max(configuration.maximumEventBytes, 64), maximumFrameBytes: Self.frameLimit),
      unwrittenByteLimit: Self.unwrittenLimit, asksAtOnce: true, at: now)
    // All stored events: a time leaves out those of a clock that was ahead.
    var options = SubscribeOptions(
      from: lastID.map { .after(id: $0) } ?? .last(1 << 53), onLag: .skip,
      filter: configuration.filter, marker: configuration.hasMarkers)
    options.gaps = true
    let name = try? MetadataFormat.composite.metadata(route: configuration.stream)
    request = session.machine.request(
      .stream, initialRequest: UInt32(window), Payload(metadata: name, data: options.json))
    credit = window
  }

  // MARK: Receiving

  /// Whether parts wait to be taken; nothing may be received meanwhile.
  var hasParts: Bool { !parts.isEmpty }

  /// The next part, in the order of the stream.
  mutating func takePart() -> Part? { parts.isEmpty ? nil : parts.removeFirst() }

  /// Receives bytes, which may be split anywhere.
  mutating func receive(_ bytes: UnsafeRawBufferPointer, at now: Duration) {
    var events: [ConnectionMachine.Event] = []
    unsafe session.receive(bytes, at: now, into: &events)
    for event in events where ending == nil { unsafe take(event, of: bytes) }
    // The refusal of a request precedes the answer to the first KEEPALIVE.
    if ending == nil { isAnswered = true }
  }

  private mutating func take(_ event: ConnectionMachine.Event, of bytes: UnsafeRawBufferPointer) {
    switch event {
    case .payloads(let id, let range) where id == request:
      var values = unsafe PayloadFrames(UnsafeRawBufferPointer(rebasing: bytes[range]))
      while ending == nil, let (metadata, data) = unsafe values.next() { unsafe take(metadata, data) }
    case .payload(let id, let payload, let isComplete) where id == request:
      unsafe (payload.metadata ?? []).withUnsafeBytes { metadata in
        unsafe payload.data.withUnsafeBytes { unsafe take(metadata, $0) }
      }
      if isComplete, ending == nil { ending = .completed }
    case .complete(let id) where id == request: ending = .completed
    case .error(let id, let code, let message) where id == request:
      ending =
        session.machine.hasGivenUp
        ? Ending(failure: .over(configuration.maximumEventBytes, "event"))
        : Ending(code, message, configuration, resumedAfter: lastID == resumedAfter ? lastID : nil)
    case .closed(let code, let message):
      ending = Ending(closedWith: code, message, byPeer: session.machine.isClosedByPeer)
    case .payloads, .payload, .complete, .error, .setup, .request, .requestN, .valueTooLarge, .cancel, .lease,
      .metadataPush:
      break
    }
  }

  /// Takes an event, or a marker.
  private mutating func take(_ metadata: UnsafeRawBufferPointer?, _ data: UnsafeRawBufferPointer) {
    credit -= 1
    guard let metadata = unsafe metadata,
      let stamp = unsafe EventStamp(metadata, isFiltered: configuration.hasMarkers, hasKind: configuration.hasMarkers)
    else {
      ending = .withoutID
      return
    }
    let isEvent = stamp.kind == .event
    if let lastID, stamp.id < lastID || isEvent && stamp.id == lastID {
      ending = .outOfOrder
      return
    }
    guard data.count <= configuration.maximumEventBytes else {
      ending = Ending(failure: .over(configuration.maximumEventBytes, "event"))
      return
    }
    // A stream without events has no position yet.
    guard isEvent || stamp.id > 0 else { return }
    var loss: EventLoss?
    if lastID == nil {
      loss = hasLostPosition ? .possible : nil
    } else if stamp.missedCount > 0 {
      loss = stamp.missedCount == EventStamp.unknownCount ? .possible : .known(stamp.missedCount)
    }
    if loss != nil || !hasRoom(for: isEvent ? data.count : nil) {
      parts.append(Part(lastID: stamp.id))
      parts[parts.count - 1].events.loss = loss
    }
    if isEvent { unsafe parts[parts.count - 1].events.append(data) }
    parts[parts.count - 1].lastID = stamp.id
    lastID = stamp.id
  }

  /// Whether the last part can take an event of this size, or, with nil, a position.
  private func hasRoom(for byteCount: Int?) -> Bool {
    guard let events = parts.last?.events else { return false }
    guard let byteCount, !events.isEmpty else { return true }
    let limit = configuration.batchLimit
    return events.count < limit.events && events.byteCount + byteCount <= limit.bytes
  }

  // MARK: Sending

  /// Sends what is due: credit, and KEEPALIVE.
  ///
  /// - Returns: when to call again at the latest.
  /// - Throws: when the other side is silent for too long.
  mutating func next(at now: Duration) throws(Ending) -> Duration {
    guard let due = session.next(at: now) else { throw isAnswered ? .silent : .unanswered }
    if session.isReading { grant(at: now) }
    return due
  }

  /// Grants credit when half of the window is used up.
  private mutating func grant(at now: Duration) {
    guard ending == nil, let request, credit <= window / 2 else { return }
    let time = now - grantedAt
    if time < .milliseconds(100) {
      window = min(window * 2, Self.windowLimit)
    } else if time > .seconds(1) {
      window = max(window / 2, 1)
    }
    guard window > credit else { return }
    session.machine.sendRequestN(request, UInt32(window - credit))
    (credit, grantedAt) = (window, now)
  }
}
