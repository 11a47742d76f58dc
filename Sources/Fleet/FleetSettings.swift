import Events
import TaggedFields

/// The settings that all shards of a host share.
struct FleetSettings {
  let host: HostID
  let hostName: String
  let shardCount: Int
  let times: ShardMachine.Times
  /// The number of records after which a leader renews its claim, so that a new host reads few records.
  let renewalRecordCount: Int
  let merge: @Sendable (EventBatch, Checkpoint?) -> EventBatch

  /// The action that sends the heartbeats of several shards in one message.
  func send(_ heartbeats: [(shard: Int, ShardMachine.Heartbeat)]) -> FleetMachine.Action {
    let message = HostHeartbeat(
      host: host.bytes, name: hostName,
      shards: heartbeats.map { HostHeartbeat.Shard(shard: UInt32(clamping: $0), heartbeat: $1) })
    return .send(RecordFields.bytes(of: message), to: .heartbeats)
  }

  /// The shard of a stream. All versions compute the same one.
  func shard(of stream: String) -> Int { Int(Self.hash(stream.utf8) % UInt64(shardCount)) }

  /// The weight of this host for a shard, 0..<1. Source: rendezvous hashing (Thaler, Ravishankar 1998).
  func weight(of shard: Int) -> Double {
    Double(Self.hash(host.bytes + [UInt8(truncatingIfNeeded: shard), UInt8(truncatingIfNeeded: shard >> 8)]) >> 11)
      / Double(1 << 53)
  }

  /// FNV-1a with a finalizer (SplitMix64's), because its upper bits depend little on the last bytes.
  private static func hash(_ bytes: some Sequence<UInt8>) -> UInt64 {
    var hash = bytes.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    hash = (hash ^ hash >> 30) &* 0xbf58_476d_1ce4_e5b9
    hash = (hash ^ hash >> 27) &* 0x94d0_49bb_1331_11eb
    return hash ^ hash >> 31
  }
}

extension UInt64 {
  mutating func raise(to other: UInt64) { self = Swift.max(self, other) }
}
