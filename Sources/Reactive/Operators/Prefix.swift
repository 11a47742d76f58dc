// Operators that deliver values up to some point, then finish and cancel upstream.

extension Publishers {
  /// Delivers the values whose index, from 0, is in a range, and finishes after the last of them; for an empty range,
  /// immediately.
  public struct Output<Upstream: Publisher>: CompositePublisher {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The indices of the values to deliver.
    public let range: CountableRange<Int>

    /// `upstream.output(in: range)`. Indices below 0 select nothing.
    @inlinable public init(upstream: Upstream, range: CountableRange<Int>) {
      (self.upstream, self.range) = (upstream, range.indices)
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
    /// Returns whether a value is accepted.
    public let predicate: @Sendable (Upstream.Output) -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.first(where: predicate)`
    @preconcurrency @inlinable public init(upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) -> Bool)
    {
      self.predicate = predicate
      body = Folded(upstream, "FirstWhere") { Stage { predicate($0) ? .finish(last: $0) : .skip } }
    }
  }

  /// Delivers the first value that the closure accepts; fails with the error that it throws.
  public struct TryFirstWhere<Upstream: Publisher>: CompositePublisher {
    /// Returns whether a value is accepted.
    public let predicate: @Sendable (Upstream.Output) throws -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryFirst(where: predicate)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) throws -> Bool
    ) {
      self.predicate = predicate
      body = Folded(upstream, "TryFirstWhere") { Stage { try predicate($0) ? .finish(last: $0) : .skip } }
    }
  }

  /// Delivers values until the closure rejects one.
  public struct PrefixWhile<Upstream: Publisher>: CompositePublisher {
    /// Returns whether to continue with a value.
    public let predicate: @Sendable (Upstream.Output) -> Bool
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.prefix(while: predicate)`
    @preconcurrency @inlinable public init(upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) -> Bool)
    {
      self.predicate = predicate
      body = Staged(upstream, "PrefixWhile") { predicate($0) ? .emit($0) : .finish(last: nil) }
    }
  }

  /// Delivers values until the closure rejects one; fails with the error that it throws.
  public struct TryPrefixWhile<Upstream: Publisher>: CompositePublisher {
    /// Returns whether to continue with a value.
    public let predicate: @Sendable (Upstream.Output) throws -> Bool
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryPrefix(while: predicate)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) throws -> Bool
    ) {
      self.predicate = predicate
      body = Staged(upstream, "TryPrefixWhile") { try predicate($0) ? .emit($0) : .finish(last: nil) }
    }
  }
}

extension RangeExpression<Int> {
  /// The range's part from 0 up to, but not including, `Int.max`: no publisher delivers that many values.
  @usableFromInline var indices: Range<Int> {
    // A range through Int.max traps when it is made relative to a collection.
    let range: Range<Int> =
      switch self {
      case let closed as ClosedRange<Int>: closed.lowerBound..<closed.upperBound.next
      case let through as PartialRangeThrough<Int>: .min..<through.upperBound.next
      default: relative(to: .min..<Int.max)
      }
    return range.clamped(to: 0..<Int.max)
  }
}

extension Int {
  /// The number after this one; `Int.max` has none and is returned itself.
  fileprivate var next: Int { self == .max ? self : self + 1 }
}

extension Publishers.Output: Equatable where Upstream: Equatable {}
extension Publishers.First: Equatable where Upstream: Equatable {}

extension Publisher {
  /// Delivers the values from index `range.lowerBound` on, counted from 0, and finishes before the upper bound. Indices
  /// below 0 select nothing. Demand: passed upstream, plus one for each omitted value.
  @inlinable public func output<R: RangeExpression<Int>>(in range: R) -> Publishers.Output<Self> {
    .init(upstream: self, range: range.indices)
  }

  /// Delivers the value with this index, counted from 0, and finishes; omitted values use no demand.
  ///
  /// - Precondition: `index` is not negative.
  @inlinable public func output(at index: Int) -> Publishers.Output<Self> {
    precondition(index >= 0, "index must not be negative, it is \(index)")
    return output(in: index...index)
  }

  /// Delivers the first `maxLength` values and finishes with the last of them; for 0, immediately. Demand: passed
  /// upstream unchanged.
  ///
  /// - Precondition: `maxLength` is not negative.
  @inlinable public func prefix(_ maxLength: Int) -> Publishers.Output<Self> {
    precondition(maxLength >= 0, "maxLength must not be negative, it is \(maxLength)")
    return output(in: 0..<maxLength)
  }

  /// Delivers values until the closure rejects one, then finishes. Demand: passed upstream unchanged.
  @preconcurrency @inlinable public func prefix(while predicate: @escaping @Sendable (Output) -> Bool)
    -> Publishers.PrefixWhile<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers values until the closure rejects one, then finishes; fails with the first error thrown. Demand: passed
  /// upstream unchanged.
  @preconcurrency @inlinable public func tryPrefix(while predicate: @escaping @Sendable (Output) throws -> Bool)
    -> Publishers.TryPrefixWhile<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers the first value and finishes. Demand: unlimited, requested on subscription; the value waits for demand.
  @inlinable public func first() -> Publishers.First<Self> { .init(upstream: self) }

  /// Delivers the first value that the closure accepts and finishes. Demand: unlimited, requested on subscription; the
  /// value waits for demand.
  @preconcurrency @inlinable public func first(where predicate: @escaping @Sendable (Output) -> Bool)
    -> Publishers.FirstWhere<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers the first value that the closure accepts and finishes; fails with the first error thrown. Demand:
  /// unlimited, requested on subscription; the value waits for demand.
  @preconcurrency @inlinable public func tryFirst(where predicate: @escaping @Sendable (Output) throws -> Bool)
    -> Publishers.TryFirstWhere<Self>
  {
    .init(upstream: self, predicate: predicate)
  }
}
