// An input damages an intact log. Its first byte sets how the log was made and what else is done, its second how many
// events it had; the rest is triples, an offset in two bytes and the value written there. With bit 3 the first 32 bytes
// of it are the header's positions instead, with a valid checksum; with bit 4 each event had a checkpoint; with bit 5
// the region has the previous version; with bit 6 every third event had a stamp, some of them after a hole.

import CChecksum
import Events
import Glibc

@testable import ReplayLog

private let regionBytes = LogLayout.byteCount(slots: 64, ringBytes: 4096)

/// Reads one input; a broken invariant traps.
func fuzzLogRecovery(_ input: UnsafeRawBufferPointer) {
  guard input.count >= 2 else { return }
  let (choice, events) = (input[0], input[1])
  var offset = 2
  // A separate buffer: the sanitizer detects accesses outside of it.
  let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: regionBytes, alignment: 4096)
  defer { bytes.deallocate() }
  bytes.initializeMemory(as: UInt8.self, repeating: 0)
  let layout = LogLayout(
    formatting: bytes, name: "fuzz", slots: 64, ringBytes: 4096, hasChecksums: choice & 1 != 0,
    extent: LogExtent(startingAt: 1000, boot: BootID(high: 1, low: 1)))
  let log = EventLog(layout, LogExtent(startingAt: 1000), limits: limits(of: layout), owner: Keeper(), clock: { 7 })
  for number in 0..<Int(events) {
    var batch: EventBatch = [[UInt8](repeating: events, count: number &* 37 & 255)]
    if choice & 16 != 0 { batch.checkpoint = Checkpoint([UInt8](repeating: UInt8(number), count: number &* 61)) }
    if choice & 64 != 0, number % 3 == 0 { stamp(&batch, in: log, number) }
    log.append(batch)
  }
  if choice & 2 != 0 { log.noteClosed() }
  if choice & 8 != 0, input.count >= offset + 32 {
    let words = (0..<4).map { input.loadUnaligned(fromByteOffset: offset + $0 * 8, as: UInt64.self) }
    offset += 32
    var extent = LogExtent(startingAt: words[0], boot: BootID(high: 1, low: 1))
    (extent.end, extent.holeStart, extent.holeEnd) = (words[1], words[2], words[3])
    layout.write(extent)
  }
  while offset + 3 <= input.count {
    bytes[Int(input.loadUnaligned(fromByteOffset: offset, as: UInt16.self)) % bytes.count] = input[offset + 2]
    offset += 3
  }
  var cut = choice & 4 != 0 ? bytes.count * Int(events) / 255 : bytes.count
  if choice & 32 != 0 {
    bytes.storeBytes(of: 2, toByteOffset: 8, as: UInt32.self)
    let parts = Array(bytes[..<32]) + Array(bytes[512..<768])
    bytes.storeBytes(of: crc32c(parts, parts.count), toByteOffset: 40, as: UInt32.self)
    cut = max(0, cut - LogNote.areaBytes)
  }
  recover(UnsafeMutableRawBufferPointer(rebasing: bytes[..<cut]))
}

/// Gives the events of a batch stamps, and a position.
private func stamp(_ batch: inout EventBatch, in log: EventLog, _ number: Int) {
  let hole = UInt64(number % 7 == 0 ? number &* number : 0)
  let position = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: 1 + number % 104)
  guard let stamps = EventStamps(firstID: log.endPosition + hole, time: 8, position: position) else { return }
  precondition(batch.setStamps(stamps), "an id overflows")
}

private final class Keeper {}

private func limits(of layout: LogLayout) -> EventLog.Limits {
  EventLog.Limits(events: layout.slots, bytes: layout.ringBytes)
}

