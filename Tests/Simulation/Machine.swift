import CSimulation
import Dispatch
import StreamRuntime
import Events
import Glibc
import RSocket
import Reactive
import StreamSources

@testable import ReplayLog
@testable import StreamServer
@testable import Systemd
@testable import streamd

/// One process of the daemon: what `Daemon` does, with upstreams of the world's.
final class Machine {
  struct Limits {
    var connections = 24
    var perUser = 16
    var workers = 1
  }

  private(set) var server: StreamServer!
  private var logs: LogStore!
  private var manager: ServiceManager!
  private var journal: Journal!
  private var publishSources: [String: PublishSource] = [:]
  private(set) var upstreams: [String: Upstream] = [:]
  private var statuses: [String: SourceStatus] = [:]
  private var sources: SourceThread?
  /// Whether the server has ended, and not only left its connections to the next one.
  private var isStopped = false
  private var auditors: [String: Auditor] = [:]
  /// What makes the streams of templates; nil: there are none.
  private var running: RunningStreams?
  /// Whether the streams of a former process are made again.
  private(set) var isStarting = true
  private let queue = WorkQueue(label: "streams")
  private(set) var isReloading = false
  /// Whether the last reload had no effect: a new stream's log could not be made.
  private(set) var hasFailedToReload = false
  private let hasReloaded = DispatchSemaphore(value: 0)
  private let world: World

  /// Bytes of input that may be under way.
  static let inputBytes = 1 << 20

  init(_ world: World) { self.world = world }

  // MARK: Beginning

  /// - Throws: where a process ends before it serves.
  func start() throws {
    setenv("NOTIFY_SOCKET", "@simulation", 1)
    setenv("FDSTORE", "\(sim_store_limit)", 1)
    setenv("STREAMD_BOOT_ID", String(repeating: "0", count: 24) + String(10_000_000 + world.boot), 1)
    manager = ServiceManager()
    journal = Journal(level: .info, destination: .journal)
    var limits = ServerLimits(
      workers: world.limits.workers, connections: world.limits.connections,
      connectionsPerUser: world.limits.perUser, requestsPerConnection: 16,
      requestsPerUser: world.hasTemplates ? 500 : 64,
      requestBytes: 64 << 10, inputBytes: Self.inputBytes, inputBytesPerUser: Self.inputBytes / 2)
    limits.neighbours = 1
    server = try StreamServer(
      limits: limits, restores: true, version: "1",
      wantsDetails: { [hasTemplates = world.hasTemplates] in hasTemplates },
      report: { [journal = journal!, unowned self] in
        if case .clientActs = $0 { return }
        if case .clientCutOff = $0 { Report.shared.count("clients cut off") }
        if case .template(_, let report) = $0 { take(report) }
        journal.write(Journal.Entry($0))
      })
    try server.start()
    if world.profile.hasOrigin || !world.derivedStreams.isEmpty || world.hasTemplates {
      let thread = try SourceThread(transfersPerHost: 2)
      try thread.start()
      sources = thread
    }
    var stored = PassedDescriptors(takeStored()).stored
    let connections = ConnectionHandover.restore(from: &stored, atMost: limits.connections, manager, journal)
    var untaken = connections?.saved.descriptors ?? []
    defer { for descriptor in untaken { close(descriptor) } }
    var configuration = Configuration.Server()
    configuration.state = world.folder
    logs = LogStore(configuration, stored: stored, manager: manager, journal: journal)
    // Bases precede the streams that are derived from them.
    for stream in world.configuredStreams where stream.isServed {
      try add(stream, logs.log(of: stream.configuration))
    }
    try beginTemplates(former: connections?.saved.streams ?? [])
    logs.finish()
    if let connections {
      untaken = []
      wait { done in server.restore(connections.saved, completed: done) }
    }
    for listener in world.listeners {
      let descriptor = fcntl(listener, F_DUPFD_CLOEXEC, 3)
      guard descriptor >= 0 else { throw SystemError("fcntl") }
      server.listen(on: OwnedDescriptor(descriptor))
    }
    manager.notify(.ready)
    if let connections {
      manager.flush(within: .seconds(1))
      ConnectionHandover.release(connections.names, from: manager)
    }
    server.finishRestore()
    manager.flush(within: .seconds(1))
  }

