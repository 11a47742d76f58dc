import ReplayLog
import StreamRuntime

/// Events from one position of a log on, as bytes, built once for all subscriptions at that position.
///
/// A worker has one for each encoding, and reuses it. It has no more events than a subscription has demanded so far. It
/// grows when another one at the same position demands more, or when the log has more. Only the request ID may differ
/// from one subscription to the next; it is patched in place.
///
/// The bytes are pieces; a table of their ends determines the cursor after any number of bytes. Every piece except the
/// last is the end of an event; only the last can be a part that another part follows. With a filter or in a state, the
/// events may not be adjacent: a second table has their positions.
@safe final class EventBlock {
  /// From this size on, no piece is added. A write of many small events wakes a reader that waits fewer times; a larger one
  /// would not fit the socket, whose buffer has 208 KiB by default.
  static let targetBytes = 128 << 10
  /// An event has about 8 bytes around its data, or more. If it has fewer, this table limits the block.
  static let maximumPieceCount = targetBytes / 8

  private let base: UnsafeMutableRawPointer
  /// For each piece, the number of the block's bytes up to its end.
  private let ends: UnsafeMutablePointer<UInt32>
  /// For each piece, the position of its event; only with a filter or in a state.
  private let positions: UnsafeMutablePointer<UInt64>
  private(set) var verdicts: FilterVerdicts?
  /// The end of the state to which the events belong; nil: they come from the log.
  var stateEnd: UInt64?
  var pieceCount = 0
  private var log: ObjectIdentifier?
  private var format = EventFormat(ids: true, completes: false)
  private var label: EventLabel?
  private(set) var writer = EventWriter(EventFormat(ids: true, completes: false))
  /// The notes before the first event.
  private var before = EventWriter.Before()
  /// Events that the filter has left out since the last one in the block, or, without one, since the last payload.
  var leftOut: UInt64 = 0
  var request = RequestID(0)
  var start = Cursor(position: 0)
  var end = Cursor(position: 0)
  /// The log's end at the last fill.
  private var logEnd: UInt64 = 0
  /// Whether the only piece is a marker.
  private var isMarker = false
  /// Whether `end` is after the hole in the log's ids: no events are added then.
  private var crossesGap = false

  init() {
    unsafe base = .allocate(byteCount: Self.targetBytes + EventWriter.maximumPieceBytes, alignment: 16)
    unsafe ends = .allocate(capacity: Self.maximumPieceCount)
    unsafe positions = .allocate(capacity: Self.maximumPieceCount)
  }

  deinit {
    unsafe base.deallocate()
    unsafe ends.deallocate()
    unsafe positions.deallocate()
  }

  var byteCount: Int { end(ofFirst: pieceCount) }

  /// Events that end in the block.
  private var eventCount: Int { end.sentBytes > 0 ? pieceCount - 1 : pieceCount }

  /// The number of bytes in the first `count` pieces.
  private func end(ofFirst count: Int) -> Int { unsafe count == 0 ? 0 : Int(ends[count - 1]) }

  /// Bytes that one turn examines for a filter: about 0.1 ms.
  static let examinedBytes = 64 << 10

  /// The parts of a subscription that are not in its machine.
  struct Subscriber {
    /// The notes before the event at its cursor.
    var before: EventWriter.Before
    let request: RequestID
    var label: EventLabel?
    let verdicts: FilterVerdicts?
    /// Whether a marker is due if there is no event.
    let isMarkerDue: Bool
    /// The state that it reads; nil: it reads the log.
    var reading: StateReading?
  }

  /// Fills the block for a subscription; under the log's lock.
  ///
  /// - Parameter contentVerdicts: the verdicts of the stream.
  func fill(
    from storage: EventLog, for machine: SubscriptionMachine, _ subscriber: Subscriber,
    _ contentVerdicts: ContentVerdicts
  ) -> SubscriptionMachine.Finding {
    let cursor = machine.cursor
    logEnd = storage.endPosition
    if let reading = subscriber.reading {
      return fillState(reading, from: storage, for: machine, subscriber, contentVerdicts)
    }
    let position = storage.skip(cursor.position)
    guard position == cursor.position else { return .inGap(end: position) }
    guard position >= storage.firstPosition else {
      let next = machine.onLag == .latest ? storage.position(ofLast: 1) : storage.firstPosition
      let lost = storage.count(from: cursor.position, to: next)
      // Nothing was evicted but what precedes a hole: it is not the subscriber that is late.
      guard lost > 0 else { return .inGap(end: next) }
      return .overtaken(
        next: next, lost: lost,
        missed: Gap(storage.missedEvents(from: cursor.position, to: next)))
    }
    guard position < storage.endPosition else {
      guard subscriber.isMarkerDue, machine.demand > .none else { return .nothing }
      fillMarker(storage, for: machine, subscriber)
      return .marker
    }
    guard machine.demand > .none, !machine.format.isNotice else { return .events }
    var before = subscriber.before
    if cursor.sentBytes > 0 || !machine.format.ids { before.gap = .none }
    if !continues(storage, machine, subscriber, before, stateEnd: nil) {
      clear(storage, at: cursor, machine.format, subscriber, before)
    }
    extend(from: storage, to: machine.demand.max ?? .max, contentVerdicts)
    guard pieceCount > 0 else { return end == start ? .unexamined : .passed(upTo: end.position) }
    if request != subscriber.request { address(to: subscriber.request) }
    return .events
  }

