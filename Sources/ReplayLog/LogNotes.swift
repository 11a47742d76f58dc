import CChecksum
import Synchronization

// Notes of a log, which belong to its events: where its source resumes, and up to where a fleet's log was read.
//
// After the ring, at multiples of 8:
//
//     0      two slots of the checkpoint, 4,160 bytes each
//     8320   two slots of the fleet's position, 128 bytes each; of a log that follows a fleet. A note without bytes is
//            an unknown position
//     8576   two pairs of slots of 128 bytes each, of a region with a state: see `StateArea`
//     9088   room for 61 pairs of slots of 128 bytes, unused
//     28672  the region's end
//     slot: u64 number, u64 end position for which it holds, u32 byte count, u32 checksum of all else, bytes
//
// A note is written into the inactive slot, and then the end position of its events is committed: so it takes effect
// with the last of them, or not at all. Active is the slot with the highest number whose end position does not exceed
// the log's. The lowest bit of a number selects its slot; 0 means empty. Slots beyond the log's end are cleared before
// ids are assigned: otherwise another event would get the id that they wait for.

/// One note of a log.
@safe struct LogNote: @unchecked Sendable {  // one thread at a time uses its slots
  static let areaBytes = 28672
  /// Maximum bytes of the checkpoint.
  static let checkpointBytes = 4096
  private static let headerBytes = 24
  private static let numberLimit: UInt64 = 1 << 62

  /// Two adjacent slots.
  private let place: UnsafeMutableRawPointer
  private let slotBytes: Int
  /// The number of the last written note.
  private var number: UInt64 = 0

  /// - Parameter place: the two slots, aligned to 8.
  init(at place: UnsafeMutableRawPointer, slotBytes: Int) {
    unsafe self.place = unsafe place
    self.slotBytes = slotBytes
  }

  static func checkpoint(inAreaAt area: UnsafeMutableRawPointer) -> LogNote {
    unsafe LogNote(at: area, slotBytes: 4160)
  }

  static func fleet(inAreaAt area: UnsafeMutableRawPointer) -> LogNote {
    unsafe LogNote(at: area + 8320, slotBytes: 128)
  }

  /// The place of the notes of a state: two pairs of slots of 128 bytes.
  static func state(inAreaAt area: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer { unsafe area + 8576 }

  /// The notes of at most so many events, the newest first. Does not change the slots.
  func all(upTo end: UInt64 = .max) -> [(end: UInt64, bytes: [UInt8])] {
    [read(0), read(1)].compactMap(\.self).filter { $0.end <= end }.sorted { $0.number > $1.number }.map {
      ($0.end, $0.bytes)
    }
  }

  /// Whether a slot has a note, of whatever events.
  var exists: Bool { read(0) != nil || read(1) != nil }

  /// The active bytes. Clears the slots that are not valid.
  ///
  /// - Parameter end: the end of the events that are known to be complete.
  mutating func restore(upTo end: UInt64) -> [UInt8]? {
    var newest: [UInt8]?
    number = 0
    for index in 0...1 {
      guard let slot = read(index), slot.end <= end else {
        if unsafe slot(index).load(as: UInt64.self) != 0 {
          unsafe atomicNumber(index).pointee.store(0, ordering: .relaxed)
        }
        continue
      }
      if slot.number > number { (number, newest) = (slot.number, slot.bytes) }
    }
    atomicMemoryFence(ordering: .acquiringAndReleasing)
    return newest
  }

  /// As `restore`; but a note of other events becomes one without bytes.
  mutating func restoreOrEmpty(upTo end: UInt64) -> [UInt8]? {
    let slots = [read(0), read(1)].compactMap(\.self)
    if let newest = slots.map(\.number).max(), !slots.contains(where: { $0.end <= end }) {
      // Into the other slot: a kill leaves one of the two.
      number = newest
      write([], end: end)
    }
    return restore(upTo: end)
  }

  /// Removes the note.
  mutating func clear() {
    for index in 0...1 { unsafe atomicNumber(index).pointee.store(0, ordering: .relaxed) }
    number = 0
  }

  /// Replaces the note; takes effect as soon as the log ends at `end`.
  mutating func write(_ bytes: [UInt8], end: UInt64) {
    precondition(bytes.count <= slotBytes - Self.headerBytes, "a note of \(bytes.count) bytes")
    number += 1
    let index = Int(number & 1)
    let slot = unsafe slot(index)
    unsafe atomicNumber(index).pointee.store(0, ordering: .relaxed)
    atomicMemoryFence(ordering: .acquiringAndReleasing)
    unsafe slot.storeBytes(of: end, toByteOffset: 8, as: UInt64.self)
    unsafe slot.storeBytes(of: UInt32(bytes.count), toByteOffset: 16, as: UInt32.self)
    unsafe (slot + Self.headerBytes).copyMemory(from: bytes, byteCount: bytes.count)
    unsafe slot.storeBytes(
      of: checksum(index, number: number, byteCount: bytes.count), toByteOffset: 20, as: UInt32.self)
    unsafe atomicNumber(index).pointee.store(number, ordering: .releasing)
  }

  private func read(_ index: Int) -> (number: UInt64, end: UInt64, bytes: [UInt8])? {
    let slot = unsafe slot(index)
    let number = unsafe slot.load(as: UInt64.self)
    let byteCount = unsafe Int(slot.load(fromByteOffset: 16, as: UInt32.self))
    guard number > 0, number < Self.numberLimit, number & 1 == UInt64(index), byteCount <= slotBytes - Self.headerBytes,
      unsafe slot.load(fromByteOffset: 20, as: UInt32.self) == checksum(index, number: number, byteCount: byteCount)
    else { return nil }
    let bytes = unsafe UnsafeRawBufferPointer(start: slot + Self.headerBytes, count: byteCount)
    return unsafe (number, slot.load(fromByteOffset: 8, as: UInt64.self), Array(bytes))
  }

  private func checksum(_ index: Int, number: UInt64, byteCount: Int) -> UInt32 {
    let slot = unsafe slot(index)
    let header = unsafe [number, slot.load(fromByteOffset: 8, as: UInt64.self), UInt64(byteCount)]
    return unsafe crc32c(header, 24) ^ crc32c(slot + Self.headerBytes, byteCount)
  }

  private func slot(_ index: Int) -> UnsafeMutableRawPointer { unsafe place + index * slotBytes }

  private func atomicNumber(_ index: Int) -> Atomic<UInt64>.Pointer {
    unsafe slot(index).assumingMemoryBound(to: Atomic<UInt64>.self)
  }
}
