import Dispatch
import Fleet
import Glibc
import JetStream
import Reactive
import StreamProtocol
import StreamRuntime
import StreamServer
import StreamSources
import Systemd

/// The running daemon: sources on their thread, clients on the server's loops, and the main thread for signals, the
/// watchdog and the status line.
final class Daemon: @unchecked Sendable {  // confined to the main thread
  private let source: ConfigurationSource
  private let passed: PassedDescriptors
  private let stored: StoredConfiguration
  /// The configuration's limits, with no more connections than the descriptors allow.
  private let limits: ServerLimits
  private let budget = DescriptorBudget.take()
  private let path: String
  private let journal: Journal
  private let manager: ServiceManager
  private let loop: EventLoop
  private let sources: SourceThread
  private let server: StreamServer
  /// nil: no stream is shared with other hosts.
  private let fleet: FleetMember?
  private var signals: Signals?
  private var watchdog: Watchdog?
  private var logControl: LogControlWatch?
  /// The counters of the last status line, and their time; nil: there was none, so that no rate is known.
  private var lastCounters: (eventsIn: UInt64, eventsOut: UInt64, at: UInt64)?
  /// The numbers in the last status line.
  private var lastLoad = (streams: -1, subscribers: -1)
  private var lastFleet: FleetConnection?
  /// The report on the served configuration.
  private var report: ConfigurationReport
  /// The file of a socket that this process has made; nil if the service manager has passed one.
  private var ownSocket: UnixSocket.File?
  private var streams: RunningStreams?
  private let sockets: ListeningSockets
  private var reload: Reload?
  private var isStopping = false
  private var isLeaving = false
  private var handsOver = false
  /// Whether the start is over: sums over all streams would only delay it.
  private var isServing = false

  /// Maximum time to pass on the events that throttles hold, before a stop begins.
  private static let heldTime = Duration.seconds(1)
  /// Maximum time of a stop, short enough that systemd needs no extension.
  private static let stopTime = Duration.seconds(4)
  /// The part of `stopTime` after which source programs are killed.
  private static let programTime = Duration.seconds(2)
  /// The time after the stop for writing events to the disk.
  private static let diskTime = Duration.seconds(3)
  /// Without a watchdog, the update period of the rate in the status line.
  private static let statusPeriod = Duration.seconds(10)
  /// Free memory that the allocator may keep after each update of the watchdog or of the status line.
  private static let cachedBytes = 8 << 20
  /// Maximum delay of the stream and subscriber counts in the status line.
  private static let loadPeriod = Duration.seconds(1)

  /// Prepares everything; nothing is served yet.
  /// - Parameters:
  ///   - source: the configuration, from `path`, or its last valid version.
  ///   - path: the file for a reload.
  ///   - report: the report on the configuration.
  ///   - passed: the service manager's descriptors; now owned by the daemon.
  ///   - stored: stores the configuration for the next process.
  /// - Throws: `SystemError`, `StreamServer.AddStreamError`: the machine lacks a resource.
  init(
    _ source: ConfigurationSource, from path: String, _ report: ConfigurationReport, passed: PassedDescriptors,
    stored: StoredConfiguration, journal: Journal, manager: ServiceManager
  ) throws {
    self.source = source
    self.report = report
    self.passed = passed
    self.stored = stored
    self.path = path
    let configuration = source.configuration
    self.journal = journal
    self.manager = manager
    limits = try Self.limits(configuration, budget, journal)
    loop = try EventLoop(name: "streamd")
    sources = try SourceThread(transfersPerHost: configuration.http.maxPerHost, helper: "/proc/self/exe")
    server = try StreamServer(
      limits: limits, restores: true, version: Version.current,
      wantsDetails: { journal.level >= .debug },
      report: { journal.write(Journal.Entry($0)) })
    server.show(report)
    server.setTokens(configuration.tokens.map { ClientToken($0) })
    sockets = ListeningSockets(server, manager)
    fleet = configuration.cluster.map { [sources, server] cluster in
      FleetMember(
        JetStreamEngine(JetStreamOptions(cluster), on: sources.loop), shardCount: cluster.shards, on: sources.loop,
        server, journal)
    }
  }

