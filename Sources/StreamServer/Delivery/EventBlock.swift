import ReplayLog

/// Events from one position of a log on, as bytes, built once for all subscriptions at that position.
///
/// One per worker, reused. It has no more events than a subscription has demanded so far, and grows when another one at
/// the same position demands more, or the log has more. Only the request ID may differ from one subscription
/// to the next, and is patched in place.
///
/// The bytes are pieces; a table of their ends determines the cursor after any number of bytes. Every
/// piece except the last is the end of an event; only the last can be a part that another part follows.
@safe final class EventBlock {
  /// The size from which on no pieces are added; large, so that one write covers many small events.
  static let targetBytes = 64 << 10
  /// At least that many bytes are around the data of an event, or nearly: then the table limits the block.
  private static let maximumPieceCount = targetBytes / 8

  private let base: UnsafeMutableRawPointer
  /// For each piece, the number of the block's bytes up to its end.
  private let ends: UnsafeMutablePointer<UInt32>
  private var pieceCount = 0
  private var log: ObjectIdentifier?
  private var format = EventFormat(ids: true, completes: false)
  private var label: EventLabel?
  private var writer = EventWriter(EventFormat(ids: true, completes: false))
  /// The gap before the first event.
  private var gap = Gap.none
  private var request = RequestID(0)
  private var start = Cursor(position: 0)
  private var end = Cursor(position: 0)
  /// The log's end at the last fill.
  private var logEnd: UInt64 = 0
  /// Whether `end` is after the hole in the log's ids: no events are added then.
  private var crossesGap = false

  init() {
    unsafe base = .allocate(byteCount: Self.targetBytes + EventWriter.maximumPieceBytes, alignment: 16)
    unsafe ends = .allocate(capacity: Self.maximumPieceCount)
  }

  deinit {
    unsafe base.deallocate()
    unsafe ends.deallocate()
  }

  private var byteCount: Int { end(ofFirst: pieceCount) }

  /// Events that end in the block.
  private var eventCount: Int { end.sentBytes > 0 ? pieceCount - 1 : pieceCount }

  /// The number of bytes in the first pieces.
  private func end(ofFirst count: Int) -> Int { unsafe count == 0 ? 0 : Int(ends[count - 1]) }

  /// Fills the block for the subscription; under the log's lock.
  ///
  /// - Parameters:
  ///   - gap: missed events before the cursor that were not reported.
  ///   - verdicts: of the stream.
  func fill(
    from storage: EventLog, for machine: SubscriptionMachine, _ gap: Gap, _ request: RequestID, _ label: EventLabel?,
    _ verdicts: JSONVerdicts
  ) -> SubscriptionMachine.Finding {
    let cursor = machine.cursor
    logEnd = storage.endPosition
    let position = storage.skip(cursor.position)
    guard position == cursor.position else { return .inGap(end: position) }
    guard position >= storage.firstPosition else {
      let next = machine.onLag == .latest ? storage.position(ofLast: 1) : storage.firstPosition
      return .overtaken(
        next: next, lost: storage.count(from: cursor.position, to: next),
        missed: Gap(storage.missedEvents(from: cursor.position, to: next)))
    }
    guard position < storage.endPosition else { return .nothing }
    guard machine.demand > .none, !machine.format.isNotice else { return .events }
    let gap = cursor.sentBytes == 0 && machine.format.ids ? gap : .none
    let fits =
      log == ObjectIdentifier(storage) && start == cursor && format == machine.format && self.gap == gap
      && self.label == label
    if !fits { clear(storage, at: cursor, machine.format, label, gap, request) }
    extend(from: storage, to: machine.demand.max ?? .max, verdicts)
    guard pieceCount > 0 else { return .unexamined }
    if self.request != request { address(to: request) }
    return .events
  }

  /// Drops the content, because another log may reuse the address of this one.
  func forget() {
    log = nil
  }

