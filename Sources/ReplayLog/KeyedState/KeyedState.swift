import CChecksum
import CLinux
import Events
import Glibc
import Synchronization

/// The newest event of each key of a stream, in an area of its log's region: see `StateArea` for what is stored, and by
/// which order of writes it survives a kill.
///
/// Each version of a key is a record of its own. An older version is kept for walks that began before it was replaced,
/// and for the recovery. It is freed once the version that replaced it is below the log's committed end, the end that
/// is on the disk, and the oldest end position of any walk. Without space for a new version it is freed before that: a
/// walk has then fallen behind, and after a power failure the state is incomplete.
///
/// In process memory there is a node of 24 bytes for each version, in lists by key and by id, and the free space.
/// Part of an `EventLog`, whose guard protects it.
@safe public final class KeyedState {
  /// Why a state is not served: it lacks a key's newest event.
  public struct Incompleteness: Equatable, Sendable {
    /// Why an event was left out.
    public enum Cause: UInt64, Sendable {
      /// There are more than `Settings.keys` keys.
      case keys = 1
      /// Their events exceed `Settings.bytes`.
      case bytes = 2
      /// Events were lost by damage or a power failure.
      case damage = 3
    }

    /// The first event that was left out.
    public let since: UInt64
    /// Why it was left out.
    public let cause: Cause

    /// Creates a description of the first event that was left out.
    public init(since: UInt64, cause: Cause) { (self.since, self.cause) = (since, cause) }
  }

  /// The keys of a state, and its maximum content. Equal if all but `key` is equal.
  @safe public struct Settings: Equatable, Sendable {
    /// Maximum number of keys, 1 to 1 billion.
    public let keys: Int
    /// Maximum bytes of the keys' newest events: each takes its data, its key and 32 bytes, rounded up to 16; at least
    /// 4,096, at most 32 GiB.
    public let bytes: Int
    /// The digest of the key's and the tombstone's definition: a state with another one begins anew.
    public let keyDigest: UInt64
    /// Returns the key of a stored event. Called when the log is opened, for events that the state must consider again.
    /// nil: only the batches have the keys.
    public let key: (@Sendable (_ event: UnsafeRawBufferPointer) -> EventKey?)?

    /// Values out of range become the nearest ones.
    public init(
      keys: Int = 100_000, bytes: Int = 64 << 20, keyDigest: UInt64 = 0,
      key: (@Sendable (_ event: UnsafeRawBufferPointer) -> EventKey?)? = nil
    ) {
      self.keys = min(max(1, keys), 1_000_000_000)
      self.bytes = min(max(4096, bytes), 32 << 30) & ~15
      unsafe (self.keyDigest, self.key) = unsafe (keyDigest, key)
    }

    /// Compares all but `key`.
    public static func == (one: Settings, other: Settings) -> Bool {
      one.keys == other.keys && one.bytes == other.bytes && one.keyDigest == other.keyDigest
    }

    /// Older versions have as many entries as keys have, and 1,024 more. The first entry is not used.
    var entries: Int { keys * 2 + 1024 }
    /// The additional half is for older versions, and for the version that replaces another.
    var heapBytes: Int { (bytes + bytes / 2) & ~15 }
    /// Bytes of the area.
    var areaBytes: Int { StateArea.byteCount(entries: entries, heapBytes: heapBytes) }
  }

  /// The first event of a state, and the definition of its keys.
  public struct Origin: Equatable, Sendable {
    /// The digest of its keys' definition.
    public var keyDigest: UInt64
    /// The id of the first event that was considered, or the log's end before that.
    public var begin: UInt64

    /// Creates an origin.
    public init(keyDigest: UInt64 = 0, begin: UInt64 = 0) { (self.keyDigest, self.begin) = (keyDigest, begin) }
  }

  /// A version of a key.
  struct Node {
    /// The place of the record in units, plus 1; 0: the node is unused.
    var offset: UInt32
    /// 28 bits of the key's hash, and flags.
    var hash: UInt32
    /// The next node of the bucket, if the version is the newest. Otherwise the version that replaced it; in an unused
    /// node the next unused one.
    var link: UInt32
    /// The version that this one replaced, until that is freed.
    var older: UInt32
    /// The neighbours by id.
    var former, next: UInt32

    static let isReplaced: UInt32 = 1, isTombstone: UInt32 = 2, hasWalk: UInt32 = 4
    static let hashMask: UInt32 = ~15

    func has(_ flag: UInt32) -> Bool { hash & flag != 0 }
  }

  /// Maximum number of keys.
  public let maximumCount: Int
  /// Maximum of `byteCount`.
  public let maximumByteCount: Int
  /// The number of keys.
  public internal(set) var count = 0
  /// Bytes of the keys' newest events, as `Settings.bytes` counts them.
  public internal(set) var byteCount = 0
  /// The sum of the digests of the keys' records.
  var digest: UInt64 = 0
  /// What is stored in the region's note.
  var description: StateDescription
  /// The state is that of the events with lower ids. It exceeds the log's end only if a fleet sends lost events again.
  var end: UInt64
  /// A walk with a lower end has fallen behind: a version that it needs may be gone.
  var horizon: UInt64 = 0
  /// A walk with a lower begin cannot be renewed: a later tombstone may be gone.
  var tombstoneHorizon: UInt64 = 1
  /// An earlier process may have freed tombstones with lower ids.
  var processStart: UInt64 = 0

