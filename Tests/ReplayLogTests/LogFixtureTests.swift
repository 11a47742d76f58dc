import Events
import Glibc
import TestSupport
import Testing

@testable import ReplayLog

/// A log written by one version, which later ones read.
@Suite struct LogFixtureTests {
  private static let limits = EventLog.Limits(events: 8, bytes: 4096)
  private static let boot = BootID(high: 1, low: 2)

  /// The log of `Fixtures/log-3`: 20 events, the last 8 of which are stored. `Fixtures/log-2`, of a program of that
  /// version, has the same without checkpoints.
  private static func makeLog() throws -> [UInt8] {
    try makeLog { log in
      for number in 0..<20 as Range<UInt8> {
        var batch = EventBatch([[UInt8](repeating: number, count: Int(number) * 10)])
        batch.checkpoint = Checkpoint([number])
        log.append(batch)
      }
    }
  }

  /// The log of `Fixtures/log-3-stamps`: events with stamps on both sides of a hole.
  private static func makeLogWithStamps() throws -> [UInt8] {
    try makeLog { log in
      log.append(try stamped(2000, [[1], [2], [3], [4]], time: 10, position: [1, 2]))
      log.append(try stamped(2006, [[5], [6]], time: 11, position: [3, 4, 5]))
    }
  }

  private static func makeLog(_ append: (EventLog) throws -> Void) throws -> [UInt8] {
    let region = try #require(MappedRegion(name: "test", byteCount: LogLayout.byteCount(for: Self.limits)))
    var time: UInt64 = 1_700_000_000_000_000
    let log = EventLog(
      formatting: region, name: "fixture", limits: Self.limits, hasChecksums: true,
      extent: LogExtent(startingAt: 1000, boot: Self.boot),
      clock: {
        time += 1_000_000
        return time
      })
    try append(log)
    log.noteClosed()
    return withExtendedLifetime(log) { Array(region.bytes) }
  }

  /// A change of the layout adds a fixture, and does not change the others.
  @Test func theCurrentVersionWritesTheNewestFixture() throws {
    let written = try Self.makeLog()
    #expect(try written == fixture("log-3"))
    let stamps = try Self.makeLogWithStamps()
    #expect(try stamps == fixture("log-3-stamps"))
  }

  @Test func stampsAreRead() throws {
    let bytes = try fixture("log-3-stamps")
    let region = try #require(MappedRegion(name: "test", byteCount: bytes.count))
    region.bytes.copyBytes(from: bytes)
    let log = try LogRemains(file: region, boot: nil, time: 0).log(limits: Self.limits, boot: nil, didGrow: {})
    #expect(log.heldIDs == [2000, 2001, 2002, 2003, 2006, 2007] && log.fleetPosition == [3, 4, 5])
    #expect(log.heldIDs.map { log.element(at: $0).data } == [[1], [2], [3], [4], [5], [6]])
    #expect(log.heldIDs.map { log.element(at: $0).time } == [10, 10, 10, 10, 11, 11])
    #expect(log.missedEvents(from: 2000, to: 2007) == nil && log.missedEvents(from: 2000, to: 2004) == 4)
  }

  /// In the boot in which they were closed, and in another one.
  @Test(arguments: ["log-2", "log-3"], [2, 3] as [UInt64]) func versionsAreRead(name: String, boot: UInt64) throws {
    let bytes = try fixture(name)
    let region = try #require(MappedRegion(name: "test", byteCount: bytes.count))
    region.bytes.copyBytes(from: bytes)
    let left = try LogRemains(file: region, boot: BootID(high: 1, low: boot), time: 0)
    #expect(left.stream == "fixture" && !left.isSalvaged)
    // A former version is copied.
    let isCurrent = name == "log-3"
    #expect(left.fits(Self.limits) == isCurrent)
    let log =
      isCurrent
      ? try left.log(limits: Self.limits, boot: Self.boot, didGrow: {})
      : try #require(EventLog(name: "fixture", limits: Self.limits, takingOver: left.log()))
    #expect(log.heldIDs == Array(1012..<1020) && log.endPosition == 1020)
    for id in log.heldIDs {
      let number = id - 1000
      #expect(
        log.element(at: id)
          == LoggedEvent(
            id: id, time: 1_700_000_001_000_000 + number * 1_000_000,
            data: [UInt8](repeating: UInt8(number), count: Int(number) * 10)))
    }
    #expect(log.checkpoint == (isCurrent ? Checkpoint([19]) : nil))
    if isCurrent { #expect(log.missedEvents(from: 1000, to: 1012) == 12) }
    log.append([[7]])
    #expect(log.element(at: 1020).data == [7])
  }
}
