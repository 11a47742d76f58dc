extension Publishers {
  /// When a buffer asks for values.
  public enum PrefetchStrategy: Hashable, Sendable {
    /// For as many as it holds at once, and for another with each that it delivers.
    case keepFull
    /// For everything at once.
    case byRequest
  }

  /// What a buffer does with a value for which it has no room.
  public enum BufferingStrategy<Failure: Error> {
    /// Drops it.
    case dropNewest
    /// Drops the oldest one to make room.
    case dropOldest
    /// Cancels upstream; fails after the values that it holds.
    case customError(() -> Failure)
  }

  /// Holds values until there is demand for them.
  public typealias Buffer<Upstream: Publisher> =
    Timed<Upstream, ImmediateScheduler, Upstream.Output, OperatorKind.Buffer>
}

extension Publishers.Timed
where Output == Upstream.Output, Context == ImmediateScheduler, Kind == OperatorKind.Buffer {
  /// ``Publishers/Buffer``.
  @inlinable public init(
    upstream: Upstream, size: Int, prefetch: Publishers.PrefetchStrategy,
    whenFull: Publishers.BufferingStrategy<Failure>
  ) {
    precondition(size >= 0, "the size of a buffer must not be negative, it is \(size)")
    var rule = BufferRule<Output>(size: size, replacesDelivered: prefetch == .keepFull)
    var failure: (() -> Failure)?
    switch whenFull {
    case .dropNewest: break
    case .dropOldest: rule.dropsOldest = true
    case .customError(let error): (failure, rule.givesUp) = (error, true)
    }
    self.init(upstream, "Buffer", rule, on: .shared, options: nil, failure: failure)
  }
}

/// Ready when there is demand. The end waits for what is held.
@usableFromInline struct BufferRule<Value>: TimedRule {
  @usableFromInline typealias Moment = ImmediateScheduler.SchedulerTimeType
  @inlinable static var readsClock: Bool { false }
  @usableFromInline let size: Int
  @usableFromInline let replacesDelivered: Bool
  @usableFromInline var dropsOldest = false
  @usableFromInline var givesUp = false
  /// There is no demand for them.
  @usableFromInline var values = Fifo<Value>()

  @inlinable init(size: Int, replacesDelivered: Bool) {
    (self.size, self.replacesDelivered) = (size, replacesDelivered)
  }

  @inlinable mutating func begin(at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) -> Subscribers.Demand {
    replacesDelivered ? .max(size) : .unlimited
  }

  @inlinable mutating func receive(_ value: Value, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    if outbox.isGivenUp {
      outbox.dropped.append(value)
    } else if outbox.demand > .none {
      outbox.demand -= 1
      outbox.ready.append(value)
    } else if values.count < size {
      values.append(value)
    } else if dropsOldest, let oldest = values.popFirst() {
      outbox.dropped.append(oldest)
      values.append(value)
    } else {
      outbox.dropped.append(value)
      outbox.isGivenUp = givesUp
    }
  }

  @inlinable mutating func finish(failed: Bool, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    outbox.holdsEnd = !values.isEmpty
  }

  @inlinable mutating func demandGrew(_ outbox: inout TimedOutbox<Value, Moment>) -> Subscribers.Demand {
    while outbox.demand > .none, let value = values.popFirst() {
      outbox.demand -= 1
      outbox.ready.append(value)
    }
    if values.isEmpty { outbox.holdsEnd = false }
    return .none
  }
}

extension Publisher {
  /// Holds up to `size` values until there is demand for them. The end, a failure too, comes after the values held.
  /// Demand: `size` values, and another for each one delivered (`keepFull`), or everything (`byRequest`).
  @inlinable public func buffer(
    size: Int, prefetch: Publishers.PrefetchStrategy, whenFull: Publishers.BufferingStrategy<Failure>
  ) -> Publishers.Buffer<Self> {
    .init(upstream: self, size: size, prefetch: prefetch, whenFull: whenFull)
  }
}
