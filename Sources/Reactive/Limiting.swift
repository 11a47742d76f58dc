// Operators that deliver values up to some point, then finish and cancel upstream.

extension Publishers {
  /// Delivers the values whose index, from 0, is in a range, and finishes after its last.
  public struct Output<Upstream: Publisher>: Stage {
    /// Where the values come from.
    public let upstream: Upstream
    /// Which values are delivered.
    public let range: CountableRange<Int>

    /// The operator behind `upstream`.
    public init(upstream: Upstream, range: CountableRange<Int>) {
      self.upstream = upstream
      self.range = range
    }

    /// An empty range has no value to wait for.
    public var isOver: Bool { range.isEmpty }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Upstream.Failure> {
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
  public struct PrefixWhile<Upstream: Publisher>: Stage {
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether a value is still delivered.
    public let predicate: (Upstream.Output) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Upstream.Failure> {
      { [predicate] in predicate($0) ? .emit($0) : .finish(last: nil) }
    }
  }

  /// Delivers values until the closure does not accept one; fails with what it throws.
  public struct TryPrefixWhile<Upstream: Publisher>: Stage {
    /// What the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether a value is still delivered.
    public let predicate: (Upstream.Output) throws -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, any Error> {
      { [predicate] value in attempt { try predicate(value) ? .emit(value) : .finish(last: nil) } }
    }
  }

  /// Delivers the first value.
  public struct First<Upstream: Publisher>: Stage {
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) {
      self.upstream = upstream
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Upstream.Failure> {
      { .finish(last: $0) }
    }
  }

  /// Delivers the first value that the closure accepts.
  public struct FirstWhere<Upstream: Publisher>: Stage {
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether this is the value to deliver.
    public let predicate: (Upstream.Output) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Upstream.Failure> {
      { [predicate] in predicate($0) ? .finish(last: $0) : .skip }
    }
  }

  /// Delivers the first value that the closure accepts; fails with what it throws.
  public struct TryFirstWhere<Upstream: Publisher>: Stage {
    /// What the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether this is the value to deliver.
    public let predicate: (Upstream.Output) throws -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, any Error> {
      { [predicate] value in attempt { try predicate(value) ? .finish(last: value) : .skip } }
    }
  }
}

extension Publisher {
  /// Delivers the values from index `range.lowerBound` on, the first being 0, and finishes before its upper bound.
  public func output<R: RangeExpression<Int>>(in range: R) -> Publishers.Output<Self> {
    Publishers.Output(upstream: self, range: range.relative(to: 0..<Int.max))
  }

  /// Delivers the value with this index, the first being 0, and finishes.
  public func output(at index: Int) -> Publishers.Output<Self> { output(in: index...index) }

  /// Delivers the first `maxLength` values and finishes with the last of them; with 0, at once.
  public func prefix(_ maxLength: Int) -> Publishers.Output<Self> { output(in: 0..<maxLength) }

  /// Delivers values until the closure does not accept one, and finishes.
  public func prefix(while predicate: @escaping (Output) -> Bool) -> Publishers.PrefixWhile<Self> {
    Publishers.PrefixWhile(upstream: self, predicate: predicate)
  }

  /// Delivers values until the closure does not accept one, and finishes; the first error thrown ends it.
  public func tryPrefix(while predicate: @escaping (Output) throws -> Bool) -> Publishers.TryPrefixWhile<Self> {
    Publishers.TryPrefixWhile(upstream: self, predicate: predicate)
  }

  /// Delivers the first value and finishes.
  public func first() -> Publishers.First<Self> { Publishers.First(upstream: self) }

  /// Delivers the first value that the closure accepts and finishes.
  public func first(where predicate: @escaping (Output) -> Bool) -> Publishers.FirstWhere<Self> {
    Publishers.FirstWhere(upstream: self, predicate: predicate)
  }

  /// Delivers the first value that the closure accepts and finishes; the first error thrown ends it.
  public func tryFirst(where predicate: @escaping (Output) throws -> Bool) -> Publishers.TryFirstWhere<Self> {
    Publishers.TryFirstWhere(upstream: self, predicate: predicate)
  }
}
