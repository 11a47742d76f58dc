import StreamRuntime

extension StreamServer {
  /// Serves until the task is cancelled, then stops as ``stop(completed:)`` does. Called in place of ``start()``, once.
  ///
  /// A server is therefore a service of swift-service-lifecycle with one line in the program:
  ///
  /// ```swift
  /// extension StreamServer: @retroactive Service {}
  /// ```
  ///
  /// - Throws: `SystemError` when no thread can be created.
  public func run() async throws {
    try start()
    await waitForCancellation()
    await withCheckedContinuation { continuation in
      let end = TaskEnd(continuation)
      stop { _ = end }
    }
  }
}
