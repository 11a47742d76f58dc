// Operators on one known value: done when they are called, as in Combine. So their closures need not escape.

extension Just where Output: Equatable {
  /// Whether the value equals `output`.
  public func contains(_ output: Output) -> Just<Bool> { Just<Bool>(self.output == output) }
  /// The same.
  public func removeDuplicates() -> Just { self }
}

extension Just where Output: Comparable {
  /// The same.
  public func min() -> Just { self }
  /// The same.
  public func max() -> Just { self }
}

extension Just {
  /// Whether the closure accepts the value.
  public func allSatisfy(_ predicate: (Output) -> Bool) -> Just<Bool> { Just<Bool>(predicate(output)) }
  /// Whether the closure accepts the value, or what it throws.
  public func tryAllSatisfy(_ predicate: (Output) throws -> Bool) -> Result<Bool, any Error>.Publisher {
    tryMap(predicate)
  }
  /// Whether the closure accepts the value.
  public func contains(where predicate: (Output) -> Bool) -> Just<Bool> { Just<Bool>(predicate(output)) }
  /// Whether the closure accepts the value, or what it throws.
  public func tryContains(where predicate: (Output) throws -> Bool) -> Result<Bool, any Error>.Publisher {
    tryMap(predicate)
  }
  /// The value in an array.
  public func collect() -> Just<[Output]> { Just<[Output]>([output]) }
  /// 1.
  public func count() -> Just<Int> { Just<Int>(1) }
  /// The same; there is nothing to compare.
  public func min(by areInIncreasingOrder: (Output, Output) -> Bool) -> Just { self }
  /// The same; there is nothing to compare.
  public func max(by areInIncreasingOrder: (Output, Output) -> Bool) -> Just { self }
  /// The value, unless it is left out.
  public func dropFirst(_ count: Int = 1) -> Output?.Publisher { Optional(output).publisher.dropFirst(count) }
  /// The value, unless the closure accepts it.
  public func drop(while predicate: (Output) -> Bool) -> Output?.Publisher { filter { !predicate($0) } }
  /// The same.
  public func first() -> Just { self }
  /// The value, if the closure accepts it.
  public func first(where predicate: (Output) -> Bool) -> Output?.Publisher { filter(predicate) }
  /// The same.
  public func last() -> Just { self }
  /// The value, if the closure accepts it.
  public func last(where predicate: (Output) -> Bool) -> Output?.Publisher { filter(predicate) }
  /// The value, if the closure accepts it.
  public func filter(_ isIncluded: (Output) -> Bool) -> Output?.Publisher {
    Optional(output).publisher.filter(isIncluded)
  }
  /// The end.
  public func ignoreOutput() -> Empty<Output, Never> { Empty() }
  /// What the closure makes of the value.
  public func map<T>(_ transform: (Output) -> T) -> Just<T> { Just<T>(transform(output)) }
  /// What the closure makes of the value, or what it throws.
  public func tryMap<T>(_ transform: (Output) throws -> T) -> Result<T, any Error>.Publisher {
    Result<T, any Error> { try transform(output) }.publisher
  }
  /// What the closure makes of the value, unless that is `nil`.
  public func compactMap<T>(_ transform: (Output) -> T?) -> T?.Publisher { transform(output).publisher }
  /// The value, with the closure's failure type.
  public func mapError<E: Error>(_ transform: (Never) -> E) -> Result<Output, E>.Publisher { .init(output) }
  /// The value, if `index` is 0.
  public func output(at index: Int) -> Output?.Publisher { Optional(output).publisher.output(at: index) }
  /// The value, if 0 is in the range.
  public func output<R: RangeExpression<Int>>(in range: R) -> Output?.Publisher {
    Optional(output).publisher.output(in: range)
  }
  /// The value, unless `maxLength` is 0.
  public func prefix(_ maxLength: Int) -> Output?.Publisher { Optional(output).publisher.prefix(maxLength) }
  /// The value, if the closure accepts it.
  public func prefix(while predicate: (Output) -> Bool) -> Output?.Publisher { filter(predicate) }
  /// The result of the value.
  public func reduce<T>(_ initialResult: T, _ nextPartialResult: (T, Output) -> T) -> Result<T, Never>.Publisher {
    .init(nextPartialResult(initialResult, output))
  }
  /// The result of the value, or what the closure throws.
  public func tryReduce<T>(
    _ initialResult: T, _ nextPartialResult: (T, Output) throws -> T
  ) -> Result<T, any Error>.Publisher { tryMap { try nextPartialResult(initialResult, $0) } }
  /// The result of the value.
  public func scan<T>(_ initialResult: T, _ nextPartialResult: (T, Output) -> T) -> Result<T, Never>.Publisher {
    reduce(initialResult, nextPartialResult)
  }
  /// The result of the value, or what the closure throws.
  public func tryScan<T>(
    _ initialResult: T, _ nextPartialResult: (T, Output) throws -> T
  ) -> Result<T, any Error>.Publisher { tryReduce(initialResult, nextPartialResult) }
  /// The same; there is nothing to compare.
  public func removeDuplicates(by predicate: (Output, Output) -> Bool) -> Just { self }
  /// The value, or what the closure throws of it and itself.
  public func tryRemoveDuplicates(
    by predicate: (Output, Output) throws -> Bool
  ) -> Result<Output, any Error>.Publisher {
    Result<Output, any Error>.Publisher(output).tryRemoveDuplicates(by: predicate)
  }
  /// The same; it can't fail.
  public func replaceError(with output: Output) -> Just { self }
  /// The same; it is not empty.
  public func replaceEmpty(with output: Output) -> Just { self }
  /// The same; it can't fail.
  public func retry(_ times: Int) -> Just { self }
  /// The value, with another failure type.
  public func setFailureType<E: Error>(to failureType: E.Type) -> Result<Output, E>.Publisher { .init(output) }
  /// These values, then the value.
  public func prepend(_ elements: Output...) -> Publishers.Sequence<[Output], Never> { prepend(elements) }
  /// These values, then the value.
  public func prepend<S: Sequence<Output>>(_ elements: S) -> Publishers.Sequence<[Output], Never> {
    .init(sequence: elements + [output])
  }
  /// The value, then these values.
  public func append(_ elements: Output...) -> Publishers.Sequence<[Output], Never> { append(elements) }
  /// The value, then these values.
  public func append<S: Sequence<Output>>(_ elements: S) -> Publishers.Sequence<[Output], Never> {
    .init(sequence: [output] + elements)
  }
}
