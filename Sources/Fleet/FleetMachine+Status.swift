import Events

/// The present state, for callers; nothing here changes it.
extension FleetMachine {
  /// The state of a stream in the fleet.
  package struct Status: Equatable, Sendable {
    package var isLeading: Bool
    /// The leader's name, or its number if that is not known; nil without a leader.
    package var leader: String?
    package var term: UInt64
    package var epoch: UInt64
    /// Entries of the shard that this host has not read.
    package var lag: UInt64
    /// Since when it is not known whether this host has all events, on the monotonic clock; nil: it has.
    package var staleSince: UInt64?
  }

  /// The shard of a stream. The same in all versions.
  package func shard(of stream: String) -> Int { settings.shard(of: stream) }

  /// The shards that have a stream of this host.
  package var shardIndices: [Int] { shards.keys.sorted() }

  var orderedShards: [FleetShard] { shardIndices.compactMap { shards[$0] } }

  /// Whether the stream's source may be asked for a batch now.
  package func mayFetch(_ stream: String) -> Bool { find(stream).map { $0.mayFetch($1) } ?? false }

  /// Decides about a poll that is due: whether it is made; nil: if another host wants the event.
  ///
  /// A poll continues after responses without an event. Each fetch is decided anew, because the log may have stopped to
  /// append since the event was requested.
  package func admitsFetch(_ stream: String) -> Bool? {
    guard let (shard, stream) = find(stream), shard.mayFetch(stream) else { return false }
    return stream.isWantedHere ? true : nil
  }

  /// Whether this host leads the stream's shard, and fetches the stream.
  package func isLeading(_ stream: String) -> Bool { find(stream).map { $0.isLed($1) } ?? false }

  /// Whether the stream's source was asked for events by the last `fetch`.
  package func isFetched(_ stream: String) -> Bool { find(stream)?.1.isFetched == true }

  /// Where the stream's source resumes.
  package func checkpoint(of stream: String) -> Checkpoint? { shards[shard(of: stream)]?.heads[stream]?.checkpoint }

  /// When the leader took the stream's last batch in, by its clock; microseconds since the Unix epoch; nil: unknown.
  package func lastTime(of stream: String) -> UInt64? {
    shards[shard(of: stream)]?.heads[stream].flatMap { $0.time > 0 ? $0.time : nil }
  }

  /// The rest of the schedule in the stream's last record.
  ///
  /// By this host's monotonic clock if it has received the record when it was appended. Otherwise by the wall clocks, which
  /// may differ; then it waits for no longer than the record says. Nothing of another definition's schedule is left.
  package func schedule(of stream: String, at now: UInt64, wallTime: UInt64) -> FleetSchedule {
    guard let (shard, known) = find(stream), let head = shard.heads[stream],
      head.definition == known.definition.definition
    else { return FleetSchedule() }
    let age = head.heardAt.map { (now - min(now, $0)) / 1000 } ?? (wallTime - min(wallTime, head.scheduledAt))
    return head.schedule.after(age)
  }

  /// - Returns: nil for a stream that is not of this host.
  package func status(of stream: String, at now: UInt64) -> Status? {
    guard let (shard, _) = find(stream) else { return nil }
    let machine = shard.machine
    return Status(
      isLeading: shard.isLeading, leader: machine.leader.map { $0 == host ? settings.hostName : names[$0] ?? "\($0)" },
      term: machine.term ?? 0, epoch: machine.epoch ?? 0,
      lag: shard.isLeading ? 0 : shard.leaderLast - min(shard.leaderLast, machine.lastSequence ?? 0),
      staleSince: isStarted ? machine.staleSince(at: now) : 0)
  }

  /// When `tick` is due; nil: never.
  package var deadline: UInt64? {
    guard isStarted, let deadline = shards.values.map(\.deadline).min(), deadline < .max else { return nil }
    return deadline
  }
}
