import CLinux
import Glibc
import RSocket
import Reactive
import StreamProtocol
import StreamRuntime

/// The next signal of a request for the server.
enum RequestSignal {
  case nothing
  case open(RequestKind, initialRequest: UInt32, Payload)
  case grant(StreamID, UInt32)
  /// Values within the server's demand, and whether they are the last ones.
  case values(StreamID, ArraySlice<[UInt8]>, isComplete: Bool)
  case cancel(StreamID)
}

/// A request, as its transport uses it. All calls are on the transport's loop.
protocol TransportRequest: AnyObject, Sendable {
  /// Reads the requests and values that other threads have posted.
  func readInbox()
  /// Returns the next signal. Called when the transport has room to send, once per ``ClientTransport/schedule(_:)``.
  /// - Throws: The reason why the request cannot be made.
  func takeSignal() throws(StreamError) -> RequestSignal
  /// Whether descriptors come with the first byte of its value: see ``ClientTransport/takePassed()``.
  var takesDescriptors: Bool { get }
  /// Reports that the request was sent with this ID.
  func opened(_ id: StreamID)
  /// Receives a value within the demand.
  func receive(_ payload: Payload)
  /// Receives values within the demand, which are valid during the call. Many arrive at once: this is the way of most events.
  func receiveValues(_ values: PayloadFrames)
  /// Receives additional demand from the server, as a number of values.
  func receiveDemand(_ count: UInt32)
  /// Reports that the server requests no more values.
  func receiveCancel()
  /// Ends the request: the last call.
  func end(_ completion: Subscribers.Completion<StreamError>)
}

/// Descriptors that the server has passed; they close with this object.
final class ReceivedDescriptors {
  /// Empty: this process had no room for them.
  let raw: [CInt]

  init(_ raw: [CInt]) { self.raw = raw }

  deinit { raw.forEach { close_foreign($0) } }
}

extension TransportRequest {
  var takesDescriptors: Bool { false }
  func receiveValues(_ values: PayloadFrames) {
    var values = values
    while let (metadata, data) = unsafe values.next() {
      receive(Payload(metadata: unsafe metadata.map { unsafe [UInt8]($0) }, data: unsafe [UInt8](data)))
    }
  }
  /// Does nothing: a default for requests that send no values.
  func receiveDemand(_ count: UInt32) {}
  /// Does nothing: a default for requests that send no values.
  func receiveCancel() {}
}

/// The part of a connection that runs on its loop: the socket, the protocol, and the live requests. Connects when there
/// is something to send and no connection.
///
/// The output is bounded. While ``roomByteCount`` bytes are unwritten, requests keep their signals, demand and values.
/// A server that makes the output grow nevertheless, by keepalives whose answers it does not read, is disconnected.
///
/// Subscribers are called only from ``receive()``, ``disconnect(_:)`` and ``sendSignal(of:)``, where the state is
/// consistent; requests that they make wait for the end of the turn. All state is accessed only on `loop`, which is
/// checked.
final class ClientTransport: EventLoop.Handler, @unchecked Sendable {
  let loop: EventLoop
  private let address: ServerAddress
  private let setup: Setup
  /// Returns the token; called for each connection.
  private let token: @Sendable () -> String?
  private let onEvent: @Sendable (ConnectionEvent) -> Void
  /// The failure that was reported last, until there is a connection: many requests may try again and again.
  private var reported: StreamError?
  /// Whether it connects without a request.
  private var isKept = false
  /// The losses since the last connection, and the next attempt.
  private var losses = 0
  private var attempt: TimerID?
  let limits: ConnectionLimits

  private final class Socket {
    let descriptor: OwnedDescriptor
    let registration: EventLoop.Registration

    init(_ descriptor: consuming OwnedDescriptor, _ registration: EventLoop.Registration) {
      self.descriptor = descriptor
      self.registration = registration
    }
  }

  private final class Link {
    var session: ClientSession
    /// nil: the server's name is being looked up.
    private(set) var socket: Socket?
    /// Until there is a socket.
    var connector: ServerConnector?
    var watchesWriting = false

    init(_ session: ClientSession) { self.session = session }

    func connected(_ socket: Socket) { (self.socket, connector) = (socket, nil) }

