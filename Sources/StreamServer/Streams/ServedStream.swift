import StreamRuntime
import StreamProtocol
import Events
import Reactive
import ReplayLog
import Synchronization

/// One stream of the server: its configuration, its log, and how its source is doing.
final class ServedStream: Sendable {
  /// As clients ask for it.
  let name: String
  let log: SharedLog<EventLog, StreamFailure>
  /// The id that its first event in this process gets; changes with the log's lock held.
  private let firstID: Atomic<UInt64>
  /// The id that its next event would have had in the process before; 0: not known.
  private let formerEnd = Atomic<UInt64>(0)
  /// From which id on all of them were given to events; `.max` where that is unknown.
  private let formerCountedFrom = Atomic<UInt64>(.max)
  /// What feeds a stream of the server itself; nil for the others.
  let feed: SystemFeed?
  private let terms: Locked<Terms>
  /// Largest event that the log can hold, in bytes of data.
  private let eventLimit: EventLimit
  private let valueErrors = Atomic<UInt64>(0)
  private let sourceStatus: Locked<SourceStatus>
  private let laneCounters = Locked<[ObjectIdentifier: LaneCounters]>([:])
  private let holder = Locked<Holder?>(nil)
  private let remark = Locked<String?>(nil)
  /// What users owe for members that have left its lanes.
  let debts = Locked(UserDebts())

  /// Whom the source has been waiting for, for a while.
  struct Holder: Sendable, Equatable {
    let client: ClientIdentity
    /// Events that it has not been sent.
    let unread: UInt64
  }

  /// What may change while it is served.
  private struct Terms {
    var configuration: StreamConfiguration
    /// Less what could never fit into the log, whatever its size is then.
    var source: AnyPublisher<EventBatch, StreamFailure>?
    var publishSource: PublishSource?
  }

  /// Apart from the stream, which would otherwise own itself by way of what feeds it.
  private final class EventLimit: Sendable {
    let bytes: Atomic<Int>
    init(_ bytes: Int) { self.bytes = Atomic(bytes) }
  }

  var configuration: StreamConfiguration { terms.withLock { $0.configuration } }
  /// Where clients publish to it; nil for a stream that takes nothing from them.
  var publishSource: PublishSource? { terms.withLock { $0.publishSource } }

  init(
    _ configuration: StreamConfiguration, storage: EventLog, publishSource: PublishSource? = nil,
    status: SourceStatus = SourceStatus(), feed: SystemFeed? = nil
  ) {
    name = configuration.name
    sourceStatus = Locked(status)
    terms = Locked(Terms(configuration: configuration, publishSource: publishSource))
    eventLimit = EventLimit(configuration.limits.maximumEventBytes)
    self.feed = feed
    firstID = Atomic(storage.endPosition)
    log = SharedLog(
      storage: storage, start: configuration.start, demand: .oneAtATime, overflow: configuration.overflow.ofLog)
  }

  /// What feeds the log, less what could never fit into it.
  func setSource(
    _ source: some Publisher<some Sequence<[UInt8]>, StreamFailure>, report: @escaping @Sendable (ServerReport) -> Void
  ) {
    let fitting = fitting(source, report)
    terms.withLock { $0.source = fitting }
    log.setUpstream(fitting)
  }

  private func fitting(
    _ source: some Publisher<some Sequence<[UInt8]>, StreamFailure>,
    _ report: @escaping @Sendable (ServerReport) -> Void
  ) -> AnyPublisher<EventBatch, StreamFailure> {
    source.map { [name, eventLimit] events in
      let batch = events as? EventBatch ?? EventBatch(events)
      return Self.fitting(batch, into: name, eventLimit.bytes.load(ordering: .relaxed), report: report)
    }.eraseToAnyPublisher()
  }

  private static func fitting(
    _ batch: EventBatch, into name: String, _ limit: Int, report: (ServerReport) -> Void
  ) -> EventBatch {
    guard batch.largestByteCount > limit else { return batch }
    let fitting = batch.filter { $0.count <= limit }
    report(.eventsTooLarge(stream: name, count: batch.count - fitting.count, limit: limit))
    return fitting
  }

  /// The rules for reading and for writing together: clients that match one see that the stream exists.
  var visibleTo: Set<AccessRules.Rule> {
    let configuration = configuration
    return publishSource == nil ? configuration.read.rules : configuration.read.rules.union(configuration.write.rules)
  }

  /// What is wrong with a value of so many bytes that a client publishes; nil: nothing.
  func valueError(ofSize byteCount: Int) -> String? {
    let limit = maximumEventBytes
    guard byteCount > limit else { return nil }
    return "a value of \(byteCount) bytes is too large for \"\(name)\", whose limit is \(limit) bytes"
  }

