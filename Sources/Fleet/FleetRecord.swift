import Events
import TaggedFields

/// A batch of one stream's events, with the state of its source after them: both are stored, or neither.
struct FleetRecord: Equatable {
  /// At most `nameByteCount` bytes.
  var stream = ""
  /// A digest of the stream's definition on the host that has fetched the events.
  var definition: UInt64 = 0
  /// The first event's id.
  var firstID: UInt64 = 0
  /// When the leader took the events in; microseconds since the Unix epoch, by its clock.
  var time: UInt64 = 0
  var events = EventBatch()
  /// The host that has sent the values of a stream that clients publish to; empty otherwise.
  var sender: [UInt8] = []
  /// Rises by 1 from batch to batch of a sender to a stream.
  var number: UInt64 = 0
  /// The source's schedule after it. Earlier versions skip it, and have none.
  var schedule = FleetSchedule()

  static let nameByteCount = 255

  /// About the bytes of its events.
  var byteCount: Int { events.byteCount + 4 * events.count + (events.keys?.encodedByteCount(0..<events.count) ?? 0) }
}

extension FleetRecord: TaggedRecord {
  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &stream)
    try fields.field(2, &definition)
    try fields.field(3, &firstID)
    try fields.field(4, &time)
    var bytes = fields.isReading ? [] : EventBytes.bytes(of: events)
    try fields.field(5, &bytes)
    var checkpoint = events.checkpoint.map { [1] + $0.bytes } ?? []
    try fields.field(6, &checkpoint)
    try fields.field(7, &sender)
    try fields.field(8, &number)
    try fields.field(9, &schedule.slot)
    try fields.field(10, &schedule.rest)
    var (keys, keyDefinition) = (events.keys?.encoded ?? [], events.keys?.definition ?? 0)
    try fields.field(11, &keys)
    try fields.field(12, &keyDefinition)
    guard fields.isReading else { return }
    guard let events = EventBytes.events(in: bytes) else { throw Malformed(reason: "its events are cut off") }
    self.events = events
    self.events.setKeys(EventKeys(encoded: keys, count: events.count, definition: keyDefinition))
    if !checkpoint.isEmpty { self.events.checkpoint = Checkpoint(Array(checkpoint.dropFirst())) }
    guard (1...Self.nameByteCount).contains(stream.utf8.count) else { throw Malformed(reason: "it names no stream") }
    guard sender.isEmpty || HostID(sender) != nil else { throw Malformed(reason: "its sender is no host") }
  }
}

/// Events as they are stored in a record: for each u32 byte count, big endian, and its bytes.
private enum EventBytes {
  static func bytes(of events: EventBatch) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(events.byteCount + 4 * events.count)
    unsafe events.withUnsafeBytes(of: 0..<events.count) { event in
      let count = UInt32(clamping: event.count)
      for shift in stride(from: 24 as UInt32, through: 0, by: -8) {
        bytes.append(UInt8(truncatingIfNeeded: count >> shift))
      }
      unsafe bytes.append(contentsOf: event)
      return true
    }
    return bytes
  }

  static func events(in bytes: [UInt8]) -> EventBatch? {
    var events = EventBatch()
    let isWhole = unsafe bytes.withUnsafeBytes { bytes in
      var start = 0
      while start < bytes.count {
        guard bytes.count - start >= 4 else { return false }
        var count = 0
        for index in start..<start + 4 { count = unsafe count << 8 | Int(bytes[index]) }
        start += 4
        guard count <= bytes.count - start else { return false }
        unsafe events.append(UnsafeRawBufferPointer(rebasing: bytes[start..<start + count]))
        start += count
      }
      return true
    }
    return isWhole ? events : nil
  }
}

/// How long the source of a stream waits before its next request, from some time on. In microseconds.
package struct FleetSchedule: Equatable, Sendable {
  /// Until the next slot of a poll; 0: unknown.
  package var slot: UInt64
  /// Until the end of the time for which the server has asked for no request; 0: it has not.
  package var rest: UInt64

  package init(slot: UInt64 = 0, rest: UInt64 = 0) { (self.slot, self.rest) = (slot, rest) }

  /// What is left of it after some time.
  func after(_ microseconds: UInt64) -> FleetSchedule {
    FleetSchedule(slot: slot - min(slot, microseconds), rest: rest - min(rest, microseconds))
  }
}

