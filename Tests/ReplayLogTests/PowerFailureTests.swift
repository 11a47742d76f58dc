import Events
import Glibc
import TestSupport
import Testing

@testable import ReplayLog

/// A file after a power failure: some of its pages reached the disk, others did not.
@Suite struct PowerFailureTests {
  @Test func afterAPowerFailureEventsAreKeptAndIdsContinueAfterAHole() throws {
    let place = try DamagedRegion()
    try place.log().appendContents(20)
    let left = try place.remains(boot: 2, time: 5_000_000)
    #expect(left.isSalvaged && left.count == 20)
    let log = try place.log(boot: 2, time: 5_000_000)
    #expect(log.heldIDs == Array(1000..<1020))
    #expect(log.endPosition >= 5_000_000 && log.endPosition < 5_000_064)
    #expect(log.newestID == 1019)
    log.appendContents(10)
    #expect(log.heldIDs == Array(1000..<1020) + Array(log.endPosition - 10..<log.endPosition))
    #expect(log.isIntact)
    #expect(try place.log(boot: 2).heldIDs == log.heldIDs)
  }

  @Test func aClosedLogContinuesExactly() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.appendContents(20)
    log.noteClosed()
    #expect(try !place.remains(boot: 2).isSalvaged)
    let again = try place.log(boot: 2)
    #expect(again.endPosition == 1020 && again.isIntact)
    // It is not closed any more.
    #expect(try place.remains(boot: 3).isSalvaged)
  }

  @Test func theNewerOfTwoHolesIsKept() throws {
    let place = try DamagedRegion()
    try place.log().appendContents(20)
    let log = try place.log(boot: 2, time: 10000)
    log.appendContents(3)
    let newer = Array(log.heldIDs.suffix(3))
    let again = try place.log(boot: 3, time: 20000)
    #expect(again.heldIDs == newer && again.endPosition >= 20000)
    #expect(again.firstPosition >= 10000)
    // Without an event after it the hole grows.
    #expect(try place.log(boot: 4, time: 30000).heldIDs == newer)
  }

  @Test func aGrowingHoleKeepsTheEventsBeforeIt() throws {
    let place = try DamagedRegion()
    try place.log().appendContents(20)
    _ = try place.log(boot: 2, time: 10000)
    let again = try place.log(boot: 3, time: 20000)
    #expect(again.heldIDs == Array(1000..<1020) && again.endPosition >= 20000)
  }

  @Test func idsAreHigherThanAllStoredOnesWhateverTheClock() throws {  // SEMANTICS 25
    let place = try DamagedRegion()
    try place.log().appendContents(20)
    #expect(try place.log(boot: 2, time: 3).endPosition >= 1020)
    let empty = try DamagedRegion()
    #expect(try empty.log(boot: 2, time: 3).endPosition == 1000)
    #expect(try empty.log(boot: 3, time: 4000).endPosition == 4000)
  }

  @Test func aDamagedEventTruncatesTheLog() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(EventBatch((0..<30).map { [UInt8](repeating: $0, count: 80) }))
    let layout = try LogLayout(reading: place.region.bytes)
    layout.record(at: layout.offset(of: 1020)).storeBytes(of: 99, toByteOffset: 50, as: UInt8.self)
    #expect(try place.remains(boot: 1).isSalvaged, "the same boot does not help a file that was damaged")
    let again = try place.log(boot: 2, time: 5000)
    #expect(again.heldIDs == Array(1000..<1020))
    #expect(again.endPosition >= 5000)
  }

  @Test func aCheckpointIsDroppedWithoutAllEventsThatItCovers() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    for number in 1...5 as ClosedRange<UInt8> {
      var batch = EventBatch((0..<4).map { _ in [UInt8](repeating: number, count: 80) })
      batch.checkpoint = Checkpoint([number])
      log.append(batch)
    }
    let layout = try LogLayout(reading: place.region.bytes)
    for (broken, expected) in [(1019, 4), (1012, nil), (1010, nil)] as [(UInt64, UInt8?)] {
      layout.record(at: layout.offset(of: broken)).storeBytes(of: 99, toByteOffset: 50, as: UInt8.self)
      let copy = try DamagedRegion(place.bytes)
      let again = try copy.log(boot: 2, time: 5000)
      #expect(again.checkpoint == expected.map { Checkpoint([$0])! })
      // A checkpoint that was dropped does not return.
      again.appendContents(30)
      #expect(try copy.log(boot: 2).checkpoint == again.checkpoint)
      #expect(try copy.log(boot: 3, time: 9000).checkpoint == again.checkpoint)
    }
  }

  @Test func aLogWithoutEventsLosesItsCheckpoint() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    var batch: EventBatch = [[1]]
    batch.checkpoint = Checkpoint([1])
    log.append(batch)
    let layout = try LogLayout(reading: place.region.bytes)
    layout.record(at: layout.offset(of: 1000)).storeBytes(of: 99, toByteOffset: 24, as: UInt8.self)
    #expect(try place.log(boot: 2, time: 5000).checkpoint == nil)
    let empty = try DamagedRegion()
    batch.removeFirst()
    batch.checkpoint = Checkpoint([1])
    try empty.log().append(batch)
    #expect(try empty.log(boot: 2, time: 5000).checkpoint == Checkpoint([1]))
  }

  /// Each page has any of its versions: events that were synced and not overwritten are there, and no event is
  /// damaged; ids never decrease.
  @Test(arguments: seeds(40)) func anyMixtureOfOldAndNewPagesIsReadable(seed: UInt64) throws {
    var random = SystemRandom(seed)
    let place = try DamagedRegion()
    var highest: UInt64 = 0
    for round in 1...25 as ClosedRange<UInt64> {
      let log = try place.log(boot: round, time: 2000 * round)
      #expect(log.endPosition > highest)
      #expect(log.isIntact)
      if let noted = log.notedID, let newest = log.newestID { #expect(noted <= newest) }
      log.appendContents(random.next(below: 150), noting: true)
      var versions = [place.bytes]
      let synced = log.endPosition
      for _ in 0...random.next(below: 4) {
        log.appendContents(random.next(below: 30), noting: true)
        versions.append(place.bytes)
      }
      highest = max(highest, log.newestID ?? 0)
      let spared = log.count(from: log.firstPosition, to: synced)
      let hadHole = log.firstPosition < log.holeStart
      var torn = versions[0]
      for page in stride(from: 0, to: torn.count, by: 4096) {
        let range = page..<min(page + 4096, torn.count)
        torn.replaceSubrange(range, with: versions[random.next(below: versions.count)][range])
      }
      place.bytes = torn
      let left = try place.remains(boot: round + 1, time: 2000 * (round + 1))
      // Events before the older hole are dropped in favour of later ones.
      if !hadHole { #expect(left.count >= spared, "\(spared) events were safe, and \(left.count) are left") }
    }
  }

  @Test(arguments: seeds(200)) func randomDamageNeverExposesADamagedEvent(seed: UInt64) throws {
    var random = SystemRandom(seed)
    let place = try DamagedRegion()
    let log = try place.log()
    log.appendContents(40 + random.next(below: 300))
    if random.next(below: 2) == 0 { log.noteClosed() }
    var bytes = place.bytes
    for _ in 0...random.next(below: 20) {
      let start = random.next(below: random.next(below: 2) == 0 ? 4096 + 64 * 8 : bytes.count)
      for index in start..<min(bytes.count, start + 1 + random.next(below: 40)) {
        bytes[index] = random.next(below: 3) == 0 ? 0 : UInt8(random.next(below: 256))
      }
    }
    let boot = UInt64(1 + random.next(below: 2))
    let damaged = try DamagedRegion(bytes)
    guard let left = try? damaged.remains(boot: boot, time: 4000) else { return }
    let again = left.log()
    #expect(again.isIntact)
    guard left.fits(DamagedRegion.limits), again.endPosition < LogLayout.idLimit / 2 else { return }
    let next = try damaged.log(boot: boot, time: 4000)
    next.appendContents(300)
    #expect(next.isIntact)
  }

  // MARK: The hole

  /// Events 1000 to 1009, a hole, and five from 5056 on, a microsecond apart.
  private func logWithHole() throws -> EventLog {
    let place = try DamagedRegion()
    let layout = try LogLayout(reading: place.region.bytes)
    let clock = MovedClock()
    let first = EventLog(layout, try layout.extent(), limits: DamagedRegion.limits, owner: place.region) { clock.now }
    for _ in 0..<10 {
      first.append([content(of: first.endPosition)])
      clock.now += 1
    }
    let extent = layout.salvagedExtent(try layout.extent(), at: 5000)
    layout.write(extent)
    let log = EventLog(layout, extent, limits: DamagedRegion.limits, owner: place.region) { clock.now }
    for _ in 0..<5 {
      log.append([content(of: log.endPosition)])
      clock.now += 1
    }
    #expect(log.heldIDs == Array(1000..<1010) + Array(5042..<5047))
    return log
  }

  @Test func countsExcludeTheHole() throws {
    let log = try logWithHole()
    #expect(log.count(from: log.firstPosition, to: log.endPosition) == 15)
    #expect(log.count(from: 1005, to: 5043) == 6)
    #expect(log.count(from: 1010, to: 5042) == 0)
    #expect(log.count(from: 2000, to: 5044) == 2)
    #expect(log.count(from: 7, to: 6) == 0)
    #expect([1009, 1010, 3000, 5041, 5042].map { log.skip($0) } == [1009, 5042, 5042, 5042, 5042])
    #expect((0...16).map { log.position(ofLast: $0) } == [5047] + log.heldIDs.reversed() + [1000])
    #expect(log.endOfRun(from: 1003) == 1010 && log.endOfRun(from: 5042) == 5047)
  }

  @Test func aTimeIsFoundOnBothSidesOfTheHole() throws {
    let log = try logWithHole()
    let expected = log.heldIDs + [5047]
    #expect((0...15).map { log.position(since: 1_000_000 + $0) } == expected)
  }

  @Test func theOldestEventsAreEvictedAcrossTheHole() throws {
    let log = try logWithHole()
    var all = log.heldIDs
    for _ in 0..<500 {
      log.appendContents(1)
      all.append(log.endPosition - 1)
      #expect(log.heldIDs == all.suffix(log.heldIDs.count) && log.heldIDs.count > 10)
      #expect(log.isIntact)
    }
    #expect(log.firstPosition > 5042)
  }

  @Test func unreadEventsBeforeTheHoleAreNotEvicted() throws {
    let log = try logWithHole()
    log.hold(from: 1010)  // the position of a reader that has read all events before the hole
    #expect(log.appendWhatFits(EventBatch((0..<60).map { [$0] }))?.count == 5)
    #expect(log.isFull && log.firstPosition == 5042)
    log.hold(from: 5043)
    #expect(!log.isFull)
  }

  @Test func otherLimitsPreserveTheHole() throws {
    let log = try logWithHole()
    for (events, ids) in [(1000, log.heldIDs), (20, log.heldIDs), (8, log.heldIDs.suffix(8))] {
      let limits = EventLog.Limits(events: events, bytes: 16 << 10)
      let other = try #require(EventLog(name: "test", limits: limits, takingOver: log))
      #expect(other.endPosition == 5047)
      #expect(other.heldIDs == ids && other.isIntact)
      other.appendContents(100)
      #expect(other.isIntact)
    }
  }

  @Test func otherLimitsPreserveAHoleAtTheEnd() throws {
    let place = try DamagedRegion()
    try place.log().appendContents(20)
    let old = try place.log(boot: 2, time: 5000)
    let limits = EventLog.Limits(events: 1000, bytes: 64 << 10)
    let new = try #require(EventLog(name: "test", limits: limits, takingOver: old))
    #expect(new.heldIDs == Array(1000..<1020) && new.endPosition == old.endPosition)
    new.appendContents(500)
    #expect(new.isIntact)
  }
}
