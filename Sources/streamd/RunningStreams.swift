import Dispatch
import Events
import Fleet
import Reactive
import ReplayLog
import StreamRuntime
import StreamServer
import StreamSources
import Systemd

/// The served streams, each with its source, pipeline and log, and their changes at run time.
///
/// Confined to one thread at a time: the main thread until the daemon serves, then `queue`.
final class RunningStreams: @unchecked Sendable {
  /// The parts of a stream in this process, besides its configuration.
  struct LocalFeed {
    /// nil: the values of clients enter the log as they are, so that there is nothing to report.
    let reports: FeedReports?
    /// The source of a stream to which clients publish; unchanged while clients are the source.
    let publishSource: PublishSource
    let takesValues: Bool
    /// The place of its source program: a new program waits for the previous one. nil: it has none.
    let place: ProgramPlace?
    /// The event that the stream's throttle holds back; nil: it has no throttle.
    let hold: ThrottleHold?
    /// Whether the fleet does not have the feed yet.
    var isNew = true

    var activePublishSource: PublishSource? { takesValues ? publishSource : nil }
  }

  /// The queue for slow work: reading user databases and disks, writing logs.
  let queue = WorkQueue(label: "streamd.streams")
  let server: StreamServer
  let sources: SourceThread
  let journal: Journal
  let logs: LogStore
  private let files: StateFiles
  let answers: Answers
  /// nil: no stream is shared with other hosts.
  private let fleet: FleetMember?
  var feeds: [String: LocalFeed] = [:]
  /// The templates, by the text of their names, and the streams that they have made.
  var templates: [String: Configuration.Template] = [:]
  /// The configuration that all streams of a template have, whose streams differ in their names only, by the same text.
  var copied: [String: StreamConfiguration] = [:]
  var made: [String: MadeStream] = [:]
  /// The upstreams that streams of templates have together.
  private let unions = ValueUnions()
  /// While the streams of a former process are made again: who made them.
  var formerMakers: [String: StreamOwner]?
  /// When it is to be reported again that a value makes the configuration of a template invalid, by the template.
  var nextFaultReports: [String: UInt64] = [:]
  /// Whether `LogStore.finish` will be called for made streams.
  var isReportDue = false

  init(
    _ server: StreamServer, _ sources: SourceThread, _ journal: Journal, _ logs: LogStore, _ fleet: FleetMember? = nil
  ) {
    (self.server, self.sources, self.journal, self.logs, self.fleet) = (server, sources, journal, logs, fleet)
    files = StateFiles(in: logs.folderPath)
    answers = Answers(files)
    sources.keepPauses(in: files.pauses)
  }

  /// The number of the service manager's descriptors that are logs. Thread-safe.
  var storedLogCount: Int { logs.storedCount }

  /// Starts the first streams.
  ///
  /// - Parameter former: the streams of a former process, with those who made them. Those that a template fits, and those
  ///   whose logs are there, are made again.
  /// - Throws: `SystemError`, `StreamServer.AddStreamError`.
  func begin(_ configuration: Configuration, former: [(name: String, maker: StreamOwner?)]) throws {
    logs.listen { [queue, weak self] loss in
      queue.async { [weak self] in self?.take(loss) }
    } lacksMemory: { [weak server] in
      server?.noteLackOfMemory()
    }
    setMemory(configuration)
    // On the queue, so that a loss is taken after the stream was added.
    try queue.sync {
      serve(configuration.templates, besides: configuration.streams)
      for stream in configuration.streams.basesFirst {
        makeBases(of: stream)
        try add(stream, logs.log(of: stream))
      }
      makeAgain(former)
      logs.finish()
    }
    shareStreams(configuration.streams)
  }

  /// Sets the memory of small logs. Thread-safe.
  func setMemory(_ configuration: Configuration) {
    logs.smallLogs.setLimit(MemoryBudget.ofThisProcess().bytesOfSmallLogs(configuration))
  }

