import Events
import TaggedFields

/// The state of one stream after the last record of its shard's log: a next leader continues with it.
struct StreamHead: Equatable {
  var stream = ""
  /// The definition in the last record.
  var definition: UInt64 = 0
  /// The next event's id.
  var nextID: UInt64 = 0
  /// The time of the last record.
  var time: UInt64 = 0
  /// The checkpoint from which the source resumes; nil: it begins anew.
  var checkpoint: Checkpoint?
  /// The hosts that publish to the stream, in the order of their last batches.
  private(set) var senders: [Sender] = []
  /// The last schedule of the source that a record had, and the time of that record.
  var schedule = FleetSchedule()
  var scheduledAt: UInt64 = 0
  /// When this host received that record from the tail, on its monotonic clock; nil: it did not.
  var heardAt: UInt64?

  /// A host that has sent values.
  struct Sender: Equatable {
    var host: [UInt8] = []
    /// The number of its last batch that is stored.
    var number: UInt64 = 0
  }

  /// The maximum number of senders in a head. A sender repeats a batch without confirmation until its process ends. A
  /// batch is therefore stored twice only if this many other hosts have published in between.
  static let senderCount = 256

  /// The number of a sender's last batch that is stored; 0: none is known.
  func number(of sender: [UInt8]) -> UInt64 { senders.last { $0.host == sender }?.number ?? 0 }

  /// Takes over what a record says.
  /// - Parameter now: when the tail brought it; nil: it came in another way.
  /// - Returns: the next event's id, and whether the record before had another definition; nil, without any effect, if
  ///   ids would fall: no host writes such a record.
  mutating func note(_ record: FleetRecord, heardAt now: UInt64?) -> (next: UInt64, isOther: Bool)? {
    guard record.events.isEmpty || record.firstID >= nextID else { return nil }
    if !record.events.isEmpty { nextID = record.firstID + UInt64(record.events.count) }
    let isOther = definition != record.definition
    definition = record.definition
    // A record without events and checkpoint has a Retry-After alone, and no batch.
    if !record.events.isEmpty || record.events.checkpoint != nil { time = record.time }
    (schedule, scheduledAt, heardAt) = (record.schedule, record.time, now)
    if let checkpoint = record.events.checkpoint { self.checkpoint = checkpoint }
    if !record.sender.isEmpty { note(record.sender, number: record.number) }
    return (nextID, isOther)
  }

  mutating func note(_ sender: [UInt8], number: UInt64) {
    senders.removeAll { $0.host == sender }
    if senders.count == Self.senderCount { senders.removeFirst() }
    senders.append(Sender(host: sender, number: number))
  }
}

extension StreamHead: TaggedRecord {
  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &stream)
    try fields.field(2, &definition)
    try fields.field(3, &nextID)
    try fields.field(4, &time)
    var checkpoint: [UInt8] = checkpoint.map { [1] + $0.bytes } ?? []
    try fields.field(5, &checkpoint)
    try fields.field(6, &senders)
    try fields.field(7, &scheduledAt)
    try fields.field(8, &schedule.slot)
    try fields.field(9, &schedule.rest)
    guard fields.isReading else { return }
    self.checkpoint = checkpoint.isEmpty ? nil : Checkpoint(Array(checkpoint.dropFirst()))
    guard (1...FleetRecord.nameByteCount).contains(stream.utf8.count) else {
      throw Malformed(reason: "it names no stream")
    }
    guard senders.count <= Self.senderCount else { throw Malformed(reason: "it has \(senders.count) senders") }
  }
}

extension StreamHead.Sender: TaggedRecord {
  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &host)
    try fields.field(2, &number)
  }
}

/// The heads of a shard's streams, as a claim carries them.
struct ShardHeads: TaggedRecord {
  var heads: [StreamHead] = []

  /// The maximum bytes of the heads in a claim, which is one entry of the log. If they exceed it, the largest
  /// checkpoints are left out first: their sources begin anew. Then the streams without an event for the longest time
  /// are left out: their ids continue by the clock.
  static let byteCount = 1 << 20 - 8192
  private static let leastByteCount = 320

  init() {}

  init(_ heads: some Collection<StreamHead>) {
    self.heads = heads.sorted { $0.time > $1.time }
  }

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) { try fields.field(1, &heads) }

  /// The heads as a claim has them, in at most `byteCount` bytes.
  func bytes() -> [UInt8] {
    let bytes = RecordFields.bytes(of: self)
    guard bytes.count > Self.byteCount else { return bytes }
    var less = self
    var excess = bytes.count - Self.byteCount
    func size(_ index: Int) -> Int { heads[index].checkpoint?.bytes.count ?? 0 }
    for index in heads.indices.sorted(by: { size($0) > size($1) }) where excess > 0 {
      excess -= size(index)
      less.heads[index].checkpoint = nil
    }
    while true {
      let bytes = RecordFields.bytes(of: less)
      if bytes.count <= Self.byteCount { return bytes }
      less.heads.removeLast(max(1, (bytes.count - Self.byteCount) / Self.leastByteCount))
    }
  }

  /// - Throws: if the heads are damaged, or have another version.
  init(_ bytes: [UInt8]) throws(Malformed) { self = try RecordFields.read(ShardHeads.self, from: bytes[...]) }
}
