import Reactive

/// Decides when a poll fetches a page, and with which validators, or runs a program. Works on demand, times and results;
/// uses no socket, clock or thread.
///
/// Fetches fall on ticks, `every` apart. The first fetch is made at the first demand. A hash determines where later
/// ticks lie in the interval, so that polls that begin together spread out. Ticks without demand are made up for by one
/// fetch as soon as there is demand. A fetch that is late by half an interval or more restarts the ticks, so that two
/// fetches are never closer than that. A failure is retried after the delay of `Backoff`, or after the server's
/// Retry-After if that is longer, independent of the ticks.
struct PollMachine: TransferMachine, RunMachine {
  /// The action that the caller must perform. Times are on the clock that the caller passes.
  enum Action: Equatable {
    case fetch(Validators?)
    /// Call `next` again at that time, unless a request or a result arrives before.
    case wait(until: Duration)
    /// Nothing is due until there is demand or a result.
    case rest
  }

  /// The result of a fetch.
  enum Answer: Equatable {
    /// A new event, to be delivered now, and the digest of its bytes. With `goesOn` it has brought a new position, from which
    /// the next request may follow at once.
    case event(Validators?, BodyDigest? = nil, goesOn: Bool = false)
    /// The bytes of the last event again, from a server that got no validators or ignores them.
    case repeated(Validators?)
    /// The page is unchanged (304).
    case unchanged
    /// There is no content now (204), or all events were delivered while the program ran.
    case nothing
    case failed(SourceFailure)
  }

  private enum Phase {
    case idle(due: Duration)  // can become: fetching
    case fetching(since: Duration)  // can become: idle, halted
    /// The upstream may have acted on the last request, which is not repeated.
    case halted  // can become: idle
  }

  /// The present interval, which grows from `least` to `most` while there are no news.
  private var every: Duration
  private let (least, most): (Duration, Duration)
  private let retry: Backoff
  private let isIdempotent: Bool
  /// Maximum fetches in a row, and the number of those since the last tick.
  private let pages: Int
  private var page = 0
  private let phaseFraction: Double
  private var random: SplitMix
  private var phase: Phase?  // nil: before the first demand
  private var demand = Subscribers.Demand.none
  private var tick = Duration.zero
  private var failures = 0
  private var hasWaited = false
  /// The server has asked for no request before this time (Retry-After); nil: it has not asked.
  private var restEnd: Duration?
  private var validators: Validators?
  /// Whether the next request is without validators: the server may refuse those that it gave.
  private var isBare = false
  /// How often in a row requests failed with validators and succeeded without. From the limit on, none are sent.
  private var refusals = 0
  /// The digest of the last event.
  private var digest: BodyDigest?

  /// Failures in a row after which one request is made without validators.
  private static let patience = 3
  private static let refusalLimit = 2
  /// Maximum random delay of a tick, as a share of the interval.
  private static let jitterShare = 0.05
  private static let jitterLimit = Duration.seconds(30)

  /// - Parameters:
  ///   - phaseKey: determines where the ticks lie: the same key, the same offset.
  ///   - seed: the seed for jitter.
  ///   - isIdempotent: whether a fetch is repeated on which the upstream may have acted.
  ///   - pages: maximum fetches that follow one another at once.
  ///   - most: the longest interval; nil: it does not grow.
  init(
    every: Duration, most: Duration? = nil, retry: Backoff, phaseKey: String, seed: UInt64, isIdempotent: Bool = true,
    pages: Int = 1
  ) {
    (self.every, least, self.most) = (every, every, max(every, most ?? every))
    (self.retry, self.isIdempotent, self.pages) = (retry, isIdempotent, pages)
    var hash = SplitMix(seed: phaseKey)
    phaseFraction = hash.fraction()
    random = SplitMix(seed: seed)
  }

  mutating func request(_ more: Subscribers.Demand) {
    demand += more
  }

  var isWanted: Bool { demand > .none }

  /// Counts a batch of a program that runs. Its end, not its events, shows that it does not fail.
  mutating func delivered() -> SourceReport? {
    demand -= .max(1)
    return nil
  }

  /// Removes all demand; the schedule and the count of failures stay.
  mutating func retract() {
    demand = .none
  }

  /// Ends the subscription. The schedule and the count of failures stay for the next one: subscriptions that come and
  /// go cause no more fetches than one that stays. A fetch that is cut short may be repeated after the least delay of
  /// the backoff. The next subscription has seen no event, so no page is unchanged to it.
  mutating func suspend(at _: Duration) {
    demand = .none
    (validators, digest, isBare, refusals, page) = (nil, nil, false, 0, 0)
    if case .fetching(let since) = phase { phase = .idle(due: since + min(every, retry.first)) }
  }

  /// Resumes a subscription whose last event is known.
  mutating func resume(_ validators: Validators?, _ digest: BodyDigest) {
    (self.validators, self.digest) = (validators, digest)
  }

  /// Continues the schedule of another process: does not fetch before its next slot, nor while the server has asked for
  /// no request. A slot that has passed counts as one without demand.
  mutating func resume(_ schedule: SourceSchedule, at now: Duration) {
    var due = now
    if let slot = schedule.slot, slot > now {
      due = min(slot, now + most)
      tick = due
      due += jitter()
    }
    if let rest = schedule.rest, rest > now {
      let end = min(rest, now + UpstreamHost.longestRest)
      restEnd = end
      due = max(due, end)
    }
    guard due > now else { return }
    switch phase {
    case .idle(let own): phase = .idle(due: max(own, due))
    case nil: phase = .idle(due: due)
    case .fetching, .halted: break
    }
  }

