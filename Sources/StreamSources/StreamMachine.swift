import Reactive

/// When what gives events until it ends, a response or a program, is begun, and begun again. Knows demand, time and ends;
/// never a socket, a clock or a thread.
///
/// Without demand nothing is begun. A run that failed is tried again by the rule of `Backoff`, or when the server says.
/// One that ended well is begun again after the reconnection time.
struct StreamMachine {
  /// What the caller must do now.
  enum Action: Equatable {
    case begin
    /// Ask again then, unless a request comes before.
    case wait(until: Duration)
    case rest
  }

  private enum Phase {
    case idle(due: Duration)  // can become: running
    case running(hasDelivered: Bool)  // can become: idle
  }

  /// What `retry` of server-sent events has asked for; else the least pause of the backoff.
  var reconnectionTime: Duration?
  private let retry: Backoff
  private var random: SplitMix
  private var phase = Phase.idle(due: .zero)
  private var demand = Subscribers.Demand.none
  private var failures = 0
  private var hasWaited = false

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

  /// The subscription has ended, and with it the run. What is known of the source stays for the next one.
  mutating func suspend(at now: Duration) {
    demand = .none
    if case .running = phase { phase = .idle(due: now + retry.first) }
  }

  /// The request will not be made, as it had to wait for its host and nobody wants it any more. As soon as somebody does,
  /// one is due again.
  mutating func withdraw(at now: Duration) {
    if case .running(hasDelivered: false) = phase { phase = .idle(due: now) }
  }

  /// The request has not begun, for this reason.
  /// - Returns: what to tell the operator.
  mutating func waits(_ reason: String) -> SourceReport {
    hasWaited = true
    return .waiting(reason)
  }

  /// The response has begun, which may bring its first event only much later.
  /// - Returns: what to tell the operator.
  mutating func answered() -> SourceReport? {
    guard hasWaited, failures == 0 else { return nil }
    hasWaited = false
    return .recovered(afterFailures: 0)
  }

  /// Whether a batch may be delivered now.
  var isWanted: Bool { demand > .none }

  mutating func next(at now: Duration) -> Action {
    guard case .idle(let due) = phase, isWanted else { return .rest }
    guard now >= due else { return .wait(until: due) }
    phase = .running(hasDelivered: false)
    return .begin
  }

  /// A batch is delivered.
  /// - Returns: what to tell the operator.
  mutating func delivered() -> SourceReport? {
    demand -= .max(1)
    if case .running = phase { phase = .running(hasDelivered: true) }
    defer { (failures, hasWaited) = (0, false) }
    return failures == 0 ? nil : .recovered(afterFailures: failures)
  }

  /// The response is over.
  /// - Parameter failure: nil when it ended as its server meant it to; without an event that is a failure all the same.
  /// - Returns: what to tell the operator.
  mutating func ended(_ failure: HTTPFailure?, at now: Duration) -> SourceReport? {
    if failure == nil, case .running(hasDelivered: true) = phase { return endedWell(at: now) }
    let failure = failure ?? HTTPFailure("the response ended without an event")
    return failed(failure.sentence, retryAfter: failure.retryAfter, at: now)
  }

  /// The run is over, and nothing was wrong with it.
  /// - Returns: what to tell the operator.
  mutating func endedWell(at now: Duration) -> SourceReport? {
    phase = .idle(due: now + pause(afterFailures: 1))
    defer { failures = 0 }
    return failures == 0 ? nil : .recovered(afterFailures: failures)
  }

  /// The run is over, or could not even begin.
  /// - Parameter retryAfter: what the server asked for, from now on.
  /// - Returns: what to tell the operator.
  mutating func failed(_ sentence: String, retryAfter: Duration? = nil, at now: Duration) -> SourceReport {
    failures += 1
    let delay = max(pause(afterFailures: failures), min(retryAfter ?? .zero, UpstreamHost.longestRest))
    phase = .idle(due: now + delay)
    return .failing(sentence, attempt: failures, retryIn: delay)
  }

  private mutating func pause(afterFailures count: Int) -> Duration {
    let pause = retry.delay(afterFailures: count, fraction: random.fraction())
    return max(pause, min(reconnectionTime ?? .zero, UpstreamHost.longestRest))
  }
}
