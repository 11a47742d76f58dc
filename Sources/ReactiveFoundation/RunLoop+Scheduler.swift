import Foundation
import Reactive

extension RunLoop: Scheduler {
  /// A time on the wall clock.
  public typealias SchedulerTimeType = WallClockTime<RunLoop>
  /// A run loop has no options.
  public struct SchedulerOptions: Sendable {
    /// Creates empty options.
    public init() {}
  }

  /// The current time.
  public var now: SchedulerTimeType { SchedulerTimeType(Date()) }
  /// Zero.
  public var minimumTolerance: SchedulerTimeType.Stride { 0 }

  /// Runs the work in the loop's next turn, in its default mode.
  public func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void) {
    let action = Action(run: action)
    perform { action.run() }
    // On Linux, scheduling work does not wake a sleeping run loop; only a timer does.
    add(Timer(fire: Date(), interval: 0, repeats: false) { _ in }, forMode: .default)
  }

  /// Runs the work by a timer in the loop's default mode.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void
  ) {
    start(date, interval: nil, tolerance, action)
  }

  /// Runs the work by a repeating timer in the loop's default mode. Cancelling the returned value stops the timer.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    let timer = start(date, interval: interval, tolerance, action)
    return AnyCancellable(own { timer.invalidate() })
  }

  @discardableResult
  private func start(
    _ date: SchedulerTimeType, interval: SchedulerTimeType.Stride?, _ tolerance: SchedulerTimeType.Stride,
    _ action: @escaping () -> Void
  ) -> Timer {
    let action = Action(run: action)
    let timer = Timer(fire: date.date, interval: interval?.timeInterval ?? 0, repeats: interval != nil) { _ in
      action.run()
    }
    timer.tolerance = tolerance.timeInterval
    add(timer, forMode: .default)
    return timer
  }
}
