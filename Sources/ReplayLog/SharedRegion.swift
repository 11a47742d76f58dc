import CChecksum
import CLinux
import Glibc
import StreamRuntime
import Synchronization

/// One memfd with the logs of many streams, each in a place of its own, whose size is a power of two. A log that grows
/// moves to a larger place. So descriptors and mappings are counted in regions, not in streams.
///
/// The region (host byte order):
///
///     0        u64 magic of a log, u32 version 5, u32 0, u64 bytes of the region, u32 checksum of the preceding fields
///     4096     a byte for each MiB: the binary logarithm of the size of its places; 0: it has none
///     1 MiB    places; each begins with the header of its log (see `LogLayout`), or has no log: then it is zero
///
/// A killed process leaves a prefix of its writes. A log's magic number is the last that is written of a new place, and
/// the first that is cleared of a former one, so that each place has a complete log or none. A kill between the two leaves
/// a log in both: the one with the higher generation has moved.
///
/// Thread-safe, except for the content of places in use, which the guards of their logs protect.
@safe public final class SharedRegion: Sendable {
  /// The place of a log.
  struct Place: Equatable, Sendable {
    let offset: Int
    /// The binary logarithm of its size.
    let bits: Int
    var byteCount: Int { 1 << bits }
  }

  let memory: MappedRegion
  /// Whether the next process gets the region: a log that nobody uses any more then stays, unless it was discarded.
  let isKept: Bool
  private let state: Locked<State>
  private let budget: LogBudget

  private static let version: UInt32 = 5
  private static let tableOffset = 4096
  private static let chunkBits = 20
  /// The sizes of places: 512 bytes to 1 MiB.
  static let placeBits = 9...chunkBits
  /// Address space; memory is used as places are. More than the memory of any machine that one daemon serves.
  private static let defaultByteCount = 64 << 30
  /// From this size on the memory of a former place returns to the system at once.
  private static let returnedBytes = 16 << 10

  /// A MiB of places of one size.
  private struct Chunk {
    /// 0: it has no places.
    var bits = 0
    var used = 0
    /// The places from here on were never used.
    var fresh = 0
    /// The former places.
    var free: [UInt16] = []

    var capacity: Int { 1 << (SharedRegion.chunkBits - bits) }
    var isFull: Bool { used == capacity }
  }

  private struct State {
    /// By number. The first has no places, but the region's header and table.
    var chunks = [Chunk()]
    /// Chunks without places.
    var unused: [Int] = []
    /// Chunks with room, by the size of their places.
    var open = [[Int]](repeating: [], count: SharedRegion.placeBits.upperBound + 1)
    var usedBytes = 0
  }

  /// A region without logs.
  ///
  /// - Parameter isKept: as above.
  /// - Returns: nil, with `errno` set, when descriptors or address space are exhausted.
  public convenience init?(name: String, isKept: Bool, budget: LogBudget) {
    self.init(name: name, byteCount: Self.defaultByteCount, isKept: isKept, budget: budget)
  }

  init?(name: String, byteCount: Int, isKept: Bool, budget: LogBudget = LogBudget()) {
    guard let memory = MappedRegion(name: "streamd:" + name, byteCount: byteCount) else { return nil }
    let header = unsafe memory.bytes.baseAddress!
    unsafe header.storeBytes(of: Self.version, toByteOffset: 8, as: UInt32.self)
    unsafe header.storeBytes(of: UInt64(byteCount), toByteOffset: 16, as: UInt64.self)
    unsafe header.storeBytes(of: LogLayout.magic, as: UInt64.self)
    unsafe header.storeBytes(of: crc32c(header, 24), toByteOffset: 24, as: UInt32.self)
    (self.memory, self.isKept, self.budget) = (memory, isKept, budget)
    state = Locked(State())
  }

  /// Whether a descriptor is that of a shared region of this version.
  public static func isShared(_ descriptor: CInt) -> Bool {
    var header = [UInt8](repeating: 0, count: 28)
    return unsafe pread(descriptor, &header, 28, 0) == 28
      && header.withUnsafeBytes {
        unsafe $0.load(as: UInt64.self) == LogLayout.magic && $0.load(fromByteOffset: 8, as: UInt32.self) == version
      }
  }

  /// A region that an earlier process left, and its logs, completely checked. Logs that are damaged are gone.
  ///
  /// - Parameters:
  ///   - descriptor: owned by the region from here on, also if the initializer throws.
  ///   - damaged: called with the reason for each log that is damaged.
  ///   - progress: called repeatedly during the check.
  public static func adopted(
    _ descriptor: CInt, budget: LogBudget = LogBudget(), damaged: (LogRefusal) -> Void,
    progress: () -> Void = {}
  ) throws(LogRefusal) -> (region: SharedRegion, logs: [LogRemains]) {
    guard let memory = MappedRegion(adopting: descriptor) else { throw LogRefusal("it is not the memory of logs") }
    let region = try SharedRegion(adopting: memory, budget)
    return (region, region.restore(damaged: damaged, progress: progress))
  }

