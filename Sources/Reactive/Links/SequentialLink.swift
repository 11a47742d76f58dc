import Locks
import Synchronization

// A sequence of upstreams for one subscriber: the unmet demand of the subscriber is requested from the next upstream.
// Two objects: the subscription leads from the subscriber to upstream, the link from upstream to the subscriber. The
// subscription does not hold the link, so a subscriber that keeps its subscription keeps nothing else alive.

/// The subscription. It stores the total demand and the current upstream.
@usableFromInline final class SequentialSubscription: Subscription, CustomStringConvertible {
  @usableFromInline struct State {
    @usableFromInline var current: UpstreamHandle?
    @usableFromInline var isOver = false
  }
  @usableFromInline let state = Locked(State())
  @usableFromInline let total = TotalDemand()
  @usableFromInline let description: String

  @usableFromInline init(_ description: String) { self.description = description }

  /// Makes `upstream` the current one and requests the unmet demand from it.
  ///
  /// - Parameter delivered: The number of values delivered so far.
  @inlinable func attach(_ upstream: UpstreamHandle, delivered: UInt64) {
    let (requested, isOver) = state.withLock { state in
      if !state.isOver { state.current = upstream }
      return (total.requested, state.isOver)
    }
    if isOver { return upstream.cancel() }
    if requested == TotalDemand.unlimited {
      upstream.request(.unlimited)
    } else if requested > delivered {
      upstream.request(.max(Int(clamping: requested - delivered)))
    }
  }

  /// Adds demand that the current upstream has already received.
  @inlinable func add(_ demand: Subscribers.Demand) { total.add(demand) }

  @usableFromInline func request(_ demand: Subscribers.Demand) {
    let current = state.withLock { state in
      total.add(demand)
      return state.current
    }
    current?.request(demand)
  }

  @usableFromInline func cancel() { end()?.cancel() }

  /// - Returns: True for the one call that ends the subscription, if it was not cancelled before.
  @inlinable func finish() -> Bool { end() != nil }

  /// Whether no further demand will be sent.
  @inlinable var isOver: Bool { state.withLock { $0.isOver } }

  @inlinable func end() -> UpstreamHandle? {
    state.withLock { state in
      defer { state.isOver = true }
      return state.isOver ? nil : state.current.take() ?? UpstreamHandle("")
    }
  }
}

/// Delivers the values of one upstream after another.
@usableFromInline final class SequentialLink<Down: Subscriber> {
  @usableFromInline let subscription: SequentialSubscription
  @usableFromInline let down: Down
  /// Counted by the current upstream, whose signals are serial.
  @safe @usableFromInline @exclusivity(unchecked) var delivered: UInt64 = 0
  @usableFromInline let loop = DrainLoop()
  @usableFromInline var upcoming: (() -> Void)?

  /// Sends the subscription to the subscriber.
  @inlinable init(_ down: Down, _ description: String) {
    (self.down, subscription) = (down, SequentialSubscription(description))
    down.receive(subscription: subscription)
  }

  /// Subscribes to the next publisher. If the previous one ended while subscribing, its caller subscribes, so that the
  /// recursion depth is 1.
  ///
  /// - Parameter onEnd: Called at the publisher's end; follows another publisher or calls ``finish(_:)``.
  @inlinable func follow<P: Publisher>(_ publisher: P, onEnd: @escaping (Subscribers.Completion<P.Failure>) -> Void)
  where P.Output == Down.Input {
    if subscription.isOver { return }
    upcoming = { publisher.subscribe(SequentialSubscriber(self, onEnd: onEnd)) }
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
    if subscription.finish() { down.receive(completion: completion) }
  }

  /// Subscribes to the last publisher and passes its completion on.
  @inlinable func finish<P: Publisher>(with publisher: P) where P.Output == Down.Input, P.Failure == Down.Failure {
    follow(publisher) { self.finish($0) }
  }
}

/// The subscriber of one of the upstreams.
@usableFromInline final class SequentialSubscriber<Failure: Error, Down: Subscriber>: Subscriber {
  @usableFromInline typealias Input = Down.Input
  @usableFromInline let upstream = UpstreamHandle("")
  @usableFromInline let link: SequentialLink<Down>
  @usableFromInline let onEnd: (Subscribers.Completion<Failure>) -> Void

  @inlinable init(_ link: SequentialLink<Down>, onEnd: @escaping (Subscribers.Completion<Failure>) -> Void) {
    (self.link, self.onEnd) = (link, onEnd)
  }

  @inlinable func receive(subscription: any Subscription) {
    if upstream.slot.attach(subscription) { link.subscription.attach(upstream, delivered: link.delivered) }
  }

  @inlinable func receive(_ value: Down.Input) -> Subscribers.Demand {
    guard upstream.slot.isLive else { return .none }
    link.delivered += 1
    let more = link.down.receive(value)
    link.subscription.add(more)
    return more
  }

  @inlinable func receive(completion: Subscribers.Completion<Failure>) {
    if upstream.slot.finish() { onEnd(completion) }
  }
}
