import Synchronization

/// Any number of publishers of one kind of values for one subscriber, in the order in which they come.
///
/// While demand is counted, each is asked for one value at a time, which waits here until it is wanted; the next is
/// asked for when it was delivered. A publisher has ended once nothing of it waits any more: that, too, bounds what is
/// held. Before the first demand none is asked for anything.
@usableFromInline final class Confluence<Down: Subscriber>: Junction {
  @usableFromInline enum Event {
    case value(Down.Input, from: ConfluenceInlet<Down>)
    case end(Subscribers.Completion<Down.Failure>)
  }
  @usableFromInline struct Registry {
    @usableFromInline var inlets: [Inlet?] = []
    /// Where further publishers come from; asked for them by itself.
    @usableFromInline var outer: Inlet?
    @usableFromInline var free: [Int] = []
    /// What an inlet is asked for when it comes.
    @usableFromInline var firstDemand = Subscribers.Demand.none
    /// How many are to end before all has ended.
    @usableFromInline var live = 0
    @usableFromInline var isOver = false
  }
  @usableFromInline let core: JunctionCore<Event, Down>
  @usableFromInline let registry = Guarded(Registry())
  // Touched by the one at work.
  @usableFromInline @exclusivity(unchecked) var waiting = Fifo<(value: Down.Input, inlet: ConfluenceInlet<Down>)>()

  @inlinable init(_ down: Down, _ description: String) { core = JunctionCore(down, description) }

  /// Attaches the subscriber to these publishers. While that is done there is one more to end than they are.
  @inlinable func join<P: Publisher>(_ publishers: [P]) where P.Output == Down.Input, P.Failure == Down.Failure {
    open()
    for publisher in publishers { add(publisher) }
    finishOne()
  }

  /// Gives the subscriber its subscription. From then on there is one to end that is no inlet: the caller.
  @inlinable func open() {
    registry.withLock { $0.live += 1 }
    begin()
  }

  /// One has ended that is no inlet. The last one finishes all.
  @inlinable func finishOne() {
    let isLast = registry.withLock { registry in
      registry.live -= 1
      return registry.live == 0
    }
    if isLast { perform(.end(.finished)) }
  }

  /// Adds a publisher.
  ///
  /// - Parameter outer: Asked for one more when it has finished.
  @inlinable func add<P: Publisher>(_ publisher: P, askingThen outer: Inlet? = nil)
  where P.Output == Down.Input, P.Failure == Down.Failure {
    let inlet = ConfluenceInlet(self, outer)
    guard let (index, demand) = register(inlet) else { return }
    inlet.index = index
    if demand != .none { inlet.request(demand) }
    publisher.subscribe(inlet)
  }

  /// Delivers a value that is known already, in place of a publisher of just that.
  ///
  /// - Returns: False if it may not be delivered now.
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

  /// Where further publishers come from, to be cancelled with them.
  @inlinable func setOuter(_ outer: Inlet) {
    let isOver = registry.withLock { registry in
      if !registry.isOver { registry.outer = outer }
      return registry.isOver
    }
    if isOver { outer.cancel() }
  }

  /// - Returns: Its place, and what it is to be asked for; `nil` when all is over.
  @inlinable func register(_ inlet: Inlet) -> (index: Int, demand: Subscribers.Demand)? {
    registry.withLock { registry in
      if registry.isOver { return nil }
      registry.live += 1
      let index = registry.free.popLast() ?? registry.inlets.count
      if index == registry.inlets.count { registry.inlets.append(inlet) } else { registry.inlets[index] = inlet }
      return (index, registry.firstDemand)
    }
  }

  /// Counts an inlet out.
  @inlinable func finish(_ finished: ConfluenceInlet<Down>) {
    let index = finished.index
    let (inlet, isLast) = registry.withLock { registry -> (Inlet?, Bool) in
      if registry.isOver { return (nil, false) }
      registry.live -= 1
      registry.free.append(index)
      return (registry.inlets[index].take(), registry.live == 0)
    }
    _ = inlet  // its end may be a deinitialiser's, which is not to run under the lock
    if isLast { perform(.end(.finished)) } else { finished.outer?.request(.max(1)) }
  }

