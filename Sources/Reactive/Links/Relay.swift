import Synchronization

/// The subscription that a link gives to its subscriber. It refers to upstream and holds neither link nor subscriber,
/// so a subscriber that keeps its subscription keeps nothing else alive.
@usableFromInline class UpstreamHandle: SubscriptionObject, RetractableSubscription, CustomStringConvertible {
  @usableFromInline final let slot = UpstreamSlot()
  @usableFromInline final let cancelled = Atomic(false)

  @usableFromInline final let description: String

  /// - Parameter description: The operator's name, used as the description.
  @usableFromInline init(_ description: String) { self.description = description }

  /// Whether the subscriber has cancelled. If not, a subscription that is over has ended by itself.
  @inlinable final var isCancelled: Bool { cancelled.load(ordering: .acquiring) }

  /// Accepts the first subscription only to cancel it.
  ///
  /// - Returns: Whether it was the first.
  @usableFromInline final func refuse(_ subscription: any Subscription) -> Bool {
    slot.attach(subscription) && slot.cancel()
  }

  @usableFromInline override func request(_ demand: Subscribers.Demand) { slot.request(demand) }

  @usableFromInline override func retract() { slot.retract() }

  override var dropsSubscriber: Bool { slot.dropsSubscriber }  // upstream holds the link, which holds the subscriber

  @usableFromInline override func cancel() {
    cancelled.store(true, ordering: .releasing)
    slot.cancel()
  }

  /// Called when the subscriber has received the subscription.
  @usableFromInline func didStart() {}

  /// Called when upstream has ended, before the completion is delivered.
  @usableFromInline func willEnd() {}
}

/// Passes signals on unchanged. Requests and cancellation bypass it: they use its handle.
@usableFromInline final class RelayLink<Down: Subscriber>: Subscriber {
  @usableFromInline typealias Input = Down.Input
  @usableFromInline typealias Failure = Down.Failure
  @usableFromInline let handle: UpstreamHandle
  @usableFromInline let down: Down

  @inlinable init(_ handle: UpstreamHandle, _ down: Down) { (self.handle, self.down) = (handle, down) }

  @inlinable var combineIdentifier: CombineIdentifier { handle.combineIdentifier }

  @inlinable func receive(subscription: any Subscription) {
    if handle.slot.attach(subscription) { down.receive(subscription: handle) }
  }

  @inlinable func receive(_ value: Down.Input) -> Subscribers.Demand {
    handle.slot.isLive && !handle.isCancelled ? down.receive(value) : .none
  }

  @inlinable func receive(completion: Subscribers.Completion<Down.Failure>) {
    guard handle.slot.finish() else { return }
    handle.willEnd()
    if !handle.isCancelled { down.receive(completion: completion) }
  }
}
