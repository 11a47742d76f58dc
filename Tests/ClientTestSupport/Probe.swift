import Reactive
import StreamClient
import Synchronization

/// The signals that a subscriber received.
package enum Signal: Equatable, Sendable {
  case value(String)
  case finished
  case failed(StreamError)
}

/// A subscriber that records its signals, and requests only what the test sets.
/// `subscription` is set once, before other threads have the probe.
package final class Probe: Subscriber, @unchecked Sendable {
  package typealias Input = StreamEvent
  package typealias Failure = StreamError

  package let signals = Recorder<Signal>()
  package private(set) var subscription: (any Subscription)?
  private let onSubscription: (any Subscription) -> Void
  private let onValue: (Probe, String) -> Subscribers.Demand
  private let onEnd: () -> Void

  package init(
    onSubscription: @escaping (any Subscription) -> Void = { _ in },
    onEnd: @escaping () -> Void = {},
    onValue: @escaping (Probe, String) -> Subscribers.Demand = { _, _ in .none }
  ) {
    self.onSubscription = onSubscription
    self.onEnd = onEnd
    self.onValue = onValue
  }

  package func receive(subscription: any Subscription) {
    self.subscription = subscription
    onSubscription(subscription)
  }

  package func receive(_ event: StreamEvent) -> Subscribers.Demand {
    let text = String(decoding: event.data, as: UTF8.self)
    signals.record(.value(text))
    return onValue(self, text)
  }

  package func receive(completion: Subscribers.Completion<StreamError>) {
    switch completion {
    case .finished: signals.record(.finished)
    case .failure(let error): signals.record(.failed(error))
    }
    onEnd()
  }

  package func request(_ count: Int) { subscription?.request(.max(count)) }
  package func cancel() { subscription?.cancel() }
  package func next() async -> Signal? { await signals.next() }
}

extension Publisher where Output == StreamEvent, Failure == StreamError {
  /// A probe that has requested `count` values.
  package func probe(_ count: Int = 0) -> Probe {
    let probe = Probe()
    subscribe(probe)
    if count > 0 { probe.request(count) }
    return probe
  }
}
