/// Messages from any thread for one reader, in the order of the calls.
package final class Mailbox<Message: Sendable>: Sendable {
  private struct State {
    var messages: [Message] = []
    var isClosed = false
  }

  private let state = Locked(State())

  /// An empty one.
  package init() {}

  /// - Returns: true for the first message of a batch; only then must the caller wake the reader.
  @discardableResult package func post(_ message: Message) -> Bool {
    state.withLock { state in
      guard !state.isClosed else { return false }
      state.messages.append(message)
      return state.messages.count == 1
    }
  }

  /// Removes and returns all posted messages, in order.
  package func takeAll() -> [Message] {
    state.withLock { state in
      var taken: [Message] = []
      swap(&taken, &state.messages)
      return taken
    }
  }

  /// Accepts no further message: later messages are dropped.
  /// - Returns: as `takeAll`.
  package func close() -> [Message] {
    state.withLock { state in
      state.isClosed = true
      defer { state.messages = [] }
      return state.messages
    }
  }
}
