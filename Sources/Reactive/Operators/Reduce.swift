// Operators that reduce all values to one. They request unlimited values on subscription.

extension Publishers {
  /// Delivers the accumulated result of all values.
  public struct Reduce<Upstream: Publisher, Output>: CompositePublisher {
    /// The implementation.
    public let body: Folded<Upstream, Output, Unthrowing<Upstream.Failure>>

    /// `upstream.reduce(initial, nextPartialResult)`
    @inlinable public init(
      upstream: Upstream, initial: Output, nextPartialResult: @escaping (Output, Upstream.Output) -> Output
    ) {
      body = Folded(upstream, "Reduce", from: initial, { $0 = nextPartialResult($0, $1) }, output: { $0 })
    }
  }

  /// Delivers the accumulated result of all values; fails with the error that the closure throws.
  public struct TryReduce<Upstream: Publisher, Output>: CompositePublisher {
    /// The implementation.
    public let body: Folded<Upstream, Output, Throwing<Upstream.Failure>>

    /// `upstream.tryReduce(initial, nextPartialResult)`
    @inlinable public init(
      upstream: Upstream, initial: Output, nextPartialResult: @escaping (Output, Upstream.Output) throws -> Output
    ) {
      body = Folded(upstream, "TryReduce", from: initial, { $0 = try nextPartialResult($0, $1) }, output: { $0 })
    }
  }

  /// Delivers all values in one array.
  public struct Collect<Upstream: Publisher>: CompositePublisher {
    /// The upstream publisher.
    public let upstream: Upstream

    /// `upstream.collect()`
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// The implementation.
    @inlinable public var body: Folded<Upstream, [Upstream.Output], Unthrowing<Upstream.Failure>> {
      Folded(upstream, "Collect", from: [], { $0.append($1) }, output: { $0 })
    }
  }

  /// Delivers the number of values.
  public struct Count<Upstream: Publisher>: CompositePublisher {
    /// The upstream publisher.
    public let upstream: Upstream

    /// `upstream.count()`
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// The implementation.
    @inlinable public var body: Folded<Upstream, Int, Unthrowing<Upstream.Failure>> {
      Folded(upstream, "Count", from: 0, { count, _ in count += 1 }, output: { $0 })
    }
  }

  /// Delivers only the completion.
  public struct IgnoreOutput<Upstream: Publisher>: CompositePublisher {
    /// The upstream publisher.
    public let upstream: Upstream

    /// `upstream.ignoreOutput()`
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// The implementation.
    @inlinable public var body: Folded<Upstream, Never, Unthrowing<Upstream.Failure>> {
      Folded(upstream, "IgnoreOutput", from: (), { _, _ in }, output: { nil })
    }
  }

  /// Delivers the last value.
  public struct Last<Upstream: Publisher>: CompositePublisher {
    /// The upstream publisher.
    public let upstream: Upstream

    /// `upstream.last()`
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// The implementation.
    @inlinable public var body: Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>> {
      Folded(upstream, "Last", from: nil, { $0 = $1 }, output: { $0 })
    }
  }

