/// One value for each subscriber, then the end.
public struct Just<Output>: Publisher {
  /// Can't fail.
  public typealias Failure = Never
  /// The value.
  public let output: Output

  /// `output` for each subscriber.
  public init(_ output: Output) { self.output = output }

  /// Delivers the value upon the first demand.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Never {
    var publisher = Publishers.Sequence<CollectionOfOne<Output>, Never>(sequence: CollectionOfOne(output))
    publisher.name = "Just"
    publisher.receive(subscriber: subscriber)
  }
}

extension Just: Equatable where Output: Equatable {}
extension Just: Sendable where Output: Sendable {}

/// No value; the end at once, or never.
public struct Empty<Output, Failure: Error>: Publisher, Equatable, Sendable {
  /// Whether it ends at once.
  public let completeImmediately: Bool

  /// Ends at once unless `completeImmediately` is false.
  public init(completeImmediately: Bool = true) { self.completeImmediately = completeImmediately }

  /// The same, with the types given by value.
  public init(completeImmediately: Bool = true, outputType: Output.Type, failureType: Failure.Type) {
    self.init(completeImmediately: completeImmediately)
  }

  /// Ends the subscriber, if this ends.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: Subscriptions.empty)
    if completeImmediately { subscriber.receive(completion: .finished) }
  }
}

/// Fails at once.
public struct Fail<Output, Failure: Error>: Publisher {
  /// What it fails with.
  public let error: Failure

  /// Fails with `error`.
  public init(error: Failure) { self.error = error }

  /// The same, with the value type given by value.
  public init(outputType: Output.Type, failure: Failure) { error = failure }

  /// Fails the subscriber.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: Subscriptions.empty)
    subscriber.receive(completion: .failure(error))
  }
}

extension Fail: Equatable where Failure: Equatable {}
extension Fail: Sendable {}
