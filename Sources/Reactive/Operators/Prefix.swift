// Operators that deliver values up to some point, then finish and cancel upstream.

extension Publishers {
  /// Delivers the values whose index, from 0, is in a range, and finishes after the last of them; for an empty range,
  /// immediately.
  public struct Output<Upstream: Publisher>: CompositePublisher {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The indices of the values to deliver.
    public let range: CountableRange<Int>

    /// `upstream.output(in: range)`
    @inlinable public init(upstream: Upstream, range: CountableRange<Int>) {
      precondition(range.lowerBound >= 0, "lowerBound must not be negative, it is \(range.lowerBound)")
      (self.upstream, self.range) = (upstream, range)
    }

    /// The implementation.
    @inlinable public var body: Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>> {
      Staged(upstream, "Output", from: 0, isOver: range.isEmpty) { [range] index, value in
        if range.isEmpty { return .finish(last: nil) }
        defer { index += 1 }
        if index < range.lowerBound { return .skip }
        return index < range.upperBound - 1 ? .emit(value) : .finish(last: value)
      }
    }
  }

  // First values are requested from upstream on subscription: one that arrives before there is demand waits for it.

  /// Delivers the first value.
  public struct First<Upstream: Publisher>: CompositePublisher {
    /// The upstream publisher.
    public let upstream: Upstream

    /// `upstream.first()`
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// The implementation.
    @inlinable public var body: Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>> {
      Folded(upstream, "First") { Stage { .finish(last: $0) } }
    }
  }

  /// Delivers the first value that the closure accepts.
  public struct FirstWhere<Upstream: Publisher>: CompositePublisher {
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.first(where: predicate)`
    @inlinable public init(upstream: Upstream, predicate: @escaping (Upstream.Output) -> Bool) {
      body = Folded(upstream, "FirstWhere") { Stage { predicate($0) ? .finish(last: $0) : .skip } }
    }
  }

  /// Delivers the first value that the closure accepts; fails with the error that it throws.
  public struct TryFirstWhere<Upstream: Publisher>: CompositePublisher {
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryFirst(where: predicate)`
    @inlinable public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws -> Bool) {
      body = Folded(upstream, "TryFirstWhere") { Stage { try predicate($0) ? .finish(last: $0) : .skip } }
    }
  }

  /// Delivers values until the closure rejects one.
  public struct PrefixWhile<Upstream: Publisher>: CompositePublisher {
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.prefix(while: predicate)`
    @inlinable public init(upstream: Upstream, predicate: @escaping (Upstream.Output) -> Bool) {
      body = Staged(upstream, "PrefixWhile") { predicate($0) ? .emit($0) : .finish(last: nil) }
    }
  }

  /// Delivers values until the closure rejects one; fails with the error that it throws.
  public struct TryPrefixWhile<Upstream: Publisher>: CompositePublisher {
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryPrefix(while: predicate)`
    @inlinable public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws -> Bool) {
      body = Staged(upstream, "TryPrefixWhile") { try predicate($0) ? .emit($0) : .finish(last: nil) }
    }
  }
}

extension Publishers.Output: Equatable where Upstream: Equatable {}
extension Publishers.First: Equatable where Upstream: Equatable {}

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
