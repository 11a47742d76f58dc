import Events
import Glibc
import StreamRuntime

/// The last events of one stream, encoded, in one mapped region: a ring of bytes and a ring of offsets.
///
/// A position is an event's id. Positions only rise, so a cursor is a number, an event is found by arithmetic, and
/// eviction changes no cursor. The content is limited by count, bytes and age, whichever limit is reached first.
///
/// Positions are contiguous, except for at most one hole: after a power failure, ids continue above any that were
/// assigned, and the lost events are the gap between. `skip` maps a position in the hole to its end; `count` and
/// `position` take the hole into account.
///
/// A batch with stamps gives its events their ids and times. Ids below `endPosition` are skipped: no event replaces
/// another, and ids never decrease. Ids above it leave a hole, and so does a batch with a loss; a second hole evicts the
/// events before the first one. A log that has stored a batch with stamps *follows a fleet*: it assigns no id of its own
/// until a batch without stamps comes, and such events get ids above the wall clock.
///
/// A log with small limits can be in a shared region: it begins small, and moves to a larger place when it would have to
/// evict events that its limits allow.
///
/// The region can outlive the process: see `LogLayout`. Not thread-safe: `SharedLog` guards it.
public final class EventLog {
  /// The maximum content of a log.
  public struct Limits: Equatable, Sendable {
    /// Maximum number of events, at least 1.
    public var events: Int
    /// Bytes of the ring; an event takes its data and 24 more, rounded up to 8.
    public var bytes: Int
    /// The newest event of each key; nil: the stream has no keys.
    public var state: KeyedState.Settings?
    /// Maximum age; nil: no limit. An event whose time is later than the present by more than this has no known age,
    /// and counts as too old.
    public var age: Duration?

    /// The limits of a stream whose configuration gives none: 65,536 events, 8 MiB, any age, no keys.
    public init(
      events: Int = 65536, bytes: Int = 8 << 20, age: Duration? = nil, state: KeyedState.Settings? = nil
    ) {
      self.events = max(1, events)
      self.bytes = max(Self.leastBytes, bytes) & ~7
      self.age = age
      self.state = state
    }

    static let leastBytes = 4096

    /// Bytes of a full log: the ring, and 8 for each event, their number rounded up to a power of two; of a stream with
    /// keys 1.5 times the state's bytes and 8 for each key, too.
    public var regionBytes: Int { LogLayout.byteCount(for: self) }

    /// Data bytes of the largest event that fits.
    public var maximumEventBytes: Int { bytes - LogLayout.recordHeaderBytes }
  }

  /// Exclusive upper bound of ids.
  public static let idLimit = LogLayout.idLimit
  /// Exclusive upper bound of ids in stamps. Ids above it remain for the log itself.
  public static let stampedIDLimit = LogLayout.idLimit / 2

  /// Bytes of id and time before the data of `record(at:)`.
  @inlinable public static var stampBytes: Int { 16 }

  /// The limits of this log.
  public let limits: Limits
  /// The oldest stored event; `endPosition` when there is none.
  public private(set) var firstPosition: UInt64
  /// The next event's id.
  public private(set) var endPosition: UInt64
  /// Data bytes of the events appended since the start.
  public private(set) var appendedBytes: UInt64 = 0
  /// The events appended since the start.
  public var appendedEvents: UInt64 { endPosition - countStart }
  private var recent = RecentEvents()
  /// See `takeLeftOutCount`.
  private var leftOutCount = 0
  /// When the newest event was stored, also if it has been evicted; microseconds since the Unix epoch. Nil before the
  /// first.
  public var newestTime: UInt64? { newestID == nil ? nil : lastTime }
  /// The used bytes of the ring, from its start. The rest keeps its content until that is evicted, and takes no memory
  /// while it was never written. At most, and initially, `limits.bytes`; a compact log may have fewer at a time.
  public var usedBytes: Int {
    didSet { usedBytes = min(usedBytes, limits.bytes) }
  }

