import Events
import Glibc

/// An event as it stands in the log.
public struct LoggedEvent: Equatable, Sendable {
  /// Its position: rises by 1 from event to event, for ever.
  public let id: UInt64
  /// When it was taken in by the clock of then, microseconds since the Unix epoch. The order is that of the ids: the clock
  /// may have been set back between two events.
  public let time: UInt64
  /// Its bytes, exactly.
  public let data: [UInt8]
}

/// The last events of one stream, encoded, in one mapped region: a ring of bytes and a ring of offsets.
///
/// A position is an event's id. Positions only rise, so a cursor is a number, finding an event is arithmetic, and dropping
/// the oldest changes no cursor. What is held is bounded by count, bytes and age, whichever is reached first.
///
/// Positions follow one another, but for one hole at most: where a machine lost power, ids go on higher than any that were
/// given, and what was lost is the gap in them. `skip` gives the position that stands for one in the hole; `count` and
/// `position` know of it.
///
/// The region outlives the process where somebody else keeps it: see `LogLayout`. Not thread-safe: `SharedLog` guards it.
public final class EventLog {
  /// What is held, at most.
  public struct Limits: Equatable, Sendable {
    /// Number of events, at least 1.
    public var events: Int
    /// Bytes of the ring; an event takes its data and 24 more, rounded up to 8.
    public var bytes: Int
    /// Nil: no age is too great. An event that is stamped later than the present by more than this has no age that can be
    /// told, and counts as too old.
    public var age: Duration?

    /// The limits of a stream whose configuration gives none: 65,536 events, 8 MiB, any age.
    public init(events: Int = 65536, bytes: Int = 8 << 20, age: Duration? = nil) {
      self.events = max(1, events)
      self.bytes = max(Self.leastBytes, bytes) & ~7
      self.age = age
    }

    static let leastBytes = 4096

    /// Bytes that a full log takes: the ring, and 8 for each event, of which the number is rounded up to a power of two.
    public var regionBytes: Int { LogLayout.byteCount(slots: LogLayout.slots(for: events), ringBytes: bytes) }

    /// Data bytes of the largest event that fits.
    public var maximumEventBytes: Int { bytes - LogLayout.recordHeaderBytes }
  }

  /// Ids are below.
  public static let idLimit = LogLayout.idLimit

  /// Bytes of id and time before the data of `record(at:)`.
  @inlinable public static var stampBytes: Int { 16 }

  /// As given.
  public let limits: Limits
  /// The oldest event held; `endPosition` when none is.
  public private(set) var firstPosition: UInt64
  /// The id that the next event gets.
  public private(set) var endPosition: UInt64
  /// Data bytes of the events appended since the start.
  public private(set) var appendedBytes: UInt64 = 0
  /// When the newest event was taken in, whether or not it is still held; microseconds since the Unix epoch. Nil before
  /// the first.
  public var newestTime: UInt64? { lastTime > 0 ? lastTime : nil }
  /// How much of the ring is used, from its start; the rest keeps what it holds until its turn to be dropped comes, and
  /// takes no memory while it was never written. At most `limits.bytes`, which it is at first.
  public var usedBytes: Int {
    didSet { usedBytes = min(usedBytes, limits.bytes) }
  }

  /// The newest event's id, whether or not it is still held; nil before the first.
  public private(set) var newestID: UInt64?
  /// Where the source resumes: the newest one of the batches that are in the log, or were. Outlives the process with them.
  public private(set) var checkpoint: Checkpoint?

  /// How many steps back of the clock `position(since:)` reckons with.
  private static let maximumStepsBack = 64

  let layout: LogLayout
  /// Keeps the region mapped.
  let owner: AnyObject
  private let clock: () -> UInt64
  /// Called after events were appended by whatever guards the log, outside of every lock: see `appendObserver`.
  let didGrow: (@Sendable () -> Void)?
  private let boot: BootID
  private var positions: LogPositions
  private(set) var holeStart: UInt64
  private(set) var holeEnd: UInt64
  /// From here on every position but those in the hole was given to an event; positions before it are unknown. In the header.
  private var historyStart: UInt64
  private var lastTime: UInt64 = 0
  /// Before which of the events held the clock was set back; the newest such places.
  private var stepsBack: [UInt64] = []
  private var heldPosition = UInt64.max
  private var nextOffset = 0
  private var checkpointNote: LogNote?
  /// What the region says of `endPosition`: it is behind while a batch is being appended.
  private var committedEnd: UInt64
  private var reserve: ((UInt64) -> Void)?
  private var reservedCount: UInt64 = 0
  /// From which id on more are to be reserved.
  private var reserveAgainAt = UInt64.max

