import CChecksum
import Glibc
import Synchronization

// The layout of a log's region, which outlives its process, and the rules by which the next process checks it.
//
// A region of one log, version 3 or 4 (host byte order unless stated otherwise):
//
//     0     header: u64 magic, u32 version, u32 flags (1: records have checksums), u64 slots, u64 bytes of the ring,
//           u64 which of two extents is active, u32 checksum of the preceding fields, of the name and, in version 4, of
//           the fields that follow; u32 0; of version 4: u32 0, u32 entries of the state's table, u64 bytes of its heap
//     64    extent 0: u64 first position, u64 end position, u64 start and u64 end of the hole, 16 bytes boot,
//           u32 whether the log was closed, u32 checksum of all fields but the first two
//     128   extent 1
//     512   the stream's name: u8 count, bytes
//     1088  copy of extent 0's two positions; then its history: u64 first position from which on every position,
//          except in the hole, was assigned to an event, u32 checksum of it
//     1152  the same for extent 1
//     4096  index: a slot for each position modulo the slots, a power of two: its record's offset in the ring (u64)
//     …     ring: records, each in one piece, aligned to 8
//           record: u32 data bytes, u32 checksum, u64 id (big endian), u64 time (big endian), data
//     …     notes: see `LogNotes`
//     …     in version 4, at a multiple of 64: the newest event of each key: see `StateArea`
//
// A log in a shared region is *compact*, version 5. The same parts have other places: the copies of the extents are 128
// bytes after them, the name at 288, the index at the next multiple of 8, then the ring, then, if it has a checkpoint,
// two slots for it (see `LogNote`). At 48 the header has u32 bytes of such a slot, u32 0, u64 generation. Index and ring
// are smaller than the limits of the log as long as its events need less: it moves to another place when it grows.
//
// A region without a state has version 3. Version 2 had neither copies nor notes; it is read, and copied into a region
// of version 3 or 4. Where the history has no valid checksum, as in regions of earlier programs, it begins with the
// first position.
//
// Id, time and data are adjacent because a payload on the wire contains them in this order.
//
// A killed process leaves a prefix of its writes, in program order: the kernel holds the pages. So the order protects
// the log. A record is evicted, by the first position, before its first byte is overwritten; a new record, then its
// slot, are complete before the end position covers them. The next record's place follows from the last one. The end
// position covers all events of a batch at once, with their notes, unless the batch exceeds the ring. Each of the two
// positions has a copy, which is written first: where they differ, after a kill between the two writes or by damage,
// the copy that covers more existing events is used. The rest of an extent changes as one: the inactive extent is
// written, then made active.
//
// A power failure leaves any mixture of old and new pages. Order does not help then, so a file's records carry
// checksums. The longest run of intact records without a gap is kept; ids continue far above it, and that gap, the
// hole, tells clients that events may be lost.

/// A region whose geometry fits its size; its content is valid as far as it was checked.
@safe struct LogLayout {
  static let headerBytes = 4096
  static let recordHeaderBytes = 24
  static let magic: UInt64 = 0x474F_4C44_4D52_5453  // "STRMDLOG" in a little endian dump
  private static let version: UInt32 = 3
  private static let versionWithState: UInt32 = 4
  static let compactVersion: UInt32 = 5
  private static let oldestVersion: UInt32 = 2
  private static let extentOffset = 64
  private static let extentBytes = 64
  private static let nameOffset = 512
  private static let compactNameOffset = 288
  /// Exclusive upper bound of ids: additions to an id cannot overflow.
  static let idLimit: UInt64 = 1 << 62