    /// Whether descriptors may come: not before the first request that takes them.
    var admitsDescriptors = false
    /// Live requests that take descriptors.
    var descriptorRequestCount = 0
    /// The bytes of the next value that have arrived.
    var passed: [ReceivedDescriptors] = []
  }

  private var link: Link?
  /// Closed by its owner, for good.
  private(set) var isClosed = false
  /// The server refused the last connection.
  private(set) var isRefused = false
  private var requests: [StreamID: any TransportRequest] = [:]
  /// The requests that have a signal to send, in the order of ``schedule(_:)``.
  private var scheduled: [any TransportRequest] = []
  /// Whether a turn is in progress. The requests send their signals at its end.
  private var isBusy = false
  private var tick: TimerID?
  private var events: [ConnectionMachine.Event] = []

  static let roomByteCount = 64 << 10
  /// The number of unwritten bytes, beside those of the last signal, above which the server is considered not to read.
  private static let unwrittenByteLimit = 1 << 20
  private static let readByteCount = 64 << 10

  init(
    address: ServerAddress, token: @escaping @Sendable () -> String?, loop: EventLoop, setup: Setup,
    maximumEventBytes: Int, onEvent: @escaping @Sendable (ConnectionEvent) -> Void
  ) {
    limits = ConnectionLimits(maximumRequestBytes: maximumEventBytes, maximumFrameBytes: .max)
    (self.address, self.token, self.onEvent) = (address, token, onEvent)
    self.loop = loop
    self.setup = setup
  }

  /// Schedules the request to send its next signal: immediately, or at the end of the turn in progress.
  func schedule(_ request: any TransportRequest) {
    loop.assertOnLoop()
    scheduled.append(request)
    if !isBusy { turn {} }
  }

  /// Closes the connection for good. Live and later requests fail.
  func close() {
    isClosed = true
    if let attempt { loop.cancel(attempt) }
    attempt = nil
    turn { disconnect(.disconnected("the connection was closed locally")) }
  }

  /// Connects now, and again after each loss, until it is closed.
  func keep() {
    isKept = true
    turn {
      connect()
      // A request has connected before: the answer shows whether the server accepts it.
      if let link, !link.session.hasReceived { link.session.machine.sendKeepalive(respond: true) }
    }
  }

  private func connect() {
    attempt = nil
    do throws(StreamError) { try connectIfNeeded() } catch { connectLater() }
  }

  private func connectLater() {
    guard isKept, !isClosed, attempt == nil else { return }
    losses += 1
    let delay = ReconnectPolicy().delay(afterLosses: losses, fraction: Double.random(in: 0..<1))
    attempt = loop.schedule(after: delay) { [weak self] in self?.turn { self?.connect() } }
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    turn {
      if readiness.contains(.readable) { receive() }
    }
  }

  // MARK: Sending

  /// Runs one turn: `body`, then the signals of the waiting requests, then one write. All activity of the transport is
  /// in a turn.
  private func turn(_ body: () -> Void) {
    loop.assertOnLoop()
    let isOutermost = !isBusy
    isBusy = true
    body()
    guard isOutermost else { return }
    sendSignals()
    write()
    watchWriting()
    isBusy = false
    // Requests that called ``schedule(_:)`` meanwhile, such as a retry after a failed connect, have their own turn: the
    // loop stays fair.
    if !scheduled.isEmpty, hasRoom { loop.execute { [weak self] in self?.turn {} } }
  }

  private var hasRoom: Bool { (link?.session.unwrittenByteCount ?? 0) < Self.roomByteCount }

  private func sendSignals() {
    let round = scheduled
    scheduled = []
    for (index, request) in round.enumerated() {
      guard hasRoom else {
        scheduled.insert(contentsOf: round[index...], at: 0)
        return
      }
      do throws(StreamError) {
        try sendSignal(of: request)
      } catch {
        request.end(.failure(error))
      }
    }
  }

