// Operators that deliver some of the values, unchanged. A value left out costs no demand.

extension Publishers {
  /// Delivers the values that the closure accepts.
  public typealias Filter<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.Filter>
  /// Delivers the values that the closure accepts; fails with what it throws.
  public typealias TryFilter<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.Filter>
  /// Delivers the values that differ from the one before.
  public typealias RemoveDuplicates<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.RemoveDuplicates>
  /// Delivers the values that differ from the one before; fails with what the closure throws.
  public typealias TryRemoveDuplicates<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.RemoveDuplicates>
  /// Delivers the values after the first ones.
  public typealias Drop<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.Drop>
  /// Delivers the first value that the closure does not accept, and all after it.
  public typealias DropWhile<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.DropWhile>
  /// Delivers the first value that the closure does not accept, and all after it; fails with what it throws.
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
  /// ``Publishers/RemoveDuplicates`` and ``Publishers/TryRemoveDuplicates``.
  ///
  /// - Parameter predicate: Whether the value before and a value are equal.
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
  /// Delivers the values that the closure accepts; one left out costs no demand.
  @inlinable public func filter(_ isIncluded: @escaping (Output) -> Bool) -> Publishers.Filter<Self> {
    .init(upstream: self, isIncluded: isIncluded)
  }

  /// Delivers the values that the closure accepts; one left out costs no demand, the first error thrown ends it.
  @inlinable public func tryFilter(_ isIncluded: @escaping (Output) throws -> Bool) -> Publishers.TryFilter<Self> {
    .init(upstream: self, isIncluded: isIncluded)
  }

  /// Delivers the values for which the closure, given the value before, says that they are not equal; one left out
  /// costs no demand.
  @inlinable public func removeDuplicates(by predicate: @escaping (Output, Output) -> Bool)
    -> Publishers.RemoveDuplicates<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers the values for which the closure says that they are not equal; one left out costs no demand, the first
  /// error thrown ends it.
  @inlinable public func tryRemoveDuplicates(
    by predicate: @escaping (Output, Output) throws -> Bool
  ) -> Publishers.TryRemoveDuplicates<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Leaves out values, at no demand, until the closure does not accept one; delivers that and all after it.
  @inlinable public func drop(while predicate: @escaping (Output) -> Bool) -> Publishers.DropWhile<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Leaves out values, at no demand, until the closure does not accept one; the first error thrown ends it.
  @inlinable public func tryDrop(while predicate: @escaping (Output) throws -> Bool) -> Publishers.TryDropWhile<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Leaves out the first `count` values, at no demand.
  @inlinable public func dropFirst(_ count: Int = 1) -> Publishers.Drop<Self> { .init(upstream: self, count: count) }
}

extension Publisher where Output: Equatable {
  /// Delivers the values that differ from the one before; one left out costs no demand.
  @inlinable public func removeDuplicates() -> Publishers.RemoveDuplicates<Self> { removeDuplicates(by: ==) }
}
