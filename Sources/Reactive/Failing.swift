// Operators that change how a publisher fails; the values pass.

extension Publishers {
  /// Fails with what the closure makes of upstream's failure.
  public struct MapError<Upstream: Publisher, Failure: Error>: Stage {
    /// Where the values come from.
    public let upstream: Upstream
    /// What becomes of the failure.
    public let transform: (Upstream.Failure) -> Failure

    /// The operator behind `upstream`.
    public init(upstream: Upstream, transform: @escaping (Upstream.Failure) -> Failure) {
      (self.upstream, self.transform) = (upstream, transform)
    }

    /// The operator behind `upstream`.
    public init(upstream: Upstream, _ map: @escaping (Upstream.Failure) -> Failure) {
      self.init(upstream: upstream, transform: map)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Failure> { { .emit($0) } }
    /// Upstream's failure as the subscriber sees it.
    public func failure(_ error: Upstream.Failure) -> Failure { transform(error) }
  }

  /// Gives a publisher that can't fail the failure type that its subscriber expects.
  public struct SetFailureType<Upstream: Publisher, Failure: Error>: Stage where Upstream.Failure == Never {
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) { self.upstream = upstream }

    /// The same values with yet another failure type.
    public func setFailureType<E: Error>(to failureType: E.Type) -> SetFailureType<Upstream, E> {
      SetFailureType<Upstream, E>(upstream: upstream)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Failure> { { .emit($0) } }
    /// Upstream's failure as the subscriber sees it.
    public func failure(_ error: Never) -> Failure {}
  }

  /// Stops the program when upstream fails.
  public struct AssertNoFailure<Upstream: Publisher>: Stage {
    /// Can't fail.
    public typealias Failure = Never
    /// Where the values come from.
    public let upstream: Upstream
    /// Begins the message.
    public let prefix: String
    /// The file that the message names.
    public let file: StaticString
    /// The line that the message names.
    public let line: UInt

    /// The operator behind `upstream`.
    public init(upstream: Upstream, prefix: String, file: StaticString, line: UInt) {
      (self.upstream, self.prefix, self.file, self.line) = (upstream, prefix, file, line)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Never> { { .emit($0) } }
    /// Stops the program.
    public func failure(_ error: Upstream.Failure) -> Never {
      fatalError("\(prefix.isEmpty ? "" : prefix + ": ")\(error)", file: file, line: line)
    }
  }
}

extension Publisher {
  /// Fails with what the closure makes of the failure.
  ///
  /// Demand: upstream's, value for value.
  public func mapError<E: Error>(_ transform: @escaping (Failure) -> E) -> Publishers.MapError<Self, E> {
    Publishers.MapError(upstream: self, transform: transform)
  }

  /// Stops the program, with `prefix` and the error as the message, when this fails; also in a release build.
  ///
  /// Demand: upstream's, value for value.
  public func assertNoFailure(
    _ prefix: String = "", file: StaticString = #file, line: UInt = #line
  ) -> Publishers.AssertNoFailure<Self> {
    Publishers.AssertNoFailure(upstream: self, prefix: prefix, file: file, line: line)
  }
}

extension Publisher where Failure == Never {
  /// The same values, with a failure type that another publisher or a subscriber expects.
  public func setFailureType<E: Error>(to failureType: E.Type) -> Publishers.SetFailureType<Self, E> {
    Publishers.SetFailureType(upstream: self)
  }
}
