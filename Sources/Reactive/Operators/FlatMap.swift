import Locks

extension Publishers {
  /// Transforms each value into a publisher and delivers the values of all these publishers, in the order of their
  /// arrival.
  public struct FlatMap<NewPublisher: Publisher, Upstream: Publisher>: Operator
  where NewPublisher.Failure == Upstream.Failure {
    /// The values of the new publishers.
    public typealias Output = NewPublisher.Output
    /// The upstream publisher.
    public let upstream: Upstream
    /// The number of publishers that may be active at a time.
    public let maxPublishers: Subscribers.Demand
    /// Transforms a value into a publisher.
    public let transform: @Sendable (Upstream.Output) -> NewPublisher

    /// Creates the operator for `upstream`.
    @preconcurrency @inlinable public init(
      upstream: Upstream, maxPublishers: Subscribers.Demand,
      transform: @escaping @Sendable (Upstream.Output) -> NewPublisher
    ) {
      (self.upstream, self.maxPublishers, self.transform) = (upstream, maxPublishers, transform)
    }

    /// Attaches the subscriber and requests `maxPublishers` values from upstream.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      let link = MergeLink(subscriber, "FlatMap")
      link.open()
      if link.core.isOver { return }
      let outer = Inlet(maxPublishers)
      link.setOuter(outer)
      upstream.subscribe(
        InletSubscriber(
          outer,
          { [transform, isBounded = maxPublishers != .unlimited] in
            let publisher = transform($0)
            // The value is known: subscribing to this publisher would cost four times as much as the rest.
            if let just = publisher as? Just<Output>, link.pass(just.output) {
              if isBounded { outer.request(.max(1)) }
            } else {
              link.add(publisher, replenishing: isBounded ? outer : nil)
            }
          },
          end: {
            if case .finished = $0 { link.finishOne() } else { link.perform(.end($0)) }
          }))
    }
  }

  /// Delivers the values of the newest publisher that upstream sends.
  public struct SwitchToLatest<P: Publisher, Upstream: Publisher>: Publisher
  where Upstream.Output == P, Upstream.Failure == P.Failure {
    /// The values of the publishers.
    public typealias Output = P.Output
    /// The failure type of upstream and of the publishers.
    public typealias Failure = P.Failure
    /// The publisher of publishers.
    public let upstream: Upstream

    /// Creates the operator for `upstream`.
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// Attaches the subscriber. Requests unlimited values from upstream immediately, and the unmet demand from the
    /// newest publisher.
    @inlinable public func receive<S: Subscriber<P.Output, P.Failure>>(subscriber: S) {
      let link = SwitchLink<P, S>(subscriber, "SwitchToLatest")
      link.begin()
      if link.core.isOver { return }
      upstream.subscribe(InletSubscriber(link.upstream, link.follow, end: { link.perform(.end($0, of: nil)) }))
    }
  }
}

/// Switches to each publisher that arrives, and away from the previous one.
@usableFromInline final class SwitchLink<P: Publisher, Down: Subscriber>: Junction
where P.Output == Down.Input, P.Failure == Down.Failure {
  @usableFromInline enum Event {
    case next(Inlet)
    case value(P.Output, from: Inlet)
    /// The completion of an inlet; of upstream if there is no inlet.
    case end(Subscribers.Completion<P.Failure>, of: Inlet?)
  }
  @usableFromInline struct Latest {
    @usableFromInline var inlet: Inlet?
    @usableFromInline var isOver = false
  }
  @usableFromInline let core: JunctionCore<Event, Down>
  @usableFromInline let upstream = Inlet(.unlimited)
  @usableFromInline let latest = Locked(Latest())
  // Accessed only by the handling thread.
  @usableFromInline var current: Inlet?
  @usableFromInline var upstreamIsFinished = false

  @inlinable init(_ down: Down, _ description: String) { core = JunctionCore(down, description) }

  /// Switches to the newest publisher and cancels the previous one. Called by upstream, whose signals are serial.
  @inlinable func follow(_ publisher: P) {
    let inlet = Inlet()
    let (before, isOver) = latest.withLock { latest in
      defer { latest.inlet = latest.isOver ? nil : inlet }
      return (latest.inlet, latest.isOver)
    }
    before?.cancel()
    if isOver { return }
    perform(.next(inlet))
    publisher.subscribe(
      InletSubscriber(
        inlet, { self.perform(.value($0, from: inlet)) }, end: { self.perform(.end($0, of: inlet)) }))
  }

  @inlinable func leave() {
    upstream.cancel()
    let inlet = latest.withLock { latest in
      latest.isOver = true
      return latest.inlet.take()
    }
    inlet?.cancel()
  }

  @inlinable func request(_ demand: Subscribers.Demand, for down: Down) { current?.request(demand) }

  @inlinable func handle(_ event: Event, for down: Down) {
    switch event {
    case .next(let inlet):
      current = inlet
      if core.demand != .none { inlet.request(core.demand) }
    case .value(let value, let inlet):
      guard inlet === current, core.demand > .none else { break }
      let more = emit(value, for: down)
      if more != .none { inlet.request(more) }
    case .end(.finished, let inlet):
      if inlet == nil { upstreamIsFinished = true } else if inlet === current { current = nil }
      if upstreamIsFinished, current == nil { end(.finished, for: down) }
    case .end(let failure, _): end(failure, for: down)
    }
  }
}

