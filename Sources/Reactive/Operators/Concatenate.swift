// Operators that continue with another publisher when one has ended. The demand that the first leaves unmet is
// requested from the next.

extension Publishers {
  /// Delivers all values of one publisher, then all values of another.
  public struct Concatenate<Prefix: Publisher, Suffix: Publisher>: Publisher
  where Prefix.Output == Suffix.Output, Prefix.Failure == Suffix.Failure {
    /// The values of both publishers.
    public typealias Output = Suffix.Output
    /// The failure type of both publishers.
    public typealias Failure = Suffix.Failure
    /// The first publisher.
    public let prefix: Prefix
    /// The publisher that follows when the first has finished.
    public let suffix: Suffix

    /// Creates a publisher of the values of `prefix`, then those of `suffix`.
    @inlinable public init(prefix: Prefix, suffix: Suffix) { (self.prefix, self.suffix) = (prefix, suffix) }

    /// Attaches the subscriber to the first publisher.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      let link = SequentialLink(subscriber, "Concatenate")
      link.follow(prefix) { [suffix] completion in  // the closure must not hold the first publisher
        if case .finished = completion { link.finish(with: suffix) } else { link.finish(completion) }
      }
    }
  }

  /// Continues with another publisher when upstream fails.
  public struct Catch<Upstream: Publisher, NewPublisher: Publisher>: Operator
  where NewPublisher.Output == Upstream.Output {
    /// The failure type of the other publisher.
    public typealias Failure = NewPublisher.Failure
    /// The upstream publisher.
    public let upstream: Upstream
    /// Returns the publisher that follows upstream's failure.
    public let handler: @Sendable (Upstream.Failure) -> NewPublisher

    /// Creates the operator for `upstream`.
    @preconcurrency @inlinable public init(
      upstream: Upstream, handler: @escaping @Sendable (Upstream.Failure) -> NewPublisher
    ) {
      (self.upstream, self.handler) = (upstream, handler)
    }

    /// Attaches the subscriber to upstream.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      SequentialLink(subscriber, "Catch").follow(upstream, Unthrowing(), catching: handler)
    }
  }

  /// Continues with another publisher when upstream fails; fails if the closure throws.
  public struct TryCatch<Upstream: Publisher, NewPublisher: Publisher>: Operator
  where NewPublisher.Output == Upstream.Output {
    /// The error that the closure throws, or the failure of the other publisher.
    public typealias Failure = any Error
    /// The upstream publisher.
    public let upstream: Upstream
    /// Returns the publisher that follows upstream's failure.
    public let handler: @Sendable (Upstream.Failure) throws -> NewPublisher

    /// Creates the operator for `upstream`.
    @preconcurrency @inlinable public init(
      upstream: Upstream, handler: @escaping @Sendable (Upstream.Failure) throws -> NewPublisher
    ) {
      (self.upstream, self.handler) = (upstream, handler)
    }

    /// Attaches the subscriber to upstream.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      SequentialLink(subscriber, "TryCatch").follow(upstream, Throwing(), catching: handler)
    }
  }

  /// Subscribes to upstream again when it fails.
  public struct Retry<Upstream: Publisher>: Operator {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The number of retries; `nil` or negative: no limit.
    public let retries: Int?

    /// Creates the operator for `upstream`.
    @inlinable public init(upstream: Upstream, retries: Int?) { (self.upstream, self.retries) = (upstream, retries) }

    /// Attaches the subscriber to upstream.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      attempt(SequentialLink(subscriber, "Retry"), retries: retries.flatMap { $0 < 0 ? nil : $0 })
    }

    @inlinable func attempt<S: Subscriber<Upstream.Output, Failure>>(_ link: SequentialLink<S>, retries: Int?) {
      link.follow(upstream) { completion in
        if case .failure = completion, retries != 0 {
          attempt(link, retries: retries.map { $0 - 1 })
        } else {
          link.finish(completion)
        }
      }
    }
  }

  /// Delivers a value and finishes when upstream fails.
  public struct ReplaceError<Upstream: Publisher>: CompositePublisher {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The value to deliver if upstream fails.
    public let output: Upstream.Output

    /// Creates the operator for `upstream`.
    @inlinable public init(upstream: Upstream, output: Upstream.Output) {
      (self.upstream, self.output) = (upstream, output)
    }

    /// Continues with the value.
    @inlinable public var body: Catch<Upstream, Just<Upstream.Output>> {
      upstream.catch(own { [output] _ in Just(output) })
    }
  }

  /// Delivers a value when upstream finishes without one.
  public struct ReplaceEmpty<Upstream: Publisher>: Operator {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The value to deliver if upstream has none.
    public let output: Upstream.Output

    /// Creates the operator for `upstream`.
    @inlinable public init(upstream: Upstream, output: Upstream.Output) {
      (self.upstream, self.output) = (upstream, output)
    }

    /// Attaches the subscriber to upstream.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      let link = SequentialLink(subscriber, "ReplaceEmpty")
      link.follow(upstream) { [output] completion in
        guard case .finished = completion, link.delivered == 0 else { return link.finish(completion) }
        link.follow(Just(output)) { _ in link.finish(.finished) }
      }
    }
  }
}

