import Synchronization

/// State behind a lock, of any type. Bodies are short and call nothing that may take another lock: no subscriber, no
/// subscription, no caller's closure.
///
/// `Mutex` alone refuses state that is not `Sendable`, such as subscriptions and subscribers. What a body returns is used
/// under the rules of its own protocol, where `request` and `cancel` are thread-safe and signals are serial.
@usableFromInline package struct Locked<State>: ~Copyable, @unchecked Sendable {
  @usableFromInline let mutex: Mutex<LockedBox<State>>
  /// The thread sanitizer can't see into the lock, which is in the (uninstrumented) runtime; it sees this pair. Plain
  /// moves on x86.
  @usableFromInline let edge = Atomic(0)

  @inlinable package init(_ state: State) { mutex = Mutex(LockedBox(state)) }

  /// Runs `body` while no other thread runs one of the same lock. Must not be nested.
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

/// Takes into a lock, and out of it, what is not `Sendable`; the lock guards it, or the rules that `Locked` names.
@usableFromInline struct LockedBox<Value>: @unchecked Sendable {
  @usableFromInline var value: Value

  @inlinable init(_ value: Value) { self.value = value }
}
