import Events
import Testing

@testable import ReplayLog

/// What the log keeps of the last minutes.
@Suite struct RecentEventsTests {
  private static let period = RecentEvents.periodMicroseconds
  private static let start = 1000 * period

  /// Whole seconds since the start of a period.
  private func time(_ seconds: UInt64) -> UInt64 { Self.start + seconds * 1_000_000 }

  @Test func eventsAreCountedInTheirPeriods() throws {
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    clock.now = time(1)
    log.append(EventBatch([[1], [2, 3]]))
    #expect(log.recentPeriods(before: time(4)).isEmpty)
    clock.now = time(4)
    log.append(EventBatch([[4]]))
    clock.now = time(16)
    log.append(EventBatch([[5, 6, 7]]))
    #expect(log.recentPeriods(before: time(19)) == [.init(events: 3, bytes: 4), .init(), .init()])
    #expect(log.recentPeriods(before: time(20)).last == .init(events: 1, bytes: 3))
    #expect(RecentEvents.end(before: time(24)) == time(20))
  }

  @Test func anotherLogOfTheStreamContinuesThem() throws {
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    clock.now = time(1)
    log.append(EventBatch([[1], [2], [3]]))
    let next = try #require(EventLog(name: "test", limits: .init(events: 2, bytes: 4096), takingOver: log))
    #expect(next.recentPeriods(before: time(6)) == [.init(events: 3, bytes: 3)])
    next.append(EventBatch([[4]]))
    #expect(next.appendedEvents == 4)
  }

  @Test func onlyTheLastPeriodsAreKept() throws {
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    for index in 0..<100 {
      clock.now = time(UInt64(index) * 5)
      log.append(EventBatch([[UInt8](repeating: 0, count: index)]))
    }
    let periods = log.recentPeriods(before: time(500))
    #expect(periods.map(\.bytes) == (40..<100).map { UInt32($0) })
    #expect(log.recentPeriods(before: time(1_000_000)) == Array(repeating: .init(), count: RecentEvents.periodCount))
  }

  @Test func aClockThatIsSetBackBeginsAnew() throws {
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    for seconds in [100_000, 100_005] as [UInt64] {
      clock.now = time(seconds)
      log.append(EventBatch([[1]]))
    }
    // By less than the history: the periods that are not over yet are not shown.
    #expect(log.recentPeriods(before: time(100_000)).isEmpty)
    #expect(log.recentPeriods(before: time(100_010)).count == 2)
    #expect(log.recentPeriods(before: time(3)).isEmpty)
    clock.now = time(4)
    log.append(EventBatch([[1], [2]]))
    #expect(log.recentPeriods(before: time(6)) == [.init(events: 2, bytes: 2)])
  }

  @Test(arguments: [0, 1, 4_999_999, .max - 1, .max] as [UInt64])
  func anyTimeOfAnotherHostIsHarmless(time: UInt64) throws {
    let log = try makeLog()
    for time in [time, 0, .max, time] {
      var batch = EventBatch([[1]])
      #expect(batch.setStamps(try #require(EventStamps(firstID: log.endPosition + 1, time: time))))
      log.append(batch)
      for now in [0, time, .max] { #expect(log.recentPeriods(before: now).count <= RecentEvents.periodCount) }
    }
  }
}
