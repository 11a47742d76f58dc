import Events
import StreamRuntime
import Testing

@testable import ReplayLog

/// A log whose clock the test moves.
final class MovedClock {
  var now: UInt64 = 1_000_000
}

func makeLog(events: Int = 1000, bytes: Int = 4096, age: Duration? = nil, clock: MovedClock = MovedClock()) throws
  -> EventLog
{
  try #require(
    EventLog(name: "test", limits: .init(events: events, bytes: bytes, age: age), firstID: 100, clock: { clock.now }))
}

@Suite struct EventLogTests {
  @Test func anEventIsReadWithItsBytesIdAndTime() throws {
    let log = try makeLog()
    log.append([[1, 2, 3], [], [UInt8](repeating: 9, count: 999)])
    #expect(log.firstPosition == 100)
    #expect(log.endPosition == 103)
    #expect(log.element(at: 100) == LoggedEvent(id: 100, time: 1_000_000, data: [1, 2, 3]))
    #expect(log.element(at: 101).data.isEmpty)
    #expect(log.element(at: 102).data.count == 999)
  }

  /// A subscriber may have it, whether or not it fits.
  @Test func theNewestIDSurvivesASmallerLog() throws {
    let log = try makeLog(bytes: 64 << 10)
    log.append([[1], [2], [UInt8](repeating: 3, count: 20_000)])
    let small = EventLog.Limits(events: 1000, bytes: 8192)
    let other = try #require(EventLog(name: "test", limits: small, takingOver: log))
    #expect(other.endPosition == 103 && other.firstPosition == 103 && other.newestID == 102)
    #expect(other.newestTime == log.newestTime)
  }

  @Test func aRecordIsTheStampInWireOrderAndThenTheData() throws {
    let log = try makeLog()
    log.append([[0xAB]])
    #expect(Array(log.record(at: 100)) == [0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0x0F, 0x42, 0x40, 0xAB])
  }

  @Test func aBatchWithACheckpointWaitsAsAWholeForSpace() throws {
    func batch(_ events: [[UInt8]], _ number: UInt8) -> EventBatch {
      var batch = EventBatch(events)
      batch.checkpoint = Checkpoint([number])
      return batch
    }
    for (events, size) in [(4, 1), (100, 900)] {  // by number, by bytes: three fit beside each other
      let log = try makeLog(events: events, bytes: 4096)
      func event(_ number: UInt8) -> [UInt8] { Array(repeating: number, count: size) }
      log.hold(from: 100)
      #expect(log.appendWhatFits(batch([event(1), event(2)], 1)) == nil)
      let next = batch([event(3), event(4), event(5)], 2)
      #expect(log.appendWhatFits(next) == next)
      #expect(log.endPosition == 102 && log.checkpoint == Checkpoint([1]))
      log.hold(from: 102)
      #expect(log.appendWhatFits(next) == nil)
      #expect(log.endPosition == 105 && log.checkpoint == Checkpoint([2]))
      // A batch that exceeds the log is stored in parts.
      let tooMany = batch((6...12).map { event($0) }, 3)
      log.hold(from: 105)
      let rest = try #require(log.appendWhatFits(tooMany))
      #expect(!rest.isEmpty && rest.count < tooMany.count && rest.checkpoint == Checkpoint([3]))
      #expect(log.checkpoint == Checkpoint([2]))
    }
  }

  @Test func unreadEventsAreNotEvictedByCountBytesOrAge() throws {
    let clock = MovedClock()
    let log = try makeLog(events: 3, bytes: 4096, age: .seconds(1), clock: clock)
    log.hold(from: 100)
    #expect(log.appendWhatFits(EventBatch((1...5).map { [UInt8($0)] })) == [[4], [5]])
    #expect(log.isFull)
    clock.now += 2_000_000
    log.dropExpired()
    #expect((100..<103).map { log.element(at: $0).data } == [[1], [2], [3]])
    log.hold(from: 102)
    #expect(!log.isFull)
    #expect(log.appendWhatFits([[4], [5]]) == nil)
    #expect((102..<105).map { log.element(at: $0).data } == [[3], [4], [5]])
    log.hold(from: .max)
    log.append([[6], [7], [8]])
    #expect(log.firstPosition == 103 + 2 && log.endPosition == 108)
  }

  @Test func anEventWaitsForSpaceAtAnyPlaceInTheRing() throws {
    let log = try makeLog(events: 1000, bytes: 4096)
    var next: UInt64 = 100
    var held: [Int] = []
    var sent = 0
    for size in (0..<400).map({ $0 * 131 % 1500 }) {
      log.hold(from: next)
      while log.appendWhatFits([[UInt8](repeating: UInt8(truncatingIfNeeded: sent), count: size)]) != nil {
        #expect(log.element(at: next).data.count == held.removeFirst())
        next += 1
        log.hold(from: next)
      }
      held.append(size)
      sent += 1
    }
    #expect((next..<log.endPosition).map { log.element(at: $0).data.count } == held)
  }

