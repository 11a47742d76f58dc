import CLinux
import Dispatch
import Events
import Glibc
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Synchronization

/// Serves streams over sockets: each source has one subscription, each client reads at the pace of its own credit.
///
/// Thread-safe. Streams can be added at any time, sockets once the server has started. The server reports through
/// `report`, and writes no log.
public final class StreamServer: Sendable {
  /// The reason why a stream cannot be served.
  public enum AddStreamError: Error, Equatable {
    /// Another stream has the name.
    case nameTaken(String)
    /// Names that begin with `$` are reserved for the server.
    case nameReserved(String)
    /// No memory for the stream's log.
    case noMemory(SystemError)
  }

  private let presentLimits: Locked<ServerLimits>
  var limits: ServerLimits { presentLimits.withLock { $0 } }
  let version: String
  let report: @Sendable (ServerReport) -> Void
  let streams = StreamTable()
  let templates = ServedTemplates()
  /// nil: there are no templates.
  let making = Locked<Making?>(nil)
  /// Whether the server stops, or saves its connections, so that no stream is made or forgotten any more.
  let isEnding = Atomic(false)
  let counts = ConnectionCounts()
  let accounts = UserAccounts()
  let tokens = ClientTokens()
  let workers: [Worker]
  /// Whether sources wait for `finishRestore`.
  let sourcesWait: Atomic<Bool>
  /// Held events that `finishRestore` appends.
  let restoredEvents = Locked<[SavedConnections.Waiting]>([])
  let systemStreams: SystemStreams
  /// The program's configuration, for the server's own user and root; nil: it has none.
  let configuration = Locked<ConfigurationReport?>(nil)
  private let fleet = Locked<FleetConnection?>(nil)
  /// The connections over a limit. On the first loop.
  let refusedConnections: RefusedConnections
  /// The counters of removed streams. Streams leave the table and return to it under this lock.
  let retired = Locked(RetiredStreams())
  let wantsDetails: @Sendable () -> Bool
  private let startedAt = EventLoop.monotonicNow()
  /// The time of the start, in microseconds since the Unix epoch.
  let startTime = EventLoop.wallClock()
  private let lagMeasuredAt = Atomic<UInt64>(0)

  /// - Parameters:
  ///   - limits: what clients may use, and the times of the server.
  ///   - restores: whether connections of another process will be restored: no source is subscribed to before
  ///     `finishRestore`.
  ///   - version: the version of the program, for `$stats`.
  ///   - wantsDetails: whether reports for diagnosis, such as `.clientActs`, are made now; called for each of them, on the
  ///     event loops.
  ///   - report: called on the event loops; must not block.
  /// - Throws: `SystemError` when the process is out of descriptors, `AddStreamError.noMemory`.
  public init(
    limits: ServerLimits = .init(), restores: Bool = false, version: String = "",
    wantsDetails: @escaping @Sendable () -> Bool = { false },
    report: @escaping @Sendable (ServerReport) -> Void = { _ in }
  ) throws {
    presentLimits = Locked(limits)
    sourcesWait = Atomic(restores)
    self.version = version
    self.wantsDetails = wantsDetails
    let counts = counts
    let loops = LoopList()
    let systemStreams = SystemStreams(maximumAge: limits.systemStreamAge)
    self.systemStreams = systemStreams
    self.report = { event in
      if case .clientRefused = event { counts.refused.add(1, ordering: .relaxed) }
      report(event)
    }
    let count = limits.workers > 0 ? limits.workers : max(1, sysconf(CInt(_SC_NPROCESSORS_ONLN)))
    workers = try (0..<count).map { [report = self.report, streams, templates, accounts, tokens] index in
      try Worker(
        name: "worker \(index)", limits: limits, streams: streams, templates: templates,
        systemStreams: systemStreams, connections: counts, accounts: accounts, tokens: tokens, loops: loops,
        wantsDetails: wantsDetails, report: report)
    }
    refusedConnections = RefusedConnections(
      on: workers[0].loop, time: limits.refusalTime, hosts: limits.httpHosts, origins: limits.httpOrigins)
    systemStreams.setMetrics { [weak self] key, queue, completed in
      guard let self else { return completed([]) }
      renderMetrics(key, on: queue, completed: completed)
    }
    templates.setFunctions { [weak self] name, user, admits, completed in
      guard let self else { return completed(.init(failure: .stopping)) }
      make(name, for: user, admits: admits, completed: completed)
    } makeAtOnce: { [weak self] name, user, admits in
      self?.makeAtOnce(name, for: user, admits: admits)
    } ask: { [weak self] name, request, user, admits, completed in
      guard let self else { return completed(.init(failure: .stopping)) }
      ask(name, request, for: user, admits: admits, completed: completed)
    } delete: { [weak self] name, user, admits, completed in
      guard let self else { return completed(.stopping) }
      delete(name, for: user, admits: admits, completed: completed)
    }
    systemStreams.setCommands { [weak self] command, client, completed in
      guard let self else { return completed(.stopping) }
      perform(command, for: client, completed: completed)
    }
    try addSystemStreams()
  }

