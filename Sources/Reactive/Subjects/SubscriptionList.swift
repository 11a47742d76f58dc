/// The subscribers of a hub in the order of attaching. Accessed only by the hub's handling thread.
///
/// Not an array: iterating over one retains its buffer and each element, at twice the cost of a delivery. This list
/// itself holds the elements, and its owner ensures that it does not change during an iteration.
@usableFromInline final class SubscriptionList<Element: AnyObject> {
  @usableFromInline @exclusivity(unchecked) var count = 0
  @usableFromInline @exclusivity(unchecked) var slots: UnsafeMutablePointer<Unmanaged<Element>>
  @usableFromInline @exclusivity(unchecked) var capacity = 1

  @inlinable init() { slots = .allocate(capacity: 1) }

  @inlinable deinit {
    _ = removeAll()
    slots.deallocate()
  }

  @inlinable subscript(index: Int) -> Unmanaged<Element> { slots[index] }

  @inlinable func append(_ element: Element) {
    if count == capacity {
      let larger = UnsafeMutablePointer<Unmanaged<Element>>.allocate(capacity: 2 * capacity)
      larger.moveInitialize(from: slots, count: count)
      slots.deallocate()
      slots = larger
      capacity *= 2
    }
    (slots + count).initialize(to: .passRetained(element))
    count += 1
  }

  /// Removes and returns all elements.
  @inlinable func removeAll() -> [Element] {
    defer { count = 0 }
    return (0..<count).map { slots[$0].takeRetainedValue() }
  }

  /// Releases the elements for which the closure returns true.
  @inlinable func removeAll(where isOver: (Element) -> Bool) {
    var kept = 0
    for index in 0..<count {
      let element = slots[index]
      if element._withUnsafeGuaranteedRef(isOver) {
        element.release()
      } else {
        slots[kept] = element
        kept += 1
      }
    }
    count = kept
  }
}
