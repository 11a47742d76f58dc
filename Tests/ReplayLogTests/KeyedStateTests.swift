import Events
import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import ReplayLog

/// The newest event of each key, as a fold of the events.
struct StateModel: Equatable {
  struct Event: Equatable {
    let id: UInt64
    let time: UInt64
    let data: [UInt8]
  }

  private(set) var newest: [[UInt8]: Event] = [:]
  /// The tombstones of the keys that were removed.
  private(set) var tombstones: [[UInt8]: Event] = [:]

  mutating func put(_ event: LoggedEvent, _ key: EventKey?) {
    guard let key else { return }
    let stored = Event(id: event.id, time: event.time, data: event.data)
    if key.isTombstone {
      if newest.removeValue(forKey: key.bytes) != nil { tombstones[key.bytes] = stored }
    } else {
      newest[key.bytes] = stored
      tombstones[key.bytes] = nil
    }
  }

  /// What a walk visits from `position` on that is renewed now, and began as of an end.
  func events(from position: UInt64, begin: UInt64) -> [Event] {
    (newest.values + tombstones.values.filter { $0.id >= begin }).filter { $0.id >= position }.sorted { $0.id < $1.id }
  }

  var events: [Event] { newest.values.sorted { $0.id < $1.id } }
}

extension KeyedState {
  /// Everything that a walk visits, in calls of some steps.
  func events(from position: UInt64 = 0, asOf end: UInt64, steps: Int = 7) -> [StateModel.Event]? {
    let walk = walk(from: position, asOf: end)
    defer { finish(walk) }
    var events: [StateModel.Event] = []
    while true {
      let progress = advance(walk, atMost: steps) { record, id in
        events.append(StateModel.Event(record, id))
        return true
      }
      switch progress {
      case .finished: return events
      case .more: continue
      case .fellBehind: return nil
      }
    }
  }
}

extension StateModel.Event {
  init(_ record: StateEvent, _ id: UInt64) {
    let record = record.whole
    let words = (0..<2).map { UInt64(bigEndian: record.loadUnaligned(fromByteOffset: $0 * 8, as: UInt64.self)) }
    #expect(words[0] == id)
    (self.id, time, data) = (id, words[1], Array(record[16...]))
  }
}

/// The key that an event's data begin with: its first byte, if that is below 200; a tombstone if the second byte is 0.
/// Every third key is long.
@Sendable func key(in event: UnsafeRawBufferPointer) -> EventKey? {
  guard let first = event.first, first < 200 else { return nil }
  let isTombstone = event.count > 1 && event[1] == 0
  return EventKey([UInt8](repeating: first, count: first % 3 == 0 ? 300 : 9), isTombstone: isTombstone)
}

func keyed(_ events: [[UInt8]]) -> EventBatch {
  var batch = EventBatch(events)
  var keys = EventKeys()
  for event in events { keys.append(event.withUnsafeBytes { key(in: $0) }) }
  batch.setKeys(keys)
  return batch
}

