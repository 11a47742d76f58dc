import Events
import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import ReplayLog

/// A state in a file, whose pages a test mixes and damages.
private struct KeyedFile {
  let limits: EventLog.Limits
  let region: MappedRegion
  var bytes: [UInt8] {
    get { Array(region.bytes) }
    nonmutating set { region.bytes.copyBytes(from: newValue) }
  }

  init(hasPath: Bool = true, fleet: Bool = false) throws {
    let path: @Sendable (UnsafeRawBufferPointer) -> EventKey? = { key(in: $0) }
    let settings = KeyedState.Settings(keys: 60, bytes: 24 << 10, keyDigest: 1, key: hasPath ? path : nil)
    limits = EventLog.Limits(events: 60, bytes: 16 << 10, state: settings)
    region = try #require(MappedRegion(name: "test", byteCount: LogLayout.byteCount(for: limits)))
    let log = EventLog(
      formatting: region, name: "test", limits: limits, hasChecksums: true,
      extent: LogExtent(startingAt: 1000, boot: BootID(high: 1, low: 1)), followsFleet: fleet)
    log.state?.noteFirstMark(log.layout)
  }

  func log(boot: UInt64 = 1, time: UInt64 = 0) throws -> EventLog {
    let boot = BootID(high: 1, low: boot)
    return try LogRemains(file: region, boot: boot, time: time).log(limits: limits, boot: boot, didGrow: {})
  }
}

extension EventLog {
  fileprivate func appendKeyed(_ count: Int, _ random: inout SystemRandom) -> [(LoggedEvent, EventKey?)] {
    var all: [(LoggedEvent, EventKey?)] = []
    for _ in 0..<count {
      let data =
        [UInt8(random.next(below: 40)), random.next(below: 5) == 0 ? 0 : 1]
        + [UInt8](repeating: 7, count: random.next(below: 200))
      let id = endPosition
      append(keyed([data]))
      all.append((element(at: id), data.withUnsafeBytes { key(in: $0) }))
    }
    return all
  }
}

