import Locks
import Synchronization

/// Serialises the events of several threads for one subscriber; no lock is held while an event is handled.
///
/// If no thread handles events, the calling thread handles its event immediately. An event that arrives meanwhile, from
/// another thread or from inside the handler, is queued for the handling thread. No thread blocks, the recursion depth
/// is 1, and state that only the handler accesses needs no other guard.
@usableFromInline struct Serial<Event>: ~Copyable {
  @usableFromInline let missed = Atomic(0)
  @usableFromInline let queue = Locked(Queue())

  /// Two arrays that are swapped, so that an event costs no allocation.
  @usableFromInline struct Queue {
    @usableFromInline var waiting: [Event] = []
    @usableFromInline var spare: [Event] = []

    @inlinable init() {}

    @usableFromInline mutating func take() -> [Event] {
      defer { (waiting, spare) = (spare, []) }
      return waiting
    }

    @usableFromInline mutating func recycle(_ emptied: [Event]) {
      if waiting.capacity == 0 { waiting = emptied } else { spare = emptied }
    }
  }

  @inlinable init() {}

  /// Handles the event, on this thread or on the current handling thread.
  @inlinable func perform(_ event: Event, _ handle: (Event) -> Void) {
    if enter() {
      handle(event)
      leave(handle)
    } else {
      enqueue(event, handle)
    }
  }

  /// Queues an event that arrived while another thread handled events.
  @inlinable func enqueue(_ event: Event, _ handle: (Event) -> Void) {
    queue.withLock { $0.waiting.append(event) }
    count(handle)
  }

  /// - Returns: Whether the caller is now the handling thread, until ``leave(_:)``; false if there already is one.
  @inlinable
  func enter() -> Bool { missed.compareExchange(expected: 0, desired: 1, ordering: .acquiringAndReleasing).exchanged }

  @inlinable func leave(_ handle: (Event) -> Void) {
    let left = leave()
    if left != 0 { work(left, handle) }
  }

  /// - Returns: The number of missed events. If it is not 0, the caller is still the handling thread and must call
  ///   ``work(_:_:)``.
  @inlinable func leave() -> Int { missed.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue }

  /// Counts an event that is in the queue.
  @inlinable func count(_ handle: (Event) -> Void) {
    if missed.wrappingAdd(1, ordering: .acquiringAndReleasing).oldValue == 0 { work(1, handle) }
  }

  /// Handles queued events until none was missed.
  @usableFromInline func work(_ missed: Int, _ handle: (Event) -> Void) {
    var seen = missed
    repeat {
      var events = queue.withLock { $0.take() }
      for event in events { handle(event) }
      events.removeAll(keepingCapacity: events.count <= 64)
      queue.withLock { $0.recycle(events) }
      seen = self.missed.wrappingSubtract(seen, ordering: .acquiringAndReleasing).newValue
    } while seen != 0
  }
}
