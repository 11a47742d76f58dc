import Reactive

/// When a poll fetches, and what it asks with. Knows demand, time and answers; never a socket, a clock or a thread.
///
/// Fetches fall on ticks, `every` apart. The first is made at the first demand, whenever that is; where the ticks after it
/// lie in the interval is fixed by a hash, so that many polls which begin together do not stay together. A tick that
/// nobody has demand for is made up for as soon as there is some, once however many were missed. A fetch that comes
/// late, by half an interval or more, starts the ticks afresh, so that two fetches are never closer than that. Failures
/// are tried again by the rule of `Backoff`, or when the server says, whatever the ticks.
struct PollMachine: TransferMachine {
  /// What the caller must do now. Times are on the clock that the caller tells the time by.
  enum Action: Equatable {
    case fetch(Validators?)
    /// Ask again then, unless a request or an answer comes before.
    case wait(until: Duration)
    /// Nothing is due until there is demand, or an answer.
    case rest
  }

  /// What came of a fetch.
  enum Answer: Equatable {
    /// An event, to be delivered now, and the digest of its bytes.
    case event(Validators?, BodyDigest? = nil)
    /// The bytes of the last event once more, sent by a server that was not asked for less, or does not heed it.
    case repeated(Validators?)
    /// What was delivered last is still so.
    case unchanged
    /// There is no content now (204).
    case nothing
    case failed(HTTPFailure)
  }

  private enum Phase {
    case idle(due: Duration)  // can become: fetching
    case fetching(since: Duration)  // can become: idle
  }

  private let every: Duration
  private let retry: Backoff
  private let phaseFraction: Double
  private var random: SplitMix
  private var phase: Phase?  // nil: nothing was asked for yet
  private var demand = Subscribers.Demand.none
  private var tick = Duration.zero
  private var failures = 0
  private var hasWaited = false
  private var validators: Validators?
  /// Of the last event.
  private var digest: BodyDigest?

  /// How much of the interval a tick is put off by at most, at random each time, and that in whole.
  private static let jitterShare = 0.05
  private static let jitterLimit = Duration.seconds(30)

  /// - Parameters:
  ///   - phaseKey: what fixes where the ticks lie: the same key, the same place.
  ///   - seed: for jitter.
  init(every: Duration, retry: Backoff, phaseKey: String, seed: UInt64) {
    self.every = every
    self.retry = retry
    var hash = SplitMix(seed: phaseKey)
    phaseFraction = hash.fraction()
    random = SplitMix(seed: seed)
  }

  mutating func request(_ more: Subscribers.Demand) {
    demand += more
  }

  /// Nobody wants any more; the schedule and the failures in a row stay.
  mutating func retract() {
    demand = .none
  }

  /// The subscription has ended. The schedule and the failures in a row stay for the next one, so that subscribers who
  /// come and go cause no more fetches than one who stays; a fetch that this cuts short may be made again after the least
  /// pause of the backoff. The next one has seen no event yet: nothing is unchanged to it.
  mutating func suspend(at _: Duration) {
    demand = .none
    (validators, digest) = (nil, nil)
    if case .fetching(let since) = phase { phase = .idle(due: since + min(every, retry.first)) }
  }

  /// For a subscription that knows what the last event was.
  mutating func resume(_ validators: Validators?, _ digest: BodyDigest) {
    (self.validators, self.digest) = (validators, digest)
  }

  /// What failed is tried again at once, whatever the server has asked for.
  mutating func endRest(at now: Duration) {
    if failures > 0, case .idle = phase { phase = .idle(due: now) }
  }

  /// The fetch will not be made, as it had to wait for its host and nobody wants it any more. As soon as somebody does,
  /// one is due again.
  mutating func withdraw(at _: Duration) {
    if case .fetching(let since) = phase { phase = .idle(due: since) }
  }

  /// The fetch has not begun, for this reason.
  /// - Returns: what to tell the operator.
  mutating func waits(_ reason: String) -> SourceReport {
    hasWaited = true
    return .waiting(reason)
  }

  /// What is due at `now`. To be asked after each request and each answer, and at the time that it named.
  mutating func next(at now: Duration) -> Action {
    if case .fetching = phase { return .rest }
    guard demand > .none else { return .rest }
    switch phase {
    case .idle(let due) where now < due: return .wait(until: due)
    case .idle:
      if now - tick >= every / 2 { tick = now }
    case .fetching, nil:  // the first: as though its tick had been up to half an interval ago
      tick = now - every * (0.5 - phaseFraction / 2)
    }
    phase = .fetching(since: now)
    return .fetch(validators)
  }

  /// What a whole page is: an event, unless its bytes are those of the last one.
  func answer(_ validators: Validators?, _ digest: BodyDigest) -> Answer {
    digest == self.digest ? .repeated(validators) : .event(validators, digest)
  }

  /// Takes the answer to the fetch.
  /// - Returns: what to tell the operator.
  mutating func receive(_ answer: Answer, at now: Duration) -> SourceReport? {
    switch answer {
    case .event(let validators, let digest):
      (self.validators, self.digest) = (validators, digest)
      demand -= .max(1)
    case .repeated(let validators): self.validators = validators
    case .unchanged:
      guard validators != nil else { return fail(.status(304, retryAfter: nil), at: now) }
    case .nothing: break
    case .failed(let failure):
      // The server refuses the request, and maybe for what it was asked with.
      if let status = failure.status, (400...499).contains(status) { validators = nil }
      return fail(failure, at: now)
    }
    tick = tickAfter(now)
    phase = .idle(due: tick + jitter())
    defer { (failures, hasWaited) = (0, false) }
    return failures == 0 && !hasWaited ? nil : .recovered(afterFailures: failures)
  }

  private mutating func fail(_ failure: HTTPFailure, at now: Duration) -> SourceReport {
    failures += 1
    var delay = retry.delay(afterFailures: failures, fraction: random.fraction())
    if let wanted = failure.retryAfter { delay = max(delay, min(wanted, UpstreamHost.longestRest) + jitter()) }
    phase = .idle(due: now + delay)
    return .failing(failure.sentence, attempt: failures, retryIn: delay)
  }

  /// The first tick after `now`: those that passed during the fetch are left out.
  private func tickAfter(_ now: Duration) -> Duration {
    var next = tick + every * max(1, (now - tick) / every).rounded(.down)
    while next <= now { next += every }
    return next
  }

  private mutating func jitter() -> Duration {
    min(every * Self.jitterShare, Self.jitterLimit) * random.fraction()
  }
}
