import Foundation
import Reactive

/// A time on the wall clock, for the schedulers of one type.
public struct WallClockTime<Owner>: Strideable, Codable, Hashable, Sendable {
  /// The time.
  public var date: Date

  /// Creates a time from a date.
  public init(_ date: Date) { self.date = date }

  /// Returns the time `n` later.
  public func advanced(by n: Stride) -> Self { Self(date.addingTimeInterval(n.timeInterval)) }
  /// Returns the interval from this time to `other`.
  public func distance(to other: Self) -> Stride { Stride(other.date.timeIntervalSince(date)) }

  /// An interval in seconds.
  public struct Stride: NumericTimeInterval, ExpressibleByFloatLiteral, Codable, Hashable {
    /// The number of seconds.
    public var magnitude: TimeInterval
    /// The number of seconds.
    public var timeInterval: TimeInterval { magnitude }

    /// Creates an interval of `magnitude` seconds.
    public init(magnitude: TimeInterval) { self.magnitude = magnitude }
    /// Creates an interval of this many seconds.
    public init(_ timeInterval: TimeInterval) { magnitude = timeInterval }
    /// Creates an interval of this many seconds.
    public init(integerLiteral value: TimeInterval) { magnitude = value }
    /// Creates an interval of this many seconds.
    public init(floatLiteral value: TimeInterval) { magnitude = value }
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

/// Work that runs once, on the scheduler that its owner chose; two threads never run it at the same time.
struct Action: @unchecked Sendable {
  let run: () -> Void
}
