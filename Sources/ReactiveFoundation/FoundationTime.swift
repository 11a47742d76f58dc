import Foundation
import Reactive

/// A moment on the wall clock: what the scheduler times of Foundation have in common.
public protocol WallClockTime: Strideable, Codable, Hashable, Sendable where Stride: WallClockInterval {
  /// The moment.
  var date: Date { get set }
  /// The same moment.
  init(_ date: Date)
}

extension WallClockTime {
  /// The moment `n` later.
  public func advanced(by n: Stride) -> Self { Self(date.addingTimeInterval(n.timeInterval)) }
  /// From this moment to `other`.
  public func distance(to other: Self) -> Stride { Stride(other.date.timeIntervalSince(date)) }
}

/// A time span in seconds: what those of Foundation's schedulers have in common.
public protocol WallClockInterval: NumericTimeInterval, ExpressibleByFloatLiteral, Codable, Hashable
where Magnitude == TimeInterval, IntegerLiteralType == TimeInterval, FloatLiteralType == TimeInterval {}

extension WallClockInterval {
  /// Seconds.
  public var timeInterval: TimeInterval { magnitude }

  /// So many seconds.
  public init(_ timeInterval: TimeInterval) { self.init(magnitude: timeInterval) }
  /// So many seconds.
  public init(integerLiteral value: TimeInterval) { self.init(magnitude: value) }
  /// So many seconds.
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

/// Work that is done once, where its owner chose to have it done: no two threads are in it.
struct Action: @unchecked Sendable {
  let run: () -> Void
}
