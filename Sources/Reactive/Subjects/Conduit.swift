import Synchronization

/// A subscription to a subject: what its subscriber still wants, and how to reach it.
///
/// It has no lock: whoever is at work in the hub, or starts it, is the only one to reach the subscriber.
@usableFromInline final class Conduit<Output, Failure: Error>: SubscriptionObject, CustomStringConvertible {
  @usableFromInline enum Signal {
    case value(Output)
    case end(Subscribers.Completion<Failure>)
    /// Let go of the subscriber.
    case drop
  }

  @usableFromInline let hub: SubjectHub<Output, Failure>
  /// Made where the subscriber's type is known. `nil` once over.
  @exclusivity(unchecked) @usableFromInline var receive: ((Signal) -> Subscribers.Demand)?
  /// How many values are still wanted; `unlimited`, or `over`.
  @usableFromInline let wanted = Atomic<UInt64>(0)
  /// Its first value is being delivered by another thread than the one at work.
  @usableFromInline let isStarting = Atomic(false)
  /// It has missed the newest value for want of demand.
  @usableFromInline let behind = Atomic(false)
  /// Whether it was given a value before it joined. Guarded by the lock of the queue, then for the one at work.
  @exclusivity(unchecked) @usableFromInline var wasStarted = false
  /// For the one at work.
  @exclusivity(unchecked) @usableFromInline var isJoined = false

  @usableFromInline static var over: UInt64 { .max }
  @usableFromInline static var unlimited: UInt64 { .max - 1 }

  @inlinable init(_ hub: SubjectHub<Output, Failure>, receive: @escaping (Signal) -> Subscribers.Demand) {
    (self.hub, self.receive) = (hub, receive)
  }

  @usableFromInline var description: String { hub.description }

  /// Whether it was cancelled, or told the end.
  @usableFromInline var isOver: Bool { wanted.load(ordering: .acquiring) == Self.over }
  @usableFromInline var isBehind: Bool { behind.load(ordering: .acquiring) }

  /// Takes a unit of demand.
  @inlinable func take() -> Bool {
    var count = wanted.load(ordering: .acquiring)
    while count != Self.unlimited {
      if count == 0 || count == Self.over { return false }
      let (exchanged, current) = wanted.weakCompareExchange(
        expected: count, desired: count - 1, ordering: .acquiringAndReleasing)
      if exchanged { return true }
      count = current
    }
    return true
  }

  /// - Returns: Whether there was no demand before.
  @usableFromInline @discardableResult func add(_ demand: Subscribers.Demand) -> Bool {
    var count = wanted.load(ordering: .acquiring)
    while count < Self.unlimited {
      let sum = demand.max.map { count + UInt64($0) } ?? Self.unlimited  // no overflow: both are below 2^63
      let (exchanged, current) = wanted.weakCompareExchange(
        expected: count, desired: sum < 1 << 63 ? sum : Self.unlimited, ordering: .acquiringAndReleasing)
      if exchanged { return count == 0 }
      count = current
    }
    return false
  }

  @inlinable func accept(_ signal: Signal) {
    if case .value(let value) = signal {
      if take() { pass(value) } else { behind.store(true, ordering: .releasing) }
    } else {
      finish(signal)
    }
  }

  /// Delivers a value whose unit of demand is taken.
  @inlinable func pass(_ value: Output) {
    guard let receive else { return }
    let more = receive(.value(value))
    if more != .none { add(more) }
  }

  @inlinable func finish(_ signal: Signal) {
    let isOpen = wanted.exchange(Self.over, ordering: .acquiringAndReleasing) != Self.over
    let receive = receive.take()
    if isOpen { _ = receive?(signal) }
  }

  @usableFromInline override func request(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    let hadNone = add(demand)
    if hub.keepsNewest {
      if hadNone { hub.tell(self, false) }
    } else {
      hub.upstreams.request()
    }
  }

  @usableFromInline override func cancel() {
    if wanted.exchange(Self.over, ordering: .acquiringAndReleasing) != Self.over {
      hub.tell(self, true)
    }
  }
}

/// What feeds a subject; asked for everything, at once or when the first subscriber wants something.
@usableFromInline final class Upstreams: @unchecked Sendable {  // subscriptions are thread-safe by contract
  struct State {
    var subscriptions: [any Subscription] = []
    var areWanted: Bool
    var isOver = false
  }
  private let state: Guarded<State>

  @usableFromInline init(areWanted: Bool) { state = Guarded(State(areWanted: areWanted)) }

  func add(_ subscription: any Subscription) {
    let (areWanted, isOver) = state.withLock { state in
      if !state.isOver { state.subscriptions.append(subscription) }
      return (state.areWanted, state.isOver)
    }
    if isOver { return subscription.cancel() }
    if areWanted { subscription.request(.unlimited) }
  }

  func request() {
    let subscriptions = state.withLock { state -> [any Subscription] in
      guard !state.areWanted else { return [] }
      state.areWanted = true
      return state.subscriptions
    }
    for subscription in subscriptions { subscription.request(.unlimited) }
  }

  func cancel() {
    let subscriptions = state.withLock { state in
      state.isOver = true
      defer { state.subscriptions = [] }
      return state.subscriptions
    }
    for subscription in subscriptions { subscription.cancel() }
  }
}
