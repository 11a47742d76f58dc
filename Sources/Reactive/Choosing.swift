// Operators that deliver some of the values, unchanged.

extension Publishers {
  /// Delivers the values that the closure accepts.
  public struct Filter<Upstream: Publisher>: Stage {
    /// The same values.
    public typealias Output = Upstream.Output
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether a value is delivered.
    public let isIncluded: (Output) -> Bool

    /// `upstream.filter(isIncluded)`
    public init(upstream: Upstream, isIncluded: @escaping (Output) -> Bool) {
      self.upstream = upstream
      self.isIncluded = isIncluded
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, Failure> {
      { [isIncluded] in isIncluded($0) ? .emit($0) : .skip }
    }
  }

  /// Delivers the values that differ from the one before.
  public struct RemoveDuplicates<Upstream: Publisher>: Stage {
    /// The same values.
    public typealias Output = Upstream.Output
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether the value before and a value are equal.
    public let predicate: (Output, Output) -> Bool

    /// `upstream.removeDuplicates(by: predicate)`
    public init(upstream: Upstream, predicate: @escaping (Output, Output) -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, Failure> {
      var previous: Output?
      return { [predicate] value in
        if let previous, predicate(previous, value) { return .skip }
        previous = value
        return .emit(value)
      }
    }
  }

  /// Delivers the values whose index, from 0, is in a range, and finishes after its last.
  public struct Output<Upstream: Publisher>: Stage {
    /// The same values.
    public typealias Output = Upstream.Output
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream
    /// Which values are delivered.
    public let range: CountableRange<Int>

    /// `upstream.output(in: range)`
    public init(upstream: Upstream, range: CountableRange<Int>) {
      precondition(range.lowerBound >= 0, "an index must not be negative, it is \(range.lowerBound)")
      self.upstream = upstream
      self.range = range
    }

    /// An empty range has no value to wait for.
    public var isOver: Bool { range.isEmpty }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Failure> {
      var index = 0
      return { [range] value in
        defer { index += 1 }
        if index < range.lowerBound { return .skip }
        return index < range.upperBound - 1 ? .emit(value) : .finish(last: value)
      }
    }
  }

  /// Delivers the first value that the closure accepts, then finishes.
  public struct FirstWhere<Upstream: Publisher>: Stage {
    /// The same values.
    public typealias Output = Upstream.Output
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether this is the value to deliver.
    public let predicate: (Output) -> Bool

    /// `upstream.first(where: predicate)`
    public init(upstream: Upstream, predicate: @escaping (Output) -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, Failure> {
      { [predicate] in predicate($0) ? .finish(last: $0) : .skip }
    }
  }

  /// Delivers the first value, then finishes.
  public struct First<Upstream: Publisher>: Stage {
    /// The same values.
    public typealias Output = Upstream.Output
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream

    /// `upstream.first()`
    public init(upstream: Upstream) { self.upstream = upstream }

    /// What becomes of each value.
    @inlinable
    public func begin() -> (Upstream.Output) -> Verdict<Output, Failure> { { .finish(last: $0) } }
  }
}

extension Publisher {
  /// Delivers the values that the closure accepts.
  public func filter(_ isIncluded: @escaping (Output) -> Bool) -> Publishers.Filter<Self> {
    Publishers.Filter(upstream: self, isIncluded: isIncluded)
  }

  /// Delivers the values for which the closure, given the value before, says that they are not equal.
  public func removeDuplicates(by predicate: @escaping (Output, Output) -> Bool) -> Publishers.RemoveDuplicates<Self> {
    Publishers.RemoveDuplicates(upstream: self, predicate: predicate)
  }

  /// Delivers the values from index `range.lowerBound` on, the first being 0, and finishes before its upper bound.
  public func output<R: RangeExpression<Int>>(in range: R) -> Publishers.Output<Self> {
    Publishers.Output(upstream: self, range: range.relative(to: 0..<Int.max))
  }

  /// Delivers the value with this index, the first being 0, and finishes.
  public func output(at index: Int) -> Publishers.Output<Self> { output(in: index...index) }

  /// Delivers the first `maxLength` values and finishes with the last of them; with 0, at once.
  public func prefix(_ maxLength: Int) -> Publishers.Output<Self> { output(in: 0..<maxLength) }

  /// Delivers the first value and finishes.
  public func first() -> Publishers.First<Self> { Publishers.First(upstream: self) }

  /// Delivers the first value that the closure accepts and finishes.
  public func first(where predicate: @escaping (Output) -> Bool) -> Publishers.FirstWhere<Self> {
    Publishers.FirstWhere(upstream: self, predicate: predicate)
  }
}

extension Publisher where Output: Equatable {
  /// Delivers the values that differ from the one before.
  public func removeDuplicates() -> Publishers.RemoveDuplicates<Self> { removeDuplicates(by: ==) }
}