  private func addSystemStreams() throws {
    try addSystemStream(
      "$streams", "The catalogue of streams, on every change", everyMilliseconds: 250,
      leastAge: { [weak self] in self?.catalogueAge ?? .zero }
    ) { [weak self] visibility in
      let streams = self?.userStreams.filter { visibility.shows($0) } ?? []
      var survey = BaseSurvey()
      return SystemRendering.json(streams.map { $0.summary(showsNames: visibility == .all, &survey) })
    }
    try addSystemStream(
      "$changes", "The streams, each with the key name, and each change of one", everyMilliseconds: 250,
      leastAge: { [weak self] in self?.catalogueAge ?? .zero }, .rows { [weak self] in self?.rows(for: $0) ?? [:] })
    try addSystemStream("$stats", "The counters of the daemon, once a second", everyMilliseconds: 1000) {
      [weak self] visibility in
      guard let self else { return [] }
      defer { measureLag() }
      guard visibility == .all else { return SystemRendering.json(visibleStatistics(visibility)) }
      var snapshot = StatisticsSnapshot(statistics)
      snapshot.configurationError = configuration.withLock { $0?.error }
      snapshot.fleet = fleetConnection?.text
      snapshot.memoryBytes = ProcessUsage.residentBytes
      return SystemRendering.json(snapshot)
    }
    try addSystemStream(
      "$history", "The events of the last five minutes, every five seconds", everyMilliseconds: 5000
    ) { [weak self] visibility in
      let time = EventLoop.wallClock()
      let streams = self?.userStreams.filter { visibility.shows($0) } ?? []
      return SystemRendering.json(
        HistorySnapshot(
          seconds: Double(RecentEvents.periodMicroseconds) / 1e6, end: RecentEvents.end(before: time),
          byStream: streams.map { $0.history(before: time) }))
    }
    try addSystemStream("$newest", "How the newest events begin, once a second", everyMilliseconds: 1000) {
      [weak self] visibility in
      let streams = self?.userStreams.filter { visibility.showsEvents(of: $0) } ?? []
      return SystemRendering.json(NewestSnapshot(byStream: streams.compactMap(\.newestBeginning)))
    }
    try addSystemStream("$templates", "The templates of streams, once a second", everyMilliseconds: 1000) {
      [weak self] visibility in
      let templates = self?.templates.all.filter { visibility.shows($0.terms.shownTo) } ?? []
      let entries = templates.map(\.snapshot).sorted { $0.name < $1.name }
      return SystemRendering.json(TemplatesSnapshot(templates: entries))
    }
    try addSystemStream(
      "$clients", "The clients and their subscriptions, once a second", everyMilliseconds: 1000, read: .owner
    ) { [weak self] _ in
      guard let self else { return [] }
      return SystemRendering.json(clients())
    }
    try addSystemStream(
      "$config", "The configuration, without secrets, on every change", everyMilliseconds: 250, read: .owner
    ) { [weak self] _ in
      guard let self else { return [] }
      return SystemRendering.json(configuration.withLock { $0 })
    }
  }