  /// The newest event's id, also if it has been evicted; nil before the first.
  public private(set) var newestID: UInt64?
  /// Where the source resumes: the newest checkpoint of the batches that are or were in the log. Outlives the process
  /// with them.
  public private(set) var checkpoint: Checkpoint?
  /// The newest position of the batches with stamps that are or were in the log: how far the fleet's log was read.
  /// Outlives the process with these batches. Nil if the log does not follow a fleet, or lost the events of all
  /// positions.
  public var fleetPosition: [UInt8]? { fleetBytes?.isEmpty == false ? fleetBytes : nil }
  /// The id of the next event without a stamp, as of now.
  public var nextOwnID: UInt64 { fleetBytes == nil ? endPosition : max(endPosition, clock(), firstOwnID) }

  /// How many clock steps back `position(since:)` considers.
  private static let maximumStepsBack = 64

  /// The newest event of each key; nil: the stream has no keys, or there is no memory for them.
  public let state: KeyedState?
  /// Has a copy of the events.
  package var mirror: (any LogMirror)?

  var layout: LogLayout
  /// Keeps the region mapped, or the place in use.
  let owner: AnyObject
  /// Whether it can have more room than it has: it is compact, and smaller than its limits.
  var canGrow = false
  let clock: () -> UInt64
  /// Called by the log's guard after an append, outside of every lock: see `appendObserver`.
  let didGrow: (@Sendable () -> Void)?
  let boot: BootID
  var positions: LogPositions
  private(set) var holeStart: UInt64
  private(set) var holeEnd: UInt64
  /// Every position from here on was assigned to an event, except in the hole; earlier positions are unknown. In the
  /// header.
  private(set) var historyStart: UInt64
  /// Whether the history was cut by a second hole, a power failure or a restart: nothing counts the events before it.
  public private(set) var isCut: Bool
  private var lastTime: UInt64 = 0
  /// The positions of stored events before which the clock was set back; only the newest.
  private(set) var stepsBack: [UInt64] = []
  private var heldPosition = UInt64.max
  var nextOffset = 0
  var checkpointNote: LogNote?
  private var fleetNote: LogNote?
  /// Whether its events have the ids of a fleet.
  public var followsFleet: Bool { fleetBytes != nil }
  /// The bytes of `fleetNote`. nil: the log does not follow a fleet; empty: the log follows a fleet, and the position
  /// is unknown.
  private var fleetBytes: [UInt8]?
  /// The least id of an event without a stamp after those with stamps.
  private let firstOwnID: UInt64
  /// Whether the hole is not in the region yet.
  private(set) var hasNewHole = false
  /// `endPosition` at the start, plus the ids that were not assigned since.
  private var countStart: UInt64
  /// `endPosition` in the region: it is lower while a batch is being appended.
  private(set) var committedEnd: UInt64
  private var reserve: ((UInt64) -> Void)?
  private var reservedCount: UInt64 = 0
  /// The id from which on the next reservation is due.
  private var reserveAgainAt = UInt64.max

