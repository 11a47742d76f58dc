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

/// An operator that has to do with values. Upstream's failure passes, at most with another type.
public protocol ValueOperator<Output, Failure>: Operator {
  /// Upstream's failure as the subscriber sees it.
  func failure(_ error: Upstream.Failure) -> Failure
}

extension ValueOperator where Failure == Upstream.Failure {
  /// The same failure.
  public func failure(_ error: Upstream.Failure) -> Failure { error }
}

extension ValueOperator where Failure == any Error {
  /// The same failure, its type hidden.
  public func failure(_ error: Upstream.Failure) -> any Error { error }
}

extension ValueOperator where Failure == Upstream.Failure, Upstream.Failure == any Error {
  /// The same failure.
  public func failure(_ error: any Error) -> any Error { error }
}

/// Whether an operator's closure may throw. The two forms of an operator, `map` and `tryMap`, are one type with one or
/// the other of these.
public protocol Fallibility<UpstreamFailure> {
  /// How upstream fails.
  associatedtype UpstreamFailure: Error
  /// What the closure throws.
  associatedtype Thrown: Error
  /// How the operator fails.
  associatedtype Failure: Error
  /// Upstream's failure as the subscriber sees it.
  static func passed(_ error: UpstreamFailure) -> Failure
  /// The closure's error as the subscriber sees it.
  static func thrown(_ error: Thrown) -> Failure
}

/// The closure does not throw; the operator fails as upstream does.
public enum Unthrowing<UpstreamFailure: Error>: Fallibility {
  /// The same failure.
  public static func passed(_ error: UpstreamFailure) -> UpstreamFailure { error }
  /// Never called.
  public static func thrown(_ error: Never) -> UpstreamFailure {}
}

/// The closure may throw; the operator fails with what it throws, or with upstream's failure.
public enum Throwing<UpstreamFailure: Error>: Fallibility {
  /// The same failure, its type hidden.
  public static func passed(_ error: UpstreamFailure) -> any Error { error }
  /// The error.
  public static func thrown(_ error: any Error) -> any Error { error }
}

extension Fallibility {
  /// Runs `body`; what it throws is the failure.
  @inlinable @inline(__always) static func attempt<Output>(
    _ body: () throws(Thrown) -> Verdict<Output, Failure>
  ) -> Verdict<Output, Failure> {
    do { return try body() } catch { return .fail(thrown(error)) }
  }
}

/// An operator with a closure that may throw, or may not.
public protocol TryingOperator<Output, Failure>: ValueOperator {
  /// Whether it may.
  associatedtype Mode: Fallibility<Upstream.Failure> where Mode.Failure == Failure
}

extension TryingOperator {
  /// Upstream's failure as the subscriber sees it.
  public func failure(_ error: Upstream.Failure) -> Mode.Failure { Mode.passed(error) }
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
