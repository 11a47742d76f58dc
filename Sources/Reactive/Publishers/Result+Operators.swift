// Operators on one known value or failure.

extension Result.Publisher where Success: Equatable {
  /// Whether the value equals `output`.
  public func contains(_ output: Success) -> Result<Bool, Failure>.Publisher { map { $0 == output } }
}

extension Result.Publisher {
  /// Whether the closure accepts the value.
  public func allSatisfy(_ predicate: (Success) -> Bool) -> Result<Bool, Failure>.Publisher { map(predicate) }
  /// Whether the closure accepts the value.
  public func contains(where predicate: (Success) -> Bool) -> Result<Bool, Failure>.Publisher { map(predicate) }
  /// The value in an array.
  public func collect() -> Result<[Success], Failure>.Publisher { map { [$0] } }
  /// 1.
  public func count() -> Result<Int, Failure>.Publisher { map { _ in 1 } }
  /// The value, or the error that the closure throws when it compares the value with itself.
  public func tryMin(
    by areInIncreasingOrder: (Success, Success) throws -> Bool
  ) -> Result<Success, any Error>.Publisher { tryRemoveDuplicates(by: areInIncreasingOrder) }
  /// The value, or the error that the closure throws when it compares the value with itself.
  public func tryMax(
    by areInIncreasingOrder: (Success, Success) throws -> Bool
  ) -> Result<Success, any Error>.Publisher { tryRemoveDuplicates(by: areInIncreasingOrder) }
  /// The closure's result for the value.
  public func map<T>(_ transform: (Success) -> T) -> Result<T, Failure>.Publisher { result.map(transform).publisher }
  /// The value, or `output` in place of the failure.
  public func replaceError(with output: Success) -> Result<Success, Never>.Publisher {
    .init(result.flatMapError { _ in .success(output) })
  }
}
