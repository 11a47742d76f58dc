import Events
import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import ReplayLog

/// Events with the ids from `first` on, one time, and a position.
func stamped(_ first: UInt64, _ events: [[UInt8]], time: UInt64 = 5, position: [UInt8]? = nil) throws -> EventBatch {
  var batch = EventBatch(events)
  #expect(batch.setStamps(try #require(EventStamps(firstID: first, time: time, position: position))))
  return batch
}

/// `count` events that identify themselves; the position and the checkpoint name the last one.
func contents(from first: UInt64, _ count: Int) throws -> EventBatch {
  let last = Array(String(first + UInt64(count) - 1).utf8)
  var batch = try stamped(first, (0..<count).map { content(of: first + UInt64($0)) }, position: last)
  batch.checkpoint = Checkpoint(last)
  return batch
}

extension EventLog {
  /// The id of the event that the position belongs to.
  var positionID: UInt64? { fleetPosition.flatMap { UInt64(String(decoding: $0, as: UTF8.self)) } }
}

/// Batches that bring the ids and times of their events.
@Suite struct StampTests {
  /// A log that follows a fleet, from id 1000 on.
  private func follower(_ place: DamagedRegion) throws -> EventLog {
    let log = try place.log()
    log.append(try contents(from: 1000, 1))
    return log
  }

