import TaggedFields

/// The demand for the shard's streams. Each host knows its own; the leader also knows whether any other host has some.
extension FleetShard {
  /// The time after which a leader asks again whether any other host wants a stream, if it does not know, or fetches
  /// the stream all the time.
  static let interestTime: UInt64 = 5_000_000_000
  /// The time after which a leader asks again if no host has answered; doubled with each such answer, up to the maximum.
  /// That proves nothing while the host that wants the stream, or its broker, is cut off.
  static let silence: (first: UInt64, maximum: UInt64) = (30_000_000_000, 3_600_000_000_000)

  /// Whether this host leads the shard, and fetches the stream.
  func isLed(_ stream: SharedStream) -> Bool {
    isLeading && stream.definition.canLead && stream.definition.kind != .publish
  }

  /// Sets whether this host wants the stream, and shows it to other hosts.
  func want(_ stream: SharedStream, _ isWanted: Bool, at now: UInt64) -> [Action] {
    guard stream.isWantedHere != isWanted else { return [] }
    (stream.isWantedHere, stream.silence) = (isWanted, 0)
    let show = Action.showInterest(isWanted, stream: stream.name, shard: index)
    // The leader has not asked for the demand of others while it wanted the stream itself.
    return [show] + settle(stream) + askAgain(stream, at: now) + tell(stream, at: now)
  }

  /// - Parameter isWanted: whether any other host wants the stream; nil: none has answered in time.
  ///   A broker says at once if none listens: one that hangs may have been asked in the place of another one.
  func learn(_ stream: SharedStream, isWanted: Bool?, at now: UInt64) -> [Action] {
    guard isLed(stream) else { return [] }
    if let isWanted {
      stream.isWantedElsewhere = isWanted
      stream.silence = isWanted ? 0 : min(max(2 * stream.silence, Self.silence.first), Self.silence.maximum)
    }
    stream.askAgainAt =
      switch (stream.isWantedElsewhere, stream.definition.kind) {
      case _ where stream.isWantedHere: .max
      case (true, .poll): .max  // it asks before each fetch
      case (true, _): now &+ Self.interestTime
      case (false, _): now &+ (isWanted == nil ? Self.interestTime : stream.silence)
      }
    return settle(stream)
  }

  /// Asks other hosts whether they want the stream, if this host leads it and does not want it itself.
  func askAgain(_ stream: SharedStream, at now: UInt64) -> [Action] {
    let isAsked = isLed(stream) && !stream.isWantedHere
    stream.askAgainAt = isAsked ? now &+ Self.interestTime : .max
    return isAsked ? [.askInterest(stream: stream.name)] : []
  }

  /// Tells the leader again what this host wants: it may have asked while this host did not hear it.
  /// - Parameter isOther: whether this is another leader than before. The same leader is told once in `repetition` at most.
  func tellAgain(isOther: Bool = false, at now: UInt64) -> [Action] {
    for stream in streams.values where stream.isWantedHere {
      stream.tellAt = isOther ? now : max(now, stream.mayTellAt)
    }
    return []
  }

  /// Tells the shard's leader that this host wants the stream.
  func tell(_ stream: SharedStream, at now: UInt64) -> [Action] {
    stream.tellAt = .max
    guard stream.isWantedHere, stream.definition.kind != .publish, machine.leader != host else { return [] }
    stream.tellAt = now &+ Self.repetition
    guard let leader = machine.leader else { return [] }
    stream.mayTellAt = stream.tellAt
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