  /// The rows of `$changes`.
  private func rows(for visibility: Visibility) -> [String: CatalogueEntry] {
    var survey = BaseSurvey()
    return streams.unsorted.reduce(into: [:]) { rows, stream in
      guard stream.rendering == nil, visibility.shows(stream) else { return }
      rows[stream.name] = stream.summary(showsNames: visibility == .all, &survey).lasting
    }
  }

  // MARK: Streams

  /// Serves `source`, whose values are batches of events. `configuration.start` determines when it is subscribed to;
  /// one batch at a time is requested.
  ///
  /// - Parameters:
  ///   - configuration: the stream's name, its limits and its rules.
  ///   - source: the events.
  ///   - log: with the limits of `configuration`, and used by no other stream; nil: a new one in memory.
  ///   - publishSource: receives the values of clients that `configuration.write` admits; the first publisher of
  ///     `source`. Used by this stream only, which subscribes at once, regardless of `configuration.start`: clients may
  ///     publish while there is no subscription.
  ///   - status: the health of the source, for `$streams`.
  /// - Throws: `AddStreamError`.
  public func add(
    _ configuration: StreamConfiguration, log: EventLog? = nil,
    source: some Publisher<some Sequence<[UInt8]>, StreamFailure>, publishSource: PublishSource? = nil,
    status: SourceStatus = SourceStatus()
  ) throws(AddStreamError) {
    try add(configuration, log, publishSource, status) { $0.setSource(source, report: report) }
  }

  /// As above, with the values of clients as the source, as they are.
  package func add(
    _ configuration: StreamConfiguration, log: EventLog, values: PublishSource
  ) throws(AddStreamError) {
    try add(configuration, log, values, SourceStatus()) { $0.setSource(of: values, report: report) }
  }

  private func add(
    _ configuration: StreamConfiguration, _ log: EventLog?, _ publishSource: PublishSource?, _ status: SourceStatus,
    setSource: (ServedStream) -> Void
  ) throws(AddStreamError) {
    guard !configuration.name.hasPrefix("$") else { throw .nameReserved(configuration.name) }
    guard let storage = log ?? EventLog(name: configuration.name, limits: configuration.limits) else {
      throw .noMemory(SystemError("memfd_create", configuration.name))
    }
    var configuration = configuration
    if let publishSource {
      if configuration.start != .always { configuration.start = .always }
      publishSource.open(
        configuration.limits, largestEvent: configuration.maximumEventBytes(in: configuration.limits))
    }
    let use = configuration.template != nil ? StreamUse(configuration.name, templates.ends) : nil
    let stream = ServedStream(
      configuration, storage: storage, publishSource: publishSource, status: status, use: use)
    setSource(stream)
    stream.changeMap(report: report)
    if sourcesWait.load(ordering: .acquiring) { stream.log.suspend() } else { stream.admitNamedPublishers() }
    guard streams.insert(stream) else { throw .nameTaken(configuration.name) }
    if systemStreams.add(stream.access, of: stream.name) { changeViews() }
    stream.watchFreshness(on: freshnessLoop, report: report)
    stream.watchState(report: report)
    stream.log.start()
  }

  /// The loop of the timers that check whether streams are stale. The checks are few and short.
  var freshnessLoop: EventLoop { workers[0].loop }

