import Locks
import Reactive

/// A signal that a subscriber received.
enum Signal<Value: Equatable & Sendable>: Equatable, Sendable {
  case subscribed
  case value(Value)
  case finished
  case failed
}

struct TestError: Error, Equatable {}

/// A subscriber that records all signals and requests what the test specifies. Traps if signals overlap.
final class Recorder<Value: Equatable & Sendable, Failure: Error>: Subscriber, @unchecked Sendable {
  private struct State {
    var signals: [Signal<Value>] = []
    var subscription: (any Subscription)?
    var isInside = false
  }
  private struct Box: @unchecked Sendable { var state = State() }
  private let box = Locked(Box())
  private let initial: Subscribers.Demand
  /// Called inside `receive` with the value; returns the additional demand.
  private let onValue: (Recorder, Value) -> Subscribers.Demand

  init(
    _ initial: Subscribers.Demand = .unlimited,
    onValue: @escaping (Recorder, Value) -> Subscribers.Demand = { _, _ in .none }
  ) {
    self.initial = initial
    self.onValue = onValue
  }

  var signals: [Signal<Value>] { box.withLock { $0.state.signals } }
  var values: [Value] {
    signals.compactMap { if case .value(let value) = $0 { value } else { nil } }
  }
  var isEnded: Bool { signals.last == .finished || signals.last == .failed }

  func receive(subscription: any Subscription) {
    let unchecked = UncheckedSubscription(subscription: subscription)
    box.withLock {
      $0.state.subscription = unchecked.subscription
      $0.state.signals.append(.subscribed)
    }
    if initial != .none { subscription.request(initial) }
  }

  func receive(_ input: Value) -> Subscribers.Demand {
    enter(.value(input))
    defer { leave() }
    return onValue(self, input)
  }

  func receive(completion: Subscribers.Completion<Failure>) {
    enter(completion.isFinished ? .finished : .failed)
    leave()
  }

  func request(_ count: Int) { subscription?.request(.max(count)) }
  func request(_ demand: Subscribers.Demand) { subscription?.request(demand) }
  func cancel() { subscription?.cancel() }
  var subscription: (any Subscription)? {
    box.withLock { UncheckedSubscription(subscription: $0.state.subscription) }.subscription
  }

  private func enter(_ signal: Signal<Value>) {
    box.withLock {
      precondition(!$0.state.isInside, "signals overlap")
      $0.state.isInside = true
      $0.state.signals.append(signal)
    }
  }

  private func leave() { box.withLock { $0.state.isInside = false } }
}

private struct UncheckedSubscription: @unchecked Sendable {
  var subscription: (any Subscription)?
}

extension Subscribers.Completion {
  var isFinished: Bool { if case .finished = self { true } else { false } }
}

/// A publisher under the test's control that serves its newest subscriber and counts subscriptions, requests and
/// cancellations.
final class Probe<Value: Sendable, Failure: Error>: Publisher, @unchecked Sendable {
  typealias Output = Value
  struct State {
    var subscriptions = 0
    var cancels = 0
    var requested: [Subscribers.Demand] = []
    var subscriber: AnySubscriber<Value, Failure>?
  }
  private struct Box: @unchecked Sendable { var state = State() }
  private let box = Locked(Box())
  /// Called inside `subscribe` after the subscriber has received its subscription.
  let onSubscribe: @Sendable (Probe) -> Void

  init(onSubscribe: @escaping @Sendable (Probe) -> Void = { _ in }) { self.onSubscribe = onSubscribe }

  var state: State { box.withLock { Snapshot(state: $0.state) }.state }
  var requested: Subscribers.Demand { state.requested.reduce(.none, +) }

  private struct Snapshot: @unchecked Sendable { let state: State }

  func receive<S: Subscriber>(subscriber: S) where S.Input == Value, S.Failure == Failure {
    let erased = Erased(subscriber: AnySubscriber(subscriber))
    box.withLock {
      $0.state.subscriptions += 1
      $0.state.subscriber = erased.subscriber
    }
    subscriber.receive(subscription: Link(probe: self))
    onSubscribe(self)
  }

  private struct Erased: @unchecked Sendable { let subscriber: AnySubscriber<Value, Failure> }

  @discardableResult
  func send(_ value: Value) -> Subscribers.Demand {
    let more = state.subscriber?.receive(value) ?? .none
    if more != .none { box.withLock { $0.state.requested.append(more) } }
    return more
  }

  func send(completion: Subscribers.Completion<Failure>) { state.subscriber?.receive(completion: completion) }

  private struct Link: Subscription {
    let combineIdentifier = CombineIdentifier()
    let probe: Probe
    func request(_ demand: Subscribers.Demand) { probe.box.withLock { $0.state.requested.append(demand) } }
    func cancel() { probe.box.withLock { $0.state.cancels += 1 } }
  }
}
