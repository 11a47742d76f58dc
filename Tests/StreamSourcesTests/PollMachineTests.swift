import Reactive
import Testing

@testable import StreamSources

private let tag = Validators(url: "http://a/", entityTag: "\"1\"", lastModified: nil)

private struct NothingIsDue: Error {}

/// A machine and the time, which the test moves.
private struct Bench {
  var machine: PollMachine
  var now = Duration.seconds(1000)
  let every: Duration

  init(
    every: Duration = .seconds(10), most: Duration? = nil, retry: Backoff = Backoff(), phaseKey: String = "a",
    seed: UInt64 = 1
  ) {
    self.every = every
    machine = PollMachine(every: every, most: most, retry: retry, phaseKey: phaseKey, seed: seed)
  }

  mutating func next() -> PollMachine.Action { machine.next(at: now) }

  mutating func receive(_ answer: PollMachine.Answer) -> SourceReport? { machine.receive(answer, at: now) }

  /// Moves time to the machine's next action.
  /// - Returns: by how much.
  @discardableResult
  mutating func wait() throws -> Duration {
    guard case .wait(let until) = next() else { throw NothingIsDue() }
    defer { now = until }
    return until - now
  }

  /// A successful fetch of `duration`, begun now.
  mutating func fetch(taking duration: Duration = .zero) {
    guard case .fetch = next() else {
      Issue.record("no fetch is due")
      return
    }
    now += duration
    _ = receive(.event(nil))
  }
}

@Suite struct PollMachineTests {
  @Test func nothingIsDueWithoutDemand() throws {
    var bench = Bench()
    #expect(bench.next() == .rest)
    bench.now += .seconds(3600)
    #expect(bench.next() == .rest)
  }

  @Test func theScheduleOfAnotherProcessContinues() throws {
    var bench = Bench()
    bench.machine.request(.unlimited)
    bench.machine.resume(SourceSchedule(slot: bench.now + .seconds(4)), at: bench.now)
    let wait = try bench.wait()
    #expect(wait >= .seconds(4) && wait <= .seconds(4.5))
    bench.fetch()
    #expect(bench.machine.schedule.slot == Duration.seconds(1014))
  }

  @Test func aSlotThatHasPassedOrIsNoneOfThisIntervalDelaysNoFetch() throws {
    for slot in [-1, 0] {
      var bench = Bench()
      bench.machine.request(.max(1))
      bench.machine.resume(SourceSchedule(slot: bench.now + .seconds(slot)), at: bench.now)
      #expect(bench.next() == .fetch(nil))
    }
    var bench = Bench()
    bench.machine.request(.max(1))
    bench.machine.resume(SourceSchedule(slot: bench.now + .seconds(1_000_000)), at: bench.now)
    #expect(try bench.wait() <= .seconds(10.5))
  }

  @Test func theRetryAfterOfAnotherProcessIsRespectedForADayAtMost() throws {
    var bench = Bench()
    bench.machine.request(.max(1))
    var failure = SourceFailure.status(429, retryAfter: .seconds(300))
    #expect(bench.next() == .fetch(nil))
    _ = bench.receive(.failed(failure))
    let schedule = bench.machine.schedule
    #expect(schedule.slot == nil && schedule.rest.map { $0 >= bench.now + .seconds(300) } == true)
    var other = Bench(seed: 2)
    other.machine.request(.max(1))
    other.machine.resume(schedule, at: other.now)
    #expect(try other.wait() >= .seconds(300))
    #expect(other.next() == .fetch(nil))
    failure.retryAfter = nil
    _ = other.receive(.failed(failure))
    #expect(other.machine.schedule == SourceSchedule())
    other = Bench()
    other.machine.request(.max(1))
    other.machine.resume(SourceSchedule(rest: .seconds(1_000_000_000)), at: other.now)
    #expect(try other.wait() == .seconds(24 * 3600))
  }

