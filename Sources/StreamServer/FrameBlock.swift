import RSocket
import ReplayLog

/// How a subscription's events are put into frames. Subscriptions of equal format share the same bytes.
struct FrameFormat: Equatable {
  /// Whether each payload carries its id and time as metadata.
  let ids: Bool
  /// Whether the first event also completes the request: the answer to REQUEST_RESPONSE.
  let completes: Bool
}

/// Ready-made PAYLOAD frames from one place of a log on, built once for all subscribers that stand there.
///
/// One per worker, reused. Between two of them only the stream id may differ, and that is patched in place. The block
/// describes itself: walking its frames tells where a subscriber stands after any number of bytes.
final class FrameBlock {
  /// Frames are added until there are this many bytes, so that one write covers many small events.
  static let targetBytes = 64 << 10

  /// What filling it has found.
  enum Finding {
    /// Frames, at least one.
    case frames
    /// Nothing to send yet.
    case caughtUp
    /// The cursor's place is gone, with so many events; this is where it goes on.
    case fellBehind(next: UInt64, lost: UInt64, Gap)
    /// The cursor stands in the gap of the log's ids, which another log has moved; it stands for this position.
    case inGap(end: UInt64)
  }

  private let base: UnsafeMutableRawPointer
  private var byteCount = 0
  private var eventCount = 0
  private var log: ObjectIdentifier?
  private var format = FrameFormat(ids: true, completes: false)
  /// What the first event's metadata tells behind its id and time; `none`: nothing is added.
  private var gap = Gap.none
  private var streamID = StreamID.connection
  private var start = Cursor(position: 0)
  private var end = Cursor(position: 0)
  /// The log's end when the block was filled: a block that reaches it is out of date once the log has grown.
  private var logEnd: UInt64 = 0
  /// `end` stands behind the hole in the log's positions, and the last event before it.
  private var crossesHole = false

  /// Where nothing was left to send when the block was filled.
  var logEndCursor: Cursor { Cursor(position: logEnd) }

  init() {
    let capacity = Self.targetBytes + PayloadFrame.maximumContentByteCount + 64
    base = .allocate(byteCount: capacity, alignment: 16)
  }

  deinit { base.deallocate() }

  /// Makes the block what the subscription needs; under the log's lock.
  func fill(from storage: EventLog, for subscription: StreamSubscription) -> Finding {
    let cursor = subscription.cursor
    guard cursor.position >= storage.firstPosition else {
      let next = subscription.onLag == .latest ? storage.position(ofLast: 1) : storage.firstPosition
      return .fellBehind(
        next: next, lost: storage.count(from: cursor.position, to: next),
        Gap(storage.missedEvents(from: cursor.position, to: next)))
    }
    let position = storage.skip(cursor.position)
    guard position == cursor.position else { return .inGap(end: position) }
    guard position < storage.endPosition else { return .caughtUp }
    let gap = cursor.sentBytes == 0 && subscription.frames.ids ? subscription.gap : .none
    let isCurrent =
      log == ObjectIdentifier(storage) && start == cursor && format == subscription.frames && self.gap == gap
      && (logEnd == storage.endPosition || end.position < logEnd)
    if !isCurrent {
      build(from: storage, at: cursor, gap, format: subscription.frames, streamID: subscription.id)
    }
    if streamID != subscription.id { patch(streamID: subscription.id) }
    return .frames
  }

  /// Forgets which log it came from: an address may be used again.
  func forget() {
    log = nil
  }

  /// The bytes that `credit` events cover, from the block's start. The last event may be there in part only; its
  /// fragments need credit, too.
  func bytes(coveredBy credit: Int?) -> UnsafeRawBufferPointer {
    guard let credit, credit <= eventCount else { return UnsafeRawBufferPointer(start: base, count: byteCount) }
    var left = credit
    var offset = 0
    while left > 0 {
      if !follows(at: offset) { left -= 1 }
      offset += PayloadFrame.byteCount(at: base + offset)
    }
    return UnsafeRawBufferPointer(start: base, count: offset)
  }

