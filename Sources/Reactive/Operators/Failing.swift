// Operators that change the failure of a publisher and pass its values on.

extension Publishers {
  /// Fails with the closure's result for upstream's failure.
  public typealias MapError<Upstream: Publisher, Failure: Error> =
    Staged<Upstream, Upstream.Output, Refailing<Upstream.Failure, Failure>, OperatorKind.MapError>
  /// Gives a publisher that never fails the failure type that its subscriber expects.
  public typealias SetFailureType<Upstream: Publisher, Failure: Error> =
    Staged<
      Upstream, Upstream.Output, Refailing<Upstream.Failure, Failure>, OperatorKind.SetFailureType
    >
  where Upstream.Failure == Never
  /// Stops the program when upstream fails.
  public typealias AssertNoFailure<Upstream: Publisher> =
    Staged<
      Upstream, Upstream.Output, Refailing<Upstream.Failure, Never>, OperatorKind.AssertNoFailure
    >
}

extension Publishers.Staged where Output == Upstream.Output {
  @inlinable init<Failure: Error>(
    refailing upstream: Upstream, _ transform: @escaping (Upstream.Failure) -> Failure
  )
  where Mode == Refailing<Upstream.Failure, Failure> {
    self.init(upstream, "MapError", Refailing(transform)) { Stage { .emit($0) } }
  }
}

extension Publishers.Staged where Output == Upstream.Output, Kind == OperatorKind.MapError {
  /// ``Publishers/MapError``.
  @inlinable public init<Failure: Error>(upstream: Upstream, transform: @escaping (Upstream.Failure) -> Failure)
  where Mode == Refailing<Upstream.Failure, Failure> {
    self.init(refailing: upstream, transform)
  }

  /// ``Publishers/MapError``.
  @inlinable public init<Failure: Error>(upstream: Upstream, _ map: @escaping (Upstream.Failure) -> Failure)
  where Mode == Refailing<Upstream.Failure, Failure> {
    self.init(refailing: upstream, map)
  }
}

extension Publishers.Staged where Output == Upstream.Output, Kind == OperatorKind.SetFailureType {
  /// ``Publishers/SetFailureType``.
  @inlinable public init<Failure: Error>(upstream: Upstream)
  where Mode == Refailing<Never, Failure> {
    self.init(refailing: upstream) { error -> Failure in }
  }

  /// Replaces the failure type by another one.
  public func setFailureType<Failure: Error, E: Error>(to failureType: E.Type) -> Publishers.SetFailureType<Upstream, E>
  where Mode == Refailing<Never, Failure> {
    .init(upstream: upstream)
  }
}

extension Publishers.Staged where Output == Upstream.Output, Kind == OperatorKind.AssertNoFailure {
  /// ``Publishers/AssertNoFailure``. The message starts with `prefix`; the failure is reported at `file` and `line`.
  @inlinable public init(upstream: Upstream, prefix: String, file: StaticString, line: UInt)
  where Mode == Refailing<Upstream.Failure, Never> {
    self.init(refailing: upstream) {
      fatalError("\(prefix.isEmpty ? "" : prefix + ": ")\($0)", file: file, line: line)
    }
  }
}

extension Publisher {
  /// Fails with the closure's result for upstream's failure. Demand: passed upstream unchanged.
  @inlinable public func mapError<E: Error>(_ transform: @escaping (Failure) -> E) -> Publishers.MapError<Self, E> {
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
