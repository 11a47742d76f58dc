/// Determines where and when work runs.
public protocol Scheduler<SchedulerTimeType> {
  /// A time on this scheduler's clock.
  associatedtype SchedulerTimeType: Strideable where SchedulerTimeType.Stride: SchedulerTimeIntervalConvertible
  /// Options of the scheduler besides the time.
  associatedtype SchedulerOptions

  /// The current time.
  var now: SchedulerTimeType { get }
  /// The least tolerance that the scheduler supports.
  var minimumTolerance: SchedulerTimeType.Stride { get }
  /// Runs the work at the next opportunity.
  func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void)
  /// Runs the work at some time after `date`.
  func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void)
  /// Runs the work at some time after `date`, and again after each `interval`.
  ///
  /// - Returns: A cancellable that stops the repetition.
  func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable
}

/// An interval that can be created from seconds and fractions of them.
public protocol SchedulerTimeIntervalConvertible {
  /// `s` seconds.
  static func seconds(_ s: Int) -> Self
  /// `s` seconds.
  static func seconds(_ s: Double) -> Self
  /// `ms` milliseconds.
  static func milliseconds(_ ms: Int) -> Self
  /// `us` microseconds.
  static func microseconds(_ us: Int) -> Self
  /// `ns` nanoseconds.
  static func nanoseconds(_ ns: Int) -> Self
}

/// An interval that is a number of some unit.
public protocol NumericTimeInterval: SchedulerTimeIntervalConvertible, Comparable, SignedNumeric, Sendable
where Magnitude: SignedNumeric {
  /// Creates an interval of `magnitude` units.
  init(magnitude: Magnitude)
}

extension NumericTimeInterval {
  /// Creates an interval of `source` units, if it is representable. A Dispatch queue's unit is a nanosecond.
  public init?<T: BinaryInteger>(exactly source: T) {
    guard let magnitude = Magnitude(exactly: source) else { return nil }
    self.init(magnitude: magnitude)
  }

  /// Whether `lhs` is shorter.
  public static func < (lhs: Self, rhs: Self) -> Bool { lhs.magnitude < rhs.magnitude }
  /// The product of the numbers of units.
  public static func * (lhs: Self, rhs: Self) -> Self { Self(magnitude: lhs.magnitude * rhs.magnitude) }
  /// The sum of the intervals.
  public static func + (lhs: Self, rhs: Self) -> Self { Self(magnitude: lhs.magnitude + rhs.magnitude) }
  /// The difference of the intervals.
  public static func - (lhs: Self, rhs: Self) -> Self { Self(magnitude: lhs.magnitude - rhs.magnitude) }
  /// Multiplies the numbers of units.
  public static func *= (lhs: inout Self, rhs: Self) { lhs = lhs * rhs }
}

/// Intervals of a whole number of units. Arithmetic saturates: a result that is too large is the longest interval.
extension NumericTimeInterval where Magnitude: FixedWidthInteger {
  /// The product of the numbers of units, saturated.
  public static func * (lhs: Self, rhs: Self) -> Self {
    let (product, overflow) = lhs.magnitude.multipliedReportingOverflow(by: rhs.magnitude)
    return Self(magnitude: overflow ? ((lhs.magnitude < 0) == (rhs.magnitude < 0) ? .max : .min) : product)
  }
  /// The sum of the intervals, saturated.
  public static func + (lhs: Self, rhs: Self) -> Self {
    let (sum, overflow) = lhs.magnitude.addingReportingOverflow(rhs.magnitude)
    return Self(magnitude: overflow ? (rhs.magnitude < 0 ? .min : .max) : sum)
  }
  /// The difference of the intervals, saturated.
  public static func - (lhs: Self, rhs: Self) -> Self {
    let (difference, overflow) = lhs.magnitude.subtractingReportingOverflow(rhs.magnitude)
    return Self(magnitude: overflow ? (rhs.magnitude < 0 ? .max : .min) : difference)
  }
  /// Multiplies the numbers of units, saturated.
  public static func *= (lhs: inout Self, rhs: Self) { lhs = lhs * rhs }
}

extension Scheduler {
  /// Runs the work at the next opportunity.
  public func schedule(_ action: @escaping () -> Void) { schedule(options: nil, action) }

  /// Runs the work at some time after `date`.
  public func schedule(after date: SchedulerTimeType, _ action: @escaping () -> Void) {
    schedule(after: date, tolerance: minimumTolerance, options: nil, action)
  }

  /// Runs the work at some time after `date`.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, _ action: @escaping () -> Void
  ) {
    schedule(after: date, tolerance: tolerance, options: nil, action)
  }

  /// Runs the work at some time after `date`, and again after each `interval`, until the returned value is cancelled.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, _ action: @escaping () -> Void
  ) -> any Cancellable {
    schedule(after: date, interval: interval, tolerance: minimumTolerance, options: nil, action)
  }

  /// Runs the work at some time after `date`, and again after each `interval`, until the returned value is cancelled.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    _ action: @escaping () -> Void
  ) -> any Cancellable {
    schedule(after: date, interval: interval, tolerance: tolerance, options: nil, action)
  }
}

/// Runs all work immediately, inside `schedule`, whatever its date.
public struct ImmediateScheduler: Scheduler, Sendable {
  /// There are no options.
  public typealias SchedulerOptions = Never
  /// The shared instance.
  public static let shared = ImmediateScheduler()

  private init() {}

  /// The only time on a clock that stands still.
  public struct SchedulerTimeType: Strideable, Sendable {
    fileprivate init() {}

    /// Returns the same time.
    public func advanced(by n: Stride) -> Self { self }
    /// Returns zero.
    public func distance(to other: Self) -> Stride { 0 }

    /// An interval that has a size but no effect.
    public struct Stride: NumericTimeInterval, ExpressibleByFloatLiteral, Codable {
      /// The size.
      public var magnitude: Int

      /// Creates an interval of this size.
      public init(magnitude: Int) { self.magnitude = magnitude }
      /// Creates an interval of this size.
      public init(_ value: Int) { magnitude = value }
      /// Creates an interval of this size.
      public init(integerLiteral value: Int) { magnitude = value }
      /// Creates an interval of this size, rounded towards zero and saturated.
      public init(floatLiteral value: Double) {
        magnitude = Int(exactly: value.rounded(.towardZero)) ?? (value < 0 ? .min : .max)
      }

      /// Zero.
      public static func seconds(_ s: Int) -> Self { 0 }
      /// Zero.
      public static func seconds(_ s: Double) -> Self { 0 }
      /// Zero.
      public static func milliseconds(_ ms: Int) -> Self { 0 }
      /// Zero.
      public static func microseconds(_ us: Int) -> Self { 0 }
      /// Zero.
      public static func nanoseconds(_ ns: Int) -> Self { 0 }
    }
  }

  /// The only time.
  public var now: SchedulerTimeType { SchedulerTimeType() }
  /// Zero.
  public var minimumTolerance: SchedulerTimeType.Stride { 0 }

  /// Runs the work immediately.
  public func schedule(options: Never?, _ action: @escaping () -> Void) { action() }

  /// Runs the work immediately.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: Never?,
    _ action: @escaping () -> Void
  ) {
    action()
  }

  /// Runs the work immediately, once.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: Never?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    action()
    return AnyCancellable {}
  }
}