  private func sendSignal(of request: any TransportRequest) throws(StreamError) {
    switch try request.takeSignal() {
    case .nothing: break
    case .open(let kind, let initialRequest, let payload):
      try connectIfNeeded()
      guard let id = link?.session.machine.request(kind, initialRequest: initialRequest, payload) else {
        throw .disconnected("no request can be made on the connection any more")
      }
      requests[id] = request
      if request.takesDescriptors, let link {
        link.descriptorRequestCount += 1
        link.admitsDescriptors = true
        if let socket = link.socket { LocalSocket.admitDescriptors(on: socket.descriptor.raw) }
      }
      setLimit()
      request.opened(id)
    case .grant(let id, let count): link?.session.machine.sendRequestN(id, count)
    case .values(let id, let values, let isComplete):
      for value in values { link?.session.machine.sendPayload(id, Payload(data: value)) }
      if isComplete { link?.session.machine.sendComplete(id) }
      setLimit()
    case .cancel(let id):
      _ = remove(id)
      link?.session.machine.sendCancel(id)
    }
  }

  /// Sets the limit of unwritten bytes. One value may exceed the default.
  private func setLimit() {
    guard let link else { return }
    link.session.unwrittenByteLimit = link.session.unwrittenByteCount + Self.unwrittenByteLimit
  }

  private func write() {
    guard let link, let socket = link.socket else { return }
    unsafe link.session.write { unsafe LocalSocket.send(socket.descriptor.raw, $0) }
  }

  private func watchWriting() {
    guard let link else { return }
    guard !link.session.isUnread else { return disconnect(.disconnected("the server does not read")) }
    let wanted = link.session.awaitsSocket
    guard wanted != link.watchesWriting, let socket = link.socket else { return }
    link.watchesWriting = wanted
    loop.update(socket.registration, for: wanted ? [.readable, .writable] : .readable)
  }

  // MARK: Receiving

  private func receive() {
    guard let link, let socket = link.socket else { return }
    let failure: StreamError? = unsafe withUnsafeTemporaryAllocation(byteCount: Self.readByteCount, alignment: 16) {
      buffer in
      let count = unsafe read(from: link, socket.descriptor.raw, into: buffer)
      let code = errno
      if count > 0 {
        unsafe receive(UnsafeRawBufferPointer(rebasing: buffer[..<count]), on: link)
      } else if count == 0 {
        return connectError(link.session.writeError) ?? .disconnected("the server closed the connection")
      } else if code != EAGAIN && code != EINTR {
        return connectError(code) ?? .disconnected(SystemError("read", address.place, code: code).description)
      }
      return nil
    }
    if let failure { disconnect(failure) }
  }

  private func read(from link: Link, _ raw: CInt, into buffer: UnsafeMutableRawBufferPointer) -> Int {
    guard link.admitsDescriptors else {
      return unsafe LocalSocket.receive(raw, into: buffer)
    }
    var passed: [CInt] = [-1, -1]
    var number = CInt(passed.count)
    let count = unsafe receive_with_descriptors(raw, buffer.baseAddress, buffer.count, &passed, &number)
    let code = errno
    if number != 0 { link.passed.append(ReceivedDescriptors(number > 0 ? Array(passed.prefix(Int(number))) : [])) }
    errno = code
    return count
  }

  /// The descriptors that have come with the value that a request receives just now; nil: none has.
  func takePassed() -> ReceivedDescriptors? {
    guard let link, !link.passed.isEmpty else { return nil }
    return link.passed.removeFirst()
  }

  private func receive(_ bytes: UnsafeRawBufferPointer, on link: Link) {
    var batch: [ConnectionMachine.Event] = []
    swap(&batch, &events)
    if !link.session.hasReceived {
      reported = nil
      onEvent(ConnectionEvent(level: .info, message: "connected", metadata: ["server": address.place]))
    }
    unsafe link.session.receive(bytes, at: now, into: &batch)
    for event in batch { unsafe deliver(event, of: bytes) }
    // A server that passes more than it was asked for does not fill this process.
    if link.passed.count > link.descriptorRequestCount {
      link.passed.removeFirst(link.passed.count - link.descriptorRequestCount)
    }
    batch.removeAll(keepingCapacity: true)
    swap(&batch, &events)
  }

  /// Over TCP, the first use of the socket shows whether the connection was made.
  /// - Returns: nil if it was.
  private func connectError(_ code: CInt?) -> StreamError? {
    guard let code, link?.session.hasReceived == false,
      [ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH].contains(code)
    else { return nil }
    return .cannotConnect(SystemError("connect", address.place, code: code))
  }

