// Operators that make one value of all.

extension Publishers {
  /// Delivers the result of all values.
  public typealias Reduce<Upstream: Publisher, Output> = Reducing<Upstream, Output, Unthrowing<Upstream.Failure>>
  /// Delivers the result of all values; fails with what the closure throws.
  public typealias TryReduce<Upstream: Publisher, Output> = Reducing<Upstream, Output, Throwing<Upstream.Failure>>

  /// ``Reduce`` and ``TryReduce``.
  public struct Reducing<Upstream: Publisher, Output, Mode: Fallibility<Upstream.Failure>>: Fold, TryingOperator {
    /// Where the values come from.
    public let upstream: Upstream
    /// The result of no value.
    public let initial: Output
    /// The result so far and a value make the next result.
    public let nextPartialResult: (Output, Upstream.Output) throws(Mode.Thrown) -> Output

    /// The operator behind `upstream`.
    public init(
      upstream: Upstream, initial: Output,
      nextPartialResult: @escaping (Output, Upstream.Output) throws(Mode.Thrown) -> Output
    ) {
      (self.upstream, self.initial, self.nextPartialResult) = (upstream, initial, nextPartialResult)
    }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Output, Mode.Failure> {
      Folding(Mode.self, from: initial) { [nextPartialResult] result, value throws(Mode.Thrown) in
        result = try nextPartialResult(result, value)
      } answer: {
        $0
      }
    }
  }

  /// Delivers all values in one array.
  public struct Collect<Upstream: Publisher>: Fold {
    /// All values.
    public typealias Output = [Upstream.Output]
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) { self.upstream = upstream }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Output, Upstream.Failure> {
      Folding(Unthrowing.self, from: [], { $0.append($1) }, answer: { $0 })
    }
  }

  /// Delivers the number of values.
  public struct Count<Upstream: Publisher>: Fold {
    /// The number of values.
    public typealias Output = Int
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) { self.upstream = upstream }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Int, Upstream.Failure> {
      Folding(Unthrowing.self, from: 0, { count, _ in count += 1 }, answer: { $0 })
    }
  }

  /// Delivers the greatest value, of equal ones the last.
  public typealias Comparison<Upstream: Publisher> = Comparing<Upstream, Unthrowing<Upstream.Failure>>
  /// Delivers the greatest value, of equal ones the last; fails with what the closure throws.
  public typealias TryComparison<Upstream: Publisher> = Comparing<Upstream, Throwing<Upstream.Failure>>

  /// ``Comparison`` and ``TryComparison``.
  public struct Comparing<Upstream: Publisher, Mode: Fallibility<Upstream.Failure>>: Fold, TryingOperator {
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether the first is less than the second.
    public let areInIncreasingOrder: (Upstream.Output, Upstream.Output) throws(Mode.Thrown) -> Bool

    /// The operator behind `upstream`.
    public init(
      upstream: Upstream, areInIncreasingOrder: @escaping (Upstream.Output, Upstream.Output) throws(Mode.Thrown) -> Bool
    ) {
      (self.upstream, self.areInIncreasingOrder) = (upstream, areInIncreasingOrder)
    }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Upstream.Output, Mode.Failure> {
      Folding(Mode.self, from: nil) { [areInIncreasingOrder] greatest, value throws(Mode.Thrown) in
        if let best = greatest, try areInIncreasingOrder(value, best) { return }
        greatest = value
      } answer: {
        $0
      }
    }
  }

  /// Delivers the last value.
  public struct Last<Upstream: Publisher>: Fold {
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) { self.upstream = upstream }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Upstream.Output, Upstream.Failure> {
      Folding(Unthrowing.self, from: nil, { $0 = $1 }, answer: { $0 })
    }
  }

  /// Delivers the last value that the closure accepts.
  public typealias LastWhere<Upstream: Publisher> = FindingLast<Upstream, Unthrowing<Upstream.Failure>>
  /// Delivers the last value that the closure accepts; fails with what it throws.
  public typealias TryLastWhere<Upstream: Publisher> = FindingLast<Upstream, Throwing<Upstream.Failure>>

  /// ``LastWhere`` and ``TryLastWhere``.
  public struct FindingLast<Upstream: Publisher, Mode: Fallibility<Upstream.Failure>>: Fold, TryingOperator {
    /// Where the values come from.
    public let upstream: Upstream
    /// What is asked of each value.
    public let predicate: (Upstream.Output) throws(Mode.Thrown) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool) {
      (self.upstream, self.predicate) = (upstream, predicate)
    }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Upstream.Output, Mode.Failure> {
      Folding(Mode.self, from: nil) { [predicate] last, value throws(Mode.Thrown) in
        if try predicate(value) { last = value }
      } answer: {
        $0
      }
    }
  }

  /// Delivers the end only.
  public struct IgnoreOutput<Upstream: Publisher>: Fold {
    /// There is none.
    public typealias Output = Never
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) { self.upstream = upstream }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Never, Upstream.Failure> {
      Folding(take: { _ in .skip }, answer: { .finish(last: nil) })
    }
  }

  /// Delivers the values in arrays of `count`, the last with what is left.
  public struct CollectByCount<Upstream: Publisher>: Operator {
    /// Some values.
    public typealias Output = [Upstream.Output]
    /// Where the values come from.
    public let upstream: Upstream
    /// How many values an array has.
    public let count: Int

    /// The operator behind `upstream`.
    public init(upstream: Upstream, count: Int) {
      precondition(count > 0, "a count must be positive, it is \(count)")
      (self.upstream, self.count) = (upstream, count)
    }

    /// Attaches the subscriber. One that gets what is left has asked for it: it has asked for the array that was begun.
    public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      var values: [Upstream.Output] = []
      func next(_ value: Upstream.Output) -> Verdict<Output, Failure> {
        values.append(value)
        if values.count < count { return .skip }
        defer { values = [] }
        return .emit(values)
      }
      upstream.subscribe(
        StageLink(
          next: next, failure: { $0 }, isOver: false, rest: { values.isEmpty ? nil : values }, down: subscriber))
    }
  }
}

