import StreamProtocol
import StreamRuntime
import Systemd

/// Reloads the configuration on request, and applies either all differences or none.
///
/// Confined to the main thread, whose loop keeps running: slow work is done on the streams' queue.
final class Reload: @unchecked Sendable {  // confined to the loop, which is checked; the queue gets only values
  private enum Phase {
    case idle  // can become: reading
    case reading  // can become: applying, idle
    case applying  // can become: idle
  }

  private let path: String
  private let loop: EventLoop
  private let streams: RunningStreams
  private let sockets: ListeningSockets
  private let journal: Journal
  private let manager: ServiceManager
  private let stored: StoredConfiguration
  private let setLimits: (Configuration) -> Void
  private let show: (ConfigurationReport) -> String
  /// The configuration in effect.
  private var configuration: Configuration
  private var report: ConfigurationReport
  private var phase = Phase.idle
  /// Whether another reload was requested during the current one.
  private var isRequestedAgain = false
  private var isOver = false
  private var ended: (() -> Void)?

  /// How long the daemon's stop waits for a change of streams.
  private static let changeTimeout = Duration.seconds(2)

  /// - Parameters:
  ///   - path: the configuration's main file.
  ///   - configuration: the configuration in effect.
  ///   - report: the report on the configuration.
  ///   - stored: stores the configuration for the next process.
  ///   - setLimits: applies the limits of clients.
  ///   - show: shows the report after a reload, and returns the status line for the service manager.
  init(
    of path: String, _ configuration: Configuration, _ report: ConfigurationReport, to streams: RunningStreams,
    _ sockets: ListeningSockets, on loop: EventLoop, _ journal: Journal, _ manager: ServiceManager,
    _ stored: StoredConfiguration, setLimits: @escaping (Configuration) -> Void,
    show: @escaping (ConfigurationReport) -> String
  ) {
    self.path = path
    self.configuration = configuration
    self.report = report
    self.streams = streams
    self.sockets = sockets
    self.loop = loop
    self.journal = journal
    self.manager = manager
    self.stored = stored
    self.setLimits = setLimits
    self.show = show
  }

  /// Begins a reload, or requests another one after the current reload.
  func begin() {
    loop.assertOnLoop()
    guard !isOver else { return }
    guard phase == .idle else {
      isRequestedAgain = true
      return
    }
    phase = .reading
    report.readAt = EventLoop.monotonicNow() / 1000
    manager.notify(.reloading)
    streams.queue.async { [self, path] in
      let reading = Result { () throws(ConfigurationErrors) in try ConfigurationSource.load(path: path) }
      loop.execute { self.take(reading) }
    }
  }

  /// Prevents further reloads. `completed` is called once, now or when the current change of streams is complete.
  func end(completed: @escaping () -> Void) {
    loop.assertOnLoop()
    isOver = true
    guard phase == .applying else { return completed() }
    ended = completed
    _ = loop.schedule(after: Self.changeTimeout) { [self] in reportEnd() }
  }

  private func reportEnd() { ended.take()?() }

  private func take(_ reading: Result<ConfigurationSource, ConfigurationErrors>) {
    loop.assertOnLoop()
    guard !isOver else { return }
    switch reading {
    case .failure(let mistakes): refuse(mistakes.sentences)
    case .success(let new):
      let difference = ConfigurationDifference(from: configuration, to: new.configuration)
      if let stream = difference.unsharedStream {
        let text = "share = \"fleet\" needs a restart, as the daemon was started without [cluster]"
        return refuse(new.errors(at: ["streams", stream, "share"], text).sentences)
      }
      do {
        try sockets.open(new.configuration.server.listen)
      } catch {
        return refuse(["\(path): server.listen: \(error)"])
      }
      phase = .applying
      streams.queue.async { [self, streams] in
        let outcome = Result { try streams.apply(difference) }
        loop.execute { self.take(outcome, of: difference, new) }
      }
    }
  }

  private func take(
    _ outcome: Result<Void, any Error>, of difference: ConfigurationDifference, _ new: ConfigurationSource
  ) {
    switch outcome {
    case .failure(let error):
      sockets.discard()
      refuse(["\(path): not enough resources: \(error)"])
    case .success:
      // Before a new socket accepts clients that need a new name of the server. Other sources leave clients another number of
      // descriptors.
      setLimits(new.configuration)
      streams.setMemory(new.configuration)
      sockets.apply()
      let (server, cluster) = (configuration.server, configuration.cluster)
      configuration = new.configuration
      configuration.server.keepUntilRestart(of: server)
      configuration.cluster = cluster
      report(difference)
      if let excess = MemoryBudget.remark(on: new.configuration) { journal.write(.limitReached, .warning, excess) }
      stored.store(new.files, with: manager, journal)
      (report.text, report.error) = (new.text, nil)
      report.restartKeys = difference.restartKeys.isEmpty ? nil : difference.restartKeys
      finish()
    }
  }

  private func report(_ difference: ConfigurationDifference) {
    let former = journal.level
    let level = difference.logLevel ?? former
    // Written at the more verbose of the two levels, so that the entry appears.
    journal.level = max(former, level)
    journal.write(.reloaded, .info, "configuration reloaded: \(difference.summary)")
    if level != former { journal.write(.logLevelChanged, .notice, "log level is now \(level), was \(former)") }
    journal.level = level
    guard !difference.restartKeys.isEmpty else { return }
    journal.write(
      .restartNeeded, .notice, "takes effect after a restart: \(difference.restartKeys.joined(separator: ", "))")
  }

  private func refuse(_ sentences: [String]) {
    for sentence in sentences { journal.write(.reloadRefused, .error, "configuration not reloaded: \(sentence)") }
    report.error = ConfigurationErrors.summary(of: sentences)
    finish()
  }

  private func finish() {
    loop.assertOnLoop()
    phase = .idle
    if isOver { return reportEnd() }
    manager.notify(.ready, .status(show(report)))
    guard isRequestedAgain else { return }
    isRequestedAgain = false
    begin()
  }
}
