import CChecksum
import Synchronization

// Notes of a log, which belong to its events: where its source resumes, and how far a fleet's log was read.
//
// After the ring, at multiples of 8:
//
//     0      two slots of the checkpoint, 4,160 bytes each, for one of at most 4,136 bytes
//     8320   two slots of the fleet's position, 128 bytes each; of a log that follows a fleet. A note without bytes is
//            an unknown position
//     8576   two pairs of slots of 128 bytes each, of a region with a state: see `StateArea`
//     9088   two slots of a larger checkpoint, 9,760 bytes each; earlier programs ignore them
//     28608  64 bytes, unused
//     28672  the region's end
//     slot: u64 number, u64 end position for which it holds, u32 byte count, u32 checksum of all else, bytes
//
// A note is written into the inactive slot before the end position of its events is committed: it takes effect with the
// last of them, or not at all. A slot is valid if its end position does not exceed the log's. The active slot is the
// valid one with the highest end position; among equal ones, the one with the highest number. A program that ignores
// the larger slots continues the numbers of the smaller ones. It resumes from the last checkpoint there, so events
// after that come again; its own notes have a higher end position. The lowest bit of a number selects its slot; 0 means
// empty. A slot that is not active although its end position or its number is higher is cleared before ids are
// assigned. Otherwise another event would get the id for which the slot waits.

/// One note of a log.
struct LogNote: Sendable {  // one thread at a time uses its slots
  static let areaBytes = 28672
  /// Bytes of a slot of the largest checkpoint.
  static let largestSlotBytes = 9760

  /// In the order of their size.
  private let slots: [NoteSlots]
  /// The number of the last written note.
  private var number: UInt64 = 0

  /// - Parameter place: the two slots, aligned to 8.
  init(at place: UnsafeMutableRawPointer, slotBytes: Int) {
    slots = unsafe [NoteSlots(at: place, slotBytes: slotBytes)]
  }

  private init(_ slots: [NoteSlots]) { self.slots = slots }

  static func checkpoint(inAreaAt area: UnsafeMutableRawPointer) -> LogNote {
    unsafe LogNote([NoteSlots(at: area, slotBytes: 4160), NoteSlots(at: area + 9088, slotBytes: largestSlotBytes)])
  }

  static func fleet(inAreaAt area: UnsafeMutableRawPointer) -> LogNote {
    unsafe LogNote(at: area + 8320, slotBytes: 128)
  }

  /// The place of the notes of a state: two pairs of slots of 128 bytes.
  static func state(inAreaAt area: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer { unsafe area + 8576 }

  /// Bytes of the largest note that it can have.
  var capacity: Int { slots.last?.capacity ?? 0 }

  /// Bytes of a slot for a note of so many bytes, which may become larger.
  static func slotBytes(for byteCount: Int) -> Int {
    min(max(CompactShape.leastNoteBytes, (byteCount + byteCount / 4 + 31) & ~7), largestSlotBytes)
  }

  /// Takes over the notes of another one, which must fit.
  mutating func takeOver(_ other: LogNote) {
    for note in other.all().reversed() { write(note.bytes, end: note.end) }
  }

  /// The notes with at most this end position, the newest first. Does not change the slots.
  func all(upTo end: UInt64 = .max) -> [(end: UInt64, bytes: [UInt8])] {
    stored.filter { $0.end <= end }.sorted { $0.number > $1.number }.map { ($0.end, $0.bytes) }
  }

  private var stored: [NoteSlots.Note] { slots.flatMap { slots in (0...1).compactMap { slots.read($0) } } }

  /// Whether a slot has a note, for any end position.
  var exists: Bool { !stored.isEmpty }

  /// The active bytes. Clears the slots that are not valid.
  ///
  /// - Parameter end: the end of the events that are known to be complete.
  mutating func restore(upTo end: UInt64) -> [UInt8]? {
    let active = stored.filter { $0.end <= end }.max { ($0.end, $0.number) < ($1.end, $1.number) }
    number = active?.number ?? 0
    for slots in slots {
      for index in 0...1 {
        let isValid = slots.read(index).map { $0.end <= end && $0.number <= number } ?? false
        if !isValid { slots.clear(index) }
      }
    }
    atomicMemoryFence(ordering: .acquiringAndReleasing)
    return active?.bytes
  }

  /// As `restore`, but if no note is valid, a note without bytes replaces the others.
  mutating func restoreOrEmpty(upTo end: UInt64) -> [UInt8]? {
    let stored = stored
    if let newest = stored.map(\.number).max(), !stored.contains(where: { $0.end <= end }) {
      // The note goes into the other slot: a kill leaves one of the two.
      number = newest
      write([], end: end)
    }
    return restore(upTo: end)
  }

  /// Removes the note.
  mutating func clear() {
    for slots in slots { for index in 0...1 { slots.clear(index) } }
    number = 0
  }

  /// Replaces the note; takes effect as soon as the log ends at `end`.
  mutating func write(_ bytes: [UInt8], end: UInt64) {
    guard let slots = slots.first(where: { bytes.count <= $0.capacity }) else {
      preconditionFailure("a note of \(bytes.count) bytes")
    }
    number += 1
    slots.write(NoteSlots.Note(number: number, end: end, bytes: bytes))
  }
}

/// Two adjacent slots of a note.
@safe private struct NoteSlots: @unchecked Sendable {  // one thread at a time uses them
  struct Note {
    let number: UInt64
    let end: UInt64
    let bytes: [UInt8]
  }

