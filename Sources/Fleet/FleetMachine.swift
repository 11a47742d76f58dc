import Events
import TaggedFields

/// One host of a fleet: its shards, and the effect of their records on its streams.
///
/// A stream belongs to one shard, by a hash of its name. The leader of the shard fetches the stream, and makes records
/// of the events. All hosts, the leader included, store the events when they read the record. All hosts compute from
/// the records the head of each stream, with which a new leader continues. Claims carry the heads, so that a host can
/// begin with the newest claim.
///
/// Records wait while others are under way. Batches that follow each other in a stream become one record, so that
/// records are the larger the slower the engine is.
///
/// Demand: a host listens to the stream's interest subject only while it wants the next event. The leader asks there before
/// it fetches, unless it wants the event itself.
///
/// Published values: their host sends one batch of a stream at a time to the shard's leader, and repeats it until the
/// host reads a record with the batch. The leader drops a batch that is stored or under way, by the sender's numbers.
///
/// The machine passes each input to its shard or stream (`FleetShard`, `SharedStream`). It knows no engine, clock or
/// log. Each function returns the actions for its caller, in order. Times are nanoseconds of the host's monotonic
/// clock; wall times microseconds since the Unix epoch.
package final class FleetMachine {
  /// An action that the caller must perform.
  package enum Action: Equatable {
    /// Ask the engine about a shard's log. The answer goes to `answer`.
    case ask(ShardMachine.Request, shard: Int)
    /// Send a message.
    case send([UInt8], to: FleetSubject)
    /// Ask a shard's leader to fetch. The answer goes to `wantArrived`.
    case want([UInt8], stream: String, leader: HostID)
    /// Ask a shard's leader for its definition of a stream. The answer, if any, goes to `compared`.
    case compare([UInt8], stream: String, leader: HostID)
    /// Ask whether any other host wants the stream. The answer goes to `learned`.
    case askInterest(stream: String)
    /// Listen, or listen no more, to the stream's interest subject.
    case showInterest(Bool, stream: String, shard: Int)
    /// Store events under these ids, with or without demand. A batch without events has a position, and maybe a
    /// checkpoint, to store.
    case store(EventBatch, stream: String, firstID: UInt64, time: UInt64, position: ShardPosition)
    /// Fetch while there is demand, and pass the events to `fetched`; false: stop.
    case fetch(Bool, stream: String)
    /// The last batch of `publish` is stored.
    case stored(stream: String)
    case report(FleetReport)
  }

  /// A stream of this host's configuration.
  package struct Stream: Equatable, Sendable {
    package enum Kind: Sendable {
      /// Its source asks before each fetch.
      case poll
      /// Its source runs as long as it is fetched.
      case continuous
      /// Clients publish to it.
      case publish
    }

    package var name: String
    /// A digest of the settings that determine its events.
    package var definition: UInt64
    package var kind: Kind
    /// Whether this host may fetch it.
    package var canLead: Bool
    /// The next id in this host's log.
    package var end: UInt64
    /// The position of this host's log in the shard's log; nil: unknown.
    package var position: ShardPosition?

    package init(
      name: String, definition: UInt64, kind: Kind, canLead: Bool, end: UInt64, position: ShardPosition? = nil
    ) {
      (self.name, self.definition, self.kind, self.canLead) = (name, definition, kind, canLead)
      (self.end, self.position) = (end, position)
    }
  }

  let settings: FleetSettings
  var shards: [Int: FleetShard] = [:]
  /// Streams that this host wants and `setStreams` has not set yet.
  private var awaited: Set<String> = []
  /// The number of the last batch that clients have published here.
  private var batchNumber: UInt64 = 0
  private var incoming = IncomingBatches()
  var names: [HostID: String] = [:]
  var isStarted = false

  /// - Parameters:
  ///   - hostName: for people.
  ///   - shardCount: the shards of the fleet, at least 1; the same for all hosts.
  ///   - renewalRecordCount: records after which a leader renews its claim.
  ///   - merge: returns those of the published values that the checkpoint before them does not cover, with the
  ///     checkpoint after them.
  package init(
    host: HostID, hostName: String, shardCount: Int, times: ShardMachine.Times = .init(),
    renewalRecordCount: Int = 16_384, merge: @escaping @Sendable (EventBatch, Checkpoint?) -> EventBatch
  ) {
    settings = FleetSettings(
      host: host, hostName: hostName, shardCount: max(1, shardCount), times: times,
      renewalRecordCount: renewalRecordCount, merge: merge)
  }

  package var host: HostID { settings.host }

  // MARK: Streams

  /// Sets the streams of this host.
  package func setStreams(_ new: [Stream], at now: UInt64) -> [Action] {
    var actions: [Action] = []
    let used = Dictionary(grouping: new) { shard(of: $0.name) }
    for (index, shard) in shards {
      let names = Set(used[index, default: []].map(\.name))
      for stream in shard.streams.values where !names.contains(stream.name) { actions += shard.forget(stream) }
      guard names.isEmpty else { continue }
      actions += shard.leave(at: now)
      shards[index] = nil
    }
    for (index, streams) in used {
      let known = shards[index]
      let reached = streams.compactMap(\.position).max { ($0.epoch, $0.sequence) < ($1.epoch, $1.sequence) }
      let shard = known ?? FleetShard(index, settings, reached: reached, now: now)
      shards[index] = shard
      for stream in streams { shard.set(stream) }
      if known == nil, isStarted { actions += shard.start(at: now) }
      shard.weigh()
      for stream in shard.streams.values {
        if awaited.remove(stream.name) != nil { actions += shard.want(stream, true, at: now) }
        actions += shard.settle(stream)
      }
    }
    return actions
  }

  /// This host's demand for a stream has changed. `setStreams` may set the stream later.
  package func wants(_ stream: String, _ isWanted: Bool, at now: UInt64) -> [Action] {
    if let (shard, stream) = find(stream) { return shard.want(stream, isWanted, at: now) }
    if isWanted { awaited.insert(stream) } else { awaited.remove(stream) }
    return []
  }

  /// The answer to `askInterest`; nil: none came in time, and the demand stays as it is known.
  package func learned(_ stream: String, isWanted: Bool?, at now: UInt64) -> [Action] {
    find(stream).map { $0.learn($1, isWanted: isWanted, at: now) } ?? []
  }

  /// The answer to `want`.
  package func wantArrived(_ stream: String, leader: HostID, _ hasArrived: Bool, at now: UInt64) {
    guard let (shard, stream) = find(stream), stream.isWantedHere, shard.machine.leader == leader else { return }
    stream.tellAt = hasArrived ? .max : now &+ FleetShard.repetition / 2
  }

  /// The answer to `compare`.
  package func compared(_ stream: String, with leader: HostID, _ answer: [UInt8]) {
    find(stream).map { $0.compared($1, with: leader, answer) }
  }

  /// Events of a stream that this host fetches, and the schedule of its source from now on. Without effect unless this
  /// host leads the stream's shard.
  package func fetched(
    _ events: EventBatch, of stream: String, _ schedule: FleetSchedule = .init(), at now: UInt64, wallTime: UInt64
  ) -> [Action] {
    guard let (shard, known) = find(stream), shard.isLed(known) else { return [] }
    return shard.accept(FleetRecord(stream: stream, time: wallTime, events: events, schedule: schedule), at: now)
  }

  /// The upstream of a stream that this host fetches has sent Retry-After. The next leader learns it by a record
  /// without events. If no record can be appended now, the next leader's first request gets the same answer.
  package func rests(_ stream: String, _ schedule: FleetSchedule, at now: UInt64, wallTime: UInt64) -> [Action] {
    mayFetch(stream) ? fetched([], of: stream, schedule, at: now, wallTime: wallTime) : []
  }

  /// Values that clients of this host have published. The next batch of a stream must wait for `stored`.
  package func publish(_ values: EventBatch, to stream: String, at now: UInt64, wallTime: UInt64) -> [Action] {
    guard let (shard, known) = find(stream) else { return [] }
    batchNumber += 1
    known.published = FleetRecord(stream: stream, events: values, sender: host.bytes, number: batchNumber)
    return shard.sendOut(known, at: now, wallTime: wallTime)
  }

  // MARK: Connection

  /// The engine is connected, for the first time or again.
  package func connected(at now: UInt64) -> [Action] {
    let isFirst = !isStarted
    isStarted = true
    return orderedShards.flatMap { isFirst ? $0.start(at: now) : $0.reconnected(at: now) }
  }

  /// The host is about to stop.
  package func leave(at now: UInt64) -> [Action] {
    orderedShards.flatMap { $0.submitWaiting(at: now, isLast: true) + $0.leave(at: now) }
  }

  /// The deadline has come.
  package func tick(at now: UInt64, wallTime: UInt64) -> [Action] {
    var actions: [Action] = []
    if orderedShards.contains(where: { $0.isLeading && $0.machine.deadline ?? .max <= now }) {
      let heartbeats = orderedShards.compactMap { shard in shard.machine.heartbeat(at: now).map { (shard.index, $0) } }
      if !heartbeats.isEmpty { actions.append(settings.send(heartbeats)) }
    }
    return actions + orderedShards.flatMap { $0.tick(at: now, wallTime: wallTime) }
  }

  // MARK: The engine

  package func answer(_ answer: ShardMachine.Answer, shard index: Int, at now: UInt64, wallTime: UInt64) -> [Action] {
    shards[index]?.answer(answer, at: now, wallTime: wallTime) ?? []
  }

  /// An entry of the tail.
  package func received(_ entry: [UInt8], shard index: Int, at sequence: UInt64, now: UInt64) -> [Action] {
    shards[index]?.receive(entry, at: sequence, now: now) ?? []
  }

  // MARK: Messages

  /// This host's answer to a question for its position; nil for a shard that it does not follow.
  package func positionAnswer(shard index: Int, at now: UInt64) -> [UInt8]? {
    guard let shard = shards[index] else { return nil }
    shard.machine.asked(at: now)
    return RecordFields.bytes(of: shard.position)
  }

  /// A message to `heartbeats`.
  package func heard(_ message: [UInt8], at now: UInt64) -> [Action] {
    guard let heartbeat = try? RecordFields.read(HostHeartbeat.self, from: message[...]),
      let other = HostID(heartbeat.host), other != host
    else { return [] }
    if names.count > 10_000 { names = [:] }
    names[other] = Self.shown(heartbeat.name)
    return heartbeat.shards.flatMap { shards[Int($0.shard)]?.hear($0.heartbeat, at: now) ?? [] }
  }

  /// The name of a host, as far as it is shown.
  static func shown(_ name: String) -> String { String(String.UnicodeScalarView(name.unicodeScalars.prefix(64))) }

  /// A message to this host.
  /// - Returns: the actions, and the answer; nil: none.
  package func receive(_ bytes: [UInt8], at now: UInt64, wallTime: UInt64) -> (
    actions: [Action], answer: [UInt8]?
  ) {
    guard let message = try? RecordFields.read(FleetMessage.self, from: bytes[...]), HostID(message.sender) != nil,
      message.stream.utf8.count <= FleetRecord.nameByteCount, let shard = shards[shard(of: message.stream)],
      shard.isLeading
    else { return ([], nil) }
    switch message.kind {
    case .want:
      guard let stream = shard.streams[message.stream], shard.isLed(stream) else { return ([], nil) }
      return (shard.learn(stream, isWanted: true, at: now), [])
    case .compare:
      return ([], shard.streams[message.stream].map { shard.learn(message, of: $0, at: now) })
    case .values:
      guard let bytes = incoming.assemble(message),
        let record = try? RecordFields.read(FleetRecord.self, from: bytes[...]), record.stream == message.stream,
        record.sender == message.sender, record.number == message.number
      else { return ([], nil) }
      return (shard.take(record, at: now, wallTime: wallTime), [])
    }
  }

  /// A stream of this host, with its shard.
  func find(_ name: String) -> (FleetShard, SharedStream)? {
    shards[shard(of: name)].flatMap { shard in shard.streams[name].map { (shard, $0) } }
  }
}
