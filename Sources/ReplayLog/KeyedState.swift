import CChecksum
import CLinux
import Events
import Glibc
import Synchronization

/// The newest event of each key of a stream, in an area of its log's region: see `StateArea` for what is stored, and by
/// which order of writes it survives a kill.
///
/// Each version of a key is a record of its own. The others belong to a walk that began before they were replaced, or to
/// the recovery: they are freed once the version that replaced them is below the log's committed end, the end that is on
/// the disk, and the end as of which any walk reads. Without space for a new version they are freed before that: a walk
/// has then fallen behind, and after a power failure the state is incomplete.
///
/// In process memory there is a node of 24 bytes for each version, in lists by key and by id, and the free space.
/// Part of an `EventLog`, whose guard protects it.
@safe public final class KeyedState {
  /// Why a state is not served: it lacks a key's newest event.
  public struct Incompleteness: Equatable, Sendable {
    /// What the state has no room for, or what was lost.
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

    /// Creates a description of what is left out.
    public init(since: UInt64, cause: Cause) { (self.since, self.cause) = (since, cause) }
  }

  /// What a state is of, and its maximum content. Equal if all but `key` is equal.
  @safe public struct Settings: Equatable, Sendable {
    /// Maximum number of keys, 1 to 1 billion.
    public let keys: Int
    /// Maximum bytes of the keys' newest events: each takes its data, its key and 32 bytes, rounded up to 16; at least
    /// 4,096, at most 32 GiB.
    public let bytes: Int
    /// Of the definition of the key and of the tombstone: a state with another one begins anew.
    public let keyDigest: UInt64
    /// The key of a stored event, which the log calls when it is opened, for events that the state must consider again;
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

    /// Entries for as many older versions as there are keys, and for the first entry, which is not used.
    var entries: Int { keys * 2 + 1024 }
    /// A half more, for older versions and for the version that replaces another.
    var heapBytes: Int { (bytes + bytes / 2) & ~15 }
    /// Bytes of the area.
    var areaBytes: Int { StateArea.byteCount(entries: entries, heapBytes: heapBytes) }
  }

  /// What a state is made from.
  public struct Origin: Equatable, Sendable {
    /// Of the definition of its keys.
    public var keyDigest: UInt64
    /// The id of the first event that was considered, or the log's end before that.
    public var begin: UInt64

    /// Creates a description of what a state is made from.
    public init(keyDigest: UInt64 = 0, begin: UInt64 = 0) { (self.keyDigest, self.begin) = (keyDigest, begin) }
  }

  /// A version of a key.
  struct Node {
    /// Of the record in units, plus 1; 0: the node is unused.
    var offset: UInt32
    /// 28 bits of the key's hash, and flags.
    var hash: UInt32
    /// Of the newest version: the next node of the bucket. Of another one: the version that replaced it. Of an unused
    /// one: the next unused node.
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
  public private(set) var count = 0
  /// Bytes of the keys' newest events, as `Settings.bytes` counts them.
  public private(set) var byteCount = 0
  /// The sum of the digests of the keys' records.
  private(set) var digest: UInt64 = 0
  /// What is stored in the region's note.
  private(set) var description: StateDescription
  /// The state is that of the events below. Above the log's end only where a fleet sends lost events again.
  private(set) var end: UInt64
  /// A walk as of an end below has fallen behind: a version that it needs may be gone.
  private(set) var horizon: UInt64 = 0
  /// A walk that began as of an end below cannot be renewed: a tombstone after that may be gone.
  private(set) var tombstoneHorizon: UInt64 = 1
  /// An earlier process may have freed tombstones below.
  private var processStart: UInt64 = 0

