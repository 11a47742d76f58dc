/// A stream of this host, with the demand for it and the batch that its clients have published.
final class SharedStream {
  /// The stream as it is configured. Its `end` rises with the events that the host stores.
  var definition: FleetMachine.Stream
  /// Whether this host wants the next event.
  var isWantedHere = false
  /// Whether any other host wants it, as far as the leader knows.
  var isWantedElsewhere = false
  /// How long the leader waits before it asks again after the last answer that no host wants it.
  var silence: UInt64 = 0
  /// When this host, as the leader, asks again whether other hosts want the next event.
  var askAgainAt = UInt64.max { didSet { due.lower(to: askAgainAt) } }
  /// When this host asks the leader to fetch, for the first time or again.
  var tellAt = UInt64.max { didSet { due.lower(to: tellAt) } }
  /// When this host may tell the same leader again.
  var mayTellAt: UInt64 = 0
  /// The value of the last `fetch` action.
  var isFetched = false
  /// The batch that clients of this host have published, until the log has stored it.
  var published: FleetRecord?
  var sendAgainAt = UInt64.max { didSet { due.lower(to: sendAgainAt) } }
  /// When this host compares its definition with that of the leader.
  var compareAt = UInt64.max { didSet { due.lower(to: compareAt) } }
  /// The last answer to such a comparison.
  var leaderDefinition: (leader: HostID, definition: UInt64)?
  /// For a leader: the hosts with another definition, by id.
  var others: [[UInt8]: Other] = [:]

  /// A host with another definition.
  struct Other {
    let name: String
    /// The host counts as such a host until then, unless it asks again.
    let until: UInt64
  }

  /// The time of all streams of the shard.
  private let due: FirstDueTime

  init(_ definition: FleetMachine.Stream, _ due: FirstDueTime) { (self.definition, self.due) = (definition, due) }

  var name: String { definition.name }

  /// The earliest of these times.
  var deadline: UInt64 { min(askAgainAt, tellAt, sendAgainAt, compareAt) }
}

/// When the first stream of a shard is due, or an earlier time.
///
/// Each time that a stream sets lowers it. A time that a stream takes back stays, until a walk over all streams raises
/// it: a host has an input for each record of the fleet, and walks only when a stream is due.
final class FirstDueTime {
  private(set) var time = UInt64.max

  func lower(to other: UInt64) { time = min(time, other) }

  /// Called before a walk, which lowers it to the deadline of each stream.
  func reset() { time = .max }
}
