import Events
import Glibc
import StreamRuntime
import Synchronization
import TestSupport
import Testing

@testable import ReplayLog

/// Logs in a shared region.
@Suite struct SharedRegionTests {
  private static let limits = EventLog.Limits(events: 256, bytes: 256 << 10)

  private func region(_ byteCount: Int = 256 << 20, isKept: Bool = true) throws -> SharedRegion {
    try #require(SharedRegion(name: "test", byteCount: byteCount, isKept: isKept))
  }

  private func log(
    in region: SharedRegion, _ name: String = "test", _ limits: EventLog.Limits = limits, firstID: UInt64 = 1000
  ) throws -> EventLog {
    try #require(EventLog(in: region, name: name, limits: limits, firstID: firstID, clock: { 7 }))
  }

  /// The region as the next process finds it. No log of this one may be used afterwards.
  private func next(_ region: SharedRegion) throws -> (region: SharedRegion, logs: [String: LogRemains]) {
    let (next, logs) = try SharedRegion.adopted(
      dup(region.descriptor), damaged: { Issue.record("\($0)") })
    return (next, Dictionary(uniqueKeysWithValues: logs.map { ($0.stream, $0) }))
  }

  @Test func aLogOfOneEventTakesOneKilobyte() throws {
    let region = try region()
    let log = try log(in: region, "sensors/kitchen/thermometer")
    #expect(region.usedBytes == 512)
    log.append([[UInt8](repeating: 1, count: 256)])
    #expect(region.usedBytes == 1024)
    #expect(log.element(at: 1000).data.count == 256)
  }

