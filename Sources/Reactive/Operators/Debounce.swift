// Operators that deliver a selection of the values, by time.

extension Publishers {
  /// Delivers the last value before each pause. Requests unlimited values from upstream; a pause without demand
  /// delivers nothing.
  public struct Debounce<Upstream: Publisher, Context: Scheduler>: CompositePublisher {
    /// The time after a value in which no newer one may arrive.
    public let dueTime: Context.SchedulerTimeType.Stride
    /// The scheduler.
    public let scheduler: Context
    /// Options for the scheduler.
    public let options: Context.SchedulerOptions?
    /// The implementation.
    public let body: Timed<Upstream, Upstream.Output>

    /// `upstream.debounce(for: dueTime, scheduler: scheduler, options: options)`
    @inlinable public init(
      upstream: Upstream, dueTime: Context.SchedulerTimeType.Stride, scheduler: Context,
      options: Context.SchedulerOptions?
    ) {
      (self.dueTime, self.scheduler, self.options) = (dueTime, scheduler, options)
      body = Timed(upstream, "Debounce", DebounceRule(dueTime: dueTime), on: scheduler, options: options)
    }
  }

  /// Delivers at most one value per interval. Requests unlimited values from upstream; a value without demand is
  /// dropped.
  public struct Throttle<Upstream: Publisher, Context: Scheduler>: CompositePublisher {
    /// The shortest time between two values.
    public let interval: Context.SchedulerTimeType.Stride
    /// The scheduler.
    public let scheduler: Context
    /// Whether the newest value of an interval is delivered, rather than the first.
    public let latest: Bool
    /// The implementation.
    public let body: Timed<Upstream, Upstream.Output>

    /// `upstream.throttle(for: interval, scheduler: scheduler, latest: latest)`
    @inlinable public init(
      upstream: Upstream, interval: Context.SchedulerTimeType.Stride, scheduler: Context, latest: Bool
    ) {
      (self.interval, self.scheduler, self.latest) = (interval, scheduler, latest)
      body = Timed(
        upstream, "Throttle", ThrottleRule(interval: interval, latest: latest), on: scheduler, options: nil)
    }
  }
}

/// Makes a value ready when no newer one arrives for a while. The completion is delivered immediately and drops a
/// waiting value, as in Combine.
@usableFromInline struct DebounceRule<Value, Moment: Strideable>: TimedRule {
  @usableFromInline let dueTime: Moment.Stride
  @usableFromInline var waiting: Value?

  @inlinable init(dueTime: Moment.Stride) { self.dueTime = dueTime }

  @inlinable mutating func begin(at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) -> Subscribers.Demand {
    .unlimited
  }

  @inlinable mutating func receive(_ value: Value, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    drop(&outbox)
    waiting = value
    outbox.alarm = now.advanced(by: dueTime)
  }

  @inlinable mutating func ring(at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    guard outbox.demand > .none, let value = waiting.take() else { return drop(&outbox) }
    outbox.demand -= 1
    outbox.ready.append(value)
  }

  @inlinable mutating func finish(failed: Bool, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    outbox.alarm = nil
    drop(&outbox)
  }

  @inlinable mutating func drop(_ outbox: inout TimedOutbox<Value, Moment>) {
    if let old = waiting.take() { outbox.dropped.append(old) }
  }
}

/// Makes a value ready when the interval since the last one is over. The completion waits for a waiting value.
@usableFromInline struct ThrottleRule<Value, Moment: Strideable>: TimedRule {
  @usableFromInline let interval: Moment.Stride
  @usableFromInline let latest: Bool
  @usableFromInline var waiting: Value?
  @usableFromInline var last: Moment?

  @inlinable init(interval: Moment.Stride, latest: Bool) { (self.interval, self.latest) = (interval, latest) }

  @inlinable mutating func begin(at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) -> Subscribers.Demand {
    .unlimited
  }

  @inlinable mutating func receive(_ value: Value, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    if let old = waiting {
      guard latest else { return }
      outbox.dropped.append(old)
      waiting = value
    } else if outbox.demand > .none {
      outbox.demand -= 1
      waiting = value
      // At most one interval from now: a clock may be set back.
      outbox.alarm = last.map { min(max(now, $0.advanced(by: interval)), now.advanced(by: interval)) } ?? now
    }
  }

  @inlinable mutating func ring(at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    guard let value = waiting.take() else { return }
    last = now
    outbox.ready.append(value)
  }

  @inlinable mutating func finish(failed: Bool, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    outbox.endsAt = outbox.alarm
  }
}

extension Publisher {
  /// Delivers a value on `scheduler` when no newer one has arrived for `dueTime`. The completion is delivered
  /// immediately and drops a waiting value. Demand: unlimited; a value that becomes due without demand is dropped.
  @inlinable public func debounce<S: Scheduler>(
    for dueTime: S.SchedulerTimeType.Stride, scheduler: S, options: S.SchedulerOptions? = nil
  ) -> Publishers.Debounce<Self, S> {
    .init(upstream: self, dueTime: dueTime, scheduler: scheduler, options: options)
  }

  /// Delivers the first value on `scheduler` immediately, and then at most one per `interval`. The completion waits for
  /// a waiting value. Demand: unlimited; a value that arrives without demand is dropped.
  ///
  /// `latest` selects the newest value of an interval rather than the first.
  @inlinable public func throttle<S: Scheduler>(
    for interval: S.SchedulerTimeType.Stride, scheduler: S, latest: Bool
  ) -> Publishers.Throttle<Self, S> {
    .init(upstream: self, interval: interval, scheduler: scheduler, latest: latest)
  }
}
