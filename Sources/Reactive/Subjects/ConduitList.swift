/// The subscribers of a hub, in the order in which they came. For the one at work in the hub.
///
/// Not an array: walking one retains its buffer and each element, twice the cost of a delivery. Here the list itself
/// holds them, and its owner sees to it that nobody comes or goes while it is walked.
@usableFromInline final class ConduitList<Element: AnyObject> {
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

  /// Takes all out.
  @inlinable func removeAll() -> [Element] {
    defer { count = 0 }
    return (0..<count).map { slots[$0].takeRetainedValue() }
  }

  /// Lets go of those that fit.
  @inlinable func removeAll(where isGone: (Element) -> Bool) {
    var kept = 0
    for index in 0..<count {
      let element = slots[index]
      if element._withUnsafeGuaranteedRef(isGone) {
        element.release()
      } else {
        slots[kept] = element
        kept += 1
      }
    }
    count = kept
  }
}