  private func beginTemplates(former: [(name: String, maker: StreamOwner?)]) throws {
    defer { isStarting = false }
    guard world.hasTemplates, let sources else { return }
    let running = RunningStreams(server, sources, journal, logs)
    self.running = running
    try running.begin(world.configuration(of: world.templates), former: former)
    if let memory = world.profile.memory { logs.smallLogs.setLimit(memory) }
  }

  /// A stream of a template was made, or is gone.
  private func take(_ report: TemplateReport) {
    guard sim_is_dead() == 0 else { return }
    switch report {
    case .made(let name):
      guard let stream = server.streams[name], !name.hasPrefix("q/") else { return }
      audit(stream)
      let owner = server.templates.match(name)?.template.owner(of: name)
      if case .uid(let user)? = owner { world.noteMade(name, by: user) } else { world.noteMade(name, by: nil) }
    case .forgotten(let name):
      auditors.removeValue(forKey: name)?.end()
      if !name.hasPrefix("q/") { world.noteForgotten(name) }
    case .full: break
    }
  }

  /// Whether there is a stream of a template, or some of it.
  func isMade(_ name: String) -> Bool { isServed(name) || running?.made[name] != nil }

  func isServed(_ name: String) -> Bool { server.streams[name] != nil }

  /// The streams of templates that are served.
  var madeStreams: [String] { server.streams.all.map(\.name).filter { $0.contains("/") } }

  /// What the names of each template begin with, and how many of its streams there are.
  var templates: [(prefix: String, count: Int)] {
    server.templates.all.map { (String($0.name.text.prefix { $0 != "/" }), $0.count) }
  }

  /// What the service manager keeps, in no particular order.
  private func takeStored() -> [(descriptor: CInt, name: String)] {
    let kept = (0..<sim_store_count()).map { (sim_store_descriptor($0), String(cString: sim_store_name($0))) }
    return world.random.shuffled(kept).map { (fcntl($0.0, F_DUPFD_CLOEXEC, 3), $0.1) }
  }

  private func add(_ stream: StreamSpecification, _ kept: LogStore.StoredLog) throws {
    try server.add(
      StreamConfiguration(stream.configuration), log: kept.log, source: source(of: stream),
      publishSource: publishSources[stream.name], status: status(of: stream.name))
    if let served = server.streams[stream.name] { audit(served) }
  }

  private func audit(_ stream: ServedStream) {
    let truth = world.truth(of: stream.name)
    auditors[stream.name] = Auditor(truth, stream.log, bases: truth.bases.compactMap { auditors[$0] })
  }

  private func source(of stream: StreamSpecification) -> AnyPublisher<EventBatch, StreamFailure> {
    switch stream.kind {
    case .clients:
      let source = publishSources[stream.name] ?? PublishSource()
      source.isDirect = true
      publishSources[stream.name] = source
      return source.setFailureType(to: StreamFailure.self).eraseToAnyPublisher()
    case .world:
      let upstream = Upstream()
      upstreams[stream.name] = upstream
      return upstream.eraseToAnyPublisher()
    case .events, .page, .derived, .mirror: return ownSource(of: stream)
    }
  }

  /// A source of the daemon's, as `RunningStreams` makes it.
  private func ownSource(of stream: StreamSpecification) -> AnyPublisher<EventBatch, StreamFailure> {
    let (configuration, status) = (stream.configuration, SourceStatus())
    statuses[stream.name] = status
    let entries = Locked(FeedEntries(of: stream.name))
    var context = SourceContext(on: sources!) { [journal = journal!] report in
      if let health = SourceHealth(report) { status.set(health) }
      if case .missed = report { Report.shared.count("mirrors: losses") }
      for entry in entries.withLock({ $0.take(report, at: EventLoop.monotonicTime) }) { journal.write(entry) }
    }
    let checkpoint = { @Sendable [weak server, name = stream.name] (scope: CheckpointScope) in
      server?.checkpoint(of: name, isOfEvent: scope == .event)
    }
    (context.name, context.pipeline, context.checkpoint) = (stream.name, configuration.pipelineText, checkpoint)
    let sectionContext = SectionContext(source: context, publishSource: PublishSource()) {
      [server, sources = sources!, journal = journal!] bases, filter in
      server.derivedSource(
        of: bases, for: stream.name, where: filter, status: status, on: sources.loop,
        checkpoint: { SourceResumption { checkpoint(.log) }.checkpoint() }
      ) { report in
        if case .missed = report { Report.shared.count("derived streams: losses of a base") }
        for entry in entries.withLock({ $0.take(report, at: EventLoop.monotonicTime) }) { journal.write(entry) }
      }.eraseToAnyPublisher()
    }
    return configuration.source.section.publisher(of: configuration, in: sectionContext)
      .setFailureType(to: StreamFailure.self).eraseToAnyPublisher()
  }

