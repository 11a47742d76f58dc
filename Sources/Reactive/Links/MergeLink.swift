import Locks
import Synchronization

/// Merges the values of any number of publishers for one subscriber, in the order of their arrival.
///
/// While the demand is finite, the link requests one value at a time from each publisher, the first one as soon as it
/// attaches. The value waits here for demand; the next one is requested after its delivery. A publisher counts as
/// finished only when none of its values waits, which also bounds the waiting values.
@usableFromInline final class MergeLink<Down: Subscriber>: Junction {
  @usableFromInline enum Event {
    case value(Down.Input, from: MergeInlet<Down>)
    case end(Subscribers.Completion<Down.Failure>)
  }
  @usableFromInline struct Registry {
    @usableFromInline var inlets: [Inlet?] = []
    /// The upstream that sends further publishers. It requests them itself.
    @usableFromInline var outer: Inlet?
    @usableFromInline var free: [Int] = []
    /// The demand that a new inlet starts with.
    @usableFromInline var firstDemand = Subscribers.Demand.max(1)
    /// The number of parts that have not ended yet. The merged stream finishes when it reaches 0.
    @usableFromInline var live = 0
    @usableFromInline var isOver = false
  }
  @usableFromInline let core: JunctionCore<Event, Down>
  @usableFromInline let registry = Locked(Registry())
  // Accessed only by the handling thread.
  @safe @usableFromInline @exclusivity(unchecked) var waiting = Fifo<(value: Down.Input, inlet: MergeInlet<Down>)>()

  @inlinable init(_ down: Down, _ description: String) { core = JunctionCore(down, description) }

  /// Attaches the subscriber to `publishers`. While it does, the caller counts as one more part that has not ended.
  @inlinable func join<P: Publisher>(_ publishers: [P]) where P.Output == Down.Input, P.Failure == Down.Failure {
    open()
    for publisher in publishers { add(publisher) }
    finishOne()
  }

  /// Sends the subscription to the subscriber. From then on the caller counts as a part that has not ended.
  @inlinable func open() {
    registry.withLock { $0.live += 1 }
    begin()
  }

  /// Records the end of a part that is not an inlet. The last part finishes the merged stream.
  @inlinable func finishOne() {
    let isLast = registry.withLock { registry in
      registry.live -= 1
      return registry.live == 0
    }
    if isLast { perform(.end(.finished)) }
  }

  /// Adds a publisher.
  ///
  /// - Parameter outer: The inlet from which one more value is requested when the publisher finishes.
  @inlinable func add<P: Publisher>(_ publisher: P, replenishing outer: Inlet? = nil)
  where P.Output == Down.Input, P.Failure == Down.Failure {
    let inlet = MergeInlet(self, outer)
    guard let (index, demand) = register(inlet) else { return }
    inlet.index = index
    inlet.request(demand)
    publisher.subscribe(inlet)
  }

  /// Delivers a value that is already known, in place of a publisher of that value alone.
  ///
  /// - Returns: False if the value cannot be delivered now.
  @inlinable func pass(_ value: Down.Input) -> Bool {
    guard core.serial.enter() else { return false }
    var isPassed = false
    if let down = core.down, !core.isOver, core.demand > .none, waiting.isEmpty {
      _ = deliver(value, for: down)
      isPassed = true
    }
    let missed = core.serial.leave()
    if missed != 0 { work(missed) }
    return isPassed
  }

  /// Stores the inlet that sends further publishers, so that cancellation reaches it, too.
  @inlinable func setOuter(_ outer: Inlet) {
    let isOver = registry.withLock { registry in
      if !registry.isOver { registry.outer = outer }
      return registry.isOver
    }
    if isOver { outer.cancel() }
  }

  /// - Returns: The inlet's index and its initial demand; `nil` after the end.
  @inlinable func register(_ inlet: Inlet) -> (index: Int, demand: Subscribers.Demand)? {
    registry.withLock { registry in
      if registry.isOver { return nil }
      registry.live += 1
      let index = registry.free.popLast() ?? registry.inlets.count
      if index == registry.inlets.count { registry.inlets.append(inlet) } else { registry.inlets[index] = inlet }
      return (index, registry.firstDemand)
    }
  }

