// Operators that measure time.

extension Publishers {
  /// Ends the subscription when upstream takes too long. Demand is passed upstream unchanged.
  public struct Timeout<Upstream: Publisher, Context: Scheduler>: CompositePublisher {
    /// The longest time to a value.
    public let interval: Context.SchedulerTimeType.Stride
    /// The scheduler.
    public let scheduler: Context
    /// Options for the scheduler.
    public let options: Context.SchedulerOptions?
    /// Returns the failure if upstream takes too long; `nil`: the subscription finishes.
    public let customError: (@Sendable () -> Upstream.Failure)?
    /// The implementation.
    public let body: Timed<Upstream, Upstream.Output>

    /// `upstream.timeout(interval, scheduler: scheduler, options: options, customError: customError)`
    ///
    /// The first interval starts with the subscription.
    ///
    /// `customError` returns the failure if upstream takes too long; `nil`: the subscription finishes.
    @preconcurrency @inlinable public init(
      upstream: Upstream, interval: Context.SchedulerTimeType.Stride, scheduler: Context,
      options: Context.SchedulerOptions?, customError: (@Sendable () -> Upstream.Failure)?
    ) {
      (self.interval, self.scheduler, self.options, self.customError) = (interval, scheduler, options, customError)
      body = Timed(
        upstream, "Timeout", TimeoutRule(interval: interval), on: scheduler, options: options, failure: customError)
    }
  }

  /// Delivers, for each value, the time since the previous one. Demand is passed upstream unchanged.
  public struct MeasureInterval<Upstream: Publisher, Context: Scheduler>: CompositePublisher {
    /// The publisher whose values are timed.
    public let upstream: Upstream
    /// The scheduler whose clock is read. No work is scheduled on it.
    public let scheduler: Context

    /// `upstream.measureInterval(using: scheduler)`
    @inlinable public init(upstream: Upstream, scheduler: Context) {
      (self.upstream, self.scheduler) = (upstream, scheduler)
    }

    /// Reads the clock for each value; the first interval starts with the subscription.
    @inlinable public var body: some Publisher<Context.SchedulerTimeType.Stride, Upstream.Failure> {
      var last = scheduler.now
      let read = own { [scheduler] (_: Upstream.Output) in
        let now = scheduler.now
        defer { last = now }
        return last.distance(to: now)
      }
      return upstream.handleEvents(receiveSubscription: own { [scheduler] _ in last = scheduler.now }).map(read)
    }
  }
}

/// Makes each value ready immediately. The alarm is set to the deadline of the next value.
@usableFromInline struct TimeoutRule<Value, Moment: Strideable>: TimedRule {
  @inlinable static var relaysDemand: Bool { true }
  @usableFromInline let interval: Moment.Stride

  @inlinable init(interval: Moment.Stride) { self.interval = interval }

  @inlinable mutating func begin(at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) -> Subscribers.Demand {
    outbox.alarm = now.advanced(by: interval)
    return .none
  }

  @inlinable mutating func receive(_ value: Value, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    guard !outbox.isGivenUp else { return outbox.dropped.append(value) }
    outbox.ready.append(value)
    outbox.alarm = now.advanced(by: interval)
  }

  @inlinable mutating func ring(at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) { outbox.isGivenUp = true }

  @inlinable mutating func finish(failed: Bool, at now: Moment, _ outbox: inout TimedOutbox<Value, Moment>) {
    outbox.alarm = nil
  }
}

extension Publisher {
  /// Delivers all signals on `scheduler`; ends and cancels upstream when no value arrives for `interval`. Demand:
  /// passed upstream unchanged. The time also runs while there is no demand.
  ///
  /// `customError` returns the failure; default: the subscription finishes.
  @preconcurrency @inlinable public func timeout<S: Scheduler>(
    _ interval: S.SchedulerTimeType.Stride, scheduler: S, options: S.SchedulerOptions? = nil,
    customError: (@Sendable () -> Failure)? = nil
  ) -> Publishers.Timeout<Self, S> {
    .init(upstream: self, interval: interval, scheduler: scheduler, options: options, customError: customError)
  }

  /// Delivers, in place of each value, the time since the previous value or since the subscription. Demand: passed
  /// upstream unchanged.
  ///
  /// `options` is ignored, as in Combine: no work is scheduled.
  @inlinable public func measureInterval<S: Scheduler>(
    using scheduler: S, options: S.SchedulerOptions? = nil
  ) -> Publishers.MeasureInterval<Self, S> {
    .init(upstream: self, scheduler: scheduler)
  }
}
