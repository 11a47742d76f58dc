import Dispatch
import Synchronization

/// Carries calls that may block (a full journal, a busy service manager, a terminal on hold) away from the threads that
/// serve clients. What does not fit is dropped, so that neither a caller nor memory ever waits for the far end.
///
/// The queue is serial: calls keep their order, and Dispatch gives a serial queue a thread of its own when it needs one,
/// so a stuck courier takes nothing from the pool that others share.
final class Courier: Sendable {
  private let queue: DispatchQueue
  private let waiting = Atomic<Int>(0)
  private let limit: Int

  /// - Parameter limit: calls that may wait; one more is dropped.
  init(label: String, limit: Int) {
    queue = DispatchQueue(label: label)
    self.limit = limit
  }

  /// - Returns: false when the call was dropped.
  func carry(_ call: @escaping @Sendable () -> Void) -> Bool {
    guard waiting.add(1, ordering: .relaxed).newValue <= limit else {
      waiting.subtract(1, ordering: .relaxed)
      return false
    }
    queue.async { [self] in
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
    queue.async { done.signal() }
    return done.wait(timeout: .now() + .nanoseconds(timeout.nanoseconds)) == .success
  }
}

extension Duration {
  /// Whole nanoseconds, up to about 146 years either way; further is clipped.
  var nanoseconds: Int {
    let (seconds, attoseconds) = components
    let clipped = Int(max(-4_600_000_000, min(4_600_000_000, seconds)))
    return clipped * 1_000_000_000 + Int(attoseconds / 1_000_000_000)
  }
}
