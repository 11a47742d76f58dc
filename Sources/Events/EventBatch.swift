/// Events on their way from a source to a log, in order.
///
/// A collection of events like `[[UInt8]]`, but all their bytes stand in one piece of memory: who takes in many at once
/// allocates once. An element is a copy of one event's bytes; `withUnsafeBytes` shows them without one.
///
/// A batch may carry a checkpoint: where its source resumes once all of it is in a log. It never covers more than that:
/// events that are appended do not change it (a source that resumes there repeats them), an appended batch brings its
/// own, `filter` keeps it (what is left out was dealt with), and a part of a batch has it only with the last event. A batch
/// without events may have one: the source has moved on, and there was nothing to deliver.
public struct EventBatch: Equatable, Sendable {
  /// Of all events, one behind the other.
  private var bytes: [UInt8] = []
  /// Where each event ends in `bytes`.
  private var ends: [Int] = []
  /// Where the source resumes after the last event; nil: where the checkpoint before this batch says.
  public var checkpoint: Checkpoint?

  /// No events.
  public init() {}

  /// Bytes of all events together.
  public var byteCount: Int { bytes.count }

  /// Bytes of the largest event; 0 without any.
  public var largestByteCount: Int {
    var (largest, start) = (0, 0)
    for end in ends {
      largest = Swift.max(largest, end - start)
      start = end
    }
    return largest
  }

  /// Adds an event, a copy of `event`.
  public mutating func append(_ event: UnsafeRawBufferPointer) {
    unsafe bytes.append(contentsOf: event)
    ends.append(bytes.count)
  }

  /// Shows the events in `range` where they are, one after the other, until `body` returns false.
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
  /// The first event's.
  public var startIndex: Int { 0 }
  /// How many events there are.
  public var endIndex: Int { ends.count }

  /// A copy of one event's bytes.
  public subscript(index: Int) -> [UInt8] { [UInt8](bytes[start(index)..<ends[index]]) }

  /// A batch of those events.
  public init(arrayLiteral events: [UInt8]...) { self.init(events) }

  /// Adds an event.
  public mutating func append(_ event: [UInt8]) {
    bytes += event
    ends.append(bytes.count)
  }

  /// Adds events. A batch, or a part of one, is added in one piece.
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

  /// The events that `isIncluded`, and the checkpoint.
  public func filter(_ isIncluded: ([UInt8]) throws -> Bool) rethrows -> EventBatch {
    var included = EventBatch()
    for event in self where try isIncluded(event) { included.append(event) }
    included.checkpoint = checkpoint
    return included
  }

  /// Puts events in place of others.
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