  /// Continues a region's content, which was completely checked.
  ///
  /// - Parameters:
  ///   - extent: the extent in the region.
  ///   - keyed: the newest event of each key.
  ///   - owner: keeps the region mapped.
  ///   - firstOwnID: in a log that follows a fleet, the least id of an event without a stamp.
  ///   - didGrow: called after an append to the shared log that uses this storage, outside of every lock.
  init(
    _ layout: LogLayout, _ extent: LogExtent, _ keyed: KeyedState? = nil, limits: Limits, owner: AnyObject,
    firstOwnID: UInt64 = 0,
    clock: @escaping () -> UInt64 = EventLoop.wallClock, didGrow: (@Sendable () -> Void)? = nil
  ) {
    precondition(
      layout.isCompact || layout.slots >= limits.events && layout.ringBytes == limits.bytes,
      "another geometry than \(limits)")
    self.layout = layout
    self.state = keyed
    self.limits = limits
    self.owner = owner
    self.firstOwnID = firstOwnID
    self.clock = clock
    self.didGrow = didGrow
    boot = extent.boot
    positions = layout.positions()
    usedBytes = limits.bytes
    (firstPosition, endPosition) = (extent.first, extent.end)
    (holeStart, holeEnd) = (extent.holeStart, extent.holeEnd)
    (committedEnd, countStart) = (extent.end, extent.end)
    checkpointNote = layout.checkpointNote
    checkpoint = checkpointNote?.restore(upTo: extent.salvagedEnd ?? extent.end).flatMap { Checkpoint($0) }
    (fleetNote, fleetBytes) = layout.restoredFleetNote(extent)
    historyStart = extent.historyStart
    isCut = extent.salvagedEnd != nil || extent.count > 0 && extent.historyStart == extent.first
    noteGrowth()
    guard extent.count > 0 else { return }
    let newest = position(ofLast: 1)
    newestID = newest
    var next = firstPosition
    while next < endPosition {
      note(time(of: next), of: next)
      next = following(next)
    }
    nextOffset = layout.offset(of: newest) + LogLayout.recordBytes(for: layout.dataBytes(at: layout.offset(of: newest)))
    if extent.count > limits.events { drop(to: position(ofLast: UInt64(limits.events))) }
  }

  /// Calls `reserve` now, and whenever half of a reservation is used.
  ///
  /// - Parameters:
  ///   - count: ids per reservation. By default 67 million: a minute of the clock's microseconds, and seconds of the
  ///     fastest stream.
  ///   - reserve: receives an upper bound: no id at or above it is assigned before the next call. Called under the lock
  ///     that guards the log: it must not block.
  public func reserveIDs(_ count: UInt64 = 1 << 26, _ reserve: @escaping (_ end: UInt64) -> Void) {
    (self.reserve, reservedCount) = (reserve, count)
    reserveMore()
  }

  private func reserveMore() {
    reserveAgainAt = endPosition + reservedCount / 2
    reserve?(endPosition + reservedCount)
  }

  /// Appends a batch, evicting the oldest events where a limit requires it. An event over `limits.maximumEventBytes` is
  /// skipped: the caller must reject and report it before. While events are held, only `appendWhatFits` may be called.
  ///
  /// If the process is killed during the append, the log contains the whole batch with its checkpoint and position, or
  /// nothing of it. A batch larger than the ring may leave its first events, without checkpoint and position. Events
  /// with stamps that the log has or had are skipped. If the log had later events, too, the checkpoint is skipped, but
  /// not the position. A batch that the log does not accept (`accepts`) has no effect.
  public func append(_ batch: EventBatch) {
    let rest = appendWhatFits(batch)
    precondition(rest == nil, "\(rest?.count ?? 0) events would have been dropped from \(heldPosition) on")
  }

  /// Prevents the eviction of events from `position` on, even by age; `.max` allows every eviction.
  public func hold(from position: UInt64) {
    heldPosition = skip(position)
  }

  /// As `append`, up to the first event that does not fit beside the held ones.
  public func appendWhatFits(_ batch: EventBatch) -> EventBatch? {
    if let stamps = batch.stamps { return appendWhatFits(batch, stamps) }
    let checkpoint = batch.checkpoint
    guard !batch.isEmpty || checkpoint != nil || batch.loss != nil else { return nil }
    let leavesFleet = fleetBytes != nil && !batch.isEmpty
    if leavesFleet, !leaveHole(to: nextOwnID) { return batch }
    if checkpoint != nil, !batch.isEmpty, heldPosition < endPosition, !hasRoomForAll(of: batch) { return batch }
    var batch = batch
    if let loss = batch.loss {
      guard leaveHole(for: loss) else { return batch }
      batch.loss = nil
    }
    let now = clock()
    let keys = batch.keys
    var count = 0
    unsafe batch.withUnsafeBytes(of: 0..<batch.count) { data in
      guard data.count <= limits.maximumEventBytes else {
        count += 1
        return true
      }
      let place = place(for: data.count)
      guard place.first <= heldPosition else { return false }
      if place.byteCount > layout.ringBytes {
        leaveOut()
      } else {
        if state != nil { unsafe consider(keys, count, data, time: now) }
        unsafe append(data, at: place, time: now)
      }
      count += 1
      return true
    }
    let isWhole = count == batch.count
    if isWhole, let checkpoint { write(checkpoint) }
    commit()
    if leavesFleet { leaveFleet() }
    dropExpired()
    return isWhole ? nil : EventBatch(batch[count...])
  }

