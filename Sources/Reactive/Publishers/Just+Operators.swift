// Operators on one known value.

extension Just where Output: Equatable {
  /// Whether the value equals `output`.
  public func contains(_ output: Output) -> Just<Bool> { Just<Bool>(self.output == output) }
}

extension Just {
  /// Whether the closure accepts the value.
  public func allSatisfy(_ predicate: (Output) -> Bool) -> Just<Bool> { Just<Bool>(predicate(output)) }
  /// Whether the closure accepts the value.
  public func contains(where predicate: (Output) -> Bool) -> Just<Bool> { Just<Bool>(predicate(output)) }
  /// The value in an array.
  public func collect() -> Just<[Output]> { Just<[Output]>([output]) }
  /// 1.
  public func count() -> Just<Int> { Just<Int>(1) }
  /// The closure's result for the value.
  public func map<T>(_ transform: (Output) -> T) -> Just<T> { Just<T>(transform(output)) }
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
