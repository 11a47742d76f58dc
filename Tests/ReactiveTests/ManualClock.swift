import Locks
import Reactive

/// Time under the control of a test: delays that the test runs.
final class ManualClock: Sendable {
  struct Timer: Sendable {
    let delay: Duration
    let body: @Sendable () -> Void
    var isCancelled = false
  }
  private let timers = Locked<[Timer]>([])

  var schedule: Delay {
    { delay, body in
      let index = self.timers.withLock { timers in
        timers.append(Timer(delay: delay, body: body))
        return timers.count - 1
      }
      return AnyCancellable { self.timers.withLock { $0[index].isCancelled = true } }
    }
  }

  var all: [Timer] { timers.withLock { $0 } }
  var pending: [Timer] { all.filter { !$0.isCancelled } }
}
