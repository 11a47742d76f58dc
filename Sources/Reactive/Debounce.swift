// Operators that deliver fewer values than come, chosen by time.

extension Publishers {
  /// Delivers the last value before each pause. Upstream is asked for everything; a pause without demand is passed over.
  public struct Debounce<Upstream: Publisher, Context: Scheduler>: Operator {
    /// Where the values come from.
    public let upstream: Upstream
    /// How long a pause is.
    public let dueTime: Context.SchedulerTimeType.Stride
    /// Where values are delivered.
    public let scheduler: Context
    /// What the scheduler is told.
    public let options: Context.SchedulerOptions?

    /// `upstream.debounce(for: dueTime, scheduler: scheduler, options: options)`
    public init(
      upstream: Upstream, dueTime: Context.SchedulerTimeType.Stride, scheduler: Context,
      options: Context.SchedulerOptions?
    ) {
      (self.upstream, self.dueTime, self.scheduler, self.options) = (upstream, dueTime, scheduler, options)
    }

    /// Attaches the subscriber.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      let rule = DebounceRule<Upstream.Output, Context.SchedulerTimeType>(dueTime: dueTime)
      upstream.subscribe(TimedLink(rule, on: scheduler, options: options, down: subscriber))
    }
  }

  /// Delivers at most one value per interval. Upstream is asked for everything; without demand values are passed over.
  public struct Throttle<Upstream: Publisher, Context: Scheduler>: Operator {
    /// Where the values come from.
    public let upstream: Upstream
    /// The least time from value to value.
    public let interval: Context.SchedulerTimeType.Stride
    /// Where values are delivered.
    public let scheduler: Context
    /// Whether the newest value of an interval is delivered rather than the first.
    public let latest: Bool

    /// `upstream.throttle(for: interval, scheduler: scheduler, latest: latest)`
    public init(
      upstream: Upstream, interval: Context.SchedulerTimeType.Stride, scheduler: Context, latest: Bool
    ) {
      (self.upstream, self.interval, self.scheduler, self.latest) = (upstream, interval, scheduler, latest)
    }

    /// Attaches the subscriber.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      let rule = ThrottleRule<Upstream.Output, Context.SchedulerTimeType>(interval: interval, latest: latest)
      upstream.subscribe(TimedLink(rule, on: scheduler, options: nil, down: subscriber))
    }
  }
}

/// Ready when nothing newer has come for a while. The end comes at once, and what waits is dropped, as in Combine.
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

/// Ready when the interval since the last value is over. The end waits for a value that waits.
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
      outbox.alarm = last.map { max(now, $0.advanced(by: interval)) } ?? now
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
  /// Delivers a value on `scheduler` once nothing newer has come for `dueTime`. The end comes at once; a value that waits
  /// is then dropped.
  ///
  /// Demand: upstream is asked for everything; a value that becomes due without demand is dropped.
  public func debounce<S: Scheduler>(
    for dueTime: S.SchedulerTimeType.Stride, scheduler: S, options: S.SchedulerOptions? = nil
  ) -> Publishers.Debounce<Self, S> {
    Publishers.Debounce(upstream: self, dueTime: dueTime, scheduler: scheduler, options: options)
  }

  /// Delivers on `scheduler` the first value at once, and then at most one per `interval`. The end waits for a value that
  /// waits.
  ///
  /// Demand: upstream is asked for everything; a value that comes without demand is dropped.
  /// - Parameter latest: Whether the newest value of an interval is delivered rather than the first.
  public func throttle<S: Scheduler>(
    for interval: S.SchedulerTimeType.Stride, scheduler: S, latest: Bool
  ) -> Publishers.Throttle<Self, S> {
    Publishers.Throttle(upstream: self, interval: interval, scheduler: scheduler, latest: latest)
  }
}
