import ReplayLog

extension EventBlock {
  /// The number of versions of a state that one turn considers.
  private static let consideredVersions = 2048

  /// Fills the block with events of a state; under the log's lock.
  ///
  /// The state is read as of one end, from the cursor on, in the order of ids. If the log has evicted events after that
  /// end, or the state has dropped versions that the walk needs, the walk continues as of the log's present end, with
  /// tombstones. The subscriber then has the newest event of each key as of the last end, in order, and none twice.
  func fillState(
    _ reading: StateReading, from storage: EventLog, for machine: SubscriptionMachine, _ subscriber: Subscriber,
    _ contentVerdicts: ContentVerdicts
  ) -> SubscriptionMachine.Finding {
    let (walk, cursor) = (reading.walk, machine.cursor)
    guard let state = storage.state, walk.state === state, state.origin == reading.origin,
      state.incompleteness.map({ $0.since >= walk.end }) ?? true
    else { return .lostState }
    guard machine.demand > .none, !machine.format.isNotice else { return .events }
    var before = subscriber.before
    if cursor.sentBytes > 0 || !machine.format.ids { before.gap = .none }
    if !continues(storage, machine, subscriber, before, stateEnd: walk.end) {
      clear(storage, at: cursor, machine.format, subscriber, before)
      stateEnd = walk.end
    }
    // The next event must be the one at the cursor: a part of it was sent, or one event was requested.
    let isExact = cursor.sentBytes > 0 || machine.format.completes
    var isEndLost = false
    switch extend(with: state, walk, from: storage, to: machine.demand.max ?? .max, isExact, contentVerdicts) {
    case .more?:
      // None of the versions that were considered before the walk's position is in the state.
      guard pieceCount == 0, walk.position > end.position else { break }
      if isExact { isEndLost = true } else { end = Cursor(position: walk.position) }
    case nil: isEndLost = true
    case .finished? where storage.firstPosition <= walk.end && storage.skip(walk.end) == walk.end:
      end = Cursor(position: walk.end)
    case .finished?, .fellBehind?:
      isEndLost = !state.renew(walk, asOf: storage.endPosition)
      stateEnd = walk.end
    }
    guard pieceCount > 0 else {
      if isEndLost || isExact && end.position != cursor.position { return .lostState }
      guard end != start else { return .unexamined }
      return .readState(upTo: end.position, leftOut: leftOut, isEnd: end.position == walk.end)
    }
    if request != subscriber.request { address(to: subscriber.request) }
    return .events
  }

  /// Adds events while there are fewer than `demand`, and there is room.
  ///
  /// - Parameter isExact: whether the next event must be the one at the cursor.
  /// - Returns: nil if another event is the next one.
  private func extend(
    with state: KeyedState, _ walk: StateWalk, from storage: EventLog, to demand: Int, _ isExact: Bool,
    _ contentVerdicts: ContentVerdicts
  ) -> StateWalk.Progress? {
    guard end.sentBytes == 0 || pieceCount == 0 else { return .more }
    if end.position == walk.end { return .finished }
    if walk.position != end.position { state.move(walk, to: end.position) }
    let most = min(demand, Self.maximumPieceCount)
    var budget = Self.examinedBytes
    if !isExact {
      var (plain, isOther) = (StateWalk.Progress.more, true)
      addPlain(upTo: most) { pieces in
        isOther = false
        plain = state.advance(walk, atMost: Self.consideredVersions) { record, id in
          guard pieces.hasRoom else { return false }
          isOther = unsafe record.undivided.map { unsafe !pieces.add($0, at: id) } ?? true
          return !isOther
        }
      }
      if !isOther { return plain }
    }
    let writer = writer
    var byteCount = byteCount
    var isReplaced = false
    let progress = state.advance(walk, atMost: Self.consideredVersions) { record, id in
      guard byteCount < Self.targetBytes, pieceCount < most, budget > 0 else { return false }
      if isExact, pieceCount == 0, id != end.position {
        isReplaced = true
        return false
      }
      guard let isFit = fits(record, at: id, &budget) else { return false }
      guard isFit else {
        leftOut += 1
        end = Cursor(position: id + 1)
        return true
      }
      return write(record, at: id, from: storage, by: writer, &byteCount, contentVerdicts)
    }
    return isReplaced ? nil : progress
  }
  /// Whether an event fits the filter; nil at the end of the budget.
  private func fits(_ record: StateEvent, at id: UInt64, _ budget: inout Int) -> Bool? {
    guard let verdicts, end.sentBytes == 0 else { return true }
    return verdicts.fits(record, at: id, &budget)
  }

  /// Adds the next piece of an event.
  /// - Returns: whether the event ends with it; false also while the event is examined.
  private func write(
    _ record: StateEvent, at id: UInt64, from storage: EventLog, by writer: EventWriter, _ byteCount: inout Int,
    _ contentVerdicts: ContentVerdicts
  ) -> Bool {
    if let record = unsafe record.undivided {
      return unsafe write(record, at: id, from: storage, by: writer, &byteCount, contentVerdicts)
    }
    // The event is copied whole only for its examination. A piece copies only the data for which it has room.
    let part = EventLog.stampBytes + end.sentBytes
    let range = max(0, part - 8)..<min(record.byteCount, part + EventWriter.maximumPieceBytes + 8)
    if let content = writer.required, contentVerdicts.known(id, as: content) == nil {
      return unsafe write(
        record.whole, at: id, from: storage, by: writer, &byteCount, contentVerdicts, isCopied: true)
    }
    return unsafe write(record.part(range), at: id, from: storage, by: writer, &byteCount, contentVerdicts)
  }
}
