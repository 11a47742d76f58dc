import Reactive
import ReplayLog

/// One stream of the server: its configuration, its log, and how its source is doing.
final class ServedStream: Sendable {
  let configuration: StreamConfiguration
  let log: SharedLog<EventLog, StreamFailure>
  /// The id that its first event got.
  let firstID: UInt64
  /// Brings a system stream up to date before it is read; nil for the others.
  let refresh: (@Sendable () -> Void)?
  private let sourceState = Guarded(SourceState.healthy)
  private let holder = Guarded<Holder?>(nil)

  /// Whom the source has been waiting for, for a while.
  struct Holder: Sendable, Equatable {
    let client: ClientIdentity
    /// Events that it has not been sent.
    let unread: UInt64
  }

  var name: String { configuration.name }

  init(
    _ configuration: StreamConfiguration, storage: EventLog, refresh: (@Sendable () -> Void)? = nil
  ) {
    self.configuration = configuration
    self.refresh = refresh
    firstID = storage.endPosition
    log = SharedLog(
      storage: storage, start: configuration.start, demand: .oneAtATime,
      overflow: configuration.overflow == .drop ? .dropOldest : .waitForSlowest)
  }

  /// What feeds the log, less what could never fit into it.
  func setSource(
    _ source: some Publisher<[[UInt8]], StreamFailure>, report: @escaping @Sendable (ServerReport) -> Void
  ) {
    let limit = configuration.limits.maximumEventBytes
    let name = name
    log.setUpstream(
      source.map { batch in
        let fitting = batch.filter { $0.count <= limit }
        if fitting.count < batch.count {
          report(.eventsTooLarge(stream: name, count: batch.count - fitting.count, limit: limit))
        }
        return fitting
      }.eraseToAnyPublisher())
  }

  func note(_ state: SourceState) {
    sourceState.withLock { $0 = state }
  }

  func note(_ holder: Holder) {
    self.holder.withLock { $0 = holder }
  }

  /// The client no longer holds the stream up.
  func release(_ client: ClientIdentity) {
    holder.withLock { if $0?.client == client { $0 = nil } }
  }

  /// As `$streams` shows it.
  var summary: StreamSummary {
    let (last, events, bytes, ending) = log.read { storage, completion in
      (
        storage.endPosition == firstID ? nil : storage.endPosition - 1, storage.endPosition - firstID,
        storage.appendedBytes, completion
      )
    }
    var state = log.isConnected ? "running" : "idle"
    var message: String?
    switch (ending, sourceState.withLock { $0 }) {
    case (.finished?, _): state = "finished"
    case (.failure(let failure)?, _): (state, message) = ("failed", failure.message)
    case (nil, .failing(let reason)): (state, message) = ("failing", reason)
    case (nil, .healthy):
      guard let holder = holder.withLock({ $0 }) else { break }
      (state, message) = ("blocked", "waits for \(holder.client), \(holder.unread) events behind")
    }
    return StreamSummary(
      name: name, description: configuration.description, type: configuration.type, source: configuration.source,
      state: state, message: message, subscribers: log.subscriberCount, lastID: last, eventsIn: events, bytesIn: bytes)
  }
}

/// One row of the catalogue.
struct StreamSummary: Encodable, Equatable {
  let name: String
  let description: String
  let type: String
  let source: String
  /// `idle`, `running`, `blocked` (by a subscriber), `failing` (and retried), `finished` or `failed` (for good).
  let state: String
  /// Why, for the blocked, failing and failed.
  let message: String?
  let subscribers: Int
  let lastID: UInt64?
  let eventsIn: UInt64
  let bytesIn: UInt64

  private enum CodingKeys: String, CodingKey {
    case name, description, type, source, state, message, subscribers
    case lastID = "last_id"
  }
}
