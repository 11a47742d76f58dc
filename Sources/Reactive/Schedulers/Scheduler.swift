/// Where and when work is done.
public protocol Scheduler<SchedulerTimeType> {
  /// A moment on this scheduler's clock.
  associatedtype SchedulerTimeType: Strideable where SchedulerTimeType.Stride: SchedulerTimeIntervalConvertible
  /// What the scheduler can be told beyond the time.
  associatedtype SchedulerOptions

  /// This moment.
  var now: SchedulerTimeType { get }
  /// The least tolerance that the scheduler can keep to.
  var minimumTolerance: SchedulerTimeType.Stride { get }
  /// Does the work at the next opportunity.
  func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void)
  /// Does the work at some time after `date`.
  func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void)
  /// Does the work at some time after `date`, and again after each `interval`.
  ///
  /// - Returns: Ends it.
  func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable
}

/// A time span that can be made of seconds and their fractions.
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

/// A time span that is a number of some unit.
public protocol NumericTimeInterval: SchedulerTimeIntervalConvertible, Comparable, SignedNumeric, Sendable
where Magnitude: SignedNumeric {
  /// So many units.
  init(magnitude: Magnitude)
}

extension NumericTimeInterval {
  /// So many seconds, if they can be said.
  public init?<T: BinaryInteger>(exactly source: T) {
    guard let seconds = Int(exactly: source) else { return nil }
    self = .seconds(seconds)
  }

  /// The shorter.
  public static func < (lhs: Self, rhs: Self) -> Bool { lhs.magnitude < rhs.magnitude }
  /// The product of the numbers.
  public static func * (lhs: Self, rhs: Self) -> Self { Self(magnitude: lhs.magnitude * rhs.magnitude) }
  /// The sum.
  public static func + (lhs: Self, rhs: Self) -> Self { Self(magnitude: lhs.magnitude + rhs.magnitude) }
  /// The difference.
  public static func - (lhs: Self, rhs: Self) -> Self { Self(magnitude: lhs.magnitude - rhs.magnitude) }
  /// Multiplies the numbers.
  public static func *= (lhs: inout Self, rhs: Self) { lhs = lhs * rhs }
}

extension Scheduler {
  /// Does the work at the next opportunity.
  public func schedule(_ action: @escaping () -> Void) { schedule(options: nil, action) }

  /// Does the work at some time after `date`.
  public func schedule(after date: SchedulerTimeType, _ action: @escaping () -> Void) {
    schedule(after: date, tolerance: minimumTolerance, options: nil, action)
  }

  /// Does the work at some time after `date`.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, _ action: @escaping () -> Void
  ) {
    schedule(after: date, tolerance: tolerance, options: nil, action)
  }

  /// Does the work at some time after `date`, and again after each `interval`, until what it returns is cancelled.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, _ action: @escaping () -> Void
  ) -> any Cancellable {
    schedule(after: date, interval: interval, tolerance: minimumTolerance, options: nil, action)
  }

  /// Does the work at some time after `date`, and again after each `interval`, until what it returns is cancelled.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    _ action: @escaping () -> Void
  ) -> any Cancellable {
    schedule(after: date, interval: interval, tolerance: tolerance, options: nil, action)
  }
}

/// Does all work at once, inside `schedule`, whatever the time given.
public struct ImmediateScheduler: Scheduler, Sendable {
  /// There are no options.
  public typealias SchedulerOptions = Never
  /// The one scheduler of this kind.
  public static let shared = ImmediateScheduler()

  private init() {}

  /// The one moment on a clock that stands still.
  public struct SchedulerTimeType: Strideable, Sendable {
    fileprivate init() {}

    /// The same moment.
    public func advanced(by n: Stride) -> Self { self }
    /// None.
    public func distance(to other: Self) -> Stride { 0 }

    /// A time span of no meaning, but of a size.
    public struct Stride: NumericTimeInterval, ExpressibleByFloatLiteral, Codable {
      /// The size.
      public var magnitude: Int

      /// A span of this size.
      public init(magnitude: Int) { self.magnitude = magnitude }
      /// A span of this size.
      public init(_ value: Int) { magnitude = value }
      /// A span of this size, if it can be said.
      public init?<T: BinaryInteger>(exactly source: T) {
        guard let magnitude = Int(exactly: source) else { return nil }
        self.magnitude = magnitude
      }
      /// A span of this size.
      public init(integerLiteral value: Int) { magnitude = value }
      /// A span of this size, rounded towards zero.
      public init(floatLiteral value: Double) { magnitude = Int(value) }

      /// No time.
      public static func seconds(_ s: Int) -> Self { 0 }
      /// No time.
      public static func seconds(_ s: Double) -> Self { 0 }
      /// No time.
      public static func milliseconds(_ ms: Int) -> Self { 0 }
      /// No time.
      public static func microseconds(_ us: Int) -> Self { 0 }
      /// No time.
      public static func nanoseconds(_ ns: Int) -> Self { 0 }
    }
  }

  /// The one moment.
  public var now: SchedulerTimeType { SchedulerTimeType() }
  /// None.
  public var minimumTolerance: SchedulerTimeType.Stride { 0 }

  /// Does the work now.
  public func schedule(options: Never?, _ action: @escaping () -> Void) { action() }

  /// Does the work now.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: Never?,
    _ action: @escaping () -> Void
  ) {
    action()
  }

  /// Does the work now, once.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: Never?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    action()
    return AnyCancellable {}
  }
}
