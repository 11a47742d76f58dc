import Synchronization

/// How a subject reaches a subscriber. Not copyable, so that a call retains nothing.
@usableFromInline struct ConduitOutlet<Output, Failure: Error>: ~Copyable {
  @usableFromInline let pass: (Conduit<Output, Failure>.Signal) -> Subscribers.Demand

  @inlinable init(_ pass: @escaping (Conduit<Output, Failure>.Signal) -> Subscribers.Demand) { self.pass = pass }

  @inlinable borrowing func take(_ signal: Conduit<Output, Failure>.Signal) -> Subscribers.Demand { pass(signal) }
}

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
  /// Made where the subscriber's type is known; leads nowhere once over. For whoever reaches the subscriber.
  @exclusivity(unchecked) @usableFromInline var outlet: ConduitOutlet<Output, Failure>
  /// How many values are still wanted; `unlimited`, or `over`.
  @usableFromInline let wanted = Atomic<UInt64>(0)
  /// Its first value is being delivered by another thread than the one at work.
  @usableFromInline let isStarting = Atomic(false)
  /// It has missed the newest value for want of demand, and not been given one since.
  @usableFromInline let behind = Atomic(false)
  /// Whether it has joined, or is about to.
  @usableFromInline let hasBegun = Atomic(false)
  /// Whether it was given a value before it joined. Guarded by the lock of the queue, then for the one at work.
  @exclusivity(unchecked) @usableFromInline var wasStarted = false
  /// For the one at work.
  @exclusivity(unchecked) @usableFromInline var isJoined = false

  @usableFromInline static var over: UInt64 { .max }
  @usableFromInline static var unlimited: UInt64 { .max - 1 }

  @inlinable init(_ hub: SubjectHub<Output, Failure>, receive: @escaping (Signal) -> Subscribers.Demand) {
    self.hub = hub
    outlet = ConduitOutlet(receive)
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
      let isWanted = take()
      behind.store(!isWanted, ordering: .releasing)
      if isWanted { pass(value) }
    } else {
      finish(signal)
    }
  }

  /// Delivers a value whose unit of demand is taken.
  @inlinable func pass(_ value: Output) {
    let more = outlet.take(.value(value))
    if more != .none { add(more) }
  }

  @inlinable func finish(_ signal: Signal) {
    let isOpen = wanted.exchange(Self.over, ordering: .acquiringAndReleasing) != Self.over
    if isOpen { _ = outlet.take(signal) }
    outlet = ConduitOutlet { _ in .none }
  }

  /// - Returns: True for the one call that is to make it join.
  @usableFromInline func begin() -> Bool { !hasBegun.exchange(true, ordering: .acquiringAndReleasing) }

  /// The first request is answered before it returns, also from inside `receive(subscription:)`.
  @usableFromInline override func request(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    let hadNone = add(demand)
    if hub.keepsNewest {
      if hadNone { hub.tell(begin() ? .join(self) : .wake(self)) }
    } else {
      hub.upstreams.request()
    }
  }

  @usableFromInline override func cancel() {
    if wanted.exchange(Self.over, ordering: .acquiringAndReleasing) != Self.over {
      hub.tell(.leave(self))
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