  /// Makes the block a marker for this subscription alone.
  private func fillMarker(_ storage: EventLog, for machine: SubscriptionMachine, _ subscriber: Subscriber) {
    clear(storage, at: machine.cursor, machine.format, subscriber, subscriber.before)
    let id = storage.newestID ?? storage.endPosition &- 1
    let stamp = [id.bigEndian, EventLoop.wallClock().bigEndian]
    let piece = unsafe stamp.withUnsafeBytes {
      unsafe writer.writeMarker(
        $0, before, upTo: machine.cursor.position &- 1, for: subscriber.request, at: base)
    }
    unsafe ends[0] = UInt32(piece.byteCount)
    (pieceCount, isMarker, leftOut) = (1, true, 0)
    log = nil
  }

  /// Drops the content, because another log may reuse the address of this one.
  func forget() {
    (log, verdicts) = (nil, nil)
  }

  /// The bytes that a demand of `demand` covers, from the block's start; nil: unlimited. A part of an event needs
  /// demand, too.
  func bytes(coveredBy demand: Int?) -> UnsafeRawBufferPointer {
    unsafe UnsafeRawBufferPointer(start: base, count: end(ofFirst: min(demand ?? .max, pieceCount)))
  }

  /// The progress of a subscription after the first `sent` bytes.
  @safe struct Progress {
    /// The result; its cursor is after the last piece that was begun.
    let written: SubscriptionMachine.Written
    /// The unsent rest of the piece that was begun.
    let rest: UnsafeRawBufferPointer
  }

  func progress(after sent: Int) -> Progress {
    let begun = sent == byteCount ? pieceCount : piecesBegun(in: sent)
    let isAll = begun == pieceCount
    let cursor = isAll ? end : begun == 0 ? start : Cursor(position: position(ofPiece: begun - 1) + 1)
    return unsafe Progress(
      written: .init(
        count: isAll ? eventCount : begun, cursor: cursor, isLast: cursor == Cursor(position: logEnd),
        hasBegun: sent > 0, gap: crossesGap && isAll ? .unknown : .none,
        leftOut: isAll ? leftOut : begun == 0 ? before.leftOut : 0, isMarker: isMarker,
        isStateEnd: stateEnd == cursor.position),
      rest: UnsafeRawBufferPointer(start: base + sent, count: end(ofFirst: begun) - sent))
  }

  /// Whether the events may not be adjacent.
  private var hasPositions: Bool { verdicts != nil || stateEnd != nil }

  private func position(ofPiece piece: Int) -> UInt64 {
    hasPositions ? unsafe positions[piece] : start.position + UInt64(piece)
  }

  /// The number of pieces that begin within the first `sent` bytes.
  private func piecesBegun(in sent: Int) -> Int {
    var (low, high) = (0, pieceCount)
    while low < high {
      let middle = (low + high) / 2
      if end(ofFirst: middle) < sent { low = middle + 1 } else { high = middle }
    }
    return low
  }

  func clear(
    _ storage: EventLog, at cursor: Cursor, _ format: EventFormat, _ subscriber: Subscriber,
    _ before: EventWriter.Before
  ) {
    (log, start, end, crossesGap, isMarker) = (ObjectIdentifier(storage), cursor, cursor, false, false)
    (self.format, label, request, verdicts) = (format, subscriber.label, subscriber.request, subscriber.verdicts)
    (self.before, leftOut) = (before, before.leftOut)
    writer = EventWriter(format, label)
    (pieceCount, stateEnd) = (0, nil)
  }

  /// Adds events while there are fewer than `demand`, and there is room.
  private func extend(from storage: EventLog, to demand: Int, _ contentVerdicts: ContentVerdicts) {
    let most = min(format.completes ? 1 : demand, Self.maximumPieceCount)
    guard pieceCount < most, end.position < storage.endPosition, end.sentBytes == 0 || pieceCount == 0, !crossesGap
    else { return }
    // The hole may have come since the last fill. Events that do not fit are passed only up to the hole, because it is
    // a gap.
    guard storage.skip(end.position) == end.position else {
      if pieceCount > 0 { _ = cross(storage) }
      return
    }
    let runEnd = storage.endOfRun(from: end.position)
    let records = storage.records(in: end.position..<runEnd)
    addPlain(upTo: most) { pieces in
      while pieces.hasRoom, pieces.end < runEnd, unsafe pieces.add(records[pieces.end], at: pieces.end) {}
    }
    let writer = writer
    var byteCount = byteCount
    var budget = Self.examinedBytes
    while byteCount < Self.targetBytes, pieceCount < most, end.position < runEnd {
      if verdicts != nil, !pass(in: storage, before: runEnd, &budget) { return }
      guard
        unsafe write(records[end.position], at: end.position, from: storage, by: writer, &byteCount, contentVerdicts)
      else { return }
    }
    _ = cross(storage)
  }

