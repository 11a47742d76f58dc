import Events
import Fleet
import Glibc
import Reactive
import ReplayLog
import StreamRuntime
import StreamServer
import StreamSources
import Systemd

/// This host as a member of the fleet. It connects the machine to the engine, to the logs of the streams, and to their
/// sources.
///
/// Confined to the source thread; `setStreams`, `demand` and `leave` are for any thread.
final class FleetMember: FleetEngineObserver, @unchecked Sendable {
  /// A stream of the fleet, with its source on this host.
  struct Stream: @unchecked Sendable {  // publishers are subscribed to on the source thread only
    var definition: FleetMachine.Stream
    /// How long the source stays active without demand.
    let linger: Duration
    /// Its source and pipeline; nil: unchanged.
    let publisher: AnyPublisher<EventBatch, StreamFailure>?
    /// The source of a stream that clients publish to.
    let publishSource: PublishSource?
    let status: SourceStatus
  }

  private let loop: EventLoop
  private let engine: any FleetEngine
  private let machine: FleetMachine
  private let server: StreamServer
  private let journal: Journal
  private var fetchers: [String: FleetFetcher] = [:]
  /// The shards whose positions other hosts may ask for.
  private var answered: Set<Int> = []
  private var timer: (id: TimerID, due: UInt64)?
  private var connection: FleetConnectionNotes
  /// Whether the last entry of the journal on this subject is that streams are stale.
  private var isStale = false
  /// The time of the newest connection to the brokers.
  private var connectedAt: UInt64 = 0
  /// When this host started: no stream counts as stale since an earlier time.
  private let startedAt = EventLoop.monotonicNow()
  private var isLeaving = false
  private var left: (() -> Void)?
  /// Streams whose source waits until the shard has room.
  private var crowded: Set<String> = []
  /// Inputs that came while actions were performed, in order.
  private var inputs: [(FleetMachine, UInt64) -> [FleetMachine.Action]] = []
  private var isPerforming = false

  /// How long hosts have to answer a question for their positions.
  private static let answerTime = Duration.milliseconds(300)
  /// The maximum number of hosts whose answers are awaited.
  private static let maximumHostCount = 10_000
  /// How long one host, or one of several, has to answer.
  private static let requestTime = Duration.seconds(1)
  /// How often the status of the fleet is updated in `$streams`.
  private static let statusPeriod = Duration.seconds(1)
  /// How long a stream is stale before the journal gets an entry. Another host takes over a shard in less time.
  private static let staleTime: UInt64 = 15_000_000_000
  /// How long a stop waits for published values to be stored.
  private static let leaveTime = Duration.milliseconds(1500)

  /// - Parameter loop: the loop of the source thread, which is also the engine's.
  init(_ engine: any FleetEngine, shardCount: Int, on loop: EventLoop, _ server: StreamServer, _ journal: Journal) {
    (self.engine, self.loop, self.server, self.journal) = (engine, loop, server, journal)
    machine = FleetMachine(
      host: HostID.random(), hostName: Self.hostName, shardCount: shardCount, merge: PublishSource.merge)
    connection = FleetConnectionNotes(server, journal, since: startedAt)
  }

