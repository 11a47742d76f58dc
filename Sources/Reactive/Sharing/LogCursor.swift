import Synchronization

/// A subscriber's cursor in a shared log: a position, a demand, and a drain loop.
///
/// It reads values from the log when there is demand for them, then the completion. Values that were dropped meanwhile
/// are skipped and counted.
@usableFromInline
final class LogCursor<Storage: ReplayStorage, Failure: Error, Down: Subscriber>: DroppingSubscription, LogReader,
  CustomStringConvertible, @unchecked Sendable
where Down.Input == Storage.Element, Down.Failure == Failure {
  // Sendable: only the draining thread accesses the non-atomic state, which also makes exclusivity checks unnecessary.

  @usableFromInline enum Phase: UInt8, AtomicRepresentable {
    case attached  // can become: counted, over
    case counted  // as a subscriber of the log; can become: over
    case over
  }

  @usableFromInline enum Step {
    case value(Storage.Element, isLast: Bool)
    case end(Subscribers.Completion<Failure>)
    case wait
  }

  @usableFromInline let log: SharedLog<Storage, Failure>
  @usableFromInline let onLag: (@Sendable (UInt64) -> Void)?
  /// The publisher that owns the log, kept alive for the duration of the subscription.
  @usableFromInline var owner: AnyObject?
  @usableFromInline let phase = Atomic(Phase.attached)
  @usableFromInline let loop = DrainLoop(held: true)
  @usableFromInline let demand = TotalDemand()

  @safe @usableFromInline @exclusivity(unchecked) var down: Down?
  @safe @usableFromInline @exclusivity(unchecked) var position: UInt64 = 0
  @safe @usableFromInline @exclusivity(unchecked) var delivered: UInt64 = 0
  /// The subscriber has requested every element before this position, and the log has recorded that.
  @usableFromInline let requestedThrough = Atomic<UInt64>(0)
  @usableFromInline let announced = Atomic<UInt64>(0)

  @usableFromInline let description: String

  @inlinable init(
    _ log: SharedLog<Storage, Failure>, _ down: Down, owner: AnyObject?, description: String,
    onLag: (@Sendable (UInt64) -> Void)?
  ) {
    (self.log, self.down, self.owner, self.description, self.onLag) = (log, down, owner, description, onLag)
  }

  /// Attaches to the log, sends the subscription and the last `replay` values to the subscriber, then joins the log
  /// unless the subscription is already over.
  @inlinable func begin(replay: Int) {
    log.attach(self) { self.drain($0) }
    position = log.read { storage, _ in
      storage.endPosition - min(UInt64(replay), storage.endPosition - storage.firstPosition)
    }
    down?.receive(subscription: self)
    loop.release(deliver)
    announceRequest()
    guard phase.load(ordering: .acquiring) == .attached else { return }
    log.subscriberJoined()
    let (counted, _) = phase.compareExchange(
      expected: .attached, desired: .counted, ordering: .acquiringAndReleasing)
    if !counted { log.subscriberLeft() }  // a thread that cancelled or ended it meanwhile did not see the count
  }

  @inlinable func request(_ demand: Subscribers.Demand) {
    self.demand.add(demand)
    drain()
  }

  @inlinable func cancel() {
    if end() { drain() }
  }

  @inlinable func logDidChange() { drain() }

  /// - Parameter newest: The element that was just appended.
  @inlinable func drain(_ newest: SharedLog<Storage, Failure>.Newest? = nil) {
    if loop.enter() {
      var newest = newest
      loop.release { if !deliver(newest.take()) { deliver() } }
    }
    announceRequest()
  }

  /// Delivers the newest element if it is the next one for this subscriber.
  ///
  /// - Returns: Whether no further element is readable. Elements that arrive meanwhile cause another round of the loop.
  @inlinable func deliver(_ newest: SharedLog<Storage, Failure>.Newest?) -> Bool {
    guard let newest, newest.position == position, let down, phase.load(ordering: .acquiring) != .over else {
      return false
    }
    let requested = demand.requested
    if delivered == requested { return false }
    note(requested)
    return advance(past: newest.element, requested, down) == .none && !log.hasEnded
  }

  /// Requests the missing elements from the log. Not called inside the loop: upstream may deliver immediately, and its
  /// elements are held only while readers are being notified.
  @inlinable func announceRequest() {
    let position = requestedThrough.load(ordering: .acquiring)
    guard announced.load(ordering: .acquiring) != position,
      announced.exchange(position, ordering: .acquiringAndReleasing) != position
    else { return }
    log.reader(self, requestedThrough: position)
  }

  /// - Returns: True for the one call that ends the subscription.
  @inlinable func end() -> Bool {
    let old = phase.exchange(.over, ordering: .acquiringAndReleasing)
    guard old != .over else { return false }
    log.detach(self)
    if old == .counted { log.subscriberLeft() }
    return true
  }

  @inlinable func deliver() {
    while let down {
      guard phase.load(ordering: .acquiring) != .over else { return release() }
      let requested = demand.requested
      let isStarved = delivered == requested
      if isStarved, !log.hasEnded { return }
      let (lost, step) = log.read { storage, completion -> (UInt64, Step) in
        let lost = position < storage.firstPosition ? storage.firstPosition - position : 0
        let next = position + lost
        if next == storage.endPosition { return (lost, completion.map { .end($0) } ?? .wait) }
        if isStarved { return (lost, .wait) }
        return (lost, .value(storage.element(at: next), isLast: next + 1 == storage.endPosition))
      }
      if lost > 0 {
        position += lost
        onLag?(lost)
      }
      if case .end(let completion) = step {
        guard end() else { continue }
        release()
        return down.receive(completion: completion)
      }
      if !isStarved { note(requested) }
      guard case .value(let value, let isLast) = step else { return }
      if advance(past: value, requested, down) == .none, isLast, !log.hasEnded { return }
    }
  }

  /// Records the position that the subscriber has requested up to.
  @inlinable func note(_ requested: UInt64) {
    let (sum, overflow) = position.addingReportingOverflow(requested - delivered)
    requestedThrough.store(requested == TotalDemand.unlimited || overflow ? .max : sum, ordering: .releasing)
  }

  /// - Returns: The subscriber's additional demand.
  @inlinable func advance(past value: Storage.Element, _ requested: UInt64, _ down: Down) -> Subscribers.Demand {
    position += 1
    if requested != TotalDemand.unlimited { delivered += 1 }
    let more = down.receive(value)
    demand.add(more)
    return more
  }

  /// Releases the subscriber and the publisher.
  @inlinable func release() {
    down = nil
    owner = nil
  }
}
