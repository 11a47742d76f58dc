import Synchronization

// A sequence of upstreams for one subscriber: the unmet demand of the subscriber is requested from the next upstream.
// Two objects: the baton leads from the subscriber to upstream, the course from upstream to the subscriber. The baton
// does not hold the course, so a subscriber that keeps its subscription keeps nothing else alive.

/// The subscription. It stores the total demand and the current upstream.
@usableFromInline final class Baton: Subscription, CustomStringConvertible {
  @usableFromInline struct State {
    @usableFromInline var holder: UpstreamHandle?
    @usableFromInline var isOver = false
  }
  @usableFromInline let state = Guarded(State())
  @usableFromInline let tally = DemandTally()
  @usableFromInline let description: String

  @usableFromInline init(_ description: String) { self.description = description }

  /// Makes `holder` the current upstream and requests the unmet demand from it.
  ///
  /// - Parameter delivered: The number of values delivered so far.
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

  /// Adds demand that the holder has already received.
  @inlinable func add(_ demand: Subscribers.Demand) { tally.add(demand) }

  @usableFromInline func request(_ demand: Subscribers.Demand) {
    let holder = state.withLock { state in
      tally.add(demand)
      return state.holder
    }
    holder?.request(demand)
  }

  @usableFromInline func cancel() { end()?.cancel() }

  /// - Returns: True for the one call that ends the subscription, if it was not cancelled before.
  @inlinable func finish() -> Bool { end() != nil }

  /// Whether no further demand will be sent.
  @inlinable var isOver: Bool { state.withLock { $0.isOver } }

  @inlinable func end() -> UpstreamHandle? {
    state.withLock { state in
      defer { state.isOver = true }
      return state.isOver ? nil : state.holder.take() ?? UpstreamHandle("")
    }
  }
}

/// Delivers the values of one upstream after another.
@usableFromInline final class Course<Down: Subscriber> {
  @usableFromInline let baton: Baton
  @usableFromInline let down: Down
  /// Counted by the current upstream, whose signals are serial.
  @usableFromInline @exclusivity(unchecked) var delivered: UInt64 = 0
  @usableFromInline let loop = DrainLoop()
  @usableFromInline var upcoming: (() -> Void)?

  /// Sends the subscription to the subscriber.
  @inlinable init(_ down: Down, _ description: String) {
    (self.down, baton) = (down, Baton(description))
    down.receive(subscription: baton)
  }

  /// Subscribes to the next publisher. If the previous one ended while subscribing, its caller subscribes, so that the
  /// recursion depth is 1.
  ///
  /// - Parameter onEnd: Called at the publisher's end; follows another publisher or calls ``finish(_:)``.
  @inlinable func follow<P: Publisher>(_ publisher: P, onEnd: @escaping (Subscribers.Completion<P.Failure>) -> Void)
  where P.Output == Down.Input {
    if baton.isOver { return }
    upcoming = { publisher.subscribe(Leg(self, onEnd: onEnd)) }
    loop.run { upcoming.take()?() }
  }

  /// Subscribes to a publisher and, when it fails, to the publisher that the closure returns.
  @inlinable func follow<P: Publisher, Q: Publisher<Down.Input, Mode.UpstreamFailure>, Mode: Fallibility>(
    _ publisher: P, _ mode: Mode, catching handler: @escaping (P.Failure) throws(Mode.Thrown) -> Q
  ) where P.Output == Down.Input, Mode.Failure == Down.Failure {
    follow(publisher) { completion in
      guard case .failure(let error) = completion else { return self.finish(.finished) }
      do throws(Mode.Thrown) {
        self.follow(try handler(error)) { self.finish($0.mapFailure(mode.passed)) }
      } catch {
        self.finish(.failure(mode.thrown(error)))
      }
    }
  }

  @inlinable func finish(_ completion: Subscribers.Completion<Down.Failure>) {
    if baton.finish() { down.receive(completion: completion) }
  }

  /// Subscribes to the last publisher and passes its completion on.
  @inlinable func finish<P: Publisher>(with publisher: P) where P.Output == Down.Input, P.Failure == Down.Failure {
    follow(publisher) { self.finish($0) }
  }
}

/// The subscriber of one of the upstreams.
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
