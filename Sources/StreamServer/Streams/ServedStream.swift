import Events
import FoundationEssentials
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Synchronization

/// One stream of the server: its configuration, its log, and the state of its source.
final class ServedStream: Sendable {
  /// The name in requests.
  let name: String
  let log: SharedLog<EventLog, StreamFailure>
  /// The id of its first event in this process; changed under the log's lock.
  let firstID: Atomic<UInt64>
  /// The next id in the previous process; 0: unknown.
  private let formerEnd = Atomic<UInt64>(0)
  /// The first id from which on all ids were assigned to events in the previous process; `.max`: unknown.
  private let formerCountedFrom = Atomic<UInt64>(.max)
  /// The known results of JSON checks. Used under the log's lock.
  let contentVerdicts = ContentVerdicts()
  /// The value of a system stream; nil for others.
  let rendering: SystemRendering?
  /// When a stream of a template was in use last; nil for others.
  let use: StreamUse?
  private let terms: Locked<Terms>
  /// The largest event that fits into the log, in bytes of data.
  private let eventLimit: EventLimit
  let keying: Keying
  private let pipelineFailures = Atomic<UInt64>(0)
  private let lagged = Atomic<UInt64>(0)
  private let sourceStatus: Locked<SourceStatus>
  private let laneCounters = Locked<[ObjectIdentifier: LaneCounters]>([:])
  let holder = Locked<Holder?>(nil)
  let storage = Locked<StreamStorage>(.memory)
  let freshness = Locked<Freshness?>(nil)
  /// The watcher of a stream that has, or had, keys.
  private let stateWatcher = Locked<StateWatcher?>(nil)
  /// The map of a stream that is mapped; see `changeMap`.
  let map = Locked<StreamMap?>(nil)
  /// The number of requests for the demand of the map's readers.
  let mapReaders = Atomic(0)
  /// The filters of its subscriptions.
  let filters = StreamFilters()
  /// The debts of users whose subscriptions have ended.
  let debts = Locked(UserDebts())

  /// The reader that stalls the source for longer than ordinary backpressure.
  struct Holder: Sendable, Equatable {
    /// The client or the stream that reads. Few streams have one at a time.
    indirect enum Reader: Sendable, Equatable {
      case client(ClientIdentity)
      /// A stream that is made of this one, by its name.
      case stream(String)
    }

    let reader: Reader
    /// The number of unsent events.
    let unread: UInt64
  }

  /// The freshness of a stream with a limit on the time without an event. An object, because most streams have none.
  final class Freshness {
    var machine: FreshnessMachine
    /// The time since which the stream is stale, on the monotonic and on the wall clock. Later changes of the clocks do
    /// not change it.
    private(set) var stale: (since: UInt64, wallTime: UInt64)?
    /// The id of the timer that checks the freshness. A timer with another id ends.
    let id: UInt64

    init(machine: FreshnessMachine, id: UInt64) { (self.machine, self.id) = (machine, id) }

    /// - Parameter now: nanoseconds of the monotonic clock.
    func update(at now: UInt64) {
      let since = machine.staleSince
      guard since != stale?.since else { return }
      let wallTime = EventLoop.wallClock()
      stale = since.map { ($0, wallTime - min(wallTime, (now - min(now, $0)) / 1000)) }
    }
  }

  /// The properties that may change while the stream is served.
  private struct Terms {
    var configuration: StreamConfiguration
    /// The source, without events that exceed the log's present limit.
    var source: AnyPublisher<EventBatch, StreamFailure>?
    var publishSource: PublishSource?
  }

  /// Which events enter the log: the size limit, and the number of events that exceeded it. It is a separate object, to
  /// avoid a reference cycle through the stream's source.
  private final class EventLimit: Sendable {
    let bytes: Atomic<Int>
    let exceeded = Atomic<UInt64>(0)
    private let isPublished = Atomic(false)
    private let isJSON = Atomic(false)

