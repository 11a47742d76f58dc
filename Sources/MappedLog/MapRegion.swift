import CLinux
import Glibc
import StreamRuntime
import Synchronization

/// The memory of one generation of a mapped stream: its events, as its readers see them.
///
/// Events are published in parts. The writer first raises `first` over the events that a part overwrites, then writes
/// the part's records and slots, then raises `end`. Positions are the ids of a log without a hole. Readers get a
/// read-only descriptor. The writer nevertheless uses the region's content for comparisons only: its own state
/// determines where it writes.
///
/// One thread at a time may write. `wake`, `wakeSome` and the constants may be used on any thread.
@safe package final class MapRegion: @unchecked Sendable {
  private typealias Word = UnsafeMutablePointer<Atomic<UInt64>>
  private typealias HalfWord = UnsafeMutablePointer<Atomic<UInt32>>

  /// Rises from region to region of a stream.
  package let generation: UInt64
  /// Identifies the numbering of positions: those of regions with the same epoch are comparable.
  package let epoch: UInt64
  /// The oldest position.
  package private(set) var first: UInt64
  /// The next event's position.
  package private(set) var end: UInt64
  package private(set) var state = MapState.live

  let memory: SealedMemory
  private let reading: OwnedDescriptor
  private let geometry: MapLayout.Geometry
  private let firstWord, endWord, index: Word
  private let wakeWord, stateWord: HalfWord
  private let ring: UnsafeMutableRawPointer
  /// The offset in the ring for the next record, unless the record exceeds the ring's end: then it is 0.
  private var nextOffset = 0

  /// Maximum bytes of a part with several events. Such a part also has at most a quarter of the ring, so that it never
  /// overwrites itself, even with an unused end of the ring.
  private static let partBytes = 256 << 10

  /// Bytes of a region for a log with these limits.
  package static func byteCount(events: Int, bytes: Int) -> Int {
    MapLayout.Geometry(events: events, bytes: bytes).regionBytes
  }

  /// Creates an empty region.
  ///
  /// - Parameters:
  ///   - name: the stream's name, shown in `/proc`.
  ///   - events: the log's maximum number of events, at least 1.
  ///   - bytes: the bytes of the log's ring, in which an event takes as many bytes as in the region.
  ///   - position: the position of the next event.
  package init(
    name: String, events: Int, bytes: Int, generation: UInt64, epoch: UInt64, position: UInt64
  ) throws(SystemError) {
    try MapWaker.shared.start()
    geometry = MapLayout.Geometry(events: events, bytes: bytes)
    memory = try SealedMemory(name: "streamd-map:" + name, byteCount: geometry.regionBytes)
    reading = OwnedDescriptor(try memory.readOnlyDescriptor())
    (self.generation, self.epoch, first, end) = (generation, epoch, position, position)
    let header = unsafe memory.bytes.baseAddress!
    unsafe firstWord = unsafe (header + MapLayout.Offset.first).assumingMemoryBound(to: Atomic<UInt64>.self)
    unsafe endWord = unsafe (header + MapLayout.Offset.end).assumingMemoryBound(to: Atomic<UInt64>.self)
    unsafe wakeWord = unsafe (header + MapLayout.Offset.wake).assumingMemoryBound(to: Atomic<UInt32>.self)
    unsafe stateWord = unsafe (header + MapLayout.Offset.state).assumingMemoryBound(to: Atomic<UInt32>.self)
    unsafe index = unsafe (header + geometry.indexOffset).assumingMemoryBound(to: Atomic<UInt64>.self)
    unsafe ring = unsafe header + geometry.ringOffset
    writeHeader()
  }

  private func writeHeader() {
    let words = [
      (MapLayout.Offset.generation, generation), (MapLayout.Offset.epoch, epoch),
      (MapLayout.Offset.regionBytes, UInt64(geometry.regionBytes)), (MapLayout.Offset.slots, UInt64(geometry.slots)),
      (MapLayout.Offset.indexOffset, UInt64(geometry.indexOffset)),
      (MapLayout.Offset.ringOffset, UInt64(geometry.ringOffset)),
      (MapLayout.Offset.ringBytes, UInt64(geometry.ringBytes)), (MapLayout.Offset.magic, MapLayout.magic),
    ]
    let header = unsafe memory.bytes
    for (offset, word) in words { unsafe header.storeBytes(of: word, toByteOffset: offset, as: UInt64.self) }
    unsafe header.storeBytes(of: MapLayout.version, toByteOffset: MapLayout.Offset.version, as: UInt32.self)
    unsafe header.storeBytes(
      of: UInt32(MapLayout.headerBytes), toByteOffset: MapLayout.Offset.headerBytes, as: UInt32.self)
    unsafe firstWord.pointee.store(first, ordering: .relaxed)
    unsafe endWord.pointee.store(end, ordering: .releasing)
  }

  package var byteCount: Int { unsafe memory.bytes.count }
  /// The read-only descriptor for readers; owned by the region.
  package var descriptor: CInt { reading.raw }

  // MARK: Writing

  /// Publishes the events from `end` on.
  ///
  /// - Parameters:
  ///   - newEnd: the position after the last event.
  ///   - oldest: the oldest position that readers may still see.
  ///   - mostParts: maximum number of parts that are published; each has at most 256 KiB, or one event.
  ///   - record: returns the id and the time of an event, 8 bytes each, big endian, then its data; called twice for
  ///     each.
  package func publish(
    upTo newEnd: UInt64, keeping oldest: UInt64, mostParts: Int = .max, _ record: (UInt64) -> UnsafeRawBufferPointer
  ) {
    guard state == .live else { return }
    if oldest > first {
      first = min(oldest, end)
      unsafe firstWord.pointee.store(first, ordering: .relaxed)
    }
    var partCount = 0
    while end < newEnd, partCount < mostParts {
      unsafe publishPart(before: newEnd, record)
      partCount += 1
    }
  }

  private func publishPart(before newEnd: UInt64, _ record: (UInt64) -> UnsafeRawBufferPointer) {
    let partEnd = unsafe makeRoom(before: newEnd, record)
    unsafe firstWord.pointee.store(first, ordering: .relaxed)
    atomicMemoryFence(ordering: .releasing)
    while end < partEnd {
      unsafe write(record(end), of: end)
      end += 1
    }
    unsafe endWord.pointee.store(end, ordering: .releasing)
    unsafe wakeWord.pointee.wrappingAdd(1, ordering: .sequentiallyConsistent)
  }

  /// Raises `first` over the events that a part overwrites.
  /// - Returns: the part's end.
  private func makeRoom(before newEnd: UInt64, _ record: (UInt64) -> UnsafeRawBufferPointer) -> UInt64 {
    let mostBytes = min(Self.partBytes, geometry.ringBytes / 4)
    let mostEvents = UInt64(max(1, geometry.slots / 2))
    var (next, offset, byteCount) = (end, nextOffset, 0)
    while next < newEnd, next - end < mostEvents {
      let size = unsafe MapLayout.recordBytes(for: record(next).count - 16)
      precondition(size <= geometry.ringBytes, "an event of \(size) bytes for a ring of \(geometry.ringBytes)")
      byteCount += size
      if byteCount > mostBytes, next > end { break }
      if offset + size > geometry.ringBytes {
        // No record is split: this one begins at the start of the ring. The records from here to the end are the
        // oldest.
        while first < end, self.offset(of: first) >= offset { first += 1 }
        offset = 0
      }
      while first < end, self.offset(of: first) &- offset < size, self.offset(of: first) >= offset { first += 1 }
      offset += size
      next += 1
      if next - first > UInt64(geometry.slots) { first += 1 }
    }
    return next
  }

  private func slot(of position: UInt64) -> Word {
    unsafe index + Int(truncatingIfNeeded: position & UInt64(geometry.slots - 1))
  }

  private func offset(of position: UInt64) -> Int {
    unsafe Int(truncatingIfNeeded: slot(of: position).pointee.load(ordering: .relaxed))
  }

  private func write(_ bytes: UnsafeRawBufferPointer, of position: UInt64) {
    let size = bytes.count - 16
    let recordBytes = MapLayout.recordBytes(for: size)
    if nextOffset + recordBytes > geometry.ringBytes { nextOffset = 0 }
    let place = unsafe ring + nextOffset
    let (id, time) = unsafe (
      UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
      UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    )
    unsafe place.storeBytes(of: UInt32(truncatingIfNeeded: size), as: UInt32.self)
    unsafe place.storeBytes(of: 0, toByteOffset: MapLayout.RecordOffset.reserved, as: UInt32.self)
    unsafe place.storeBytes(of: id, toByteOffset: MapLayout.RecordOffset.id, as: UInt64.self)
    unsafe place.storeBytes(of: time, toByteOffset: MapLayout.RecordOffset.time, as: UInt64.self)
    unsafe (place + MapLayout.recordHeaderBytes).copyMemory(from: bytes.baseAddress! + 16, byteCount: size)
    unsafe slot(of: position).pointee.store(UInt64(nextOffset), ordering: .relaxed)
    nextOffset += recordBytes
  }

  /// Marks that no event follows. The caller then calls `wake`.
  package func end(as state: MapState) {
    guard self.state == .live else { return }
    self.state = state
    unsafe stateWord.pointee.store(state.rawValue, ordering: .releasing)
    unsafe wakeWord.pointee.wrappingAdd(1, ordering: .sequentiallyConsistent)
  }

  // MARK: Waking

  /// Whether a waker will wake the readers.
  let isQueued = Atomic(false)

  /// Lets a waker wake the readers that wait. Called after each publication and each change of state.
  ///
  /// - Parameters:
  ///   - pages: the waiting pages of all readers that have one.
  ///   - wakesAlways: whether there may be a reader that waits without a page.
  package func wake(_ pages: [WaitingPage], wakesAlways: Bool, by waker: MapWaker = .shared) {
    var isNeeded = wakesAlways
    for page in pages where page.takeWaiting() { isNeeded = true }
    guard isNeeded else { return }
    // For a reader whose note was taken and that does not sleep yet.
    unsafe wakeWord.pointee.wrappingAdd(1, ordering: .sequentiallyConsistent)
    waker.add(self)
  }

  /// Wakes at most `count` threads that wait.
  /// - Returns: their number.
  func wakeSome(_ count: Int) -> Int { unsafe Int(wake_some(wakeWord, CInt(count))) }
}
