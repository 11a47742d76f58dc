import Events
import Reactive
import StreamRuntime

extension Publisher where Output == EventBatch, Failure == Never {
  /// Delivers at most one event per interval, the newest.
  ///
  /// The first event passes at once. Each value is a batch of one event. During an interval with demand, upstream is
  /// asked for one batch after the other; without demand for none. The interval is monotonic, and continues from one
  /// subscription to the next. For one subscription at a time, such as a shared log's.
  /// - Parameters:
  ///   - interval: greater than zero.
  ///   - sinceLast: the time since the last event in the log, for the first subscription, or after another host's
  ///     events; nil: unknown. Called on the source thread.
  ///   - thread: where values are delivered.
  public func throttle(
    to interval: Duration, sinceLast: @escaping @Sendable () -> Duration? = { nil }, on thread: SourceThread
  ) -> AnyPublisher<EventBatch, Never> {
    precondition(interval > .zero, "an interval must be more than nothing, not \(interval)")
    return Throttle(upstream: self, interval: interval, sinceLast: sinceLast, thread: thread).eraseToAnyPublisher()
  }
}

private struct Throttle<Upstream: Publisher<EventBatch, Never>>: Publisher {
  typealias Output = EventBatch
  typealias Failure = Never
  let upstream: Upstream
  let interval: Duration
  let sinceLast: @Sendable () -> Duration?
  let thread: SourceThread
  let memory = ThrottleMemory()

  func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    upstream.subscribe(
      ThrottleLink(interval: interval, sinceLast, memory, on: thread.loop, to: AnySubscriber(subscriber)))
  }
}

/// The state that outlives a subscription. Confined to the source thread.
private final class ThrottleMemory: @unchecked Sendable {
  var due: Duration?
}

private final class ThrottleLink: BatchLink<ThrottleMachine>, @unchecked Sendable {
  private let memory: ThrottleMemory
  private let interval: Duration
  private let sinceLast: @Sendable () -> Duration?
  private var timer: TimerID?

  init(
    interval: Duration, _ sinceLast: @escaping @Sendable () -> Duration?, _ memory: ThrottleMemory, on loop: EventLoop,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    (self.memory, self.interval, self.sinceLast) = (memory, interval, sinceLast)
    super.init(ThrottleMachine(interval: interval), on: loop, to: down)
  }

  override func start() {
    // A clock that was set may claim any time: no event waits longer than the interval.
    let last = sinceLast().map { now + min(max(.zero, interval - $0), interval) }
    if let due = [memory.due, last].compactMap({ $0 }).max() { machine.rest(until: due) }
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
    memory.due = machine.due
  }
}