  /// The region.
  let bytes: UnsafeMutableRawBufferPointer
  /// A power of two, so that a position's slot is its low bits.
  let slots: Int
  let ringBytes: Int
  let hasChecksums: Bool
  /// Whether the layout is one of the present versions; otherwise the log can only be read.
  let isCurrent: Bool
  /// The newest event of each key; nil: the stream has no keys.
  let stateArea: StateArea?
  /// Bytes of each of the two slots of a compact log's checkpoint, 0: it has none; nil: the log is not compact.
  let compactNoteBytes: Int?
  private let slotMask: UInt64
  private let index: UnsafeMutablePointer<UInt64>
  private let ring: UnsafeMutableRawPointer

  var isCompact: Bool { compactNoteBytes != nil }
  /// The distance from an extent's positions to their copies.
  private var copyDistance: Int { isCompact ? 128 : 1024 }
  private var nameOffset: Int { isCompact ? Self.compactNameOffset : Self.nameOffset }

  /// The number of slots for `events`.
  static func slots(for events: Int) -> Int { 1 << (Int.bitWidth - (events - 1).leadingZeroBitCount) }

  /// - Returns: bytes of a region.
  static func byteCount(
    slots: Int, ringBytes: Int, isCurrent: Bool = true, state: (entries: Int, heapBytes: Int)? = nil
  ) -> Int {
    let end = headerBytes + slots * 8 + ringBytes + (isCurrent ? LogNote.areaBytes : 0)
    guard let state else { return end }
    return aligned(end) + StateArea.byteCount(entries: state.entries, heapBytes: state.heapBytes)
  }

  static func byteCount(for limits: EventLog.Limits) -> Int {
    byteCount(
      slots: slots(for: limits.events), ringBytes: limits.bytes,
      state: limits.state.map { ($0.entries, $0.heapBytes) })
  }

  /// Where the state's area begins.
  private static func aligned(_ end: Int) -> Int { (end + 63) & ~63 }

  private init(
    _ bytes: UnsafeMutableRawBufferPointer, slots: Int, ringBytes: Int, hasChecksums: Bool, isCurrent: Bool,
    state: (entries: Int, heapBytes: Int)?
  ) {
    unsafe self.bytes = unsafe bytes
    compactNoteBytes = nil
    self.isCurrent = isCurrent
    self.slots = slots
    self.ringBytes = ringBytes
    self.hasChecksums = hasChecksums
    slotMask = UInt64(slots) - 1
    let index = unsafe bytes.baseAddress! + Self.headerBytes
    unsafe self.index = unsafe index.assumingMemoryBound(to: UInt64.self)
    unsafe ring = unsafe index + slots * 8
    guard let state else {
      stateArea = nil
      return
    }
    let notes = unsafe ring + ringBytes
    let start = Self.aligned(Self.byteCount(slots: slots, ringBytes: ringBytes))
    stateArea = unsafe StateArea(
      at: bytes.baseAddress! + start, entries: state.entries, heapBytes: state.heapBytes,
      notes: LogNote.state(inAreaAt: notes))
  }

  /// A compact log, in the first bytes of a place.
  private init(_ bytes: UnsafeMutableRawBufferPointer, _ shape: CompactShape, nameBytes: Int) {
    unsafe self.bytes = unsafe bytes
    (isCurrent, hasChecksums, stateArea) = (true, false, nil)
    (slots, ringBytes, compactNoteBytes) = (shape.slots, shape.ringBytes, shape.noteBytes)
    slotMask = UInt64(slots) - 1
    let index = unsafe bytes.baseAddress! + CompactShape.headerBytes(nameBytes: nameBytes)
    unsafe self.index = unsafe index.assumingMemoryBound(to: UInt64.self)
    unsafe ring = unsafe index + slots * 8
  }

