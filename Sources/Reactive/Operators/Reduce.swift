// Operators that reduce all values to one. They request unlimited values on subscription.

extension Publishers {
  /// Delivers the accumulated result of all values.
  public struct Reduce<Upstream: Publisher, Output>: CompositePublisher {
    /// The result before the first value.
    public let initial: Output
    /// Returns the result after a value, given the result before it.
    public let nextPartialResult: @Sendable (Output, Upstream.Output) -> Output
    /// The implementation.
    public let body: Folded<Upstream, Output, Unthrowing<Upstream.Failure>>

    /// `upstream.reduce(initial, nextPartialResult)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, initial: Output, nextPartialResult: @escaping @Sendable (Output, Upstream.Output) -> Output
    ) {
      (self.initial, self.nextPartialResult) = (initial, nextPartialResult)
      body = Folded(upstream, "Reduce", from: initial, { $0 = nextPartialResult($0, $1) }, output: { $0 })
    }
  }

  /// Delivers the accumulated result of all values; fails with the error that the closure throws.
  public struct TryReduce<Upstream: Publisher, Output>: CompositePublisher {
    /// The result before the first value.
    public let initial: Output
    /// Returns the result after a value, given the result before it.
    public let nextPartialResult: @Sendable (Output, Upstream.Output) throws -> Output
    /// The implementation.
    public let body: Folded<Upstream, Output, Throwing<Upstream.Failure>>

    /// `upstream.tryReduce(initial, nextPartialResult)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, initial: Output,
      nextPartialResult: @escaping @Sendable (Output, Upstream.Output) throws -> Output
    ) {
      (self.initial, self.nextPartialResult) = (initial, nextPartialResult)
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
    /// Returns whether a value is accepted.
    public let predicate: @Sendable (Upstream.Output) -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.last(where: predicate)`
    @preconcurrency @inlinable public init(upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) -> Bool)
    {
      self.predicate = predicate
      body = Folded(upstream, "LastWhere", from: nil, { if predicate($1) { $0 = $1 } }, output: { $0 })
    }
  }

  /// Delivers the last value that the closure accepts; fails with the error that it throws.
  public struct TryLastWhere<Upstream: Publisher>: CompositePublisher {
    /// Returns whether a value is accepted.
    public let predicate: @Sendable (Upstream.Output) throws -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryLast(where: predicate)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) throws -> Bool
    ) {
      self.predicate = predicate
      body = Folded(upstream, "TryLastWhere", from: nil, { if try predicate($1) { $0 = $1 } }, output: { $0 })
    }
  }

  /// Delivers the greatest value; of equal values the first.
  public struct Comparison<Upstream: Publisher>: CompositePublisher {
    /// Returns whether the first value is less than the second.
    public let areInIncreasingOrder: @Sendable (Upstream.Output, Upstream.Output) -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.max(by: areInIncreasingOrder)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, areInIncreasingOrder: @escaping @Sendable (Upstream.Output, Upstream.Output) -> Bool
    ) {
      self.areInIncreasingOrder = areInIncreasingOrder
      body = Folded(upstream, "Comparison", greatestBy: areInIncreasingOrder)
    }
  }

  /// Delivers the greatest value, of equal values the first; fails with the error that the closure throws.
  public struct TryComparison<Upstream: Publisher>: CompositePublisher {
    /// Returns whether the first value is less than the second.
    public let areInIncreasingOrder: @Sendable (Upstream.Output, Upstream.Output) throws -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryMax(by: areInIncreasingOrder)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, areInIncreasingOrder: @escaping @Sendable (Upstream.Output, Upstream.Output) throws -> Bool
    ) {
      self.areInIncreasingOrder = areInIncreasingOrder
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
  public struct CollectByCount<Upstream: Publisher>: Operator {
    /// The values in arrays.
    public typealias Output = [Upstream.Output]
    /// The upstream publisher.
    public let upstream: Upstream
    /// The number of values in an array; 0: all values are in one array.
    public let count: Int

    /// `upstream.collect(count)`
    ///
    /// - Precondition: `count` is not negative.
    @inlinable public init(upstream: Upstream, count: Int) {
      precondition(count >= 0, "count must not be negative, it is \(count)")
      (self.upstream, self.count) = (upstream, count)
    }

    /// Attaches the subscriber. Requests `count` values from upstream for each array that it requests.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      let size = count == 0 ? Int.max : count
      var values: [Upstream.Output] = []
      let stage = Stage<Upstream.Output, Output, Never> { value in
        values.append(value)
        return values.count < size ? .keep : .emit(values.take())
      } rest: {
        values.isEmpty ? nil : values
      }
      upstream.subscribe(
        StageLink(stage, Unthrowing(), ArrayHandle(size), down: ArraySubscriber(down: subscriber, size: size)))
    }
  }
}

/// Requests the values of as many arrays as the subscriber requests.
@usableFromInline final class ArrayHandle: UpstreamHandle {
  private let size: Int

  @usableFromInline init(_ size: Int) {
    self.size = size
    super.init("CollectByCount")
  }

  @usableFromInline override func request(_ demand: Subscribers.Demand) { slot.request(demand * size) }
}

/// Passes signals on. The demand for arrays that it receives becomes a demand for their values.
@usableFromInline struct ArraySubscriber<Down: Subscriber>: Subscriber {
  @usableFromInline typealias Input = Down.Input
  @usableFromInline typealias Failure = Down.Failure
  @usableFromInline let down: Down
  @usableFromInline let size: Int

  @inlinable init(down: Down, size: Int) { (self.down, self.size) = (down, size) }

  @inlinable var combineIdentifier: CombineIdentifier { down.combineIdentifier }
  @inlinable func receive(subscription: any Subscription) { down.receive(subscription: subscription) }
  @inlinable func receive(_ array: Down.Input) -> Subscribers.Demand { down.receive(array) * size }
  @inlinable func receive(completion: Subscribers.Completion<Failure>) { down.receive(completion: completion) }
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
  @preconcurrency @inlinable public func reduce<T>(
    _ initialResult: T, _ nextPartialResult: @escaping @Sendable (T, Output) -> T
  ) -> Publishers.Reduce<Self, T> {
    .init(upstream: self, initial: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Delivers the accumulated result of all values when upstream finishes; fails with the first error thrown. Demand:
  /// unlimited, requested on subscription.
  @preconcurrency @inlinable public func tryReduce<T>(
    _ initialResult: T, _ nextPartialResult: @escaping @Sendable (T, Output) throws -> T
  ) -> Publishers.TryReduce<Self, T> {
    .init(upstream: self, initial: initialResult, nextPartialResult: nextPartialResult)
  }

  /// Delivers all values in one array when upstream finishes. Demand: unlimited, requested on subscription; all values
  /// are held in memory.
  @inlinable public func collect() -> Publishers.Collect<Self> { .init(upstream: self) }

  /// Delivers the values in arrays of `count`, or in one array if `count` is 0; the last has the remaining values.
  /// Demand: `count` values for each array, requested together.
  ///
  /// - Precondition: `count` is not negative.
  @inlinable public func collect(_ count: Int) -> Publishers.CollectByCount<Self> {
    .init(upstream: self, count: count)
  }

  /// Delivers the number of values when upstream finishes. Demand: unlimited, requested on subscription.
  @inlinable public func count() -> Publishers.Count<Self> { .init(upstream: self) }

  /// Delivers the greatest value, of equal values the first, when upstream finishes. Demand: unlimited, requested on
  /// subscription.
  @preconcurrency @inlinable public func max(by areInIncreasingOrder: @escaping @Sendable (Output, Output) -> Bool)
    -> Publishers.Comparison<Self>
  {
    .init(upstream: self, areInIncreasingOrder: areInIncreasingOrder)
  }

  /// Delivers the least value, of equal values the first, when upstream finishes. Demand: unlimited, requested on
  /// subscription.
  @preconcurrency @inlinable public func min(by areInIncreasingOrder: @escaping @Sendable (Output, Output) -> Bool)
    -> Publishers.Comparison<Self>
  {
    max { areInIncreasingOrder($1, $0) }
  }

  /// Delivers the greatest value when upstream finishes; fails with the first error thrown. Demand: unlimited,
  /// requested on subscription.
  @preconcurrency @inlinable public func tryMax(
    by areInIncreasingOrder: @escaping @Sendable (Output, Output) throws -> Bool
  ) -> Publishers.TryComparison<Self> {
    .init(upstream: self, areInIncreasingOrder: areInIncreasingOrder)
  }

  /// Delivers the least value when upstream finishes; fails with the first error thrown. Demand: unlimited, requested
  /// on subscription.
  @preconcurrency @inlinable public func tryMin(
    by areInIncreasingOrder: @escaping @Sendable (Output, Output) throws -> Bool
  ) -> Publishers.TryComparison<Self> {
    tryMax { try areInIncreasingOrder($1, $0) }
  }

  /// Delivers the last value when upstream finishes. Demand: unlimited, requested on subscription.
  @inlinable public func last() -> Publishers.Last<Self> { .init(upstream: self) }

  /// Delivers the last value that the closure accepts when upstream finishes. Demand: unlimited, requested on
  /// subscription.
  @preconcurrency @inlinable public func last(where predicate: @escaping @Sendable (Output) -> Bool)
    -> Publishers.LastWhere<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers the last value that the closure accepts when upstream finishes; fails with the first error thrown.
  /// Demand: unlimited, requested on subscription.
  @preconcurrency @inlinable public func tryLast(where predicate: @escaping @Sendable (Output) throws -> Bool)
    -> Publishers.TryLastWhere<Self>
  {
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
  @inlinable public func max() -> Publishers.Comparison<Self> { max(by: own(<)) }

  /// Delivers the least value when upstream finishes. Demand: unlimited, requested on subscription.
  @inlinable public func min() -> Publishers.Comparison<Self> { min(by: own(<)) }
}
