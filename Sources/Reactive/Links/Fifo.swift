/// A queue in a ring that grows. It releases an element as soon as the element is removed.
@usableFromInline package struct Fifo<Element> {
  @usableFromInline var slots: [Element?] = []  // the count is a power of two
  @usableFromInline var head = 0
  @usableFromInline package var count = 0

  @inlinable package init() {}

  /// The number of elements that fit without growth.
  @inlinable package var capacity: Int { slots.count }
  @inlinable package var isEmpty: Bool { count == 0 }
  @inlinable package var first: Element? { isEmpty ? nil : slots[head] }

  @inlinable package mutating func append(_ element: Element) {
    if count == slots.count { grow() }
    slots[(head + count) & (slots.count - 1)] = element
    count += 1
  }

  @inlinable package mutating func popFirst() -> Element? {
    guard !isEmpty else { return nil }
    defer {
      head = (head + 1) & (slots.count - 1)
      count -= 1
    }
    return slots[head].take()
  }

  @inlinable mutating func grow() {
    var larger = [Element?](repeating: nil, count: max(4, 2 * count))
    for index in 0..<count { larger[index] = slots[(head + index) & (slots.count - 1)].take() }
    slots = larger
    head = 0
  }
}