  @Test func theIntervalDoublesWithoutNews() throws {
    var bench = Bench(every: .seconds(5), most: .seconds(60))
    bench.machine.request(.unlimited)
    bench.fetch()
    for (answer, expected) in [
      (PollMachine.Answer.nothing, 10.0), (.repeated(tag), 20), (.unchanged, 40), (.nothing, 60), (.nothing, 60),
      (.event(tag), 5), (.unchanged, 10), (.failed(SourceFailure("down")), 10), (.unchanged, 20),
    ] {
      try bench.wait()
      guard case .fetch = bench.next() else { throw NothingIsDue() }
      _ = bench.receive(answer)
      guard let slot = bench.machine.schedule.slot else { continue }
      let interval = slot - bench.now
      #expect(interval > .seconds(expected - 3.1) && interval <= .seconds(expected), "\(answer) \(interval)")
    }
  }

  @Test func aPauseOfTheUpstreamMovesTheNextFetch() throws {
    var bench = Bench(every: .seconds(10))
    bench.machine.request(.unlimited)
    bench.fetch()
    #expect(bench.machine.pause(for: .seconds(1), at: bench.now, "a") == nil, "the interval is longer")
    #expect(bench.machine.pause(for: .seconds(60), at: bench.now, "b") == .waiting("b"))
    let refusal = bench.machine.refresh(at: bench.now)
    #expect(bench.machine.rests && refusal == .resting(.seconds(60)))
    #expect(try bench.wait() >= .seconds(60))
    // A source that waits after each answer goes on waiting.
    #expect(bench.next() == .fetch(nil))
    #expect(bench.machine.receive(.event(nil), at: bench.now, pauses: true) == nil)
    #expect(bench.machine.pause(for: .seconds(1_000_000), at: bench.now, "c") == .waiting("c"))
    #expect(bench.machine.schedule.rest == bench.now + .seconds(86400))
    bench.machine.endRest(at: bench.now)
    #expect(bench.next() == .fetch(nil))
    #expect(bench.machine.receive(.event(nil), at: bench.now) == .recovered(afterFailures: 0))
  }

  @Test func aQueuedFetchRecoversWithItsResult() {
    var bench = Bench()
    bench.machine.request(.max(2))
    #expect(bench.next() == .fetch(nil))
    #expect(bench.machine.waits("a asks for patience") == .waiting("a asks for patience"))
    #expect(bench.receive(.event(nil)) == .recovered(afterFailures: 0))
    bench.now += .seconds(20)
    #expect(bench.next() == .fetch(nil))
    #expect(bench.receive(.event(nil)) == nil)
  }

  @Test func aWithdrawnFetchIsDueAtTheNextDemand() {
    var bench = Bench()
    bench.machine.request(.max(1))
    #expect(bench.next() == .fetch(nil))
    bench.machine.retract()
    bench.machine.withdraw(at: bench.now)
    #expect(bench.next() == .rest)
    bench.machine.request(.max(1))
    #expect(bench.next() == .fetch(nil))
  }

  @Test func theFirstDemandFetchesAtOnceAndOnce() throws {
    var bench = Bench()
    bench.machine.request(.max(5))
    #expect(bench.next() == .fetch(nil))
    #expect(bench.next() == .rest)
    bench.machine.request(.unlimited)
    #expect(bench.next() == .rest)
  }

  @Test func aUnitOfDemandIsOneEvent() throws {
    var bench = Bench()
    bench.machine.request(.max(2))
    bench.fetch()
    try bench.wait()
    bench.fetch()
    bench.now += .seconds(3600)
    #expect(bench.next() == .rest)
    bench.machine.request(.max(1))
    #expect(bench.next() == .fetch(nil))
  }

