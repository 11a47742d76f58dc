/// Delivers values, and at most one completion, to subscribers.
///
/// The contract is the one of Reactive Streams 1.0: a subscriber gets exactly one subscription, then at most as many
/// values as it requested, then at most one completion, then nothing. Signals to one subscriber never overlap.
public protocol Publisher<Output, Failure> {
  /// What is delivered.
  associatedtype Output
  /// How delivery may fail; `Never` if it can't.
  associatedtype Failure: Error

  /// Attaches the subscriber. Called by ``subscribe(_:)->()`` only; implement this, call that.
  func receive<S: Subscriber<Output, Failure>>(subscriber: S)
}

extension Publisher {
  /// Attaches the subscriber, which is told by ``Subscriber/receive(subscription:)``, possibly before this returns.
  @inlinable @inline(__always)
  public func subscribe<S: Subscriber>(_ subscriber: S) where S.Input == Output, S.Failure == Failure {
    receive(subscriber: subscriber)
  }

  /// Attaches a subject, which passes everything on.
  ///
  /// Demand: the subject's.
  ///
  /// - Returns: Ends the subscription when cancelled or released.
  @inlinable
  public func subscribe<S: Subject>(_ subject: S) -> AnyCancellable where S.Output == Output, S.Failure == Failure {
    let relay = SubjectRelay(subject)
    subscribe(relay)
    return AnyCancellable(relay)
  }
}

/// A publisher that starts when told to rather than with its first subscriber.
public protocol ConnectablePublisher<Output, Failure>: Publisher {
  /// Starts delivery.
  ///
  /// - Returns: Stops it.
  func connect() -> any Cancellable
}

/// Receives values from a publisher, as many as it asks for.
public protocol Subscriber<Input, Failure>: CustomCombineIdentifierConvertible {
  /// What is received.
  associatedtype Input
  /// How the publisher may fail.
  associatedtype Failure: Error

  /// The first signal. Nothing comes until the subscription is asked for it.
  func receive(subscription: any Subscription)
  /// One value of those asked for.
  ///
  /// - Returns: How many more are wanted, on top of what is still outstanding. It can't take anything back.
  func receive(_ input: Input) -> Subscribers.Demand
  /// The last signal. Needs no demand.
  func receive(completion: Subscribers.Completion<Failure>)
}

extension Subscriber where Input == () {
  /// Receives the signal that something happened.
  public func receive() -> Subscribers.Demand { receive(()) }
}

/// The link between a publisher and one subscriber.
public protocol Subscription: Cancellable, CustomCombineIdentifierConvertible {
  /// Asks for `demand` more values; may deliver them before it returns. Thread-safe; after the end it does nothing.
  func request(_ demand: Subscribers.Demand)
}

/// A subscription whose demand can be taken back. Not in Combine, where demand only grows; a source that works for each
/// value should not work for one that nobody wants any more. Operators that answer each value at once pass it on.
public protocol RetractableSubscription: Subscription {
  /// Takes back all demand that is not answered yet; a value that is on its way may still come. Thread-safe.
  func retract()
}

/// Something that can be ended early.
public protocol Cancellable {
  /// Ends it and lets go of what it holds. Thread-safe; a second call does nothing.
  func cancel()
}

/// The namespace of the publishers that operators return.
public enum Publishers {}

/// The namespace of what has to do with subscribers.
public enum Subscribers {}

/// The namespace of ready-made subscriptions.
public enum Subscriptions {}

extension Subscriptions {
  /// A subscription that never delivers: for a publisher that completes at once.
  public static var empty: any Subscription { Nothing() }

  private struct Nothing: Subscription, CustomStringConvertible {
    let combineIdentifier = CombineIdentifier()
    var description: String { "Empty" }
    func request(_ demand: Subscribers.Demand) {}
    func cancel() {}
  }
}
