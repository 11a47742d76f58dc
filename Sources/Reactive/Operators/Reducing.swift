// Operators that reduce all values to one. They request unlimited values on subscription.

extension Publishers {
  /// Delivers the accumulated result of all values.
  public typealias Reduce<Upstream: Publisher, Output> =
    Folded<Upstream, Output, Unthrowing<Upstream.Failure>, OperatorKind.Reduce>
  /// Delivers the accumulated result of all values; fails with the error that the closure throws.
  public typealias TryReduce<Upstream: Publisher, Output> =
    Folded<Upstream, Output, Throwing<Upstream.Failure>, OperatorKind.Reduce>
  /// Delivers all values in one array.
  public typealias Collect<Upstream: Publisher> =
    Folded<Upstream, [Upstream.Output], Unthrowing<Upstream.Failure>, OperatorKind.Collect>
  /// Delivers the number of values.
  public typealias Count<Upstream: Publisher> =
    Folded<Upstream, Int, Unthrowing<Upstream.Failure>, OperatorKind.Count>
  /// Delivers only the completion.
  public typealias IgnoreOutput<Upstream: Publisher> =
    Folded<Upstream, Never, Unthrowing<Upstream.Failure>, OperatorKind.Ignore>
  /// Delivers the last value.
  public typealias Last<Upstream: Publisher> =
    Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.Last>
  /// Delivers the last value that the closure accepts.
  public typealias LastWhere<Upstream: Publisher> =
    Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.LastWhere>
  /// Delivers the last value that the closure accepts; fails with the error that it throws.
  public typealias TryLastWhere<Upstream: Publisher> =
    Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.LastWhere>
  /// Delivers the greatest value; of equal values the first.
  public typealias Comparison<Upstream: Publisher> =
    Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.Comparison>
  /// Delivers the greatest value, of equal values the first; fails with the error that the closure throws.
  public typealias TryComparison<Upstream: Publisher> =
    Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.Comparison>
  /// Delivers the first value; fails if there is none.
  public typealias AsSingle<Upstream: Publisher> =
    Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.Single>
  /// Delivers the values in arrays; the last array has the remaining values.
  public typealias CollectByCount<Upstream: Publisher> =
    Staged<Upstream, [Upstream.Output], Unthrowing<Upstream.Failure>, OperatorKind.CollectByCount>
}

extension Publishers.Folded where Kind == OperatorKind.Reduce {
  /// ``Publishers/Reduce`` and ``Publishers/TryReduce``.
  @inlinable public init(
    upstream: Upstream, initial: Output,
    nextPartialResult: @escaping (Output, Upstream.Output) throws(Mode.Thrown) -> Output
  ) {
    self.init(upstream, "Reduce", from: initial) { result, value throws(Mode.Thrown) in
      result = try nextPartialResult(result, value)
    } answer: {
      $0
    }
  }
}

extension Publishers.Folded where Output == [Upstream.Output], Kind == OperatorKind.Collect {
  /// ``Publishers/Collect``.
  @inlinable public init(upstream: Upstream) {
    self.init(upstream, "Collect", from: [], { $0.append($1) }, answer: { $0 })
  }
}

extension Publishers.Folded where Output == Never, Kind == OperatorKind.Ignore {
  /// ``Publishers/IgnoreOutput``.
  @inlinable public init(upstream: Upstream) {
    self.init(upstream, "IgnoreOutput", from: (), { _, _ in }, answer: { nil })
  }
}

extension Publishers.Folded where Output == Upstream.Output, Kind == OperatorKind.Last {
  /// ``Publishers/Last``.
  @inlinable public init(upstream: Upstream) {
    self.init(upstream, "Last", from: nil, { $0 = $1 }, answer: { $0 })
  }
}

extension Publishers.Folded
where Output == Upstream.Output, Mode == Throwing<Upstream.Failure>, Kind == OperatorKind.Single {
  /// ``Publishers/AsSingle``.
  @inlinable public init(upstream: Upstream) {
    self.init(upstream, "AsSingle", asking: .max(1)) {
      Stage {
        .finish(last: $0)
      } rest: { () throws(any Error) in
        throw SingleError.noElements
      }
    }
  }
}

extension Publishers.Folded where Output == Upstream.Output, Kind == OperatorKind.LastWhere {
  /// ``Publishers/LastWhere`` and ``Publishers/TryLastWhere``.
  @inlinable public init(upstream: Upstream, predicate: @escaping (Output) throws(Mode.Thrown) -> Bool) {
    self.init(upstream, "LastWhere", from: nil) { last, value throws(Mode.Thrown) in
      if try predicate(value) { last = value }
    } answer: {
      $0
    }
  }
}

extension Publishers.Folded where Output == Upstream.Output, Kind == OperatorKind.Comparison {
  /// ``Publishers/Comparison`` and ``Publishers/TryComparison``.
  @inlinable public init(
    upstream: Upstream, areInIncreasingOrder: @escaping (Output, Output) throws(Mode.Thrown) -> Bool
  ) {
    self.init(upstream, "Comparison", from: nil) { greatest, value throws(Mode.Thrown) in
      if let best = greatest, try !areInIncreasingOrder(best, value) { return }
      greatest = value
    } answer: {
      $0
    }
  }
}

extension Publishers.Folded where Output == Int, Kind == OperatorKind.Count {
  /// ``Publishers/Count``.
  @inlinable public init(upstream: Upstream) {
    self.init(upstream, "Count", from: 0, { count, _ in count += 1 }, answer: { $0 })
  }
}

extension Publishers.Staged
where
  Output == [Upstream.Output], Mode == Unthrowing<Upstream.Failure>,
  Kind == OperatorKind.CollectByCount
{
  /// ``Publishers/CollectByCount``. The remaining values need no further demand: their array was requested when it
  /// began.
  @inlinable public init(upstream: Upstream, count: Int) {
    precondition(count > 0, "a count must be positive, it is \(count)")
    self.init(upstream, "CollectByCount", Mode()) {
      var values: Output = []
      return Stage { value in
        values.append(value)
        if values.count < count { return .skip }
        defer { values = [] }
        return .emit(values)
      } rest: {
        values.isEmpty ? nil : values
      }
    }
  }
}

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
