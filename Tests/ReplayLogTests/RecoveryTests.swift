import CChecksum
import Events
import Glibc
import Reactive
import Testing

@testable import ReplayLog

/// A log in a region that a test can inspect, copy and damage.
struct DamagedRegion {
  static let limits = EventLog.Limits(events: 60, bytes: 16 << 10)

  let region: MappedRegion
  var bytes: [UInt8] {
    get { Array(region.bytes) }
    nonmutating set { region.bytes.copyBytes(from: newValue) }
  }

  /// A fresh log with checksums.
  init(startingAt first: UInt64 = 1000, boot: BootID = BootID(high: 1, low: 1)) throws {
    region = try #require(MappedRegion(name: "test", byteCount: LogLayout.byteCount(for: Self.limits)))
    _ = EventLog(
      formatting: region, name: "test", limits: Self.limits, hasChecksums: true,
      extent: LogExtent(startingAt: first, boot: boot))
  }

  init(_ bytes: [UInt8]) throws {
    region = try #require(MappedRegion(name: "test", byteCount: max(1, bytes.count)))
    region.bytes.copyBytes(from: bytes)
  }

  /// The log as the next process reads it.
  func remains(boot: UInt64 = 1, time: UInt64 = 0) throws(LogRefusal) -> LogRemains {
    try LogRemains(file: region, boot: BootID(high: 1, low: boot), time: time)
  }

  func log(boot: UInt64 = 1, time: UInt64 = 0) throws -> EventLog {
    try remains(boot: boot, time: time).log(limits: Self.limits, boot: BootID(high: 1, low: boot), didGrow: {})
  }
}

/// Data that identifies its event.
func content(of id: UInt64) -> [UInt8] {
  [UInt8](repeating: UInt8(truncatingIfNeeded: id &* 37), count: Int(id &* 0x9E37_79B9 % 500))
}

extension EventLog {
  /// - Parameter noting: each with a checkpoint that contains its id, in one of three cases with 5,000 digits.
  func appendContents(_ count: Int, noting: Bool = false) {
    for _ in 0..<count {
      var batch: EventBatch = [content(of: endPosition)]
      if noting {
        let digits = Array(String(endPosition).utf8)
        let zeros = endPosition % 3 == 0 ? 5000 - digits.count : 0
        batch.checkpoint = Checkpoint(Array(repeating: UInt8(ascii: "0"), count: zeros) + digits)
      }
      append(batch)
    }
  }

  /// The id of the event that the checkpoint belongs to.
  var notedID: UInt64? { checkpoint.flatMap { UInt64(String(decoding: $0.bytes, as: UTF8.self)) } }

  var heldIDs: [UInt64] {
    var ids: [UInt64] = []
    var position = firstPosition
    while position < endPosition {
      ids.append(position)
      position = skip(position + 1)
    }
    return ids
  }

  /// Whether every stored event is as it was appended.
  var isIntact: Bool {
    heldIDs.allSatisfy { element(at: $0).id == $0 && element(at: $0).data == content(of: $0) }
  }
}

@Suite struct RecoveryTests {
  @Test func theChecksumMatchesTheStandard() {
    #expect(crc32c("123456789", 9) == 0xE306_9283)
    #expect(crc32c([UInt8](repeating: 0, count: 32), 32) == 0x8A91_36AA)
    #expect(crc32c([UInt8](repeating: 0xFF, count: 32), 32) == 0x62A8_AB43)
  }

