import Events
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Synchronization

/// The source of a *derived stream*: the events of other streams, its *bases*, in the order in which the bases stored
/// them.
///
/// Demand: while a batch is requested and every event is read, one more event is requested of each base. One turn reads
/// one batch: at most 1,024 events, 64 KiB and a quarter of the derived stream's log, or one larger event. A batch is
/// empty if the filter leaves out all of its events. Its checkpoint has the position in each base, so that a log stores
/// events and position together. A loss is a batch, too. The source completes when all bases have ended. Values are
/// delivered on the loop.
///
/// The source waits after each half of the derived stream's log until the log's subscribers have had a turn. A backlog
/// would otherwise run through a small log before they read it.
public struct DerivedSource: Publisher, Sendable {
  /// What happens to a derived stream, for the journal. Called on the loop.
  public enum Report: Equatable, Sendable {
    /// Events of a base were evicted before they were read.
    case missed(EventLoss, base: String)
    /// The derived stream has read all events again.
    case current
  }

  /// Events of the bases.
  public typealias Output = EventBatch
  /// A base that fails counts as one that has ended.
  public typealias Failure = Never

  /// The derived stream's name.
  let name: String
  let derivation: Derivation
  let filter: EventFilter?
  /// Whether a batch has at most one event. A program that makes many events of each could otherwise exceed the limits
  /// of a batch.
  let isSingle: Bool
  let loop: EventLoop
  let stallTime: Duration
  /// The limits of the derived stream's log.
  let limits: @Sendable () -> EventLog.Limits?
  /// Calls its argument, on any thread, once the derived stream's subscribers have had a turn to read.
  let letRead: @Sendable (_ completed: @escaping @Sendable () -> Void) -> Void
  /// The positions in the bases from which it resumes.
  let checkpoint: @Sendable () -> Checkpoint?
  let report: @Sendable (Report) -> Void

  /// Subscribes. The bases have one more subscriber each until the subscription ends.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    let subscription = DerivedSubscription(self, AnySubscriber(subscriber))
    subscription.attach()
    subscriber.receive(subscription: subscription)
  }
}

/// Reads the bases on the loop. The thread that subscribes attaches the readers at once, so that a base that waits for
/// its readers knows them before it takes another event. From `begin` on, the loop owns the readers.
///
/// Sendable: confined to the loop, except for the atomics, `attach`, and the functions for any thread.
private final class DerivedSubscription: RetractableSubscription, @unchecked Sendable {
  private let source: DerivedSource
  /// The readers of the bases. Set once, before any of them is attached.
  private var readers: [BaseReader] = []
  private var down: AnySubscriber<EventBatch, Never>?
  private var matcher: EventMatcher?
  private var demand = Subscribers.Demand.none
  private var hasBegun = false
  private var isPlaced = false
  private var hasMissed = false
  /// The events delivered since the subscribers had a turn, as a fraction of the log.
  private var unread = 0.0
  private var letsRead = false
  /// Since when nothing is requested, in nanoseconds of the monotonic clock.
  private var restsSince: UInt64?
  private var stallTimer: TimerID?
  private let isCancelled = Atomic(false)
  private let isWakeUpPosted = Atomic(false)

  private static let byteLimit = 64 << 10
  private static let countLimit = 1024

  init(_ source: DerivedSource, _ down: AnySubscriber<EventBatch, Never>) {
    (self.source, self.down) = (source, down)
    matcher = source.filter.map { EventMatcher($0) }
  }

  /// Attaches the readers. Called before the subscriber has the subscription.
  func attach() {
    readers = source.derivation.bases().map { base in
      BaseReader(base, for: source.name) { [weak self] in self?.wake() }
    }
    let former = DerivedPosition(source.checkpoint())
    for reader in readers { reader.attach(at: former?.positions[reader.base.name]) }
    source.derivation.readers.withLock { $0 = readers }
    source.loop.execute { [self] in begin() }
  }

  // MARK: From any thread

