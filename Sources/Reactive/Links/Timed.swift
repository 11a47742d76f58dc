import Locks
import Synchronization

/// The pending actions of a timed operator and their times.
@usableFromInline struct TimedOutbox<Output, Moment: Strideable> {
  /// Values to deliver at the scheduler's next opportunity, in this order.
  @usableFromInline var ready: [Output] = []
  /// The time of the rule's next call.
  @usableFromInline var alarm: Moment?
  /// The time at which upstream's completion may be delivered; `nil`: as soon as all values are delivered.
  @usableFromInline var endsAt: Moment?
  /// Whether upstream's completion waits for values that the rule still holds.
  @usableFromInline var holdsEnd = false
  /// Whether upstream took too long, or sent too many values.
  @usableFromInline var isGivenUp = false
  /// The subscriber's unmet demand. Unused by rules that relay demand.
  @usableFromInline var demand = Subscribers.Demand.none
  /// Values that will not be delivered. They are released outside the lock.
  @usableFromInline var dropped: [Output] = []

  @inlinable init() {}
}

/// The part in which time-based operators differ: the time at which each value is ready.
///
/// A rule runs under the link's lock: it makes no foreign call and releases no value.
@usableFromInline protocol TimedRule<Input, Output, Moment> {
  associatedtype Input
  associatedtype Output
  associatedtype Moment: Strideable
  typealias Outbox = TimedOutbox<Output, Moment>

  /// Whether the subscriber's demand is passed upstream unchanged.
  static var relaysDemand: Bool { get }
  /// Whether the rule uses `now`. If not, the clock is not read for each value, which would cost time.
  static var readsClock: Bool { get }
  /// Whether each delivery requests another value from upstream.
  var replacesDelivered: Bool { get }
  /// Handles the arrival of the subscription.
  ///
  /// - Returns: The initial demand for upstream.
  mutating func begin(at now: Moment, _ outbox: inout Outbox) -> Subscribers.Demand
  /// Handles a value.
  mutating func receive(_ value: Input, at now: Moment, _ outbox: inout Outbox)
  /// Handles the alarm at its time.
  mutating func ring(at now: Moment, _ outbox: inout Outbox)
  /// Handles upstream's completion.
  mutating func finish(failed: Bool, at now: Moment, _ outbox: inout Outbox)
  /// Handles new demand: ``TimedOutbox/demand`` has grown.
  ///
  /// - Returns: The demand for upstream.
  mutating func demandGrew(_ outbox: inout Outbox) -> Subscribers.Demand
}

extension TimedRule {
  @inlinable static var relaysDemand: Bool { false }
  @inlinable static var readsClock: Bool { true }
  @inlinable var replacesDelivered: Bool { false }
  @inlinable mutating func begin(at now: Moment, _ outbox: inout Outbox) -> Subscribers.Demand { .none }
  @inlinable mutating func ring(at now: Moment, _ outbox: inout Outbox) {}
  @inlinable mutating func finish(failed: Bool, at now: Moment, _ outbox: inout Outbox) {}
  @inlinable mutating func demandGrew(_ outbox: inout Outbox) -> Subscribers.Demand { .none }
}

extension Publishers {
  /// The shared part of operators that deliver on a scheduler. A rule decides when each value is ready.
  public struct Timed<Upstream: Publisher, Output>: Operator {
    /// The upstream publisher.
    public let upstream: Upstream
    @usableFromInline let attach: (AnySubscriber<Output, Upstream.Failure>) -> Void

    /// - Parameters:
    ///   - tolerance: The tolerance of wake-ups; default: the scheduler's minimum.
    ///   - failure: Returns the failure for an upstream that took too long or sent too much; `nil`: the subscription
    ///     finishes.
    @inlinable init<Context: Scheduler, Rule: TimedRule<Upstream.Output, Output, Context.SchedulerTimeType>>(
      _ upstream: Upstream, _ name: String, _ rule: Rule, on scheduler: Context,
      tolerance: Context.SchedulerTimeType.Stride? = nil, options: Context.SchedulerOptions?,
      failure: (() -> Upstream.Failure)? = nil
    ) {
      self.upstream = upstream
      attach = {
        upstream.subscribe(
          TimedLink(
            rule, name, on: scheduler, tolerance: tolerance ?? scheduler.minimumTolerance, options: options,
            failure: failure, down: $0))
      }
    }

    /// Attaches the subscriber.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { attach(AnySubscriber(subscriber)) }
  }
}

