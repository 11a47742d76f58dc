import Dispatch
import EventLoop
import Glibc
import Reactive
import StreamServer
import StreamSources
import Systemd

/// The daemon while it runs: sources on their thread, clients on the server's loops, and this thread for signals, the
/// watchdog and the status line.
final class Daemon {
  private let configuration: Configuration
  /// As in the configuration, with no more connections than there are descriptors for.
  private let limits: ServerLimits
  private let path: String
  private let journal: Journal
  private let manager: ServiceManager
  private let loop: EventLoop
  private let sources: SourceThread
  private let server: StreamServer
  private var signals: Signals?
  private var watchdog: Watchdog?
  private var logControl: LogControlWatch?
  private var lastEventsOut: UInt64 = 0
  private var lastStatus = EventLoop.monotonicNow()
  private var ownSocket: String?
  private var reload: Reload?
  private var isStopping = false
  private var handsOver = false

  /// How long the way out may take; systemd would be told otherwise.
  private static let stopTime = Duration.seconds(4)
  /// How much of that programs which are sources may take before they are killed.
  private static let programTime = Duration.seconds(2)
  /// How long bringing events to the disk may take after that.
  private static let diskTime = Duration.seconds(3)
  /// How often the status line is brought up to date where no watchdog sets the pace.
  private static let statusPeriod = Duration.seconds(10)

  /// Prepares everything; nothing is served yet.
  /// - Parameter path: where the configuration is from, and is read anew.
  /// - Throws: `SystemError`, `StreamServer.Mistake`: the machine does not give what is needed.
  init(_ configuration: Configuration, from path: String, journal: Journal, manager: ServiceManager) throws {
    self.configuration = configuration
    self.path = path
    self.journal = journal
    self.manager = manager
    limits = try Self.limits(configuration, journal)
    loop = try EventLoop(name: "streamd")
    sources = try SourceThread(transfersPerHost: configuration.http.maxPerHost)
    server = try StreamServer(
      limits: limits, goesOn: true, version: Version.current,
      wantsDetails: { journal.level >= .debug },
      report: { journal.write(Journal.Entry($0)) })
  }

  /// Serves until a signal ends it.
  /// - Throws: `SystemError`, `StreamServer.Mistake`.
  func run() throws {
    signals = try Signals([SIGTERM, SIGINT, SIGHUP], on: loop) { [unowned self] in handle($0) }
    Self.openTimers()
    try sources.start()
    try server.start()
    let passed = manager.takeDescriptors()
    var stored = passed.stored
    let connections = KeptConnections.take(
      from: &stored, for: limits, manager, journal)
    let streams = RunningStreams(
      server, sources, journal,
      KeptLogs(configuration.server, stored: stored, manager: manager, journal: journal))
    try streams.begin(configuration.streams)
    goOn(with: connections)
    try listen(on: passed)
    startWatchdog()
    journal.write(.start, .info, "streamd \(Version.current) serves \(counted(configuration.streams.count, "stream"))")
    manager.notify(.ready, .status(status()))
    reload = Reload(of: path, configuration, to: streams, on: loop, journal, manager) { [unowned self] in status() }
    if manager.isPresent { logControl = LogControlWatch(journal, on: loop) }
    loop.run()
    if let ownSocket { unlink(ownSocket) }
    streams.close(within: Self.diskTime)
    journal.write(.stop, .info, "streamd has stopped")
    journal.flush(within: .milliseconds(500))
    if handsOver { manager.settle(within: .seconds(2)) } else { manager.flush(within: .milliseconds(500)) }
  }

  // MARK: Parts

  /// Returns once every connection is back at its place, so that nothing that a source brings can be missed.
  private func goOn(with connections: SavedConnections?) {
    let done = DispatchSemaphore(value: 0)
    server.goOn(with: connections) { done.signal() }
    done.wait()
  }

  private func listen(on passed: PassedDescriptors) throws(SystemError) {
    for refusal in passed.refusals {
      journal.write(.descriptorRefused, .warning, "socket \"\(refusal.name)\" is not served: \(refusal.reason)")
    }
    for listener in passed.listeners { server.listen(on: OwnedDescriptor(listener.descriptor)) }
    guard passed.listeners.isEmpty else { return }
    let path = configuration.server.socket
    server.listen(on: try UnixSocket.listen(at: path, mode: configuration.server.mode))
    ownSocket = path
  }

