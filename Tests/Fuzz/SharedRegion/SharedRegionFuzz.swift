// An input damages a shared region with some logs. Its first byte has their number (bits 0 to 2) and what else is done: with
// bit 3 the damage is in the region's table, with bit 4 the headers' checksums are valid after it, with bit 5 each event had
// a checkpoint. The second byte is the number of events of each; the rest is triples, an offset in two bytes and the value
// written there.

import CChecksum
import Events
import Glibc

@testable import ReplayLog

private let chunk = 1 << 20
private let limits = EventLog.Limits(events: 100, bytes: 8192)

/// Reads one input; a broken invariant traps.
func fuzzSharedRegion(_ input: UnsafeRawBufferPointer) {
  guard input.count >= 2 else { return }
  let (choice, events) = (input[0], Int(input[1]))
  guard let region = SharedRegion(name: "fuzz", byteCount: 6 * chunk, isKept: true) else { return }
  for number in 0..<Int(choice & 7) {
    let name = String(repeating: "n", count: number * 31) + String(number)
    guard let log = EventLog(in: region, name: name, limits: limits, firstID: 1000, clock: { 7 }) else { break }
    append(events, to: log, noting: choice & 32 != 0)
  }
  let bytes = region.memory.bytes
  for offset in stride(from: 2, to: input.count - 2, by: 3) {
    let place = Int(input.loadUnaligned(fromByteOffset: offset, as: UInt16.self))
    bytes[choice & 8 != 0 ? 4096 + place % 8 : chunk + place] = input[offset + 2]
  }
  if choice & 16 != 0 {
    for place in stride(from: chunk, to: chunk + 1 << 16, by: 512) {
      seal(UnsafeMutableRawBufferPointer(rebasing: bytes[place..<place + 1024]))
    }
  }
  recover(region)
}

/// Makes the checksums of a compact log valid, if it is one.
private func seal(_ place: UnsafeMutableRawBufferPointer) {
  guard place.load(fromByteOffset: 8, as: UInt32.self) == LogLayout.compactVersion else { return }
  let parts = Array(place[..<32]) + Array(place[288..<289 + Int(place[288])]) + Array(place[48..<64])
  place.storeBytes(of: crc32c(parts, parts.count), toByteOffset: 40, as: UInt32.self)
  for extent in [64, 128] {
    place.storeBytes(of: crc32c(place.baseAddress! + extent + 16, 36), toByteOffset: extent + 52, as: UInt32.self)
  }
}

private func append(_ count: Int, to log: EventLog, noting: Bool) {
  for number in 0..<count {
    var batch: EventBatch = [[UInt8](repeating: UInt8(number & 255), count: number &* 37 & 255)]
    if noting { batch.checkpoint = Checkpoint([UInt8](repeating: UInt8(number & 255), count: number &* 11)) }
    log.append(batch)
  }
}

private func adopted(_ region: SharedRegion) -> (SharedRegion, [LogRemains])? {
  try? SharedRegion.adopted(dup(region.descriptor), damaged: { _ in })
}

/// The recovered logs are valid, whatever the bytes: they have names and places of their own, and appending works.
private func recover(_ region: SharedRegion) {
  guard let (next, remains) = adopted(region) else { return }
  precondition(Set(remains.map(\.stream)).count == remains.count, "two logs of a stream")
  let fitting = remains.filter { $0.fits(limits) }
  for left in remains where !left.fits(limits) { left.discard() }
  let logs = fitting.map { $0.log(limits: limits) }
  for (index, log) in logs.enumerated() {
    check(log)
    append(20 + index * 30, to: log, noting: index & 1 != 0)
  }
  if let new = EventLog(in: next, name: "new", limits: limits, firstID: 1, clock: { 9 }) {
    precondition(new.checkpoint == nil && new.firstPosition == new.endPosition, "a new log is not empty")
    append(50, to: new, noting: true)
    check(new)
    new.discard()
  }
  for log in logs { check(log) }
  guard let (_, again) = adopted(next) else { preconditionFailure("what was appended is not intact") }
  precondition(again.map(\.stream).sorted() == fitting.map(\.stream).sorted(), "other logs")
  precondition(again.map(\.endPosition).sorted() == logs.map(\.endPosition).sorted(), "other ends")
}

private func check(_ log: EventLog) {
  var (count, position): (UInt64, UInt64) = (0, log.firstPosition)
  while position < log.endPosition {
    let event = log.element(at: position)
    precondition(event.id == position && event.data.count <= limits.bytes, "event \(position) is another one")
    count += 1
    position = log.skip(position + 1)
  }
  precondition(count == log.count(from: log.firstPosition, to: log.endPosition), "\(count) events")
}
