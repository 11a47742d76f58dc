/// One host in one shard of a fleet. It follows the shard's log, and leads the shard when it hears no leader.
///
/// The theory. The engine's log of a shard appends an entry only if the sequence number of its last entry is the
/// expected one. Therefore a shard has one leader: to lead, a host appends a claim. From then on, the log refuses every
/// append that expects the entry before the claim. Clocks and heartbeats only decide when a host tries. If they are
/// wrong, that costs time, but never an event.
///
/// All hosts read the same log with the same rules, so that they agree about every entry without talking to each other:
///
/// - An entry is void unless it has the checksum of the entry before it. A deposed leader may have several entries under
///   way; the first is refused, and a later one may find the sequence number that it expects.
/// - A part is void unless its term is that of the last valid claim.
/// - A claim voids the parts of a record whose last part is missing.
///
/// An entry may be stored although the append had no answer. The machine reads the log, compares it with the entries
/// that it has appended, and appends the others again, with the same expectation: an entry can be stored only once.
///
/// The machine knows no engine, stream or clock. Each function returns the outputs for its caller, in order. Times are
/// nanoseconds of the host's monotonic clock.
package struct ShardMachine {
  /// A request to the engine.
  package enum Request: Equatable, Sendable {
    /// Append an entry if the log's last sequence number is `after`. The answer goes to `appended`, with the number of
    /// the attempt.
    case append([UInt8], isClaim: Bool, after: UInt64, attempt: UInt64)
    /// Read entries, beginning with the one after this sequence number. The answer goes to `read` or `readFailed`.
    case read(after: UInt64)
    /// Find the log's newest claim. The answer goes to `foundClaim`, `foundNoClaim` or `readFailed`.
    case findClaim
    /// Ask all hosts that can be reached, this one included, for their positions and heads, and the engine for its last
    /// entry. The answer goes to `gathered` or `readFailed`.
    case gather
  }

  /// The answer to a request.
  package enum Answer: Sendable {
    case append(attempt: UInt64, AppendResult)
    /// Here and in the following cases, nil means a failure.
    case read(after: UInt64, FleetEntries?)
    case findClaim(FleetClaim?)
    /// The positions of the hosts that have answered, and the log's end.
    case gather([[UInt8]]?, FleetNewest?)
  }

  /// A result for the caller, in order.
  enum Output: Equatable {
    case ask(Request)
    /// The heads of a claim: each stream as it is at this point of the log.
    /// - isGap: this host has not read entries before the claim, and cannot.
    case adopt([UInt8], isGap: Bool)
    /// A complete record.
    /// - position: after its last part.
    case apply([UInt8], at: ShardPosition)
    /// The host leads the shard: it may fetch, and submit records. Repeated after each renewed claim.
    case lead(term: UInt64)
    /// The host no longer leads the shard. Submitted records that were not applied may be lost.
    case resign
    /// Send a heartbeat to all hosts.
    case beat(Heartbeat)
    /// The leader is heard again after the time of a lease: it may not have heard this host meanwhile.
    case hearAgain
    /// An entry is of a later version: the host must be upgraded to follow the shard.
    case stop
  }

  /// A heartbeat of a leader. It has the log's last sequence number, so that hosts notice entries that the tail has
  /// lost.
  struct Heartbeat: Equatable, Sendable {
    var epoch: UInt64 = 0
    var term: UInt64 = 0
    var last: UInt64 = 0
    /// The leader is about to stop.
    var isLast = false
  }

  /// The answer to an append.
  package enum AppendResult: Equatable, Sendable {
    case stored
    /// The last sequence number is another one.
    case refused(last: UInt64)
    /// No answer, or an error that does not say whether the entry is stored.
    case unknown
  }

  /// The positions of the hosts that can be reached, the heads for a claim, and the end of the engine's log.
  struct Gathered: Sendable {
    /// The highest epoch of any host.
    var epoch: UInt64
    /// The highest sequence number of any host in that epoch.
    var sequence: UInt64
    /// The furthest position of any host in a log that has lost it.
    var lost: (epoch: UInt64, sequence: UInt64) = (0, 0)
    /// This host's heads, with next ids that are not below those of its own logs.
    var heads: [UInt8]
    /// The heads in a new epoch. Their next ids are above those of all hosts that have answered, and at least the wall
    /// clock, because another host may have more events.
    var newHeads: [UInt8]
    /// The last sequence number of the engine's log.
    var last: UInt64
    /// The entry with that number; nil if it is 0.
    var lastEntry: [UInt8]?
  }

  /// The times of the protocol.
  package struct Times {
    /// A host claims the shard after this time without a heartbeat, and a part of `leaseSpread`: the higher its weight
    /// by rendezvous hashing, the smaller the part.
    package var lease: UInt64 = 3_000_000_000
    package var leaseSpread: UInt64 = 2_000_000_000
    /// A host that was asked for its position leaves this time to the host that asked, and is about to claim the shard.
    package var yield: UInt64 = 1_000_000_000
    package var heartbeat: UInt64 = 1_000_000_000
    /// The time before a failed request is tried again.
    package var retry: UInt64 = 250_000_000

    package init() {}
  }

  enum Role: Equatable {
    /// Can become: gathering, stopped.
    case following
    /// Learns the positions of other hosts before it claims the shard. Can become: following, claiming, stopped.
    case gathering
    /// Its claim is under way. Can become: following, leading, stopped.
    case claiming
    /// Can become: following, stopped.
    case leading
    /// Final.
    case stopped
  }

  /// The last entry that was read, with the epoch, the term and the leader after it.
  struct Position {
    var sequence: UInt64
    var checksum: UInt32
    var epoch: UInt64
    /// The sequence number of the last valid claim.
    var term: UInt64
    var leader: HostID?

    var saved: ShardPosition { ShardPosition(epoch: epoch, sequence: sequence, checksum: checksum, term: term) }
  }

  /// The last position of an earlier process, until it is known whether the log still has that entry.
  struct Resumption {
    let position: ShardPosition
    /// The newest claim, with which the host begins if the log has lost that entry.
    var claim: (sequence: UInt64, checksum: UInt32, epoch: UInt64, content: ShardEntry.Claim)?
  }

  /// An entry that is not known to be stored.
  struct Submitted {
    var content: ShardEntry.Content
    let epoch: UInt64
    /// The bytes of the last attempt; nil: there was none yet.
    var bytes: [UInt8]?
    /// The number of the last attempt to append it.
    var attempt: UInt64 = 0
    /// The host's position at the last attempt. A log that ends before it has lost entries.
    var base: UInt64 = 0
    /// Whether the engine has acknowledged it. That takes effect once the entries before it are known to be stored.
    var isStored = false

    var isClaim: Bool { if case .claim = content { true } else { false } }
  }

  let host: HostID
  /// Whether the host may claim the shard. A host that leads the shard stays its leader.
  var canLead: Bool
  /// The delay of the host's claim compared with other hosts of the same weight.
  var claimDelay: UInt64 = 0
  let weight: Double
  let partByteCount: Int
  let recordByteCount: Int
  let times: Times
  var role = Role.following
  /// The position of this host in the log; nil until the newest claim was found.
  var position: Position?
  var parts: [UInt8]?
  var partCount: UInt32 = 0
  var submitted: [Submitted] = []
  var attemptCount: UInt64 = 0
  /// Void entries since the last valid one; nil: there were too many, and the host has begun again with the newest
  /// claim.
  var voidCount: Int? = 0
  /// The highest last sequence number of a refused append.
  var knownLast: UInt64 = 0
  /// The log's last sequence number, if the last read lacked entries before it. If the next read finds the same, they
  /// were removed. Nil: the last read lacked none.
  var removedEnd: UInt64?
  /// The number of removed entries between the position and a claim that is under way.
  var removedCount: UInt64 = 0
  /// When the host last heard the leader, or began to wait for one.
  var heardAt: UInt64
  /// `heardAt` before the host first tried to claim the shard since; nil: it has not tried.
  var silentSince: UInt64?
  /// Until when another host may claim the shard alone: it has asked for this host's position.
  var yieldEnd: UInt64 = 0
  /// The last sequence number of a log that was found without a claim.
  var emptyLast: UInt64?
  var resumption: Resumption?
  /// Since when no submitted entry was found to be stored; nil: none waits.
  var unresolvedSince: UInt64?
  /// The furthest position that this host has read and the log has lost.
  private(set) var lost: (epoch: UInt64, sequence: UInt64) = (0, 0)
  var nextHeartbeat: UInt64 = 0
  /// Whether an answer to `read`, `findClaim` or `gather` is awaited.
  var isReading = false
  /// When the log is read again, after a failure or because a replica lags behind; nil: not at a set time.
  var retryAt: UInt64?

  /// More void entries in succession than one leader has under way. They show that the log is not the one that was read
  /// before.
  static let voidLimit = 64
  /// Whether another host may lead: an append was refused or not answered, and no entry that continues the log was
  /// acknowledged since. A read does not show which host leads: a broker that is cut off from the others answers reads,
  /// and stores nothing. A leader appends an entry to find out.
  var isInDoubt = false
  /// The attempt of the last own entry that is known to be stored. The tail may bring the entry before the acknowledgement.
  var lastOwnAttempt: UInt64 = 0

  /// The maximum number of entries under way.
  static let windowCount = 32
  /// Valid epochs and sequence numbers are below this number. Others are void, or ignored.
  static let numberLimit: UInt64 = 1 << 62
  /// The maximum bytes of entries under way.
  static let windowByteCount = 8 << 20

  /// - Parameters:
  ///   - weight: the host's weight for this shard, 0..<1, by rendezvous hashing: the host with the highest one claims
  ///     first.
  ///   - canLead: false for a host that only follows.
  ///   - partByteCount: the maximum size of a part's bytes, at least 1. Precedent: NATS refuses messages of more than 1
  ///     MiB by default.
  ///   - recordByteCount: the maximum size of a record; a larger one has no effect. The same for all hosts.
  init(
    host: HostID, weight: Double, canLead: Bool = true, partByteCount: Int = 1 << 20 - 4096,
    recordByteCount: Int = 64 << 20, times: Times = Times(), now: UInt64
  ) {
    (self.host, self.canLead, self.weight, self.times) = (host, canLead, min(max(weight, 0), 1), times)
    self.partByteCount = max(1, partByteCount)
    self.recordByteCount = recordByteCount
    heardAt = now
  }

  // MARK: Status

  /// Whether the host may fetch: it leads, and the log appends, as far as is known.
  var mayFetch: Bool { mayAppend && !isInDoubt }

  /// Whether the host may submit a record: it leads, nothing has to be read first, and the window has room.
  var maySubmit: Bool {
    mayAppend && submitted.count < Self.windowCount
      && submitted.reduce(0, { $0 + ($1.bytes?.count ?? 0) }) < Self.windowByteCount
  }

  var mayAppend: Bool { role == .leading && retryAt == nil && !isReading }

  /// Entries that are not known to be stored.
  var submittedCount: Int { submitted.count }

  /// Whether one of these entries is a claim.
  var isClaiming: Bool { submitted.contains(where: \.isClaim) }

  var isLeading: Bool { role == .leading }
  /// The leader by the log; nil if the log is not known yet.
  var leader: HostID? { position?.leader }
  var term: UInt64? { position?.term }
  var epoch: UInt64? { position?.epoch }
  var lastSequence: UInt64? { position?.sequence }

  /// When `tick` is due; nil: never.
  var deadline: UInt64? {
    switch role {
    case .stopped: nil
    case .leading: min(retryAt ?? .max, nextHeartbeat)
    case .following where position != nil && canLead && !isReading: retryAt ?? claimTime
    case .following, .gathering, .claiming: retryAt
    }
  }

  /// When the host claims the shard, unless it hears a leader before.
  var claimTime: UInt64 {
    // The delay does not begin anew with each yield: it is longer than the time between two of these.
    max(heardAt &+ times.lease &+ claimDelay, yieldEnd) &+ UInt64(Double(times.leaseSpread) * (1 - weight))
  }

  /// Since when the host does not know whether it has the log's last entry: it hears no leader, or leads and has no
  /// answer to an append. Nil while it knows.
  func staleSince(at now: UInt64) -> UInt64? {
    switch role {
    case .leading: unresolvedSince.flatMap { now >= $0 &+ times.retry ? $0 : nil }
    case .following, .gathering, .claiming, .stopped:
      silentSince ?? (now < heardAt &+ times.lease && position != nil ? nil : heardAt)
    }
  }

  // MARK: Inputs

  /// Begins. Must be called first, and once.
  /// - Parameter position: the last one of an earlier process of this host. The log is read from there, if it still has
  ///   that entry.
  mutating func start(resumingAt position: ShardPosition? = nil) -> [Output] {
    resumption = position.map { Resumption(position: $0) }
    return findClaim()
  }

  /// The deadline has come.
  mutating func tick(at now: UInt64) -> [Output] {
    guard role != .stopped else { return [] }
    var outputs: [Output] = []
    if let retryAt, retryAt <= now {
      self.retryAt = nil
      if !isReading { outputs += position == nil ? findClaim() : read() }
    }
    switch role {
    case .leading where now >= nextHeartbeat: outputs += beat(at: now)
    case .following where canLead && position != nil && now >= claimTime && !isReading && self.retryAt == nil:
      if silentSince == nil { silentSince = heardAt }
      heardAt = now  // delays the next try, if this one fails
      outputs += gather()
    case .leading, .following, .gathering, .claiming, .stopped: break
    }
    return outputs
  }

  /// Appends a record. Only while `maySubmit`.
  /// - Returns: an append for each part.
  mutating func submit(_ record: [UInt8], at now: UInt64) -> [Output] {
    guard role == .leading, let position else { return [] }
    var outputs: [Output] = []
    var start = 0
    var index: UInt32 = 0
    repeat {
      let end = min(record.count, start + partByteCount)
      let part = ShardEntry.Part(
        term: position.term, index: index, isLast: end == record.count, bytes: Array(record[start..<end]))
      outputs += submit(.part(part), epoch: position.epoch, at: now)
      (start, index) = (end, index + 1)
    } while start < record.count
    return outputs
  }

  /// The answer to `append`. An answer to an attempt that was repeated meanwhile has no effect.
  mutating func appended(attempt: UInt64, _ result: AppendResult, at now: UInt64) -> [Output] {
    guard role != .stopped, position != nil else { return [] }
    guard let index = submitted.firstIndex(where: { $0.attempt == attempt }) else {
      if result == .stored, attempt == lastOwnAttempt { isInDoubt = false }
      return []
    }
    if result != .stored { isInDoubt = true }
    switch result {
    case .stored:
      submitted[index].isStored = true
      return advanceStored(at: now)
    case .refused(let last) where last < submitted[index].base: return gather()
    case .refused(let last):
      knownLast = max(knownLast, last)
      return read()
    case .unknown:
      retryAt = now + times.retry
      return read()
    }
  }

  /// An entry from the tail of the log. Entries may come in any order, late, or repeatedly.
  mutating func receive(_ bytes: [UInt8], at sequence: UInt64, now: UInt64) -> [Output] {
    guard role != .stopped, sequence < Self.numberLimit, let position else { return [] }
    guard resumption == nil else { return read() }
    if sequence == position.sequence + 1 { return advance(to: bytes, at: now) + advanceStored(at: now) }
    if sequence > position.sequence { return read() }
    // The entry is known, unless the log has begun anew.
    guard let entry = try? ShardEntry(bytes), entry.epoch > position.epoch else { return [] }
    return rebase()
  }

  /// The answer to `read`: entries in order, maybe not all. A late one does no harm.
  /// - Parameters:
  ///   - after: as in the request.
  ///   - first: the sequence number of the oldest entry in the log.
  ///   - last: the sequence number of the newest entry that the replica with the answer knows.
  mutating func read(
    after: UInt64, _ entries: [(sequence: UInt64, bytes: [UInt8])], first: UInt64, last: UInt64, at now: UInt64
  ) -> [Output] {
    guard role != .stopped, var position, after <= position.sequence else { return [] }
    isReading = false
    if let resumption { return resume(resumption, entries.first, first: first, at: now) }
    if first > 0, first - 1 > after { return rebase() }
    var outputs: [Output] = []
    for entry in entries
    where position.sequence..<Self.numberLimit ~= entry.sequence && entry.sequence > position.sequence {
      if entry.sequence > position.sequence + 1 { skip(to: entry.bytes, at: entry.sequence) }
      outputs += advance(to: entry.bytes, at: now)
      guard role != .stopped, let next = self.position else { return outputs }
      position = next
    }
    outputs += advanceStored(at: now)
    guard role != .stopped, let next = self.position else { return outputs }
    position = next
    if last > position.sequence, !entries.isEmpty { return outputs + read() }
    // The replica knows the log's end, and does not have the entries yet. If a second read finds the same, they were
    // removed.
    let isRemoved = last > position.sequence && removedEnd == last
    if last > position.sequence, retryAt == nil, !isRemoved { retryAt = now + times.retry }
    removedEnd = last > position.sequence ? last : nil
    guard !submitted.isEmpty, retryAt == nil else { return outputs }
    // Only a claim can follow removed entries.
    if isRemoved, knownLast == last { return outputs + gather() }
    // The replica may not have the entries yet because of which an append was refused. Another append shows it.
    if knownLast > position.sequence {
      (knownLast, retryAt) = (0, now + times.retry)
      return outputs
    }
    return outputs + append(from: 0)
  }

  /// `read`, `findClaim` or `gather` has failed.
  mutating func readFailed(at now: UInt64) -> [Output] {
    isReading = false
    if role == .gathering { role = .following }
    retryAt = now + times.retry
    return []
  }

  /// The answer to `findClaim`: the last entry that is a claim.
  mutating func foundClaim(_ bytes: [UInt8], at sequence: UInt64, now: UInt64) -> [Output] {
    isReading = false
    guard role != .stopped, position == nil else { return [] }
    guard sequence < Self.numberLimit, let entry = try? ShardEntry(bytes), entry.epoch < Self.numberLimit,
      case .claim(let claim) = entry.content
    else { return stop() }
    heardAt = now
    let checksum = ShardEntry.checksum(of: bytes)
    if let former = resumption?.position, former.sequence > 0, former.sequence < sequence {
      resumption?.claim = (sequence, checksum, entry.epoch, claim)
      position = Position(
        sequence: former.sequence - 1, checksum: 0, epoch: former.epoch, term: former.term, leader: nil)
      return read()
    }
    // Entries after the claim are read again, although the earlier process has read them.
    let isGap = resumption.map { $0.position.epoch < entry.epoch } ?? false
    resumption = nil
    return begin(at: claim, sequence, checksum, epoch: entry.epoch, isGap: isGap) + read()
  }

  mutating func begin(
    at claim: ShardEntry.Claim, _ sequence: UInt64, _ checksum: UInt32, epoch: UInt64, isGap: Bool
  ) -> [Output] {
    position = Position(sequence: sequence, checksum: checksum, epoch: epoch, term: sequence, leader: claim.host)
    return [.adopt(claim.heads, isGap: isGap)]
  }

  /// Continues after the last entry of an earlier process, if the log has it, and with the newest claim otherwise.
  mutating func resume(
    _ resumption: Resumption, _ entry: (sequence: UInt64, bytes: [UInt8])?, first: UInt64, at now: UInt64
  ) -> [Output] {
    let former = resumption.position
    if let entry, entry.sequence == former.sequence, ShardEntry.checksum(of: entry.bytes) == former.checksum {
      self.resumption = nil
      position?.sequence = former.sequence
      position?.checksum = former.checksum
      return read()
    }
    guard let claim = resumption.claim else { return rebase() }
    if entry?.sequence == former.sequence { note(lost: former) }
    // The replica lags behind: the log has not lost the entry.
    if entry == nil, first <= former.sequence {
      retryAt = now + times.retry
      return []
    }
    self.resumption = nil
    return begin(at: claim.content, claim.sequence, claim.checksum, epoch: claim.epoch, isGap: true) + read()
  }

  /// The answer to `findClaim`: the log has none.
  /// - Parameter last: the log's last sequence number.
  mutating func foundNoClaim(last: UInt64, at now: UInt64) -> [Output] {
    isReading = false
    guard role != .stopped, position == nil else { return [] }
    if let former = resumption?.position { note(lost: former) }
    resumption = nil
    guard canLead, now >= yieldEnd else {
      retryAt = now + times.retry
      return []
    }
    emptyLast = last
    return gather()
  }

  mutating func note(lost position: ShardPosition) {
    if (position.epoch, position.sequence) > lost { lost = (position.epoch, position.sequence) }
  }

  /// The answer to `gather`.
  ///
  /// The host claims the shard. If the log has lost entries that a host has read, ids above the log's may be in use: the
  /// claim begins a new epoch, with the new heads.
  mutating func gathered(_ answer: Gathered, at now: UInt64) -> [Output] {
    isReading = false
    guard role == .gathering else { return [] }
    role = .following
    guard answer.epoch < Self.numberLimit, answer.last < Self.numberLimit else { return [] }
    if let position {
      if position.epoch == answer.epoch, position.sequence < answer.last {
        // A host that has read the removed entries claims the shard instead.
        guard answer.lastEntry == nil, removedEnd == answer.last, answer.sequence < answer.last else { return read() }
        removedCount = answer.last - position.sequence
      }
      if position.epoch < answer.epoch || position.sequence > answer.last {
        note(lost: position.saved)
        return rebase()
      }
    } else {
      guard emptyLast == answer.last else { return findClaim() }
      position = Position(
        sequence: answer.last, checksum: answer.lastEntry.map { ShardEntry.checksum(of: $0) } ?? 0,
        epoch: answer.epoch, term: 0)
    }
    role = .claiming
    let lost = answer.lost > lost ? answer.lost : lost
    // An entry that was removed before this host could read it is lost, too.
    let hasAll =
      removedCount == 0 && (position?.term ?? 0) > 0 && answer.sequence <= answer.last
      && lost <= (answer.epoch, answer.last)
    let epoch = max(answer.epoch, lost.epoch)
    let heads = hasAll ? answer.heads : answer.newHeads
    return submit(.claim(ShardEntry.Claim(host: host, heads: heads)), epoch: hasAll ? epoch : epoch + 1, at: now)
  }

  /// A host asks for this host's position: it is about to claim the shard. In a large fleet many hosts would otherwise
  /// do so before they learn of its claim, and each asks all hosts.
  ///
  /// Once in a lease: a host that asks without end, and whose claims fail, must not keep the shard without a leader.
  mutating func asked(at now: UInt64) {
    guard role == .following, yieldEnd == 0 || now >= yieldEnd &+ times.lease else { return }
    yieldEnd = now &+ times.yield
  }

  /// A heartbeat of another host.
  mutating func hear(_ heartbeat: Heartbeat, at now: UInt64) -> [Output] {
    guard role != .stopped, heartbeat.epoch < Self.numberLimit, heartbeat.last < Self.numberLimit, let position else {
      return []
    }
    // This host should have read that claim, and has not: the log is not the one that it has read.
    let isOther =
      heartbeat.epoch == position.epoch && position.term < heartbeat.term && heartbeat.term <= position.sequence
    if isOther || heartbeat.epoch > position.epoch { return rebase() }
    guard heartbeat.epoch == position.epoch, heartbeat.term >= position.term else { return [] }
    var outputs: [Output] = []
    if heartbeat.term == position.term, role == .following {
      outputs = heardLeader(at: now)
      // For a leader that stops, the host waits only its part of the spread.
      if heartbeat.isLast { heardAt = now - min(now, times.lease) }
    }
    return outputs + (heartbeat.last > position.sequence || heartbeat.term > position.term ? read() : [])
  }

  /// The leader has sent a heartbeat, or appended an entry.
  mutating func heardLeader(at now: UInt64) -> [Output] {
    defer { (heardAt, silentSince) = (now, nil) }
    return now >= (silentSince ?? heardAt) &+ times.lease ? [.hearAgain] : []
  }

  /// The engine is connected again. Requests and entries of the tail may have been lost meanwhile.
  mutating func reconnected() -> [Output] {
    isReading = false
    guard role != .stopped else { return [] }
    return position == nil ? findClaim() : read()
  }

  /// Claims the shard again, so that the log's newest claim is not far from its end. Only while `maySubmit` and no
  /// entry is under way, because the heads include all records before the claim. Records that are submitted meanwhile
  /// follow the claim.
  mutating func renew(heads: [UInt8], at now: UInt64) -> [Output] {
    guard maySubmit, submitted.isEmpty, let position else { return [] }
    return submit(.claim(ShardEntry.Claim(host: host, heads: heads)), epoch: position.epoch, at: now)
  }

  /// The heartbeat to send now, due or not; nil for a host that does not lead.
  mutating func heartbeat(at now: UInt64, isLast: Bool = false) -> Heartbeat? {
    guard role == .leading, let position else { return nil }
    nextHeartbeat = now + times.heartbeat
    return Heartbeat(epoch: position.epoch, term: position.term, last: position.sequence, isLast: isLast)
  }

  /// Whether no entry is under way.
  var isSettled: Bool { submitted.isEmpty }

  /// The host is about to stop.
  mutating func leave(at now: UInt64) -> [Output] {
    defer { role = .stopped }
    return heartbeat(at: now, isLast: true).map { [.beat($0)] } ?? []
  }
}
