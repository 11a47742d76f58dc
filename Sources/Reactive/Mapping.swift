// Operators that make another value, or none, of each value.

extension Publishers {
  /// Delivers what the closure makes of each value.
  ///
  /// Not one with the form that throws, as others are: the way out for an error costs half a nanosecond a value.
  public struct Map<Upstream: Publisher, Output>: Stage {
    /// Where the values come from.
    public let upstream: Upstream
    /// What becomes of each value.
    public let transform: (Upstream.Output) -> Output

    /// The operator behind `upstream`.
    public init(upstream: Upstream, transform: @escaping (Upstream.Output) -> Output) {
      (self.upstream, self.transform) = (upstream, transform)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Output, Upstream.Failure> {
      { [transform] in .emit(transform($0)) }
    }
  }

  /// Delivers what the closure makes of each value; fails with what it throws.
  public struct TryMap<Upstream: Publisher, Output>: Stage {
    /// What the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// What becomes of each value.
    public let transform: (Upstream.Output) throws -> Output

    /// The operator behind `upstream`.
    public init(upstream: Upstream, transform: @escaping (Upstream.Output) throws -> Output) {
      (self.upstream, self.transform) = (upstream, transform)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Output, any Error> {
      { [transform] value in Throwing<any Error>.attempt { .emit(try transform(value)) } }
    }
  }

  /// Delivers a property of each value.
  public struct MapKeyPath<Upstream: Publisher, Output>: Stage {
    /// Where the values come from.
    public let upstream: Upstream
    /// The property.
    public let keyPath: KeyPath<Upstream.Output, Output>

    /// The operator behind `upstream`.
    public init(upstream: Upstream, keyPath: KeyPath<Upstream.Output, Output>) {
      (self.upstream, self.keyPath) = (upstream, keyPath)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Output, Upstream.Failure> {
      { [keyPath] in .emit($0[keyPath: keyPath]) }
    }
  }

  /// Delivers two properties of each value.
  public struct MapKeyPath2<Upstream: Publisher, Output0, Output1>: Stage {
    /// The properties.
    public typealias Output = (Output0, Output1)
    /// Where the values come from.
    public let upstream: Upstream
    /// The first property.
    public let keyPath0: KeyPath<Upstream.Output, Output0>
    /// The second property.
    public let keyPath1: KeyPath<Upstream.Output, Output1>

    /// The operator behind `upstream`.
    public init(
      upstream: Upstream, keyPath0: KeyPath<Upstream.Output, Output0>, keyPath1: KeyPath<Upstream.Output, Output1>
    ) {
      self.upstream = upstream
      (self.keyPath0, self.keyPath1) = (keyPath0, keyPath1)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Output, Upstream.Failure> {
      { [keyPath0, keyPath1] in .emit(($0[keyPath: keyPath0], $0[keyPath: keyPath1])) }
    }
  }

  /// Delivers three properties of each value.
  public struct MapKeyPath3<Upstream: Publisher, Output0, Output1, Output2>: Stage {
    /// The properties.
    public typealias Output = (Output0, Output1, Output2)
    /// Where the values come from.
    public let upstream: Upstream
    /// The first property.
    public let keyPath0: KeyPath<Upstream.Output, Output0>
    /// The second property.
    public let keyPath1: KeyPath<Upstream.Output, Output1>
    /// The third property.
    public let keyPath2: KeyPath<Upstream.Output, Output2>

    /// The operator behind `upstream`.
    public init(
      upstream: Upstream, keyPath0: KeyPath<Upstream.Output, Output0>, keyPath1: KeyPath<Upstream.Output, Output1>,
      keyPath2: KeyPath<Upstream.Output, Output2>
    ) {
      self.upstream = upstream
      (self.keyPath0, self.keyPath1, self.keyPath2) = (keyPath0, keyPath1, keyPath2)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Output, Upstream.Failure> {
      { [keyPath0, keyPath1, keyPath2] in
        .emit(($0[keyPath: keyPath0], $0[keyPath: keyPath1], $0[keyPath: keyPath2]))
      }
    }
  }

  /// Delivers what the closure makes of each value, unless that is `nil`.
  public typealias CompactMap<Upstream: Publisher, Output> =
    CompactMapping<Upstream, Output, Unthrowing<Upstream.Failure>>
  /// Delivers what the closure makes of each value, unless that is `nil`; fails with what it throws.
  public typealias TryCompactMap<Upstream: Publisher, Output> =
    CompactMapping<Upstream, Output, Throwing<Upstream.Failure>>

  /// ``CompactMap`` and ``TryCompactMap``.
  public struct CompactMapping<Upstream: Publisher, Output, Mode: Fallibility<Upstream.Failure>>: Stage, TryingOperator
  {
    /// Where the values come from.
    public let upstream: Upstream
    /// What becomes of each value.
    public let transform: (Upstream.Output) throws(Mode.Thrown) -> Output?

    /// The operator behind `upstream`.
    public init(upstream: Upstream, transform: @escaping (Upstream.Output) throws(Mode.Thrown) -> Output?) {
      (self.upstream, self.transform) = (upstream, transform)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Output, Mode.Failure> {
      { [transform] value in
        Mode.attempt { () throws(Mode.Thrown) in try transform(value).map { .emit($0) } ?? .skip }
      }
    }
  }

