/// A type-erased subscriber.
///
/// It consists of closures: a closure that is formed where the types are known is specialised for them, unlike the
/// methods of a generic class behind a protocol or a base class.
public struct AnySubscriber<Input, Failure: Error>: Subscriber, CustomStringConvertible {
  /// The identifier of the hidden subscriber.
  public let combineIdentifier: CombineIdentifier
  @usableFromInline let receiveSubscription: (any Subscription) -> Void
  @usableFromInline let receiveValue: (Input) -> Subscribers.Demand
  @usableFromInline let receiveCompletion: (Subscribers.Completion<Failure>) -> Void

  /// Hides the type of `subscriber`.
  @inlinable public init<S: Subscriber>(_ subscriber: S) where S.Input == Input, S.Failure == Failure {
    if let erased = subscriber as? Self {
      self = erased
    } else {
      combineIdentifier = subscriber.combineIdentifier
      receiveSubscription = { subscriber.receive(subscription: $0) }
      receiveValue = { subscriber.receive($0) }
      receiveCompletion = { subscriber.receive(completion: $0) }
    }
  }

  /// Creates a subscriber that passes all signals to a subject.
  public init<S: Subject>(_ subject: S) where S.Output == Input, S.Failure == Failure {
    self.init(SubjectRelay(subject))
  }

  /// Creates a subscriber from closures.
  ///
  /// - Parameters:
  ///   - receiveSubscription: Handles the subscription. Default: requests nothing.
  ///   - receiveValue: Handles a value and returns the additional demand. Default: returns none.
  ///   - receiveCompletion: Handles the completion. Default: does nothing.
  public init(
    receiveSubscription: ((any Subscription) -> Void)? = nil,
    receiveValue: ((Input) -> Subscribers.Demand)? = nil,
    receiveCompletion: ((Subscribers.Completion<Failure>) -> Void)? = nil
  ) {
    combineIdentifier = CombineIdentifier()
    self.receiveSubscription = receiveSubscription ?? { _ in }
    self.receiveValue = receiveValue ?? { _ in .none }
    self.receiveCompletion = receiveCompletion ?? { _ in }
  }

  /// Passes the subscription on.
  @inlinable public func receive(subscription: any Subscription) { receiveSubscription(subscription) }
  /// Passes the value on.
  @inlinable public func receive(_ input: Input) -> Subscribers.Demand { receiveValue(input) }
  /// Passes the completion on.
  @inlinable public func receive(completion: Subscribers.Completion<Failure>) { receiveCompletion(completion) }

  /// `AnySubscriber`.
  public var description: String { "AnySubscriber" }
}
