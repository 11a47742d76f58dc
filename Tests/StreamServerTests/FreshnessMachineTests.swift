import Testing

@testable import StreamServer

@Suite struct FreshnessMachineTests {
  /// A step of a table: what a check sees at a second, and what it finds.
  private struct Step: CustomTestStringConvertible {
    var second: Double
    var events: UInt64 = 0
    /// In seconds, by the wall clock.
    var newestAge: Double?
    var fetchedAt: Double?
    var isDemanded: Bool? = true
    var change = FreshnessMachine.Change.none
    var staleSince: Double?

    var testDescription: String { "at \(second) s" }
  }

  private static func nanoseconds(_ seconds: Double) -> UInt64 { UInt64(seconds * 1e9) }

  /// Begins at 100 s with a limit of 10 s.
  private func run(newestAge: Double? = nil, _ steps: [Step]) {
    var machine = FreshnessMachine(
      limit: Self.nanoseconds(10), events: 0, newestAge: newestAge.map(Self.nanoseconds), at: Self.nanoseconds(100))
    for step in steps {
      let observation = FreshnessMachine.Observation(
        events: step.events, newestAge: step.newestAge.map(Self.nanoseconds),
        fetchedAt: step.fetchedAt.map(Self.nanoseconds), isDemanded: step.isDemanded)
      #expect(machine.check(observation, at: Self.nanoseconds(step.second)) == step.change, "\(step.testDescription)")
      #expect(machine.staleSince == step.staleSince.map(Self.nanoseconds), "\(step.testDescription)")
    }
  }

  @Test func silenceIsStaleOnceAndAnEventEndsIt() {
    run([
      Step(second: 101, events: 1, newestAge: 0.5),
      // The source has been asked since 101 s.
      Step(second: 111, events: 1, newestAge: 10.5),
      Step(second: 111.1, events: 1, newestAge: 10.6, change: .stale, staleSince: 111),
      Step(second: 500, events: 1, newestAge: 399.5, staleSince: 111),
      Step(second: 501, events: 2, newestAge: 0.25, change: .recovered),
      Step(second: 510.75, events: 2, newestAge: 10),
      Step(second: 511, events: 2, newestAge: 10.25, change: .stale, staleSince: 510.75),
    ])
  }

  @Test func fetchesWithoutAnEventKeepAStreamFresh() {
    run([
      Step(second: 101, fetchedAt: 101),
      Step(second: 109, fetchedAt: 108),
      Step(second: 118, fetchedAt: 108),
      Step(second: 119, fetchedAt: 108, change: .stale, staleSince: 118),
      Step(second: 121, fetchedAt: 120, change: .recovered),
    ])
  }

  @Test func aStreamThatNothingAsksForIsNotStale() {
    run([
      Step(second: 101, isDemanded: false),
      Step(second: 900, isDemanded: false),
      // Its time begins now.
      Step(second: 901),
      Step(second: 911),
      Step(second: 912, change: .stale, staleSince: 911),
      Step(second: 913, isDemanded: false, change: .idle),
      Step(second: 914),
      Step(second: 924),
      Step(second: 925, change: .stale, staleSince: 924),
    ])
  }

  @Test func aChangeOfTheStreamDecidesNothing() {
    run([
      Step(second: 101),
      Step(second: 112, change: .stale, staleSince: 111),
      Step(second: 113, isDemanded: nil, staleSince: 111),
      Step(second: 114, staleSince: 111),
      Step(second: 115, events: 1, isDemanded: nil, staleSince: 125),
      Step(second: 116, events: 1, change: .recovered),
    ])
  }

  @Test func aWallClockThatIsSetMakesNothingStaleOrFresh() {
    run([
      Step(second: 101, events: 1, newestAge: 0),
      // The clock was set forward by an hour: the event has come since the last check, whatever its time.
      Step(second: 102, events: 2, newestAge: 3600),
      Step(second: 112, events: 2, newestAge: 3610),
      Step(second: 113, events: 2, newestAge: 3611, change: .stale, staleSince: 112),
      // It was set back, so that the newest event has not come yet.
      Step(second: 120, events: 2, newestAge: nil, staleSince: 112),
      Step(second: 121, events: 2, newestAge: 0, staleSince: 112),
    ])
  }

  @Test func theLastEventOfAFormerProcessIsKnownButTheTimeBeginsWithTheDemand() {
    var machine = FreshnessMachine(limit: 10, events: 0, newestAge: 30, at: 100)
    #expect(machine.provedAt == 70)
    #expect(machine.check(.init(events: 0, isDemanded: true), at: 100) == .none)
    #expect(machine.check(.init(events: 0, isDemanded: true), at: 110) == .none)
    #expect(machine.check(.init(events: 0, isDemanded: true), at: 111) == .stale)
    #expect(machine.provedAt == 70)
    #expect(FreshnessMachine(limit: 10, events: 0, newestAge: 300, at: 100).provedAt == nil)
  }

  @Test func aHandoverContinuesTheTimeAndTheReport() {
    var former = FreshnessMachine(limit: 10, events: 0, newestAge: 0, at: 100)
    _ = former.check(.init(events: 0, isDemanded: true), at: 101)
    var next = FreshnessMachine(limit: 10, events: 0, newestAge: 8, at: 108)
    next.restore(former.saved, at: 108)
    #expect(next.check(.init(events: 0, isDemanded: nil), at: 109) == .none)
    #expect(next.check(.init(events: 0, isDemanded: true), at: 112) == .stale)
    #expect(next.staleSince == 111)
    var last = FreshnessMachine(limit: 10, events: 0, newestAge: 13, at: 113)
    last.restore(next.saved, at: 113)
    #expect(last.isStale && last.staleSince == 111)
    #expect(last.check(.init(events: 0, isDemanded: true), at: 114) == .none)
    #expect(last.check(.init(events: 1, isDemanded: true), at: 115) == .recovered)
  }

  @Test(arguments: [(UInt64.max, UInt64.max), (0, 0), (101, 101), (1, .max), (.max, 1)])
  func anyStateIsRestored(provedAt: UInt64, demandedSince: UInt64) {
    var machine = FreshnessMachine(limit: .max, events: 0, newestAge: nil, at: 100)
    machine.restore(.init(provedAt: provedAt, demandedSince: demandedSince, isStale: true), at: 100)
    _ = machine.staleSince
    _ = machine.check(.init(events: .max, newestAge: .max, fetchedAt: .max, isDemanded: true), at: 101)
    #expect(machine.staleSince == nil)
    #expect(machine.provedAt == 101)
  }

  @Test func aLongerLimitEndsStaleness() {
    var machine = FreshnessMachine(limit: 10, events: 0, newestAge: 0, at: 100)
    _ = machine.check(.init(events: 0, isDemanded: true), at: 100)
    #expect(machine.check(.init(events: 0, isDemanded: true), at: 120) == .stale)
    machine.limit = 1000
    #expect(machine.check(.init(events: 0, isDemanded: true), at: 121) == .recovered)
    machine.limit = 5
    #expect(machine.check(.init(events: 0, isDemanded: true), at: 122) == .stale)
    #expect(machine.staleSince == 105)
  }
}
