import Synchronization

// One upstream after another for one subscriber: what it has asked for and not got yet is asked of the next. Two
// objects: what leads from the subscriber up (the baton), and what leads from upstream down (the course). The first
// does not hold the second, so that a subscriber which keeps its subscription keeps nothing else alive.

/// The subscription: remembers what was asked for, and whom to ask.
@usableFromInline final class Baton: Subscription, CustomStringConvertible {
  @usableFromInline struct State {
    @usableFromInline var holder: UpstreamHandle?
    @usableFromInline var isOver = false
  }
  @usableFromInline let state = Guarded(State())
  @usableFromInline let tally = DemandTally()
  @usableFromInline let description: String

  @usableFromInline init(_ description: String) { self.description = description }

  /// Whoever has it is asked for what is left.
  ///
  /// - Parameter delivered: How many values the subscriber has got.
  @inlinable func pass(to holder: UpstreamHandle, delivered: UInt64) {
    let (requested, isOver) = state.withLock { state in
      if !state.isOver { state.holder = holder }
      return (tally.requested, state.isOver)
    }
    if isOver { return holder.cancel() }
    if requested == DemandTally.unlimited {
      holder.request(.unlimited)
    } else if requested > delivered {
      holder.request(.max(Int(clamping: requested - delivered)))
    }
  }

  /// Counts what the holder has been asked for already.
  @inlinable func add(_ demand: Subscribers.Demand) { tally.add(demand) }

  @usableFromInline func request(_ demand: Subscribers.Demand) {
    let holder = state.withLock { state in
      tally.add(demand)
      return state.holder
    }
    holder?.request(demand)
  }

  @usableFromInline func cancel() { end()?.cancel() }

  /// - Returns: True for the one call that ends it, before any cancellation.
  @inlinable func finish() -> Bool { end() != nil }

  /// Whether nobody will be asked any more.
  @inlinable var isOver: Bool { state.withLock { $0.isOver } }

  @inlinable func end() -> UpstreamHandle? {
    state.withLock { state in
      defer { state.isOver = true }
      return state.isOver ? nil : state.holder.take() ?? UpstreamHandle("")
    }
  }
}

/// The way of the values of one upstream after another.
@usableFromInline final class Course<Down: Subscriber> {
  @usableFromInline let baton: Baton
  @usableFromInline let down: Down
  /// Counted by the upstream of the moment, whose signals are serial.
  @usableFromInline @exclusivity(unchecked) var delivered: UInt64 = 0
  @usableFromInline let loop = DrainLoop()
  @usableFromInline var upcoming: (() -> Void)?

  /// Gives the subscriber its subscription.
  @inlinable init(_ down: Down, _ description: String) {
    (self.down, baton) = (down, Baton(description))
    down.receive(subscription: baton)
  }

  /// Goes on with this publisher. When the one before ended while subscribing, its caller does, so that the depth is 1.
  ///
  /// - Parameter onEnd: What to do at its end: follow another, or ``finish(_:)``.
  @inlinable func follow<P: Publisher>(_ publisher: P, onEnd: @escaping (Subscribers.Completion<P.Failure>) -> Void)
  where P.Output == Down.Input {
    if baton.isOver { return }
    upcoming = { publisher.subscribe(Leg(self, onEnd: onEnd)) }
    loop.run { upcoming.take()?() }
  }

  @inlinable func finish(_ completion: Subscribers.Completion<Down.Failure>) {
    if baton.finish() { down.receive(completion: completion) }
  }

  /// Goes on with this publisher up to the end.
  @inlinable func finish<P: Publisher>(with publisher: P) where P.Output == Down.Input, P.Failure == Down.Failure {
    follow(publisher) { self.finish($0) }
  }
}

/// The subscriber of one upstream of several.
@usableFromInline final class Leg<Failure: Error, Down: Subscriber>: Subscriber {
  @usableFromInline typealias Input = Down.Input
  @usableFromInline let upstream = UpstreamHandle("")
  @usableFromInline let course: Course<Down>
  @usableFromInline let onEnd: (Subscribers.Completion<Failure>) -> Void

  @inlinable init(_ course: Course<Down>, onEnd: @escaping (Subscribers.Completion<Failure>) -> Void) {
    (self.course, self.onEnd) = (course, onEnd)
  }

  @inlinable func receive(subscription: any Subscription) {
    if upstream.slot.attach(subscription) { course.baton.pass(to: upstream, delivered: course.delivered) }
  }

  @inlinable func receive(_ value: Down.Input) -> Subscribers.Demand {
    guard upstream.slot.isLive else { return .none }
    course.delivered += 1
    let more = course.down.receive(value)
    course.baton.add(more)
    return more
  }

  @inlinable func receive(completion: Subscribers.Completion<Failure>) {
    if upstream.slot.finish() { onEnd(completion) }
  }
}