  /// Goes on with what a region holds, of which all has been checked.
  ///
  /// - Parameters:
  ///   - state: as it stands in the region.
  ///   - owner: keeps the region mapped.
  ///   - didGrow: called after events were appended to the log that this is the storage of, outside of every lock.
  init(
    _ layout: LogLayout, _ state: LogState, limits: Limits, owner: AnyObject,
    clock: @escaping () -> UInt64 = EventLog.wallClock, didGrow: (@Sendable () -> Void)? = nil
  ) {
    precondition(layout.slots >= limits.events && layout.ringBytes == limits.bytes, "another geometry than \(limits)")
    self.layout = layout
    self.limits = limits
    self.owner = owner
    self.clock = clock
    self.didGrow = didGrow
    boot = state.boot
    positions = layout.positions()
    usedBytes = limits.bytes
    (firstPosition, endPosition) = (state.first, state.end)
    (holeStart, holeEnd) = (state.holeStart, state.holeEnd)
    committedEnd = state.end
    checkpointNote = layout.checkpointNote
    checkpoint = checkpointNote?.restore(upTo: state.salvagedEnd ?? state.end).flatMap { Checkpoint($0) }
    historyStart = state.historyStart
    guard state.count > 0 else { return }
    let newest = position(ofLast: 1)
    newestID = newest
    var next = firstPosition
    while next < endPosition {
      note(time(of: next), of: next)
      next = following(next)
    }
    nextOffset = layout.offset(of: newest) + LogLayout.recordBytes(for: layout.dataBytes(at: layout.offset(of: newest)))
    if state.count > limits.events { drop(to: position(ofLast: UInt64(limits.events))) }
  }

  /// Has `reserve` called, now and whenever half of what was reserved has been given.
  ///
  /// - Parameters:
  ///   - count: how many ids to reserve at a time. By default 67 million: a minute's worth of the clock's, and seconds of the
  ///     fastest stream's.
  ///   - reserve: gets an id that none which is given before the next call is at or above. Called under whatever lock guards
  ///     the log: it must not wait.
  public func reserveIDs(_ count: UInt64 = 1 << 26, _ reserve: @escaping (_ end: UInt64) -> Void) {
    (self.reserve, reservedCount) = (reserve, count)
    reserveMore()
  }

  private func reserveMore() {
    reserveAgainAt = endPosition + reservedCount / 2
    reserve?(endPosition + reservedCount)
  }

  /// Appends a batch, dropping the oldest where a limit asks for it. An event over `limits.maximumEventBytes` is left out:
  /// who appends turns it away before, and says so. A log of which something is held takes only `appendWhatFits`.
  ///
  /// A process that is killed in here leaves all of the batch, with its checkpoint, or nothing of it; or the first of its
  /// events without the checkpoint, if it is larger than the ring.
  public func append(_ batch: EventBatch) {
    let rest = appendWhatFits(batch)
    precondition(rest == nil, "\(rest?.count ?? 0) events would have been dropped from \(heldPosition) on")
  }

  /// Nothing from `position` on is dropped from now on, not for its age either; `.max`: anything may.
  public func hold(from position: UInt64) {
    heldPosition = skip(position)
  }

  /// As `append`, up to the first event that has no room beside what is held.
  public func appendWhatFits(_ batch: EventBatch) -> EventBatch? {
    guard !batch.isEmpty || batch.checkpoint != nil else { return nil }
    if batch.checkpoint != nil, heldPosition < endPosition, !hasRoomForAll(of: batch) { return batch }
    let now = clock()
    var count = 0
    batch.withUnsafeBytes(of: 0..<batch.count) { data in
      guard data.count <= limits.maximumEventBytes else {
        count += 1
        return true
      }
      let place = place(for: data.count)
      guard place.first <= heldPosition else { return false }
      append(data, at: place, time: now)
      count += 1
      return true
    }
    let isWhole = count == batch.count
    if isWhole, let checkpoint = batch.checkpoint { write(checkpoint) }
    commit()
    dropExpired()
    return isWhole ? nil : EventBatch(batch[count...])
  }

  /// Whether a batch that comes with a checkpoint need not be split: its checkpoint would only hold with the last part, and
  /// after a kill its source would repeat the others. One that an empty log could not take is split all the same.
  private func hasRoomForAll(of batch: EventBatch) -> Bool {
    var needed = 0
    batch.withUnsafeBytes(of: 0..<batch.count) {
      needed += LogLayout.recordBytes(for: $0.count)
      return true
    }
    // What stands between the last record and the ring's end is lost where the next one does not fit there.
    needed += LogLayout.recordBytes(for: batch.largestByteCount)
    guard batch.count <= limits.events, needed <= limits.bytes else { return true }
    let held = count(from: heldPosition, to: endPosition)
    guard held + UInt64(batch.count) <= UInt64(limits.events) else { return false }
    let start = layout.offset(of: heldPosition)
    let free = nextOffset > start ? limits.bytes - (nextOffset - start) : start - nextOffset
    return needed <= free
  }

