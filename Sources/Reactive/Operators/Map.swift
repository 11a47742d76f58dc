// Operators that transform each value into another value, or into none.

extension Publishers {
  /// Delivers the closure's result for each value.
  public struct Map<Upstream: Publisher, Output>: CompositePublisher {
    /// Returns the value to deliver for a value.
    public let transform: @Sendable (Upstream.Output) -> Output
    /// The implementation.
    public let body: Staged<Upstream, Output, Unthrowing<Upstream.Failure>>

    /// `upstream.map(transform)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, transform: @escaping @Sendable (Upstream.Output) -> Output
    ) {
      self.transform = transform
      body = Staged(upstream, "Map") { .emit(transform($0)) }
    }
  }

  /// Delivers the closure's result for each value; fails with the error that it throws.
  public struct TryMap<Upstream: Publisher, Output>: CompositePublisher {
    /// Returns the value to deliver for a value.
    public let transform: @Sendable (Upstream.Output) throws -> Output
    /// The implementation.
    public let body: Staged<Upstream, Output, Throwing<Upstream.Failure>>

    /// `upstream.tryMap(transform)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, transform: @escaping @Sendable (Upstream.Output) throws -> Output
    ) {
      self.transform = transform
      body = Staged(upstream, "TryMap") { .emit(try transform($0)) }
    }
  }

  /// Delivers a property of each value.
  public struct MapKeyPath<Upstream: Publisher, Output>: CompositePublisher {
    /// The implementation.
    public let body: Staged<Upstream, Output, Unthrowing<Upstream.Failure>>

    // A closure, formed where the key path is a literal: the optimiser then reads the property itself. It does not if the
    // key path is kept, too: a value would cost three times as much.
    @inlinable init(_ upstream: Upstream, _ get: @escaping (Upstream.Output) -> Output) {
      body = Staged(upstream, "ValueForKey") { .emit(get($0)) }
    }
  }

  /// Delivers two properties of each value.
  public struct MapKeyPath2<Upstream: Publisher, Output0, Output1>: CompositePublisher {
    /// The first property.
    public let keyPath0: KeyPath<Upstream.Output, Output0>
    /// The second property.
    public let keyPath1: KeyPath<Upstream.Output, Output1>
    /// The implementation.
    public let body: Staged<Upstream, (Output0, Output1), Unthrowing<Upstream.Failure>>

    @inlinable init(
      _ upstream: Upstream, _ keyPath0: KeyPath<Upstream.Output, Output0>, _ keyPath1: KeyPath<Upstream.Output, Output1>
    ) {
      (self.keyPath0, self.keyPath1) = (keyPath0, keyPath1)
      body = Staged(upstream, "ValueForKeys") { .emit(($0[keyPath: keyPath0], $0[keyPath: keyPath1])) }
    }
  }

  /// Delivers three properties of each value.
  public struct MapKeyPath3<Upstream: Publisher, Output0, Output1, Output2>: CompositePublisher {
    /// The first property.
    public let keyPath0: KeyPath<Upstream.Output, Output0>
    /// The second property.
    public let keyPath1: KeyPath<Upstream.Output, Output1>
    /// The third property.
    public let keyPath2: KeyPath<Upstream.Output, Output2>
    /// The implementation.
    public let body: Staged<Upstream, (Output0, Output1, Output2), Unthrowing<Upstream.Failure>>

    @inlinable init(
      _ upstream: Upstream, _ keyPath0: KeyPath<Upstream.Output, Output0>,
      _ keyPath1: KeyPath<Upstream.Output, Output1>, _ keyPath2: KeyPath<Upstream.Output, Output2>
    ) {
      (self.keyPath0, self.keyPath1, self.keyPath2) = (keyPath0, keyPath1, keyPath2)
      body = Staged(upstream, "ValueForKeys") {
        .emit(($0[keyPath: keyPath0], $0[keyPath: keyPath1], $0[keyPath: keyPath2]))
      }
    }
  }

  /// Delivers the closure's result for each value, except `nil`.
  public struct CompactMap<Upstream: Publisher, Output>: CompositePublisher {
    /// Returns the value to deliver for a value, or `nil`.
    public let transform: @Sendable (Upstream.Output) -> Output?
    /// The implementation.
    public let body: Staged<Upstream, Output, Unthrowing<Upstream.Failure>>

    /// `upstream.compactMap(transform)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, transform: @escaping @Sendable (Upstream.Output) -> Output?
    ) {
      self.transform = transform
      body = Staged(upstream, "CompactMap") { transform($0).map { .emit($0) } ?? .skip }
    }
  }

  /// Delivers the closure's result for each value, except `nil`; fails with the error that it throws.
  public struct TryCompactMap<Upstream: Publisher, Output>: CompositePublisher {
    /// Returns the value to deliver for a value, or `nil`.
    public let transform: @Sendable (Upstream.Output) throws -> Output?
    /// The implementation.
    public let body: Staged<Upstream, Output, Throwing<Upstream.Failure>>

    /// `upstream.tryCompactMap(transform)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, transform: @escaping @Sendable (Upstream.Output) throws -> Output?
    ) {
      self.transform = transform
      body = Staged(upstream, "TryCompactMap") { try transform($0).map { .emit($0) } ?? .skip }
    }
  }

  /// Delivers, for each value, the accumulated result of all values so far.
  public struct Scan<Upstream: Publisher, Output>: CompositePublisher {
    /// The result before the first value.
    public let initialResult: Output
    /// Returns the result after a value, given the result before it.
    public let nextPartialResult: @Sendable (Output, Upstream.Output) -> Output
    /// The implementation.
    public let body: Staged<Upstream, Output, Unthrowing<Upstream.Failure>>

    /// `upstream.scan(initialResult, nextPartialResult)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, initialResult: Output,
      nextPartialResult: @escaping @Sendable (Output, Upstream.Output) -> Output
    ) {
      (self.initialResult, self.nextPartialResult) = (initialResult, nextPartialResult)
      body = Staged(upstream, "Scan", from: initialResult) { result, value in
        result = nextPartialResult(result, value)
        return .emit(result)
      }
    }
  }

  /// Delivers, for each value, the accumulated result of all values so far; fails with the error that the closure
  /// throws.
  public struct TryScan<Upstream: Publisher, Output>: CompositePublisher {
    /// The result before the first value.
    public let initialResult: Output
    /// Returns the result after a value, given the result before it.
    public let nextPartialResult: @Sendable (Output, Upstream.Output) throws -> Output
    /// The implementation.
    public let body: Staged<Upstream, Output, Throwing<Upstream.Failure>>

    /// `upstream.tryScan(initialResult, nextPartialResult)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, initialResult: Output,
      nextPartialResult: @escaping @Sendable (Output, Upstream.Output) throws -> Output
    ) {
      (self.initialResult, self.nextPartialResult) = (initialResult, nextPartialResult)
      body = Staged(upstream, "TryScan", from: initialResult) { result, value in
        result = try nextPartialResult(result, value)
        return .emit(result)
      }
    }
  }
}