  private func feed(of stream: StreamSpecification) -> StreamChange.Feed {
    StreamChange.Feed(
      source: source(of: stream), publishSource: publishSources[stream.name], status: status(of: stream.name))
  }

  private func status(of stream: String) -> SourceStatus { statuses[stream] ?? SourceStatus() }

  // MARK: Another configuration

  /// Changes streams on a thread of its own, while the steps of the run continue.
  /// - Parameter replaced: streams whose source is replaced by an equal one.
  func beginReload(
    from former: ([StreamSpecification], [TemplateSpecification]),
    to new: ([StreamSpecification], [TemplateSpecification]), replacing replaced: Set<String>
  ) {
    final class Box {
      let body: () -> Void
      init(_ body: @escaping () -> Void) { self.body = body }
    }
    (isReloading, hasFailedToReload) = (true, false)
    let box = Unmanaged.passRetained(
      Box { [self] in
        (running?.queue ?? queue).sync {
          reload(from: former.0, to: new.0, replacing: replaced)
          if !hasFailedToReload { reloadTemplates(from: former.1, to: new.1) }
        }
        isReloading = false
        hasReloaded.signal()
      })
    var thread = pthread_t()
    let code = pthread_create(
      &thread, nil,
      { box in
        Unmanaged<Box>.fromOpaque(box!).takeRetainedValue().body()
        return nil
      }, box.toOpaque())
    require(code == 0, "threads", "there is none for a reload")
  }

  /// Waits for the end of a reload, if one is under way.
  func finishReload() {
    while isReloading {
      require(hasReloaded.wait(timeout: .now() + .seconds(60)) == .success, "progress", "a reload takes a minute")
    }
  }

  /// As `RunningStreams.apply`.
  private func reload(
    from former: [StreamSpecification], to new: [StreamSpecification], replacing replaced: Set<String>
  ) {
    var (old, next) = (Configuration(), Configuration())
    old.streams = former.filter(\.isServed).map(\.configuration)
    next.streams = new.filter(\.isServed).map(\.configuration)
    let difference = ConfigurationDifference(from: old, to: next)
    let specifications = Dictionary(uniqueKeysWithValues: new.map { ($0.name, $0) })
    var added: [(StreamSpecification, LogStore.StoredLog)] = []
    for stream in difference.added.basesFirst {
      guard let specification = specifications[stream.name], let kept = try? logs.log(of: stream) else {
        for (added, _) in added { logs.forget(added.name) }
        hasFailedToReload = true
        return
      }
      added.append((specification, kept))
    }
    logs.secure()
    let renewed = difference.renewed(besides: replaced)
    let otherFeeds = replaced.union(renewed.map(\.name))
    let changes = difference.changed.compactMap { change in
      specifications[change.stream.name].map { stream in
        StreamChange(
          StreamConfiguration(change.stream),
          feed: change.hasOtherFeed || otherFeeds.contains(stream.name)
            ? feed(of: stream) : nil,
          makeLog: change.hasOtherLog ? { [logs] in try logs!.log(of: change.stream, insteadOf: $0).log } : nil)
      }
    }
    for (stream, kept) in added { try? add(stream, kept) }
    let changed = Set(difference.changed.map(\.stream.name))
    let others = renewed.filter { !changed.contains($0.name) }.compactMap { stream in
      specifications[stream.name].map { StreamChange(StreamConfiguration(stream), feed: feed(of: $0)) }
    }
    _ = server.change(changes + others, removing: difference.removed)
    for name in difference.removed {
      logs.forget(name)
      auditors[name]?.end()
      (publishSources[name], upstreams[name], auditors[name]) = (nil, nil, nil)
    }
    logs.finish()
    sources?.endRests()
  }

