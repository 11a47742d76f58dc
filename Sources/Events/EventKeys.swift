/// Identifies the subject of an event in its stream: the newest event with a key is the key's state.
public struct EventKey: Hashable, Sendable {
  /// The maximum size in bytes: 1,024 for a string, and 1 for its type.
  public static let maximumByteCount = 1025

  /// The key in its normal form: equal keys have equal bytes.
  public let bytes: [UInt8]
  /// Whether the event removes the key from the state.
  public let isTombstone: Bool

  /// - Returns: nil unless there are 1 to `maximumByteCount` bytes.
  public init?(_ bytes: [UInt8], isTombstone: Bool = false) {
    guard (1...Self.maximumByteCount).contains(bytes.count) else { return nil }
    (self.bytes, self.isTombstone) = (bytes, isTombstone)
  }
}

/// The keys of consecutive events. The key of an event is known, known to be absent, or unread. The bytes of all keys are
/// in one piece of memory.
public struct EventKeys: Equatable, Sendable {
  /// Identifies the definition of the keys. In a joined batch, the keys of events that have another definition than the
  /// first ones count as not read.
  public let definition: UInt64
  /// The bytes of all keys, one after the other.
  private var bytes: [UInt8] = []
  /// For each event the end offset of its key in `bytes`, times 2, plus 1 for a tombstone. A key has at least one byte,
  /// so an event without a key has the end of the event before it; with 1 added, its key was not read.
  private var ends: [Int] = []

  /// Creates keys of no event.
  public init(definition: UInt64 = 0) { self.definition = definition }

  /// The number of events.
  public var count: Int { ends.count }

  /// Adds the next event's key.
  ///
  /// - Parameters:
  ///   - key: the key's normal form; an empty one, or one with more than `EventKey.maximumByteCount` bytes, counts as
  ///     no key.
  ///   - isTombstone: whether the event removes the key from the state.
  public mutating func append(_ key: UnsafeRawBufferPointer, isTombstone: Bool = false) {
    guard unsafe !key.isEmpty, key.count <= EventKey.maximumByteCount else { return appendNone() }
    unsafe bytes.append(contentsOf: key)
    ends.append(bytes.count << 1 | (isTombstone ? 1 : 0))
  }

  /// Adds the next event's key; nil: it has none.
  public mutating func append(_ key: EventKey?) {
    guard let key else { return appendNone() }
    bytes += key.bytes
    ends.append(bytes.count << 1 | (key.isTombstone ? 1 : 0))
  }

  /// Adds the next event's key. `write` appends the key's normal form, or nothing, to the bytes of the others.
  /// - Parameter write: returns whether the event removes the key from the state.
  @inline(__always) mutating func append(_ write: (inout [UInt8]) -> Bool) {
    let start = bytes.count
    let isTombstone = write(&bytes)
    let count = bytes.count - start
    guard count > 0 else { return appendNone() }
    guard count <= EventKey.maximumByteCount else {
      bytes.removeLast(count)
      return appendNone()
    }
    ends.append(bytes.count << 1 | (isTombstone ? 1 : 0))
  }

  /// Makes space for the keys of this many further events, of a usual size.
  mutating func reserveCapacity(_ count: Int) {
    bytes.reserveCapacity(bytes.count + count * 16)
    ends.reserveCapacity(ends.count + count)
  }

  /// Adds `count` events without keys.
  public mutating func appendNone(count: Int = 1) {
    ends.append(contentsOf: repeatElement(bytes.count << 1, count: count))
  }

  /// Adds `count` events whose keys were not read. They count as events without keys until the keys are read.
  public mutating func appendUnread(count: Int = 1) {
    ends.append(contentsOf: repeatElement(bytes.count << 1 | 1, count: count))
  }

  /// Whether the key of the event with this index was not read.
  public func isUnread(_ index: Int) -> Bool { ends[index] == start(index) << 1 | 1 }

  /// Whether the key of any event was not read.
  package var hasUnread: Bool { ends.indices.contains { isUnread($0) } }

  /// A copy of the key of the event with this index; nil: it has none.
  public subscript(index: Int) -> EventKey? {
    let range = range(index)
    return EventKey(Array(bytes[range]), isTombstone: ends[index] & 1 != 0)
  }

  /// Calls `body` with the key of the event with this index, in place; empty: it has none.
  @inline(__always) public func withKey<Result>(
    of index: Int, _ body: (_ key: UnsafeRawBufferPointer, _ isTombstone: Bool) -> Result
  ) -> Result {
    let range = range(index)
    let isTombstone = ends[index] & 1 != 0
    return unsafe bytes.withUnsafeBytes { unsafe body(UnsafeRawBufferPointer(rebasing: $0[range]), isTombstone) }
  }

  private func range(_ index: Int) -> Range<Int> { start(index)..<ends[index] >> 1 }

  private func start(_ index: Int) -> Int { index == 0 ? 0 : ends[index - 1] >> 1 }

  /// Adds the keys of a range of events of another value.
  mutating func append(_ other: EventKeys, _ range: Range<Int>) {
    guard !range.isEmpty else { return }
    guard other.definition == definition else { return appendUnread(count: range.count) }
    let former = other.start(range.lowerBound)
    let offset = bytes.count - former
    bytes += other.bytes[former..<other.start(range.upperBound)]
    // Adding an even number changes the ends, but no tombstone bit.
    ends += other.ends[range].lazy.map { $0 + offset << 1 }
  }

  /// The keys of a range of events.
  func part(_ range: Range<Int>) -> EventKeys {
    var part = EventKeys(definition: definition)
    part.append(self, range)
    return part
  }
}

extension EventKeys {
  /// For each event 2 bytes, big endian: the byte count of its key times 2, plus 1 for a tombstone; then the bytes of all
  /// keys. An event whose key was not read has none.
  package var encoded: [UInt8] {
    var encoded: [UInt8] = []
    encoded.reserveCapacity(2 * count + bytes.count)
    for index in 0..<count {
      let size = isUnread(index) ? 0 : range(index).count << 1 | ends[index] & 1
      encoded += [UInt8(truncatingIfNeeded: size >> 8), UInt8(truncatingIfNeeded: size)]
    }
    return encoded + bytes
  }

  /// - Returns: nil unless these are the encoded keys of `count` events.
  package init?(encoded: [UInt8], count: Int, definition: UInt64) {
    guard encoded.count / 2 >= count else { return nil }
    self.init(definition: definition)
    for index in 0..<count {
      let size = Int(encoded[2 * index]) << 8 | Int(encoded[2 * index + 1])
      let former = start(index)
      guard size >> 1 <= EventKey.maximumByteCount, size != 1 else { return nil }
      ends.append((former + size >> 1) << 1 | size & 1)
    }
    bytes = Array(encoded[(2 * count)...])
    guard start(count) == bytes.count else { return nil }
  }

  /// The bytes that the keys of a range of events take in `encoded`.
  package func encodedByteCount(_ range: Range<Int>) -> Int {
    2 * range.count + start(range.upperBound) - start(range.lowerBound)
  }
}