  /// Initializes a compact log without events; `seal` completes it.
  /// - Parameter bytes: of a place, zero, at least as many as the shape takes.
  init(
    formatting bytes: UnsafeMutableRawBufferPointer, name: some Collection<UInt8>, _ shape: CompactShape,
    generation: UInt64, extent: LogExtent
  ) {
    unsafe self.init(bytes, shape, nameBytes: name.count)
    precondition(shape.byteCount(nameBytes: name.count) <= bytes.count, "\(bytes.count) bytes for \(shape)")
    let header = bytes.baseAddress!
    unsafe header.storeBytes(of: Self.compactVersion, toByteOffset: 8, as: UInt32.self)
    unsafe header.storeBytes(of: UInt64(slots), toByteOffset: 16, as: UInt64.self)
    unsafe header.storeBytes(of: UInt64(ringBytes), toByteOffset: 24, as: UInt64.self)
    unsafe header.storeBytes(of: UInt32(shape.noteBytes), toByteOffset: 48, as: UInt32.self)
    unsafe header.storeBytes(of: generation, toByteOffset: 56, as: UInt64.self)
    unsafe bytes[nameOffset] = UInt8(name.count)
    unsafe UnsafeMutableRawBufferPointer(rebasing: bytes[(nameOffset + 1)...]).copyBytes(from: name)
    write(extent)
  }

  /// - Parameter bytes: of a place.
  /// - Throws: `LogRefusal` for anything except a complete compact log.
  init(readingCompact bytes: UnsafeMutableRawBufferPointer) throws(LogRefusal) {
    let slots = unsafe bytes.load(fromByteOffset: 16, as: UInt64.self)
    let ringBytes = unsafe bytes.load(fromByteOffset: 24, as: UInt64.self)
    let noteBytes = unsafe Int(bytes.load(fromByteOffset: 48, as: UInt32.self))
    let nameBytes = unsafe Int(bytes[Self.compactNameOffset])
    guard unsafe bytes.load(as: UInt64.self) == Self.magic,
      unsafe bytes.load(fromByteOffset: 8, as: UInt32.self) == Self.compactVersion,
      slots.nonzeroBitCount == 1, slots <= bytes.count / 8, ringBytes <= bytes.count, ringBytes % 8 == 0,
      noteBytes % 8 == 0, noteBytes == 0 || noteBytes >= CompactShape.leastNoteBytes
    else { throw LogRefusal("its header is damaged") }
    let shape = CompactShape(slots: Int(slots), ringBytes: Int(ringBytes), noteBytes: noteBytes)
    guard shape.byteCount(nameBytes: nameBytes) <= bytes.count else { throw LogRefusal("its header is damaged") }
    unsafe self.init(bytes, shape, nameBytes: nameBytes)
    try checkHeader()
  }

  /// It rises with each move of a compact log.
  var generation: UInt64 { unsafe isCompact ? bytes.load(fromByteOffset: 56, as: UInt64.self) : 0 }

  /// Initializes an empty log.
  ///
  /// - Parameters:
  ///   - bytes: `byteCount(slots:ringBytes:state:)` of them, zero, aligned to a page.
  ///   - name: at most 255 bytes of it are stored.
  init(
    formatting bytes: UnsafeMutableRawBufferPointer, name: String, slots: Int, ringBytes: Int, hasChecksums: Bool,
    extent: LogExtent, keyed: KeyedState.Settings? = nil
  ) {
    let area = keyed.map { (entries: $0.entries, heapBytes: $0.heapBytes) }
    unsafe self.init(
      bytes, slots: slots, ringBytes: ringBytes, hasChecksums: hasChecksums, isCurrent: true, state: area)
    precondition(
      bytes.count == Self.byteCount(slots: slots, ringBytes: ringBytes, state: area), "\(bytes.count) bytes for a log")
    let header = bytes.baseAddress!
    unsafe header.storeBytes(
      of: area == nil ? Self.version : Self.versionWithState, toByteOffset: 8, as: UInt32.self)
    if let area {
      unsafe header.storeBytes(of: UInt32(area.entries), toByteOffset: 52, as: UInt32.self)
      unsafe header.storeBytes(of: UInt64(area.heapBytes), toByteOffset: 56, as: UInt64.self)
    }
    if let keyed {
      var note = stateArea?.description
      note?.write(StateDescription(keyDigest: keyed.keyDigest, begin: extent.first).bytes, end: extent.first)
    }
    unsafe header.storeBytes(of: hasChecksums ? 1 : 0, toByteOffset: 12, as: UInt32.self)
    unsafe header.storeBytes(of: UInt64(slots), toByteOffset: 16, as: UInt64.self)
    unsafe header.storeBytes(of: UInt64(ringBytes), toByteOffset: 24, as: UInt64.self)
    let name = Array(name.utf8.prefix(255))
    unsafe header.storeBytes(of: UInt8(name.count), toByteOffset: Self.nameOffset, as: UInt8.self)
    unsafe (header + Self.nameOffset + 1).copyMemory(from: name, byteCount: name.count)
    write(extent)
    seal()
  }