  @Test func anotherProcessContinuesExactly() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.appendContents(200)
    let again = try place.log()
    #expect(again.heldIDs == log.heldIDs && again.isIntact)
    #expect(again.endPosition == 1200)
    #expect(again.newestTime == log.newestTime && again.newestID == 1199)
    again.appendContents(100)
    #expect(again.isIntact)
    #expect(try place.log().heldIDs == again.heldIDs)
  }

  @Test func expiredEventsStayEvicted() throws {
    let place = try DamagedRegion()
    let clock = MovedClock()
    var limits = DamagedRegion.limits
    limits.age = .seconds(1)
    let layout = try LogLayout(reading: place.region.bytes)
    let log = EventLog(layout, try layout.extent(), limits: limits, owner: place.region, clock: { clock.now })
    log.append([[1], [2]])
    clock.now += 5_000_000
    log.dropExpired()
    #expect(try place.log().heldIDs.isEmpty)
  }

  // MARK: Evicted events

  @Test func anotherProcessCountsEvictedEvents() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.appendContents(200)
    func expectCounted(_ log: EventLog) {
      let first = log.firstPosition
      #expect(first > 1100 && log.missedEvents(from: 1010, to: first) == first - 1010)
      #expect(log.missedEvents(from: 1000, to: first) == first - 1000)
      #expect(log.missedEvents(from: 999, to: first) == nil)
    }
    expectCounted(log)
    expectCounted(try place.log())
    log.noteClosed()
    expectCounted(try place.log(boot: 2))
    // Opened again, which wrote another state; truncated by a power failure; in another region.
    expectCounted(try place.log(boot: 2))
    expectCounted(try place.log(boot: 3))
    let smaller = EventLog.Limits(events: 20, bytes: 8192)
    let other = try #require(EventLog(name: "test", limits: smaller, takingOver: try place.log()))
    expectCounted(other)
    expectCounted(try LogRemains(memory: dup(other.descriptor)).log())
  }

  @Test func withoutAValidHistoryTheNumberOfEvictedEventsIsUnknown() throws {
    let place = try DamagedRegion()
    try place.log().appendContents(200)
    for change in [0 as UInt8, 1] {
      let damaged = try DamagedRegion(place.bytes)
      // After the copies of both states' positions.
      for offset in [1104, 1168] {
        if change == 0 {
          for index in 0..<12 { damaged.region.bytes[offset + index] = 0 }
        } else {
          damaged.region.bytes[offset] ^= change
        }
      }
      let again = try damaged.log()
      #expect(again.heldIDs.last == 1199 && again.isIntact)
      #expect(again.missedEvents(from: 1010, to: again.firstPosition) == nil)
      #expect(again.missedEvents(from: again.firstPosition, to: again.endPosition) != nil)
    }
  }

  @Test func theNumberOfEventsBeforeAHigherFirstIdIsUnknown() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    #expect(log.begin(at: 5000))
    log.appendContents(200)
    for log in [log, try place.log()] {
      #expect(log.missedEvents(from: 2000, to: 5100) == nil)
      #expect(log.missedEvents(from: 5000, to: 5100) == 100)
    }
  }

  /// The hole is dropped once no event before it is stored.
  @Test func noCountSpansADiscardedHole() throws {
    let place = try DamagedRegion()
    try place.log().appendContents(30)
    let cut = try place.log(boot: 2, time: 9000)
    let beyond = cut.endPosition
    #expect(beyond > 1030)
    cut.appendContents(200)
    let again = try place.log(boot: 2)
    #expect(again.holeEnd == 0)
    #expect(again.missedEvents(from: 1010, to: again.firstPosition) == nil)
    #expect(again.missedEvents(from: beyond, to: again.firstPosition) == again.firstPosition - beyond)
  }

  @Test func aSmallerLogKeepsTheNewestEvents() throws {
    let place = try DamagedRegion()
    try place.log().appendContents(40)
    var fewer = DamagedRegion.limits
    fewer.events = 33
    let left = try place.remains()
    #expect(left.fits(fewer))
    #expect(left.log(limits: fewer).heldIDs == Array(1007..<1040))
  }

  @Test func timesFollowTheClockAcrossARecovery() throws {
    let place = try DamagedRegion()
    let clock = MovedClock()
    func log() throws -> EventLog {
      let layout = try LogLayout(reading: place.region.bytes)
      return EventLog(
        layout, try layout.intactExtent(), limits: DamagedRegion.limits, owner: place.region, clock: { clock.now })
    }
    clock.now += 86_400_000_000
    try log().append([[1]])
    clock.now -= 86_400_000_000
    try log().append([[2]])
    clock.now += 10_000_000
    let again = try log()
    again.append([[3]])
    #expect((1001...1002).map { again.element(at: $0).time } == [1_000_000, 11_000_000])
    #expect(again.position(since: 5_000_000) == 1002 && again.position(since: 0) == 1001)
    #expect(try place.remains(boot: 2).count == 3)
  }

  // MARK: Refusals

  @Test func anUnknownVersionIsRefusedWithAMessage() throws {
    let place = try DamagedRegion()
    place.region.bytes.storeBytes(of: 7, toByteOffset: 8, as: UInt32.self)
    let sentence = "its layout is version 7, but this program supports version 4"
    #expect(throws: LogRefusal(sentence, .setAside("version-7"))) { try place.remains() }
  }

  @Test func otherFilesAreRefused() throws {
    let place = try DamagedRegion()
    place.region.bytes.storeBytes(of: 7, as: UInt64.self)
    #expect(throws: LogRefusal("it is not a streamd log")) { try place.remains() }
    #expect(throws: LogRefusal("it is not a log: it has 100 bytes")) {
      try DamagedRegion([UInt8](repeating: 0, count: 100)).remains()
    }
    #expect(throws: LogRefusal("it is not the memory of a log")) { try LogRemains(memory: open("/dev/null", O_RDWR)) }
  }

  @Test func aSizeThatDoesNotFitTheGeometryIsRefused() throws {
    let bytes = try DamagedRegion().bytes
    for count in [4096, 8192, bytes.count - 8, bytes.count + 8] {
      let place = try DamagedRegion(Array((bytes + [UInt8](repeating: 0, count: 8)).prefix(count)))
      #expect(throws: LogRefusal("its \(count) bytes are not 64 slots and a ring of 16384 bytes")) {
        try place.remains()
      }
    }
  }

  @Test(arguments: [16, 24, 32, 64 + 16, 128 + 16, 512]) func aDamagedHeaderIsRefused(offset: Int) throws {
    let place = try DamagedRegion()
    // Both states, because only one is active.
    for offset in offset < 64 || offset > 200 ? [offset] : [80, 144] { place.region.bytes[offset] ^= 1 }
    #expect(throws: LogRefusal.self) { try place.remains() }
  }

  @Test(
    arguments: [(1000, .max), (.max, .max), (2000, 1000), (0, 1000), (1000, 1001)] as [(UInt64, UInt64)])
  func impossiblePositionsWithValidChecksumsAreRefused(positions: (first: UInt64, end: UInt64)) throws {
    let place = try DamagedRegion()
    let layout = try LogLayout(reading: place.region.bytes)
    layout.positions().commit(first: positions.first)
    layout.positions().commit(end: positions.end)
    #expect(throws: LogRefusal.self) { try layout.intactExtent() }
  }

  // MARK: The order of writing

  /// Whenever the process dies between two of its writes, the log is valid.
  @Test func everyPrefixOfTheWritesOfAnAppendIsALog() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.appendContents(300)
    for _ in 0..<200 {
      let before = place.bytes
      log.appendContents(1)
      let after = place.bytes
      // The order that the layout's comment promises: the first position, the record, its slot, the end position.
      let header = 64..<4096
      let index = 4096..<4096 + 64 * 8
      var dying = before
      let first = [64, 128, 1088, 1152].map { $0..<$0 + 8 }
      for range in first { dying.replaceSubrange(range, with: after[range]) }
      #expect(try DamagedRegion(dying).log().isIntact)
      for part in 1...4 {
        let ring = index.upperBound..<after.count
        let cut = ring.lowerBound + ring.count * part / 4
        dying.replaceSubrange(ring.lowerBound..<cut, with: after[ring.lowerBound..<cut])
        #expect(try DamagedRegion(dying).log().isIntact)
      }
      dying.replaceSubrange(index, with: after[index])
      #expect(try DamagedRegion(dying).log().isIntact)
      dying.replaceSubrange(header, with: after[header])
      #expect(dying == after)
    }
  }

  @Test func aStateIsReplacedAtomically() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.appendContents(10)
    let before = place.bytes
    log.noteClosed()
    let after = place.bytes
    let changed = before.indices.filter { before[$0] != after[$0] }
    var dying = before
    // The word that selects the active state is written last, whatever the order of the others.
    for index in changed.reversed() where index >= 64 {
      dying[index] = after[index]
      #expect(try DamagedRegion(dying).log().heldIDs == Array(1000..<1010))
    }
    #expect(changed.contains { $0 < 64 })
    #expect(try DamagedRegion(after).log(boot: 2).endPosition == 1010)
  }

  /// The events of a batch and its checkpoint appear at once.
  @Test func everyPrefixOfTheWritesOfABatchHasTheCheckpointOnlyWithAllEvents() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(numbered(1, count: 3))
    for number in 2..<100 as Range<UInt8> {
      let former = log.endPosition
      let before = place.bytes
      log.append(numbered(number, count: 1 + Int(number) % 7))
      let after = place.bytes
      var dying = before
      var changed = before.indices.filter { before[$0] != after[$0] }
      // Records, slots and notes may be written in any order, as long as the end position follows them.
      let end = changed.partition { [72, 136, 1096, 1160].contains($0 & ~7) }
      let first = [64, 128, 1088, 1152]
      for index in changed where first.contains(index & ~7) { dying[index] = after[index] }
      for index in changed[..<end] {
        dying[index] = after[index]
        guard index % 16 == 0 else { continue }
        let left = try DamagedRegion(dying).log()
        #expect(left.endPosition == former && left.checkpoint == Checkpoint([number - 1]))
      }
      // Half of the end position is invalid; the copy is written first, and is sufficient.
      for index in changed[end...] where index >= 1024 { dying[index] = after[index] }
      let left = try DamagedRegion(dying).log()
      #expect(left.endPosition == log.endPosition && left.checkpoint == Checkpoint([number]))
    }
  }

  @Test func aPendingNoteIsDroppedBeforeItsIdIsReused() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(numbered(1, count: 2))
    let before = place.bytes
    log.append(numbered(2, count: 3))
    var dying = place.bytes
    dying.replaceSubrange(..<4096, with: before[..<4096])
    let left = try DamagedRegion(dying)
    let again = try left.log()
    #expect(again.checkpoint == Checkpoint([1]))
    again.append([[1], [2], [3], [4], [5]])
    #expect(try left.log().checkpoint == Checkpoint([1]))
  }

  @Test func aCheckpointWithoutEventsIsCommittedAtOnce() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    for number in 0..<5 as Range<UInt8> {
      log.append(numbered(number, count: 0))
      #expect(log.checkpoint == Checkpoint([number]))
      #expect(try place.log().checkpoint == log.checkpoint)
    }
    #expect(log.endPosition == 1000)
  }

  @Test func aCheckpointStaysUntilTheNextOne() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    #expect(log.checkpoint == nil)
    var largest = EventBatch([[1]])
    largest.checkpoint = Checkpoint([UInt8](repeating: 7, count: Checkpoint.maximumByteCount))
    log.append(largest)
    log.appendContents(500)
    let again = try place.log()
    #expect(again.checkpoint == largest.checkpoint)
    let other = try #require(EventLog(name: "test", limits: .init(events: 3, bytes: 4096), takingOver: again))
    #expect(other.checkpoint == largest.checkpoint)
    #expect(try LogRemains(memory: dup(other.descriptor)).log().checkpoint == largest.checkpoint)
  }

  /// The slots of large checkpoints, which an earlier program neither reads nor writes.
  private func largeSlots(_ bytes: [UInt8]) -> Range<Int> {
    let area = bytes.count - LogNote.areaBytes
    return area + 9088..<area + 9088 + 2 * 9760
  }

  @Test func anEarlierProgramResumesFromTheLastCheckpointThatItKnows() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(numbered(1, count: 3))
    for number in 2...6 as ClosedRange<UInt8> { log.append(numbered(number, count: 1, size: 5000)) }
    #expect(try place.log().checkpoint == Checkpoint([UInt8](repeating: 6, count: 5000)))
    let (whole, slots) = (place.bytes, largeSlots(place.bytes))
    let former = try DamagedRegion(whole)
    former.region.bytes[slots].indices.forEach { former.region.bytes[$0] = 0 }
    let earlier = try former.log()
    #expect(earlier.checkpoint == Checkpoint([1]) && earlier.heldIDs == log.heldIDs)
    // What it writes is newer than what this program had written.
    earlier.append(numbered(7, count: 1))
    former.region.bytes[slots].copyBytes(from: whole[slots])
    let later = try former.log()
    #expect(later.checkpoint == Checkpoint([7]))
    for number in 8...11 as ClosedRange<UInt8> {
      let size = number % 2 == 0 ? 5000 : 1
      later.append(numbered(number, count: 1, size: size))
      #expect(try DamagedRegion(former.bytes).log().checkpoint == Checkpoint([UInt8](repeating: number, count: size)))
    }
  }

  @Test(arguments: [1, 5000], [1, 5000]) func aPendingNoteLeavesTheActiveOneWhateverTheirSizes(
    active: Int, pending: Int
  ) throws {
    for count in 1...4 as ClosedRange<UInt8> {
      let place = try DamagedRegion()
      let log = try place.log()
      for number in 0..<count { log.append(numbered(number, count: 1, size: number == count - 1 ? active : 1)) }
      let before = place.bytes
      log.append(numbered(9, count: 3, size: pending))
      var dying = place.bytes
      dying.replaceSubrange(..<4096, with: before[..<4096])
      let left = try DamagedRegion(dying)
      let again = try left.log()
      #expect(again.checkpoint == Checkpoint([UInt8](repeating: count - 1, count: active)))
      again.append([[1], [2], [3], [4], [5]])
      #expect(try left.log().checkpoint == again.checkpoint)
    }
  }

  @Test func aPartlyHeldBatchCommitsItsCheckpointWithTheRest() throws {
    let log = try makeLog(events: 3)
    log.hold(from: 100)
    let rest = try #require(log.appendWhatFits(numbered(1, count: 5)))
    #expect(rest.count == 2 && log.checkpoint == nil)
    log.hold(from: .max)
    log.append(rest)
    #expect(log.checkpoint == Checkpoint([1]))
  }

  @Test func aBatchLargerThanTheRingIsALog() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.append(numbered(9, count: 1000))
    #expect(log.heldIDs == Array(1940..<2000) && log.checkpoint == Checkpoint([9]))
    #expect(try place.log().heldIDs == log.heldIDs)
  }

  /// - Parameter size: of the checkpoint.
  private func numbered(_ number: UInt8, count: Int, size: Int = 1) -> EventBatch {
    var batch = EventBatch((0..<count).map { [UInt8](repeating: number, count: 20 + $0 % 7) })
    batch.checkpoint = Checkpoint([UInt8](repeating: number, count: size))
    return batch
  }

  // MARK: Damaged positions

  @Test(arguments: [1, 8, 55], [false, true]) func aLoweredEndLosesNothing(by count: UInt64, isClosed: Bool) throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.appendContents(200)
    let held = log.heldIDs
    if isClosed { log.noteClosed() }
    for offset in [72, 136, 1096, 1160] {
      let damaged = try DamagedRegion(place.bytes)
      guard damaged.region.bytes.load(fromByteOffset: offset, as: UInt64.self) == 1200 else { continue }
      damaged.region.bytes.storeBytes(of: 1200 - count, toByteOffset: offset, as: UInt64.self)
      let again = try damaged.log()
      #expect(again.heldIDs == held && again.endPosition == 1200 && again.isIntact)
    }
  }

  @Test(arguments: [UInt64(1), 8, 1 << 40, .max]) func aRaisedEndOrFirstChangesNothing(by count: UInt64) throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.appendContents(200)
    for offset in [64, 72, 128, 136, 1088, 1096, 1152, 1160] {
      let damaged = try DamagedRegion(place.bytes)
      let position = damaged.region.bytes.load(fromByteOffset: offset, as: UInt64.self)
      guard position >= 1100 else { continue }
      damaged.region.bytes.storeBytes(of: position &+ count, toByteOffset: offset, as: UInt64.self)
      #expect(try damaged.log().heldIDs == log.heldIDs)
    }
  }

  // MARK: The previous version

  @Test func aLogOfThePreviousVersionIsConverted() throws {
    let place = try DamagedRegion()
    let log = try place.log()
    log.appendContents(200)
    let former = try DamagedRegion(Array(place.bytes.dropLast(LogNote.areaBytes)))
    former.region.bytes.storeBytes(of: 2, toByteOffset: 8, as: UInt32.self)
    for offset in [1088, 1152] { former.region.bytes.storeBytes(of: 0, toByteOffset: offset + 8, as: UInt64.self) }
    let parts = Array(former.bytes[..<32] + former.bytes[512..<768])
    former.region.bytes.storeBytes(of: crc32c(parts, parts.count), toByteOffset: 40, as: UInt32.self)
    let left = try former.remains()
    #expect(!left.fits(DamagedRegion.limits) && !left.isSalvaged)
    let new = try #require(EventLog(name: "test", limits: DamagedRegion.limits, takingOver: left.log()))
    #expect(new.heldIDs == log.heldIDs && new.isIntact && new.checkpoint == nil)
    // After a power failure, too.
    #expect(try former.remains(boot: 2).log().heldIDs == log.heldIDs)
  }

  // MARK: Other limits

  @Test(arguments: [(1000, 1 << 20), (16, 16 << 10), (60, 4096), (1, 4096), (5000, 4096)])
  func otherLimitsKeepTheNewestEventsThatFit(events: Int, bytes: Int) throws {
    let place = try DamagedRegion()
    let old = try place.log()
    old.appendContents(200)
    let limits = EventLog.Limits(events: events, bytes: bytes)
    let new = try #require(EventLog(name: "test", limits: limits, takingOver: try place.remains().log()))
    #expect(new.endPosition == 1200 && new.isIntact)
    #expect(new.heldIDs == old.heldIDs.suffix(new.heldIDs.count))
    #expect(new.newestTime == old.newestTime && new.element(at: 1199) == old.element(at: 1199))
    let room = new.heldIDs.reduce(0) { $0 + LogLayout.recordBytes(for: new.element(at: $1).data.count) }
    #expect(new.heldIDs.count == min(events, old.heldIDs.count) || room > bytes - 2 * 524)
    new.appendContents(500)
    #expect(new.isIntact)
  }

  @Test func anEventOverANewLimitIsDroppedWithAllEarlierOnes() throws {
    let place = try DamagedRegion()
    let old = try place.log()
    old.append([[1], [UInt8](repeating: 2, count: 5000), [3], [4]])
    let small = EventLog.Limits(events: 60, bytes: 4096)
    #expect(try #require(EventLog(name: "test", limits: small, takingOver: old)).heldIDs == [1002, 1003])
    old.append([[UInt8](repeating: 2, count: 5000)])
    let empty = try #require(EventLog(name: "test", limits: small, takingOver: old))
    #expect(empty.heldIDs.isEmpty && empty.endPosition == 1005)
    empty.append([[7]])
    #expect(empty.element(at: 1005).data == [7])
  }
}