  /// Delivers the last value that the closure accepts.
  public struct LastWhere<Upstream: Publisher>: CompositePublisher {
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.last(where: predicate)`
    @inlinable public init(upstream: Upstream, predicate: @escaping (Upstream.Output) -> Bool) {
      body = Folded(upstream, "LastWhere", from: nil, { if predicate($1) { $0 = $1 } }, output: { $0 })
    }
  }

  /// Delivers the last value that the closure accepts; fails with the error that it throws.
  public struct TryLastWhere<Upstream: Publisher>: CompositePublisher {
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryLast(where: predicate)`
    @inlinable public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws -> Bool) {
      body = Folded(upstream, "TryLastWhere", from: nil, { if try predicate($1) { $0 = $1 } }, output: { $0 })
    }
  }

  /// Delivers the greatest value; of equal values the first.
  public struct Comparison<Upstream: Publisher>: CompositePublisher {
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.max(by: areInIncreasingOrder)`
    @inlinable public init(
      upstream: Upstream, areInIncreasingOrder: @escaping (Upstream.Output, Upstream.Output) -> Bool
    ) {
      body = Folded(upstream, "Comparison", greatestBy: areInIncreasingOrder)
    }
  }

  /// Delivers the greatest value, of equal values the first; fails with the error that the closure throws.
  public struct TryComparison<Upstream: Publisher>: CompositePublisher {
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryMax(by: areInIncreasingOrder)`
    @inlinable public init(
      upstream: Upstream, areInIncreasingOrder: @escaping (Upstream.Output, Upstream.Output) throws -> Bool
    ) {
      body = Folded(upstream, "TryComparison", greatestBy: areInIncreasingOrder)
    }
  }

  /// Delivers the first value; fails if there is none.
  public struct AsSingle<Upstream: Publisher>: CompositePublisher {
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.asSingle()`
    @inlinable public init(upstream: Upstream) {
      body = Folded(upstream, "AsSingle", requesting: .max(1)) {
        Stage {
          .finish(last: $0)
        } rest: { () throws(any Error) in
          throw SingleError.noElements
        }
      }
    }
  }

  /// Delivers the values in arrays; the last array has the remaining values, which need no further demand: their array
  /// was requested when it began.
  public struct CollectByCount<Upstream: Publisher>: CompositePublisher {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The number of values in an array, greater than 0.
    public let count: Int

    /// `upstream.collect(count)`
    @inlinable public init(upstream: Upstream, count: Int) {
      precondition(count > 0, "a count must be positive, it is \(count)")
      (self.upstream, self.count) = (upstream, count)
    }

    /// The implementation.
    @inlinable public var body: Staged<Upstream, [Upstream.Output], Unthrowing<Upstream.Failure>> {
      Staged(upstream, "CollectByCount", Unthrowing()) { [count] in
        var values: [Upstream.Output] = []
        return Stage { value in
          values.append(value)
          return values.count < count ? .skip : .emit(values.take())
        } rest: {
          values.isEmpty ? nil : values
        }
      }
    }
  }
}

extension Publishers.Folded where Output == Upstream.Output {
  /// Delivers the greatest value, of equal values the first.
  @inlinable init(
    _ upstream: Upstream, _ name: String, greatestBy isLess: @escaping (Output, Output) throws(Mode.Thrown) -> Bool
  ) {
    self.init(upstream, name, from: nil) { greatest, value throws(Mode.Thrown) in
      if let best = greatest, try !isLess(best, value) { return }
      greatest = value
    } output: {
      $0
    }
  }
}

extension Publishers.Collect: Equatable where Upstream: Equatable {}
extension Publishers.CollectByCount: Equatable where Upstream: Equatable {}
extension Publishers.Count: Equatable where Upstream: Equatable {}
extension Publishers.IgnoreOutput: Equatable where Upstream: Equatable {}
extension Publishers.Last: Equatable where Upstream: Equatable {}

/// The reason for the lack of a first value.
public enum SingleError: Error, Equatable, Sendable {
  /// The publisher finished without a value.
  case noElements
}

extension Publisher {
  /// Delivers the accumulated result of all values when upstream finishes. Demand: unlimited, requested on
  /// subscription.
  @inlinable public func reduce<T>(
    _ initialResult: T, _ nextPartialResult: @escaping (T, Output) -> T
  ) -> Publishers.Reduce<Self, T> {
    .init(upstream: self, initial: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Delivers the accumulated result of all values when upstream finishes; fails with the first error thrown. Demand:
  /// unlimited, requested on subscription.
  @inlinable public func tryReduce<T>(
    _ initialResult: T, _ nextPartialResult: @escaping (T, Output) throws -> T
  ) -> Publishers.TryReduce<Self, T> {
    .init(upstream: self, initial: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Delivers all values in one array when upstream finishes. Demand: unlimited, requested on subscription; all values
  /// are held in memory.
  @inlinable public func collect() -> Publishers.Collect<Self> { .init(upstream: self) }

  /// Delivers the values in arrays of `count`; the last has the remaining values. Demand: `count` values for each
  /// array.
  @inlinable public func collect(_ count: Int) -> Publishers.CollectByCount<Self> {
    .init(upstream: self, count: count)
  }

  /// Delivers the number of values when upstream finishes. Demand: unlimited, requested on subscription.
  @inlinable public func count() -> Publishers.Count<Self> { .init(upstream: self) }

  /// Delivers the greatest value, of equal values the first, when upstream finishes. Demand: unlimited, requested on
  /// subscription.
  @inlinable public func max(by areInIncreasingOrder: @escaping (Output, Output) -> Bool) -> Publishers.Comparison<Self>
  {
    .init(upstream: self, areInIncreasingOrder: areInIncreasingOrder)
  }

  /// Delivers the least value, of equal values the first, when upstream finishes. Demand: unlimited, requested on
  /// subscription.
  @inlinable public func min(by areInIncreasingOrder: @escaping (Output, Output) -> Bool) -> Publishers.Comparison<Self>
  {
    max { areInIncreasingOrder($1, $0) }
  }

  /// Delivers the greatest value when upstream finishes; fails with the first error thrown. Demand: unlimited,
  /// requested on subscription.
  @inlinable public func tryMax(
    by areInIncreasingOrder: @escaping (Output, Output) throws -> Bool
  ) -> Publishers.TryComparison<Self> {
    .init(upstream: self, areInIncreasingOrder: areInIncreasingOrder)
  }

  /// Delivers the least value when upstream finishes; fails with the first error thrown. Demand: unlimited, requested
  /// on subscription.
  @inlinable public func tryMin(
    by areInIncreasingOrder: @escaping (Output, Output) throws -> Bool
  ) -> Publishers.TryComparison<Self> {
    tryMax { try areInIncreasingOrder($1, $0) }
  }

  /// Delivers the last value when upstream finishes. Demand: unlimited, requested on subscription.
  @inlinable public func last() -> Publishers.Last<Self> { .init(upstream: self) }

  /// Delivers the last value that the closure accepts when upstream finishes. Demand: unlimited, requested on
  /// subscription.
  @inlinable public func last(where predicate: @escaping (Output) -> Bool) -> Publishers.LastWhere<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers the last value that the closure accepts when upstream finishes; fails with the first error thrown.
  /// Demand: unlimited, requested on subscription.
  @inlinable public func tryLast(where predicate: @escaping (Output) throws -> Bool) -> Publishers.TryLastWhere<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers only the completion. Demand: unlimited, requested on subscription.
  @inlinable public func ignoreOutput() -> Publishers.IgnoreOutput<Self> { .init(upstream: self) }

  /// Delivers the first value, finishes and cancels upstream. Fails with ``SingleError/noElements`` if there is none.
  /// Demand: one value, requested on subscription.
  @inlinable public func asSingle() -> Publishers.AsSingle<Self> { .init(upstream: self) }
}

extension Publisher where Output: Comparable {
  /// Delivers the greatest value when upstream finishes. Demand: unlimited, requested on subscription.
  @inlinable public func max() -> Publishers.Comparison<Self> { max(by: <) }

  /// Delivers the least value when upstream finishes. Demand: unlimited, requested on subscription.
  @inlinable public func min() -> Publishers.Comparison<Self> { min(by: <) }
}
