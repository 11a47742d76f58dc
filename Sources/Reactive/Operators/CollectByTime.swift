extension Publishers {
  /// The condition under which a collected array is delivered.
  public enum TimeGroupingStrategy<Context: Scheduler> {
    /// At each whole interval since the subscription.
    case byTime(Context, Context.SchedulerTimeType.Stride)
    /// At each whole interval since the subscription, and when the array has this number of values; 0: no number.
    ///
    /// - Precondition: the number is not negative.
    case byTimeOrCount(Context, Context.SchedulerTimeType.Stride, Int)
  }

  /// Delivers arrays of the values of an interval, with at least one value each.
  public struct CollectByTime<Upstream: Publisher, Context: Scheduler>: CompositePublisher {
    /// The condition under which an array is delivered.
    public let strategy: TimeGroupingStrategy<Context>
    /// Options for the scheduler.
    public let options: Context.SchedulerOptions?
    /// The implementation.
    public let body: Timed<Upstream, [Upstream.Output]>

    /// `upstream.collect(strategy, options: options)`
    @inlinable public init(
      upstream: Upstream, strategy: TimeGroupingStrategy<Context>, options: Context.SchedulerOptions?
    ) {
      (self.strategy, self.options) = (strategy, options)
      let (scheduler, interval, count): (Context, Context.SchedulerTimeType.Stride, Int?) =
        switch strategy {
        case .byTime(let scheduler, let interval): (scheduler, interval, nil)
        case .byTimeOrCount(let scheduler, let interval, let count): (scheduler, interval, count)
        }
      let rule = CollectRule<Upstream.Output, Context.SchedulerTimeType>(interval: interval, count: count)
      body = Timed(upstream, "CollectByTime", rule, on: scheduler, options: options)
    }
  }
}

/// Makes an array ready when its interval is over or it has enough values, as soon as there is demand for an array.
/// While nothing is collected, no alarm is set.
@usableFromInline struct CollectRule<Value, Moment: Strideable>: TimedRule {
  @usableFromInline let interval: Moment.Stride
  @usableFromInline let limit: Int?
  @usableFromInline var values: [Value] = []
  @usableFromInline var isFinished = false
  /// The interval ended without demand.
  @usableFromInline var isOverdue = false
  /// The number of values that were requested from upstream and have not arrived.
  @usableFromInline var outstanding = Subscribers.Demand.none
  /// The end of the last interval that is known to be over.
  @usableFromInline var tick: Moment?

  @inlinable init(interval: Moment.Stride, count: Int?) {
    precondition(count.map { $0 >= 0 } ?? true, "count must not be negative, it is \(count ?? 0)")
    self.interval = interval
    limit = count == 0 ? nil : count
  }

  @inlinable mutating func begin(at now: Moment, _ outbox: inout TimedOutbox<[Value], Moment>) -> Subscribers.Demand {
    tick = now
    return .none
  }

  @inlinable mutating func receive(_ value: Value, at now: Moment, _ outbox: inout TimedOutbox<[Value], Moment>) {
    outstanding -= 1
    values.append(value)
    if outbox.alarm == nil, !isOverdue { outbox.alarm = nextTick(after: now) }
    emitFull(&outbox)
  }

  @inlinable mutating func ring(at now: Moment, _ outbox: inout TimedOutbox<[Value], Moment>) {
    isOverdue = !values.isEmpty
    emitFull(&outbox)
  }

  @inlinable mutating func finish(failed: Bool, at now: Moment, _ outbox: inout TimedOutbox<[Value], Moment>) {
    outbox.alarm = nil
    if failed { outbox.dropped.append(values.take()) }
    isFinished = true
    emitFull(&outbox)
  }

  @inlinable mutating func demandGrew(_ outbox: inout TimedOutbox<[Value], Moment>) -> Subscribers.Demand {
    emitFull(&outbox)
    let needed = limit.map { outbox.demand * $0 } ?? (outbox.demand == .none ? .none : .unlimited)
    let missing = needed == .unlimited ? .unlimited : needed - values.count - outstanding
    guard outstanding != .unlimited else { return .none }
    outstanding += missing
    return missing
  }

  /// Emits the arrays that need not wait for the time; after upstream has finished, all.
  @inlinable mutating func emitFull(_ outbox: inout TimedOutbox<[Value], Moment>) {
    let limit = limit ?? .max
    while outbox.demand > .none, values.count >= (isFinished || isOverdue ? 1 : limit) {
      emit(min(limit, values.count), &outbox)
    }
    if values.isEmpty { (outbox.alarm, isOverdue) = (nil, false) }
    outbox.holdsEnd = isFinished && !values.isEmpty
  }

  @inlinable mutating func emit(_ count: Int, _ outbox: inout TimedOutbox<[Value], Moment>) {
    outbox.demand -= 1
    if count == values.count {
      outbox.ready.append(values.take())
    } else {
      outbox.ready.append(Array(values.prefix(count)))
      values.removeFirst(count)
    }
  }

  /// Returns the end of the first whole interval that is later than `now`. Doubles its steps: years may have passed.
  @inlinable mutating func nextTick(after now: Moment) -> Moment {
    guard interval > 0, let tick else { return now }
    var next = tick.advanced(by: interval)
    guard next > tick else { return now }  // the clock stands still
    while next <= now {
      var step = interval
      while next.advanced(by: step + step) <= now { step += step }
      next = next.advanced(by: step)
    }
    return next
  }
}

extension Publisher {
  /// Delivers arrays of the values of each interval on the scheduler of `strategy`; when upstream finishes, the
  /// remaining values come first. A failure drops the remaining values. Demand: with a count of c, a demand of n arrays
  /// requests c × n values; without a count, the first demand requests unlimited values. Values wait for demand in
  /// memory; without a count, their number is not bounded.
  @inlinable public func collect<S: Scheduler>(
    _ strategy: Publishers.TimeGroupingStrategy<S>, options: S.SchedulerOptions? = nil
  ) -> Publishers.CollectByTime<Self, S> {
    .init(upstream: self, strategy: strategy, options: options)
  }
}
