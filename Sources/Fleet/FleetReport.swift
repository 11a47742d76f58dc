/// News for the operator.
package enum FleetReport: Equatable, Sendable {
  /// This host leads the shard from now on.
  case leads(shard: Int, term: UInt64)
  /// This host led the shard, and does not any more.
  case follows(shard: Int)
  /// Entries of the shard were removed before this host has read them: events are missing in its logs.
  case missed(shard: Int)
  /// The ids of this stream continue further on, because the engine's log has lost entries.
  case newEpoch(String)
  /// This host has other events under ids of the stream; they stay.
  case conflict(String)
  /// An entry of the shard is not what a host writes: it has no effect.
  case damaged(shard: Int)
  /// An entry of the shard is of a later version: this host follows it no more.
  case newerVersion(shard: Int)
}
