import Foundation
import Reactive

/// A moment on the wall clock, for the schedulers that take one: `RunLoop.SchedulerTimeType`,
/// `OperationQueue.SchedulerTimeType`.
public struct FoundationTime: Strideable, Codable, Hashable, Sendable {
  /// The moment.
  public var date: Date

  /// The same moment.
  public init(_ date: Date) { self.date = date }

  /// The moment `n` later.
  public func advanced(by n: Stride) -> Self { Self(date.addingTimeInterval(n.timeInterval)) }
  /// From this moment to `other`.
  public func distance(to other: Self) -> Stride { Stride(other.date.timeIntervalSince(date)) }

  /// A time span in seconds.
  public struct Stride: NumericTimeInterval, ExpressibleByFloatLiteral, Codable, Hashable {
    /// Seconds.
    public var timeInterval: TimeInterval
    /// Seconds.
    public var magnitude: TimeInterval { timeInterval }

    /// So many seconds.
    public init(_ timeInterval: TimeInterval) { self.timeInterval = timeInterval }
    /// So many seconds.
    public init(magnitude: TimeInterval) { self.init(magnitude) }
    /// So many seconds.
    public init(integerLiteral value: TimeInterval) { self.init(value) }
    /// So many seconds.
    public init(floatLiteral value: TimeInterval) { self.init(value) }
    /// `s` seconds.
    public static func seconds(_ s: Int) -> Self { Self(TimeInterval(s)) }
    /// `s` seconds.
    public static func seconds(_ s: Double) -> Self { Self(s) }
    /// `ms` milliseconds.
    public static func milliseconds(_ ms: Int) -> Self { Self(TimeInterval(ms) / 1e3) }
    /// `us` microseconds.
    public static func microseconds(_ us: Int) -> Self { Self(TimeInterval(us) / 1e6) }
    /// `ns` nanoseconds.
    public static func nanoseconds(_ ns: Int) -> Self { Self(TimeInterval(ns) / 1e9) }
  }
}

/// Work that is done once, where its owner chose to have it done: no two threads are in it.
struct Action: @unchecked Sendable {
  let run: () -> Void
}
