/// The elements of a shared sequence, and who receives which. A pure value: it holds neither a lock nor a task.
///
/// Positions are absolute and only rise. Elements from `floor` on have been delivered to nobody.
struct SharedElements<Element> {
  let replayCapacity: Int
  let buffering: SharedBuffering
  private var storage: MemoryStorage<Element>
  /// The position after the newest element that any consumer has taken, as of the last one that left.
  private(set) var floor: UInt64 = 0
  /// With ``SharedBuffering/unbounded``: the number of elements at which those that all have read are dropped.
  private var trimsAt = 64

  init(replaying capacity: Int, _ buffering: SharedBuffering) {
    precondition(capacity >= 0, "a capacity must not be negative, it is \(capacity)")
    (replayCapacity, self.buffering) = (capacity, buffering)
    storage = MemoryStorage(capacity: buffering.limit.map { max($0, capacity) } ?? .max)
  }

  /// Elements that are not kept any more. One of them needs no array.
  struct Dropped {
    var one: Element?
    var others: [Element] = []
  }

  /// The position of the next element.
  var end: UInt64 { storage.endPosition }

  /// Appends an element.
  ///
  /// - Parameter oldest: The position of the slowest consumer; called if it matters.
  /// - Returns: The elements that were dropped for it, to be released outside the lock.
  mutating func append(_ element: Element, slowest oldest: () -> UInt64?) -> Dropped {
    storage.append(element)
    guard buffering == .unbounded else { return Dropped(one: storage.dropExcess(sparing: 0)) }
    let count = Int(storage.endPosition - storage.firstPosition)
    guard count >= trimsAt else { return Dropped() }
    storage.capacity = max(Int(storage.endPosition - (oldest() ?? floor)), replayCapacity)
    var dropped = Dropped()
    while let element = storage.dropExcess(sparing: 0) { dropped.others.append(element) }
    storage.capacity = .max
    trimsAt = max(64, 2 * (count - dropped.others.count))
    return dropped
  }

  /// Adds a consumer.
  ///
  /// - Parameter isOnly: Whether it is the only one. It then also receives the elements that nobody has received.
  /// - Returns: Its position, and the elements that it can take at once, of which the first `replayed` precede it.
  func join(isOnly: Bool) -> (position: UInt64, batch: Fifo<Element>, replayed: Int) {
    let position = isOnly ? max(floor, storage.firstPosition) : storage.endPosition
    let first = max(storage.firstPosition, position - min(position, UInt64(replayCapacity)))
    var batch = Fifo<Element>()
    for place in first..<storage.endPosition { batch.append(storage.element(at: place)) }
    return (position, batch, Int(position - first))
  }

  /// Records that a consumer left.
  mutating func left(at position: UInt64) { floor = max(floor, position) }

  /// Copies elements for a consumer, from `position` on.
  ///
  /// - Returns: The position of the first of them; `nil` if it has read all.
  func read(from position: UInt64, into batch: inout Fifo<Element>) -> UInt64? {
    var first = max(position, storage.firstPosition)
    if case .newest = buffering, let limit = buffering.limit, end > UInt64(limit) {
      first = max(first, end - UInt64(limit))
    }
    guard first < end else { return nil }
    for place in first..<min(end, first + 32) { batch.append(storage.element(at: place)) }
    return first
  }

  /// Drops all elements.
  ///
  /// - Returns: They are to be released outside the lock.
  mutating func removeAll() -> MemoryStorage<Element> {
    let old = storage
    storage = MemoryStorage(capacity: old.capacity)
    (storage.firstPosition, storage.endPosition, floor) = (old.endPosition, old.endPosition, old.endPosition)
    return old
  }
}

extension SharedBuffering {
  /// The number of elements; `nil` for all.
  @usableFromInline var limit: Int? {
    switch self {
    case .bounded(let count), .newest(let count), .oldest(let count): max(1, count)
    case .unbounded: nil
    }
  }

  /// Whether the slowest consumer decides when the base is read on.
  @usableFromInline var isBounded: Bool { if case .bounded = self { true } else { false } }
}
