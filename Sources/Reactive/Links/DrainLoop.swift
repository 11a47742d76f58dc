import Synchronization

/// Makes signals to one subscriber serial without a lock held while they are delivered.
///
/// Whoever has work counts it; the first one in works, for all who come while it does: other threads, and the
/// subscriber itself when it calls back from inside `receive`. So the depth is 1 and nobody waits.
@usableFromInline struct DrainLoop: ~Copyable, Sendable {
  @usableFromInline let missed: Atomic<Int>

  /// - Parameter held: Starts as if somebody were at work: nothing is delivered before ``release(_:)``.
  @inlinable init(held: Bool = false) { missed = Atomic(held ? 1 : 0) }

  /// Runs `body`, here or where it is running already, at least once after this call began.
  @inlinable func run(_ body: () -> Void) {
    if enter() { release(body) }
  }

  /// Counts work that is to be done.
  ///
  /// - Returns: Whether nobody is at work, so that the caller is to ``release(_:)``.
  @inlinable func enter() -> Bool { missed.wrappingAdd(1, ordering: .acquiringAndReleasing).oldValue == 0 }

  /// Runs `body` until nothing was missed. For the one who is at work.
  @inlinable func release(_ body: () -> Void) {
    var seen = 1
    repeat {
      body()
      seen = missed.wrappingSubtract(seen, ordering: .acquiringAndReleasing).newValue
    } while seen != 0
  }
}

/// What a subscriber has asked for since the beginning: a count that only rises, and sticks at unlimited.
@usableFromInline struct DemandTally: ~Copyable, Sendable {
  @usableFromInline let total: Atomic<UInt64>

  @inlinable
  init(_ demand: Subscribers.Demand = .none) { total = Atomic(demand.max.map { UInt64($0) } ?? Self.unlimited) }

  /// Stands for no limit. No count reaches it.
  @inlinable static var unlimited: UInt64 { .max }

  /// Everything asked for so far, or ``unlimited``.
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

  /// Starts from none again.
  ///
  /// - Returns: What was asked for.
  @inlinable func takeAll() -> Subscribers.Demand {
    let requested = total.exchange(0, ordering: .acquiringAndReleasing)
    return Int(exactly: requested).map { .max($0) } ?? .unlimited
  }
}