  private static let headerBytes = 24
  private static let numberLimit: UInt64 = 1 << 62

  private let place: UnsafeMutableRawPointer
  private let slotBytes: Int

  /// The bytes that a slot can hold.
  var capacity: Int { slotBytes - Self.headerBytes }

  init(at place: UnsafeMutableRawPointer, slotBytes: Int) {
    unsafe self.place = unsafe place
    self.slotBytes = slotBytes
  }

  func read(_ index: Int) -> Note? {
    let slot = unsafe slot(index)
    let number = unsafe slot.load(as: UInt64.self)
    let byteCount = unsafe Int(slot.load(fromByteOffset: 16, as: UInt32.self))
    guard number > 0, number < Self.numberLimit, number & 1 == UInt64(index), byteCount <= capacity,
      unsafe slot.load(fromByteOffset: 20, as: UInt32.self) == checksum(index, number: number, byteCount: byteCount)
    else { return nil }
    let bytes = unsafe UnsafeRawBufferPointer(start: slot + Self.headerBytes, count: byteCount)
    return unsafe Note(number: number, end: slot.load(fromByteOffset: 8, as: UInt64.self), bytes: Array(bytes))
  }

  /// Writes a note into the slot that its number selects.
  func write(_ note: Note) {
    let index = Int(note.number & 1)
    let slot = unsafe slot(index)
    clear(index)
    atomicMemoryFence(ordering: .acquiringAndReleasing)
    unsafe slot.storeBytes(of: note.end, toByteOffset: 8, as: UInt64.self)
    unsafe slot.storeBytes(of: UInt32(note.bytes.count), toByteOffset: 16, as: UInt32.self)
    unsafe (slot + Self.headerBytes).copyMemory(from: note.bytes, byteCount: note.bytes.count)
    unsafe slot.storeBytes(
      of: checksum(index, number: note.number, byteCount: note.bytes.count), toByteOffset: 20, as: UInt32.self)
    unsafe number(index).pointee.store(note.number, ordering: .releasing)
  }

  /// Writes nothing to an empty slot, so that its page stays unused.
  func clear(_ index: Int) {
    guard unsafe slot(index).load(as: UInt64.self) != 0 else { return }
    unsafe number(index).pointee.store(0, ordering: .relaxed)
  }

  private func checksum(_ index: Int, number: UInt64, byteCount: Int) -> UInt32 {
    let slot = unsafe slot(index)
    let header = unsafe [number, slot.load(fromByteOffset: 8, as: UInt64.self), UInt64(byteCount)]
    return unsafe crc32c(header, 24) ^ crc32c(slot + Self.headerBytes, byteCount)
  }

  private func slot(_ index: Int) -> UnsafeMutableRawPointer { unsafe place + index * slotBytes }

  private func number(_ index: Int) -> Atomic<UInt64>.Pointer {
    unsafe slot(index).assumingMemoryBound(to: Atomic<UInt64>.self)
  }
}
