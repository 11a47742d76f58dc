import StreamRuntime

extension StreamConnection {
  /// Connects, and keeps the connection until the task is cancelled: after a loss it connects again, with growing delays.
  /// Then the connection closes as with ``close()``, and the function returns when its socket is closed.
  ///
  /// A connection is therefore a service of swift-service-lifecycle with one line in the program:
  ///
  /// ```swift
  /// extension StreamConnection: @retroactive Service {}
  /// ```
  ///
  /// Streams with a ``ReconnectPolicy`` resume by themselves; the others fail with the connection, as without this function.
  public func run() async throws {
    transport.loop.execute { [transport] in transport.keep() }
    await waitForCancellation()
    await withCheckedContinuation { continuation in
      let end = TaskEnd(continuation)  // the loop may have ended, which drops the work
      transport.loop.execute { [transport] in
        transport.close()
        _ = end
      }
    }
  }
}
