import Glibc
import HTTP
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import Synchronization

/// One event loop with its connections: reads requests, and at the end of each turn sends events within the credit.
///
/// Subscriptions with events to send are in a queue of their user, and users take turns (`UserShare`). Each
/// subscription gets one write of at most a block and returns to the end of the queue, so that a long backlog does not
/// delay others.
@safe final class Worker: @unchecked Sendable {  // loop-confined except for `loop` and `counters`
  /// The worker's counters, readable from any thread.
  struct Counters: ~Copyable {
    let eventsOut = Atomic<UInt64>(0)
    let bytesOut = Atomic<UInt64>(0)
    let writes = Atomic<UInt64>(0)
    let laggedEvents = Atomic<UInt64>(0)
    let holdUps = Atomic<UInt64>(0)
    let droppedValues = Atomic<UInt64>(0)
  }

  let loop: EventLoop
  let limits: ServerLimits
  let streams: StreamTable
  let systemStreams: SystemStreams
  /// Shared by all workers; a connection is added when it is accepted.
  let counts: ConnectionCounts
  let accounts: UserAccounts
  /// Of all workers.
  private let loops: LoopList
  private var dated = (second: UInt64(0), text: "")
  private let wantsDetails: @Sendable () -> Bool
  let report: @Sendable (ServerReport) -> Void
  let counters = Counters()
  /// The read buffer; shared, so that an idle connection has none.
  let input = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
  private var lanes: [ObjectIdentifier: Lane] = [:]
  private var connections: Set<Connection> = []
  private var saved: [Connection] = []
  /// Connections that `finishRestore` starts; until then no connection reads or writes.
  private var restored: [Connection] = []
  /// Whether connections are saved: nothing is sent any more, and no subscription is ended.
  private(set) var hasSaved = false
  private var listeners: [Listener] = []
  private var lanesToMeasure: [ObjectIdentifier: Lane] = [:]
  private var users: [ClientUser: UserShare] = [:]
  /// Users with waiting input, and users with waiting output, in the order of their turns.
  private var inputRound = Fifo<UserShare>()
  private var outputRound = Fifo<UserShare>()
  /// For each format that has been used.
  private var blocks = [EventBlock?](repeating: nil, count: EventFormat.encodingCount)
  /// Connections whose responses wait for metrics.
  private var waitingForMetrics: [MetricsCache.Key: [HTTPConnection]] = [:]
  private var isStopping = false
  /// Called once the last connection is closed.
  private var stopped: (@Sendable () -> Void)?

  /// Maximum bytes that one turn sends before it reads input again.
  private static let turnBytes = 4 << 20
  /// From this number of writes, of fewer bytes each on average, a round counts as small writes.
  private static let smallRound = (writes: 64, bytes: 2 << 10)
  /// The time before which nothing is sent. A round of small writes is followed by a pause of the same length, so that
  /// under load each write has more events: otherwise many clients that are served one event at a time compete for the
  /// processor, and fall behind.
  private var pauseEnd: UInt64 = 0

  init(
    name: String, limits: ServerLimits, streams: StreamTable, systemStreams: SystemStreams,
    connections: ConnectionCounts, accounts: UserAccounts, loops: LoopList,
    wantsDetails: @escaping @Sendable () -> Bool, report: @escaping @Sendable (ServerReport) -> Void
  ) throws(SystemError) {
    loop = try EventLoop(name: name)
    self.loops = loops
    loops.add(loop)
    self.limits = limits
    self.streams = streams
    self.systemStreams = systemStreams
    counts = connections
    self.accounts = accounts
    self.wantsDetails = wantsDetails
    self.report = report
    loop.endOfTurn = { [weak self] in self?.endTurn() }
  }

  deinit { unsafe input.deallocate() }

  /// Traces a client's action; the text is evaluated only at log level debug.
  func trace(_ client: ClientIdentity, stream: String? = nil, _ what: @autoclosure () -> String) {
    if wantsDetails() { report(.clientActs(client, stream: stream, what: what())) }
  }

  // MARK: Connections

  /// Retains a listener while the worker serves. On the loop.
  func keep(_ listener: Listener) {
    loop.assertOnLoop()
    listeners.append(listener)
  }

