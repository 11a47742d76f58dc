import CChecksum
import Synchronization

// The area of a log's region for the newest event of each key.
//
// After the notes, at a multiple of 64:
//
//     0     table: for each version of a key its record's offset in the heap, in units of 16 bytes, plus 1 (u32);
//           0: unused. The first entry is never used
//     …     heap, at a multiple of 64: records, in any order
//           record: u32 data bytes, u16 key bytes, u16 flags (1: tombstone), u32 next piece (in units, plus 1; 0: none),
//           u32 checksum, then its content: key, u64 id (big endian), u64 time (big endian), data
//           record in pieces: the same header, u32 bytes of the content in this piece, u32 0, u64 id (big endian), the
//           beginning of the content; each further piece: u32 next piece, u32 bytes of the content, bytes
//
// Id, time and data are adjacent, as in the ring's records. A record is in pieces where no free block was large enough;
// an entry belongs to exactly one record. Two notes (`LogNotes`) describe the state:
//
//     pair 1 after the fleet's: u64 digest of the key's definition, u64 id of the first event that was considered, u64 id
//            of the first event that was left out (all ones: none), u64 cause of that
//     pair 2 of a file, the mark: the same fields, u64 number of keys, u64 digest of their records, each as of the note's
//            end position, which was on the disk with all before it when the note was written
//
// A killed process leaves a prefix of its writes. A version's record is complete before its entry; it takes effect when
// the log's end position covers its id. An older version's entry is cleared after that, and its record is overwritten
// after that. So the state consists of the newest version of each key, among those with ids below the end position.
//
// After a power failure the state is that of the mark. Therefore a version is cleared only when the mark on the disk
// has an end position after the version that replaced it. A tombstone is cleared when the cleared entry of the version
// that it removed is on the disk. The mark's number and digest prove that the state is complete. Later events are
// considered again.

/// A state's memory in a region; its content is arbitrary.
@safe struct StateArea {
  /// Bytes of a record's header, and of a further piece's.
  static let headerBytes = 16, pieceBytes = 8
  /// Bytes before the content of a record in pieces.
  static let firstPieceBytes = 32

  /// The number of entries, including the first.
  let entries: Int
  let heapBytes: Int
  let heap: UnsafeMutableRawPointer
  private let table: UnsafeMutablePointer<Atomic<UInt32>>
  /// Two pairs of slots.
  private let notes: UnsafeMutableRawPointer

  /// Bytes after the notes, if those end at a multiple of 64.
  static func byteCount(entries: Int, heapBytes: Int) -> Int { tableBytes(entries) + heapBytes }

  private static func tableBytes(_ entries: Int) -> Int { (entries * 4 + 63) & ~63 }

  /// - Parameters:
  ///   - start: `byteCount(entries:heapBytes:)` of them.
  ///   - notes: see `LogNote.state`.
  init(at start: UnsafeMutableRawPointer, entries: Int, heapBytes: Int, notes: UnsafeMutableRawPointer) {
    (self.entries, self.heapBytes) = (entries, heapBytes)
    unsafe table = unsafe start.assumingMemoryBound(to: Atomic<UInt32>.self)
    unsafe heap = unsafe start + Self.tableBytes(entries)
    unsafe self.notes = unsafe notes
  }

  /// The note of the state as of the log's end.
  var description: LogNote { unsafe LogNote(at: notes, slotBytes: 128) }

  /// The note of the state that is on the disk.
  var mark: LogNote { unsafe LogNote(at: notes + 256, slotBytes: 128) }

  /// The offset of an entry's record in units, plus 1.
  subscript(entry: Int) -> UInt32 { unsafe table[entry].load(ordering: .relaxed) }

  /// Called once the record's content is complete.
  func set(_ entry: Int, _ unit: Int) { unsafe table[entry].store(UInt32(unit) + 1, ordering: .releasing) }

  /// Called before the record is overwritten.
  func clear(_ entry: Int) {
    unsafe table[entry].store(0, ordering: .relaxed)
    atomicMemoryFence(ordering: .acquiringAndReleasing)
  }

  func record(_ unit: Int) -> StateRecord { unsafe StateRecord(start: heap + unit * StateHeap.unitBytes) }

