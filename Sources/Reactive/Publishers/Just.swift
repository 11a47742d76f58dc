import Synchronization

/// Delivers one value to each subscriber, then finishes.
public struct Just<Output>: KnownOptionalPublisher, KnownResultPublisher {
  /// `Never`: this publisher does not fail.
  public typealias Failure = Never
  /// The value.
  public let output: Output
  /// The value.
  public var knownValue: Output? { output }
  /// The value.
  public var result: Result<Output, Never> { .success(output) }

  /// Creates a publisher of `output`.
  public init(_ output: Output) { self.output = output }

  /// Delivers the value on the first demand.
  @inlinable public func receive<S: Subscriber<Output, Never>>(subscriber: S) {
    OnceSubscription.begin(output, subscriber, "Just")
  }
}

extension Just: Equatable where Output: Equatable {}
extension Just: Sendable where Output: Sendable {}

/// A publisher without values that finishes immediately or never.
public struct Empty<Output, Failure: Error>: Publisher, Equatable, Sendable {
  /// Whether it finishes immediately.
  public let completeImmediately: Bool

  /// Creates a publisher that finishes immediately unless `completeImmediately` is false.
  public init(completeImmediately: Bool = true) { self.completeImmediately = completeImmediately }

  /// Creates the same publisher, with its types given by arguments.
  public init(completeImmediately: Bool = true, outputType: Output.Type, failureType: Failure.Type) {
    self.init(completeImmediately: completeImmediately)
  }

  /// Finishes the subscriber if `completeImmediately`; needs no demand.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    subscriber.receive(subscription: Subscriptions.empty)
    if completeImmediately { subscriber.receive(completion: .finished) }
  }
}

/// A publisher that fails immediately.
public struct Fail<Output, Failure: Error>: Publisher {
  /// The failure.
  public let error: Failure

  /// Creates a publisher that fails with `error`.
  public init(error: Failure) { self.error = error }

  /// Creates the same publisher, with its value type given by an argument.
  public init(outputType: Output.Type, failure: Failure) { error = failure }

  /// Delivers the failure; needs no demand.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    subscriber.receive(subscription: Subscriptions.empty)
    subscriber.receive(completion: .failure(error))
  }
}

extension Fail: Equatable where Failure: Equatable {}
extension Fail: Sendable {}

extension Optional {
  /// Delivers the wrapped value, if any, to each subscriber, then finishes.
  public struct Publisher: KnownOptionalPublisher {
    /// The type of the wrapped value.
    public typealias Output = Wrapped
    /// `Never`: this publisher does not fail.
    public typealias Failure = Never
    /// The value.
    public let output: Wrapped?
    /// The value.
    public var knownValue: Wrapped? { output }

    /// Creates a publisher of `output`, if it is not `nil`.
    public init(_ output: Wrapped?) { self.output = output }

    /// Delivers the value on the first demand; without a value, finishes immediately.
    public func receive<S: Subscriber<Wrapped, Never>>(subscriber: S) {
      guard let output else { return Empty().receive(subscriber: subscriber) }
      OnceSubscription.begin(output, subscriber, "Optional")
    }
  }

  /// A publisher of the wrapped value, if any.
  public var publisher: Publisher { Publisher(self) }
}

extension Optional.Publisher: Equatable where Wrapped: Equatable {}
extension Optional.Publisher: Sendable where Wrapped: Sendable {}

extension Result {
  /// Delivers the value and finishes, or fails, for each subscriber.
  public struct Publisher: KnownResultPublisher {
    /// The type of a success value.
    public typealias Output = Success
    /// The value or the failure.
    public let result: Result<Success, Failure>

    /// Creates a publisher of `result`.
    public init(_ result: Result<Success, Failure>) { self.result = result }
    /// Creates a publisher of the value `output`.
    public init(_ output: Success) { result = .success(output) }
    /// Creates a publisher that fails with `failure`.
    public init(_ failure: Failure) { result = .failure(failure) }

    /// Delivers the value on the first demand, or fails immediately.
    public func receive<S: Subscriber<Success, Failure>>(subscriber: S) {
      switch result {
      case .success(let output): OnceSubscription.begin(output, subscriber, "Result")
      case .failure(let error): Fail(error: error).receive(subscriber: subscriber)
      }
    }
  }

  /// A publisher of the value or the failure.
  public var publisher: Publisher { Publisher(self) }
}

extension Result.Publisher: Equatable where Success: Equatable, Failure: Equatable {}
extension Result.Publisher: Sendable where Success: Sendable {}

/// A subscription that delivers a known value on the first demand.
///
/// Not generic: value and subscriber are in a closure that is formed where the types are known.
@usableFromInline final class OnceSubscription: SubscriptionObject, CustomStringConvertible {
  private let isTaken = Atomic(false)
  private let cancelled = Atomic(false)
  /// Taken by the thread that sets `isTaken`.
  private var deliver: ((OnceSubscription) -> Void)?
  @usableFromInline let description: String

  @usableFromInline init(_ description: String, deliver: @escaping (OnceSubscription) -> Void) {
    (self.description, self.deliver) = (description, deliver)
  }

  /// Sends the subscriber a subscription that delivers this value, then finishes.
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