  /// Bytes of the largest event that the log takes, as of now.
  var maximumEventBytes: Int { eventLimit.bytes.load(ordering: .relaxed) }

  /// Cancels the source for good; the server tells its clients.
  func shutDown() {
    publishSource?.stop()
    log.shutDown()
  }

  // MARK: Going on differently

  /// Applies a change, except for the log's storage, which stays frozen until `finishChange`.
  ///
  /// - Returns: the storage, which stays unchanged meanwhile.
  func begin(_ change: StreamChange, report: @escaping @Sendable (ServerReport) -> Void) -> EventLog {
    var configuration = change.configuration
    let (oldPublishSource, oldLimit) = (publishSource, eventLimit.bytes.load(ordering: .relaxed))
    let newPublishSource = change.feed.map(\.publishSource) ?? oldPublishSource
    if newPublishSource != nil { configuration.start = .always }
    let storage = log.freeze(start: configuration.start, overflow: configuration.overflow.ofLog)
    let limit = configuration.limits.maximumEventBytes
    // What is on its way may be too large for a smaller log: it is not to arrive.
    if change.feed != nil || limit < oldLimit {
      let source = change.feed.map { fitting($0.source, report) } ?? terms.withLock { $0.source }
      if let oldPublishSource {
        if oldPublishSource === newPublishSource { oldPublishSource.interrupt() } else { oldPublishSource.stop() }
      }
      if let source {
        terms.withLock { $0.source = source }
        log.replaceUpstream(source)
      }
      if let status = change.feed?.status { sourceStatus.withLock { $0 = status } } else { status.reset() }
    }
    if limit < oldLimit { eventLimit.bytes.store(limit, ordering: .relaxed) }
    configuration.limits = storage.limits
    terms.withLock { ($0.configuration, $0.publishSource) = (configuration, newPublishSource) }
    if change.makeLog != nil { remark.withLock { $0 = nil } }
    return storage
  }

  /// Continues in another storage, which was made from the frozen one, or in the frozen one.
  func finishChange(in storage: EventLog?, report: (ServerReport) -> Void) {
    let limits = storage?.limits ?? configuration.limits
    let limit = limits.maximumEventBytes
    var reports: [ServerReport] = []
    log.thaw(storage) { Self.fitting($0, into: name, limit) { reports.append($0) } }
    let publishSource = terms.withLock { terms in
      terms.configuration.limits = limits
      return terms.publishSource
    }
    eventLimit.bytes.store(limit, ordering: .relaxed)
    publishSource?.open(limits)
    admitNamedPublishers()
    reports.forEach(report)
  }

  /// Lets named publishers join: all that is on its way to the log is in it, or waits for room.
  func admitNamedPublishers() {
    guard let publishSource else { return }
    let newest = log.overflowInputs.last { $0.checkpoint != nil }?.checkpoint
    publishSource.admitNamed(newest ?? log.read { storage, _ in storage.checkpoint })
  }

  /// Of what feeds it now.
  var status: SourceStatus { sourceStatus.withLock { $0 } }

  /// Its pipeline failed on an event.
  func countValueError() {
    valueErrors.add(1, ordering: .relaxed)
  }

  func setRemark(_ remark: String) {
    self.remark.withLock { $0 = remark }
  }

  func setHolder(_ holder: Holder) {
    self.holder.withLock { $0 = holder }
  }

  /// The client no longer holds the stream up.
  func clearHolder(_ client: ClientIdentity) {
    holder.withLock { if $0?.client == client { $0 = nil } }
  }

  /// What the stream's lanes on that worker count in, also those to come.
  func counters(of worker: Worker) -> LaneCounters {
    laneCounters.withLock { counters in
      if let known = counters[ObjectIdentifier(worker)] { return known }
      let new = LaneCounters()
      counters[ObjectIdentifier(worker)] = new
      return new
    }
  }

  /// As `$stats` shows it.
  /// - Parameter hasLag: whether the lanes' lag was measured lately.
  func statistics(hasLag: Bool) -> Statistics.Stream {
    let (events, bytes, newest) = log.read { storage, _ in
      (storage.endPosition - firstID.load(ordering: .relaxed), storage.appendedBytes, storage.newestTime)
    }
    let lanes = laneCounters.withLock { Array($0.values) }
    return Statistics.Stream(
      name: name, state: state(namesClients: false).word, subscribers: log.subscriberCount, eventsIn: events,
      bytesIn: bytes,
      errors: valueErrors.load(ordering: .relaxed),
      eventsOut: lanes.reduce(0) { $0 &+ $1.eventsOut.load(ordering: .relaxed) },
      bytesOut: lanes.reduce(0) { $0 &+ $1.bytesOut.load(ordering: .relaxed) },
      lag: hasLag ? lanes.reduce(0) { max($0, $1.lag.load(ordering: .relaxed)) } : nil, newest: newest)
  }

