import Events
import TaggedFields

/// One host's part in a fleet: its shards, and what their records mean to streams.
///
/// A stream belongs to one shard, by a hash of its name. The leader of the shard fetches the stream and turns what it
/// receives into records; all hosts, the leader included, store the events when they read the record. What a new leader
/// has to know of a stream, its head, is computed from the records by all hosts alike; claims carry the heads, so that a
/// host can begin with the newest claim.
///
/// Records that come while others are under way wait. Batches that follow each other in a stream become one record, so that
/// records are the larger the slower the engine is.
///
/// Demand: a host listens to the stream's interest subject only while it wants the next event. The leader asks there before
/// it fetches, unless it wants the event itself.
///
/// Values that clients publish: their host sends one batch of a stream at a time to the shard's leader, and again until it
/// reads a record that has it. The leader drops what is stored or under way, by the sender's numbers.
///
/// Knows no engine, clock or log. Each function returns the actions for its caller, in order. Times are nanoseconds of the
/// host's monotonic clock; wall times microseconds since the Unix epoch.
package final class FleetMachine {
  /// What the caller must do.
  package enum Action: Equatable {
    /// To be answered by `appended`.
    case append([UInt8], isClaim: Bool, shard: Int, after: UInt64, attempt: UInt64)
    /// To be answered by `read`.
    case read(shard: Int, after: UInt64)
    /// To be answered by `foundClaim`.
    case findClaim(shard: Int)
    /// Ask all hosts for their positions, and the engine for its newest entry. To be answered by `gathered`.
    case gather(shard: Int)
    /// Send a message.
    case send([UInt8], to: FleetSubject)
    /// Ask a shard's leader to fetch. To be answered by `wantArrived`.
    case want([UInt8], stream: String, leader: HostID)
    /// Ask whether any other host wants the stream. To be answered by `learned`.
    case askInterest(stream: String, shard: Int)
    /// Listen, or listen no more, to the stream's interest subject.
    case showInterest(Bool, stream: String, shard: Int)
    /// Store events under these ids, whatever the stream's demand; without events nothing but the position.
    case store(EventBatch, stream: String, firstID: UInt64, time: UInt64, position: ShardPosition)
    /// Fetch while there is demand, and pass on what arrives to `fetched`; or stop.
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
    /// A digest of what decides about its events.
    package var definition: UInt64
    package var kind: Kind
    /// Whether this host may fetch it.
    package var canLead: Bool
    /// The next id in this host's log.
    package var end: UInt64

    package init(name: String, definition: UInt64, kind: Kind, canLead: Bool, end: UInt64) {
      (self.name, self.definition, self.kind, self.canLead, self.end) = (name, definition, kind, canLead, end)
    }
  }

  final class Shard {
    var machine: ShardMachine
    var heads: [String: StreamHead] = [:]
    /// The heads after what is under way, on a leader.
    var ahead: [String: StreamHead] = [:]
    var isLeading = false
    /// The records that a leader is to submit, in order.
    var waiting: [FleetRecord] = []
    /// The bytes of what waits: fetched here, and published.
    var waitingByteCounts = (fetched: 0, published: 0)
    /// By the log, as of the last claim.
    var leader: HostID?
    /// Where this host, or an earlier process of it, has read up to. The same is read again after a gap.
    var reached: ShardPosition?
    /// The last sequence number by the leader's heartbeat.
    var leaderLast: UInt64 = 0
    /// Since the last claim.
    var recordCount = 0
    var byteCount = 0
    /// When a leader appends a sign of life, unless there is a record before.
    var signOfLifeAt: UInt64 = 0
    /// When a leader in doubt may append a sign of life, to find out whether it still leads.
    var askAt: UInt64 = 0

    init(_ machine: ShardMachine, reached: ShardPosition?) { (self.machine, self.reached) = (machine, reached) }

    /// Counts the bytes of a record that waits, or waits no more.
    func count(_ record: FleetRecord, _ sign: Int) {
      let byteCount = sign * record.byteCount
      if record.sender.isEmpty {
        waitingByteCounts.fetched += byteCount
      } else {
        waitingByteCounts.published += byteCount
      }
    }
  }

  /// A batch that clients have published here, until it is stored.
  struct Outgoing {
    var number: UInt64
    var record: FleetRecord
    var sendAgainAt: UInt64
  }

  /// A batch that arrives in parts.
  struct Incoming {
    var number: UInt64
    var nextIndex: UInt32
    var bytes: [UInt8]
  }

  struct Interest {
    /// Whether this host has it.
    var isHere = false
    /// Whether any other host has it, as far as the leader knows.
    var isElsewhere = false
    var askAgainAt = UInt64.max
    /// When the leader is asked to fetch, for the first time or again.
    var tellAt = UInt64.max
    var isFetched = false
  }

  package let host: HostID
  let hostName: String
  let shardCount: Int
  let times: ShardMachine.Times
  /// Records after which a leader claims its shard again, so that a newcomer reads no more than this.
  let renewalRecordCount: Int
  let merge: @Sendable (EventBatch, Checkpoint?) -> EventBatch
  var streams: [String: Stream] = [:]
  var shards: [Int: Shard] = [:]
  var interests: [String: Interest] = [:]
  var numbers: [String: UInt64] = [:]
  var outgoing: [String: Outgoing] = [:]
  var incoming: [[UInt8]: [String: Incoming]] = [:]
  var incomingByteCount = 0
  var names: [HostID: String] = [:]
  var isStarted = false
  /// Whether entries that are applied now were appended a moment ago.
  var isTail = false

  /// Bytes of one message, below the 1 MiB that NATS accepts by default.
  static let messageByteCount = 1 << 20 - 8192
  /// Bytes of batches that have arrived in part, of all senders together.
  static let incomingByteCount = 128 << 20
  /// Entries under way until which a record is submitted at once. A second one is on its way to the engine while the
  /// first one is stored.
  static let unjoinedCount = 2
  /// Bytes of a record until which batches are joined: one entry.
  static let joinedByteCount = 1 << 20 - 16_384
  /// Bytes of fetched batches of one shard that wait: then nothing more is fetched.
  static let fetchedByteCount = 2 << 20
  /// Bytes of published batches of one shard that wait. What exceeds them is dropped, and sent again by its host.
  static let publishedByteCount = 64 << 20
  /// Bytes of records after which a leader claims its shard again.
  static let renewalByteCount = 64 << 20
  /// A leader without records appends an empty one, which fails if it is deposed or alone.
  static let signOfLife: UInt64 = 30_000_000_000
  /// After which a message that was not answered is sent again.
  static let repetition: UInt64 = 2_000_000_000
  /// After which a leader asks again whether a stream is wanted.
  static let interestTime: UInt64 = 5_000_000_000
  /// The head of a stream without records for so long does not keep hosts from leading that have another definition.
  static let activeTime: UInt64 = 7 * 86_400_000_000
  /// Ids do not reach this: logs refuse it (`EventLog.stampedIDLimit`).
  static let idLimit: UInt64 = 1 << 61

  /// - Parameters:
  ///   - hostName: for people.
  ///   - shardCount: of the fleet, at least 1; the same for all hosts.
  ///   - renewalRecordCount: records after which a leader claims its shard again.
  ///   - merge: makes of published values and the checkpoint before them the values that are not stored yet, with their
  ///     checkpoint.
  package init(
    host: HostID, hostName: String, shardCount: Int, times: ShardMachine.Times = .init(),
    renewalRecordCount: Int = 16_384, merge: @escaping @Sendable (EventBatch, Checkpoint?) -> EventBatch
  ) {
    (self.host, self.hostName, self.shardCount, self.times) = (host, hostName, max(1, shardCount), times)
    (self.renewalRecordCount, self.merge) = (renewalRecordCount, merge)
  }

  // MARK: Streams

  /// Sets the streams of this host.
  /// - Parameter positions: for each stream what its log says of its shard.
  package func setStreams(
    _ new: [Stream], positions: [String: ShardPosition] = [:], at now: UInt64
  ) -> [Action] {
    var actions: [Action] = []
    for name in streams.keys where !new.contains(where: { $0.name == name }) { actions += forget(name) }
    let added = new.filter { streams[$0.name] == nil }
    streams = Dictionary(new.map { ($0.name, $0) }) { first, _ in first }
    let used = Dictionary(grouping: new) { shard(of: $0.name) }
    for index in shards.keys where used[index] == nil {
      actions += perform(shards[index]?.machine.leave() ?? [], on: index, at: now)
      shards[index] = nil
    }
    for (index, streams) in used {
      if shards[index] == nil {
        let position = streams.compactMap { positions[$0.name] }.max {
          ($0.epoch, $0.sequence) < ($1.epoch, $1.sequence)
        }
        shards[index] = Shard(
          ShardMachine(host: host, weight: weight(of: index), canLead: false, times: times, now: now), reached: position
        )
        if isStarted { actions += startShard(index, at: now) }
      }
      weigh(index)
    }
    for stream in added where interests[stream.name]?.isHere == true { actions += show(stream.name, at: now) }
    for name in streams.keys { actions += settle(name, at: now) }
    return actions
  }

  func forget(_ name: String) -> [Action] {
    var actions: [Action] = []
    if let interest = interests.removeValue(forKey: name) {
      if interest.isFetched { actions.append(.fetch(false, stream: name)) }
      if interest.isHere { actions.append(.showInterest(false, stream: name, shard: shard(of: name))) }
    }
    outgoing[name] = nil
    return actions
  }

  /// Decides whether this host may claim the shard, and whether others should do so first.
  func weigh(_ index: Int) {
    let own = streams.values.filter { shard(of: $0.name) == index }
    shards[index]?.machine.canLead = own.contains { $0.canLead }
    let newest = shards[index]?.heads.values.map(\.time).max() ?? 0
    let isOther = shards[index]?.heads.values.contains { head in
      guard newest - head.time < Self.activeTime, head.definition != 0 else { return false }
      guard let stream = streams[head.stream] else { return true }
      return !stream.canLead || stream.definition != head.definition
    }
    shards[index]?.machine.claimDelay = isOther == true ? times.lease + times.leaseSpread : 0
  }

  // MARK: Connection

  /// The connection to the engine is there, for the first time or again.
  package func connected(at now: UInt64) -> [Action] {
    var actions: [Action] = []
    if isStarted {
      for index in shardIndices { actions += perform(shards[index]?.machine.reconnected() ?? [], on: index, at: now) }
      return actions
    }
    isStarted = true
    for index in shardIndices { actions += startShard(index, at: now) }
    return actions
  }

  func startShard(_ index: Int, at now: UInt64) -> [Action] {
    perform(shards[index]?.machine.start(resumingAt: shards[index]?.reached) ?? [], on: index, at: now)
  }

  /// The host is about to stop.
  package func leave(at now: UInt64) -> [Action] {
    shardIndices.flatMap { index in
      submitWaiting(index, at: now, isLast: true) + perform(shards[index]?.machine.leave() ?? [], on: index, at: now)
    }
  }

  /// The deadline has come.
  package func tick(at now: UInt64, wallTime: UInt64) -> [Action] {
    var actions: [Action] = []
    let isBeating = shards.values.contains { $0.isLeading && $0.machine.deadline ?? .max <= now }
    if isBeating {
      let heartbeats = shardIndices.compactMap { index in
        shards[index]?.machine.heartbeat(at: now).map { (index, $0) }
      }
      if !heartbeats.isEmpty { actions.append(send(heartbeats)) }
    }
    for index in shardIndices {
      actions += proceed(shards[index]?.machine.tick(at: now) ?? [], on: index, at: now)
    }
    for (name, interest) in interests {
      if interest.askAgainAt <= now { actions += askAgain(name, at: now) }
      if interest.tellAt <= now { actions += tell(name, at: now) }
    }
    for (name, batch) in outgoing where batch.sendAgainAt <= now {
      actions += sendOut(name, at: now, wallTime: wallTime)
    }
    return actions
  }

  func send(_ heartbeats: [(Int, ShardMachine.Heartbeat)]) -> Action {
    var message = HostHeartbeat(host: host.bytes, name: hostName)
    message.shards = heartbeats.map { index, heartbeat in
      HostHeartbeat.Shard(
        shard: UInt32(clamping: index), epoch: heartbeat.epoch, term: heartbeat.term, last: heartbeat.last,
        isLast: heartbeat.isLast)
    }
    return .send(RecordFields.bytes(of: message), to: .heartbeats)
  }

  /// Renews a leader's claim, or appends a sign of life, if it is time or nothing else tells whether the host still leads.
  func keepUp(_ index: Int, at now: UInt64) -> [Action] {
    guard let shard = shards[index], shard.isLeading else { return [] }
    let isDue = now >= shard.signOfLifeAt
    if isDue { shard.signOfLifeAt = now &+ Self.repetition }
    guard shard.machine.isSettled, shard.machine.maySubmit else { return [] }
    if mustRenew(shard) {
      let heads = ShardHeads(Array(shard.heads.values)).bytes()
      return perform(shard.machine.renew(heads: heads, at: now), on: index, at: now)
    }
    let isAsked = shard.machine.isInDoubt && shard.waiting.isEmpty && now >= shard.askAt
    guard isDue || isAsked else { return [] }
    shard.askAt = now &+ Self.repetition  // its acknowledgement may be late, or lost
    return perform(shard.machine.submit([], at: now), on: index, at: now)
  }

  /// Whether it is time for a claim. Records wait for it, but need not wait until it is stored.
  func mustRenew(_ shard: Shard) -> Bool {
    (shard.recordCount >= renewalRecordCount || shard.byteCount >= Self.renewalByteCount) && !shard.machine.isClaiming
  }

  // MARK: The engine's answers

  package func appended(
    shard index: Int, attempt: UInt64, _ result: ShardMachine.AppendResult, at now: UInt64
  ) -> [Action] {
    proceed(shards[index]?.machine.appended(attempt: attempt, result, at: now) ?? [], on: index, at: now)
  }

  /// - Parameter answer: nil after a failure.
  package func read(shard index: Int, after: UInt64, _ answer: FleetEntries?, at now: UInt64) -> [Action] {
    guard let answer else { return failed(index, at: now) }
    return proceed(
      shards[index]?.machine.read(
        after: after, answer.entries, first: answer.first, last: answer.last, at: now) ?? [], on: index, at: now)
  }

  /// - Parameter answer: nil after a failure.
  package func foundClaim(shard index: Int, _ answer: FleetClaim?, at now: UInt64) -> [Action] {
    let actions: [ShardMachine.Action]?
    switch answer {
    case .found(let bytes, let sequence):
      actions = shards[index]?.machine.foundClaim(bytes, at: sequence, now: now)
    case .some(.none(let last)): actions = shards[index]?.machine.foundNoClaim(last: last, at: now)
    case nil: return failed(index, at: now)
    }
    return perform(actions ?? [], on: index, at: now)
  }

  /// An entry of the tail.
  package func received(_ entry: [UInt8], shard index: Int, at sequence: UInt64, now: UInt64) -> [Action] {
    isTail = true
    defer { isTail = false }
    return proceed(shards[index]?.machine.receive(entry, at: sequence, now: now) ?? [], on: index, at: now)
  }

  /// - Parameters:
  ///   - answers: of the hosts; nil after a failure. Others than this host's may be missing.
  ///   - newest: nil after a failure.
  package func gathered(
    shard index: Int, _ answers: [[UInt8]]?, _ newest: FleetNewest?, at now: UInt64, wallTime: UInt64
  ) -> [Action] {
    guard let shard = shards[index], let answers, let newest else { return failed(index, at: now) }
    var positions = answers.compactMap { try? RecordFields.read(HostPosition.self, from: $0[...]) }
    positions.removeAll {
      [$0.epoch, $0.sequence, $0.endID, $0.lostEpoch, $0.lostSequence].contains { $0 >= Self.idLimit }
    }
    positions.append(position(in: index))
    let epoch = positions.map(\.epoch).max() ?? 0
    let end = positions.map(\.endID).max() ?? 0
    let lost = positions.map { (epoch: $0.lostEpoch, sequence: $0.lostSequence) }.max(by: <) ?? (0, 0)
    var heads = shard.heads
    for stream in streams.values where self.shard(of: stream.name) == index {
      heads[stream.name, default: StreamHead(stream: stream.name, nextID: wallTime)].nextID.raise(to: stream.end)
    }
    let present = ShardHeads(Array(heads.values)).bytes()
    for name in heads.keys { heads[name]?.nextID.raise(to: max(end, min(wallTime, Self.idLimit - 1))) }
    return perform(
      shards[index]?.machine.gathered(
        ShardMachine.Gathered(
          epoch: epoch, sequence: positions.filter { $0.epoch == epoch }.map(\.sequence).max() ?? 0, lost: lost,
          heads: present, newHeads: ShardHeads(Array(heads.values)).bytes(), last: newest.last, lastEntry: newest.entry),
        at: now)
        ?? [],
      on: index, at: now)
  }

  /// This host's answer to a question for its position; nil for a shard that it does not follow.
  package func positionAnswer(shard index: Int) -> [UInt8]? {
    shards[index] == nil ? nil : RecordFields.bytes(of: position(in: index))
  }

  func position(in index: Int) -> HostPosition {
    let machine = shards[index]?.machine
    let own = streams.values.filter { shard(of: $0.name) == index }.map(\.end).max() ?? 0
    let heads = shards[index]?.heads.values.map(\.nextID).max() ?? 0
    let lost = machine?.lost ?? (epoch: 0, sequence: 0)
    return HostPosition(
      epoch: machine?.epoch ?? 0, sequence: machine?.lastSequence ?? 0, endID: min(max(own, heads), Self.idLimit - 1),
      lostEpoch: lost.epoch, lostSequence: lost.sequence)
  }

  /// A message to `heartbeats`.
  package func heard(_ message: [UInt8], at now: UInt64) -> [Action] {
    guard let heartbeat = try? RecordFields.read(HostHeartbeat.self, from: message[...]),
      let other = HostID(heartbeat.host), other != host
    else { return [] }
    if names.count > 10_000 { names = [:] }
    names[other] = String(String.UnicodeScalarView(heartbeat.name.unicodeScalars.prefix(64)))
    var actions: [Action] = []
    for shard in heartbeat.shards {
      let index = Int(shard.shard)
      guard shards[index] != nil else { continue }
      if shard.term >= shards[index]?.machine.term ?? 0 { shards[index]?.leaderLast = min(shard.last, Self.idLimit) }
      let heartbeat = ShardMachine.Heartbeat(
        host: other, epoch: shard.epoch, term: shard.term, last: shard.last, isLast: shard.isLast)
      actions += perform(shards[index]?.machine.hear(heartbeat, at: now) ?? [], on: index, at: now)
    }
    return actions
  }

  func failed(_ index: Int, at now: UInt64) -> [Action] {
    perform(shards[index]?.machine.readFailed(at: now) ?? [], on: index, at: now)
  }

  // MARK: Actions of a shard

  /// Performs actions that may have made room, and uses it.
  func proceed(_ actions: [ShardMachine.Action], on index: Int, at now: UInt64) -> [Action] {
    perform(actions, on: index, at: now) + keepUp(index, at: now) + submitWaiting(index, at: now)
  }

  func perform(_ actions: [ShardMachine.Action], on index: Int, at now: UInt64) -> [Action] {
    var result: [Action] = []
    for action in actions {
      switch action {
      case .append(let bytes, let after, let attempt):
        let isClaim = if case .claim = (try? ShardEntry(bytes))?.content { true } else { false }
        result.append(.append(bytes, isClaim: isClaim, shard: index, after: after, attempt: attempt))
      case .read(let after): result.append(.read(shard: index, after: after))
      case .findClaim: result.append(.findClaim(shard: index))
      case .gather: result.append(.gather(shard: index))
      case .adopt(let heads, let isGap): result += adopt(heads, isGap: isGap, by: index, at: now)
      case .apply(let record, let position): result += apply(record, at: position, by: index, now: now)
      case .lead(let term): result += lead(index, term: term, at: now)
      case .resign: result += resign(index, at: now)
      case .beat(let heartbeat): result.append(send([(index, heartbeat)]))
      case .ignore: break
      case .stop: result.append(.report(.newerVersion(shard: index)))
      }
    }
    return result
  }

  func adopt(_ bytes: [UInt8], isGap: Bool, by index: Int, at now: UInt64) -> [Action] {
    guard let heads = try? ShardHeads(bytes) else { return [.report(.damaged(shard: index))] }
    let former = shards[index]?.heads ?? [:]
    shards[index]?.heads = Dictionary(
      heads.heads.map { head in
        var head = head
        if let last = former[head.stream], last.scheduledAt == head.scheduledAt { head.heardAt = last.heardAt }
        return (head.stream, head)
      }
    ) { first, _ in first }
    // Records of this host may follow its renewed claim.
    if shards[index]?.machine.isSettled == true { shards[index]?.ahead = [:] }
    shards[index]?.recordCount = 0
    shards[index]?.byteCount = 0
    shards[index]?.signOfLifeAt = now &+ Self.signOfLife
    weigh(index)
    var actions: [Action] = isGap ? [.report(.missed(shard: index))] : []
    for head in heads.heads {
      if let last = former[head.stream], last.nextID < head.nextID { actions.append(.report(.newEpoch(head.stream))) }
      actions += confirm(head.stream)
    }
    // A new leader does not know who waits, nor what was sent to the former one.
    let leader = shards[index]?.machine.leader
    guard shards[index]?.leader != leader else { return actions }
    shards[index]?.leader = leader
    for name in streams.keys where shard(of: name) == index {
      if interests[name]?.isHere == true { interests[name]?.tellAt = now }
      if outgoing[name] != nil { outgoing[name]?.sendAgainAt = now }
    }
    return actions
  }

  func apply(_ bytes: [UInt8], at position: ShardPosition, by index: Int, now: UInt64) -> [Action] {
    shards[index]?.signOfLifeAt = now &+ Self.signOfLife
    shards[index]?.recordCount += 1
    shards[index]?.byteCount += bytes.count
    defer { if shards[index]?.machine.isSettled == true { shards[index]?.ahead = [:] } }
    guard !bytes.isEmpty else { return [] }
    let record: FleetRecord
    do throws(Malformed) {
      record = try RecordFields.read(FleetRecord.self, from: bytes[...])
    } catch {
      return [.report(.damaged(shard: index))]
    }
    let count = UInt64(record.events.count)
    guard shard(of: record.stream) == index, record.firstID < Self.idLimit - count else {
      return [.report(.damaged(shard: index))]
    }
    var head = shards[index]?.heads[record.stream] ?? StreamHead(stream: record.stream)
    // Ids only rise: what is below was stored before.
    guard count == 0 || record.firstID >= head.nextID else { return [.report(.damaged(shard: index))] }
    if count > 0 { head.nextID = record.firstID + count }
    let isOther = head.definition != record.definition
    head.definition = record.definition
    // What has neither is the wish of a server, not a batch.
    if count > 0 || record.events.checkpoint != nil { head.time = record.time }
    (head.schedule, head.scheduledAt, head.heardAt) = (record.schedule, record.time, isTail ? now : nil)
    head.checkpoint = record.events.checkpoint ?? head.checkpoint
    if !record.sender.isEmpty { head.note(record.sender, number: record.number) }
    shards[index]?.heads[record.stream] = head
    if isOther { weigh(index) }
    var actions: [Action] = []
    if let stream = streams[record.stream] {
      // What was read before is stored, unless this host's log has lost it.
      let reached = shards[index]?.reached
      let wasRead = reached.map { (position.epoch, position.sequence) <= ($0.epoch, $0.sequence) } ?? false
      let newest = wasRead ? reached ?? position : position
      shards[index]?.reached = newest
      if count > 0, record.firstID < stream.end, !wasRead { actions.append(.report(.conflict(record.stream))) }
      streams[record.stream]?.end.raise(to: head.nextID)
      if !wasRead || head.nextID > stream.end {
        actions.append(
          .store(
            record.events, stream: record.stream, firstID: record.firstID, time: record.time,
            position: newest))
      }
    }
    return actions + confirm(record.stream)
  }

  func lead(_ index: Int, term: UInt64, at now: UInt64) -> [Action] {
    let wasLeading = shards[index]?.isLeading == true
    shards[index]?.isLeading = true
    guard !wasLeading else { return [] }
    var actions: [Action] = [.report(.leads(shard: index, term: term))]
    for stream in streams.values where shard(of: stream.name) == index {
      guard isLed(stream.name) else { continue }
      actions += settle(stream.name, at: now)
      if interests[stream.name]?.isHere != true { actions += askAgain(stream.name, at: now) }
    }
    return actions
  }

  func resign(_ index: Int, at now: UInt64) -> [Action] {
    shards[index]?.isLeading = false
    shards[index]?.ahead = [:]
    shards[index]?.waiting = []
    shards[index]?.waitingByteCounts = (0, 0)
    var actions: [Action] = [.report(.follows(shard: index))]
    for name in streams.keys where shard(of: name) == index {
      interests[name]?.isElsewhere = false
      interests[name]?.askAgainAt = .max
      actions += settle(name, at: now)
    }
    return actions
  }

  // MARK: Hashing

  /// The weight of this host for a shard, 0..<1. Source: rendezvous hashing (Thaler, Ravishankar 1998).
  func weight(of shard: Int) -> Double {
    Double(Self.hash(host.bytes + [UInt8(truncatingIfNeeded: shard), UInt8(truncatingIfNeeded: shard >> 8)]) >> 11)
      / Double(1 << 53)
  }

  /// FNV-1a with a finalizer (SplitMix64's), because its upper bits depend little on the last bytes.
  static func hash(_ bytes: some Sequence<UInt8>) -> UInt64 {
    var hash = bytes.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01b3 }
    hash = (hash ^ hash >> 30) &* 0xbf58_476d_1ce4_e5b9
    hash = (hash ^ hash >> 27) &* 0x94d0_49bb_1331_11eb
    return hash ^ hash >> 31
  }
}

extension UInt64 {
  mutating func raise(to other: UInt64) { self = Swift.max(self, other) }
}
