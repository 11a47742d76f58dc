import Events

// How a state continues after a recovery, in a new process and in a new log.

extension KeyedState {
  /// Adds a version that an earlier process left. Versions are added in the order of their ids.
  /// - Returns: false for a second version with its id.
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

  /// Frees the units and entries that no version uses.
  ///
  /// - Parameters:
  ///   - blocks: the first unit and the number of units of each block that a version uses, in the order of their
  ///     offsets.
  ///   - entries: the entries of the versions.
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
    newCount = 0
    advanceEnd(to: end)
    (committedEnd, horizon, processStart) = (end, end, end)
  }

  /// Records that events with lower ids were considered.
  func advanceEnd(to end: UInt64) { self.end = max(self.end, end) }

  /// Considers an event that is in the log already.
  func putAgain(_ key: EventKey, _ data: UnsafeRawBufferPointer, id: UInt64, time: UInt64) {
    unsafe key.bytes.withUnsafeBytes {
      unsafe put($0, isTombstone: key.isTombstone, data, id: id, time: time) { committedEnd = max(committedEnd, id) }
    }
    committedEnd = max(committedEnd, id + 1)
    reclaim(4)
  }

  /// Copies the newest events below an end from another state, whose records are valid during the call only. Also
  /// copies the tombstones that walks of the other state need, as far as there is space. If an earlier process left the
  /// other state, these are all its tombstones.
  func take(_ other: KeyedState, upTo end: UInt64) {
    description.begin = other.description.begin
    let begin = other.isInUse ? other.walkBegins.lowest : 0
    tombstoneHorizon = begin < .max ? other.tombstoneHorizon : end
    expectWalks(of: other)
    var node = unsafe other.nodes[0].next
    while node != 0 {
      let version = unsafe other.nodes[Int(node)]
      let id = other.id(node)
      if id < end, !version.has(Node.isReplaced), !version.has(Node.isTombstone) || id >= begin {
        let record = unsafe other.record(node).whole
        unsafe other.withKey(Int(version.offset) - 1) { key in
          let time = unsafe UInt64(bigEndian: record.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
          let data = unsafe UnsafeRawBufferPointer(rebasing: record[EventLog.stampBytes...])
          unsafe put(key, isTombstone: version.has(Node.isTombstone), data, id: id, time: time, isAdopted: true) {
            committedEnd = id
          }
        }
      }
      node = version.next
    }
    // The copied versions have replaced nothing.
    cursor = 0
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

  /// Begins to take over a log, into a state for which no event was considered.
  func begin(_ description: StateDescription) {
    precondition(count == 0, "\(count) keys")
    self.description = description
    (end, committedEnd, isInUse) = (0, 0, false)
  }

  /// Sets the committed end to the log's end, if that is lower than the end of the considered events.
  func limitCommittedEnd(to end: UInt64) { committedEnd = min(committedEnd, end) }

  /// Events with lower ids were considered, by this state or by an earlier process.
  var consideredEnd: UInt64 { max(end, committedEnd) }

  /// Keeps the versions that the recovery after a power failure needs.
  func retain(_ durable: StateMark) { self.durable = durable }

  /// Begins to write marks: see `StateMarks`.
  func use(_ marks: StateMarks) { self.marks = marks }

  /// The present mark of the state.
  var presentMark: StateMark { mark }
}