  /// - Parameter bytes: those that the event's range refers to.
  private func deliver(_ event: ConnectionMachine.Event, of bytes: UnsafeRawBufferPointer) {
    switch event {
    case .payloads(let id, let range):
      requests[id]?.receiveValues(unsafe PayloadFrames(UnsafeRawBufferPointer(rebasing: bytes[range])))
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
      let reason = FailureReason(code: code.rawValue, sentence: message)
      isRefused = code.base == .rejectedSetup
      let isOurFault = code.base == .connectionError && link?.session.machine.isClosedByPeer == true
      disconnect(isOurFault ? .cutOff(sentence, reason) : .disconnected(sentence, reason))
    case .setup, .request, .valueTooLarge, .lease, .metadataPush: break
    }
  }

  private func end(_ id: StreamID, _ completion: Subscribers.Completion<StreamError>) {
    remove(id)?.end(completion)
  }

  private func remove(_ id: StreamID) -> (any TransportRequest)? {
    guard let request = requests.removeValue(forKey: id) else { return nil }
    if request.takesDescriptors { link?.descriptorRequestCount -= 1 }
    return request
  }

  // MARK: Connecting and disconnecting

  private func connectIfNeeded() throws(StreamError) {
    guard !isClosed else { throw .disconnected("the connection was closed locally") }
    guard link == nil else { return }
    var setup = setup
    if let token = token() { setup.payload.metadata = MetadataFormat.metadata(bearerToken: token.utf8) }
    let new = Link(
      ClientSession(
        connectingWith: setup, limits: limits, unwrittenByteLimit: Self.unwrittenByteLimit, asksAtOnce: isKept, at: now)
    )
    do throws(SystemError) {
      if let descriptor = try address.connect() {
        new.connected(try watched(descriptor))
      } else if case .tcp(let host, let port) = address {
        new.connector = ServerConnector(to: host, port: port, on: loop) { [weak self] in self?.connected($0) }
      }
    } catch {
      report(.cannotConnect(error), requests: 0)
      throw .cannotConnect(error)
    }
    (link, isRefused) = (new, false)
    keepTime()
  }

  private func watched(_ descriptor: consuming OwnedDescriptor) throws(SystemError) -> Socket {
    let registration = try loop.register(descriptor.raw, for: .readable, handler: self)
    return Socket(descriptor, registration)
  }

  /// An address of the server's name was found, and the connection made.
  private func connected(_ result: Result<CInt, SystemError>) {
    switch result {
    case .success(let raw): connected(OwnedDescriptor(raw))
    case .failure(let error): failed(SystemError("connect", address.place, code: error.code, reason: error.reason))
    }
  }

  private func connected(_ descriptor: consuming OwnedDescriptor) {
    guard let link else { return }
    do throws(SystemError) {
      let socket = try watched(descriptor)
      turn { link.connected(socket) }
    } catch {
      failed(error)
    }
  }

  private func failed(_ error: SystemError) { turn { disconnect(.cannotConnect(error)) } }

  /// Ends the connection, then ends the live requests. A request made in response opens a new one.
  private func disconnect(_ error: StreamError) {
    guard let ended = link else { return }
    write()  // an ERROR frame carries the reason
    if let socket = ended.socket { loop.unregister(socket.registration) }
    ended.connector?.cancel()
    link = nil
    if let tick { loop.cancel(tick) }
    tick = nil
    let orphans = requests.sorted { $0.key < $1.key }
    requests = [:]
    report(error, requests: orphans.count)
    for (_, request) in orphans { request.end(.failure(error)) }
    connectLater()
  }

  /// Reports the end of a connection, or an attempt in vain, unless it is the same as the last one.
  private func report(_ error: StreamError, requests: Int) {
    if isClosed {
      return onEvent(ConnectionEvent(level: .debug, message: "\(error)", metadata: ["server": address.place]))
    }
    guard error != reported else { return }
    reported = error
    onEvent(.end(error, of: address.place, requests: requests, isRefused: isRefused))
  }

  /// The loop's time, as a duration.
  private var now: Duration { .nanoseconds(Int64(clamping: loop.now)) }

  private func keepTime() {
    guard let due = link?.session.next(at: now) else {
      return disconnect(.disconnected("the server was silent for \(setup.maximumLifetime)"))
    }
    tick = loop.schedule(after: due - now) { [weak self] in
      self?.losses = 0  // the connection has lasted for a while
      self?.turn { self?.keepTime() }
    }
  }
}
