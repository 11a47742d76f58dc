import CLinux
import StreamProtocol
import StreamRuntime
import Glibc
import Reactive

/// A client's connection as a transport: its socket, its unsent bytes, the turns of its input, and its end. Confined to
/// one loop.
///
/// The protocol is a subclass, so that an idle client costs one object. It provides replies (`takeAnswers`). In
/// `unsent` they wait behind the rest of a partly written piece, and nothing else is written before them. Events are
/// never queued: they stay in the log.
///
/// References are strong in both directions and cut in one place each: `close` leaves the worker and ends
/// subscriptions, inbound channels and timers, so that no callback reaches a released connection.
class Connection: EventLoop.Handler {
  /// The result of a write.
  enum WriteResult {
    /// The number of written bytes; 0 if the socket is full.
    case wrote(Int)
    /// The peer has closed its reading end, or the connection is closed. The connection's subscriptions have ended.
    case gone
  }

  enum Phase {
    /// Can become: closing, closed.
    case open
    /// Writes the unsent bytes, then closes; input is not read. Can become: closed.
    case closing
    case closed
  }

  /// The client. It changes when the client sends a token.
  var identity: ClientIdentity
  // The order without holes and the small types save memory: there may be very many connections.
  private(set) var socket: OwnedDescriptor
  /// The low bits of `sentByteCount`.
  private var lowSentByteCount: UInt32 = 0
  let worker: Worker
  private(set) var share: UserShare
  private(set) var phase = Phase.open
  private var watched: EventLoop.Readiness = .readable
  private(set) var isBlocked = false
  /// Subscriptions in the queue of their user, at most `Slices.subscriptions`.
  var readyCount: UInt8 = 0
  private var registration: EventLoop.Registration?
  /// Whether it is in its user's queue of connections with input. Nothing is read meanwhile.
  private(set) var isWaitingForTurn = false
  /// Whether the peer has closed its sending end. It may still read.
  private(set) var hasLostWriter = false
  /// Whether the peer has closed its reading end. Its input is read to the end, so that its values are stored.
  private(set) var hasLostReader = false
  /// The timer of the present phase: for the handshake, for a limit of the protocol, or until the unsent bytes are
  /// read.
  private var clock: TimerID?
  var subscriptions = SubscriptionsByRequest()
  var lastReceivedAt: UInt64
  /// Created at the first use.
  private(set) var extras: Extras?
  var unsent = UnsentBytes()
  /// When this process began to serve it, in seconds on the loop's clock.
  private(set) var beganAt: UInt32
  /// Its part in its user's account.
  private(set) var held = HeldByConnection()

  /// The parts that nearly no idle connection has.
  final class Extras {
    fileprivate var secondClock: TimerID?
    var blocked: [StreamSubscription] = []
    var standby: Fifo<StreamSubscription>?
    fileprivate var waitingInput: WaitingInput?
    /// In the order in which they are sent.
    var unsentMaps: [UnsentMap] = []
    /// Since the first request for a map.
    fileprivate var writtenBytes: MapsInFlight.WrittenBytes?
    /// The objects that the client's maps need of their streams.
    fileprivate var mapHolds: [AnyObject] = []
    var commands: ClientCommands?
    fileprivate var highSentByteCount: UInt32 = 0

    /// Counts what is written, for `MapsInFlight`.
    func startMaps(at sentByteCount: UInt64) -> MapsInFlight.WrittenBytes {
      if let writtenBytes { return writtenBytes }
      let new = MapsInFlight.WrittenBytes()
      new.count.store(sentByteCount, ordering: .releasing)
      writtenBytes = new
      return new
    }

    /// Holds an object until the connection ends.
    func hold(_ object: AnyObject) {
      if !mapHolds.contains(where: { $0 === object }) { mapHolds.append(object) }
    }
  }

  fileprivate final class WaitingInput {
    let bytes: [UInt8]
    var offset = 0
    init(_ bytes: some Collection<UInt8>) { self.bytes = Array(bytes) }
  }

  /// Input is not read while more bytes than this are unsent, so that a client must read the replies to its requests.
  private static let unsentLimit = 64 << 10
  /// Maximum unsent bytes besides replies: the rest of one piece of events.
  private static let pieceLimit = 72 << 10
  /// Maximum time of a closing connection's client to read the unsent bytes.
  private static let closingTime = Duration.seconds(1)