  /// The bytes that a demand of `demand` covers, from the block's start; nil: unlimited. A part of an event needs
  /// demand, too.
  func bytes(coveredBy demand: Int?) -> UnsafeRawBufferPointer {
    unsafe UnsafeRawBufferPointer(start: base, count: end(ofFirst: min(demand ?? .max, pieceCount)))
  }

  /// The progress of a subscription after the first `sent` bytes.
  @safe struct Progress {
    /// After the last piece that was begun.
    let cursor: Cursor
    /// Completely sent events.
    let eventCount: Int
    /// The gap before the cursor.
    let gap: Gap
    /// The unsent rest of the piece that was begun.
    let rest: UnsafeRawBufferPointer
    /// Whether the log had no event at the cursor.
    let isLast: Bool
  }

  func progress(after sent: Int) -> Progress {
    let begun = sent == byteCount ? pieceCount : piecesBegun(in: sent)
    let isAll = begun == pieceCount
    let cursor = isAll ? end : begun == 0 ? start : Cursor(position: start.position + UInt64(begun))
    return unsafe Progress(
      cursor: cursor, eventCount: isAll ? eventCount : begun, gap: crossesGap && isAll ? .unknown : .none,
      rest: UnsafeRawBufferPointer(start: base + sent, count: end(ofFirst: begun) - sent),
      isLast: cursor == Cursor(position: logEnd))
  }

  /// The number of pieces of which a byte is among the first `sent`.
  private func piecesBegun(in sent: Int) -> Int {
    var (low, high) = (0, pieceCount)
    while low < high {
      let middle = (low + high) / 2
      if end(ofFirst: middle) < sent { low = middle + 1 } else { high = middle }
    }
    return low
  }

  private func clear(
    _ storage: EventLog, at cursor: Cursor, _ format: EventFormat, _ label: EventLabel?, _ gap: Gap,
    _ request: RequestID
  ) {
    (log, start, end, crossesGap) = (ObjectIdentifier(storage), cursor, cursor, false)
    (self.format, self.label, self.gap, self.request) = (format, label, gap, request)
    writer = EventWriter(format, label)
    pieceCount = 0
  }

  /// Adds events while there are fewer than `demand`, and room.
  private func extend(from storage: EventLog, to demand: Int, _ verdicts: JSONVerdicts) {
    let most = min(format.completes ? 1 : demand, Self.maximumPieceCount)
    guard pieceCount < most, end.position < storage.endPosition, end.sentBytes == 0 || pieceCount == 0, !crossesGap
    else { return }
    // The hole may have come since the last fill.
    if cross(storage) { return }
    let runEnd = storage.endOfRun(from: end.position)
    let records = storage.records(in: end.position..<runEnd)
    let writer = writer
    var byteCount = byteCount
    while byteCount < Self.targetBytes, pieceCount < most, end.position < runEnd {
      let record = unsafe records[end.position]
      var isOther = false
      if writer.embedsJSON {
        guard let isJSON = unsafe verdicts.isJSON(record, at: end.position, in: storage) else { return }
        isOther = !isJSON
      }
      let piece = unsafe writer.write(
        record, from: end.sentBytes, pieceCount == 0 ? gap : .none, isOther: isOther, for: request,
        at: base + byteCount)
      byteCount += piece.byteCount
      unsafe ends[pieceCount] = UInt32(byteCount)
      pieceCount += 1
      guard !piece.follows else {
        end.sentBytes += piece.dataByteCount
        return
      }
      end = Cursor(position: end.position + 1)
    }
    _ = cross(storage)
  }

  /// Moves the end past the hole in the log's ids, if it is there.
  /// - Returns: whether it moved.
  private func cross(_ storage: EventLog) -> Bool {
    let next = storage.skip(end.position)
    crossesGap = next != end.position
    end.position = next
    return crossesGap
  }

  private func address(to request: RequestID) {
    self.request = request
    for piece in 0..<pieceCount { unsafe format.address(base + end(ofFirst: piece), to: request) }
  }
}
