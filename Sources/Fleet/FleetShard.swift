import Events
import TaggedFields

/// A shard of this host: the machine of its log, and the effect of the log's records on its streams.
final class FleetShard {
  typealias Action = FleetMachine.Action

  let index: Int
  let settings: FleetSettings
  var machine: ShardMachine
  var streams: [String: SharedStream] = [:]
  /// When a stream is due.
  private let due = FirstDueTime()
  var heads: [String: StreamHead] = [:]
  /// On a leader, the heads after the records that are under way.
  var ahead: [String: StreamHead] = [:]
  var isLeading = false
  var waiting = WaitingRecords()
  /// The host of the last claim that was read.
  private var leader: HostID?
  /// The furthest position that this host, or an earlier process of it, has read. Entries before it may be read again.
  private var reached: ShardPosition?
  /// The last sequence number of the log, by the leader's heartbeat.
  private(set) var leaderLast: UInt64 = 0
  /// The number of records since the last claim, and their bytes.
  private var recordCount = 0
  private var byteCount = 0
  /// When a leader appends a sign of life, unless there is a record before.
  private var signOfLifeAt: UInt64 = 0
  /// When a leader in doubt may append a sign of life, to find out whether it still leads.
  private var askAt: UInt64 = 0
  /// Whether a record had another definition than the one before, and `weigh` was not called since.
  private var isUnweighed = false
  /// Whether the entry that is being applied came from the tail.
  private var isTail = false

  /// Bytes of records after which a leader claims its shard again.
  static let renewalByteCount = 64 << 20
  /// The time after which a leader without records appends an empty one. The append fails if the leader is deposed or
  /// cut off.
  static let signOfLife: UInt64 = 30_000_000_000
  /// The time after which a message without an answer is sent again.
  static let repetition: UInt64 = 2_000_000_000
  /// A head that is older than the newest one by this time does not delay the claim of a host with another definition.
  /// Microseconds.
  static let activeTime: UInt64 = 7 * 86_400_000_000
  /// Ids are below this number: logs refuse others (`EventLog.stampedIDLimit`).
  static let idLimit: UInt64 = 1 << 61

  init(_ index: Int, _ settings: FleetSettings, reached: ShardPosition?, now: UInt64) {
    (self.index, self.settings, self.reached) = (index, settings, reached)
    machine = ShardMachine(
      host: settings.host, weight: settings.weight(of: index), canLead: false,
      times: settings.times, now: now)
  }

  var host: HostID { settings.host }

  /// When `tick` is due, or an earlier time. Asked after each input.
  var deadline: UInt64 { min(machine.deadline ?? .max, isLeading ? signOfLifeAt : .max, due.time) }

  func start(at now: UInt64) -> [Action] { perform(machine.start(resumingAt: reached), at: now) }
  func reconnected(at now: UInt64) -> [Action] { tellAgain(at: now) + perform(machine.reconnected(), at: now) }
  func leave(at now: UInt64) -> [Action] { perform(machine.leave(at: now), at: now) }

  func tick(at now: UInt64, wallTime: UInt64) -> [Action] {
    if isUnweighed { weigh() }
    var actions = proceed(machine.tick(at: now), at: now)
    guard due.time <= now else { return actions }
    due.reset()
    for stream in streams.values {
      if stream.askAgainAt <= now { actions += askAgain(stream, at: now) }
      if stream.tellAt <= now { actions += tell(stream, at: now) }
      if stream.sendAgainAt <= now { actions += sendOut(stream, at: now, wallTime: wallTime) }
      if stream.compareAt <= now { actions += compare(stream, at: now) }
      due.lower(to: stream.deadline)
    }
    return actions
  }

  /// Adds a stream, or changes its definition.
  func set(_ definition: FleetMachine.Stream) {
    let stream = streams[definition.name] ?? SharedStream(definition, due)
    if stream.definition.definition != definition.definition { stream.others = [:] }
    // A poll asks before each fetch, and another source when it is due.
    if stream.definition.kind != definition.kind { stream.askAgainAt = 0 }
    stream.definition = definition
    stream.compareAt = 0
    streams[definition.name] = stream
  }

  /// Decides whether this host may claim the shard, and whether others should do so first.
  func weigh() {
    machine.canLead = streams.values.contains { $0.definition.canLead }
    let newest = heads.values.map(\.time).max() ?? 0
    let isOther = heads.values.contains { head in
      guard newest - head.time < Self.activeTime, head.definition != 0 else { return false }
      guard let stream = streams[head.stream]?.definition else { return true }
      return !stream.canLead || stream.definition != head.definition
    }
    isUnweighed = false
    machine.claimDelay = isOther ? settings.times.lease + settings.times.leaseSpread : 0
  }

  func hear(_ heartbeat: ShardMachine.Heartbeat, at now: UInt64) -> [Action] {
    if heartbeat.term >= machine.term ?? 0 { leaderLast = min(heartbeat.last, Self.idLimit) }
    return perform(machine.hear(heartbeat, at: now), at: now)
  }

