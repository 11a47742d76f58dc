/// Events in transit from a source to a log, in order.
///
/// A collection of events like `[[UInt8]]`, but the bytes of all events are in one piece of memory, so a source that
/// receives many events at once allocates once. An element is a copy of one event's bytes; `withUnsafeBytes` provides
/// them without a copy.
///
/// A batch may carry a checkpoint: the position from which its source resumes once the whole batch is in a log. It
/// never covers more than that: appended events do not change it (a source that resumes there repeats them), an
/// appended batch brings its own, `filter` keeps it (omitted events were processed), and a part of a batch has it only
/// if it includes the last event. A batch without events may have a checkpoint: the source has advanced without an
/// event to deliver.
public struct EventBatch: Equatable, Sendable {
  /// The bytes of all events, one after the other.
  private var bytes: [UInt8] = []
  /// The end offset of each event in `bytes`.
  private var ends: [Int] = []
  /// The position from which the source resumes after the last event; nil: the checkpoint before this batch stays
  /// valid.
  public var checkpoint: Checkpoint?

  /// Creates an empty batch.
  public init() {}

  /// The total number of bytes of all events.
  public var byteCount: Int { bytes.count }

  /// The number of bytes of the largest event; 0 if there is none.
  public var largestByteCount: Int {
    var (largest, start) = (0, 0)
    for end in ends {
      largest = Swift.max(largest, end - start)
      start = end
    }
    return largest
  }

  /// Appends a copy of `event`.
  public mutating func append(_ event: UnsafeRawBufferPointer) {
    unsafe bytes.append(contentsOf: event)
    ends.append(bytes.count)
  }

  /// Calls `body` with the bytes of each event in `range`, in place and in order, until it returns false.
  public func withUnsafeBytes(of range: Range<Int>, _ body: (UnsafeRawBufferPointer) -> Bool) {
    var start = start(range.lowerBound)
    unsafe bytes.withUnsafeBytes { bytes in
      for end in ends[range] {
        guard unsafe body(UnsafeRawBufferPointer(rebasing: bytes[start..<end])) else { return }
        start = end
      }
    }
  }

  private func start(_ index: Int) -> Int { index == 0 ? 0 : ends[index - 1] }
}

extension EventBatch: RandomAccessCollection, RangeReplaceableCollection, ExpressibleByArrayLiteral {
  /// The index of the first event.
  public var startIndex: Int { 0 }
  /// The number of events.
  public var endIndex: Int { ends.count }

  /// Returns a copy of one event's bytes.
  public subscript(index: Int) -> [UInt8] { [UInt8](bytes[start(index)..<ends[index]]) }

  /// Creates a batch of these events.
  public init(arrayLiteral events: [UInt8]...) { self.init(events) }

  /// Appends an event.
  public mutating func append(_ event: [UInt8]) {
    bytes += event
    ends.append(bytes.count)
  }

  /// Appends events. A batch, or a part of one, is appended in one piece.
  public mutating func append<Events: Sequence>(contentsOf events: Events) where Events.Element == [UInt8] {
    if let batch = events as? EventBatch {
      append(batch[...])
    } else if let part = events as? Slice<EventBatch> {
      append(part)
    } else {
      events.forEach { append($0) }
    }
  }

  private mutating func append(_ part: Slice<EventBatch>) {
    let (batch, range) = (part.base, part.startIndex..<part.endIndex)
    let former = batch.start(range.lowerBound)
    let offset = bytes.count - former
    bytes += batch.bytes[former..<batch.start(range.upperBound)]
    ends += batch.ends[range].lazy.map { $0 + offset }
    if range.upperBound == batch.count, let newer = batch.checkpoint { checkpoint = newer }
  }

  /// Returns a batch of the events that `isIncluded` accepts, with the checkpoint.
  public func filter(_ isIncluded: ([UInt8]) throws -> Bool) rethrows -> EventBatch {
    var included = EventBatch()
    for event in self where try isIncluded(event) { included.append(event) }
    included.checkpoint = checkpoint
    return included
  }

  /// Replaces a range of events by others.
  public mutating func replaceSubrange<Events: Collection>(_ range: Range<Int>, with events: Events)
  where Events.Element == [UInt8] {
    if range.upperBound == ends.count, !range.isEmpty { checkpoint = nil }
    let former = start(range.lowerBound)..<start(range.upperBound)
    var end = former.lowerBound
    let new = events.map { event in
      end += event.count
      return end
    }
    bytes.replaceSubrange(former, with: events.joined())
    for index in range.upperBound..<ends.count { ends[index] += end - former.upperBound }
    ends.replaceSubrange(range, with: new)
  }
}
