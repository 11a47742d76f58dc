import Synchronization

/// The shared part of the subjects without a log: their subscribers and upstreams.
///
/// Values, subscriptions, cancellations and the completion are handled one at a time, on the first thread that arrives.
/// All subscribers therefore see the same order, including values that one of them sends from inside `receive`, and no
/// thread blocks: a thread that sends while another one delivers leaves the value to that one.
@usableFromInline final class SubjectHub<Output, Failure: Error>: @unchecked Sendable {
  // Sendable: values reach one subscriber at a time, the rest is guarded.

  @usableFromInline enum Event {
    case value(Output)
    case join(Conduit<Output, Failure>)
    /// The conduit has demand again.
    case wake(Conduit<Output, Failure>)
    case leave(Conduit<Output, Failure>)
    case end(Subscribers.Completion<Failure>)
  }

  /// The state that senders see immediately, while events may wait. Guarded by the lock of the queue, so that it
  /// changes in the order of the events.
  @usableFromInline struct Noted {
    @usableFromInline var value: Output?
    @usableFromInline var isOver = false

    @inlinable init(value: Output?) { self.value = value }
  }

  @usableFromInline let serial = Serial<Event>()
  /// Passes an event of a conduit to the handling thread. Formed where the types are known: a conduit's own methods are
  /// called through type-erased references and would be slow.
  @usableFromInline var tell: (Event) -> Void = { _ in }
  @usableFromInline let upstreams: Upstreams
  @usableFromInline let description: String
  @exclusivity(unchecked) @usableFromInline var noted: Noted
  /// Signals for conduits that a thread other than the handling one is starting.
  @usableFromInline let backlog = Guarded<[(Conduit<Output, Failure>, Conduit<Output, Failure>.Signal)]>([])
  // Accessed only by the handling thread.
  @exclusivity(unchecked) @usableFromInline let conduits = ConduitList<Conduit<Output, Failure>>()
  @exclusivity(unchecked) @usableFromInline var gone = 0
  @exclusivity(unchecked) @usableFromInline var completion: Subscribers.Completion<Failure>?
  /// The newest delivered value; `nil` if none is kept.
  @exclusivity(unchecked) @usableFromInline var newest: Output?
  @usableFromInline let keepsNewest: Bool

  /// - Parameter newest: The initial value, if the newest value is kept for new subscribers.
  @inlinable init(_ description: String, newest: Output?) {
    (self.description, self.newest) = (description, newest)
    noted = Noted(value: newest)
    keepsNewest = newest != nil
    upstreams = Upstreams(areWanted: newest != nil)
    tell = { [unowned self] event in  // a conduit holds the hub
      if case .join(let conduit) = event { join(conduit) } else { serial.perform(event) { handle($0) } }
    }
  }

  @inlinable func send(_ value: Output) {
    if serial.enter() {
      deliverToAll(value)
      let missed = serial.leave()
      if missed != 0 { work(missed) }
    } else {
      leaveBehind(.value(value))
    }
  }

  // Passing `self` to a call would retain it for each value.

  @usableFromInline func work(_ missed: Int) { serial.work(missed) { handle($0) } }

  @usableFromInline func leaveBehind(_ event: Event) { serial.leaveBehind(event) { handle($0) } }

  /// Sends the value; it is readable from now on.
  ///
  /// - Parameter isSet: Whether the value is also readable after the completion, when values are no longer sent.
  @inlinable func sendAndNote(_ value: Output, isSet: Bool = false) {
    var old: Output? = value  // released outside the lock: a deinitialiser is foreign code
    let isAtWork = serial.enter()
    let isNext = serial.queue.withLock { queue in
      if isSet || !noted.isOver { swap(&noted.value, &old) }
      let isNext = isAtWork && queue.waiting.isEmpty
      if !isNext { queue.waiting.append(.value(value)) }
      return isNext
    }
    if isNext { deliverToAll(value) }
    if !isAtWork { return count() }
    let missed = isNext ? serial.leave() : 1
    if missed != 0 { work(missed) }
  }

  @usableFromInline func count() { serial.count { handle($0) } }

  /// The value sent last. Only for a hub that keeps a value.
  var value: Output { serial.queue.withLock { _ in noted.value }.unsafelyUnwrapped }

