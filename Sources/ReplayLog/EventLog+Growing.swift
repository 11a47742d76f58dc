import Events
import StreamRuntime

// How a log in a shared region begins small and moves to a larger place.

extension EventLog {
  /// An empty log in a shared region.
  ///
  /// - Parameters:
  ///   - firstID: as in `init(name:limits:firstID:followsFleet:clock:)`.
  ///   - limits: for which `isSmall` is true.
  /// - Returns: nil when the region is full.
  public convenience init?(
    in region: SharedRegion, name: String, limits: Limits, firstID: UInt64? = nil,
    clock: @escaping () -> UInt64 = EventLoop.wallClock
  ) {
    let name = Array(name.utf8.prefix(255))
    let need = CompactShape.Need()
    guard
      let (place, shape) = Self.place(in: region, nameBytes: name.count, for: need, limits: limits)
    else { return nil }
    let extent = LogExtent(startingAt: firstID ?? clock())
    let layout = unsafe LogLayout(formatting: region.bytes(of: place), name: name, shape, generation: 1, extent: extent)
    layout.seal()
    self.init(layout, extent, limits: limits, owner: LogPlace(region, place), clock: clock)
  }

  /// A log in a shared region with the newest events of another that fit.
  /// - Returns: nil when the region is full.
  public convenience init?(in region: SharedRegion, name: String, limits: Limits, takingOver other: EventLog) {
    self.init(in: region, name: name, limits: limits)
    takeOver(other)
  }

  /// Whether the log is in a shared region; nil: in memory of its own.
  public func isStored(in region: SharedRegion?) -> Bool { place?.region === region }

  private var place: LogPlace? { owner as? LogPlace }

  /// The next process does not find a log in a shared region any more. Its memory is free when nobody uses it any more.
  public func discard() { place?.discard() }

  private static func place(
    in region: SharedRegion, nameBytes: Int, for need: CompactShape.Need, limits: Limits, isForced: Bool = false
  ) -> (SharedRegion.Place, CompactShape)? {
    for bits in SharedRegion.placeBits {
      guard let shape = CompactShape(in: 1 << bits, nameBytes: nameBytes, for: need, limits: limits) else { continue }
      return region.allocate(bits: bits, isForced: isForced).map { ($0, shape) }
    }
    return nil
  }

  func noteGrowth() {
    canGrow =
      layout.isCompact && (layout.slots < LogLayout.slots(for: limits.events) || layout.ringBytes < limits.bytes)
  }

  /// Moves the log to a place with room for further events, up to its limits.
  ///
  /// - Parameters:
  ///   - events: their number.
  ///   - bytes: bytes of their records.
  ///   - slots: at least; a power of two.
  ///   - noteBytes: bytes of each slot of the checkpoint, at least.
  ///   - isForced: whether the budget of the shared region does not matter.
  /// - Returns: false, without any effect, if the shared region is full, or its budget is used up.
  @inline(never) func grow(
    by events: Int, _ bytes: Int, slots: Int = 1, noteBytes: Int = 0, isForced: Bool = false
  ) -> Bool {
    guard let place else { return false }
    var need = CompactShape.Need()
    let storedBytes = storedBytes
    (need.events, need.slots) = (min(storedCount + events, limits.events), max(layout.slots, slots))
    // A ring that is larger by half than its content is not full again soon, because no record is split.
    need.bytes = max(storedBytes, min((storedBytes + bytes) / 2 * 3, limits.bytes))
    need.noteBytes = max(layout.compactNoteBytes ?? 0, noteBytes)
    let name = unsafe layout.nameBytes
    let found = unsafe Self.place(
      in: place.region, nameBytes: name.count, for: need, limits: limits, isForced: isForced)
    guard let (next, shape) = found else { return false }
    unsafe move(to: place.region.bytes(of: next), shape)
    place.move(to: next)
    return true
  }

  private var storedCount: Int { Int(count(from: firstPosition, to: endPosition)) }

  private var storedBytes: Int {
    var (bytes, position) = (0, firstPosition)
    while position < endPosition {
      bytes += LogLayout.recordBytes(for: layout.dataBytes(at: layout.offset(of: position)))
      position = following(position)
    }
    return bytes
  }

  private func move(to bytes: UnsafeMutableRawBufferPointer, _ shape: CompactShape) {
    // Events that are not committed yet are copied, too, but the extent does not have them yet.
    var extent = LogExtent(startingAt: min(firstPosition, committedEnd), boot: boot)
    extent.end = committedEnd
    if !hasNewHole { (extent.holeStart, extent.holeEnd) = (holeStart, holeEnd) }
    extent.historyStart = min(historyStart, extent.first)
    let new = unsafe LogLayout(
      formatting: bytes, name: layout.nameBytes, shape, generation: layout.generation + 1, extent: extent)
    var (offset, position) = (0, firstPosition)
    while position < endPosition {
      offset += new.copyRecord(of: position, from: layout, to: offset)
      position = following(position)
    }
    var note = new.checkpointNote
    if let checkpointNote { note?.takeOver(checkpointNote) }
    new.seal()
    (layout, positions, nextOffset, checkpointNote) = (new, new.positions(), offset, note)
    noteGrowth()
  }

  /// Whether the region has room for a checkpoint, possibly after a move. Without room, a kill repeats what came since
  /// the last one.
  func hasRoom(for checkpoint: Checkpoint) -> Bool {
    if checkpoint.bytes.count <= checkpointNote?.capacity ?? -1 { return true }
    return grow(by: 0, 0, noteBytes: LogNote.slotBytes(for: checkpoint.bytes.count), isForced: true)
  }
}