  /// The log assigns its ids itself from now on.
  @inline(never) private func leaveFleet() {
    fleetNote?.clear()
    fleetBytes = nil
  }

  /// Whether every id of the batch's stamps is below `stampedIDLimit`; true without stamps.
  public static func accepts(_ batch: EventBatch) -> Bool {
    batch.stamps.map { $0.id(batch.count) <= stampedIDLimit } ?? true
  }

  private func appendWhatFits(_ batch: EventBatch, _ stamps: EventStamps) -> EventBatch? {
    guard Self.accepts(batch) else { return nil }
    let (end, isNewest) = (stamps.id(batch.count), stamps.id(batch.count) >= endPosition)
    if heldPosition < endPosition, end > endPosition, !hasRoomForAll(of: batch) { return batch }
    let keys = batch.keys
    var index = Int(min(max(stamps.firstID, endPosition) - stamps.firstID, UInt64(batch.count)))
    unsafe batch.withUnsafeBytes(of: index..<batch.count) { data in
      let id = stamps.id(index)
      guard leaveHole(to: id) else { return false }
      if data.count > limits.maximumEventBytes {
        guard leaveHole(to: id + 1) else { return false }
        leftOutCount += 1
      } else {
        guard unsafe appendIfItFits(data, time: stamps.time(index), keys, index) else { return false }
      }
      index += 1
      return true
    }
    let isWhole = index == batch.count
    // The checkpoint precedes the position: in a batch without events both take effect at once, and a kill after the
    // position would lose the checkpoint.
    if isWhole, isNewest, let checkpoint = batch.checkpoint { write(checkpoint) }
    if isWhole, let position = stamps.position {
      writeFleet(position)
    } else if fleetBytes == nil {
      writeFleet([])
    }
    commit()
    dropExpired()
    return isWhole ? nil : EventBatch(batch[index...])
  }

  /// An event is not stored, because the shared region has no room for it. Readers see a gap.
  @inline(never) private func leaveOut() {
    leftOutCount += 1
    _ = leaveHole(to: endPosition + 1)
  }

  /// The number of events that were left out since the last call: of batches with stamps those that exceed
  /// `limits.maximumEventBytes`; of a compact log those for which there was no memory.
  public func takeLeftOutCount() -> Int {
    defer { leftOutCount = 0 }
    return leftOutCount
  }

  /// Makes `id` the next event's, if it is higher, after a hole. Evicts the events before an older hole within the log.
  /// - Returns: false, without any effect, if such events are held.
  func leaveHole(to id: UInt64) -> Bool {
    guard id > endPosition else { return true }
    if holeStart == holeEnd || holeEnd < endPosition {
      if firstPosition < holeStart {
        guard heldPosition >= holeEnd else { return false }
        drop(to: holeEnd)
      }
      if holeEnd > historyStart { (historyStart, isCut) = (holeEnd, true) }
      holeStart = endPosition
    }
    countStart += id - endPosition
    if firstPosition == endPosition { firstPosition = id }
    (holeEnd, endPosition, hasNewHole) = (id, id, true)
    heldPosition = skip(heldPosition)
    return true
  }

