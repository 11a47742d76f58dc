import ReplayLog

/// Events from one place of a log on, as bytes, built once for all subscribers that stand there.
///
/// One per worker, reused. It has no more events than a subscriber has demanded so far, and grows when another one at the
/// same place demands more. Only the request that the bytes are for may differ from one subscriber to the next, and that
/// is patched in place. Walking its pieces tells where a subscriber stands after any number of bytes.
final class EventBlock {
  /// Pieces are added until there are this many bytes, so that one write covers many small events.
  static let targetBytes = 64 << 10

  private let base: UnsafeMutableRawPointer
  private var byteCount = 0
  private var eventCount = 0
  private var log: ObjectIdentifier?
  private var format = EventFormat(ids: true, completes: false)
  /// What the first event says is missing before it.
  private var gap = Gap.none
  private var request = RequestID(0)
  private var start = Cursor(position: 0)
  private var end = Cursor(position: 0)
  /// The log's end when the block was last looked at.
  private var logEnd: UInt64 = 0
  /// `end` stands behind the gap in the log's ids, and the last event before it: the block gets no more.
  private var crossesGap = false

  init() {
    base = .allocate(byteCount: Self.targetBytes + EventFormat.maximumPieceBytes, alignment: 16)
  }

  deinit { base.deallocate() }

  /// Makes the block what the subscription needs; under the log's lock.
  /// - Parameter gap: events that the subscriber missed before its cursor and was not told of.
  func fill(
    from storage: EventLog, for machine: SubscriptionMachine, _ gap: Gap, _ request: RequestID
  ) -> SubscriptionMachine.Finding {
    let cursor = machine.cursor
    logEnd = storage.endPosition
    guard cursor.position >= storage.firstPosition else {
      let next = machine.onLag == .latest ? storage.position(ofLast: 1) : storage.firstPosition
      return .overtaken(
        next: next, lost: storage.count(from: cursor.position, to: next),
        missed: Gap(storage.missedEvents(from: cursor.position, to: next)))
    }
    let position = storage.skip(cursor.position)
    guard position == cursor.position else { return .inGap(end: position) }
    guard position < storage.endPosition else { return .nothing }
    guard machine.demand > .none else { return .events }
    let gap = cursor.sentBytes == 0 && machine.format.ids ? gap : .none
    let fits = log == ObjectIdentifier(storage) && start == cursor && format == machine.format && self.gap == gap
    if !fits { clear(storage, at: cursor, machine.format, gap, request) }
    extend(from: storage, to: machine.demand.max ?? .max)
    if self.request != request { address(to: request) }
    return .events
  }

  /// Forgets the log: another one may be at its address.
  func forget() {
    log = nil
  }

  /// The bytes that a demand of `demand` covers, from the block's start; nil: unlimited. The last event may be there in
  /// part only; its pieces need demand, too.
  func bytes(coveredBy demand: Int?) -> UnsafeRawBufferPointer {
    guard let demand, demand < eventCount || demand == eventCount && end.sentBytes > 0 else {
      return UnsafeRawBufferPointer(start: base, count: byteCount)
    }
    var left = demand
    var offset = 0
    while left > 0 {
      let piece = format.piece(at: base + offset)
      if !piece.follows { left -= 1 }
      offset += piece.byteCount
    }
    return UnsafeRawBufferPointer(start: base, count: offset)
  }

  /// What a subscriber has once the first `sent` bytes are on their way.
  struct Progress {
    /// Behind the last piece that was begun.
    let cursor: Cursor
    /// Events that ended.
    let eventCount: Int
    /// What is missing before the cursor.
    let gap: Gap
    /// Of the piece that was begun, what is still to be sent.
    let rest: UnsafeRawBufferPointer
    /// Nothing was left in the log at the cursor.
    let isLast: Bool
  }

  func progress(after sent: Int) -> Progress {
    if sent == byteCount { return progress(end, eventCount, sent, sent) }
    var cursor = start
    var events = 0
    var offset = 0
    while offset < sent {
      let piece = format.piece(at: base + offset)
      if piece.follows {
        cursor.sentBytes += piece.dataByteCount
      } else {
        cursor = Cursor(position: cursor.position + 1)
        events += 1
      }
      offset += piece.byteCount
    }
    return progress(offset == byteCount ? end : cursor, events, sent, offset)
  }

  private func progress(_ cursor: Cursor, _ events: Int, _ sent: Int, _ offset: Int) -> Progress {
    Progress(
      cursor: cursor, eventCount: events, gap: crossesGap && cursor == end ? .unknown : .none,
      rest: UnsafeRawBufferPointer(start: base + sent, count: offset - sent),
      isLast: cursor == Cursor(position: logEnd))
  }

  private func clear(
    _ storage: EventLog, at cursor: Cursor, _ format: EventFormat, _ gap: Gap, _ request: RequestID
  ) {
    (log, start, end, crossesGap) = (ObjectIdentifier(storage), cursor, cursor, false)
    (self.format, self.gap, self.request) = (format, gap, request)
    byteCount = 0
    eventCount = 0
  }

  /// Adds events while there are fewer than `demand`, and room.
  private func extend(from storage: EventLog, to demand: Int) {
    guard !crossesGap, end.position < storage.endPosition else { return }
    let runEnd = storage.endOfRun(from: end.position)
    let records = storage.records(in: end.position..<runEnd)
    let most = format.completes ? 1 : demand
    while byteCount < Self.targetBytes, eventCount < most, end.position < runEnd {
      let piece = format.write(
        records[end.position], from: end.sentBytes, byteCount == 0 ? gap : .none, for: request, at: base + byteCount)
      byteCount += piece.byteCount
      if piece.follows {
        end.sentBytes += piece.dataByteCount
      } else {
        end = Cursor(position: end.position + 1)
        eventCount += 1
      }
    }
    let next = storage.skip(end.position)
    crossesGap = next != end.position
    end.position = next
  }

  private func address(to request: RequestID) {
    self.request = request
    var offset = 0
    while offset < byteCount {
      format.address(base + offset, to: request)
      offset += format.piece(at: base + offset).byteCount
    }
  }
}
