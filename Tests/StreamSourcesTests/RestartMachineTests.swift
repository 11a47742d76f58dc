import Testing

@testable import StreamSources

@Suite struct RestartMachineTests {
  private let retry = Backoff(first: .seconds(1), max: .seconds(60))
  private let down = SourceFailure("down")

  private func machine() -> RestartMachine { RestartMachine(retry: retry, seed: 1) }

  private func time(_ action: RestartMachine.Action) -> Duration? {
    if case .wait(let due) = action { due } else { nil }
  }

  @Test func withoutDemandNothingIsRequested() {
    var machine = machine()
    #expect(machine.next(at: .seconds(1)) == .rest)
    machine.request(.max(1))
    #expect(machine.next(at: .seconds(1)) == .begin)
    #expect(machine.next(at: .seconds(1)) == .rest)
  }

  @Test func aQueuedRequestRecoversAndAWithdrawnOneIsRepeated() {
    var machine = machine()
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .begin)
    #expect(machine.waits("a asks for patience") == .waiting("a asks for patience"))
    machine.retract()
    machine.withdraw(at: .seconds(1))
    #expect(machine.next(at: .seconds(1)) == .rest)
    machine.request(.max(1))
    #expect(machine.next(at: .seconds(1)) == .begin)
    #expect(machine.answered(at: .seconds(1)) == .recovered(afterFailures: 0))
    #expect(machine.answered(at: .seconds(1)) == nil)
    #expect(machine.delivered() == nil)
  }

  @Test func aUnitOfDemandIsABatch() {
    var machine = machine()
    machine.request(.max(1))
    _ = machine.next(at: .zero)
    #expect(machine.isWanted)
    #expect(machine.delivered() == nil)
    #expect(!machine.isWanted)
  }

  @Test func failuresBackOffAndAreReportedUntilABatchIsDelivered() throws {
    var machine = machine()
    machine.request(.unlimited)
    var now = Duration.seconds(1000)
    var pauses: [Duration] = []
    for attempt in 1...10 {
      #expect(machine.next(at: now) == .begin)
      guard case .failing("down", attempt, let pause)? = machine.ended(down, at: now) else {
        Issue.record("not reported")
        return
      }
      let due = try #require(time(machine.next(at: now)))
      #expect(due == now + pause)
      pauses.append(pause)
      now = due
    }
    #expect(pauses[0] <= .seconds(1) && pauses[9] >= .seconds(30) && pauses[9] <= .seconds(60))
    #expect(machine.next(at: now) == .begin)
    #expect(machine.delivered() == .recovered(afterFailures: 10))
    #expect(machine.delivered() == nil)
  }

  @Test func anEndedResponseWithEventsIsRequestedAgainAfterAPause() throws {
    var machine = machine()
    machine.request(.unlimited)
    _ = machine.next(at: .zero)
    _ = machine.delivered()
    #expect(machine.ended(nil, at: .zero) == nil)
    let due = try #require(time(machine.next(at: .zero)))
    #expect(due >= .milliseconds(500) && due <= .seconds(1))
  }

  @Test func anEndedQuietResponseIsRequestedAgainAtOnce() throws {
    var machine = machine()
    machine.request(.unlimited)
    var now = Duration.zero
    for _ in 0..<20 {
      #expect(machine.next(at: now) == .begin)
      #expect(machine.answered(at: now + .milliseconds(10)) == nil)
      now += .seconds(3)
      #expect(machine.ended(nil, at: now) == nil)
    }
    machine.reconnectionTime = .milliseconds(200)
    #expect(machine.next(at: now) == .begin)
    #expect(machine.answered(at: now) == nil)
    now += .seconds(3)
    #expect(machine.ended(nil, at: now) == nil)
    #expect(machine.next(at: now) == .wait(until: now + .milliseconds(200)))
  }

  @Test func theStartOfAResponseIsARecoveryButOnlyALastingOneEndsTheSeries() throws {
    var machine = machine()
    machine.request(.unlimited)
    var now = Duration.zero
    for attempt in 1...5 {
      #expect(machine.next(at: now) == .begin)
      #expect(machine.answered(at: now) == (attempt == 1 ? nil : .recovered(afterFailures: attempt - 1)))
      #expect(machine.answered(at: now) == nil)
      guard case .failing(_, attempt, let pause)? = machine.ended(nil, at: now + .milliseconds(1)) else {
        Issue.record("not reported as attempt \(attempt)")
        return
      }
      now += .milliseconds(1) + pause
    }
    #expect(machine.next(at: now) == .begin)
    #expect(machine.answered(at: now) == .recovered(afterFailures: 5))
    now += RestartMachine.healthyTime
    guard case .failing("down", attempt: 1, _)? = machine.ended(down, at: now) else {
      Issue.record("the row goes on")
      return
    }
  }

  @Test func aShortResponseWithoutAnEventIsAFailure() {
    var machine = machine()
    machine.request(.unlimited)
    _ = machine.next(at: .zero)
    guard case .failing("the response ended without an event", attempt: 1, _)? = machine.ended(nil, at: .zero) else {
      Issue.record("not reported")
      return
    }
  }

  @Test func theServersReconnectionTimeAndRetryAfterLengthenThePause() throws {
    var machine = machine()
    machine.request(.unlimited)
    _ = machine.next(at: .zero)
    _ = machine.delivered()
    machine.reconnectionTime = .seconds(30)
    _ = machine.ended(nil, at: .zero)
    #expect(try #require(time(machine.next(at: .zero))) == .seconds(30))
    _ = machine.next(at: .seconds(30))
    _ = machine.ended(SourceFailure("HTTP 503", retryAfter: .seconds(100)), at: .seconds(30))
    #expect(try #require(time(machine.next(at: .seconds(30)))) == .seconds(130))
  }

  @Test func aLongReconnectionTimeIsReportedADayAtMostAndEndsOnRequest() throws {
    var machine = machine()
    machine.request(.unlimited)
    machine.reconnectionTime = .seconds(1_000_000)
    _ = machine.next(at: .zero)
    _ = machine.delivered()
    #expect(
      machine.ended(nil, at: .zero) == .waiting("the server has asked for 1 day before the next request (retry)"))
    #expect(time(machine.next(at: .zero)) == .seconds(86_400))
    #expect(machine.rests && machine.schedule == SourceSchedule())
    machine.endRest(at: .seconds(5))
    #expect(machine.next(at: .seconds(5)) == .begin)
    #expect(!machine.rests)
    #expect(machine.answered(at: .seconds(6)) == .recovered(afterFailures: 0))
  }

  @Test func theRetryAfterOfAnotherProcessIsRespected() throws {
    var first = machine()
    first.request(.max(1))
    #expect(first.next(at: .zero) == .begin)
    _ = first.ended(.status(503, retryAfter: .seconds(300)), at: .seconds(1))
    #expect(first.schedule == SourceSchedule(rest: .seconds(301)))
    var other = machine()
    other.request(.max(1))
    other.resume(first.schedule, at: .seconds(10))
    #expect(time(other.next(at: .seconds(10))) == .seconds(301))
    #expect(other.next(at: .seconds(301)) == .begin)
    _ = other.ended(down, at: .seconds(302))
    #expect(other.schedule == SourceSchedule())
  }

  @Test func aSubscriptionKeepsTheBackoffOfTheLast() throws {  // row 10
    var machine = machine()
    machine.request(.unlimited)
    _ = machine.next(at: .zero)
    _ = machine.ended(down, at: .zero)
    let before = machine.next(at: .zero)
    machine.suspend(at: .zero)
    #expect(machine.next(at: .zero) == .rest)
    machine.request(.unlimited)
    #expect(machine.next(at: .zero) == before)
    #expect(machine.next(at: .seconds(1)) == .begin)
    machine.suspend(at: .seconds(1))
    machine.request(.unlimited)
    #expect(try #require(time(machine.next(at: .seconds(1)))) == .seconds(2))
  }

  /// The pauses after runs that each last this long, have an event and fail.
  private func pauses(
    _ machine: inout RestartMachine, from now: inout Duration, runs: Int, lasting time: Duration, isProgram: Bool
  ) -> [Duration] {
    (0..<runs).map { _ in
      #expect(machine.next(at: now) == .begin)
      if !isProgram { _ = machine.answered(at: now) }
      _ = machine.delivered()
      now += time
      let report = isProgram ? machine.failed("down", at: now) : machine.ended(down, at: now)
      guard case .failing("down", attempt: 1, let pause)? = report else {
        Issue.record("not reported: \(String(describing: report))")
        return .zero
      }
      now += pause
      return pause
    }
  }

  @Test(arguments: [true, false]) func aSourceThatFailsAfterEachEventBacksOff(isProgram: Bool) {
    var machine = machine()
    machine.request(.unlimited)
    var now = Duration.seconds(1000)
    let pauses = pauses(&machine, from: &now, runs: 20, lasting: .milliseconds(10), isProgram: isProgram)
    for (index, pause) in pauses.enumerated() {
      let most = min(.seconds(1) * (1 << index), .seconds(60))
      #expect(pause >= most / 2 && pause <= most, "\(index)")
    }
  }

  @Test(arguments: [true, false]) func aRunAsLongAsTheLongestPauseEndsTheSeries(isProgram: Bool) {
    var machine = machine()
    machine.request(.unlimited)
    var now = Duration.seconds(1000)
    _ = pauses(&machine, from: &now, runs: 20, lasting: .zero, isProgram: isProgram)
    let short = pauses(&machine, from: &now, runs: 1, lasting: .seconds(59), isProgram: isProgram)
    #expect(short[0] >= .seconds(30))
    let stable = pauses(&machine, from: &now, runs: 2, lasting: .seconds(60), isProgram: isProgram)
    #expect(stable.allSatisfy { $0 <= .seconds(1) })
  }

  @Test func runsThatEndWellCountTogetherAsAStableRun() {
    var machine = machine()
    machine.request(.unlimited)
    var now = Duration.seconds(1000)
    _ = pauses(&machine, from: &now, runs: 20, lasting: .zero, isProgram: false)
    for (runs, longest) in [(10, Duration.seconds(60)), (40, .seconds(1))] {
      for _ in 0..<runs {  // each takes a second and a pause
        #expect(machine.next(at: now) == .begin)
        _ = machine.answered(at: now)
        _ = machine.delivered()
        now += .seconds(1)
        _ = machine.ended(nil, at: now)
        now += .seconds(1)
      }
      let after = pauses(&machine, from: &now, runs: 1, lasting: .zero, isProgram: false)
      #expect(after[0] >= longest / 2 && after[0] <= longest)
    }
  }

  @Test func aResponseThatDoesNotBeginIsNoStableRun() {
    var machine = machine()
    machine.request(.unlimited)
    var now = Duration.seconds(1000)
    var last = Duration.zero
    for _ in 0..<20 {
      #expect(machine.next(at: now) == .begin)
      now += .seconds(100)
      guard case .failing(_, _, let pause)? = machine.ended(down, at: now) else {
        Issue.record("not reported")
        return
      }
      now += pause
      last = pause
    }
    #expect(last >= .seconds(30))
  }

  @Test func aSuccessfulRunIsARecoveryAndRestartsAfterTheLeastPause() throws {
    var machine = machine()
    machine.request(.unlimited)
    _ = machine.next(at: .zero)
    _ = machine.failed("down", at: .zero)
    #expect(machine.next(at: .seconds(1)) == .begin)
    #expect(machine.endedWell(at: .seconds(1)) == .recovered(afterFailures: 1))
    #expect(try #require(time(machine.next(at: .seconds(1)))) <= .seconds(2))
    #expect(machine.next(at: .seconds(2)) == .begin)
    #expect(machine.endedWell(at: .seconds(2)) == nil)
  }

  @Test func aRefreshEndsABackoffButNeitherARunNorARetryAfter() {
    var machine = machine()
    #expect(machine.refresh(at: .zero) == .noDemand)
    machine.request(.unlimited)
    #expect(machine.next(at: .zero) == .begin)
    #expect(machine.refresh(at: .zero) == .running)
    _ = machine.ended(down, at: .seconds(1))
    #expect(machine.refresh(at: .seconds(1)) == nil)
    #expect(machine.next(at: .seconds(1)) == .begin)
    _ = machine.ended(.status(503, retryAfter: .seconds(30)), at: .seconds(2))
    #expect(machine.refresh(at: .seconds(12)) == .resting(.seconds(20)))
    let schedule = machine.schedule
    #expect(machine.refresh(at: .seconds(40)) == nil)
    #expect(machine.next(at: .seconds(40)) == .begin)
    var other = self.machine()
    other.request(.unlimited)
    other.resume(schedule, at: .seconds(12))
    #expect(other.rests && other.refresh(at: .seconds(12)) == .resting(.seconds(20)))
    // The pause that the `retry` of server-sent events asks for, however short.
    machine.reconnectionTime = .seconds(20)
    _ = machine.answered(at: .seconds(40))
    _ = machine.delivered()
    _ = machine.ended(nil, at: .seconds(50))
    #expect(machine.refresh(at: .seconds(55)) == .resting(.seconds(15)))
    #expect(machine.refresh(at: .seconds(70)) == nil)
  }
}
