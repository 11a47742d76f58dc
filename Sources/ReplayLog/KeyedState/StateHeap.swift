import Glibc

/// Anonymous memory of a fixed size, initially zero. Pages that were never written take no memory.
@safe final class LazyMemory {
  let start: UnsafeMutableRawPointer
  private let byteCount: Int

  /// - Returns: nil, with `errno` set, when address space is exhausted.
  init?(byteCount: Int) {
    let byteCount = max(byteCount, 1)
    let mapped = unsafe mmap(
      nil, byteCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    guard unsafe mapped != MAP_FAILED, let mapped = unsafe mapped else { return nil }
    unsafe start = unsafe mapped
    self.byteCount = byteCount
  }

  deinit { unsafe munmap(start, byteCount) }
}

/// Allocates blocks in a piece of memory, in units of 16 bytes. Adjacent free blocks become one at once.
///
/// Two-level segregated fit: a list of free blocks for each size up to 31 units, and 32 lists for each power of two
/// above; bits say which lists have blocks. Process memory records which units begin or end a free block, so the bytes
/// of allocated blocks are never interpreted. A free block begins with its size and its neighbours in the list (u32
/// each), and ends with its size.
///
/// - Complexity: O(1) for each operation.
@safe struct StateHeap {
  static let unitBytes = 16
  /// Offsets are u32, in units, plus 1.
  static let maximumByteCount = (Int(UInt32.max) - 1) * unitBytes
  private static let sublists = 32

  /// The units that are free.
  private(set) var freeUnits = 0
  private let memory: UnsafeMutableRawPointer
  private let units: Int
  /// A bit for each unit that begins a free block; after them, a bit for each one that ends a free block.
  private let bits: LazyMemory
  private let starts: UnsafeMutablePointer<UInt64>
  private let ends: UnsafeMutablePointer<UInt64>
  /// Bit n: some list of level n has blocks.
  private var levels: UInt64 = 0
  /// For each level, bit n: its list n has blocks.
  private var lists = [UInt32](repeating: 0, count: 32)
  /// The first block of each list, plus 1.
  private var heads = [UInt32](repeating: 0, count: 32 * sublists)

  /// Everything is allocated initially.
  ///
  /// - Parameters:
  ///   - memory: stays valid as long as the heap is used.
  ///   - byteCount: at most `maximumByteCount`.
  /// - Returns: nil, with `errno` set, when address space is exhausted.
  init?(_ memory: UnsafeMutableRawPointer, byteCount: Int) {
    unsafe self.memory = unsafe memory
    units = byteCount / Self.unitBytes
    let words = units / 64 + 1
    guard let bits = LazyMemory(byteCount: words * 16) else { return nil }
    self.bits = bits
    unsafe starts = unsafe bits.start.assumingMemoryBound(to: UInt64.self)
    unsafe ends = unsafe starts + words
  }

  /// - Returns: the block's offset in units; nil if no free block has the size.
  mutating func allocate(_ size: Int) -> Int? {
    guard size > 0, let offset = free(atLeast: size) else { return nil }
    let whole = take(offset)
    if whole > size { insert(offset + size, whole - size) }
    return offset
  }

  /// A free block that is large compared with the others; nil: there is none.
  mutating func allocateLarge(atMost size: Int) -> (offset: Int, size: Int)? {
    guard levels != 0 else { return nil }
    let level = 63 - levels.leadingZeroBitCount
    let list = 31 - lists[level].leadingZeroBitCount
    let offset = Int(heads[level * Self.sublists + list]) - 1
    let whole = take(offset)
    if whole > size { insert(offset + size, whole - size) }
    return (offset, min(whole, size))
  }

  /// Frees a block, or a part of one.
  mutating func free(_ offset: Int, _ size: Int) {
    var (offset, size) = (offset, size)
    if offset + size < units, unsafe isSet(starts, offset + size) { size += take(offset + size) }
    if offset > 0, unsafe isSet(ends, offset - 1) {
      let before = Int(word(offset - 1, 3))
      offset -= before
      size += take(offset)
    }
    insert(offset, size)
  }