  /// Adds a new connection. On the loop.
  func adopt(
    _ socket: consuming OwnedDescriptor, number: UInt64, _ credentials: PeerCredentials?, _ account: UserAccount
  ) {
    loop.assertOnLoop()
    start(RSocketConnection(socket, number: number, credentials, share(of: account), worker: self))
  }

  /// Continues with the socket of a connection as another protocol's connection, whose first bytes are there. On the
  /// loop.
  ///
  /// - Parameter input: what the former connection has read and not handled.
  func replace(_ former: Connection, input: [UInt8], by makeConnection: (consuming OwnedDescriptor) -> Connection) {
    loop.assertOnLoop()
    connections.remove(former)
    let connection = makeConnection(former.releaseSocket())
    connections.insert(connection)
    guard !isStopping, connection.start() else { return connection.close() }
    connection.resume(with: input)
    _ = connection.flush()  // the response that opens a WebSocket
  }

  /// The time for a Date field.
  func date() -> String {
    let second = EventLog.wallClock() / 1_000_000
    if second != dated.second { dated = (second, ResponseHead.date(secondsSinceEpoch: second)) }
    return dated.text
  }

  /// Whether no event loop has been in one turn for so long that its clients notice.
  func isEveryLoopTurning() -> Bool { loops.all.allSatisfy { $0.turnDuration < Self.stuckTime } }

  /// As for the watchdog: a turn takes some milliseconds.
  private static let stuckTime = Duration.seconds(5)

  /// Restores a connection of another process. On the loop.
  func restore(_ saved: SavedConnection) {
    loop.assertOnLoop()
    let credentials = PeerCredentials(of: saved.descriptor)
    let user = ClientUser(credentials, of: saved.descriptor)
    guard let account = accounts.enter(user).account else { preconditionFailure("no limit was given") }
    let connection = makeConnection(saved, credentials, share(of: account))
    guard !isStopping else { return countOut(connection) }
    connection.share.connectionCount += 1
    connections.insert(connection)
    restored.append(connection)
    connection.restore(saved)
  }

  private func makeConnection(
    _ saved: SavedConnection, _ credentials: PeerCredentials?, _ share: UserShare
  ) -> Connection {
    let socket = OwnedDescriptor(saved.descriptor)
    guard saved.http == nil else {
      return HTTPConnection(socket, number: saved.number, credentials, share, worker: self)
    }
    let machine = ConnectionMachine(restoring: saved.machine, limits: limits.ofConnection)
    guard let webSocket = saved.webSocket else {
      return RSocketConnection(
        socket, number: saved.number, credentials, share, machine: machine, worker: self)
    }
    return WebSocketConnection(
      socket, number: saved.number, credentials, share, machine: machine, saved: webSocket, worker: self)
  }

  /// Begins to serve restored connections. On the loop.
  func finishRestore() {
    let waiting = restored
    restored = []
    for connection in waiting { connection.finishRestore() }
  }

  /// Closes the connection instead if the worker stops, or the kernel watches no more descriptors.
  private func start(_ connection: Connection) {
    guard !isStopping, connection.start() else { return countOut(connection) }
    connection.share.connectionCount += 1
    connections.insert(connection)
  }

  /// Saves every connection; its descriptor stays open until the worker is released. On the loop.
  func save() -> [SavedConnection] {
    saved = Array(connections)
    hasSaved = true
    connections = []
    for lane in lanes.values { lane.stopWatchingForStalls() }
    return saved.compactMap { $0.save() }
  }

  /// Accepts no more connections; new ones wait in the sockets. On the loop.
  func stopListening() {
    loop.assertOnLoop()
    for listener in listeners { listener.stop() }
    listeners = []
  }

  /// On the loop.
  var allConnections: [Connection] { Array(connections) }

  func forget(_ connection: Connection) {
    loop.assertOnLoop()
    connections.remove(connection)
    connection.share.connectionCount -= 1
    countOut(connection)
    if connections.isEmpty { finishStopping() }
  }

  private func finishStopping() {
    guard let completed = stopped.take() else { return }
    // Breaks the reference cycle with connections.
    while let share = inputRound.popFirst() { share.input = Fifo() }
    while let share = outputRound.popFirst() { share.output = Fifo() }
    (users, lanesToMeasure, waitingForMetrics) = ([:], [:], [:])
    completed()
  }