  /// Whether as many events are held as there may be.
  public var isFull: Bool { count(from: heldPosition, to: endPosition) >= UInt64(limits.events) }

  /// Gives the next event the id `position`, where that is further on and nothing is held.
  /// - Returns: whether it does.
  public func begin(at position: UInt64) -> Bool {
    guard firstPosition == endPosition, position > endPosition, position < Self.idLimit else { return false }
    layout.write(LogState(startingAt: position, boot: boot))
    positions = layout.positions()
    (firstPosition, endPosition, committedEnd) = (position, position, position)
    (holeStart, holeEnd, historyStart) = (0, 0, position)
    if endPosition >= reserveAgainAt { reserveMore() }
    return true
  }

  /// Takes over what fits of another log, the newest, with its ids and times, in place of what this one holds.
  func takeOver(_ other: EventLog) {
    var state = LogState(startingAt: other.firstPosition, boot: boot)
    if other.firstPosition < other.holeStart {
      state.holeStart = other.holeStart
      // A hole has to leave each position its slot. One behind which nothing stands can grow; else what is before it goes.
      state.holeEnd = layout.holeEnd(from: other.holeStart, atLeast: other.holeEnd)
      if state.holeEnd != other.holeEnd, other.endPosition != other.holeEnd {
        state = LogState(startingAt: other.holeEnd, boot: boot)
      }
    }
    state.historyStart = state.holeEnd > 0 ? other.historyStart : max(other.historyStart, other.holeEnd)
    (firstPosition, endPosition, committedEnd) = (state.first, state.first, state.first)
    (holeStart, holeEnd, historyStart) = (state.holeStart, state.holeEnd, state.historyStart)
    layout.write(state)
    positions = layout.positions()
    (newestID, lastTime, nextOffset) = (other.newestID, other.lastTime, 0)
    var position = state.first
    while position < other.endPosition {
      let data = UnsafeRawBufferPointer(rebasing: other.record(at: position)[Self.stampBytes...])
      if data.count <= limits.maximumEventBytes {
        append(data, at: place(for: data.count), time: other.time(of: position))
      } else {
        endPosition = following(position)
        drop(to: endPosition)
      }
      position = other.following(position)
    }
    if let checkpoint = other.checkpoint { write(checkpoint) }
    commit()
    appendedBytes = other.appendedBytes
  }

  /// Notes that nothing is to be appended any more, once all that was appended is safe.
  func noteClosed() {
    var state = LogState(startingAt: firstPosition, boot: boot)
    (state.end, state.holeStart, state.holeEnd, state.isClosed) = (endPosition, holeStart, holeEnd, true)
    state.historyStart = historyStart
    layout.write(state)
    positions = layout.positions()
  }

  /// The event's stamp (id and time, big endian, 16 bytes) followed by its data; valid until the next append.
  public func record(at position: UInt64) -> UnsafeRawBufferPointer {
    precondition(
      position >= firstPosition && position < endPosition && skip(position) == position,
      "\(position) not in \(firstPosition)..<\(endPosition) without \(holeStart)..<\(holeEnd)")
    let offset = layout.offset(of: position)
    return UnsafeRawBufferPointer(
      start: layout.record(at: offset) + 8, count: Self.stampBytes + layout.dataBytes(at: offset))
  }

  /// The same of all positions in a range without a hole, for who reads many.
  public func records(in range: Range<UInt64>) -> LogRecords {
    precondition(
      range.lowerBound >= firstPosition && range.upperBound <= endOfRun(from: range.lowerBound)
        && skip(range.lowerBound) == range.lowerBound,
      "\(range) not in \(firstPosition)..<\(endPosition) without \(holeStart)..<\(holeEnd)")
    return layout.records
  }

  /// A copy of the event.
  public func element(at position: UInt64) -> LoggedEvent {
    let record = record(at: position)
    return LoggedEvent(id: position, time: time(of: position), data: Array(record.dropFirst(Self.stampBytes)))
  }

  /// The first event that is stamped `time` or later, but not later than the present: that was a clock ahead of time.
  /// `endPosition` when there is none.
  ///
  /// Where the clock was set back there may be several places: it is the oldest. After more than 64 steps back within what
  /// is held, the oldest of them are no longer reckoned with, and a place among the events before the others may be another.
  /// - Complexity: O(steps back · log n).
  public func position(since time: UInt64) -> UInt64 {
    let now = clock()
    let count = count(from: firstPosition, to: endPosition)
    func position(_ index: UInt64) -> UInt64 { self.position(ofLast: count - index) }
    var start: UInt64 = 0
    for end in stepsBack.lazy.map({ self.count(from: self.firstPosition, to: $0) }) + [count] where end > start {
      var (low, high) = (start, end)
      while low < high {
        let middle = low + (high - low) / 2
        if self.time(of: position(middle)) < time { low = middle + 1 } else { high = middle }
      }
      if low < end, self.time(of: position(low)) <= now { return position(low) }
      start = end
    }
    return endPosition
  }