  @Test func eventsHaveExactlyTheirIdsAndTimes() throws {
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    var batch = EventBatch([[1], [2], [3]])
    #expect(batch.setStamps(try #require(EventStamps(firstID: 100, times: [70, 9, .max], position: [4]))))
    log.append(batch)
    #expect(
      (100..<103).map { log.element(at: $0) } == [
        LoggedEvent(id: 100, time: 70, data: [1]), LoggedEvent(id: 101, time: 9, data: [2]),
        LoggedEvent(id: 102, time: .max, data: [3]),
      ])
    #expect(log.endPosition == 103 && log.newestID == 102 && log.newestTime == .max && log.fleetPosition == [4])
    log.append(try stamped(103, [[4]], time: 0))
    #expect(log.newestTime == 0 && log.appendedEvents == 4 && log.fleetPosition == [4])
  }

  @Test func anIdThatTheLogHadIsSkipped() throws {
    let log = try makeLog(events: 4)
    log.append(try contents(from: 100, 8))
    log.append(try stamped(102, [[1], [1], [1], [1], [1], [1], [8], [9]], time: 6, position: [9]))
    #expect(log.heldIDs == [106, 107, 108, 109] && log.element(at: 107).data == content(of: 107))
    #expect(log.element(at: 107).time == 5 && log.element(at: 108) == LoggedEvent(id: 108, time: 6, data: [8]))
    #expect(log.fleetPosition == [9] && log.checkpoint == Checkpoint(Array("107".utf8)))
  }

  @Test func aRepeatedBatchHasNoEffectExceptForThePosition() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(try contents(from: 1000, 8))
    var empty = try stamped(1007, [])
    empty.checkpoint = Checkpoint([1])
    for batch in try [contents(from: 1000, 8), contents(from: 1003, 2), contents(from: 1, 5), empty] {
      log.append(batch)
      let last = batch.isEmpty ? 5 : batch.stamps.map { $0.id(batch.count - 1) }
      for log in [log, try place.log()] {
        #expect(log.positionID == last && log.notedID == 1007 && log.heldIDs == Array(1000..<1008) && log.isIntact)
      }
    }
  }

  @Test func aBatchWithoutEventsMovesThePosition() throws {
    let place = try DamagedRegion()
    let log = try follower(place)
    var batch = try stamped(1001, [], position: [8])
    batch.checkpoint = Checkpoint([9])
    log.append(batch)
    for log in [log, try place.log()] {
      #expect(log.fleetPosition == [8] && log.checkpoint == Checkpoint([9]) && log.endPosition == 1001)
    }
    log.append(try stamped(5000, [], position: [10]))
    #expect(log.fleetPosition == [10] && log.endPosition == 1001)
    log.append(try stamped(1001, []))
    #expect(log.fleetPosition == [10])
  }

  // MARK: Holes

  @Test(arguments: [1, 3, 63, 64, 65, 1000, 1 << 50] as [UInt64]) func anIdAboveTheEndLeavesAHole(size: UInt64) throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(try contents(from: 1000, 10))
    let next = 1010 + size
    log.append(try contents(from: next, 2))
    // Beside a hole of 63 ids no event before it has a slot.
    let kept = min(10, 64 - 2 - Int(size % 64))
    let ids = Array(1010 - UInt64(max(0, kept))..<1010) + [next, next + 1]
    for log in [log, try place.log()] {
      #expect(log.heldIDs == ids && log.isIntact && log.endPosition == next + 2)
      #expect(log.missedEvents(from: 1009, to: next) == nil && log.missedEvents(from: next, to: next + 1) == 1)
      #expect(log.count(from: 0, to: next + 2) <= 12 && log.positionID == next + 1)
      #expect((0...12).map { log.position(ofLast: $0) }.prefix(ids.count + 1) == ([next + 2] + ids.reversed())[...])
    }
    #expect(log.skip(1010) == next && log.appendedEvents == 12)
    log.appendStamped(200)
    #expect(log.isIntact && log.heldIDs.count > 20)
    #expect(try place.log().heldIDs == log.heldIDs)
  }

  @Test func aHoleCostsAtMostAsManyEventsAsItHasIds() throws {
    let log = try makeLog(events: 64, bytes: 64 << 10)
    log.append(try stamped(100, (0..<64).map { [$0] }))
    log.append(try stamped(164 + 10, [[1]]))
    #expect(log.heldIDs == Array(100 + 11..<164) + [174])
    log.append(try stamped(175, (0..<200).map { [$0] }))
    #expect(log.heldIDs == Array(375 - 64..<375))
  }

  @Test func aSecondHoleEvictsTheEventsBeforeTheFirst() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(try contents(from: 1000, 5))
    log.append(try contents(from: 1007, 5))
    #expect(log.heldIDs == Array(1000..<1005) + Array(1007..<1012))
    log.append(try contents(from: 1020, 5))
    for log in [log, try place.log()] {
      #expect(log.heldIDs == Array(1007..<1012) + Array(1020..<1025) && log.isIntact)
      #expect(log.missedEvents(from: 1003, to: 1009) == nil && log.missedEvents(from: 1007, to: 1009) == 2)
      #expect(log.count(from: 1000, to: 1025) == 10)
    }
  }

  @Test func aHoleAtTheEndGrows() throws {
    let log = try makeLog(bytes: 4096)
    let large = [UInt8](repeating: 1, count: 5000)
    log.append(try stamped(100, [[1], large]))
    #expect(log.heldIDs == [100] && log.endPosition == 102 && log.skip(101) == 102)
    log.append(try stamped(102, [large]))
    log.append(try stamped(110, [[2]]))
    #expect(log.heldIDs == [100, 110] && log.skip(101) == 110)
  }

  @Test func anEventOverTheLimitLeavesAHoleOfItsId() throws {
    let log = try makeLog(bytes: 4096)
    let large = [UInt8](repeating: 1, count: log.limits.maximumEventBytes + 1)
    log.append(try stamped(100, [[0], large, [2], [3], large, large, [6]], position: [1]))
    #expect(log.heldIDs == [102, 103, 106] && log.endPosition == 107 && log.fleetPosition == [1])
    #expect(log.heldIDs.map { log.element(at: $0).data } == [[2], [3], [6]])
    #expect(log.takeLeftOutCount() == 3 && log.takeLeftOutCount() == 0)
  }

  @Test func anEmptyLogBeginsWithAnyHigherId() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(try contents(from: 1 << 50, 3))
    for log in [log, try place.log()] {
      #expect(log.heldIDs == Array((1 << 50)..<(1 << 50) + 3) && log.isIntact)
      #expect(log.missedEvents(from: 1000, to: log.endPosition) == nil && log.count(from: 0, to: log.endPosition) == 3)
    }
    #expect(log.skip(1000) == 1 << 50)
  }

  @Test(arguments: [(52, true), (53, false), (63, false), (64, true), (116, true), (117, false)] as [(UInt64, Bool)])
  func aHeaderWhoseEventsShareASlotIsRefused(size: UInt64, isPossible: Bool) throws {
    let place = try DamagedRegion()
    let layout = try LogLayout(reading: place.region.bytes)
    var extent = LogExtent(startingAt: 1000)
    (extent.holeStart, extent.holeEnd, extent.end) = (1010, 1010 + size, 1012 + size)
    layout.write(extent)
    if isPossible {
      #expect(try layout.extent() == extent)
    } else {
      #expect(throws: LogRefusal("its positions are impossible")) { try layout.extent() }
    }
    withExtendedLifetime(place) {}
  }

  // MARK: What is refused

  @Test func hostileIdsAreRefused() throws {
    let log = try makeLog()
    let limit = EventLog.stampedIDLimit
    for id in [limit, limit - 1, EventLog.idLimit, .max - 2] as [UInt64] {
      let batch = try stamped(id, [[1], [2]], position: [1])
      #expect(!EventLog.accepts(batch))
      log.append(batch)
      #expect(log.appendWhatFits(batch) == nil && log.endPosition == 100 && log.fleetPosition == nil)
    }
    for id in [0, 1, 98] as [UInt64] { log.append(try stamped(id, [[1], [2]])) }
    #expect(log.endPosition == 100 && log.heldIDs.isEmpty)
    let last = try stamped(limit - 2, [[1], [2]])
    #expect(EventLog.accepts(last) && EventLog.accepts([[1]]))
    log.append(last)
    #expect(log.endPosition == limit && log.heldIDs.count == 2)
    log.append(try stamped(limit, []))
    log.append([[3]])
    #expect(log.element(at: limit).data == [3])
    #expect(try LogRemains(memory: dup(log.descriptor)).endPosition == limit + 1)
  }

  @Test func timesThatGoBackAreFound() throws {
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    var batch = EventBatch((0..<20).map { [$0] })
    clock.now = 2000
    let times = (0..<20).map { $0 < 10 ? 1000 + $0 : 900 + $0 } as [UInt64]
    #expect(batch.setStamps(try #require(EventStamps(firstID: 200, times: times))))
    log.append(batch)
    #expect(log.position(since: 1005) == 205 && log.position(since: 0) == 200 && log.position(since: 1010) == 220)
    #expect(log.position(since: 911) == 200 && log.element(at: 215).time == 915)
    var aged = EventBatch([[1], [2], [3]])
    #expect(aged.setStamps(try #require(EventStamps(firstID: 1, times: [.max, 0, 2000]))))
    let old = try #require(
      EventLog(name: "t", limits: .init(age: .milliseconds(1)), firstID: 1, clock: { clock.now }))
    old.append(aged)
    #expect(old.heldIDs == [3])
  }

  // MARK: Ids of the log itself

  @Test func ownIdsFollowAboveTheClockAndAreReserved() throws {
    let clock = MovedClock()
    let log = try makeLog(clock: clock)
    var reserved: [UInt64] = []
    log.reserveIDs(100) { reserved.append($0) }
    log.append(try stamped(5000, [[1]], position: [1]))
    #expect(reserved == [200, 5101])
    #expect(log.nextOwnID == 1_000_000)
    log.append([[2], [3]])
    #expect(log.heldIDs == [5000, 1_000_000, 1_000_001] && log.fleetPosition == nil)
    #expect(reserved.last ?? 0 >= log.endPosition)
    clock.now = 1
    log.append([[4]])
    #expect(log.endPosition == 1_000_003 && log.nextOwnID == 1_000_003)
    log.append(try stamped(1 << 50, [[5]]))
    #expect(log.nextOwnID == (1 << 50) + 1)
    log.append([[6]])
    #expect(log.endPosition == (1 << 50) + 2)
  }

  @Test func anotherProcessContinuesWithItsOwnIdsAboveTheClock() throws {
    let place = try DamagedRegion()
    _ = try follower(place)
    let before = EventLoop.wallClock()
    let log = try place.log()
    #expect(log.endPosition == 1001 && log.positionID == 1000)
    log.append([[1]])
    #expect(log.endPosition > before && log.fleetPosition == nil)
    let again = try place.log()
    let end = again.endPosition
    again.append([[2]])
    // The hole may have taken the slot of the first event.
    #expect(again.endPosition == end + 1 && again.heldIDs.suffix(2) == [end - 1, end])
  }

  @Test func ownIdsAreAboveTheMarkOfIds() throws {
    let folder = try TemporaryFolder()
    let limits = EventLog.Limits(events: 100, bytes: 64 << 10)
    let far = EventLoop.wallClock() + 7_200_000_000
    do {
      let state = LogFolder(path: folder.path, boot: BootID(high: 1, low: 1)) { _, _, _ in }
      let log = try state.makeLog(of: "a", limits: limits, takingOver: nil, followsFleet: true)
      #expect(log.firstPosition == 1 && log.nextOwnID > 1)
      state.rememberIDs(of: log, "a")
      log.append(try stamped(7, [[1]]))
      log.append(try stamped(far, [[2]]))
      state.flushIDs()
    }
    let next = LogFolder(path: folder.path, boot: BootID(high: 1, low: 2)) { _, _, _ in }
    let left = try #require(try next.remains(of: "a"))
    #expect(left.isSalvaged && left.eventsEnd == left.endPosition)
    let log = try next.log(of: left, limits: limits)
    #expect(log.nextOwnID > far && log.endPosition <= far + 1)
  }

  @Test func aNewFollowerTakesAnyIdsFromOneOn() throws {
    let log = try #require(
      EventLog(name: "a", limits: .init(), firstID: 500, followsFleet: true, clock: { 7 }))
    #expect(log.firstPosition == 1 && log.endPosition == 1 && log.fleetPosition == nil && log.nextOwnID == 500)
    let again = try LogRemains(memory: dup(log.descriptor)).log(limits: log.limits)
    #expect(again.nextOwnID >= 1_700_000_000_000_000)
    again.append(try stamped(3, [[1]]))
    #expect(again.heldIDs == [3])
    log.append([[1]])
    #expect(log.heldIDs == [500] && log.nextOwnID == 501)
    let higher = try #require(EventLog(name: "a", limits: .init(), followsFleet: true))
    #expect(higher.begin(at: 70))
    higher.append(try stamped(69, [[1], [2]]))
    #expect(higher.heldIDs == [70] && higher.element(at: 70).data == [2] && higher.nextOwnID > 71)
  }

  // MARK: The position

  @Test func thePositionSurvivesWithItsEvents() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    #expect(log.fleetPosition == nil)
    log.append(try stamped(1000, [[1]], position: [UInt8](repeating: 7, count: 104)))
    log.appendStamped(500, positions: false)
    #expect(try place.log().fleetPosition == [UInt8](repeating: 7, count: 104))
    for limits in [EventLog.Limits(events: 3, bytes: 4096), .init(events: 1000, bytes: 1 << 20)] {
      let other = try #require(EventLog(name: "test", limits: limits, takingOver: try place.log()))
      #expect(other.fleetPosition == log.fleetPosition && other.endPosition == 1501 && other.isIntact)
      #expect(try LogRemains(memory: dup(other.descriptor)).log().fleetPosition == log.fleetPosition)
      other.appendStamped(10)
      #expect(other.positionID == 1510 && other.heldIDs.count >= 3)
    }
    log.noteClosed()
    #expect(try place.log(boot: 9).fleetPosition == log.fleetPosition)
  }

  @Test(arguments: [1, 5, 64, 100] as [UInt64]) func otherLimitsKeepTheIdsOnBothSidesOfAHole(size: UInt64) throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(try contents(from: 1000, 10))
    log.append(try contents(from: 1010 + size, 5))
    for events in [4, 12, 64, 100, 5000] {
      let limits = EventLog.Limits(events: events, bytes: 64 << 10)
      let other = try #require(EventLog(name: "test", limits: limits, takingOver: log))
      #expect(other.endPosition == log.endPosition && other.isIntact && other.positionID == log.positionID)
      #expect(other.heldIDs == log.heldIDs.suffix(other.heldIDs.count))
      if events >= 100 { #expect(other.heldIDs == log.heldIDs) }
      #expect(try LogRemains(memory: dup(other.descriptor)).log().heldIDs == other.heldIDs)
      other.appendStamped(200)
      #expect(other.isIntact)
    }
    // A hole at the end stays there.
    let end = try place.log()
    end.append(try stamped(end.endPosition, [[UInt8](repeating: 1, count: 20_000)]))
    let other = try #require(EventLog(name: "test", limits: .init(), takingOver: end))
    #expect(other.heldIDs == end.heldIDs && other.endPosition == end.endPosition)
  }

  // MARK: Held events

  @Test func aBatchWithStampsWaitsForHeldEvents() throws {
    let log = try makeLog(events: 4)
    log.append(try contents(from: 100, 3))
    log.hold(from: 101)
    let batch = try contents(from: 103, 3)
    #expect(log.appendWhatFits(batch) == batch && log.endPosition == 103)
    // More than the log can store: in parts.
    let more = try stamped(103, (0..<9).map { [$0] }, position: [3])
    let rest = try #require(log.appendWhatFits(more))
    #expect(rest.stamps?.firstID == 105 && rest.stamps?.position == [3] && Array(rest) == (2..<9).map { [$0] })
    #expect(log.positionID == 102 && log.heldIDs == Array(101..<105))
    log.hold(from: 104)
    #expect(log.appendWhatFits(rest)?.stamps?.firstID == 108)
  }

  @Test func aSecondHoleWaitsForTheEventsBeforeTheFirst() throws {
    let log = try makeLog(events: 60, bytes: 64 << 10)
    log.append(try contents(from: 100, 3))
    log.append(try contents(from: 110, 3))
    log.hold(from: 102)
    let batch = try contents(from: 120, 3)
    #expect(log.appendWhatFits(batch) == batch && log.heldIDs.count == 6)
    log.hold(from: 103)
    #expect(log.appendWhatFits(batch) == nil && log.heldIDs == [110, 111, 112, 120, 121, 122])
    log.hold(from: 123)
    log.append(try contents(from: 130, 1))
    #expect(log.endPosition == 131)
    // A reader at the end is behind the hole that comes there.
    log.hold(from: 131)
    #expect(log.appendWhatFits(try contents(from: 140, 60)) == nil && log.heldIDs == Array(140..<200))
  }

  // MARK: Kills

  /// The events of a batch, the hole before them, and their position appear at once.
  @Test func everyPrefixOfTheWritesOfABatchHasAllOrNothing() throws {
    var random = SystemRandom(7)
    let place = try DamagedRegion()
    let log = try follower(place)
    for number in 2..<80 {
      let (end, position) = (log.endPosition, log.fleetPosition)
      let before = place.bytes
      let hole = number % 3 == 0 ? UInt64(random.next(below: number % 2 == 0 ? 5 : 200)) : 0
      log.append(try contents(from: end + hole, 1 + random.next(below: 7)))
      let after = place.bytes
      var dying = before
      let changed = before.indices.filter { before[$0] != after[$0] }
      // Eviction comes first; the end position, or the word that selects the active state, last.
      let state = 64 + Int(before[32]) * 64
      let first = [state, state + 1024].flatMap { $0..<$0 + 8 }
      let isLast = { (index: Int) in index < 64 || [state + 8, state + 1032].contains(index & ~7) }
      for index in first where before[32] == after[32] { dying[index] = after[index] }
      if before[32] != after[32] {
        // The positions of the state that was active, which are not changed any more.
        for index in first { dying[index] = after[index] }
      }
      for index in changed where !isLast(index) && !first.contains(index) {
        dying[index] = after[index]
        guard index % 16 == 0 else { continue }
        let left = try DamagedRegion(dying).log()
        #expect(left.endPosition == end && left.fleetPosition == position && left.isIntact)
      }
      for index in changed { dying[index] = after[index] }
      let left = try DamagedRegion(dying).log()
      #expect(left.heldIDs == log.heldIDs && left.fleetPosition == log.fleetPosition && left.isIntact)
    }
  }

  @Test func aBatchLargerThanTheRingIsALog() throws {
    let place = try DamagedRegion()
    let log = try follower(place)
    log.append(try contents(from: 1004, 1000))
    #expect(log.endPosition == 2004 && log.isIntact && log.positionID == 2003)
    #expect(try place.log().heldIDs == log.heldIDs)
  }

  // MARK: Power failures

  @Test func aFollowerTakesLostEventsAgain() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    for first in [1000, 1005, 1010] as [UInt64] { log.append(try contents(from: first, 5)) }
    let layout = try LogLayout(reading: place.region.bytes)
    let cases: [(broken: UInt64, position: UInt64?, end: UInt64)] = [
      (1012, 1009, 1012), (1003, 1009, 1012), (1009, nil, 1009),
    ]
    for (broken, position, end) in cases {
      layout.record(at: layout.offset(of: broken)).storeBytes(of: 99, toByteOffset: 30, as: UInt8.self)
      let copy = try DamagedRegion(place.bytes)
      let left = try copy.remains(boot: 2, time: 1 << 50)
      let other = try #require(EventLog(name: "test", limits: DamagedRegion.limits, takingOver: left.log()))
      for log in [try copy.log(boot: 2, time: 1 << 50), try copy.log(boot: 2), other] {
        #expect(log.positionID == position && log.nextOwnID >= EventLoop.wallClock() - 60_000_000)
        // The longest run is from 1004 on once 1003 is damaged, too.
        #expect(log.endPosition == end && log.isIntact)
      }
      let again = try copy.log(boot: 2, time: 1 << 50)
      again.append(try contents(from: 1005, 10))
      #expect(again.endPosition == 1015 && again.positionID == 1014 && again.isIntact)
    }
  }

  @Test func aFollowerWithoutAnyEventLeftTakesThemAgain() throws {
    let place = try DamagedRegion()
    let log = try follower(place)
    let layout = try LogLayout(reading: place.region.bytes)
    layout.record(at: layout.offset(of: 1000)).storeBytes(of: 99, toByteOffset: 20, as: UInt8.self)
    let again = try place.log(boot: 2, time: 1 << 50)
    #expect(again.heldIDs.isEmpty && again.fleetPosition == nil && again.nextOwnID >= 1 << 50)
    again.append(try contents(from: 1000, 2))
    #expect(again.heldIDs == [1000, 1001] && again.positionID == 1001)
    withExtendedLifetime(log) {}
  }

  /// Each page has any of its versions: no event is damaged or has another id, and what was lost can be appended again.
  @Test(arguments: seeds(40)) func anyMixtureOfOldAndNewPagesIsReadable(seed: UInt64) throws {
    var random = SystemRandom(seed)
    let place = try DamagedRegion()
    var end: UInt64 = 1001
    _ = try follower(place)
    for round in 1...25 as ClosedRange<UInt64> {
      let log = try place.log(boot: round, time: 1 << 50)
      #expect(log.isIntact && log.endPosition <= end)
      if let position = log.positionID, let newest = log.newestID { #expect(position <= newest) }
      log.append(try contents(from: log.endPosition, Int(end - log.endPosition) + 1))
      func append(_ count: Int) throws {
        for _ in 0..<count {
          let hole = random.next(below: 8) == 0 ? UInt64(random.next(below: 100)) : 0
          log.append(try contents(from: log.endPosition + hole, 1 + random.next(below: 3)))
        }
      }
      try append(random.next(below: 70))
      var versions = [place.bytes]
      for _ in 0...random.next(below: 4) {
        try append(random.next(below: 15))
        versions.append(place.bytes)
      }
      end = log.endPosition
      var torn = versions[0]
      for page in stride(from: 0, to: torn.count, by: 4096) {
        let range = page..<min(page + 4096, torn.count)
        torn.replaceSubrange(range, with: versions[random.next(below: versions.count)][range])
      }
      place.bytes = torn
    }
  }

  // MARK: A model

  /// What a log must have, without its limits.
  private struct Model {
    var events: [LoggedEvent] = []
    var end: UInt64
    var position: [UInt8]?

    mutating func append(_ batch: EventBatch, _ stamps: EventStamps, most: Int) {
      for (index, data) in batch.enumerated() where stamps.id(index) >= self.end && data.count <= most {
        events.append(LoggedEvent(id: stamps.id(index), time: stamps.time(index), data: data))
      }
      if !batch.isEmpty { end = max(end, stamps.id(batch.count)) }
      position = stamps.position ?? position
    }
  }

  @Test(arguments: seeds(60)) func aLogIsASuffixOfAModel(seed: UInt64) throws {
    var random = SystemRandom(seed)
    var place = try DamagedRegion()
    var log = try place.log()
    var model = Model(end: 1000)
    var most = 0
    for step in 0..<300 {
      let count = random.next(below: 10) == 0 ? random.next(below: 120) : random.next(below: 4)
      let size = random.next(below: 20) == 0 ? 20_000 : 300
      let events = (0..<count).map { _ in
        [UInt8](repeating: UInt8(truncatingIfNeeded: step), count: random.next(below: size))
      }
      switch random.next(below: 12) {
      case 0:
        guard random.next(below: 4) == 0 else { break }
        let fitting = EventBatch(events.filter { $0.count <= log.limits.maximumEventBytes })
        let next = fitting.isEmpty ? model.end : log.nextOwnID
        #expect(next >= model.end)
        log.append(fitting)
        // The clock may have moved on.
        let first = log.endPosition - UInt64(fitting.count)
        #expect(first >= next)
        for (index, data) in fitting.enumerated() {
          let id = first + UInt64(index)
          let isHeld = id >= log.firstPosition
          model.events.append(LoggedEvent(id: id, time: isHeld ? log.element(at: id).time : 0, data: data))
        }
        (model.end, model.position) = (log.endPosition, fitting.isEmpty ? model.position : nil)
      case 1: log = try place.log()
      case 2:
        log.noteClosed()
        place = try DamagedRegion(place.bytes)
        log = try place.log(boot: 1)
      case 3:
        let other = try DamagedRegion()
        let new = try other.log()
        new.takeOver(log)
        (place, log) = (other, new)
      default:
        let leap = random.next(below: 4) == 0 ? random.next(below: random.next(below: 2) == 0 ? 8 : 1 << 20) : 0
        let back = random.next(below: 6) == 0 ? min(model.end - 1, UInt64(random.next(below: 20))) : 0
        var batch = EventBatch(events)
        let times = events.map { _ in UInt64(random.next(below: 1000)) }
        let position = random.next(below: 3) == 0 ? nil : [UInt8](repeating: UInt8(step & 255), count: 1 + step % 104)
        let stamps = try #require(
          EventStamps(firstID: model.end + UInt64(leap) - back, times: times, position: position))
        let isStamped = batch.setStamps(stamps)
        #expect(isStamped)
        model.append(batch, stamps, most: log.limits.maximumEventBytes)
        log.append(batch)
      }
      #expect(log.endPosition == model.end && log.fleetPosition == model.position, "step \(step)")
      let ids = log.heldIDs
      most = max(most, ids.count)
      guard model.events.suffix(ids.count).map(\.id) == ids, ids.count <= 60,
        ids.allSatisfy({ log.element(at: $0).id == $0 }),
        zip(ids, model.events.suffix(ids.count)).allSatisfy({ log.element(at: $0) == $1 })
      else {
        Issue.record("the log has \(ids), the model \(model.events.suffix(ids.count).map(\.id)), in step \(step)")
        return
      }
      #expect(log.count(from: log.firstPosition, to: log.endPosition) == UInt64(ids.count))
      #expect((0..<ids.count).allSatisfy { log.position(ofLast: UInt64($0 + 1)) == ids[ids.count - 1 - $0] })
      for _ in 0..<4 {
        let low = model.end - min(model.end, UInt64(random.next(below: 200)))
        let high = min(model.end, low + UInt64(random.next(below: 200)))
        guard let missed = log.missedEvents(from: low, to: high) else { continue }
        #expect(missed == UInt64(model.events.count { $0.id >= low && $0.id < high }), "\(low)..<\(high), step \(step)")
      }
    }
    #expect(most > 20)
  }
}

extension EventLog {
  /// Events that identify themselves, with stamps.
  func appendStamped(_ count: Int, positions: Bool = true) {
    for _ in 0..<count {
      var batch: EventBatch = [content(of: endPosition)]
      let position = positions ? Array(String(endPosition).utf8) : nil
      guard let stamps = EventStamps(firstID: endPosition, time: 5, position: position), batch.setStamps(stamps) else {
        return
      }
      append(batch)
    }
  }
}