  private func countOut(_ connection: Connection) {
    let share = connection.share
    if share.connectionCount == 0, users[share.account.user] === share { users[share.account.user] = nil }
    accounts.leave(share.account)
    counts.open.subtract(1, ordering: .relaxed)
  }

  /// Ends every request with CANCELED, and every connection once that is written; `completed` is called on the loop
  /// when the last one is closed. On the loop.
  func stop(completed: @escaping @Sendable () -> Void) {
    loop.assertOnLoop()
    isStopping = true
    stopped = completed
    stopListening()
    for connection in saved { connection.leaveAll() }
    saved = []
    for connection in connections { connection.stop() }
    if connections.isEmpty { finishStopping() }
  }

  // MARK: Metrics

  /// Requests metrics for a connection, which gets them on the loop. Connections that request the same share them.
  /// - Returns: false if there are too many renderings.
  func requestMetrics(_ key: MetricsCache.Key, for connection: HTTPConnection) -> Bool {
    loop.assertOnLoop()
    guard waitingForMetrics[key]?.append(connection) == nil else { return true }
    waitingForMetrics[key] = [connection]
    let isAccepted = systemStreams.metrics.request(key) { [self] text in
      loop.execute { [self] in
        for connection in waitingForMetrics.removeValue(forKey: key) ?? [] { connection.metricsAreRendered(text, key) }
      }
    }
    if !isAccepted { waitingForMetrics[key] = nil }
    return isAccepted
  }

  // MARK: Users

  /// The share of a user in this loop.
  private func share(of account: UserAccount) -> UserShare {
    if let share = users[account.user], share.account === account { return share }
    let share = UserShare(account)
    users[account.user] = share
    return share
  }

  private func endTurn() -> UInt64? {
    loop.assertOnLoop()
    takeWaitingInput()
    let delay = sendReady()
    return inputRound.isEmpty ? delay : 0
  }

  // MARK: Input

  /// Processes a client's input, or queues it for its user's turn.
  func take(inputOf connection: Connection) {
    loop.assertOnLoop()
    let share = connection.share
    guard share.hasTime(at: loop.now) else { return connection.waitForTurn() }
    let start = EventLoop.monotonicNow()
    connection.takeInput(until: start + Slices.connection)
    share.spend(EventLoop.monotonicNow() - start)
  }

  /// Queues the connection's input for its user's turn.
  func enqueue(inputOf connection: Connection) {
    loop.assertOnLoop()
    let share = connection.share
    share.input.append(connection)
    guard !share.isInInputRound else { return }
    share.isInInputRound = true
    inputRound.append(share)
  }

  private func takeWaitingInput() {
    guard !inputRound.isEmpty else { return }
    var now = EventLoop.monotonicNow()
    let end = now + Slices.input
    while now < end, let share = inputRound.popFirst() {
      let sliceEnd = min(end, now + Slices.user)
      while now < sliceEnd, let connection = share.input.popFirst() {
        connection.takeInput(until: min(sliceEnd, now + Slices.connection))
        now = EventLoop.monotonicNow()
      }
      share.isInInputRound = !share.input.isEmpty
      if share.isInInputRound { inputRound.append(share) }
    }
  }

  // MARK: Lanes

  /// The stream's lane on this loop.
  func lane(of stream: ServedStream) -> Lane {
    loop.assertOnLoop()
    if let lane = lanes[ObjectIdentifier(stream)] { return lane }
    let lane = Lane(stream: stream, worker: self)
    lanes[ObjectIdentifier(stream)] = lane
    return lane
  }

  func existingLane(of stream: ServedStream) -> Lane? { lanes[ObjectIdentifier(stream)] }

  /// Drops a lane without members.
  func release(_ lane: Lane) {
    loop.assertOnLoop()
    guard lane.isEmpty else { return }
    lanes[ObjectIdentifier(lane.stream)] = nil
    forgetLogs()
  }

  /// Drops the cached block, because a new log may reuse the old one's address. On the loop.
  func forgetLogs() { for block in blocks { block?.forget() } }

  private func block(for format: EventFormat) -> EventBlock {
    if let block = blocks[format.encodingIndex] { return block }
    let block = EventBlock()
    blocks[format.encodingIndex] = block
    return block
  }

  /// Recomputes the lane's furthest request and oldest unread position at the end of the turn.
  func remeasure(_ lane: Lane) {
    loop.assertOnLoop()
    lanesToMeasure[ObjectIdentifier(lane)] = lane
  }

