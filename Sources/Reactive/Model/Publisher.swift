/// Delivers values and at most one completion to subscribers.
///
/// The contract is that of Reactive Streams 1.0: a subscriber receives exactly one subscription, then at most as many
/// values as it requested, then at most one completion, then nothing. Signals to one subscriber never overlap.
public protocol Publisher<Output, Failure> {
  /// The type of the values.
  associatedtype Output
  /// The type of the failure; `Never` for a publisher that does not fail.
  associatedtype Failure: Error

  /// Attaches the subscriber. Publishers implement this method; callers use ``subscribe(_:)->()``, its only caller.
  func receive<S: Subscriber<Output, Failure>>(subscriber: S)
}

extension Publisher {
  /// Attaches the subscriber, which receives the subscription by ``Subscriber/receive(subscription:)``, possibly before
  /// this method returns.
  @inlinable @inline(__always)
  public func subscribe<S: Subscriber>(_ subscriber: S) where S.Input == Output, S.Failure == Failure {
    receive(subscriber: subscriber)
  }

  /// Attaches a subject, which passes all signals on.
  ///
  /// Demand: the subject's.
  ///
  /// - Returns: A cancellable that ends the subscription when it is cancelled or released.
  @inlinable
  public func subscribe<S: Subject>(_ subject: S) -> AnyCancellable where S.Output == Output, S.Failure == Failure {
    let relay = SubjectRelay(subject)
    subscribe(relay)
    return AnyCancellable(relay)
  }
}

/// A publisher that starts on ``connect()`` rather than with its first subscriber.
public protocol ConnectablePublisher<Output, Failure>: Publisher {
  /// Starts delivery.
  ///
  /// - Returns: A cancellable that stops delivery.
  func connect() -> any Cancellable
}

/// Receives values from a publisher, as many as it requests.
public protocol Subscriber<Input, Failure>: CustomCombineIdentifierConvertible {
  /// The type of the received values.
  associatedtype Input
  /// The type of the publisher's failure.
  associatedtype Failure: Error

  /// Receives the subscription: the first signal. No value follows before the subscriber requests one.
  func receive(subscription: any Subscription)
  /// Receives one of the requested values.
  ///
  /// - Returns: The additional demand, on top of the outstanding demand. Demand cannot be reduced.
  func receive(_ input: Input) -> Subscribers.Demand
  /// Receives the completion: the last signal. It needs no demand.
  func receive(completion: Subscribers.Completion<Failure>)
}

extension Subscriber where Input == () {
  /// Receives an event without a value.
  public func receive() -> Subscribers.Demand { receive(()) }
}

/// The connection between a publisher and one subscriber.
public protocol Subscription: Cancellable, CustomCombineIdentifierConvertible {
  /// Requests `demand` more values; may deliver them before it returns. Thread-safe; has no effect after the end.
  func request(_ demand: Subscribers.Demand)
}

/// A subscription whose demand can be taken back. Combine has no equivalent: its demand only grows. A source that works
/// for each value need not produce a value that is no longer requested. Operators that handle each value immediately
/// pass the call on.
public protocol RetractableSubscription: Subscription {
  /// Takes back all unmet demand; a value in flight may still arrive. Thread-safe.
  func retract()
}

/// An activity that can be cancelled.
public protocol Cancellable {
  /// Ends the activity and releases what it holds. Thread-safe; a second call has no effect.
  func cancel()
}

/// The namespace of the publishers that operators return.
public enum Publishers {}

/// The namespace of subscribers and their types.
public enum Subscribers {}

/// The namespace of predefined subscriptions.
public enum Subscriptions {}

extension Subscriptions {
  /// A subscription that never delivers a value, for a publisher that completes immediately.
  public static var empty: any Subscription { Nothing() }

  private struct Nothing: Subscription, CustomStringConvertible {
    let combineIdentifier = CombineIdentifier()
    var description: String { "Empty" }
    func request(_ demand: Subscribers.Demand) {}
    func cancel() {}
  }
}
