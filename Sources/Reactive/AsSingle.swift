/// Why a publisher was not one of a single value.
public enum SingleError: Error, Equatable, Sendable {
  /// It finished without a value.
  case noElements
  /// It delivered a second value.
  case severalElements
}

extension Publishers {
  /// Delivers the one value; fails when there is none, or a second one.
  public struct AsSingle<Upstream: Publisher>: Fold {
    /// A ``SingleError``, or upstream's failure.
    public typealias Failure = any Error
    /// Where the values come from.
    public let upstream: Upstream

    /// The operator behind `upstream`.
    public init(upstream: Upstream) { self.upstream = upstream }

    /// What becomes of the values.
    @inlinable public func begin() -> Folding<Upstream.Output, Upstream.Output, any Error> {
      var single: Upstream.Output?
      return Folding(
        take: { value in
          if single != nil { return .fail(SingleError.severalElements) }
          single = value
          return .skip
        }, answer: { single.map { .finish(last: $0) } ?? .fail(SingleError.noElements) })
    }
  }
}

extension Publisher {
  /// Delivers the one value, once upstream has finished. Fails with a ``SingleError`` when there is none, and at once,
  /// cancelling upstream, when there is a second one.
  ///
  /// Demand: upstream is asked for everything at once; the answer waits for demand.
  public func asSingle() -> Publishers.AsSingle<Self> { Publishers.AsSingle(upstream: self) }
}
