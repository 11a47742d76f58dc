// An input damages the region of an intact log with a state. Its first byte sets how the log was made and how it is
// continued, its second the events; the rest is triples, an offset in two bytes and the value written there. A value of 255
// stands for the line of 64 bytes as it was before the last events, as after a power failure.

import Events
import Glibc

@testable import ReplayLog

private let settings = KeyedState.Settings(keys: 20, bytes: 4096, keyDigest: 1, key: { key(of: $0) })
private let regionBytes = LogLayout.byteCount(
  slots: 64, ringBytes: 4096, state: (settings.entries, settings.heapBytes))

/// Reads one input; a broken invariant traps.
func fuzzStateRecovery(_ input: UnsafeRawBufferPointer) {
  guard input.count >= 2 else { return }
  let (choice, events) = (input[0], input[1])
  // A separate buffer: the sanitizer detects accesses outside of it.
  let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: regionBytes, alignment: 4096)
  defer { bytes.deallocate() }
  bytes.initializeMemory(as: UInt8.self, repeating: 0)
  let start = LogExtent(startingAt: 1000, boot: BootID(high: 1, low: 1))
  let layout = LogLayout(
    formatting: bytes, name: "fuzz", slots: 64, ringBytes: 4096, hasChecksums: choice & 1 != 0, extent: start,
    keyed: settings)
  guard let keyed = KeyedState.empty(layout, settings, begin: 1000) else { return }
  keyed.use(upTo: 1000)
  if choice & 1 != 0 { keyed.noteFirstMark(layout) }
  let log = EventLog(layout, start, keyed, limits: limits(settings), owner: Keeper(), clock: { 7 })
  append(to: log, Int(events) / 2, salt: Int(events))
  let before = Array(bytes)
  if let marks = keyed.marks { _ = marks.didSync(marks.willSync()) }
  append(to: log, Int(events) - Int(events) / 2, salt: Int(events) + 1)
  if choice & 2 != 0 { log.noteClosed() }
  var offset = 2
  while offset + 3 <= input.count {
    let place = Int(input.loadUnaligned(fromByteOffset: offset, as: UInt16.self)) % bytes.count
    if input[offset + 2] == 255 {
      for index in (place & ~63)..<min(bytes.count, place & ~63 + 64) { bytes[index] = before[index] }
    } else {
      bytes[place] = input[offset + 2]
    }
    offset += 3
  }
  recover(bytes, choice)
}

private final class Keeper {}

private func limits(_ settings: KeyedState.Settings) -> EventLog.Limits {
  EventLog.Limits(events: 64, bytes: 4096, state: settings)
}

/// Its first byte, if that is below 200; a tombstone if the second byte is 0. Every third key is long.
@Sendable private func key(of event: UnsafeRawBufferPointer) -> EventKey? {
  guard let first = event.first, first < 200 else { return nil }
  let isTombstone = event.count > 1 && event[1] == 0
  return EventKey([UInt8](repeating: first, count: first % 3 == 0 ? 90 : 9), isTombstone: isTombstone)
}

/// Events of 25 keys at most, which the state may have no room for.
private func append(to log: EventLog, _ count: Int, salt: Int) {
  for number in 0..<count {
    let value = number &* 7919 &+ salt &* 31
    let data =
      [UInt8(value % 26 == 25 ? 220 : value % (salt % 3 == 0 ? 25 : 9)), UInt8(value / 26 % 5)]
      + [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: value / 100 % 180)
    var batch = EventBatch([data])
    var keys = EventKeys()
    keys.append(data.withUnsafeBytes { key(of: $0) })
    batch.setKeys(keys)
    log.append(batch)
  }
}

/// A state that is continued is one of its region's events, whatever the bytes, and goes on as the fold of later ones.
private func recover(_ bytes: UnsafeMutableRawBufferPointer, _ choice: UInt8) {
  guard let layout = try? LogLayout(reading: bytes), layout.slots == 64, layout.ringBytes == 4096 else { return }
  var extent: LogExtent
  if choice & 4 == 0, let intact = try? layout.intactExtent() {
    extent = intact
  } else if layout.hasChecksums, let header = try? layout.extent() {
    extent = layout.salvagedExtent(header, at: 5000)
  } else {
    return
  }
  if let read = KeyedState.read(layout, extent) { _ = fold(read) }
  let path = choice & 16 == 0 ? settings.key : nil
  let continued = KeyedState.Settings(keys: 20, bytes: 4096, keyDigest: choice & 8 == 0 ? 1 : 2, key: path)
  let restored = KeyedState.restored(layout, &extent, continued)
  layout.write(extent)
  let log = EventLog(layout, extent, restored, limits: limits(continued), owner: Keeper(), clock: { 9 })
  guard let keyed = restored else { return }
  guard log.endPosition < LogLayout.idLimit / 2 else { return }
  var model = fold(keyed)
  let end = log.endPosition
  append(to: log, 150, salt: Int(choice) + 2)
  guard keyed.isComplete else { return }
  precondition(log.endPosition == end + 150, "ids leapt")
  var later: [[UInt8]: UInt64] = [:]
  for number in 0..<150 {
    let id = end + UInt64(number)
    guard id >= log.firstPosition else { continue }
    let event = log.element(at: id)
    if let key = event.data.withUnsafeBytes({ key(of: $0) }) { later[key.bytes] = key.isTombstone ? 0 : id }
  }
  for (key, id) in later {
    precondition(newest(of: key, in: keyed) == (id == 0 ? nil : id), "another newest event")
    model[key] = id == 0 ? nil : id
  }
  let last = fold(keyed)
  for (key, id) in later where id > 0 { precondition(last[key] == id, "an event of the state was not visited") }
  for (key, id) in last where id < log.firstPosition && id < end {
    precondition(model[key] == id, "an event came back")
  }
}

/// The id of each key's event, of the whole state: in order, and as many as it counts.
private func fold(_ state: KeyedState) -> [[UInt8]: UInt64] {
  var found: [(key: [UInt8], id: UInt64)] = []
  var (count, last) = (0, 0 as UInt64)
  let walk = state.walk(asOf: .max)
  while true {
    let progress = state.advance(walk, atMost: 7) { record, id in
      precondition(id > last || last == 0, "an event is not in order")
      (count, last) = (count + 1, id)
      let data = UnsafeRawBufferPointer(rebasing: record.whole[EventLog.stampBytes...])
      if let key = key(of: data) { found.append((key.bytes, id)) }
      return true
    }
    if progress == .more { continue }
    precondition(progress == .finished, "a walk fell behind without an append")
    break
  }
  state.finish(walk)
  precondition(count == state.count, "\(count) events are not \(state.count)")
  // Without checksums the data of a record may have another key than the record.
  found.removeAll { newest(of: $0.key, in: state) != $0.id }
  return Dictionary(uniqueKeysWithValues: found.map { ($0.key, $0.id) })
}

/// The id of a key's event.
private func newest(of key: [UInt8], in state: KeyedState) -> UInt64? {
  key.withUnsafeBytes {
    state.newest($0).map { UInt64(bigEndian: $0.whole.loadUnaligned(as: UInt64.self)) }
  }
}