  private init(adopting memory: MappedRegion, _ budget: LogBudget) throws(LogRefusal) {
    let bytes = unsafe memory.bytes
    guard bytes.count >= 1 << Self.chunkBits, unsafe bytes.load(as: UInt64.self) == LogLayout.magic,
      unsafe bytes.load(fromByteOffset: 8, as: UInt32.self) == Self.version,
      unsafe bytes.load(fromByteOffset: 16, as: UInt64.self) == UInt64(bytes.count),
      unsafe bytes.load(fromByteOffset: 24, as: UInt32.self) == crc32c(bytes.baseAddress, 24)
    else { throw LogRefusal("its header is damaged") }
    (self.memory, isKept, self.budget) = (memory, true, budget)
    state = Locked(State())
  }

  /// The region's descriptor; owned by the region.
  public var descriptor: CInt { memory.descriptor }

  /// Bytes of all places in use.
  public var usedBytes: Int { state.withLock { $0.usedBytes } }

  private var chunkCount: Int {
    unsafe min(memory.bytes.count >> Self.chunkBits, (1 << Self.chunkBits) - Self.tableOffset)
  }

  func bytes(of place: Place) -> UnsafeMutableRawBufferPointer {
    unsafe UnsafeMutableRawBufferPointer(rebasing: memory.bytes[place.offset..<place.offset + place.byteCount])
  }

  private func setBits(_ bits: Int, ofChunk number: Int) {
    unsafe memory.bytes.storeBytes(of: UInt8(bits), toByteOffset: Self.tableOffset + number, as: UInt8.self)
  }

  // MARK: Places

  /// A place of zeros.
  /// - Parameter isForced: whether the budget does not matter.
  /// - Returns: nil when the region is full, or the budget is used up.
  func allocate(bits: Int, isForced: Bool) -> Place? {
    guard budget.take(1 << bits, isForced: isForced) else { return nil }
    let place = state.withLock { state -> Place? in
      guard let number = state.open[bits].last ?? addChunk(bits: bits, to: &state) else { return nil }
      let index: Int
      if let former = state.chunks[number].free.popLast() {
        index = Int(former)
      } else {
        index = state.chunks[number].fresh
        state.chunks[number].fresh += 1
      }
      state.chunks[number].used += 1
      state.usedBytes += 1 << bits
      if state.chunks[number].isFull { state.open[bits].removeLast() }
      return Place(offset: number << Self.chunkBits + index << bits, bits: bits)
    }
    if place == nil {
      budget.give(1 << bits)
      budget.refuse()
    }
    return place
  }

  private func addChunk(bits: Int, to state: inout State) -> Int? {
    let number: Int
    if let unused = state.unused.popLast() {
      number = unused
    } else {
      guard state.chunks.count < chunkCount else { return nil }
      number = state.chunks.count
      state.chunks.append(Chunk())
    }
    state.chunks[number] = Chunk(bits: bits)
    setBits(bits, ofChunk: number)
    state.open[bits].append(number)
    return number
  }

  func free(_ place: Place) {
    clear(place)
    budget.give(place.byteCount)
    let emptied = state.withLock { state -> Int? in
      let number = place.offset >> Self.chunkBits
      let wasFull = state.chunks[number].isFull
      state.chunks[number].used -= 1
      state.usedBytes -= place.byteCount
      // The last chunk with room stays, so that one log after the other does not make and remove it.
      if state.chunks[number].used == 0, state.open[place.bits].contains(where: { $0 != number }) {
        if !wasFull { state.open[place.bits].removeAll { $0 == number } }
        return number
      }
      state.chunks[number].free.append(UInt16((place.offset - number << Self.chunkBits) >> place.bits))
      if wasFull { state.open[place.bits].append(number) }
      return nil
    }
    guard let emptied else { return }
    clear(Place(offset: emptied << Self.chunkBits, bits: Self.chunkBits))
    setBits(0, ofChunk: emptied)
    state.withLock { $0.unused.append(emptied) }
  }

  private func clear(_ place: Place) {
    let bytes = unsafe bytes(of: place)
    // The memory of places that were never used is not needed for zeros.
    if place.byteCount >= Self.returnedBytes, unsafe madvise(bytes.baseAddress, bytes.count, MADV_REMOVE) == 0 {
      return
    }
    unsafe bytes.initializeMemory(as: UInt8.self, repeating: 0)
  }