    init(_ configuration: StreamConfiguration) {
      bytes = Atomic(configuration.maximumEventBytes(in: configuration.limits))
      adapt(to: configuration)
    }

    func adapt(to configuration: StreamConfiguration) {
      isPublished.store(configuration.source == "publish", ordering: .relaxed)
      isJSON.store(configuration.hasJSONType, ordering: .relaxed)
    }

    /// A batch of published values without empty ones, and without white space alone where the type is JSON. The daemon's
    /// other sources leave them out themselves, and the events of a program's own publisher are as it made them.
    func withoutEmpty(_ batch: EventBatch) -> EventBatch {
      isPublished.load(ordering: .relaxed) ? batch.withoutEmpty(isJSON: isJSON.load(ordering: .relaxed)) : batch
    }

    /// The events of a batch that do not exceed the limit. Counts and reports the others.
    /// - Parameter other: a limit that applies instead.
    func fitting(
      _ batch: EventBatch, into name: String, other: Int? = nil, report: (ServerReport) -> Void
    ) -> EventBatch {
      let limit = other ?? bytes.load(ordering: .relaxed)
      // The log leaves out events of a batch with stamps itself, each under its id; see `reportLeftOut`.
      guard batch.largestByteCount > limit, batch.stamps == nil else { return batch }
      let fitting = batch.filter { $0.count <= limit }
      note(batch.count - fitting.count, of: name, limit, report: report)
      return fitting
    }

    func note(_ count: Int, of name: String, _ limit: Int, report: (ServerReport) -> Void) {
      exceeded.add(UInt64(count), ordering: .relaxed)
      report(.eventsTooLarge(stream: name, count: count, limit: limit))
    }
  }

  /// Whether published values that are not JSON are refused.
  private let requiresJSON: Atomic<Bool>

  var configuration: StreamConfiguration { terms.withLock { $0.configuration } }
  /// The text of the name of the template that has made the stream; nil: none has.
  var template: String? { terms.withLock { $0.configuration.template } }
  /// The source of a stream to which clients publish; nil for others.
  var publishSource: PublishSource? { terms.withLock { $0.publishSource } }

  init(
    _ configuration: StreamConfiguration, storage: EventLog, publishSource: PublishSource? = nil,
    status: SourceStatus = SourceStatus(), rendering: SystemRendering? = nil, use: StreamUse? = nil
  ) {
    name = configuration.name
    sourceStatus = Locked(status)
    terms = Locked(Terms(configuration: configuration, publishSource: publishSource))
    eventLimit = EventLimit(configuration)
    keying = Keying(configuration)
    requiresJSON = Atomic(configuration.requiresJSON)
    (self.rendering, self.use) = (rendering, use)
    firstID = Atomic(storage.endPosition)
    log = SharedLog(
      storage: storage, start: configuration.start, demand: .oneAtATime, overflow: configuration.logOverflow)
  }

  /// Sets the upstream of the log, without empty published values, and without events that cannot fit into it.
  func setSource(
    _ source: some Publisher<some Sequence<[UInt8]>, StreamFailure>, report: @escaping @Sendable (ServerReport) -> Void
  ) {
    setUpstream(fitting(source, report))
  }

  /// As above, for the values that clients publish. What is between them and the log is small.
  func setSource(of values: PublishSource, report: @escaping @Sendable (ServerReport) -> Void) {
    let prepare: @Sendable (EventBatch) -> EventBatch = { [name, eventLimit, keying] in
      keying.key(eventLimit.fitting(eventLimit.withoutEmpty($0), into: name, report: report))
    }
    setUpstream(PublishSource.Prepared(values: values, prepare: prepare).eraseToAnyPublisher())
  }

  private func setUpstream(_ source: AnyPublisher<EventBatch, StreamFailure>) {
    terms.withLock { $0.source = source }
    log.setUpstream(source)
  }

