import Dispatch
import Events
import Reactive
import StreamRuntime

/// An event at intervals: `{"tick":n,"time":"2026-01-02T03:04:05.678Z"}`.
///
/// Each value is a batch of one event. The first, tick 1, comes with a subscription's first demand; `n` is the number of
/// the interval since then, so that ticks that were missed, for want of demand or because the machine slept, show as a
/// jump of it. They are not made up for. `time` is the system's clock at delivery, in UTC; the interval is monotonic.
public struct TimerSource: CompositePublisher, Sendable {
  private let ticks: Publishers.DispatchTimer
  private let interval: Int

  /// All timers' deliveries, one at a time: they are short, and a thread each would be many.
  private static let queue = DispatchQueue(label: "streamd.timers")

  /// - Parameters:
  ///   - every: from tick to tick; at least a nanosecond.
  ///   - leeway: how much later than due a tick may come, so that wake-ups can be joined.
  ///   - times: after how many events it finishes; nil: never.
  public init(every: Duration, leeway: Duration = .zero, times: Int? = nil) {
    interval = every.wholeNanoseconds
    precondition(interval > 0, "a timer's interval must be more than nothing, not \(every)")
    ticks = Publishers.timer(
      queue: Self.queue, interval: .nanoseconds(interval), leeway: .nanoseconds(leeway.wholeNanoseconds),
      times: times.map { .max($0) } ?? .unlimited)
  }

  /// The event of each tick; a subscription counts its own.
  public var body: some Publisher<EventBatch, Never> {
    var counter = TickCounter(interval: interval)
    return ticks.map { time in
      let tick = counter.number(at: Int(clamping: time.uptimeNanoseconds))
      return [Array(#"{"tick":\#(tick),"time":"\#(WallTime.now.description)"}"#.utf8)]
    }
  }
}

/// Tells the number of the interval that a tick belongs to, from when it came. The first is 1; numbers only rise.
struct TickCounter: Sendable {
  /// Nanoseconds, more than 0.
  let interval: Int
  private var last = 0
  /// When tick 1 was due, as far as is known: no tick comes early, so the least late one says it best.
  private var origin = Int.max

  init(interval: Int) { self.interval = interval }

  /// - Parameter time: nanoseconds on a clock that never goes back.
  mutating func number(at time: Int) -> Int {
    last = last == 0 ? 1 : max(last + 1, (time - origin) / interval + 1)
    origin = min(origin, time - (last - 1) * interval)
    return last
  }
}
