// Operators that answer a question about all values: with the first value that decides it, or when upstream finishes.

extension Publishers {
  /// Delivers whether one of the values equals another.
  public typealias Contains<Upstream: Publisher> =
    Folded<Upstream, Bool, Unthrowing<Upstream.Failure>, OperatorKind.Contains>
  where Upstream.Output: Equatable
  /// Delivers whether the closure accepts one of the values.
  public typealias ContainsWhere<Upstream: Publisher> =
    Folded<Upstream, Bool, Unthrowing<Upstream.Failure>, OperatorKind.ContainsWhere>
  /// Delivers whether the closure accepts one of the values; fails with the error that it throws.
  public typealias TryContainsWhere<Upstream: Publisher> =
    Folded<Upstream, Bool, Throwing<Upstream.Failure>, OperatorKind.ContainsWhere>
  /// Delivers whether the closure accepts all values.
  public typealias AllSatisfy<Upstream: Publisher> =
    Folded<Upstream, Bool, Unthrowing<Upstream.Failure>, OperatorKind.All>
  /// Delivers whether the closure accepts all values; fails with the error that it throws.
  public typealias TryAllSatisfy<Upstream: Publisher> =
    Folded<Upstream, Bool, Throwing<Upstream.Failure>, OperatorKind.All>
}

extension Publishers.Folded where Output == Bool, Kind == OperatorKind.Contains {
  /// ``Publishers/Contains``.
  @inlinable public init(upstream: Upstream, output: Upstream.Output) where Upstream.Output: Equatable {
    self.init(upstream, "Contains", false, unless: true) { $0 == output }
  }
}

extension Publishers.Folded where Output == Bool, Kind == OperatorKind.ContainsWhere {
  /// ``Publishers/ContainsWhere`` and ``Publishers/TryContainsWhere``.
  @inlinable public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool) {
    self.init(upstream, "ContainsWhere", false, unless: true, predicate)
  }
}

extension Publishers.Folded where Output == Bool, Kind == OperatorKind.All {
  /// ``Publishers/AllSatisfy`` and ``Publishers/TryAllSatisfy``.
  @inlinable public init(upstream: Upstream, predicate: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool) {
    self.init(upstream, "AllSatisfy", true, unless: false) { value throws(Mode.Thrown) in try !predicate(value) }
  }
}

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
  @inlinable public func contains(where predicate: @escaping (Output) -> Bool) -> Publishers.ContainsWhere<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts one of the values; fails with the first error thrown. Demand: unlimited,
  /// requested on subscription.
  @inlinable public func tryContains(where predicate: @escaping (Output) throws -> Bool)
    -> Publishers.TryContainsWhere<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts all values: false with the first that it rejects. Demand: unlimited,
  /// requested on subscription.
  @inlinable public func allSatisfy(_ predicate: @escaping (Output) -> Bool) -> Publishers.AllSatisfy<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers whether the closure accepts all values; fails with the first error thrown. Demand: unlimited, requested
  /// on subscription.
  @inlinable public func tryAllSatisfy(_ predicate: @escaping (Output) throws -> Bool) -> Publishers.TryAllSatisfy<Self>
  {
    .init(upstream: self, predicate: predicate)
  }
}
