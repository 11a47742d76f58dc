extension Publishers {
  /// Delivers the values of the publishers that the closure makes of the values, in the order in which they come.
  public struct FlatMap<NewPublisher: Publisher, Upstream: Publisher>: Operator
  where NewPublisher.Failure == Upstream.Failure {
    /// The values of what the closure makes.
    public typealias Output = NewPublisher.Output
    /// Where the values come from.
    public let upstream: Upstream
    /// How many publishers are subscribed to at a time.
    public let maxPublishers: Subscribers.Demand
    /// What becomes of each value.
    public let transform: (Upstream.Output) -> NewPublisher

    /// The operator behind `upstream`.
    @inlinable public init(
      upstream: Upstream, maxPublishers: Subscribers.Demand, transform: @escaping (Upstream.Output) -> NewPublisher
    ) {
      (self.upstream, self.maxPublishers, self.transform) = (upstream, maxPublishers, transform)
    }

    /// Attaches the subscriber. Upstream is asked for `maxPublishers` values at once.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      let confluence = Confluence(subscriber, "FlatMap")
      confluence.open()
      if confluence.core.isOver { return }
      let outer = Inlet(maxPublishers)
      confluence.setOuter(outer)
      upstream.subscribe(
        InletSubscriber(
          outer,
          { [transform, isBounded = maxPublishers != .unlimited] in
            let publisher = transform($0)
            // Known without asking: a subscription to it would cost four times as much as all the rest.
            if let just = publisher as? Just<Output>, confluence.pass(just.output) {
              if isBounded { outer.request(.max(1)) }
            } else {
              confluence.add(publisher, askingThen: isBounded ? outer : nil)
            }
          },
          end: {
            if case .finished = $0 { confluence.finishOne() } else { confluence.perform(.end($0)) }
          }))
    }
  }

  /// Delivers the values of the newest of several publishers.
  public struct SwitchToLatest<P: Publisher, Upstream: Publisher>: Publisher
  where Upstream.Output == P, Upstream.Failure == P.Failure {
    /// The values of the publishers.
    public typealias Output = P.Output
    /// The failures of all.
    public typealias Failure = P.Failure
    /// Where the publishers come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// Attaches the subscriber. Upstream is asked for everything at once; the newest publisher for what is still
    /// wanted.
    @inlinable public func receive<S: Subscriber<P.Output, P.Failure>>(subscriber: S) {
      let link = SwitchLink<P, S>(subscriber, "SwitchToLatest")
      link.begin()
      if link.core.isOver { return }
      upstream.subscribe(InletSubscriber(link.upstream, link.follow, end: { link.perform(.end($0, of: nil)) }))
    }
  }
}

/// One publisher after another, each until the next one comes.
@usableFromInline final class SwitchLink<P: Publisher, Down: Subscriber>: Junction
where P.Output == Down.Input, P.Failure == Down.Failure {
  @usableFromInline enum Event {
    case next(Inlet)
    case value(P.Output, from: Inlet)
    /// Of upstream, when of no inlet.
    case end(Subscribers.Completion<P.Failure>, of: Inlet?)
  }
  @usableFromInline struct Latest {
    @usableFromInline var inlet: Inlet?
    @usableFromInline var isOver = false
  }
  @usableFromInline let core: JunctionCore<Event, Down>
  @usableFromInline let upstream = Inlet(.unlimited)
  @usableFromInline let latest = Guarded(Latest())
  // Touched by the one at work.
  @usableFromInline var current: Inlet?
  @usableFromInline var upstreamIsFinished = false

  @inlinable init(_ down: Down, _ description: String) { core = JunctionCore(down, description) }

  /// The newest publisher; the one before is cancelled. For upstream, whose signals are serial.
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

  @inlinable func ask(_ demand: Subscribers.Demand, for down: Down) { current?.request(demand) }

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
  /// Delivers the values of the publishers that the closure makes of the values, in the order in which they come. While
  /// demand is counted, each is asked for one value ahead.
  ///
  /// - Parameter maxPublishers: How many are subscribed to at a time; upstream is asked for as many values, and for another
  ///   when one has finished and nothing of it waits.
  @inlinable public func flatMap<P: Publisher>(
    maxPublishers: Subscribers.Demand = .unlimited, _ transform: @escaping (Output) -> P
  ) -> Publishers.FlatMap<P, Self> where P.Failure == Failure {
    Publishers.FlatMap(upstream: self, maxPublishers: maxPublishers, transform: transform)
  }

  /// The same for publishers that can't fail.
  @inlinable public func flatMap<P: Publisher>(
    maxPublishers: Subscribers.Demand = .unlimited, _ transform: @escaping (Output) -> P
  ) -> Publishers.FlatMap<Publishers.SetFailureType<P, Failure>, Self> where P.Failure == Never {
    flatMap(maxPublishers: maxPublishers) { transform($0).setFailureType(to: Failure.self) }
  }
}

extension Publisher where Failure == Never {
  /// The same for upstreams that can't fail.
  @inlinable public func flatMap<P: Publisher>(
    maxPublishers: Subscribers.Demand = .unlimited, _ transform: @escaping (Output) -> P
  ) -> Publishers.FlatMap<P, Publishers.SetFailureType<Self, P.Failure>> {
    setFailureType(to: P.Failure.self).flatMap(maxPublishers: maxPublishers, transform)
  }

  /// The same where nothing can fail.
  @inlinable public func flatMap<P: Publisher>(
    maxPublishers: Subscribers.Demand = .unlimited, _ transform: @escaping (Output) -> P
  ) -> Publishers.FlatMap<P, Self> where P.Failure == Never {
    Publishers.FlatMap(upstream: self, maxPublishers: maxPublishers, transform: transform)
  }
}

extension Publisher where Output: Publisher, Output.Failure == Failure {
  /// Delivers the values of the newest publisher; one that a newer follows is cancelled. Each is asked for what is
  /// still wanted.
  @inlinable public func switchToLatest() -> Publishers.SwitchToLatest<Output, Self> {
    Publishers.SwitchToLatest(upstream: self)
  }
}

extension Publisher where Output: Publisher, Output.Failure == Never {
  /// The same for publishers that can't fail.
  @inlinable public func switchToLatest()
    -> Publishers.SwitchToLatest<
      Publishers.SetFailureType<Output, Failure>, Publishers.Map<Self, Publishers.SetFailureType<Output, Failure>>
    >
  {
    map { $0.setFailureType(to: Failure.self) }.switchToLatest()
  }
}

extension Publisher where Failure == Never, Output: Publisher {
  /// The same for upstreams that can't fail.
  @inlinable public func switchToLatest()
    -> Publishers.SwitchToLatest<
      Output, Publishers.SetFailureType<Self, Output.Failure>
    >
  {
    setFailureType(to: Output.Failure.self).switchToLatest()
  }
}

extension Publisher where Failure == Never, Output: Publisher, Output.Failure == Never {
  /// The same where nothing can fail.
  @inlinable public func switchToLatest() -> Publishers.SwitchToLatest<Output, Self> {
    Publishers.SwitchToLatest(upstream: self)
  }
}