extension Publisher {
  /// Transforms each value into a publisher and delivers the values of all these publishers, in the order of their
  /// arrival. While the demand is finite, one value ahead is requested from each, the first when it attaches.
  ///
  /// `maxPublishers` is the number of publishers active at a time. As many values are requested from upstream, and one
  /// more when a publisher has finished and none of its values waits.
  @preconcurrency @inlinable public func flatMap<P: Publisher>(
    maxPublishers: Subscribers.Demand = .unlimited, _ transform: @escaping @Sendable (Output) -> P
  ) -> Publishers.FlatMap<P, Self> where P.Failure == Failure {
    Publishers.FlatMap(upstream: self, maxPublishers: maxPublishers, transform: transform)
  }

  /// The same, for new publishers that never fail.
  @preconcurrency @inlinable public func flatMap<P: Publisher>(
    maxPublishers: Subscribers.Demand = .unlimited, _ transform: @escaping @Sendable (Output) -> P
  ) -> Publishers.FlatMap<Publishers.SetFailureType<P, Failure>, Self> where P.Failure == Never {
    flatMap(maxPublishers: maxPublishers, own { transform($0).setFailureType(to: Failure.self) })
  }
}

extension Publisher where Failure == Never {
  /// The same, for upstreams that never fail.
  @preconcurrency @inlinable public func flatMap<P: Publisher>(
    maxPublishers: Subscribers.Demand = .unlimited, _ transform: @escaping @Sendable (Output) -> P
  ) -> Publishers.FlatMap<P, Publishers.SetFailureType<Self, P.Failure>> {
    setFailureType(to: P.Failure.self).flatMap(maxPublishers: maxPublishers, transform)
  }

  /// The same, if neither upstream nor the new publishers fail.
  @preconcurrency @inlinable public func flatMap<P: Publisher>(
    maxPublishers: Subscribers.Demand = .unlimited, _ transform: @escaping @Sendable (Output) -> P
  ) -> Publishers.FlatMap<P, Self> where P.Failure == Never {
    Publishers.FlatMap(upstream: self, maxPublishers: maxPublishers, transform: transform)
  }
}

extension Publisher where Output: Publisher, Output.Failure == Failure {
  /// Delivers the values of the newest publisher and cancels the previous one. The unmet demand is requested from each.
  @inlinable public func switchToLatest() -> Publishers.SwitchToLatest<Output, Self> {
    Publishers.SwitchToLatest(upstream: self)
  }
}

extension Publisher where Output: Publisher, Output.Failure == Never {
  /// The same, for publishers that never fail.
  @inlinable public func switchToLatest()
    -> Publishers.SwitchToLatest<
      Publishers.SetFailureType<Output, Failure>, Publishers.Map<Self, Publishers.SetFailureType<Output, Failure>>
    >
  {
    map(own { $0.setFailureType(to: Failure.self) }).switchToLatest()
  }
}

extension Publisher where Failure == Never, Output: Publisher {
  /// The same, for upstreams that never fail.
  @inlinable public func switchToLatest()
    -> Publishers.SwitchToLatest<
      Output, Publishers.SetFailureType<Self, Output.Failure>
    >
  {
    setFailureType(to: Output.Failure.self).switchToLatest()
  }
}

extension Publisher where Failure == Never, Output: Publisher, Output.Failure == Never {
  /// The same, if neither upstream nor the publishers fail.
  @inlinable public func switchToLatest() -> Publishers.SwitchToLatest<Output, Self> {
    Publishers.SwitchToLatest(upstream: self)
  }
}