/// What the log of a shard says of one stream: where it continues, and with what.
struct StreamHead: Equatable {
  var stream = ""
  /// The definition in the last record.
  var definition: UInt64 = 0
  /// The next event's id.
  var nextID: UInt64 = 0
  /// The time of the last record.
  var time: UInt64 = 0
  /// From which the source resumes; nil: it begins.
  var checkpoint: Checkpoint?
  /// Those that publish to it, the last one that did at the end.
  private(set) var senders: [Sender] = []
  /// The last schedule of the source that a record had, and the time of that record.
  var schedule = FleetSchedule()
  var scheduledAt: UInt64 = 0
  /// When this host has received that record soon after it was appended, on its monotonic clock; nil: it has not.
  var heardAt: UInt64?

  /// A host that has sent values.
  struct Sender: Equatable {
    var host: [UInt8] = []
    /// The number of its last batch that is stored.
    var number: UInt64 = 0
  }

  /// Senders that are remembered for each stream. A sender repeats a batch that is not confirmed for as long as it lives,
  /// so that one is stored twice only if so many others have published in between.
  static let senderCount = 256

  /// The number of a sender's last batch that is stored; 0: none is known.
  func number(of sender: [UInt8]) -> UInt64 { senders.last { $0.host == sender }?.number ?? 0 }

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
    var checkpoint = checkpoint.map { [1] + $0.bytes } ?? []
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

  /// Bytes in a claim, which is one entry of the log. If all do not fit, the largest checkpoints are left out first (their
  /// sources begin anew), then the streams without an event for the longest time (their ids continue by the clock).
  static let byteCount = 1 << 20 - 8192
  private static let leastByteCount = 320

  init() {}

  init(_ heads: some Collection<StreamHead>) {
    self.heads = heads.sorted { $0.time > $1.time }
  }

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) { try fields.field(1, &heads) }

  /// The bytes in a claim.
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

  /// - Throws: for heads of another version, or damaged ones.
  init(_ bytes: [UInt8]) throws(Malformed) { self = try RecordFields.read(ShardHeads.self, from: bytes[...]) }
}

/// Where a host is in a shard, for another one that is about to claim it.
struct HostPosition: TaggedRecord, Equatable {
  var epoch: UInt64 = 0
  var sequence: UInt64 = 0
  /// The end of the ids that the host has seen in any stream of the shard.
  var endID: UInt64 = 0
  /// The furthest position in a log that has lost it.
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

extension ShardPosition {
  /// 33 bytes, for the stream's log.
  package var bytes: [UInt8] {
    var bytes: [UInt8] = [1]
    for number in [epoch, sequence, UInt64(checksum), term] {
      for shift in stride(from: 56 as UInt64, through: 0, by: -8) {
        bytes.append(UInt8(truncatingIfNeeded: number >> shift))
      }
    }
    return bytes
  }

  /// - Returns: nil for anything else than such bytes.
  package init?(_ bytes: [UInt8]) {
    guard bytes.count == 33, bytes[0] == 1 else { return nil }
    let numbers = (0..<4).map { index in
      bytes[1 + 8 * index..<9 + 8 * index].reduce(0 as UInt64) { $0 << 8 | UInt64($1) }
    }
    guard let checksum = UInt32(exactly: numbers[2]), numbers[0] < 1 << 62, numbers[1] < 1 << 62 else { return nil }
    self.init(epoch: numbers[0], sequence: numbers[1], checksum: checksum, term: numbers[3])
  }
}

/// The messages from one host to another.
struct FleetMessage: TaggedRecord, Equatable {
  enum Kind: UInt8 {
    /// The leader of a shard is asked to begin to fetch a stream.
    case want = 0
    /// A part of a record without an id, for the leader to append.
    case values = 1
  }

  var kind = Kind.want
  var sender: [UInt8] = []
  var stream = ""
  /// For values: the number of the batch, its part, and whether that is the last one.
  var number: UInt64 = 0
  var index: UInt32 = 0
  var isLast = false
  var bytes: [UInt8] = []

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &kind)
    try fields.field(2, &sender)
    try fields.field(3, &stream)
    try fields.field(4, &number)
    try fields.field(5, &index)
    try fields.field(6, &isLast)
    try fields.field(7, &bytes)
  }
}

/// The heartbeats of all shards that one host leads, in one message.
struct HostHeartbeat: TaggedRecord, Equatable {
  struct Shard: TaggedRecord, Equatable {
    var shard: UInt32 = 0
    var epoch: UInt64 = 0
    var term: UInt64 = 0
    var last: UInt64 = 0
    var isLast = false

    mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
      try fields.field(1, &shard)
      try fields.field(2, &epoch)
      try fields.field(3, &term)
      try fields.field(4, &last)
      try fields.field(5, &isLast)
    }
  }

  var host: [UInt8] = []
  /// Its name, for people.
  var name = ""
  var shards: [Shard] = []

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &host)
    try fields.field(2, &name)
    try fields.field(3, &shards)
  }
}