  /// Appends events that do not come from the source of their stream: at once, or, while the log is being replaced,
  /// afterwards. The stream need not have subscriptions, or demand. Thread-safe; the order of the calls of one thread
  /// is kept. Events that the stream's log cannot store are left out and reported.
  ///
  /// - Parameters:
  ///   - batch: may have stamps; see `EventBatch` and `EventLog`.
  ///   - name: the name of the stream.
  /// - Returns: false, without any effect, if there is no such stream, it is a system stream or has ended,
  ///   `finishRestore` is awaited, or an id of the stamps is `EventLog.stampedIDLimit` or higher.
  public func append(_ batch: EventBatch, to name: String) -> Bool {
    guard !sourcesWait.load(ordering: .acquiring), let stream = streams[name], stream.rendering == nil else {
      return false
    }
    return stream.append(batch, report: report)
  }

  /// The position up to which a fleet's log was read, according to a stream's log; nil: unknown.
  public func fleetPosition(of name: String) -> [UInt8]? {
    streams[name]?.log.read { storage, _ in storage.fleetPosition }
  }

  /// Counts events on which a stream's pipeline failed, or that its source has left out, for `$stats`.
  public func countFailedEvents(of name: String, _ count: Int) {
    streams[name]?.countFailedEvents(count)
  }

  /// Counts parts of answers that belong to no stream of a template, for `$templates`.
  package func countUnrouted(of template: String, _ count: Int) {
    templates.all.first { $0.name.text == template }?.unroutedCount.add(UInt64(count), ordering: .relaxed)
  }

  /// Counts events that a stream's pipeline has removed because they are not JSON.
  public func countMalformed(of name: String, _ count: Int) {
    streams[name]?.countMalformed(count)
  }

  /// The checkpoint in a stream's log, from which its source resumes; nil: none.
  /// - Parameters:
  ///   - name: the name of the stream.
  ///   - isOfEvent: whether the checkpoint is valid only with its events. If so, the result is nil for a log without events.
  public func checkpoint(of name: String, isOfEvent: Bool) -> Checkpoint? {
    streams[name]?.log.read { storage, _ in
      isOfEvent && storage.firstPosition == storage.endPosition ? nil : storage.checkpoint
    }
  }

  /// Stores the events for which the logs of some streams have no room, in place of the oldest ones, and reports those of
  /// the other streams as lost. Called after the server has stopped: no subscriber could read the oldest ones.
  public func endOverflow(storingThatOf names: Set<String>) {
    for stream in streams.all {
      if names.contains(stream.name) { stream.log.appendOverflow() } else { stream.loseOverflow(report) }
    }
  }

  /// The next event's id in a stream's log; nil: there is no such stream.
  public func endPosition(of name: String) -> UInt64? {
    streams[name]?.log.read { storage, _ in storage.endPosition }
  }

  /// The time since the newest event in a stream's log, by the wall clock; negative if the clock was set back; nil:
  /// there is no such event.
  public func timeSinceLastEvent(of name: String) -> Duration? {
    let newest = streams[name]?.log.read { storage, _ in storage.newestTime }
    return newest.map { .microseconds(Int64(clamping: EventLoop.wallClock()) - Int64(clamping: $0)) }
  }

  /// Sets where the events of a stream are, which `$streams` and the metrics show. Those of an added one are in memory.
  public func setStorage(_ storage: StreamStorage, of name: String) { streams[name]?.setStorage(storage) }

  /// Shows the program's configuration in `$config`, and in `$stats` and the metrics whether it is that of the files.
  package func show(_ report: ConfigurationReport) { configuration.withLock { $0 = report } }

  /// The connection to the brokers of the fleet, which `$stats` and the metrics show; nil: there is no fleet.
  /// Thread-safe.
  public var fleetConnection: FleetConnection? {
    get { fleet.withLock { $0 } }
    set { fleet.withLock { $0 = newValue } }
  }

  /// All streams but the system streams, sorted by name.
  var userStreams: [ServedStream] { streams.unsorted.userStreams }

