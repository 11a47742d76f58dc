import Dispatch
import Locks

/// The parameters of a Dispatch timer.
public struct DispatchTimerConfiguration: Sendable {
  /// The queue that delivers values; `nil`: a separate queue for each subscription.
  public var queue: DispatchQueue?
  /// The time between ticks, on the monotonic clock; below zero: zero. The first tick is due with the first demand.
  public var interval: DispatchTimeInterval
  /// The time by which a tick may be late, so that wake-ups can be combined.
  public var leeway: DispatchTimeInterval
  /// The number of values after which the publisher finishes.
  public var times: Subscribers.Demand

  /// Creates a configuration; by default a timer without leeway and without end.
  public init(
    queue: DispatchQueue? = nil, interval: DispatchTimeInterval, leeway: DispatchTimeInterval = .nanoseconds(0),
    times: Subscribers.Demand = .unlimited
  ) {
    (self.queue, self.interval, self.leeway, self.times) = (queue, interval, leeway, times)
  }
}

extension Publishers {
  /// Delivers the time at intervals. Each subscriber has its own timer.
  ///
  /// A tick without demand is skipped, not stored: later demand waits for the next tick.
  public struct DispatchTimer: Publisher {
    /// The time of delivery.
    public typealias Output = DispatchTime
    /// `Never`: this publisher does not fail.
    public typealias Failure = Never
    /// The parameters of the timers.
    public let configuration: DispatchTimerConfiguration

    /// Creates timers with this configuration.
    public init(configuration: DispatchTimerConfiguration) { self.configuration = configuration }

    /// Attaches the subscriber. Its timer starts with its first demand; if the number of ticks is 0, it finishes
    /// immediately.
    public func receive<S: Subscriber<DispatchTime, Never>>(subscriber: S) {
      guard configuration.times > .none else {
        return Empty().receive(subscriber: subscriber)
      }
      subscriber.receive(subscription: DispatchTimerSubscription(configuration, subscriber))
    }
  }

  /// Delivers the time every `interval`.
  ///
  /// - Parameters:
  ///   - queue: The queue that delivers values; default: a separate queue for each subscription.
  ///   - interval: The time between ticks. The first tick is due with the first demand.
  ///   - leeway: The time by which a tick may be late.
  ///   - times: The number of values after which the publisher finishes.
  public static func timer(
    queue: DispatchQueue? = nil, interval: DispatchTimeInterval, leeway: DispatchTimeInterval = .nanoseconds(0),
    times: Subscribers.Demand = .unlimited
  ) -> DispatchTimer {
    DispatchTimer(
      configuration: DispatchTimerConfiguration(queue: queue, interval: interval, leeway: leeway, times: times))
  }
}

extension Publishers.DispatchTimer: Sendable {}

private final class DispatchTimerSubscription<Down: Subscriber>: DroppingSubscription, CustomStringConvertible,
  @unchecked Sendable
where Down.Input == DispatchTime, Down.Failure == Never {
  // Sendable: state is guarded, and only the source's handler, which is serial, calls the subscriber.

  struct State {
    var down: Down?
    var requested = Subscribers.Demand.none
    var remaining: Subscribers.Demand
    /// `nil` before the first demand and after a tick without demand: a subscription without demand causes no wake-ups.
    var source: (any DispatchSourceTimer)?
    /// The time at which the first tick was due; all others are whole intervals later.
    var origin: DispatchTime?
  }
  private let state: Locked<State>
  private let configuration: DispatchTimerConfiguration
  /// The queue of all the subscription's sources, so that their handlers stay serial.
  private let queue: DispatchQueue
  let description = "DispatchTimer"

  init(_ configuration: DispatchTimerConfiguration, _ down: Down) {
    self.configuration = configuration
    queue = configuration.queue ?? DispatchQueue(label: "timer")
    state = Locked(State(down: down, remaining: configuration.times))
  }

  deinit { cancel() }

  func request(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    let start = state.withLock { state -> (source: any DispatchSourceTimer, deadline: DispatchTime)? in
      guard state.down != nil else { return nil }
      state.requested += demand
      guard state.source == nil else { return nil }
      let source = DispatchSource.makeTimerSource(queue: queue)
      state.source = source
      let deadline = state.origin.map { configuration.interval.tick(after: .now(), from: $0) } ?? .now()
      if state.origin == nil { state.origin = deadline }
      return (source, deadline)
    }
    guard let (source, deadline) = start else { return }
    typealias Stride = DispatchQueue.SchedulerTimeType.Stride
    source.schedule(
      deadline: deadline, repeating: Stride(configuration.interval), leeway: Stride(configuration.leeway))
    let tick = Unchecked { [weak self] in self?.tick() }
    source.setEventHandler { tick.value() }
    source.activate()
  }

  func cancel() { _ = end() }

  private func tick() {
    let (down, resting) = state.withLock { state -> (Down?, (any DispatchSourceTimer)?) in
      guard state.requested > .none, let down = state.down else { return (nil, state.source.take()) }
      state.requested -= 1
      state.remaining -= 1
      return (down, nil)
    }
    resting?.cancel()
    guard let down else { return }
    let more = down.receive(.now())
    let isOver = state.withLock { state in
      state.requested += more
      return state.remaining == .none
    }
    if isOver, end() { down.receive(completion: .finished) }
  }

  /// - Returns: True for the one call that ends the subscription.
  private func end() -> Bool {
    let (down, source) = state.withLock { ($0.down.take(), $0.source.take()) }
    source?.cancel()
    return down != nil
  }
}

extension DispatchTimeInterval {
  /// Returns the first whole number of intervals from `origin` that is later than `time`.
  fileprivate func tick(after time: DispatchTime, from origin: DispatchTime) -> DispatchTime {
    if case .never = self { return .distantFuture }
    let interval = UInt64(max(1, DispatchQueue.SchedulerTimeType.Stride(self).magnitude))
    let elapsed = time.uptimeNanoseconds - min(time.uptimeNanoseconds, origin.uptimeNanoseconds)
    let tick = origin.uptimeNanoseconds + (elapsed / interval + 1) * interval
    return tick > Int64.max ? .distantFuture : DispatchTime(uptimeNanoseconds: tick)
  }
}