  @inlinable func leave() {
    let inlets = registry.withLock { registry in
      registry.isOver = true
      defer { (registry.inlets, registry.outer) = ([], nil) }
      return registry.inlets + [registry.outer]
    }
    for inlet in inlets { inlet?.cancel() }
  }

  @inlinable func drop() { waiting = Fifo() }

  @inlinable func ask(_ demand: Subscribers.Demand, for down: Down) {
    let each = core.demand == .unlimited ? Subscribers.Demand.unlimited : .max(1)
    let inlets = registry.withLock { registry -> [Inlet?] in
      if core.demand == .none || registry.firstDemand >= each { return [] }
      registry.firstDemand = each
      return registry.inlets
    }
    for inlet in inlets { inlet?.request(each) }
    while core.demand > .none, !core.isOver, let (value, inlet) = waiting.popFirst() {
      if deliver(value, for: down) { inlet.request(.max(1)) }
      inlet.letGo()
    }
  }

  @inlinable func handle(_ event: Event, for down: Down) {
    switch event {
    case .value(let value, let inlet): take(value, from: inlet, wasHeld: true, for: down)
    case .end(let completion): end(completion, for: down)
    }
  }

  /// The same as ``Junction/perform(_:)``; makes no event of the value unless it has to wait.
  @inlinable func accept(_ value: Down.Input, from inlet: ConfluenceInlet<Down>) {
    guard core.serial.enter() else {
      inlet.hold()
      return leaveBehind(.event(.value(value, from: inlet)))
    }
    if let down = core.down, !core.isOver { take(value, from: inlet, wasHeld: false, for: down) }
    let missed = core.serial.leave()
    if missed != 0 { work(missed) }
  }

  @inlinable
  func take(_ value: Down.Input, from inlet: ConfluenceInlet<Down>, wasHeld: Bool, for down: Down) {
    if core.demand > .none, waiting.isEmpty {
      if deliver(value, for: down) { inlet.request(.max(1)) }
      if wasHeld { inlet.letGo() }
    } else {
      if !wasHeld { inlet.hold() }
      waiting.append((value, inlet))
    }
  }

  /// - Returns: Whether the publisher that it came from is to be asked for another.
  @inlinable func deliver(_ value: Down.Input, for down: Down) -> Bool {
    let wasUnlimited = core.demand == .unlimited
    _ = emit(value, for: down)
    if !wasUnlimited, core.demand == .unlimited { ask(.unlimited, for: down) }
    return core.demand != .unlimited
  }
}

/// One publisher of several.
@usableFromInline final class ConfluenceInlet<Down: Subscriber>: Inlet, Subscriber {
  @usableFromInline typealias Input = Down.Input
  @usableFromInline typealias Failure = Down.Failure
  @usableFromInline let confluence: Confluence<Down>
  @usableFromInline let outer: Inlet?
  /// In the registry.
  @usableFromInline @exclusivity(unchecked) var index = 0
  /// How many of its values wait, and one more until upstream has finished.
  @usableFromInline let held = Atomic(1)

  @inlinable init(_ confluence: Confluence<Down>, _ outer: Inlet?) {
    (self.confluence, self.outer) = (confluence, outer)
    super.init()
  }

  @inlinable func receive(_ value: Down.Input) -> Subscribers.Demand {
    if isLive { confluence.accept(value, from: self) }
    return .none
  }

  @inlinable func receive(completion: Subscribers.Completion<Down.Failure>) {
    guard finish() else { return }
    if case .finished = completion { letGo() } else { confluence.perform(.end(completion)) }
  }

  @inlinable func hold() { held.wrappingAdd(1, ordering: .relaxed) }

  @inlinable func letGo() {
    if held.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 { confluence.finish(self) }
  }
}
