import CChecksum
import Glibc
import Reactive
import Testing

@testable import ReplayLog

/// A log in a region that a test can look into, copy and spoil.
struct SpoiltRegion {
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
      state: LogState(startingAt: first, boot: boot))
  }

  init(_ bytes: [UInt8]) throws {
    region = try #require(MappedRegion(name: "test", byteCount: max(1, bytes.count)))
    region.bytes.copyBytes(from: bytes)
  }

  /// As the next process would find it.
  func remains(boot: UInt64 = 1, time: UInt64 = 0) throws(LogRefusal) -> LogRemains {
    try LogRemains(file: region, boot: BootID(high: 1, low: boot), time: time)
  }

  func log(boot: UInt64 = 1, time: UInt64 = 0) throws -> EventLog {
    try remains(boot: boot, time: time).log(limits: Self.limits, boot: BootID(high: 1, low: boot), didGrow: {})
  }
}

/// Data that tells whose it is.
func content(of id: UInt64) -> [UInt8] {
  [UInt8](repeating: UInt8(truncatingIfNeeded: id &* 37), count: Int(id &* 0x9E37_79B9 % 500))
}

extension EventLog {
  func appendContents(_ count: Int) {
    for _ in 0..<count { append([content(of: endPosition)]) }
  }

  var heldIDs: [UInt64] {
    var ids: [UInt64] = []
    var position = firstPosition
    while position < endPosition {
      ids.append(position)
      position = skip(position + 1)
    }
    return ids
  }

  /// Whether every event that is held is as it was appended.
  var isIntact: Bool {
    heldIDs.allSatisfy { element(at: $0).id == $0 && element(at: $0).data == content(of: $0) }
  }
}

@Suite struct RecoveryTests {
  @Test func aChecksumIsThatOfTheStandard() {
    #expect(crc32c("123456789", 9) == 0xE306_9283)
    #expect(crc32c([UInt8](repeating: 0, count: 32), 32) == 0x8A91_36AA)
    #expect(crc32c([UInt8](repeating: 0xFF, count: 32), 32) == 0x62A8_AB43)
  }

  @Test func anotherProcessGoesOnExactlyWhereOneStopped() throws {
    let place = try SpoiltRegion()
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

  @Test func whatTheAgeLimitDroppedStaysDropped() throws {
    let place = try SpoiltRegion()
    let clock = MovedClock()
    var limits = SpoiltRegion.limits
    limits.age = .seconds(1)
    let layout = try LogLayout(reading: place.region.bytes)
    let log = EventLog(layout, try layout.state(), limits: limits, owner: place.region, clock: { clock.now })
    log.append([[1], [2]])
    clock.now += 5_000_000
    log.dropExpired()
    #expect(try place.log().heldIDs.isEmpty)
  }

  @Test func fewerEventsThanBeforeKeepsTheNewest() throws {
    let place = try SpoiltRegion()
    try place.log().appendContents(40)
    var fewer = SpoiltRegion.limits
    fewer.events = 33
    let left = try place.remains()
    #expect(left.fits(fewer))
    #expect(left.log(limits: fewer).heldIDs == Array(1007..<1040))
  }

  @Test func timesNeverGoBackAcrossARecovery() throws {
    let place = try SpoiltRegion()
    try place.log().append([[1]])
    let layout = try LogLayout(reading: place.region.bytes)
    let log = EventLog(layout, try layout.state(), limits: SpoiltRegion.limits, owner: place.region, clock: { 5 })
    log.append([[2]])
    #expect(log.element(at: 1001).time == log.element(at: 1000).time)
  }

  // MARK: Refusals

  @Test func anUnknownVersionIsRefusedWithASentence() throws {
    let place = try SpoiltRegion()
    place.region.bytes.storeBytes(of: 7, toByteOffset: 8, as: UInt32.self)
    #expect(throws: LogRefusal("its layout is version 7, and this is written for version 2")) { try place.remains() }
  }

  @Test func whatIsNoLogIsRefused() throws {
    let place = try SpoiltRegion()
    place.region.bytes.storeBytes(of: 7, as: UInt64.self)
    #expect(throws: LogRefusal("it is no log of streamd")) { try place.remains() }
    #expect(throws: LogRefusal("it is no log: it has 100 bytes")) {
      try SpoiltRegion([UInt8](repeating: 0, count: 100)).remains()
    }
    #expect(throws: LogRefusal("it is no memory of a log")) { try LogRemains(memory: open("/dev/null", O_RDWR)) }
  }

