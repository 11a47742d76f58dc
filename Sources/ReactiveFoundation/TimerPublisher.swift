import Foundation
import Reactive

extension Timer {
  /// Delivers the date at intervals once it is connected.
  ///
  /// - Parameters:
  ///   - interval: Seconds from tick to tick, and to the first one.
  ///   - tolerance: Seconds that a tick may be late; default: none.
  ///   - runLoop: Whose turns the ticks come in.
  ///   - mode: In which of the loop's modes.
  ///   - options: Ignored: there are none.
  public static func publish(
    every interval: TimeInterval, tolerance: TimeInterval? = nil, on runLoop: RunLoop, in mode: RunLoop.Mode,
    options: RunLoop.SchedulerOptions? = nil
  ) -> TimerPublisher {
    TimerPublisher(interval: interval, tolerance: tolerance, runLoop: runLoop, mode: mode, options: options)
  }

  /// Delivers the date at intervals, to all subscribers, while it is connected.
  ///
  /// Demand: a tick passes by whoever has none. On Linux use ``Publishers/timer(queue:interval:leeway:times:)``, which
  /// needs no run loop and rests while nobody has demand.
  public final class TimerPublisher: ConnectablePublisher {
    /// When the tick was due.
    public typealias Output = Date
    /// Can't fail.
    public typealias Failure = Never
    /// Seconds from tick to tick.
    public let interval: TimeInterval
    /// Seconds that a tick may be late.
    public let tolerance: TimeInterval?
    /// Whose turns the ticks come in.
    public let runLoop: RunLoop
    /// In which of the loop's modes.
    public let mode: RunLoop.Mode
    /// There are none.
    public let options: RunLoop.SchedulerOptions?
    private let ticks = PassthroughSubject<Date, Never>()

    /// `Timer.publish(every: interval, tolerance: tolerance, on: runLoop, in: mode, options: options)`
    public init(
      interval: TimeInterval, tolerance: TimeInterval? = nil, runLoop: RunLoop, mode: RunLoop.Mode,
      options: RunLoop.SchedulerOptions? = nil
    ) {
      self.interval = interval
      self.tolerance = tolerance
      self.runLoop = runLoop
      self.mode = mode
      self.options = options
    }

    /// Attaches the subscriber, which gets the ticks of whatever connection there is.
    public func receive<S: Subscriber<Date, Never>>(subscriber: S) {
      ticks.subscribe(subscriber)
    }

    /// Starts a timer.
    ///
    /// - Returns: Stops it.
    public func connect() -> any Cancellable {
      let timer = Timer(timeInterval: interval, repeats: true) { [ticks] in ticks.send($0.fireDate) }
      timer.tolerance = tolerance ?? 0
      runLoop.add(timer, forMode: mode)
      return AnyCancellable { timer.invalidate() }
    }
  }
}
