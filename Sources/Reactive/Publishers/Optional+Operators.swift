// Operators on one known value or none: done when they are called, as in Combine. Without a value there is no answer.

extension Optional.Publisher where Wrapped: Equatable {
  /// Whether the value, if any, equals `output`.
  public func contains(_ output: Wrapped) -> Bool?.Publisher { map { $0 == output } }
  /// The same.
  public func removeDuplicates() -> Self { self }
}

extension Optional.Publisher where Wrapped: Comparable {
  /// The same.
  public func min() -> Self { self }
  /// The same.
  public func max() -> Self { self }
}

extension Optional.Publisher {
  /// Whether the closure accepts the value, if any.
  public func allSatisfy(_ predicate: (Wrapped) -> Bool) -> Bool?.Publisher { map(predicate) }
  /// Whether the closure accepts the value, if any.
  public func contains(where predicate: (Wrapped) -> Bool) -> Bool?.Publisher { map(predicate) }
  /// The value, if any, in an array.
  public func collect() -> [Wrapped]?.Publisher { map { [$0] } }
  /// 1, if there is a value.
  public func count() -> Int?.Publisher { map { _ in 1 } }
  /// The same; there is nothing to compare.
  public func min(by areInIncreasingOrder: (Wrapped, Wrapped) -> Bool) -> Self { self }
  /// The same; there is nothing to compare.
  public func max(by areInIncreasingOrder: (Wrapped, Wrapped) -> Bool) -> Self { self }
  /// The value, unless it is left out.
  public func dropFirst(_ count: Int = 1) -> Self {
    precondition(count >= 0, "count must not be negative, it is \(count)")
    return filter { _ in count == 0 }
  }
  /// The value, unless the closure accepts it.
  public func drop(while predicate: (Wrapped) -> Bool) -> Self { filter { !predicate($0) } }
  /// The same.
  public func first() -> Self { self }
  /// The value, if the closure accepts it.
  public func first(where predicate: (Wrapped) -> Bool) -> Self { filter(predicate) }
  /// The same.
  public func last() -> Self { self }
  /// The value, if the closure accepts it.
  public func last(where predicate: (Wrapped) -> Bool) -> Self { filter(predicate) }
  /// The value, if the closure accepts it.
  public func filter(_ isIncluded: (Wrapped) -> Bool) -> Self { Self(output.flatMap { isIncluded($0) ? $0 : nil }) }
  /// The end.
  public func ignoreOutput() -> Empty<Wrapped, Never> { Empty() }
  /// What the closure makes of the value.
  public func map<T>(_ transform: (Wrapped) -> T) -> T?.Publisher { output.map(transform).publisher }
  /// What the closure makes of the value, unless that is `nil`.
  public func compactMap<T>(_ transform: (Wrapped) -> T?) -> T?.Publisher { output.flatMap(transform).publisher }
  /// The value, if `index` is 0.
  public func output(at index: Int) -> Self {
    precondition(index >= 0, "index must not be negative, it is \(index)")
    return filter { _ in index == 0 }
  }
  /// The value, if 0 is in the range.
  public func output<R: RangeExpression<Int>>(in range: R) -> Self {
    let range = range.relative(to: 0..<Int.max)
    precondition(range.lowerBound >= 0, "lowerBound must not be negative, it is \(range.lowerBound)")
    return filter { _ in range.contains(0) }
  }
  /// The value, unless `maxLength` is 0.
  public func prefix(_ maxLength: Int) -> Self {
    precondition(maxLength >= 0, "maxLength must not be negative, it is \(maxLength)")
    return filter { _ in maxLength > 0 }
  }
  /// The value, if the closure accepts it.
  public func prefix(while predicate: (Wrapped) -> Bool) -> Self { filter(predicate) }
  /// The result of the value, if any.
  public func reduce<T>(_ initialResult: T, _ nextPartialResult: (T, Wrapped) -> T) -> T?.Publisher {
    map { nextPartialResult(initialResult, $0) }
  }
  /// The result of the value, if any.
  public func scan<T>(_ initialResult: T, _ nextPartialResult: (T, Wrapped) -> T) -> T?.Publisher {
    reduce(initialResult, nextPartialResult)
  }
  /// The same; there is nothing to compare.
  public func removeDuplicates(by predicate: (Wrapped, Wrapped) -> Bool) -> Self { self }
  /// The same; it can't fail.
  public func replaceError(with output: Wrapped) -> Self { self }
  /// The value, or `output` when there is none.
  public func replaceEmpty(with output: Wrapped) -> Just<Wrapped> { Just(self.output ?? output) }
  /// The same; it can't fail.
  public func retry(_ times: Int) -> Self { self }
}
