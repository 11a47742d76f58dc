/// What the subscriptions of this module descend from that many are made of: a reference to one is a single word.
@usableFromInline class SubscriptionObject: Subscription {
  @usableFromInline init() {}
  @usableFromInline func request(_ demand: Subscribers.Demand) {}
  @usableFromInline func cancel() {}
  /// Takes back demand that is not answered yet, if it knows how to.
  @usableFromInline func retract() {}
}

/// Any other subscription.
@usableFromInline final class ForeignSubscription: SubscriptionObject {
  private let inner: any Subscription

  @usableFromInline init(_ inner: any Subscription) { self.inner = inner }

  @usableFromInline override func request(_ demand: Subscribers.Demand) { inner.request(demand) }
  @usableFromInline override func cancel() { inner.cancel() }
  @usableFromInline override func retract() { (inner as? any RetractableSubscription)?.retract() }
}
