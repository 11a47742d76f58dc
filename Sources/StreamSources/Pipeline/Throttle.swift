import Events
import Reactive
import StreamRuntime

extension Publisher where Output == EventBatch, Failure == Never {
  /// Delivers at most one event per interval, the newest.
  ///
  /// The first event passes at once. Each value is a batch of one event, or of none with a checkpoint. During an
  /// interval with demand, upstream is asked for one batch after the other; without demand for none. The interval is
  /// monotonic, and continues from one subscription to the next. For one subscription at a time, such as a shared
  /// log's.
  /// - Parameters:
  ///   - interval: greater than zero.
  ///   - sinceLast: the time since the last event in the log, for the first subscription or after events from another
  ///     host; nil: unknown. Called on the source thread.
  ///   - hold: used by this publisher only.
  ///   - thread: where values are delivered.
  public func throttle(
    to interval: Duration, sinceLast: @escaping @Sendable () -> Duration? = { nil },
    hold: ThrottleHold = ThrottleHold(), on thread: SourceThread
  ) -> AnyPublisher<EventBatch, Never> {
    precondition(interval > .zero, "an interval must be greater than zero, it is \(interval)")
    return Throttle(
      upstream: self, interval: interval, sinceLast: sinceLast, hold: hold, thread: thread
    ).eraseToAnyPublisher()
  }
}

/// The event that a throttle holds back, and the interval, which outlive a subscription.
///
/// The source counts the held event as taken. A subscription that is about to end must therefore pass the event on
/// first: see `open`.
public final class ThrottleHold: @unchecked Sendable {  // confined to the source thread
  fileprivate var due: Duration?
  fileprivate weak var link: ThrottleLink?
  fileprivate var isOpen = false

  /// Holds nothing yet.
  public init() {}

  /// Passes the held event at once, and each further event until `close()`. On the source thread; the subscriber has
  /// the held event when this returns.
  func open() {
    isOpen = true
    link?.open()
  }

  /// Holds events back again. On the source thread.
  func close() {
    isOpen = false
    link?.machine.isOpen = false
  }
}

extension SourceThread {
  /// Passes the events that throttles hold at once, and all further events until `close(_:)`. The subscriptions are
  /// about to end, so there is no later time.
  /// - Parameters:
  ///   - holds: those of the throttles.
  ///   - completed: called on the thread, when the subscribers have the held events.
  public func open(_ holds: [ThrottleHold], completed: @escaping @Sendable () -> Void) {
    loop.execute {
      for hold in holds { hold.open() }
      completed()
    }
  }

  /// Lets throttles hold events back again.
  public func close(_ holds: [ThrottleHold]) {
    loop.execute { for hold in holds { hold.close() } }
  }
}

private struct Throttle<Upstream: Publisher<EventBatch, Never>>: Publisher {
  typealias Output = EventBatch
  typealias Failure = Never
  let upstream: Upstream
  let interval: Duration
  let sinceLast: @Sendable () -> Duration?
  let hold: ThrottleHold
  let thread: SourceThread

  func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    upstream.subscribe(
      ThrottleLink(interval: interval, sinceLast, hold, on: thread.loop, to: AnySubscriber(subscriber)))
  }
}

private final class ThrottleLink: BatchLink<ThrottleMachine>, @unchecked Sendable {
  private let hold: ThrottleHold
  private let interval: Duration
  private let sinceLast: @Sendable () -> Duration?
  private var timer: TimerID?

  init(
    interval: Duration, _ sinceLast: @escaping @Sendable () -> Duration?, _ hold: ThrottleHold, on loop: EventLoop,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    (self.hold, self.interval, self.sinceLast) = (hold, interval, sinceLast)
    super.init(ThrottleMachine(interval: interval), on: loop, to: down)
  }

  override func start() {
    // A clock that was set back or forward can give any time: no event waits longer than the interval.
    let last = sinceLast().map { now + min(max(.zero, interval - $0), interval) }
    if let due = [hold.due, last].compactMap({ $0 }).max() { machine.rest(until: due) }
    machine.isOpen = hold.isOpen
    hold.link = self
  }

  func open() {
    machine.isOpen = true
    advance()
  }

  override func begin(_ due: Duration) {
    if let timer { loop.cancel(timer) }
    timer = loop.schedule(after: due - now) { [weak self] in
      self?.timer = nil
      self?.advance()
    }
  }

  override func end() {
    if let timer { loop.cancel(timer) }
    timer = nil
    hold.due = machine.due
  }
}
