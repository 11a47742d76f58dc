import Reactive

/// When a response without end is asked for, and asked for again. Knows demand, time and ends; never a socket, a clock
/// or a thread.
///
/// Without demand nothing is asked for. A response that failed, or ended without an event, is tried again by the rule of
/// `Backoff`, or when the server says. One that brought events is asked for again after the reconnection time.
struct StreamMachine {
  /// What the caller must do now.
  enum Action: Equatable {
    case connect
    /// Ask again then, unless a request comes before.
    case wait(until: Duration)
    case rest
  }

  private enum Phase {
    case idle(due: Duration)  // can become: connected
    case connected(hasDelivered: Bool)  // can become: idle
  }

  /// What `retry` of server-sent events has asked for; else the least pause of the backoff.
  var reconnectionTime: Duration?
  private let retry: Backoff
  private var random: SplitMix
  private var phase = Phase.idle(due: .zero)
  private var demand = Subscribers.Demand.none
  private var failures = 0

  init(retry: Backoff, seed: UInt64) {
    self.retry = retry
    random = SplitMix(seed: seed)
  }

  mutating func request(_ more: Subscribers.Demand) {
    demand += more
  }

  /// Nobody wants any more; the schedule and the failures in a row stay.
  mutating func retract() {
    demand = .none
  }

  /// The subscription has ended, and with it the connection. What is known of the source stays for the next one.
  mutating func suspend(at now: Duration) {
    demand = .none
    if case .connected = phase { phase = .idle(due: now + retry.first) }
  }

  /// Whether a batch may be delivered now.
  var isWanted: Bool { demand > .none }

  mutating func next(at now: Duration) -> Action {
    guard case .idle(let due) = phase, isWanted else { return .rest }
    guard now >= due else { return .wait(until: due) }
    phase = .connected(hasDelivered: false)
    return .connect
  }

  /// A batch is delivered.
  /// - Returns: what to tell the operator.
  mutating func delivered() -> SourceReport? {
    demand -= .max(1)
    if case .connected = phase { phase = .connected(hasDelivered: true) }
    defer { failures = 0 }
    return failures == 0 ? nil : .recovered(afterFailures: failures)
  }

  /// The response is over.
  /// - Parameter failure: nil when it ended as its server meant it to.
  /// - Returns: what to tell the operator.
  mutating func ended(_ failure: HTTPFailure?, at now: Duration) -> SourceReport? {
    if failure == nil, case .connected(hasDelivered: true) = phase {
      phase = .idle(due: now + pause(afterFailures: 1))
      return nil
    }
    failures += 1
    let failure = failure ?? HTTPFailure("the response ended without an event")
    let delay = max(pause(afterFailures: failures), min(failure.retryAfter ?? .zero, PollMachine.retryAfterLimit))
    phase = .idle(due: now + delay)
    return .failing(failure.sentence, attempt: failures, retryIn: delay)
  }

  private mutating func pause(afterFailures count: Int) -> Duration {
    let pause = retry.delay(afterFailures: count, fraction: random.fraction())
    return max(pause, min(reconnectionTime ?? .zero, PollMachine.retryAfterLimit))
  }
}