  /// What a subscriber has got once the first `sent` bytes are on their way.
  /// - Returns: the cursor behind the last frame that was begun, the events that ended, what is missing before the cursor,
  ///   and the bytes of the begun frame that are still to be sent.
  func progress(after sent: Int) -> (cursor: Cursor, events: Int, gap: Gap, rest: UnsafeRawBufferPointer) {
    let gapAtEnd = crossesHole ? Gap.unknown : .none
    if sent == byteCount { return (end, eventCount, gapAtEnd, UnsafeRawBufferPointer(start: nil, count: 0)) }
    var cursor = start
    var events = 0
    var offset = 0
    while offset < sent {
      if follows(at: offset) {
        cursor.sentBytes += PayloadFrame.dataByteCount(at: base + offset)
      } else {
        cursor = Cursor(position: cursor.position + 1)
        events += 1
      }
      offset += PayloadFrame.byteCount(at: base + offset)
    }
    let isAtEnd = offset == byteCount
    if isAtEnd { cursor = end }  // which may be behind the hole in the log's positions
    return (
      cursor, events, isAtEnd ? gapAtEnd : .none, UnsafeRawBufferPointer(start: base + sent, count: offset - sent)
    )
  }

  private func build(
    from storage: EventLog, at cursor: Cursor, _ gap: Gap, format: FrameFormat, streamID: StreamID
  ) {
    (log, start, end, logEnd) = (ObjectIdentifier(storage), cursor, cursor, storage.endPosition)
    (self.format, self.gap, self.streamID) = (format, gap, streamID)
    byteCount = 0
    eventCount = 0
    let runEnd = storage.endOfRun(from: cursor.position)
    let records = storage.records(in: cursor.position..<runEnd)
    while byteCount < Self.targetBytes, end.position < runEnd {
      let record = records[end.position]
      let stamp = end.sentBytes == 0 && format.ids ? EventLog.stampBytes : 0
      let gapBytes = byteCount == 0 && gap != .none ? Self.gapBytes : 0
      let left = record.count - EventLog.stampBytes - end.sentBytes
      let count = min(left, PayloadFrame.maximumContentByteCount - stamp - gapBytes)
      let follows = count < left
      let frame = base + byteCount
      var flags = FrameFlags.next
      if follows { flags.insert(.follows) }
      if format.completes, !follows { flags.insert(.complete) }
      let header = PayloadFrame.writeHeader(
        streamID, flags, metadataByteCount: stamp > 0 ? stamp + gapBytes : nil, dataByteCount: count, at: frame)
      let source = record.baseAddress! + EventLog.stampBytes + end.sentBytes - stamp
      if gapBytes == 0 {
        (frame + header).copyMemory(from: source, byteCount: stamp + count)
      } else {
        (frame + header).copyMemory(from: source, byteCount: stamp)
        (frame + header + stamp).storeBytes(of: gap.count.bigEndian, as: UInt64.self)
        (frame + header + stamp + gapBytes).copyMemory(from: source + stamp, byteCount: count)
      }
      byteCount += header + stamp + gapBytes + count
      if follows {
        end.sentBytes += count
      } else {
        end = Cursor(position: end.position + 1)
        eventCount += 1
        if format.completes { break }
      }
    }
    let next = storage.skip(end.position)
    crossesHole = next != end.position
    end.position = next
  }

  /// Of the count behind id and time.
  private static let gapBytes = 8

  private func patch(streamID: StreamID) {
    self.streamID = streamID
    var offset = 0
    while offset < byteCount {
      PayloadFrame.setStreamID(streamID, at: base + offset)
      offset += PayloadFrame.byteCount(at: base + offset)
    }
  }

  /// Whether the frame at `offset` is a fragment that another one follows.
  private func follows(at offset: Int) -> Bool {
    PayloadFrame.flags(at: base + offset).contains(.follows)
  }
}