  @Test func anEventLargerThanTheRingIsDropped() throws {
    let log = try makeLog(bytes: 4096)
    let most = log.limits.maximumEventBytes
    log.append([[1], [UInt8](repeating: 2, count: most + 1), [3], [UInt8](repeating: 4, count: 1 << 20)])
    #expect((100..<102).map { log.element(at: $0).data } == [[1], [3]] && log.endPosition == 102)
    log.hold(from: 100)
    #expect(log.appendWhatFits([[UInt8](repeating: 2, count: most + 1)]) == nil)
    #expect(log.appendWhatFits([[UInt8](repeating: 2, count: most)])?.count == 1)
  }

  @Test func theOldestEventIsEvictedAtTheLimitOfEvents() throws {
    let log = try makeLog(events: 3)
    log.append(EventBatch((1...5).map { [UInt8($0)] }))
    #expect(log.firstPosition == 102)
    #expect((102..<105).map { log.element(at: $0).data } == [[3], [4], [5]])
  }

  /// Whatever the sizes, the log has exactly the newest events, each intact.
  @Test(arguments: [1, 2, 3, 4, 5]) func theRingHoldsTheNewestEventsIntact(seed: UInt64) throws {
    var random = SystemRandom(seed)
    let log = try makeLog(events: 50, bytes: 4096)
    var all: [[UInt8]] = []
    for round in 0..<3000 {
      let count =
        random.next(below: 10) == 0 ? log.limits.maximumEventBytes - random.next(below: 3) : random.next(below: 300)
      let event = [UInt8](repeating: UInt8(truncatingIfNeeded: round), count: count)
      all.append(event)
      log.append([event])
      #expect(log.endPosition == 100 + UInt64(all.count))
      #expect(log.firstPosition < log.endPosition)
      #expect(log.endPosition - log.firstPosition <= 50)
      for position in log.firstPosition..<log.endPosition {
        guard log.element(at: position).data == all[Int(position - 100)] else {
          Issue.record("event \(position) is not what was appended, in round \(round)")
          return
        }
      }
    }
  }

  @Test func theUsedPartOfTheRingIsLimitedAndStoredEventsStayIntact() throws {
    var random = SystemRandom(3)
    let log = try makeLog(events: 50, bytes: 64 << 10)
    for round in 0..<2000 {
      let used = [4096, 8192, 64 << 10, 1 << 20][random.next(below: 4)]
      log.usedBytes = used
      #expect(log.usedBytes == min(used, 64 << 10))
      log.append([[UInt8](repeating: UInt8(truncatingIfNeeded: round), count: random.next(below: 1000))])
      for position in log.firstPosition..<log.endPosition {
        let data = log.element(at: position).data
        #expect(data.allSatisfy { $0 == UInt8(truncatingIfNeeded: position - 100) })
      }
    }
    log.usedBytes = 4096
    for _ in 0..<100 { log.append([[UInt8](repeating: 1, count: 1000)]) }
    #expect(log.endPosition - log.firstPosition == 4)  // of 1,024 bytes each
  }

  @Test func theNewestTimeIsKnownAfterTheFirstEvent() throws {
    let clock = MovedClock()
    let log = try makeLog(age: .seconds(1), clock: clock)
    #expect(log.newestTime == nil)
    log.append([[1]])
    clock.now += 5_000_000
    log.dropExpired()
    #expect(log.newestTime == 1_000_000)
  }

  @Test func halfOfTheRingIsAlwaysUsable() throws {
    // Records are never split, so a wrap may waste up to one record's space; small events must still fill the ring.
    let log = try makeLog(events: 1000, bytes: 4096)
    for _ in 0..<1000 { log.append([[UInt8](repeating: 0, count: 40)]) }
    #expect(log.endPosition - log.firstPosition >= 62)
  }

  @Test func expiredEventsAreEvictedOnReadAndAppend() throws {
    let clock = MovedClock()
    let log = try makeLog(age: .seconds(10), clock: clock)
    log.append([[1]])
    clock.now += 8_000_000
    log.append([[2]])
    clock.now += 4_000_000
    log.dropExpired()
    #expect(log.firstPosition == 101)
    clock.now += 20_000_000
    log.append([[3]])
    #expect(log.firstPosition == 102)
  }

