/// The shard's log: how a host takes, appends and reads its entries.
extension ShardMachine {
  /// Takes the entry that follows the position.
  mutating func advance(to bytes: [UInt8], at now: UInt64) -> [Output] {
    guard var position else { return [] }
    let isOwn = submitted.first?.bytes.map { ShardEntry.areEqual($0, bytes) } ?? false
    if isOwn {
      lastOwnAttempt = submitted.removeFirst().attempt
      unresolvedSince = submitted.isEmpty ? nil : now
    }
    let entry: ShardEntry?
    do throws(ShardEntry.DecodingError) {
      entry = try ShardEntry(bytes)
    } catch .unknownFormat {
      return stop()
    } catch {
      entry = nil
    }
    let isChained = entry?.former == position.checksum
    (position.sequence, position.checksum) = (position.sequence + 1, ShardEntry.checksum(of: bytes))
    removedCount = 0
    self.position = position
    switch entry?.content {
    case .claim(let claim)? where isChained && position.epoch..<Self.numberLimit ~= entry?.epoch ?? 0:
      return take(claim, epoch: entry?.epoch ?? 0, isOwn: isOwn, at: now)
    case .part(let part)? where isChained && entry?.epoch == position.epoch && part.term == position.term:
      return take(part, isOwn: isOwn, at: now)
    case .claim, .part, nil:
      if let count = voidCount {
        guard count < Self.voidLimit else { return rebase(isForVoids: true) }
        voidCount = count + 1
      }
      // The entries under way were written without knowledge of this one.
      return isOwn || submitted.isEmpty ? [] : read()
    }
  }

  /// Takes the acknowledged own entries that follow the position. The host may learn of the entries before them by an
  /// acknowledgement, the tail or a read, in any order.
  mutating func advanceStored(at now: UInt64) -> [Output] {
    var outputs: [Output] = []
    while let first = submitted.first, first.isStored, let bytes = first.bytes {
      isInDoubt = false
      position?.sequence += removedCount
      outputs += advance(to: bytes, at: now)
    }
    return outputs
  }

  mutating func take(_ claim: ShardEntry.Claim, epoch: UInt64, isOwn: Bool, at now: UInt64) -> [Output] {
    guard let former = position else { return [] }
    let sequence = former.sequence
    position = Position(
      sequence: sequence, checksum: former.checksum, epoch: epoch, term: sequence, leader: claim.host)
    (voidCount, parts) = (0, nil)
    let heard = heardLeader(at: now)
    if !isOwn { submitted = [] }
    let wasLeading = role == .leading
    role = claim.host == host ? .leading : .following
    let adopted = Output.adopt(claim.heads, isGap: false)
    guard role == .leading else { return (wasLeading ? [.resign] : []) + [adopted] + heard }
    return [adopted, .lead(term: sequence)] + beat(at: now)
  }

  mutating func take(_ part: ShardEntry.Part, isOwn: Bool, at now: UInt64) -> [Output] {
    guard position != nil else { return [] }
    voidCount = 0
    var outputs: [Output] = []
    if position?.leader != host {
      outputs = heardLeader(at: now)
      // There is a leader, although no heartbeat was heard.
      if role == .claiming || role == .gathering { (role, submitted) = (.following, []) }
    }
    if part.index == 0 { (parts, partCount) = ([], 0) }
    guard let count = parts?.count, part.index == partCount, part.bytes.count <= recordByteCount - count else {
      parts = nil
      return outputs
    }
    parts?.append(contentsOf: part.bytes)
    partCount += 1
    guard part.isLast, let record = parts, let saved = position?.saved else { return outputs }
    parts = nil
    return outputs + [.apply(record, at: saved)]
  }

  // MARK: Appending

  mutating func submit(_ content: ShardEntry.Content, epoch: UInt64, at now: UInt64) -> [Output] {
    submitted.append(Submitted(content: content, epoch: epoch, bytes: nil))
    unresolvedSince = unresolvedSince ?? now
    // The entry waits until the log was read.
    guard retryAt == nil, !isReading else { return [] }
    return append(from: submitted.count - 1)
  }

  /// Appends the submitted entries from this index on, except those that are acknowledged with the same bytes.
  mutating func append(from index: Int) -> [Output] {
    guard let position else { return [] }
    var outputs: [Output] = []
    // The entries before the index were appended with the present chain: only the last one's checksum matters.
    var former = index > 0 ? submitted[index - 1].bytes.map { ShardEntry.checksum(of: $0) } : position.checksum
    let start = former == nil ? 0 : index
    // An entry after a renewed claim has the claim's term, and the claim's sequence number may be another one than the
    // last time.
    let claimed = submitted.firstIndex(where: \.isClaim)
    for place in start..<submitted.count {
      if let claimed, claimed < place, case .part(var part) = submitted[place].content {
        part.term = position.sequence + UInt64(claimed) + 1
        submitted[place].content = .part(part)
      }
      let entry = ShardEntry(
        epoch: submitted[place].epoch, former: former ?? position.checksum, content: submitted[place].content)
      let bytes = entry.bytes
      former = ShardEntry.checksum(of: bytes)
      if bytes != submitted[place].bytes { submitted[place].isStored = false }
      guard !submitted[place].isStored else { continue }
      attemptCount += 1
      submitted[place].bytes = bytes
      (submitted[place].attempt, submitted[place].base) = (attemptCount, position.sequence)
      outputs.append(
        .ask(
          .append(
            bytes, isClaim: submitted[place].isClaim, after: position.sequence + removedCount + UInt64(place),
            attempt: attemptCount)))
    }
    return outputs
  }

  mutating func beat(at now: UInt64) -> [Output] { heartbeat(at: now).map { [.beat($0)] } ?? [] }

  // MARK: Reading

  mutating func read() -> [Output] {
    guard !isReading, let position else { return [] }
    isReading = true
    return [.ask(.read(after: position.sequence))]
  }

  mutating func findClaim() -> [Output] {
    guard !isReading else { return [] }
    isReading = true
    return [.ask(.findClaim)]
  }

  /// Entries were removed from the middle of the log: the next one is accepted without a check of the one before it.
  mutating func skip(to bytes: [UInt8], at sequence: UInt64) {
    parts = nil
    position?.sequence = sequence - 1
    if let former = (try? ShardEntry(bytes))?.former { position?.checksum = former }
  }

  /// Begins again with the newest claim: the log is another one, or has lost entries that were not read yet.
  mutating func rebase(isForVoids: Bool = false) -> [Output] {
    let wasLeading = role == .leading
    (role, position, parts, submitted, knownLast, isInDoubt) = (.following, nil, nil, [], 0, false)
    removedCount = 0
    voidCount = isForVoids ? nil : 0
    isReading = false
    return (wasLeading ? [.resign] : []) + findClaim()
  }

  mutating func gather() -> [Output] {
    let wasLeading = role == .leading
    (role, submitted, voidCount, knownLast, isInDoubt, removedCount) = (.gathering, [], 0, 0, false, 0)
    isReading = true
    return (wasLeading ? [.resign] : []) + [.ask(.gather)]
  }

  mutating func stop() -> [Output] {
    let wasLeading = role == .leading
    (role, parts, submitted) = (.stopped, nil, [])
    return (wasLeading ? [.resign] : []) + [.stop]
  }
}
