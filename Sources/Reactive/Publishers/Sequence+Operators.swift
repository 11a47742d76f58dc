// Operators on known values. They are evaluated when they are called, as in Combine.

extension Publishers.Sequence {
  /// Whether the closure accepts all elements.
  @inlinable public func allSatisfy(_ predicate: (Output) -> Bool) -> Result<Bool, Failure>.Publisher {
    .init(sequence.allSatisfy(predicate))
  }
  /// Whether the closure accepts all elements, or the error that it throws.
  @inlinable public func tryAllSatisfy(_ predicate: (Output) throws -> Bool) -> Result<Bool, any Error>.Publisher {
    Result<Bool, any Error> { try sequence.allSatisfy(predicate) }.publisher
  }
  /// The elements in an array.
  @inlinable public func collect() -> Result<[Output], Failure>.Publisher { .init(Array(sequence)) }
  /// The closure's results for the elements, except `nil`.
  @inlinable public func compactMap<T>(_ transform: (Output) -> T?) -> Publishers.Sequence<[T], Failure> {
    .init(sequence: sequence.compactMap(transform))
  }
  /// Whether the closure accepts one of the elements.
  @inlinable public func contains(where predicate: (Output) -> Bool) -> Result<Bool, Failure>.Publisher {
    .init(sequence.contains(where: predicate))
  }
  /// Whether the closure accepts one of the elements, or the error that it throws.
  @inlinable public func tryContains(
    where predicate: (Output) throws -> Bool
  ) -> Result<Bool, any Error>.Publisher {
    Result<Bool, any Error> { try sequence.contains(where: predicate) }.publisher
  }
  /// The elements from the first one that the closure rejects.
  @inlinable public func drop(
    while predicate: (Output) -> Bool
  ) -> Publishers.Sequence<DropWhileSequence<Elements>, Failure> { .init(sequence: sequence.drop(while: predicate)) }
  /// All elements except the first `count`.
  ///
  /// - Precondition: `count` is not negative.
  @inlinable public func dropFirst(_ count: Int = 1) -> Publishers.Sequence<DropFirstSequence<Elements>, Failure> {
    precondition(count >= 0, "count must not be negative, it is \(count)")
    return .init(sequence: sequence.dropFirst(count))
  }
  /// The elements that the closure accepts.
  @inlinable public func filter(_ isIncluded: (Output) -> Bool) -> Publishers.Sequence<[Output], Failure> {
    .init(sequence: sequence.filter(isIncluded))
  }
  /// Finishes immediately.
  public func ignoreOutput() -> Empty<Output, Failure> { Empty() }
  /// The closure's results for the elements.
  @inlinable public func map<T>(_ transform: (Output) -> T) -> Publishers.Sequence<[T], Failure> {
    .init(sequence: sequence.map(transform))
  }
  /// The first `maxLength` elements.
  ///
  /// - Precondition: `maxLength` is not negative.
  @inlinable public func prefix(_ maxLength: Int) -> Publishers.Sequence<PrefixSequence<Elements>, Failure> {
    precondition(maxLength >= 0, "maxLength must not be negative, it is \(maxLength)")
    return .init(sequence: sequence.prefix(maxLength))
  }
  /// The elements before the first one that the closure rejects.
  @inlinable public func prefix(while predicate: (Output) -> Bool) -> Publishers.Sequence<[Output], Failure> {
    .init(sequence: sequence.prefix(while: predicate))
  }
  /// The accumulated result of all elements.
  @inlinable public func reduce<T>(
    _ initialResult: T, _ nextPartialResult: (T, Output) -> T
  ) -> Result<T, Failure>.Publisher { .init(sequence.reduce(initialResult, nextPartialResult)) }
  /// The accumulated result of all elements, or the error that the closure throws.
  @inlinable public func tryReduce<T>(
    _ initialResult: T, _ nextPartialResult: (T, Output) throws -> T
  ) -> Result<T, any Error>.Publisher {
    Result<T, any Error> { try sequence.reduce(initialResult, nextPartialResult) }.publisher
  }
  /// The elements, with `output` in place of each `nil`. The element type stays optional, as in Combine.
  @inlinable public func replaceNil<T>(with output: T) -> Publishers.Sequence<[T?], Failure> where Output == T? {
    map { $0 ?? output }
  }
  /// For each element, the accumulated result of all elements so far.
  @inlinable public func scan<T>(
    _ initialResult: T, _ nextPartialResult: (T, Output) -> T
  ) -> Publishers.Sequence<[T], Failure> {
    var result = initialResult
    return map {
      result = nextPartialResult(result, $0)
      return result
    }
  }
}