  @Test(arguments: ["a", "b", "quotes", "clock", ""]) func fetchesFollowOnceAnInterval(key: String) throws {
    var bench = Bench(phaseKey: key)
    bench.machine.request(.unlimited)
    bench.fetch()
    let first = try bench.wait()
    #expect(first >= bench.every / 2 && first <= bench.every * 1.05)
    let start = bench.now
    for _ in 0..<100 {
      bench.fetch(taking: .milliseconds(300))
      let gap = try bench.wait() + .milliseconds(300)
      #expect(gap >= bench.every * 0.95 && gap <= bench.every * 1.05)
    }
    // Each tick has its own jitter, which does not accumulate.
    let drift = bench.now - start - bench.every * 100
    #expect(drift > bench.every * -0.05 && drift < bench.every * 0.05)
  }

  @Test func theKeyDeterminesThePhaseAndSpreadsTicks() throws {  // row 30
    var offsets: [Int: Int] = [:]
    for number in 0..<1000 {
      let waits = try (0..<2).map { _ in
        var bench = Bench(every: .seconds(100), phaseKey: "stream \(number)", seed: 7)
        bench.machine.request(.unlimited)
        bench.fetch()
        return try bench.wait()
      }
      #expect(waits[0] == waits[1])
      offsets[Int(waits[0] / .seconds(1)), default: 0] += 1
    }
    // 1,000 over about 50 seconds are 20 a second; they never coincide.
    #expect(offsets.values.max() ?? 0 < 45)
  }

  @Test func eachTickHasItsOwnJitter() throws {  // row 30
    var bench = Bench()
    bench.machine.request(.unlimited)
    var gaps = Set<Duration>()
    for _ in 0..<20 {
      bench.fetch()
      let gap = try bench.wait()
      gaps.insert(gap)
    }
    #expect(gaps.count == 20)
  }

  @Test func ticksWithoutDemandAreMadeUpForOnce() throws {  // row 30
    var bench = Bench()
    bench.machine.request(.max(1))
    bench.fetch()
    bench.now += bench.every * 7.3
    #expect(bench.next() == .rest)
    bench.machine.request(.unlimited)
    bench.fetch()
    let gap = try bench.wait()
    #expect(gap >= bench.every / 2 && gap <= bench.every * 1.05)
  }

  @Test func ticksDuringAFetchAreSkipped() throws {  // row 30
    var bench = Bench()
    bench.machine.request(.unlimited)
    for _ in 0..<10 {
      bench.fetch(taking: bench.every * 3.5)
      let gap = try bench.wait()
      #expect(gap <= bench.every * 1.05)
    }
  }

  @Test func aFetchSendsTheValidatorsOfTheLastEvent() throws {
    var bench = Bench()
    bench.machine.request(.unlimited)
    #expect(bench.next() == .fetch(nil))
    _ = bench.receive(.event(tag))
    try bench.wait()
    #expect(bench.next() == .fetch(tag))
    _ = bench.receive(.failed(SourceFailure("x")))
    try bench.wait()
    #expect(bench.next() == .fetch(tag))
    _ = bench.receive(.event(nil))
    try bench.wait()
    #expect(bench.next() == .fetch(nil))
  }

  @Test func theBytesOfTheLastEventAreNoNewEvent() throws {
    var bench = Bench()
    let (one, two) = (BodyDigest(Array("one".utf8)), BodyDigest(Array("two".utf8)))
    bench.machine.request(.max(2))
    _ = bench.next()
    #expect(bench.machine.answer(nil, one) == .event(nil, one))
    _ = bench.receive(.event(nil, one))
    try bench.wait()
    #expect(bench.next() == .fetch(nil))
    #expect(bench.machine.answer(tag, one) == .repeated(tag))
    #expect(bench.receive(.repeated(tag)) == nil)
    try bench.wait()
    #expect(bench.next() == .fetch(tag))
    #expect(bench.machine.answer(nil, two) == .event(nil, two))
    _ = bench.receive(.event(nil, two))
    #expect(bench.next() == .rest)
    // The next subscription has received nothing.
    bench.machine.suspend(at: bench.now)
    #expect(bench.machine.answer(nil, two) == .event(nil, two))
  }

