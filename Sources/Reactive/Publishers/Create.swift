import Dispatch
import Locks
import Synchronization

/// A publisher whose closure is called for each subscriber and can be stopped.
///
/// A value that the closure sends without demand is dropped.
public final class Create<Output, Failure: Error>: Publisher {
  /// The closure's view of its subscription's state.
  public typealias Context = CreateContext

  private let start: @Sendable (Receiver) -> any Cancellable

  /// - Parameter start: Called on the subscriber's thread. Starts work that sends to the receiver, from any thread; must
  ///   not block. The cancellable that it returns stops that work: it is cancelled with the subscription, or released
  ///   at the end.
  @preconcurrency public init(_ start: @escaping @Sendable (_ subscriber: Receiver) -> any Cancellable) {
    self.start = start
  }

  /// - Parameter produce: Called on its own thread, which it may block. It should return soon after its context is
  ///   cancelled.
  @preconcurrency public init(_ produce: @escaping @Sendable (_ subscriber: Receiver, _ context: any Context) -> Void) {
    start = { receiver in
      let work = Unchecked { produce(receiver, receiver.context) }  // run once, by the queue
      DispatchQueue(label: "Create").async { work.value() }
      return Subscriptions.empty
    }
  }

  /// Sends the subscription to the subscriber, then calls the closure.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    let link = CreateLink(subscriber)
    link.begin()
    if !link.core.isOver { link.context.hold(start(Receiver(link.context, send: link.perform))) }
  }

  /// Passes the closure's signals to its subscriber. Thread-safe.
  public struct Receiver {
    fileprivate let context: CreateWork
    private let send: (CreateEvent<Output, Failure>) -> Void

    fileprivate init(_ context: CreateWork, send: @escaping (CreateEvent<Output, Failure>) -> Void) {
      (self.context, self.send) = (context, send)
    }

    /// Delivers the value if there is demand.
    public func receive(_ input: Output) {
      context.willSend()
      send(.value(input))
    }
    /// Ends the subscription. Later signals are ignored.
    public func receive(completion: Subscribers.Completion<Failure>) { send(.end(completion)) }
  }
}

extension Create: Sendable {}
extension Create.Receiver: @unchecked Sendable {}  // signals are serialised, and values are handed over

/// The state of a subscription to a ``Create``. Thread-safe.
public protocol CreateContext {
  /// Whether there is no demand: a value sent now is dropped.
  var paused: Bool { get }
  /// Whether the subscription has ended: no further signal is delivered.
  var cancelled: Bool { get }
  /// Blocks the thread until there is demand or the subscription has ended.
  func waitIfPaused()
}

private enum CreateEvent<Output, Failure: Error> {
  case value(Output)
  case end(Subscribers.Completion<Failure>)
}

/// The state of a subscription that its work can see, and the cancellable that stops the work.
private final class CreateWork: CreateContext {
  private struct State {
    var isPaused = true
    /// The number of values in delivery, possibly on another thread. Until it is 0, the remaining demand is unknown.
    var underWay = 0
    var isOver = false
    var mustWait: Bool { (isPaused || underWay > 0) && !isOver }
    var work: (any Cancellable)?
    var waiters: [DispatchSemaphore] = []
  }
  private let state = Locked(State())

  var paused: Bool { state.withLock { $0.isPaused || $0.underWay > 0 } }
  var cancelled: Bool { state.withLock { $0.isOver } }

  func waitIfPaused() {
    let semaphore = state.withLock { state -> DispatchSemaphore? in
      guard state.mustWait else { return nil }
      let semaphore = DispatchSemaphore(value: 0)
      state.waiters.append(semaphore)
      return semaphore
    }
    semaphore?.wait()
  }

  func hold(_ work: any Cancellable) {
    let isOver = state.withLock { state in
      if !state.isOver { state.work = work }
      return state.isOver
    }
    if isOver { work.cancel() }
  }

  func setPaused(_ isPaused: Bool) { change { $0.isPaused = isPaused } }

  func willSend() { change { $0.underWay += 1 } }

  func hasSent(isPaused: Bool) {
    change { state in
      state.underWay -= 1
      state.isPaused = isPaused
    }
  }

  /// - Returns: The cancellable that stops the work.
  func end() -> (any Cancellable)? {
    change { $0.isOver = true }
    return state.withLock { $0.work.take() }
  }

  private func change(_ body: (inout State) -> Void) {
    let waiters = state.withLock { state -> [DispatchSemaphore] in
      body(&state)
      return state.mustWait ? [] : state.waiters.take()
    }
    for waiter in waiters { waiter.signal() }
  }
}

private final class CreateLink<Down: Subscriber>: Junction {
  typealias Event = CreateEvent<Down.Input, Down.Failure>
  let core: JunctionCore<Event, Down>
  let context = CreateWork()

  init(_ down: Down) { core = JunctionCore(down, "Create") }

  func leave() { context.end()?.cancel() }

  func request(_ demand: Subscribers.Demand, for down: Down) { if demand != .none { context.setPaused(false) } }

  func handle(_ event: Event, for down: Down) {
    switch event {
    case .value(let value):
      if core.demand > .none { _ = emit(value, for: down) }
      context.hasSent(isPaused: core.demand == .none)
    case .end(let completion): end(completion, for: down)
    }
  }
}
