import Foundation
import Reactive

/// A time on the wall clock: the shared part of Foundation's scheduler times.
public protocol WallClockTime: Strideable, Codable, Hashable, Sendable where Stride: WallClockInterval {
  /// The time.
  var date: Date { get set }
  /// Creates a time from a date.
  init(_ date: Date)
}

extension WallClockTime {
  /// Returns the time `n` later.
  public func advanced(by n: Stride) -> Self { Self(date.addingTimeInterval(n.timeInterval)) }
  /// Returns the interval from this time to `other`.
  public func distance(to other: Self) -> Stride { Stride(other.date.timeIntervalSince(date)) }
}

/// An interval in seconds: the shared part of Foundation's scheduler intervals.
public protocol WallClockInterval: NumericTimeInterval, ExpressibleByFloatLiteral, Codable, Hashable
where Magnitude == TimeInterval, IntegerLiteralType == TimeInterval, FloatLiteralType == TimeInterval {}

extension WallClockInterval {
  /// The number of seconds.
  public var timeInterval: TimeInterval { magnitude }

  /// Creates an interval of this many seconds.
  public init(_ timeInterval: TimeInterval) { self.init(magnitude: timeInterval) }
  /// Creates an interval of this many seconds.
  public init(integerLiteral value: TimeInterval) { self.init(magnitude: value) }
  /// Creates an interval of this many seconds.
  public init(floatLiteral value: TimeInterval) { self.init(magnitude: value) }
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

/// Work that runs once, on the scheduler that its owner chose; two threads never run it at the same time.
struct Action: @unchecked Sendable {
  let run: () -> Void
}