  /// Whether its log has begun with this process and holds nothing yet.
  var isNew: Bool {
    log.read { storage, _ in
      storage.endPosition == firstID.load(ordering: .relaxed) && storage.firstPosition == storage.endPosition
    }
  }

  // MARK: From one process to the next

  /// Gives its next event the id `end.position` at least: ids below were given by the process before, also where its
  /// events are gone and the clock was set back. Only while nothing was appended here.
  func begin(after end: StreamEnd) {
    formerEnd.store(end.position, ordering: .relaxed)
    formerCountedFrom.store(end.countedFrom ?? .max, ordering: .relaxed)
    log.read { storage, _ in
      if storage.begin(at: end.position) { firstID.store(end.position, ordering: .relaxed) }
    }
  }

  /// How many events a subscriber of the process before had not got that went with a log in that process. Before anything
  /// is appended here.
  func eventsLost(from cursor: Cursor) -> UInt64 {
    let end = formerEnd.load(ordering: .relaxed)
    return isNew && cursor.position < end ? end - cursor.position : 0
  }

  /// What a subscriber of the process before has missed that has another place in this log. Before anything is appended
  /// here.
  func gap(from cursor: Cursor) -> Gap {
    let (start, end) = (formerCountedFrom.load(ordering: .relaxed), formerEnd.load(ordering: .relaxed))
    guard isNew, start <= cursor.position, cursor.position <= end else { return .unknown }
    return Gap(count: end - cursor.position)
  }

  /// Where a subscriber of the process before is in this log; nil: nowhere, as an event that is gone was sent in part.
  func restored(_ cursor: Cursor) -> Cursor? {
    let isNew = isNew
    return log.read { storage, _ in
      // A log that begins anew has none of the events before its first position.
      var position = isNew ? max(cursor.position, storage.firstPosition) : cursor.position
      position = min(storage.skip(position), storage.endPosition)
      guard cursor.sentBytes > 0 else { return Cursor(position: position) }
      guard position == cursor.position else { return nil }
      guard position >= storage.firstPosition else { return cursor }  // `fellBehind` says it
      guard position < storage.endPosition,
        unsafe cursor.sentBytes < storage.record(at: position).count - EventLog.stampBytes
      else { return nil }
      return cursor
    }
  }

  /// Appends events that had no room in the log of the process before, less what could never fit into this one.
  func append(_ batch: EventBatch, report: (ServerReport) -> Void) {
    log.append(Self.fitting(batch, into: name, maximumEventBytes, report: report))
  }

  /// As `$streams` shows it.
  /// - Parameter namesClients: whether it says which client holds the stream up.
  func summary(namesClients: Bool) -> CatalogueEntry {
    let last = log.read { storage, _ in storage.newestID }
    let state = state(namesClients: namesClients)
    return CatalogueEntry(
      name: name, description: configuration.description, type: configuration.type, source: configuration.source,
      state: state.word, message: state.message, errors: valueErrors.load(ordering: .relaxed),
      subscribers: log.subscriberCount, lastID: last)
  }

  private func state(namesClients: Bool) -> (word: String, message: String?) {
    let ending = log.read { _, completion in completion }
    switch (ending, status.state) {
    case (.finished?, _): return ("finished", nil)
    case (.failure(let failure)?, _): return ("failed", failure.message)
    case (nil, .failing(let reason)): return ("failing", reason)
    case (nil, .waiting(let reason)): return ("waiting", reason)
    case (nil, .healthy):
      if let holder = holder.withLock({ $0 }) {
        let client = namesClients ? "\(holder.client)" : "a subscriber"
        return ("blocked", "stalled by \(client), \(holder.unread) events behind")
      }
      return (log.isConnected ? "running" : "idle", remark.withLock { $0 })
    }
  }
}

/// What one stream sent to the clients of one loop, which alone writes here.
final class LaneCounters: Sendable {
  let eventsOut = Atomic<UInt64>(0)
  let bytesOut = Atomic<UInt64>(0)
  /// As of the last time it was measured.
  let lag = Atomic<UInt64>(0)

  /// No other loop adds, so there is nothing to lock the bus for.
  func count(events: Int, bytes: Int) {
    eventsOut.store(eventsOut.load(ordering: .relaxed) &+ UInt64(events), ordering: .relaxed)
    bytesOut.store(bytesOut.load(ordering: .relaxed) &+ UInt64(bytes), ordering: .relaxed)
  }
}
