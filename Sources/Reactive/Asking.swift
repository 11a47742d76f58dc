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
    public init(upstream: Upstream, output: Upstream.Output) {
      self.upstream = upstream
      self.output = output
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Bool, Upstream.Failure> {
      Folding(take: { [output] in $0 == output ? .finish(last: true) : .skip }, answer: { .finish(last: false) })
    }
  }

  /// Delivers whether the closure accepts one of the values.
  public struct ContainsWhere<Upstream: Publisher>: Fold {
    /// The answer.
    public typealias Output = Bool
    /// Where the values come from.
    public let upstream: Upstream
    /// What is asked of each value.
    public let predicate: (Upstream.Output) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Bool, Upstream.Failure> {
      Folding(take: { [predicate] in predicate($0) ? .finish(last: true) : .skip }, answer: { .finish(last: false) })
    }
  }

  /// Delivers whether the closure accepts one of the values; fails with what it throws.
  public struct TryContainsWhere<Upstream: Publisher>: Fold {
    /// The answer.
    public typealias Output = Bool
    /// What the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// What is asked of each value.
    public let predicate: (Upstream.Output) throws -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Bool, any Error> {
      Folding(
        take: { [predicate] value in attempt { try predicate(value) ? .finish(last: true) : .skip } },
        answer: { .finish(last: false) })
    }
  }

  /// Delivers whether the closure accepts all values.
  public struct AllSatisfy<Upstream: Publisher>: Fold {
    /// The answer.
    public typealias Output = Bool
    /// Where the values come from.
    public let upstream: Upstream
    /// What is asked of each value.
    public let predicate: (Upstream.Output) -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Bool, Upstream.Failure> {
      Folding(take: { [predicate] in predicate($0) ? .skip : .finish(last: false) }, answer: { .finish(last: true) })
    }
  }

  /// Delivers whether the closure accepts all values; fails with what it throws.
  public struct TryAllSatisfy<Upstream: Publisher>: Fold {
    /// The answer.
    public typealias Output = Bool
    /// What the closure throws, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream
    /// What is asked of each value.
    public let predicate: (Upstream.Output) throws -> Bool

    /// The operator behind `upstream`.
    public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws -> Bool) {
      self.upstream = upstream
      self.predicate = predicate
    }

    /// What becomes of the values.
    @inlinable
    public func begin() -> Folding<Upstream.Output, Bool, any Error> {
      Folding(
        take: { [predicate] value in attempt { try predicate(value) ? .skip : .finish(last: false) } },
        answer: { .finish(last: true) })
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
  public func tryContains(where predicate: @escaping (Output) throws -> Bool) -> Publishers.TryContainsWhere<Self> {
    Publishers.TryContainsWhere(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts all values: false with the first it does not. Asks for everything at once.
  public func allSatisfy(_ predicate: @escaping (Output) -> Bool) -> Publishers.AllSatisfy<Self> {
    Publishers.AllSatisfy(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts all values; the first error thrown ends it.
  public func tryAllSatisfy(_ predicate: @escaping (Output) throws -> Bool) -> Publishers.TryAllSatisfy<Self> {
    Publishers.TryAllSatisfy(upstream: self, predicate: predicate)
  }
}