  /// Removes an inlet that has finished.
  @inlinable func finish(_ finished: MergeInlet<Down>) {
    let index = finished.index
    let (inlet, isLast) = registry.withLock { registry -> (Inlet?, Bool) in
      if registry.isOver { return (nil, false) }
      registry.live -= 1
      registry.free.append(index)
      return (registry.inlets[index].take(), registry.live == 0)
    }
    _ = inlet  // may release the last reference: no deinitialiser may run under the lock
    if isLast { perform(.end(.finished)) } else { finished.outer?.request(.max(1)) }
  }

  @inlinable func leave() {
    let inlets = registry.withLock { registry in
      registry.isOver = true
      return registry.inlets.take() + [registry.outer.take()]
    }
    for inlet in inlets { inlet?.cancel() }
  }

  @inlinable func drop() { waiting = Fifo() }

  @inlinable func request(_ demand: Subscribers.Demand, for down: Down) {
    if core.demand == .unlimited {
      let inlets = registry.withLock { registry -> [Inlet?] in
        if registry.firstDemand == .unlimited { return [] }
        registry.firstDemand = .unlimited
        return registry.inlets
      }
      for inlet in inlets { inlet?.request(.unlimited) }
    }
    while core.demand > .none, !core.isOver, let (value, inlet) = waiting.popFirst() {
      if deliver(value, for: down) { inlet.request(.max(1)) }
      inlet.removePending()
    }
  }

  @inlinable func handle(_ event: Event, for down: Down) {
    switch event {
    case .value(let value, let inlet): take(value, from: inlet, isCounted: true, for: down)
    case .end(let completion): end(completion, for: down)
    }
  }

  /// Does the same as ``Junction/perform(_:)``, but makes an event of the value only if the value must wait.
  @inlinable func accept(_ value: Down.Input, from inlet: MergeInlet<Down>) {
    guard core.serial.enter() else {
      inlet.addPending()
      return enqueue(.event(.value(value, from: inlet)))
    }
    if let down = core.down, !core.isOver { take(value, from: inlet, isCounted: false, for: down) }
    let missed = core.serial.leave()
    if missed != 0 { work(missed) }
  }

  @inlinable
  func take(_ value: Down.Input, from inlet: MergeInlet<Down>, isCounted: Bool, for down: Down) {
    if core.demand > .none, waiting.isEmpty {
      if deliver(value, for: down) { inlet.request(.max(1)) }
      if isCounted { inlet.removePending() }
    } else {
      if !isCounted { inlet.addPending() }
      waiting.append((value, inlet))
    }
  }

  /// - Returns: Whether to request another value from the publisher that sent this one.
  @inlinable func deliver(_ value: Down.Input, for down: Down) -> Bool {
    let wasUnlimited = core.demand == .unlimited
    _ = emit(value, for: down)
    if !wasUnlimited, core.demand == .unlimited { request(.unlimited, for: down) }
    return core.demand != .unlimited
  }
}

/// The inlet of one of the merged publishers.
@usableFromInline final class MergeInlet<Down: Subscriber>: Inlet, Subscriber {
  @usableFromInline typealias Input = Down.Input
  @usableFromInline typealias Failure = Down.Failure
  @usableFromInline let link: MergeLink<Down>
  @usableFromInline let outer: Inlet?
  /// The inlet's index in the registry.
  @usableFromInline var index = 0
  /// The number of its waiting values, plus one until upstream has finished.
  @usableFromInline let pending = Atomic(1)

  @inlinable init(_ link: MergeLink<Down>, _ outer: Inlet?) {
    (self.link, self.outer) = (link, outer)
    super.init()
  }

  @inlinable func receive(_ value: Down.Input) -> Subscribers.Demand {
    if isLive { link.accept(value, from: self) }
    return .none
  }

  @inlinable func receive(completion: Subscribers.Completion<Down.Failure>) {
    guard finish() else { return }
    if case .finished = completion { removePending() } else { link.perform(.end(completion)) }
  }

  @inlinable func addPending() { pending.wrappingAdd(1, ordering: .relaxed) }

  @inlinable func removePending() {
    if pending.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 { link.finish(self) }
  }
}