  let area: StateArea
  let hasChecksums: Bool
  var descriptionNote: LogNote
  var marks: StateMarks?
  var heap: StateHeap
  let nodeMemory: LazyMemory
  /// Nodes have the numbers of the table's entries; the first node is the head of the list by id.
  let nodes: UnsafeMutablePointer<Node>
  /// The first unused node, and the end of the nodes that were ever used.
  var unused: UInt32 = 0
  var nodesEnd: UInt32 = 1
  /// The first node of each bucket. There are as many buckets as versions in them, so that one more divides one bucket.
  let bucketMemory: LazyMemory
  let buckets: UnsafeMutablePointer<UInt32>
  var bucketCount: UInt32 = 64
  var hashedCount: UInt32 = 0
  /// The first version whose older one may exist.
  var cursor: UInt32 = 0
  /// The first version that may be a tombstone whose older version's cleared entry is not on the disk.
  var tombstoneCursor: UInt32 = 0
  var committedEnd: UInt64
  /// Where walks stand, by version.
  var places: [UInt32: StatePlace] = [:]
  /// The ends of the walks that have not fallen behind: versions that were replaced later are kept.
  var walkEnds = CountedIDs()
  /// The begins of the walks that can be renewed: later tombstones are kept.
  var walkBegins = CountedIDs()
  /// The walks of another state that may continue in this one: until then their lowest begin is among `walkBegins`.
  var expectedWalks: (count: Int, begin: UInt64) = (0, 0)
  var durable: StateMark?
  /// Whether the note in the region describes this state.
  var isInUse = false
  /// The new versions since the last commit.
  var newCount = 0
  /// A copy of a record in pieces, for one reader.
  var room = unsafe UnsafeMutableRawBufferPointer(start: nil, count: 0)

  /// Creates a state without versions and without free space.
  /// - Returns: nil, with `errno` set, when address space is exhausted.
  init?(
    _ area: StateArea, _ description: StateDescription, keys: Int = .max, bytes: Int = .max, hasChecksums: Bool,
    end: UInt64
  ) {
    guard let heap = unsafe StateHeap(area.heap, byteCount: area.heapBytes),
      let nodeMemory = LazyMemory(byteCount: area.entries * MemoryLayout<Node>.stride),
      let bucketMemory = LazyMemory(byteCount: (area.entries + 64) * 4)
    else { return nil }
    (self.area, self.description, self.hasChecksums) = (area, description, hasChecksums)
    (maximumCount, maximumByteCount) = (keys, bytes)
    (self.heap, self.nodeMemory, self.bucketMemory) = (heap, nodeMemory, bucketMemory)
    unsafe nodes = unsafe nodeMemory.start.assumingMemoryBound(to: Node.self)
    unsafe buckets = unsafe bucketMemory.start.assumingMemoryBound(to: UInt32.self)
    (self.end, committedEnd) = (end, end)
    descriptionNote = area.description
  }

  deinit { unsafe room.deallocate() }

  /// Whether the state has the newest event of each key.
  public var isComplete: Bool { incompleteness == nil }

  /// Two states of a stream with equal origins are the same state at two end positions.
  public var origin: Origin { Origin(keyDigest: description.keyDigest, begin: description.begin) }

  /// Why the state is incomplete; nil: it is complete.
  public var incompleteness: Incompleteness? {
    description.incompleteness
      ?? (committedEnd < end ? Incompleteness(since: committedEnd, cause: .damage) : nil)
  }

  // MARK: Reading

  /// The newest event of a key.
  /// - Returns: its record, valid until the next append or the next record that is read from the state; nil if there is none.
  public func newest(_ key: UnsafeRawBufferPointer) -> StateEvent? {
    let node = unsafe find(key, hash(key)).node
    guard node != 0, unsafe !nodes[Int(node)].has(Node.isTombstone) else { return nil }
    return record(node)
  }

  func id(_ node: UInt32) -> UInt64 { unsafe area.record(Int(nodes[Int(node)].offset) - 1).id }

  func record(_ node: UInt32) -> StateEvent { StateEvent(self, unsafe Int(nodes[Int(node)].offset) - 1) }

  /// A copy of the content of a record in pieces, valid until the next call.
  ///
  /// - Parameter part: the part that is copied besides the first `head` bytes; the rest is undefined.
  @inline(never) func collected(_ unit: Int, head: Int = 0, part: Range<Int>? = nil) -> UnsafeRawBufferPointer {
    let count = area.record(unit).contentBytes
    if unsafe room.count < count {
      unsafe room.deallocate()
      unsafe room = .allocate(byteCount: count, alignment: 8)
    }
    var start = 0
    _ = unsafe area.forEachPiece(of: unit) { _, _, content in
      let piece = start..<start + content.count
      for wanted in [0..<head, part ?? piece] {
        let range = wanted.clamped(to: piece)
        guard !range.isEmpty else { continue }
        unsafe UnsafeMutableRawBufferPointer(rebasing: room[range]).copyMemory(
          from: UnsafeRawBufferPointer(rebasing: content[range.lowerBound - start..<range.upperBound - start]))
      }
      start = piece.upperBound
    }
    return unsafe UnsafeRawBufferPointer(rebasing: room[..<count])
  }

