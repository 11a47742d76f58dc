import Synchronization

extension KeyedState {
  /// Frees the versions that nothing needs after a commit.
  /// - Parameter end: the log's committed end.
  @inline(__always) func commit(_ end: UInt64) {
    let count = newCount * 2 + 16
    newCount = 0
    atomicMemoryFence(ordering: .acquiringAndReleasing)
    committedEnd = end
    if let marks { exchange(marks) }
    // Frees at most twice as many versions as are new, so that accumulated versions are freed after a while.
    reclaim(count)
  }

  private func exchange(_ marks: StateMarks) {
    durable = marks.exchange(mark)
  }

  var mark: StateMark {
    StateMark(
      description, end: max(committedEnd, end), count: UInt64(count), digest: digest,
      clearedEnd: cursor == 0 ? committedEnd : id(cursor))
  }

  func reclaim(_ count: Int) {
    _ = free(below: min(committedEnd, durable?.end ?? .max, walkEnds.lowest), atMost: count)
    sweepTombstones(count, below: walkBegins.lowest)
  }

  /// Passes the versions below `limit`, and frees those that they replaced.
  /// - Returns: whether there may be more.
  func free(below limit: UInt64, atMost count: Int) -> Bool {
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

  /// Frees the tombstones without an older version below `end`. In a file a tombstone stays until the cleared entry of
  /// that version is on the disk: otherwise the version would return.
  func sweepTombstones(_ count: Int, below end: UInt64 = .max) {
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

  /// Frees a version that is in no bucket.
  func free(_ node: UInt32) {
    let version = unsafe nodes[Int(node)]
    area.clear(Int(node))
    unsafe nodes[Int(version.former)].next = version.next
    unsafe nodes[Int(version.next)].former = version.former
    if cursor == node { cursor = version.next }
    if tombstoneCursor == node { tombstoneCursor = version.next }
    if version.has(Node.hasWalk) { moveWalks(from: node, to: version.former) }
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
