/// An event from one of two publishers.
@usableFromInline enum PairEvent<A, B, Failure: Error> {
  case first(A)
  case second(B)
  case firstFinished
  case secondFinished
  case failure(Failure)
}

/// Combines two publishers for one subscriber. The subscriber's demand is requested from each of them; if the second is
/// a trigger, one value is requested from it.
///
/// Operators differ only in their rule, which is called serially. Failures do not reach the rule: they end the
/// subscription.
@usableFromInline final class PairLink<A, B, Down: Subscriber>: Junction {
  @usableFromInline typealias Event = PairEvent<A, B, Down.Failure>
  @usableFromInline let core: JunctionCore<Event, Down>
  /// Decides about an event: deliver a value if there is demand, else drop it; skip, and request a replacement; keep, for
  /// no action; or finish.
  @safe @usableFromInline @exclusivity(unchecked) var rule: ((Event) -> Verdict<Down.Input>)?
  @usableFromInline let first = Inlet()
  @usableFromInline let second = Inlet()
  @usableFromInline let secondIsTrigger: Bool

  @inlinable init(
    _ down: Down, _ description: String, secondIsTrigger: Bool = false, rule: @escaping (Event) -> Verdict<Down.Input>
  ) {
    core = JunctionCore(down, description)
    (self.rule, self.secondIsTrigger) = (rule, secondIsTrigger)
  }

  /// Sends the subscription to the subscriber, then attaches to both publishers; to a trigger first.
  ///
  /// - Parameter secondEnd: Converts the completion of the second publisher.
  @inlinable func begin<P: Publisher<A, Down.Failure>, Q: Publisher>(
    _ first: P, _ second: Q, secondEnd: @escaping (Subscribers.Completion<Q.Failure>) -> Event
  ) where Q.Output == B {
    begin()
    if secondIsTrigger {
      self.second.request(.max(1))
      attachSecond(second, secondEnd)
    }
    if !core.isOver {
      first.subscribe(
        InletSubscriber(
          self.first, { self.perform(.first($0)) }, end: { self.perform($0.event(.firstFinished)) }))
    }
    if !secondIsTrigger { attachSecond(second, secondEnd) }
  }

  /// Attaches to two publishers with the same failure type.
  @inlinable func begin<P: Publisher<A, Down.Failure>, Q: Publisher<B, Down.Failure>>(_ first: P, _ second: Q) {
    begin(first, second) { $0.event(.secondFinished) }
  }

  @inlinable func attachSecond<Q: Publisher>(
    _ publisher: Q, _ end: @escaping (Subscribers.Completion<Q.Failure>) -> Event
  ) where Q.Output == B {
    if core.isOver { return }
    publisher.subscribe(InletSubscriber(second, { self.perform(.second($0)) }, end: { self.perform(end($0)) }))
  }

  @inlinable func drop() { rule = nil }

  @inlinable func leave() {
    first.cancel()
    second.cancel()
  }

  @inlinable func request(_ demand: Subscribers.Demand, for down: Down) {
    first.request(demand)
    if !secondIsTrigger { second.request(demand) }
  }

  @inlinable func handle(_ event: Event, for down: Down) {
    if case .failure(let error) = event { return end(.failure(error), for: down) }
    if case .second = event, secondIsTrigger { second.cancel() }
    guard let rule else { return }
    switch rule(event) {
    case .emit(let value): deliver(value, for: down)
    case .keep: break
    case .skip:
      guard core.demand != .unlimited else { break }
      if case .first = event { first.request(.max(1)) } else { second.request(.max(1)) }
    case .finish(let last):
      if let last { deliver(last, for: down) }
      end(.finished, for: down)
    }
  }

  @inlinable func deliver(_ value: Down.Input, for down: Down) {
    guard core.demand > .none else { return }
    let more = emit(value, for: down)
    if more != .none { request(more, for: down) }
  }
}

extension Subscribers.Completion {
  /// Converts this completion into an event of one of two publishers.
  @inlinable func event<A, B>(_ finished: PairEvent<A, B, Failure>) -> PairEvent<A, B, Failure> {
    if case .failure(let error) = self { .failure(error) } else { finished }
  }
}