  /// The first of the last `count` events held; `endPosition` for none.
  public func position(ofLast count: UInt64) -> UInt64 {
    let position = endPosition - min(count, self.count(from: firstPosition, to: endPosition))
    return firstPosition < holeStart && position < holeEnd ? position - (holeEnd - holeStart) : position
  }

  /// How many events there are, or were, from one position up to another.
  public func count(from start: UInt64, to end: UInt64) -> UInt64 {
    guard start < end else { return 0 }
    let (low, high) = (max(start, holeStart), min(end, holeEnd))
    return end - start - (low < high ? high - low : 0)
  }

  /// The events that a reader misses that goes on at `end` in place of `start`.
  /// - Returns: `nil` if that cannot be known: a hole is between, or `start` is before the log's history.
  public func missedEvents(from start: UInt64, to end: UInt64) -> UInt64? {
    guard start < end else { return 0 }
    guard start >= historyStart, start >= holeEnd || end <= holeStart else { return nil }
    return end - start
  }

  /// From here on every position before `endPosition` was given to an event.
  public var countedFrom: UInt64 { max(historyStart, holeEnd) }

  /// The position itself, or the hole's end for one in the hole.
  public func skip(_ position: UInt64) -> UInt64 {
    position >= holeStart && position < holeEnd ? holeEnd : position
  }

  /// Where a reader has to stop who takes event after event: the hole's start before the hole, else `endPosition`.
  public func endOfRun(from position: UInt64) -> UInt64 { position < holeStart ? holeStart : endPosition }

  /// Drops the oldest events while they are older than the age limit by the present clock, or stamped later than the present
  /// by more than that. Appending does so too; a quiet stream needs it before it is read.
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

  /// Microseconds since the Unix epoch.
  public static func wallClock() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return UInt64(time.tv_sec) * 1_000_000 + UInt64(time.tv_nsec) / 1000
  }

  private func following(_ position: UInt64) -> UInt64 { skip(position + 1) }

  private func time(of position: UInt64) -> UInt64 { layout.time(at: layout.offset(of: position)) }

  private func drop(to first: UInt64) {
    guard first != firstPosition else { return }
    if first > committedEnd { commit() }
    firstPosition = first
    positions.commit(first: first)
  }

  private func commit() {
    guard committedEnd != endPosition else { return }
    committedEnd = endPosition
    if endPosition >= reserveAgainAt { reserveMore() }
    positions.commit(end: endPosition)
  }

  /// The time of an event that follows the ones before.
  private func note(_ time: UInt64, of position: UInt64) {
    if time < lastTime, position > firstPosition {
      stepsBack.removeAll { $0 <= firstPosition }
      if stepsBack.count == Self.maximumStepsBack { stepsBack.removeFirst() }
      stepsBack.append(position)
    }
    lastTime = time
  }

  /// Of all events so far, also those that are still to be committed.
  private func write(_ checkpoint: Checkpoint) {
    self.checkpoint = checkpoint
    checkpointNote?.write(checkpoint.bytes, end: endPosition)
  }

  /// Where the next record goes, and what is the oldest event then.
  private func place(for dataBytes: Int) -> (offset: Int, byteCount: Int, first: UInt64) {
    let byteCount = LogLayout.recordBytes(for: dataBytes)
    var (offset, first) = (nextOffset, firstPosition)
    if count(from: first, to: endPosition) == UInt64(limits.events) { first = following(first) }
    if offset + byteCount > max(usedBytes, byteCount) {
      // No record is split: what stands between here and the end is the oldest, and goes.
      while first < endPosition, layout.offset(of: first) >= offset { first = following(first) }
      offset = 0
    }
    while first < endPosition, (offset..<offset + byteCount).contains(layout.offset(of: first)) {
      first = following(first)
    }
    return (offset, byteCount, first)
  }

  private func append(
    _ data: UnsafeRawBufferPointer, at place: (offset: Int, byteCount: Int, first: UInt64), time: UInt64
  ) {
    drop(to: place.first)
    layout.write(data, id: endPosition, time: time, at: place.offset)
    nextOffset = place.offset + place.byteCount
    newestID = endPosition
    note(time, of: endPosition)
    endPosition = following(endPosition)
    appendedBytes += UInt64(data.count)
  }
}