extension Publisher {
  /// Delivers the result of all values, once they have ended. Asks for everything at once.
  public func reduce<T>(
    _ initialResult: T, _ nextPartialResult: @escaping (T, Output) -> T
  ) -> Publishers.Reduce<Self, T> {
    Publishers.Reduce(upstream: self, initial: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Delivers the result of all values, once they have ended; the first error thrown ends it.
  ///
  /// Demand: upstream is asked for everything at once; the answer waits for demand.
  public func tryReduce<T>(
    _ initialResult: T, _ nextPartialResult: @escaping (T, Output) throws -> T
  ) -> Publishers.TryReduce<Self, T> {
    Publishers.TryReduce(upstream: self, initial: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Delivers all values in one array, once they have ended. Asks for everything at once; holds all of it.
  public func collect() -> Publishers.Collect<Self> { Publishers.Collect(upstream: self) }

  /// Delivers the values in arrays of `count`, the last with what is left; asks for `count` values for each array.
  public func collect(_ count: Int) -> Publishers.CollectByCount<Self> {
    Publishers.CollectByCount(upstream: self, count: count)
  }

  /// Delivers the number of values, once they have ended. Asks for everything at once.
  public func count() -> Publishers.Count<Self> { Publishers.Count(upstream: self) }

  /// Delivers the greatest value, of equal ones the last, once they have ended. Asks for everything at once.
  public func max(by areInIncreasingOrder: @escaping (Output, Output) -> Bool) -> Publishers.Comparison<Self> {
    Publishers.Comparison(upstream: self, areInIncreasingOrder: areInIncreasingOrder)
  }

  /// Delivers the least value, of equal ones the last, once they have ended. Asks for everything at once.
  public func min(by areInIncreasingOrder: @escaping (Output, Output) -> Bool) -> Publishers.Comparison<Self> {
    max { areInIncreasingOrder($1, $0) }
  }

  /// Delivers the greatest value, once they have ended; the first error thrown ends it.
  ///
  /// Demand: upstream is asked for everything at once; the answer waits for demand.
  public func tryMax(
    by areInIncreasingOrder: @escaping (Output, Output) throws -> Bool
  ) -> Publishers.TryComparison<Self> {
    Publishers.TryComparison(upstream: self, areInIncreasingOrder: areInIncreasingOrder)
  }

  /// Delivers the least value, once they have ended; the first error thrown ends it.
  ///
  /// Demand: upstream is asked for everything at once; the answer waits for demand.
  public func tryMin(
    by areInIncreasingOrder: @escaping (Output, Output) throws -> Bool
  ) -> Publishers.TryComparison<Self> {
    tryMax { try areInIncreasingOrder($1, $0) }
  }

  /// Delivers the last value, once they have ended. Asks for everything at once.
  public func last() -> Publishers.Last<Self> { Publishers.Last(upstream: self) }

  /// Delivers the last value that the closure accepts, once they have ended. Asks for everything at once.
  public func last(where predicate: @escaping (Output) -> Bool) -> Publishers.LastWhere<Self> {
    Publishers.LastWhere(upstream: self, predicate: predicate)
  }

  /// Delivers the last value that the closure accepts; the first error thrown ends it.
  ///
  /// Demand: upstream is asked for everything at once; the answer waits for demand.
  public func tryLast(where predicate: @escaping (Output) throws -> Bool) -> Publishers.TryLastWhere<Self> {
    Publishers.TryLastWhere(upstream: self, predicate: predicate)
  }

  /// Delivers the end only. Asks for everything at once.
  public func ignoreOutput() -> Publishers.IgnoreOutput<Self> { Publishers.IgnoreOutput(upstream: self) }
}

extension Publisher where Output: Comparable {
  /// Delivers the greatest value, once they have ended. Asks for everything at once.
  public func max() -> Publishers.Comparison<Self> { max(by: <) }

  /// Delivers the least value, once they have ended. Asks for everything at once.
  public func min() -> Publishers.Comparison<Self> { min(by: <) }
}