  /// On the queue, which sets the storage of all streams: the loss of a log that was replaced meanwhile is of no interest.
  private func take(_ loss: LogStore.Loss) {
    if logs.isPresent(loss) { server.setStorage(.notOnDisk(reason: loss.reason), of: loss.stream) }
  }

  /// Passes the shared streams to the fleet, each with its source if the feed is new.
  private func shareStreams(_ streams: [Configuration.Stream]) {
    guard let fleet else { return }
    fleet.setStreams(
      streams.filter { $0.share == .fleet }.compactMap { stream in
        guard let feed = feeds[stream.name] else { return nil }
        defer { feeds[stream.name]?.isNew = false }
        return FleetMember.Stream(
          definition: FleetMachine.Stream(
            name: stream.name, definition: stream.definitionDigest, kind: stream.source.section.fleetKind,
            canLead: stream.lead, end: server.endPosition(of: stream.name) ?? 0,
            position: server.fleetPosition(of: stream.name).flatMap { ShardPosition($0) }),
          linger: stream.linger,
          publisher: feed.isNew ? source(of: stream, feed) : nil,
          publishSource: feed.activePublishSource, status: feed.reports?.status ?? SourceStatus())
      })
  }

  /// - Throws: `SystemError` when there is no memory for an added stream; nothing has changed then.
  func apply(_ configured: ConfigurationDifference) throws {
    queue.assertOnQueue()
    let remade = remade(by: configured)
    let difference = configured.including(madeStreams, remade)
    let displaced = logs.displaced(among: difference.streamsWithTheirLogs)
    let added = try makeLogs(of: difference.added.basesFirst)
    // For its source a held event counts as taken, and for its publisher as confirmed. The logs must have it first.
    let renewed = difference.renewed(besides: displaced)
    let ending = displaced.union(difference.changed.filter { $0.hasOtherFeed || $0.hasOtherLog }.map(\.stream.name))
    let holds = (ending + renewed.map(\.name) + difference.removed).compactMap { feeds[$0]?.hold }
    passHeld(holds)
    defer { sources.close(holds) }
    var storages: [(String, StreamStorage)] = []
    let renewedNames = Set(renewed.map(\.name))
    func change(_ stream: Configuration.Stream, hasOtherFeed: Bool, hasOtherLog: Bool) -> StreamChange {
      StreamChange(
        StreamConfiguration(stream),
        feed: (hasOtherFeed || renewedNames.contains(stream.name)) && answers.mayRenew(stream.name)
          ? replaceFeed(of: stream) : nil,
        makeLog: hasOtherLog || displaced.contains(stream.name)
          ? { [logs] old in
            let kept = try logs.log(of: stream, insteadOf: old)
            storages.append((stream.name, kept.storage))
            if kept.storage == .disk, displaced.contains(stream.name) { logs.noteStoredAgain(stream.name) }
            return kept.log
          } : nil)
    }
    let changes = difference.changed.map {
      change($0.stream, hasOtherFeed: $0.hasOtherFeed, hasOtherLog: $0.hasOtherLog)
    }
    // Set before the streams change: a client with a new token would be refused otherwise.
    if let tokens = difference.tokens { server.setTokens(tokens.map { ClientToken($0) }) }
    setMade(remade, of: configured.templates)
    serve(configured.templates, besides: configured.streams)
    // Added before the others change, because a changed stream may be derived from an added one.
    for (stream, kept) in added {
      makeBases(of: stream)
      try add(stream, kept)
    }
    for change in difference.changed { makeBases(of: change.stream) }
    // After that, because they may be among the added ones: each replaces the feed that the stream has.
    let others = renewedNames.union(displaced).subtracting(difference.changed.map(\.stream.name))
    let further = difference.streams.basesFirst.filter { others.contains($0.name) }.map {
      change($0, hasOtherFeed: false, hasOtherLog: false)
    }
    let failures = server.change(changes + further, removing: difference.removed)
    for (name, error) in failures.sorted(by: { $0.key < $1.key }) {
      journal.write(
        .stateNotKept, .error, "the stream continues with its current buffer: \(error)", .stream(name))
    }
    for (name, storage) in storages { server.setStorage(storage, of: name) }
    for name in difference.removed {
      server.setBases([], of: name)
      feeds[name] = nil
      logs.forget(name)
    }
    finish(difference)
  }

