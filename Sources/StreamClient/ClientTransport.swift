import Glibc
import RSocket
import Reactive
import StreamRuntime

/// What a request has to tell the server next.
enum RequestSignal {
  case nothing
  case open(RequestKind, initialRequest: UInt32, Payload)
  case grant(StreamID, UInt32)
  /// Values within the server's demand, and whether there will be no more.
  case values(StreamID, ArraySlice<[UInt8]>, isComplete: Bool)
  case cancel(StreamID)
}

/// One request as its transport sees it. All on the transport's loop.
protocol TransportRequest: AnyObject, Sendable {
  /// Looks at what other threads have asked for.
  func readInbox()
  /// Asked for when the transport has room to send, once for each ``ClientTransport/hear(_:)``.
  /// - Throws: why the request cannot be made.
  func takeSignal() throws(StreamError) -> RequestSignal
  /// The request was sent under this ID.
  func opened(_ id: StreamID)
  /// A value, within the demand.
  func receive(_ payload: Payload)
  /// The server wants so many values more.
  func receiveDemand(_ count: UInt32)
  /// The server wants no more values.
  func receiveCancel()
  /// The last call.
  func end(_ completion: Subscribers.Completion<StreamError>)
}

extension TransportRequest {
  /// Nothing, for a request that sends no values.
  func receiveDemand(_ count: UInt32) {}
  /// As above.
  func receiveCancel() {}
}

/// The loop's half of a connection: the socket, the protocol, and which requests are live. Connects when there is
/// something to send and no connection.
///
/// What goes out is bounded: while ``roomByteCount`` bytes are unwritten, requests keep what they have to say, and their
/// demand and values wait there; a server that nevertheless makes the output grow, by keepalives which it does not read the
/// answers of, is cut off.
///
/// Subscribers are called only from ``receive()``, ``disconnect(_:)`` and ``speak(_:)``, where the state is settled and
/// what they start at once waits for the end of the turn. Everything is touched on `loop` alone, which is checked.
final class ClientTransport: EventLoop.Handler, @unchecked Sendable {
  let loop: EventLoop
  private let path: String
  private let setup: Setup
  private let limits: ConnectionLimits

  private final class Session {
    let descriptor: OwnedDescriptor
    let registration: EventLoop.Registration
    var machine: ConnectionMachine
    var unwritten: ArraySlice<UInt8> = []
    var watchesWriting = false
    /// What may be unwritten before the server is taken for one that reads nothing: what was said last, and more.
    var unwrittenByteLimit = ClientTransport.unwrittenByteLimit
    /// A write failed: the server is gone, but what it said before may still be there to read.
    var isDeaf = false
    /// Nanoseconds on the loop's clock.
    var lastHeard: UInt64

    init(
      _ descriptor: consuming OwnedDescriptor, _ registration: EventLoop.Registration, setup: Setup,
      limits: ConnectionLimits, now: UInt64
    ) {
      self.descriptor = descriptor
      self.registration = registration
      machine = ConnectionMachine(connectingWith: setup, limits: limits)
      lastHeard = now
    }

    var unwrittenByteCount: Int { unwritten.count + machine.outputByteCount }
  }

  private var session: Session?
  /// By its owner, for good.
  private(set) var isClosed = false
  /// The last connection was one that the server did not want.
  private(set) var isTurnedAway = false
  private var requests: [StreamID: any TransportRequest] = [:]
  /// Those who have something to say, in the order in which they said so.
  private var speakers: [any TransportRequest] = []
  /// Whether a turn is under way, at whose end the speakers are heard.
  private var isBusy = false
  private var tick: TimerID?
  private var events: [ConnectionMachine.Event] = []

  static let roomByteCount = 64 << 10
  fileprivate static let unwrittenByteLimit = 1 << 20
  private static let readByteCount = 64 << 10

  init(path: String, loop: EventLoop, setup: Setup, maximumEventBytes: Int) {
    limits = ConnectionLimits(maximumRequestBytes: maximumEventBytes, maximumFrameBytes: .max)
    self.path = path
    self.loop = loop
    self.setup = setup
  }

  /// The request has something to say: at once, or at the end of the turn that is under way.
  func hear(_ request: any TransportRequest) {
    loop.assertOnLoop()
    speakers.append(request)
    if !isBusy { turn {} }
  }

  /// Fails what is live, and what comes later.
  func close() {
    isClosed = true
    turn { disconnect(.disconnected("the connection was closed locally")) }
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    turn {
      if readiness.contains(.readable) { receive() }
    }
  }

  // MARK: Sending

  /// Everything that happens on the transport happens in a turn: `body`, then those who want to speak, then one write.
  private func turn(_ body: () -> Void) {
    loop.assertOnLoop()
    let isOutermost = !isBusy
    isBusy = true
    body()
    guard isOutermost else { return }
    hearSpeakers()
    write()
    watchWriting()
    isBusy = false
    // Who spoke up meanwhile, such as a retry after a failed connect, has a turn of its own: the loop stays fair.
    if !speakers.isEmpty, hasRoom { loop.execute { [weak self] in self?.turn {} } }
  }

  private var hasRoom: Bool { (session?.unwrittenByteCount ?? 0) < Self.roomByteCount }

  private func hearSpeakers() {
    let round = speakers
    speakers = []
    for (index, request) in round.enumerated() {
      guard hasRoom else {
        speakers.insert(contentsOf: round[index...], at: 0)
        return
      }
      do throws(StreamError) {
        try speak(request)
      } catch {
        request.end(.failure(error))
      }
    }
  }