extension Publishers.Concatenate: Equatable where Prefix: Equatable, Suffix: Equatable {}
extension Publishers.Retry: Equatable where Upstream: Equatable {}
extension Publishers.ReplaceError: Equatable where Upstream: Equatable, Upstream.Output: Equatable {}
extension Publishers.ReplaceEmpty: Equatable where Upstream: Equatable, Upstream.Output: Equatable {}

extension Publisher {
  /// Delivers these values after upstream's. Demand: upstream's unmet demand applies to them.
  @inlinable public func append(
    _ elements: Output...
  ) -> Publishers.Concatenate<Self, Publishers.Sequence<[Output], Failure>> { append(elements) }

  /// Delivers these values after upstream's. Demand: upstream's unmet demand applies to them.
  @inlinable public func append<S: Sequence<Output>>(
    _ elements: S
  ) -> Publishers.Concatenate<Self, Publishers.Sequence<S, Failure>> { append(Publishers.Sequence(sequence: elements)) }

  /// Subscribes to `publisher` when upstream has finished, and delivers its values. Demand: the demand that upstream
  /// left unmet is requested from `publisher`.
  @inlinable public func append<P: Publisher<Output, Failure>>(_ publisher: P) -> Publishers.Concatenate<Self, P> {
    Publishers.Concatenate(prefix: self, suffix: publisher)
  }

  /// Delivers these values before upstream's. Demand: the demand beyond them is requested from upstream.
  @inlinable public func prepend(
    _ elements: Output...
  ) -> Publishers.Concatenate<Publishers.Sequence<[Output], Failure>, Self> { prepend(elements) }

  /// Delivers these values before upstream's. Demand: the demand beyond them is requested from upstream.
  @inlinable public func prepend<S: Sequence<Output>>(
    _ elements: S
  ) -> Publishers.Concatenate<Publishers.Sequence<S, Failure>, Self> {
    prepend(Publishers.Sequence(sequence: elements))
  }

  /// Delivers the values of `publisher`, and subscribes to upstream when `publisher` has finished. Demand: the demand
  /// that `publisher` left unmet is requested from upstream.
  @inlinable public func prepend<P: Publisher<Output, Failure>>(_ publisher: P) -> Publishers.Concatenate<P, Self> {
    Publishers.Concatenate(prefix: publisher, suffix: self)
  }

  /// Continues with the publisher that the closure returns for a failure; the unmet demand is requested from it.
  @preconcurrency @inlinable public func `catch`<P: Publisher>(_ handler: @escaping @Sendable (Failure) -> P)
    -> Publishers.Catch<Self, P>
  where P.Output == Output {
    Publishers.Catch(upstream: self, handler: handler)
  }

  /// Continues with the publisher that the closure returns for a failure; fails with the error that the closure throws.
  /// Demand: the unmet demand is requested from that publisher.
  @preconcurrency @inlinable public func tryCatch<P: Publisher>(_ handler: @escaping @Sendable (Failure) throws -> P)
    -> Publishers.TryCatch<Self, P>
  where P.Output == Output {
    Publishers.TryCatch(upstream: self, handler: handler)
  }

  /// Subscribes to upstream again after each of the first `retries` failures, and requests the unmet demand. A negative
  /// number is no limit.
  @inlinable public func retry(_ retries: Int) -> Publishers.Retry<Self> {
    Publishers.Retry(upstream: self, retries: retries)
  }

  /// Delivers `output` and finishes when upstream fails; the value waits for demand.
  @inlinable public func replaceError(with output: Output) -> Publishers.ReplaceError<Self> {
    Publishers.ReplaceError(upstream: self, output: output)
  }

  /// Delivers `output` when upstream finishes without a value; the value waits for demand.
  @inlinable public func replaceEmpty(with output: Output) -> Publishers.ReplaceEmpty<Self> {
    Publishers.ReplaceEmpty(upstream: self, output: output)
  }
}