  init(
    _ socket: consuming OwnedDescriptor, _ identity: ClientIdentity, _ share: UserShare, worker: Worker
  ) {
    self.identity = identity
    self.share = share
    self.socket = socket
    self.worker = worker
    lastReceivedAt = worker.loop.now
    beganAt = UInt32(truncatingIfNeeded: worker.loop.now / 1_000_000_000)
  }

  // MARK: Overridden by protocols

  /// Whether the handshake is complete. Before that, the handshake timeout applies.
  var isEstablished: Bool { false }

  /// The protocol's name in `$clients`. A client that has sent nothing counts as one of RSocket.
  var protocolName: String { "rsocket" }

  /// The streams that it publishes to.
  var publishedStreams: [String] { [] }

  /// The number of live requests.
  var requestCount: Int { 0 }

  /// Bytes of partial frames and requests, and of values beyond their share, in the protocol.
  var heldByteCount: Int { 0 }

  /// Whether input is left in the socket until the protocol calls `watch`.
  var holdsInput: Bool { false }

  /// The number of bytes to write before any event.
  var answerByteCount: Int { 0 }

  /// Removes and returns these bytes.
  func takeAnswers() -> [UInt8] { [] }

  /// Processes input.
  /// - Parameter deadline: the end of the connection's slice, in nanoseconds of the monotonic clock.
  /// - Returns: the number of processed bytes; the others wait for another turn.
  func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int { bytes.count }

  /// Does the work that waits for the connection's turn, other than input.
  /// - Returns: false if there was nothing.
  func takeTurn() -> Bool { false }

  /// Does all of that work now: the connection will be saved.
  func finishTurns() {}

  /// All input of this turn was processed.
  func finishProcessing() {}

  /// The peer sends nothing more, and may still read. The connection closes unless ``hasOutbound`` holds afterwards.
  func inputEnded() {}

  /// The timer of an open connection has fired: the handshake timeout, or one set by the protocol.
  func timeIsOver() { close() }

  /// Ends the connection of a client that has too many unprocessed bytes, with a sentence for it.
  func refuse(_ sentence: String) { finishClosing() }

  /// Sends the error that ends a request; its subscription has ended already, or never began.
  func sendFailure(_ request: RequestID, _ failure: RequestFailure) {}

  /// The bytes of such an error, for a connection whose replies may have descriptors.
  func encoded(_ failure: RequestFailure, of request: RequestID) -> [UInt8] { [] }

  /// Ends a request whose stream has ended.
  func sendCompletion(_ request: RequestID) {}

  /// A request has ended, and its last frame is written.
  func forget(_ request: RequestID) {}

  /// The connection has ended: ends everything besides subscriptions.
  func leaveAll() { endSubscriptions() }

  /// Whether the connection is needed after the peer has closed its reading end.
  var hasInbound: Bool { false }

  /// Whether the connection is needed though the peer sends no more.
  var hasOutbound: Bool { false }

  /// All unsent bytes are written, and the connection is open.
  func didWriteAll() {}

  /// A part of a response's body was sent, or there was nothing to send.
  /// - Parameter isAll: whether the log has nothing more.
  func didSend(_ subscription: StreamSubscription, byteCount: Int, isAll: Bool) {}

  /// A subscription has ended, and is in no list any more.
  func didRemove() {}

  /// A subscription to a notice has its first event.
  func answer(_ subscription: StreamSubscription) {}

  /// The label of a subscription's events in a response with several streams.
  func label(of subscription: StreamSubscription) -> EventLabel? { nil }

  /// - Returns: the connection's record for the process that continues with the socket; nil for a connection that ends
  ///   here. Nothing is read or written any more.
  func save() -> SavedConnection? { nil }

  /// Restores a connection of another process. Reads and writes nothing before `finishRestore`.
  func restore(_ saved: SavedConnection) {}

  /// The server stops, or cannot serve the connection: every request ends, then the connection.
  func stop(_ failure: RequestFailure = .stopping) { finishClosing() }

  /// Ends the publishing requests to which the client has no right any more.
  func reapplyWriteAccess() {}

  // MARK: The start

