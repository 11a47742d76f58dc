import Synchronization

/// Makes what several parties do to one subscriber serial, without a lock held while it is done.
///
/// Whoever comes while nobody is at work handles its event at once; who comes meanwhile, from another thread or from
/// inside the handler, leaves its event in a queue for the one at work. So nobody waits, the depth is 1, and what the
/// handler touches needs no other guard.
@usableFromInline struct Serial<Event>: ~Copyable {
  @usableFromInline let missed = Atomic(0)
  @usableFromInline let queue = Guarded(Queue())

  /// Two arrays that take turns, so that no event costs an allocation.
  @usableFromInline struct Queue {
    @usableFromInline var waiting: [Event] = []
    @usableFromInline var spare: [Event] = []

    @inlinable init() {}

    @usableFromInline mutating func take() -> [Event] {
      defer { (waiting, spare) = (spare, []) }
      return waiting
    }

    @usableFromInline mutating func giveBack(_ emptied: [Event]) {
      if waiting.capacity == 0 { waiting = emptied } else { spare = emptied }
    }
  }

  @inlinable init() {}

  /// Handles the event, here or where somebody is at work.
  @inlinable func perform(_ event: Event, _ handle: (Event) -> Void) {
    if enter() {
      handle(event)
      leave(handle)
    } else {
      leaveBehind(event, handle)
    }
  }

  /// For an event that came while somebody was at work.
  @inlinable func leaveBehind(_ event: Event, _ handle: (Event) -> Void) {
    queue.withLock { $0.waiting.append(event) }
    count(handle)
  }

  /// - Returns: Whether nobody was at work, so that the caller is, until ``leave(_:)``.
  @inlinable
  func enter() -> Bool { missed.compareExchange(expected: 0, desired: 1, ordering: .acquiringAndReleasing).exchanged }

  @inlinable func leave(_ handle: (Event) -> Void) {
    let left = leave()
    if left != 0 { work(left, handle) }
  }

  /// - Returns: How many events were missed. If any, the caller is still at work, and ``work(_:_:)`` is due.
  @inlinable func leave() -> Int { missed.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue }

  /// Counts an event that is in the queue.
  @inlinable func count(_ handle: (Event) -> Void) {
    if missed.wrappingAdd(1, ordering: .acquiringAndReleasing).oldValue == 0 { work(1, handle) }
  }

  /// Handles what is in the queue until nothing was missed.
  @usableFromInline func work(_ missed: Int, _ handle: (Event) -> Void) {
    var seen = missed
    repeat {
      var events = queue.withLock { $0.take() }
      for event in events { handle(event) }
      events.removeAll(keepingCapacity: events.count <= 64)
      queue.withLock { $0.giveBack(events) }
      seen = self.missed.wrappingSubtract(seen, ordering: .acquiringAndReleasing).newValue
    } while seen != 0
  }
}
