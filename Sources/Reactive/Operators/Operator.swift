// The parts that operators share.

/// A publisher with an upstream. By default it has the value and failure types of upstream.
public protocol Operator<Output, Failure>: Publisher {
  /// The upstream publisher.
  associatedtype Upstream: Publisher
  /// The type of the values: upstream's by default.
  associatedtype Output = Upstream.Output
  /// The type of the failure: upstream's by default.
  associatedtype Failure = Upstream.Failure
  /// The upstream publisher.
  var upstream: Upstream { get }
}

/// A publisher that is composed of others.
public protocol CompositePublisher<Output, Failure>: Publisher {
  /// The type of the composed publisher.
  associatedtype Body: Publisher<Output, Failure>
  /// The type of its values.
  associatedtype Output = Body.Output
  /// The type of its failure.
  associatedtype Failure = Body.Failure
  /// The composed publisher, created for each subscriber.
  var body: Body { get }
}

extension CompositePublisher {
  // Always inlined: otherwise the optimiser specialises no chain of three operators, which costs twenty times as much.

  /// Attaches the subscriber to ``body``.
  @inlinable @inline(__always) public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    body.receive(subscriber: subscriber)
  }
}

extension CompositePublisher where Body: Operator {
  /// The upstream publisher of ``body``.
  @inlinable public var upstream: Body.Upstream { body.upstream }
}

/// The failures of an operator: converts upstream's failure and the errors of its closure.
public protocol FailureMode<UpstreamFailure> {
  /// The type of upstream's failure.
  associatedtype UpstreamFailure: Error
  /// The type of the closure's error.
  associatedtype Thrown: Error
  /// The type of the operator's failure.
  associatedtype Failure: Error
  /// Converts upstream's failure into the operator's.
  func passed(_ error: UpstreamFailure) -> Failure
  /// Converts the closure's error into the operator's failure.
  func thrown(_ error: Thrown) -> Failure
}

/// Whether an operator's closure may throw. The two forms of an operator, such as `filter` and `tryFilter`, differ in
/// the conforming type.
public protocol Fallibility<UpstreamFailure>: FailureMode {
  /// Creates the mode, which has no state.
  init()
}

/// The closure does not throw; the operator has upstream's failure type.
public struct Unthrowing<UpstreamFailure: Error>: Fallibility {
  /// Creates the mode, which has no state.
  @inlinable public init() {}
  /// Returns the same failure.
  @inlinable public func passed(_ error: UpstreamFailure) -> UpstreamFailure { error }
  /// Never called.
  @inlinable public func thrown(_ error: Never) -> UpstreamFailure {}
}

/// The closure may throw; the operator fails with its error or with upstream's failure.
public struct Throwing<UpstreamFailure: Error>: Fallibility {
  /// Creates the mode, which has no state.
  @inlinable public init() {}
  /// Returns the same failure, type-erased.
  @inlinable public func passed(_ error: UpstreamFailure) -> any Error { error }
  /// Returns the same error.
  @inlinable public func thrown(_ error: any Error) -> any Error { error }
}

/// Nothing throws; a closure converts upstream's failure.
public struct Refailing<UpstreamFailure: Error, Failure: Error>: FailureMode {
  @usableFromInline let transform: (UpstreamFailure) -> Failure

  @inlinable init(_ transform: @escaping (UpstreamFailure) -> Failure) { self.transform = transform }

  /// Returns the closure's result for the failure.
  @inlinable public func passed(_ error: UpstreamFailure) -> Failure { transform(error) }
  /// Never called.
  @inlinable public func thrown(_ error: Never) -> Failure {}
}
