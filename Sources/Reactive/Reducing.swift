// Operators that make one value of all.

extension Publishers {
  /// Delivers the result of all values.
  public struct Reduce<Upstream: Publisher, Output>: Fold {
    /// Where the values come from.
    public let upstream: Upstream
    /// The result of no value.
    public let initial: Output
    /// The result so far and a value make the next result.
    public let nextPartialResult: (Output, Upstream.Output) -> Output

    /// The operator behind `upstream`.
    public init(upstream: Upstream, initial: Output, nextPartialResult: @escaping (Output, Upstream.Output) -> Output) {
      self.upstream = upstream
      self.initial = initial
      self.nextPartialResult = nextPartialResult
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Output, Upstream.Failure> {
      var result = initial
      return Folding(
        take: { [nextPartialResult] value in
          result = nextPartialResult(result, value)
          return .skip
        }, answer: { .finish(last: result) })
    }
  }

  /// Delivers the result of all values; fails with what the closure throws.
  public struct TryReduce<Upstream: Publisher, Output>: Fold {
    /// What the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// The result of no value.
    public let initial: Output
    /// The result so far and a value make the next result.
    public let nextPartialResult: (Output, Upstream.Output) throws -> Output

    /// The operator behind `upstream`.
    public init(
      upstream: Upstream, initial: Output, nextPartialResult: @escaping (Output, Upstream.Output) throws -> Output
    ) {
      self.upstream = upstream
      self.initial = initial
      self.nextPartialResult = nextPartialResult
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Output, any Error> {
      var result = initial
      return Folding(
        take: { [nextPartialResult] value in
          attempt {
            result = try nextPartialResult(result, value)
            return .skip
          }
        }, answer: { .finish(last: result) })
    }
  }

  /// Delivers all values in one array.
  public struct Collect<Upstream: Publisher>: Fold {
    /// All values.
    public typealias Output = [Upstream.Output]
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) {
      self.upstream = upstream
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, [Upstream.Output], Upstream.Failure> {
      var values: [Upstream.Output] = []
      return Folding(
        take: { value in
          values.append(value)
          return .skip
        }, answer: { .finish(last: values) })
    }
  }

  /// Delivers the number of values.
  public struct Count<Upstream: Publisher>: Fold {
    /// The number of values.
    public typealias Output = Int
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) {
      self.upstream = upstream
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Int, Upstream.Failure> {
      var count = 0
      return Folding(
        take: { _ in
          count += 1
          return .skip
        }, answer: { .finish(last: count) })
    }
  }

  /// Delivers the greatest value, of equal ones the last.
  public struct Comparison<Upstream: Publisher>: Fold {
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether the first is less than the second.
    public let areInIncreasingOrder: (Upstream.Output, Upstream.Output) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, areInIncreasingOrder: @escaping (Upstream.Output, Upstream.Output) -> Bool) {
      self.upstream = upstream
      self.areInIncreasingOrder = areInIncreasingOrder
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Upstream.Output, Upstream.Failure> {
      var greatest: Upstream.Output?
      return Folding(
        take: { [areInIncreasingOrder] value in
          if let best = greatest, areInIncreasingOrder(value, best) { return .skip }
          greatest = value
          return .skip
        }, answer: { .finish(last: greatest) })
    }
  }

  /// Delivers the greatest value, of equal ones the last; fails with what the closure throws.
  public struct TryComparison<Upstream: Publisher>: Fold {
    /// What the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether the first is less than the second.
    public let areInIncreasingOrder: (Upstream.Output, Upstream.Output) throws -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, areInIncreasingOrder: @escaping (Upstream.Output, Upstream.Output) throws -> Bool) {
      self.upstream = upstream
      self.areInIncreasingOrder = areInIncreasingOrder
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Upstream.Output, any Error> {
      var greatest: Upstream.Output?
      return Folding(
        take: { [areInIncreasingOrder] value in
          attempt {
            if let best = greatest, try areInIncreasingOrder(value, best) { return .skip }
            greatest = value
            return .skip
          }
        }, answer: { .finish(last: greatest) })
    }
  }

  /// Delivers the last value.
  public struct Last<Upstream: Publisher>: Fold {
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) {
      self.upstream = upstream
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Upstream.Output, Upstream.Failure> {
      var last: Upstream.Output?
      return Folding(
        take: { value in
          last = value
          return .skip
        }, answer: { .finish(last: last) })
    }
  }

  /// Delivers the last value that the closure accepts.
  public struct LastWhere<Upstream: Publisher>: Fold {
    /// Where the values come from.
    public let upstream: Upstream
    /// What is asked of each value.
    public let predicate: (Upstream.Output) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Upstream.Output, Upstream.Failure> {
      var last: Upstream.Output?
      return Folding(
        take: { [predicate] value in
          if predicate(value) { last = value }
          return .skip
        }, answer: { .finish(last: last) })
    }
  }

  /// Delivers the last value that the closure accepts; fails with what it throws.
  public struct TryLastWhere<Upstream: Publisher>: Fold {
    /// What the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// What is asked of each value.
    public let predicate: (Upstream.Output) throws -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Upstream.Output, any Error> {
      var last: Upstream.Output?
      return Folding(
        take: { [predicate] value in
          attempt {
            if try predicate(value) { last = value }
            return .skip
          }
        }, answer: { .finish(last: last) })
    }
  }

  /// Delivers the end only.
  public struct IgnoreOutput<Upstream: Publisher>: Fold {
    /// There is none.
    public typealias Output = Never
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) {
      self.upstream = upstream
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Never, Upstream.Failure> {
      Folding(take: { _ in .skip }, answer: { .finish(last: nil) })
    }
  }

  /// Delivers the values in arrays of `count`, the last with what is left.
  public struct CollectByCount<Upstream: Publisher>: Publisher {
    /// Some values.
    public typealias Output = [Upstream.Output]
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream
    /// How many values an array has.
    public let count: Int

    /// The operator behind `upstream`.
    public init(upstream: Upstream, count: Int) {
      precondition(count > 0, "a count must be positive, it is \(count)")
      self.upstream = upstream
      self.count = count
    }

    /// Attaches the subscriber. One that gets what is left has asked for it: it has asked for the array that was begun.
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
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
  public func tryMax(
    by areInIncreasingOrder: @escaping (Output, Output) throws -> Bool
  ) -> Publishers.TryComparison<Self> {
    Publishers.TryComparison(upstream: self, areInIncreasingOrder: areInIncreasingOrder)
  }

  /// Delivers the least value, once they have ended; the first error thrown ends it.
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