  /// The place's log is complete from now on.
  func seal() {
    unsafe bytes.storeBytes(of: headerChecksum(), toByteOffset: 40, as: UInt32.self)
    unsafe atomic(at: 0).pointee.store(Self.magic, ordering: .releasing)
  }

  /// - Throws: `LogRefusal` for anything except a complete log of a known version.
  init(reading bytes: UnsafeMutableRawBufferPointer) throws(LogRefusal) {
    guard bytes.count >= Self.headerBytes else { throw LogRefusal("it is not a log: it has \(bytes.count) bytes") }
    let header = bytes.baseAddress!
    guard unsafe header.load(as: UInt64.self) == Self.magic else { throw LogRefusal("it is not a streamd log") }
    let version = unsafe header.load(fromByteOffset: 8, as: UInt32.self)
    guard version <= Self.versionWithState, version >= Self.oldestVersion else {
      throw LogRefusal(
        "its layout is version \(version), but this program supports version \(Self.versionWithState)",
        .setAside("version-\(version)"))
    }
    let isCurrent = version >= Self.version
    let slots = unsafe header.load(fromByteOffset: 16, as: UInt64.self)
    let ringBytes = unsafe header.load(fromByteOffset: 24, as: UInt64.self)
    guard slots.nonzeroBitCount == 1, slots <= bytes.count / 8, ringBytes <= bytes.count,
      ringBytes >= EventLog.Limits.leastBytes, ringBytes % 8 == 0
    else {
      throw LogRefusal("its \(bytes.count) bytes are not \(slots) slots and a ring of \(ringBytes) bytes")
    }
    var state: (entries: Int, heapBytes: Int)?
    if version == Self.versionWithState {
      let entries = unsafe header.load(fromByteOffset: 52, as: UInt32.self)
      let heapBytes = unsafe header.load(fromByteOffset: 56, as: UInt64.self)
      guard entries > 0, heapBytes <= bytes.count, heapBytes % 16 == 0, heapBytes <= StateHeap.maximumByteCount else {
        throw LogRefusal("its \(bytes.count) bytes are not a state of \(entries) entries and \(heapBytes) bytes")
      }
      state = (Int(entries), Int(heapBytes))
    }
    guard
      bytes.count
        == Self.byteCount(slots: Int(slots), ringBytes: Int(ringBytes), isCurrent: isCurrent, state: state)
    else {
      throw LogRefusal("its \(bytes.count) bytes are not \(slots) slots and a ring of \(ringBytes) bytes")
    }
    unsafe self.init(
      bytes, slots: Int(slots), ringBytes: Int(ringBytes),
      hasChecksums: header.load(fromByteOffset: 12, as: UInt32.self) & 1 != 0, isCurrent: isCurrent,
      state: state)
    try checkHeader()
  }

  private func checkHeader() throws(LogRefusal) {
    guard unsafe bytes.load(fromByteOffset: 40, as: UInt32.self) == headerChecksum() else {
      throw LogRefusal("its header is damaged")
    }
  }

  /// The stream's name.
  var name: String { unsafe String(decoding: nameBytes, as: UTF8.self) }

