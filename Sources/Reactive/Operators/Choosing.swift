// Operators that deliver some of the values, unchanged. An omitted value uses no demand.

extension Publishers {
  /// Delivers the values that the closure accepts.
  public typealias Filter<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.Filter>
  /// Delivers the values that the closure accepts; fails with the error that it throws.
  public typealias TryFilter<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.Filter>
  /// Delivers the values that differ from the previous one.
  public typealias RemoveDuplicates<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.RemoveDuplicates>
  /// Delivers the values that differ from the previous one; fails with the error that the closure throws.
  public typealias TryRemoveDuplicates<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.RemoveDuplicates>
  /// Delivers all values except the first ones.
  public typealias Drop<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.Drop>
  /// Delivers the first value that the closure rejects, and all after it.
  public typealias DropWhile<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.DropWhile>
  /// Delivers the first value that the closure rejects, and all after it; fails with the error that it throws.
  public typealias TryDropWhile<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.DropWhile>
}

extension Publishers.Staged
where Mode: Fallibility, Output == Upstream.Output, Kind == OperatorKind.Filter {
  /// ``Publishers/Filter`` and ``Publishers/TryFilter``.
  @inlinable public init(upstream: Upstream, isIncluded: @escaping (Output) throws(Mode.Thrown) -> Bool) {
    self.init(upstream, "Filter") { value throws(Mode.Thrown) in try isIncluded(value) ? .emit(value) : .skip }
  }
}

extension Publishers.Staged
where Mode: Fallibility, Output == Upstream.Output, Kind == OperatorKind.RemoveDuplicates {
  /// ``Publishers/RemoveDuplicates`` and `Publishers.TryRemoveDuplicates`. `predicate` returns whether the previous value
  /// and this value are equal.
  @inlinable public init(upstream: Upstream, predicate: @escaping (Output, Output) throws(Mode.Thrown) -> Bool) {
    self.init(upstream, "RemoveDuplicates", from: nil as Output?) { previous, value throws(Mode.Thrown) in
      if let previous, try predicate(previous, value) { return .skip }
      previous = value
      return .emit(value)
    }
  }
}

extension Publishers.Staged where Mode: Fallibility, Output == Upstream.Output, Kind == OperatorKind.Drop {
  /// ``Publishers/Drop``.
  @inlinable public init(upstream: Upstream, count: Int) {
    precondition(count >= 0, "count must not be negative, it is \(count)")
    self.init(upstream, "Drop", from: count) { left, value in
      if left == 0 { return .emit(value) }
      left -= 1
      return .skip
    }
  }
}

extension Publishers.Staged
where Mode: Fallibility, Output == Upstream.Output, Kind == OperatorKind.DropWhile {
  /// ``Publishers/DropWhile`` and ``Publishers/TryDropWhile``.
  @inlinable public init(upstream: Upstream, predicate: @escaping (Output) throws(Mode.Thrown) -> Bool) {
    self.init(upstream, "DropWhile", from: true) { isDropping, value throws(Mode.Thrown) in
      if isDropping { isDropping = try predicate(value) }
      return isDropping ? .skip : .emit(value)
    }
  }
}

extension Publisher {
  /// Delivers the values that the closure accepts; an omitted value uses no demand.
  @inlinable public func filter(_ isIncluded: @escaping (Output) -> Bool) -> Publishers.Filter<Self> {
    .init(upstream: self, isIncluded: isIncluded)
  }

  /// Delivers the values that the closure accepts; an omitted value uses no demand. Fails with the first error thrown.
  @inlinable public func tryFilter(_ isIncluded: @escaping (Output) throws -> Bool) -> Publishers.TryFilter<Self> {
    .init(upstream: self, isIncluded: isIncluded)
  }

  /// Delivers the values that the closure, given the previous value, does not report as equal; an omitted value uses no
  /// demand.
  @inlinable public func removeDuplicates(by predicate: @escaping (Output, Output) -> Bool)
    -> Publishers.RemoveDuplicates<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers the values that the closure, given the previous value, does not report as equal; an omitted value uses no
  /// demand. Fails with the first error thrown.
  @inlinable public func tryRemoveDuplicates(
    by predicate: @escaping (Output, Output) throws -> Bool
  ) -> Publishers.TryRemoveDuplicates<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Omits values until the closure rejects one; delivers that value and all after it. An omitted value uses no demand.
  @inlinable public func drop(while predicate: @escaping (Output) -> Bool) -> Publishers.DropWhile<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Omits values until the closure rejects one; delivers that value and all after it. An omitted value uses no demand.
  /// Fails with the first error thrown.
  @inlinable public func tryDrop(while predicate: @escaping (Output) throws -> Bool) -> Publishers.TryDropWhile<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Omits the first `count` values, which use no demand.
  @inlinable public func dropFirst(_ count: Int = 1) -> Publishers.Drop<Self> { .init(upstream: self, count: count) }
}

extension Publisher where Output: Equatable {
  /// Delivers the values that differ from the previous one; an omitted value uses no demand.
  @inlinable public func removeDuplicates() -> Publishers.RemoveDuplicates<Self> { removeDuplicates(by: ==) }
}
