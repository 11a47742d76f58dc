/// A subscriber whose own type is hidden.
public struct AnySubscriber<Input, Failure: Error>: Subscriber, CustomStringConvertible {
  private let box: AnySubscriberBox<Input, Failure>

  /// The identifier of the hidden subscriber.
  public var combineIdentifier: CombineIdentifier { box.combineIdentifier }

  /// Hides the type of `subscriber`.
  public init<S: Subscriber>(_ subscriber: S) where S.Input == Input, S.Failure == Failure {
    box = (subscriber as? Self)?.box ?? SubscriberBox(subscriber)
  }

  /// A subscriber that passes everything to a subject.
  public init<S: Subject>(_ subject: S) where S.Output == Input, S.Failure == Failure {
    self.init(SubjectRelay(subject))
  }

  /// A subscriber made of closures.
  ///
  /// - Parameters:
  ///   - receiveSubscription: Default: asks for nothing.
  ///   - receiveValue: Gives the additional demand. Default: none.
  ///   - receiveCompletion: Default: does nothing.
  public init(
    receiveSubscription: ((any Subscription) -> Void)? = nil,
    receiveValue: ((Input) -> Subscribers.Demand)? = nil,
    receiveCompletion: ((Subscribers.Completion<Failure>) -> Void)? = nil
  ) {
    box = SubscriberBox(
      ClosureSubscriber(
        receiveSubscription: receiveSubscription, receiveValue: receiveValue, receiveCompletion: receiveCompletion))
  }

  /// Passes the subscription on.
  public func receive(subscription: any Subscription) { box.receive(subscription: subscription) }
  /// Passes the value on.
  public func receive(_ input: Input) -> Subscribers.Demand { box.receive(input) }
  /// Passes the completion on.
  public func receive(completion: Subscribers.Completion<Failure>) { box.receive(completion: completion) }

  /// `AnySubscriber`.
  public var description: String { "AnySubscriber" }
}

/// Abstract: the methods are those of ``SubscriberBox``, the only subclass.
private class AnySubscriberBox<Input, Failure: Error> {
  let combineIdentifier: CombineIdentifier

  init(_ combineIdentifier: CombineIdentifier) { self.combineIdentifier = combineIdentifier }

  func receive(subscription: any Subscription) {}
  func receive(_ input: Input) -> Subscribers.Demand { .none }
  func receive(completion: Subscribers.Completion<Failure>) {}
}

private final class SubscriberBox<S: Subscriber>: AnySubscriberBox<S.Input, S.Failure> {
  private let subscriber: S

  init(_ subscriber: S) {
    self.subscriber = subscriber
    super.init(subscriber.combineIdentifier)
  }

  override func receive(subscription: any Subscription) { subscriber.receive(subscription: subscription) }
  override func receive(_ input: S.Input) -> Subscribers.Demand { subscriber.receive(input) }
  override func receive(completion: Subscribers.Completion<S.Failure>) { subscriber.receive(completion: completion) }
}

private struct ClosureSubscriber<Input, Failure: Error>: Subscriber {
  let combineIdentifier = CombineIdentifier()
  let receiveSubscription: ((any Subscription) -> Void)?
  let receiveValue: ((Input) -> Subscribers.Demand)?
  let receiveCompletion: ((Subscribers.Completion<Failure>) -> Void)?

  func receive(subscription: any Subscription) { receiveSubscription?(subscription) }
  func receive(_ input: Input) -> Subscribers.Demand { receiveValue?(input) ?? .none }
  func receive(completion: Subscribers.Completion<Failure>) { receiveCompletion?(completion) }
}