  @Test func aSizeThatDoesNotFitTheGeometryIsRefused() throws {
    let bytes = try SpoiltRegion().bytes
    for count in [4096, 8192, bytes.count - 8, bytes.count + 8] {
      let place = try SpoiltRegion(Array((bytes + [UInt8](repeating: 0, count: 8)).prefix(count)))
      #expect(throws: LogRefusal("its \(count) bytes are not 64 slots and a ring of 16384 bytes")) {
        try place.remains()
      }
    }
  }

  @Test(arguments: [16, 24, 32, 64 + 16, 128 + 16, 512]) func aDamagedHeaderIsRefused(offset: Int) throws {
    let place = try SpoiltRegion()
    // Both states, as only one is in force.
    for offset in offset < 64 || offset > 200 ? [offset] : [80, 144] { place.region.bytes[offset] ^= 1 }
    #expect(throws: LogRefusal.self) { try place.remains() }
  }

  @Test(
    arguments: [(1000, .max), (.max, .max), (2000, 1000), (0, 1000), (1000, 1001)] as [(UInt64, UInt64)])
  func impossiblePositionsAreRefusedWhereNothingElseTells(positions: (first: UInt64, end: UInt64)) throws {
    let place = try SpoiltRegion()
    let layout = try LogLayout(reading: place.region.bytes)
    layout.positions().commit(first: positions.first)
    layout.positions().commit(end: positions.end)
    #expect(throws: LogRefusal.self) { try layout.intactState() }
  }

  // MARK: The order of writing

  /// At whatever point between two of its writes the process dies, what is there is whole.
  @Test func everyPrefixOfTheWritesOfAnAppendIsALog() throws {
    let place = try SpoiltRegion()
    let log = try place.log()
    log.appendContents(300)
    for _ in 0..<200 {
      let before = place.bytes
      log.appendContents(1)
      let after = place.bytes
      // The order that the layout's comment promises: the first position, the record, its slot, the end position.
      let header = 64..<192
      let index = 4096..<4096 + 64 * 8
      var dying = before
      let first = stride(from: 0, to: 128, by: 64).map { 64 + $0..<72 + $0 }
      for range in first { dying.replaceSubrange(range, with: after[range]) }
      #expect(try SpoiltRegion(dying).log().isIntact)
      for part in 1...4 {
        let ring = index.upperBound..<after.count
        let cut = ring.lowerBound + ring.count * part / 4
        dying.replaceSubrange(ring.lowerBound..<cut, with: after[ring.lowerBound..<cut])
        #expect(try SpoiltRegion(dying).log().isIntact)
      }
      dying.replaceSubrange(index, with: after[index])
      #expect(try SpoiltRegion(dying).log().isIntact)
      dying.replaceSubrange(header, with: after[header])
      #expect(dying == after)
    }
  }

  @Test func aStateIsReplacedAsOne() throws {
    let place = try SpoiltRegion()
    let log = try place.log()
    log.appendContents(10)
    let before = place.bytes
    log.noteClosed()
    let after = place.bytes
    let changed = before.indices.filter { before[$0] != after[$0] }
    var dying = before
    // The word that says which is in force comes last, whatever the order of the others.
    for index in changed.reversed() where index >= 64 {
      dying[index] = after[index]
      #expect(try SpoiltRegion(dying).log().heldIDs == Array(1000..<1010))
    }
    #expect(changed.contains { $0 < 64 })
    #expect(try SpoiltRegion(after).log(boot: 2).endPosition == 1010)
  }

  // MARK: Other limits

  @Test(arguments: [(1000, 1 << 20), (16, 16 << 10), (60, 4096), (1, 4096), (5000, 4096)])
  func otherLimitsTakeOverWhatFitsOfTheNewest(events: Int, bytes: Int) throws {
    let place = try SpoiltRegion()
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

  @Test func anEventThatIsTooLargeNowGoesWithAllBeforeIt() throws {
    let place = try SpoiltRegion()
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
