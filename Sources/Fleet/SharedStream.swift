/// A stream of this host, with the demand for it and the batch that its clients have published.
final class SharedStream {
  /// As in the configuration. Its end rises with what the host stores.
  var definition: FleetMachine.Stream
  /// Whether this host wants the next event.
  var isWantedHere = false
  /// Whether any other host does, as far as the leader knows.
  var isWantedElsewhere = false
  /// When the leader asks the other hosts again.
  var askAgainAt = UInt64.max
  /// When the leader is asked to fetch, for the first time or again.
  var tellAt = UInt64.max
  /// Whether the source was asked for events by the last `fetch`.
  var isFetched = false
  /// The batch that clients of this host have published, until the log has stored it.
  var published: FleetRecord?
  var sendAgainAt = UInt64.max

  init(_ definition: FleetMachine.Stream) { self.definition = definition }

  var name: String { definition.name }

  /// When anything of it is due.
  var deadline: UInt64 { min(askAgainAt, tellAt, sendAgainAt) }
}
