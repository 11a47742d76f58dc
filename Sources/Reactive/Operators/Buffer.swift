extension Publishers {
  /// The time at which a buffer requests values.
  public enum PrefetchStrategy: Hashable, Sendable {
    /// Requests as many values as fit on subscription, and one more for each value delivered.
    case keepFull
    /// Requests unlimited values on subscription.
    case byRequest
  }

  /// The treatment of a value that does not fit into a buffer.
  public enum BufferingStrategy<Failure: Error>: Sendable {
    /// Drops the value.
    case dropNewest
    /// Drops the oldest value to make room.
    case dropOldest
    /// Cancels upstream and fails after the buffered values.
    @preconcurrency case customError(@Sendable () -> Failure)
  }

  /// Holds values until there is demand for them.
  public struct Buffer<Upstream: Publisher>: CompositePublisher {
    /// The number of values that are held.
    public let size: Int
    /// The time at which values are requested.
    public let prefetch: PrefetchStrategy
    /// The treatment of a value that does not fit.
    public let whenFull: BufferingStrategy<Upstream.Failure>
    /// The implementation.
    public let body: Timed<Upstream, Upstream.Output>

    /// `upstream.buffer(size: size, prefetch: prefetch, whenFull: whenFull)`
    ///
    /// - Precondition: `size` is not negative.
    @inlinable public init(
      upstream: Upstream, size: Int, prefetch: PrefetchStrategy, whenFull: BufferingStrategy<Upstream.Failure>
    ) {
      (self.size, self.prefetch, self.whenFull) = (size, prefetch, whenFull)
      precondition(size >= 0, "the size of a buffer must not be negative, it is \(size)")
      var rule = BufferRule<Upstream.Output>(size: size, replacesDelivered: prefetch == .keepFull)
      var failure: (() -> Upstream.Failure)?
      switch whenFull {
      case .dropNewest: break
      case .dropOldest: rule.dropsOldest = true
      case .customError(let error): (failure, rule.givesUp) = (error, true)
      }
      body = Timed(upstream, "Buffer", rule, on: ImmediateScheduler.shared, options: nil, failure: failure)
    }
  }
}

/// Makes values ready when there is demand. The completion waits for the values held.
@usableFromInline struct BufferRule<Value>: TimedRule {
  @usableFromInline typealias Moment = ImmediateScheduler.SchedulerTimeType
  @inlinable static var readsClock: Bool { false }
  @usableFromInline let size: Int
  @usableFromInline let replacesDelivered: Bool
  @usableFromInline var dropsOldest = false
  @usableFromInline var givesUp = false
  /// The values for which there is no demand.
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
  /// Holds up to `size` values until there is demand for them. The completion, also a failure, follows the values held.
  /// Demand: `size` values, and one more for each value delivered (`keepFull`), or unlimited (`byRequest`). A buffer of
  /// size 0 that is kept full therefore requests and delivers nothing.
  ///
  /// - Precondition: `size` is not negative.
  @inlinable public func buffer(
    size: Int, prefetch: Publishers.PrefetchStrategy, whenFull: Publishers.BufferingStrategy<Failure>
  ) -> Publishers.Buffer<Self> {
    .init(upstream: self, size: size, prefetch: prefetch, whenFull: whenFull)
  }
}
