import Dispatch

/// What a Dispatch timer does.
public struct DispatchTimerConfiguration: Sendable {
  /// Where values are delivered; `nil`: a queue of each subscription's own.
  public var queue: DispatchQueue?
  /// From tick to tick, on the monotonic clock. The first tick comes with the first demand.
  public var interval: DispatchTimeInterval
  /// How much later than due a tick may come, so that wake-ups can be joined.
  public var leeway: DispatchTimeInterval
  /// After how many values it finishes.
  public var times: Subscribers.Demand

  /// A timer that ticks as exactly as it can, without end, unless told otherwise.
  public init(
    queue: DispatchQueue? = nil, interval: DispatchTimeInterval, leeway: DispatchTimeInterval = .nanoseconds(0),
    times: Subscribers.Demand = .unlimited
  ) {
    (self.queue, self.interval, self.leeway, self.times) = (queue, interval, leeway, times)
  }
}

extension Publishers {
  /// Delivers the time at intervals, a timer per subscriber.
  ///
  /// A tick for which there is no demand is missed, not kept: demand that comes later waits for the next tick.
  public struct DispatchTimer: Publisher {
    /// When the value was delivered.
    public typealias Output = DispatchTime
    /// Can't fail.
    public typealias Failure = Never
    /// What the timers do.
    public let configuration: DispatchTimerConfiguration

    /// Timers that do what `configuration` says.
    public init(configuration: DispatchTimerConfiguration) { self.configuration = configuration }

    /// Attaches the subscriber. Its timer starts with its first demand; with no tick to wait for it is ended at once.
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
  ///   - queue: Where values are delivered; default: a queue of each subscription's own.
  ///   - interval: From tick to tick. The first comes with the first demand.
  ///   - leeway: How much later than due a tick may come.
  ///   - times: After how many values it finishes.
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
  // Sendable: state is guarded, and the subscriber is called by the source's handler alone, which is serial.

  struct State {
    var down: Down?
    var requested = Subscribers.Demand.none
    var remaining: Subscribers.Demand
    /// None before the first demand, and again once a tick has found none: whoever wants nothing wakes nobody.
    var source: (any DispatchSourceTimer)?
    /// When the first tick was due; all others are whole intervals from it.
    var origin: DispatchTime?
  }
  private let state: Guarded<State>
  private let configuration: DispatchTimerConfiguration
  /// One for all sources of the subscription, so that their handlers stay serial.
  private let queue: DispatchQueue
  let description = "DispatchTimer"

  init(_ configuration: DispatchTimerConfiguration, _ down: Down) {
    self.configuration = configuration
    queue = configuration.queue ?? DispatchQueue(label: "timer")
    state = Guarded(State(down: down, remaining: configuration.times))
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
    source.schedule(deadline: deadline, repeating: configuration.interval, leeway: configuration.leeway)
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

  /// - Returns: True for the one call that ends it.
  private func end() -> Bool {
    let (down, source) = state.withLock { ($0.down.take(), $0.source.take()) }
    source?.cancel()
    return down != nil
  }
}

extension DispatchTimeInterval {
  /// The first whole number of intervals from `origin` that is later than `time`.
  fileprivate func tick(after time: DispatchTime, from origin: DispatchTime) -> DispatchTime {
    if case .never = self { return .distantFuture }
    let interval = UInt64(max(1, DispatchQueue.SchedulerTimeType.Stride(self).magnitude))
    let elapsed = time.uptimeNanoseconds - min(time.uptimeNanoseconds, origin.uptimeNanoseconds)
    return DispatchTime(uptimeNanoseconds: origin.uptimeNanoseconds + (elapsed / interval + 1) * interval)
  }
}