/// The part that timed operators share. All signals are delivered on the scheduler, one at a time and in order, even if
/// the scheduler runs work in parallel.
///
/// The scheduler holds at most two pieces of the link's work: a turn as soon as possible while values are ready, which
/// delivers all that are ready by then, and one wake-up. A wake-up is never moved: if it fires early, for example
/// because a newer value has extended a debounce, another one follows.
@usableFromInline
final class TimedLink<Rule: TimedRule, Context: Scheduler, Failure: Error>: Subscriber, RetractableSubscription,
  DroppingSubscription, CustomStringConvertible, @unchecked Sendable
where Context.SchedulerTimeType == Rule.Moment {
  // Sendable: state is guarded, and only the draining thread calls the subscriber.
  @usableFromInline typealias Input = Rule.Input
  @usableFromInline typealias Moment = Rule.Moment
  @usableFromInline typealias Down = AnySubscriber<Rule.Output, Failure>

  /// The work to schedule.
  @usableFromInline enum Wake {
    case none, soon
    case later(WakeUp)
  }

  /// Scheduled work that holds the link, unless the subscription ends first.
  @usableFromInline final class WakeUp: Sendable {
    @usableFromInline let time: Unchecked<Moment>
    @usableFromInline let link: Locked<TimedLink?>

    @inlinable init(_ time: Moment, _ link: TimedLink) {
      self.time = Unchecked(value: time)
      self.link = Locked(link)
    }
  }

  @usableFromInline struct State {
    /// `nil` after the end.
    @usableFromInline var rule: Rule?
    /// `nil` after the end: a subscriber that keeps its subscription keeps nothing else alive.
    @usableFromInline var down: Down?
    @usableFromInline var outbox = TimedOutbox<Rule.Output, Moment>()
    @usableFromInline var ending: Subscribers.Completion<Failure>?
    /// Whether a turn is scheduled.
    @usableFromInline var isScheduled = false
    @usableFromInline var wakeUp: WakeUp?
    /// The alarm time of a wake-up whose turn is pending.
    @usableFromInline var wokenAt: Moment?

    @inlinable init(rule: Rule, down: Down) { (self.rule, self.down) = (rule, down) }

    @inlinable func isEndDue(at now: Moment) -> Bool {
      ending != nil && !outbox.holdsEnd && outbox.endsAt.map { $0 <= now } ?? true
    }

    @inlinable func isDue(at now: Moment) -> Bool {
      !outbox.ready.isEmpty || outbox.alarm.map { $0 <= now } ?? false || isEndDue(at: now)
    }

    /// Returns `now`, or the time for which the pending wake-up was set if that is later: a clock may stand still, as
    /// the immediate scheduler's does, or be set back.
    @inlinable mutating func takeTime(_ now: Moment) -> Moment {
      guard let woken = wokenAt.take(), woken == outbox.alarm || woken == outbox.endsAt else { return now }
      return max(woken, now)
    }
  }

  @usableFromInline let upstream = UpstreamSlot()
  @usableFromInline let isOver = Atomic(false)
  @usableFromInline let state: Locked<State>
  @usableFromInline let loop = DrainLoop()
  /// Accessed only by the draining thread.
  @safe @usableFromInline @exclusivity(unchecked) var batch: [Rule.Output] = []
  @usableFromInline let scheduler: Context
  @usableFromInline let tolerance: Moment.Stride
  @usableFromInline let options: Context.SchedulerOptions?
  @usableFromInline let origin: Moment
  @usableFromInline let failure: (() -> Failure)?
  @usableFromInline let replacesDelivered: Bool
  @usableFromInline let description: String

  @inlinable init(
    _ rule: Rule, _ description: String, on scheduler: Context, tolerance: Moment.Stride,
    options: Context.SchedulerOptions?, failure: (() -> Failure)?, down: Down
  ) {
    state = Locked(State(rule: rule, down: down))
    (self.scheduler, self.tolerance, self.options, self.failure) = (scheduler, tolerance, options, failure)
    origin = scheduler.now
    (replacesDelivered, self.description) = (rule.replacesDelivered, description)
  }

  // MARK: From upstream

  @inlinable func receive(subscription: any Subscription) {
    guard upstream.attach(subscription) else { return }
    let now = now
    let (demand, down) = state.withLock { ($0.rule?.begin(at: now, &$0.outbox) ?? .none, $0.down) }
    down?.receive(subscription: self)
    if demand != .none { upstream.request(demand) }
    update { _, _ in }
  }

  @inlinable func receive(_ value: Input) -> Subscribers.Demand {
    startIfNeeded()
    if upstream.isLive { update { $0.rule?.receive(value, at: $1, &$0.outbox) } }
    return .none
  }

  @inlinable func receive(completion: Subscribers.Completion<Failure>) {
    startIfNeeded()
    if upstream.finish() { end(with: completion) }
  }

  /// Handles a publisher that sends a value or a completion without a subscription.
  @inlinable func startIfNeeded() {
    if upstream.isAwaiting { receive(subscription: Subscriptions.empty) }
  }

  @inlinable func end(with completion: Subscribers.Completion<Failure>) {
    var failed = false
    if case .failure = completion { failed = true }
    update { state, now in
      state.rule?.finish(failed: failed, at: now, &state.outbox)
      state.ending = completion
    }
  }

  // MARK: From downstream

  @inlinable func request(_ demand: Subscribers.Demand) {
    if Rule.relaysDemand { return upstream.request(demand) }
    var more = Subscribers.Demand.none
    update { state, _ in
      state.outbox.demand += demand
      more = state.rule?.demandGrew(&state.outbox) ?? .none
    }
    if more != .none { upstream.request(more) }
  }

  @inlinable func retract() {
    if Rule.relaysDemand { return upstream.retract() }
    state.withLock { $0.outbox.demand = .none }
  }

  @inlinable func cancel() {
    if end() { upstream.cancel() }
  }

  /// - Returns: True for the one call that ends the subscription.
  @inlinable func end() -> Bool {
    guard !isOver.exchange(true, ordering: .acquiringAndReleasing) else { return false }
    let remains = state.withLock { state in
      defer {
        (state.rule, state.down, state.ending, state.wakeUp) = (nil, nil, nil, nil)
        state.outbox = TimedOutbox()
      }
      return state
    }
    _ = remains.wakeUp?.link.withLock { $0.take() }
    return true
  }

  // MARK: On the scheduler

  @inlinable var now: Moment { Rule.readsClock ? scheduler.now : origin }

  @inlinable func update(_ body: (inout State, Moment) -> Void) {
    let now = now
    let (wake, dropped, isGivenUp) = state.withLock { state in
      body(&state, now)
      return (nextWake(&state, at: now), state.outbox.dropped.take(), state.outbox.isGivenUp && state.ending == nil)
    }
    _ = consume dropped
    if isGivenUp, upstream.cancel() { end(with: failure.map { .failure($0()) } ?? .finished) }
    switch wake {
    case .none: break
    case .soon: scheduler.schedule(options: options) { self.takeTurn() }
    case .later(let wakeUp):
      scheduler.schedule(after: wakeUp.time.value, tolerance: tolerance, options: options) {
        guard let link = wakeUp.link.withLock({ $0.take() }) else { return }
        link.state.withLock { ($0.wakeUp, $0.wokenAt) = (nil, wakeUp.time.value) }
        link.takeTurn()
      }
    }
  }

  @inlinable func nextWake(_ state: inout State, at now: Moment) -> Wake {
    guard state.rule != nil, !state.isScheduled, state.wokenAt == nil else { return .none }
    if state.isDue(at: now) {
      state.isScheduled = true
      return .soon
    }
    guard state.wakeUp == nil else { return .none }
    let end = state.ending == nil || state.outbox.holdsEnd ? nil : state.outbox.endsAt
    guard let time = [state.outbox.alarm, end].compactMap({ $0 }).min() else { return .none }
    let wakeUp = WakeUp(time, self)
    state.wakeUp = wakeUp
    return .later(wakeUp)
  }

  /// Delivers the ready values. If another thread already delivers, that thread also delivers these.
  @inlinable func takeTurn() {
    loop.run {
      let now = now
      let (down, ending, dropped) = state.withLock {
        state -> (Down?, Subscribers.Completion<Failure>?, [Rule.Output]) in
        let time = state.takeTime(now)
        state.isScheduled = false
        if let alarm = state.outbox.alarm, alarm <= time {
          state.outbox.alarm = nil
          state.rule?.ring(at: time, &state.outbox)
        }
        swap(&batch, &state.outbox.ready)
        return (state.down, state.isEndDue(at: time) ? state.ending : nil, state.outbox.dropped.take())
      }
      _ = consume dropped
      guard let down else { return }
      deliver(to: down)
      if let ending {
        if end() { down.receive(completion: ending) }
        return
      }
      update { _, _ in }
    }
  }

  @inlinable func deliver(to down: Down) {
    if batch.isEmpty { return }
    var more = Subscribers.Demand.none
    for value in batch {
      guard !isOver.load(ordering: .acquiring) else { break }
      more += down.receive(value)
    }
    let count = batch.count
    batch.removeAll(keepingCapacity: true)
    if more != .none { request(more) }
    if replacesDelivered { upstream.request(.max(count)) }
  }
}
