// Operators that answer a question about all values: with the first value that decides it, or when upstream finishes.

extension Publishers {
  /// Delivers whether one of the values equals another.
  public struct Contains<Upstream: Publisher>: CompositePublisher where Upstream.Output: Equatable {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The value to look for.
    public let output: Upstream.Output

    /// `upstream.contains(output)`
    @inlinable public init(upstream: Upstream, output: Upstream.Output) {
      (self.upstream, self.output) = (upstream, output)
    }

    /// The implementation.
    @inlinable public var body: Folded<Upstream, Bool, Unthrowing<Upstream.Failure>> {
      Folded(upstream, "Contains", false, unless: true) { [output] in $0 == output }
    }
  }

  /// Delivers whether the closure accepts one of the values.
  public struct ContainsWhere<Upstream: Publisher>: CompositePublisher {
    /// Returns whether a value is accepted.
    public let predicate: @Sendable (Upstream.Output) -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Bool, Unthrowing<Upstream.Failure>>

    /// `upstream.contains(where: predicate)`
    @preconcurrency @inlinable public init(upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) -> Bool)
    {
      self.predicate = predicate
      body = Folded(upstream, "ContainsWhere", false, unless: true, predicate)
    }
  }

  /// Delivers whether the closure accepts one of the values; fails with the error that it throws.
  public struct TryContainsWhere<Upstream: Publisher>: CompositePublisher {
    /// Returns whether a value is accepted.
    public let predicate: @Sendable (Upstream.Output) throws -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Bool, Throwing<Upstream.Failure>>

    /// `upstream.tryContains(where: predicate)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) throws -> Bool
    ) {
      self.predicate = predicate
      body = Folded(upstream, "TryContainsWhere", false, unless: true, predicate)
    }
  }

  /// Delivers whether the closure accepts all values.
  public struct AllSatisfy<Upstream: Publisher>: CompositePublisher {
    /// Returns whether a value is accepted.
    public let predicate: @Sendable (Upstream.Output) -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Bool, Unthrowing<Upstream.Failure>>

    /// `upstream.allSatisfy(predicate)`
    @preconcurrency @inlinable public init(upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) -> Bool)
    {
      self.predicate = predicate
      body = Folded(upstream, "AllSatisfy", true, unless: false) { !predicate($0) }
    }
  }

  /// Delivers whether the closure accepts all values; fails with the error that it throws.
  public struct TryAllSatisfy<Upstream: Publisher>: CompositePublisher {
    /// Returns whether a value is accepted.
    public let predicate: @Sendable (Upstream.Output) throws -> Bool
    /// The implementation.
    public let body: Folded<Upstream, Bool, Throwing<Upstream.Failure>>

    /// `upstream.tryAllSatisfy(predicate)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) throws -> Bool
    ) {
      self.predicate = predicate
      body = Folded(upstream, "TryAllSatisfy", true, unless: false) { try !predicate($0) }
    }
  }
}

extension Publishers.Contains: Equatable where Upstream: Equatable {}

extension Publisher where Output: Equatable {
  /// Delivers whether one of the values equals `output`: true with the first that does. Demand: unlimited, requested on
  /// subscription.
  @inlinable public func contains(_ output: Output) -> Publishers.Contains<Self> {
    .init(upstream: self, output: output)
  }
}

extension Publisher {
  /// Delivers whether the closure accepts one of the values: true with the first. Demand: unlimited, requested on
  /// subscription.
  @preconcurrency @inlinable public func contains(where predicate: @escaping @Sendable (Output) -> Bool)
    -> Publishers.ContainsWhere<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts one of the values; fails with the first error thrown. Demand: unlimited,
  /// requested on subscription.
  @preconcurrency @inlinable public func tryContains(where predicate: @escaping @Sendable (Output) throws -> Bool)
    -> Publishers.TryContainsWhere<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts all values: false with the first that it rejects. Demand: unlimited,
  /// requested on subscription.
  @preconcurrency @inlinable public func allSatisfy(_ predicate: @escaping @Sendable (Output) -> Bool)
    -> Publishers.AllSatisfy<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts all values; fails with the first error thrown. Demand: unlimited, requested
  /// on subscription.
  @preconcurrency @inlinable public func tryAllSatisfy(_ predicate: @escaping @Sendable (Output) throws -> Bool)
    -> Publishers.TryAllSatisfy<Self>
  {
    .init(upstream: self, predicate: predicate)
  }
}