  private static var hostName: String {
    var name = [CChar](repeating: 0, count: 256)
    guard unsafe gethostname(&name, name.count - 1) == 0 else { return "unknown" }
    return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  // MARK: From any thread

  /// Connects. The streams must be served.
  func start() {
    loop.execute { [self] in
      engine.subscribe(to: .heartbeats) { [weak self] message in
        self?.update { $0.heard(message, at: $1) }
        return nil
      }
      engine.subscribe(to: .host(machine.host)) { [weak self] message in self?.receive(message) }
      engine.start(self)
      repeatStatus()
    }
  }

  /// Sets the streams of the fleet. Without a publisher a stream keeps its own.
  func setStreams(_ streams: [Stream]) {
    loop.execute { [self] in
      for name in fetchers.keys where !streams.contains(where: { $0.definition.name == name }) {
        fetchers.removeValue(forKey: name)?.end()
      }
      let begun = streams.filter { set($0) }
      update { $0.setStreams(streams.map(\.definition), at: $1) }
      // A changed source takes over from the former one.
      for stream in begun where stream.publishSource != nil || machine.isFetched(stream.definition.name) {
        fetchers[stream.definition.name]?.begin()
      }
      answerForShards()
      showStatus()
    }
  }

  /// The upstream of a stream's log.
  func demand(of stream: String) -> FleetDemand {
    FleetDemand { [weak self] isWanted in
      guard let self else { return }
      loop.execute { self.update { $0.wants(stream, isWanted, at: $1) } }
    }
  }

  /// The checkpoint from which the source of a stream resumes; nil: it begins anew. On the source thread.
  func checkpoint(of stream: String) -> Checkpoint? { machine.checkpoint(of: stream) }

  /// The time since the stream's last batch, by the wall clocks of this host and of the host that fetched it; nil:
  /// unknown. On the source thread.
  func timeSinceLastEvent(of stream: String) -> Duration? {
    machine.lastTime(of: stream).map { .microseconds(Int64(clamping: Self.wallTime) - Int64(clamping: $0)) }
  }

  /// Passes the schedule of a stream's source on from host to host.
  func handover(of stream: String) -> SourceHandover {
    SourceHandover(
      former: { [weak self] in self?.formerSchedule(of: stream) ?? SourceSchedule() },
      changed: { [weak self] in self?.scheduled($0, of: stream) })
  }

  private func formerSchedule(of stream: String) -> SourceSchedule {
    loop.assertOnLoop()
    let now = EventLoop.monotonicNow()
    let schedule = machine.schedule(of: stream, at: now, wallTime: Self.wallTime)
    func time(after delay: UInt64) -> Duration? {
      delay == 0 ? nil : .nanoseconds(Int64(clamping: now)) + .microseconds(Int64(clamping: delay))
    }
    return SourceSchedule(slot: time(after: schedule.slot), rest: time(after: schedule.rest))
  }

  private func scheduled(_ schedule: SourceSchedule, of stream: String) {
    loop.assertOnLoop()
    fetchers[stream]?.schedule = schedule
    guard schedule.rest != nil else { return }
    update { $0.rests(stream, schedule.remaining, at: $1, wallTime: Self.wallTime) }
  }

  /// Decides whether a poll fetches now: only if any host wants the event, and the event could be appended. On the
  /// source thread.
  func admitFetch(of stream: String, _ decide: @escaping @Sendable (Bool) -> Void) {
    loop.assertOnLoop()
    switch machine.admitsFetch(stream) {
    case true?: decide(true)
    case false?: refuseFetch(of: stream, decide)
    case nil:
      askInterest(in: stream) { [weak self] isWanted in
        guard let self, isWanted, !machine.mayFetch(stream) else { return decide(isWanted) }
        refuseFetch(of: stream, decide)
      }
    }
  }

  /// Refuses a fetch. The source is asked again as soon as the shard has room.
  private func refuseFetch(of stream: String, _ decide: (Bool) -> Void) {
    decide(false)
    fetchers[stream]?.wasRefused()
    crowded.insert(stream)
  }

  /// Waits at most `leaveTime` until the published values are stored. Then gives up the shards that the host leads.
  /// - Parameter done: called once, on the source thread.
  func leave(_ done: @escaping @Sendable () -> Void) {
    loop.execute { [self] in
      isLeaving = true
      left = done
      for fetcher in fetchers.values where fetcher.publishSource == nil { fetcher.end() }
      finishLeaving()
      _ = loop.schedule(after: Self.leaveTime) { [self] in
        for fetcher in fetchers.values where fetcher.isUnsettled {
          fetcher.publishSource?.interrupt()
          fetcher.isUnsettled = false
        }
        finishLeaving()
      }
    }
  }

  private func finishLeaving() {
    guard !fetchers.values.contains(where: \.isUnsettled), let left else { return }
    self.left = nil
    update { $0.leave(at: $1) }
    engine.stop()
    left()
  }

  // MARK: Streams

  /// - Returns: whether the stream has a new source, which must be started.
  private func set(_ stream: Stream) -> Bool {
    let name = stream.definition.name
    guard let publisher = stream.publisher else { return false }
    fetchers.removeValue(forKey: name)?.end()
    let isPublished = stream.publishSource != nil
    fetchers[name] = FleetFetcher(
      publisher, of: stream, on: loop,
      hasRoom: { [weak self] in
        guard let self, !isLeaving else { return false }
        if isPublished { return fetchers[name]?.isUnsettled == false }
        let hasRoom = machine.mayFetch(name)
        if !hasRoom { crowded.insert(name) }
        return hasRoom
      },
      take: { [weak self] batch in
        if isPublished { self?.publish(batch, to: name) } else { self?.fetched(batch, of: name) }
      })
    return true
  }

  private func fetched(_ batch: EventBatch, of stream: String) {
    let limit = Configuration.maximumFleetEventBytes
    var fitting = batch
    if batch.largestByteCount > limit {
      fitting = batch.filter { $0.count <= limit }
      let count = batch.count - fitting.count
      server.countFailedEvents(of: stream, count)
      journal.write(Journal.Entry(ServerReport.eventsTooLarge(stream: stream, count: count, limit: limit)))
    }
    // Only the last part has the checkpoint: after a failure in between, the source repeats the parts before.
    for part in fitting.parts(ofAtMost: limit) {
      let schedule = fetchers[stream]?.schedule.remaining ?? FleetSchedule()
      update { $0.fetched(part, of: stream, schedule, at: $1, wallTime: Self.wallTime) }
    }
  }

  private func publish(_ batch: EventBatch, to stream: String) {
    fetchers[stream]?.isUnsettled = true
    update { $0.publish(batch, to: stream, at: $1, wallTime: Self.wallTime) }
  }

  private func answerForShards() {
    let shards = Set(machine.shardIndices)
    for shard in answered.subtracting(shards) { engine.unsubscribe(from: .positions(shard: shard)) }
    for shard in shards.subtracting(answered) {
      engine.subscribe(to: .positions(shard: shard)) { [weak self] _ in
        self?.machine.positionAnswer(shard: shard, at: EventLoop.monotonicNow())
      }
    }
    answered = shards
  }

  private static var wallTime: UInt64 { EventLoop.wallClock() }

  // MARK: FleetEngineObserver

  func engineConnected() {
    connection.connected()
    connectedAt = EventLoop.monotonicNow()
    showStatus()
    update { $0.connected(at: $1) }
  }

  func engineDisconnected(_ reason: String) {
    connection.disconnected(reason)
    showStatus()
  }

  func engineDropped() {
    journal.write(
      .limitReached, .warning, "messages of the fleet dropped: they arrived faster than they were processed")
  }

  func engineAppended(_ entry: [UInt8], to shard: Int, at sequence: UInt64) {
    update { $0.received(entry, shard: shard, at: sequence, now: $1) }
  }

  private func receive(_ message: [UInt8]) -> [UInt8]? {
    var answer: [UInt8]?
    update { machine, now in
      let received = machine.receive(message, at: now, wallTime: Self.wallTime)
      answer = received.answer
      return received.actions
    }
    return answer
  }

  // MARK: Actions

  /// Gives the machine an input, and performs its actions. An input that comes while actions are performed waits for
  /// them.
  private func update(_ input: @escaping (FleetMachine, UInt64) -> [FleetMachine.Action]) {
    loop.assertOnLoop()
    inputs.append(input)
    guard !isPerforming else { return }
    isPerforming = true
    while !inputs.isEmpty {
      let next = inputs
      inputs = []
      for input in next {
        for action in input(machine, EventLoop.monotonicNow()) { perform(action) }
      }
      let waiting = crowded.filter { machine.mayFetch($0) }
      crowded.subtract(waiting)
      for stream in waiting { fetchers[stream]?.advance() }
    }
    isPerforming = false
    waitForDeadline()
  }

  private func waitForDeadline() {
    guard let due = machine.deadline else { return }
    if let timer {
      guard due < timer.due else { return }
      loop.cancel(timer.id)
    }
    let now = EventLoop.monotonicNow()
    let id = loop.schedule(after: .nanoseconds(Int64(clamping: due - min(now, due)))) { [weak self] in
      self?.timer = nil
      self?.update { $0.tick(at: $1, wallTime: Self.wallTime) }
    }
    timer = (id, due)
  }

  private func perform(_ action: FleetMachine.Action) {
    switch action {
    case .ask(let request, let shard): ask(request, of: shard)
    case .send(let bytes, let subject): engine.send(bytes, to: subject)
    case .want(let bytes, let stream, let leader):
      engine.ask(bytes, to: .host(leader), count: 1, timeout: Self.requestTime) { [weak self] answers in
        self?.update { machine, now in
          machine.wantArrived(stream, leader: leader, answers?.isEmpty == false, at: now)
          return []
        }
      }
    case .compare(let bytes, let stream, let leader):
      engine.ask(bytes, to: .host(leader), count: 1, timeout: Self.requestTime) { [weak self] answers in
        guard let answer = answers?.first else { return }
        self?.machine.compared(stream, with: leader, answer)
      }
    case .askInterest(let stream): askInterest(in: stream) { _ in }
    case .showInterest(let isShown, let stream, let shard):
      let subject = FleetSubject.interest(shard: shard, stream: stream)
      if isShown { engine.subscribe(to: subject) { _ in [] } } else { engine.unsubscribe(from: subject) }
    case .store(let events, let stream, let firstID, let time, let position):
      store(events, stream, firstID, time, position)
    case .fetch(true, let stream): fetchers[stream]?.begin()
    case .fetch(false, let stream):
      if machine.isLeading(stream) { fetchers[stream]?.rest() } else { fetchers[stream]?.end() }
    case .stored(let stream):
      fetchers[stream]?.isUnsettled = false
      // The request for the next batch settles this one.
      fetchers[stream]?.advance()
      finishLeaving()
    case .report(let report): journal.write(Journal.Entry(report))
    }
  }

  private func ask(_ request: ShardMachine.Request, of shard: Int) {
    let answer = { [weak self] (answer: ShardMachine.Answer) -> Void in
      self?.update { $0.answer(answer, shard: shard, at: $1, wallTime: Self.wallTime) }
    }
    switch request {
    case .append(let bytes, let isClaim, let after, let attempt):
      engine.append(bytes, isClaim: isClaim, to: shard, after: after) { answer(.append(attempt: attempt, $0)) }
    case .read(let after): engine.read(shard, after: after) { answer(.read(after: after, $0)) }
    case .findClaim: engine.findClaim(shard) { answer(.findClaim($0)) }
    case .gather: gather(shard, answer)
    }
  }

  private func gather(_ shard: Int, _ answer: @escaping (ShardMachine.Answer) -> Void) {
    var newest: FleetNewest??
    var answers: [[UInt8]]??
    let finish = { if let newest, let answers { answer(.gather(answers, newest)) } }
    engine.ask(
      [], to: .positions(shard: shard), count: Self.maximumHostCount, timeout: Self.answerTime
    ) {
      answers = .some($0)
      finish()
    }
    engine.newest(shard) {
      newest = .some($0)
      finish()
    }
  }

  private func askInterest(in stream: String, _ decide: @escaping (Bool) -> Void) {
    let subject = FleetSubject.interest(shard: machine.shard(of: stream), stream: stream)
    engine.ask([], to: subject, count: 1, timeout: Self.requestTime) { [weak self] answers in
      guard let self else { return decide(false) }
      let isWanted = answers.map { !$0.isEmpty }
      decide(machine.isWanted(stream, answer: isWanted))
      update { $0.learned(stream, isWanted: isWanted, at: $1) }
    }
  }

  private func store(
    _ events: EventBatch, _ stream: String, _ firstID: UInt64, _ time: UInt64, _ position: ShardPosition
  ) {
    var batch = events
    guard let stamps = EventStamps(firstID: firstID, time: time, position: position.bytes), batch.setStamps(stamps)
    else { return }
    _ = server.append(batch, to: stream)
    if let checkpoint = events.checkpoint { fetchers[stream]?.publishSource?.learn(checkpoint) }
  }

  // MARK: Status

  private func repeatStatus() {
    connection.noteTime()
    showStatus()
    _ = loop.schedule(after: Self.statusPeriod) { [weak self] in self?.repeatStatus() }
  }

  /// Updates the status of the streams.
  private func showStatus() {
    let now = EventLoop.monotonicNow()
    for (name, fetcher) in fetchers {
      let status = machine.status(of: name, at: now)
      var since = status?.staleSince.map { min(now, max($0, startedAt)) }
      // A stream without any event is not stale until a host has had time to become its leader.
      if since != nil, now - startedAt < Self.staleTime, server.timeSinceLastEvent(of: name) == nil { since = nil }
      if since != fetcher.stale?.since {
        fetcher.stale = since.map { ($0, Self.wallTime - min(Self.wallTime, (now - $0) / 1000)) }
      }
      fetcher.status.isFleetSourceAsked = fetcher.isAsked
      fetcher.status.fleet = status.map {
        FleetStatus(
          isLeading: $0.isLeading, leader: $0.leader, term: $0.term, epoch: $0.epoch, lag: $0.lag,
          staleSince: fetcher.stale?.wallTime, otherHosts: $0.otherHosts, outage: connection.outage)
      }
      reportDifference(of: fetcher, name)
    }
    reportStaleness(at: now)
  }

  /// Writes an entry when other hosts have another definition of a stream, and when none has any more.
  private func reportDifference(of fetcher: FleetFetcher, _ stream: String) {
    let difference = fetcher.status.fleet?.difference(showsNames: true)
    guard (difference != nil) != fetcher.isDefinedOtherwise else { return }
    fetcher.isDefinedOtherwise = difference != nil
    journal.write(
      .fleetDefinition, difference == nil ? .info : .warning,
      difference ?? "no other host is known to define the stream otherwise any more", .stream(stream))
  }

  /// Writes one entry for all streams when one has been stale for `staleTime`, and one when none is stale any more.
  /// Without a connection the journal has the reason already, and after it the hosts need time to tell of their events.
  private func reportStaleness(at now: UInt64) {
    let stale = fetchers.values.compactMap(\.stale)
    if isStale, stale.isEmpty {
      journal.write(.fleetStale, .info, "no stream of the fleet is stale any more")
      isStale = false
    } else if !isStale, case .connected = server.fleetConnection, let first = stale.map(\.since).min(),
      now - max(first, connectedAt) >= Self.staleTime
    {
      journal.write(
        .fleetStale, .warning,
        "\(counted(stale.count, "stream")) of the fleet may lack newer events: no leader is heard, or it cannot append")
      isStale = true
    }
  }
}

extension SourceSchedule {
  /// The schedule from now on.
  fileprivate var remaining: FleetSchedule {
    func delay(_ time: Duration?) -> UInt64 {
      UInt64(clamping: ((time ?? .zero) - EventLoop.monotonicTime).wholeMicroseconds)
    }
    return FleetSchedule(slot: delay(slot), rest: delay(rest))
  }
}

extension EventBatch {
  /// The batch in parts of at most `limit` bytes of events and keys. A larger event is a part of its own. There is at
  /// least one part.
  fileprivate func parts(ofAtMost limit: Int) -> [EventBatch] {
    let keys = keys
    guard byteCount + (keys?.encodedByteCount(0..<count) ?? 0) > limit else { return [self] }
    var parts: [EventBatch] = []
    var (start, index, bytes) = (0, 0, 0)
    unsafe withUnsafeBytes(of: 0..<count) { event in
      let size = event.count + (keys?.encodedByteCount(index..<index + 1) ?? 0)
      if index > start, bytes + size > limit {
        parts.append(EventBatch(self[start..<index]))
        (start, bytes) = (index, 0)
      }
      (index, bytes) = (index + 1, bytes + size)
      return true
    }
    return parts + [EventBatch(self[start..<count])]
  }
}
