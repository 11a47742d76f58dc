import Events

/// The present status, for callers. Nothing here changes the machine.
extension FleetMachine {
  /// The status of a stream in the fleet.
  package struct Status: Equatable, Sendable {
    package var isLeading: Bool
    /// The leader's name, or its id if the name is not known; nil without a leader.
    package var leader: String?
    package var term: UInt64
    package var epoch: UInt64
    /// The number of the shard's entries that this host has not read.
    package var lag: UInt64
    /// Since when this host may lack events, on the monotonic clock; nil: it has all.
    package var staleSince: UInt64?
    /// The names of the hosts that have another definition of the stream, as far as this host knows: it knows that of the
    /// leader, and as the leader those of all others.
    package var otherHosts: [String]
  }

  /// The shard of a stream. All versions compute the same one.
  package func shard(of stream: String) -> Int { settings.shard(of: stream) }

  /// The shards that have a stream of this host.
  package var shardIndices: [Int] { shards.keys.sorted() }

  var orderedShards: [FleetShard] { shardIndices.compactMap { shards[$0] } }

  /// Whether the stream's source may be asked for a batch now.
  package func mayFetch(_ stream: String) -> Bool { find(stream).map { $0.mayFetch($1) } ?? false }

  /// Whether a poll that is due may fetch; nil: only if another host wants the event.
  ///
  /// A poll fetches again after responses without an event. Each fetch is decided anew, because the log may have
  /// stopped appending since the event was requested.
  package func admitsFetch(_ stream: String) -> Bool? {
    guard let (shard, stream) = find(stream), shard.mayFetch(stream) else { return false }
    return stream.isWantedHere ? true : nil
  }

  /// Whether any host wants the stream, after this answer to `askInterest`.
  package func isWanted(_ stream: String, answer: Bool?) -> Bool {
    guard let (_, stream) = find(stream) else { return false }
    return stream.isWantedHere || answer ?? stream.isWantedElsewhere
  }

  /// Whether this host leads the stream's shard, and fetches the stream.
  package func isLeading(_ stream: String) -> Bool { find(stream).map { $0.isLed($1) } ?? false }

  /// The value of the stream's last `fetch` action.
  package func isFetched(_ stream: String) -> Bool { find(stream)?.1.isFetched == true }

  /// The checkpoint from which the stream's source resumes; nil: it begins anew.
  package func checkpoint(of stream: String) -> Checkpoint? { shards[shard(of: stream)]?.heads[stream]?.checkpoint }

  /// When the leader received the stream's last batch, by the leader's clock; microseconds since the Unix epoch; nil:
  /// unknown.
  package func lastTime(of stream: String) -> UInt64? {
    shards[shard(of: stream)]?.heads[stream].flatMap { $0.time > 0 ? $0.time : nil }
  }

  /// The schedule in the stream's last record, as it is now.
  ///
  /// The age of the record is measured by this host's monotonic clock if the record came from the tail, otherwise by
  /// the wall clocks. These may differ, but the source never waits longer than the record says. The schedule of another
  /// definition has no effect.
  package func schedule(of stream: String, at now: UInt64, wallTime: UInt64) -> FleetSchedule {
    guard let (shard, known) = find(stream), let head = shard.heads[stream],
      head.definition == known.definition.definition
    else { return FleetSchedule() }
    let age = head.heardAt.map { (now - min(now, $0)) / 1000 } ?? (wallTime - min(wallTime, head.scheduledAt))
    return head.schedule.after(age)
  }

  /// - Returns: nil for a stream that this host does not have.
  package func status(of stream: String, at now: UInt64) -> Status? {
    guard let (shard, shared) = find(stream) else { return nil }
    let machine = shard.machine
    func name(_ other: HostID) -> String { other == host ? settings.hostName : names[other] ?? "\(other)" }
    return Status(
      isLeading: shard.isLeading, leader: machine.leader.map(name),
      term: machine.term ?? 0, epoch: machine.epoch ?? 0,
      lag: shard.isLeading ? 0 : shard.leaderLast - min(shard.leaderLast, machine.lastSequence ?? 0),
      staleSince: isStarted ? machine.staleSince(at: now) : 0,
      otherHosts: shard.otherHosts(shared, at: now, nameOfLeader: name))
  }

  /// When `tick` is due, or an earlier time; nil: never.
  package var deadline: UInt64? {
    let deadline = shards.values.reduce(.max) { min($0, $1.deadline) }
    return isStarted && deadline < .max ? deadline : nil
  }
}
