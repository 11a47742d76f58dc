import CChecksum
import Events

// How a state continues in a region of an earlier process. The region's content is arbitrary.

extension KeyedState {
  /// The content of an area, before anything in it is changed.
  private struct Found {
    struct Version {
      let id: UInt64
      let entry: Int
      let unit: Int
    }

    /// In the order of their ids.
    var versions: [Version] = []
    /// The blocks of `versions`, in the order of their offsets, in units.
    var blocks: [(unit: Int, units: Int, entry: Int)] = []
    /// Entries without a usable version.
    var others: [Int] = []
    /// Whether every entry with an id below the end is valid.
    var isWhole = true
  }

  /// The versions with ids below `end`, completely checked. If several versions overlap, none of them is used.
  private static func find(
    in area: StateArea, upTo end: UInt64, hasChecksums: Bool, progress: () -> Void
  ) -> Found {
    var found = Found()
    var bytes = 0
    for entry in 1..<area.entries where area[entry] != 0 {
      let unit = Int(area[entry]) - 1
      let start = found.blocks.count
      guard let id = check(area, unit, hasChecksums: hasChecksums, { found.blocks.append(($0, $1, entry)) }) else {
        found.blocks.removeSubrange(start...)
        found.others.append(entry)
        found.isWhole = false
        continue
      }
      bytes += area.record(unit).contentBytes
      if bytes > 1 << 20 {
        progress()
        bytes = 0
      }
      if id < end {
        found.versions.append(Found.Version(id: id, entry: entry, unit: unit))
      } else {
        found.blocks.removeSubrange(start...)
        found.others.append(entry)
      }
    }
    found.blocks.sort { $0.unit < $1.unit }
    var overlapping: Set<Int> = []
    var last = (end: 0, entry: 0)
    for block in found.blocks {
      if block.unit < last.end { overlapping.formUnion([block.entry, last.entry]) }
      if block.unit + block.units > last.end { last = (block.unit + block.units, block.entry) }
    }
    if !overlapping.isEmpty {
      found.isWhole = false
      found.others += overlapping
      found.versions.removeAll { overlapping.contains($0.entry) }
      found.blocks.removeAll { overlapping.contains($0.entry) }
    }
    found.versions.sort { ($0.id, $0.entry) < ($1.id, $1.entry) }
    return found
  }

  /// - Parameter block: receives each piece's first unit and number of units.
  /// - Returns: the record's id; nil if it is invalid.
  private static func check(
    _ area: StateArea, _ unit: Int, hasChecksums: Bool, _ block: (Int, Int) -> Void
  ) -> UInt64? {
    var (sum, stamp, position) = (0 as UInt32, [UInt8](), 0)
    guard unit < area.heapBytes / StateHeap.unitBytes else { return nil }
    let record = area.record(unit)
    let keyBytes = record.keyBytes
    let isWhole = unsafe area.forEachPiece(of: unit) { unit, units, content in
      block(unit, units)
      if hasChecksums { sum = unsafe sum &* 31 &+ crc32c(content.baseAddress!, content.count) }
      let (low, high) = (max(keyBytes - position, 0), min(keyBytes + 8 - position, content.count))
      if low < high { unsafe stamp += content[low..<high] }
      position += content.count
    }
    guard isWhole, (1...EventKey.maximumByteCount).contains(keyBytes), !hasChecksums || record.isChecksum(of: sum)
    else { return nil }
    let id = stamp.reduce(0 as UInt64) { $0 << 8 | UInt64($1) }
    return record.id == id && id < LogLayout.idLimit ? id : nil
  }

  /// - Parameter end: versions from here on do not count.
  /// - Returns: nil when there is no memory; does not change the region.
  private static func load(
    _ area: StateArea, _ description: StateDescription, _ settings: Settings?, hasChecksums: Bool, upTo end: UInt64,
    progress: () -> Void
  ) -> Loaded? {
    var found = find(in: area, upTo: end, hasChecksums: hasChecksums, progress: progress)
    guard
      let state = KeyedState(
        area, description, keys: settings?.keys ?? .max, bytes: settings?.bytes ?? .max, hasChecksums: hasChecksums,
        end: end)
    else { return nil }
    var used = Set<Int>()
    for version in found.versions {
      if state.restore(version.entry, version.unit, id: version.id) {
        used.insert(version.entry)
      } else {
        found.others.append(version.entry)
      }
    }
    return Loaded(state: state, found: found, used: used)
  }

  /// A state that cannot be changed yet.
  private struct Loaded {
    let state: KeyedState
    let found: Found
    /// The entries of its versions.
    let used: Set<Int>