  func request(_ demand: Subscribers.Demand) {
    source.loop.execute { [self] in
      guard isLive else { return }
      place()
      self.demand += demand
      advance()
    }
  }

  func retract() {
    source.loop.execute { [self] in
      demand = .none
      advance()
    }
  }

  func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    source.loop.execute { [self] in end() }
  }

  private func wake() {
    guard !isWakeUpPosted.exchange(true, ordering: .sequentiallyConsistent) else { return }
    source.loop.execute { [self] in
      isWakeUpPosted.store(false, ordering: .sequentiallyConsistent)
      advance()
    }
  }

  // MARK: On the loop

  private var isLive: Bool { !isCancelled.load(ordering: .acquiring) }

  /// Begins to read, once the readers are attached.
  private func begin() {
    hasBegun = true
    advance()
  }

  /// Sets the positions of the readers at the first request. Until then, the stream may have stored events of a former
  /// subscription.
  private func place() {
    guard !isPlaced else { return }
    isPlaced = true
    guard let former = DerivedPosition(source.checkpoint()) else { return }
    for reader in readers { if let place = former.positions[reader.base.name] { reader.place(at: place) } }
  }

  private func end() {
    source.loop.assertOnLoop()
    if let stallTimer { source.loop.cancel(stallTimer) }
    stallTimer = nil
    down = nil
    for reader in readers { reader.detach() }
    source.derivation.readers.withLock { if $0.first === readers.first { $0 = [] } }
  }

  /// Delivers at most one batch. Further batches follow in later turns.
  private func advance() {
    source.loop.assertOnLoop()
    guard isLive, hasBegun, !letsRead else { return }
    guard demand > .none else { return rest() }
    restsSince = nil
    // Set before reading, so that an event that comes later wakes this subscription.
    for reader in readers { reader.setWantsEvents(true) }
    if let batch = read() { return deliver(batch) }
    if hasMissed { source.report(.current) }
    hasMissed = false
    for reader in readers { reader.setWantsMore(true) }
    finishIfAtEnd()
  }

  private func deliver(_ events: EventBatch) {
    var batch = events
    let positions = readers.map { ($0.base.name, $0.position) }
    batch.checkpoint = DerivedPosition(Dictionary(positions) { $1 }).checkpoint
    demand -= 1
    demand += down?.receive(batch) ?? .none
    if let log = source.limits() {
      unread += max(Double(batch.count) / Double(log.events), Double(batch.byteCount) / Double(log.bytes))
    }
    if unread >= 0.5 { return letRead() }
    if demand > .none { wake() } else { rest() }
  }

  private func letRead() {
    (unread, letsRead) = (0, true)
    source.letRead { [self] in
      source.loop.execute { [self] in
        letsRead = false
        advance()
      }
    }
  }

  /// Requests nothing of the bases, because nothing is requested of the source.
  private func rest() {
    guard isLive else { return }
    for reader in readers {
      reader.setWantsEvents(false)
      reader.setWantsMore(false)
    }
    restsSince = restsSince ?? EventLoop.monotonicNow()
    if stallTimer == nil { checkStalls() }
    finishIfAtEnd()
  }

  /// Repeats the check for as long as a base waits for its readers, or may wait.
  private func checkStalls() {
    let now = EventLoop.monotonicNow()
    let pauses = readers.compactMap { $0.checkStall(since: restsSince, at: now, stallTime: source.stallTime) }
    guard let pause = pauses.min() else { return }
    stallTimer = source.loop.schedule(after: pause) { [weak self] in
      guard let self else { return }
      stallTimer = nil
      if isLive { checkStalls() }
    }
  }

  private func finishIfAtEnd() {
    guard !readers.isEmpty, readers.allSatisfy(\.isAtEnd),
      !isCancelled.exchange(true, ordering: .acquiringAndReleasing)
    else { return }
    let down = down
    end()
    down?.receive(completion: .finished)
  }

  /// Reads in the order of the events' times, up to the limits of a batch or the next loss.
  /// - Returns: the events that pass the filter; nil: no event was read.
  private func read() -> EventBatch? {
    guard let log = source.limits() else { return nil }
    var limits = BaseReader.Limits(
      count: min(Self.countLimit, max(1, log.events / 4)), bytes: min(Self.byteLimit, log.bytes / 4))
    var batch = EventBatch()
    while !limits.isExhausted, !(source.isSingle && batch.count > 0) {
      var oldest: (reader: BaseReader, time: UInt64)?
      var limit = UInt64.max
      for reader in readers {
        switch reader.head() {
        case .nothing: break
        case .loss(let loss, let end): return limits.isUnused ? miss(loss, of: reader, upTo: end) : batch
        case .event(let time):
          guard let known = oldest, known.time <= time else {
            limit = oldest?.time ?? limit
            oldest = (reader, time)
            continue
          }
          limit = min(limit, time)
        }
      }
      guard let oldest else { break }
      var part = EventBatch()
      oldest.reader.read(into: &part, through: limit, &limits, isSingle: source.isSingle)
      guard !part.isEmpty else { break }  // the next event does not fit into the batch, or has been evicted
      append(part, to: &batch)
    }
    return limits.isUnused ? nil : batch
  }

  private func append(_ part: EventBatch, to batch: inout EventBatch) {
    guard matcher != nil else { return batch.append(contentsOf: part) }
    unsafe part.withUnsafeBytes(of: 0..<part.count) { event in
      if matcher?.fits(unsafe event.bindMemory(to: UInt8.self).span) == true { unsafe batch.append(event) }
      return true
    }
  }

  /// - Returns: a batch with the loss and without an event.
  private func miss(_ loss: EventLoss, of reader: BaseReader, upTo end: UInt64) -> EventBatch {
    source.derivation.missed.add(loss.count, ordering: .relaxed)
    source.report(.missed(loss, base: reader.base.name))
    hasMissed = true
    reader.move(to: end)
    var batch = EventBatch()
    batch.loss = loss
    return batch
  }
}