  /// Whether a batch with a checkpoint can be appended now: false if it must be split now although an empty log could
  /// store all of it. A split batch stores its checkpoint with the last part only, and after a kill the source would
  /// repeat the other parts.
  private func hasRoomForAll(of batch: EventBatch) -> Bool {
    var needed = 0
    unsafe batch.withUnsafeBytes(of: 0..<batch.count) {
      needed += LogLayout.recordBytes(for: $0.count)
      return true
    }
    // The space between the last record and the ring's end is unused if the next record does not fit there.
    needed += LogLayout.recordBytes(for: batch.largestByteCount)
    guard batch.count <= limits.events, needed <= limits.bytes else { return true }
    let held = distance(from: heldPosition, to: endPosition)
    guard held + UInt64(batch.count) <= UInt64(limits.events) else { return false }
    if canGrow { _ = grow(by: batch.count, needed) }
    guard needed <= layout.ringBytes, batch.count <= layout.slots else { return true }
    let start = layout.offset(of: heldPosition)
    let free = nextOffset > start ? layout.ringBytes - (nextOffset - start) : start - nextOffset
    return needed <= free && held + UInt64(batch.count) <= UInt64(layout.slots)
  }

  /// The events of the last minutes before `time`, in periods: see `RecentEvents`.
  public func recentPeriods(before time: UInt64) -> [RecentEvents.Period] { recent.periods(before: time) }

  /// Whether the log holds the maximum number of events.
  public var isFull: Bool { count(from: heldPosition, to: endPosition) >= UInt64(limits.events) }

  /// Sets the next event's id to `position`, if that is higher and the log is empty.
  /// - Returns: whether the id was set.
  public func begin(at position: UInt64) -> Bool {
    guard firstPosition == endPosition, position > endPosition, position < Self.idLimit else { return false }
    layout.write(LogExtent(startingAt: position, boot: boot))
    positions = layout.positions()
    countStart += position - endPosition
    (firstPosition, endPosition, committedEnd) = (position, position, position)
    (holeStart, holeEnd, historyStart, hasNewHole) = (0, 0, position, false)
    state?.commit(position)
    if endPosition >= reserveAgainAt { reserveMore() }
    return true
  }

  /// Replaces the content with the newest events of another log that fit, with their ids and times.
  func takeOver(_ other: EventLog) {
    let first = other.firstPosition
    (firstPosition, endPosition, committedEnd, countStart) = (first, first, first, first)
    (holeStart, holeEnd, hasNewHole) = (0, 0, false)
    historyStart = first < other.holeStart ? other.historyStart : max(other.historyStart, other.holeEnd)
    isCut = other.isCut || historyStart > other.historyStart
    writeState()
    nextOffset = 0
    var position = first
    while position < other.endPosition {
      _ = leaveHole(to: position)
      let data = unsafe UnsafeRawBufferPointer(rebasing: other.record(at: position)[Self.stampBytes...])
      if data.count <= limits.maximumEventBytes, place(for: data.count).byteCount <= layout.ringBytes {
        _ = unsafe appendIfItFits(data, time: other.time(of: position))
      } else {
        endPosition = position + 1
        drop(to: endPosition)
      }
      position = other.following(position)
    }
    _ = leaveHole(to: other.endPosition)
    (newestID, lastTime) = (other.newestID, other.lastTime)
    if let checkpoint = other.checkpoint { write(checkpoint) }
    if let bytes = other.fleetBytes { writeFleet(bytes) }
    commit()
    takeOverState(other)
    appendedBytes = other.appendedBytes
    countStart = endPosition - other.appendedEvents
    recent = other.recent
  }

  /// Records that no append follows, once everything is safely stored.
  func noteClosed() { writeState(isClosed: true) }

  /// The event's stamp (id and time, big endian, 16 bytes) followed by its data; valid until the next append.
  public func record(at position: UInt64) -> UnsafeRawBufferPointer {
    precondition(
      position >= firstPosition && position < endPosition && skip(position) == position,
      "\(position) not in \(firstPosition)..<\(endPosition) without \(holeStart)..<\(holeEnd)")
    let offset = layout.offset(of: position)
    return unsafe UnsafeRawBufferPointer(
      start: layout.record(at: offset) + 8, count: Self.stampBytes + layout.dataBytes(at: offset))
  }

