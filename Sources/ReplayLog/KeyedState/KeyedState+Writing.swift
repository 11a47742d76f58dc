import CChecksum
import CLinux
import Events

// How a state considers an event.

extension KeyedState {
  /// The number of keys that are prefetched together: one after the other, each key would wait for memory three times.
  static let approachedCount = 32

  /// Prefetches the memory that `put` reads for the next keys.
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
  ///   - id: an id below `end` was considered before; the event is ignored.
  ///   - isAdopted: whether the event was in another state: a tombstone is then kept although this state does not have
  ///     its key.
  ///   - commit: commits the log up to the event before this one; called only if there is no space otherwise.
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
    if isTombstone, walkBegins.lowest == .max, !isAdopted {
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
      // The tombstone is kept without its data.
      unsafe data = unsafe UnsafeRawBufferPointer(start: data.baseAddress, count: 0)
      units = StateRecord.units(StateArea.headerBytes + key.count + EventLog.stampBytes)
      tombstoneHorizon = id + 1
      walkBegins.removeAll(below: tombstoneHorizon)
      unit = unsafe write(key, isTombstone: true, data, units: units, id: id, time: time)
    }
    guard let unit else { return leaveOut(id, .bytes) }
    let node = newNode()
    area.set(Int(node), unit)
    insert(node, unit, hash | (isTombstone ? Node.isTombstone : 0), found, former, units: units)
  }

  /// The version that a new one replaces.
  struct Former {
    static let absent = Former(isAbsent: true, units: 0, digest: 0)

    /// Whether the key is not in the state.
    let isAbsent: Bool
    let units: Int
    let digest: UInt64
  }

  func former(_ node: UInt32) -> Former {
    let version = unsafe nodes[Int(node)]
    guard !version.has(Node.isTombstone) else { return .absent }
    let unit = Int(version.offset) - 1
    return Former(isAbsent: false, units: units(unit), digest: area.record(unit).digest)
  }

  /// The units that a record takes in one piece, even if it is stored in several.
  func units(_ unit: Int) -> Int { StateRecord.units(StateArea.headerBytes + area.record(unit).contentBytes) }

  /// Adds a version that is higher than all others, in place of its key's newest one.
  func insert(
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

  /// As `write`, if no free block is large enough. Each piece has 8 bytes of header, and at least 8 bytes of content.
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

  /// Frees older versions until an event has space, the least needed ones first.
  @inline(never) private func makeRoom(_ commit: () -> Void, _ write: () -> Int?) -> Int? {
    commit()
    reclaim(.max)
    if let unit = write() { return unit }
    // Walks fall behind from here on.
    let disk = durable?.end ?? .max
    while free(below: min(committedEnd, disk), atMost: 64) {
      if let unit = write() { return unit }
    }
    sweepTombstones(.max)
    walkEnds.removeAll(below: horizon)
    walkBegins.removeAll(below: tombstoneHorizon)
    if let unit = write() { return unit }
    // The state does not survive a power failure until the next mark is on the disk.
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
}