extension Publishers.Sequence where Failure == Never {
  /// The least element; of equal elements the first.
  @inlinable public func min(by areInIncreasingOrder: (Output, Output) -> Bool) -> Output?.Publisher {
    sequence.min(by: areInIncreasingOrder).publisher
  }
  /// The greatest element; of equal elements the first.
  @inlinable public func max(by areInIncreasingOrder: (Output, Output) -> Bool) -> Output?.Publisher {
    sequence.max(by: areInIncreasingOrder).publisher
  }
  /// The first element that the closure accepts.
  @inlinable public func first(where predicate: (Output) -> Bool) -> Output?.Publisher {
    sequence.first(where: predicate).publisher
  }
  /// The same elements with another failure type.
  public func setFailureType<E: Error>(to failureType: E.Type) -> Publishers.Sequence<Elements, E> {
    .init(sequence: sequence)
  }
}

extension Publishers.Sequence where Elements.Element: Equatable {
  /// The elements that differ from the previous one.
  @inlinable public func removeDuplicates() -> Publishers.Sequence<[Output], Failure> {
    var previous: Output?
    return filter { element in
      defer { previous = element }
      return element != previous
    }
  }
  /// Whether one of the elements equals `output`.
  @inlinable public func contains(_ output: Output) -> Result<Bool, Failure>.Publisher {
    .init(sequence.contains(output))
  }
}

extension Publishers.Sequence where Failure == Never, Elements.Element: Comparable {
  /// The least element; of equal elements the first.
  @inlinable public func min() -> Output?.Publisher { sequence.min().publisher }
  /// The greatest element; of equal elements the first.
  @inlinable public func max() -> Output?.Publisher { sequence.max().publisher }
}

extension Publishers.Sequence where Elements: Collection {
  /// The number of elements.
  public func count() -> Result<Int, Failure>.Publisher { .init(sequence.count) }
  /// The elements at those of the indices that exist.
  public func output(in range: Range<Elements.Index>) -> Publishers.Sequence<[Output], Failure> {
    .init(sequence: Array(sequence[range.clamped(to: sequence.startIndex..<sequence.endIndex)]))
  }
}

extension Publishers.Sequence where Elements: Collection, Failure == Never {
  /// The first element.
  public func first() -> Output?.Publisher { sequence.first.publisher }
  /// The element at this index, if there is one.
  public func output(at index: Elements.Index) -> Output?.Publisher {
    Output?.Publisher(sequence.startIndex <= index && index < sequence.endIndex ? sequence[index] : nil)
  }
}

extension Publishers.Sequence where Elements: BidirectionalCollection, Failure == Never {
  /// The last element.
  public func last() -> Output?.Publisher { sequence.last.publisher }
  /// The last element that the closure accepts.
  public func last(where predicate: (Output) -> Bool) -> Output?.Publisher { sequence.last(where: predicate).publisher }
}

extension Publishers.Sequence where Elements: RandomAccessCollection, Failure == Never {
  /// The number of elements.
  public func count() -> Just<Int> { Just(sequence.count) }
}

extension Publishers.Sequence where Elements: RangeReplaceableCollection {
  /// These values, then the elements.
  public func prepend(_ elements: Output...) -> Self { prepend(elements) }
  /// These values, then the elements.
  public func prepend<S: Swift.Sequence<Output>>(_ elements: S) -> Self {
    Self(sequence: Elements(elements) + sequence)
  }
  /// The elements of `publisher`, then these elements.
  public func prepend(_ publisher: Self) -> Self { prepend(publisher.sequence) }
  /// The elements, then these values.
  public func append(_ elements: Output...) -> Self { append(elements) }
  /// The elements, then these values.
  public func append<S: Swift.Sequence<Output>>(_ elements: S) -> Self { Self(sequence: sequence + elements) }
  /// These elements, then the elements of `publisher`.
  public func append(_ publisher: Self) -> Self { append(publisher.sequence) }
}