  @Test func digestsOfDifferentBytesDiffer() {
    var pages: [[UInt8]] = [[], [0], [0, 0], Array(repeating: 0, count: 8), Array(repeating: 0, count: 9)]
    for index in 0..<64 {
      pages.append(Array(repeating: 0, count: 8 + index) + [1] + Array(repeating: 0, count: 64 - index))
    }
    #expect(Set(pages.map { BodyDigest($0).value }).count == pages.count)
    #expect(BodyDigest(Array("a page".utf8)) == BodyDigest(Array("a page".utf8)))
  }

  /// Fails with `status`, from a fetch with these validators; moves to the next one.
  private func fail(_ status: Int, with sent: Validators?, _ bench: inout Bench) throws -> String? {
    #expect(bench.next() == .fetch(sent))
    let report = bench.receive(.failed(.status(status, retryAfter: nil)))
    guard case .failing(let sentence, _, _)? = report else { return nil }
    try bench.wait()
    return sentence
  }

  @Test func aClientErrorLeadsToOneRequestWithoutValidators() throws {
    var bench = Bench()
    bench.machine.request(.unlimited)
    _ = bench.next()
    _ = bench.receive(.event(tag))
    try bench.wait()
    #expect(try fail(503, with: tag, &bench) == "HTTP 503 Service Unavailable")
    #expect(try fail(431, with: tag, &bench) == "HTTP 431; the next request is without validators")
    #expect(try fail(431, with: nil, &bench) == "HTTP 431")
    #expect(bench.next() == .fetch(tag))  // they are not the reason
    #expect(bench.receive(.unchanged) == .recovered(afterFailures: 3))
  }

