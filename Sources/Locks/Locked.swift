import Synchronization

/// A value of any type, protected by a lock. Bodies are short and call nothing that may take another lock: no
/// subscriber, no subscription, no closure of a caller.
///
/// `Mutex` alone does not accept state that is not `Sendable`, such as subscriptions and subscribers. The result of a
/// body is used by the rules of its own protocol, in which `request` and `cancel` are thread-safe and signals are
/// serial.
@usableFromInline package struct Locked<State>: ~Copyable, @unchecked Sendable {
  @usableFromInline let mutex: Mutex<LockedBox<State>>
  /// Orders accesses for the thread sanitizer, which cannot see the lock inside the (uninstrumented) runtime. Plain
  /// moves on x86.
  @usableFromInline let edge = Atomic(0)

  @inlinable package init(_ state: State) { mutex = Mutex(LockedBox(state)) }

  /// Runs `body` while no other thread runs a body with the same lock. Must not be nested.
  @inlinable package func withLock<Result, Failure: Error>(
    _ body: (inout State) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try mutex.withLock { (box: inout LockedBox<State>) throws(Failure) -> LockedBox<Result> in
      _ = edge.load(ordering: .acquiring)
      defer { edge.store(0, ordering: .releasing) }
      return LockedBox(try body(&box.value))
    }.value
  }
}

/// Carries a value that is not `Sendable` into and out of a lock; the lock protects it, or the rules in `Locked` do.
@usableFromInline struct LockedBox<Value>: @unchecked Sendable {
  @usableFromInline var value: Value

  @inlinable init(_ value: Value) { self.value = value }
}