  private func fitting(
    _ source: some Publisher<some Sequence<[UInt8]>, StreamFailure>,
    _ report: @escaping @Sendable (ServerReport) -> Void
  ) -> AnyPublisher<EventBatch, StreamFailure> {
    source.map(own { $0 as? EventBatch ?? EventBatch($0) }).map { [name, eventLimit, keying] batch in
      keying.key(eventLimit.fitting(eventLimit.withoutEmpty(batch), into: name, report: report))
    }.eraseToAnyPublisher()
  }

  /// The rules for reading and writing.
  var access: StreamAccess {
    let (readers, writers) = (configuration.read.rules, configuration.write.rules)
    return StreamAccess(readableBy: readers, visibleTo: publishSource == nil ? readers : readers.union(writers))
  }

  /// The reason to refuse a published value of this size; nil: there is none.
  /// - Parameter isWhole: whether `byteCount` is the size of the value; if not, the value has at least that many bytes.
  func refusal(ofSize byteCount: Int, isWhole: Bool = true) -> RequestFailure? {
    let limit = maximumEventBytes
    guard byteCount > limit else { return nil }
    let value = isWhole ? "a value of \(byteCount) bytes" : "the value"
    return RequestFailure(.tooLarge, "\(value) is too large for \"\(name)\", whose limit is \(limit) bytes")
  }

  /// Whether published values have to be JSON texts.
  var wantsJSON: Bool { requiresJSON.load(ordering: .relaxed) }

  /// The reason to refuse a published value; nil: there is none. Counts a value that is refused because it is not JSON.
  func refusal(of value: Span<UInt8>) -> RequestFailure? {
    if let failure = refusal(ofSize: value.count) { return failure }
    guard wantsJSON, !JSONSyntax.holds(for: value) else { return nil }
    return refuseMalformed()
  }

  /// Why a published value is no event: it is empty or, where JSON is meant, white space alone; nil: it is one.
  func emptiness(of value: Span<UInt8>) -> String? {
    if value.isEmpty { return "an empty value is no event" }
    guard value[0].isWhiteSpace, configuration.takesJSON else { return nil }
    let isBlank = unsafe value.withUnsafeBytes { unsafe $0.isWhiteSpace }
    return isBlank ? "white space alone is no event in \"\(name)\", whose values are JSON" : nil
  }

  /// Counts a published value that is not JSON.
  /// - Returns: the value's error.
  func refuseMalformed() -> RequestFailure {
    countMalformed(1)
    return RequestFailure(.notJSON, "the value is not JSON, which \"\(name)\" requires")
  }

  /// The current size limit of an event in bytes.
  var maximumEventBytes: Int { eventLimit.bytes.load(ordering: .relaxed) }

  /// Whether events wait for space in the log. A restart hands them over.
  var isFull: Bool { !log.overflowInputs.isEmpty }

  /// Whether every unsettled value that the source has delivered waits for space in this stream. False if an operator
  /// between the two may hold some of them.
  func hasAll(of source: PublishSource) -> Bool { source.isDirect && isFull }

  /// Cancels the source permanently; the server ends the requests.
  func shutDown() {
    publishSource?.stop()
    log.shutDown()
    endMap()
  }

  /// Drops and reports the events that wait for space, after `shutDown`.
  func loseOverflow(_ report: (ServerReport) -> Void) {
    let count = log.takeOverflow().reduce(0) { $0 + $1.count }
    if count > 0 { report(.waitingEventsLost(stream: name, count: count)) }
  }

  /// Ends the checks of a stream that is no longer served.
  func endWatch() { freshness.withLock { $0 = nil } }

  // MARK: Changes

