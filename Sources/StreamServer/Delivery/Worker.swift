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
  private(set) var limits: ServerLimits
  let streams: StreamTable
  let templates: ServedTemplates
  let systemStreams: SystemStreams
  /// Shared by all workers; a connection is added when it is accepted.
  let counts: ConnectionCounts
  let accounts: UserAccounts
  let tokens: ClientTokens
  /// The loops of all workers.
  private let loops: LoopList
  private var dated = (second: UInt64(0), text: "")
  private let wantsDetails: @Sendable () -> Bool
  let report: @Sendable (ServerReport) -> Void
  let counters = Counters()
  /// The read buffer; shared, so that an idle connection has none.
  let input = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
  private var lanes: [ObjectIdentifier: Lane] = [:]
  /// The readers of patterns.
  var patterns = PatternIndex()
  /// Streams that have come, to be offered to the readers of patterns.
  var arrived: [ServedStream] = []
  /// The streams that there were when a reader began lately, shared by those that begin shortly after it; nil: none did.
  var present: [ServedStream]?
  /// The streams that have come since `present` was made.
  var recent: [ServedStream] = []
  /// Members of readers that have ended, to be removed from their lanes.
  var leaving: [StreamSubscription] = []
  private var connections: Set<Connection> = []
  private var saved: [Connection] = []
  /// Connections that `finishRestore` starts; until then no connection reads or writes.
  private(set) var restored: [Connection] = []
  /// Whether connections are saved, or will be: no input is read, no event is sent, and no subscription is ended any more.
  private(set) var isPaused = false
  private var listeners: [Listener] = []
  /// Lanes to measure at the end of the turn.
  var lanesToMeasure: [ObjectIdentifier: Lane] = [:]
  private var users: [ClientUser: UserShare] = [:]
  /// Users with waiting input, and users with waiting output, in the order of their turns.
  private var inputRound = UserRound<UserShare>()
  var outputRound = UserRound<UserShare>()
  /// As each user's, of all hosts.
  private var hostArrival = ArrivalTime()
  /// The blocks, by `encodingIndex`; nil: the encoding has not been used.
  var blocks = [EventBlock?](repeating: nil, count: EventFormat.encodingCount)
  /// The groups of the client that was asked for last: a request for many streams asks for each, and a client may be in
  /// 65,536 groups.
  private var lastGroups: (client: UInt64, groups: [UInt32])?
  /// The filter that was compiled last: a request for many streams has one.
  var lastFilter: RequestFilter?
  /// The time before which no similar name is searched.
  var nextSearch: UInt64 = 0
  private(set) var isStopping = false
  /// Called once the last connection is closed.
  private var stopped: (@Sendable () -> Void)?

  /// The time before which nothing is sent. A round of small writes is followed by a pause of the same length, so that
  /// under load each write has more events: otherwise many clients that are served one event at a time compete for the
  /// processor, and fall behind.
  var pauseEnd: UInt64 = 0

  init(
    name: String, limits: ServerLimits, streams: StreamTable, templates: ServedTemplates,
    systemStreams: SystemStreams, connections: ConnectionCounts, accounts: UserAccounts, tokens: ClientTokens,
    loops: LoopList,
    wantsDetails: @escaping @Sendable () -> Bool, report: @escaping @Sendable (ServerReport) -> Void
  ) throws(SystemError) {
    loop = try EventLoop(name: name)
    self.loops = loops
    loops.add(loop)
    self.limits = limits
    (self.streams, self.templates) = (streams, templates)
    self.systemStreams = systemStreams
    counts = connections
    self.accounts = accounts
    self.tokens = tokens
    self.wantsDetails = wantsDetails
    self.report = report
    loop.endOfTurn = { [weak self] in self?.endTurn() }
  }

  deinit { unsafe input.deallocate() }

  /// Traces a client's action; the text is evaluated only at log level debug.
  func trace(_ client: ClientIdentity, stream: String? = nil, _ what: @autoclosure () -> String) {
    if wantsDetails() { report(.clientActs(client, stream: stream, what: what())) }
  }

  /// Replaces the limits. On the loop.
  func change(to limits: ServerLimits) {
    loop.assertOnLoop()
    self.limits = limits
  }

  // MARK: Connections

  /// Retains a listener while the worker serves. On the loop.
  func keep(_ listener: Listener) {
    loop.assertOnLoop()
    listeners.append(listener)
  }

  /// Closes one listening socket. On the loop.
  func stopListening(on descriptor: CInt) {
    loop.assertOnLoop()
    for listener in listeners where listener.raw == descriptor { listener.stop() }
    listeners.removeAll { $0.raw == descriptor }
  }

  /// Adds a new connection, unless the worker stops, or the kernel watches no more descriptors. On the loop.
  /// - Parameter input: what was read from the socket.
  func adopt(_ socket: consuming OwnedDescriptor, _ client: ClientIdentity, _ account: UserAccount, input: [UInt8]) {
    loop.assertOnLoop()
    let connection = Connection(socket, client, share(of: account), worker: self)
    guard !isStopping, connection.start() else { return countOut(connection) }
    connection.share.connectionCount += 1
    connections.insert(connection)
    if !input.isEmpty { connection.take(input) }
  }

  /// The time for a Date field.
  func date() -> String {
    let second = EventLoop.wallClock() / 1_000_000
    if second != dated.second { dated = (second, ResponseHead.date(secondsSinceEpoch: second)) }
    return dated.text
  }

  /// Whether no event loop has been in one turn for so long that its clients notice.
  func isEveryLoopTurning() -> Bool { loops.all.allSatisfy { $0.turnDuration < limits.http.stuckTime } }

  /// Restores a connection of another process. On the loop.
  func restore(_ saved: SavedConnection) {
    loop.assertOnLoop()
    let credentials = PeerCredentials(of: saved.descriptor)
    let token = credentials == nil ? saved.token.map { tokens.restored($0) } : nil
    let client = ClientIdentity(number: saved.number, credentials: credentials, token: token)
    guard let account = try? accounts.enter(client.user(of: saved.descriptor)) else {
      preconditionFailure("no limit was given")
    }
    let connection = Connection(OwnedDescriptor(saved.descriptor), client, share(of: account), worker: self)
    guard !isStopping else { return countOut(connection) }
    connection.share.connectionCount += 1
    connections.insert(connection)
    restored.append(connection)
    connection.restore(saved)
  }

  /// Begins to serve restored connections. On the loop.
  func finishRestore() {
    let waiting = restored
    restored = []
    for connection in waiting {
      connection.finishRestore()
      connection.reapplyToken()
    }
  }

  /// Reads no more input, which then waits in the sockets, and sends no more events, so that no stream gets room. The
  /// connections will be saved. On the loop.
  func pause() {
    loop.assertOnLoop()
    isPaused = true
    finishInput()
  }

  /// Finishes what was read, and what new streams mean for patterns. On the loop.
  func finishInput() {
    loop.assertOnLoop()
    takeArrivals(all: true)
    for connection in connections {
      connection.joinStreams(until: .max)
      connection.speaker?.finishTurns()
    }
    for lane in lanes.values { lane.stopForSaving() }
  }

  /// Saves every connection; its descriptor stays open until the worker is released. On the loop.
  func save() -> [SavedConnection] {
    saved = Array(connections)
    connections = []
    return saved.compactMap { connection in
      let saved = connection.save()
      if saved == nil { connection.close() }  // otherwise the timer of a closing one would retain it
      return saved
    }
  }

  /// Accepts no more connections. New ones wait in the listening sockets. On the loop.
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
    (users, lanesToMeasure) = ([:], [:])
    leave(atMost: .max)
    completed()
  }

  private func countOut(_ connection: Connection) {
    leave(connection.share)
    counts.open.subtract(1, ordering: .relaxed)
  }

  /// A connection has left the share, and its account.
  private func leave(_ share: UserShare) {
    if share.connectionCount == 0, users[share.account.user] === share { users[share.account.user] = nil }
    accounts.leave(share.account)
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

  // MARK: Users

  /// The supplementary groups of a client. On the loop.
  func groups(of connection: Connection) -> [UInt32] {
    loop.assertOnLoop()
    if let lastGroups, lastGroups.client == connection.identity.number { return lastGroups.groups }
    let groups = PeerCredentials.supplementaryGroups(of: connection.socket.raw)
    lastGroups = (connection.identity.number, groups)
    return groups
  }

  /// Moves a connection to the share of another user, whose account has counted it. On the loop.
  func move(from former: UserShare, to account: UserAccount) -> UserShare {
    loop.assertOnLoop()
    let share = share(of: account)
    share.connectionCount += 1
    former.connectionCount -= 1
    leave(former)
    return share
  }

  /// Ends connections whose token is not valid any more. On the loop.
  func reapplyTokens() { for connection in allConnections { connection.reapplyToken() } }

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
    return inputRound.isEmpty || isPaused ? delay : 0
  }

  // MARK: Input

  /// Processes a client's input, or queues it for its user's turn.
  func take(inputOf connection: Connection) {
    loop.assertOnLoop()
    let (share, wait) = (connection.share, loop.waitCount)
    let isHost = share.account.hosts != nil
    guard !isPaused, share.arrival.isLeft(in: wait), !isHost || hostArrival.isLeft(in: wait) else {
      return connection.waitForTurn()
    }
    let start = EventLoop.monotonicNow()
    connection.takeInput(until: start + Slices.connection)
    let spent = EventLoop.monotonicNow() - start
    share.arrival.spend(spent)
    if isHost { hostArrival.spend(spent) }
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
    guard !inputRound.isEmpty, !isPaused else { return }
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

  /// Drops the cached blocks, because a new log may reuse the address of an old one. On the loop.
  func forgetLogs() { for block in blocks { block?.forget() } }

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
    for lane in Array(lanes.values) where lane.stream.rendering.map({ $0.visibility != .all }) ?? false {
      for member in lane.members where member.phase != .ended { member.connection.changeView(of: member) }
    }
  }
}

/// The event loops of a server.
final class LoopList: Sendable {
  private let loops = Locked<[EventLoop]>([])
  var all: [EventLoop] { loops.withLock { $0 } }
  func add(_ loop: EventLoop) { loops.withLock { $0.append(loop) } }
}
