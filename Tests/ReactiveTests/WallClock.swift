import Locks
import Reactive

/// A clock that a test advances and sets back, as the clock of run loops and operation queues can be.
final class WallClock: Scheduler, Sendable {
  typealias SchedulerTimeType = VirtualTimeScheduler.SchedulerTimeType
  typealias SchedulerOptions = VirtualTimeScheduler.SchedulerOptions
  let time = VirtualTimeScheduler()
  /// The difference between the clock and the virtual time, in milliseconds.
  private let lead = Locked(0)

  func setBack(milliseconds: Int) { lead.withLock { $0 -= milliseconds } }

  private func shifted(_ moment: SchedulerTimeType, by sign: Int) -> SchedulerTimeType {
    moment.advanced(by: .milliseconds(sign * lead.withLock { $0 }))
  }

  var now: SchedulerTimeType { shifted(time.now, by: 1) }
  var minimumTolerance: SchedulerTimeType.Stride { .nanoseconds(0) }

  func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void) { time.schedule(options: options, action) }

  func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void
  ) {
    time.schedule(after: shifted(date, by: -1), action)
  }

  func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    time.schedule(after: shifted(date, by: -1), interval: interval, action)
  }
}