  @Test func threeFailuresOfAnyKindLeadToOneRequestWithoutValidators() throws {
    var bench = Bench()
    bench.machine.request(.unlimited)
    _ = bench.next()
    _ = bench.receive(.event(tag))
    try bench.wait()
    for _ in 0..<2 { #expect(try fail(500, with: tag, &bench) == "HTTP 500 Internal Server Error") }
    let sentence = try fail(500, with: tag, &bench)
    #expect(sentence == "HTTP 500 Internal Server Error; the next request is without validators")
    #expect(bench.next() == .fetch(nil))
    #expect(bench.receive(.repeated(tag)) == .recovered(afterFailures: 3))
    // The first time may be chance.
    for _ in 0..<3 {
      try bench.wait()
      #expect(bench.next() == .fetch(tag))
      _ = bench.receive(.failed(SourceFailure("it closed the connection")))
    }
    try bench.wait()
    #expect(bench.next() == .fetch(nil))
    _ = bench.receive(.event(tag))
    for _ in 0..<10 {
      try bench.wait()
      #expect(bench.next() == .fetch(nil))
      _ = bench.receive(.repeated(tag))
    }
  }

  @Test func validatorsThatWorkAreKeptOverFailures() throws {
    var bench = Bench()
    bench.machine.request(.unlimited)
    _ = bench.next()
    _ = bench.receive(.event(tag))
    for _ in 0..<5 {
      for _ in 0..<3 {
        try bench.wait()
        #expect(bench.next() == .fetch(tag))
        _ = bench.receive(.failed(.status(500, retryAfter: nil)))
      }
      try bench.wait()
      #expect(bench.next() == .fetch(nil))
      _ = bench.receive(.repeated(tag))
      try bench.wait()
      #expect(bench.next() == .fetch(tag))
      _ = bench.receive(.unchanged)
    }
  }

  @Test func anUnchangedPageUsesNoDemand() throws {
    var bench = Bench()
    bench.machine.request(.max(2))
    _ = bench.next()
    _ = bench.receive(.event(tag))
    for _ in 0..<10 {
      try bench.wait()
      #expect(bench.next() == .fetch(tag))
      #expect(bench.receive(.unchanged) == nil)
    }
    try bench.wait()
    #expect(bench.next() == .fetch(tag))
    _ = bench.receive(.event(tag))
    #expect(bench.next() == .rest)
  }

  @Test func retractedDemandFetchesNothingAndKeepsTheSchedule() throws {
    var bench = Bench()
    bench.machine.request(.unlimited)
    bench.fetch()
    let due = bench.next()
    bench.machine.retract()
    #expect(bench.next() == .rest)
    bench.machine.request(.max(1))
    #expect(bench.next() == due)
  }

  @Test func aSubscriptionKeepsTheScheduleOfTheLastButNotItsValidators() throws {
    var bench = Bench()
    bench.machine.request(.unlimited)
    #expect(bench.next() == .fetch(nil))
    _ = bench.receive(.event(tag))
    let due = bench.next()
    bench.machine.suspend(at: bench.now)
    #expect(bench.next() == .rest)
    bench.machine.request(.max(1))
    #expect(bench.next() == due)
    try bench.wait()
    #expect(bench.next() == .fetch(nil))
  }

  @Test func aSubscriptionKeepsTheBackoffOfTheLast() throws {  // row 10
    var bench = Bench(retry: Backoff(first: .seconds(100), max: .seconds(100)))
    bench.machine.request(.unlimited)
    _ = bench.next()
    _ = bench.receive(.failed(SourceFailure("down")))
    let due = bench.next()
    bench.machine.suspend(at: bench.now)
    bench.machine.request(.unlimited)
    #expect(bench.next() == due)
  }

  @Test func aCancelledFetchIsRepeatedAfterTheLeastPause() throws {
    var bench = Bench(every: .seconds(3600), retry: Backoff(first: .seconds(1), max: .seconds(100)))
    bench.machine.request(.unlimited)
    #expect(bench.next() == .fetch(nil))
    bench.machine.suspend(at: bench.now)
    bench.machine.request(.unlimited)
    #expect(try bench.wait() == .seconds(1))
    #expect(bench.next() == .fetch(nil))
  }

  @Test func notModifiedWithoutValidatorsIsAFailure() throws {
    var bench = Bench()
    bench.machine.request(.max(1))
    _ = bench.next()
    guard case .failing("HTTP 304 Not Modified", attempt: 1, _) = bench.receive(.unchanged) else {
      Issue.record("not reported")
      return
    }
  }

  @Test func eachFailureIsReportedAndBacksOffToTheLimit() throws {
    var bench = Bench(retry: Backoff(first: .seconds(1), max: .seconds(20)))
    bench.machine.request(.max(1))
    for (index, nominal) in [1, 2, 4, 8, 16, 20, 20, 20].enumerated() {
      #expect(bench.next() == .fetch(nil))
      guard case .failing("x", let attempt, let delay) = bench.receive(.failed(SourceFailure("x"))) else {
        Issue.record("not reported")
        return
      }
      #expect(attempt == index + 1)
      #expect(delay >= .seconds(nominal) / 2 && delay < .seconds(nominal))
      let waited = try bench.wait()
      #expect(waited == delay)
    }
    #expect(bench.next() == .fetch(nil))
    #expect(bench.receive(.event(nil)) == .recovered(afterFailures: 8))
    bench.machine.request(.max(1))
    try bench.wait()
    #expect(bench.next() == .fetch(nil))
    #expect(bench.receive(.event(nil)) == nil)
  }

  @Test func aRecoveryResetsTheBackoff() throws {
    var bench = Bench()
    bench.machine.request(.unlimited)
    for answers in 0..<3 {
      for attempt in 1...4 {
        _ = bench.next()
        guard case .failing(_, attempt, _) = bench.receive(.failed(SourceFailure("x"))) else {
          Issue.record("attempt \(attempt) of row \(answers) is not reported so")
          return
        }
        try bench.wait()
      }
      bench.fetch()
      try bench.wait()
    }
  }

  @Test func failuresUseNoDemandAndAreNotRetriedWithoutDemand() throws {
    var bench = Bench()
    bench.machine.request(.max(1))
    for _ in 0..<5 {
      _ = bench.next()
      _ = bench.receive(.failed(SourceFailure("x")))
      try bench.wait()
    }
    bench.fetch()
    #expect(bench.next() == .rest)
  }

  @Test(arguments: [(3, 3), (600, 600), (86_400, 86_400), (1_000_000, 86_400), (Int.max, 86_400)])
  func retryAfterIsObeyedUpToADay(asked: Int, granted: Int) throws {
    var bench = Bench()
    bench.machine.request(.max(1))
    _ = bench.next()
    let failure = SourceFailure("HTTP 503 Service Unavailable", retryAfter: .seconds(asked))
    guard case .failing(_, attempt: 1, let delay) = bench.receive(.failed(failure)) else {
      Issue.record("not reported")
      return
    }
    #expect(delay >= .seconds(granted) && delay <= .seconds(granted) + bench.every * 0.05)
    let waited = try bench.wait()
    #expect(waited == delay)
  }

  @Test func aShortRetryAfterDoesNotShortenTheBackoff() throws {
    var bench = Bench(retry: Backoff(first: .seconds(60), max: .seconds(60)))
    bench.machine.request(.max(1))
    _ = bench.next()
    guard case .failing(_, _, let delay) = bench.receive(.failed(SourceFailure("x", retryAfter: .zero))) else {
      Issue.record("not reported")
      return
    }
    #expect(delay >= .seconds(30))
  }

  @Test func theBackoffOfAnyNumberOfFailuresIsWithinItsBounds() throws {
    let backoff = Backoff(first: .milliseconds(100), max: .seconds(86_400 * 365))
    for count in [1, 2, 10, 1000, Int.max] {
      let delay = backoff.delay(afterFailures: count, fraction: 0.999)
      #expect(delay > .zero && delay <= backoff.max)
    }
  }

  @Test func aRefreshFetchesAtOnceAndTheTicksBeginAnew() throws {
    var bench = Bench()
    #expect(bench.machine.refresh(at: bench.now) == .noDemand)
    bench.machine.request(.unlimited)
    bench.fetch()
    try bench.wait()
    bench.fetch()
    bench.now += .seconds(3)
    #expect(bench.machine.refresh(at: bench.now) == nil)
    #expect(bench.next() == .fetch(nil))
    // The fetch under way is the one that is asked for.
    #expect(bench.machine.refresh(at: bench.now) == nil)
    _ = bench.receive(.event(nil))
    let wait = try bench.wait()
    #expect(wait >= .seconds(10) && wait <= .seconds(10.5))
  }

  @Test func aRefreshRetriesAFailureAndRespectsTheRetryAfterOfTheServer() throws {
    var bench = Bench(retry: Backoff(first: .seconds(8), max: .seconds(60)))
    bench.machine.request(.max(1))
    #expect(bench.next() == .fetch(nil))
    _ = bench.receive(.failed(SourceFailure("down")))
    #expect(bench.machine.refresh(at: bench.now) == nil)
    #expect(bench.next() == .fetch(nil))
    _ = bench.receive(.failed(.status(503, retryAfter: .seconds(100))))
    // What the server has asked for, without the backoff and the spread of the next attempt.
    #expect(bench.machine.refresh(at: bench.now) == .resting(.seconds(100)))
    let schedule = bench.machine.schedule
    var next = Bench(seed: 2)
    next.machine.request(.max(1))
    next.machine.resume(schedule, at: next.now)
    #expect(next.machine.rests && next.machine.refresh(at: next.now) == .resting(.seconds(100)))
    next.machine.endRest(at: next.now)
    #expect(!next.machine.rests && next.next() == .fetch(nil))
    #expect(try bench.wait() >= .seconds(100))
    #expect(bench.machine.refresh(at: bench.now) == nil)
    #expect(bench.next() == .fetch(nil))
  }
}