// Two closures in a row make one operator, as in Combine: their types say so, and a value passes one link.

extension Publishers.Map {
  /// Delivers the closure's result for each result. Demand: passed upstream unchanged.
  @preconcurrency @inlinable public func map<T>(_ transform: @escaping @Sendable (Output) -> T)
    -> Publishers.Map<Upstream, T>
  {
    .init(upstream: upstream) { [first = self.transform] in transform(first($0)) }
  }

  /// Delivers the closure's result for each result; fails with the first error thrown. Demand: passed upstream
  /// unchanged.
  @preconcurrency @inlinable public func tryMap<T>(_ transform: @escaping @Sendable (Output) throws -> T)
    -> Publishers.TryMap<Upstream, T>
  {
    .init(upstream: upstream) { [first = self.transform] in try transform(first($0)) }
  }
}

extension Publishers.TryMap {
  /// Delivers the closure's result for each result. Demand: passed upstream unchanged.
  @preconcurrency @inlinable public func map<T>(_ transform: @escaping @Sendable (Output) -> T)
    -> Publishers.TryMap<Upstream, T>
  {
    .init(upstream: upstream) { [first = self.transform] in transform(try first($0)) }
  }

  /// Delivers the closure's result for each result; fails with the first error thrown. Demand: passed upstream
  /// unchanged.
  @preconcurrency @inlinable public func tryMap<T>(_ transform: @escaping @Sendable (Output) throws -> T)
    -> Publishers.TryMap<Upstream, T>
  {
    .init(upstream: upstream) { [first = self.transform] in try transform(first($0)) }
  }
}

extension Publishers.CompactMap {
  /// Delivers the closure's result for each result, except `nil`, which uses no demand.
  @preconcurrency @inlinable public func compactMap<T>(_ transform: @escaping @Sendable (Output) -> T?)
    -> Publishers.CompactMap<Upstream, T>
  {
    .init(upstream: upstream) { [first = self.transform] in first($0).flatMap(transform) }
  }

