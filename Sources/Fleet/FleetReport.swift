/// News for the operator.
package enum FleetReport: Equatable, Sendable {
  /// This host leads the shard from now on.
  case leads(shard: Int, term: UInt64)
  /// This host no longer leads the shard.
  case follows(shard: Int)
  /// Entries of the shard were removed before this host read them: events are missing in its logs.
  case missed(shard: Int)
  /// The ids of this stream continue after a hole, because the engine's log has lost entries.
  case newEpoch(String)
  /// This host has other events under the ids of a record. It keeps them.
  case conflict(String)
  /// A record or the heads of a claim are not valid: they have no effect.
  case damaged(shard: Int)
  /// A later version has written an entry of the shard: this host no longer follows the shard.
  case newerVersion(shard: Int)
}