  /// The pieces of a block while plain frames are added, without the look at everything else that an event can need.
  @safe struct PlainPieces {
    fileprivate let base: UnsafeMutableRawPointer
    fileprivate let ends: UnsafeMutablePointer<UInt32>
    fileprivate let positions: UnsafeMutablePointer<UInt64>?
    fileprivate let request: RequestID
    fileprivate let most: Int
    fileprivate var count: Int
    fileprivate var byteCount: Int
    /// The position after the last event.
    fileprivate(set) var end: UInt64

    var hasRoom: Bool { byteCount < EventBlock.targetBytes && count < most }

    /// Adds an event.
    /// - Returns: whether it fits a plain frame.
    @inline(__always) mutating func add(_ record: UnsafeRawBufferPointer, at id: UInt64) -> Bool {
      guard record.count <= EventWriter.maximumPlainByteCount else { return false }
      unsafe byteCount += EventWriter.writePlain(record, for: request, at: base + byteCount)
      unsafe ends[count] = UInt32(truncatingIfNeeded: byteCount)
      unsafe positions?[count] = id
      count += 1
      end = id + 1
      return true
    }
  }

  /// Adds events whose frames are plain, as long as `body` finds them.
  @inline(__always) func addPlain(upTo most: Int, _ body: (inout PlainPieces) -> Void) {
    guard writer.isPlain, verdicts == nil, end.sentBytes == 0, leftOut == 0, pieceCount > 0 || before.gap == .none
    else { return }
    var pieces = unsafe PlainPieces(
      base: base, ends: ends, positions: hasPositions ? positions : nil, request: request, most: most,
      count: pieceCount, byteCount: byteCount, end: end.position)
    body(&pieces)
    (pieceCount, end) = (pieces.count, Cursor(position: pieces.end))
  }

  /// Moves the end past events that do not fit the filter.
  /// - Returns: whether it is now at an event that fits.
  private func pass(in storage: EventLog, before runEnd: UInt64, _ budget: inout Int) -> Bool {
    guard let verdicts, end.sentBytes == 0 else { return true }
    let (position, isFit): (UInt64, Bool)
    switch verdicts.next(from: end.position, before: runEnd, in: storage, budget: &budget) {
    case .event(let next): (position, isFit) = (next, true)
    case .none(let next): (position, isFit) = (next, false)
    }
    leftOut += position - end.position
    end.position = position
    return isFit
  }

  /// Whether the block begins with the next events of a subscription, in its form.
  func continues(
    _ storage: EventLog, _ machine: SubscriptionMachine, _ subscriber: Subscriber, _ before: EventWriter.Before,
    stateEnd: UInt64?
  ) -> Bool {
    log == ObjectIdentifier(storage) && start == machine.cursor && format == machine.format && self.before == before
      && label == subscriber.label && verdicts === subscriber.verdicts && self.stateEnd == stateEnd
  }

  /// Adds the next piece of an event.
  ///
  /// - Parameters:
  ///   - id: the id of the event.
  ///   - writer: the block's, which the caller has copied once.
  ///   - byteCount: the bytes of the block; the caller's copy.
  ///   - isCopied: whether the record is a copy that is made for each call.
  /// - Returns: whether the event is complete.
  @inline(__always) func write(
    _ record: UnsafeRawBufferPointer, at id: UInt64, from storage: EventLog, by writer: EventWriter,
    _ byteCount: inout Int, _ contentVerdicts: ContentVerdicts, isCopied: Bool = false
  ) -> Bool {
    var isOther = false
    if let content = writer.required {
      guard let holds = unsafe contentVerdicts.holds(content, for: record, at: id, in: storage, isCopied: isCopied)
      else { return false }
      isOther = !holds
    }
    var notes = EventWriter.Before(gap: pieceCount == 0 ? before.gap : .none, leftOut: leftOut)
    if let position = label?.position {
      notes.position = position.after(
        eventOf: unsafe EventWriter.time(of: record), isNewest: id + 1 >= storage.endPosition)
    }
    let piece = unsafe writer.write(
      record, from: end.sentBytes, notes,
      isOther: isOther, for: request, at: base + byteCount)
    byteCount += piece.byteCount
    unsafe ends[pieceCount] = UInt32(byteCount)
    if hasPositions { unsafe positions[pieceCount] = id }
    pieceCount += 1
    leftOut = 0
    guard !piece.follows else {
      end = Cursor(position: id, sentBytes: end.sentBytes + piece.dataByteCount)
      return false
    }
    end = Cursor(position: id + 1)
    return true
  }

  /// Moves the end past the hole in the log's ids, if the end is at the hole.
  /// - Returns: whether it moved.
  private func cross(_ storage: EventLog) -> Bool {
    let next = storage.skip(end.position)
    crossesGap = next != end.position
    end.position = next
    return crossesGap
  }

  func address(to request: RequestID) {
    self.request = request
    for piece in 0..<pieceCount { unsafe format.address(base + end(ofFirst: piece), to: request) }
  }
}
