// Operators that make another value, or none, of each value.

extension Publishers {
  /// Delivers what the closure makes of each value.
  public struct Map<Upstream: Publisher, Output>: Stage {
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream
    /// What becomes of each value.
    public let transform: (Upstream.Output) -> Output

    /// `upstream.map(transform)`
    public init(upstream: Upstream, transform: @escaping (Upstream.Output) -> Output) {
      self.upstream = upstream
      self.transform = transform
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, Failure> {
      { [transform] in .emit(transform($0)) }
    }
  }

  /// Delivers what the closure makes of each value; fails with what it throws.
  public struct TryMap<Upstream: Publisher, Output>: Stage {
    /// Whatever the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// What becomes of each value.
    public let transform: (Upstream.Output) throws -> Output

    /// `upstream.tryMap(transform)`
    public init(upstream: Upstream, transform: @escaping (Upstream.Output) throws -> Output) {
      self.upstream = upstream
      self.transform = transform
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, any Error> {
      { [transform] value in
        do { return .emit(try transform(value)) } catch { return .fail(error) }
      }
    }
  }

  /// Delivers what the closure makes of each value, unless that is `nil`.
  public struct CompactMap<Upstream: Publisher, Output>: Stage {
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream
    /// What becomes of each value.
    public let transform: (Upstream.Output) -> Output?

    /// `upstream.compactMap(transform)`
    public init(upstream: Upstream, transform: @escaping (Upstream.Output) -> Output?) {
      self.upstream = upstream
      self.transform = transform
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, Failure> {
      { [transform] in transform($0).map { .emit($0) } ?? .skip }
    }
  }

  /// Delivers, for each value, the result of all values so far.
  public struct Scan<Upstream: Publisher, Output>: Stage {
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream
    /// The result of no value.
    public let initialResult: Output
    /// The result so far and a value make the next result.
    public let nextPartialResult: (Output, Upstream.Output) -> Output

    /// `upstream.scan(initialResult, nextPartialResult)`
    public init(
      upstream: Upstream, initialResult: Output, nextPartialResult: @escaping (Output, Upstream.Output) -> Output
    ) {
      self.upstream = upstream
      self.initialResult = initialResult
      self.nextPartialResult = nextPartialResult
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, Failure> {
      var result = initialResult
      return { [nextPartialResult] value in
        result = nextPartialResult(result, value)
        return .emit(result)
      }
    }
  }

  /// Fails with what the closure makes of upstream's failure.
  public struct MapError<Upstream: Publisher, Failure: Error>: Stage {
    /// The same values.
    public typealias Output = Upstream.Output
    /// Where the values come from.
    public let upstream: Upstream
    /// What becomes of the failure.
    public let transform: (Upstream.Failure) -> Failure

    /// `upstream.mapError(map)`
    public init(upstream: Upstream, _ map: @escaping (Upstream.Failure) -> Failure) {
      self.upstream = upstream
      transform = map
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, Failure> { { .emit($0) } }
    /// Upstream\'s failure as the subscriber sees it.
    public func failure(_ error: Upstream.Failure) -> Failure { transform(error) }
  }

  /// Gives a publisher that can't fail the failure type that its subscriber expects.
  public struct SetFailureType<Upstream: Publisher, Failure: Error>: Stage where Upstream.Failure == Never {
    /// The same values.
    public typealias Output = Upstream.Output
    /// Where the values come from.
    public let upstream: Upstream

    /// `upstream.setFailureType(to: Failure.self)`
    public init(upstream: Upstream) { self.upstream = upstream }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, Failure> { { .emit($0) } }
    /// Upstream\'s failure as the subscriber sees it.
    public func failure(_ error: Never) -> Failure {}
  }
}

extension Publisher {
  /// Delivers what the closure makes of each value.
  public func map<T>(_ transform: @escaping (Output) -> T) -> Publishers.Map<Self, T> {
    Publishers.Map(upstream: self, transform: transform)
  }

  /// Delivers what the closure makes of each value; the first error thrown ends it.
  public func tryMap<T>(_ transform: @escaping (Output) throws -> T) -> Publishers.TryMap<Self, T> {
    Publishers.TryMap(upstream: self, transform: transform)
  }

  /// Delivers what the closure makes of each value, unless that is `nil`.
  public func compactMap<T>(_ transform: @escaping (Output) -> T?) -> Publishers.CompactMap<Self, T> {
    Publishers.CompactMap(upstream: self, transform: transform)
  }

  /// Delivers, for each value, the result of all values so far. Each subscriber starts with `initialResult`.
  public func scan<T>(
    _ initialResult: T, _ nextPartialResult: @escaping (T, Output) -> T
  ) -> Publishers.Scan<Self, T> {
    Publishers.Scan(upstream: self, initialResult: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Fails with what the closure makes of the failure.
  public func mapError<E: Error>(_ transform: @escaping (Failure) -> E) -> Publishers.MapError<Self, E> {
    Publishers.MapError(upstream: self, transform)
  }
}

extension Publisher where Failure == Never {
  /// The same values, with a failure type that another publisher or a subscriber expects.
  public func setFailureType<E: Error>(to failureType: E.Type) -> Publishers.SetFailureType<Self, E> {
    Publishers.SetFailureType(upstream: self)
  }
}
