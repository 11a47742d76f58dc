/// What the subscriptions of this module descend from that many are made of: a reference to one is a single word.
@usableFromInline class SubscriptionObject: Subscription {
  @usableFromInline init() {}
  @usableFromInline func request(_ demand: Subscribers.Demand) {}
  @usableFromInline func cancel() {}
  /// Takes back demand that is not answered yet, if it knows how to.
  @usableFromInline func retract() {}
  /// Whether it lets go of its subscriber once it was cancelled, and no signal overlaps another. A sink behind it need
  /// not count its calls then in order to let go of its closures: it is let go of itself.
  var dropsSubscriber: Bool { true }
}

/// A subscription of this module that is no ``SubscriptionObject``, and drops its subscriber once it was cancelled.
@usableFromInline protocol DroppingSubscription: Subscription {}

/// Any other subscription.
@usableFromInline final class ForeignSubscription: SubscriptionObject {
  private let inner: any Subscription

  @usableFromInline init(_ inner: any Subscription) { self.inner = inner }

  @usableFromInline override func request(_ demand: Subscribers.Demand) { inner.request(demand) }
  @usableFromInline override func cancel() { inner.cancel() }
  @usableFromInline override func retract() { (inner as? any RetractableSubscription)?.retract() }
  override var dropsSubscriber: Bool { inner is any DroppingSubscription }
}