  /// Applies a change, except for the log's storage, which stays frozen until `finishChange`.
  ///
  /// - Returns: the storage, which does not change until then.
  func begin(_ change: StreamChange, report: @escaping @Sendable (ServerReport) -> Void) -> EventLog {
    var configuration = change.configuration
    let (oldPublishSource, oldLimit) = (publishSource, eventLimit.bytes.load(ordering: .relaxed))
    let newPublishSource = change.feed.map(\.publishSource) ?? oldPublishSource
    if newPublishSource != nil, configuration.start != .always { configuration.start = .always }
    if configuration.read != self.configuration.read { revokeMap() }
    let storage = log.freeze(start: configuration.start, overflow: configuration.logOverflow)
    let limit = configuration.maximumEventBytes(in: configuration.limits)
    // Events in flight may be too large for a smaller log, so the source is replaced.
    if change.feed != nil || limit < oldLimit {
      let source = change.feed.map { fitting($0.source, report) } ?? terms.withLock { $0.source }
      if let oldPublishSource {
        if oldPublishSource === newPublishSource { oldPublishSource.interrupt() } else { oldPublishSource.stop() }
      }
      if let source {
        terms.withLock { $0.source = source }
        log.replaceUpstream(source)
      }
      if let new = change.feed?.status {
        new.inherit(from: status)
        sourceStatus.withLock { $0 = new }
      } else {
        status.reset()
      }
    }
    if limit < oldLimit { eventLimit.bytes.store(limit, ordering: .relaxed) }
    keying.change(to: configuration)
    requiresJSON.store(configuration.requiresJSON, ordering: .relaxed)
    eventLimit.adapt(to: configuration)
    if configuration.limits != storage.limits { configuration.limits = storage.limits }
    terms.withLock { ($0.configuration, $0.publishSource) = (configuration, newPublishSource) }
    return storage
  }

  /// Continues in a storage made from the frozen one, or in the frozen one.
  func finishChange(in storage: EventLog?, report: @escaping @Sendable (ServerReport) -> Void) {
    let limits = storage?.limits ?? configuration.limits
    let limit = configuration.maximumEventBytes(in: limits)
    var reports: [ServerReport] = []
    if storage == nil {
      // The state of the present log has the former keys, so it lacks all events from now on.
      log.read { [keying] storage, _ in
        if let state = storage.state, state.origin.keyDigest != keying.definition { state.leaveOutLaterEvents() }
      }
    }
    changeMap(to: storage, report: report)
    let publishSource = terms.withLock { terms in
      if terms.configuration.limits != limits { terms.configuration.limits = limits }
      return terms.publishSource
    }
    // Before the log asks for values again.
    publishSource?.open(limits, largestEvent: limit)
    log.thaw(storage) {
      keying.key(eventLimit.fitting($0, into: name, other: limit) { reports.append($0) }, isNew: false)
    }
    eventLimit.bytes.store(limit, ordering: .relaxed)
    reportLeftOut(report)
    admitNamedPublishers()
    reports.forEach(report)
  }

  /// Admits named publishers. Every earlier value is in the log by now, or waits for space.
  func admitNamedPublishers() {
    guard let publishSource else { return }
    let newest = log.overflowInputs.last { $0.checkpoint != nil }?.checkpoint
    publishSource.admitNamed(newest ?? log.read { storage, _ in storage.checkpoint })
  }

  /// The status of the present source.
  var status: SourceStatus { sourceStatus.withLock { $0 } }

  /// The events on which its pipeline failed, that its source has left out, or that are too large for its log.
  var failedEvents: UInt64 { pipelineFailures.load(ordering: .relaxed) &+ eventLimit.exceeded.load(ordering: .relaxed) }

  /// Counts events on which its pipeline failed, or that its source has left out.
  func countFailedEvents(_ count: Int) {
    pipelineFailures.add(UInt64(count), ordering: .relaxed)
  }

  /// Counts events and values that are not JSON.
  func countMalformed(_ count: Int) { keying.malformed.add(UInt64(count), ordering: .relaxed) }

  /// Events evicted before a subscription was sent them.
  var laggedEvents: UInt64 { lagged.load(ordering: .relaxed) }

  func countLagged(_ lost: UInt64) { lagged.add(lost, ordering: .relaxed) }