    /// Removes everything else from the region. Entries are cleared before their records are overwritten.
    func clearOthers() {
      for entry in found.others { state.area.clear(entry) }
      state.freeRest(found.blocks.lazy.filter { used.contains($0.entry) }.map { ($0.unit, $0.units) }, used)
    }
  }

  /// A state without keys, of a region that was just initialized.
  /// - Returns: nil, with `errno` set, when there is no memory.
  static func empty(_ layout: LogLayout, _ settings: Settings, begin: UInt64) -> KeyedState? {
    guard let area = layout.stateArea else { return nil }
    let description = StateDescription(keyDigest: settings.keyDigest, begin: begin)
    let state = KeyedState(
      area, description, keys: settings.keys, bytes: settings.bytes, hasChecksums: layout.hasChecksums, end: begin)
    state?.freeRest([], [])
    return state
  }

  /// The state as the region's notes describe it.
  private struct Base {
    var description: StateDescription?
    /// The mark of a salvaged log.
    var mark: StateMark?
    /// The end position for which the state is complete.
    var end: UInt64
    /// The first event that was considered; 0 if unknown.
    var begin: UInt64

    init(_ area: StateArea, _ log: LogExtent, isSalvaged: Bool, followsFleet: Bool) {
      let noted = area.description.all().compactMap { StateDescription($0.bytes) }.first
      begin = noted?.begin ?? 0
      end = log.end
      guard isSalvaged else {
        description = area.description.all(upTo: log.end).first.flatMap { StateDescription($0.bytes) }
        return
      }
      let newest = area.mark.all(upTo: followsFleet ? LogLayout.idLimit : log.end).first
      mark = newest.flatMap { StateMark($0.bytes, end: $0.end) }
      description = mark?.description
      end = mark?.end ?? 0
      if let mark { begin = mark.description.begin }
    }
  }

  /// The state of a log in a region, from which another takes over. Does not change the region.
  /// - Returns: nil if there is no state, or no memory.
  static func read(_ layout: LogLayout, _ log: LogExtent) -> KeyedState? {
    guard let area = layout.stateArea else { return nil }
    let isSalvaged = log.salvagedEnd != nil
    let base = Base(area, log, isSalvaged: isSalvaged, followsFleet: layout.fleetNote?.exists ?? false)
    let description = base.description ?? StateDescription(keyDigest: 0, begin: base.begin)
    guard
      let loaded = load(area, description, nil, hasChecksums: layout.hasChecksums, upTo: base.end, progress: {})
    else { return nil }
    let state = loaded.state
    if base.description == nil || !(isSalvaged ? state.is(base.mark) : loaded.found.isWhole) {
      state.setDamaged(since: base.begin)
    }
    state.limitCommittedEnd(to: log.end)
    return state
  }

  private func `is`(_ mark: StateMark?) -> Bool { mark?.count == UInt64(count) && mark?.digest == digest }

  /// The state of a log that continues in the same region; considers the stored events again where that is needed.
  ///
  /// - Parameters:
  ///   - log: the log's extent; a salvaged one is not in the region yet. On return it ends earlier if events cannot be
  ///     considered again.
  ///   - progress: called repeatedly.
  /// - Returns: nil if the region has no state. Also nil, with `errno` set, when there is no memory: the next process
  ///   then finds the state damaged.
  static func restored(
    _ layout: LogLayout, _ log: inout LogExtent, _ settings: Settings?, progress: () -> Void = {}
  ) -> KeyedState? {
    guard let area = layout.stateArea, let settings else { return nil }
    let isSalvaged = log.salvagedEnd != nil
    let base = Base(area, log, isSalvaged: isSalvaged, followsFleet: layout.fleetNote?.exists ?? false)
    var lost: UInt64?
    if let description = base.description, description.keyDigest == settings.keyDigest {
      guard
        let loaded = load(
          area, description, settings, hasChecksums: layout.hasChecksums, upTo: base.end, progress: progress)
      else { return giveUp(area) }
      let state = loaded.state
      if isSalvaged ? state.is(base.mark) : loaded.found.isWhole {
        loaded.clearOthers()
        if let mark = base.mark {
          state.retain(mark)
          state.considerAgain(layout, &log, settings, progress)
        }
        // The mark may cover events that the log has lost. Only a fleet sends them again, and then the log ends before them: no
        // other log gives their ids to further events.
        state.use(upTo: log.end)
        state.limitCommittedEnd(to: log.end)
        state.useMarks(layout)
        return state
      }
      lost = base.begin
    } else if base.description == nil {
      lost = base.begin
    } else if base.description?.keyDigest == ~settings.keyDigest {
      lost = base.description?.incompleteness?.since
    }
    return begunAnew(layout, area, log, settings, lost: lost, progress) ?? giveUp(area)
  }

