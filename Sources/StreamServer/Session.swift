import CLinux
import Glibc
import RSocket
import Reactive
import StreamRuntime

/// One client's connection: its socket, its protocol state, its subscriptions. Lives on one loop.
///
/// What it has to say beyond event frames (answers, errors, the rest of a frame that the socket took only a part of)
/// stands in `unsent`, and nothing else is written before that is gone. Events are never queued: they stay in the log.
///
/// References are strong in both directions and cut in one place each: `close` leaves the worker and ends subscriptions,
/// publications and timers, so that no callback meets a connection that was freed.
final class Session: EventLoop.Handler {
  /// What became of a write.
  enum WriteResult {
    /// So many bytes; 0 when the socket is full.
    case wrote(Int)
    /// The peer is gone and the session closed.
    case gone
  }

  private enum Phase {
    case open
    /// Says what is left, then closes. Input is no longer read.
    case closing
    case closed
  }

  let identity: ClientIdentity
  let socket: OwnedDescriptor
  private var watched: EventLoop.Readiness = .readable
  private var phase = Phase.open
  private(set) var isBlocked = false
  private let worker: Worker
  let share: UserShare
  private var registration: EventLoop.Registration?
  /// For what the connection waits for in its present phase: its SETUP, a sign of life, or that what is left is read.
  private var clock: TimerID?
  var machine: ConnectionMachine
  private var subscriptions = SubscriptionList()
  /// Made for the first value that the client publishes.
  private var publications: Publications?
  private var unsent: [UInt8] = []
  private var heardAt: UInt64
  /// Made for the first that it is needed for.
  private var extras: Extras?
  /// Of `unsent`: a client that reads nothing makes that no longer than some MiB.
  private var unsentStart: UInt32 = 0
  /// Subscriptions in the queue of their user, of which there are `Slices.subscriptions` at most.
  var readyCount: UInt8 = 0
  /// It stands in its user's queue of those with input. Nothing is read meanwhile.
  private var isWaitingForTurn = false
  /// The peer takes nothing any more. What it has sent is read to its end: its values go into their streams.
  private var hasLostReader = false
  /// What its user's account counts of it.
  private var held = HeldByConnection()

  /// What nearly every idle session has none of.
  private final class Extras {
    var leaseClock: TimerID?
    var blocked: [StreamSubscription] = []
    var standby: Fifo<StreamSubscription>?
    var waitingInput: WaitingInput?
  }

  private final class WaitingInput {
    let bytes: [UInt8]
    var offset = 0
    init(_ bytes: some Collection<UInt8>) { self.bytes = Array(bytes) }
  }

  /// Input is left in the socket while more than this is unsent: whoever asks without reading the answers waits.
  private static let unsentLimit = 64 << 10
  /// Input is left in the socket, too, while values of more bytes than this wait for room in their streams, or more than
  /// its share of one of them. Credit keeps a publisher below, unless its values grow all of a sudden. Not so for a client
  /// that has a subscription: the stream may wait for the credit that it sends for that. What is over the limit is in its
  /// user's account.
  private static let heldLimit = 8 << 20
  /// What may be unsent beside answers: the rest of one frame of events.
  private static let frameLimit = 72 << 10
  /// What a half-assembled request costs beside its bytes.
  private static let assemblyBytes = 256
  /// How long a closing connection may take to read what is left.
  private static let closingTime = Duration.seconds(1)
  /// Bytes of a name that is looked for, and repeated to who asked: a routing tag holds no more.
  private static let nameLimit = 255

  private var unsentOffset: Int {
    get { Int(unsentStart) }
    set { unsentStart = UInt32(newValue) }
  }

  private var leaseClock: TimerID? {
    get { extras?.leaseClock }
    set { set(\.leaseClock, newValue) }
  }

  /// Subscriptions that wait for room in the socket; some may have ended meanwhile.
  private var blocked: [StreamSubscription] {
    get { extras?.blocked ?? [] }
    set { if extras != nil || !newValue.isEmpty { needExtras().blocked = newValue } }
  }