  @Test func aLogThatGrowsHasTheSameEventsAsOneOfItsOwnMemory() throws {
    var random = SystemRandom(1)
    for round in 0..<60 {
      let limits = EventLog.Limits(
        events: [1, 7, 60, 300][round % 4], bytes: 256 << 10, age: round % 3 == 0 ? .seconds(1) : nil)
      let clock = MovedClock()
      let region = try region()
      var log = try #require(EventLog(in: region, name: "test", limits: limits, firstID: 1000, clock: { clock.now }))
      let other = try #require(EventLog(name: "test", limits: limits, firstID: 1000, clock: { clock.now }))
      for _ in 0..<200 {
        switch random.next(below: 12) {
        case 0:
          let held =
            random.next(below: 3) == 0 ? UInt64.max : max(log.firstPosition, log.endPosition - min(3, log.endPosition))
          log.hold(from: held)
          other.hold(from: held)
        case 1:
          clock.now += UInt64(random.next(below: 400_000))
          log.dropExpired()
          other.dropExpired()
        case 2:
          guard clock.now < 2_000_000 || limits.age == nil else { continue }
          let remains = try #require(try next(region).logs["test"])
          #expect(remains.endPosition == other.endPosition)
        default:
          let sizes = (0..<random.next(below: 5)).map { _ in random.next(below: random.next(below: 9) == 0 ? 700 : 90) }
          var batch = EventBatch(sizes.map { [UInt8](repeating: UInt8($0 & 255), count: Int($0)) })
          if random.next(below: 3) == 0 {
            batch.checkpoint = Checkpoint([UInt8](repeating: 3, count: Int(random.next(below: 2000))))
          }
          if random.next(below: 9) == 0 { batch.loss = EventLoss.known(UInt64(random.next(below: 1000))) }
          #expect(log.appendWhatFits(batch) == other.appendWhatFits(batch))
        }
        try #require(log.heldIDs == other.heldIDs && log.endPosition == other.endPosition, "round \(round)")
        #expect(log.countedFrom == other.countedFrom && log.newestID == other.newestID)
        #expect(log.checkpoint == other.checkpoint && log.isFull == other.isFull)
        for id in log.heldIDs { #expect(log.element(at: id) == other.element(at: id)) }
        if random.next(below: 40) == 0 {
          // The next process.
          log = try #require(try next(region).logs["test"]).log(limits: limits)
          #expect(log.heldIDs == other.heldIDs && log.checkpoint == other.checkpoint)
          break
        }
      }
    }
  }

  @Test func aFullLogHoldsAsManyBytesAsItsLimit() throws {
    let region = try region()
    let log = try log(in: region, "test", EventLog.Limits(events: 1000, bytes: 32 << 10))
    log.appendContents(3000)
    #expect(log.isIntact && log.endPosition == 4000)
    let bytes = log.heldIDs.reduce(0) { $0 + LogLayout.recordBytes(for: log.element(at: $1).data.count) }
    #expect(bytes > 31 << 10 && !log.canGrow)
  }

  @Test func theNextProcessFindsEachLog() throws {
    let region = try region()
    var logs: [String: EventLog] = [:]
    for number in 0..<500 {
      let log = try log(in: region, "s/\(number)", firstID: UInt64(number))
      log.appendContents(number % 60, noting: true)
      logs["s/\(number)"] = log
    }
    for number in 0..<100 { logs.removeValue(forKey: "s/\(number * 5)")?.discard() }
    let (again, remains) = try next(region)
    #expect(remains.keys.sorted() == logs.keys.sorted())
    #expect(again.usedBytes == region.usedBytes)
    for (name, log) in logs {
      let left = try #require(remains[name])
      #expect(left.fits(Self.limits) && left.isStored(in: again))
      let other = left.log(limits: Self.limits)
      #expect(other.heldIDs == log.heldIDs, "\(name)")
      #expect(other.notedID == log.notedID, "\(name)")
      #expect(other.isIntact, "\(name)")
      other.appendContents(100, noting: true)
      #expect(other.isIntact && other.endPosition == log.endPosition + 100)
    }
  }

  @Test func aLogThatWasMovedAtAKillIsFoundOnce() throws {
    let region = try region()
    let (log, other) = (try log(in: region), try log(in: region, "other"))
    let former = try #require(log.owner as? LogPlace).place
    log.append([[1]])
    #expect((log.owner as? LogPlace)?.place == former)
    let bytes = Array(region.bytes(of: former))
    log.append([[UInt8](repeating: 2, count: 400)])
    #expect((log.owner as? LogPlace)?.place != former)
    // The kill came before the former place was cleared.
    region.bytes(of: former).copyBytes(from: bytes)
    let (again, remains) = try next(region)
    #expect(remains["test"]?.endPosition == 1002)
    let places = [log, other].compactMap { ($0.owner as? LogPlace)?.place.byteCount }
    #expect(remains.count == 2 && again.usedBytes == places.reduce(0, +))
    #expect(Array(region.bytes(of: former)).allSatisfy { $0 == 0 })
  }

  @Test func halfOfALogIsNoLog() throws {
    let region = try region()
    let log = try log(in: region)
    log.append([[1]])
    let place = try #require(log.owner as? LogPlace)
    place.bytes.storeBytes(of: 0, as: UInt64.self)
    let (again, remains) = try next(region)
    #expect(remains.isEmpty && again.usedBytes == 0)
    let new = try self.log(in: again, "new")
    #expect(new.heldIDs.isEmpty)
    new.appendContents(100)
    #expect(new.isIntact)
  }

  @Test func aDamagedLogLeavesTheOthers() throws {
    let region = try region()
    let logs = try (0..<4).map { try log(in: region, "\($0)") }
    for log in logs { log.appendContents(10) }
    let places = logs.compactMap { $0.owner as? LogPlace }
    places[1].bytes[40] ^= 1
    places[2].bytes.storeBytes(of: 1 << 40, toByteOffset: 24, as: UInt64.self)
    var reasons: [String] = []
    let (again, remains) = try SharedRegion.adopted(
      dup(region.descriptor), damaged: { reasons.append("\($0)") })
    #expect(remains.map(\.stream).sorted() == ["0", "3"])
    #expect(reasons.count == 2)
    #expect(again.usedBytes == places[0].place.byteCount + places[3].place.byteCount)
  }

  @Test func memoryOfLogsThatAreGoneIsFree() throws {
    let region = try region(64 << 20)
    func blocks() -> Int {
      var status = stat()
      fstat(region.descriptor, &status)
      return Int(status.st_blocks) * 512
    }
    let first = blocks()
    for _ in 0..<3 {
      var logs = try (0..<2000).map { try log(in: region, "\($0)") }
      for log in logs { log.appendContents(20) }
      #expect(region.usedBytes > 12 << 20)
      for log in logs { log.discard() }
      #expect(try next(region).logs.isEmpty)
      logs = []
      #expect(region.usedBytes == 0)
      // A chunk of each size stays.
      #expect(blocks() - first < 6 << 20)
    }
  }

  @Test func theNextProcessGivesFreePlacesNoMemory() throws {
    let region = try region()
    func blocks() -> Int {
      var status = stat()
      fstat(region.descriptor, &status)
      return Int(status.st_blocks) * 512
    }
    var logs = try (0..<40).map { try log(in: region, "\($0)") }
    for log in logs { for _ in 0..<20 { log.append([[UInt8](repeating: 1, count: 8000)]) } }
    for (index, log) in logs.enumerated() where index % 4 > 0 { log.discard() }
    logs = logs.enumerated().filter { $0.offset % 4 == 0 }.map(\.element)
    let before = blocks()
    #expect(try next(region).logs.count == 10)
    #expect(blocks() <= before + 64 << 10)
  }

  @Test func aLogThatWasDiscardedStaysReadable() throws {
    let region = try region()
    let log = try log(in: region)
    log.appendContents(30)
    log.discard()
    let others = try (0..<200).map { try self.log(in: region, "\($0)") }
    for other in others { other.appendContents(30) }
    #expect(log.isIntact && log.heldIDs.count == 30)
    log.appendContents(100)
    #expect(log.isIntact && others.allSatisfy { $0.isIntact })
    #expect(try next(region).logs.count == 200)
  }

  @Test func logsOfARegionThatIsNotKeptLeaveNothing() throws {
    let region = try region(isKept: false)
    try log(in: region).appendContents(10)
    #expect(region.usedBytes == 0)
  }

  @Test func aLogWithoutRoomToGrowTellsReadersWhatTheyMiss() throws {
    let refusals = Atomic(0)
    let budget = LogBudget { refusals.add(1, ordering: .relaxed) }
    let region = try #require(SharedRegion(name: "test", byteCount: 2 << 20, isKept: true, budget: budget))
    let log = try log(in: region)
    log.append([[1], [2]])
    // The only chunk has places of 512 bytes.
    log.append([[UInt8](repeating: 3, count: 1000), [4]])
    #expect(refusals.load(ordering: .relaxed) > 0)
    #expect(log.takeLeftOutCount() == 1)
    #expect(log.heldIDs == [1000, 1001, 1003] && log.endPosition == 1004)
    for number in 5..<100 { log.append([[UInt8(number)]]) }
    #expect(log.heldIDs.count > 2 && log.element(at: log.endPosition - 1).data == [99])
    #expect(EventLog(in: region, name: "large", limits: Self.limits) != nil)
    var batch: EventBatch = [[1]]
    batch.checkpoint = Checkpoint([UInt8](repeating: 1, count: 4000))
    log.append(batch)
    #expect(log.checkpoint == batch.checkpoint)
    let left = try #require(try next(region).logs["test"])
    #expect(left.endPosition == log.endPosition && left.log(limits: Self.limits).checkpoint == nil)
  }

  @Test func logsGrowWithinTheirBudgetAndHaveRoomForAnEventBeyondIt() throws {
    let budget = LogBudget(limit: 64 << 10)
    let region = try #require(SharedRegion(name: "test", byteCount: 64 << 20, isKept: true, budget: budget))
    var logs: [EventLog] = []
    while budget.hasRoom { logs.append(try log(in: region, "\(logs.count)")) }
    #expect(logs.count > 100)
    for log in logs { log.append([[UInt8](repeating: 1, count: 2000)]) }
    #expect(logs.allSatisfy { $0.takeLeftOutCount() == 0 && $0.heldIDs.last == $0.endPosition - 1 })
    // The next events replace those that there are.
    let full = budget.usedBytes
    for log in logs { for _ in 0..<20 { log.append([[UInt8](repeating: 1, count: 1900)]) } }
    #expect(budget.usedBytes == full && logs.allSatisfy { $0.heldIDs.last == $0.endPosition - 1 })
    let used = budget.usedBytes
    let next = LogBudget(limit: 1000)
    #expect(try SharedRegion.adopted(dup(region.descriptor), budget: next, damaged: { _ in }).logs.count == logs.count)
    #expect(next.usedBytes == used && !next.hasRoom)
    logs[0].discard()
    logs = Array(logs[1...])
    #expect(budget.usedBytes < used)
  }

  @Test func smallerLimitsLetALogStayOnlyIfItFits() throws {
    let region = try region()
    let log = try log(in: region)
    log.appendContents(200)
    let remains = try #require(try next(region).logs["test"])
    #expect(!remains.fits(EventLog.Limits(events: 256, bytes: 8192)))
    #expect(!remains.fits(EventLog.Limits()))
    let smaller = EventLog.Limits(events: 100, bytes: 8192)
    let new = try #require(EventLog(in: region, name: "test", limits: smaller, takingOver: remains.log()))
    #expect(new.isIntact && new.endPosition == 1200 && new.heldIDs.count > 20)
  }
}
