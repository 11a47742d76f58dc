/// Identifies one scheduled action. Cancelling it after the action has run does nothing.
public struct TimerID: Equatable, Sendable {
  let slot: UInt32
  let generation: UInt32
}

/// Scheduled actions: a binary heap of deadlines over a table of actions.
/// Cancelling clears the action's slot in O(1); its heap entry is skipped when it reaches the top, and removed once
/// such entries are the majority, so that repeated rescheduling does not grow the heap.
struct TimerQueue {
  struct Entry {
    var deadline: UInt64
    var id: TimerID
  }

  private struct Slot {
    var generation: UInt32 = 0
    var action: (() -> Void)?
  }

  private(set) var heap: [Entry] = []
  private var slots: [Slot] = []
  private var freeSlots: [UInt32] = []

  /// The number of waiting actions.
  var count: Int { slots.count - freeSlots.count }

  /// - Parameter deadline: nanoseconds on the loop's clock.
  mutating func schedule(at deadline: UInt64, _ action: @escaping () -> Void) -> TimerID {
    let slot: UInt32
    if let free = freeSlots.popLast() {
      slot = free
    } else {
      slot = UInt32(slots.count)
      slots.append(Slot())
    }
    slots[Int(slot)].action = action
    let id = TimerID(slot: slot, generation: slots[Int(slot)].generation)
    heap.append(Entry(deadline: deadline, id: id))
    siftUp(heap.count - 1)
    return id
  }

  mutating func cancel(_ id: TimerID) {
    guard take(id) != nil else { return }
    if heap.count > 64, heap.count > 2 * count { sweep() }
  }

  /// When the next action is due; nil when none is waiting.
  mutating func nextDeadline() -> UInt64? {
    while let first = heap.first {
      if isWaiting(first.id) { return first.deadline }
      removeFirst()
    }
    return nil
  }

  /// Removes one action that is due at `now`, the earliest.
  mutating func popDue(at now: UInt64) -> (() -> Void)? {
    guard let deadline = nextDeadline(), deadline <= now else { return nil }
    let id = heap[0].id
    removeFirst()
    return take(id)
  }

  private func isWaiting(_ id: TimerID) -> Bool {
    let slot = slots[Int(id.slot)]
    return slot.generation == id.generation && slot.action != nil
  }

  private mutating func take(_ id: TimerID) -> (() -> Void)? {
    guard isWaiting(id) else { return nil }
    let action = slots[Int(id.slot)].action
    slots[Int(id.slot)].action = nil
    slots[Int(id.slot)].generation &+= 1
    freeSlots.append(id.slot)
    return action
  }

  private mutating func sweep() {
    let kept = heap.filter { isWaiting($0.id) }
    heap = []
    for entry in kept {
      heap.append(entry)
      siftUp(heap.count - 1)
    }
  }

  private mutating func removeFirst() {
    heap.swapAt(0, heap.count - 1)
    heap.removeLast()
    var parent = 0
    while true {
      var least = parent
      for child in [2 * parent + 1, 2 * parent + 2]
      where child < heap.count && heap[child].deadline < heap[least].deadline {
        least = child
      }
      if least == parent { return }
      heap.swapAt(parent, least)
      parent = least
    }
  }

  private mutating func siftUp(_ index: Int) {
    var child = index
    while child > 0, heap[child].deadline < heap[(child - 1) / 2].deadline {
      heap.swapAt(child, (child - 1) / 2)
      child = (child - 1) / 2
    }
  }
}