  func setStorage(_ storage: StreamStorage) { self.storage.withLock { $0 = storage } }

  func setHolder(_ holder: Holder) { self.holder.withLock { $0 = holder } }

  /// The reader no longer stalls the stream.
  func clearHolder(_ reader: Holder.Reader) {
    holder.withLock { if $0?.reader == reader { $0 = nil } }
  }

  /// The counters of the stream's lanes on that worker, present and future.
  func counters(of worker: Worker) -> LaneCounters {
    laneCounters.withLock { counters in
      if let known = counters[ObjectIdentifier(worker)] { return known }
      let new = LaneCounters()
      counters[ObjectIdentifier(worker)] = new
      return new
    }
  }

  /// The stream's entry in `$stats`.
  /// - Parameters:
  ///   - hasLag: whether the lanes' lag was measured recently.
  ///   - survey: the survey that all entries share.
  func statistics(hasLag: Bool, _ survey: inout BaseSurvey) -> Statistics.Stream {
    let (events, bytes, newest) = log.read { storage, _ in
      (storage.appendedEvents, storage.appendedBytes, storage.newestTime)
    }
    let lanes = laneCounters.withLock { Array($0.values) }
    let (fresh, staleSince) = freshTimes(newest: newest, &survey)
    let (status, upstream) = (status, status.upstream)
    return Statistics.Stream(
      name: name, state: state(showsNames: false, &survey).word, subscribers: log.subscriberCount, eventsIn: events,
      bytesIn: bytes,
      errors: failedEvents, malformed: keying.malformed.load(ordering: .relaxed),
      eventsOut: lanes.reduce(0) { $0 &+ $1.eventsOut.load(ordering: .relaxed) },
      bytesOut: lanes.reduce(0) { $0 &+ $1.bytesOut.load(ordering: .relaxed) },
      lag: hasLag ? lanes.reduce(0) { max($0, $1.lag.load(ordering: .relaxed)) } : nil, newest: newest,
      fresh: fresh, staleSince: staleSince, expectEvery: configuration.expectEvery, keyedState: keyedState,
      fleet: status.fleet, upstream: upstream == UpstreamFigures() ? nil : upstream,
      mapReaders: listedMap?.readers, missed: missedEvents, isOnDisk: storage.withLock { $0 }.isOnDisk)
  }

  /// The stream's entry in `$history`.
  func history(before time: UInt64) -> HistorySnapshot.Stream {
    let periods = log.read { storage, _ in storage.recentPeriods(before: time) }
    guard periods.contains(where: { $0.events > 0 }) else { return .init(name: name) }
    return .init(name: name, events: periods.map(\.events), bytes: periods.map(\.bytes))
  }

  // MARK: State

  /// The size of the stream's state, and whether it is incomplete; nil for a stream without keys.
  var keyedState: KeyedStateStatus? {
    log.read { storage, _ in
      storage.state.map { .init(keys: $0.count, bytes: $0.byteCount, incompleteness: $0.incompleteness) }
    }
  }

  /// Reports whenever its state becomes incomplete, or is complete again. Called after each change of the stream.
  func watchState(report: @escaping @Sendable (ServerReport) -> Void) {
    let (watcher, isNew) = stateWatcher.withLock { watcher -> (StateWatcher?, Bool) in
      guard watcher == nil, configuration.key != nil else { return (watcher, false) }
      watcher = StateWatcher(self, report)
      return (watcher, true)
    }
    guard let watcher else { return }
    if isNew { log.attach(watcher) }
    watcher.logDidChange()
  }

  /// The id of a key's newest event in the state; nil: the state does not have the key.
  /// - Parameter text: the key, see `EventKeyReader.keys(namedBy:)`.
  func newestID(ofKey text: String) -> Result<UInt64?, SubscribeOptions.Malformed> {
    let keys = EventKeyReader.keys(namedBy: text)
    return log.read { storage, _ in
      Result { () throws(SubscribeOptions.Malformed) in
        let state = try SubscribeOptions.Start.state(of: storage)
        for key in keys {
          guard let record = unsafe key.withUnsafeBytes({ unsafe state.newest($0) }) else { continue }
          return UInt64(bigEndian: unsafe record.part(0..<8).loadUnaligned(as: UInt64.self))
        }
        return nil
      }
    }
  }

