/// Events on their way from a source to a log, in order.
///
/// A collection of events like `[[UInt8]]`, but all their bytes stand in one piece of memory: who takes in many at once
/// allocates once. An element is a copy of one event's bytes; `withUnsafeBytes` shows them without one.
public struct EventBatch: Equatable, Sendable {
  /// Of all events, one behind the other.
  private var bytes: [UInt8] = []
  /// Where each event ends in `bytes`.
  private var ends: [Int] = []

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
    bytes.append(contentsOf: event)
    ends.append(bytes.count)
  }

  /// Shows the events in `range` where they are, one after the other, until `body` returns false.
  public func withUnsafeBytes(of range: Range<Int>, _ body: (UnsafeRawBufferPointer) -> Bool) {
    var start = start(range.lowerBound)
    bytes.withUnsafeBytes { bytes in
      for end in ends[range] {
        guard body(UnsafeRawBufferPointer(rebasing: bytes[start..<end])) else { return }
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

  /// Adds events. A batch is added in one piece.
  public mutating func append<Events: Sequence>(contentsOf events: Events) where Events.Element == [UInt8] {
    guard let batch = events as? EventBatch else { return events.forEach { append($0) } }
    let offset = bytes.count
    bytes += batch.bytes
    ends += batch.ends.lazy.map { $0 + offset }
  }

  /// Puts events in place of others.
  public mutating func replaceSubrange<Events: Collection>(_ range: Range<Int>, with events: Events)
  where Events.Element == [UInt8] {
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