  private static func giveUp(_ area: StateArea) -> KeyedState? {
    for note in [area.description, area.mark] {
      var note = note
      note.clear()
    }
    return nil
  }

  /// The state of the stored events, after the key was changed or the former state was damaged.
  ///
  /// - Parameter lost: the first event that a damaged state had; nil: it was not damaged.
  private static func begunAnew(
    _ layout: LogLayout, _ area: StateArea, _ log: LogExtent, _ settings: Settings, lost: UInt64?,
    _ progress: () -> Void
  ) -> KeyedState? {
    let end = log.salvagedEnd ?? log.end
    // Until the events have been considered, the digest is not that of the key's definition: after a kill the state
    // begins anew.
    var description = StateDescription(keyDigest: ~settings.keyDigest, begin: log.first)
    if let lost { description.incompleteness = Incompleteness(since: lost, cause: .damage) }
    var note = area.description
    _ = note.restore(upTo: end)
    note.write(description.bytes, end: min(log.first, end))
    var mark = area.mark
    mark.clear()
    for entry in 1..<area.entries where area[entry] != 0 { area.clear(entry) }
    guard let state = empty(layout, settings, begin: log.first) else { return nil }
    description.keyDigest = settings.keyDigest
    if unsafe settings.key != nil, let lost, lost >= log.first { description.incompleteness = nil }
    state.setDescription(description)
    state.consider(layout, log.first..<max(log.first, end), log, settings, progress)
    state.use(upTo: end)
    state.useMarks(layout)
    return state
  }

  /// Considers the stored events after the mark again, after a power failure.
  private func considerAgain(
    _ layout: LogLayout, _ log: inout LogExtent, _ settings: Settings, _ progress: () -> Void
  ) {
    let eventsEnd = log.salvagedEnd ?? log.end
    guard end < eventsEnd else { return }
    guard unsafe settings.key != nil else {
      log.cut(at: end, slots: layout.slots, followsFleet: layout.fleetNote?.exists ?? false)
      return
    }
    if log.first > end { setDamaged(since: end) }
    let first = max(end, log.first)
    // A log without events may begin after the events that it lost.
    if first < eventsEnd { consider(layout, first..<eventsEnd, log, settings, progress) }
  }

  private func consider(
    _ layout: LogLayout, _ range: Range<UInt64>, _ log: LogExtent, _ settings: Settings, _ progress: () -> Void
  ) {
    var position = range.lowerBound
    while let key = unsafe settings.key, position < range.upperBound {
      if position >= log.holeStart, position < log.holeEnd {
        position = log.holeEnd
        continue
      }
      let data = unsafe layout.data(of: position)
      if let key = unsafe key(data) {
        unsafe putAgain(key, data, id: position, time: layout.time(at: layout.offset(of: position)))
      }
      if position & 0xFFF == 0 { progress() }
      position += 1
    }
    advanceEnd(to: range.upperBound)
  }

  /// Begins to write marks, in a file.
  private func useMarks(_ layout: LogLayout) {
    guard layout.hasChecksums else { return }
    var note = area.mark
    let marks = note.all().compactMap { StateMark($0.bytes, end: $0.end) }
    _ = note.restore(upTo: LogLayout.idLimit)
    // The newest one may not be on the disk yet.
    let none = StateMark(description, end: 0)
    retain(marks.count > 1 ? marks[1] : none)
    use(StateMarks(note, noted: marks.first ?? none, durable: durable ?? none))
  }

  /// Writes the mark of the present state, before the first sync of a new file.
  func noteFirstMark(_ layout: LogLayout) {
    var note = area.mark
    _ = note.restore(upTo: 0)
    note.write(presentMark.bytes, end: presentMark.end)
    useMarks(layout)
  }
}

extension LogExtent {
  /// Removes the events from `end` on, after a power failure. Their ids are not used again, except by a fleet, which
  /// sends these events again.
  fileprivate mutating func cut(at end: UInt64, slots: Int, followsFleet: Bool) {
    let next = self.end
    salvagedEnd = end
    if followsFleet {
      first = min(first, end)
      historyStart = min(historyStart, first)
      (self.end, holeStart, holeEnd) = (end, 0, 0)
    } else if end <= first {
      (first, historyStart, holeStart, holeEnd) = (next, next, 0, 0)
    } else {
      // Its length is a multiple of the slots: see `holeEnd`.
      let size = UInt64(slots)
      holeStart = end
      holeEnd = end + (next - end + size - 1) / size * size
      self.end = holeEnd
    }
  }
}
