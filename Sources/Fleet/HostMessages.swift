import TaggedFields

/// A message from one host to another.
struct FleetMessage: TaggedRecord, Equatable {
  enum Kind: UInt8 {
    /// A request to the leader of a shard to fetch a stream.
    case want = 0
    /// A part of a record without an id, for the leader to append.
    case values = 1
    /// A question to the leader of a shard for its definition of a stream.
    case compare = 2
  }

  var kind = Kind.want
  var sender: [UInt8] = []
  var stream = ""
  /// For values: the number of the batch, the index of its part, and whether this is the last part.
  var number: UInt64 = 0
  var index: UInt32 = 0
  var isLast = false
  /// A part of a record, or, for a comparison, the name of the sender.
  var bytes: [UInt8] = []
  /// For a comparison: the definition that the sender has.
  var definition: UInt64 = 0

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &kind)
    try fields.field(2, &sender)
    try fields.field(3, &stream)
    try fields.field(4, &number)
    try fields.field(5, &index)
    try fields.field(6, &isLast)
    try fields.field(7, &bytes)
    try fields.field(8, &definition)
  }
}

/// The heartbeats of all shards that one host leads, in one message.
struct HostHeartbeat: TaggedRecord, Equatable {
  struct Shard: TaggedRecord, Equatable {
    var shard: UInt32 = 0
    var heartbeat = ShardMachine.Heartbeat()

    mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
      try fields.field(1, &shard)
      try fields.field(2, &heartbeat.epoch)
      try fields.field(3, &heartbeat.term)
      try fields.field(4, &heartbeat.last)
      try fields.field(5, &heartbeat.isLast)
    }
  }

  var host: [UInt8] = []
  /// The host's name, for people.
  var name = ""
  var shards: [Shard] = []

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &host)
    try fields.field(2, &name)
    try fields.field(3, &shards)
  }
}

/// The position of a host in a shard's log, for a host that is about to claim the shard.
struct HostPosition: TaggedRecord, Equatable {
  var epoch: UInt64 = 0
  var sequence: UInt64 = 0
  /// The id after the highest one that the host has seen in any stream of the shard.
  var endID: UInt64 = 0
  /// The furthest position that the host has read and the log has lost.
  var lostEpoch: UInt64 = 0
  var lostSequence: UInt64 = 0

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &epoch)
    try fields.field(2, &sequence)
    try fields.field(3, &endID)
    try fields.field(4, &lostEpoch)
    try fields.field(5, &lostSequence)
  }
}