  /// What was read and not handled yet: its user's turn was over.
  private var waitingInput: WaitingInput? {
    get { extras?.waitingInput }
    set { set(\.waitingInput, newValue) }
  }

  private func set<Value>(_ extra: ReferenceWritableKeyPath<Extras, Value?>, _ value: Value?) {
    if extras != nil || value != nil { needExtras()[keyPath: extra] = value }
  }

  private func needExtras() -> Extras {
    let needed = extras ?? Extras()
    extras = needed
    return needed
  }

  /// The subscription waits for a place in its user's queue.
  func standBy(_ subscription: StreamSubscription) {
    let extras = needExtras()
    if extras.standby == nil { extras.standby = Fifo() }
    extras.standby?.append(subscription)
  }

  /// The one that has waited for such a place longest; some may have ended meanwhile.
  func takeStandby() -> StreamSubscription? {
    if let next = extras?.standby?.popFirst() { return next }
    extras?.standby = nil
    return nil
  }

  /// The subscription waits for room in the socket.
  func block(_ subscription: StreamSubscription) {
    let extras = needExtras()
    // A client that asks, cancels and reads nothing leaves many behind that have ended.
    if extras.blocked.count > 64 + 2 * machine.liveCount { extras.blocked.removeAll { $0.state != .blocked } }
    extras.blocked.append(subscription)
  }

  /// Subscriptions that wait for room in the socket, those included that have ended meanwhile.
  var blockedCount: Int { extras?.blocked.count ?? 0 }

  /// - Parameter machine: of a connection that goes on here; nil for a new one.
  init(
    _ socket: consuming OwnedDescriptor, number: UInt64, _ credentials: PeerCredentials?, _ share: UserShare,
    machine: ConnectionMachine? = nil, worker: Worker
  ) {
    identity = ClientIdentity(number: number, credentials: credentials)
    self.share = share
    self.socket = socket
    self.worker = worker
    self.machine = machine ?? ConnectionMachine(acceptingWith: worker.limits.ofConnection)
    heardAt = worker.loop.now
  }

  /// - Returns: false when the kernel watches no more descriptors; the connection is then closed.
  func start() -> Bool {
    registration = try? worker.loop.register(socket.raw, for: .readable, handler: self)
    guard registration != nil else { return false }
    if !machine.isOpen { setClock(after: worker.limits.handshakeTimeout) }
    return true
  }

  // MARK: From one process to the next

  /// Leaves the socket to the process that goes on with it: what that has to know. Nothing is read or written any more.
  ///
  /// A publisher whose values wait for room in a stream is told that they are not in there.
  /// - Returns: nil for a connection that ends here.
  func save() -> SavedSession? {
    guard phase == .open else { return nil }
    publications?.abandon("streamd restarts, and has values that the stream has not taken")
    _ = flush()
    guard phase == .open else { return nil }
    let saved = SavedSession(
      descriptor: socket.raw, number: identity.number, machine: machine.save(), silence: worker.loop.now - heardAt,
      input: Array(waitingInput.map { $0.bytes[$0.offset...] } ?? []), unsent: Array(unsent[unsentOffset...]),
      subscriptions: subscriptions.map(SavedSession.Subscription.init),
      publications: publications?.saved ?? [])
    if let registration { worker.loop.unregister(registration) }
    registration = nil
    cancelClocks()
    publications?.leaveAll()
    publications = nil
    phase = .closed  // its subscriptions stay where they are: what they hold must not be dropped on the way out
    return saved
  }

  /// Ends the subscriptions that `save` has left where they were.
  func endSaved() {
    leaveAll()
  }