  // MARK: Handover

  /// Whether its log was created by this process and is empty.
  var isNew: Bool {
    log.read { storage, _ in
      storage.endPosition == firstID.load(ordering: .relaxed) && storage.firstPosition == storage.endPosition
    }
  }

  /// Raises the id of the next event to `end.position`, because the previous process assigned all ids below it. The
  /// events of these ids may be lost, and the clock may have been set back. Called before the first append only.
  func begin(after end: StreamEnd) {
    formerEnd.store(end.position, ordering: .relaxed)
    formerCountedFrom.store(end.countedFrom ?? .max, ordering: .relaxed)
    if let freshness = end.freshness { restore(freshness) }
    if let generation = end.mapGeneration { raiseMap(over: generation) }
    log.read { storage, _ in
      if storage.begin(at: end.position) { firstID.store(end.position, ordering: .relaxed) }
    }
  }

  /// The number of events that a restored subscription was not sent and that were lost with the previous log. Called
  /// before the first append only.
  func eventsLost(from cursor: Cursor) -> UInt64 {
    let end = formerEnd.load(ordering: .relaxed)
    return isNew && cursor.position < end ? end - cursor.position : 0
  }

  /// The gap of a restored subscription whose position changes in this log. Called before the first append only.
  func gap(from cursor: Cursor) -> Gap {
    let (start, end) = (formerCountedFrom.load(ordering: .relaxed), formerEnd.load(ordering: .relaxed))
    guard isNew, start <= cursor.position, cursor.position <= end else { return .unknown }
    return Gap(count: end - cursor.position)
  }

  /// The cursor of a restored subscription in this log; nil if a partly sent event is lost.
  func restored(_ cursor: Cursor) -> Cursor? {
    let isNew = isNew
    return log.read { storage, _ in
      // A new log has no events before its first position.
      var position = isNew ? max(cursor.position, storage.firstPosition) : cursor.position
      position = min(storage.skip(position), storage.endPosition)
      guard cursor.sentBytes > 0 else { return Cursor(position: position) }
      guard position == cursor.position else { return nil }
      guard position >= storage.firstPosition else { return cursor }  // the subscription finds it `overtaken`
      guard position < storage.endPosition,
        unsafe cursor.sentBytes < storage.record(at: position).count - EventLog.stampBytes
      else { return nil }
      return cursor
    }
  }

  /// Appends events that come from outside of the pipeline, such as a fleet, without events that cannot fit into this log.
  /// - Returns: false, without any effect, after the stream's end, and for ids that no log accepts.
  @discardableResult func append(_ batch: EventBatch, report: (ServerReport) -> Void) -> Bool {
    guard EventLog.accepts(batch) else { return false }
    let isTaken = log.append(keying.key(eventLimit.fitting(batch, into: name, report: report)))
    if batch.stamps != nil { reportLeftOut(report) }
    return isTaken
  }

  /// Appends events that waited for space in the previous process. If this log cannot hold all of them, their publishers
  /// are notified.
  func restore(_ waiting: EventBatch, report: (ServerReport) -> Void) {
    let fits = waiting.largestByteCount <= maximumEventBytes
    if !append(waiting, report: report) || !fits { publishSource?.discardUnsettled() }
  }

  /// Reports the events of batches with stamps that were too large for the log, each once.
  private func reportLeftOut(_ report: (ServerReport) -> Void) {
    let (count, limit) = log.read { storage, _ in (storage.takeLeftOutCount(), storage.limits.maximumEventBytes) }
    if count > 0 { eventLimit.note(count, of: name, limit, report: report) }
  }
}
