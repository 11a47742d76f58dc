import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import ReplayLog

/// A log after its process was killed at a random moment.
@Suite(.timeLimit(.minutes(10))) struct KillTests {
  private static let rounds = 150
  private static let limits = EventLog.Limits(events: 300, bytes: 32 << 10)

  /// The same as `content(of:)` of the program that appends.
  private func content(of id: UInt64) -> [UInt8] {
    var state = id &* 0x9E37_79B9_7F4A_7C15 | 1
    func next() -> UInt64 {
      state ^= state << 13
      state ^= state >> 7
      state ^= state << 17
      return state
    }
    let count = Int(next() % (next() % 16 == 0 ? 3000 : 200))
    return [UInt8](repeating: UInt8(truncatingIfNeeded: next()), count: count)
  }

  /// Lets a writer append until it has acknowledged some, and kills it a moment later.
  /// - Returns: the last id that it acknowledged.
  private func kill(
    _ kind: String, _ path: String, with option: String? = nil, _ random: inout SystemRandom
  ) async throws -> UInt64 {
    let writer = try ChildProcess(ChildProcess.built("logwriter"), [kind, path] + (option.map { [$0] } ?? []))
    defer { writer.signal(SIGKILL) }
    var last: UInt64 = 0
    func readOne() -> Bool {
      var next: UInt64 = 0
      var count = 0
      while count < 8 {
        let got = withUnsafeMutableBytes(of: &next) { read(writer.output, $0.baseAddress! + count, 8 - count) }
        guard got > 0 else { return false }
        count += got
      }
      last = next - 1
      return true
    }
    for _ in 0...random.next(below: 2000) {
      guard readOne() else {
        Issue.record("the writer has ended: \(await writer.text(of: writer.errors))")
        return last
      }
    }
    for _ in 0..<random.next(below: 20000) where writer.output < 0 {}
    writer.signal(SIGKILL)
    while readOne() {}
    #expect(await writer.end() == 128 + SIGKILL)
    return last
  }

  /// - Returns: the next id.
  private func check(_ log: EventLog, acknowledged: UInt64, before: UInt64) -> UInt64 {
    #expect(log.endPosition > acknowledged, "an event that was acknowledged is missing")
    #expect(log.endPosition >= before, "ids went back")
    #expect(log.endPosition <= acknowledged + 1 + 7, "there is more than a batch that nobody acknowledged")
    #expect(log.notedID == log.newestID, "a batch and its checkpoint did not come together")
    var bytes = 0
    for position in log.firstPosition..<log.endPosition {
      let event = log.element(at: position)
      #expect(event.id == position && event.data == content(of: position), "event \(position) is broken")
      bytes += LogLayout.recordBytes(for: event.data.count)
    }
    let count = log.endPosition - log.firstPosition
    #expect(count == 300 || bytes > 16 << 10, "only \(count) events of \(bytes) bytes are held")
    return log.endPosition
  }

  /// Appends events with stamps.
  /// - Returns: the next id.
  private func checkStamps(_ log: EventLog, acknowledged: UInt64, before: UInt64) -> UInt64 {
    #expect(log.endPosition > acknowledged && log.endPosition >= before)
    #expect(log.endPosition <= acknowledged + 1 + 7 + 6, "there is more than a batch that was not acknowledged")
    #expect(log.notedID == log.newestID && log.positionID == log.newestID, "a batch and its position differ")
    for id in log.heldIDs {
      let event = log.element(at: id)
      #expect(event == LoggedEvent(id: id, time: id, data: content(of: id)), "event \(id) is broken")
    }
    #expect(log.heldIDs.last == log.newestID)
    return log.endPosition
  }

  @Test(arguments: ["memory", "disk"]) func afterAKillEventsHaveTheirStamps(kind: String) async throws {
    var random = SystemRandom(7)
    let memory = try #require(EventLog(name: "killed", limits: Self.limits, followsFleet: true))
    let folder = try TemporaryFolder()
    var end: UInt64 = 0
    for _ in 0..<Self.rounds {
      let path = kind == "memory" ? "/proc/\(getpid())/fd/\(memory.descriptor)" : folder.path
      let last = try await kill(kind, path, with: "stamps", &random)
      let log: EventLog
      if kind == "memory" {
        log = try LogRemains(memory: dup(memory.descriptor)).log(limits: Self.limits)
      } else {
        let state = LogFolder(path: folder.path, boot: BootID.current()) { _, reason, _ in Issue.record("\(reason)") }
        let left = try #require(try state.remains(of: "killed"))
        #expect(!left.isSalvaged)
        log = left.log(limits: Self.limits)
      }
      end = checkStamps(log, acknowledged: last, before: end)
    }
  }

  @Test(arguments: ["memory", "disk"]) func afterAKillTheStateIsTheFoldOfTheEvents(kind: String) async throws {
    var random = SystemRandom(8)
    var limits = Self.limits
    limits.state = KeyedState.Settings(keys: 40, bytes: 256 << 10)
    let memory = try #require(EventLog(name: "killed", limits: limits))
    let folder = try TemporaryFolder()
    var newest: [UInt8: UInt64] = [:]
    var next: UInt64?
    for _ in 0..<60 {
      let path = kind == "memory" ? "/proc/\(getpid())/fd/\(memory.descriptor)" : folder.path
      _ = try await kill(kind, path, with: "keys", &random)
      let log: EventLog
      if kind == "memory" {
        log = try LogRemains(memory: dup(memory.descriptor)).log(limits: limits)
      } else {
        let state = LogFolder(path: folder.path, boot: BootID.current()) { _, reason, _ in Issue.record("\(reason)") }
        log = try #require(try state.remains(of: "killed")).log(limits: limits)
      }
      let state = try #require(log.state)
      let first = next ?? state.description.begin
      for id in first..<log.endPosition { newest[UInt8(id &* 7 % 40)] = id % 5 == 0 ? nil : id }
      next = log.endPosition
      try #require(state.isComplete)
      let events = try #require(state.events(asOf: log.endPosition))
      let hasNewest = events.map(\.id) == newest.values.sorted()
      let isIntact = events.allSatisfy { $0.data == content(of: $0.id) }
      try #require(hasNewest && isIntact)
    }
  }

  @Test func afterAKillMemoryHasEveryAcknowledgedEventIntact() async throws {
    var random = SystemRandom(5)
    let first = try #require(EventLog(name: "killed", limits: Self.limits))
    var end = first.endPosition
    for _ in 0..<Self.rounds {
      let last = try await kill("memory", "/proc/\(getpid())/fd/\(first.descriptor)", &random)
      let left = try LogRemains(memory: dup(first.descriptor))
      #expect(left.stream == "killed" && left.fits(Self.limits))
      end = check(left.log(limits: Self.limits), acknowledged: last, before: end)
    }
  }

  @Test func afterAKillASharedRegionHasEveryAcknowledgedEventIntact() async throws {
    var random = SystemRandom(9)
    let region = try #require(SharedRegion(name: "test", byteCount: 64 << 20, isKept: true))
    var end: UInt64 = 0
    for _ in 0..<Self.rounds {
      let last = try await kill("shared", "/proc/\(getpid())/fd/\(region.descriptor)", &random)
      let (_, logs) = try SharedRegion.adopted(
        dup(region.descriptor), damaged: { Issue.record("\($0)") })
      #expect(logs.count <= 6)
      let left = try #require(logs.first { $0.stream == "killed" })
      #expect(left.fits(Self.limits))
      end = check(left.log(limits: Self.limits), acknowledged: last, before: end)
    }
  }

  @Test func afterAKillAFileHasEveryAcknowledgedEventIntact() async throws {
    var random = SystemRandom(6)
    let folder = try TemporaryFolder()
    var end: UInt64 = 0
    for _ in 0..<Self.rounds {
      let last = try await kill("disk", folder.path, &random)
      // The folder is this process's until the end of the round.
      let state = LogFolder(path: folder.path, boot: BootID.current()) { _, reason, _ in Issue.record("\(reason)") }
      let left = try #require(try state.remains(of: "killed"))
      #expect(!left.isSalvaged)
      end = check(left.log(limits: Self.limits), acknowledged: last, before: end)
    }
  }
}
