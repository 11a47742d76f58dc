import Events
import Reactive
import StreamRuntime

@testable import StreamSources

/// Records the values of a source, for which a test waits.
final class Taker: Subscriber, Sendable {
  typealias Input = EventBatch
  typealias Failure = Never

  private struct State {
    var subscription: (any Subscription)?
    var count = 0
  }

  let events: AsyncStream<String>
  private let sink: AsyncStream<String>.Continuation
  private let state = Locked(State())
  private let initial: Subscribers.Demand
  private let onValue: @Sendable (Taker) -> Subscribers.Demand

  init(_ initial: Subscribers.Demand, onValue: @escaping @Sendable (Taker) -> Subscribers.Demand = { _ in .none }) {
    self.initial = initial
    self.onValue = onValue
    (events, sink) = AsyncStream.makeStream()
  }

  func receive(subscription: any Subscription) {
    state.withLock { $0.subscription = subscription }
    if initial > .none { subscription.request(initial) }
  }

  func receive(_ batch: EventBatch) -> Subscribers.Demand {
    state.withLock { $0.count += 1 }
    sink.yield(batch.map { String(decoding: $0, as: UTF8.self) }.joined(separator: "|"))
    return onValue(self)
  }

  func receive(completion: Subscribers.Completion<Never>) { sink.finish() }

  func request(_ demand: Subscribers.Demand) { state.withLock { $0.subscription }?.request(demand) }

  func retract() { (state.withLock { $0.subscription } as? any RetractableSubscription)?.retract() }

  func cancel() { state.withLock { $0.subscription }?.cancel() }

  var count: Int { state.withLock { $0.count } }

  /// The next `count` events.
  func next(_ count: Int) async -> [String] {
    var taken: [String] = []
    for await event in events {
      taken.append(event)
      if taken.count == count { break }
    }
    return taken
  }
}

/// Test state behind a lock, shared by closures.
final class Shared<Value>: Sendable {
  private let state: Locked<Value>
  init(_ value: Value) { state = Locked(value) }
  func withLock<R>(_ body: (inout Value) -> R) -> R { state.withLock(body) }
}
