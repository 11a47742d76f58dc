// Operators that answer a question about all values: with the first that decides it, or at the end.

extension Publishers {
  /// Delivers whether one of the values equals `output`.
  public struct Contains<Upstream: Publisher>: Fold where Upstream.Output: Equatable {
    /// The answer.
    public typealias Output = Bool
    /// Where the values come from.
    public let upstream: Upstream
    /// The value looked for.
    public let output: Upstream.Output

    /// The operator behind `upstream`.
    public init(upstream: Upstream, output: Upstream.Output) { (self.upstream, self.output) = (upstream, output) }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Bool, Upstream.Failure> {
      Folding(take: { [output] in $0 == output ? .finish(last: true) : .skip }, answer: { .finish(last: false) })
    }
  }

  /// Delivers whether the closure accepts one of the values.
  public typealias ContainsWhere<Upstream: Publisher> = Containing<Upstream, Unthrowing<Upstream.Failure>>
  /// Delivers whether the closure accepts one of the values; fails with what it throws.
  public typealias TryContainsWhere<Upstream: Publisher> = Containing<Upstream, Throwing<Upstream.Failure>>

  /// ``ContainsWhere`` and ``TryContainsWhere``.
  public struct Containing<Upstream: Publisher, Mode: Fallibility<Upstream.Failure>>: Fold, TryingOperator {
    /// The answer.
    public typealias Output = Bool
    /// Where the values come from.
    public let upstream: Upstream
    /// What is asked of each value.
    public let predicate: (Upstream.Output) throws(Mode.Thrown) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool) {
      (self.upstream, self.predicate) = (upstream, predicate)
    }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Bool, Mode.Failure> {
      Folding(
        take: { [predicate] value in
          Mode.attempt { () throws(Mode.Thrown) in try predicate(value) ? .finish(last: true) : .skip }
        }, answer: { .finish(last: false) })
    }
  }

  /// Delivers whether the closure accepts all values.
  public typealias AllSatisfy<Upstream: Publisher> = Satisfying<Upstream, Unthrowing<Upstream.Failure>>
  /// Delivers whether the closure accepts all values; fails with what it throws.
  public typealias TryAllSatisfy<Upstream: Publisher> = Satisfying<Upstream, Throwing<Upstream.Failure>>

  /// ``AllSatisfy`` and ``TryAllSatisfy``.
  public struct Satisfying<Upstream: Publisher, Mode: Fallibility<Upstream.Failure>>: Fold, TryingOperator {
    /// The answer.
    public typealias Output = Bool
    /// Where the values come from.
    public let upstream: Upstream
    /// What is asked of each value.
    public let predicate: (Upstream.Output) throws(Mode.Thrown) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool) {
      (self.upstream, self.predicate) = (upstream, predicate)
    }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Bool, Mode.Failure> {
      Folding(
        take: { [predicate] value in
          Mode.attempt { () throws(Mode.Thrown) in try predicate(value) ? .skip : .finish(last: false) }
        }, answer: { .finish(last: true) })
    }
  }
}

extension Publisher where Output: Equatable {
  /// Delivers whether one of the values equals `output`: true with the first that does. Asks for everything at once.
  public func contains(_ output: Output) -> Publishers.Contains<Self> {
    Publishers.Contains(upstream: self, output: output)
  }
}

extension Publisher {
  /// Delivers whether the closure accepts one of the values: true with the first. Asks for everything at once.
  public func contains(where predicate: @escaping (Output) -> Bool) -> Publishers.ContainsWhere<Self> {
    Publishers.ContainsWhere(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts one of the values; the first error thrown ends it.
  ///
  /// Demand: upstream is asked for everything at once; the answer waits for demand.
  public func tryContains(where predicate: @escaping (Output) throws -> Bool) -> Publishers.TryContainsWhere<Self> {
    Publishers.TryContainsWhere(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts all values: false with the first it does not. Asks for everything at once.
  public func allSatisfy(_ predicate: @escaping (Output) -> Bool) -> Publishers.AllSatisfy<Self> {
    Publishers.AllSatisfy(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts all values; the first error thrown ends it.
  ///
  /// Demand: upstream is asked for everything at once; the answer waits for demand.
  public func tryAllSatisfy(_ predicate: @escaping (Output) throws -> Bool) -> Publishers.TryAllSatisfy<Self> {
    Publishers.TryAllSatisfy(upstream: self, predicate: predicate)
  }
}
