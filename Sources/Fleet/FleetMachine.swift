import Events
import StateFormat

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

  /// The state of a stream in the fleet.
  package struct Status: Equatable, Sendable {
    package var isLeading: Bool
    /// The leader's name, or its number if that is not known; nil without a leader.
    package var leader: String?
    package var term: UInt64
    package var epoch: UInt64
    /// Entries of the shard that this host has not read.
    package var lag: UInt64
    /// Since when it is not known whether this host has all events, on the monotonic clock; nil: it has.
    package var staleSince: UInt64?
  }

  private final class Shard {
    var machine: ShardMachine
    var heads: [String: StreamHead] = [:]
    /// Of a leader: the heads after what is under way.
    var ahead: [String: StreamHead] = [:]
    var isLeading = false
    /// Of a leader: what is to be submitted, in order.
    var waiting: [FleetRecord] = []
    /// Of those, what was fetched here, and what was published.
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
  private struct Outgoing {
    var number: UInt64
    var record: FleetRecord
    var sendAgainAt: UInt64
  }

  /// A batch that arrives in parts.
  private struct Incoming {
    var number: UInt64
    var nextIndex: UInt32
    var bytes: [UInt8]
  }

  private struct Interest {
    /// Of this host.
    var isHere = false
    /// Of any other host, as far as the leader knows.
    var isElsewhere = false
    var askAgainAt = UInt64.max
    /// When the leader is asked to fetch, for the first time or again.
    var tellAt = UInt64.max
    var isFetched = false
  }

  package let host: HostID
  private let hostName: String
  private let shardCount: Int
  private let times: ShardMachine.Times
  /// Records after which a leader claims its shard again, so that a newcomer reads no more than this.
  private let renewalRecordCount: Int
  private let merge: @Sendable (EventBatch, Checkpoint?) -> EventBatch
  private var streams: [String: Stream] = [:]
  private var shards: [Int: Shard] = [:]
  private var interests: [String: Interest] = [:]
  private var numbers: [String: UInt64] = [:]
  private var outgoing: [String: Outgoing] = [:]
  private var incoming: [[UInt8]: [String: Incoming]] = [:]
  private var incomingByteCount = 0
  private var names: [HostID: String] = [:]
  private var isStarted = false
  /// Whether entries that are applied now were appended a moment ago.
  private var isTail = false

  /// Bytes of one message, below the 1 MiB that NATS accepts by default.
  private static let messageByteCount = 1 << 20 - 8192
  /// Bytes of batches that have arrived in part, of all senders together.
  private static let incomingByteCount = 128 << 20
  /// Entries under way until which a record is submitted at once. A second one is on its way to the engine while the
  /// first one is stored.
  private static let unjoinedCount = 2
  /// Bytes of a record until which batches are joined: one entry.
  private static let joinedByteCount = 1 << 20 - 16_384
  /// Bytes of fetched batches of one shard that wait: then nothing more is fetched.
  private static let fetchedByteCount = 2 << 20
  /// Bytes of published batches of one shard that wait. What exceeds them is dropped, and sent again by its host.
  private static let publishedByteCount = 64 << 20
  /// Bytes of records after which a leader claims its shard again.
  private static let renewalByteCount = 64 << 20
  /// A leader without records appends an empty one, which fails if it is deposed or alone.
  private static let signOfLife: UInt64 = 30_000_000_000
  /// After which a message that was not answered is sent again.
  private static let repetition: UInt64 = 2_000_000_000
  /// After which a leader asks again whether a stream is wanted.
  private static let interestTime: UInt64 = 5_000_000_000
  /// The head of a stream without records for so long does not keep hosts from leading that have another definition.
  private static let activeTime: UInt64 = 7 * 86_400_000_000
  /// Ids do not reach this: logs refuse it (`EventLog.stampedIDLimit`).
  private static let idLimit: UInt64 = 1 << 61

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

  // MARK: What holds now

  /// The shard of a stream. The same in all versions.
  package func shard(of stream: String) -> Int { Int(Self.hash(stream.utf8) % UInt64(shardCount)) }

  /// The shards that have a stream of this host.
  package var shardIndices: [Int] { shards.keys.sorted() }

  /// Whether the stream's source may be asked for a batch now.
  package func mayFetch(_ stream: String) -> Bool {
    guard isLed(stream), let shard = shards[shard(of: stream)] else { return false }
    return shard.machine.mayFetch && shard.waitingByteCounts.fetched < Self.fetchedByteCount
  }

  /// Decides about a poll that is due: whether it is made; nil: if another host wants the event.
  ///
  /// A poll continues after responses without an event. Each fetch is decided anew, because the log may have stopped to
  /// append since the event was requested.
  package func admitsFetch(_ stream: String) -> Bool? {
    guard mayFetch(stream) else { return false }
    return isWantedHere(stream) ? true : nil
  }

  /// Whether this host leads the stream's shard, and fetches the stream.
  package func isLeading(_ stream: String) -> Bool { isLed(stream) }

  /// Whether the stream's source was asked for events by the last `fetch`.
  package func isFetched(_ stream: String) -> Bool { interests[stream]?.isFetched == true }

  /// Whether this host wants the stream's next event.
  package func isWantedHere(_ stream: String) -> Bool { interests[stream]?.isHere == true }

  /// Where the stream's source resumes.
  package func checkpoint(of stream: String) -> Checkpoint? { shards[shard(of: stream)]?.heads[stream]?.checkpoint }

  /// When the leader took the stream's last batch in, by its clock; microseconds since the Unix epoch; nil: unknown.
  package func lastTime(of stream: String) -> UInt64? {
    shards[shard(of: stream)]?.heads[stream].flatMap { $0.time > 0 ? $0.time : nil }
  }

  /// What is left of the schedule in the stream's last record.
  ///
  /// By this host's monotonic clock if it has received the record when it was appended. Otherwise by the wall clocks, which
  /// may differ; then it waits for no longer than the record says. Nothing of another definition's schedule is left.
  package func schedule(of stream: String, at now: UInt64, wallTime: UInt64) -> FleetSchedule {
    guard let head = shards[shard(of: stream)]?.heads[stream], head.definition == streams[stream]?.definition else {
      return FleetSchedule()
    }
    let age = head.heardAt.map { (now - min(now, $0)) / 1000 } ?? (wallTime - min(wallTime, head.scheduledAt))
    return head.schedule.after(age)
  }

  /// - Returns: nil for a stream that is not of this host.
  package func status(of stream: String, at now: UInt64) -> Status? {
    guard streams[stream] != nil, let shard = shards[shard(of: stream)] else { return nil }
    let machine = shard.machine
    return Status(
      isLeading: shard.isLeading, leader: machine.leader.map { $0 == host ? hostName : names[$0] ?? "\($0)" },
      term: machine.term ?? 0, epoch: machine.epoch ?? 0,
      lag: shard.isLeading ? 0 : shard.leaderLast - min(shard.leaderLast, machine.lastSequence ?? 0),
      staleSince: isStarted ? machine.staleSince(at: now) : 0)
  }

  /// When `tick` is due; nil: never.
  package var deadline: UInt64? {
    var deadline = UInt64.max
    for shard in shards.values {
      deadline = min(deadline, shard.machine.deadline ?? .max)
      if shard.isLeading { deadline = min(deadline, shard.signOfLifeAt) }
    }
    for interest in interests.values { deadline = min(deadline, interest.askAgainAt, interest.tellAt) }
    for batch in outgoing.values { deadline = min(deadline, batch.sendAgainAt) }
    return deadline == .max || !isStarted ? nil : deadline
  }

  private func isLed(_ stream: String) -> Bool {
    guard let known = streams[stream], known.canLead, known.kind != .publish else { return false }
    return shards[shard(of: stream)]?.isLeading == true
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

  private func forget(_ name: String) -> [Action] {
    var actions: [Action] = []
    if let interest = interests.removeValue(forKey: name) {
      if interest.isFetched { actions.append(.fetch(false, stream: name)) }
      if interest.isHere { actions.append(.showInterest(false, stream: name, shard: shard(of: name))) }
    }
    outgoing[name] = nil
    return actions
  }

  /// Decides whether this host may claim the shard, and whether others should do so first.
  private func weigh(_ index: Int) {
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

  private func startShard(_ index: Int, at now: UInt64) -> [Action] {
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

  private func send(_ heartbeats: [(Int, ShardMachine.Heartbeat)]) -> Action {
    var message = HostHeartbeat(host: host.bytes, name: hostName)
    message.shards = heartbeats.map { index, heartbeat in
      HostHeartbeat.Shard(
        shard: UInt32(clamping: index), epoch: heartbeat.epoch, term: heartbeat.term, last: heartbeat.last,
        isLast: heartbeat.isLast)
    }
    return .send(StateFields.bytes(of: message), to: .heartbeats)
  }

  /// Renews a leader's claim, or appends a sign of life, if it is time or nothing else tells whether the host still leads.
  private func keepUp(_ index: Int, at now: UInt64) -> [Action] {
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
  private func mustRenew(_ shard: Shard) -> Bool {
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
    var positions = answers.compactMap { try? StateFields.read(HostPosition.self, from: $0[...]) }
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
    shards[index] == nil ? nil : StateFields.bytes(of: position(in: index))
  }

  private func position(in index: Int) -> HostPosition {
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
    guard let heartbeat = try? StateFields.read(HostHeartbeat.self, from: message[...]),
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

  private func failed(_ index: Int, at now: UInt64) -> [Action] {
    perform(shards[index]?.machine.readFailed(at: now) ?? [], on: index, at: now)
  }

  // MARK: Actions of a shard

  /// Performs actions that may have made room, and uses it.
  private func proceed(_ actions: [ShardMachine.Action], on index: Int, at now: UInt64) -> [Action] {
    perform(actions, on: index, at: now) + keepUp(index, at: now) + submitWaiting(index, at: now)
  }

  private func perform(_ actions: [ShardMachine.Action], on index: Int, at now: UInt64) -> [Action] {
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

  private func adopt(_ bytes: [UInt8], isGap: Bool, by index: Int, at now: UInt64) -> [Action] {
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

  private func apply(_ bytes: [UInt8], at position: ShardPosition, by index: Int, now: UInt64) -> [Action] {
    shards[index]?.signOfLifeAt = now &+ Self.signOfLife
    shards[index]?.recordCount += 1
    shards[index]?.byteCount += bytes.count
    defer { if shards[index]?.machine.isSettled == true { shards[index]?.ahead = [:] } }
    guard !bytes.isEmpty else { return [] }
    let record: FleetRecord
    do throws(Malformed) {
      record = try StateFields.read(FleetRecord.self, from: bytes[...])
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

  private func lead(_ index: Int, term: UInt64, at now: UInt64) -> [Action] {
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

  private func resign(_ index: Int, at now: UInt64) -> [Action] {
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

  // MARK: Demand

  /// This host's demand for a stream has changed; also of a stream that `setStreams` will bring.
  package func wants(_ stream: String, _ isWanted: Bool, at now: UInt64) -> [Action] {
    guard interests[stream]?.isHere ?? false != isWanted else { return [] }
    interests[stream, default: Interest()].isHere = isWanted
    guard streams[stream] != nil else {
      if !isWanted { interests[stream] = nil }
      return []
    }
    return show(stream, at: now)
  }

  /// Shows other hosts that this one wants the stream, or does no more.
  private func show(_ stream: String, at now: UInt64) -> [Action] {
    let isWanted = isWantedHere(stream)
    let show = Action.showInterest(isWanted, stream: stream, shard: shard(of: stream))
    interests[stream]?.tellAt = .max
    // The demand of others is not known while this host asks none.
    let ask = !isWanted && isLed(stream) ? askAgain(stream, at: now) : []
    return [show] + settle(stream, at: now) + ask + (isWanted ? tell(stream, at: now) : [])
  }

  /// The answer to `askInterest`; nil: none, and nothing is known.
  package func learned(_ stream: String, isWanted: Bool?, at now: UInt64) -> [Action] {
    guard isLed(stream) else { return [] }
    if let isWanted { interests[stream, default: Interest()].isElsewhere = isWanted }
    let isOn = interests[stream]?.isElsewhere == true
    let asksAgain = isWanted == nil || isOn && streams[stream]?.kind == .continuous
    interests[stream, default: Interest()].askAgainAt = asksAgain ? now &+ Self.interestTime : .max
    return settle(stream, at: now)
  }

  /// The answer to `want`.
  package func wantArrived(_ stream: String, leader: HostID, _ hasArrived: Bool, at now: UInt64) {
    guard interests[stream]?.isHere == true, shards[shard(of: stream)]?.machine.leader == leader else { return }
    interests[stream]?.tellAt = hasArrived ? .max : now &+ Self.repetition / 2
  }

  private func askAgain(_ stream: String, at now: UInt64) -> [Action] {
    guard isLed(stream), interests[stream]?.isHere != true else {
      interests[stream]?.askAgainAt = .max
      return []
    }
    interests[stream, default: Interest()].askAgainAt = now &+ Self.interestTime
    return [.askInterest(stream: stream, shard: shard(of: stream))]
  }

  /// Lets the shard's leader know that this host wants the stream.
  private func tell(_ stream: String, at now: UInt64) -> [Action] {
    interests[stream]?.tellAt = .max
    guard interests[stream]?.isHere == true, streams[stream]?.kind != .publish else { return [] }
    guard let leader = shards[shard(of: stream)]?.machine.leader else {
      interests[stream]?.tellAt = now &+ Self.repetition
      return []
    }
    guard leader != host else { return [] }
    interests[stream]?.tellAt = now &+ Self.repetition
    let message = FleetMessage(kind: .want, sender: host.bytes, stream: stream)
    return [.want(StateFields.bytes(of: message), stream: stream, leader: leader)]
  }

  /// Begins or ends to fetch, as the leader's knowledge of the demand requires.
  private func settle(_ stream: String, at now: UInt64) -> [Action] {
    let interest = interests[stream] ?? Interest()
    let isFetched = isLed(stream) && (interest.isHere || interest.isElsewhere)
    guard isFetched != interest.isFetched else { return [] }
    interests[stream, default: Interest()].isFetched = isFetched
    return [.fetch(isFetched, stream: stream)]
  }

  // MARK: Records

  /// Events of a stream that this host fetches, and the schedule of its source from now on. Only while `mayFetch`.
  package func fetched(
    _ events: EventBatch, of stream: String, _ schedule: FleetSchedule = .init(), at now: UInt64, wallTime: UInt64
  ) -> [Action] {
    guard isLed(stream) else { return [] }
    return accept(FleetRecord(stream: stream, time: wallTime, events: events, schedule: schedule), at: now)
  }

  /// The server of a stream that this host fetches has asked for no request, from now on. The next leader learns it by a
  /// record without events; if none can be appended now, its first request gets the same answer.
  package func rests(_ stream: String, _ schedule: FleetSchedule, at now: UInt64, wallTime: UInt64) -> [Action] {
    mayFetch(stream) ? fetched([], of: stream, schedule, at: now, wallTime: wallTime) : []
  }

  /// Values that clients have published here. One batch of a stream at a time, until `stored`.
  package func publish(_ values: EventBatch, to stream: String, at now: UInt64, wallTime: UInt64) -> [Action] {
    let number = numbers[stream, default: 0] + 1
    numbers[stream] = number
    outgoing[stream] = Outgoing(
      number: number,
      record: FleetRecord(stream: stream, events: values, sender: host.bytes, number: number), sendAgainAt: .max)
    return sendOut(stream, at: now, wallTime: wallTime)
  }

  private func sendOut(_ stream: String, at now: UInt64, wallTime: UInt64) -> [Action] {
    guard let batch = outgoing[stream], let shard = shards[shard(of: stream)] else { return [] }
    outgoing[stream]?.sendAgainAt = now &+ Self.repetition
    if shard.isLeading { return take(batch.record, at: now, wallTime: wallTime) }
    guard let leader = shard.machine.leader else { return [] }
    let bytes = StateFields.bytes(of: batch.record)
    return stride(from: 0, to: bytes.count, by: Self.messageByteCount).enumerated().map { index, start in
      let end = min(bytes.count, start + Self.messageByteCount)
      let message = FleetMessage(
        kind: .values, sender: host.bytes, stream: stream, number: batch.number, index: UInt32(clamping: index),
        isLast: end == bytes.count, bytes: Array(bytes[start..<end]))
      return .send(StateFields.bytes(of: message), to: .host(leader))
    }
  }

  /// A message to this host.
  /// - Returns: what the caller must do, and whether the message is answered.
  package func receive(_ bytes: [UInt8], at now: UInt64, wallTime: UInt64) -> (
    actions: [Action], isKnown: Bool
  ) {
    guard let message = try? StateFields.read(FleetMessage.self, from: bytes[...]), HostID(message.sender) != nil,
      message.stream.utf8.count <= FleetRecord.nameByteCount, shards[shard(of: message.stream)]?.isLeading == true
    else { return ([], false) }
    switch message.kind {
    case .want:
      guard isLed(message.stream) else { return ([], false) }
      return (learned(message.stream, isWanted: true, at: now), true)
    case .values:
      guard let bytes = assemble(message),
        let record = try? StateFields.read(FleetRecord.self, from: bytes[...]), record.stream == message.stream,
        record.sender == message.sender, record.number == message.number
      else { return ([], false) }
      return (take(record, at: now, wallTime: wallTime), true)
    }
  }

  /// - Returns: the whole batch with its last part. A part out of order ends the batch: it is sent again.
  private func assemble(_ message: FleetMessage) -> [UInt8]? {
    if message.index == 0, message.isLast { return message.bytes }
    var former = incoming[message.sender]?.removeValue(forKey: message.stream)
    incomingByteCount -= former?.bytes.count ?? 0
    if message.index == 0 { former = Incoming(number: message.number, nextIndex: 0, bytes: []) }
    if incoming[message.sender]?.isEmpty == true { incoming[message.sender] = nil }
    guard var batch = former, batch.number == message.number, batch.nextIndex == message.index,
      incomingByteCount + batch.bytes.count + message.bytes.count <= Self.incomingByteCount
    else { return nil }
    batch.bytes += message.bytes
    batch.nextIndex += 1
    guard !message.isLast else { return batch.bytes }
    incomingByteCount += batch.bytes.count
    incoming[message.sender, default: [:]][message.stream] = batch
    return nil
  }

  /// Appends a batch of published values, unless it is stored or under way.
  private func take(_ record: FleetRecord, at now: UInt64, wallTime: UInt64) -> [Action] {
    guard let shard = shards[shard(of: record.stream)], shard.isLeading else { return [] }
    let head = shard.ahead[record.stream] ?? shard.heads[record.stream]
    guard record.number > head?.number(of: record.sender) ?? 0,
      !shard.waiting.contains(where: { ($0.sender, $0.stream) == (record.sender, record.stream) }),
      shard.waitingByteCounts.published + record.byteCount <= Self.publishedByteCount
    else { return [] }
    var record = record
    record.time = wallTime
    return accept(record, at: now)
  }

  /// Submits a record as soon as there is room for it.
  private func accept(_ record: FleetRecord, at now: UInt64) -> [Action] {
    let index = shard(of: record.stream)
    guard let shard = shards[index] else { return [] }
    if let last = shard.waiting.lastIndex(where: { $0.stream == record.stream }), record.sender.isEmpty,
      shard.waiting[last].byteCount + record.byteCount <= Self.joinedByteCount
    {
      shard.count(shard.waiting[last], -1)
      shard.waiting[last].events.append(contentsOf: record.events)
      (shard.waiting[last].time, shard.waiting[last].schedule) = (record.time, record.schedule)
      shard.count(shard.waiting[last], 1)
    } else {
      shard.waiting.append(record)
      shard.count(record, 1)
    }
    return submitWaiting(index, at: now)
  }

  /// Submits what waits, as far as there is room, and not before a claim that is due.
  /// - Parameter isLast: whether the host is about to stop.
  private func submitWaiting(_ index: Int, at now: UInt64, isLast: Bool = false) -> [Action] {
    guard let shard = shards[index] else { return [] }
    var actions: [Action] = []
    while let next = shard.waiting.first, shard.machine.maySubmit, isLast || !mustRenew(shard) {
      let isFull = next.byteCount > Self.joinedByteCount / 2
      guard isLast || isFull || shard.machine.submittedCount < Self.unjoinedCount else { break }
      shard.waiting.removeFirst()
      shard.count(next, -1)
      actions += submit(next, at: now)
    }
    return actions
  }

  private func submit(_ record: FleetRecord, at now: UInt64) -> [Action] {
    let index = shard(of: record.stream)
    guard let shard = shards[index] else { return [] }
    var record = record
    var head = shard.ahead[record.stream] ?? shard.heads[record.stream] ?? StreamHead(stream: record.stream)
    if !record.sender.isEmpty { record.events = merge(record.events, head.checkpoint) }
    if head.nextID == 0 { head.nextID = min(record.time, Self.idLimit / 2) }
    head.nextID.raise(to: streams[record.stream]?.end ?? 0)
    guard head.nextID < Self.idLimit - UInt64(record.events.count) else { return [] }
    record.firstID = head.nextID
    record.definition = streams[record.stream]?.definition ?? head.definition
    head.nextID += UInt64(record.events.count)
    head.checkpoint = record.events.checkpoint ?? head.checkpoint
    if !record.sender.isEmpty { head.note(record.sender, number: record.number) }
    shard.ahead[record.stream] = head
    return perform(shard.machine.submit(StateFields.bytes(of: record), at: now), on: index, at: now)
  }

  /// The batch that was sent is stored, if the stream's head says so.
  private func confirm(_ stream: String) -> [Action] {
    guard let batch = outgoing[stream],
      shards[shard(of: stream)]?.heads[stream]?.number(of: host.bytes) ?? 0 >= batch.number
    else { return [] }
    outgoing[stream] = nil
    return [.stored(stream: stream)]
  }

  // MARK: Hashing

  /// The weight of this host for a shard, 0..<1. Source: rendezvous hashing (Thaler, Ravishankar 1998).
  private func weight(of shard: Int) -> Double {
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

extension UInt64 {
  fileprivate mutating func raise(to other: UInt64) { self = Swift.max(self, other) }
}
