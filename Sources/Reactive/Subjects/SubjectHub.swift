import Locks
import Synchronization

/// The shared part of the subjects without a log: their subscribers and upstreams.
///
/// Values, subscriptions, cancellations and the completion are handled one at a time, on the first thread that arrives.
/// All subscribers therefore see the same order, including values that one of them sends from inside `receive`, and no
/// thread blocks: a thread that sends while another one delivers leaves the value to the delivering thread.
@usableFromInline final class SubjectHub<Output, Failure: Error>: @unchecked Sendable {
  // Sendable: values reach one subscriber at a time, the rest is guarded.

  @usableFromInline typealias Member = SubjectSubscription<Output, Failure>

  @usableFromInline enum Event {
    case value(Output)
    case join(Member)
    /// The subscription has demand again.
    case wake(Member)
    case leave(Member)
    case end(Subscribers.Completion<Failure>)
  }

  /// The state that senders see immediately, while events may wait. Locked by the lock of the queue, so that it
  /// changes in the order of the events.
  @usableFromInline struct Noted {
    @usableFromInline var value: Output?
    @usableFromInline var isOver = false

    @inlinable init(value: Output?) { self.value = value }
  }

  @usableFromInline let serial = Serial<Event>()
  /// Passes an event of a subscription to the handling thread. Formed where the types are known: a subscription's own
  /// methods are called through type-erased references and would be slow.
  @usableFromInline var post: (Event) -> Void = { _ in }
  @usableFromInline let upstreams: Upstreams
  @usableFromInline let description: String
  @safe @usableFromInline @exclusivity(unchecked) var noted: Noted
  /// Signals for subscriptions that a thread other than the handling one is starting.
  @usableFromInline let backlog = Locked<[(Member, Member.Signal)]>([])
  // Accessed only by the handling thread.
  @usableFromInline let subscriptions = SubscriptionList<Member>()
  @usableFromInline var cancelled = 0
  @safe @usableFromInline @exclusivity(unchecked) var completion: Subscribers.Completion<Failure>?
  /// The newest delivered value; `nil` if none is kept.
  @safe @usableFromInline @exclusivity(unchecked) var newest: Output?
  @usableFromInline let keepsNewest: Bool

  /// - Parameter newest: The initial value, if the newest value is kept for new subscribers.
  @inlinable init(_ description: String, newest: Output?) {
    (self.description, self.newest) = (description, newest)
    noted = Noted(value: newest)
    keepsNewest = newest != nil
    upstreams = Upstreams(areRequested: newest != nil)
    post = { [unowned self] event in  // a subscription holds the hub
      if case .join(let subscription) = event { join(subscription) } else { serial.perform(event) { handle($0) } }
    }
  }

  @inlinable func send(_ value: Output) {
    if serial.enter() {
      deliverToAll(value)
      let missed = serial.leave()
      if missed != 0 { work(missed) }
    } else {
      enqueue(.value(value))
    }
  }

  // Passing `self` to a call would retain it for each value.

  @usableFromInline func work(_ missed: Int) { serial.work(missed) { handle($0) } }

  @usableFromInline func enqueue(_ event: Event) { serial.enqueue(event) { handle($0) } }

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
  var value: Output { serial.queue.withLock { _ in noted.value }! }

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
    let subscription = SubjectSubscription(self) { signal in
      switch signal {
      case .value(let value): return subscriber.receive(value)
      case .end(let completion): subscriber.receive(completion: completion)
      case .drop: break
      }
      return .none
    }
    if demand != .none { subscription.add(demand) }
    subscriber.receive(subscription: subscription)
    if subscription.begin() { join(subscription) }
  }

  @inlinable func join(_ subscription: Member) {
    guard keepsNewest else { return serial.perform(.join(subscription)) { handle($0) } }
    // The value is available when `subscribe` returns, even if another thread, or the caller itself, is handling
    // events.
    if serial.enter() {
      handle(.join(subscription))
      return serial.leave { handle($0) }
    }
    let value = serial.queue.withLock { queue -> Output? in
      queue.waiting.append(.join(subscription))
      guard !noted.isOver, subscription.take() else { return nil }
      subscription.wasStarted = true
      subscription.isStarting.store(true, ordering: .releasing)
      return noted.value
    }
    if let value { start(subscription, value) }
    count()
  }

  /// Delivers the value, then the signals that the handling thread has meanwhile left for the subscription.
  @usableFromInline func start(_ subscription: Member, _ value: Output) {
    subscription.pass(value)
    while case let signals = takeBacklog(of: subscription), !signals.isEmpty {
      for signal in signals { subscription.accept(signal) }
    }
    serial.perform(.wake(subscription)) { handle($0) }
  }

  private func takeBacklog(of subscription: Member) -> [Member.Signal] {
    backlog.withLock { backlog in
      let signals = backlog.filter { $0.0 === subscription }.map(\.1)
      if signals.isEmpty { subscription.isStarting.store(false, ordering: .releasing) }
      backlog.removeAll { $0.0 === subscription }
      return signals
    }
  }

  /// - Returns: Whether the signal is left to the thread that starts the subscription.
  @usableFromInline
  func divert(_ signal: Member.Signal, from subscription: Member) -> Bool {
    backlog.withLock { backlog in
      guard subscription.isStarting.load(ordering: .acquiring) else { return false }
      backlog.append((subscription, signal))
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
    for index in 0..<subscriptions.count {
      unsafe subscriptions[index]._withUnsafeGuaranteedRef { deliver(.value(value), to: $0) }
    }
  }

  @inlinable func deliver(_ signal: Member.Signal, to subscription: Member) {
    if subscription.isStarting.load(ordering: .acquiring), divert(signal, from: subscription) { return }
    subscription.accept(signal)
  }

  @usableFromInline var isOver: Bool { completion != nil }

  @inlinable func handleOther(_ event: Event) {
    switch event {
    case .value: break
    case .join(let subscription):
      if let completion { return deliver(.end(completion), to: subscription) }
      if subscription.isOver { return }
      subscription.isJoined = true
      subscriptions.append(subscription)
      if let newest, !subscription.wasStarted { deliver(.value(newest), to: subscription) }
    case .wake(let subscription): if let newest, subscription.isBehind { deliver(.value(newest), to: subscription) }
    case .leave(let subscription):
      deliver(.drop, to: subscription)
      guard subscription.isJoined else { return }
      cancelled += 1
      if cancelled * 2 > subscriptions.count {
        cancelled = 0
        subscriptions.removeAll { $0.isOver }
      }
    case .end(let completion):
      if isOver { return }
      self.completion = completion
      newest = nil
      for subscription in subscriptions.removeAll() { deliver(.end(completion), to: subscription) }
    }
  }
}