  /// - Parameter time: the time that is left for the handshake; nil: all of it.
  /// - Returns: false when the kernel watches no more descriptors; the connection is then closed.
  func start(within time: Duration? = nil) -> Bool {
    worker.loop.assertOnLoop()
    if let registration {
      worker.loop.hand(registration, to: self)
    } else {
      registration = try? worker.loop.register(socket.raw, for: .readable, handler: self)
    }
    guard registration != nil else { return false }
    if !isEstablished { setClock(after: time ?? worker.limits.handshakeTimeout) }
    return true
  }

  // MARK: Input

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    worker.loop.assertOnLoop()
    if readiness.contains(.writable), isBlocked {
      isBlocked = false
      if flush() { unblock() }
    }
    guard readiness.contains(.readable) else { return }
    // The loop reports it although it is not watched: the peer has closed the other direction, too.
    if hasLostWriter, phase != .closed { return close() }
    switch phase {
    case .open: if !isWaitingForTurn, watched.contains(.readable) || !isBlocked { worker.take(inputOf: self) }
    case .closing, .closed: break  // the next write detects a closed peer
    }
  }

  /// Input that was read but not processed, because its user's slice was over.
  private var waitingInput: WaitingInput? {
    get { extras?.waitingInput }
    set { set(\.waitingInput, newValue) }
  }

  /// The commands of an RSocket connection.
  var commands: ClientCommands? {
    get { extras?.commands }
    set { set(\.commands, newValue) }
  }

  /// Queues the input for the user's turn.
  func waitForTurn() {
    guard !isWaitingForTurn else { return }
    isWaitingForTurn = true
    worker.enqueue(inputOf: self)
    watch()
  }

  /// Reads once, or continues with unprocessed input, until the connection's slice is over; then waits for its next
  /// turn.
  /// - Parameter deadline: the end of the slice, in nanoseconds of the monotonic clock.
  func takeInput(until deadline: UInt64) {
    worker.loop.assertOnLoop()
    isWaitingForTurn = false
    guard phase == .open else { return }
    guard !takeTurn() else { return watch() }
    if let waiting = waitingInput {
      unsafe waiting.offset += waiting.bytes.withUnsafeBytes {
        unsafe process(UnsafeRawBufferPointer(rebasing: $0[waiting.offset...]), until: deadline)
      }
      if waiting.offset == waiting.bytes.count { waitingInput = nil }
    } else {
      let count = unsafe LocalSocket.receive(socket.raw, into: worker.input)
      guard count > 0 else {
        if count == 0 { return endInput() }
        if errno != EAGAIN && errno != EINTR { return close() }
        // A peer that neither reads nor publishes has no live request.
        if hasLostReader, !hasInbound { return close() }
        return watch()
      }
      lastReceivedAt = worker.loop.now
      let input = unsafe UnsafeRawBufferPointer(rebasing: worker.input[..<count])
      let handled = unsafe process(input, until: deadline)
      if handled < count { waitingInput = unsafe WaitingInput(input[handled...]) }
    }
    finishProcessing()
    if phase == .open, settle(), let sentence = excess() {
      drop(sentence)
      return refuse(sentence)
    }
    guard phase == .open, waitingInput != nil else {
      _ = flush()
      if phase == .open, hasLostReader, !hasInbound { waitForTurn() }
      return
    }
    // Replies are sent after the last input: a peer that does not read may still have sent values.
    if answerByteCount > Self.unsentLimit { _ = flush() }
    if phase == .open { waitForTurn() }
  }

  private func endInput() {
    hasLostWriter = true
    if !hasLostReader { inputEnded() }
    guard phase == .open else { return }
    guard hasOutbound else { return close() }
    settle()
    watch()
  }

  /// Updates the account of its user.
  /// - Returns: whether the connection's bytes have increased.
  @discardableResult
  func settle() -> Bool {
    worker.loop.assertOnLoop()
    let isClosed = phase == .closed
    let answers = max(0, unsent.heldByteCount - Self.pieceLimit) + answerByteCount
    return held.settle(
      requests: isClosed ? 0 : requestCount,
      bytes: isClosed ? 0 : (waitingInput?.bytes.count ?? 0) + heldByteCount + answers, worker.accounts, share.account)
  }

  /// Continues in the account of another user. The connection is in no queue.
  func move(to account: UserAccount) {
    _ = held.settle(requests: 0, bytes: 0, worker.accounts, share.account)
    share = worker.move(from: share, to: account)
    settle()
  }

  // MARK: Output

  /// Whether bytes must be written before any event.
  var hasUnsent: Bool { unsentByteCount > 0 }

  /// Bytes to be written before any event.
  var unsentByteCount: Int { unsent.count + answerByteCount }

  /// Writes the unsent bytes.
  /// - Returns: whether events can be written now.
  func flush() -> Bool {
    worker.loop.assertOnLoop()
    guard phase != .closed else { return false }
    guard !hasLostReader else {
      _ = takeAnswers()
      if phase == .closing { close() } else { watch() }
      return false
    }
    if answerByteCount > 0 { unsent.append(takeAnswers()) }
    let hadUnsent = !unsent.isEmpty
    while !unsent.isEmpty, !isBlocked {
      guard let isWhole = writeUnsent() else { return false }
      isBlocked = !isWhole
    }
    if hadUnsent, unsent.isEmpty {
      settle()
      if phase == .closing {
        close()
        return false
      }
      didWriteAll()
      guard phase != .closed else { return false }
    }
    watch()
    return !isBlocked
  }

  /// Writes as much as the socket takes.
  func write(_ bytes: UnsafeRawBufferPointer) -> WriteResult {
    worker.loop.assertOnLoop()
    return unsafe noteWritten(send(socket.raw, bytes.baseAddress, bytes.count, CInt(MSG_NOSIGNAL)))
  }

  /// - Parameter count: what a system call has returned just now.
  func noteWritten(_ count: Int) -> WriteResult {
    if count >= 0 {
      noteSent(count)
      return .wrote(count)
    }
    if errno == EAGAIN || errno == EINTR || errno == ENOBUFS { return .wrote(0) }
    if phase == .open, errno == EPIPE || errno == ECONNRESET { loseReader() } else { close() }
    return .gone
  }

  /// Bytes written to the socket by this process.
  var sentByteCount: UInt64 { UInt64(extras?.highSentByteCount ?? 0) << 32 | UInt64(lowSentByteCount) }

  private func noteSent(_ count: Int) {
    let (sum, isOver) = lowSentByteCount.addingReportingOverflow(UInt32(truncatingIfNeeded: count))
    lowSentByteCount = sum
    if isOver { needExtras().highSentByteCount += 1 }
    extras?.writtenBytes?.count.store(sentByteCount, ordering: .releasing)
  }

  private func loseReader() {
    hasLostReader = true
    isBlocked = false
    unsent = UnsentBytes()
    _ = takeAnswers()
    dropMaps()
    for subscription in subscriptions { forget(subscription.request) }
    endSubscriptions()
    settle()
    if hasInbound { watch() } else { waitForTurn() }
  }

  /// The socket is full; `rest` is the unwritten part of a piece.
  func becomeBlocked(keeping rest: UnsafeRawBufferPointer) {
    unsent = unsafe UnsentBytes(Array(rest))
    isBlocked = true
    watch()
  }

  /// Watches the socket for the events that the connection waits for.
  func watch() {
    guard let registration else { return }
    var wanted: EventLoop.Readiness = []
    if phase == .open, !isWaitingForTurn, !hasLostWriter, unsent.count <= Self.unsentLimit, !holdsInput {
      wanted.insert(.readable)
    }
    if isBlocked { wanted.insert(.writable) }
    guard wanted != watched else { return }
    watched = wanted
    worker.loop.update(registration, for: wanted)
  }

  private func set<Value>(_ extra: ReferenceWritableKeyPath<Extras, Value?>, _ value: Value?) {
    if extras != nil || value != nil { needExtras()[keyPath: extra] = value }
  }

  func needExtras() -> Extras {
    let needed = extras ?? Extras()
    extras = needed
    return needed
  }

  // MARK: Timers
  //
  // Timers retain the connection: `cancelClocks` is called on every exit path, and no timer is set after that.

  /// Replaces the timer of the present phase.
  func setClock(after delay: Duration) {
    clearClock()
    guard phase != .closed else { return }
    clock = worker.loop.schedule(after: delay) { [self] in
      clock = nil
      clockHasRunOut()
    }
  }

  private func clockHasRunOut() {
    switch phase {
    case .open: timeIsOver()
    case .closing: close()
    case .closed: break
    }
  }

  func clearClock() {
    if let clock { worker.loop.cancel(clock) }
    clock = nil
  }

  /// Sets the protocol's own timer, which is cancelled with the connection.
  func setSecondClock(after delay: Duration, _ action: @escaping () -> Void) {
    guard phase == .open else { return }
    if let clock = extras?.secondClock { worker.loop.cancel(clock) }
    set(\.secondClock, worker.loop.schedule(after: delay, action))
  }

  private func cancelClocks() {
    clearClock()
    if let clock = extras?.secondClock { worker.loop.cancel(clock) }
    extras?.secondClock = nil
  }

  // MARK: From one process to the next

  /// Nanoseconds since the last input.
  var silence: UInt64 { worker.loop.now - lastReceivedAt }

  /// The unprocessed input, and the unsent bytes.
  var savedBytes: (input: [UInt8], unsent: [UInt8]) {
    (Array(waitingInput.map { $0.bytes[$0.offset...] } ?? []), unsent.array)
  }

  /// Restores a connection of another process. Reads and writes nothing before `finishRestore`.
  func restore(silence: UInt64, input: [UInt8], unsent: [UInt8]) {
    worker.loop.assertOnLoop()
    lastReceivedAt = worker.loop.now - min(worker.loop.now, silence)
    self.unsent = UnsentBytes(unsent)
    if !input.isEmpty { waitingInput = WaitingInput(input) }
  }

  /// Stops reading and writing; its subscriptions stay in place, so that their unread events are not evicted
  /// meanwhile.
  func leaveSocket() {
    if let registration { worker.loop.unregister(registration) }
    registration = nil
    cancelClocks()
    phase = .closed
  }

  /// Begins to read and write.
  func finishRestore() {
    guard start() else { return stop(.init(.noCapacity, "streamd cannot serve any more connections")) }
    finishRestoringProtocol()
    if phase == .open, waitingInput != nil { waitForTurn() }
    _ = flush()
  }

  /// The protocol's part of `finishRestore`.
  func finishRestoringProtocol() {}

  /// Gives the socket to the connection that takes the place of this one. Everything else of this one ends.
  func makeSuccessor(_ makeConnection: (consuming OwnedDescriptor) -> Connection) -> Connection {
    cancelClocks()
    phase = .closed
    settle()
    var socket = OwnedDescriptor(-1)
    swap(&socket, &self.socket)
    let successor = makeConnection(socket)
    (successor.registration, successor.watched, successor.beganAt) = (registration, watched, beganAt)
    registration = nil
    return successor
  }

  /// Begins with input that another connection has read.
  func take(_ input: [UInt8]) {
    waitingInput = WaitingInput(input)
    worker.take(inputOf: self)
  }

  /// Continues with input that the protocol has held back.
  func resume(with input: [UInt8]) {
    guard phase == .open else { return }
    if !input.isEmpty { waitingInput = WaitingInput(input + (waitingInput.map { $0.bytes[$0.offset...] } ?? [])) }
    if waitingInput != nil { waitForTurn() } else { watch() }
  }

  // MARK: The end

  /// Writes the unsent bytes and closes, at the latest after a timeout.
  func finishClosing() {
    guard phase != .closed else { return }  // a write before this may have closed it
    phase = .closing
    waitingInput = nil
    leaveAll()
    cancelClocks()
    setClock(after: Self.closingTime)
    if flush(), unsent.isEmpty { close() }
  }

  func endSubscriptions() {
    extras?.blocked = []
    extras?.standby = nil
    let leaving = subscriptions
    subscriptions = SubscriptionsByRequest()
    for subscription in leaving {
      subscription.lane.remove(subscription)
      worker.release(subscription.lane)
    }
  }

  func close() {
    worker.loop.assertOnLoop()
    guard phase != .closed else { return }
    phase = .closed
    worker.trace(identity, "disconnected")
    cancelClocks()
    if let registration { worker.loop.unregister(registration) }
    registration = nil
    leaveAll()
    waitingInput = nil
    settle()
    worker.forget(self)  // the socket closes with the last reference
    extras?.mapHolds = []
    guard extras?.writtenBytes != nil else { return }
    var left = OwnedDescriptor(-1)
    swap(&left, &socket)
    worker.accounts.maps.leave(identity.number, left)
  }
}
