import Synchronization

/// Serialises the signals to one subscriber; no lock is held while they are delivered.
///
/// A thread with work counts it. The first thread to enter drains: it also performs the work that arrives meanwhile
/// from other threads, and from the subscriber when it calls back from inside `receive`. The recursion depth is
/// therefore 1, and no thread blocks.
@usableFromInline struct DrainLoop: ~Copyable, Sendable {
  @usableFromInline let missed: Atomic<Int>

  /// - Parameter held: Starts as if a thread were draining: nothing is delivered before ``release(_:)``.
  @inlinable init(held: Bool = false) { missed = Atomic(held ? 1 : 0) }

  /// Runs `body` at least once after the start of this call, on this thread or on the thread that drains already.
  @inlinable func run(_ body: () -> Void) {
    if enter() { release(body) }
  }

  /// Counts work.
  ///
  /// - Returns: Whether no other thread drains; the caller must then call ``release(_:)``.
  @inlinable func enter() -> Bool { missed.wrappingAdd(1, ordering: .acquiringAndReleasing).oldValue == 0 }

  /// Runs `body` until no counted work is left. Only the draining thread calls it.
  @inlinable func release(_ body: () -> Void) {
    var seen = 1
    repeat {
      body()
      seen = missed.wrappingSubtract(seen, ordering: .acquiringAndReleasing).newValue
    } while seen != 0
  }
}

/// The total demand of a subscriber since its subscription. It only rises; unlimited demand stays unlimited.
@usableFromInline struct TotalDemand: ~Copyable, Sendable {
  @usableFromInline let total: Atomic<UInt64>

  @inlinable
  init(_ demand: Subscribers.Demand = .none) { total = Atomic(demand.max.map { UInt64($0) } ?? Self.unlimited) }

  /// The value for unlimited demand. No count reaches it.
  @inlinable static var unlimited: UInt64 { .max }

  /// The total demand so far, or ``unlimited``.
  @inlinable var requested: UInt64 { total.load(ordering: .acquiring) }

  @inlinable func add(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    guard let count = demand.max else {
      total.store(Self.unlimited, ordering: .releasing)
      return
    }
    var old = total.load(ordering: .relaxed)
    while old != Self.unlimited {
      let (sum, overflow) = old.addingReportingOverflow(UInt64(count))
      let (exchanged, current) = total.weakCompareExchange(
        expected: old, desired: overflow ? Self.unlimited : sum, ordering: .acquiringAndReleasing)
      if exchanged { return }
      old = current
    }
  }

  /// Resets the total to none.
  ///
  /// - Returns: The total before the reset.
  @inlinable func takeAll() -> Subscribers.Demand {
    let requested = total.exchange(0, ordering: .acquiringAndReleasing)
    return Int(exactly: requested).map { .max($0) } ?? .unlimited
  }
}
