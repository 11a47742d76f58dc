import Locks
import Synchronization

/// A subscription to a subject: the unmet demand of its subscriber, and the path to it.
///
/// It has no lock: only the handling thread of the hub, or the thread that starts the subscription, calls the
/// subscriber.
@usableFromInline final class SubjectSubscription<Output, Failure: Error>: SubscriptionObject, CustomStringConvertible {
  @usableFromInline enum Signal {
    case value(Output)
    case end(Subscribers.Completion<Failure>)
    /// Release the subscriber.
    case drop
  }

  /// The path to the subscriber. Not copyable, so that a call retains nothing.
  @usableFromInline struct Outlet: ~Copyable {
    @usableFromInline let pass: (Signal) -> Subscribers.Demand

    @inlinable init(_ pass: @escaping (Signal) -> Subscribers.Demand) { self.pass = pass }

    @inlinable borrowing func take(_ signal: Signal) -> Subscribers.Demand { pass(signal) }
  }

  @usableFromInline let hub: SubjectHub<Output, Failure>
  /// Formed where the subscriber's type is known; empty after the end. Accessed only by the thread that calls the
  /// subscriber.
  @safe @usableFromInline @exclusivity(unchecked) var outlet: Outlet
  /// The unmet demand; `unlimited`, or `over`.
  @usableFromInline let unmet = Atomic<UInt64>(0)
  /// A thread other than the handling one is delivering the first value.
  @usableFromInline let isStarting = Atomic(false)
  /// The newest value was skipped for lack of demand, and none has been delivered since.
  @usableFromInline let behind = Atomic(false)
  /// Whether the subscription has joined the hub, or is about to.
  @usableFromInline let hasBegun = Atomic(false)
  /// Whether a value was delivered before it joined. Locked by the lock of the queue, later accessed only by the
  /// handling thread.
  @usableFromInline var wasStarted = false
  /// Accessed only by the handling thread.
  @usableFromInline var isJoined = false

  @usableFromInline static var over: UInt64 { .max }
  @usableFromInline static var unlimited: UInt64 { .max - 1 }

  @inlinable init(_ hub: SubjectHub<Output, Failure>, receive: @escaping (Signal) -> Subscribers.Demand) {
    self.hub = hub
    outlet = Outlet(receive)
  }

  @usableFromInline var description: String { hub.description }

  /// Whether it was cancelled or has delivered the completion.
  @usableFromInline var isOver: Bool { unmet.load(ordering: .acquiring) == Self.over }
  @usableFromInline var isBehind: Bool { behind.load(ordering: .acquiring) }

  /// Takes one unit of demand, if there is one.
  @inlinable func take() -> Bool {
    var count = unmet.load(ordering: .acquiring)
    while count != Self.unlimited {
      if count == 0 || count == Self.over { return false }
      let (exchanged, current) = unmet.weakCompareExchange(
        expected: count, desired: count - 1, ordering: .acquiringAndReleasing)
      if exchanged { return true }
      count = current
    }
    return true
  }

  /// - Returns: Whether there was no demand before.
  @usableFromInline @discardableResult func add(_ demand: Subscribers.Demand) -> Bool {
    var count = unmet.load(ordering: .acquiring)
    while count < Self.unlimited {
      let sum = demand.max.map { count + UInt64($0) } ?? Self.unlimited  // no overflow: both are below 2^63
      let (exchanged, current) = unmet.weakCompareExchange(
        expected: count, desired: sum < 1 << 63 ? sum : Self.unlimited, ordering: .acquiringAndReleasing)
      if exchanged { return count == 0 }
      count = current
    }
    return false
  }

  @inlinable func accept(_ signal: Signal) {
    if case .value(let value) = signal {
      let hasDemand = take()
      behind.store(!hasDemand, ordering: .releasing)
      if hasDemand { pass(value) }
    } else {
      finish(signal)
    }
  }

  /// Delivers a value whose unit of demand has been taken.
  @inlinable func pass(_ value: Output) {
    let more = outlet.take(.value(value))
    if more != .none { add(more) }
  }

  @inlinable func finish(_ signal: Signal) {
    let isOpen = unmet.exchange(Self.over, ordering: .acquiringAndReleasing) != Self.over
    if isOpen { _ = outlet.take(signal) }
    outlet = Outlet { _ in .none }
  }

  /// - Returns: True for the one call that must make it join.
  @usableFromInline func begin() -> Bool { !hasBegun.exchange(true, ordering: .acquiringAndReleasing) }

  /// The first request is met before it returns, also from inside `receive(subscription:)`.
  @usableFromInline override func request(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    let hadNone = add(demand)
    if hub.keepsNewest {
      if hadNone { hub.post(begin() ? .join(self) : .wake(self)) }
    } else {
      hub.upstreams.request()
    }
  }

  @usableFromInline override func cancel() {
    if unmet.exchange(Self.over, ordering: .acquiringAndReleasing) != Self.over {
      hub.post(.leave(self))
    }
  }
}

/// The upstreams of a subject. Unlimited values are requested from them, immediately or on the first demand of a
/// subscriber.
@usableFromInline final class Upstreams: @unchecked Sendable {  // subscriptions are thread-safe by contract
  struct State {
    var subscriptions: [any Subscription] = []
    var areRequested: Bool
    var isOver = false
  }
  private let state: Locked<State>

  @usableFromInline init(areRequested: Bool) { state = Locked(State(areRequested: areRequested)) }

  func add(_ subscription: any Subscription) {
    let (areRequested, isOver) = state.withLock { state in
      if !state.isOver { state.subscriptions.append(subscription) }
      return (state.areRequested, state.isOver)
    }
    if isOver { return subscription.cancel() }
    if areRequested { subscription.request(.unlimited) }
  }

  func request() {
    let subscriptions = state.withLock { state -> [any Subscription] in
      guard !state.areRequested else { return [] }
      state.areRequested = true
      return state.subscriptions
    }
    for subscription in subscriptions { subscription.request(.unlimited) }
  }

  func cancel() {
    let subscriptions = state.withLock { state in
      state.isOver = true
      return state.subscriptions.take()
    }
    for subscription in subscriptions { subscription.cancel() }
  }
}