  /// Delivers the closure's result for each result. Demand: passed upstream, plus one for each `nil`.
  @preconcurrency @inlinable public func map<T>(_ transform: @escaping @Sendable (Output) -> T)
    -> Publishers.CompactMap<Upstream, T>
  {
    .init(upstream: upstream) { [first = self.transform] in first($0).map(transform) }
  }
}

extension Publishers.TryCompactMap {
  /// Delivers the closure's result for each result, except `nil`, which uses no demand; fails with the first error
  /// thrown.
  @preconcurrency @inlinable public func compactMap<T>(
    _ transform: @escaping @Sendable (Output) throws -> T?
  ) -> Publishers.TryCompactMap<Upstream, T> {
    .init(upstream: upstream) { [first = self.transform] in try first($0).flatMap(transform) }
  }
}

extension Publisher {
  /// Delivers the closure's result for each value. Demand: passed upstream unchanged.
  @preconcurrency @inlinable public func map<T>(_ transform: @escaping @Sendable (Output) -> T)
    -> Publishers.Map<Self, T>
  {
    .init(upstream: self, transform: transform)
  }

  /// Delivers the closure's result for each value; fails with the first error thrown. Demand: passed upstream
  /// unchanged.
  @preconcurrency @inlinable public func tryMap<T>(_ transform: @escaping @Sendable (Output) throws -> T)
    -> Publishers.TryMap<Self, T>
  {
    .init(upstream: self, transform: transform)
  }

  /// Delivers a property of each value. Demand: passed upstream unchanged.
  @inlinable public func map<T>(_ keyPath: KeyPath<Output, T>) -> Publishers.MapKeyPath<Self, T> {
    .init(self) { $0[keyPath: keyPath] }
  }

  /// Delivers two properties of each value. Demand: passed upstream unchanged.
  @inlinable public func map<T0, T1>(
    _ keyPath0: KeyPath<Output, T0>, _ keyPath1: KeyPath<Output, T1>
  ) -> Publishers.MapKeyPath2<Self, T0, T1> {
    .init(self, keyPath0, keyPath1)
  }

  /// Delivers three properties of each value. Demand: passed upstream unchanged.
  @inlinable public func map<T0, T1, T2>(
    _ keyPath0: KeyPath<Output, T0>, _ keyPath1: KeyPath<Output, T1>, _ keyPath2: KeyPath<Output, T2>
  ) -> Publishers.MapKeyPath3<Self, T0, T1, T2> {
    .init(self, keyPath0, keyPath1, keyPath2)
  }

  /// Delivers the closure's result for each value, except `nil`, which uses no demand.
  @preconcurrency @inlinable public func compactMap<T>(_ transform: @escaping @Sendable (Output) -> T?)
    -> Publishers.CompactMap<Self, T>
  {
    .init(upstream: self, transform: transform)
  }

  /// Delivers the closure's result for each value, except `nil`, which uses no demand; fails with the first error
  /// thrown.
  @preconcurrency @inlinable public func tryCompactMap<T>(_ transform: @escaping @Sendable (Output) throws -> T?)
    -> Publishers.TryCompactMap<Self, T>
  {
    .init(upstream: self, transform: transform)
  }

  /// Delivers the values that are not `nil`; requests one more value for each `nil`.
  @inlinable public func unwrap<T>() -> Publishers.CompactMap<Self, T> where Output == T? { compactMap { $0 } }

  /// Delivers `output` in place of each `nil`. Demand: passed upstream unchanged.
  @inlinable public func replaceNil<T>(with output: T) -> Publishers.Map<Self, T> where Output == T? {
    map(own { $0 ?? output })
  }

  /// Delivers, for each value, the accumulated result of all values so far. Each subscriber starts with
  /// `initialResult`. Demand: passed upstream unchanged.
  @preconcurrency @inlinable public func scan<T>(
    _ initialResult: T, _ nextPartialResult: @escaping @Sendable (T, Output) -> T
  ) -> Publishers.Scan<Self, T> {
    .init(upstream: self, initialResult: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Delivers, for each value, the accumulated result of all values so far; fails with the first error thrown. Demand:
  /// passed upstream unchanged.
  @preconcurrency @inlinable public func tryScan<T>(
    _ initialResult: T, _ nextPartialResult: @escaping @Sendable (T, Output) throws -> T
  ) -> Publishers.TryScan<Self, T> {
    .init(upstream: self, initialResult: initialResult, nextPartialResult: nextPartialResult)
  }
}
