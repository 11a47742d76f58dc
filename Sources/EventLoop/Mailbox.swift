import Synchronization

/// The one door into a loop from another thread.
final class Mailbox<Message: Sendable>: Sendable {
  private let pending = Mutex<[Message]>([])

  /// - Returns: true for the first message of a batch; only then does the caller have to wake the reader.
  func post(_ message: sending Message) -> Bool {
    pending.withLock { queue in
      queue.append(message)
      return queue.count == 1
    }
  }

  /// Everything posted since the last time, in order.
  func takeAll() -> [Message] {
    pending.withLock { queue in
      var taken: [Message] = []
      swap(&taken, &queue)
      return taken
    }
  }
}