  private func reloadTemplates(from former: [TemplateSpecification], to new: [TemplateSpecification]) {
    guard let running else { return }
    do {
      try running.apply(
        ConfigurationDifference(from: world.configuration(of: former), to: world.configuration(of: new)))
    } catch {
      fail("templates", "a reload that adds no stream has failed: \(error)")
    }
    for name in auditors.keys where name.contains("/") && server.streams[name] == nil {
      auditors.removeValue(forKey: name)?.end()
    }
  }

  // MARK: The end

  /// As a daemon that systemd restarts, or, if nothing is handed over, stops.
  func stop(handingOver: Bool) {
    wait { done in
      if handingOver {
        server.save { [manager = manager!, journal = journal!, room = manager.storeLimit - logs.storedCount] saved in
          ConnectionHandover.save(saved, with: manager, room: room, journal)
          done()
        }
      } else {
        server.stop(completed: done)
        isStopped = true
      }
    }
    stopSources(within: .seconds(2))
    if let running { running.close(within: .seconds(3)) } else { logs.close(within: .seconds(3), on: queue) }
    journal.flush(within: .milliseconds(500))
    manager.settle(within: .seconds(2))
  }

  /// The process is gone, by now or before: nothing that still happens in it has an effect.
  func end() {
    sim_kill()
    let moment = sim_now()
    finishReload()
    if server != nil, !isStopped { wait { done in server.stop(completed: done) } }
    stopSources(within: .zero)
    // What timers hold goes with them.
    for _ in 0..<100_000 {
      if sim_run_one() != 0 { continue }
      let next = sim_next_deadline()
      guard next != .max else { break }
      sim_pass(next > sim_now() ? next - sim_now() : 0)
    }
    for auditor in auditors.values { auditor.end() }
    auditors = [:]
    upstreams = [:]
    publishSources = [:]
    let objects = watchedObjects
    // It has the server, and the server has it.
    server?.making.withLock { $0 = nil }
    running = nil
    server = nil
    logs = nil
    manager = nil
    journal = nil
    while sim_run_one() != 0 {}
    sim_set_now(moment)
    let alive = (objects + connections.values).filter { $0.object != nil }.map(\.name)
    require(alive.isEmpty, "memory is released", "left of a process are: \(alive.joined(separator: ", "))")
    require(
      sim_thread_count() == 0, "threads end",
      "\(sim_thread_count()) threads are left, one is \(String(cString: sim_thread_name()))")
    let left = sim_open_descriptors()
    require(left == 0, "descriptors", "\(left) descriptors are left of a process: \(descriptorNames())")
    sim_revive()
  }

  private func stopSources(within grace: Duration) {
    guard let thread = sources else { return }
    sources = nil
    wait { done in thread.stop(within: grace, completed: done) }
  }

  private struct Watched {
    let name: String
    weak var object: AnyObject?
  }

  /// A connection in one protocol.
  private struct ConnectionKey: Hashable {
    let number: UInt64
    let type: ObjectIdentifier
    init(_ connection: Connection) {
      (number, type) = (connection.identity.number, ObjectIdentifier(Swift.type(of: connection)))
    }
  }

  /// Connections so far.
  private var connections: [ConnectionKey: Watched] = [:]

  /// To be called after each step.
  func watchConnections() {
    for connection in server.workers.flatMap(\.allConnections) where connections[ConnectionKey(connection)] == nil {
      connections[ConnectionKey(connection)] = Watched(
        name: "\(connection.identity)", object: connection)
    }
  }

  /// Connections that have ended and are not released.
  var remainingConnections: [String] {
    let open = Set(server.workers.flatMap(\.allConnections).map { ConnectionKey($0) })
    return connections.filter { !open.contains($0.key) && $0.value.object != nil }.map(\.value.name).sorted()
  }

  /// What is to go with the process.
  private var watchedObjects: [Watched] {
    var objects = [Watched(name: "logs", object: logs), Watched(name: "journal", object: journal)]
    guard let server else { return objects }
    objects.append(Watched(name: "server", object: server))
    for worker in server.workers {
      objects.append(Watched(name: worker.loop.name, object: worker))
      for connection in worker.allConnections {
        objects.append(Watched(name: "\(connection.identity)", object: connection))
      }
    }
    for stream in server.streams.all { objects.append(Watched(name: stream.name, object: stream)) }
    return objects
  }