  var nameBytes: UnsafeMutableRawBufferPointer.SubSequence {
    unsafe bytes[(nameOffset + 1)...].prefix(Int(bytes[nameOffset]))
  }

  /// Whether a log with these limits can continue here: the region has the size and the areas that they require, or the
  /// compact log can grow up to them.
  func fits(_ limits: EventLog.Limits) -> Bool {
    if isCompact { return limits.isSmall && slots <= Self.slots(for: limits.events) && ringBytes <= limits.bytes }
    return isCurrent && slots == Self.slots(for: limits.events) && ringBytes == limits.bytes
      && stateArea?.entries == limits.state?.entries && stateArea?.heapBytes == limits.state?.heapBytes
  }

  /// The data of a stored event.
  func data(of position: UInt64) -> UnsafeRawBufferPointer {
    let offset = offset(of: position)
    return unsafe UnsafeRawBufferPointer(
      start: record(at: offset) + Self.recordHeaderBytes, count: dataBytes(at: offset))
  }

  /// The source's checkpoint; nil for a version without notes, and a compact log without room for one.
  var checkpointNote: LogNote? {
    guard isCurrent else { return nil }
    guard let compactNoteBytes else { return unsafe .checkpoint(inAreaAt: ring + ringBytes) }
    return unsafe compactNoteBytes == 0 ? nil : LogNote(at: ring + ringBytes, slotBytes: compactNoteBytes)
  }

  /// Up to where a fleet's log was read; nil for a version without notes, and a compact log, which follows no fleet.
  /// Exists while the log follows a fleet.
  var fleetNote: LogNote? { unsafe isCurrent && !isCompact ? .fleet(inAreaAt: ring + ringBytes) : nil }

  /// The fleet's position, as far as the events that it belongs to are complete.
  func restoredFleetNote(_ extent: LogExtent) -> (LogNote?, [UInt8]?) {
    guard var note = fleetNote else { return (nil, nil) }
    let bytes = extent.salvagedEnd.map { note.restoreOrEmpty(upTo: $0) } ?? note.restore(upTo: extent.end)
    return (note, bytes)
  }

  /// A digest of the whole header, with the extents. Each process that continues a log in a file changes it.
  var headerDigest: UInt32 { unsafe crc32c(bytes.baseAddress, Self.headerBytes) }

  /// - Returns: nil if the file cannot be read.
  static func headerDigest(of name: String, in folder: CInt) -> UInt32? {
    let descriptor = unsafe openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var header = [UInt8](repeating: 0, count: headerBytes)
    guard unsafe pread(descriptor, &header, headerBytes, 0) == headerBytes else { return nil }
    return unsafe crc32c(header, headerBytes)
  }

  /// The name of the stream whose log a file has, as its head says, of whatever version it is.
  /// - Returns: nil if the file cannot be read, or is no log.
  static func streamName(of file: String, in folder: CInt) -> String? {
    let descriptor = unsafe openat(folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
    guard descriptor >= 0 else { return nil }
    defer { close(descriptor) }
    var header = [UInt8](repeating: 0, count: nameOffset + 256)
    guard unsafe pread(descriptor, &header, header.count, 0) == header.count,
      unsafe header.withUnsafeBytes({ unsafe $0.loadUnaligned(as: UInt64.self) }) == magic
    else { return nil }
    return String(validating: header[(nameOffset + 1)...].prefix(Int(header[nameOffset])), as: UTF8.self)
  }

  private func headerChecksum() -> UInt32 {
    var parts = unsafe withUnsafeBytes(of: Self.magic) { unsafe Array($0) }
    unsafe parts += bytes[8..<32]
    let nameBytes = unsafe isCompact ? 1 + Int(bytes[nameOffset]) : 256
    unsafe parts += bytes[nameOffset..<nameOffset + nameBytes]
    if stateArea != nil || isCompact { unsafe parts += bytes[48..<Self.extentOffset] }
    return unsafe crc32c(parts, parts.count)
  }
}

/// Which positions a log has, and what its header says besides.
struct LogExtent: Equatable {
  /// As in `EventLog`.
  var first, end: UInt64
  /// See `EventLog`; both 0 without a hole. After a power failure the length is a multiple of the slots, so that all
  /// events can stay beside it.
  var holeStart: UInt64 = 0
  var holeEnd: UInt64 = 0
  var boot = BootID.unknown
  /// Whether the log was closed after everything had reached the disk.
  var isClosed = false
  /// Every position from here on was assigned to an event, except in the hole. At most `first`.
  var historyStart: UInt64
  /// The end of the events that are known to be complete, if below `end`; not in the header.
  var salvagedEnd: UInt64?

