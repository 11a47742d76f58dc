import Locks
import Synchronization

/// Hands values from one producer to one task that awaits them, without a lock and without an allocation.
///
/// The slot holds one value. Everything else that concerns the task, such as further values or the end, is kept by the owner
/// of the handoff, under the owner's lock: the owner first stores it, then calls ``alert()``. One word holds the state:
///
/// - `empty`: there is nothing. The slot belongs to the producer.
/// - the address of a continuation: there is nothing, and the task is suspended. The slot belongs to the producer.
/// - `full`: there is a value in the slot, which belongs to the task.
/// - `fullAndMore`: as `full`; afterwards the task must look at what the owner keeps.
/// - `more`: the task must look at what the owner keeps. The producer uses the slot no longer.
@usableFromInline final class Handoff<Value>: @unchecked Sendable {
  // Sendable: the word decides to which thread the slot belongs.

  @usableFromInline enum Found {
    case value(Value)
    case nothing
    case more
  }

  @usableFromInline let word = Atomic<UInt>(0)
  @safe @usableFromInline @exclusivity(unchecked) var slot: Value?

  @inlinable init() {}

  @inlinable static var empty: UInt { 0 }
  @inlinable static var full: UInt { 1 }
  @inlinable static var fullAndMore: UInt { 2 }
  @inlinable static var more: UInt { 3 }

  // MARK: - The producer

  /// Puts a value into the slot and resumes the task if it is suspended. Calls must not overlap.
  ///
  /// - Returns: False if the slot was not free, or the task has to look first; the owner must then keep the value.
  @inlinable func offer(_ value: Value) -> Bool {
    var seen = word.load(ordering: .acquiring)
    var isStored = false
    while true {
      if seen == Self.full {
        let (exchanged, current) = word.compareExchange(
          expected: seen, desired: Self.fullAndMore, ordering: .acquiringAndReleasing)
        if exchanged { return false }
        seen = current
      } else if seen == Self.fullAndMore || seen == Self.more {
        if isStored { slot = nil }
        return false
      } else {
        slot = value
        isStored = true
        let (exchanged, current) = word.compareExchange(
          expected: seen, desired: Self.full, ordering: .acquiringAndReleasing)
        if exchanged {
          Self.resume(seen)
          return true
        }
        seen = current
      }
    }
  }

  // MARK: - Any thread

  /// Makes the task look at what the owner keeps, and resumes it if it is suspended. Writes the word in any case, so that
  /// ``settle()`` is ordered either before or after it.
  @inlinable func alert() {
    var seen = word.load(ordering: .acquiring)
    while true {
      let isFull = seen == Self.full || seen == Self.fullAndMore
      let (exchanged, current) = word.compareExchange(
        expected: seen, desired: isFull ? Self.fullAndMore : Self.more, ordering: .acquiringAndReleasing)
      if exchanged { return Self.resume(seen) }
      seen = current
    }
  }

  @inlinable static func resume(_ word: UInt) {
    guard word > more else { return }
    unsafe unsafeBitCast(word, to: UnsafeContinuation<Void, Never>.self).resume()
  }

  /// Whether there is nothing for the task.
  @inlinable var isEmpty: Bool {
    let word = word.load(ordering: .sequentiallyConsistent)
    return word == Self.empty || word > Self.more
  }

  /// Whether there is a value in the slot.
  @inlinable var isFull: Bool {
    let word = word.load(ordering: .acquiring)
    return word == Self.full || word == Self.fullAndMore
  }

  // MARK: - The task

  /// Takes the value out of the slot.
  @inlinable func take() -> Found {
    var seen = word.load(ordering: .acquiring)
    if seen == Self.empty { return .nothing }
    if seen == Self.more { return .more }
    guard let value = slot.take() else { preconditionFailure("a full slot has no value") }
    while true {
      let (exchanged, current) = word.compareExchange(
        expected: seen, desired: seen == Self.full ? Self.empty : Self.more, ordering: .acquiringAndReleasing)
      if exchanged { return .value(value) }
      seen = current
    }
  }

  /// Lets the producer use the slot again. Called after `more`, when the owner keeps nothing for the task: either under the
  /// owner's lock, or before the task looks once more.
  @inlinable func settle() { _ = word.exchange(Self.empty, ordering: .acquiringAndReleasing) }

  /// Suspends the task until the state is not `empty`.
  @inlinable func wait(isolation actor: isolated (any Actor)?) async {
    unsafe await withUnsafeContinuation(isolation: actor) { (continuation: UnsafeContinuation<Void, Never>) in
      let address = unsafe unsafeBitCast(continuation, to: UInt.self)
      let (isWaiting, _) = word.compareExchange(
        expected: Self.empty, desired: address, ordering: .acquiringAndReleasing)
      if !isWaiting { unsafe continuation.resume() }
    }
  }
}

extension Handoff {
  /// Suspends the task until the state is not `empty`. If the task is cancelled, `cancel` is called, which must alert it.
  @usableFromInline func wait(isolation actor: isolated (any Actor)?, onCancel cancel: @Sendable () -> Void) async {
    await withTaskCancellationHandler {
      await wait(isolation: actor)
    } onCancel: {
      cancel()
    }
  }
}

/// Admits one task at a time, in the order of their calls. An iterator that several tasks share is used by one after another.
@usableFromInline struct Turns: ~Copyable, Sendable {
  @usableFromInline struct Queue {
    @usableFromInline var tasks = Fifo<CheckedContinuation<Void, Never>>()
    /// The tasks that were admitted before they were in the queue.
    @usableFromInline var admitted = 0

    @inlinable init() {}
  }

  @usableFromInline let count = Atomic(0)
  @usableFromInline let queue = Locked(Queue())

  @inlinable init() {}

  /// - Returns: Whether the caller is admitted; otherwise it must call ``wait(isolation:onCancel:)``.
  @inlinable func enter() -> Bool { count.wrappingAdd(1, ordering: .acquiringAndReleasing).oldValue == 0 }

  /// Suspends the task until it is admitted, also if it is cancelled: then `cancel` is called meanwhile.
  @usableFromInline func wait(isolation actor: isolated (any Actor)?, onCancel cancel: @Sendable () -> Void) async {
    await withTaskCancellationHandler {
      await withCheckedContinuation(isolation: actor) { continuation in
        let isAdmitted = queue.withLock { queue in
          if queue.admitted == 0 {
            queue.tasks.append(continuation)
            return false
          }
          queue.admitted -= 1
          return true
        }
        if isAdmitted { continuation.resume() }
      }
    } onCancel: {
      cancel()
    }
  }

  /// Ends a turn; admits the next task.
  @inlinable func leave() {
    if count.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue > 0 { admitNext() }
  }

  @usableFromInline func admitNext() {
    let next = queue.withLock { queue in
      if queue.tasks.isEmpty { queue.admitted += 1 }
      return queue.tasks.popFirst()
    }
    next?.resume()
  }
}
