// Operators on one known value. They are evaluated when they are called, as in Combine, so their closures need not
// escape.

/// A publisher of at most one value that is known already: ``Just``, or the publisher of an optional or a result.
public protocol KnownValuePublisher<Output, Failure>: Publisher {}

/// A publisher of a known value, or of none, that never fails.
public protocol KnownOptionalPublisher<Output>: KnownValuePublisher where Failure == Never {
  /// The value, if any.
  var knownValue: Output? { get }
}

/// A publisher of a known value or failure.
public protocol KnownResultPublisher<Output, Failure>: KnownValuePublisher {
  /// The value or the failure.
  var result: Result<Output, Failure> { get }
}

extension KnownValuePublisher where Output: Equatable {
  /// Returns this publisher.
  public func removeDuplicates() -> Self { self }
}

extension KnownValuePublisher where Output: Comparable {
  /// Returns this publisher.
  public func min() -> Self { self }
  /// Returns this publisher.
  public func max() -> Self { self }
}

extension KnownValuePublisher {
  /// Returns this publisher: there is nothing to compare.
  public func min(by areInIncreasingOrder: (Output, Output) -> Bool) -> Self { self }
  /// Returns this publisher: there is nothing to compare.
  public func max(by areInIncreasingOrder: (Output, Output) -> Bool) -> Self { self }
  /// Returns this publisher: there is nothing to compare.
  public func removeDuplicates(by predicate: (Output, Output) -> Bool) -> Self { self }
  /// Returns this publisher.
  public func first() -> Self { self }
  /// Returns this publisher.
  public func last() -> Self { self }
  /// Finishes immediately, also in place of a failure.
  public func ignoreOutput() -> Empty<Output, Failure> { Empty() }
  /// Returns this publisher: it does not fail, or would fail again.
  public func retry(_ times: Int) -> Self { self }
}

extension KnownOptionalPublisher {
  /// The value, if the closure accepts it.
  public func filter(_ isIncluded: (Output) -> Bool) -> Output?.Publisher { compactMap { isIncluded($0) ? $0 : nil } }
  /// The value, if the closure accepts it.
  public func first(where predicate: (Output) -> Bool) -> Output?.Publisher { filter(predicate) }
  /// The value, if the closure accepts it.
  public func last(where predicate: (Output) -> Bool) -> Output?.Publisher { filter(predicate) }
  /// The value, if the closure accepts it.
  public func prefix(while predicate: (Output) -> Bool) -> Output?.Publisher { filter(predicate) }
  /// The value, unless the closure accepts it.
  public func drop(while predicate: (Output) -> Bool) -> Output?.Publisher { filter { !predicate($0) } }
  /// The value, unless `maxLength` is 0.
  ///
  /// - Precondition: `maxLength` is not negative.
  public func prefix(_ maxLength: Int) -> Output?.Publisher {
    precondition(maxLength >= 0, "maxLength must not be negative, it is \(maxLength)")
    return filter { _ in maxLength > 0 }
  }
  /// The value, unless `count` omits it.
  ///
  /// - Precondition: `count` is not negative.
  public func dropFirst(_ count: Int = 1) -> Output?.Publisher {
    precondition(count >= 0, "count must not be negative, it is \(count)")
    return filter { _ in count == 0 }
  }
  /// The value, if `index` is 0.
  ///
  /// - Precondition: `index` is not negative.
  public func output(at index: Int) -> Output?.Publisher {
    precondition(index >= 0, "index must not be negative, it is \(index)")
    return filter { _ in index == 0 }
  }
  /// The value, if 0 is in the range.
  public func output<R: RangeExpression<Int>>(in range: R) -> Output?.Publisher {
    let isIncluded = range.indices.contains(0)
    return filter { _ in isIncluded }
  }
  /// The closure's result for the value, unless it is `nil`.
  public func compactMap<T>(_ transform: (Output) -> T?) -> T?.Publisher { knownValue.flatMap(transform).publisher }
  /// Returns this publisher: it does not fail.
  public func replaceError(with output: Output) -> Self { self }
}

extension KnownResultPublisher where Failure == Never {
  /// The value, with another failure type.
  public func setFailureType<E: Error>(to failureType: E.Type) -> Result<Output, E>.Publisher { .init(result.get()) }
}

extension KnownResultPublisher {
  /// The closure's result for the value, or the error that it throws.
  public func tryMap<T>(_ transform: (Output) throws -> T) -> Result<T, any Error>.Publisher {
    Result<T, any Error> { try transform(result.get()) }.publisher
  }
  /// The value, or the closure's result for the failure.
  public func mapError<E: Error>(_ transform: (Failure) -> E) -> Result<Output, E>.Publisher {
    result.mapError(transform).publisher
  }
  /// Whether the closure accepts the value, or the error that it throws.
  public func tryAllSatisfy(_ predicate: (Output) throws -> Bool) -> Result<Bool, any Error>.Publisher {
    tryMap(predicate)
  }
  /// Whether the closure accepts the value, or the error that it throws.
  public func tryContains(where predicate: (Output) throws -> Bool) -> Result<Bool, any Error>.Publisher {
    tryMap(predicate)
  }
  /// The closure's result for `initialResult` and the value.
  public func reduce<T>(_ initialResult: T, _ nextPartialResult: (T, Output) -> T) -> Result<T, Failure>.Publisher {
    result.map { nextPartialResult(initialResult, $0) }.publisher
  }
  /// The closure's result for `initialResult` and the value.
  public func scan<T>(_ initialResult: T, _ nextPartialResult: (T, Output) -> T) -> Result<T, Failure>.Publisher {
    reduce(initialResult, nextPartialResult)
  }
  /// The closure's result for `initialResult` and the value, or the error that it throws.
  public func tryReduce<T>(
    _ initialResult: T, _ nextPartialResult: (T, Output) throws -> T
  ) -> Result<T, any Error>.Publisher { tryMap { try nextPartialResult(initialResult, $0) } }
  /// The closure's result for `initialResult` and the value, or the error that it throws.
  public func tryScan<T>(
    _ initialResult: T, _ nextPartialResult: (T, Output) throws -> T
  ) -> Result<T, any Error>.Publisher { tryReduce(initialResult, nextPartialResult) }
  /// The value, or the error that the closure throws when it compares the value with itself.
  public func tryRemoveDuplicates(
    by predicate: (Output, Output) throws -> Bool
  ) -> Result<Output, any Error>.Publisher {
    tryMap { value in
      _ = try predicate(value, value)
      return value
    }
  }
  /// Returns this publisher: it is not empty.
  public func replaceEmpty(with output: Output) -> Self { self }
}
