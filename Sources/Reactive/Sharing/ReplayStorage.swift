/// What a shared log keeps its values in.
///
/// Positions are absolute and only rise: position p is the p-th value ever appended, the first being 0 for a fresh
/// memory log; a mapped log may start higher. Called under the log's lock: it must not call out.
@usableFromInline package protocol ReplayStorage<Input, Element> {
  /// One upstream value: an element, or a batch of them.
  associatedtype Input
  /// What readers read.
  associatedtype Element
  /// The oldest position still held; `endPosition` when none is.
  var firstPosition: UInt64 { get }
  /// Where the next element goes.
  var endPosition: UInt64 { get }
  /// Appends. May drop the oldest.
  mutating func append(_ input: Input)
  /// Lossless logs: what is at `position` and after it may not be dropped from now on; `.max`: anything may.
  mutating func hold(from position: UInt64)
  /// Appends as much as there is room for without dropping what is held.
  ///
  /// - Returns: What is left, to be offered again; `nil` when all is in.
  mutating func appendWhatFits(_ input: Input) -> Input?
  /// Lossless logs: there is no room for a single element.
  var isFull: Bool { get }
  /// The element at a position.
  ///
  /// - Precondition: `position` is in `firstPosition..<endPosition`.
  func element(at position: UInt64) -> Element
  /// The element before `endPosition`, if one is held and it costs nothing to hand out.
  var newestElement: Element? { get }
  /// Takes out the oldest element if more than the capacity and `slack` are held.
  ///
  /// The log asks for it with a slack while readers are still being told, then with none, and releases the element
  /// outside its lock: a deinitialiser is foreign code. A storage whose elements are plain bytes drops them in
  /// `append` and has no need of this.
  mutating func dropExcess(sparing slack: Int) -> Element?
  /// Notified outside the lock after elements were appended, as a reader is: brings them to a disk, for example. Asked
  /// for when the log gets the storage.
  var appendObserver: (any LogReader)? { get }
}

extension ReplayStorage {
  /// Nothing: a storage of a log that drops.
  @inlinable package mutating func hold(from position: UInt64) {}
  /// Everything fits where the oldest is dropped.
  @inlinable package mutating func appendWhatFits(_ input: Input) -> Input? {
    append(input)
    return nil
  }
  /// Never, where the oldest is dropped.
  @inlinable package var isFull: Bool { false }
  /// None: each reader makes its own.
  @inlinable package var newestElement: Element? { nil }

  /// Nothing: `append` has dropped it.
  @inlinable package mutating func dropExcess(sparing slack: Int) -> Element? { nil }
  /// None.
  @inlinable package var appendObserver: (any LogReader)? { nil }
}

/// Values of any type, in a ring that grows up to what it has to hold.
@usableFromInline package struct MemoryStorage<Value>: ReplayStorage {
  /// How many values are held once all readers have been told of the newest. Lowered, it takes effect with the next
  /// ``dropExcess(sparing:)``.
  @usableFromInline package var capacity: Int
  /// The position of the oldest value held.
  @usableFromInline package var firstPosition: UInt64 = 0
  /// The position of the next value.
  @usableFromInline package var endPosition: UInt64 = 0
  /// Position p is in slot p modulo the count, which is a power of two.
  @usableFromInline var slots: [Value?] = [nil]

  /// - Parameter capacity: 0 holds a value no longer than it takes to tell the readers of it.
  @inlinable package init(capacity: Int) {
    precondition(capacity >= 0, "a capacity must not be negative, it is \(capacity)")
    self.capacity = capacity
  }

  @inlinable func slot(_ position: UInt64) -> Int { Int(truncatingIfNeeded: position) & (slots.count - 1) }

  /// Appends a value; O(1), amortised while the ring grows.
  @inlinable package mutating func append(_ value: Value) {
    if endPosition - firstPosition == UInt64(slots.count) { grow() }
    slots[slot(endPosition)] = value
    endPosition += 1
  }

  /// The value at a position; O(1).
  @inlinable package func element(at position: UInt64) -> Value {
    guard position >= firstPosition, position < endPosition, let value = slots[slot(position)] else {
      preconditionFailure("position \(position) is not in \(firstPosition)..<\(endPosition)")
    }
    return value
  }

  /// The value appended last.
  @inlinable package var newestElement: Value? { firstPosition < endPosition ? slots[slot(endPosition - 1)] : nil }

  /// Takes the oldest value out if more than `capacity + slack` are held; O(1).
  @inlinable package mutating func dropExcess(sparing slack: Int) -> Value? {
    let (limit, overflow) = capacity.addingReportingOverflow(slack)
    guard !overflow, endPosition - firstPosition > UInt64(limit) else { return nil }
    let oldest = slot(firstPosition)
    firstPosition += 1
    return slots[oldest].take()
  }

  @usableFromInline mutating func grow() {
    var larger = [Value?](repeating: nil, count: slots.count * 2)
    for position in firstPosition..<endPosition {
      larger[Int(truncatingIfNeeded: position) & (larger.count - 1)] = slots[slot(position)]
    }
    slots = larger
  }
}

extension MemoryStorage: Sendable where Value: Sendable {}
