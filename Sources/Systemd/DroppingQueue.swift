import CLinux
import Dispatch
import Glibc
import StreamRuntime
import Synchronization

/// Moves calls that may block (a full journal, a busy service manager, a stopped terminal) off the threads that serve
/// clients. Calls above the limit are dropped, so that neither time nor memory depends on the receiver.
///
/// Calls keep their order and run on the queue's own thread. Dispatch would create a thread for each burst, and would
/// block the caller while the system has none left.
final class DroppingQueue: Sendable {
  /// The state that the thread shares with the queue, and keeps after the queue's end.
  private final class Queue: Sendable {
    let calls = Mailbox<@Sendable () -> Void>()
    /// Signalled for each call, and once at the end.
    let arrived = DispatchSemaphore(value: 0)
    let isOver = Atomic(false)
  }

  private let label: String
  private let queue = Queue()
  private let waiting = Atomic<Int>(0)
  private let limit: Int
  private let hasThread = Atomic(false)

  /// - Parameters:
  ///   - label: the thread's name; the system shows 15 bytes of it.
  ///   - limit: maximum number of waiting calls; further ones are dropped.
  init(label: String, limit: Int) {
    self.label = label
    self.limit = limit
    startThread()
  }

  deinit {
    queue.isOver.store(true, ordering: .releasing)
    queue.arrived.signal()
  }

  /// - Returns: false when the call was dropped.
  func carry(_ call: @escaping @Sendable () -> Void) -> Bool {
    guard waiting.add(1, ordering: .relaxed).newValue <= limit else {
      waiting.subtract(1, ordering: .relaxed)
      return false
    }
    append { [self] in
      call()
      waiting.subtract(1, ordering: .relaxed)
    }
    return true
  }

  /// Waits until all earlier calls have run, at most `timeout`.
  ///
  /// - Returns: false at the timeout.
  func flush(within timeout: Duration) -> Bool {
    let done = DispatchSemaphore(value: 0)
    append { done.signal() }
    return done.wait(timeout: .now() + .nanoseconds(timeout.wholeNanoseconds)) == .success
  }

  private func append(_ call: @escaping @Sendable () -> Void) {
    queue.calls.post(call)
    queue.arrived.signal()
    startThread()
  }

  /// Starts the thread unless it exists. If the system has no free thread, calls wait until the next one tries again.
  private func startThread() {
    guard !hasThread.exchange(true, ordering: .relaxed) else { return }
    // Signals are for the threads that expect them; a new thread inherits its creator's mask.
    var all = sigset_t()
    var former = sigset_t()
    unsafe sigfillset(&all)
    unsafe pthread_sigmask(SIG_BLOCK, &all, &former)
    defer { unsafe pthread_sigmask(SIG_SETMASK, &former, nil) }
    do throws(SystemError) {
      try BackgroundThread.start(name: label) { [queue] in Self.run(queue) }
    } catch {
      hasThread.store(false, ordering: .relaxed)
    }
  }

  private static func run(_ queue: Queue) {
    while true {
      queue.arrived.wait()
      for call in queue.calls.takeAll() { call() }
      if queue.isOver.load(ordering: .acquiring) { return }
    }
  }
}