  private func finish(_ difference: ConfigurationDifference) {
    answers.remove(difference.removed)
    logs.finish()
    shareStreams(difference.streams)
    sources.endRests()
    if let count = difference.maxPerHost { sources.setTransfersPerHost(count) }
  }

  /// Passes the events that throttles hold to the streams' logs, and later ones at once, because the daemon stops.
  /// Thread-safe.
  /// - Parameter completed: called on any thread, when the logs have the events.
  func passHeld(completed: @escaping @Sendable () -> Void) {
    queue.async { [self] in sources.open(feeds.values.compactMap(\.hold), completed: completed) }
  }

  /// Returns when the logs have the events that these throttles hold, or after a second: the source thread may have
  /// stopped.
  private func passHeld(_ holds: [ThrottleHold]) {
    guard !holds.isEmpty else { return }
    let done = DispatchSemaphore(value: 0)
    sources.open(holds) { done.signal() }
    _ = done.wait(timeout: .now() + .seconds(1))
  }

  /// Writes all logs on disk and closes them. Called on the main thread, when there are no subscribers; no append may
  /// follow.
  func close(within timeout: Duration) {
    // An event that a throttle held was confirmed to its publisher. It waits for space if the log is full of unread
    // events.
    queue.async { [self] in
      server.endOverflow(storingThatOf: Set(feeds.filter { $0.value.hold != nil }.keys))
    }
    answers.stop()
    files.flush()
    logs.close(within: timeout, on: queue)
  }

  private func makeLogs(of streams: [Configuration.Stream]) throws -> [(Configuration.Stream, LogStore.StoredLog)] {
    var made: [(Configuration.Stream, LogStore.StoredLog)] = []
    do {
      for stream in streams { made.append((stream, try logs.log(of: stream))) }
      logs.secure()
    } catch {
      for (stream, _) in made { logs.forget(stream.name) }
      throw error
    }
    return made
  }

  func add(_ stream: Configuration.Stream, _ kept: LogStore.StoredLog) throws {
    let feed = makeFeed(of: stream)
    let configuration = stream.template.flatMap { copied[$0]?.named(stream.name) } ?? StreamConfiguration(stream)
    if let reports = feed.reports {
      try server.add(
        configuration, log: kept.log, source: upstream(of: stream, feed), publishSource: feed.activePublishSource,
        status: reports.status)
    } else {
      try server.add(configuration, log: kept.log, values: feed.publishSource)
    }
    if kept.storage != .memory { server.setStorage(kept.storage, of: stream.name) }
  }

  private func replaceFeed(of stream: Configuration.Stream) -> StreamChange.Feed {
    let feed = makeFeed(of: stream)
    return StreamChange.Feed(
      source: upstream(of: stream, feed), publishSource: feed.activePublishSource,
      status: feed.reports?.status ?? SourceStatus())
  }

  /// The publisher to which the stream's log subscribes.
  private func upstream(of stream: Configuration.Stream, _ feed: LocalFeed) -> AnyPublisher<EventBatch, StreamFailure> {
    if stream.share == .fleet, let fleet { return fleet.demand(of: stream.name).eraseToAnyPublisher() }
    return source(of: stream, feed)
  }

  /// Creates the stream's feed, in place of an existing one.
  private func makeFeed(of stream: Configuration.Stream) -> LocalFeed {
    let former = feeds[stream.name]
    let takesValues = stream.source.section.isPublished
    let feed = LocalFeed(
      reports: stream.hasPipeline ? FeedReports(of: stream.name, for: server, journal) : nil,
      publishSource: former?.activePublishSource ?? PublishSource(), takesValues: takesValues,
      place: former?.place ?? (takesValues ? nil : ProgramPlace()), hold: stream.throttle.map { _ in ThrottleHold() })
    feed.publishSource.separatesPublishers = stream.share == .fleet
    feed.publishSource.isDirect = stream.isDirect
    feeds[stream.name] = feed
    return feed
  }

