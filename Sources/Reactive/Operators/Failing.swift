// Operators that change how a publisher fails; the values pass.

extension Publishers {
  /// Fails with what the closure makes of upstream's failure.
  public typealias MapError<Upstream: Publisher, Failure: Error> =
    Staged<Upstream, Upstream.Output, Refailing<Upstream.Failure, Failure>, Never>
  /// Gives a publisher that can't fail the failure type that its subscriber expects.
  public typealias SetFailureType<Upstream: Publisher, Failure: Error> = MapError<Upstream, Failure>
  where Upstream.Failure == Never
  /// Stops the program when upstream fails.
  public typealias AssertNoFailure<Upstream: Publisher> = MapError<Upstream, Never>
}

extension Publishers.Staged where Output == Upstream.Output, Kind == Never {
  /// ``Publishers/MapError``.
  @inlinable public init<Failure: Error>(upstream: Upstream, transform: @escaping (Upstream.Failure) -> Failure)
  where Mode == Refailing<Upstream.Failure, Failure> {
    self.init(upstream, "MapError", Refailing(transform)) { Stage { .emit($0) } }
  }

  /// ``Publishers/MapError``.
  @inlinable public init<Failure: Error>(upstream: Upstream, _ map: @escaping (Upstream.Failure) -> Failure)
  where Mode == Refailing<Upstream.Failure, Failure> {
    self.init(upstream: upstream, transform: map)
  }

  /// ``Publishers/SetFailureType``.
  @inlinable public init<Failure: Error>(upstream: Upstream) where Mode == Refailing<Never, Failure> {
    self.init(upstream: upstream, transform: { error -> Failure in })
  }

  /// ``Publishers/AssertNoFailure``. The message begins with `prefix`; file and line are named by it.
  @inlinable public init(upstream: Upstream, prefix: String, file: StaticString, line: UInt)
  where Mode == Refailing<Upstream.Failure, Never> {
    self.init(
      upstream: upstream,
      transform: { fatalError("\(prefix.isEmpty ? "" : prefix + ": ")\($0)", file: file, line: line) })
  }

  /// The same values with yet another failure type.
  public func setFailureType<Failure: Error, E: Error>(to failureType: E.Type) -> Publishers.SetFailureType<Upstream, E>
  where Mode == Refailing<Never, Failure> {
    .init(upstream: upstream)
  }
}

extension Publisher {
  /// Fails with what the closure makes of the failure. Demand: upstream's, value for value.
  public func mapError<E: Error>(_ transform: @escaping (Failure) -> E) -> Publishers.MapError<Self, E> {
    .init(upstream: self, transform: transform)
  }

  /// Stops the program, with `prefix` and the error as the message, when this fails; also in a release build. Demand:
  /// upstream's, value for value.
  public func assertNoFailure(
    _ prefix: String = "", file: StaticString = #file, line: UInt = #line
  ) -> Publishers.AssertNoFailure<Self> {
    .init(upstream: self, prefix: prefix, file: file, line: line)
  }
}

extension Publisher where Failure == Never {
  /// The same values, with a failure type that another publisher or a subscriber expects. Demand: upstream's, value for
  /// value.
  public func setFailureType<E: Error>(to failureType: E.Type) -> Publishers.SetFailureType<Self, E> {
    .init(upstream: self)
  }
}
