import Synchronization

/// One value for each subscriber, then the end.
public struct Just<Output>: KnownOptionalPublisher, KnownResultPublisher {
  /// Can't fail.
  public typealias Failure = Never
  /// The value.
  public let output: Output
  /// The value.
  public var knownValue: Output? { output }
  /// The value.
  public var result: Result<Output, Never> { .success(output) }

  /// `output` for each subscriber.
  public init(_ output: Output) { self.output = output }

  /// Delivers the value upon the first demand.
  @inlinable public func receive<S: Subscriber<Output, Never>>(subscriber: S) {
    OnceSubscription.begin(output, subscriber, "Just")
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

  /// Ends the subscriber, if this ends; needs no demand.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
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

  /// Fails the subscriber; needs no demand.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    subscriber.receive(subscription: Subscriptions.empty)
    subscriber.receive(completion: .failure(error))
  }
}

extension Fail: Equatable where Failure: Equatable {}
extension Fail: Sendable {}

extension Optional {
  /// The wrapped value, if any, for each subscriber, then the end.
  public struct Publisher: KnownOptionalPublisher {
    /// The wrapped value.
    public typealias Output = Wrapped
    /// Can't fail.
    public typealias Failure = Never
    /// The value.
    public let output: Wrapped?
    /// The value.
    public var knownValue: Wrapped? { output }

    /// `output`, if any, for each subscriber.
    public init(_ output: Wrapped?) { self.output = output }

    /// Delivers the value upon the first demand; without one, ends at once.
    public func receive<S: Subscriber<Wrapped, Never>>(subscriber: S) {
      guard let output else { return Empty().receive(subscriber: subscriber) }
      OnceSubscription.begin(output, subscriber, "Optional")
    }
  }

  /// Delivers the wrapped value, if any, then the end.
  public var publisher: Publisher { Publisher(self) }
}

extension Optional.Publisher: Equatable where Wrapped: Equatable {}
extension Optional.Publisher: Sendable where Wrapped: Sendable {}

extension Result {
  /// The value, then the end, or the failure, for each subscriber.
  public struct Publisher: KnownResultPublisher {
    /// The value of a success.
    public typealias Output = Success
    /// What is delivered.
    public let result: Result<Success, Failure>

    /// `result` for each subscriber.
    public init(_ result: Result<Success, Failure>) { self.result = result }
    /// `output` for each subscriber.
    public init(_ output: Success) { result = .success(output) }
    /// `failure` for each subscriber.
    public init(_ failure: Failure) { result = .failure(failure) }

    /// Delivers the value upon the first demand, or fails at once.
    public func receive<S: Subscriber<Success, Failure>>(subscriber: S) {
      switch result {
      case .success(let output): OnceSubscription.begin(output, subscriber, "Result")
      case .failure(let error): Fail(error: error).receive(subscriber: subscriber)
      }
    }
  }

  /// Delivers the value, then the end, or the failure.
  public var publisher: Publisher { Publisher(self) }
}

extension Result.Publisher: Equatable where Success: Equatable, Failure: Equatable {}
extension Result.Publisher: Sendable where Success: Sendable {}

/// A subscription that delivers what is known already, upon the first demand.
///
/// Not generic: what it delivers, and to whom, is in a closure that is made where the types are known.
@usableFromInline final class OnceSubscription: SubscriptionObject, CustomStringConvertible {
  private let isTaken = Atomic(false)
  private let cancelled = Atomic(false)
  /// Taken by the one who sets `isTaken`.
  private var deliver: ((OnceSubscription) -> Void)?
  @usableFromInline let description: String

  @usableFromInline init(_ description: String, deliver: @escaping (OnceSubscription) -> Void) {
    (self.description, self.deliver) = (description, deliver)
  }

  /// A subscription of this value, then the end.
  @inlinable static func begin<Down: Subscriber>(_ value: Down.Input, _ down: Down, _ description: String) {
    down.receive(
      subscription: OnceSubscription(description) { subscription in
        _ = down.receive(value)
        if !subscription.isCancelled { down.receive(completion: .finished) }
      })
  }

  @usableFromInline var isCancelled: Bool { cancelled.load(ordering: .acquiring) }

  @usableFromInline override func request(_ demand: Subscribers.Demand) { if demand != .none { take()?(self) } }

  @usableFromInline override func cancel() {
    cancelled.store(true, ordering: .releasing)
    _ = take()
  }

  private func take() -> ((OnceSubscription) -> Void)? {
    isTaken.exchange(true, ordering: .acquiringAndReleasing) ? nil : deliver.take()
  }
}