  /// Serves until a signal.
  /// - Throws: `SystemError`, `StreamServer.AddStreamError`, `LogStore.FolderInUse`.
  func run() throws {
    signals = try Signals([SIGTERM, SIGINT, SIGHUP, SIGCHLD], on: loop) { [self] in handle($0) }
    Self.openTimers()
    try sources.start()
    try server.start()
    let configuration = source.configuration
    var descriptors = passed.stored
    let connections = ConnectionHandover.restore(from: &descriptors, atMost: limits.connections, manager, journal)
    sockets.take(from: &descriptors, for: configuration.server.listen)
    let logs = LogStore(configuration.server, stored: descriptors, manager: manager, journal: journal)
    try logs.lockFolder(for: configuration.streamsAndTemplates)
    let streams = RunningStreams(server, sources, journal, logs, fleet)
    self.streams = streams
    try streams.begin(configuration, former: connections?.saved.streams ?? [])
    if let excess = MemoryBudget.remark(on: configuration) { journal.write(.limitReached, .warning, excess) }
    if let connections { restore(connections.saved) }
    let names = try listen().joined(separator: ", ")
    startWatchdog()
    stored.store(source.files, with: manager, journal)
    journal.write(.start, .info, "streamd \(Version.current) serves \(configuration.counts) on \(names)")
    if manager.isPresent {
      let logControl = LogControlWatch(journal, on: loop)
      logControl.settle(within: .seconds(1))
      self.logControl = logControl
    }
    manager.notify(.ready)
    // No later step can fail where another process would succeed. So far, no connection was read or written.
    if let connections {
      manager.flush(within: .seconds(1))
      ConnectionHandover.release(connections.names, from: manager)
    }
    server.finishRestore()
    fleet?.start()
    reload = makeReload(to: streams)
    isServing = true
    watchLoad()
    loop.run()
    streams.close(within: Self.diskTime)
    journal.write(.stop, .info, "streamd has stopped")
    journal.flush(within: .milliseconds(500))
    if handsOver { manager.settle(within: .seconds(2)) } else { manager.flush(within: .milliseconds(500)) }
  }

  // MARK: Parts

  private func makeReload(to streams: RunningStreams) -> Reload {
    Reload(
      of: path, source.configuration, report, to: streams, sockets, on: loop, journal, manager, stored,
      setLimits: { [server, budget, journal] configuration in
        do {
          server.setLimits(try Self.limits(configuration, budget, journal))
        } catch {
          journal.write(.limitReached, .error, "the limits of clients stay as they are: \(error)")
        }
      }
    ) { [self] in
      report = $0
      server.show(report)
      return status()
    }
  }

  /// Restores connections. Returns when each of them is on its loop.
  private func restore(_ connections: SavedConnections) {
    let done = DispatchSemaphore(value: 0)
    server.restore(connections) { done.signal() }
    done.wait()
  }

  /// - Returns: the names of the sockets.
  private func listen() throws -> [String] {
    for refusal in passed.refusals {
      journal.write(.descriptorRefused, .warning, "socket \"\(refusal.name)\" is not served: \(refusal.reason)")
    }
    let configuration = source.configuration.server
    var names = passed.listeners.map { SocketName.text(of: $0.descriptor) ?? $0.name }
    for listener in passed.listeners { server.listen(on: OwnedDescriptor(listener.descriptor)) }
    if names.isEmpty {
      names = [configuration.socket]
      server.listen(on: try ListeningSockets.listen(at: configuration.socket, mode: configuration.mode))
      ownSocket = UnixSocket.File(at: configuration.socket)
    }
    try sockets.begin(configuration.listen)
    return names + configuration.listen.map(\.description)
  }

  /// If fewer connections fit, the operator is told of it, even with the default of `max_connections`.
  private static let fewConnections = 4096

  /// The configuration's limits, reduced to the available descriptors.
  private static func limits(
    _ configuration: Configuration, _ budget: DescriptorBudget, _ journal: Journal
  ) throws(SystemError) -> ServerLimits {
    var limits = configuration.server.limits
    if let cluster = configuration.cluster { limits.resumeWait = cluster.resumeWait }
    let loops = limits.workers > 0 ? limits.workers : max(1, sysconf(CInt(_SC_NPROCESSORS_ONLN)))
    let most = try budget.connectionLimit(for: configuration.streams, configuration.templates, loops: loops)
    if limits.connections > most {
      // The default is meant for large machines: that it does not fit is worth a notice only if little does.
      let isExpected = limits.connections == ServerLimits().connections && most >= fewConnections
      journal.write(
        .limitReached, isExpected ? .debug : .notice,
        "max_connections is \(limits.connections), of which \(most) fit: "
          + "the descriptor limit (LimitNOFILE=) is \(budget.limit)")
      limits.connections = most
    }
    return limits
  }

