import Synchronization

/// A subscription with several upstreams. Signals from the upstreams and calls from the subscriber are handled
/// serially; state that only the handler accesses needs no lock.
@usableFromInline protocol Junction: AnyObject, DroppingSubscription, CustomStringConvertible {
  /// A signal from an upstream.
  associatedtype Event
  associatedtype Down: Subscriber
  var core: JunctionCore<Event, Down> { get }
  /// Handles an event. Not called after the end.
  func handle(_ event: Event, for down: Down)
  /// Handles new demand from the subscriber. `core.demand` already includes it.
  func request(_ demand: Subscribers.Demand, for down: Down)
  /// Releases what is held for the subscriber. Called on the handling thread, after the end.
  func drop()
  /// Cancels the upstreams, and those that attach later. Called one or more times, on any thread.
  func leave()
}

/// The state that all junctions share.
@usableFromInline final class JunctionCore<Event, Down: Subscriber> {
  @usableFromInline enum Step {
    case event(Event)
    case request(Subscribers.Demand)
    case release
  }
  @usableFromInline let serial = Serial<Step>()
  @usableFromInline let over = Atomic(false)
  // Accessed only by the handling thread.
  @safe @usableFromInline @exclusivity(unchecked) var demand = Subscribers.Demand.none
  @safe @usableFromInline @exclusivity(unchecked) var down: Down?

  @usableFromInline let description: String

  @inlinable init(_ down: Down, _ description: String) { (self.down, self.description) = (down, description) }

  /// Whether the subscription has ended or was cancelled.
  @inlinable var isOver: Bool { over.load(ordering: .acquiring) }

  /// - Returns: True for the one call that ends the subscription.
  @inlinable func end() -> Bool { !over.exchange(true, ordering: .acquiringAndReleasing) }
}

extension Junction {
  @inlinable var description: String { core.description }

  @inlinable func drop() {}

  /// Sends the subscription to the subscriber. Must be the first call.
  @inlinable func begin() { core.down?.receive(subscription: self) }

  @inlinable func perform(_ event: Event) {
    if core.serial.enter() {
      if let down = core.down, !core.isOver { handle(event, for: down) }
      let missed = core.serial.leave()
      if missed != 0 { work(missed) }
    } else {
      enqueue(.event(event))
    }
  }

  // Passing `self` to a call would retain it for each value; a method reference in place of a closure would allocate.

  @usableFromInline func work(_ missed: Int) { core.serial.work(missed) { handle($0) } }

  @usableFromInline func enqueue(_ step: JunctionCore<Event, Down>.Step) {
    core.serial.enqueue(step) { handle($0) }
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
      request(demand, for: down)
    case .release: break
    }
  }

  /// Delivers a value for which there is demand. Only the handler calls it.
  ///
  /// - Returns: The subscriber's additional demand.
  @inlinable func emit(_ value: Down.Input, for down: Down) -> Subscribers.Demand {
    core.demand -= 1
    let more = down.receive(value)
    core.demand += more
    return more
  }

  /// Delivers the completion, unless the subscriber has cancelled. Only the handler calls it.
  @inlinable func end(_ completion: Subscribers.Completion<Down.Failure>, for down: Down) {
    core.down = nil
    drop()
    guard core.end() else { return }
    leave()
    down.receive(completion: completion)
  }
}

/// One upstream of a junction. It accepts demand before upstream's subscription arrives.
@usableFromInline class Inlet {
  @usableFromInline final let slot = UpstreamSlot()
  /// The demand that arrived before the subscription.
  @usableFromInline final let early: TotalDemand

  @inlinable init(_ demand: Subscribers.Demand = .none) { early = TotalDemand(demand) }

  /// True until the end, also before the subscription arrives.
  @inlinable final var isLive: Bool { slot.isLive }

  /// Stores the subscription and requests the demand so far. Cancels the subscription if there already is one or the
  /// inlet has ended.
  @inlinable final func receive(subscription: any Subscription) { if slot.attach(subscription) { requestEarly() } }

  @inlinable final func request(_ demand: Subscribers.Demand) {
    if slot.hasSubscription { return slot.request(demand) }
    early.add(demand)
    if slot.hasSubscription { requestEarly() }  // the subscription may have arrived without seeing this demand
  }

  @usableFromInline final func requestEarly() {
    let demand = early.takeAll()
    if demand != .none { slot.request(demand) }
  }

  /// Handles upstream's end.
  ///
  /// - Returns: True for the one call that ends the inlet.
  @inlinable final func finish() -> Bool { slot.finish() }

  @inlinable final func cancel() { slot.cancel() }
}

/// The subscriber at an inlet: passes signals on to the junction. The junction holds the inlet, not this object. New
/// demand is sent only by ``Inlet/request(_:)``.
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