  private func isClear(_ place: Place) -> Bool {
    let bytes = unsafe bytes(of: place)
    let start = bytes.baseAddress!
    return unsafe bytes.load(as: UInt64.self) == 0 && memcmp(start, start + 8, bytes.count - 8) == 0
  }

  // MARK: Recovery

  private func restore(damaged: (LogRefusal) -> Void, progress: () -> Void) -> [LogRemains] {
    var newest: [String: LogRemains] = [:]
    for number in 1..<max(1, chunkCount) {
      let bits = unsafe Int(memory.bytes.load(fromByteOffset: Self.tableOffset + number, as: UInt8.self))
      guard bits > 0 else { continue }
      progress()
      state.withLock { state in
        while state.chunks.count < number { state.unused.append(addUnused(to: &state)) }
        state.chunks.append(Chunk())
      }
      guard Self.placeBits.contains(bits) else {
        damaged(LogRefusal("the size of its places is damaged"))
        clear(Place(offset: number << Self.chunkBits, bits: Self.chunkBits))
        setBits(0, ofChunk: number)
        state.withLock { $0.unused.append(number) }
        continue
      }
      for remains in restore(number, bits, damaged) {
        guard let other = newest[remains.stream] else {
          newest[remains.stream] = remains
          continue
        }
        // A copy in progress has a lower end; a log that has moved has the same one.
        let isNewer = (remains.endPosition, remains.generation) > (other.endPosition, other.generation)
        (isNewer ? other : remains).discard()
        if isNewer { newest[remains.stream] = remains }
      }
    }
    return Array(newest.values)
  }

  private func addUnused(to state: inout State) -> Int {
    state.chunks.append(Chunk())
    return state.chunks.count - 1
  }

  /// The logs of a chunk. All its other places are free.
  private func restore(_ number: Int, _ bits: Int, _ damaged: (LogRefusal) -> Void) -> [LogRemains] {
    var chunk = Chunk(bits: bits)
    chunk.fresh = chunk.capacity
    var logs: [LogRemains] = []
    for index in (0..<chunk.capacity).reversed() {
      let place = Place(offset: number << Self.chunkBits + index << bits, bits: bits)
      guard unsafe bytes(of: place).load(as: UInt64.self) != 0 else {
        // It may have half of a log: the process was killed while it made or removed one. A look at a large place would
        // give it memory.
        if place.byteCount >= Self.returnedBytes || !isClear(place) { clear(place) }
        chunk.free.append(UInt16(index))
        continue
      }
      do {
        logs.append(try LogRemains(in: LogPlace(self, place)))
        chunk.used += 1
      } catch {
        damaged(error)
        clear(place)
        chunk.free.append(UInt16(index))
      }
    }
    budget.add(chunk.used << bits)
    state.withLock { state in
      state.chunks[number] = chunk
      state.usedBytes += chunk.used << bits
      if chunk.used == 0 {
        state.unused.append(number)
      } else if !chunk.isFull {
        state.open[bits].append(number)
      }
    }
    if chunk.used == 0 {
      clear(Place(offset: number << Self.chunkBits, bits: Self.chunkBits))
      setBits(0, ofChunk: number)
    }
    return logs
  }
}

/// The place of one log, as long as the log is used.
@safe final class LogPlace: Sendable {
  let region: SharedRegion
  private struct State {
    var place: SharedRegion.Place
    var isDiscarded = false
  }
  private let state: Locked<State>

  init(_ region: SharedRegion, _ place: SharedRegion.Place) {
    self.region = region
    state = Locked(State(place: place))
  }

  var place: SharedRegion.Place { state.withLock { $0.place } }

  var bytes: UnsafeMutableRawBufferPointer { unsafe region.bytes(of: place) }

  /// The log is complete in another place. Its former place is free.
  func move(to place: SharedRegion.Place) {
    let former = state.withLock { state in
      defer { state.place = place }
      if state.isDiscarded { clear(place) }
      return state.place
    }
    clear(former)
    region.free(former)
  }

  /// The next process does not find the log any more, wherever it moves.
  func discard() {
    state.withLock { state in
      guard !state.isDiscarded else { return }
      state.isDiscarded = true
      clear(state.place)
    }
  }

  private func clear(_ place: SharedRegion.Place) {
    let magic = unsafe region.bytes(of: place).baseAddress!.assumingMemoryBound(to: Atomic<UInt64>.self)
    unsafe magic.pointee.store(0, ordering: .sequentiallyConsistent)
  }

  deinit {
    let (place, isDiscarded) = state.withLock { ($0.place, $0.isDiscarded) }
    if !region.isKept || isDiscarded { region.free(place) }
  }
}
