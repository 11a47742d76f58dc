// A log that changes: its start, overflow, upstream or storage, with the same readers. It is frozen meanwhile. Readers
// read what there is, nothing is appended or dropped, and what upstream sends is set aside. So the owner of the log may
// make another storage of the one that there is without the lock, for as long as that takes.

extension SharedLog {
  /// Nothing is appended or dropped from now on, until ``thaw(_:admitting:)``. Only with ``UpstreamDemand/oneAtATime``.
  ///
  /// - Parameters:
  ///   - start: From ``thaw(_:admitting:)`` on.
  ///   - overflow: From now on: readers of a log that waits for the slowest say their oldest unread element before it
  ///     thaws.
  /// - Returns: The storage, which does not change meanwhile.
  package func freeze(start: ShareStart, overflow: LogOverflow) -> Storage {
    state.withLock { state in
      state.machine.freeze(start: start, overflow: overflow)
      lossless.store(state.machine.isLossless, ordering: .releasing)
      state.storage.hold(from: 0)
      return state.storage
    }
  }

  /// Cancels upstream for good; a frozen log that had ended by it begins anew when it thaws.
  package func replaceUpstream(_ upstream: AnyPublisher<Storage.Input, Failure>) {
    let (work, old) = state.withLock { state in
      let old = (state.upstream, state.completion, state.pendingCompletion)
      let work = Work(state.machine.replaceUpstream(), from: &state)
      (state.upstream, state.completion, state.pendingCompletion) = (upstream, nil, nil)
      ended.store(false, ordering: .releasing)
      return (work, old)
    }
    perform(work)
    _ = old  // its end is foreign code, and must not come under the lock
  }

  /// Ends ``freeze(start:overflow:)``: appends what was set aside, and connects or disconnects as the start says.
  ///
  /// - Parameters:
  ///   - storage: In place of the one that there is, of which it was made: its positions are the same.
  ///   - admitting: What of a value that waits may be appended. Called outside the lock, once for each value.
  package func thaw(_ storage: Storage? = nil, admitting: (Storage.Input) -> Storage.Input = { $0 }) {
    var admitted: [Storage.Input] = []
    while !thaw(storage, with: admitted) { admitted += overflowInputs.dropFirst(admitted.count).map(admitting) }
  }

  /// - Parameter admitted: In place of the values that wait.
  /// - Returns: False, and nothing has happened, if more values wait.
  private func thaw(_ storage: Storage?, with admitted: [Storage.Input]) -> Bool {
    let (work, old) = state.withLock { state -> (Work?, (Storage, [AttachedReader])?) in
      guard state.waiting.count <= admitted.count else { return (nil, nil) }
      let old = (state.storage, state.readers)
      if let storage {
        state.storage = storage
        state.observeAppends()
      }
      state.machine.thaw()
      var appending = false
      if state.machine.mayDrain {
        state.waiting = admitted
        appending = state.appendWaiting()
      }
      let actions = state.machine.thawed(appending: appending, waiting: state.waiting.count, state.extent)
      if actions.completes { ended.store(true, ordering: .releasing) }
      return (Work(actions, from: &state), old)
    }
    guard let work else { return false }
    perform(work)
    _ = old  // the end of a storage is foreign code
    return true
  }

  /// Takes out what has had no room or was set aside, oldest first.
  package func takeOverflow() -> [Storage.Input] {
    state.withLock { state in
      defer { state.waiting = [] }
      state.machine.setWaiting(0)
      return state.waiting
    }
  }

  /// What has had no room or was set aside, oldest first.
  package var overflowInputs: [Storage.Input] { state.withLock { $0.waiting } }
}