  /// Starts a timer, with which Dispatch opens the descriptors of its timers. Without free descriptors, a later first
  /// timer would trap. No timer uses the wall clock: with a time after the year 2116, Dispatch would never fire it.
  private static func openTimers() {
    let fired = DispatchGroup()
    fired.enter()
    DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(1)) { fired.leave() }
    fired.wait()
  }

  // MARK: The service manager

  private func startWatchdog() {
    let period = manager.watchdogInterval.map { Watchdog.period(for: $0) }
    if period != nil {
      let loops = server.loops + [sources.loop]
      watchdog = Watchdog(participants: loops.map { loop in { beat in loop.execute(beat) } }) { [manager] in
        manager.notify(.watchdog)
      }
    }
    tick(every: period ?? Self.statusPeriod)
  }

  /// Updates the status, from the start on, only on a change, because the manager announces each update on the bus. With
  /// very many streams, that takes a twentieth of a processor at most.
  private func watchLoad() {
    guard manager.isPresent else { return }
    let start = EventLoop.monotonicNow()
    if !isStopping, server.load != lastLoad || server.fleetConnection != lastFleet { manager.notify(.status(status())) }
    let spent = Duration.nanoseconds(EventLoop.monotonicNow() - start)
    _ = loop.schedule(after: max(Self.loadPeriod, spent * 20)) { [self] in watchLoad() }
  }

  private func tick(every period: Duration) {
    if let late = watchdog?.tick(), !late.isEmpty {
      journal.write(
        .progressLate, .warning, "\(late.count) of the event loops have not responded for \(period.inUnits)")
    }
    if isServing, !isStopping { manager.notify(.status(status())) }
    MemoryReturn.trim(above: Self.cachedBytes)
    _ = loop.schedule(after: period) { [self] in tick(every: period) }
  }

  private func status() -> String {
    let statistics = server.statistics
    let now = EventLoop.monotonicNow()
    let last = lastCounters
    // Two lines in one instant have no rate either.
    if last.map({ now - $0.at >= 500_000_000 }) ?? true {
      lastCounters = (statistics.eventsIn, statistics.eventsOut, now)
    }
    lastLoad = (statistics.streams, statistics.subscribers)
    lastFleet = server.fleetConnection
    var parts = ["\(counted(statistics.streams, "stream")), \(counted(statistics.subscribers, "subscriber"))"]
    if let last, now - last.at >= 500_000_000 {
      let seconds = Double(now - last.at) / 1e9
      let rates = [statistics.eventsIn &- last.eventsIn, statistics.eventsOut &- last.eventsOut].map {
        Int((Double($0) / seconds).rounded())
      }
      parts[0] += ", \(rates[0]) events in and \(rates[1]) out per second"
    }
    parts += Self.troubles(of: statistics.byStream)
    if case .disconnected(let reason) = lastFleet { parts.append("no connection to the fleet's brokers: \(reason)") }
    let differing = statistics.byStream.count { $0.fleet?.otherHosts.isEmpty == false }
    if differing > 0 { parts.append("\(counted(differing, "stream")) defined otherwise on other hosts of the fleet") }
    if let error = report.error { parts.append("serving the previous configuration: \(error)") }
    return parts.joined(separator: "; ")
  }

  /// How many streams need a person, such as `7 failing, 1 stale, 2 not on disk`; empty: none.
  private static func troubles(of streams: [Statistics.Stream]) -> [String] {
    let counts = [
      ("failing", streams.count { $0.state.hasPrefix("fail") }), ("stale", streams.count { $0.staleSince != nil }),
      ("blocked", streams.count { $0.state == "blocked" }), ("not on disk", streams.count { $0.isOnDisk == false }),
    ]
    let texts = counts.filter { $0.1 > 0 }.map { "\($0.1) \($0.0)" }
    return texts.isEmpty ? [] : [texts.joined(separator: ", ")]
  }

  // MARK: Signals

  private func handle(_ signal: CInt) {
    if signal == SIGHUP {
      reload?.begin()
    } else if signal == SIGCHLD {
      reapOrphans()
    } else if !isStopping {
      isStopping = true
      if let reload { reload.end { [self] in stop(on: signal) } } else { stop(on: signal) }
    }
  }

  private func stop(on signal: CInt) {
    // Clients can be handed to a next process, over the socket that the manager keeps.
    handsOver = manager.storeLimit > 0 && ownSocket == nil && signal == SIGTERM && manager.ending() != .stop
    manager.notify(.stopping, .status(handsOver ? "Restarting" : "Stopping"))
    journal.write(.stop, .info, "streamd stops on \(signal == SIGTERM ? "SIGTERM" : "SIGINT")")
    streams?.passHeld { [self] in loop.execute { self.leaveFleet() } }
    _ = loop.schedule(after: Self.heldTime) { [self] in leaveFleet() }
  }

  private func leaveFleet() {
    guard !isLeaving else { return }
    isLeaving = true
    // After this, other hosts take over at once, and values that were published here are stored.
    guard let fleet else { return stopParts() }
    fleet.leave { [self] in loop.execute { self.stopParts() } }
  }

  private func stopParts() {
    loop.assertOnLoop()
    let loop = loop
    let parts = DispatchGroup()
    for _ in 0..<2 { parts.enter() }
    ownSocket?.remove()
    if handsOver {
      let room = manager.storeLimit - stored.count - sockets.storedCount - (streams?.storedLogCount ?? 0)
      server.save { [manager, journal, sources] saved in
        // Programs run until here, because values of publishers pass through them.
        sources.stop(within: Self.programTime) { parts.leave() }
        ConnectionHandover.save(saved, with: manager, room: room, journal)
        parts.leave()
      }
    } else {
      server.stop { parts.leave() }
      sources.stop(within: Self.programTime) { parts.leave() }
    }
    parts.notify(queue: .global()) { loop.stop() }
    _ = loop.schedule(after: Self.stopTime) { loop.stop() }
  }
}

/// `1 stream`, `2 streams`.
func counted(_ count: Int, _ noun: String) -> String { "\(count) \(noun)\(count == 1 ? "" : "s")" }