  /// Updates the lanes' lag. On the loop.
  func measureLag() {
    loop.assertOnLoop()
    for lane in lanes.values { lane.measureLag() }
  }

  /// Moves subscriptions of system streams to the views for their clients' present access. On the loop.
  func changeViews() {
    loop.assertOnLoop()
    for lane in Array(lanes.values) where lane.stream.feed.map({ $0.visibility != .all }) ?? false {
      for member in lane.members where member.state != .ended { member.connection.changeView(of: member) }
    }
  }

  // MARK: Sending

  /// Performs the action of a subscription's machine.
  func perform(_ action: SubscriptionMachine.Action, _ subscription: StreamSubscription) {
    loop.assertOnLoop()
    switch action {
    case .none, .send: break  // `serve` sends, which has filled the block
    case .enqueue: enqueue(subscription)
    case .wait: subscription.lane.wait(subscription)
    case .rest:
      if subscription.state == .blocked {
        subscription.connection.block(subscription)
        if subscription.machine.format.isBody { remeasure(subscription.lane) }
      }
      subscription.lane.rest()
    case .complete: subscription.connection.complete(subscription)
    case .finish:
      guard let completion = subscription.lane.stream.log.read({ _, completion in completion }) else { break }
      subscription.connection.end(subscription, with: completion)
    case .fail(.cutOff(let position)):
      // A part of an event was sent, and the rest was evicted.
      subscription.connection.fail(
        subscription, .lagged("lagged: event \(position) left the buffer while it was being sent"))
    case .fail(.lagged(let lost)):
      subscription.connection.fail(subscription, .lagged("lagged: \(lost) events lost"))
    }
  }

  /// Puts a subscription into the queue that is served at the end of the turn, or into the standby list of its
  /// connection.
  private func enqueue(_ subscription: StreamSubscription) {
    loop.assertOnLoop()
    let connection = subscription.connection
    let hasPlace = connection.readyCount < Slices.subscriptions
    subscription.machine.queue(hasPlace: hasPlace)
    guard hasPlace else { return connection.standBy(subscription) }
    connection.readyCount += 1
    let share = connection.share
    share.output.append(subscription)
    guard !share.isInOutputRound else { return }
    share.isInOutputRound = true
    outputRound.append(share)
  }

  /// A subscription of the connection has left the queue: the next one on standby takes its place.
  func leaveQueue(_ connection: Connection) {
    loop.assertOnLoop()
    connection.readyCount -= 1
    while let next = connection.takeStandby() {
      if next.state == .standby { return enqueue(next) }  // otherwise it has ended meanwhile
    }
  }

  /// - Returns: if there is more to send, the delay in nanoseconds; the loop reads input meanwhile.
  private func sendReady() -> UInt64? {
    guard !hasSaved, restored.isEmpty else { return nil }
    guard loop.now >= pauseEnd || outputRound.isEmpty else { return pauseEnd - loop.now }
    measureLanes()
    serveUsers()
    measureLanes()  // which may append held events to a log
    return outputRound.isEmpty ? nil : 0
  }

  private func serveUsers() {
    guard !outputRound.isEmpty else { return }
    var (budget, writes) = (Self.turnBytes, 0)
    let start = EventLoop.monotonicNow()
    var now = start
    while budget > 0, now - start < Slices.output, let share = outputRound.popFirst() {
      let sliceEnd = min(start + Slices.output, now + Slices.user)
      while budget > 0, now < sliceEnd, !share.output.isEmpty {
        serve(share, &budget, &writes)
        now = EventLoop.monotonicNow()
      }
      share.isInOutputRound = !share.output.isEmpty
      if share.isInOutputRound {
        outputRound.append(share)
      } else if share.output.capacity > 4096 {
        share.output = Fifo()
      }
    }
    pauseAfter(writes, bytes: Self.turnBytes - budget, since: start)
  }

  /// Serves some of the user's subscriptions.
  private func serve(_ share: UserShare, _ budget: inout Int, _ writes: inout Int) {
    for _ in 0..<Slices.writes {
      guard budget > 0, let subscription = share.output.popFirst() else { return }
      guard subscription.machine.take() else { continue }
      leaveQueue(subscription.connection)
      budget -= serve(subscription)
      writes += 1
    }
  }

