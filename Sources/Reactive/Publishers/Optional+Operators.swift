// Operators on an optional known value. Without a value they deliver none.

extension Optional.Publisher where Wrapped: Equatable {
  /// Whether the value, if any, equals `output`.
  public func contains(_ output: Wrapped) -> Bool?.Publisher { map { $0 == output } }
}

extension Optional.Publisher {
  /// Whether the closure accepts the value, if any.
  public func allSatisfy(_ predicate: (Wrapped) -> Bool) -> Bool?.Publisher { map(predicate) }
  /// Whether the closure accepts the value, if any.
  public func contains(where predicate: (Wrapped) -> Bool) -> Bool?.Publisher { map(predicate) }
  /// The value, if any, in an array; without a value, an empty array.
  public func collect() -> [Wrapped]?.Publisher { .init(output.map { [$0] } ?? []) }
  /// 1, if there is a value.
  public func count() -> Int?.Publisher { map { _ in 1 } }
  /// The closure's result for the value, if any.
  public func map<T>(_ transform: (Wrapped) -> T) -> T?.Publisher { output.map(transform).publisher }
  /// The closure's result for `initialResult` and the value, if any.
  public func reduce<T>(_ initialResult: T, _ nextPartialResult: (T, Wrapped) -> T) -> T?.Publisher {
    map { nextPartialResult(initialResult, $0) }
  }
  /// The closure's result for `initialResult` and the value, if any.
  public func scan<T>(_ initialResult: T, _ nextPartialResult: (T, Wrapped) -> T) -> T?.Publisher {
    reduce(initialResult, nextPartialResult)
  }
  /// The value, or `output` if there is none.
  public func replaceEmpty(with output: Wrapped) -> Just<Wrapped> { Just(self.output ?? output) }
}
