// A log that goes on differently: with another start, overflow, upstream or storage, and the same readers. It is frozen
// meanwhile. Readers go on reading what there is, nothing is appended or dropped, and what upstream sends is set aside. So
// whoever has the storage may make another of it without the lock, for as long as that takes.

extension SharedLog {
  /// What a log knows of the time in which it is frozen.
  @usableFromInline
  struct Frozen {
    /// What came, oldest first: one batch, unless upstream sends without being asked.
    var inputs: [Storage.Input] = []
    /// How the log ends once `inputs` are in.
    var completion: Subscribers.Completion<Failure>?
    var wasConnected: Bool
  }

  /// Nothing is appended or dropped from now on, until ``thaw(_:admitting:)``. Only with ``UpstreamDemand/oneAtATime``.
  ///
  /// - Parameters:
  ///   - start: from ``thaw(_:admitting:)`` on.
  ///   - overflow: from now on: readers of a log that waits for the slowest are to say what they hold before it thaws.
  /// - Returns: the storage, which nobody changes meanwhile.
  public func freeze(start: ShareStart, overflow: LogOverflow) -> Storage {
    precondition(demand == .oneAtATime, "what was asked for exactly cannot be asked for again")
    return state.withLock { state in
      precondition(state.frozen == nil, "a log is frozen once at a time")
      var frozen = Frozen(wasConnected: state.connection.isConnected)
      if overflow == .dropOldest {
        frozen.inputs = state.overflow?.inputs ?? []
        frozen.completion = state.overflow?.completion
        state.overflow = nil
      } else if state.overflow == nil {
        state.overflow = Overflow()
      }
      lossless.store(overflow == .waitForSlowest, ordering: .releasing)
      state.start = start
      state.frozen = frozen
      state.storage.hold(from: 0)
      return state.storage
    }
  }

  /// Lets go of upstream for good; a frozen log that had ended by it begins anew when it thaws.
  public func replaceUpstream(_ upstream: AnyPublisher<Storage.Input, Failure>) {
    let (subscription, old) = state.withLock { state in
      precondition(state.frozen != nil, "only a frozen log changes its upstream")
      state.completion = nil
      state.overflow?.completion = nil
      state.frozen?.completion = nil
      ended.store(false, ordering: .releasing)
      defer { state.upstream = upstream }
      return (state.connection.end(), state.upstream)
    }
    subscription?.cancel()
    _ = old  // its end is foreign code, and not to come under the lock
  }

  /// Goes on after ``freeze(start:overflow:)``: appends what was set aside, and connects or lets go as its start says.
  ///
  /// - Parameters:
  ///   - storage: in place of the one that there is, of which it was made: its positions are the same.
  ///   - admitting: what of a value that waits may be appended; called under the lock: it must not call out.
  public func thaw(_ storage: Storage? = nil, admitting: (Storage.Input) -> Storage.Input = { $0 }) {
    let (readers, linger, start, isWanted, departure) = state.withLock { state in
      guard let frozen = state.frozen.take() else { preconditionFailure("a log thaws that was not frozen") }
      if let storage { state.storage = storage }
      state.holdWhatReadersHold()
      if !state.isShutDown { state.appendSetAside(frozen, admitting) }
      if state.completion != nil { ended.store(true, ordering: .releasing) }
      state.telling += 1
      let isWanted =
        switch state.start {
        case .always: true
        case .fromFirstSubscriber: frozen.wasConnected || state.subscribers > 0
        case .whileSubscribed: state.subscribers > 0
        }
      return (state.readers, state.linger.take(), state.start, isWanted, state.depart())
    }
    linger?.cancel()
    tell(readers)
    if isWanted { connect() }
    if let departure { self.linger(departure, start) }
    request()
  }
}

extension SharedLog.State {
  @usableFromInline
  mutating func setAside(_ input: Storage.Input) {
    frozen?.inputs.append(input)
  }

  fileprivate mutating func appendSetAside(
    _ frozen: SharedLog.Frozen, _ admitting: (Storage.Input) -> Storage.Input
  ) {
    let inputs = frozen.inputs.map(admitting)
    if overflow == nil {
      for input in inputs { storage.append(input) }
      completion = completion ?? frozen.completion
    } else {
      let waiting = overflow?.inputs.map(admitting) ?? []
      overflow?.inputs = waiting + inputs
      moveOverflow()
      if overflow?.isEmpty == true {
        completion = completion ?? frozen.completion ?? overflow?.completion
        overflow?.completion = nil
      } else if let completion = frozen.completion {
        overflow?.completion = completion
      }
    }
  }
}
