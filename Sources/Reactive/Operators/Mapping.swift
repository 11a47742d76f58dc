// Operators that transform each value into another value, or into none.

extension Publishers {
  /// Delivers the closure's result for each value.
  public typealias Map<Upstream: Publisher, Output> =
    Staged<Upstream, Output, Unthrowing<Upstream.Failure>, OperatorKind.Map>
  /// Delivers the closure's result for each value; fails with the error that it throws.
  public typealias TryMap<Upstream: Publisher, Output> =
    Staged<Upstream, Output, Throwing<Upstream.Failure>, OperatorKind.Map>
  /// Delivers a property of each value.
  public typealias MapKeyPath<Upstream: Publisher, Output> = Map<Upstream, Output>
  /// Delivers two properties of each value.
  public typealias MapKeyPath2<Upstream: Publisher, Output0, Output1> = Map<Upstream, (Output0, Output1)>
  /// Delivers three properties of each value.
  public typealias MapKeyPath3<Upstream: Publisher, Output0, Output1, Output2> =
    Map<Upstream, (Output0, Output1, Output2)>
  /// Delivers the closure's result for each value, except `nil`.
  public typealias CompactMap<Upstream: Publisher, Output> =
    Staged<Upstream, Output, Unthrowing<Upstream.Failure>, OperatorKind.Compact>
  /// Delivers the closure's result for each value, except `nil`; fails with the error that it throws.
  public typealias TryCompactMap<Upstream: Publisher, Output> =
    Staged<Upstream, Output, Throwing<Upstream.Failure>, OperatorKind.Compact>
  /// Delivers, for each value, the accumulated result of all values so far.
  public typealias Scan<Upstream: Publisher, Output> =
    Staged<Upstream, Output, Unthrowing<Upstream.Failure>, OperatorKind.Scan>
  /// Delivers, for each value, the accumulated result of all values so far; fails with the error that the closure
  /// throws.
  public typealias TryScan<Upstream: Publisher, Output> =
    Staged<Upstream, Output, Throwing<Upstream.Failure>, OperatorKind.Scan>
}

extension Publishers.Staged where Mode: Fallibility, Kind == OperatorKind.Map {
  /// ``Publishers/Map`` and ``Publishers/TryMap``.
  @inlinable public init(
    upstream: Upstream, transform: @escaping (Upstream.Output) throws(Mode.Thrown) -> Output
  ) {
    self.init(upstream, "Map") { value throws(Mode.Thrown) in .emit(try transform(value)) }
  }
}

extension Publishers.Staged where Mode: Fallibility, Kind == OperatorKind.Scan {
  /// ``Publishers/Scan`` and ``Publishers/TryScan``.
  @inlinable public init(
    upstream: Upstream, initialResult: Output,
    nextPartialResult: @escaping (Output, Upstream.Output) throws(Mode.Thrown) -> Output
  ) {
    self.init(upstream, "Scan", from: initialResult) { result, value throws(Mode.Thrown) in
      result = try nextPartialResult(result, value)
      return .emit(result)
    }
  }
}

extension Publishers.Staged where Mode: Fallibility, Kind == OperatorKind.Compact {
  /// ``Publishers/CompactMap`` and ``Publishers/TryCompactMap``.
  @inlinable public init(
    upstream: Upstream, transform: @escaping (Upstream.Output) throws(Mode.Thrown) -> Output?
  ) {
    self.init(upstream, "CompactMap") { value throws(Mode.Thrown) in try transform(value).map { .emit($0) } ?? .skip }
  }
}

extension Publisher {
  /// Delivers the closure's result for each value. Demand: passed upstream unchanged.
  @inlinable public func map<T>(_ transform: @escaping (Output) -> T) -> Publishers.Map<Self, T> {
    .init(upstream: self, transform: transform)
  }

  /// Delivers the closure's result for each value; fails with the first error thrown. Demand: passed upstream
  /// unchanged.
  @inlinable public func tryMap<T>(_ transform: @escaping (Output) throws -> T) -> Publishers.TryMap<Self, T> {
    .init(upstream: self, transform: transform)
  }

  /// Delivers a property of each value. Demand: passed upstream unchanged.
  @inlinable public func map<T>(_ keyPath: KeyPath<Output, T>) -> Publishers.MapKeyPath<Self, T> {
    map { $0[keyPath: keyPath] }
  }

  /// Delivers two properties of each value. Demand: passed upstream unchanged.
  @inlinable public func map<T0, T1>(
    _ keyPath0: KeyPath<Output, T0>, _ keyPath1: KeyPath<Output, T1>
  ) -> Publishers.MapKeyPath2<Self, T0, T1> {
    map { ($0[keyPath: keyPath0], $0[keyPath: keyPath1]) }
  }

  /// Delivers three properties of each value. Demand: passed upstream unchanged.
  @inlinable public func map<T0, T1, T2>(
    _ keyPath0: KeyPath<Output, T0>, _ keyPath1: KeyPath<Output, T1>, _ keyPath2: KeyPath<Output, T2>
  ) -> Publishers.MapKeyPath3<Self, T0, T1, T2> {
    map { ($0[keyPath: keyPath0], $0[keyPath: keyPath1], $0[keyPath: keyPath2]) }
  }

  /// Delivers the closure's result for each value, except `nil`, which uses no demand.
  @inlinable public func compactMap<T>(_ transform: @escaping (Output) -> T?) -> Publishers.CompactMap<Self, T> {
    .init(upstream: self, transform: transform)
  }

  /// Delivers the closure's result for each value, except `nil`, which uses no demand; fails with the first error
  /// thrown.
  @inlinable public func tryCompactMap<T>(_ transform: @escaping (Output) throws -> T?)
    -> Publishers.TryCompactMap<Self, T>
  {
    .init(upstream: self, transform: transform)
  }

  /// Delivers the values that are not `nil`; requests one more value for each `nil`.
  @inlinable public func unwrap<T>() -> Publishers.CompactMap<Self, T> where Output == T? { compactMap { $0 } }

  /// Delivers `output` in place of each `nil`. Demand: passed upstream unchanged.
  @inlinable public func replaceNil<T>(with output: T) -> Publishers.Map<Self, T> where Output == T? {
    map { $0 ?? output }
  }

  /// Delivers, for each value, the accumulated result of all values so far. Each subscriber starts with
  /// `initialResult`. Demand: passed upstream unchanged.
  @inlinable public func scan<T>(
    _ initialResult: T, _ nextPartialResult: @escaping (T, Output) -> T
  ) -> Publishers.Scan<Self, T> {
    .init(upstream: self, initialResult: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Delivers, for each value, the accumulated result of all values so far; fails with the first error thrown. Demand:
  /// passed upstream unchanged.
  @inlinable public func tryScan<T>(
    _ initialResult: T, _ nextPartialResult: @escaping (T, Output) throws -> T
  ) -> Publishers.TryScan<Self, T> {
    .init(upstream: self, initialResult: initialResult, nextPartialResult: nextPartialResult)
  }
}