  private func descriptorNames() -> String {
    (3..<600).compactMap { descriptor in
      var buffer = [CChar](repeating: 0, count: 200)
      let count = readlink("/proc/self/fd/\(descriptor)", &buffer, 199)
      return count > 0 ? "\(descriptor) \(String(cString: buffer))" : nil
    }.joined(separator: ", ")
  }

  private func wait(_ body: (@escaping @Sendable () -> Void) -> Void) {
    let done = DispatchSemaphore(value: 0)
    body { done.signal() }
    require(
      done.wait(timeout: .now() + .seconds(60)) == .success, "progress", "the server has not answered for a minute")
  }

  // MARK: What there is to see

  /// Ids up to here were given by the stream.
  func end(of stream: String) -> UInt64? { server?.streams[stream]?.log.read { storage, _ in storage.endPosition } }

  /// The subscribers that are the sources of derived streams.
  var readersOfBases: Int {
    server.streams.all.reduce(0) { $0 + ($1.status.derivation?.readers.withLock { $0.count } ?? 0) }
  }

  /// Whether the stream has ended.
  func hasEnded(_ stream: String) -> Bool { server.streams[stream]?.log.hasEnded ?? false }

  /// Whether the stream's source waits for a subscriber that has unread events.
  func waits(_ stream: String) -> Bool {
    guard let position = server.streams[stream]?.log.positionUpstreamWaitsFor, let newest = newest(of: stream) else {
      return false
    }
    return position <= newest
  }

  /// The id of the newest event that the stream holds.
  func newest(of stream: String) -> UInt64? {
    server?.streams[stream]?.log.read { storage, _ in
      storage.firstPosition < storage.endPosition ? storage.position(ofLast: 1) : nil
    }
  }

  /// The id of the first event after that one that the stream holds.
  func firstEvent(of stream: String, after id: UInt64) -> UInt64? {
    server?.streams[stream]?.log.read { storage, _ in
      let position = storage.skip(max(storage.firstPosition, id + 1))
      return position < storage.endPosition ? position : nil
    }
  }

  /// What the state of a stream's keys is made from, and how far it is; nil: it has none.
  func state(of stream: String) -> (origin: KeyedState.Origin, end: UInt64, isComplete: Bool)? {
    server?.streams[stream]?.log.read { storage, _ in
      storage.state.map {
        ($0.origin, storage.endPosition, $0.isComplete)
      }
    }
  }

  /// One subscription that is live.
  struct Standing {
    let stream: String
    /// Its state's name.
    let state: String
    let hasCredit: Bool
    /// Ids before this one are sent, or left out.
    let position: UInt64
    /// Ids before this one are covered by its credit.
    let reach: UInt64
    /// The id that the stream gives next.
    let end: UInt64
  }

  var subscriptions: [Standing] {
    var found: [Standing] = []
    for stream in server.streams.all {
      let end = stream.log.read { storage, _ in storage.endPosition }
      for worker in server.workers {
        guard let lane = worker.existingLane(of: stream) else { continue }
        for member in lane.members {
          found.append(
            Standing(
              stream: stream.name, state: String("\(member.phase)".prefix { $0 != "(" }),
              // A member of a pattern may keep what it has borrowed, though its reader has no credit any more.
              hasCredit: (member.extras?.reader?.demand ?? member.machine.demand) > .none,
              position: lane.position(of: member),
              reach: lane.requestedThrough(of: member), end: end))
        }
      }
    }
    return found
  }

  /// Subscriptions that one connection has waiting for room in its socket, at most, ended ones included.
  var mostBlocked: Int {
    server.workers.flatMap(\.allConnections).reduce(0) { max($0, $1.extras?.blocked.count ?? 0) }
  }

  /// The user of each connection, by its socket, and the user that it counts for.
  var connectionUsers: [(ClientUser, ClientUser)] {
    server.workers.flatMap(\.allConnections).map {
      (ClientUser($0.identity.credentials, of: $0.socket.raw), $0.share.account.user)
    }
  }

  /// Bytes that the accounts of users hold.
  var heldBytes: Int { server.accounts.heldBytes.load(ordering: .relaxed) }
}
