import Reactive
import StreamRuntime
import Synchronization
import Testing

@testable import ReplayLog

/// The sync of a log is called outside the log's lock.
@Suite struct GrowthTests {
  private typealias Log = SharedLog<EventLog, Never>

  /// Reads the log inside the call, which would deadlock under its lock.
  private final class Growth: Sendable {
    let ends = Locked<[UInt64]>([])
    let log = Locked<Log?>(nil)

    func note() {
      guard let log = log.withLock({ $0 }) else { return }
      let end = log.read { storage, _ in storage.endPosition }
      ends.withLock { $0.append(end) }
    }
  }

  private func storage(_ growth: Growth) throws -> EventLog {
    let limits = EventLog.Limits(events: 4)
    let region = try #require(MappedRegion(name: "test", byteCount: LogLayout.byteCount(for: limits)))
    return EventLog(
      formatting: region, name: "s", limits: limits, hasChecksums: false, extent: LogExtent(startingAt: 10),
      didGrow: { growth.note() })
  }

  @Test(arguments: [LogOverflow.dropOldest, .waitForSlowest])
  func growthIsReportedOutsideTheLock(overflow: LogOverflow) throws {
    let (growth, next) = (Growth(), Growth())
    let log = Log(storage: try storage(growth), start: .always, demand: .oneAtATime, overflow: overflow)
    growth.log.withLock { $0 = log }
    next.log.withLock { $0 = log }
    log.append([[1], [2]])
    #expect(growth.ends.withLock { $0 } == [12])
    // Another storage has its own.
    _ = log.freeze(start: .always, overflow: overflow)
    log.append([[3]])
    #expect(growth.ends.withLock { $0 } == [12])
    let other = try storage(next)
    other.append([[1], [2]])
    log.thaw(other)
    #expect(growth.ends.withLock { $0 } == [12] && next.ends.withLock { $0 } == [13])
    log.append([[4]])
    #expect(growth.ends.withLock { $0 } == [12] && next.ends.withLock { $0 } == [13, 14])
    growth.log.withLock { $0 = nil }
    next.log.withLock { $0 = nil }
  }
}
