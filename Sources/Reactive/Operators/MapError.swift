// Operators that change the failure of a publisher and pass its values on.

extension Publishers {
  /// Fails with the closure's result for upstream's failure.
  public struct MapError<Upstream: Publisher, Failure: Error>: CompositePublisher {
    /// Returns the failure for upstream's failure.
    public let transform: @Sendable (Upstream.Failure) -> Failure
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Refailing<Upstream.Failure, Failure>>

    /// `upstream.mapError(transform)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, transform: @escaping @Sendable (Upstream.Failure) -> Failure
    ) {
      self.transform = transform
      body = Staged(upstream, "MapError", Refailing(transform)) { Stage { .emit($0) } }
    }

    /// `upstream.mapError(map)`
    @preconcurrency @inlinable public init(upstream: Upstream, _ map: @escaping @Sendable (Upstream.Failure) -> Failure)
    {
      self.init(upstream: upstream, transform: map)
    }
  }

  /// Gives a publisher that never fails the failure type that its subscriber expects.
  public struct SetFailureType<Upstream: Publisher, Failure: Error>: CompositePublisher
  where Upstream.Failure == Never {
    /// The upstream publisher.
    public let upstream: Upstream

    /// `upstream.setFailureType(to: Failure.self)`
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// The implementation.
    @inlinable public var body: Staged<Upstream, Upstream.Output, Refailing<Never, Failure>> {
      Staged(upstream, "SetFailureType", Refailing { error -> Failure in }) { Stage { .emit($0) } }
    }

    /// Replaces the failure type by another one.
    public func setFailureType<E: Error>(to failureType: E.Type) -> SetFailureType<Upstream, E> {
      .init(upstream: upstream)
    }
  }

  /// Stops the program when upstream fails.
  public struct AssertNoFailure<Upstream: Publisher>: CompositePublisher {
    /// The start of the message.
    public let prefix: String
    /// The file that the message names.
    public let file: StaticString
    /// The line that the message names.
    public let line: UInt
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Refailing<Upstream.Failure, Never>>

    /// `upstream.assertNoFailure(prefix, file: file, line: line)`
    @inlinable public init(upstream: Upstream, prefix: String, file: StaticString, line: UInt) {
      (self.prefix, self.file, self.line) = (prefix, file, line)
      let stop = Refailing<Upstream.Failure, Never> {
        fatalError("\(prefix.isEmpty ? "" : prefix + ": ")\($0)", file: file, line: line)
      }
      body = Staged(upstream, "AssertNoFailure", stop) { Stage { .emit($0) } }
    }
  }
}

extension Publishers.SetFailureType: Equatable where Upstream: Equatable {}

extension Publisher {
  /// Fails with the closure's result for upstream's failure. Demand: passed upstream unchanged.
  @preconcurrency @inlinable public func mapError<E: Error>(_ transform: @escaping @Sendable (Failure) -> E)
    -> Publishers.MapError<Self, E>
  {
    .init(upstream: self, transform: transform)
  }

  /// Stops the program when upstream fails, also in a release build, with `prefix` and the error as the message.
  /// Demand: passed upstream unchanged.
  @inlinable public func assertNoFailure(
    _ prefix: String = "", file: StaticString = #file, line: UInt = #line
  ) -> Publishers.AssertNoFailure<Self> {
    .init(upstream: self, prefix: prefix, file: file, line: line)
  }
}

extension Publisher where Failure == Never {
  /// Gives this publisher the failure type that another publisher or a subscriber expects. Demand: passed upstream
  /// unchanged.
  @inlinable public func setFailureType<E: Error>(to failureType: E.Type) -> Publishers.SetFailureType<Self, E> {
    .init(upstream: self)
  }
}