  /// The list of the blocks of a size: the largest one whose blocks may be that small.
  private static func place(_ size: Int) -> (level: Int, list: Int) {
    guard size >= sublists else { return (0, size) }
    let exponent = Int.bitWidth - 1 - size.leadingZeroBitCount
    return (exponent - 4, size >> (exponent - 5) & (sublists - 1))
  }

  private func free(atLeast size: Int) -> Int? {
    // The size is rounded up: every block of that list, and of the later ones, is large enough.
    let exponent = Int.bitWidth - 1 - size.leadingZeroBitCount
    var (level, list) = Self.place(size < Self.sublists ? size : size + (1 << (exponent - 5)) - 1)
    if level < 32 {
      var rest = lists[level] & (UInt32.max << UInt32(list))
      if rest == 0 {
        let later = level < 31 ? levels & (UInt64.max << UInt64(level + 1)) : 0
        level = later == 0 ? 32 : later.trailingZeroBitCount
        rest = later == 0 ? 0 : lists[level]
      }
      if rest != 0 {
        list = rest.trailingZeroBitCount
        return Int(heads[level * Self.sublists + list]) - 1
      }
    }
    // The first block of its own list may be large enough, too.
    let own = Self.place(size)
    let head = Int(heads[own.level * Self.sublists + own.list]) - 1
    return head >= 0 && Int(word(head, 0)) >= size ? head : nil
  }

  private mutating func insert(_ offset: Int, _ size: Int) {
    let (level, list) = Self.place(size)
    let index = level * Self.sublists + list
    let next = heads[index]
    setWord(offset, 0, UInt32(size))
    setWord(offset, 1, 0)
    setWord(offset, 2, next)
    setWord(offset + size - 1, 3, UInt32(size))
    if next != 0 { setWord(Int(next) - 1, 1, UInt32(offset) + 1) }
    heads[index] = UInt32(offset) + 1
    lists[level] |= 1 << UInt32(list)
    levels |= 1 << UInt64(level)
    unsafe flip(starts, offset)
    unsafe flip(ends, offset + size - 1)
    freeUnits += size
  }

  /// Removes a free block from its list.
  /// - Returns: its size.
  private mutating func take(_ offset: Int) -> Int {
    let (size, former, next) = (Int(word(offset, 0)), word(offset, 1), word(offset, 2))
    if next != 0 { setWord(Int(next) - 1, 1, former) }
    if former != 0 {
      setWord(Int(former) - 1, 2, next)
    } else {
      let (level, list) = Self.place(size)
      heads[level * Self.sublists + list] = next
      if next == 0 {
        lists[level] &= ~(1 << UInt32(list))
        if lists[level] == 0 { levels &= ~(1 << UInt64(level)) }
      }
    }
    unsafe flip(starts, offset)
    unsafe flip(ends, offset + size - 1)
    freeUnits -= size
    return size
  }

  private func word(_ unit: Int, _ index: Int) -> UInt32 {
    unsafe memory.load(fromByteOffset: unit * Self.unitBytes + index * 4, as: UInt32.self)
  }

  private func setWord(_ unit: Int, _ index: Int, _ value: UInt32) {
    unsafe memory.storeBytes(of: value, toByteOffset: unit * Self.unitBytes + index * 4, as: UInt32.self)
  }

  private func isSet(_ bits: UnsafeMutablePointer<UInt64>, _ unit: Int) -> Bool {
    unsafe bits[unit >> 6] >> UInt64(unit & 63) & 1 != 0
  }

  private func flip(_ bits: UnsafeMutablePointer<UInt64>, _ unit: Int) {
    unsafe bits[unit >> 6] ^= 1 << UInt64(unit & 63)
  }
}
