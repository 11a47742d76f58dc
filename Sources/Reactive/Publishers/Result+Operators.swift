// Operators on one known value or failure: done when they are called, as in Combine.

extension Result.Publisher where Success: Equatable {
  /// Whether the value equals `output`.
  public func contains(_ output: Success) -> Result<Bool, Failure>.Publisher { map { $0 == output } }
  /// The same.
  public func removeDuplicates() -> Self { self }
}

extension Result.Publisher where Success: Comparable {
  /// The same.
  public func min() -> Self { self }
  /// The same.
  public func max() -> Self { self }
}

extension Result.Publisher where Failure == Never {
  /// The value, with another failure type.
  public func setFailureType<E: Error>(to failureType: E.Type) -> Result<Success, E>.Publisher { .init(result.get()) }
}

extension Result.Publisher {
  /// Whether the closure accepts the value.
  public func allSatisfy(_ predicate: (Success) -> Bool) -> Result<Bool, Failure>.Publisher { map(predicate) }
  /// Whether the closure accepts the value, or what it throws.
  public func tryAllSatisfy(_ predicate: (Success) throws -> Bool) -> Result<Bool, any Error>.Publisher {
    tryMap(predicate)
  }
  /// Whether the closure accepts the value.
  public func contains(where predicate: (Success) -> Bool) -> Result<Bool, Failure>.Publisher { map(predicate) }
  /// Whether the closure accepts the value, or what it throws.
  public func tryContains(where predicate: (Success) throws -> Bool) -> Result<Bool, any Error>.Publisher {
    tryMap(predicate)
  }
  /// The value in an array.
  public func collect() -> Result<[Success], Failure>.Publisher { map { [$0] } }
  /// 1.
  public func count() -> Result<Int, Failure>.Publisher { map { _ in 1 } }
  /// The same; there is nothing to compare.
  public func min(by areInIncreasingOrder: (Success, Success) -> Bool) -> Self { self }
  /// The value, or what the closure throws of it and itself.
  public func tryMin(
    by areInIncreasingOrder: (Success, Success) throws -> Bool
  ) -> Result<Success, any Error>.Publisher { tryRemoveDuplicates(by: areInIncreasingOrder) }
  /// The same; there is nothing to compare.
  public func max(by areInIncreasingOrder: (Success, Success) -> Bool) -> Self { self }
  /// The value, or what the closure throws of it and itself.
  public func tryMax(
    by areInIncreasingOrder: (Success, Success) throws -> Bool
  ) -> Result<Success, any Error>.Publisher { tryRemoveDuplicates(by: areInIncreasingOrder) }
  /// The same.
  public func first() -> Self { self }
  /// The same.
  public func last() -> Self { self }
  /// The end; of a failure, too.
  public func ignoreOutput() -> Empty<Success, Failure> { Empty() }
  /// What the closure makes of the value.
  public func map<T>(_ transform: (Success) -> T) -> Result<T, Failure>.Publisher { result.map(transform).publisher }
  /// What the closure makes of the value, or what it throws.
  public func tryMap<T>(_ transform: (Success) throws -> T) -> Result<T, any Error>.Publisher {
    Result<T, any Error> { try transform(result.get()) }.publisher
  }
  /// What the closure makes of the failure.
  public func mapError<E: Error>(_ transform: (Failure) -> E) -> Result<Success, E>.Publisher {
    result.mapError(transform).publisher
  }
  /// The same; there is nothing to compare.
  public func removeDuplicates(by predicate: (Success, Success) -> Bool) -> Self { self }
  /// The value, or what the closure throws of it and itself.
  public func tryRemoveDuplicates(
    by predicate: (Success, Success) throws -> Bool
  ) -> Result<Success, any Error>.Publisher {
    tryMap { value in
      _ = try predicate(value, value)
      return value
    }
  }
  /// The value, or `output` in place of the failure.
  public func replaceError(with output: Success) -> Result<Success, Never>.Publisher {
    .init(result.flatMapError { _ in .success(output) })
  }
  /// The same; it is not empty.
  public func replaceEmpty(with output: Success) -> Self { self }
  /// The same; it would fail again.
  public func retry(_ times: Int) -> Self { self }
  /// The result of the value.
  public func reduce<T>(_ initialResult: T, _ nextPartialResult: (T, Success) -> T) -> Result<T, Failure>.Publisher {
    map { nextPartialResult(initialResult, $0) }
  }
  /// The result of the value, or what the closure throws.
  public func tryReduce<T>(
    _ initialResult: T, _ nextPartialResult: (T, Success) throws -> T
  ) -> Result<T, any Error>.Publisher { tryMap { try nextPartialResult(initialResult, $0) } }
  /// The result of the value.
  public func scan<T>(_ initialResult: T, _ nextPartialResult: (T, Success) -> T) -> Result<T, Failure>.Publisher {
    reduce(initialResult, nextPartialResult)
  }
  /// The result of the value, or what the closure throws.
  public func tryScan<T>(
    _ initialResult: T, _ nextPartialResult: (T, Success) throws -> T
  ) -> Result<T, any Error>.Publisher { tryReduce(initialResult, nextPartialResult) }
}