  let area: StateArea
  private let hasChecksums: Bool
  private var descriptionNote: LogNote
  private(set) var marks: StateMarks?
  private var heap: StateHeap
  private let nodeMemory: LazyMemory
  /// Its numbers are those of the table's entries; the first one is the head of the list by id.
  private let nodes: UnsafeMutablePointer<Node>
  /// Unused nodes, and the end of those that were ever used.
  private var unused: UInt32 = 0
  private var nodesEnd: UInt32 = 1
  /// The first node of each bucket. There are as many buckets as versions in them, so that one more divides one bucket.
  private let bucketMemory: LazyMemory
  private let buckets: UnsafeMutablePointer<UInt32>
  private var bucketCount: UInt32 = 64
  private var hashedCount: UInt32 = 0
  /// The first version whose older one may exist.
  private var cursor: UInt32 = 0
  /// The first version that may be a tombstone whose older version's cleared entry is not on the disk.
  private var tombstoneCursor: UInt32 = 0
  private var walks: [StateWalk] = []
  private var committedEnd: UInt64
  /// The lowest end as of which a walk reads.
  private var lowestWalk = UInt64.max
  /// The lowest end as of which a walk began that can be renewed: later tombstones are kept.
  private var lowestBegin = UInt64.max
  private(set) var durable: StateMark?
  /// Whether the note in the region is that of this state.
  private var isInUse = false
  /// The new versions since the last commit.
  private var newCount = 0
  /// A copy of a record that is stored in pieces, for one reader.
  private var room = unsafe UnsafeMutableRawBufferPointer(start: nil, count: 0)

  /// Without any version, and without free space.
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

  /// Two states of a stream with one origin are the same one, as of two ends.
  public var origin: Origin { Origin(keyDigest: description.keyDigest, begin: description.begin) }

  /// Why the state is incomplete; nil: it is complete.
  public var incompleteness: Incompleteness? {
    description.incompleteness
      ?? (committedEnd < end ? Incompleteness(since: committedEnd, cause: .damage) : nil)
  }

  // MARK: Reading

  /// The newest event of a key.
  /// - Returns: its record as `EventLog.record(at:)` has it, valid until the next append or the next record that is read
  ///   from the state; nil if there is none.
  public func newest(_ key: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
    let node = unsafe find(key, hash(key)).node
    guard node != 0, unsafe !nodes[Int(node)].has(Node.isTombstone) else { return nil }
    return unsafe record(node)
  }

  /// Begins to read the state as of an end: of the events below it. Versions that the walk needs are kept as long as
  /// there is space, until `finish`.
  ///
  /// - Parameters:
  ///   - position: the first id that is visited.
  ///   - end: the log's `endPosition`, or an earlier one; the walk has then fallen behind if versions are gone.
  ///   - begin: of a walk that this one continues; nil: `end`.
  public func walk(from position: UInt64 = 0, asOf end: UInt64, begin: UInt64? = nil) -> StateWalk {
    let walk = StateWalk(self, position: position, end: end, begin: begin ?? end, index: walks.count)
    walks.append(walk)
    if end >= horizon { lowestWalk = min(lowestWalk, end) }
    if canRenew(walk) { lowestBegin = min(lowestBegin, walk.begin) }
    return walk
  }

  /// Whether the state still has all tombstones from the walk's begin on, so that it can be renewed.
  public func canRenew(_ walk: StateWalk) -> Bool { walk.begin >= tombstoneHorizon }

  /// Whether the state still has the tombstones, from an id on, of all keys that are removed: in whichever process they
  /// came, and not in another log.
  public func hasTombstones(from id: UInt64) -> Bool {
    id >= max(tombstoneHorizon, description.begin, processStart)
  }

  /// Continues a walk that has fallen behind as of a newer end, from its position on. It then visits tombstones, too, of
  /// keys that were removed after its begin: it may have visited these keys before.
  /// - Returns: false if that is not possible, because a tombstone may be gone.
  public func renew(_ walk: StateWalk, asOf end: UInt64) -> Bool {
    guard canRenew(walk) else { return false }
    walk.end = end
    findLowestWalk()
    return true
  }

  private func findLowestWalk() {
    lowestWalk = walks.lazy.map(\.end).filter { $0 >= self.horizon }.min() ?? .max
    lowestBegin = walks.lazy.map(\.begin).filter { $0 >= self.tombstoneHorizon }.min() ?? .max
  }

  /// Lets the walk visit events again that it has visited, from an id on, or leave out some that it has not.
  /// - Complexity: O(events between).
  public func move(_ walk: StateWalk, to position: UInt64) {
    while walk.node != 0, id(walk.node) >= position { walk.node = unsafe nodes[Int(walk.node)].former }
    if walk.node != 0 { unsafe nodes[Int(walk.node)].hash |= Node.hasWalk }
    walk.position = position
  }

