import Reactive

/// When what gives events until it ends, a response or a program, is begun, and begun again. Knows demand, time and ends;
/// never a socket, a clock or a thread.
///
/// Without demand nothing is begun. A run that failed is tried again by the rule of `Backoff`, or when the server says.
/// A response that ended well is followed by the next at once, or after the server's reconnection time, but two never
/// begin closer together than the least pause of the backoff. A program that ended well is followed after that pause.
struct RestartMachine: TransferMachine {
  /// What the caller must do now.
  enum Action: Equatable {
    case begin
    /// Ask again then, unless a request comes before.
    case wait(until: Duration)
    case rest
  }

  private enum Phase {
    case idle(due: Duration)  // can become: running
    case running(since: Duration, answeredAt: Duration?, hasDelivered: Bool)  // can become: idle
  }

  /// How long a response without an event must last to be a quiet one that a server or a proxy has closed, and not the
  /// answer of a server that has nothing to say. Also what ends a row of failures.
  static let healthyTime = Duration.seconds(1)

  /// What `retry` of server-sent events has asked for; else none.
  var reconnectionTime: Duration?
  private let retry: Backoff
  private var random: SplitMix
  private var phase = Phase.idle(due: .zero)
  private var demand = Subscribers.Demand.none
  /// In a row: what the backoff goes by. A response that has just begun does not end the row, an event or
  /// `healthyTime` does.
  private var failures = 0
  /// The last report was of a failure, or of a wait.
  private var isFailing = false
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

  /// What failed is tried again at once, whatever the server has asked for.
  mutating func endRest(at now: Duration) {
    if failures > 0, case .idle = phase { phase = .idle(due: now) }
  }

  /// The request will not be made, as it had to wait for its host and nobody wants it any more. As soon as somebody does,
  /// one is due again.
  mutating func withdraw(at now: Duration) {
    if case .running(_, nil, hasDelivered: false) = phase { phase = .idle(due: now) }
  }

  /// The request has not begun, for this reason.
  /// - Returns: what to tell the operator.
  mutating func waits(_ reason: String) -> SourceReport {
    hasWaited = true
    return .waiting(reason)
  }

  /// The response has begun, which may bring its first event only much later.
  /// - Returns: what to tell the operator.
  mutating func answered(at now: Duration) -> SourceReport? {
    if case .running(let since, nil, let hasDelivered) = phase {
      phase = .running(since: since, answeredAt: now, hasDelivered: hasDelivered)
    }
    return recovered()
  }

  private mutating func recovered() -> SourceReport? {
    guard isFailing || hasWaited else { return nil }
    defer { (isFailing, hasWaited) = (false, false) }
    return .recovered(afterFailures: isFailing ? failures : 0)
  }

  /// Whether a batch may be delivered now.
  var isWanted: Bool { demand > .none }

  mutating func next(at now: Duration) -> Action {
    guard case .idle(let due) = phase, isWanted else { return .rest }
    guard now >= due else { return .wait(until: due) }
    phase = .running(since: now, answeredAt: nil, hasDelivered: false)
    return .begin
  }

  /// A batch is delivered.
  /// - Returns: what to tell the operator.
  mutating func delivered() -> SourceReport? {
    demand -= .max(1)
    if case .running(let since, let answeredAt, hasDelivered: false) = phase {
      phase = .running(since: since, answeredAt: answeredAt, hasDelivered: true)
    }
    defer { failures = 0 }
    return recovered()
  }

  /// The response is over.
  /// - Parameter failure: nil when it ended as its server meant it to. That is a failure, too, if it brought no event and
  ///   lasted less than `healthyTime`.
  /// - Returns: what to tell the operator.
  mutating func ended(_ failure: HTTPFailure?, at now: Duration) -> SourceReport? {
    if case .running(let since, let answeredAt, let hasDelivered) = phase {
      let isHealthy = hasDelivered || answeredAt.map { now - $0 >= Self.healthyTime } == true
      if isHealthy { failures = 0 }
      if isHealthy, failure == nil {
        phase = .idle(due: max(now + serversPause, since + leastPause()))
        return recovered()
      }
    }
    let failure = failure ?? HTTPFailure("the response ended without an event")
    return failed(failure.sentence, retryAfter: failure.retryAfter, at: now)
  }

  /// A program's run is over, and nothing was wrong with it.
  /// - Returns: what to tell the operator.
  mutating func endedWell(at now: Duration) -> SourceReport? {
    phase = .idle(due: now + leastPause())
    defer { failures = 0 }
    return recovered()
  }

  /// The run is over, or could not even begin.
  /// - Parameter retryAfter: what the server asked for, from now on.
  /// - Returns: what to tell the operator.
  mutating func failed(_ sentence: String, retryAfter: Duration? = nil, at now: Duration) -> SourceReport {
    failures += 1
    isFailing = true
    let pause = max(retry.delay(afterFailures: failures, fraction: random.fraction()), serversPause)
    let delay = max(pause, min(retryAfter ?? .zero, UpstreamHost.longestRest))
    phase = .idle(due: now + delay)
    return .failing(sentence, attempt: failures, retryIn: delay)
  }

  private mutating func leastPause() -> Duration {
    retry.delay(afterFailures: 1, fraction: random.fraction())
  }

  private var serversPause: Duration { min(reconnectionTime ?? .zero, UpstreamHost.longestRest) }
}
