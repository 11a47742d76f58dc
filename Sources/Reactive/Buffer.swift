extension Publishers {
  /// When a buffer asks for values.
  public enum PrefetchStrategy: Hashable, Sendable {
    /// For as many as it holds at once, and for another with each that it delivers.
    case keepFull
    /// For everything at once.
    case byRequest
  }

  /// What a buffer does with a value for which it has no room.
  public enum BufferingStrategy<Failure: Error> {
    /// Drops it.
    case dropNewest
    /// Drops the oldest one to make room.
    case dropOldest
    /// Cancels upstream; fails after the values that it holds.
    case customError(() -> Failure)
  }

  /// Holds values until there is demand for them.
  public struct Buffer<Upstream: Publisher>: Operator {
    /// Where the values come from.
    public let upstream: Upstream
    /// How many values are held.
    public let size: Int
    /// When upstream is asked.
    public let prefetch: PrefetchStrategy
    /// What becomes of values for which there is no room.
    public let whenFull: BufferingStrategy<Failure>

    /// `upstream.buffer(size: size, prefetch: prefetch, whenFull: whenFull)`
    public init(
      upstream: Upstream, size: Int, prefetch: PrefetchStrategy, whenFull: BufferingStrategy<Failure>
    ) {
      precondition(size >= 0, "the size of a buffer must not be negative, it is \(size)")
      (self.upstream, self.size, self.prefetch, self.whenFull) = (upstream, size, prefetch, whenFull)
    }

    /// Attaches the subscriber.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      upstream.subscribe(BufferLink(size, prefetch, whenFull, subscriber))
    }
  }
}

@usableFromInline final class BufferLink<Down: Subscriber>: Subscriber, Subscription {
  @usableFromInline struct State {
    /// None after the end: a subscriber that keeps its subscription keeps nothing else alive.
    @usableFromInline var down: Down?
    @usableFromInline var values = Fifo<Down.Input>()
    @usableFromInline var demand = Subscribers.Demand.none
    @usableFromInline var ending: Subscribers.Completion<Down.Failure>?

    @inlinable init(down: Down?) { self.down = down }
  }

  @usableFromInline let upstream = UpstreamSlot()
  @usableFromInline let state: Guarded<State>
  @usableFromInline let loop = DrainLoop()
  @usableFromInline let size: Int
  @usableFromInline let prefetch: Publishers.PrefetchStrategy
  @usableFromInline let whenFull: Publishers.BufferingStrategy<Down.Failure>

  @inlinable init(
    _ size: Int, _ prefetch: Publishers.PrefetchStrategy, _ whenFull: Publishers.BufferingStrategy<Down.Failure>,
    _ down: Down
  ) {
    (self.size, self.prefetch, self.whenFull) = (size, prefetch, whenFull)
    state = Guarded(State(down: down))
  }

  @inlinable func receive(subscription: any Subscription) {
    guard upstream.attach(subscription) else { return }
    let down = state.withLock { $0.down }
    down?.receive(subscription: self)
    upstream.request(prefetch == .keepFull ? .max(size) : .unlimited)
  }

  @inlinable func receive(_ value: Down.Input) -> Subscribers.Demand {
    guard upstream.isLive else { return .none }
    let (isFull, dropped) = state.withLock { state -> (Bool, Down.Input?) in
      // Values for which there is demand are on their way out: whoever is at work in the loop takes them.
      guard let wanted = state.demand.max, state.values.count - wanted >= size else {
        state.values.append(value)
        return (false, nil)
      }
      guard case .dropOldest = whenFull, size > 0 else { return (true, nil) }
      let oldest = state.values.popFirst()
      state.values.append(value)
      return (false, oldest)
    }
    _ = consume dropped
    if isFull, case .customError(let error) = whenFull, upstream.cancel() { end(with: .failure(error())) }
    loop.run(deliver)
    return .none
  }

  @inlinable func receive(completion: Subscribers.Completion<Down.Failure>) {
    if upstream.finish() { end(with: completion) }
  }

  @inlinable func request(_ demand: Subscribers.Demand) {
    state.withLock { $0.demand += demand }
    loop.run(deliver)
  }

  @inlinable func cancel() {
    upstream.cancel()
    release()
  }

  @inlinable func end(with completion: Subscribers.Completion<Down.Failure>) {
    state.withLock { $0.ending = completion }
    loop.run(deliver)
  }

  @inlinable func deliver() {
    while let (down, value, ending) = next() {
      if let value {
        let more = down.receive(value)
        if more != .none { state.withLock { $0.demand += more } }
        if prefetch == .keepFull { upstream.request(.max(1)) }
      } else if let ending {
        release()
        down.receive(completion: ending)
      }
    }
  }

  /// What there is to deliver now.
  @inlinable func next() -> (Down, Down.Input?, Subscribers.Completion<Down.Failure>?)? {
    state.withLock { state in
      guard let down = state.down else { return nil }
      guard !state.values.isEmpty else { return state.ending.map { (down, nil, $0) } }
      guard state.demand > .none else { return nil }
      state.demand -= 1
      return (down, state.values.popFirst(), nil)
    }
  }

  @inlinable func release() {
    let state = state.withLock { state in
      defer { state = State(down: nil) }
      return state
    }
    _ = consume state
  }
}

extension Publisher {
  /// Holds up to `size` values until there is demand for them. The end, a failure too, comes after the values held.
  ///
  /// Demand: upstream is asked for `size` values, and another for each one delivered (`keepFull`), or for everything
  /// (`byRequest`).
  public func buffer(
    size: Int, prefetch: Publishers.PrefetchStrategy, whenFull: Publishers.BufferingStrategy<Failure>
  ) -> Publishers.Buffer<Self> {
    Publishers.Buffer(upstream: self, size: size, prefetch: prefetch, whenFull: whenFull)
  }
}
