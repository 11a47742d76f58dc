// Operators that deliver values up to some point, then finish and cancel upstream.

extension Publishers {
  /// Delivers the values whose index, from 0, is in a range, and finishes after the last of them.
  public typealias Output<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.Output>
  /// Delivers the first value.
  public typealias First<Upstream: Publisher> =
    Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.First>
  /// Delivers the first value that the closure accepts.
  public typealias FirstWhere<Upstream: Publisher> =
    Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.FirstWhere>
  /// Delivers the first value that the closure accepts; fails with the error that it throws.
  public typealias TryFirstWhere<Upstream: Publisher> =
    Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.FirstWhere>
  /// Delivers values until the closure rejects one.
  public typealias PrefixWhile<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>, OperatorKind.Prefix>
  /// Delivers values until the closure rejects one; fails with the error that it throws.
  public typealias TryPrefixWhile<Upstream: Publisher> =
    Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>, OperatorKind.Prefix>
}

extension Publishers.Staged
where Mode: Fallibility, Output == Upstream.Output, Kind == OperatorKind.Output {
  /// ``Publishers/Output``. For an empty range it finishes immediately.
  @inlinable public init(upstream: Upstream, range: CountableRange<Int>) {
    precondition(range.lowerBound >= 0, "lowerBound must not be negative, it is \(range.lowerBound)")
    self.init(upstream, "Output", from: 0, isOver: range.isEmpty) { index, value in
      if range.isEmpty { return .finish(last: nil) }
      defer { index += 1 }
      if index < range.lowerBound { return .skip }
      return index < range.upperBound - 1 ? .emit(value) : .finish(last: value)
    }
  }
}

// Values are requested from upstream on subscription: a value that arrives before there is demand waits for it.
extension Publishers.Folded where Output == Upstream.Output, Kind == OperatorKind.First {
  /// ``Publishers/First``.
  @inlinable public init(upstream: Upstream) {
    self.init(upstream, "First") { Stage { value throws(Mode.Thrown) in .finish(last: value) } }
  }
}

extension Publishers.Folded where Output == Upstream.Output, Kind == OperatorKind.FirstWhere {
  /// ``Publishers/FirstWhere`` and ``Publishers/TryFirstWhere``.
  @inlinable public init(upstream: Upstream, predicate: @escaping (Output) throws(Mode.Thrown) -> Bool) {
    self.init(upstream, "FirstWhere") {
      Stage { value throws(Mode.Thrown) in try predicate(value) ? .finish(last: value) : .skip }
    }
  }
}

extension Publishers.Staged where Mode: Fallibility, Output == Upstream.Output, Kind == OperatorKind.Prefix {
  /// ``Publishers/PrefixWhile`` and ``Publishers/TryPrefixWhile``.
  @inlinable public init(upstream: Upstream, predicate: @escaping (Output) throws(Mode.Thrown) -> Bool) {
    self.init(upstream, "PrefixWhile") { value throws(Mode.Thrown) in
      try predicate(value) ? .emit(value) : .finish(last: nil)
    }
  }
}

extension Publisher {
  /// Delivers the values from index `range.lowerBound` on, counted from 0, and finishes before the upper bound. Demand:
  /// passed upstream, plus one for each omitted value.
  @inlinable public func output<R: RangeExpression<Int>>(in range: R) -> Publishers.Output<Self> {
    .init(upstream: self, range: range.relative(to: 0..<Int.max))
  }

  /// Delivers the value with this index, counted from 0, and finishes; omitted values use no demand.
  @inlinable public func output(at index: Int) -> Publishers.Output<Self> {
    precondition(index >= 0, "index must not be negative, it is \(index)")
    return output(in: index...index)
  }

  /// Delivers the first `maxLength` values and finishes with the last of them; for 0, immediately. Demand: passed
  /// upstream unchanged.
  @inlinable public func prefix(_ maxLength: Int) -> Publishers.Output<Self> {
    precondition(maxLength >= 0, "maxLength must not be negative, it is \(maxLength)")
    return output(in: 0..<maxLength)
  }

  /// Delivers values until the closure rejects one, then finishes. Demand: passed upstream unchanged.
  @inlinable public func prefix(while predicate: @escaping (Output) -> Bool) -> Publishers.PrefixWhile<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers values until the closure rejects one, then finishes; fails with the first error thrown. Demand: passed
  /// upstream unchanged.
  @inlinable public func tryPrefix(while predicate: @escaping (Output) throws -> Bool)
    -> Publishers.TryPrefixWhile<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers the first value and finishes. Demand: unlimited, requested on subscription; the value waits for demand.
  @inlinable public func first() -> Publishers.First<Self> { .init(upstream: self) }

  /// Delivers the first value that the closure accepts and finishes. Demand: unlimited, requested on subscription; the
  /// value waits for demand.
  @inlinable public func first(where predicate: @escaping (Output) -> Bool) -> Publishers.FirstWhere<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers the first value that the closure accepts and finishes; fails with the first error thrown. Demand:
  /// unlimited, requested on subscription; the value waits for demand.
  @inlinable public func tryFirst(where predicate: @escaping (Output) throws -> Bool) -> Publishers.TryFirstWhere<Self>
  {
    .init(upstream: self, predicate: predicate)
  }
}
