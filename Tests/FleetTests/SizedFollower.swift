import Events
import TaggedFields

@testable import Fleet

/// One host that follows 16 shards with many streams: what it keeps, and what a record, a heartbeat and its status cost.
struct SizedFollower {
  private let streams: [String]
  private let shardCount = 16
  private let settings: FleetSettings
  /// For each shard a claim, and records of all its streams after it.
  private var claims: [Int: [UInt8]] = [:]
  private var entries: [Int: [(sequence: UInt64, bytes: [UInt8])]] = [:]
  private static let leader = HostID(Array(0..<16))!
  private static let roundCount = 4

  init(streamCount: Int) {
    streams = (0..<streamCount).map { "exchange.quotes.\($0)" }
    settings = FleetSettings(
      host: HostID(Array(1...16))!, hostName: "host-1.example.org", shardCount: shardCount, times: .init(),
      renewalRecordCount: 16_384, merge: { values, _ in values })
    let shards = Dictionary(grouping: streams.indices) { settings.shard(of: streams[$0]) }
    for (shard, streams) in shards {
      let claim = ShardEntry(
        epoch: 1, former: 0, content: .claim(.init(host: Self.leader, heads: ShardHeads(streams.map(head)).bytes())))
      claims[shard] = claim.bytes
      entries[shard] = records(of: streams, after: claim.bytes)
    }
  }

  private static let checkpoint = Checkpoint([UInt8](repeating: 7, count: 90))

  private func head(_ stream: Int) -> StreamHead {
    var head = StreamHead(stream: streams[stream], definition: UInt64(stream + 1), nextID: 1, time: 1)
    head.checkpoint = Self.checkpoint
    return head
  }

  private func records(of streams: [Int], after claim: [UInt8]) -> [(sequence: UInt64, bytes: [UInt8])] {
    var former = claim
    var events = EventBatch(of: [UInt8](repeating: 0x20, count: 1024))
    events.checkpoint = Self.checkpoint
    let places = (0..<Self.roundCount).flatMap { round in streams.map { (round, $0) } }
    return places.enumerated().map { index, place in
      let (round, stream) = place
      let record = FleetRecord(
        stream: self.streams[stream], definition: UInt64(stream + 1), firstID: UInt64(round + 1),
        time: UInt64(round + 1), events: events, schedule: .init(slot: 30_000_000))
      let part = ShardEntry.Part(term: 1, isLast: true, bytes: RecordFields.bytes(of: record))
      former = ShardEntry(epoch: 1, former: ShardEntry.checksum(of: former), content: .part(part)).bytes
      return (UInt64(index + 2), former)
    }
  }

  /// A host that has read the claims, and the first record of each stream.
  func follow() -> FleetMachine {
    let machine = FleetMachine(
      host: settings.host, hostName: settings.hostName, shardCount: shardCount, merge: settings.merge)
    let streams = streams.enumerated().map { number, name in
      // The configuration has a copy of its own.
      FleetMachine.Stream(
        name: String(decoding: Array(name.utf8), as: UTF8.self), definition: UInt64(number + 1), kind: .poll,
        canLead: true, end: 1)
    }
    _ = machine.setStreams(streams, at: 0)
    _ = machine.connected(at: 0)
    for (shard, claim) in claims {
      _ = machine.answer(.findClaim(.found(claim, sequence: 1)), shard: shard, at: 0, wallTime: 0)
      let first = Array(entries[shard]?.prefix { $0.sequence < 2 + UInt64(streamCount(of: shard)) } ?? [])
      let found = FleetEntries(entries: first, first: 1, last: UInt64(first.count + 1))
      _ = machine.answer(.read(after: 1, found), shard: shard, at: 0, wallTime: 0)
    }
    _ = machine.tick(at: 0, wallTime: 0)
    return machine
  }

  private func streamCount(of shard: Int) -> Int { (entries[shard]?.count ?? 0) / Self.roundCount }

  /// The processor times of a record, a heartbeat and the status of all streams.
  func times(of machine: FleetMachine) -> String {
    var (count, storedCount) = (0, 0)
    let start = ProcessFigures.processorTime
    for round in 1..<Self.roundCount {
      for shard in 0..<shardCount {
        for place in round * streamCount(of: shard)..<(round + 1) * streamCount(of: shard) {
          let entry = entries[shard]![place]
          storedCount += machine.received(entry.bytes, shard: shard, at: entry.sequence, now: 1).count
          storedCount += machine.deadline == 0 ? 1 : 0
          count += 1
        }
      }
    }
    let recordTime = ProcessFigures.processorTime - start
    let heartbeat = HostHeartbeat(host: Self.leader.bytes, name: "host-2.example.org", shards: [.init()])
    let bytes = RecordFields.bytes(of: heartbeat)
    for _ in 0..<1000 { storedCount += machine.heard(bytes, at: 1).count + (machine.deadline == 0 ? 1 : 0) }
    let heartbeatTime = ProcessFigures.processorTime - start - recordTime
    for stream in streams where machine.status(of: stream, at: 1)?.lag ?? 0 > 0 { storedCount += 1 }
    let statusTime = ProcessFigures.processorTime - start - recordTime - heartbeatTime
    return "\(storedCount) of \(count) records stored: \(recordTime / UInt64(count)) ns each; a heartbeat "
      + "\(heartbeatTime / 1000) ns; the status of all streams \(statusTime / 1000) µs"
  }
}
