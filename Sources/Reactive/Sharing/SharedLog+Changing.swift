// Changes a log's start, overflow, upstream or storage while its readers stay attached. The log is frozen meanwhile:
// readers read the stored elements, none is appended or dropped, and upstream's values are set aside. The log's owner
// can therefore convert the storage without the lock, for as long as that takes.

extension SharedLog {
  /// Stops appending and dropping until ``thaw(_:admitting:)``. Only with ``UpstreamDemand/oneAtATime``.
  ///
  /// - Parameters:
  ///   - start: Takes effect with ``thaw(_:admitting:)``.
  ///   - overflow: Takes effect immediately: readers of a log that waits for the slowest report their oldest unread
  ///     element before the thaw.
  /// - Returns: The storage, which does not change while the log is frozen.
  package func freeze(start: ShareStart, overflow: LogOverflow) -> Storage {
    state.withLock { state in
      state.machine.freeze(start: start, overflow: overflow)
      lossless.store(state.machine.isLossless, ordering: .releasing)
      state.storage.hold(from: 0)
      return state.storage
    }
  }

  /// Cancels the present upstream for good and sets another; a frozen log that had ended with it starts again when it
  /// thaws.
  package func replaceUpstream(_ upstream: AnyPublisher<Storage.Input, Failure>) {
    let (work, old) = state.withLock { state in
      let old = (state.upstream, state.completion, state.pendingCompletion)
      let work = Work(state.machine.replaceUpstream(), from: &state)
      (state.upstream, state.completion, state.pendingCompletion) = (upstream, nil, nil)
      ended.store(false, ordering: .releasing)
      return (work, old)
    }
    perform(work)
    _ = old  // its deinitialiser is foreign code and must not run under the lock
  }

  /// Ends ``freeze(start:overflow:)``: appends the values that were set aside, and connects or disconnects according to
  /// the start.
  ///
  /// - Parameters:
  ///   - storage: Replaces the present storage, from which it was made: its positions are the same.
  ///   - admitting: Returns the part of a waiting value that may be appended. Called outside the lock, once for each
  ///     value.
  package func thaw(_ storage: Storage? = nil, admitting: (Storage.Input) -> Storage.Input = { $0 }) {
    var admitted: [Storage.Input] = []
    while !thaw(storage, with: admitted) { admitted += overflowInputs.dropFirst(admitted.count).map(admitting) }
  }

  /// - Parameter admitted: Replaces the waiting values.
  /// - Returns: False, without any effect, if further values wait.
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
    _ = old  // the deinitialiser of a storage is foreign code
    return true
  }

  /// Appends the values that did not fit or were set aside, although they replace unread elements. Called after
  /// ``shutDown()``, when no reader will read these.
  package func appendOverflow() {
    state.withLock { state in
      state.storage.hold(from: .max)
      for input in state.waiting.take() { _ = state.storage.appendWhatFits(input) }
      state.machine.setWaiting(0)
    }
  }

  /// Removes and returns the values that did not fit or were set aside, oldest first.
  package func takeOverflow() -> [Storage.Input] {
    state.withLock { state in
      state.machine.setWaiting(0)
      return state.waiting.take()
    }
  }

  /// The values that did not fit or were set aside, oldest first.
  package var overflowInputs: [Storage.Input] { state.withLock { $0.waiting } }
}
