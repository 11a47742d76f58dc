/// Any number of publishers of one kind of values for one subscriber, in the order in which they come.
///
/// While demand is counted, each is asked for one value at a time, which waits here until it is wanted; the next is
/// asked for when it was delivered. Before the first demand none is asked for anything.
final class Confluence<Down: Subscriber>: Junction {
  enum Event {
    case value(Down.Input, from: Inlet)
    case end(Subscribers.Completion<Down.Failure>)
  }
  private struct Registry {
    var inlets: [Inlet?] = []
    /// Where further publishers come from; asked for them by itself.
    var outer: Inlet?
    var free: [Int] = []
    /// What an inlet is asked for when it comes.
    var firstDemand = Subscribers.Demand.none
    /// How many are to end before all has ended.
    var live = 0
    var isOver = false
  }
  let core: JunctionCore<Event, Down>
  private let registry = Guarded(Registry())
  private var waiting = Fifo<(value: Down.Input, inlet: Inlet)>()
  private var isFinished = false

  init(_ down: Down) { core = JunctionCore(down) }

  /// One more is to end.
  func enter() { registry.withLock { $0.live += 1 } }

  /// One has finished. The last one finishes all, after what waits.
  func finishOne() {
    let isLast = registry.withLock { registry in
      registry.live -= 1
      return registry.live == 0
    }
    if isLast { perform(.end(.finished)) }
  }

  /// Adds a publisher, which counts as one that is to end already.
  ///
  /// - Parameter onFinish: Called when it has finished, before ``finishOne()``.
  func add<P: Publisher>(_ publisher: P, onFinish: @escaping () -> Void = {})
  where P.Output == Down.Input, P.Failure == Down.Failure {
    let inlet = ConfluenceInlet(self, onFinish)
    guard let (index, demand) = register(inlet) else { return }
    inlet.index = index
    if demand != .none { inlet.request(demand) }
    publisher.subscribe(inlet)
  }

  /// Where further publishers come from, to be cancelled with them.
  func setOuter(_ outer: Inlet) {
    let isOver = registry.withLock { registry in
      if !registry.isOver { registry.outer = outer }
      return registry.isOver
    }
    if isOver { outer.cancel() }
  }

  /// - Returns: Its place, and what it is to be asked for; `nil` when all is over.
  private func register(_ inlet: Inlet) -> (index: Int, demand: Subscribers.Demand)? {
    registry.withLock { registry in
      if registry.isOver { return nil }
      let index = registry.free.popLast() ?? registry.inlets.count
      if index == registry.inlets.count { registry.inlets.append(inlet) } else { registry.inlets[index] = inlet }
      return (index, registry.firstDemand)
    }
  }

  fileprivate func remove(_ index: Int) {
    let inlet = registry.withLock { registry -> Inlet? in
      if registry.isOver { return nil }
      registry.free.append(index)
      return registry.inlets[index].take()
    }
    _ = inlet  // its end may be a deinitialiser's, which is not to run under the lock
  }

  func leave() {
    let inlets = registry.withLock { registry in
      registry.isOver = true
      defer { (registry.inlets, registry.outer) = ([], nil) }
      return registry.inlets + [registry.outer]
    }
    for inlet in inlets { inlet?.cancel() }
  }

  func ask(_ demand: Subscribers.Demand, for down: Down) {
    let each = core.demand == .unlimited ? Subscribers.Demand.unlimited : .max(1)
    let inlets = registry.withLock { registry -> [Inlet?] in
      if core.demand == .none || registry.firstDemand >= each { return [] }
      registry.firstDemand = each
      return registry.inlets
    }
    for inlet in inlets { inlet?.request(each) }
    while core.demand > .none, !core.isOver, let (value, inlet) = waiting.popFirst() {
      deliver(value, from: inlet, for: down)
    }
    if isFinished, waiting.isEmpty { end(.finished, for: down) }
  }

  func handle(_ event: Event, for down: Down) {
    switch event {
    case .value(let value, let inlet):
      if core.demand > .none, waiting.isEmpty {
        deliver(value, from: inlet, for: down)
      } else {
        waiting.append((value, inlet))
      }
    case .end(.finished):
      isFinished = true
      if waiting.isEmpty { end(.finished, for: down) }
    case .end(let failure): end(failure, for: down)
    }
  }

  private func deliver(_ value: Down.Input, from inlet: Inlet, for down: Down) {
    let wasUnlimited = core.demand == .unlimited
    let more = emit(value, for: down)
    if wasUnlimited { return }
    if more == .unlimited { ask(more, for: down) } else { inlet.request(.max(1)) }
  }
}

/// One publisher of several.
private final class ConfluenceInlet<Down: Subscriber>: Inlet, Subscriber {
  typealias Input = Down.Input
  typealias Failure = Down.Failure
  private let confluence: Confluence<Down>
  private let onFinish: () -> Void
  /// In the registry.
  var index = 0

  init(_ confluence: Confluence<Down>, _ onFinish: @escaping () -> Void) {
    self.confluence = confluence
    self.onFinish = onFinish
  }

  func receive(_ value: Down.Input) -> Subscribers.Demand {
    if !isOver { confluence.perform(.value(value, from: self)) }
    return .none
  }

  func receive(completion: Subscribers.Completion<Down.Failure>) {
    guard finish() else { return }
    confluence.remove(index)
    guard case .finished = completion else { return confluence.perform(.end(completion)) }
    onFinish()
    confluence.finishOne()
  }
}
