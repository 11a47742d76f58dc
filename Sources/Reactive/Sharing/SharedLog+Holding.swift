// Lossless sharing: the log keeps what a reader has not read, and its upstream waits. A batch that has only partly room
// is kept aside, whole batches behind it are not asked for: upstream is at most one batch ahead of the log.

extension SharedLog {
  /// What a log that drops nothing knows beyond its storage.
  @usableFromInline struct Overflow {
    /// The first element that each reader holds.
    var holds: [ObjectIdentifier: UInt64] = [:]
    /// What came and had no room, oldest first: one batch, unless upstream sends without being asked.
    var inputs: [Storage.Input] = []
    /// How the log ends once `inputs` are in.
    var completion: Subscribers.Completion<Failure>?

    var isEmpty: Bool { inputs.isEmpty }
  }

  /// Lossless logs: the reader has not read `position` and what follows; `.max`: it needs nothing. Does nothing for a
  /// log that drops. May append and ask upstream, which may deliver before this returns.
  ///
  /// - Returns: where that begins: `position`, or the oldest element, when what came before that is gone already.
  @discardableResult public func reader(_ reader: any LogReader, holdsFrom position: UInt64) -> UInt64 {
    let (first, readers) = state.withLock { state -> (UInt64, [AttachedReader]?) in
      guard state.overflow != nil else { return (position, nil) }
      let first = max(position, state.storage.firstPosition)
      // One that was detached by another thread holds nothing.
      let isAttached = state.wants[ObjectIdentifier(reader)] != nil
      state.overflow?.holds[ObjectIdentifier(reader)] = position == .max || !isAttached ? nil : first
      guard state.frozen == nil else { return (first, nil) }
      state.holdWhatReadersHold()
      return (first, state.appendOverflow())
    }
    if let readers { tell(readers) }
    endAfterOverflow()
    request()
    return first
  }

  /// What the slowest reader holds, while upstream could send more and is not asked to, because subscribers do not take
  /// what there is. Nil while upstream does not wait; always nil for a log that drops.
  public var positionUpstreamWaitsFor: UInt64? {
    state.withLock { state in
      guard let overflow = state.overflow, state.frozen == nil, state.completion == nil, state.subscribers > 0,
        state.connection.subscription != nil || !overflow.isEmpty,
        !state.connection.isOutstanding, !state.connection.isReceiving
      else { return nil }
      return overflow.holds.values.min()
    }
  }

  /// Takes out what has had no room, oldest first.
  public func takeOverflow() -> [Storage.Input] {
    state.withLock { state in
      defer { state.overflow?.inputs = [] }
      return state.overflow?.inputs ?? []
    }
  }

  /// What has had no room, oldest first.
  public var overflowInputs: [Storage.Input] { state.withLock { $0.overflow?.inputs ?? [] } }

  private func endAfterOverflow() {
    let readers = state.withLock { state -> [AttachedReader] in
      guard let overflow = state.overflow, overflow.isEmpty, let completion = overflow.completion else { return [] }
      state.overflow?.completion = nil
      state.completion = completion
      ended.store(true, ordering: .releasing)
      return state.readers
    }
    for reader in readers { reader.tell(nil) }
  }
}

extension SharedLog.State {
  /// Whether another batch may be asked for.
  var hasRoom: Bool { frozen == nil && (overflow.map { $0.isEmpty && !storage.isFull } ?? true) }

  /// Nothing that a reader holds is dropped from now on. A reader may hold what another storage has dropped.
  mutating func holdWhatReadersHold() {
    storage.hold(from: max(overflow?.holds.values.min() ?? .max, storage.firstPosition))
  }

  /// Appends behind what waits already.
  /// - Returns: whether anything of it, or of what waited, is in the storage now.
  @usableFromInline mutating func appendWhatFits(_ input: Storage.Input) -> Bool {
    overflow?.inputs.append(input)
    return moveOverflow()
  }

  /// - Returns: who is to be told, `nil` if nothing had room.
  fileprivate mutating func appendOverflow() -> [SharedLog.AttachedReader]? {
    guard overflow?.isEmpty == false, moveOverflow() else { return nil }
    telling += 1
    return readers
  }

  @discardableResult
  mutating func moveOverflow() -> Bool {
    guard let inputs = overflow?.inputs else { return false }
    let end = storage.endPosition
    overflow?.inputs = []
    for (index, input) in inputs.enumerated() {
      guard let rest = storage.appendWhatFits(input) else { continue }
      overflow?.inputs = [rest] + inputs[(index + 1)...]
      break
    }
    return storage.endPosition > end
  }
}
