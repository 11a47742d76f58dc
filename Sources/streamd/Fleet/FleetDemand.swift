import Events
import Reactive
import StreamServer

/// The upstream of a shared stream's log. It delivers nothing, because the events come from the fleet. It passes on
/// whether any subscription wants the next event.
struct FleetDemand: Publisher {
  typealias Output = EventBatch
  typealias Failure = StreamFailure

  /// Called on any thread, in order.
  let wants: @Sendable (Bool) -> Void

  func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: Link(wants: wants))
  }

  private final class Link: RetractableSubscription {
    private let wants: @Sendable (Bool) -> Void

    init(wants: @escaping @Sendable (Bool) -> Void) { self.wants = wants }

    func request(_ demand: Subscribers.Demand) { if demand > .none { wants(true) } }
    func retract() { wants(false) }
    func cancel() { wants(false) }
  }
}
