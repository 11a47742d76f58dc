import Events
import FoundationEssentials
import ReplayLog
import StreamProtocol
import StreamRuntime

extension ServedStream {
  /// Its entry in `$streams`.
  /// - Parameter showsNames: whether it names the client that stalls the stream, and the host that leads it.
  func summary(showsNames: Bool) -> CatalogueEntry {
    let last = log.read { storage, _ in storage.newestID }
    let state = state(showsNames: showsNames)
    let fleet = status.listedFleet(at: EventLoop.monotonicNow())
    let staleSince = freshness.withLock { $0?.stale?.wallTime }
    let keyedState = keyedState
    return CatalogueEntry(
      name: name, description: configuration.description, type: configuration.type, source: configuration.source,
      state: state.word, message: state.message, errors: valueErrors.load(ordering: .relaxed),
      malformed: keying.malformed.load(ordering: .relaxed),
      subscribers: log.subscriberCount, lastID: last, keys: keyedState?.keys,
      key: configuration.key.flatMap { JSONPaths.pointer(ofProgram: $0.key) },
      tombstone: configuration.key?.tombstone.flatMap { JSONPaths.pointer(ofProgram: $0) },
      incompleteSince: keyedState?.incompleteness?.since, staleSince: staleSince,
      fleet: fleet.map { .init($0, showsNames: showsNames) })
  }

  /// That nothing has come for too long, for the message of its state; nil: something has.
  private var staleness: String? {
    guard let limit = configuration.expectEvery, let stale = freshness.withLock({ $0?.stale }) else { return nil }
    return "\(Self.staleSince(stale.wallTime)): nothing has come for longer than expect_every, \(limit.inUnits)"
  }

  /// `stale since 2026-01-01T00:00:00Z`
  fileprivate static func staleSince(_ time: UInt64) -> String {
    "stale since \(Date(timeIntervalSince1970: Double(time / 1_000_000)).formatted(.iso8601))"
  }

  func state(showsNames: Bool) -> (word: String, message: String?) {
    let ending = log.read { _, completion in completion }
    let status = status
    // Two sentences, if the source has a problem as well.
    func message(_ reason: String?) -> String? {
      let reasons = [reason, keyedState?.incompleteness?.sentence, staleness, status.fleet?.staleness].compactMap { $0 }
      return reasons.isEmpty ? nil : reasons.joined(separator: "; ")
    }
    switch (ending, status.state) {
    case (.finished?, _): return ("finished", nil)
    case (.failure(let failure)?, _): return ("failed", failure.message)
    case (nil, .failing(let reason)): return ("failing", message(reason))
    case (nil, .waiting(let reason)): return ("waiting", message(reason))
    case (nil, .healthy):
      if let holder = holder.withLock({ $0 }) {
        let client = showsNames ? "\(holder.client)" : "a subscriber"
        return ("blocked", message("stalled by \(client), \(holder.unread) events behind"))
      }
      return (log.isConnected ? "running" : "idle", message(remark.withLock { $0 }))
    }
  }
}

extension FleetStatus {
  /// That newer events may exist elsewhere, for the message of a stream's state; nil: there are none.
  fileprivate var staleness: String? {
    staleSince.map { since in
      "\(ServedStream.staleSince(since)): \(isLeading ? "the brokers do not confirm a record" : "no leader is heard")"
    }
  }
}