  private static func admission(to fleet: FleetMember, of stream: String) -> FetchAdmission {
    { [weak fleet] decide in fleet?.admitFetch(of: stream, decide) }
  }

  /// What a stream of a template has together with the others.
  private func union(of stream: Configuration.Stream) -> UnionContext? {
    guard stream.source.section.isTogether, let template = stream.template.flatMap({ templates[$0] }),
      case .values(let values) = template.name.match(stream.name)
    else { return nil }
    let text = template.name.text
    return UnionContext(template: text, values: values, all: unions) { [server, journal, sources, files] name in
      let reports = FeedReports(of: name, for: server, journal)
      var context = SourceContext(on: sources) { reports.take($0) }
      (context.name, context.tokenStore) = (name, files.tokens)
      context.unrouted = { [weak server] in server?.countUnrouted(of: text, $0) }
      return context
    }
  }

  private func source(
    of stream: Configuration.Stream, _ feed: LocalFeed
  ) -> AnyPublisher<EventBatch, StreamFailure> {
    guard let reports = feed.reports else {
      return feed.publishSource.setFailureType(to: StreamFailure.self).eraseToAnyPublisher()
    }
    let (name, fleet) = (stream.name, stream.share == .fleet ? fleet : nil)
    var context = SourceContext(on: sources) { reports.take($0) }
    (context.name, context.template) = (name, stream.template)
    context.pipeline = stream.pipelineText
    if stream.source.section.hasUpstream {
      reports.status.setRefresh { [refresh = context.refresh] completed in refresh.perform { completed($0?.sentence) } }
    }
    if stream.source.section.countsMissed { reports.status.noteMissed(0) }
    let checkpoint: @Sendable (CheckpointScope) -> Checkpoint? = { [weak server, weak fleet] scope in
      let own = server?.checkpoint(of: name, isOfEvent: scope == .event)
      // The fleet's checkpoint is newer.
      if scope == .log || scope == .event && own == nil { return own }
      return fleet?.checkpoint(of: name) ?? own
    }
    context.checkpoint = checkpoint
    context.admission = fleet.map { Self.admission(to: $0, of: name) }
    context.handover = fleet?.handover(of: name)
    if let place = feed.place { context.place = place }
    context.tokenStore = files.tokens
    context.succeeded = { reports.status.noteFetch() }
    context.progress = { reports.take($0) }
    context.shared = { reports.takeShared($0, isCounted: $1) }
    let isAnswer = stream.source.section.takesRequests
    let single = isAnswer ? answers.single(of: name) : nil
    let sectionContext = SectionContext(
      source: context, publishSource: feed.publishSource, single: single, union: union(of: stream)
    ) {
      [server, sources] bases, filter in
      server.derivedSource(
        of: bases, for: name, where: filter, isSingle: stream.jq != nil, status: reports.status, on: sources.loop,
        checkpoint: { SourceResumption { checkpoint(.log) }.checkpoint() }
      ) { reports.take($0) }.eraseToAnyPublisher()
    }
    let source = stream.source.section.publisher(of: stream, in: sectionContext)
    let events = stream.pipeline(
      from: source, on: sources, checkpoint: { checkpoint(.event) },
      sinceLast: { [weak server, weak fleet] in
        fleet?.timeSinceLastEvent(of: name) ?? server?.timeSinceLastEvent(of: name)
      }, hold: feed.hold ?? ThrottleHold()
    ) { reports.take($0) }.setFailureType(to: StreamFailure.self)
    guard isAnswer else { return events.eraseToAnyPublisher() }
    return events.append(
      Deferred { [answers] in
        // The events before it are in the log.
        answers.failure(of: name).map { Fail(outputType: EventBatch.self, failure: $0).eraseToAnyPublisher() }
          ?? Empty(outputType: EventBatch.self, failureType: StreamFailure.self).eraseToAnyPublisher()
      }
    ).eraseToAnyPublisher()
  }
}