  /// Releases what the walk needs. The walk must be one of this state that has not been finished.
  public func finish(_ walk: StateWalk) {
    precondition(walk.index < walks.count && walks[walk.index] === walk, "not a walk of this state")
    let last = walks.removeLast()
    if last !== walk {
      walks[walk.index] = last
      last.index = walk.index
    }
    if walk.end == lowestWalk || walk.begin == lowestBegin { findLowestWalk() }
  }

  /// Visits the next events of a walk, in the order of their ids.
  ///
  /// - Parameters:
  ///   - steps: maximum number of versions that are considered.
  ///   - visit: receives the record as `EventLog.record(at:)` has it, valid during the call, and its id. Returns false
  ///     for an event that it does not take: the next call begins there.
  /// - Complexity: O(steps); after a walk's first calls, which find its position, each step is one version.
  public func advance(
    _ walk: StateWalk, atMost steps: Int, _ visit: (_ record: UnsafeRawBufferPointer, _ id: UInt64) -> Bool
  ) -> StateWalk.Progress {
    guard walk.end >= horizon else { return .fellBehind }
    var node = walk.node
    defer {
      walk.node = node
      if node != 0 { unsafe nodes[Int(node)].hash |= Node.hasWalk }
    }
    for _ in 0..<steps {
      let next = unsafe nodes[Int(node)].next
      guard next != 0 else { return .finished }
      let id = id(next)
      guard id < walk.end else { return .finished }
      if id >= walk.position {
        let version = unsafe nodes[Int(next)]
        if !version.has(Node.isTombstone) || id >= walk.begin,
          !version.has(Node.isReplaced) || self.id(version.link) >= walk.end
        {
          guard unsafe visit(record(next), id) else { return .more }
        }
        walk.position = id + 1
      }
      node = next
    }
    return .more
  }

  private func id(_ node: UInt32) -> UInt64 { unsafe area.record(Int(nodes[Int(node)].offset) - 1).id }

  private func record(_ node: UInt32) -> UnsafeRawBufferPointer {
    let unit = unsafe Int(nodes[Int(node)].offset) - 1
    let record = area.record(unit)
    guard record.isDivided else {
      return unsafe UnsafeRawBufferPointer(
        start: record.content + record.keyBytes, count: EventLog.stampBytes + record.dataBytes)
    }
    return unsafe UnsafeRawBufferPointer(rebasing: collected(unit)[record.keyBytes...])
  }

  /// A copy of the content of a record in pieces, valid until the next call.
  @inline(never) private func collected(_ unit: Int) -> UnsafeRawBufferPointer {
    let count = area.record(unit).contentBytes
    if unsafe room.count < count {
      unsafe room.deallocate()
      unsafe room = .allocate(byteCount: count, alignment: 8)
    }
    var start = 0
    _ = unsafe area.forEachPiece(of: unit) { _, _, content in
      unsafe UnsafeMutableRawBufferPointer(rebasing: room[start...]).copyMemory(from: content)
      start += content.count
    }
    return unsafe UnsafeRawBufferPointer(rebasing: room[..<count])
  }

  // MARK: Keys

  private func hash(_ key: UnsafeRawBufferPointer) -> UInt32 {
    var hasher = Hasher()
    unsafe hasher.combine(bytes: key)
    return UInt32(truncatingIfNeeded: hasher.finalize()) & Node.hashMask
  }

  private func bucket(_ hash: UInt32) -> Int {
    let mask = UInt32.max >> UInt32((bucketCount - 1).leadingZeroBitCount)
    let index = hash >> 4 & mask
    return Int(index < bucketCount ? index : index & mask >> 1)
  }

  /// The newest version of a key, which can be a tombstone, and the one before it in its bucket; 0: none.
  private func find(_ key: UnsafeRawBufferPointer, _ hash: UInt32) -> (node: UInt32, former: UInt32) {
    var former: UInt32 = 0
    var node = unsafe buckets[bucket(hash)]
    while node != 0 {
      let version = unsafe nodes[Int(node)]
      if version.hash & Node.hashMask == hash, unsafe has(version, key) { break }
      (former, node) = (node, version.link)
    }
    return (node, former)
  }

  private func has(_ version: Node, _ key: UnsafeRawBufferPointer) -> Bool {
    let unit = Int(version.offset) - 1
    let record = area.record(unit)
    guard record.keyBytes == key.count else { return false }
    if record.isDivided {
      return unsafe collected(unit).prefix(key.count).elementsEqual(key)
    }
    return unsafe memcmp(record.key.baseAddress!, key.baseAddress!, key.count) == 0
  }