  private func speak(_ request: any TransportRequest) throws(StreamError) {
    switch try request.takeSignal() {
    case .nothing: break
    case .open(let kind, let initialRequest, let payload):
      try connectIfNeeded()
      guard let id = session?.machine.request(kind, initialRequest: initialRequest, payload) else {
        throw .disconnected("no request can be made on the connection any more")
      }
      requests[id] = request
      setLimit()
      request.opened(id)
    case .grant(let id, let count): session?.machine.sendRequestN(id, count)
    case .values(let id, let values, let isComplete):
      for value in values { session?.machine.sendPayload(id, Payload(data: value)) }
      if isComplete { session?.machine.sendComplete(id) }
      setLimit()
    case .cancel(let id):
      requests[id] = nil
      session?.machine.sendCancel(id)
    }
  }

  /// One value may be larger than the limit.
  private func setLimit() {
    guard let session else { return }
    session.unwrittenByteLimit = session.unwrittenByteCount + Self.unwrittenByteLimit
  }

  private func write() {
    guard let session else { return }
    while true {
      if session.unwritten.isEmpty { session.unwritten = session.machine.takeOutput()[...] }
      guard !session.unwritten.isEmpty, !session.isDeaf else { break }
      let count = unsafe session.unwritten.withUnsafeBytes {
        unsafe send(session.descriptor.raw, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
      }
      if count >= 0 {
        session.unwritten = session.unwritten.dropFirst(count)
      } else if errno == EAGAIN {
        break
      } else if errno != EINTR {
        session.isDeaf = true
      }
    }
    if session.isDeaf { session.unwritten = [] }
  }

  private func watchWriting() {
    guard let session else { return }
    guard session.unwrittenByteCount <= session.unwrittenByteLimit else {
      disconnect(.disconnected("the server does not read"))
      return
    }
    let wanted = !session.unwritten.isEmpty
    guard wanted != session.watchesWriting else { return }
    session.watchesWriting = wanted
    loop.update(session.registration, for: wanted ? [.readable, .writable] : .readable)
  }

  // MARK: Receiving

  private func receive() {
    guard let session else { return }
    var batch: [ConnectionMachine.Event] = []
    swap(&batch, &events)
    let failure: StreamError? = unsafe withUnsafeTemporaryAllocation(byteCount: Self.readByteCount, alignment: 16) {
      buffer in
      let count = unsafe read(session.descriptor.raw, buffer.baseAddress, buffer.count)
      let code = errno
      if count > 0 {
        session.lastHeard = loop.now
        unsafe session.machine.receive(UnsafeRawBufferPointer(rebasing: buffer[..<count]), into: &batch)
      } else if count == 0 {
        return .disconnected("the server closed the connection")
      } else if code != EAGAIN && code != EINTR {
        return .disconnected(SystemError("read", path, code: code).description)
      }
      return nil
    }
    for event in batch { deliver(event) }
    batch.removeAll(keepingCapacity: true)
    swap(&batch, &events)
    if let failure { disconnect(failure) }
  }

  private func deliver(_ event: ConnectionMachine.Event) {
    switch event {
    case .payload(let id, let payload, let isComplete):
      guard let request = requests[id] else { return }
      request.receive(payload)
      if isComplete { end(id, .finished) }
    case .complete(let id): end(id, .finished)
    case .requestN(let id, let count): requests[id]?.receiveDemand(count)
    case .cancel(let id): requests[id]?.receiveCancel()
    case .error(let id, let code, let message): end(id, .failure(StreamError(code, message)))
    case .closed(let code, let message):
      let sentence = message.isEmpty ? code.description : message
      isTurnedAway = code == .rejectedSetup
      let isOurFault = code == .connectionError && session?.machine.isClosedByPeer == true
      disconnect(isOurFault ? .cutOff(sentence) : .disconnected(sentence))
    case .setup, .request, .payloads, .valueTooLarge, .lease, .metadataPush: break  // a requester gathers nothing
    }
  }

  private func end(_ id: StreamID, _ completion: Subscribers.Completion<StreamError>) {
    requests.removeValue(forKey: id)?.end(completion)
  }

  // MARK: Coming and going

  private func connectIfNeeded() throws(StreamError) {
    guard !isClosed else { throw .disconnected("the connection was closed locally") }
    guard session == nil else { return }
    do throws(SystemError) {
      let descriptor = try UnixSocket.connect(to: path)
      let registration = try loop.register(descriptor.raw, for: .readable, handler: self)
      session = Session(descriptor, registration, setup: setup, limits: limits, now: loop.now)
      isTurnedAway = false
    } catch {
      throw .cannotConnect(error)
    }
    scheduleTick(after: min(setup.keepaliveInterval, setup.maximumLifetime))
  }

  /// Ends the session, then tells those who were live: whoever asks again at once gets a new one.
  private func disconnect(_ error: StreamError) {
    guard let ended = session else { return }
    write()  // an ERROR frame says why
    loop.unregister(ended.registration)
    session = nil
    if let tick { loop.cancel(tick) }
    tick = nil
    let orphans = requests.sorted { $0.key < $1.key }
    requests = [:]
    for (_, request) in orphans { request.end(.failure(error)) }
  }

  private func scheduleTick(after delay: Duration) {
    tick = loop.schedule(after: delay) { [weak self] in self?.turn { self?.keepAlive() } }
  }

  private func keepAlive() {
    guard let session else { return }
    let silence = Duration.nanoseconds(Int64(clamping: loop.now &- session.lastHeard))
    guard silence < setup.maximumLifetime else {
      disconnect(.disconnected("the server was silent for \(setup.maximumLifetime)"))
      return
    }
    if session.unwritten.isEmpty { session.machine.sendKeepalive() }
    scheduleTick(after: min(setup.keepaliveInterval, setup.maximumLifetime - silence))
  }
}
