/// A publisher that code outside feeds.
public protocol Subject<Output, Failure>: AnyObject, Publisher {
  /// Delivers a value to those who have demand.
  func send(_ value: Output)
  /// Ends the subject for all, also for those who subscribe later. What is sent afterwards is ignored.
  func send(completion: Subscribers.Completion<Failure>)
  /// Gives the subject an upstream: the subject asks it for values and passes them on with ``send(_:)``.
  func send(subscription: any Subscription)
}

extension Subject where Output == Void {
  /// Signals that something happened.
  public func send() { send(()) }
}

/// Feeds a subject from a publisher.
@usableFromInline final class SubjectRelay<S: Subject>: Subscriber, Subscription {
  @usableFromInline let subject: S
  @usableFromInline let upstream = UpstreamSlot()

  @inlinable init(_ subject: S) { self.subject = subject }

  @inlinable func receive(subscription: any Subscription) {
    if upstream.attach(subscription) { subject.send(subscription: self) }
  }

  @inlinable func receive(_ input: S.Output) -> Subscribers.Demand {
    if upstream.isLive { subject.send(input) }
    return .none
  }

  @inlinable func receive(completion: Subscribers.Completion<S.Failure>) {
    if upstream.finish() { subject.send(completion: completion) }
  }

  @inlinable func request(_ demand: Subscribers.Demand) { upstream.request(demand) }
  @inlinable func cancel() { upstream.cancel() }
}
