import CLinux
import Dispatch
import Glibc
import StreamRuntime
import Synchronization

/// Carries calls that may block (a full journal, a busy service manager, a terminal on hold) away from the threads that
/// serve clients. What does not fit is dropped, so that neither a caller nor memory ever waits for the far end.
///
/// Calls keep their order and run on one thread of the queue's own. Dispatch would make a thread for each burst, and
/// where the system has none left it keeps the caller waiting until there is one.
final class DroppingQueue: Sendable {
  /// What the thread shares with the queue, and keeps when that has gone.
  private final class Queue: Sendable {
    let calls = Mailbox<@Sendable () -> Void>()
    /// Signalled for each call, and once for the end.
    let arrived = DispatchSemaphore(value: 0)
    let isOver = Atomic(false)
  }

  private let label: String
  private let queue = Queue()
  private let waiting = Atomic<Int>(0)
  private let limit: Int
  private let hasThread = Atomic(false)

  /// - Parameters:
  ///   - label: the thread's name, of which the system shows 15 bytes.
  ///   - limit: calls that may wait; one more is dropped.
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

  /// Waits until all that was taken before has been carried, but no longer than `timeout`.
  ///
  /// - Returns: false when the time ran out.
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

  /// Does nothing once there is one. Where the system has no thread left, calls wait until the next one tries again.
  private func startThread() {
    guard !hasThread.exchange(true, ordering: .relaxed) else { return }
    // Signals are for the threads that expect them; a new thread has the set of the one that makes it.
    var all = sigset_t()
    var former = sigset_t()
    unsafe sigfillset(&all)
    unsafe pthread_sigmask(SIG_BLOCK, &all, &former)
    defer { unsafe pthread_sigmask(SIG_SETMASK, &former, nil) }
    var thread = pthread_t()
    let box = unsafe Unmanaged.passRetained(queue)
    let result = unsafe pthread_create(
      &thread, nil,
      { argument in
        guard let argument = unsafe argument else { return nil }
        unsafe DroppingQueue.run(Unmanaged<Queue>.fromOpaque(argument).takeRetainedValue())
        return nil
      }, unsafe box.toOpaque())
    guard result == 0 else {
      unsafe box.release()
      return hasThread.store(false, ordering: .relaxed)
    }
    unsafe pthread_setname_np(thread, String(label.prefix(15)))
    pthread_detach(thread)
  }

  private static func run(_ queue: Queue) {
    while true {
      queue.arrived.wait()
      for call in queue.calls.takeAll() { call() }
      if queue.isOver.load(ordering: .acquiring) { return }
    }
  }
}
