import Dispatch

/// Time that a test moves: work is done when ``advance(by:)`` comes to it, in the order of its time, on the thread that
/// moves.
///
/// Its times and options are those of a Dispatch queue, so that code which is generic over schedulers with
/// `S.SchedulerTimeType == DispatchQueue.SchedulerTimeType` takes either. Nothing is done inside `schedule`, also what
/// is due at once. Thread-safe; one thread moves at a time.
public final class VirtualTimeScheduler: Scheduler, Sendable {
  /// A moment, as on a Dispatch queue.
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
    /// By time, and at the same time in the order in which it was scheduled.
    var work: [Work] = []

    mutating func insert(_ new: Work) { work.insert(new, at: work.firstIndex { $0.due > new.due } ?? work.endIndex) }
  }
  private let state: Guarded<State>

  /// - Parameter now: The first moment; any will do.
  public init(now: SchedulerTimeType = SchedulerTimeType(DispatchTime(uptimeNanoseconds: 1_000_000_000))) {
    state = Guarded(State(now: now))
  }

  /// The moment that the test has come to.
  public var now: SchedulerTimeType { state.withLock { $0.now } }
  /// None.
  public var minimumTolerance: SchedulerTimeType.Stride { .nanoseconds(0) }
  /// How much work waits; a timer that repeats is one.
  public var pendingCount: Int { state.withLock { $0.work.count } }

  /// Lets time pass, and does all work that is due on the way, also what that work schedules.
  public func advance(by span: SchedulerTimeType.Stride = .nanoseconds(0)) {
    let end = now.advanced(by: span)
    while let action = next(until: end) { action() }
    state.withLock { $0.now = max($0.now, end) }
  }

  /// Lets time pass until no work is left. Does not return while a timer repeats.
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

  /// Does the work with the next ``advance(by:)``.
  public func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void) {
    schedule(at: nil, every: nil, action)
  }

  /// Does the work when time has come to `date`.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void
  ) {
    schedule(at: date, every: nil, action)
  }

  /// Does the work when time has come to `date`, and after each `interval`, which must be positive.
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
