import Dispatch
import Locks

/// A scheduler whose time a test advances: ``advance(by:)`` runs the work that becomes due, in the order of its time,
/// on the calling thread.
///
/// Its times and options are those of a Dispatch queue, so code that is generic over schedulers with
/// `S.SchedulerTimeType == DispatchQueue.SchedulerTimeType` accepts either. No work runs inside `schedule`, not even
/// work that is due immediately. Thread-safe; only one thread may advance at a time.
public final class VirtualTimeScheduler: Scheduler, Sendable {
  /// A time, as on a Dispatch queue.
  public typealias SchedulerTimeType = DispatchQueue.SchedulerTimeType
  /// Ignored.
  public typealias SchedulerOptions = DispatchQueue.SchedulerOptions

  private struct Work {
    let id: Int
    var due: SchedulerTimeType
    let interval: SchedulerTimeType.Stride?
    let action: () -> Void
  }

  private struct State {
    var now: SchedulerTimeType
    var count = 0
    /// Sorted by time; work of the same time is in the order of scheduling.
    var work: [Work] = []

    mutating func insert(_ new: Work) { work.insert(new, at: work.firstIndex { $0.due > new.due } ?? work.endIndex) }
  }
  private let state: Locked<State>

  /// - Parameter now: The initial time, which is arbitrary.
  public init(now: SchedulerTimeType = SchedulerTimeType(DispatchTime(uptimeNanoseconds: 1_000_000_000))) {
    state = Locked(State(now: now))
  }

  /// The current virtual time.
  public var now: SchedulerTimeType { state.withLock { $0.now } }
  /// Zero.
  public var minimumTolerance: SchedulerTimeType.Stride { .nanoseconds(0) }
  /// The number of pending work items; a repeating timer counts as one.
  public var pendingCount: Int { state.withLock { $0.work.count } }

  /// Advances the time and runs all work that becomes due, including work which that work schedules.
  public func advance(by span: SchedulerTimeType.Stride = .nanoseconds(0)) {
    let end = now.advanced(by: span)
    while let action = next(until: end) { action() }
    state.withLock { $0.now = max($0.now, end) }
  }

  /// Advances the time until no work is left. Does not return while a timer repeats.
  public func run() {
    while let due = state.withLock({ $0.work.first?.due }) { advance(by: now.distance(to: due)) }
  }

  private func next(until end: SchedulerTimeType) -> (() -> Void)? {
    state.withLock { state in
      guard let first = state.work.first, first.due <= end else { return nil }
      state.work.removeFirst()
      state.now = max(state.now, first.due)
      if let interval = first.interval {
        var again = first
        again.due = first.due.advanced(by: interval)
        state.insert(again)
      }
      return first.action
    }
  }

  @discardableResult private func schedule(
    at date: SchedulerTimeType?, every interval: SchedulerTimeType.Stride?, _ action: @escaping () -> Void
  ) -> Int {
    state.withLock { state in
      state.count += 1
      state.insert(Work(id: state.count, due: date ?? state.now, interval: interval, action: action))
      return state.count
    }
  }

  /// Runs the work with the next ``advance(by:)``.
  public func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void) {
    schedule(at: nil, every: nil, action)
  }

  /// Runs the work when the virtual time reaches `date`.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void
  ) {
    schedule(at: date, every: nil, action)
  }

  /// Runs the work when the virtual time reaches `date`, and after each `interval`.
  ///
  /// - Precondition: `interval` is positive; otherwise ``advance(by:)`` would not return.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    precondition(interval > .nanoseconds(0), "an interval must be positive, it is \(interval.magnitude) ns")
    let id = schedule(at: date, every: interval, action)
    return AnyCancellable {
      let removed = self.state.withLock { state in
        state.work.firstIndex { $0.id == id }.map { state.work.remove(at: $0) }
      }
      _ = consume removed
    }
  }
}