@Suite(.timeLimit(.minutes(10))) struct KeyedStateTests {
  static let settings = KeyedState.Settings(keys: 120, bytes: 160 << 10, keyDigest: 1, key: { key(in: $0) })

  static func limits(_ settings: KeyedState.Settings? = Self.settings, events: Int = 60) -> EventLog.Limits {
    EventLog.Limits(events: events, bytes: 16 << 10, state: settings)
  }

  private func event(_ random: inout SystemRandom, keys: Int, most: Int) -> [UInt8] {
    let key = random.next(below: 20) == 0 ? 255 : random.next(below: keys)
    return [UInt8(key), random.next(below: 6) == 0 ? 0 : 1]
      + [UInt8](repeating: UInt8(random.next(below: 256)), count: random.next(below: most))
  }

  /// Throws at the first difference, without the values, which are long.
  private func check(_ log: EventLog, _ model: StateModel, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let state = try #require(log.state, sourceLocation: sourceLocation)
    try #require(state.incompleteness == nil, sourceLocation: sourceLocation)
    try #require(state.count == model.newest.count, sourceLocation: sourceLocation)
    let isEqual = state.events(asOf: log.endPosition) == model.events
    try #require(isEqual, sourceLocation: sourceLocation)
    for (key, event) in model.newest {
      let isNewest = key.withUnsafeBytes { state.newest($0).map { Array($0.whole[16...]) } } == event.data
      try #require(isNewest, sourceLocation: sourceLocation)
    }
  }

  @Test(arguments: seeds(30)) func theStateIsTheFoldOfTheEvents(seed: UInt64) throws {
    var random = SystemRandom(seed)
    var log = try #require(EventLog(name: "test", limits: Self.limits(), firstID: 1000))
    var model = StateModel()
    var walks: [(StateWalk, [StateModel.Event])] = []
    var (renewed, lost) = (0, 0)
    for _ in 0..<400 {
      switch random.next(below: 60) {
      case 0:
        log = try LogRemains(memory: dup(log.descriptor)).log(limits: Self.limits())
        walks = []
      case 1:
        let settings = KeyedState.Settings(
          keys: 120 + random.next(below: 50), bytes: 160 << 10 + random.next(below: 2), keyDigest: 1)
        let other = Self.limits(settings, events: 30 + random.next(below: 90))
        log = try #require(EventLog(name: "test", limits: other, takingOver: log))
        walks = []
        try check(log, model)
        log = try #require(EventLog(name: "test", limits: Self.limits(), takingOver: log))
      case 2...8 where walks.count < (seed.isMultiple(of: 2) ? 5 : 50):
        let state = try #require(log.state)
        for _ in 0..<(seed.isMultiple(of: 2) ? 1 : 10) {
          walks.append((state.walk(asOf: log.endPosition), model.events))
        }
      case 9...24 where !walks.isEmpty:
        let index = random.next(below: walks.count)
        let (walk, events) = walks[index]
        let most = random.next(below: 80)
        var seen: [StateModel.Event] = []
        let state = try #require(log.state)
        let progress = state.advance(walk, atMost: 1 + random.next(below: 100)) { record, id in
          guard seen.count < most else { return false }
          seen.append(StateModel.Event(record, id))
          return true
        }
        let isExpected = seen.map(\.data) == events.prefix(seen.count).map(\.data)
        try #require(isExpected)
        walks[index].1.removeFirst(min(seen.count, events.count))
        if progress == .finished { #expect(walks[index].1.isEmpty) }
        // A subscription renews a walk, too, where the log does not have the events after it.
        var isLost = false
        if progress == .fellBehind || random.next(below: 10) == 0 {
          isLost = !state.renew(walk, asOf: log.endPosition)
          if isLost { lost += 1 } else { renewed += 1 }
          walks[index].1 = model.events(from: walk.position, begin: walk.begin)
        } else if progress == .finished {
          isLost = true
        }
        if isLost || random.next(below: 20) == 0 {
          state.finish(walk)
          walks.remove(at: index)
        }
      default:
        let most = random.next(below: 10) == 0 ? 3000 : 300
        let events = (0..<random.next(below: 9)).map { _ in event(&random, keys: 100, most: most) }
        let first = log.endPosition
        log.append(keyed(events))
        for (index, data) in events.enumerated() {
          let id = first + UInt64(index)
          let time = log.firstPosition <= id ? log.element(at: id).time : 0
          let old = data.withUnsafeBytes { key(in: $0) }
          // An evicted event's time is in the state only.
          let stored = old.flatMap { key in
            key.bytes.withUnsafeBytes {
              log.state?.newest($0).map {
                UInt64(bigEndian: $0.whole.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
              }
            }
          }
          model.put(LoggedEvent(id: id, time: time == 0 ? stored ?? 0 : time, data: data), old)
        }
      }
      try check(log, model)
    }
    // A random run may have no renewal at all.
    #expect(renewed > lost || renewed + lost == 0)
  }

  @Test func tombstonesAreKeptForAWalkUntilTheirSpaceIsNeeded() throws {
    let settings = KeyedState.Settings(keys: 10, bytes: 8192, keyDigest: 1)
    let log = try #require(EventLog(name: "test", limits: Self.limits(settings), firstID: 1000))
    for key in [1, 2, 4] as [UInt8] { log.append(keyed([[key]])) }
    let state = try #require(log.state)
    let walk = state.walk(asOf: log.endPosition)
    #expect(state.advance(walk, atMost: 1) { _, _ in true } == .more)
    log.append(keyed([[1, 0, 9], [5], [5, 0, 9], [7]]))
    #expect(state.renew(walk, asOf: log.endPosition))
    var data: [[UInt8]] = []
    let progress = state.advance(walk, atMost: 10) { record, _ in
      data.append(Array(record.whole[16...]))
      return true
    }
    #expect(progress == .finished && data == [[2], [4], [1, 0, 9], [5, 0, 9], [7]])
    // As of the first end, with all events after it, there are none.
    let other = state.walk(asOf: log.endPosition)
    #expect(state.events(asOf: log.endPosition)?.map(\.data) == [[2], [4], [7]])
    for _ in 0..<30 {
      for key in [10, 11, 13] as [UInt8] {
        log.append(keyed([[key] + [UInt8](repeating: key, count: 400), [key, 0]]))
      }
    }
    #expect(state.isComplete && !state.canRenew(other) && !state.renew(other, asOf: log.endPosition))
    state.finish(other)
    state.finish(walk)
    let again = state.walk(asOf: log.endPosition)
    #expect(state.canRenew(again))
    state.finish(again)
  }

  @Test func anotherLogTakesOverTheTombstonesThatWalksNeed() throws {
    let log = try #require(EventLog(name: "test", limits: Self.limits(), firstID: 1000))
    log.append(keyed([[1], [2], [4]]))
    let state = try #require(log.state)
    let walk = state.walk(asOf: log.endPosition)
    log.append(keyed([[1, 0, 9], [5], [2], [5, 0]]))
    #expect(state.canRenew(walk))
    let larger = Self.limits(events: 90)
    let reloaded = try #require(EventLog(name: "test", limits: larger, takingOver: log))
    let restarted = try #require(
      EventLog(name: "test", limits: larger, takingOver: LogRemains(memory: dup(log.descriptor)).log()))
    for next in [reloaded, restarted] {
      let state = try #require(next.state)
      let walk = state.walk(from: 1001, asOf: 1003, begin: walk.begin)
      #expect(state.renew(walk, asOf: next.endPosition))
      var data: [[UInt8]] = []
      let progress = state.advance(walk, atMost: 10) { record, _ in
        data.append(Array(record.whole[16...]))
        return true
      }
      #expect(progress == .finished && data == [[4], [1, 0, 9], [2], [5, 0]])
      state.finish(walk)
    }
  }

  @Test func tombstonesOfAnotherLogTakeNoSpaceThatKeysNeed() throws {
    let log = try #require(EventLog(name: "test", limits: Self.limits(), firstID: 1000))
    let state = try #require(log.state)
    let walk = state.walk(asOf: log.endPosition)
    for key in 10..<60 as Range<UInt8> {
      log.append(keyed([[key], [key, 0] + [UInt8](repeating: 7, count: 500)]))
    }
    log.append(keyed((1...9).map { [$0] + [UInt8](repeating: $0, count: 300) }))
    let settings = KeyedState.Settings(keys: 10, bytes: 8192, keyDigest: 1)
    let read = try LogRemains(memory: dup(log.descriptor)).log()
    for other in [log, read] {
      let small = try #require(EventLog(name: "test", limits: Self.limits(settings), takingOver: other))
      #expect(small.state?.isComplete == true && small.state?.count == 9)
    }
    state.finish(walk)
  }

  @Test func tombstonesOfAnotherLogAndOfAnEarlierProcessMayBeGone() throws {
    let log = try #require(EventLog(name: "test", limits: Self.limits(), firstID: 1000))
    #expect(log.state?.hasTombstones(from: 999) == false && log.state?.hasTombstones(from: 1000) == true)
    log.append(keyed([[1], [2], [1, 0]]))
    for _ in 0..<10 { log.append(keyed([[2]])) }
    let next = try LogRemains(memory: dup(log.descriptor)).log(limits: Self.limits())
    #expect(next.state?.hasTombstones(from: 1002) == false && next.state?.hasTombstones(from: 1013) == true)
  }

  @Test func aStateOverALimitIsIncompleteUntilLargerLimitsConsiderAllEvents() throws {
    let small = KeyedState.Settings(keys: 3, bytes: 4096, keyDigest: 1, key: { key(in: $0) })
    var log = try #require(EventLog(name: "test", limits: Self.limits(small), firstID: 1000))
    log.append(keyed([[1], [2], [4], [1, 1], [5], [6]]))
    let state = try #require(log.state)
    #expect(state.incompleteness == KeyedState.Incompleteness(since: 1004, cause: .keys) && state.count == 3)
    let again = try LogRemains(memory: dup(log.descriptor)).log(limits: Self.limits(small))
    #expect(again.state?.incompleteness == state.incompleteness)
    // The same limits in another region, without and with all events from the first left out on.
    log = again
    log.append(keyed([[2, 0]]))
    let same = try #require(EventLog(name: "test", limits: Self.limits(small, events: 50), takingOver: log))
    #expect(same.state?.incompleteness == KeyedState.Incompleteness(since: 1005, cause: .keys))
    let large = try #require(EventLog(name: "test", limits: Self.limits(), takingOver: log))
    #expect(large.state?.isComplete == true && large.state?.events(asOf: 1007)?.map(\.id) == [1002, 1003, 1004, 1005])
    let few = try #require(EventLog(name: "test", limits: Self.limits(small, events: 2), takingOver: log))
    few.append(keyed([[1], [1]]))
    let late = try #require(EventLog(name: "test", limits: Self.limits(events: 2), takingOver: few))
    #expect(late.state?.incompleteness == KeyedState.Incompleteness(since: 1005, cause: .keys))
    // Bytes.
    let other = try #require(EventLog(name: "test", limits: Self.limits(small), firstID: 1000))
    other.append(keyed([[1] + [UInt8](repeating: 7, count: 3000), [2] + [UInt8](repeating: 7, count: 3000)]))
    #expect(other.state?.incompleteness == KeyedState.Incompleteness(since: 1001, cause: .bytes))
  }

  @Test func anEventThatWasNotCommittedLeavesNothingOut() throws {
    let small = KeyedState.Settings(keys: 1, bytes: 4096, keyDigest: 1)
    let log = try #require(EventLog(name: "test", limits: Self.limits(small), firstID: 1000))
    log.append(keyed([[1]]))
    for data in [[1, 1], [2, 1]] as [[UInt8]] {
      data.withUnsafeBytes { bytes in
        let key = EventKey([bytes[0]])!
        key.bytes.withUnsafeBytes {
          log.state!.put($0, isTombstone: false, bytes, id: 1001 + UInt64(data[0]), time: 7) {}
        }
      }
    }
    #expect(log.state?.incompleteness?.cause == .keys)
    let again = try LogRemains(memory: dup(log.descriptor)).log(limits: Self.limits(small))
    #expect(again.state?.isComplete == true && again.state?.events(asOf: 1001)?.map(\.id) == [1000])
  }

  @Test func anotherKeyBeginsAnewWithTheStoredEvents() throws {
    let log = try #require(EventLog(name: "test", limits: Self.limits(events: 4), firstID: 1000))
    log.append(keyed([[1], [2], [4], [5], [7], [8]]))
    func settings(_ key: (@Sendable (UnsafeRawBufferPointer) -> EventKey?)?) -> EventLog.Limits {
      Self.limits(KeyedState.Settings(keys: 120, bytes: 160 << 10, keyDigest: 2, key: key), events: 4)
    }
    let copy = try #require(EventLog(name: "test", limits: Self.limits(events: 4), takingOver: log))
    let path = try LogRemains(memory: dup(log.descriptor)).log(limits: settings { _ in EventKey([9]) })
    #expect(path.state?.isComplete == true && path.state?.events(asOf: 1006)?.map(\.id) == [1005])
    let next = try LogRemains(memory: dup(copy.descriptor)).log(limits: settings(nil))
    #expect(next.state?.isComplete == true && next.state?.events(asOf: 1006) == [])
    next.append(keyed([[1]]))
    #expect(next.state?.events(asOf: 1007)?.map(\.id) == [1006])
  }

  @Test func walksFallBehindWithoutSpaceAndContinueAsOfANewerEnd() throws {
    let settings = KeyedState.Settings(keys: 10, bytes: 8192, keyDigest: 1)
    let log = try #require(EventLog(name: "test", limits: Self.limits(settings), firstID: 1000))
    func event(_ key: UInt8) -> [UInt8] { [key] + [UInt8](repeating: key, count: 700) }
    for key in 1...9 as ClosedRange<UInt8> { log.append(keyed([event(key)])) }
    let state = try #require(log.state)
    let walk = state.walk(asOf: log.endPosition)
    var ids: [UInt64] = []
    func advance(_ steps: Int) -> StateWalk.Progress {
      state.advance(walk, atMost: steps) { _, id in
        ids.append(id)
        return true
      }
    }
    #expect(advance(3) == .more)
    for _ in 0..<3 { for key in 1...9 as ClosedRange<UInt8> { log.append(keyed([event(key)])) } }
    #expect(state.isComplete, "versions for a walk took the space of a key's newest one")
    #expect(advance(100) == .fellBehind)
    #expect(state.renew(walk, asOf: log.endPosition))
    #expect(advance(100) == .finished)
    #expect(ids == [1000, 1001, 1002] + Array(1027..<1036))
    state.finish(walk)
  }

  @Test func walksWhoseVersionsAreFreedContinueWithoutEachOther() throws {
    let settings = KeyedState.Settings(keys: 10, bytes: 8192, keyDigest: 1)
    let log = try #require(EventLog(name: "test", limits: Self.limits(settings), firstID: 1000))
    func append(_ keys: ClosedRange<UInt8>) {
      for key in keys { log.append(keyed([[key] + [UInt8](repeating: key, count: 700)])) }
    }
    append(1...9)
    let state = try #require(log.state)
    // Several behind each of the versions 2 to 4, which are freed one after the other: then all are behind the first one.
    var walks = (2...4).flatMap { steps in
      (0..<steps).map { _ in
        let walk = state.walk(asOf: log.endPosition)
        #expect(state.advance(walk, atMost: steps) { _, _ in true } == .more)
        return walk
      }
    }
    for key in [2, 3, 4] as [UInt8] { for _ in 0..<5 { append(key...key) } }
    let last = walks.removeLast()
    for walk in walks {
      #expect(state.advance(walk, atMost: 1) { _, _ in true } == .fellBehind)
      state.finish(walk)
    }
    for _ in 0..<3 { append(1...9) }
    #expect(state.renew(last, asOf: log.endPosition))
    var ids: [UInt64] = []
    let progress = state.advance(last, atMost: 100) { _, id in
      ids.append(id)
      return true
    }
    #expect(progress == .finished)
    #expect(ids == Array(log.endPosition - 9..<log.endPosition))
    state.finish(last)
  }

  @Test func eventsWithStampsHaveTheirIdsInTheState() throws {
    let log = try #require(EventLog(name: "test", limits: Self.limits(), followsFleet: true))
    for (first, time) in [(10, 7), (20, 8), (11, 9), (22, 10)] as [(UInt64, UInt64)] {
      var batch = keyed([[1], [2], [4, 0]])
      let isSet = batch.setStamps(try #require(EventStamps(firstID: first, time: time)))
      #expect(isSet)
      log.append(batch)
    }
    #expect(log.endPosition == 25)
    let again = try LogRemains(memory: dup(log.descriptor)).log(limits: Self.limits())
    for state in [try #require(log.state), try #require(again.state)] {
      let events = state.events(asOf: 25)
      // The third batch's ids are known already; of the last one, its first event is.
      #expect(events?.map(\.id) == [20, 23] && events?.map(\.time) == [8, 10])
    }
  }

  @Test func aFragmentedHeapStoresRecordsInPieces() throws {
    let settings = KeyedState.Settings(keys: 150, bytes: 34560, keyDigest: 1)
    let limits = EventLog.Limits(events: 500, bytes: 64 << 10, state: settings)
    var log = try #require(EventLog(name: "test", limits: limits, firstID: 1000))
    var keys = EventKeys()
    func append(_ key: UInt8, _ count: Int, isTombstone: Bool = false) {
      var batch: EventBatch = [[UInt8](repeating: key, count: count)]
      keys = EventKeys()
      keys.append(EventKey([key], isTombstone: isTombstone))
      batch.setKeys(keys)
      log.append(batch)
    }
    for key in 0..<100 as Range<UInt8> { append(key, 260) }
    for key in 100..<148 as Range<UInt8> { append(key, 40) }
    for key in 0..<100 as Range<UInt8> where key & 1 == 0 { append(key, 0, isTombstone: true) }
    var dividedCount = 0
    for round in 0..<5 as Range<UInt8> {
      append(149, 14000 + Int(round))
      let state = try #require(log.state)
      #expect(state.isComplete)
      let data = [149 as UInt8].withUnsafeBytes { state.newest($0).map { Array($0.whole[16...]) } }
      #expect(data == [UInt8](repeating: 149, count: 14000 + Int(round)))
      let event = try #require([149 as UInt8].withUnsafeBytes { state.newest($0) })
      #expect(event.byteCount == 16 + 14000 + Int(round))
      dividedCount += event.undivided == nil ? 1 : 0
      let whole = Array(event.whole)
      for range in [0..<1, 16..<17, 20..<6000, 5990..<14016, 14015..<14016 + Int(round)] {
        let part = event.part(range)
        #expect(part.count == whole.count && Array(part[..<16]) == Array(whole[..<16]))
        #expect(Array(part[range]) == Array(whole[range]))
      }
      let again = try LogRemains(memory: dup(log.descriptor)).log(limits: limits)
      let isEqual = again.state?.events(asOf: log.endPosition) == state.events(asOf: log.endPosition)
      #expect(isEqual && again.state?.count == 99)
      log = again
    }
    #expect(dividedCount > 0)
  }
}
