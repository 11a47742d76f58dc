/// A stream of this host, with the demand for it and the batch that its clients have published.
final class SharedStream {
  /// The stream as it is configured. Its `end` rises with the events that the host stores.
  var definition: FleetMachine.Stream
  /// Whether this host wants the next event.
  var isWantedHere = false
  /// Whether any other host wants it, as far as the leader knows.
  var isWantedElsewhere = false
  /// When this host, as the leader, asks again whether other hosts want the next event.
  var askAgainAt = UInt64.max
  /// When this host asks the leader to fetch, for the first time or again.
  var tellAt = UInt64.max
  /// The value of the last `fetch` action.
  var isFetched = false
  /// The batch that clients of this host have published, until the log has stored it.
  var published: FleetRecord?
  var sendAgainAt = UInt64.max
  /// When this host compares its definition with that of the leader.
  var compareAt = UInt64.max
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

  init(_ definition: FleetMachine.Stream) { self.definition = definition }

  var name: String { definition.name }

  /// The earliest of these times.
  var deadline: UInt64 { min(askAgainAt, tellAt, sendAgainAt, compareAt) }
}
