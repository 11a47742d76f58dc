import Glibc
import StreamRuntime
import Systemd

/// Serves the log level on the bus, on an event loop, while the loop runs. Connects again if there is no bus or the
/// connection closes: soon if the level was served a short time ago, because the bus is then being restarted, otherwise
/// once a minute. Confined to the loop's thread.
final class LogControlWatch: EventLoop.Handler {
  private let journal: Journal
  private let loop: EventLoop
  private var control: LogControl?
  private var registration: EventLoop.Registration?
  private var timer: TimerID?

  /// When the log level was last served, in nanoseconds of the monotonic clock.
  private var servedAt: UInt64?

  private static let retryPeriod = Duration.seconds(60)
  /// The retry period during a minute after the log level was served.
  private static let soon = Duration.milliseconds(500)

  init(_ journal: Journal, on loop: EventLoop) {
    (self.journal, self.loop) = (journal, loop)
    connect()
  }

  /// Waits until the log level is served, or cannot be. Called before the loop runs.
  func settle(within timeout: Duration) {
    let end = EventLoop.monotonicNow() + UInt64(timeout.wholeNanoseconds)
    while let control, !control.isServed, case let now = EventLoop.monotonicNow(), now < end {
      var bus = pollfd(fd: control.descriptor, events: 0, revents: 0)
      if control.isReadWanted { bus.events |= Int16(POLLIN) }
      if control.isWriteWanted { bus.events |= Int16(POLLOUT) }
      let due = control.deadline.map { $0 &* 1000 } ?? end
      _ = unsafe poll(&bus, 1, CInt((min(max(due, now), end) - now) / 1_000_000 + 1))
      proceed()
    }
  }

  private func connect() {
    timer = nil
    guard let control = LogControl(journal) else { return retry() }
    do {
      registration = try loop.register(control.descriptor, for: [], handler: self)
      self.control = control
      proceed()
    } catch {
      retry()
    }
  }

  private func retry() {
    if let registration { loop.unregister(registration) }
    (registration, control) = (nil, nil)
    let isSoon = servedAt.map { EventLoop.monotonicNow() - $0 < UInt64(Self.retryPeriod.wholeNanoseconds) } == true
    timer = loop.schedule(after: isSoon ? Self.soon : Self.retryPeriod) { [weak self] in self?.connect() }
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) { proceed() }

  private func proceed() {
    if let timer { loop.cancel(timer) }
    timer = nil
    if control?.isServed == true { servedAt = EventLoop.monotonicNow() }
    guard let control, let registration, control.process() else { return retry() }
    var readiness: EventLoop.Readiness = []
    if control.isReadWanted { readiness.insert(.readable) }
    if control.isWriteWanted { readiness.insert(.writable) }
    loop.update(registration, for: readiness)
    guard let deadline = control.deadline else { return }
    let now = EventLoop.monotonicNow() / 1000
    timer = loop.schedule(after: .microseconds(deadline > now ? deadline - now : 0)) { [weak self] in self?.proceed() }
  }
}
