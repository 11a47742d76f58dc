import Reactive
import StreamRuntime

/// Decides when a run, a streaming response or a program, begins and restarts. Works on demand, times and ends; uses no
/// socket, clock or thread.
///
/// Without demand no run begins. A failed run is retried after the delay of `Backoff`, or after the server's
/// Retry-After if that is longer. After a response that ended well the next request begins at once, or after the
/// server's reconnection time. Two requests begin at least the least delay of the backoff apart. After a program that
/// ended well the next run begins after that delay. The delay after failures grows until the source has worked for its
/// maximum, however many events came (`BackoffSeries`).
struct RestartMachine: TransferMachine, RunMachine {
  /// The action that the caller must perform.
  enum Action: Equatable {
    case begin
    /// Call `next` again at that time, unless a request comes before.
    case wait(until: Duration)
    case rest
  }

  private enum Phase {
    case idle(due: Duration)  // can become: running
    case running(since: Duration, answeredAt: Duration?, hasDelivered: Bool)  // can become: idle, halted
    /// The upstream may have acted on the last request, which is not repeated.
    case halted  // can become: idle
  }

  /// A response without an event that lasted at least this long was a quiet one closed by a server or a proxy; a
  /// shorter one is the failure of a server without a stream.
  static let healthyTime = Duration.seconds(1)

  /// A pause between two responses of at least this length is reported.
  static let notedPause = Duration.seconds(60)

  /// The `retry` of server-sent events; nil: none.
  var reconnectionTime: Duration?
  private let retry: Backoff
  private var series: BackoffSeries
  private var random: SplitMix
  private var phase = Phase.idle(due: .zero)
  private var demand = Subscribers.Demand.none
  /// Failures in a row, for reports. The start of a response does not end the row; an event or `healthyTime` does.
  private(set) var failures = 0
  /// Whether the last report was a failure or a wait.
  private var isFailing = false
  private var hasWaited = false
  /// The server has asked for no request before this time (Retry-After); nil: it has not asked.
  private var restEnd: Duration?
  /// When the last response ended: the server's pause is from then on.
  private var endedAt = Duration.zero

  /// What a run is, for reports.
  private let run: String
  private let isIdempotent: Bool

  /// - Parameter isIdempotent: whether a request is repeated on which the upstream may have acted.
  init(retry: Backoff, seed: UInt64, run: String = "the response", isIdempotent: Bool = true) {
    (self.retry, self.run, self.isIdempotent) = (retry, run, isIdempotent)
    series = BackoffSeries(retry)
    random = SplitMix(seed: seed)
  }

  mutating func request(_ more: Subscribers.Demand) {
    demand += more
  }

  /// Removes all demand; the schedule and the count of failures stay.
  mutating func retract() {
    demand = .none
  }

  /// Ends the subscription and its run. The source's state stays for the next one.
  mutating func suspend(at now: Duration) {
    demand = .none
    if case .running = phase { phase = .idle(due: now + retry.first) }
  }

  /// Continues the schedule of another process: does not begin while the server has asked for no request.
  mutating func resume(_ schedule: SourceSchedule, at now: Duration) {
    guard let rest = schedule.rest, rest > now, case .idle(let due) = phase else { return }
    let end = min(rest, now + UpstreamHost.longestRest)
    restEnd = end
    phase = .idle(due: max(due, end))
  }

  /// When the next run is due after a Retry-After.
  var schedule: SourceSchedule {
    guard case .idle = phase else { return SourceSchedule() }
    return SourceSchedule(rest: restEnd)
  }

  /// Whether the server has asked for a pause, before or after an event, that a reload may end.
  var rests: Bool {
    guard case .idle = phase else { return false }
    return restEnd != nil || serversPause >= Self.notedPause
  }

  /// Retries a failed run at once, and ends a pause between two runs, even if the server asked for it.
  mutating func endRest(at now: Duration) {
    if failures > 0 || rests, case .idle = phase { phase = .idle(due: now) }
    restEnd = nil
  }

  /// Begins the next run now instead of after a pause.
  mutating func refresh(at now: Duration) -> RefreshRefusal? {
    guard isWanted else { return .noDemand }
    if case .halted = phase { phase = .idle(due: now) }
    guard case .idle(let due) = phase else { return .running }
    let askedEnd = max(restEnd ?? .zero, serversPause > .zero ? endedAt + serversPause : .zero)
    if askedEnd > now { return .resting(askedEnd - now) }
    phase = .idle(due: min(due, now))
    return nil
  }

  /// Cancels the request, which waited for its host, because there is no demand any more. The request is due again at
  /// the next demand.
  mutating func withdraw(at now: Duration) {
    if case .running(_, nil, hasDelivered: false) = phase { phase = .idle(due: now) }
  }

