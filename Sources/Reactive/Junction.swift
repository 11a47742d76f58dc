import Synchronization

/// A subscription that several upstreams feed. What comes from them, and from the subscriber, is handled serially, and
/// state that only the handler touches needs no lock.
protocol Junction: AnyObject, Subscription {
  /// What comes from an upstream.
  associatedtype Event
  associatedtype Down: Subscriber
  var core: JunctionCore<Event, Down> { get }
  /// Handles an event; not called after the end.
  func handle(_ event: Event, for down: Down)
  /// The subscriber asks for more, which is in `core.demand` already.
  func ask(_ demand: Subscribers.Demand, for down: Down)
  /// Cancels the upstreams, also those that come later. Called once or more, on any thread.
  func leave()
}

/// What all junctions have.
final class JunctionCore<Event, Down: Subscriber> {
  enum Step {
    case event(Event)
    case request(Subscribers.Demand)
    case release
  }
  let serial = Serial<Step>()
  private let over = Atomic(false)
  // Touched by the one at work.
  @exclusivity(unchecked) fileprivate(set) var demand = Subscribers.Demand.none
  @exclusivity(unchecked) fileprivate var down: Down?

  init(_ down: Down) { self.down = down }

  /// Whether it has ended or was cancelled.
  var isOver: Bool { over.load(ordering: .acquiring) }

  /// - Returns: Whether it was not over yet.
  fileprivate func end() -> Bool { !over.exchange(true, ordering: .acquiringAndReleasing) }
}

extension Junction {
  /// Gives the subscriber its subscription. First of all.
  func begin() { core.down?.receive(subscription: self) }

  func perform(_ event: Event) { core.serial.perform(.event(event), handle) }

  func request(_ demand: Subscribers.Demand) { core.serial.perform(.request(demand), handle) }

  func cancel() {
    guard core.end() else { return }
    leave()
    core.serial.perform(.release, handle)
  }

  private func handle(_ step: JunctionCore<Event, Down>.Step) {
    guard let down = core.down else { return }
    if core.isOver {
      core.down = nil
      return
    }
    switch step {
    case .event(let event): handle(event, for: down)
    case .request(let demand):
      core.demand += demand
      ask(demand, for: down)
    case .release: break
    }
  }

  /// Delivers a value for which there is demand. For the handler.
  ///
  /// - Returns: What the subscriber wants on top.
  func emit(_ value: Down.Input, for down: Down) -> Subscribers.Demand {
    core.demand -= 1
    let more = down.receive(value)
    core.demand += more
    return more
  }

  /// Delivers the end, unless the subscriber has cancelled meanwhile. For the handler.
  func end(_ completion: Subscribers.Completion<Down.Failure>, for down: Down) {
    core.down = nil
    guard core.end() else { return }
    leave()
    down.receive(completion: completion)
  }
}

/// One upstream of a junction, which may be asked before it is there.
class Inlet {
  private enum State {
    case awaiting(Subscribers.Demand)  // can become: live, over
    case live(any Subscription)  // can become: over
    case over
  }
  private let state = Guarded(State.awaiting(.none))
  private let over = Atomic(false)

  /// Whether it has ended or was cancelled.
  final var isOver: Bool { over.load(ordering: .acquiring) }

  /// Takes the subscription and asks it for what was asked for so far; cancels it when there is one or all is over.
  final func receive(subscription: any Subscription) {
    let demand = state.withLock { state -> Subscribers.Demand? in
      guard case .awaiting(let demand) = state else { return nil }
      state = .live(subscription)
      return demand
    }
    guard let demand else { return subscription.cancel() }
    if demand != .none { subscription.request(demand) }
  }

  final func request(_ demand: Subscribers.Demand) {
    let subscription = state.withLock { state -> (any Subscription)? in
      switch state {
      case .awaiting(let before): state = .awaiting(before + demand)
      case .live(let subscription): return subscription
      case .over: break
      }
      return nil
    }
    subscription?.request(demand)
  }

  /// Upstream has ended.
  ///
  /// - Returns: True for the one call that ends a live subscription.
  final func finish() -> Bool { end() != nil }

  final func cancel() { end()?.cancel() }

  private func end() -> (any Subscription)? {
    state.withLock { state in
      defer { state = .over }
      over.store(true, ordering: .releasing)
      guard case .live(let subscription) = state else { return nil }
      return subscription
    }
  }
}

/// The subscriber at an inlet: what it receives becomes events. The junction holds the inlet, not this.
final class JunctionInlet<J: Junction, Input, Failure: Error>: Subscriber {
  private let junction: J
  private let inlet: Inlet
  private let value: (Input) -> J.Event
  private let end: (Subscribers.Completion<Failure>) -> J.Event

  init(
    _ junction: J, _ inlet: Inlet, value: @escaping (Input) -> J.Event,
    end: @escaping (Subscribers.Completion<Failure>) -> J.Event
  ) {
    self.junction = junction
    self.inlet = inlet
    self.value = value
    self.end = end
  }

  func receive(subscription: any Subscription) { inlet.receive(subscription: subscription) }

  /// Asks for more by ``Inlet/request(_:)`` only.
  func receive(_ input: Input) -> Subscribers.Demand {
    if !inlet.isOver { junction.perform(value(input)) }
    return .none
  }

  func receive(completion: Subscribers.Completion<Failure>) {
    if inlet.finish() { junction.perform(end(completion)) }
  }
}
