import Dispatch
import Foundation
import Reactive

extension OperationQueue: Scheduler {
  /// A time on the wall clock.
  public typealias SchedulerTimeType = WallClockTime<OperationQueue>
  /// An operation queue has no options.
  public struct SchedulerOptions: Sendable {
    /// Creates empty options.
    public init() {}
  }

  /// The current time.
  public var now: SchedulerTimeType { SchedulerTimeType(Date()) }
  /// Zero.
  public var minimumTolerance: SchedulerTimeType.Stride { 0 }

  /// Adds the work as an operation.
  public func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void) {
    let action = Action(run: action)
    addOperation { action.run() }
  }

  /// Adds the work as an operation at `date`.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void
  ) {
    Self.clock.schedule(after: Self.moment(date)) { self.schedule(options: options, action) }
  }

  /// Adds the work as an operation at each interval until the returned value is cancelled.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    Self.clock.schedule(
      after: Self.moment(date), interval: .seconds(interval.timeInterval), tolerance: .seconds(tolerance.timeInterval)
    ) { self.schedule(options: options, action) }
  }

  /// The queue that waits for all operation queues; it only adds operations.
  private static let clock = DispatchQueue(label: "operation clock")

  private static func moment(_ date: SchedulerTimeType) -> DispatchQueue.SchedulerTimeType {
    clock.now.advanced(by: .seconds(date.date.timeIntervalSinceNow))
  }
}
