import CLinux
import Glibc
import StreamRuntime
import Synchronization

/// A region as one of its readers sees it, in a mapping of its own.
///
/// A region may have any content at any moment: what is used is read once into private memory and then checked. An access
/// cannot fault, because the descriptor's seals forbid that the memory shrinks. Events that lie side by side share one copy
/// and one validation. The copy is a plain one, which the writer may disturb; its bytes are not used unless `first` shows
/// afterwards that they were not overwritten.
///
/// One thread at a time reads; `wakeAll` is for any thread.
@safe package final class RegionReader: @unchecked Sendable {
  /// A fault of a region, or of its descriptors.
  package struct Damage: Error, Equatable {
    package let sentence: String
    init(_ sentence: String) { self.sentence = sentence }
  }

  /// The result of a copy from a position on.
  package enum Found: Equatable {
    /// Events were copied: see `takeCopied`.
    case events
    /// No event has this position yet.
    case nothing
    /// The events from `first` up to `end` are held.
    case overtaken(first: UInt64, end: UInt64)
    /// The events were overwritten meanwhile.
    case again
  }

  package let generation: UInt64
  /// Positions of regions with one epoch are comparable.
  package let epoch: UInt64

  private let memory: UnsafeRawBufferPointer
  private let waiting: UnsafeMutableRawPointer?
  private let slots, ringBytes: UInt64
  private let index: UnsafePointer<Atomic<UInt64>>
  private let ring: UnsafeRawPointer
  private var copy: UnsafeMutableRawBufferPointer
  /// Where the copied events begin, and where the last one ends.
  private var offsets: [Int] = []

  /// A copy of several events has at most so many bytes, and so many events.
  private static let copyBytes = 64 << 10
  private static let copyEvents = 512
  private static let pageBytes = Int(getpagesize())
  private static let headBytes = UInt64(MapLayout.recordHeaderBytes)

  /// - Parameters:
  ///   - region: stays the caller's, as `page`.
  ///   - page: of the readers of this user; nil: they are woken for each batch.
  ///   - byteCount: from the reply, as `generation`.
  package init(region: CInt, page: CInt?, byteCount: UInt64, generation: UInt64) throws(Damage) {
    let size = try Self.checkedSize(of: region)
    guard size == byteCount, size >= UInt64(MapLayout.headerBytes),
      size % UInt64(Self.pageBytes) == 0, size < 1 << 46
    else { throw Damage("the size of the region is not that of the reply") }
    if let page {
      guard try Self.checkedSize(of: page) >= UInt64(Self.pageBytes) else {
        throw Damage("the waiting page is smaller than a page")
      }
    }
    let bytes = unsafe mmap(nil, Int(size), PROT_READ, MAP_SHARED, region, 0)
    guard let bytes = unsafe bytes, unsafe bytes != MAP_FAILED else {
      throw Damage("the region cannot be mapped")
    }
    let header: Header
    do {
      header = try unsafe Header(UnsafeRawPointer(bytes), size: size, generation: generation)
    } catch {
      unsafe munmap(bytes, Int(size))
      throw error
    }
    unsafe waiting = unsafe page.flatMap { page in
      let mapped = unsafe mmap(nil, Self.pageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0)
      return unsafe mapped == MAP_FAILED ? nil : mapped
    }
    unsafe memory = unsafe UnsafeRawBufferPointer(start: bytes, count: Int(size))
    (self.generation, epoch, slots, ringBytes) = (
      generation, header.epoch, header.slots, header.ringBytes
    )
    unsafe index = unsafe (UnsafeRawPointer(bytes) + header.indexOffset).assumingMemoryBound(
      to: Atomic<UInt64>.self)
    unsafe ring = unsafe UnsafeRawPointer(bytes) + header.ringOffset
    unsafe copy = .allocate(byteCount: Self.copyBytes, alignment: 8)
  }

  deinit {
    unsafe munmap(UnsafeMutableRawPointer(mutating: memory.baseAddress), memory.count)
    if let waiting = unsafe waiting { unsafe munmap(waiting, Self.pageBytes) }
    unsafe copy.deallocate()
  }

  private static func checkedSize(of descriptor: CInt) throws(Damage) -> UInt64 {
    var status = stat()
    guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
      throw Damage("a descriptor of the map is no memory")
    }
    guard has_sealed_size(descriptor) != 0 else {
      throw Damage("a descriptor of the map is not sealed")
    }
    return UInt64(max(0, status.st_size))
  }

  /// The fields that never change.
  private struct Header {
    let epoch, slots, ringBytes: UInt64
    let indexOffset, ringOffset: Int

    init(_ bytes: UnsafeRawPointer, size: UInt64, generation: UInt64) throws(Damage) {
      func word(_ offset: Int) -> UInt64 {
        unsafe bytes.load(fromByteOffset: offset, as: UInt64.self)
      }
      func half(_ offset: Int) -> UInt32 {
        unsafe bytes.load(fromByteOffset: offset, as: UInt32.self)
      }
      guard word(MapLayout.Offset.magic) == MapLayout.magic else {
        throw Damage("the region is no mapped stream")
      }
      guard half(MapLayout.Offset.version) == MapLayout.version else {
        throw Damage("the layout of the region has another version")
      }
      guard half(MapLayout.Offset.headerBytes) == UInt32(MapLayout.headerBytes),
        word(MapLayout.Offset.regionBytes) == size, word(MapLayout.Offset.generation) == generation
      else { throw Damage("the header of the region is not that of the reply") }
      let (index, ring) = (word(MapLayout.Offset.indexOffset), word(MapLayout.Offset.ringOffset))
      (epoch, slots) = (word(MapLayout.Offset.epoch), word(MapLayout.Offset.slots))
      ringBytes = word(MapLayout.Offset.ringBytes)
      guard slots > 0, slots & (slots - 1) == 0, slots <= size / 8, index % 64 == 0, ring % 64 == 0,
        ringBytes >= RegionReader.headBytes, ringBytes <= size
      else { throw Damage("the layout of the region is impossible") }
      let head = UInt64(MapLayout.headerBytes)
      guard index >= head, ring >= head, index <= size - slots * 8, ring <= size - ringBytes else {
        throw Damage("the index or the ring lies outside of the region")
      }
      guard index >= ring + ringBytes || ring >= index + slots * 8 else {
        throw Damage("the index and the ring of the region overlap")
      }
      (indexOffset, ringOffset) = (Int(index), Int(ring))
    }
  }

  // MARK: Reading

  private func word(_ offset: Int) -> UnsafePointer<Atomic<UInt64>> {
    unsafe (memory.baseAddress! + offset).assumingMemoryBound(to: Atomic<UInt64>.self)
  }

  private func half(_ offset: Int) -> UnsafePointer<Atomic<UInt32>> {
    unsafe (memory.baseAddress! + offset).assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  /// The position of the next event.
  package var end: UInt64 { unsafe word(MapLayout.Offset.end).pointee.load(ordering: .acquiring) }

  /// Nil: damaged.
  package var state: MapState? {
    unsafe MapState(rawValue: half(MapLayout.Offset.state).pointee.load(ordering: .acquiring))
  }

  private var first: UInt64 {
    unsafe word(MapLayout.Offset.first).pointee.load(ordering: .acquiring)
  }

  /// Copies events from `position` on that lie side by side.
  package func copy(from position: UInt64, atMost most: Int) throws(Damage) -> Found {
    offsets.removeAll(keepingCapacity: true)
    let (end, oldest) = try Self.bounds(around: position, slots: slots) { (self.end, first) }
    if position == end { return .nothing }
    if position < oldest { return .overtaken(first: oldest, end: end) }
    let isWhole = copyRecords(from: position, atMost: min(UInt64(max(1, most)), end - position))
    atomicMemoryFence(ordering: .acquiring)
    guard unsafe word(MapLayout.Offset.first).pointee.load(ordering: .relaxed) <= position else {
      offsets.removeAll(keepingCapacity: true)
      return .again
    }
    guard isWhole, areWhole() else { throw Damage("the region is damaged") }
    return .events
  }

  /// Loads the end and the first position, in this order, until they fit a position.
  ///
  /// The writer may have published between the two loads, and rest now: damage is what stays as it is.
  static func bounds(
    around position: UInt64, slots: UInt64, load: () -> (end: UInt64, first: UInt64)
  ) throws(Damage) -> (end: UInt64, first: UInt64) {
    var bounds = load()
    while bounds.first > bounds.end || bounds.end - bounds.first > slots || position > bounds.end {
      let former = bounds
      bounds = load()
      guard bounds != former else { throw Damage("the region is damaged") }
    }
    return bounds
  }

  private func place(of position: UInt64) -> UInt64? {
    let place = unsafe (index + Int(truncatingIfNeeded: position & (slots - 1))).pointee.load(
      ordering: .relaxed)
    return place % 8 == 0 && place <= ringBytes - Self.headBytes ? place : nil
  }

  /// Those behind the end of the ring, and those that would make a long copy, are for the next call.
  /// - Returns: whether the events are in the ring.
  private func copyRecords(from position: UInt64, atMost most: UInt64) -> Bool {
    guard let start = place(of: position) else { return false }
    var last = start
    offsets.append(0)
    while offsets.count < min(Int(clamping: most), Self.copyEvents) {
      guard let next = place(of: position + UInt64(offsets.count)), next >= last + Self.headBytes,
        next - start <= UInt64(Self.copyBytes) - Self.headBytes
      else { break }
      offsets.append(Int(next - start))
      last = next
    }
    let size = unsafe UInt64((ring + Int(last)).load(as: UInt32.self))
    var byteCount = last - start + Self.headBytes + size
    let isInRing = size <= ringBytes - last - Self.headBytes
    if offsets.count > 1, !isInRing || byteCount > Self.copyBytes {
      // The end of the one before is then checked in the copy.
      byteCount = UInt64(offsets.removeLast())
    } else if !isInRing {
      return false
    }
    reserve(Int(byteCount))
    unsafe copy.baseAddress!.copyMemory(from: ring + Int(start), byteCount: Int(byteCount))
    offsets.append(Int(byteCount))
    return true
  }

  private func reserve(_ byteCount: Int) {
    guard unsafe byteCount > copy.count else { return }
    unsafe copy.deallocate()
    unsafe copy = .allocate(byteCount: byteCount, alignment: 8)
  }

  /// Whether each copied record ends before the next one.
  private func areWhole() -> Bool {
    for index in 0..<offsets.count - 1 {
      let room = offsets[index + 1] - offsets[index] - MapLayout.recordHeaderBytes
      guard room >= 0,
        unsafe Int(copy.load(fromByteOffset: offsets[index], as: UInt32.self)) <= room
      else { return false }
    }
    return true
  }

  /// The number of copied events.
  package var copiedCount: Int { max(0, offsets.count - 1) }

  /// A copied event.
  /// - Parameter index: below `copiedCount`.
  package func copied(_ index: Int) -> (id: UInt64, time: UInt64, data: [UInt8]) {
    let record = unsafe copy.baseAddress! + offsets[index]
    let data = unsafe UnsafeRawBufferPointer(
      start: record + MapLayout.recordHeaderBytes, count: Int(record.load(as: UInt32.self)))
    return unsafe (
      record.load(fromByteOffset: MapLayout.RecordOffset.id, as: UInt64.self),
      record.load(fromByteOffset: MapLayout.RecordOffset.time, as: UInt64.self), [UInt8](data)
    )
  }

  // MARK: Waiting

  /// Waits until there is more than `position`, another state than `live`, or a wake-up.
  package func wait(at position: UInt64, milliseconds: CInt) {
    if let waiting = unsafe waiting {
      unsafe waiting.assumingMemoryBound(to: Atomic<UInt32>.self).pointee.store(
        1, ordering: .sequentiallyConsistent)
    }
    let value = unsafe half(MapLayout.Offset.wake).pointee.load(ordering: .sequentiallyConsistent)
    // Taken by the writer, which may have woken everybody before this one sleeps. Later it changes `wake` first.
    guard
      unsafe waiting?.assumingMemoryBound(to: Atomic<UInt32>.self).pointee.load(ordering: .sequentiallyConsistent) != 0
    else { return }
    guard end == position, state == .live else { return }
    unsafe wait_while(half(MapLayout.Offset.wake), value, milliseconds)
  }

  /// Wakes all readers of the region, of which this one has news.
  package func wakeAll() { _ = unsafe wake_some(half(MapLayout.Offset.wake), .max) }
}
