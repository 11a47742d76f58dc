// Operators that deliver some of the values, unchanged. A value left out costs no demand.

extension Publishers {
  /// Delivers the values that the closure accepts.
  ///
  /// Not one with the form that throws, as others are: the way out for an error costs half a nanosecond a value.
  public struct Filter<Upstream: Publisher>: Stage {
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether a value is delivered.
    public let isIncluded: (Upstream.Output) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, isIncluded: @escaping (Upstream.Output) -> Bool) {
      (self.upstream, self.isIncluded) = (upstream, isIncluded)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Upstream.Failure> {
      { [isIncluded] in isIncluded($0) ? .emit($0) : .skip }
    }
  }

  /// Delivers the values that the closure accepts; fails with what it throws.
  public struct TryFilter<Upstream: Publisher>: Stage {
    /// What the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether a value is delivered.
    public let isIncluded: (Upstream.Output) throws -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, isIncluded: @escaping (Upstream.Output) throws -> Bool) {
      (self.upstream, self.isIncluded) = (upstream, isIncluded)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, any Error> {
      { [isIncluded] value in Throwing<any Error>.attempt { try isIncluded(value) ? .emit(value) : .skip } }
    }
  }

  /// Delivers the values that differ from the one before.
  public typealias RemoveDuplicates<Upstream: Publisher> = RemovingDuplicates<Upstream, Unthrowing<Upstream.Failure>>
  /// Delivers the values that differ from the one before; fails with what the closure throws.
  public typealias TryRemoveDuplicates<Upstream: Publisher> = RemovingDuplicates<Upstream, Throwing<Upstream.Failure>>

  /// ``RemoveDuplicates`` and ``TryRemoveDuplicates``.
  public struct RemovingDuplicates<Upstream: Publisher, Mode: Fallibility<Upstream.Failure>>: Stage, TryingOperator {
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether the value before and a value are equal.
    public let predicate: (Upstream.Output, Upstream.Output) throws(Mode.Thrown) -> Bool

    /// The operator behind `upstream`.
    public init(
      upstream: Upstream, predicate: @escaping (Upstream.Output, Upstream.Output) throws(Mode.Thrown) -> Bool
    ) {
      (self.upstream, self.predicate) = (upstream, predicate)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Mode.Failure> {
      var previous: Upstream.Output?
      return { [predicate] value in
        Mode.attempt { () throws(Mode.Thrown) in
          if let previous, try predicate(previous, value) { return .skip }
          previous = value
          return .emit(value)
        }
      }
    }
  }

  /// Delivers the first value that the closure does not accept, and all after it.
  public typealias DropWhile<Upstream: Publisher> = DroppingWhile<Upstream, Unthrowing<Upstream.Failure>>
  /// Delivers the first value that the closure does not accept, and all after it; fails with what it throws.
  public typealias TryDropWhile<Upstream: Publisher> = DroppingWhile<Upstream, Throwing<Upstream.Failure>>

  /// ``DropWhile`` and ``TryDropWhile``.
  public struct DroppingWhile<Upstream: Publisher, Mode: Fallibility<Upstream.Failure>>: Stage, TryingOperator {
    /// Where the values come from.
    public let upstream: Upstream
    /// Whether a value is still left out.
    public let predicate: (Upstream.Output) throws(Mode.Thrown) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool) {
      (self.upstream, self.predicate) = (upstream, predicate)
    }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Mode.Failure> {
      var isDropping = true
      return { [predicate] value in
        Mode.attempt { () throws(Mode.Thrown) in
          if isDropping { isDropping = try predicate(value) }
          return isDropping ? .skip : .emit(value)
        }
      }
    }
  }

  /// Delivers the values after the first `count`.
  public struct Drop<Upstream: Publisher>: Stage {
    /// Where the values come from.
    public let upstream: Upstream
    /// How many are left out.
    public let count: Int

    /// The operator behind `upstream`.
    public init(upstream: Upstream, count: Int) { (self.upstream, self.count) = (upstream, count) }

    /// What becomes of each value.
    @inlinable public func begin() -> (Upstream.Output) -> Verdict<Upstream.Output, Upstream.Failure> {
      precondition(count >= 0, "a count must not be negative, it is \(count)")
      var left = count
      return { value in
        if left == 0 { return .emit(value) }
        left -= 1
        return .skip
      }
    }
  }
}

extension Publisher {
  /// Delivers the values that the closure accepts; one left out costs no demand.
  public func filter(_ isIncluded: @escaping (Output) -> Bool) -> Publishers.Filter<Self> {
    Publishers.Filter(upstream: self, isIncluded: isIncluded)
  }

  /// Delivers the values that the closure accepts; the first error thrown ends it.
  ///
  /// Demand: upstream's; another for each value left out.
  public func tryFilter(_ isIncluded: @escaping (Output) throws -> Bool) -> Publishers.TryFilter<Self> {
    Publishers.TryFilter(upstream: self, isIncluded: isIncluded)
  }

  /// Delivers the values for which the closure, given the value before, says that they are not equal.
  ///
  /// Demand: upstream's; another for each value left out.
  public func removeDuplicates(by predicate: @escaping (Output, Output) -> Bool) -> Publishers.RemoveDuplicates<Self> {
    Publishers.RemoveDuplicates(upstream: self, predicate: predicate)
  }

  /// Delivers the values for which the closure says that they are not equal; the first error thrown ends it.
  ///
  /// Demand: upstream's; another for each value left out.
  public func tryRemoveDuplicates(
    by predicate: @escaping (Output, Output) throws -> Bool
  ) -> Publishers.TryRemoveDuplicates<Self> {
    Publishers.TryRemoveDuplicates(upstream: self, predicate: predicate)
  }

  /// Leaves out values, at no demand, until the closure does not accept one; delivers that and all after it.
  public func drop(while predicate: @escaping (Output) -> Bool) -> Publishers.DropWhile<Self> {
    Publishers.DropWhile(upstream: self, predicate: predicate)
  }

  /// Leaves out values until the closure does not accept one; the first error thrown ends it.
  ///
  /// Demand: upstream's; another for each value left out.
  public func tryDrop(while predicate: @escaping (Output) throws -> Bool) -> Publishers.TryDropWhile<Self> {
    Publishers.TryDropWhile(upstream: self, predicate: predicate)
  }

  /// Leaves out the first `count` values, at no demand.
  public func dropFirst(_ count: Int = 1) -> Publishers.Drop<Self> { Publishers.Drop(upstream: self, count: count) }
}

extension Publisher where Output: Equatable {
  /// Delivers the values that differ from the one before.
  ///
  /// Demand: upstream's; another for each value left out.
  public func removeDuplicates() -> Publishers.RemoveDuplicates<Self> { removeDuplicates(by: ==) }
}