/// A state after a kill, a power failure or damage.
@Suite(.timeLimit(.minutes(10))) struct KeyedStateRecoveryTests {
  /// Each page has any of its versions since the last sync, in the order of syncs that the machine makes.
  @Test(arguments: seeds(60)) func afterAPowerFailureTheStateIsTheFoldOfTheRemainingEvents(seed: UInt64) throws {
    var random = SystemRandom(seed)
    let hasPath = seed % 2 == 0
    let place = try KeyedFile(hasPath: hasPath)
    var events: [(LoggedEvent, EventKey?)] = []
    for round in 1...12 as ClosedRange<UInt64> {
      let noted = try LogLayout(reading: place.region.bytes).stateArea?.mark.all().first?.end ?? 0
      let log = try place.log(boot: round, time: 2000 * round)
      let state = try #require(log.state)
      guard state.isComplete else {
        // The log no longer has all events after those that the disk's state knows.
        try #require(log.firstPosition > noted)
        return
      }
      // The state knows an event that is in the log, or that the mark covers, and no other one.
      events.removeAll { event, _ in event.id >= noted && !log.heldIDs.contains(event.id) }
      var model = StateModel()
      for (event, key) in events { model.put(event, key) }
      let isEqual = state.events(asOf: log.endPosition) == model.events
      try #require(isEqual, "round \(round)")
      let marks = try #require(state.marks)
      // Pages of which the disk may have any version, the newest last; the first is that of the last sync.
      var versions = [place.bytes]
      var syncing: (latest: StateMark, noted: StateMark)?
      for _ in 0..<random.next(below: 20) {
        if random.next(below: 3) == 0 {
          if let synced = syncing {
            // The sync has brought everything from before it to the disk.
            _ = marks.didSync(synced)
            syncing = nil
            versions = Array(versions.suffix(1)) + [place.bytes]
          } else {
            syncing = marks.willSync()
            versions = [place.bytes]
          }
        } else {
          events += log.appendKeyed(1 + random.next(below: 3), &random)
        }
        versions.append(place.bytes)
        if versions.count > 6, syncing == nil { versions.remove(at: 1) }
      }
      var torn = versions[0]
      for page in stride(from: 0, to: torn.count, by: 4096) {
        let range = page..<min(page + 4096, torn.count)
        torn.replaceSubrange(range, with: versions[random.next(below: versions.count)][range])
      }
      place.bytes = torn
    }
  }

  /// The mark covers events of which the log's pages are not on the disk.
  @Test(arguments: [1, 7, 20]) func aStateOutlivesTheEventsThatItsLogLosesInAPowerFailure(lost: UInt64) throws {
    let place = try KeyedFile()
    let log = try place.log()
    var random = SystemRandom(1)
    var model = StateModel()
    for (event, key) in log.appendKeyed(20, &random) { model.put(event, key) }
    let marks = try #require(log.state?.marks)
    for _ in 0..<2 { _ = marks.didSync(marks.willSync()) }
    let end = log.endPosition
    for position in end - lost..<end {
      let data = log.layout.data(of: position)
      UnsafeMutableRawPointer(mutating: try #require(data.baseAddress)).storeBytes(of: 0xEE, as: UInt8.self)
    }
    for boot in 2...3 as ClosedRange<UInt64> {
      let again = try place.log(boot: boot, time: 2000 * boot)
      let state = try #require(again.state)
      #expect(!again.heldIDs.contains(end - 1))
      for _ in 0..<3 {
        #expect(state.incompleteness == nil)
        #expect(state.events(asOf: again.endPosition) == model.events)
        for (event, key) in again.appendKeyed(1, &random) { model.put(event, key) }
      }
      let marks = try #require(state.marks)
      for _ in 0..<2 { _ = marks.didSync(marks.willSync()) }
    }
  }

  @Test(arguments: seeds(300)) func randomDamageNeverServesAWrongState(seed: UInt64) throws {
    var random = SystemRandom(seed)
    let place = try KeyedFile()
    let log = try place.log()
    var model = StateModel()
    for (event, key) in log.appendKeyed(40 + random.next(below: 200), &random) { model.put(event, key) }
    if random.next(below: 2) == 0 { log.noteClosed() }
    var bytes = place.bytes
    let area = place.bytes.count - place.limits.state!.areaBytes
    for _ in 0...random.next(below: 12) {
      let start =
        random.next(below: 3) == 0
        ? random.next(below: bytes.count)
        : area - LogNote.areaBytes + 8576 - random.next(below: 64) + random.next(below: 24000)
      for index in start..<min(bytes.count, start + 1 + random.next(below: 24)) {
        bytes[index] = random.next(below: 3) == 0 ? 0 : UInt8(random.next(below: 256))
      }
    }
    place.bytes = bytes
    let boot = UInt64(1 + random.next(below: 2))
    let reader = try? LogRemains(file: place.region, boot: BootID(high: 1, low: boot), time: 4000).log()
    _ = reader?.state?.events(asOf: .max)
    guard let again = try? place.log(boot: boot, time: 4000), let state = again.state else { return }
    let isIntact = again.endPosition == log.endPosition
    if isIntact, state.isComplete {
      let isEqual = state.events(asOf: again.endPosition) == model.events
      try #require(isEqual)
    }
    guard again.endPosition < LogLayout.idLimit / 2 else { return }
    var next = StateModel()
    for event in state.events(asOf: again.endPosition) ?? [] {
      let logged = LoggedEvent(id: event.id, time: event.time, data: event.data)
      next.put(logged, event.data.withUnsafeBytes { key(in: $0) })
    }
    for (event, key) in again.appendKeyed(100, &random) { next.put(event, key) }
    if state.isComplete {
      let isEqual = state.events(asOf: again.endPosition) == next.events
      try #require(isEqual)
    }
  }

  @Test func aDamagedStateIsCompleteIfTheLogHasAllItsEvents() throws {
    for count in [20, 100] {
      var random = SystemRandom(1)
      let place = try KeyedFile()
      let log = try place.log()
      let events = log.appendKeyed(count, &random)
      let state = try #require(log.state)
      let entry = try #require((1..<state.area.entries).first { state.area[$0] != 0 })
      state.area.record(Int(state.area[entry]) - 1).writeHeader(dataBytes: 1, keyBytes: 1, isTombstone: false)
      let again = try #require(try place.log().state)
      if count == 20 {
        var model = StateModel()
        for (event, key) in events { model.put(event, key) }
        #expect(again.isComplete && again.events(asOf: log.endPosition) == model.events)
      } else {
        #expect(again.incompleteness == KeyedState.Incompleteness(since: 1000, cause: .damage))
      }
    }
  }
}
