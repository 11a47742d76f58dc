import Dispatch

extension DispatchQueue: Scheduler {
  /// A time on Dispatch's monotonic clock.
  public struct SchedulerTimeType: Strideable, Codable, Hashable, Sendable {
    /// The time.
    public var dispatchTime: DispatchTime

    /// Creates a time from a Dispatch time.
    public init(_ time: DispatchTime) { dispatchTime = time }

    /// Decodes nanoseconds of uptime.
    public init(from decoder: any Decoder) throws {
      let nanoseconds = try decoder.singleValueContainer().decode(UInt64.self)
      self.init(DispatchTime(uptimeNanoseconds: nanoseconds))
    }

    /// Encodes nanoseconds of uptime.
    public func encode(to encoder: any Encoder) throws {
      var container = encoder.singleValueContainer()
      try container.encode(dispatchTime.uptimeNanoseconds)
    }

    /// Returns the time `n` later; `DispatchTime.distantFuture` if it cannot be represented.
    public func advanced(by n: Stride) -> Self { Self(dispatchTime + n.timeInterval) }

    /// Returns the interval from this time to `other`, at most the longest interval.
    public func distance(to other: Self) -> Stride {
      let from = dispatchTime.uptimeNanoseconds
      let to = other.dispatchTime.uptimeNanoseconds
      let span = Int(clamping: to > from ? to - from : from - to)
      return .nanoseconds(to > from ? span : -span)
    }

    /// Hashes the time.
    public func hash(into hasher: inout Hasher) { hasher.combine(dispatchTime.rawValue) }

    /// An interval in nanoseconds. Units, literals and arithmetic saturate at `Int.max` nanoseconds, 292 years.
    public struct Stride: NumericTimeInterval, ExpressibleByFloatLiteral, Codable, Hashable {
      /// The number of nanoseconds.
      public var magnitude: Int

      /// The interval in Dispatch's type.
      public var timeInterval: DispatchTimeInterval { .nanoseconds(magnitude) }

      /// Creates an interval from a Dispatch interval; `.never` is the longest interval.
      public init(_ timeInterval: DispatchTimeInterval) {
        switch timeInterval {
        case .seconds(let count): self = .seconds(count)
        case .milliseconds(let count): self = .milliseconds(count)
        case .microseconds(let count): self = .microseconds(count)
        case .nanoseconds(let count): self = .nanoseconds(count)
        case .never: self = .nanoseconds(.max)
        @unknown default: self = .nanoseconds(.max)
        }
      }

      /// `value` seconds.
      public init(floatLiteral value: Double) { self = .seconds(value) }
      /// `value` seconds.
      public init(integerLiteral value: Int) { self = .seconds(value) }
      /// Creates an interval of `magnitude` nanoseconds.
      public init(magnitude: Int) { self.magnitude = magnitude }

      /// The product of the numbers of seconds, as on a run loop: `.seconds(10) * 2` is 20 seconds, because the literal is
      /// 2 seconds. Fractions of a nanosecond are omitted.
      public static func * (lhs: Self, rhs: Self) -> Self {
        .nanoseconds(Int(clamping: Int128(lhs.magnitude) * Int128(rhs.magnitude) / 1_000_000_000))
      }
      /// Multiplies the numbers of seconds.
      public static func *= (lhs: inout Self, rhs: Self) { lhs = lhs * rhs }

      private init(_ count: Int, unit: Int) {
        let (product, overflow) = count.multipliedReportingOverflow(by: unit)
        magnitude = overflow ? (count < 0 ? .min : .max) : product
      }

      /// `s` seconds.
      public static func seconds(_ s: Double) -> Self {
        Self(Int(exactly: (s * 1e9).rounded()) ?? (s < 0 ? .min : .max), unit: 1)
      }
      /// `s` seconds.
      public static func seconds(_ s: Int) -> Self { Self(s, unit: 1_000_000_000) }
      /// `ms` milliseconds.
      public static func milliseconds(_ ms: Int) -> Self { Self(ms, unit: 1_000_000) }
      /// `us` microseconds.
      public static func microseconds(_ us: Int) -> Self { Self(us, unit: 1000) }
      /// `ns` nanoseconds.
      public static func nanoseconds(_ ns: Int) -> Self { Self(ns, unit: 1) }
    }
  }

  /// Options for work on a Dispatch queue.
  public struct SchedulerOptions {
    /// The quality of service.
    public var qos: DispatchQoS
    /// Work item flags.
    public var flags: DispatchWorkItemFlags
    /// The group that the work belongs to.
    public var group: DispatchGroup?

    /// Creates options; the defaults are Dispatch's own.
    public init(qos: DispatchQoS = .unspecified, flags: DispatchWorkItemFlags = [], group: DispatchGroup? = nil) {
      (self.qos, self.flags, self.group) = (qos, flags, group)
    }
  }

  /// The current time.
  public var now: SchedulerTimeType { SchedulerTimeType(.now()) }
  /// Zero.
  public var minimumTolerance: SchedulerTimeType.Stride { .nanoseconds(0) }

  /// Enqueues the work.
  public func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void) {
    let action = Unchecked(action)  // run once, on the queue that its owner chose
    let options = options ?? SchedulerOptions()
    async(group: options.group, qos: options.qos, flags: options.flags) { action.value() }
  }

  /// Enqueues the work at `date`. Dispatch accepts no tolerance here.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void
  ) {
    let action = Unchecked(action)  // run once, on the queue that its owner chose
    let options = options ?? SchedulerOptions()
    asyncAfter(deadline: date.dispatchTime, qos: options.qos, flags: options.flags) { action.value() }
  }

  /// Starts a timer that enqueues the work. Cancelling the returned value stops it. An interval or a tolerance below zero
  /// counts as zero; Dispatch repeats a timer without interval as often as the queue can take it.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    let source = DispatchSource.makeTimerSource(queue: self)
    source.schedule(deadline: date.dispatchTime, repeating: interval, leeway: tolerance)
    source.setEventHandler(handler: action)
    source.activate()
    return AnyCancellable(own { source.cancel() })
  }
}

extension DispatchSourceTimer {
  /// Sets the timer. Dispatch traps for an interval below zero, which counts as zero here.
  func schedule(
    deadline: DispatchTime, repeating interval: DispatchQueue.SchedulerTimeType.Stride,
    leeway: DispatchQueue.SchedulerTimeType.Stride
  ) {
    schedule(deadline: deadline, repeating: max(0, interval).timeInterval, leeway: max(0, leeway).timeInterval)
  }
}