  private func pauseAfter(_ writes: Int, bytes: Int, since start: UInt64) {
    guard writes >= Self.smallRound.writes, bytes < writes * Self.smallRound.bytes else { return }
    let end = EventLoop.monotonicNow()
    pauseEnd = end + (end - start)
  }

  private func measureLanes() {
    guard !lanesToMeasure.isEmpty else { return }
    let lanes = lanesToMeasure
    lanesToMeasure = [:]
    for lane in lanes.values { lane.remeasure() }
  }

  /// Serves one subscription.
  /// - Returns: bytes written, at least 1 for the work.
  private func serve(_ subscription: StreamSubscription) -> Int {
    guard subscription.connection.flush() else {
      perform(subscription.machine.socketIsFull(), subscription)
      return 1
    }
    let format = subscription.machine.format
    let block = block(for: format)
    let label = format.isNamed ? subscription.connection.label(of: subscription) : nil
    let (finding, hasEnded) = subscription.lane.stream.log.read { storage, completion in
      storage.dropExpired()
      let finding = block.fill(from: storage, for: subscription.machine, subscription.gap, subscription.request, label)
      return (finding, completion != nil)
    }
    let (position, action) = (subscription.cursor.position, subscription.machine.found(finding, hasEnded: hasEnded))
    switch finding {
    case .events where action == .send:
      guard !format.isNotice else {
        subscription.connection.answer(subscription)
        return 1
      }
      return send(block, to: subscription, hasEnded: hasEnded)
    case .events, .nothing: break
    case .inGap:
      subscription.lane.moved(subscription, from: position, past: 0)
      subscription.lane.raiseRequest(for: subscription)
    case .overtaken(_, let lost, let missed):
      countLost(lost, by: subscription.connection.identity, of: subscription.lane.stream)
      if action == .enqueue {
        subscription.miss(missed)
        subscription.lane.raiseRequest(for: subscription)
        remeasure(subscription.lane)
      }
    }
    perform(action, subscription)
    if format.isBody, action == .wait { subscription.connection.didSend(subscription, isAll: true) }
    return 1
  }

  /// - Returns: bytes written, at least 1 for the work.
  private func send(_ block: EventBlock, to subscription: StreamSubscription, hasEnded: Bool) -> Int {
    let connection = subscription.connection
    let bytes = unsafe block.bytes(coveredBy: subscription.machine.demand.max)
    let sent: Int
    switch unsafe connection.write(bytes) {
    case .wrote(let count): sent = count
    case .gone: return 1
    }
    let progress = block.progress(after: sent)
    if sent > 0, subscription.reportsGaps {
      subscription.clearGap()
      subscription.miss(progress.gap)
    }
    let position = subscription.cursor.position
    let action = subscription.machine.wrote(
      progress.eventCount, upTo: progress.cursor, isWhole: sent == bytes.count, isLast: progress.isLast,
      hasEnded: hasEnded)
    // Before the log receives the new position, and possibly appends the next event.
    if action == .wait { perform(action, subscription) }
    subscription.lane.moved(subscription, from: position, past: progress.eventCount)
    subscription.lane.counters.count(events: progress.eventCount, bytes: sent)
    counters.eventsOut.add(UInt64(progress.eventCount), ordering: .relaxed)
    counters.bytesOut.add(UInt64(sent), ordering: .relaxed)
    counters.writes.add(1, ordering: .relaxed)
    if sent < bytes.count { unsafe connection.becomeBlocked(keeping: progress.rest) }
    if action != .wait { perform(action, subscription) }
    if subscription.machine.format.isBody { connection.didSend(subscription, isAll: action == .wait) }
    return max(1, sent)
  }

  /// Counts and reports events that were evicted before a subscription was sent them.
  func countLost(_ lost: UInt64, by client: ClientIdentity, of stream: ServedStream) {
    loop.assertOnLoop()
    counters.laggedEvents.add(lost, ordering: .relaxed)
    stream.countLagged(lost)
    report(.clientLagged(client, stream: stream.name, lost: lost))
  }
}

/// The event loops of a server.
final class LoopList: Sendable {
  private let loops = Locked<[EventLoop]>([])
  var all: [EventLoop] { loops.withLock { $0 } }
  func add(_ loop: EventLoop) { loops.withLock { $0.append(loop) } }
}
