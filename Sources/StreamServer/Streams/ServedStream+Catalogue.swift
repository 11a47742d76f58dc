import Events
import FoundationEssentials
import ReplayLog
import StreamProtocol
import StreamRuntime

extension ServedStream {
  /// Whether it has a source that a configuration names: it is neither a system stream nor one of a program's own.
  var isConfigured: Bool { rendering == nil && configuration.source != StreamConfiguration(name: "").source }

  /// Events that its source has lost before it read them; nil: see `SourceStatus.missed`.
  var missedEvents: UInt64? { status.missed }

  /// The stream's entry in `$streams`.
  /// - Parameters:
  ///   - showsNames: whether it names the reader that stalls the stream, the host that leads it, and its bases.
  ///   - survey: the survey that all entries share.
  func summary(showsNames: Bool, _ survey: inout BaseSurvey) -> CatalogueEntry {
    let last = log.read { storage, _ in storage.newestID }
    let state = state(showsNames: showsNames, &survey)
    let staleSince = survey.finding(on: self).staleSince
    let fleet = status.listedFleet(at: EventLoop.monotonicNow())
    let (keyedState, missed) = (keyedState, missedEvents)
    return CatalogueEntry(
      name: name, description: configuration.description, type: configuration.type, source: configuration.source,
      state: state.word, message: state.message, errors: failedEvents,
      malformed: keying.malformed.load(ordering: .relaxed),
      missed: missed, subscribers: log.subscriberCount, lastID: last, keys: keyedState?.keys,
      key: configuration.key.flatMap { JSONPaths.pointer(ofProgram: $0.key) },
      tombstone: configuration.key?.tombstone.flatMap { JSONPaths.pointer(ofProgram: $0) },
      incompleteSince: keyedState?.incompleteness?.since, staleSince: staleSince,
      expectEvery: configuration.expectEvery.map { UInt64(max(0, $0 / .microseconds(1))) },
      fleet: fleet.map { .init($0, showsNames: showsNames) }, map: listedMap, onDisk: storage.withLock { $0 }.isOnDisk,
      template: configuration.template)
  }

  /// The sentence that nothing has come for too long, for the message of the state; nil: the stream is not stale.
  private var staleness: String? {
    guard let limit = configuration.expectEvery, let stale = freshness.withLock({ $0?.stale }) else { return nil }
    return "\(Self.staleSince(stale.wallTime)): nothing has come for longer than expect_every, \(limit.inUnits)"
  }

  /// `stale since 2026-01-01T00:00:00Z`
  fileprivate static func staleSince(_ time: UInt64) -> String { "stale since \(written(time))" }

  /// A time as `2026-01-01T00:00:00Z`.
  fileprivate static func written(_ time: UInt64) -> String {
    Date(timeIntervalSince1970: Double(time / 1_000_000)).formatted(.iso8601)
  }

  /// - Parameters: as for `summary`.
  func state(showsNames: Bool, _ survey: inout BaseSurvey) -> (word: String, message: String?) {
    let ending = log.read { _, completion in completion }
    let (status, fault) = (status, storage.withLock { $0 }.fault)
    // The sentences of all problems, with the given reason first.
    func message(_ reason: String?) -> String? {
      let reasons = [
        reason, status.fleet?.outage?.sentence(showsReason: showsNames), fault,
        keyedState?.incompleteness?.sentence, staleness, status.fleet?.staleness,
        status.fleet?.difference(showsNames: showsNames),
      ].compactMap { $0 }
      return reasons.isEmpty ? nil : reasons.joined(separator: "; ")
    }
    switch (ending, status.health) {
    case (.finished?, _): return ("finished", fault)
    case (.failure(let failure)?, _): return ("failed", failure.message + (fault.map { "; \($0)" } ?? ""))
    case (nil, .failing(let reason)): return ("failing", message(reason))
    case (nil, .waiting(let reason)): return ("waiting", message(reason))
    case (nil, .healthy) where status.fleet?.outage != nil: return ("waiting", message(nil))
    case (nil, .healthy):
      if let holder = holder.withLock({ $0 }) {
        let reader = showsNames ? "\(holder.reader)" : "a subscriber"
        return ("blocked", message("stalled by \(reader), \(holder.unread) events behind"))
      }
      guard log.isConnected else { return ("idle", message(nil)) }
      if let trouble = survey.finding(on: self).trouble {
        return (trouble.word, message(trouble.sentence(showsNames: showsNames)))
      }
      return ("running", message(nil))
    }
  }
}

extension CatalogueEntry {
  /// The entry without what changes with each event or subscription, for `$changes`.
  var lasting: Self {
    var entry = self
    (entry.errors, entry.malformed, entry.missed, entry.subscribers) = (nil, nil, nil, nil)
    (entry.lastID, entry.keys) = (nil, nil)
    entry.fleet?.lag = nil
    entry.map?.readers = nil
    // Its message has the number of unread events.
    if entry.state == "blocked" { entry.message = nil }
    return entry
  }
}

extension ServedStream.Holder.Reader: CustomStringConvertible {
  var description: String {
    switch self {
    case .client(let client): "\(client)"
    case .stream(let name): "\"\(name)\", which is made of it"
    }
  }
}

extension FleetStatus.Outage {
  /// - Parameter showsReason: whether it has the reason, which can name the brokers.
  fileprivate func sentence(showsReason: Bool) -> String {
    "no connection to the fleet's brokers since \(ServedStream.written(since))" + (showsReason ? " (\(reason))" : "")
  }
}

extension FleetStatus {
  /// The sentence that newer events may exist elsewhere, for the message of a stream's state; nil: this host is up to
  /// date.
  fileprivate var staleness: String? {
    staleSince.map { since in
      "\(ServedStream.staleSince(since)): \(isLeading ? "the brokers do not confirm a record" : "no leader is heard")"
    }
  }
}
