/// The storage of a shared log's values.
///
/// Positions are absolute and only rise: position p is the p-th value ever appended, starting at 0 in a new memory log;
/// a mapped log may start higher. All methods run under the log's lock: they must not make foreign calls.
@usableFromInline package protocol ReplayStorage<Input, Element> {
  /// One upstream value: an element, or a batch of them.
  associatedtype Input
  /// The type that readers read.
  associatedtype Element
  /// The oldest stored position; `endPosition` if there is none.
  var firstPosition: UInt64 { get }
  /// The position of the next element.
  var endPosition: UInt64 { get }
  /// Appends a value. May drop the oldest elements.
  mutating func append(_ input: Input)
  /// For lossless logs: keeps the element at `position` and all after it from now on; `.max`: none need be kept.
  mutating func hold(from position: UInt64)
  /// Appends as much as fits without dropping elements that are kept.
  ///
  /// - Returns: The remainder, to be offered again; `nil` if everything was appended.
  mutating func appendWhatFits(_ input: Input) -> Input?
  /// For lossless logs: whether not even a single element fits.
  var isFull: Bool { get }
  /// Returns the element at a position.
  ///
  /// - Precondition: `position` is in `firstPosition..<endPosition`.
  func element(at position: UInt64) -> Element
  /// The element before `endPosition`, if it is stored and returning it costs nothing.
  var newestElement: Element? { get }
  /// Removes and returns the oldest element if the storage holds more than the capacity plus `slack`.
  ///
  /// The log calls it with a slack while readers are being notified, then without, and releases the element outside its
  /// lock: a deinitialiser is foreign code. A storage whose elements are plain bytes drops them in `append` and does
  /// not need this method.
  mutating func dropExcess(sparing slack: Int) -> Element?
  /// An observer that is notified like a reader, outside the lock, after elements were appended; for example to write
  /// them to a disk. Read when the log receives the storage.
  var appendObserver: (any LogReader)? { get }
}

extension ReplayStorage {
  /// Does nothing: a default for logs that drop elements.
  @inlinable package mutating func hold(from position: UInt64) {}
  /// Appends everything: a default for logs that drop elements.
  @inlinable package mutating func appendWhatFits(_ input: Input) -> Input? {
    append(input)
    return nil
  }
  /// False: a default for logs that drop elements.
  @inlinable package var isFull: Bool { false }
  /// `nil`: each reader creates its own elements.
  @inlinable package var newestElement: Element? { nil }

  /// `nil`: `append` has dropped the excess.
  @inlinable package mutating func dropExcess(sparing slack: Int) -> Element? { nil }
  /// `nil`: no observer.
  @inlinable package var appendObserver: (any LogReader)? { nil }
}

/// Stores values of any type in a ring that grows to the size it needs.
@usableFromInline package struct MemoryStorage<Value>: ReplayStorage {
  /// The number of values that remain after all readers were notified of the newest. A lower capacity takes effect with
  /// the next ``dropExcess(sparing:)``.
  @usableFromInline package var capacity: Int
  /// The position of the oldest stored value.
  @usableFromInline package var firstPosition: UInt64 = 0
  /// The position of the next value.
  @usableFromInline package var endPosition: UInt64 = 0
  /// Position p is in slot p modulo the number of slots, which is a power of two.
  @usableFromInline var slots: [Value?] = [nil]

  /// - Parameter capacity: With 0, a value is stored only while readers are being notified of it.
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

  /// Returns the value at a position; O(1).
  @inlinable package func element(at position: UInt64) -> Value {
    guard position >= firstPosition, position < endPosition, let value = slots[slot(position)] else {
      preconditionFailure("position \(position) is not in \(firstPosition)..<\(endPosition)")
    }
    return value
  }

  /// The value appended last.
  @inlinable package var newestElement: Value? { firstPosition < endPosition ? slots[slot(endPosition - 1)] : nil }

  /// Removes and returns the oldest value if more than `capacity + slack` are stored; O(1).
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