  func finish(_ completion: Subscribers.Completion<Failure>) {
    serial.queue.withLock { queue in
      noted.isOver = true
      queue.waiting.append(.end(completion))
    }
    count()
    upstreams.cancel()
  }

  /// - Parameter demand: The number of values that the subscriber receives without a request.
  @inlinable func attach<S: Subscriber<Output, Failure>>(_ subscriber: S, demand: Subscribers.Demand = .none) {
    let conduit = Conduit(self) { signal in
      switch signal {
      case .value(let value): return subscriber.receive(value)
      case .end(let completion): subscriber.receive(completion: completion)
      case .drop: break
      }
      return .none
    }
    if demand != .none { conduit.add(demand) }
    subscriber.receive(subscription: conduit)
    if conduit.begin() { join(conduit) }
  }

  @inlinable func join(_ conduit: Conduit<Output, Failure>) {
    guard keepsNewest else { return serial.perform(.join(conduit)) { handle($0) } }
    // The value is available when `subscribe` returns, even if another thread, or the caller itself, is handling
    // events.
    if serial.enter() {
      handle(.join(conduit))
      return serial.leave { handle($0) }
    }
    let value = serial.queue.withLock { queue -> Output? in
      queue.waiting.append(.join(conduit))
      guard !noted.isOver, conduit.take() else { return nil }
      conduit.wasStarted = true
      conduit.isStarting.store(true, ordering: .releasing)
      return noted.value
    }
    if let value { start(conduit, value) }
    count()
  }

  /// Delivers the value, then the signals that the handling thread has meanwhile left for the conduit.
  @usableFromInline func start(_ conduit: Conduit<Output, Failure>, _ value: Output) {
    conduit.pass(value)
    while case let signals = takeBacklog(of: conduit), !signals.isEmpty {
      for signal in signals { conduit.accept(signal) }
    }
    serial.perform(.wake(conduit)) { handle($0) }
  }

  private func takeBacklog(of conduit: Conduit<Output, Failure>) -> [Conduit<Output, Failure>.Signal] {
    backlog.withLock { backlog in
      let signals = backlog.filter { $0.0 === conduit }.map(\.1)
      if signals.isEmpty { conduit.isStarting.store(false, ordering: .releasing) }
      backlog.removeAll { $0.0 === conduit }
      return signals
    }
  }

  /// - Returns: Whether the signal is left to the thread that starts the conduit.
  @usableFromInline
  func divert(_ signal: Conduit<Output, Failure>.Signal, from conduit: Conduit<Output, Failure>) -> Bool {
    backlog.withLock { backlog in
      guard conduit.isStarting.load(ordering: .acquiring) else { return false }
      backlog.append((conduit, signal))
      return true
    }
  }

  @inlinable func handle(_ event: Event) {
    if case .value(let value) = event { deliverToAll(value) } else { handleOther(event) }
  }

  @inlinable func deliverToAll(_ value: Output) {
    if keepsNewest {
      if isOver { return }
      newest = value
    }
    // The list does not change during this loop.
    for index in 0..<conduits.count { conduits[index]._withUnsafeGuaranteedRef { deliver(.value(value), to: $0) } }
  }

  @inlinable func deliver(_ signal: Conduit<Output, Failure>.Signal, to conduit: Conduit<Output, Failure>) {
    if conduit.isStarting.load(ordering: .acquiring), divert(signal, from: conduit) { return }
    conduit.accept(signal)
  }

  @usableFromInline var isOver: Bool { completion != nil }

  @inlinable func handleOther(_ event: Event) {
    switch event {
    case .value: break
    case .join(let conduit):
      if let completion { return deliver(.end(completion), to: conduit) }
      if conduit.isOver { return }
      conduit.isJoined = true
      conduits.append(conduit)
      if let newest, !conduit.wasStarted { deliver(.value(newest), to: conduit) }
    case .wake(let conduit): if let newest, conduit.isBehind { deliver(.value(newest), to: conduit) }
    case .leave(let conduit):
      deliver(.drop, to: conduit)
      guard conduit.isJoined else { return }
      gone += 1
      if gone * 2 > conduits.count {
        gone = 0
        conduits.removeAll { $0.isOver }
      }
    case .end(let completion):
      if isOver { return }
      self.completion = completion
      newest = nil
      for conduit in conduits.removeAll() { deliver(.end(completion), to: conduit) }
    }
  }
}
