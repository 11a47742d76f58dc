import Synchronization

/// Lets a value that is not `Sendable` pass where the compiler wants one that is. Whoever writes it says why that
/// holds.
@usableFromInline struct Unchecked<Value>: @unchecked Sendable {
  @usableFromInline var value: Value

  @inlinable init(value: Value) { self.value = value }
}

extension Unchecked where Value == () -> Void {
  @inlinable init(_ value: @escaping () -> Void) { self.value = value }
}

/// State behind a lock. Bodies are short and call nobody: no subscriber, no subscription, no user's closure.
///
/// Takes state that is not `Sendable` (subscriptions, subscribers), which `Mutex` alone refuses: what comes out is
/// used under the rules of its own protocol, where `request` and `cancel` are thread-safe and signals are serial.
@usableFromInline package struct Guarded<State>: ~Copyable, @unchecked Sendable {
  @usableFromInline let mutex: Mutex<Unchecked<State>>
  /// The thread sanitizer can't see into the lock, which is in the (uninstrumented) runtime; it sees this pair. Plain
  /// moves on x86.
  @usableFromInline let edge = Atomic(0)

  @inlinable package init(_ state: State) { mutex = Mutex(Unchecked(value: state)) }

  @inlinable package func withLock<R>(_ body: (inout State) -> R) -> R {
    mutex.withLock { state in
      _ = edge.load(ordering: .acquiring)
      defer { edge.store(0, ordering: .releasing) }
      return Unchecked(value: body(&state.value))
    }.value
  }
}