  /// The content of a record, in place, piece by piece.
  ///
  /// - Returns: false if it is not completely within the heap, or has another size than its header states.
  func forEachPiece(
    of unit: Int, _ body: (_ unit: Int, _ units: Int, _ content: UnsafeRawBufferPointer) -> Void
  ) -> Bool {
    let end = heapBytes / StateHeap.unitBytes
    guard unit >= 0, unit < end else { return false }
    let record = record(unit)
    let count = record.contentBytes
    func visit(_ unit: Int, _ header: Int, _ count: Int) -> Bool {
      let units = StateRecord.units(header + count)
      guard units <= end - unit else { return false }
      unsafe body(
        unit, units,
        UnsafeRawBufferPointer(start: heap + unit * StateHeap.unitBytes + header, count: count))
      return true
    }
    guard record.isDivided else { return visit(unit, Self.headerBytes, count) }
    guard end - unit >= Self.firstPieceBytes / StateHeap.unitBytes else { return false }
    var rest = count - record.firstPieceContentBytes
    guard rest > 0, visit(unit, Self.firstPieceBytes, record.firstPieceContentBytes) else { return false }
    var next = record.nextPiece
    while next != 0 {
      let piece = Int(next) - 1
      guard rest > 0, piece < end else { return false }
      let start = unsafe heap + piece * StateHeap.unitBytes
      let bytes = unsafe Int(start.load(fromByteOffset: 4, as: UInt32.self))
      guard bytes > 0, bytes <= rest, visit(piece, Self.pieceBytes, bytes) else { return false }
      rest -= bytes
      next = unsafe start.load(as: UInt32.self)
    }
    return rest == 0
  }
}

/// A version of a key, in place.
@safe struct StateRecord {
  fileprivate let start: UnsafeMutableRawPointer

  /// The units for a number of bytes.
  static func units(_ byteCount: Int) -> Int { (byteCount + StateHeap.unitBytes - 1) / StateHeap.unitBytes }

  var dataBytes: Int { unsafe Int(start.load(as: UInt32.self)) }
  var keyBytes: Int { unsafe Int(start.load(fromByteOffset: 4, as: UInt16.self)) }
  var isTombstone: Bool { unsafe start.load(fromByteOffset: 6, as: UInt16.self) & 1 != 0 }
  var nextPiece: UInt32 { unsafe start.load(fromByteOffset: 8, as: UInt32.self) }
  var isDivided: Bool { nextPiece != 0 }
  var checksum: UInt32 { unsafe start.load(fromByteOffset: 12, as: UInt32.self) }
  /// Bytes of key, id, time and data.
  var contentBytes: Int { keyBytes + EventLog.stampBytes + dataBytes }
  var firstPieceContentBytes: Int { unsafe Int(start.load(fromByteOffset: 16, as: UInt32.self)) }
  /// The content, if the record is in one piece.
  var content: UnsafeMutableRawPointer { unsafe start + StateArea.headerBytes }
  /// The key, if the record is in one piece.
  var key: UnsafeRawBufferPointer { unsafe UnsafeRawBufferPointer(start: content, count: keyBytes) }
  var id: UInt64 {
    let offset = isDivided ? 24 : StateArea.headerBytes + keyBytes
    return unsafe UInt64(bigEndian: start.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
  }

  /// The checksum of the header's sizes and flags.
  private var headerChecksum: UInt32 {
    unsafe UInt32(truncatingIfNeeded: start.load(as: UInt64.self) &* 0x9E37_79B9_7F4A_7C15 >> 32)
  }

  func writeHeader(dataBytes: Int, keyBytes: Int, isTombstone: Bool, nextPiece: UInt32 = 0) {
    unsafe start.storeBytes(of: UInt32(dataBytes), as: UInt32.self)
    unsafe start.storeBytes(of: UInt16(keyBytes), toByteOffset: 4, as: UInt16.self)
    unsafe start.storeBytes(of: isTombstone ? 1 : 0, toByteOffset: 6, as: UInt16.self)
    unsafe start.storeBytes(of: nextPiece, toByteOffset: 8, as: UInt32.self)
  }

  /// - Parameter content: the checksum of the content; for a record in pieces, the sum of their checksums.
  func write(checksumOf content: UInt32) {
    unsafe start.storeBytes(of: content ^ headerChecksum, toByteOffset: 12, as: UInt32.self)
  }

  func isChecksum(of content: UInt32) -> Bool { checksum == content ^ headerChecksum }

  /// Begins a record in pieces.
  func writeFirstPiece(contentBytes: Int, id: UInt64) {
    unsafe start.storeBytes(of: UInt64(contentBytes), toByteOffset: 16, as: UInt64.self)
    unsafe start.storeBytes(of: id.bigEndian, toByteOffset: 24, as: UInt64.self)
  }

  /// The contribution of the record to the digest of a state.
  var digest: UInt64 {
    var word = id &+ UInt64(checksum) &* 0x9E37_79B9_7F4A_7C15
    word = (word ^ word >> 32) &* 0xD6E8_FEB8_6659_FD93
    word = (word ^ word >> 32) &* 0xD6E8_FEB8_6659_FD93
    return word ^ word >> 32
  }
}

/// The keys of a state, its first event, and whether it is complete.
struct StateDescription: Equatable {
  /// The digest of the key's definition: a state of another definition cannot continue.
  var keyDigest: UInt64
  /// The first event that was considered.
  var begin: UInt64
  /// Why the state is incomplete; nil: it is complete.
  var incompleteness: KeyedState.Incompleteness?