  // MARK: The engine's answers

  /// An entry of the tail.
  func receive(_ entry: [UInt8], at sequence: UInt64, now: UInt64) -> [Action] {
    isTail = true
    defer { isTail = false }
    return proceed(machine.receive(entry, at: sequence, now: now), at: now)
  }

  func answer(_ answer: ShardMachine.Answer, at now: UInt64, wallTime: UInt64) -> [Action] {
    switch answer {
    case .append(let attempt, let result): proceed(machine.appended(attempt: attempt, result, at: now), at: now)
    case .read(let after, let found?):
      proceed(machine.read(after: after, found.entries, first: found.first, last: found.last, at: now), at: now)
    case .findClaim(.found(let bytes, let sequence)):
      perform(machine.foundClaim(bytes, at: sequence, now: now), at: now)
    case .findClaim(.some(.none(let last))): perform(machine.foundNoClaim(last: last, at: now), at: now)
    case .gather(let answers?, let newest?): gathered(answers, newest, at: now, wallTime: wallTime)
    case .read(_, nil), .findClaim(nil), .gather: perform(machine.readFailed(at: now), at: now)
    }
  }

  private func gathered(_ answers: [[UInt8]], _ newest: FleetNewest, at now: UInt64, wallTime: UInt64) -> [Action] {
    var positions = answers.compactMap { try? RecordFields.read(HostPosition.self, from: $0[...]) }
    positions.removeAll {
      [$0.epoch, $0.sequence, $0.endID, $0.lostEpoch, $0.lostSequence].contains { $0 >= Self.idLimit }
    }
    positions.append(position)
    let epoch = positions.map(\.epoch).max() ?? 0
    let end = positions.map(\.endID).max() ?? 0
    let lost = positions.map { (epoch: $0.lostEpoch, sequence: $0.lostSequence) }.max(by: <) ?? (0, 0)
    var heads = heads
    for (name, stream) in streams {
      heads[name, default: StreamHead(stream: name, nextID: wallTime)].nextID.raise(to: stream.definition.end)
    }
    let present = ShardHeads(Array(heads.values)).bytes()
    for name in heads.keys { heads[name]?.nextID.raise(to: max(end, min(wallTime, Self.idLimit - 1))) }
    return perform(
      machine.gathered(
        ShardMachine.Gathered(
          epoch: epoch, sequence: positions.filter { $0.epoch == epoch }.map(\.sequence).max() ?? 0, lost: lost,
          heads: present, newHeads: ShardHeads(Array(heads.values)).bytes(), last: newest.last, lastEntry: newest.entry),
        at: now),
      at: now)
  }

  /// This host's answer to a question for its position.
  var position: HostPosition {
    let own = streams.values.map(\.definition.end).max() ?? 0
    let end = max(own, heads.values.map(\.nextID).max() ?? 0)
    return HostPosition(
      epoch: machine.epoch ?? 0, sequence: machine.lastSequence ?? 0, endID: min(end, Self.idLimit - 1),
      lostEpoch: machine.lost.epoch, lostSequence: machine.lost.sequence)
  }

  // MARK: A leader's claim

  /// Renews a leader's claim if that is due. Otherwise appends a sign of life, if one is due or if the leader is in
  /// doubt and no record waits.
  private func keepUp(at now: UInt64) -> [Action] {
    guard isLeading else { return [] }
    let isDue = now >= signOfLifeAt
    if isDue { signOfLifeAt = now &+ Self.repetition }
    guard machine.isSettled, machine.maySubmit else { return [] }
    if mustRenew {
      let heads = ShardHeads(Array(heads.values)).bytes()
      return perform(machine.renew(heads: heads, at: now), at: now)
    }
    let isAsked = machine.isInDoubt && waiting.isEmpty && now >= askAt
    guard isDue || isAsked else { return [] }
    askAt = now &+ Self.repetition  // its acknowledgement may be late, or lost
    return perform(machine.submit([], at: now), at: now)
  }

  /// Whether the claim must be renewed. Records wait until the claim is submitted, not until it is stored.
  var mustRenew: Bool {
    (recordCount >= settings.renewalRecordCount || byteCount >= Self.renewalByteCount) && !machine.isClaiming
  }

  // MARK: Outputs of the machine

  /// Performs outputs, renews the claim if that is due, and submits the records for which there is room now.
  func proceed(_ outputs: [ShardMachine.Output], at now: UInt64) -> [Action] {
    perform(outputs, at: now) + keepUp(at: now) + submitWaiting(at: now)
  }

  func perform(_ outputs: [ShardMachine.Output], at now: UInt64) -> [Action] {
    outputs.flatMap { output -> [Action] in
      switch output {
      case .ask(let request): [.ask(request, shard: index)]
      case .adopt(let heads, let isGap): adopt(heads, isGap: isGap, at: now)
      case .apply(let record, let position): apply(record, at: position, now: now)
      case .lead(let term): lead(term: term, at: now)
      case .resign: resign()
      case .beat(let heartbeat): [settings.send([(index, heartbeat)])]
      case .hearAgain: tellAgain(at: now)
      case .stop: [.report(.newerVersion(shard: index))]
      }
    }
  }