  @Test func aTimeFindsTheFirstEventSinceThen() throws {
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    for number in 0..<10 as Range<UInt8> {
      log.append([[number]])
      clock.now += 10
    }
    #expect(log.position(since: 0) == 100)
    #expect(log.position(since: 1_000_010) == 101)
    #expect(log.position(since: 1_000_011) == 102)
    #expect(log.position(since: 2_000_000) == 110)
  }

  @Test func timesFollowTheClockAndIdsFollowTheOrder() throws {  // SEMANTICS 33
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    log.append([[1]])
    clock.now -= 500_000
    log.append([[2]])
    clock.now += 1
    log.append([[3]])
    #expect((100..<103).map { log.element(at: $0).time } == [1_000_000, 500_000, 500_001])
    #expect(log.newestTime == 500_001)
  }

  /// Ten events a second apart, ten that a clock a day ahead has stamped, and ten more; it is the 29th second.
  private func logOfAClockThatWasAhead(_ clock: MovedClock, age: Duration? = nil) throws -> EventLog {
    let log = try makeLog(age: age, clock: clock)
    for number in 0..<30 as Range<UInt8> {
      clock.now = 1_000_000_000 + UInt64(number) * 1_000_000 + (10..<20 ~= number ? 86_400_000_000 : 0)
      log.append([[number]])
    }
    return log
  }

  @Test func aTimeIsFoundAfterTheClockWasAheadTemporarily() throws {  // SEMANTICS 33
    let clock = MovedClock()
    let log = try logOfAClockThatWasAhead(clock)
    #expect(log.position(since: clock.now - 4_000_000) == 125)
    #expect(log.position(since: clock.now - 24_000_000) == 105)
    #expect(log.position(since: 0) == 100)
    #expect(log.position(since: clock.now) == 129 && log.position(since: clock.now + 1) == 130)
    // An event that cannot be ordered belongs to the next one.
    #expect(log.position(since: clock.now - 15_000_000) == 120)
  }

  @Test func aRepeatedTimeFindsTheOlderEvent() throws {
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    for number in 0..<20 as Range<UInt64> {
      clock.now = 1_000_000 + number % 10
      log.append([[1]])
    }
    #expect(log.position(since: 1_000_005) == 105)
    clock.now = 1_000_007
    #expect(log.position(since: 1_000_009) == log.endPosition)
  }

  @Test func aSearchIsFastWhenTheClockIsSetBackRepeatedly() throws {
    let clock = MovedClock()
    let log = try makeLog(events: 1000, bytes: 64 << 10, clock: clock)
    for _ in 0..<1000 {
      clock.now -= 100
      log.append([[1]])
      clock.now += 50
      log.append([[2]])
    }
    clock.now += 1_000_000
    #expect(log.position(since: 0) == log.firstPosition)
    let found = log.position(since: log.newestTime ?? 0)
    #expect(found >= log.firstPosition && found < log.endPosition)
    #expect(log.element(at: found).time >= log.newestTime ?? 0)
  }

  @Test func anAgeIsRelativeToTheCurrentClock() throws {  // SEMANTICS 33
    let clock = MovedClock()
    let log = try logOfAClockThatWasAhead(clock, age: .seconds(25))
    // With the clock a day ahead, earlier events had expired; now that it is right, the events that it stamped have.
    #expect(log.firstPosition == 120)
    clock.now += 20_000_000
    log.dropExpired()
    #expect(log.firstPosition == 124)
    // Stamped in the future by less than the age: it may be that young.
    clock.now -= 45_000_000
    log.dropExpired()
    #expect(log.firstPosition == 124)
    clock.now -= 30_000_000
    log.dropExpired()
    #expect(log.firstPosition == 130)
  }

  @Test func theLargestAgeIsAccepted() throws {
    let clock = MovedClock()
    let log = try makeLog(age: .seconds(Int64.max), clock: clock)
    log.append([[1]])
    clock.now = .max
    log.append([[2]])
    #expect(log.firstPosition == 100)
  }

  @Test func aNewLogBeginsAboveTheIdsOfEarlierLogs() throws {  // WIRE: ids never go back
    let first = try #require(EventLog(name: "a", limits: .init()))
    first.append(EventBatch(repeating: [], count: 1000))
    let last = first.endPosition - 1
    var second = try #require(EventLog(name: "a", limits: .init()))
    while EventLoop.wallClock() <= last {}
    second = try #require(EventLog(name: "a", limits: .init()))
    #expect(second.endPosition > last)
  }
}

/// A small generator with a seed, so that a failure can be repeated.
struct SystemRandom {
  private var state: UInt64
  init(_ seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 | 1 }
  mutating func next(below bound: Int) -> Int {
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return Int(state % UInt64(bound))
  }
}
