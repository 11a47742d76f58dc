// What operators have in common, so that each of them says only what is its own.

/// A publisher behind another one. It delivers the same values and fails in the same way, unless it says otherwise.
public protocol Operator<Output, Failure>: Publisher {
  /// Where the values come from.
  associatedtype Upstream: Publisher
  /// What is delivered: upstream's values, unless said otherwise.
  associatedtype Output = Upstream.Output
  /// How delivery may fail: as upstream does, unless said otherwise.
  associatedtype Failure = Upstream.Failure
  /// Where the values come from.
  var upstream: Upstream { get }
}

/// A publisher that is made of others.
public protocol CompositePublisher<Output, Failure>: Publisher {
  /// What it is made of.
  associatedtype Body: Publisher<Output, Failure>
  /// What that delivers.
  associatedtype Output = Body.Output
  /// How that fails.
  associatedtype Failure = Body.Failure
  /// What stands for it, made anew for each subscriber.
  var body: Body { get }
}

extension CompositePublisher {
  /// Attaches the subscriber to what this is made of.
  @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { body.receive(subscriber: subscriber) }
}

/// How an operator fails: what becomes of upstream's failure, and of what its closure throws.
public protocol FailureMode<UpstreamFailure> {
  /// How upstream fails.
  associatedtype UpstreamFailure: Error
  /// What the closure throws.
  associatedtype Thrown: Error
  /// How the operator fails.
  associatedtype Failure: Error
  /// Upstream's failure as the subscriber sees it.
  func passed(_ error: UpstreamFailure) -> Failure
  /// The closure's error as the subscriber sees it.
  func thrown(_ error: Thrown) -> Failure
}

/// Whether an operator's closure may throw. The two forms of an operator, `filter` and `tryFilter`, are one type with
/// one or the other of these.
public protocol Fallibility<UpstreamFailure>: FailureMode {
  /// It has no state.
  init()
}

/// The closure does not throw; the operator fails as upstream does.
public struct Unthrowing<UpstreamFailure: Error>: Fallibility {
  /// It has no state.
  @inlinable public init() {}
  /// The same failure.
  @inlinable public func passed(_ error: UpstreamFailure) -> UpstreamFailure { error }
  /// Never called.
  @inlinable public func thrown(_ error: Never) -> UpstreamFailure {}
}

/// The closure may throw; the operator fails with what it throws, or with upstream's failure.
public struct Throwing<UpstreamFailure: Error>: Fallibility {
  /// It has no state.
  @inlinable public init() {}
  /// The same failure, its type hidden.
  @inlinable public func passed(_ error: UpstreamFailure) -> any Error { error }
  /// The error.
  @inlinable public func thrown(_ error: any Error) -> any Error { error }
}

/// There is nothing that throws; upstream's failure becomes another.
public struct Refailing<UpstreamFailure: Error, Failure: Error>: FailureMode {
  @usableFromInline let transform: (UpstreamFailure) -> Failure

  @inlinable init(_ transform: @escaping (UpstreamFailure) -> Failure) { self.transform = transform }

  /// What the closure makes of it.
  @inlinable public func passed(_ error: UpstreamFailure) -> Failure { transform(error) }
  /// Never called.
  @inlinable public func thrown(_ error: Never) -> Failure {}
}

/// Tells apart the types of operators that are alike in everything else.
///
/// The name of such an operator is an alias of the structure that it shares with others. An extension of one operator
/// names its kind, `extension Publishers.Map where Kind == OperatorKind.Map`; without that it is one of all of them, and
/// collides with the same member of another.
public enum OperatorKind {
  /// `map`.
  public enum Map {}
  /// `scan`.
  public enum Scan {}
  /// `compactMap`.
  public enum Compact {}
  /// `filter`.
  public enum Filter {}
  /// `removeDuplicates`.
  public enum RemoveDuplicates {}
  /// `dropFirst`.
  public enum Drop {}
  /// `drop(while:)`.
  public enum DropWhile {}
  /// `output`.
  public enum Output {}
  /// `prefix(while:)`.
  public enum Prefix {}
  /// `mapError`.
  public enum MapError {}
  /// `setFailureType`.
  public enum SetFailureType {}
  /// `assertNoFailure`.
  public enum AssertNoFailure {}
  /// `collect(_:)`.
  public enum CollectByCount {}
  /// `first`.
  public enum First {}
  /// `first(where:)`.
  public enum FirstWhere {}
  /// `reduce`.
  public enum Reduce {}
  /// `collect`.
  public enum Collect {}
  /// `ignoreOutput`.
  public enum Ignore {}
  /// `last`.
  public enum Last {}
  /// `last(where:)`.
  public enum LastWhere {}
  /// `min` and `max`.
  public enum Comparison {}
  /// `asSingle`.
  public enum Single {}
  /// `count`.
  public enum Count {}
  /// `contains`.
  public enum Contains {}
  /// `contains(where:)`.
  public enum ContainsWhere {}
  /// `allSatisfy`.
  public enum All {}
  /// `buffer`.
  public enum Buffer {}
  /// `collect(_:options:)`.
  public enum CollectByTime {}
  /// `debounce`.
  public enum Debounce {}
  /// `throttle`.
  public enum Throttle {}
  /// `delay`.
  public enum Delay {}
  /// `receive(on:)`.
  public enum ReceiveOn {}
  /// `timeout`.
  public enum Timeout {}
  /// `handleEvents`.
  public enum Handle {}
  /// `print`.
  public enum Print {}
  /// `breakpoint`.
  public enum Breakpoint {}
}
