/// Events in transit from a source to a log, in order.
///
/// A collection of events like `[[UInt8]]`, but the bytes of all events are in one piece of memory, so a source that
/// receives many events at once allocates once. An element is a copy of one event's bytes; `withUnsafeBytes` provides
/// them without a copy.
///
/// A batch may carry a checkpoint: the position from which its source resumes once the whole batch is in a log. The
/// checkpoint never covers more. Appended events do not change it: a source that resumes there repeats them. An
/// appended batch brings its own checkpoint. `filter` keeps it, because omitted events were processed. A part of a
/// batch has it only if it includes the last event. A batch without events may have a checkpoint: the source has
/// advanced without an event to deliver.
///
/// A batch may have stamps: the ids and times under which a log stores its events. Two batches with different stamps
/// are not equal. No operation changes the id of an event. A part of a batch has the stamps of its events; it has the
/// position only if it includes the last event. Events can be removed at both ends; if the last one is removed, so is
/// the position. A batch with stamps can be appended to one that it continues (`continues`). Any other way to add,
/// replace or remove an event is a programming error, which ends the program.
///
/// A batch may have a loss: its source has lost events before its first one. A part of a batch has the loss if it begins
/// with the first event, and a joined batch has all losses before its first event.
///
/// A batch may have keys: for each event a key, or none. Keys stay with their events in a part of a batch, in a joined
/// batch and in the result of `filter`. The keys of appended and replacing events count as not read, unless these come
/// from a batch with keys.
public struct EventBatch: Equatable, Sendable {
  /// The bytes of all events, one after the other.
  private var bytes: [UInt8] = []
  /// The end offset of each event in `bytes`.
  private var ends: [Int] = []
  private var notes = Notes.none

  /// The checkpoint, stamps and keys of a batch, in one word, so that a batch without stamps and keys costs no more.
  private enum Notes: Equatable {
    case none
    case checkpoint(Checkpoint)
    case several(Several)

    init(_ checkpoint: Checkpoint?, _ stamps: EventStamps?, _ keys: EventKeys?, _ loss: EventLoss?) {
      if stamps != nil || keys != nil || loss != nil {
        self = .several(Several(stamps, keys, checkpoint, loss))
      } else {
        self = checkpoint.map { .checkpoint($0) } ?? .none
      }
    }
  }

  private final class Several: Equatable, Sendable {
    let stamps: EventStamps?
    let keys: EventKeys?
    let checkpoint: Checkpoint?
    let loss: EventLoss?

    init(_ stamps: EventStamps?, _ keys: EventKeys?, _ checkpoint: Checkpoint?, _ loss: EventLoss?) {
      (self.stamps, self.keys, self.checkpoint, self.loss) = (stamps, keys, checkpoint, loss)
    }

    static func == (one: Several, other: Several) -> Bool {
      one.stamps == other.stamps && one.keys == other.keys && one.checkpoint == other.checkpoint
        && one.loss == other.loss
    }
  }

  /// Creates an empty batch.
  public init() {}

  /// Creates a batch of one event. Its bytes are moved, not copied, if the caller has no other reference to them.
  public init(of event: consuming [UInt8]) {
    ends = [event.count]
    bytes = event
  }

  /// The position from which the source resumes after the last event; nil: the checkpoint before this batch stays
  /// valid.
  public var checkpoint: Checkpoint? {
    get {
      switch notes {
      case .none: nil
      case .checkpoint(let checkpoint): checkpoint
      case .several(let several): several.checkpoint
      }
    }
    set { notes = Notes(newValue, stamps, keys, loss) }
  }

  /// The ids and times of the events; nil: the log assigns them.
  public var stamps: EventStamps? {
    guard case .several(let several) = notes else { return nil }
    return several.stamps
  }

  /// The keys of the events; nil: none has one.
  public var keys: EventKeys? {
    guard case .several(let several) = notes else { return nil }
    return several.keys
  }

  /// The events that were lost before the first event, or before that of the next batch; nil: none.
  public var loss: EventLoss? {
    get {
      guard case .several(let several) = notes else { return nil }
      return several.loss
    }
    set { notes = Notes(checkpoint, stamps, keys, newValue) }
  }

  /// Sets the keys of the events; nil: none has one. There must be as many keys as events.
  public mutating func setKeys(_ keys: EventKeys?) {
    precondition(keys.map { $0.count == count } ?? true, "\(keys?.count ?? 0) keys of \(count) events")
    notes = Notes(checkpoint, stamps, isEmpty ? nil : keys, loss)
  }

  /// Sets the ids and times of the events, and the position.
  ///
  /// - Returns: false, without any effect, if the number of times is not that of the events, or an id would exceed 64
  ///   bits.
  public mutating func setStamps(_ stamps: EventStamps) -> Bool {
    guard let fitted = stamps.fitted(to: count) else { return false }
    notes = Notes(checkpoint, fitted, keys, loss)
    return true
  }

  /// Whether the batch can be appended to `other`: neither has stamps, or the ids of this batch follow those of
  /// `other`, or `other` is empty and has no stamps.
  public func continues(_ other: EventBatch) -> Bool {
    switch (other.stamps, stamps) {
    case (nil, nil): true
    case (nil, _): other.isEmpty
    case (let former?, let next?): former.id(other.count) == next.firstID
    default: false
    }
  }

  private func requireNoStamps() {
    if let stamps {
      preconditionFailure("\(count) events from id \(stamps.firstID) on have stamps, and cannot change")
    }
  }