  /// Delivers, for each value, the result of all values so far.
  public typealias Scan<Upstream: Publisher, Output> = Scanning<Upstream, Output, Unthrowing<Upstream.Failure>>
  /// Delivers, for each value, the result of all values so far; fails with what the closure throws.
  public typealias TryScan<Upstream: Publisher, Output> = Scanning<Upstream, Output, Throwing<Upstream.Failure>>

  /// ``Scan`` and ``TryScan``.
  public struct Scanning<Upstream: Publisher, Output, Mode: Fallibility<Upstream.Failure>>: Stage, TryingOperator {
    /// Where the values come from.
    public let upstream: Upstream
    /// The result of no value.
    public let initialResult: Output
    /// The result so far and a value make the next result.
    public let nextPartialResult: (Output, Upstream.Output) throws(Mode.Thrown) -> Output

    /// The operator behind `upstream`.
    public init(
      upstream: Upstream, initialResult: Output,
      nextPartialResult: @escaping (Output, Upstream.Output) throws(Mode.Thrown) -> Output
    ) {
      (self.upstream, self.initialResult, self.nextPartialResult) = (upstream, initialResult, nextPartialResult)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Output, Mode.Failure> {
      var result = initialResult
      return { [nextPartialResult] value in
        Mode.attempt { () throws(Mode.Thrown) in
          result = try nextPartialResult(result, value)
          return .emit(result)
        }
      }
    }
  }
}

extension Publisher {
  /// Delivers what the closure makes of each value.
  ///
  /// Demand: upstream's, value for value.
  public func map<T>(_ transform: @escaping (Output) -> T) -> Publishers.Map<Self, T> {
    Publishers.Map(upstream: self, transform: transform)
  }

  /// Delivers what the closure makes of each value; the first error thrown ends it.
  ///
  /// Demand: upstream's, value for value.
  public func tryMap<T>(_ transform: @escaping (Output) throws -> T) -> Publishers.TryMap<Self, T> {
    Publishers.TryMap(upstream: self, transform: transform)
  }

  /// Delivers a property of each value.
  ///
  /// Demand: upstream's, value for value.
  public func map<T>(_ keyPath: KeyPath<Output, T>) -> Publishers.MapKeyPath<Self, T> {
    Publishers.MapKeyPath(upstream: self, keyPath: keyPath)
  }

  /// Delivers two properties of each value.
  ///
  /// Demand: upstream's, value for value.
  public func map<T0, T1>(
    _ keyPath0: KeyPath<Output, T0>, _ keyPath1: KeyPath<Output, T1>
  ) -> Publishers.MapKeyPath2<Self, T0, T1> {
    Publishers.MapKeyPath2(upstream: self, keyPath0: keyPath0, keyPath1: keyPath1)
  }

  /// Delivers three properties of each value.
  ///
  /// Demand: upstream's, value for value.
  public func map<T0, T1, T2>(
    _ keyPath0: KeyPath<Output, T0>, _ keyPath1: KeyPath<Output, T1>, _ keyPath2: KeyPath<Output, T2>
  ) -> Publishers.MapKeyPath3<Self, T0, T1, T2> {
    Publishers.MapKeyPath3(upstream: self, keyPath0: keyPath0, keyPath1: keyPath1, keyPath2: keyPath2)
  }

  /// Delivers what the closure makes of each value, unless that is `nil`, which costs no demand.
  public func compactMap<T>(_ transform: @escaping (Output) -> T?) -> Publishers.CompactMap<Self, T> {
    Publishers.CompactMap(upstream: self, transform: transform)
  }

  /// Delivers what the closure makes of each value, unless that is `nil`; the first error thrown ends it.
  ///
  /// Demand: upstream's; another for each value left out.
  public func tryCompactMap<T>(_ transform: @escaping (Output) throws -> T?) -> Publishers.TryCompactMap<Self, T> {
    Publishers.TryCompactMap(upstream: self, transform: transform)
  }

  /// Delivers the values that are not `nil`; asks for one more for each that is.
  public func unwrap<T>() -> Publishers.CompactMap<Self, T> where Output == T? { compactMap { $0 } }

  /// Delivers `output` in place of each `nil`.
  ///
  /// Demand: upstream's, value for value.
  public func replaceNil<T>(with output: T) -> Publishers.Map<Self, T> where Output == T? { map { $0 ?? output } }

  /// Delivers, for each value, the result of all values so far. Each subscriber starts with `initialResult`.
  ///
  /// Demand: upstream's, value for value.
  public func scan<T>(
    _ initialResult: T, _ nextPartialResult: @escaping (T, Output) -> T
  ) -> Publishers.Scan<Self, T> {
    Publishers.Scan(upstream: self, initialResult: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Delivers, for each value, the result of all values so far; the first error thrown ends it.
  ///
  /// Demand: upstream's, value for value.
  public func tryScan<T>(
    _ initialResult: T, _ nextPartialResult: @escaping (T, Output) throws -> T
  ) -> Publishers.TryScan<Self, T> {
    Publishers.TryScan(upstream: self, initialResult: initialResult, nextPartialResult: nextPartialResult)
  }
}
