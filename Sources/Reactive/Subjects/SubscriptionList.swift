/// The subscribers of a hub in the order of attaching. Accessed only by the hub's handling thread.
///
/// Not an array: iterating over one retains its buffer and each element, at twice the cost of a delivery. This list
/// itself holds the elements, and its owner ensures that it does not change during an iteration.
@safe @usableFromInline final class SubscriptionList<Element: AnyObject> {
  @safe @usableFromInline @exclusivity(unchecked) var count = 0
  @usableFromInline @exclusivity(unchecked) var slots: UnsafeMutablePointer<Unmanaged<Element>>
  @usableFromInline var capacity = 1

  @inlinable init() { unsafe slots = .allocate(capacity: 1) }

  @inlinable deinit {
    _ = removeAll()
    unsafe slots.deallocate()
  }

  @inlinable subscript(index: Int) -> Unmanaged<Element> { unsafe slots[index] }

  @inlinable func append(_ element: Element) {
    if count == capacity {
      let larger = UnsafeMutablePointer<Unmanaged<Element>>.allocate(capacity: 2 * capacity)
      unsafe larger.moveInitialize(from: slots, count: count)
      unsafe slots.deallocate()
      unsafe slots = larger
      capacity *= 2
    }
    unsafe (slots + count).initialize(to: .passRetained(element))
    count += 1
  }

  /// Removes and returns all elements.
  @inlinable func removeAll() -> [Element] {
    defer { count = 0 }
    return (0..<count).map { unsafe slots[$0].takeRetainedValue() }
  }

  /// Releases the elements for which the closure returns true.
  @inlinable func removeAll(where isOver: (Element) -> Bool) {
    var kept = 0
    for index in 0..<count {
      let element = unsafe slots[index]
      if unsafe element._withUnsafeGuaranteedRef(isOver) {
        unsafe element.release()
      } else {
        unsafe slots[kept] = element
        kept += 1
      }
    }
    count = kept
  }
}
