import Dispatch
import Events
import Reactive
import StreamRuntime

/// Publishes an event at intervals: `{"tick":n,"time":"2026-01-02T03:04:05.678Z"}`.
///
/// Each value is a batch of one event. The first, tick 1, is delivered at a subscription's first demand; `n` is the
/// number of the interval since then, so that ticks missed for lack of demand or during suspend appear as a jump of
/// `n`. A subscription that resumes counts on from the last tick in the log. Missed ticks are not repeated. `time` is
/// the system's clock at delivery, in UTC; the interval is monotonic.
public struct TimerSource: CompositePublisher, Sendable {
  private let ticks: Publishers.DispatchTimer
  private let interval: Int
  private let resumption: SourceResumption?
  private static let fingerprint = BodyDigest(Array("timer".utf8))

  /// Serial queue for the deliveries of all timers: deliveries are short, and a thread per timer would be too many.
  private static let queue = DispatchQueue(label: "streamd.timers")

  /// - Parameters:
  ///   - every: the interval; at least a nanosecond.
  ///   - leeway: maximum delay of a tick, which lets the kernel join wake-ups.
  ///   - times: the number of events after which it completes; nil: never.
  ///   - resumption: the checkpoint from which each subscription continues its count, and which each batch carries;
  ///     called on any thread. nil: each subscription begins with 1.
  public init(every: Duration, leeway: Duration = .zero, times: Int? = nil, resumption: SourceResumption? = nil) {
    self.resumption = resumption
    interval = every.wholeNanoseconds
    precondition(interval > 0, "a timer's interval must be greater than zero, it is \(every)")
    ticks = Publishers.timer(
      queue: Self.queue, interval: .nanoseconds(interval), leeway: .nanoseconds(leeway.wholeNanoseconds),
      times: times.map { .max($0) } ?? .unlimited)
  }

  /// The event of each tick; a subscription counts its own.
  public var body: some Publisher<EventBatch, Never> {
    var counter = TickCounter(interval: interval)
    var former: UInt64?
    let event = own { [resumption] (time: DispatchTime) in
      let base = former ?? Self.lastTick(resumption?.checkpoint())
      former = base
      let tick = base &+ UInt64(counter.number(at: Int(clamping: time.uptimeNanoseconds)))
      var batch: EventBatch = [Array(#"{"tick":\#(tick),"time":"\#(WallTime.now.description)"}"#.utf8)]
      if resumption != nil { batch.checkpoint = SourcePosition.timer(lastTick: tick).checkpoint(Self.fingerprint) }
      return batch
    }
    return ticks.map(event)
  }

  /// - Returns: 0 without a checkpoint of a timer.
  private static func lastTick(_ checkpoint: Checkpoint?) -> UInt64 {
    guard let checkpoint, case .timer(let tick)? = SourcePosition(checkpoint, fingerprint) else { return 0 }
    return tick
  }
}

/// Computes a tick's interval number from its arrival time. The first is 1; numbers only rise.
struct TickCounter: Sendable {
  /// Nanoseconds, more than 0.
  let interval: Int
  private var last = 0
  /// The estimated due time of tick 1: no tick arrives early, so the least delayed tick gives the best estimate.
  private var origin = Int.max

  init(interval: Int) { self.interval = interval }

  /// - Parameter time: nanoseconds on a monotonic clock.
  mutating func number(at time: Int) -> Int {
    last = last == 0 ? 1 : max(last + 1, (time - origin) / interval + 1)
    origin = min(origin, time - (last - 1) * interval)
    return last
  }
}
