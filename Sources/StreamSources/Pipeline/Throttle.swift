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
  ///   - thread: where values are delivered.
  public func throttle(to interval: Duration, on thread: SourceThread) -> AnyPublisher<EventBatch, Never> {
    precondition(interval > .zero, "an interval must be more than nothing, not \(interval)")
    return Throttle(upstream: self, interval: interval, thread: thread).eraseToAnyPublisher()
  }
}

private struct Throttle<Upstream: Publisher<EventBatch, Never>>: Publisher {
  typealias Output = EventBatch
  typealias Failure = Never
  let upstream: Upstream
  let interval: Duration
  let thread: SourceThread
  let memory = ThrottleMemory()

  func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    upstream.subscribe(ThrottleLink(interval: interval, memory, on: thread.loop, to: AnySubscriber(subscriber)))
  }
}

/// The state that outlives a subscription. Confined to the source thread.
private final class ThrottleMemory: @unchecked Sendable {
  var due: Duration?
}

private final class ThrottleLink: BatchLink<ThrottleMachine>, @unchecked Sendable {
  private let memory: ThrottleMemory
  private var timer: TimerID?

  init(interval: Duration, _ memory: ThrottleMemory, on loop: EventLoop, to down: AnySubscriber<EventBatch, Never>) {
    self.memory = memory
    super.init(ThrottleMachine(interval: interval), on: loop, to: down)
  }

  override func start() {
    if let due = memory.due { machine.rest(until: due) }
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