  /// As `record(at:)`, for all positions in a range without a hole: for reading many.
  public func records(in range: Range<UInt64>) -> LogRecords {
    precondition(
      range.lowerBound >= firstPosition && range.upperBound <= endOfRun(from: range.lowerBound)
        && skip(range.lowerBound) == range.lowerBound,
      "\(range) not in \(firstPosition)..<\(endPosition) without \(holeStart)..<\(holeEnd)")
    return layout.records
  }

  /// A copy of the event.
  public func element(at position: UInt64) -> LoggedEvent {
    let record = unsafe record(at: position)
    return unsafe LoggedEvent(id: position, time: time(of: position), data: Array(record.dropFirst(Self.stampBytes)))
  }

  /// Evicts the events that are older than the age limit by the present clock, or whose time is later than the present
  /// by more than the limit. An append does so, too; a quiet stream needs this call before it is read.
  public func dropExpired() {
    guard let age = limits.age else { return }
    let (seconds, attoseconds) = age.components
    let most = Int128(seconds) * 1_000_000 + Int128(attoseconds) / 1_000_000_000_000
    let now = Int128(clock())
    let end = min(endPosition, heldPosition)
    var first = firstPosition
    while first < end, abs(Int128(time(of: first)) - now) > most { first = following(first) }
    drop(to: first)
  }

  func following(_ position: UInt64) -> UInt64 { skip(position + 1) }

  /// When an event was taken in, in microseconds since the Unix epoch.
  package func time(of position: UInt64) -> UInt64 { layout.time(at: layout.offset(of: position)) }

  @inline(__always) private func drop(to first: UInt64) {
    guard first != firstPosition else { return }
    if first > committedEnd { commit(before: first) }
    firstPosition = first
    positions.commit(first: min(first, committedEnd))
  }

  /// Commits the events that are about to be dropped. If only a new hole is before `first`, the region has no event until
  /// the next commit.
  @inline(never) private func commit(before first: UInt64) {
    if distance(from: committedEnd, to: first) > 0 { commit() }
  }

  @inline(__always) func commit() {
    guard committedEnd != endPosition else { return }
    committedEnd = endPosition
    recent.note(lastTime, events: appendedEvents, bytes: appendedBytes)
    if endPosition >= reserveAgainAt { reserveMore() }
    if hasNewHole { writeState() } else { positions.commit(end: endPosition) }
    state?.commit(endPosition)
    mirror?.logDidGrow(self)
  }

  /// Writes the whole extent as one.
  @inline(never) private func writeState(isClosed: Bool = false) {
    var extent = LogExtent(startingAt: firstPosition, boot: boot)
    (extent.end, extent.holeStart, extent.holeEnd, extent.isClosed) = (endPosition, holeStart, holeEnd, isClosed)
    extent.historyStart = historyStart
    layout.write(extent)
    positions = layout.positions()
    hasNewHole = false
  }

  /// Records the time of an event that follows the previous ones.
  @inline(__always) private func note(_ time: UInt64, of position: UInt64) {
    if time < lastTime, position > firstPosition {
      stepsBack.removeAll { $0 <= firstPosition }
      if stepsBack.count == Self.maximumStepsBack { stepsBack.removeFirst() }
      stepsBack.append(position)
    }
    lastTime = time
  }

  /// Writes the checkpoint of all events so far, including uncommitted ones.
  private func write(_ checkpoint: Checkpoint) {
    self.checkpoint = checkpoint
    if layout.isCompact, !hasRoom(for: checkpoint) { return }
    checkpointNote?.write(checkpoint.bytes, end: endPosition)
  }

  /// Writes the position of all events so far, including uncommitted ones.
  private func writeFleet(_ bytes: [UInt8]) {
    fleetBytes = bytes
    fleetNote?.write(bytes, end: endPosition)
  }

