import Synchronization

/// Makes what several parties do to one subscriber serial, without a lock held while it is done.
///
/// Whoever comes while nobody is at work handles its event at once; who comes meanwhile, from another thread or from
/// inside the handler, leaves its event in a queue for the one at work. So nobody waits, the depth is 1, and what the
/// handler touches needs no other guard.
@usableFromInline
struct Serial<Event>: ~Copyable {
  @usableFromInline let missed = Atomic(0)
  @usableFromInline let queue = Guarded<[Event]>([])

  @inlinable init() {}

  /// Handles the event, here or where somebody is at work.
  @inlinable
  func perform(_ event: Event, _ handle: (Event) -> Void) {
    if missed.compareExchange(expected: 0, desired: 1, ordering: .acquiringAndReleasing).exchanged {
      handle(event)
      let left = missed.subtract(1, ordering: .acquiringAndReleasing).newValue
      if left != 0 { work(left, handle) }
    } else {
      queue.withLock { $0.append(event) }
      if missed.add(1, ordering: .acquiringAndReleasing).oldValue == 0 { work(1, handle) }
    }
  }

  /// Handles what is in the queue until nothing was missed.
  @usableFromInline
  func work(_ missed: Int, _ handle: (Event) -> Void) {
    var seen = missed
    repeat {
      let events = queue.withLock { queue in
        defer { queue = [] }
        return queue
      }
      for event in events { handle(event) }
      seen = self.missed.subtract(seen, ordering: .acquiringAndReleasing).newValue
    } while seen != 0
  }
}
