/// Waits until the task is cancelled.
package func waitForCancellation() async {
  let (never, continuation) = AsyncStream<Never>.makeStream()
  for await _ in never {}
  withExtendedLifetime(continuation) {}
}

/// Resumes a continuation when the last reference to it is released: also if the work that holds it is dropped.
package final class TaskEnd: Sendable {
  private let continuation: CheckedContinuation<Void, Never>

  package init(_ continuation: CheckedContinuation<Void, Never>) { self.continuation = continuation }

  deinit { continuation.resume() }
}