  private func addSystemStream(
    _ name: String, _ description: String, everyMilliseconds milliseconds: Int, read: AccessRules = AccessRules(),
    leastAge: @escaping @Sendable () -> Duration = { .zero }, _ render: @escaping @Sendable (Visibility) -> [UInt8]
  ) throws(AddStreamError) {
    try addSystemStream(
      name, description, everyMilliseconds: milliseconds, read: read, leastAge: leastAge, .value(render))
  }

  private func addSystemStream(
    _ name: String, _ description: String, everyMilliseconds milliseconds: Int, read: AccessRules = AccessRules(),
    leastAge: @escaping @Sendable () -> Duration, _ content: SystemContent
  ) throws(AddStreamError) {
    let made = systemStreams.add(
      name, description, everyMilliseconds: milliseconds, leastAge: leastAge, read: read, content)
    guard let stream = made else { throw .noMemory(SystemError("memfd_create", name)) }
    guard streams.insert(stream) else { throw .nameTaken(name) }
  }

  /// The minimum time between two renewals of the catalogue, which takes long with very many streams.
  private var catalogueAge: Duration {
    let limits = limits
    return streams.count - systemStreams.count > limits.manyStreams ? limits.manyStreamsAge : .zero
  }

  /// Access to streams has changed: subscriptions to views are moved to new ones.
  func changeViews() {
    for worker in workers { worker.loop.execute { worker.changeViews() } }
  }

  /// Applies changed rules of streams.
  func reapplyVisibility() {
    let access = Dictionary(uniqueKeysWithValues: userStreams.map { ($0.name, $0.access) })
    if systemStreams.replaceRules(access, keeping: retired.withLock { $0.rules }) { changeViews() }
  }

  // MARK: Running

  /// The loops that serve clients, for a watchdog.
  public var loops: [EventLoop] { workers.map(\.loop) }

  /// Starts the event loops.
  /// - Throws: when no thread can be created.
  public func start() throws(SystemError) {
    for worker in workers { try worker.loop.start() }
  }

  /// Replaces the tokens of clients over TCP. Connections with another token end. While there are none, the server
  /// ignores tokens that clients send. Thread-safe.
  public func setTokens(_ tokens: [ClientToken]) {
    self.tokens.replace(by: tokens)
    for worker in workers { worker.loop.execute { worker.reapplyTokens() } }
  }

  /// Replaces the limits, except for the number of event loops. Connections that are open stay, also if fewer are allowed
  /// now, and keep the limits of a request's size and of the number of requests with which they began. Thread-safe.
  public func setLimits(_ new: ServerLimits) {
    let limits = presentLimits.withLock { limits in
      limits.change(to: new)
      return limits
    }
    for worker in workers { worker.loop.execute { worker.change(to: limits) } }
    workers[0].loop.execute { [refusedConnections] in
      refusedConnections.setNames(hosts: limits.httpHosts, origins: limits.httpOrigins)
    }
  }

  /// Accepts connections on a listening stream socket of any kind, and assigns them to the loops in turn, some at a
  /// time.
  public func listen(on descriptor: consuming OwnedDescriptor) {
    let raw = descriptor.release()
    let first = workers[0]
    first.loop.execute { [self] in
      let listener = Listener(
        OwnedDescriptor(raw), on: first.loop, accepted: { [self] socket in accept(socket) },
        paused: { [report] error in report(.acceptingPaused(error)) })
      listener.start()
      first.keep(listener)
    }
  }

  /// Closes a listening socket of `listen`; its connections stay. From any thread except the server's own: waits for a turn
  /// of the first loop.
  public func stopListening(on descriptor: CInt) {
    let (first, done) = (workers[0], DispatchSemaphore(value: 0))
    first.loop.execute {
      first.stopListening(on: descriptor)
      done.signal()
    }
    done.wait()
  }

  /// Accepts a new connection. On the first loop.
  private func accept(_ socket: consuming OwnedDescriptor) {
    let credentials = PeerCredentials(of: socket.raw)
    accept(socket, credentials)
  }