  /// Called before an event without a stamp and without a key is appended.
  private mutating func willAppend() {
    guard case .several = notes else { return }
    requireNoStamps()
    guard var keys else { return }
    keys.appendUnread()
    notes = Notes(checkpoint, nil, keys, loss)
  }

  /// Whether it has neither an event nor a checkpoint nor a loss.
  public var isBlank: Bool { isEmpty && checkpoint == nil && loss == nil }

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
    willAppend()
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

  /// The number of events for which `isJSON` does not hold.
  @inline(__always) package func malformedCount(isJSON: (Span<UInt8>) -> Bool) -> UInt64 {
    var count: UInt64 = 0
    unsafe withUnsafeBytes(of: 0..<self.count) { event in
      if !isJSON(unsafe event.bindMemory(to: UInt8.self).span) { count += 1 }
      return true
    }
    return count
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
    willAppend()
    bytes += event
    ends.append(bytes.count)
  }

  /// Appends events. A batch, or a part of one, is appended in one piece; to an empty batch without a copy of its bytes.
  public mutating func append<Events: Sequence>(contentsOf events: Events) where Events.Element == [UInt8] {
    if let batch = events as? EventBatch {
      if isEmpty, case .none = notes { self = batch } else { append(batch[...]) }
    } else if let part = events as? Slice<EventBatch> {
      append(part)
    } else {
      events.forEach { append($0) }
    }
  }

  private mutating func append(_ part: Slice<EventBatch>) {
    let (batch, range) = (part.base, part.startIndex..<part.endIndex)
    let former = batch.start(range.lowerBound)
    let isLast = range.upperBound == batch.count
    guard isLast || !range.isEmpty else { return }
    join(isLast ? batch.checkpoint : nil, batch.stamps?.part(range, of: batch.count), count: range.count)
    if range.lowerBound == 0, let next = batch.loss { loss = loss.map { $0.joined(with: next) } ?? next }
    if !range.isEmpty, keys != nil || batch.keys != nil {
      var joined = keys ?? EventKeys(definition: batch.keys?.definition ?? 0)
      joined.appendUnread(count: count - joined.count)
      if let new = batch.keys { joined.append(new, range) } else { joined.appendUnread(count: range.count) }
      notes = Notes(checkpoint, stamps, joined, loss)
    }
    let offset = bytes.count - former
    bytes += batch.bytes[former..<batch.start(range.upperBound)]
    ends += batch.ends[range].lazy.map { $0 + offset }
  }

  /// Takes the notes of `count` events that are about to be appended.
  private mutating func join(_ newer: Checkpoint?, _ next: EventStamps?, count: Int) {
    if let next {
      if let stamps, stamps.id(self.count) == next.firstID {
        notes = Notes(newer ?? checkpoint, stamps.followed(after: self.count, by: next, count), keys, loss)
      } else {
        precondition(stamps == nil && isEmpty, "\(self.count) events are not continued by id \(next.firstID)")
        notes = Notes(newer ?? checkpoint, next, keys, loss)
      }
    } else {
      if count > 0 { requireNoStamps() }
      if let newer { checkpoint = newer }
    }
  }

  /// Returns a batch of the events that `isIncluded` accepts, with the checkpoint. In a batch with stamps it must
  /// accept every event: otherwise the ids of the others would change.
  public func filter(_ isIncluded: ([UInt8]) throws -> Bool) rethrows -> EventBatch {
    var included = EventBatch()
    let keys = keys
    var includedKeys = keys.map { EventKeys(definition: $0.definition) }
    for (index, event) in enumerated() where try isIncluded(event) {
      included.append(event)
      if let keys { includedKeys?.append(keys, index..<index + 1) }
    }
    precondition(stamps == nil || included.count == count, "an event with an id was left out")
    included.notes = Notes(checkpoint, stamps, included.isEmpty ? nil : includedKeys, loss)
    return included
  }

  /// The batch without its empty events, which are none.
  ///
  /// - Parameter isJSON: whether the events are meant to be JSON, so that white space alone is none either.
  package func withoutEmpty(isJSON: Bool = false) -> EventBatch {
    var hasEmpty = false
    unsafe withUnsafeBytes(of: 0..<count) { event in
      hasEmpty = unsafe event.isEmpty || isJSON && event.isWhiteSpace
      return !hasEmpty
    }
    guard hasEmpty, stamps == nil else { return self }
    return filter { !($0.isEmpty || isJSON && $0.isWhiteSpace) }
  }

  /// Replaces a range of events by others.
  public mutating func replaceSubrange<Events: Collection>(_ range: Range<Int>, with events: Events)
  where Events.Element == [UInt8] {
    if range.upperBound == ends.count, !range.isEmpty { checkpoint = nil }
    if let stamps, !range.isEmpty || !events.isEmpty {
      let isAtEnd = range.upperBound == count
      precondition(events.isEmpty && (isAtEnd || range.lowerBound == 0), "the ids of events would change")
      let rest = isAtEnd ? 0..<range.lowerBound : range.upperBound..<count
      notes = Notes(checkpoint, rest.isEmpty ? nil : stamps.part(rest, of: count), keys, loss)
    }
    if let keys {
      var joined = keys.part(0..<range.lowerBound)
      joined.appendUnread(count: events.count)
      joined.append(keys, range.upperBound..<count)
      notes = Notes(checkpoint, stamps, joined.count == 0 ? nil : joined, loss)
    }
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
