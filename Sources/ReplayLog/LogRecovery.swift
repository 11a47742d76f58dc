// Recovery of a region. Everything is checked before use: bytes from a disk may be arbitrary.

extension LogLayout {
  /// The stored extent, if all its events are valid: each record in its slot, in order, without overlap, and with a
  /// valid checksum if there are checksums.
  /// - Parameter progress: called about once per MiB.
  /// - Throws: the error.
  /// - Complexity: O(stored events), and their bytes where there are checksums.
  func intactExtent(progress: () -> Void = {}) throws(LogRefusal) -> LogExtent {
    let extent = try extent()
    var run = RecordRun()
    var steps = Steps()
    var position = extent.first
    while position < extent.end {
      guard let (offset, byteCount) = candidate(inSlot: slot(of: position)), id(at: offset) == position,
        run.takes(offset, byteCount), isIntact(at: offset)
      else { throw LogRefusal("event \(position) is damaged") }
      if steps.take(byteCount) { progress() }
      position += 1
      if position == extent.holeStart { position = extent.holeEnd }
    }
    return extent
  }

  /// The extent after a partial write: the longest run of intact records without a gap in their ids, the newest of
  /// equally long ones. Ids continue after a hole, above any that were assigned. In a log that follows a fleet they
  /// continue after the last event: the lost events come again, with their ids.
  ///
  /// - Parameters:
  ///   - extent: from the header; its end may be older or newer than the records.
  ///   - time: microseconds since the Unix epoch: no id was higher.
  ///   - progress: called about once per MiB.
  /// - Complexity: O(slots), and the bytes of the records.
  func salvagedExtent(_ extent: LogExtent, at time: UInt64, progress: () -> Void = {}) -> LogExtent {
    var steps = Steps()
    let found = (0..<slots).compactMap { slot -> (id: UInt64, offset: Int, byteCount: Int)? in
      guard let (offset, byteCount) = candidate(inSlot: slot) else { return nil }
      if steps.take(byteCount) { progress() }
      let id = id(at: offset)
      let isInHole = id >= extent.holeStart && id < extent.holeEnd
      guard id >= extent.first, id < Self.idLimit, !isInHole, isIntact(at: offset) else { return nil }
      return (id, offset, byteCount)
    }.sorted { $0.id < $1.id }
    // Only the newer of two holes can be recorded.
    let newer = found.drop { $0.id < extent.holeEnd }
    let records = newer.isEmpty ? found[...] : newer

    var best = records.prefix(0)
    var start = records.startIndex
    var run = RecordRun()
    for index in records.indices {
      let (id, offset, byteCount) = records[index]
      let follows = index > start && id == records[index - 1].id + 1
      if !follows || !run.takes(offset, byteCount) {
        start = index
        run = RecordRun()
        _ = run.takes(offset, byteCount)
      }
      if index + 1 - start >= best.count { best = records[start...index] }
    }

    let highest = found.last.map { $0.id + 1 } ?? 0
    let next = min(max(time, extent.end, highest), Self.idLimit - UInt64(slots) - 1)
    let followsFleet = fleetNote?.exists ?? false
    guard let first = best.first?.id, let last = best.last?.id else {
      var empty = LogExtent(startingAt: followsFleet ? extent.first : next)
      empty.salvagedEnd = extent.first
      return empty
    }
    var salvaged = LogExtent(startingAt: first)
    // A header that is older than the events may belong to another history.
    if first <= extent.end { salvaged.historyStart = extent.historyStart }
    if first >= extent.holeEnd { salvaged.historyStart = max(salvaged.historyStart, extent.holeEnd) }
    salvaged.salvagedEnd = last + 1
    salvaged.end = last + 1
    guard !followsFleet else { return salvaged }
    salvaged.holeStart = last + 1
    salvaged.holeEnd = holeEnd(from: last + 1, atLeast: next)
    salvaged.end = salvaged.holeEnd
    return salvaged
  }

  /// The end of a hole that leaves each position its slot.
  func holeEnd(from start: UInt64, atLeast next: UInt64) -> UInt64 {
    let size = UInt64(slots)
    return start + (max(next, start + 1) - start + size - 1) / size * size
  }
}

/// Counts checked bytes since the last progress call.
private struct Steps {
  private var bytes = 0

  mutating func take(_ byteCount: Int) -> Bool {
    bytes += byteCount
    guard bytes >= 1 << 20 else { return false }
    bytes = 0
    return true
  }
}

/// Adjacent records, at most once around the ring.
private struct RecordRun {
  private var start: Int?
  private var end = 0
  private var hasWrapped = false

  /// - Returns: false for a record that cannot follow.
  mutating func takes(_ offset: Int, _ byteCount: Int) -> Bool {
    if let start {
      let wraps = offset < end
      guard !(wraps && hasWrapped), !(wraps || hasWrapped) || offset + byteCount <= start else { return false }
      hasWrapped = hasWrapped || wraps
    } else {
      start = offset
    }
    end = offset + byteCount
    return true
  }
}