  /// The configuration's limits as far as there are descriptors.
  private static func limits(_ configuration: Configuration, _ journal: Journal) throws(SystemError) -> ServerLimits {
    var limits = ServerLimits(configuration.server)
    let budget = DescriptorBudget.take()
    let loops = limits.workers > 0 ? limits.workers : max(1, sysconf(CInt(_SC_NPROCESSORS_ONLN)))
    let most = try budget.connectionLimit(for: configuration.streams, loops: loops)
    if limits.connections > most {
      journal.write(
        .limitReached, .warning,
        "max_connections is \(limits.connections), of which \(most) fit: "
          + "the descriptor limit (LimitNOFILE=) is \(budget.limit)")
      limits.connections = most
    }
    return limits
  }

  /// Dispatch opens the descriptors of its timers with the first timer of each clock, and traps when there are none left.
  private static func openTimers() {
    let fired = DispatchGroup()
    fired.enter()
    DispatchQueue.global().asyncAfter(deadline: .now() + .milliseconds(1)) { fired.leave() }
    fired.enter()
    DispatchQueue.global().asyncAfter(wallDeadline: .now() + .milliseconds(1)) { fired.leave() }
    fired.wait()
  }

  // MARK: The service manager

  private func startWatchdog() {
    guard manager.isPresent else { return }
    let period = manager.watchdogInterval.map { Watchdog.period(for: $0) }
    if period != nil {
      let loops = server.loops + [sources.loop]
      watchdog = Watchdog(participants: loops.map { loop in { beat in loop.execute(beat) } }) { [manager] in
        manager.notify(.watchdog)
      }
    }
    tick(every: period ?? Self.statusPeriod)
  }

  private func tick(every period: Duration) {
    if let late = watchdog?.tick(), !late.isEmpty {
      journal.write(.progressLate, .warning, "\(late.count) of the event loops have not come round in \(period)")
    }
    manager.notify(.status(status()))
    _ = loop.schedule(after: period) { [unowned self] in tick(every: period) }
  }

  private func status() -> String {
    let statistics = server.statistics
    let now = EventLoop.monotonicNow()
    let seconds = max(1e-3, Double(now - lastStatus) / 1e9)
    let rate = Double(statistics.eventsOut &- lastEventsOut) / seconds
    (lastStatus, lastEventsOut) = (now, statistics.eventsOut)
    return [
      counted(statistics.streams, "stream"), counted(statistics.subscribers, "subscriber"),
      "\(Int(rate.rounded())) events per second",
    ].joined(separator: ", ")
  }

  // MARK: Signals

  private func handle(_ signal: CInt) {
    if signal == SIGHUP {
      reload?.begin()
    } else if !isStopping {
      isStopping = true
      if let reload { reload.end { [unowned self] in stop(on: signal) } } else { stop(on: signal) }
    }
  }

  private func stop(on signal: CInt) {
    // Clients can be given to a process that is to come, over the socket that the manager holds meanwhile.
    handsOver = manager.storeLimit > 0 && ownSocket == nil && signal == SIGTERM && manager.ending() != .stop
    manager.notify(.stopping, .status(handsOver ? "Restarting" : "Stopping"))
    journal.write(.stop, .info, "streamd stops on \(signal == SIGTERM ? "SIGTERM" : "SIGINT")")
    let loop = loop
    let parts = DispatchGroup()
    parts.enter()
    if handsOver {
      server.handOver { [manager, journal] saved in
        KeptConnections.store(saved, with: manager, journal)
        parts.leave()
      }
    } else {
      server.stop { parts.leave() }
    }
    parts.enter()
    sources.stop(within: Self.programTime) { parts.leave() }
    parts.notify(queue: .global()) { loop.stop() }
    _ = loop.schedule(after: Self.stopTime) { loop.stop() }
  }
}

/// `1 stream`, `2 streams`.
func counted(_ count: Int, _ noun: String) -> String { "\(count) \(noun)\(count == 1 ? "" : "s")" }