  private func adopt(_ bytes: [UInt8], isGap: Bool, at now: UInt64) -> [Action] {
    guard let new = try? ShardHeads(bytes).heads else { return [.report(.damaged(shard: index))] }
    let former = heads
    heads = Dictionary(
      new.map { head in
        var head = head
        head.stream = streams[head.stream]?.name ?? head.stream  // one copy of the name
        if let last = former[head.stream], last.scheduledAt == head.scheduledAt { head.heardAt = last.heardAt }
        return (head.stream, head)
      }
    ) { first, _ in first }
    // Records of this host may follow its renewed claim.
    if machine.isSettled { ahead = [:] }
    (recordCount, byteCount, signOfLifeAt) = (0, 0, now &+ Self.signOfLife)
    weigh()
    for stream in streams.values { stream.compareAt = now }
    var actions: [Action] = isGap ? [.report(.missed(shard: index))] : []
    for head in new {
      if let last = former[head.stream], last.nextID < head.nextID { actions.append(.report(.newEpoch(head.stream))) }
      if let stream = streams[head.stream] { actions += confirm(stream) }
    }
    // A new leader knows neither the hosts that wait nor the batches that were sent to the former leader.
    guard leader != machine.leader else { return actions }
    leader = machine.leader
    for stream in streams.values where stream.published != nil { stream.sendAgainAt = now }
    return actions + tellAgain(isOther: true, at: now)
  }

  private func apply(_ bytes: [UInt8], at position: ShardPosition, now: UInt64) -> [Action] {
    signOfLifeAt = now &+ Self.signOfLife
    recordCount += 1
    byteCount += bytes.count
    defer { if machine.isSettled { ahead = [:] } }
    guard !bytes.isEmpty else { return [] }
    guard let record = try? RecordFields.read(FleetRecord.self, from: bytes[...]) else {
      return [.report(.damaged(shard: index))]
    }
    let stream = streams[record.stream]
    guard let next = note(record, of: stream, at: now) else { return [.report(.damaged(shard: index))] }
    guard let stream else { return [] }
    return store(record, in: stream, next: next, at: position) + confirm(stream)
  }

  /// Applies a record to the head of its stream.
  /// - Returns: the stream's next id; nil, without any effect, if no host writes such a record.
  private func note(_ record: FleetRecord, of stream: SharedStream?, at now: UInt64) -> UInt64? {
    guard settings.shard(of: record.stream) == index, record.firstID < Self.idLimit - UInt64(record.events.count) else {
      return nil
    }
    let name = stream?.name ?? record.stream
    let noted = heads[name, default: StreamHead(stream: name)].note(record, heardAt: isTail ? now : nil)
    if noted?.isOther == true { noteOtherDefinition(record, of: stream, at: now) }
    return noted?.next
  }

  /// A record has another definition than the one before. Many such records may follow each other: the next tick weighs
  /// them. Until then no claim is delayed, so that the tick is not late.
  private func noteOtherDefinition(_ record: FleetRecord, of stream: SharedStream?, at now: UInt64) {
    (isUnweighed, machine.claimDelay) = (true, 0)
    stream?.leaderDefinition = nil
    if record.definition != stream?.definition.definition { stream?.compareAt = now }
  }

  /// Stores a record, after its head.
  /// - Parameter next: the stream's next id after it.
  private func store(_ record: FleetRecord, in stream: SharedStream, next: UInt64, at position: ShardPosition)
    -> [Action]
  {
    // This host has stored each record that it has read, unless its log has lost the end.
    let wasRead = reached.map { (position.epoch, position.sequence) <= ($0.epoch, $0.sequence) } ?? false
    let newest = wasRead ? reached ?? position : position
    reached = newest
    let end = stream.definition.end
    stream.definition.end.raise(to: next)
    let isConflict = !record.events.isEmpty && record.firstID < end && !wasRead
    let conflict: [Action] = isConflict ? [.report(.conflict(stream.name))] : []
    guard !wasRead || next > end else { return conflict }
    return conflict + [
      .store(record.events, stream: stream.name, firstID: record.firstID, time: record.time, position: newest)
    ]
  }

  private func lead(term: UInt64, at now: UInt64) -> [Action] {
    guard !isLeading else { return [] }
    isLeading = true
    let actions: [Action] = [.report(.leads(shard: index, term: term))]
    return actions + streams.values.flatMap { settle($0) + askAgain($0, at: now) }
  }

  private func resign() -> [Action] {
    isLeading = false
    (ahead, waiting) = ([:], WaitingRecords())
    let actions: [Action] = [.report(.follows(shard: index))]
    return actions
      + streams.values.flatMap { stream in
        (stream.isWantedElsewhere, stream.silence, stream.askAgainAt) = (false, 0, .max)
        return settle(stream)
      }
  }
}
