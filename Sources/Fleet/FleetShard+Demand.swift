import TaggedFields

/// The demand for the shard's streams. Each host knows its own; the leader also knows whether any other host has some.
extension FleetShard {
  /// The time after which a leader asks again whether any other host wants a stream.
  static let interestTime: UInt64 = 5_000_000_000

  /// Whether this host leads the shard, and fetches the stream.
  func isLed(_ stream: SharedStream) -> Bool {
    isLeading && stream.definition.canLead && stream.definition.kind != .publish
  }

  /// Sets whether this host wants the stream, and shows it to other hosts.
  func want(_ stream: SharedStream, _ isWanted: Bool, at now: UInt64) -> [Action] {
    guard stream.isWantedHere != isWanted else { return [] }
    stream.isWantedHere = isWanted
    let show = Action.showInterest(isWanted, stream: stream.name, shard: index)
    // The leader has not asked for the demand of others while it wanted the stream itself.
    return [show] + settle(stream) + askAgain(stream, at: now) + tell(stream, at: now)
  }

  /// - Parameter isWanted: whether any other host wants the stream; nil: nothing is known.
  func learn(_ stream: SharedStream, isWanted: Bool?, at now: UInt64) -> [Action] {
    guard isLed(stream) else { return [] }
    if let isWanted { stream.isWantedElsewhere = isWanted }
    let asksAgain = isWanted == nil || stream.isWantedElsewhere && stream.definition.kind == .continuous
    stream.askAgainAt = asksAgain ? now &+ Self.interestTime : .max
    return settle(stream)
  }

  /// Asks other hosts whether they want the stream, if this host leads it and does not want it itself.
  func askAgain(_ stream: SharedStream, at now: UInt64) -> [Action] {
    let isAsked = isLed(stream) && !stream.isWantedHere
    stream.askAgainAt = isAsked ? now &+ Self.interestTime : .max
    return isAsked ? [.askInterest(stream: stream.name)] : []
  }

  /// Tells the shard's leader that this host wants the stream.
  func tell(_ stream: SharedStream, at now: UInt64) -> [Action] {
    stream.tellAt = .max
    guard stream.isWantedHere, stream.definition.kind != .publish, machine.leader != host else { return [] }
    stream.tellAt = now &+ Self.repetition
    guard let leader = machine.leader else { return [] }
    let message = FleetMessage(kind: .want, sender: host.bytes, stream: stream.name)
    return [.want(RecordFields.bytes(of: message), stream: stream.name, leader: leader)]
  }

  /// Begins or stops fetching, according to the demand that the leader knows.
  func settle(_ stream: SharedStream) -> [Action] {
    let isFetched = isLed(stream) && (stream.isWantedHere || stream.isWantedElsewhere)
    guard isFetched != stream.isFetched else { return [] }
    stream.isFetched = isFetched
    return [.fetch(isFetched, stream: stream.name)]
  }

  /// The stream is no longer one of this host.
  func forget(_ stream: SharedStream) -> [Action] {
    streams[stream.name] = nil
    return (stream.isFetched ? [.fetch(false, stream: stream.name)] : [])
      + (stream.isWantedHere ? [.showInterest(false, stream: stream.name, shard: index)] : [])
  }
}