  /// The extent of a log without events.
  init(startingAt first: UInt64, boot: BootID = .unknown) {
    (self.first, end, historyStart, self.boot) = (first, first, first, boot)
  }

  /// The number of events.
  var count: UInt64 { end - first - (first < holeStart ? holeEnd - holeStart : 0) }

  /// Whether each event has a slot of its own.
  func fits(_ slots: UInt64) -> Bool {
    let isDivided = first < holeStart && holeEnd < end
    return count <= slots && (!isDivided || count + (holeEnd - holeStart) % slots <= slots)
  }
}

// MARK: - The extent

extension LogLayout {
  private var extentInForce: Atomic<UInt64>.Pointer { unsafe atomic(at: 32) }

  private func atomic(at offset: Int) -> Atomic<UInt64>.Pointer {
    unsafe (bytes.baseAddress! + offset).assumingMemoryBound(to: Atomic<UInt64>.self)
  }

  private func offset(ofExtent number: UInt64) -> Int { Self.extentOffset + Int(number & 1) * Self.extentBytes }

  /// The active extent's positions, valid until the next extent is written.
  func positions() -> LogPositions {
    let offset = unsafe offset(ofExtent: extentInForce.pointee.load(ordering: .relaxed))
    let copy = offset + copyDistance
    return unsafe LogPositions(
      first: atomic(at: offset), end: atomic(at: offset + 8),
      firstCopy: atomic(at: copy), endCopy: atomic(at: copy + 8))
  }

  /// Replaces the extent. A kill during the call leaves either the old extent or the new one.
  func write(_ extent: LogExtent) {
    let number = unsafe extentInForce.pointee.load(ordering: .relaxed) ^ 1
    let place = unsafe bytes.baseAddress! + offset(ofExtent: number)
    let words = [extent.first, extent.end, extent.holeStart, extent.holeEnd, extent.boot.high, extent.boot.low]
    unsafe place.copyMemory(from: words, byteCount: 48)
    let copy = unsafe place + copyDistance
    unsafe copy.copyMemory(from: words, byteCount: 16)
    unsafe copy.storeBytes(of: extent.historyStart, toByteOffset: 16, as: UInt64.self)
    unsafe copy.storeBytes(of: crc32c(copy + 16, 8), toByteOffset: 24, as: UInt32.self)
    unsafe place.storeBytes(of: extent.isClosed ? 1 : 0, toByteOffset: 48, as: UInt32.self)
    unsafe place.storeBytes(of: crc32c(place + 16, 36), toByteOffset: 52, as: UInt32.self)
    unsafe extentInForce.pointee.store(number, ordering: .releasing)
  }

