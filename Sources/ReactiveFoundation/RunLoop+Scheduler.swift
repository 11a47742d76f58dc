import Foundation
import Reactive

extension RunLoop: Scheduler {
  /// A moment on the wall clock.
  public struct SchedulerTimeType: WallClockTime {
    /// The moment.
    public var date: Date

    /// The same moment.
    public init(_ date: Date) { self.date = date }

    /// A time span.
    public struct Stride: WallClockInterval {
      /// Seconds.
      public var magnitude: TimeInterval

      /// So many seconds.
      public init(magnitude: TimeInterval) { self.magnitude = magnitude }
    }
  }
  /// There is nothing to choose.
  public struct SchedulerOptions: Sendable {
    /// No choice.
    public init() {}
  }

  /// This moment.
  public var now: SchedulerTimeType { SchedulerTimeType(Date()) }
  /// None.
  public var minimumTolerance: SchedulerTimeType.Stride { 0 }

  /// Does the work in the loop's next turn, in its default mode.
  public func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void) {
    let action = Action(run: action)
    perform { action.run() }
    // A loop that sleeps doesn't notice what it is to perform: on Linux only a timer wakes it.
    add(Timer(fire: Date(), interval: 0, repeats: false) { _ in }, forMode: .default)
  }

  /// Does the work with a timer in the loop's default mode.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void
  ) {
    start(date, interval: nil, tolerance, action)
  }

  /// Does the work with a timer in the loop's default mode, which ends with what is returned.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    let timer = start(date, interval: interval, tolerance, action)
    return AnyCancellable { timer.invalidate() }
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