  /// When the next fetch is due; nil during a fetch.
  var schedule: SourceSchedule {
    guard case .idle = phase else { return SourceSchedule() }
    return restEnd.map { SourceSchedule(rest: $0) } ?? SourceSchedule(slot: failures == 0 ? tick : nil)
  }

  /// Whether the server has asked for no request, which a reload ends.
  var rests: Bool { restEnd != nil }

  /// Retries a failed fetch at once, even if the server asked for a pause.
  mutating func endRest(at now: Duration) {
    if failures > 0 || rests, case .idle = phase { phase = .idle(due: now) }
    restEnd = nil
  }

  /// Fetches now instead of at the next tick or retry. The ticks begin anew.
  mutating func refresh(at now: Duration) -> RefreshRefusal? {
    guard demand > .none else { return .noDemand }
    if case .halted = phase { phase = .idle(due: now) }
    guard case .idle(let due) = phase else { return nil }
    if let restEnd, restEnd > now { return .resting(restEnd - now) }
    if due > now { (phase, tick) = (.idle(due: now), now) }
    return nil
  }

  /// Cancels the fetch, which waited for its host, because there is no demand any more. The fetch is due again at the
  /// next demand.
  mutating func withdraw(at _: Duration) {
    if case .fetching(let since) = phase { phase = .idle(due: since) }
  }

  mutating func halt() { (phase, failures) = (.halted, failures + 1) }
  var isHalted: Bool { if case .halted = phase { true } else { false } }

  /// The fetch has not begun, for this reason.
  /// - Returns: the report for the operator.
  mutating func waits(_ reason: String) -> SourceReport {
    hasWaited = true
    return .waiting(reason)
  }

  /// The action due at `now`. Call it after each request and each result, and at the time that it returns.
  mutating func next(at now: Duration) -> Action {
    guard demand > .none else { return .rest }
    switch phase {
    case .halted, .fetching: return .rest
    case .idle(let due) where now < due: return .wait(until: due)
    case .idle:
      if page == 0, now - tick >= every / 2 { tick = now }
    case nil:  // the first fetch is due as though its tick were up to half an interval ago
      tick = now - every * (0.5 - phaseFraction / 2)
    }
    phase = .fetching(since: now)
    return .fetch(sentValidators)
  }

  private var sentValidators: Validators? { isBare || refusals >= Self.refusalLimit ? nil : validators }

  /// The result for a whole page: an event, unless its bytes equal those of the last event.
  func answer(_ validators: Validators?, _ digest: BodyDigest) -> Answer {
    digest == self.digest ? .repeated(validators) : .event(validators, digest)
  }

  /// Takes the result of the fetch.
  /// - Parameter pauses: whether `pause` follows with a pause that the upstream asks for.
  /// - Returns: the report for the operator.
  mutating func receive(_ answer: Answer, at now: Duration, pauses: Bool = false) -> SourceReport? {
    let sent = sentValidators
    var isPage = false
    switch answer {
    case .failed(let failure): return fail(failure, at: now)
    case .unchanged where sent == nil: return fail(.status(304, retryAfter: nil), at: now)
    case .event(let validators, let digest, let goesOn):
      (self.validators, self.digest) = (validators, digest)
      demand -= .max(1)
      isPage = goesOn && page + 1 < pages
    case .repeated(let validators): self.validators = validators
    case .unchanged, .nothing: break
    }
    if case .event = answer { every = least } else { every = min(every * 2, most) }
    if isBare { refusals += 1 } else if sent != nil { refusals = 0 }
    isBare = false
    restEnd = nil
    page = isPage ? page + 1 : 0
    if !isPage { tick = tickAfter(now) }
    phase = .idle(due: isPage ? now : tick + jitter())
    // A source that waits after each answer goes on waiting.
    let isNews = failures > 0 || hasWaited && !pauses
    defer { (failures, hasWaited) = (0, hasWaited && !isNews) }
    return isNews ? .recovered(afterFailures: failures) : nil
  }

  /// The upstream allows no request for this time.
  /// - Returns: the report for the operator, with that reason; nil: none was due before.
  mutating func pause(for time: Duration, at now: Duration, _ reason: @autoclosure () -> String) -> SourceReport? {
    let end = now + min(time, UpstreamHost.longestRest)
    guard case .idle(let due) = phase, end > due else { return nil }
    (restEnd, phase) = (end, .idle(due: end + jitter()))
    return waits(reason())
  }

  private mutating func fail(_ failure: SourceFailure, at now: Duration) -> SourceReport {
    (failures, page) = (failures + 1, 0)
    guard isIdempotent || !failure.mayHaveActed else {
      (phase, restEnd, isBare) = (.halted, nil, false)
      return .halted(failure.unrepeated)
    }
    var sentence = failure.sentence
    // If a request without validators fails, too, the validators are not the reason.
    let isRefusal = failure.status.map { (400...499).contains($0) } == true
    isBare = sentValidators != nil && (isRefusal || failures % Self.patience == 0)
    if isBare { sentence += "; the next request is without validators" }
    restEnd = failure.retryAfter.map { now + min($0, UpstreamHost.longestRest) }
    var delay = retry.delay(afterFailures: failures, fraction: random.fraction())
    if let wanted = failure.retryAfter { delay = max(delay, min(wanted, UpstreamHost.longestRest) + jitter()) }
    phase = .idle(due: now + delay)
    return .failing(sentence, attempt: failures, retryIn: delay)
  }

  /// The first tick after `now`; ticks that passed during the fetch are skipped.
  private func tickAfter(_ now: Duration) -> Duration {
    var next = tick + every * max(1, (now - tick) / every).rounded(.down)
    while next <= now { next += every }
    return next
  }

  private mutating func jitter() -> Duration {
    min(every * Self.jitterShare, Self.jitterLimit) * random.fraction()
  }
}
