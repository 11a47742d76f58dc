import StreamRuntime
import Systemd

/// Serves the log level on the bus, on an event loop, while the loop runs. Reconnects periodically if there is no bus
/// or the connection closes. Confined to the loop's thread.
final class LogControlWatch: EventLoop.Handler {
  private let journal: Journal
  private let loop: EventLoop
  private var control: LogControl?
  private var registration: EventLoop.Registration?
  private var timer: TimerID?

  private static let retryPeriod = Duration.seconds(60)

  init(_ journal: Journal, on loop: EventLoop) {
    (self.journal, self.loop) = (journal, loop)
    connect()
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
    timer = loop.schedule(after: Self.retryPeriod) { [weak self] in self?.connect() }
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) { proceed() }

  private func proceed() {
    if let timer { loop.cancel(timer) }
    timer = nil
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
