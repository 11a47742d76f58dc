import Dispatch
import Foundation
import Reactive

extension OperationQueue: Scheduler {
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

  /// Adds the work as an operation.
  public func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void) {
    let action = Action(run: action)
    addOperation { action.run() }
  }

  /// Adds the work as an operation when it is time.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void
  ) {
    Self.clock.schedule(after: Self.moment(date)) { self.schedule(options: options, action) }
  }

  /// Adds the work as an operation each time, until what is returned is cancelled.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    Self.clock.schedule(
      after: Self.moment(date), interval: .seconds(interval.timeInterval), tolerance: .seconds(tolerance.timeInterval)
    ) { self.schedule(options: options, action) }
  }

  /// Waits for all queues; does nothing but add operations.
  private static let clock = DispatchQueue(label: "operation clock")

  private static func moment(_ date: SchedulerTimeType) -> DispatchQueue.SchedulerTimeType {
    clock.now.advanced(by: .seconds(date.date.timeIntervalSinceNow))
  }
}
