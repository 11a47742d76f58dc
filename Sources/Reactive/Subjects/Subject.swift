/// A publisher whose values are sent by calls from outside.
public protocol Subject<Output, Failure>: AnyObject, Publisher {
  /// Delivers a value to the subscribers with demand.
  func send(_ value: Output)
  /// Completes the subject for all subscribers, including later ones. Later signals are ignored.
  func send(completion: Subscribers.Completion<Failure>)
  /// Gives the subject an upstream: the subject requests values from it and passes them on with ``send(_:)``.
  func send(subscription: any Subscription)
}

extension Subject where Output == Void {
  /// Sends an event without a value.
  public func send() { send(()) }
}

/// Passes the signals of a publisher to a subject.
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
