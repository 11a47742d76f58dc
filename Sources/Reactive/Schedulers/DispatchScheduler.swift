import Dispatch

extension DispatchQueue: Scheduler {
  /// A moment on Dispatch's monotonic clock.
  public struct SchedulerTimeType: Strideable, Codable, Hashable, Sendable {
    /// The moment.
    public var dispatchTime: DispatchTime

    /// The same moment.
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

    /// The moment `n` later.
    public func advanced(by n: Stride) -> Self { Self(dispatchTime + n.timeInterval) }

    /// From this moment to `other`; the longest span there is when that is longer.
    public func distance(to other: Self) -> Stride {
      let from = dispatchTime.uptimeNanoseconds
      let to = other.dispatchTime.uptimeNanoseconds
      let span = Int(clamping: to > from ? to - from : from - to)
      return .nanoseconds(to > from ? span : -span)
    }

    /// Hashes the moment.
    public func hash(into hasher: inout Hasher) { hasher.combine(dispatchTime.rawValue) }

    /// A time span in nanoseconds. Made of larger units, it is at most as long as an `Int` of nanoseconds, 292 years.
    public struct Stride: NumericTimeInterval, ExpressibleByFloatLiteral, Codable, Hashable {
      /// Nanoseconds.
      public var magnitude: Int

      /// The span for Dispatch.
      public var timeInterval: DispatchTimeInterval { .nanoseconds(magnitude) }

      /// The span of a Dispatch interval; `.never` is the longest there is.
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
      /// So many nanoseconds.
      public init(magnitude: Int) { self.magnitude = magnitude }

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

  /// How Dispatch is to do the work.
  public struct SchedulerOptions {
    /// The quality of service.
    public var qos: DispatchQoS
    /// Work item flags.
    public var flags: DispatchWorkItemFlags
    /// A group to do it in.
    public var group: DispatchGroup?

    /// Dispatch's own defaults where nothing is given.
    public init(qos: DispatchQoS = .unspecified, flags: DispatchWorkItemFlags = [], group: DispatchGroup? = nil) {
      (self.qos, self.flags, self.group) = (qos, flags, group)
    }
  }

  /// This moment.
  public var now: SchedulerTimeType { SchedulerTimeType(.now()) }
  /// None.
  public var minimumTolerance: SchedulerTimeType.Stride { .nanoseconds(0) }

  /// Enqueues the work.
  public func schedule(options: SchedulerOptions?, _ action: @escaping () -> Void) {
    let action = Unchecked(action)  // run once, on the queue that its owner chose
    let options = options ?? SchedulerOptions()
    async(group: options.group, qos: options.qos, flags: options.flags) { action.value() }
  }

  /// Enqueues the work at `date`. Dispatch takes no tolerance here.
  public func schedule(
    after date: SchedulerTimeType, tolerance: SchedulerTimeType.Stride, options: SchedulerOptions?,
    _ action: @escaping () -> Void
  ) {
    let action = Unchecked(action)  // run once, on the queue that its owner chose
    let options = options ?? SchedulerOptions()
    asyncAfter(deadline: date.dispatchTime, qos: options.qos, flags: options.flags) { action.value() }
  }

  /// Starts a timer that enqueues the work, and ends with what is returned.
  public func schedule(
    after date: SchedulerTimeType, interval: SchedulerTimeType.Stride, tolerance: SchedulerTimeType.Stride,
    options: SchedulerOptions?, _ action: @escaping () -> Void
  ) -> any Cancellable {
    let source = DispatchSource.makeTimerSource(queue: self)
    source.schedule(deadline: date.dispatchTime, repeating: interval.timeInterval, leeway: tolerance.timeInterval)
    source.setEventHandler(handler: action)
    source.activate()
    return AnyCancellable { source.cancel() }
  }
}
