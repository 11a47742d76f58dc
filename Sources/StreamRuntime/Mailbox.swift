import Synchronization

/// The one door into a loop from another thread.
final class Mailbox<Message: Sendable>: Sendable {
  private let pending = Mutex<[Message]>([])
  /// The thread sanitizer cannot see into the lock, which is in the runtime; it sees this pair. Plain moves on x86.
  private let edge = Atomic(0)

  /// - Returns: true for the first message of a batch; only then does the caller have to wake the reader.
  func post(_ message: sending Message) -> Bool {
    pending.withLock { queue in
      _ = edge.load(ordering: .acquiring)
      defer { edge.store(0, ordering: .releasing) }
      queue.append(message)
      return queue.count == 1
    }
  }

  /// Everything posted since the last time, in order.
  func takeAll() -> [Message] {
    pending.withLock { queue in
      _ = edge.load(ordering: .acquiring)
      defer { edge.store(0, ordering: .releasing) }
      var taken: [Message] = []
      swap(&taken, &queue)
      return taken
    }
  }
}
