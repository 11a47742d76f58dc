import CLinux
import RSocket
import StreamProtocol
import StreamRuntime
import Glibc
import Reactive

/// A client's connection: its socket, its unsent bytes, the turns of its input, its timers, its subscriptions, its part
/// in its user's account, and its end. Confined to one loop.
///
/// The protocol is its `Speaker`, which it replaces in place. The speaker provides replies (`takeAnswers`). In `unsent`
/// they wait behind the rest of a partly written piece, and nothing else is written before them. Events are never
/// queued: they stay in the log.
///
/// References are strong in both directions and cut in one place each: `close` leaves the worker and ends
/// subscriptions, the speaker and timers, so that no callback reaches a released connection.
final class Connection: EventLoop.Handler {
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
    /// Writes the unsent bytes; input is not read. Can become: draining, closed.
    case closing
    /// Has closed its sending end, and discards input until the peer closes. Can become: closed.
    case draining
    case closed
  }

  /// The client. It changes when the client sends a token.
  var identity: ClientIdentity
  // The order without holes and the small types save memory: there may be very many connections.
  private(set) var phase = Phase.open
  private var watched: EventLoop.Readiness = .readable
  private(set) var isBlocked = false
  private(set) var socket: OwnedDescriptor
  /// The low bits of `sentByteCount`.
  private var lowSentByteCount: UInt32 = 0
  let worker: Worker
  private(set) var share: UserShare
  /// nil: the client has sent nothing yet, or the connection is closed.
  private(set) var speaker: Speaker?
  var subscriptions = SubscriptionsByRequest()
  var lastReceivedAt: UInt64
  /// Created at the first use.
  private(set) var extras: Extras?
  var unsent = UnsentBytes()
  /// When this process began to serve it, in seconds on the loop's clock.
  let beganAt: UInt32
  /// Its part in its user's account.
  private(set) var held = HeldByConnection()
  private var registration: EventLoop.Registration?
  /// Subscriptions in the queue of their user, at most `Slices.subscriptions`.
  var readyCount: UInt8 = 0
  private var peer: Peer = []
  /// Whether it is in its user's queue of connections with input. Nothing is read meanwhile.
  private(set) var isWaitingForTurn = false
  /// The timer of the present phase: for the handshake, for a limit of the protocol, or until the unsent bytes are
  /// read.
  private var clock: TimerID?

  /// The directions that the peer has closed.
  private struct Peer: OptionSet {
    let rawValue: UInt8
    static let sending = Self(rawValue: 1)
    static let reading = Self(rawValue: 2)
  }

  /// Whether the peer has closed its sending end. It may still read.
  var hasLostWriter: Bool { peer.contains(.sending) }
  /// Whether the peer has closed its reading end. Its input is read to the end, so that its values are stored.
  var hasLostReader: Bool { peer.contains(.reading) }

  /// The parts that nearly no idle connection has.
  final class Extras {
    fileprivate var secondClock: TimerID?
    var blocked: [StreamSubscription] = []
    var standby: Fifo<StreamSubscription>?
    fileprivate var waitingInput: WaitingInput?
    /// In the order in which they are sent.
    var unsentMaps: [UnsentMap] = []
    /// The readers of patterns.
    var readers: [RequestID: PatternReader] = [:]
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
  /// Maximum time of a closing connection's client to read the unsent bytes, and to close its end after that.
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

  // MARK: The protocol

  /// The number of live requests, with the members of patterns.
  var requestCount: Int { (speaker?.requestCount ?? 0) + readers.values.reduce(0) { $0 + $1.requestCount } }

  /// Bytes of the speaker to be written before any event.
  var answerByteCount: Int { speaker?.answerByteCount ?? 0 }

  /// Continues with another speaker. A closed connection has none.
  func speak(_ speaker: Speaker) { if phase != .closed { self.speaker = speaker } }

  /// - Returns: the number of processed bytes; the others wait for another turn.
  private func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    let speaker = unsafe speaker ?? (HTTPSpeaker.speaks(bytes[0]) ? HTTPSpeaker(self) : RSocketSpeaker(self))
    if self.speaker == nil { speak(speaker) }
    return unsafe speaker.process(bytes, until: deadline)
  }

  // MARK: The start

  /// - Returns: false when the kernel watches no more descriptors.
  func start() -> Bool {
    worker.loop.assertOnLoop()
    registration = try? worker.loop.register(socket.raw, for: .readable, handler: self)
    guard registration != nil else { return false }
    if speaker?.isEstablished != true { setClock(after: worker.limits.handshakeTimeout) }
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
    case .draining: if !isWaitingForTurn { worker.take(inputOf: self) }
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
    guard phase == .open else { return discardInput() }
    let hasJoined = joinStreams(until: deadline)
    defer { if phase == .open, hasOffers { waitForTurn() } }
    guard phase == .open else { return }
    if hasJoined, waitingInput == nil, speaker?.holdsInput == true { return watch() }
    guard speaker?.takeTurn() != true else { return watch() }
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
        if hasLostReader, speaker?.hasInbound != true { return close() }
        return watch()
      }
      lastReceivedAt = worker.loop.now
      let input = unsafe UnsafeRawBufferPointer(rebasing: worker.input[..<count])
      let handled = unsafe process(input, until: deadline)
      if handled < count { waitingInput = unsafe WaitingInput(input[handled...]) }
    }
    speaker?.finishProcessing()
    if phase == .open, settle(), let sentence = excess() {
      drop(sentence)
      speaker?.refuse(sentence)
      return
    }
    guard phase == .open, waitingInput != nil else {
      _ = flush()
      if phase == .open, hasLostReader, speaker?.hasInbound != true { waitForTurn() }
      return
    }
    // Replies are sent after the last input: a peer that does not read may still have sent values.
    if answerByteCount > Self.unsentLimit { _ = flush() }
    if phase == .open { waitForTurn() }
  }

  /// Reads and discards further input.
  private func discardInput() {
    guard phase == .draining else { return }
    let count = unsafe LocalSocket.receive(socket.raw, into: worker.input)
    if count > 0 || count < 0 && (errno == EAGAIN || errno == EINTR) { watch() } else { close() }
  }

  private func endInput() {
    peer.insert(.sending)
    if !hasLostReader { speaker?.inputEnded() }
    guard phase == .open else { return }
    guard !hasLostReader, speaker?.hasOutbound == true else { return close() }
    settle()
    watch()
  }

  /// Updates the account of its user.
  /// - Returns: whether the connection's bytes have increased.
  @discardableResult
  func settle() -> Bool {
    worker.loop.assertOnLoop()
    guard phase != .closed else { return held.settle(requests: 0, bytes: 0, worker.accounts, share.account) }
    let answers = max(0, unsent.heldByteCount - Self.pieceLimit) + answerByteCount
    let bytes = (waitingInput?.bytes.count ?? 0) + (speaker?.heldByteCount ?? 0) + answers
    return held.settle(requests: requestCount, bytes: bytes, worker.accounts, share.account)
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
    guard phase != .closed, phase != .draining else { return false }
    guard !hasLostReader else {
      _ = speaker?.takeAnswers()
      if phase == .closing { close() } else { watch() }
      return false
    }
    if let speaker, speaker.answerByteCount > 0 { unsent.append(speaker.takeAnswers()) }
    let hadUnsent = !unsent.isEmpty
    while !unsent.isEmpty, !isBlocked {
      guard let isWhole = writeUnsent() else { return false }
      isBlocked = !isWhole
    }
    if hadUnsent, unsent.isEmpty {
      settle()
      if phase == .closing {
        finishSending()
        return false
      }
      speaker?.didWriteAll()
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
    peer.insert(.reading)
    isBlocked = false
    unsent = UnsentBytes()
    _ = speaker?.takeAnswers()
    dropMaps()
    for subscription in subscriptions { speaker?.forget(subscription.request) }
    for request in readers.keys { speaker?.forget(request) }
    endSubscriptions()
    settle()
    if speaker?.hasInbound == true { watch() } else { waitForTurn() }
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
    if phase == .open, !isWaitingForTurn, !hasLostWriter, unsent.count <= Self.unsentLimit,
      speaker?.holdsInput != true
    {
      wanted.insert(.readable)
    }
    if phase == .draining, !isWaitingForTurn { wanted.insert(.readable) }
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
    if phase == .open, let speaker {
      speaker.timeIsOver()
      _ = flush()
      return
    }
    // A browser opens connections that it may not use.
    if phase == .open { worker.trace(identity, "sent nothing within the handshake timeout") }
    close()
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

  /// Saves the connection for the process that continues with the socket. Nothing is read or written afterwards; its
  /// subscriptions stay in place, so that their unread events are not evicted meanwhile.
  /// - Returns: nil for a connection that ends here.
  func save() -> SavedConnection? {
    guard phase == .open else { return nil }
    var saved = SavedConnection(
      descriptor: socket.raw, number: identity.number, token: identity.token?.saved, silence: silence)
    speaker?.save(to: &saved)
    guard phase == .open else { return nil }
    withdrawMaps(.notHandedOver)
    saved.input = Array(waitingInput.map { $0.bytes[$0.offset...] } ?? [])
    saved.unsent = unsent.array
    saved.subscriptions = allSubscriptions.filter { !$0.machine.format.isNotice }.map(SavedConnection.Subscription.init)
    saved.patterns = readers.values.map(SavedConnection.Pattern.init)
    for reader in readers.values { reader.marker.stop(on: worker.loop) }
    if let registration { worker.loop.unregister(registration) }
    registration = nil
    cancelClocks()
    phase = .closed
    return saved
  }

  /// Restores a connection of another process. Reads and writes nothing before `finishRestore`.
  func restore(_ saved: SavedConnection) {
    worker.loop.assertOnLoop()
    lastReceivedAt = worker.loop.now - min(worker.loop.now, saved.silence)
    unsent = UnsentBytes(saved.unsent)
    if !saved.input.isEmpty { waitingInput = WaitingInput(saved.input) }
    speaker = restoredSpeaker(saved)
    for pattern in saved.patterns { restore(pattern) }
    speaker?.restore(saved)
  }

  private func restoredSpeaker(_ saved: SavedConnection) -> Speaker? {
    guard saved.http == nil else { return HTTPSpeaker(self) }
    let machine = ConnectionMachine(restoring: saved.machine, limits: worker.limits.ofConnection)
    if let webSocket = saved.webSocket { return RSocketWebSocket(self, machine: machine, saved: webSocket) }
    let hasBegun = machine.isOpen || machine.partialByteCount(perRequest: 1) > 0 || machine.outputByteCount > 0
    return hasBegun || !saved.unsent.isEmpty ? RSocketSpeaker(self, machine: machine) : nil
  }

  /// Begins to read and write.
  func finishRestore() {
    guard start() else { return stop(.init(.noCapacity, "streamd cannot serve any more connections")) }
    speaker?.resume()
    for reader in readers.values { reader.begin(isRestored: true) }
    if phase == .open, waitingInput != nil { waitForTurn() }
    _ = flush()
  }

  /// Begins with input that was read from the socket before.
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

  /// The server stops, or cannot serve the connection. A client that has selected no protocol gets the reason as an
  /// RSocket error.
  func stop(_ failure: RequestFailure = .stopping) {
    guard phase == .open else { return }
    if speaker == nil { speak(RSocketSpeaker(self)) }
    speaker?.stop(failure)
  }

  /// Writes the unsent bytes and closes, each at the latest after a timeout.
  func finishClosing() {
    guard phase != .closed, phase != .draining else { return }  // a write before this may have closed it
    phase = .closing
    waitingInput = nil
    leaveAll()
    cancelClocks()
    setClock(after: Self.closingTime)
    if flush(), unsent.isEmpty { finishSending() }
  }

  /// Everything is written. With input that is unread, or that comes later, a close would discard what the peer has not
  /// received (RFC 9112, section 9.6). A server that stops waits only for what has come.
  private func finishSending() {
    var byte: UInt8 = 0
    let hasInput = unsafe recv(socket.raw, &byte, 1, CInt(MSG_PEEK) | CInt(MSG_DONTWAIT)) > 0
    guard !hasLostWriter, !hasLostReader, hasInput || !worker.isStopping, shutdown(socket.raw, CInt(SHUT_WR)) == 0
    else {
      return close()
    }
    phase = .draining
    setClock(after: Self.closingTime)
    watch()
  }

  /// Ends everything that the connection does, and what it is for. A closed one has no speaker.
  func leaveAll() {
    endSubscriptions()
    speaker?.leave()
    if phase == .closed { speaker = nil }
  }

  /// Ends all subscriptions. None of them has a place in the user's queue any more.
  func endSubscriptions() {
    extras?.blocked = []
    extras?.standby = nil
    for reader in readers.values { worker.leave(reader.end()) }
    extras?.readers = [:]
    let leaving = subscriptions
    subscriptions = SubscriptionsByRequest()
    for subscription in leaving {
      subscription.lane.remove(subscription)
      worker.release(subscription.lane)
    }
    readyCount = 0
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