/// The recovered log is valid, whatever the bytes: each event is in its place, and appending works.
private func recover(_ bytes: UnsafeMutableRawBufferPointer) {
  guard let layout = try? LogLayout(reading: bytes) else { return }
  let extent: LogExtent
  if let intact = try? layout.intactExtent() {
    extent = intact
  } else if layout.hasChecksums, let header = try? layout.extent() {
    var salvaged = layout.salvagedExtent(header, at: 5000)
    extent = salvaged
    salvaged.salvagedEnd = nil
    layout.write(extent)
    if !layout.isCurrent { salvaged.historyStart = salvaged.first }  // which the previous version does not have
    precondition((try? layout.intactExtent()) == salvaged, "what was salvaged is not intact")
  } else {
    return
  }
  let log = EventLog(layout, extent, limits: limits(of: layout), owner: Keeper(), clock: { 9 })
  check(log)
  // A log of the previous version is only read.
  guard layout.isCurrent else { return }
  let end = log.nextOwnID
  for number in 0..<80 {
    var batch: EventBatch = [[UInt8](repeating: UInt8(number), count: number &* 53 & 511)]
    if number & 1 == 0 { batch.checkpoint = Checkpoint([UInt8](repeating: UInt8(number), count: number &* 50)) }
    log.append(batch)
    precondition(log.newestID.map { log.record(at: $0).count } == 16 + (number &* 53 & 511), "the newest is not there")
  }
  check(log)
  precondition(log.endPosition == end + 80, "ids leapt")
  guard let again = try? layout.intactExtent() else { preconditionFailure("what was appended is not intact") }
  let next = EventLog(layout, again, limits: limits(of: layout), owner: Keeper(), clock: { 9 })
  precondition(next.endPosition == log.endPosition && next.checkpoint == log.checkpoint, "another log")
  precondition(next.countedFrom >= log.countedFrom && next.countedFrom <= next.endPosition, "another history")
  precondition(next.checkpoint == Checkpoint([UInt8](repeating: 78, count: 3900)), "another checkpoint")
  precondition(next.fleetPosition == nil, "a position of events with other ids")
  for number in 0..<100 {
    var batch = EventBatch(repeating: [UInt8](repeating: 1, count: number &* 41 & 127), count: number % 5)
    stamp(&batch, in: next, number)
    let (id, position, end) = (batch.stamps?.firstID, batch.stamps?.position, next.endPosition)
    next.append(batch)
    guard EventLog.accepts(batch) else {
      precondition(next.endPosition == end, "a batch was refused and stored")
      continue
    }
    precondition(next.fleetPosition == position, "another position")
    precondition(batch.isEmpty || next.skip(id ?? 0) == id && next.newestID == next.endPosition - 1, "another id")
  }
  check(next)
  guard let stamped = try? layout.intactExtent() else { preconditionFailure("what had stamps is not intact") }
  let last = EventLog(layout, stamped, limits: limits(of: layout), owner: Keeper(), clock: { 9 })
  precondition(last.endPosition == next.endPosition && last.firstPosition == next.firstPosition, "another log")
  precondition(last.fleetPosition == next.fleetPosition, "another position")
}

private func check(_ log: EventLog) {
  var count: UInt64 = 0
  var sum = 0
  var position = log.firstPosition
  while position < log.endPosition {
    let event = log.element(at: position)
    count += 1
    sum += event.data.reduce(0) { $0 + Int($1) }
    let stamp = log.record(at: position).loadUnaligned(as: UInt64.self)
    precondition(UInt64(bigEndian: stamp) == position, "event \(position) has another id")
    position = log.skip(position + 1)
  }
  precondition(position == log.endPosition, "the last event is not the last")
  precondition(count == log.count(from: log.firstPosition, to: log.endPosition) && count <= 64, "\(count) events")
  precondition(log.position(ofLast: count) == log.firstPosition && log.position(ofLast: 0) == log.endPosition)
  for time in [0, 7, 9, 10, UInt64.max] {
    let found = log.position(since: time)
    precondition((log.firstPosition...log.endPosition).contains(found) && log.skip(found) == found, "nowhere")
    guard found < log.endPosition else { continue }
    let stamp = log.element(at: found).time
    precondition(stamp >= time && stamp <= 9, "an event of \(stamp) was found for \(time)")
  }
  precondition(sum >= 0)
}