  private func replaceInBucket(_ node: UInt32, _ former: UInt32, by new: UInt32) {
    if former != 0 {
      unsafe nodes[Int(former)].link = new
    } else {
      unsafe buckets[bucket(nodes[Int(node)].hash)] = new
    }
  }

  /// Adds a node to its bucket, and divides one where there are more versions than buckets.
  private func hashIn(_ node: UInt32) {
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

  // MARK: Writing

  /// Keys whose memory is brought closer at a time: one after the other, each would wait for memory three times.
  static let approachedCount = 32

  /// Brings what `put` reads of the next keys into the processor's caches.
  func approach(_ keys: EventKeys, from first: Int) {
    let end = min(first + Self.approachedCount, keys.count)
    guard end - first > 1 else { return }
    unsafe withUnsafeTemporaryAllocation(of: UInt32.self, capacity: Self.approachedCount) { found in
      for index in first..<end {
        let bucket: Int = unsafe keys.withKey(of: index) { key, _ in unsafe self.bucket(hash(key)) }
        unsafe found[index - first] = UInt32(bucket)
        unsafe prefetch(buckets + bucket)
      }
      for index in 0..<end - first {
        let node = unsafe buckets[Int(found[index])]
        unsafe found[index] = node
        unsafe prefetch(nodes + Int(node))
      }
      for index in 0..<end - first where unsafe found[index] != 0 {
        let unit = unsafe Int(nodes[Int(found[index])].offset) - 1
        unsafe prefetch(area.heap + unit * StateHeap.unitBytes)
      }
    }
  }

  /// Considers the next event. It takes effect when the log's end is committed after it.
  ///
  /// - Parameters:
  ///   - key: 1 to `EventKey.maximumByteCount` bytes.
  ///   - id: an event with an id below `end` was considered before, and is ignored.
  ///   - isAdopted: it was in another state; a tombstone is needed although its key is not in this one.
  ///   - commit: commits the log up to the event before this one; called if there is no space otherwise.
  /// - Complexity: O(1), and the event's bytes.
  func put(
    _ key: UnsafeRawBufferPointer, isTombstone: Bool, _ data: UnsafeRawBufferPointer, id: UInt64, time: UInt64,
    isAdopted: Bool = false, commit: () -> Void
  ) {
    guard id >= end else { return }
    end = id + 1
    let hash = unsafe hash(key)
    var found = unsafe find(key, hash)
    var former = found.node == 0 ? Former.absent : former(found.node)
    if isTombstone, former.isAbsent, !isAdopted { return }
    var data = unsafe data
    // Only a walk that is renewed reads a tombstone's data.
    if isTombstone, lowestBegin == .max, !isAdopted {
      unsafe data = unsafe UnsafeRawBufferPointer(start: data.baseAddress, count: 0)
      tombstoneHorizon = id + 1
    }
    var units = StateRecord.units(StateArea.headerBytes + key.count + EventLog.stampBytes + data.count)
    if !isTombstone {
      if former.isAbsent, count >= maximumCount { return leaveOut(id, .keys) }
      if self.byteCount - former.units * StateHeap.unitBytes + units * StateHeap.unitBytes > maximumByteCount {
        return leaveOut(id, .bytes)
      }
    }
    var unit = unsafe write(key, isTombstone: isTombstone, data, units: units, id: id, time: time)
    if unit == nil {
      // The version that this one replaces is not freed, but the others of its bucket may be.
      unit = makeRoom(commit) { unsafe write(key, isTombstone: isTombstone, data, units: units, id: id, time: time) }
      found = unsafe find(key, hash)
      former = found.node == 0 ? Former.absent : self.former(found.node)
    }
    if unit == nil, isTombstone, data.count > 0 {
      // It is kept without its data.
      unsafe data = unsafe UnsafeRawBufferPointer(start: data.baseAddress, count: 0)
      units = StateRecord.units(StateArea.headerBytes + key.count + EventLog.stampBytes)
      tombstoneHorizon = id + 1
      findLowestWalk()
      unit = unsafe write(key, isTombstone: true, data, units: units, id: id, time: time)
    }
    guard let unit else { return leaveOut(id, .bytes) }
    let node = newNode()
    area.set(Int(node), unit)
    insert(node, unit, hash | (isTombstone ? Node.isTombstone : 0), found, former, units: units)
  }

  /// The version that a new one replaces.
  private struct Former {
    static let absent = Former(isAbsent: true, units: 0, digest: 0)

    /// Whether the key is not in the state.
    let isAbsent: Bool
    let units: Int
    let digest: UInt64
  }

  private func former(_ node: UInt32) -> Former {
    let version = unsafe nodes[Int(node)]
    guard !version.has(Node.isTombstone) else { return .absent }
    let unit = Int(version.offset) - 1
    return Former(isAbsent: false, units: units(unit), digest: area.record(unit).digest)
  }

  /// The units of a record, without those by which one in pieces is larger.
  private func units(_ unit: Int) -> Int { StateRecord.units(StateArea.headerBytes + area.record(unit).contentBytes) }

  /// Adds a version that is higher than all others, in place of its key's newest one.
  private func insert(
    _ node: UInt32, _ unit: Int, _ hash: UInt32, _ found: (node: UInt32, former: UInt32), _ former: Former, units: Int
  ) {
    let last = unsafe nodes[0].former
    unsafe nodes[Int(node)] = Node(
      offset: UInt32(unit) + 1, hash: hash, link: 0, older: found.node, former: last, next: 0)
    unsafe nodes[Int(last)].next = node
    unsafe nodes[0].former = node
    newCount += 1
    if cursor == 0 { cursor = node }
    if tombstoneCursor == 0 { tombstoneCursor = node }
    if found.node != 0 {
      unsafe nodes[Int(node)].link = unsafe nodes[Int(found.node)].link
      replaceInBucket(found.node, found.former, by: node)
      unsafe nodes[Int(found.node)].link = node
      unsafe nodes[Int(found.node)].hash |= Node.isReplaced
    } else {
      hashIn(node)
    }
    if !former.isAbsent {
      count -= 1
      byteCount -= former.units * StateHeap.unitBytes
      digest &-= former.digest
    }
    if hash & Node.isTombstone == 0 {
      count += 1
      byteCount += units * StateHeap.unitBytes
      digest &+= area.record(unit).digest
    }
  }

  private func newNode() -> UInt32 {
    guard unused != 0 else {
      nodesEnd += 1
      return nodesEnd - 1
    }
    let node = unused
    unused = unsafe nodes[Int(node)].link
    return node
  }

  /// - Returns: nil if there is no space.
  private func write(
    _ key: UnsafeRawBufferPointer, isTombstone: Bool, _ data: UnsafeRawBufferPointer, units: Int, id: UInt64,
    time: UInt64
  ) -> Int? {
    guard unused != 0 || Int(nodesEnd) < area.entries else { return nil }
    guard let unit = heap.allocate(units) else {
      return unsafe writeInPieces(key, isTombstone: isTombstone, data, units: units, id: id, time: time)
    }
    let record = area.record(unit)
    record.writeHeader(dataBytes: data.count, keyBytes: key.count, isTombstone: isTombstone)
    let content = unsafe record.content
    unsafe content.copyMemory(from: key.baseAddress!, byteCount: key.count)
    let stamp = unsafe content + key.count
    unsafe stamp.storeBytes(of: id.bigEndian, as: UInt64.self)
    unsafe stamp.storeBytes(of: time.bigEndian, toByteOffset: 8, as: UInt64.self)
    if data.count > 0 { unsafe (stamp + 16).copyMemory(from: data.baseAddress!, byteCount: data.count) }
    if hasChecksums { unsafe record.write(checksumOf: crc32c(content, record.contentBytes)) }
    return unit
  }

  /// As `write`, where no free block is large enough. A piece has 8 bytes beside its content, and at least as many of it.
  @inline(never) private func writeInPieces(
    _ key: UnsafeRawBufferPointer, isTombstone: Bool, _ data: UnsafeRawBufferPointer, units: Int, id: UInt64,
    time: UInt64
  ) -> Int? {
    guard heap.freeUnits > units else { return nil }
    var content = [UInt8]()
    content.reserveCapacity(key.count + EventLog.stampBytes + data.count)
    unsafe content.append(contentsOf: key)
    for word in [id, time] { unsafe withUnsafeBytes(of: word.bigEndian) { unsafe content.append(contentsOf: $0) } }
    unsafe content.append(contentsOf: data)
    var pieces: [(offset: Int, size: Int)] = []
    var rest = content.count
    while rest > 0 {
      let header = pieces.isEmpty ? StateArea.firstPieceBytes : StateArea.pieceBytes
      // The first piece is not the last: a record in one piece has another header.
      let most = StateRecord.units(header + rest) - (pieces.isEmpty ? 1 : 0)
      guard let piece = heap.allocateLarge(atMost: most) else { break }
      pieces.append(piece)
      rest -= piece.size * StateHeap.unitBytes - header
      if piece.size * StateHeap.unitBytes <= header { break }
    }
    guard rest <= 0 else {
      for piece in pieces { heap.free(piece.offset, piece.size) }
      return nil
    }
    let record = area.record(pieces[0].offset)
    record.writeHeader(
      dataBytes: data.count, keyBytes: key.count, isTombstone: isTombstone, nextPiece: UInt32(pieces[1].offset) + 1)
    var (start, sum) = (0, 0 as UInt32)
    for (index, piece) in pieces.enumerated() {
      let header = index == 0 ? StateArea.firstPieceBytes : StateArea.pieceBytes
      let bytes = unsafe area.heap + piece.offset * StateHeap.unitBytes
      let count = min(content.count - start, piece.size * StateHeap.unitBytes - header)
      if index == 0 {
        record.writeFirstPiece(contentBytes: count, id: id)
      } else {
        let next = index + 1 < pieces.count ? UInt32(pieces[index + 1].offset) + 1 : 0
        unsafe bytes.storeBytes(of: next, as: UInt32.self)
        unsafe bytes.storeBytes(of: UInt32(count), toByteOffset: 4, as: UInt32.self)
      }
      unsafe content.withUnsafeBytes {
        unsafe (bytes + header).copyMemory(from: $0.baseAddress! + start, byteCount: count)
      }
      if hasChecksums { sum = unsafe sum &* 31 &+ crc32c(bytes + header, count) }
      start += count
    }
    if hasChecksums { record.write(checksumOf: sum) }
    return pieces[0].offset
  }

  /// Frees older versions, in the order in which they are needed least, until an event has space.
  @inline(never) private func makeRoom(_ commit: () -> Void, _ write: () -> Int?) -> Int? {
    commit()
    reclaim(.max)
    if let unit = write() { return unit }
    // Walks fall behind.
    let disk = durable?.end ?? .max
    while free(below: min(committedEnd, disk), atMost: 64) {
      if let unit = write() { return unit }
    }
    sweepTombstones(.max)
    findLowestWalk()
    if let unit = write() { return unit }
    // Not safe from a power failure until the next mark is on the disk.
    while free(below: committedEnd, atMost: 64) {
      if let unit = write() { return unit }
    }
    return write()
  }

  /// Later events are not considered: they have other keys.
  public func leaveOutLaterEvents() { leaveOut(end, .damage) }

  private func leaveOut(_ id: UInt64, _ cause: Incompleteness.Cause) {
    guard description.incompleteness == nil else { return }
    description.incompleteness = Incompleteness(since: id, cause: cause)
    if isInUse { descriptionNote.write(description.bytes, end: id + 1) }
  }

  // MARK: Freeing

  /// Frees what nothing needs after a commit.
  /// - Parameter end: the log's committed end.
  @inline(__always) func commit(_ end: UInt64) {
    let count = newCount * 2 + 16
    newCount = 0
    atomicMemoryFence(ordering: .acquiringAndReleasing)
    committedEnd = end
    if let marks { exchange(marks) }
    // At most twice as many as are new, so that what has accumulated is freed after a while.
    reclaim(count)
  }

  private func exchange(_ marks: StateMarks) {
    durable = marks.exchange(mark)
  }

  private var mark: StateMark {
    StateMark(
      description, end: max(committedEnd, end), count: UInt64(count), digest: digest,
      clearedEnd: cursor == 0 ? committedEnd : id(cursor))
  }

  private func reclaim(_ count: Int) {
    _ = free(below: min(committedEnd, durable?.end ?? .max, lowestWalk), atMost: count)
    sweepTombstones(count, below: lowestBegin)
  }

  /// Passes the versions below `limit`, and frees those that they replaced.
  /// - Returns: whether there may be more.
  private func free(below limit: UInt64, atMost count: Int) -> Bool {
    for _ in 0..<count {
      guard cursor != 0 else { return false }
      let node = cursor
      let version = unsafe nodes[Int(node)]
      let id = id(node)
      guard id < limit else { return false }
      if version.older != 0 {
        unsafe nodes[Int(node)].older = 0
        horizon = max(horizon, id + 1)
        free(version.older)
      }
      cursor = unsafe nodes[Int(node)].next
    }
    return true
  }

  /// Frees the tombstones without an older version below `end`. In a file a tombstone stays until the disk has that
  /// version's cleared entry: the version would return otherwise.
  private func sweepTombstones(_ count: Int, below end: UInt64 = .max) {
    let limit = min(durable?.clearedEnd ?? .max, end)
    var left = count
    while tombstoneCursor != cursor, left > 0 {
      let node = tombstoneCursor
      let id = id(node)
      guard id < limit else { return }
      let version = unsafe nodes[Int(node)]
      tombstoneCursor = version.next
      left -= 1
      guard version.has(Node.isTombstone), !version.has(Node.isReplaced) else { continue }
      tombstoneHorizon = max(tombstoneHorizon, id + 1)
      let found = unsafe withKey(Int(version.offset) - 1) { unsafe find($0, version.hash & Node.hashMask) }
      replaceInBucket(node, found.former, by: version.link)
      hashedCount -= 1
      free(node)
    }
  }

  // MARK: Continuing

  /// Adds a version that an earlier process left, after all with lower ids.
  /// - Returns: false for a second one with its id.
  func restore(_ entry: Int, _ unit: Int, id: UInt64) -> Bool {
    let last = unsafe nodes[0].former
    if last != 0, self.id(last) == id { return false }
    let record = area.record(unit)
    let hash = unsafe withKey(unit) { unsafe self.hash($0) }
    let found = unsafe withKey(unit) { unsafe self.find($0, hash) }
    insert(
      UInt32(entry), unit, hash | (record.isTombstone ? Node.isTombstone : 0), found,
      found.node == 0 ? .absent : former(found.node), units: units(unit))
    nodesEnd = max(nodesEnd, UInt32(entry) + 1)
    return true
  }

  private func withKey<Result>(_ unit: Int, _ body: (UnsafeRawBufferPointer) -> Result) -> Result {
    let record = area.record(unit)
    guard record.isDivided else { return unsafe body(record.key) }
    // `body` may read another record in pieces.
    let key = unsafe Array(collected(unit).prefix(record.keyBytes))
    return unsafe key.withUnsafeBytes { unsafe body($0) }
  }

  /// Frees all that no version uses.
  ///
  /// - Parameters:
  ///   - blocks: first unit and number of units of what the versions use, by offset.
  ///   - entries: their entries.
  func freeRest(_ blocks: some Sequence<(Int, Int)>, _ entries: Set<Int>) {
    var end = 0
    for (unit, units) in blocks {
      if unit > end { heap.free(end, unit - end) }
      end = unit + units
    }
    let all = area.heapBytes / StateHeap.unitBytes
    if all > end { heap.free(end, all - end) }
    for entry in (1..<Int(nodesEnd)).reversed() where !entries.contains(entry) {
      unsafe nodes[entry].link = unused
      unused = UInt32(entry)
    }
    newCount = 0
  }

  /// Begins to maintain the state that is in the region.
  /// - Parameter end: the end of the events that were considered.
  func use(upTo end: UInt64) {
    let former = descriptionNote.restore(upTo: end)
    if former != description.bytes { descriptionNote.write(description.bytes, end: end) }
    isInUse = true
    advanceEnd(to: end)
    (committedEnd, horizon, processStart) = (end, end, end)
  }

  /// Events below were considered.
  func advanceEnd(to end: UInt64) { self.end = max(self.end, end) }

  /// Considers an event that is in the log already.
  func putAgain(_ key: EventKey, _ data: UnsafeRawBufferPointer, id: UInt64, time: UInt64) {
    unsafe key.bytes.withUnsafeBytes {
      unsafe put($0, isTombstone: key.isTombstone, data, id: id, time: time) { committedEnd = max(committedEnd, id) }
    }
    committedEnd = max(committedEnd, id + 1)
    reclaim(4)
  }

  /// Copies the newest events below an end of a state, whose record is valid during the call only; and the tombstones that
  /// its walks need.
  func take(_ other: KeyedState, upTo end: UInt64) {
    description.begin = other.description.begin
    tombstoneHorizon = other.lowestBegin < .max ? other.tombstoneHorizon : end
    var node = unsafe other.nodes[0].next
    while node != 0 {
      let version = unsafe other.nodes[Int(node)]
      let id = other.id(node)
      if id < end, !version.has(Node.isReplaced), !version.has(Node.isTombstone) || id >= other.lowestBegin {
        let record = unsafe other.record(node)
        unsafe other.withKey(Int(version.offset) - 1) { key in
          let time = unsafe UInt64(bigEndian: record.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
          let data = unsafe UnsafeRawBufferPointer(rebasing: record[EventLog.stampBytes...])
          unsafe put(key, isTombstone: version.has(Node.isTombstone), data, id: id, time: time, isAdopted: true) {}
        }
      }
      node = version.next
    }
  }

  /// Records that events were lost.
  /// - Parameter id: the first of them.
  func setDamaged(since id: UInt64) {
    if id < description.incompleteness?.since ?? .max {
      description.incompleteness = Incompleteness(since: id, cause: .damage)
    }
  }

  /// Sets the first event that was considered, and why it is incomplete.
  func setDescription(_ description: StateDescription) { self.description = description }

  /// Begins to take over a log, into a state that no event was considered for.
  func begin(_ description: StateDescription) {
    precondition(count == 0, "\(count) keys")
    self.description = description
    (end, committedEnd, isInUse) = (0, 0, false)
  }

  /// The log's end, where it is below that of the considered events.
  func limitCommittedEnd(to end: UInt64) { committedEnd = min(committedEnd, end) }

  /// Events below were considered, by this state or an earlier process.
  var consideredEnd: UInt64 { max(end, committedEnd) }

  /// Keeps what the recovery after a power failure needs.
  func retain(_ durable: StateMark) { self.durable = durable }

  /// Begins to write marks: see `StateMarks`.
  func use(_ marks: StateMarks) { self.marks = marks }

  /// The state as of now.
  var presentMark: StateMark { mark }

  /// Frees a version that is in no bucket.
  private func free(_ node: UInt32) {
    let version = unsafe nodes[Int(node)]
    area.clear(Int(node))
    unsafe nodes[Int(version.former)].next = version.next
    unsafe nodes[Int(version.next)].former = version.former
    if cursor == node { cursor = version.next }
    if tombstoneCursor == node { tombstoneCursor = version.next }
    if version.has(Node.hasWalk) {
      for walk in walks where walk.node == node {
        walk.node = version.former
        if version.former != 0 { unsafe nodes[Int(version.former)].hash |= Node.hasWalk }
      }
    }
    unsafe nodes[Int(node)] = Node(offset: 0, hash: 0, link: unused, older: 0, former: 0, next: 0)
    unused = node
    freeRecord(Int(version.offset) - 1)
  }

  private func freeRecord(_ unit: Int) {
    guard area.record(unit).isDivided else { return heap.free(unit, units(unit)) }
    var pieces: [(Int, Int)] = []
    _ = unsafe area.forEachPiece(of: unit) { unit, units, _ in pieces.append((unit, units)) }
    for (unit, units) in pieces { heap.free(unit, units) }
  }
}

/// A reading position in a state, which keeps the versions that it needs. Confined as its log is.
public final class StateWalk {
  /// What a call has achieved.
  public enum Progress: Equatable, Sendable {
    /// Every event of the state as of the walk's end was visited.
    case finished
    /// There may be more, or an event was not taken.
    case more
    /// Versions that the walk needs are gone: `renew` it as of the present end.
    case fellBehind
  }

  /// The first id that is not visited yet.
  public fileprivate(set) var position: UInt64
  /// The walk reads the state of the events below.
  public fileprivate(set) var end: UInt64
  /// Its first `end`: from there on it visits tombstones, too.
  public let begin: UInt64
  /// The last version before `position` that was passed.
  fileprivate var node: UInt32 = 0
  fileprivate var index: Int

  /// The state that it reads; nil once that is released, as by a reload: the walk is of no use then.
  public private(set) weak var state: KeyedState?

  fileprivate init(_ state: KeyedState, position: UInt64, end: UInt64, begin: UInt64, index: Int) {
    (self.state, self.position, self.end, self.begin, self.index) = (state, position, end, begin, index)
  }
}

@available(*, unavailable) extension StateWalk: Sendable {}
