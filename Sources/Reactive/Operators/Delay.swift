// Operators that deliver all signals on a scheduler, immediately or later, unchanged.

extension Publishers {
  /// Delivers on a scheduler. Demand is passed upstream unchanged.
  public struct ReceiveOn<Upstream: Publisher, Context: Scheduler>: CompositePublisher {
    /// The scheduler.
    public let scheduler: Context
    /// Options for the scheduler.
    public let options: Context.SchedulerOptions?
    /// The implementation.
    public let body: Timed<Upstream, Upstream.Output>

    /// `upstream.receive(on: scheduler, options: options)`
    @inlinable public init(upstream: Upstream, scheduler: Context, options: Context.SchedulerOptions?) {
      (self.scheduler, self.options) = (scheduler, options)
      body = Timed(upstream, "ReceiveOn", RelayRule(), on: scheduler, options: options)
    }
  }

  /// Delivers all signals, including the completion, after a delay. Demand is passed upstream unchanged.
  public struct Delay<Upstream: Publisher, Context: Scheduler>: CompositePublisher {
    /// The delay of each signal.
    public let interval: Context.SchedulerTimeType.Stride
    /// The additional delay that is acceptable; `nil`: the scheduler's minimum.
    public let tolerance: Context.SchedulerTimeType.Stride?
    /// The scheduler.
    public let scheduler: Context
    /// Options for the scheduler.
    public let options: Context.SchedulerOptions?
    /// The implementation.
    public let body: Timed<Upstream, Upstream.Output>

    /// `upstream.delay(for: interval, tolerance: tolerance, scheduler: scheduler, options: options)`
    @inlinable public init(
      upstream: Upstream, interval: Context.SchedulerTimeType.Stride, tolerance: Context.SchedulerTimeType.Stride?,
      scheduler: Context, options: Context.SchedulerOptions? = nil
    ) {
      (self.interval, self.tolerance, self.scheduler, self.options) = (interval, tolerance, scheduler, options)
      let rule = DelayRule<Upstream.Output, Context.SchedulerTimeType>(interval: interval)
      body = Timed(upstream, "Delay", rule, on: scheduler, tolerance: tolerance, options: options)
    }
  }
}

/// Makes each value ready immediately.
@usableFromInline struct RelayRule<Value, Moment: Strideable>: TimedRule {
  @inlinable static var relaysDemand: Bool { true }
  @inlinable static var readsClock: Bool { false }

  @inlinable init() {}

  @inlinable mutating func receive(_ value: Value, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    outbox.ready.append(value)
  }
}

/// Makes each value ready after the interval. The alarm is set for the first waiting value.
@usableFromInline struct DelayRule<Value, Moment: Strideable>: TimedRule {
  @inlinable static var relaysDemand: Bool { true }
  @usableFromInline let interval: Moment.Stride
  @usableFromInline var waiting = Fifo<(value: Value, due: Moment)>()

  @inlinable init(interval: Moment.Stride) { self.interval = interval }

  @inlinable mutating func receive(_ value: Value, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    let due = now.advanced(by: interval)
    waiting.append((value, due))
    if outbox.alarm == nil { outbox.alarm = due }
  }

  @inlinable mutating func ring(at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    while let due = waiting.first?.due {
      guard due <= now else {
        outbox.alarm = due
        return
      }
      if let value = waiting.popFirst()?.value { outbox.ready.append(value) }
    }
    outbox.holdsEnd = false
  }

  @inlinable mutating func finish(failed: Bool, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    outbox.endsAt = now.advanced(by: interval)
    outbox.holdsEnd = !waiting.isEmpty  // a clock may be set back
  }
}

extension Publisher {
  /// Delivers on `scheduler`, in order and one signal at a time, even if it runs work in parallel. Values that become
  /// ready together are delivered in one turn of the scheduler. Demand: passed upstream unchanged.
  @inlinable public func receive<S: Scheduler>(
    on scheduler: S, options: S.SchedulerOptions? = nil
  ) -> Publishers.ReceiveOn<Self, S> {
    .init(upstream: self, scheduler: scheduler, options: options)
  }

  /// Delivers values and the completion on `scheduler` after a delay of `interval`. Demand: passed upstream unchanged;
  /// it bounds the number of waiting values.
  ///
  /// `tolerance` is the additional delay that is acceptable; default: the scheduler's minimum.
  @inlinable public func delay<S: Scheduler>(
    for interval: S.SchedulerTimeType.Stride, tolerance: S.SchedulerTimeType.Stride? = nil, scheduler: S,
    options: S.SchedulerOptions? = nil
  ) -> Publishers.Delay<Self, S> {
    .init(upstream: self, interval: interval, tolerance: tolerance, scheduler: scheduler, options: options)
  }
}
