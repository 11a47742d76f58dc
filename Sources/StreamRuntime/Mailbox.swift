/// Messages from any thread for one reader, in the order of the calls.
package final class Mailbox<Message: Sendable>: Sendable {
  private let pending = Locked<[Message]>([])

  /// An empty one.
  package init() {}

  /// - Returns: true for the first message of a batch; only then must the caller wake the reader.
  @discardableResult package func post(_ message: Message) -> Bool {
    pending.withLock { queue in
      queue.append(message)
      return queue.count == 1
    }
  }

  /// Removes and returns all posted messages, in order.
  package func takeAll() -> [Message] {
    pending.withLock { queue in
      var taken: [Message] = []
      swap(&taken, &queue)
      return taken
    }
  }
}