  /// Takes the place of a connection of another process. Reads and writes nothing: that begins with `finishRestore`.
  ///
  /// What the client may no longer do ends with what it would get for asking now.
  func restore(_ saved: SavedSession) {
    heardAt = worker.loop.now - min(worker.loop.now, saved.silence)
    unsent = saved.unsent
    if !saved.input.isEmpty { waitingInput = WaitingInput(saved.input) }
    for subscription in saved.subscriptions { restore(subscription) }
    for publication in saved.publications { restore(publication) }
  }

  /// Begins to read and write what `restore` has left.
  func finishRestore() {
    guard start() else { return stop("streamd cannot watch any more connections") }
    if machine.isOpen { accepted() }
    if phase == .open, waitingInput != nil { waitForTurn() }
    _ = flush()
  }

  private func restore(_ saved: SavedSession.Subscription) {
    guard let stream = worker.streams[saved.stream].flatMap(view) else {
      return machine.sendError(saved.id, .canceled, "\"\(saved.stream)\" is no longer served")
    }
    guard admits(stream.configuration.read) else { return refuse(saved.id, stream.name, mayNotRead(stream.name)) }
    guard let cursor = stream.restored(saved.cursor) else {
      return machine.sendError(
        saved.id, .lagged, "lagged: event \(saved.cursor.position) is gone, half of it was sent")
    }
    let lost = stream.eventsLost(from: saved.cursor)
    if lost > 0 { worker.countLost(lost, by: identity, of: stream) }
    guard lost == 0 || saved.onLag != .fail else {
      return machine.sendError(saved.id, .lagged, "lagged: \(lost) events lost")
    }
    var gap = saved.gap
    if cursor.position != saved.cursor.position { gap? += stream.gap(from: saved.cursor) }
    let lane = worker.lane(of: stream)
    let subscription = StreamSubscription(
      session: self, lane: lane, id: RequestID(saved.id.rawValue),
      SubscriptionMachine(cursor: cursor, demand: saved.credit, onLag: saved.onLag, format: saved.frames), gap: gap)
    subscriptions.insert(subscription)
    worker.perform(subscription.machine.begin(), subscription)
    lane.addRestored(subscription)
  }

  private func restore(_ saved: SavedSession.Publication) {
    guard let stream = worker.streams[saved.stream] else {
      return machine.sendError(saved.id, .canceled, "\"\(saved.stream)\" is no longer served")
    }
    guard let inlet = stream.inlet else {
      return machine.sendError(saved.id, .canceled, "\"\(saved.stream)\" takes no values from clients any more")
    }
    guard admits(stream.configuration.write) else { return refuse(saved.id, stream.name, mayNotWrite(stream.name)) }
    let publications = publications ?? Publications(session: self, worker: worker)
    self.publications = publications
    publications.restore(saved.id, to: stream, inlet, credit: saved.credit, saved.named)
  }

  // MARK: When streams change

  /// Ends a subscription to a stream that the client may no longer read.
  func review(_ subscription: StreamSubscription) {
    let stream = subscription.lane.stream
    guard isLive(subscription), !admits(stream.configuration.read) else { return }
    refuse(StreamID(subscription.id.rawValue), stream.name, mayNotRead(stream.name))
    remove(subscription)
    _ = flush()
  }

  func reviewPublications() {
    guard phase == .open, let publications else { return }
    publications.review()
    _ = flush()
  }