  /// Separate from the loop over events without stamps, into which the functions for each event are inlined.
  @inline(never) private func appendIfItFits(
    _ data: UnsafeRawBufferPointer, time: UInt64, _ keys: EventKeys? = nil, _ index: Int = 0
  ) -> Bool {
    let place = place(for: data.count)
    guard place.first <= heldPosition else { return false }
    if state != nil { unsafe consider(keys, index, data, time: time) }
    unsafe append(data, at: place, time: time)
    return true
  }

  /// The oldest event that can stay beside the hole when the next one follows it: no two share a slot.
  private func firstBesideHole(_ first: UInt64, _ slots: Int) -> UInt64 {
    let slots = UInt64(slots)
    let needed = distance(from: first, to: endPosition) + 1 + (holeEnd - holeStart) % slots
    guard needed > slots else { return first }
    return needed - slots < holeStart - first ? first + (needed - slots) : holeEnd
  }

  /// Where the next record is written, and the oldest event after that. If the record is larger than the ring, the
  /// shared region is full.
  @inline(__always) private func place(for dataBytes: Int) -> (offset: Int, byteCount: Int, first: UInt64) {
    let place = presentPlace(for: dataBytes)
    guard canGrow, place.first != firstPosition || place.byteCount > layout.ringBytes else { return place }
    return growing(for: dataBytes, from: place)
  }

  /// As above, after a move if that avoids an eviction which the limits do not require.
  @inline(never) private func growing(
    for dataBytes: Int, from place: (offset: Int, byteCount: Int, first: UInt64)
  ) -> (offset: Int, byteCount: Int, first: UInt64) {
    let isLimited = distance(from: firstPosition, to: endPosition) == UInt64(limits.events)
    var first = isLimited ? following(firstPosition) : firstPosition
    var slots = layout.slots
    if first < holeStart {
      let most = LogLayout.slots(for: limits.events)
      // More slots may separate the events on the two sides of the hole.
      while slots < most, firstBesideHole(first, slots) != first { slots *= 2 }
      first = firstBesideHole(first, slots)
    }
    // An event that does not fit alone gets its memory in any case: its publisher may have a confirmation.
    let isNeeded = place.byteCount > layout.ringBytes
    guard place.first > first || isNeeded, grow(by: 1, place.byteCount, slots: slots, isForced: isNeeded) else {
      return place
    }
    return presentPlace(for: dataBytes)
  }

  /// How many events there can be now.
  private var mostEvents: UInt64 { UInt64(min(limits.events, layout.slots)) }

  /// Where the used bytes of the ring end for a record.
  private func ringEnd(for byteCount: Int) -> Int { min(max(usedBytes, byteCount), layout.ringBytes) }

  @inline(__always) private func presentPlace(for dataBytes: Int) -> (offset: Int, byteCount: Int, first: UInt64) {
    let byteCount = LogLayout.recordBytes(for: dataBytes)
    var (offset, first) = (nextOffset, firstPosition)
    if distance(from: first, to: endPosition) == mostEvents { first = following(first) }
    if first < holeStart { first = firstBesideHole(first, layout.slots) }
    if offset + byteCount > ringEnd(for: byteCount) {
      // No record is split: the records between here and the ring's end are the oldest, and are evicted.
      while first < endPosition, layout.offset(of: first) >= offset { first = following(first) }
      offset = 0
    }
    while first < endPosition, (offset..<offset + byteCount).contains(layout.offset(of: first)) {
      first = following(first)
    }
    return (offset, byteCount, first)
  }

  @inline(__always) private func append(
    _ data: UnsafeRawBufferPointer, at place: (offset: Int, byteCount: Int, first: UInt64), time: UInt64
  ) {
    drop(to: place.first)
    unsafe layout.write(data, id: endPosition, time: time, at: place.offset)
    nextOffset = place.offset + place.byteCount
    newestID = endPosition
    note(time, of: endPosition)
    endPosition = following(endPosition)
    appendedBytes += UInt64(data.count)
  }
}