  /// - Parameter credentials: nil for a peer without credentials.
  func accept(_ socket: consuming OwnedDescriptor, _ credentials: PeerCredentials?) {
    if credentials == nil { TCPSocket.sendAtOnce(on: socket.raw) }
    let number = counts.accepted.add(1, ordering: .relaxed).newValue
    adopt(socket, ClientIdentity(number: number, credentials: credentials))
  }

  /// Serves a connection, or refuses it at a limit. A host over the share of hosts is served if it sends a token.
  ///
  /// - Parameter input: what was read from the socket.
  private func adopt(_ socket: consuming OwnedDescriptor, _ client: ClientIdentity, input: [UInt8] = []) {
    let open = counts.open.add(1, ordering: .relaxed).oldValue
    let limits = limits
    do throws(UserAccounts.Refusal) {
      let account = try accounts.enter(client.user(of: socket.raw), within: limits, besides: open)
      let raw = socket.release()
      let worker = workers[Int((client.number - 1) / limits.neighbours % UInt64(workers.count))]
      worker.loop.execute { worker.adopt(OwnedDescriptor(raw), client, account, input: input) }
    } catch {
      counts.open.subtract(1, ordering: .relaxed)
      let refusal = limits.connectionRefusal(of: client, for: error)
      let refused = { [counts, report] in
        counts.refused.add(1, ordering: .relaxed)
        report(refusal.report)
      }
      guard client.credentials == nil, client.token == nil, !tokens.isEmpty else {
        refused()
        return refusedConnections.refuse(socket, refusal.sentence, input: input)
      }
      let admission = RefusedConnections.Admission(tokens: tokens, refused: refused) { [weak self] in
        self?.adopt($0, ClientIdentity(number: client.number, credentials: nil, token: $1), input: $2)
      }
      refusedConnections.refuse(socket, refusal.sentence, input: input, unless: admission)
    }
  }

  /// Stops sources and accepting, ends every request with CANCELED, closes every connection once its client has read
  /// that (after two seconds at most), and stops the loops. `completed` is called once, on one of the loops.
  public func stop(completed: @escaping @Sendable () -> Void) {
    isEnding.store(true, ordering: .releasing)
    for stream in streams.unsorted { stream.shutDown() }
    workers[0].loop.execute { [self] in refusedConnections.close() }
    let left = Countdown(workers.count)
    for worker in workers {
      worker.loop.execute {
        worker.stop {
          if left.isLast() { completed() }
          // Callers on the stack still need the worker, which is retained until the loop ends.
          worker.loop.endOfTurn = { withExtendedLifetime(worker) { nil } }
          worker.loop.stop()
        }
      }
    }
  }

  // MARK: Statistics

  /// The current statistics.
  public var statistics: Statistics {
    let now = EventLoop.monotonicNow()
    let hasLag = hasLag
    var survey = BaseSurvey()
    let (present, retired) = retired.withLock { (streams.unsorted, $0) }
    let byStream = present.userStreams.map { $0.statistics(hasLag: hasLag, &survey) }
    let counted = byStream + retired.leaving.map { $0.statistics(hasLag: false, &survey) }
    func sum(_ counter: (Worker) -> UInt64) -> UInt64 { workers.reduce(0) { $0 &+ counter($1) } }
    return Statistics(
      version: version, uptimeSeconds: (now - startedAt) / 1_000_000_000, uptimeMicroseconds: (now - startedAt) / 1000,
      streams: byStream.count, connections: counts.open.load(ordering: .relaxed),
      subscribers: byStream.reduce(0) { $0 + $1.subscribers },
      publishers: present.reduce(0) { $0 + ($1.publishSource?.publisherCount ?? 0) },
      accepted: counts.accepted.load(ordering: .relaxed), refused: counts.refused.load(ordering: .relaxed),
      eventsIn: counted.reduce(retired.eventsIn) { $0 &+ $1.eventsIn },
      bytesIn: counted.reduce(retired.bytesIn) { $0 &+ $1.bytesIn },
      errors: counted.reduce(retired.failedEvents) { $0 &+ $1.errors },
      malformed: counted.reduce(retired.malformed) { $0 &+ $1.malformed },
      eventsOut: sum { $0.counters.eventsOut.load(ordering: .relaxed) },
      bytesOut: sum { $0.counters.bytesOut.load(ordering: .relaxed) },
      writes: sum { $0.counters.writes.load(ordering: .relaxed) },
      laggedEvents: sum { $0.counters.laggedEvents.load(ordering: .relaxed) },
      holdUps: sum { $0.counters.holdUps.load(ordering: .relaxed) },
      droppedValues: sum { $0.counters.droppedValues.load(ordering: .relaxed) },
      busyMicroseconds: workers.map { $0.loop.busyNanoseconds / 1000 }, byStream: byStream)
  }