  // MARK: Input

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable), isBlocked {
      isBlocked = false
      if flush() { unblock() }
    }
    guard readiness.contains(.readable) else { return }
    switch phase {
    case .open: if !isWaitingForTurn, watched.contains(.readable) || !isBlocked { worker.take(inputOf: self) }
    case .closing, .closed: break  // a peer that is gone shows when something is written to it
    }
  }

  /// What has come is handled when it is this user's turn.
  func waitForTurn() {
    guard !isWaitingForTurn else { return }
    isWaitingForTurn = true
    worker.enqueue(inputOf: self)
    watch()
  }

  /// Reads once, or goes on with what was read, until the session's slice is over; it waits then for its next turn.
  /// - Parameter deadline: when the slice is over, in nanoseconds of the monotonic clock.
  func takeInput(until deadline: UInt64) {
    isWaitingForTurn = false
    guard phase == .open else { return }
    if let waiting = waitingInput {
      waiting.offset += waiting.bytes.withUnsafeBytes {
        handle(UnsafeRawBufferPointer(rebasing: $0[waiting.offset...]), until: deadline)
      }
      if waiting.offset == waiting.bytes.count { waitingInput = nil }
    } else {
      let count = recv(socket.raw, worker.input.baseAddress, worker.input.count, 0)
      guard count > 0 else {
        if count == 0 || (errno != EAGAIN && errno != EINTR) { return close() }
        // One that neither reads nor has published is of no use any more.
        if hasLostReader, publications == nil { return close() }
        return watch()
      }
      heardAt = worker.loop.now
      let input = UnsafeRawBufferPointer(rebasing: worker.input[..<count])
      let handled = handle(input, until: deadline)
      if handled < count { waitingInput = WaitingInput(input[handled...]) }
    }
    publications?.passOn()
    if phase == .open, settle(), let sentence = excess {
      machine.close(.connectionError, sentence)
      drop(sentence)
      return finishClosing()
    }
    guard phase == .open, waitingInput != nil else {
      _ = flush()
      if phase == .open, hasLostReader, publications == nil { waitForTurn() }
      return
    }
    // Answers go with the last of what was read: a peer that reads none of them may have sent values all the same.
    if machine.outputByteCount > Self.unsentLimit { _ = flush() }
    if phase == .open { waitForTurn() }
  }

  /// Brings the account of its user up to date.
  /// - Returns: whether the connection holds more bytes than before.
  @discardableResult
  func settle() -> Bool {
    let answers = max(0, unsent.count - Self.frameLimit) + machine.outputByteCount
    let values = publications.map { max($0.excessBytes, $0.heldBytes - Self.heldLimit) } ?? 0
    let input =
      (waitingInput?.bytes.count ?? 0) + values + machine.partialByteCount(perRequest: Self.assemblyBytes)
    return held.settle(
      requests: phase == .closed ? 0 : machine.liveCount, bytes: phase == .closed ? 0 : input + answers,
      worker.accounts, share.account)
  }

  /// Why the connection may not hold more, if it may not.
  private var excess: String? {
    let limits = worker.limits
    let held = share.account.heldBytes.load(ordering: .relaxed)
    if held > limits.inputBytesPerUser {
      return "\(identity.user) has more than \(limits.inputBytesPerUser) bytes under way (max_input_per_user)"
    }
    if limits.exceedsInputShare(held, ofAll: worker.accounts.heldBytes.load(ordering: .relaxed)) {
      return "\(identity.user) has more bytes under way than are free of \(limits.inputBytes) (max_input)"
    }
    return nil
  }

  /// - Returns: how many of the bytes were handled; the others are for another turn.
  private func handle(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    var (offset, frameCount) = (0, 0)
    var events: [ConnectionMachine.Event] = []
    repeat {
      let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
      offset += machine.receive(rest, gathersValues: true, frameLimit: Slices.frames, into: &events)
      frameCount += Slices.frames
      for event in events where phase == .open { handle(event, of: rest) }
      events.removeAll(keepingCapacity: true)
    } while offset < bytes.count && phase == .open && frameCount < Slices.sessionFrames
      && EventLoop.monotonicNow() < deadline
    return phase == .open ? offset : bytes.count
  }

  /// - Parameter bytes: what the event was read from.
  private func handle(_ event: ConnectionMachine.Event, of bytes: UnsafeRawBufferPointer) {
    switch event {
    case .setup: accepted()
    case .request(let id, let kind, let demand, let payload, let isComplete):
      request(id, kind, demand, payload, isComplete: isComplete)
    case .payload(let id, let payload, let isComplete):
      payload.data.withUnsafeBytes { publications?.receive(id, CollectionOfOne($0), isComplete: isComplete) }
    case .payloads(let id, let range):
      let frames = PayloadFrames(UnsafeRawBufferPointer(rebasing: bytes[range]))
      publications?.receive(id, frames.lazy.map(\.data), isComplete: false)
    case .valueTooLarge(let id): publications?.refuseLargeValue(id)
    case .complete(let id): publications?.receive(id, EmptyCollection(), isComplete: true)
    case .requestN(let id, let count):
      if let subscription = subscriptions[RequestID(id.rawValue)], !subscription.machine.format.completes {
        subscription.lane.grant(Self.demand(count), to: subscription)
      } else {
        publications?.grant(id, count)
      }
    case .cancel(let id), .error(let id, _, _):
      if let subscription = subscriptions[RequestID(id.rawValue)] {
        remove(subscription)
      } else {
        publications?.leave(id)
      }
    case .closed(let code, let message):
      if code == .connectionClose { return finishClosing() }
      drop(message)
      finishClosing()
    case .lease, .metadataPush: break
    }
  }

  private func accepted() {
    worker.mention(identity, "is connected")
    watchLifetime()
    if machine.usesLeases { renewLease() }
  }

  /// Closes a client that was silent for its maximum lifetime, or for the server's. Zero means that it promised nothing.
  private func watchLifetime() {
    clearClock()
    let promised = machine.maximumLifetime
    let isPromised = promised > .zero && promised <= worker.limits.lifetime
    let lifetime = isPromised ? promised : worker.limits.lifetime
    if holdsValues { heardAt = worker.loop.now }  // it may have spoken: nobody listens
    let silence = Duration.nanoseconds(Int64(worker.loop.now - heardAt))
    guard silence < lifetime else {
      drop("silent for \(isPromised ? "its maximum lifetime of \(lifetime)" : "\(lifetime), the longest allowed")")
      return close()
    }
    setClock(after: lifetime - silence)
  }

  private func renewLease() {
    guard phase == .open else { return }
    machine.sendLease(timeToLive: worker.limits.leaseTime, count: UInt32(clamping: worker.limits.requestsPerConnection))
    leaseClock = worker.loop.schedule(after: worker.limits.leaseTime * 4 / 5) { [self] in renewLease() }
    _ = flush()
  }

  // MARK: Requests

  private func request(
    _ id: StreamID, _ kind: RequestKind, _ demand: UInt32, _ payload: Payload, isComplete: Bool
  ) {
    let name: String
    var publisher: PublisherEntry?
    do {
      name = try machine.metadataFormat.route(in: payload.metadata)
      if kind == .channel { publisher = try machine.metadataFormat.publisher(in: payload.metadata) }
    } catch {
      return machine.sendError(id, .invalid, error.message)
    }
    guard name.utf8.count <= Self.nameLimit else {
      return refuse(id, nil, "no stream has a name of \(name.utf8.count) bytes")
    }
    guard let named = worker.streams[name] else { return refuse(id, nil, "no stream named \"\(name)\"") }
    let limit = worker.limits.requestsPerUser
    guard share.account.requests.load(ordering: .relaxed) + held.uncounted(machine.liveCount) <= limit else {
      return refuse(id, name, "\(identity.user) has \(limit) requests already")
    }
    guard let stream = view(of: named) else { return refuse(id, name, "no room for another view of \"\(name)\"") }
    switch kind {
    case .stream, .response:
      guard !hasLostReader else { return machine.end(id) }
      guard admits(stream.configuration.read) else { return refuse(id, name, mayNotRead(name)) }
      subscribe(id, to: stream, kind, demand, payload.data)
    case .channel, .fireAndForget:
      let publications = publications ?? Publications(session: self, worker: worker)
      self.publications = publications
      publications.request(
        id, kind, to: stream, payload.data, isComplete: isComplete, demand: demand, publisher: publisher)
    }
  }

  /// The stream as this client sees it.
  /// - Returns: nil when there is no room for another view of a system stream.
  private func view(of stream: ServedStream) -> ServedStream? {
    guard stream.feed != nil else { return stream }
    let visibility = worker.systemStreams.visibility(for: identity.credentials) {
      PeerCredentials.supplementaryGroups(of: socket.raw)
    }
    return visibility == .all ? stream : worker.systemStreams.view(of: stream.name, visibility)
  }

  func admits(_ rules: AccessRules) -> Bool {
    rules.admit(identity.credentials) { PeerCredentials.supplementaryGroups(of: socket.raw) }
  }

  private func mayNotRead(_ name: String) -> String { "\(identity.user) may not read \"\(name)\"" }

  func mayNotWrite(_ name: String) -> String { "\(identity.user) may not write \"\(name)\"" }

  private func subscribe(
    _ id: StreamID, to stream: ServedStream, _ kind: RequestKind, _ demand: UInt32, _ data: [UInt8]
  ) {
    let lane = worker.lane(of: stream)
    defer { worker.release(lane) }
    do throws(SubscribeOptions.Mistake) {
      let options = try SubscribeOptions(data)
      if kind == .response, options.start != .replay || options.onLag != nil || options.gaps {
        throw SubscribeOptions.Mistake("a request for one value takes no option but \"ids\"")
      }
      let start = kind == .response ? .latest : options.start
      let isCurrent = start == .new || bringUpToDate(stream)
      let (position, gap) = try stream.log.read { storage, _ in
        Result { () throws(SubscribeOptions.Mistake) in
          let position = try start.position(in: storage, replay: stream.configuration.replay)
          return (position, start.gap(before: position, in: storage))
        }
      }.get()
      let subscription = StreamSubscription(
        session: self, lane: lane, id: RequestID(id.rawValue),
        SubscriptionMachine(
          cursor: Cursor(position: position), demand: Self.demand(demand),
          onLag: kind == .response ? .latest : options.onLag ?? stream.configuration.onLag,
          format: EventFormat(ids: options.ids, completes: kind == .response),
          state: isCurrent ? .idle : .updating(beginsWithNewest: start == .replay || start == .latest)),
        gap: options.gaps ? gap : nil)
      subscriptions.insert(subscription)
      worker.perform(subscription.machine.begin(), subscription)
      lane.add(subscription)
      worker.mention(
        identity, stream: stream.name,
        kind == .response ? "asks for a value" : "subscribes from event \(position), with a credit of \(demand)")
    } catch {
      machine.sendError(id, .invalid, error.sentence)
    }
  }

  /// - Returns: whether the stream has nothing newer; if it has, its lane is told when it is there.
  private func bringUpToDate(_ stream: ServedStream) -> Bool {
    guard let feed = stream.feed else { return true }
    return feed.isCurrent(in: stream, for: worker) { [worker] in
      worker.loop.execute { worker.existingLane(of: stream)?.streamIsCurrent() }
    }
  }

  /// Goes on with the view of a system stream that shows what the client may see now, from its newest event on.
  func changeView(of subscription: StreamSubscription) {
    let (name, id) = (subscription.lane.stream.name, subscription.id)
    guard let stream = worker.streams[name].flatMap(view) else {
      return fail(subscription, .rejected, "no room for another view of \"\(name)\"")
    }
    guard stream !== subscription.lane.stream else { return }
    let position = subscription.cursor.position
    guard subscription.cursor.sentBytes == 0 else {
      return fail(subscription, .lagged, "lagged: event \(position) is gone, half of it was sent")
    }
    remove(subscription)
    let lane = worker.lane(of: stream)
    let moved = StreamSubscription(
      session: self, lane: lane, id: id,
      SubscriptionMachine(
        cursor: Cursor(position: stream.log.read { storage, _ in storage.position(ofLast: 1) }),
        demand: subscription.machine.demand, onLag: subscription.machine.onLag, format: subscription.machine.format,
        state: bringUpToDate(stream) ? .idle : .updating(beginsWithNewest: true)),
      gap: subscription.tellsGaps ? Gap.none : nil)
    subscriptions.insert(moved)
    worker.perform(moved.machine.begin(), moved)
    lane.add(moved)
  }

  func refuse(_ id: StreamID, _ stream: String?, _ reason: String) {
    machine.sendError(id, .rejected, reason)
    worker.report(.clientRefused(identity, stream: stream, reason: reason))
  }

  private func remove(_ subscription: StreamSubscription) {
    subscriptions.remove(subscription)
    if subscription.state == .ready { worker.leaveQueue(self) }
    subscription.lane.remove(subscription)
    worker.release(subscription.lane)
    settle()
  }

  /// On the wire 2^31-1 means without limit.
  private static func demand(_ count: UInt32) -> Subscribers.Demand {
    count >= 0x7FFF_FFFF ? .unlimited : .max(Int(count))
  }

  // MARK: What the worker tells

  /// False once the subscription, or the connection with it, has ended; a loop over subscriptions may come by it after
  /// that, as the end of one can close the connection.
  private func isLive(_ subscription: StreamSubscription) -> Bool { phase == .open && subscription.state != .ended }

  /// The stream itself has ended and the subscriber has everything.
  func end(_ subscription: StreamSubscription, with completion: Subscribers.Completion<StreamFailure>) {
    guard isLive(subscription) else { return }
    switch completion {
    case .finished:
      machine.sendComplete(StreamID(subscription.id.rawValue))
      remove(subscription)
      _ = flush()
    case .failure(let failure): fail(subscription, .applicationError, failure.message)
    }
  }

  /// Ends one request with an error. Does nothing for one that has ended.
  func fail(_ subscription: StreamSubscription, _ code: ErrorCode, _ message: String) {
    guard isLive(subscription) else { return }
    machine.sendError(StreamID(subscription.id.rawValue), code, message)
    remove(subscription)
    _ = flush()
  }

  /// The frame that completes the request has been written past the machine.
  func finished(_ subscription: StreamSubscription) {
    guard isLive(subscription) else { return }
    machine.end(StreamID(subscription.id.rawValue))
    remove(subscription)
  }

  /// The server stops: every request ends with CANCELED, then the connection closes.
  func stop(_ reason: String = "streamd is stopping") {
    guard phase == .open else { return }
    for id in (subscriptions.map { StreamID($0.id.rawValue) } + (publications?.ids ?? [])).sorted() {
      machine.sendError(id, .canceled, reason)
    }
    machine.close(.connectionClose, reason)
    finishClosing()
  }

  // MARK: Output

  /// Writes what is unsent.
  /// - Returns: whether the socket is free for events now.
  func flush() -> Bool {
    guard phase != .closed else { return false }
    guard !hasLostReader else {
      _ = machine.takeOutput()
      if phase == .closing { close() } else { watch() }
      return false
    }
    if machine.hasOutput {
      unsent.removeFirst(unsentOffset)  // or a client that is never quite done reading would make it grow
      unsentOffset = 0
      if unsent.isEmpty { unsent = machine.takeOutput() } else { unsent += machine.takeOutput() }
    }
    while unsentOffset < unsent.count, !isBlocked {
      let result = unsent.withUnsafeBytes { write(UnsafeRawBufferPointer(rebasing: $0[unsentOffset...])) }
      guard case .wrote(let count) = result else { return false }
      unsentOffset += count
      if unsentOffset < unsent.count { isBlocked = true }
    }
    if unsentOffset == unsent.count, unsentOffset > 0 {
      unsent = []
      unsentOffset = 0
      settle()
      if phase == .closing {
        close()
        return false
      }
    }
    watch()
    return !isBlocked
  }

  /// Writes as much as the socket takes.
  func write(_ bytes: UnsafeRawBufferPointer) -> WriteResult {
    let count = send(socket.raw, bytes.baseAddress, bytes.count, CInt(MSG_NOSIGNAL))
    if count >= 0 { return .wrote(count) }
    if errno == EAGAIN || errno == EINTR || errno == ENOBUFS { return .wrote(0) }
    if phase == .open, errno == EPIPE || errno == ECONNRESET { loseReader() } else { close() }
    return .gone
  }

  private func loseReader() {
    hasLostReader = true
    isBlocked = false
    (unsent, unsentOffset) = ([], 0)
    _ = machine.takeOutput()
    for subscription in subscriptions { machine.end(subscription.id) }
    endSubscriptions()
    settle()
    if publications == nil { waitForTurn() } else { watch() }
  }

  /// The socket is full; `rest` is what it did not take of the frame that was begun.
  func becomeBlocked(keeping rest: UnsafeRawBufferPointer) {
    unsent = Array(rest)
    unsentOffset = 0
    isBlocked = true
    watch()
  }

  private func unblock() {
    let unblocked = blocked
    blocked = []
    for subscription in unblocked { worker.perform(subscription.machine.socketIsWritable(), subscription) }
  }

  private var holdsValues: Bool {
    guard let publications, subscriptions.isEmpty else { return false }
    return publications.heldBytes > Self.heldLimit || publications.excessBytes > 0
  }

  private func watch() {
    guard let registration else { return }
    var wanted: EventLoop.Readiness = []
    if phase == .open, !isWaitingForTurn, unsent.count - unsentOffset <= Self.unsentLimit, !holdsValues {
      wanted.insert(.readable)
    }
    if isBlocked { wanted.insert(.writable) }
    guard wanted != watched else { return }
    watched = wanted
    worker.loop.update(registration, for: wanted)
  }

  // MARK: The end

  private func drop(_ reason: String) {
    worker.report(.clientDropped(identity, reason: reason))
  }

  /// Says what is left and closes; a client that does not read it is closed all the same, after a while.
  private func finishClosing() {
    phase = .closing
    waitingInput = nil
    leaveAll()
    cancelClocks()
    setClock(after: Self.closingTime)
    if flush(), unsent.isEmpty { close() }
  }

  private func endSubscriptions() {
    blocked = []
    extras?.standby = nil
    let leaving = subscriptions
    subscriptions = SubscriptionList()
    for subscription in leaving {
      subscription.lane.remove(subscription)
      worker.release(subscription.lane)
    }
  }

  private func leaveAll() {
    endSubscriptions()
    publications?.leaveAll()
    publications = nil
  }

  // Timers hold the connection: `cancelClocks` is called on every way out, and none is set after that.

  /// Sets the clock for what the connection waits for in its present phase, in place of the one that runs.
  private func setClock(after delay: Duration) {
    clearClock()
    guard phase != .closed else { return }
    clock = worker.loop.schedule(after: delay) { [self] in
      clock = nil
      timeIsOver()
    }
  }

  private func timeIsOver() {
    switch phase {
    case .open where machine.isOpen: watchLifetime()
    case .open:
      drop("no SETUP within the handshake timeout")
      close()
    case .closing: close()
    case .closed: break
    }
  }

  private func clearClock() {
    if let clock { worker.loop.cancel(clock) }
    clock = nil
  }

  private func cancelClocks() {
    clearClock()
    if let leaseClock { worker.loop.cancel(leaseClock) }
    leaseClock = nil
  }

  private func close() {
    guard phase != .closed else { return }
    phase = .closed
    worker.mention(identity, "is gone")
    cancelClocks()
    if let registration { worker.loop.unregister(registration) }
    registration = nil
    leaveAll()
    waitingInput = nil
    settle()
    worker.forget(self)  // the socket closes with the last reference
  }
}

extension Session: Hashable {
  static func == (one: Session, other: Session) -> Bool { one === other }
  func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
