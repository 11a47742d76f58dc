import Synchronization

/// A subscription that several upstreams feed. What comes from them, and from the subscriber, is handled serially, and
/// state that only the handler touches needs no lock.
@usableFromInline protocol Junction: AnyObject, DroppingSubscription, CustomStringConvertible {
  /// What comes from an upstream.
  associatedtype Event
  associatedtype Down: Subscriber
  var core: JunctionCore<Event, Down> { get }
  /// Handles an event; not called after the end.
  func handle(_ event: Event, for down: Down)
  /// The subscriber asks for more, which is in `core.demand` already.
  func ask(_ demand: Subscribers.Demand, for down: Down)
  /// Lets go of what it holds for the subscriber. For the one at work, after the end.
  func drop()
  /// Cancels the upstreams, also those that come later. Called once or more, on any thread.
  func leave()
}

/// What all junctions have.
@usableFromInline final class JunctionCore<Event, Down: Subscriber> {
  @usableFromInline enum Step {
    case event(Event)
    case request(Subscribers.Demand)
    case release
  }
  @usableFromInline let serial = Serial<Step>()
  @usableFromInline let over = Atomic(false)
  // Touched by the one at work.
  @usableFromInline @exclusivity(unchecked) var demand = Subscribers.Demand.none
  @usableFromInline @exclusivity(unchecked) var down: Down?

  @usableFromInline let description: String

  @inlinable init(_ down: Down, _ description: String) { (self.down, self.description) = (down, description) }

  /// Whether it has ended or was cancelled.
  @inlinable var isOver: Bool { over.load(ordering: .acquiring) }

  /// - Returns: Whether it was not over yet.
  @inlinable func end() -> Bool { !over.exchange(true, ordering: .acquiringAndReleasing) }
}

extension Junction {
  @inlinable var description: String { core.description }

  @inlinable func drop() {}

  /// Gives the subscriber its subscription. First of all.
  @inlinable func begin() { core.down?.receive(subscription: self) }

  @inlinable func perform(_ event: Event) {
    if core.serial.enter() {
      if let down = core.down, !core.isOver { handle(event, for: down) }
      let missed = core.serial.leave()
      if missed != 0 { work(missed) }
    } else {
      leaveBehind(.event(event))
    }
  }

  // Calls that hand `self` over would retain it for each value; a method's name in place of a closure is allocated.

  @usableFromInline func work(_ missed: Int) { core.serial.work(missed) { handle($0) } }

  @usableFromInline func leaveBehind(_ step: JunctionCore<Event, Down>.Step) {
    core.serial.leaveBehind(step) { handle($0) }
  }

  @inlinable func request(_ demand: Subscribers.Demand) { core.serial.perform(.request(demand)) { handle($0) } }

  @inlinable func cancel() {
    guard core.end() else { return }
    leave()
    core.serial.perform(.release) { handle($0) }
  }

  @inlinable func handle(_ step: JunctionCore<Event, Down>.Step) {
    guard let down = core.down else { return }
    if core.isOver {
      core.down = nil
      return drop()
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
  @inlinable func emit(_ value: Down.Input, for down: Down) -> Subscribers.Demand {
    core.demand -= 1
    let more = down.receive(value)
    core.demand += more
    return more
  }

  /// Delivers the end, unless the subscriber has cancelled meanwhile. For the handler.
  @inlinable func end(_ completion: Subscribers.Completion<Down.Failure>, for down: Down) {
    core.down = nil
    drop()
    guard core.end() else { return }
    leave()
    down.receive(completion: completion)
  }
}

/// One upstream of a junction, which may be asked before it is there.
@usableFromInline class Inlet {
  @usableFromInline final let slot = UpstreamSlot()
  /// What was asked for before upstream was there.
  @usableFromInline final let early: DemandTally

  @inlinable init(_ demand: Subscribers.Demand = .none) { early = DemandTally(demand) }

  /// True until the end, also before the subscription.
  @inlinable final var isLive: Bool { slot.isLive }

  /// Takes the subscription and asks it for what was asked for so far; cancels it when there is one or all is over.
  @inlinable final func receive(subscription: any Subscription) { if slot.attach(subscription) { askEarly() } }

  @inlinable final func request(_ demand: Subscribers.Demand) {
    if slot.hasSubscription { return slot.request(demand) }
    early.add(demand)
    if slot.hasSubscription { askEarly() }  // it has come meanwhile, and may not have seen this
  }

  @usableFromInline final func askEarly() {
    let demand = early.takeAll()
    if demand != .none { slot.request(demand) }
  }

  /// Upstream has ended.
  ///
  /// - Returns: True for the one call that ends it.
  @inlinable final func finish() -> Bool { slot.finish() }

  @inlinable final func cancel() { slot.cancel() }
}

/// The subscriber at an inlet: hands on what it receives. The junction holds the inlet, not this. Asks for more by
/// ``Inlet/request(_:)`` only.
@usableFromInline final class InletSubscriber<Input, Failure: Error>: Subscriber {
  @usableFromInline let inlet: Inlet
  @usableFromInline let take: (Input) -> Void
  @usableFromInline let end: (Subscribers.Completion<Failure>) -> Void

  @inlinable init(
    _ inlet: Inlet, _ take: @escaping (Input) -> Void, end: @escaping (Subscribers.Completion<Failure>) -> Void
  ) {
    (self.inlet, self.take, self.end) = (inlet, take, end)
  }

  @inlinable func receive(subscription: any Subscription) { inlet.receive(subscription: subscription) }

  @inlinable func receive(_ input: Input) -> Subscribers.Demand {
    if inlet.isLive { take(input) }
    return .none
  }

  @inlinable func receive(completion: Subscribers.Completion<Failure>) { if inlet.finish() { end(completion) } }
}