  mutating func halt() { (phase, failures, isFailing) = (.halted, failures + 1, true) }
  var isHalted: Bool { if case .halted = phase { true } else { false } }

  /// The request has not begun, for this reason.
  /// - Returns: the report for the operator.
  mutating func waits(_ reason: String) -> SourceReport {
    hasWaited = true
    return .waiting(reason)
  }

  /// The response has begun; its first event may follow much later.
  /// - Returns: the report for the operator.
  mutating func answered(at now: Duration) -> SourceReport? {
    if case .running(let since, nil, let hasDelivered) = phase {
      phase = .running(since: since, answeredAt: now, hasDelivered: hasDelivered)
      series.works(since: now)
    }
    return recovered()
  }

  private mutating func recovered() -> SourceReport? {
    guard isFailing || hasWaited else { return nil }
    defer { (isFailing, hasWaited) = (false, false) }
    return .recovered(afterFailures: isFailing ? failures : 0)
  }

  /// Whether the response has begun.
  var isAnswered: Bool {
    if case .running(_, _?, _) = phase { true } else { false }
  }

  /// Whether a batch may be delivered now.
  var isWanted: Bool { demand > .none }

  mutating func next(at now: Duration) -> Action {
    guard case .idle(let due) = phase, isWanted else { return .rest }
    guard now >= due else { return .wait(until: due) }
    phase = .running(since: now, answeredAt: nil, hasDelivered: false)
    return .begin
  }

  /// Counts a delivered batch.
  /// - Returns: the report for the operator.
  mutating func delivered() -> SourceReport? {
    demand -= .max(1)
    if case .running(let since, let answeredAt, hasDelivered: false) = phase {
      phase = .running(since: since, answeredAt: answeredAt, hasDelivered: true)
    }
    defer { failures = 0 }
    return recovered()
  }

  /// The response has ended.
  /// - Parameter failure: nil for a regular end, which is still a failure if the response had no event and lasted less
  ///   than `healthyTime`.
  /// - Returns: the report for the operator.
  mutating func ended(_ failure: SourceFailure?, at now: Duration) -> SourceReport? {
    if case .running(let since, let answeredAt, let hasDelivered) = phase {
      let isHealthy = hasDelivered || answeredAt.map { now - $0 >= Self.healthyTime } == true
      if isHealthy { failures = 0 }
      if isHealthy, failure == nil {
        phase = .idle(due: max(now + serversPause, since + leastPause()))
        (restEnd, endedAt) = (nil, now)
        guard serversPause >= Self.notedPause else { return recovered() }
        return waits("the server has asked for \(serversPause.inWords) before the next request (retry)")
      }
    }
    guard var failure else {
      // A regular end, after which the next request follows also if it is not idempotent.
      return fail("\(run) ended without an event", at: now)
    }
    if isAnswered, failure.status == nil { failure.wasSent = true }
    guard isIdempotent || !failure.mayHaveActed else {
      failures += 1
      (phase, isFailing, restEnd, endedAt) = (.halted, true, nil, now)
      return .halted(failure.unrepeated)
    }
    return fail(failure.sentence, retryAfter: failure.retryAfter, at: now)
  }

  /// A program's run has ended without a failure.
  /// - Returns: the report for the operator.
  mutating func endedWell(at now: Duration) -> SourceReport? {
    noteRun()
    phase = .idle(due: now + leastPause())
    defer { failures = 0 }
    return recovered()
  }

  /// A program's run has failed, or could not begin.
  /// - Returns: the report for the operator.
  mutating func failed(_ sentence: String, at now: Duration) -> SourceReport {
    noteRun()
    return fail(sentence, at: now)
  }

  /// A program works as soon as it runs.
  private mutating func noteRun() {
    if case .running(let since, _, _) = phase { series.works(since: since) }
  }

  /// - Parameter retryAfter: the server's Retry-After, from now on.
  private mutating func fail(_ sentence: String, retryAfter: Duration? = nil, at now: Duration) -> SourceReport {
    failures += 1
    isFailing = true
    (restEnd, endedAt) = (retryAfter.map { now + min($0, UpstreamHost.longestRest) }, now)
    let pause = max(series.failed(at: now, fraction: random.fraction()), serversPause)
    let delay = max(pause, min(retryAfter ?? .zero, UpstreamHost.longestRest))
    phase = .idle(due: now + delay)
    return .failing(sentence, attempt: failures, retryIn: delay)
  }

  private mutating func leastPause() -> Duration {
    retry.delay(afterFailures: 1, fraction: random.fraction())
  }

  private var serversPause: Duration { min(reconnectionTime ?? .zero, UpstreamHost.longestRest) }
}
