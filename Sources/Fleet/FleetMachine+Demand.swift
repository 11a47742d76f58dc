import TaggedFields

/// The demand for streams: the machine knows whether this host wants an event, and a leader whether any other one does.
extension FleetMachine {
  /// This host's demand for a stream has changed; also of a stream that `setStreams` will bring.
  package func wants(_ stream: String, _ isWanted: Bool, at now: UInt64) -> [Action] {
    guard interests[stream]?.isHere ?? false != isWanted else { return [] }
    interests[stream, default: Interest()].isHere = isWanted
    guard streams[stream] != nil else {
      if !isWanted { interests[stream] = nil }
      return []
    }
    return show(stream, at: now)
  }

  /// Shows other hosts that this one wants the stream, or does no more.
  func show(_ stream: String, at now: UInt64) -> [Action] {
    let isWanted = isWantedHere(stream)
    let show = Action.showInterest(isWanted, stream: stream, shard: shard(of: stream))
    interests[stream]?.tellAt = .max
    // The demand of others is not known while this host asks none.
    let ask = !isWanted && isLed(stream) ? askAgain(stream, at: now) : []
    return [show] + settle(stream, at: now) + ask + (isWanted ? tell(stream, at: now) : [])
  }

  /// The answer to `askInterest`; nil: none, and nothing is known.
  package func learned(_ stream: String, isWanted: Bool?, at now: UInt64) -> [Action] {
    guard isLed(stream) else { return [] }
    if let isWanted { interests[stream, default: Interest()].isElsewhere = isWanted }
    let isOn = interests[stream]?.isElsewhere == true
    let asksAgain = isWanted == nil || isOn && streams[stream]?.kind == .continuous
    interests[stream, default: Interest()].askAgainAt = asksAgain ? now &+ Self.interestTime : .max
    return settle(stream, at: now)
  }

  /// The answer to `want`.
  package func wantArrived(_ stream: String, leader: HostID, _ hasArrived: Bool, at now: UInt64) {
    guard interests[stream]?.isHere == true, shards[shard(of: stream)]?.machine.leader == leader else { return }
    interests[stream]?.tellAt = hasArrived ? .max : now &+ Self.repetition / 2
  }

  func askAgain(_ stream: String, at now: UInt64) -> [Action] {
    guard isLed(stream), interests[stream]?.isHere != true else {
      interests[stream]?.askAgainAt = .max
      return []
    }
    interests[stream, default: Interest()].askAgainAt = now &+ Self.interestTime
    return [.askInterest(stream: stream, shard: shard(of: stream))]
  }

  /// Lets the shard's leader know that this host wants the stream.
  func tell(_ stream: String, at now: UInt64) -> [Action] {
    interests[stream]?.tellAt = .max
    guard interests[stream]?.isHere == true, streams[stream]?.kind != .publish else { return [] }
    guard let leader = shards[shard(of: stream)]?.machine.leader else {
      interests[stream]?.tellAt = now &+ Self.repetition
      return []
    }
    guard leader != host else { return [] }
    interests[stream]?.tellAt = now &+ Self.repetition
    let message = FleetMessage(kind: .want, sender: host.bytes, stream: stream)
    return [.want(RecordFields.bytes(of: message), stream: stream, leader: leader)]
  }

  /// Begins or ends to fetch, as the leader's knowledge of the demand requires.
  func settle(_ stream: String, at now: UInt64) -> [Action] {
    let interest = interests[stream] ?? Interest()
    let isFetched = isLed(stream) && (interest.isHere || interest.isElsewhere)
    guard isFetched != interest.isFetched else { return [] }
    interests[stream, default: Interest()].isFetched = isFetched
    return [.fetch(isFetched, stream: stream)]
  }
}
