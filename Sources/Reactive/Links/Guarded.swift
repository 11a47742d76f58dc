import Synchronization

/// Passes a value that is not `Sendable` where the compiler requires one that is. Each use states why it is safe.
@usableFromInline struct Unchecked<Value>: @unchecked Sendable {
  @usableFromInline var value: Value

  @inlinable init(value: Value) { self.value = value }
}

extension Unchecked where Value == () -> Void {
  @inlinable init(_ value: @escaping () -> Void) { self.value = value }
}

/// State behind a lock. Bodies are short and call no subscriber, no subscription and no user's closure.
///
/// The state need not be `Sendable`: it holds subscriptions and subscribers, which `Mutex` rejects. Values that leave
/// the lock are used under the rules of their own protocols: `request` and `cancel` are thread-safe, and signals are
/// serial.
@usableFromInline package struct Guarded<State>: ~Copyable, @unchecked Sendable {
  @usableFromInline let mutex: Mutex<Unchecked<State>>
  /// The thread sanitizer cannot see the lock, which is in the uninstrumented runtime. It sees this atomic pair
  /// instead, which compiles to plain moves on x86.
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

extension Array {
  /// Empties the array and returns the former elements.
  @inlinable mutating func take() -> [Element] {
    defer { self = [] }
    return self
  }
}