  /// The statistics of the streams that a client may see.
  func visibleStatistics(_ visibility: Visibility) -> StatisticsSnapshot {
    let now = EventLoop.monotonicNow()
    let hasLag = hasLag
    let streams = userStreams.filter { visibility.shows($0) }
    var survey = BaseSurvey()
    let byStream = streams.map { $0.statistics(hasLag: hasLag, &survey) }
    return StatisticsSnapshot(
      version: version, uptimeMicroseconds: (now - startedAt) / 1000,
      publishers: streams.reduce(0) { $0 + ($1.publishSource?.publisherCount ?? 0) }, byStream: byStream)
  }

  /// The numbers of streams, without system streams, and of their subscriptions: a cheap part of `statistics`.
  public var load: (streams: Int, subscribers: Int) {
    streams.unsorted.reduce(into: (streams: 0, subscribers: 0)) { load, stream in
      guard stream.rendering == nil else { return }
      load.streams += 1
      load.subscribers += stream.log.subscriberCount
    }
  }

  /// Whether the lag was measured lately.
  var hasLag: Bool { EventLoop.monotonicNow() &- lagMeasuredAt.load(ordering: .relaxed) < Self.lagLifetime }

  /// Makes each loop measure the lag of its subscriptions, for the next statistics: cursors are confined to their loop.
  /// - Parameter completed: called on any thread once all have measured, or at once if they have done so lately.
  func measureLag(completed: @escaping @Sendable () -> Void = {}) {
    let now = EventLoop.monotonicNow()
    guard now &- lagMeasuredAt.load(ordering: .relaxed) > Self.lagPeriod else { return completed() }
    lagMeasuredAt.store(now, ordering: .relaxed)
    let left = Countdown(workers.count)
    for worker in workers {
      worker.loop.execute {
        worker.measureLag()
        if left.isLast() { completed() }
      }
    }
  }

  /// Minimum time between two measurements of the lag, in nanoseconds.
  private static let lagPeriod: UInt64 = 500_000_000
  /// Maximum age of a shown lag, in nanoseconds.
  private static let lagLifetime: UInt64 = 3_000_000_000
}

/// Counters of connections, for all loops.
final class ConnectionCounts: Sendable {
  let open = Atomic(0)
  let accepted = Atomic<UInt64>(0)
  let refused = Atomic<UInt64>(0)
  /// The open connections that speak HTTP, and those that are WebSockets. Each speaker counts itself while it exists.
  let http = Atomic(0)
  let webSocket = Atomic(0)

  /// All connections. A connection that has sent nothing yet counts as one of RSocket.
  var byProtocol: (rsocket: Int, http: Int, webSocket: Int) {
    let (http, webSocket) = (max(0, http.load(ordering: .relaxed)), max(0, webSocket.load(ordering: .relaxed)))
    return (max(0, open.load(ordering: .relaxed) - http - webSocket), http, webSocket)
  }
}

/// Identifies the last of several calls.
final class Countdown: Sendable {
  private let left: Atomic<Int>
  init(_ count: Int) { left = Atomic(count) }
  func isLast() -> Bool { left.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 }
}