  // MARK: Keys

  func hash(_ key: UnsafeRawBufferPointer) -> UInt32 {
    var hasher = Hasher()
    unsafe hasher.combine(bytes: key)
    return UInt32(truncatingIfNeeded: hasher.finalize()) & Node.hashMask
  }

  func bucket(_ hash: UInt32) -> Int {
    let mask = UInt32.max >> UInt32((bucketCount - 1).leadingZeroBitCount)
    let index = hash >> 4 & mask
    return Int(index < bucketCount ? index : index & mask >> 1)
  }

  /// The newest version of a key, which can be a tombstone, and the one before it in its bucket; 0: none.
  func find(_ key: UnsafeRawBufferPointer, _ hash: UInt32) -> (node: UInt32, former: UInt32) {
    var former: UInt32 = 0
    var node = unsafe buckets[bucket(hash)]
    while node != 0 {
      let version = unsafe nodes[Int(node)]
      if version.hash & Node.hashMask == hash, unsafe has(version, key) { break }
      (former, node) = (node, version.link)
    }
    return (node, former)
  }

  func has(_ version: Node, _ key: UnsafeRawBufferPointer) -> Bool {
    let unit = Int(version.offset) - 1
    let record = area.record(unit)
    guard record.keyBytes == key.count else { return false }
    if record.isDivided {
      return unsafe collected(unit).prefix(key.count).elementsEqual(key)
    }
    return unsafe memcmp(record.key.baseAddress!, key.baseAddress!, key.count) == 0
  }

  func withKey<Result>(_ unit: Int, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
    let record = area.record(unit)
    guard record.isDivided else { return unsafe body(record.key) }
    // `body` may read another record in pieces.
    let key = unsafe Array(collected(unit).prefix(record.keyBytes))
    return unsafe key.withUnsafeBytes { unsafe body($0) }
  }

  func replaceInBucket(_ node: UInt32, _ former: UInt32, by new: UInt32) {
    if former != 0 {
      unsafe nodes[Int(former)].link = new
    } else {
      unsafe buckets[bucket(nodes[Int(node)].hash)] = new
    }
  }

  /// Adds a node to its bucket, and divides one where there are more versions than buckets.
  func hashIn(_ node: UInt32) {
    let bucket = unsafe bucket(nodes[Int(node)].hash)
    unsafe nodes[Int(node)].link = unsafe buckets[bucket]
    unsafe buckets[bucket] = node
    hashedCount += 1
    guard hashedCount > bucketCount, bucketCount < UInt32.max >> 4 else { return }
    let divided = Int(bucketCount & (UInt32.max >> UInt32(bucketCount.leadingZeroBitCount + 1)))
    bucketCount += 1
    var rest = unsafe buckets[divided]
    unsafe buckets[divided] = 0
    while rest != 0 {
      let next = unsafe nodes[Int(rest)].link
      let bucket = unsafe self.bucket(nodes[Int(rest)].hash)
      unsafe nodes[Int(rest)].link = unsafe buckets[bucket]
      unsafe buckets[bucket] = rest
      rest = next
    }
  }
}

/// An event of a state, during a visit: id and time, 8 bytes each, then the data. Its memory is valid until another record is
/// read.
@safe public struct StateEvent {
  private let state: KeyedState
  private let unit: Int
  /// The whole record; nil: the heap has it in several pieces.
  public let undivided: UnsafeRawBufferPointer?

  init(_ state: KeyedState, _ unit: Int) {
    (self.state, self.unit) = (state, unit)
    let record = state.area.record(unit)
    unsafe undivided =
      unsafe record.isDivided
      ? nil
      : UnsafeRawBufferPointer(
        start: record.content + record.keyBytes, count: EventLog.stampBytes + record.dataBytes)
  }

  /// The size of the record, which includes id and time.
  public var byteCount: Int { EventLog.stampBytes + state.area.record(unit).dataBytes }

  /// The whole record; copied, if it is divided.
  /// - Complexity: O(n) if it is divided, else O(1).
  public var whole: UnsafeRawBufferPointer { unsafe part(0..<byteCount) }

  /// The whole record, of which only id, time and these bytes may be read.
  /// - Complexity: O(bytes + pieces) if it is divided, else O(1).
  public func part(_ range: Range<Int>) -> UnsafeRawBufferPointer {
    if let undivided = unsafe undivided { return unsafe undivided }
    let start = state.area.record(unit).keyBytes
    let collected = unsafe state.collected(
      unit, head: start + EventLog.stampBytes, part: start + range.lowerBound..<start + range.upperBound)
    return unsafe UnsafeRawBufferPointer(rebasing: collected[start...])
  }
}
