/// The base class of this module's most frequent subscriptions: a reference to it is a single word.
@usableFromInline class SubscriptionObject: Subscription {
  @usableFromInline init() {}
  @usableFromInline func request(_ demand: Subscribers.Demand) {}
  @usableFromInline func cancel() {}
  /// Takes back unmet demand, if the subscription supports that.
  @usableFromInline func retract() {}
  /// Whether the subscription releases its subscriber after cancellation and never overlaps signals. A sink behind it
  /// can then release its closures with itself and need not count calls.
  var dropsSubscriber: Bool { true }
}

/// A subscription of this package that is not a ``SubscriptionObject``, releases its subscriber after cancellation, and never
/// overlaps signals.
@usableFromInline package protocol DroppingSubscription: Subscription {}

/// Wraps any other subscription.
@usableFromInline final class ForeignSubscription: SubscriptionObject {
  private let inner: any Subscription

  @usableFromInline init(_ inner: any Subscription) { self.inner = inner }

  @usableFromInline override func request(_ demand: Subscribers.Demand) { inner.request(demand) }
  @usableFromInline override func cancel() { inner.cancel() }
  @usableFromInline override func retract() { (inner as? any RetractableSubscription)?.retract() }
  override var dropsSubscriber: Bool { inner is any DroppingSubscription }
}
