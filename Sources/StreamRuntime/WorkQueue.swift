import Dispatch
import Glibc
import Synchronization

/// A serial queue for work that may wait. A thread that must not wait can do a piece of the work itself, while the queue
/// does none.
public final class WorkQueue: Sendable {
  private let queue: DispatchQueue
  /// Taken while work runs. Work may wait for other threads, which a lock must not.
  private let gate = DispatchSemaphore(value: 1)
  /// The thread that runs work; 0: none. It also orders the work for the thread sanitizer.
  private let worker = Atomic<UInt>(0)

  /// - Parameter label: for debuggers.
  public init(label: String) { queue = DispatchQueue(label: label) }

  /// Runs work after all that was added before.
  public func async(_ work: @escaping @Sendable () -> Void) { queue.async { self.perform(work) } }

  /// Adds work after a delay; a negative one counts as 0.
  public func async(after delay: Duration, _ work: @escaping @Sendable () -> Void) {
    queue.asyncAfter(deadline: .now() + .nanoseconds(max(0, delay.wholeNanoseconds))) { self.perform(work) }
  }

  /// Runs work after all that was added before, and waits for it. Must not be called by work of the queue.
  public func sync<Result>(_ work: () throws -> Result) rethrows -> Result {
    try queue.sync { try perform(work) }
  }

  /// Runs work on this thread now, unless other work runs.
  /// - Returns: nil: other work runs.
  public func syncIfIdle<Result>(_ work: () -> Result) -> Result? {
    guard gate.wait(timeout: DispatchTime(uptimeNanoseconds: 1)) == .success else { return nil }
    return run(work)
  }

  private func perform<Result>(_ work: () throws -> Result) rethrows -> Result {
    gate.wait()
    return try run(work)
  }

  private func run<Result>(_ work: () throws -> Result) rethrows -> Result {
    _ = worker.exchange(UInt(pthread_self()), ordering: .acquiring)
    defer {
      worker.store(0, ordering: .releasing)
      gate.signal()
    }
    return try work()
  }

  /// Traps unless this thread runs work of the queue.
  public func assertOnQueue() {
    precondition(worker.load(ordering: .relaxed) == UInt(pthread_self()), "not on the queue")
  }
}
