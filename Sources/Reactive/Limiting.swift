// Operators that deliver values up to some point, then finish and cancel upstream.

extension Publishers {
  /// Delivers the values whose index, from 0, is in a range, and finishes after its last.
  public struct Output<Upstream: Publisher>: Stage {
    /// Where the values come from.
    public let upstream: Upstream
    /// Which values are delivered.
    public let range: CountableRange<Int>

    /// The operator behind `upstream`.
    public init(upstream: Upstream, range: CountableRange<Int>) { (self.upstream, self.range) = (upstream, range) }

    /// An empty range has no value to wait for.
    public var isOver: Bool { range.isEmpty }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Upstream.Failure> {
      precondition(range.lowerBound >= 0, "an index must not be negative, it is \(range.lowerBound)")
      var index = 0
      return { [range] value in
        defer { index += 1 }
        if index < range.lowerBound { return .skip }
        return index < range.upperBound - 1 ? .emit(value) : .finish(last: value)
      }
    }
  }

  /// Delivers values until the closure does not accept one.
  public typealias PrefixWhile<Upstream: Publisher> = PrefixingWhile<Upstream, Unthrowing<Upstream.Failure>>
  /// Delivers values until the closure does not accept one; fails with what it throws.
  public typealias TryPrefixWhile<Upstream: Publisher> = PrefixingWhile<Upstream, Throwing<Upstream.Failure>>

  /// ``PrefixWhile`` and ``TryPrefixWhile``.
  public struct PrefixingWhile<Upstream: Publisher, Mode: Fallibility<Upstream.Failure>>: Stage, TryingOperator {
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether a value is still delivered.
    public let predicate: (Upstream.Output) throws(Mode.Thrown) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool) {
      (self.upstream, self.predicate) = (upstream, predicate)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Mode.Failure> {
      { [predicate] value in
        Mode.attempt { () throws(Mode.Thrown) in try predicate(value) ? .emit(value) : .finish(last: nil) }
      }
    }
  }

  /// Delivers the first value.
  public struct First<Upstream: Publisher>: Stage {
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) { self.upstream = upstream }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Upstream.Failure> {
      { .finish(last: $0) }
    }
  }

  /// Delivers the first value that the closure accepts.
  public typealias FirstWhere<Upstream: Publisher> = FindingFirst<Upstream, Unthrowing<Upstream.Failure>>
  /// Delivers the first value that the closure accepts; fails with what it throws.
  public typealias TryFirstWhere<Upstream: Publisher> = FindingFirst<Upstream, Throwing<Upstream.Failure>>

  /// ``FirstWhere`` and ``TryFirstWhere``.
  public struct FindingFirst<Upstream: Publisher, Mode: Fallibility<Upstream.Failure>>: Stage, TryingOperator {
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether this is the value to deliver.
    public let predicate: (Upstream.Output) throws(Mode.Thrown) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool) {
      (self.upstream, self.predicate) = (upstream, predicate)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Mode.Failure> {
      { [predicate] value in
        Mode.attempt { () throws(Mode.Thrown) in try predicate(value) ? .finish(last: value) : .skip }
      }
    }
  }
}

extension Publisher {
  /// Delivers the values from index `range.lowerBound` on, the first being 0, and finishes before its upper bound.
  ///
  /// Demand: upstream's; another for each value left out.
  public func output<R: RangeExpression<Int>>(in range: R) -> Publishers.Output<Self> {
    Publishers.Output(upstream: self, range: range.relative(to: 0..<Int.max))
  }

  /// Delivers the value with this index, the first being 0, and finishes.
  ///
  /// Demand: upstream's; another for each value left out.
  public func output(at index: Int) -> Publishers.Output<Self> { output(in: index...index) }

  /// Delivers the first `maxLength` values and finishes with the last of them; with 0, at once.
  ///
  /// Demand: upstream's, value for value.
  public func prefix(_ maxLength: Int) -> Publishers.Output<Self> { output(in: 0..<maxLength) }

  /// Delivers values until the closure does not accept one, and finishes.
  ///
  /// Demand: upstream's, value for value.
  public func prefix(while predicate: @escaping (Output) -> Bool) -> Publishers.PrefixWhile<Self> {
    Publishers.PrefixWhile(upstream: self, predicate: predicate)
  }

  /// Delivers values until the closure does not accept one, and finishes; the first error thrown ends it.
  ///
  /// Demand: upstream's, value for value.
  public func tryPrefix(while predicate: @escaping (Output) throws -> Bool) -> Publishers.TryPrefixWhile<Self> {
    Publishers.TryPrefixWhile(upstream: self, predicate: predicate)
  }

  /// Delivers the first value and finishes.
  ///
  /// Demand: upstream's, value for value.
  public func first() -> Publishers.First<Self> { Publishers.First(upstream: self) }

  /// Delivers the first value that the closure accepts and finishes.
  ///
  /// Demand: upstream's; another for each value left out.
  public func first(where predicate: @escaping (Output) -> Bool) -> Publishers.FirstWhere<Self> {
    Publishers.FirstWhere(upstream: self, predicate: predicate)
  }

  /// Delivers the first value that the closure accepts and finishes; the first error thrown ends it.
  ///
  /// Demand: upstream's; another for each value left out.
  public func tryFirst(where predicate: @escaping (Output) throws -> Bool) -> Publishers.TryFirstWhere<Self> {
    Publishers.TryFirstWhere(upstream: self, predicate: predicate)
  }
}