  init(keyDigest: UInt64, begin: UInt64) { (self.keyDigest, self.begin) = (keyDigest, begin) }

  /// - Returns: nil for bytes that are not a description.
  init?(_ bytes: [UInt8]) {
    guard bytes.count >= 32 else { return nil }
    func word(_ index: Int) -> UInt64 {
      unsafe bytes.withUnsafeBytes { unsafe $0.loadUnaligned(fromByteOffset: index * 8, as: UInt64.self) }
    }
    (keyDigest, begin) = (word(0), word(1))
    guard word(2) != .max else { return }
    guard let cause = KeyedState.Incompleteness.Cause(rawValue: word(3)) else { return nil }
    incompleteness = KeyedState.Incompleteness(since: word(2), cause: cause)
  }

  var bytes: [UInt8] {
    let words: [UInt64] = [keyDigest, begin, incompleteness?.since ?? .max, incompleteness?.cause.rawValue ?? 0]
    return words.flatMap { word -> [UInt8] in unsafe withUnsafeBytes(of: word) { unsafe Array($0) } }
  }
}

/// A state at one end position, as a note contains it.
struct StateMark: Equatable {
  var description: StateDescription
  /// The state is that of the events with lower ids.
  var end: UInt64
  /// The number of keys.
  var count: UInt64
  /// The sum of their records' digests.
  var digest: UInt64
  /// Versions that were replaced by events with lower ids have cleared entries. Not in the note.
  var clearedEnd: UInt64 = 0

  init(
    _ description: StateDescription, end: UInt64, count: UInt64 = 0, digest: UInt64 = 0, clearedEnd: UInt64 = 0
  ) {
    (self.description, self.end, self.count, self.digest) = (description, end, count, digest)
    self.clearedEnd = clearedEnd
  }

  /// - Returns: nil for bytes that are not a mark.
  init?(_ bytes: [UInt8], end: UInt64) {
    guard bytes.count == 48, let description = StateDescription(bytes) else { return nil }
    (self.description, self.end) = (description, end)
    (count, digest) = unsafe bytes.withUnsafeBytes {
      unsafe (
        $0.loadUnaligned(fromByteOffset: 32, as: UInt64.self), $0.loadUnaligned(fromByteOffset: 40, as: UInt64.self)
      )
    }
  }

  var bytes: [UInt8] {
    description.bytes
      + [count, digest].flatMap { word in unsafe withUnsafeBytes(of: word) { unsafe Array($0) } }
  }
}

/// The mark of a state in a file, which one thread writes around its syncs, and the newest state from the log's thread.
/// Thread-safe.
final class StateMarks: Sendable {
  private struct State {
    var note: LogNote
    /// The state at the log's last commit.
    var latest: StateMark
    /// The mark in the note.
    var noted: StateMark
    /// The mark in the note that is on the disk.
    var durable: StateMark
  }

  private let state: Mutex<State>

  /// - Parameters:
  ///   - note: restored.
  ///   - noted: the note's content.
  ///   - durable: the content that is on the disk.
  init(_ note: LogNote, noted: StateMark, durable: StateMark) {
    state = Mutex(State(note: note, latest: noted, noted: noted, durable: durable))
  }

  /// Sets the state at a commit.
  /// - Returns: the mark that is on the disk.
  func exchange(_ latest: StateMark) -> StateMark {
    state.withLock { state in
      state.latest = latest
      return state.durable
    }
  }

  /// Called before a sync. Returns what the sync brings to the disk.
  func willSync() -> (latest: StateMark, noted: StateMark) { state.withLock { ($0.latest, $0.noted) } }

  /// Called after a successful sync; writes the note.
  /// - Returns: whether another sync is needed, for the note.
  func didSync(_ synced: (latest: StateMark, noted: StateMark)) -> Bool {
    state.withLock { state in
      state.durable = synced.noted
      if synced.latest != state.noted {
        state.note.write(synced.latest.bytes, end: synced.latest.end)
        state.noted = synced.latest
      }
      return state.durable != state.noted
    }
  }
}