extension StreamServer {
  /// The source of a stream that is derived from others. The stream must be served before its source is subscribed to.
  ///
  /// - Parameters:
  ///   - bases: the names of the bases.
  ///   - name: the name of the derived stream.
  ///   - filter: the filter of the bases' events; nil: all pass.
  ///   - isSingle: whether each event is a batch, for a program that makes many events of one.
  ///   - status: the status of the derived stream, which shows the state of the bases from now on.
  ///   - loop: the loop on which the source reads and delivers.
  ///   - checkpoint: returns this source's checkpoint in the derived stream's log.
  ///   - report: called on the loop for what happens to the source.
  public func derivedSource(
    of bases: [String], for name: String, where filter: EventFilter?, isSingle: Bool = false, status: SourceStatus,
    on loop: EventLoop, checkpoint: @escaping @Sendable () -> Checkpoint?,
    report: @escaping @Sendable (DerivedSource.Report) -> Void
  ) -> DerivedSource {
    let derivation = Derivation { [weak self] in bases.compactMap { self?.streams[$0] } }
    status.derivation = derivation
    return DerivedSource(
      name: name, derivation: derivation, filter: filter, isSingle: isSingle, loop: loop, stallTime: limits.stallTime,
      limits: { [weak self] in self?.streams[name]?.log.read { storage, _ in storage.limits } },
      letRead: { [weak self] completed in if let self { afterTurns(completed) } else { completed() } },
      checkpoint: checkpoint, report: report)
  }

  /// Calls `completed` on one of the loops, when each loop has served its waiting subscriptions for one turn.
  private func afterTurns(_ completed: @escaping @Sendable () -> Void) {
    let left = Countdown(workers.count)
    for worker in workers {
      // The first turn wakes the subscriptions, and its end serves them.
      worker.loop.execute { worker.loop.execute { if left.isLast() { completed() } } }
    }
  }
}