  /// - Throws: when the extent is invalid.
  func extent() throws(LogRefusal) -> LogExtent {
    let place = unsafe bytes.baseAddress! + offset(ofExtent: extentInForce.pointee.load(ordering: .acquiring))
    func word(_ index: Int) -> UInt64 { unsafe place.load(fromByteOffset: index * 8, as: UInt64.self) }
    var extent = LogExtent(startingAt: word(0), boot: BootID(high: word(4), low: word(5)))
    (extent.end, extent.holeStart, extent.holeEnd) = (word(1), word(2), word(3))
    extent.isClosed = unsafe place.load(fromByteOffset: 48, as: UInt32.self) != 0
    guard unsafe place.load(fromByteOffset: 52, as: UInt32.self) == crc32c(place + 16, 36) else {
      throw LogRefusal("its header is damaged")
    }
    if isCurrent {
      let copy = unsafe place + copyDistance
      let first = unsafe [extent.first, copy.load(as: UInt64.self)].sorted()
      let end = unsafe [extent.end, copy.load(fromByteOffset: 8, as: UInt64.self)].sorted()
      extent.end = hasRecords(in: end[0]..<end[1], extent) ? end[1] : end[0]
      extent.first = first[1] > extent.end || hasRecords(in: first[0]..<first[1], extent) ? first[0] : first[1]
    }
    extent.historyStart = unsafe historyStart(besideExtentAt: place) ?? extent.first
    // The hole is removed when all stored events lie after it.
    if extent.first >= extent.holeEnd {
      extent.historyStart = max(extent.historyStart, extent.holeEnd)
      (extent.holeStart, extent.holeEnd) = (0, 0)
    }
    extent.historyStart = min(extent.historyStart, extent.first)
    guard extent.first <= extent.end, extent.end < Self.idLimit,
      extent.holeEnd == 0
        || extent.first < extent.holeStart && extent.holeStart < extent.holeEnd && extent.holeEnd <= extent.end,
      extent.fits(UInt64(slots))
    else { throw LogRefusal("its positions are impossible") }
    return extent
  }
}

extension LogLayout {
  /// - Returns: nil if it was never written, or is damaged.
  private func historyStart(besideExtentAt place: UnsafeMutableRawPointer) -> UInt64? {
    let copy = unsafe place + copyDistance
    guard isCurrent, unsafe copy.load(fromByteOffset: 24, as: UInt32.self) == crc32c(copy + 16, 8) else { return nil }
    return unsafe copy.load(fromByteOffset: 16, as: UInt64.self)
  }
}

/// The two positions in a header, and their copies.
@safe struct LogPositions {
  fileprivate let first, end, firstCopy, endCopy: Atomic<UInt64>.Pointer

  /// Called before the excluded events are overwritten.
  func commit(first position: UInt64) {
    unsafe firstCopy.pointee.store(position, ordering: .relaxed)
    unsafe first.pointee.store(position, ordering: .relaxed)
    // A release store alone would let later stores move before it.
    atomicMemoryFence(ordering: .acquiringAndReleasing)
  }

  /// Called after the included events were written.
  func commit(end position: UInt64) {
    unsafe endCopy.pointee.store(position, ordering: .releasing)
    unsafe end.pointee.store(position, ordering: .releasing)
  }
}

extension Atomic where Value == UInt64 {
  typealias Pointer = UnsafeMutablePointer<Atomic<UInt64>>
}

// MARK: - Records

extension LogLayout {
  /// Bytes of a record in the ring.
  static func recordBytes(for dataBytes: Int) -> Int { (recordHeaderBytes + dataBytes + 7) & ~7 }

  /// The offset of a stored event's record.
  func offset(of position: UInt64) -> Int { unsafe Int(truncatingIfNeeded: index[Int(position & slotMask)]) }

  func record(at offset: Int) -> UnsafeMutableRawPointer { unsafe ring + offset }

  var records: LogRecords {
    unsafe LogRecords(index: UnsafePointer(index), slotMask: slotMask, ring: UnsafeRawPointer(ring))
  }

  func dataBytes(at offset: Int) -> Int { unsafe Int((ring + offset).load(as: UInt32.self)) }

  func id(at offset: Int) -> UInt64 {
    unsafe UInt64(bigEndian: (ring + offset).load(fromByteOffset: 8, as: UInt64.self))
  }

