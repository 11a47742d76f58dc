import Foundation
import Reactive

extension Timer {
  /// A publisher that delivers the date at intervals while it is connected.
  ///
  /// - Parameters:
  ///   - interval: Seconds between ticks, and before the first one.
  ///   - tolerance: Seconds by which a tick may be late; default: none.
  ///   - runLoop: The run loop that runs the timer.
  ///   - mode: The mode of the run loop.
  ///   - options: Ignored: there are none.
  public static func publish(
    every interval: TimeInterval, tolerance: TimeInterval? = nil, on runLoop: RunLoop, in mode: RunLoop.Mode,
    options: RunLoop.SchedulerOptions? = nil
  ) -> TimerPublisher {
    TimerPublisher(interval: interval, tolerance: tolerance, runLoop: runLoop, mode: mode, options: options)
  }

  /// Delivers the date at intervals to all subscribers while it is connected.
  ///
  /// Demand: a subscriber without demand misses the tick. On Linux use
  /// ``Publishers/timer(queue:interval:leeway:times:)``, which needs no run loop and stops while there is no demand.
  public final class TimerPublisher: ConnectablePublisher {
    /// The time at which the tick was due.
    public typealias Output = Date
    /// `Never`: this publisher does not fail.
    public typealias Failure = Never
    /// Seconds between ticks.
    public let interval: TimeInterval
    /// Seconds by which a tick may be late.
    public let tolerance: TimeInterval?
    /// The run loop that runs the timer.
    public let runLoop: RunLoop
    /// The mode of the run loop.
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

    /// Attaches the subscriber, which receives the ticks of the present or next connection.
    public func receive<S: Subscriber<Date, Never>>(subscriber: S) {
      ticks.subscribe(subscriber)
    }

    /// Starts a timer.
    ///
    /// - Returns: A cancellable that stops the timer.
    public func connect() -> any Cancellable {
      let timer = Timer(timeInterval: interval, repeats: true) { [ticks] in ticks.send($0.fireDate) }
      timer.tolerance = tolerance ?? 0
      runLoop.add(timer, forMode: mode)
      return AnyCancellable(own { timer.invalidate() })
    }
  }
}
