import Dispatch
import Glibc
import Locks
import Synchronization

/// A serial queue for work that may wait. A thread that must not wait can do a piece of the work itself, while the queue
/// does none.
public final class WorkQueue: Sendable {
  private let queue: DispatchQueue
  /// Held while work runs.
  private let gate = Locked(())
  /// The thread that runs work; 0: none.
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
    try queue.sync { try gate.withLock { _ in try run(work) } }
  }

  /// Runs work on this thread now, unless other work runs.
  /// - Returns: nil: other work runs.
  public func syncIfIdle<Result>(_ work: () -> Result) -> Result? { gate.withLockIfAvailable { _ in run(work) } }

  private func perform(_ work: () -> Void) { gate.withLock { _ in run(work) } }

  private func run<Result>(_ work: () throws -> Result) rethrows -> Result {
    worker.store(UInt(pthread_self()), ordering: .relaxed)
    defer { worker.store(0, ordering: .relaxed) }
    return try work()
  }

  /// Traps unless this thread runs work of the queue.
  public func assertOnQueue() {
    precondition(worker.load(ordering: .relaxed) == UInt(pthread_self()), "not on the queue")
  }
}