  func time(at offset: Int) -> UInt64 {
    unsafe UInt64(bigEndian: (ring + offset).load(fromByteOffset: 16, as: UInt64.self))
  }

  /// Copies the record of an event from another layout.
  func copyRecord(of position: UInt64, from other: LogLayout, to offset: Int) -> Int {
    let former = other.offset(of: position)
    let byteCount = Self.recordBytes(for: other.dataBytes(at: former))
    unsafe (ring + offset).copyMemory(from: other.record(at: former), byteCount: byteCount)
    unsafe index[slot(of: position)] = UInt64(offset)
    return byteCount
  }

  /// Writes a record, then its slot.
  func write(_ data: UnsafeRawBufferPointer, id: UInt64, time: UInt64, at offset: Int) {
    let record = unsafe ring + offset
    unsafe record.storeBytes(of: UInt32(data.count), as: UInt32.self)
    unsafe record.storeBytes(of: id.bigEndian, toByteOffset: 8, as: UInt64.self)
    unsafe record.storeBytes(of: time.bigEndian, toByteOffset: 16, as: UInt64.self)
    if let base = data.baseAddress {
      unsafe (record + Self.recordHeaderBytes).copyMemory(from: base, byteCount: data.count)
    }
    unsafe record.storeBytes(
      of: hasChecksums ? crc32c(record + 8, 16 + data.count) : 0, toByteOffset: 4, as: UInt32.self)
    unsafe index[Int(id & slotMask)] = UInt64(offset)
  }

  /// The record to which a slot points, if it can belong to that slot.
  /// - Returns: the record's offset and size in bytes.
  func candidate(inSlot slot: Int) -> (offset: Int, byteCount: Int)? {
    let offset = unsafe index[slot]
    guard offset % 8 == 0, offset <= UInt64(ringBytes - Self.recordHeaderBytes) else { return nil }
    let byteCount = Self.recordBytes(for: dataBytes(at: Int(offset)))
    guard byteCount <= ringBytes - Int(offset), id(at: Int(offset)) & slotMask == UInt64(slot) else { return nil }
    return (Int(offset), byteCount)
  }

  /// Whether each position of a range, except in the hole, has its intact record.
  /// - Complexity: O(records), and at most O(slots).
  private func hasRecords(in range: Range<UInt64>, _ extent: LogExtent) -> Bool {
    guard range.upperBound < Self.idLimit else { return false }
    var (position, left) = (range.lowerBound, slots)
    while position < range.upperBound {
      guard left > 0, let (offset, _) = candidate(inSlot: slot(of: position)), id(at: offset) == position,
        isIntact(at: offset)
      else { return false }
      left -= 1
      position += 1
      if position == extent.holeStart { position = max(position, extent.holeEnd) }
    }
    return true
  }

  func slot(of position: UInt64) -> Int { Int(position & slotMask) }

  /// Whether a record's checksum is valid; true without checksums.
  func isIntact(at offset: Int) -> Bool {
    unsafe !hasChecksums
      || (ring + offset).load(fromByteOffset: 4, as: UInt32.self)
        == crc32c(ring + offset + 8, 16 + dataBytes(at: offset))
  }
}

/// Records of a log, in place; valid until its next append.
@safe public struct LogRecords {
  @usableFromInline let index: UnsafePointer<UInt64>
  @usableFromInline let slotMask: UInt64
  @usableFromInline let ring: UnsafeRawPointer

  /// As ``EventLog/record(at:)``. The position must be in the requested range.
  @inlinable public subscript(position: UInt64) -> UnsafeRawBufferPointer {
    let record = unsafe ring + Int(truncatingIfNeeded: index[Int(truncatingIfNeeded: position & slotMask)])
    return unsafe UnsafeRawBufferPointer(
      start: record + 8, count: EventLog.stampBytes + Int(record.loadUnaligned(as: UInt32.self)))
  }
}
