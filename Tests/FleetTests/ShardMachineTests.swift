import Testing

@testable import Fleet

@Suite struct ShardMachineTests {
  @Test func aHostIsStaleSinceItHeardItsLeaderHoweverOftenItTriesToClaim() throws {
    let second: UInt64 = 1_000_000_000
    let leader = try #require(HostID([UInt8](repeating: 1, count: 16)))
    let host = try #require(HostID([UInt8](repeating: 2, count: 16)))
    var machine = ShardMachine(host: host, weight: 0, now: 0)
    let claim = ShardEntry(epoch: 1, former: 0, content: .claim(ShardEntry.Claim(host: leader, heads: [])))
    _ = machine.start()
    _ = machine.foundClaim(claim.bytes, at: 1, now: second)
    _ = machine.read(after: 1, [], first: 1, last: 1, at: second)
    let heartbeat = ShardMachine.Heartbeat(epoch: 1, term: 1, last: 1)
    _ = machine.hear(heartbeat, at: 2 * second)
    #expect(machine.staleSince(at: 4 * second) == nil)
    for time in 8...60 {
      let now = UInt64(time) * second
      let isAsking = machine.tick(at: now).contains { if case .ask(.gather) = $0 { true } else { false } }
      if isAsking { _ = machine.readFailed(at: now) }
      #expect(machine.staleSince(at: now) == 2 * second, "after \(time) s")
    }
    _ = machine.hear(heartbeat, at: 61 * second)
    #expect(machine.staleSince(at: 62 * second) == nil)
    #expect(machine.staleSince(at: 70 * second) == 61 * second)
  }

  // MARK: Hosts that claim at the same time

  /// A machine that follows another host, which it has heard at the time 0.
  private func follower(weight: Double) throws -> ShardMachine {
    let leader = try #require(HostID([UInt8](repeating: 1, count: 16)))
    let host = try #require(HostID([UInt8](repeating: 2, count: 16)))
    let claim = ShardEntry(epoch: 1, former: 0, content: .claim(ShardEntry.Claim(host: leader, heads: [])))
    var machine = ShardMachine(host: host, weight: weight, now: 0)
    _ = machine.start()
    _ = machine.foundClaim(claim.bytes, at: 1, now: 0)
    _ = machine.read(after: 1, [], first: 1, last: 1, at: 0)
    return machine
  }

  @Test func aHostLeavesAClaimToTheHostThatAsksForItsPosition() throws {
    var machine = try follower(weight: 1)
    let due = try #require(machine.deadline)
    machine.asked(at: due - 1)
    #expect(machine.tick(at: due) == [] && machine.deadline == due - 1 + machine.times.yield)
    // No claim has come.
    let next = due - 1 + machine.times.yield
    #expect(machine.tick(at: next) == [.ask(.gather)])
    // The question of this host comes back to it.
    machine.asked(at: next)
    _ = machine.readFailed(at: next)
    #expect(machine.yieldEnd == next)
  }

  /// - Parameter delay: that of a host with another definition of a stream.
  @Test(arguments: [0, 5_000_000_000] as [UInt64])
  func aHostThatAsksWithoutEndDoesNotKeepAShardWithoutALeader(delay: UInt64) throws {
    var machine = try follower(weight: 0)
    machine.claimDelay = delay
    let times = machine.times
    var now: UInt64 = 0
    while machine.tick(at: now) != [.ask(.gather)], now < 60_000_000_000 {
      machine.asked(at: now)
      now += 100_000_000
    }
    #expect(now <= times.lease * 2 + times.leaseSpread + times.yield + delay)
  }

  @Test func aHostLeavesTheFirstClaimToTheHostThatAsksForItsPosition() throws {
    let host = try #require(HostID([UInt8](repeating: 2, count: 16)))
    var machine = ShardMachine(host: host, weight: 1, now: 0)
    _ = machine.start()
    machine.asked(at: 0)
    #expect(machine.foundNoClaim(last: 0, at: 1) == [])
    let due = try #require(machine.deadline)
    #expect(machine.tick(at: due) == [.ask(.findClaim)])
    #expect(machine.foundNoClaim(last: 0, at: machine.times.yield) == [.ask(.gather)])
  }

  // MARK: A log that has lost entries

  @Test(arguments: [(1, 3), (2, 1)] as [(epoch: UInt64, sequence: UInt64)])
  func aLossThatAnotherHostHasNoticedBeginsANewEpoch(lost: (epoch: UInt64, sequence: UInt64)) throws {
    let leader = try #require(HostID([UInt8](repeating: 1, count: 16)))
    let host = try #require(HostID([UInt8](repeating: 2, count: 16)))
    var noticing = ShardMachine(host: leader, weight: 0, now: 0)
    _ = noticing.start(resumingAt: ShardPosition(epoch: lost.epoch, sequence: lost.sequence, checksum: 0, term: 1))
    _ = noticing.foundNoClaim(last: 0, at: 0)
    #expect(noticing.lost == lost)

    let claim = ShardEntry(epoch: 1, former: 0, content: .claim(ShardEntry.Claim(host: leader, heads: [])))
    var machine = ShardMachine(host: host, weight: 0, now: 0)
    _ = machine.start()
    _ = machine.foundClaim(claim.bytes, at: 1, now: 0)
    _ = machine.read(after: 1, [], first: 1, last: 1, at: 0)
    #expect(machine.tick(at: machine.deadline ?? 0) == [.ask(.gather)])
    let answer = ShardMachine.Gathered(
      epoch: 1, sequence: 1, lost: noticing.lost, heads: [5], newHeads: [6], last: 1, lastEntry: claim.bytes)
    let entries = try machine.gathered(answer, at: 0).compactMap { action throws -> ShardEntry? in
      if case .ask(.append(let bytes, _, after: 1, _)) = action { try ShardEntry(bytes) } else { nil }
    }
    #expect(entries.map(\.epoch) == [lost.epoch + 1])
    #expect(entries.map(\.content) == [.claim(ShardEntry.Claim(host: host, heads: [6]))])
  }

  @Test func aHostClaimsALogWhoseLastEntriesWereRemovedInANewEpoch() throws {
    let leader = try #require(HostID([UInt8](repeating: 1, count: 16)))
    let host = try #require(HostID([UInt8](repeating: 2, count: 16)))
    let claim = ShardEntry(epoch: 1, former: 0, content: .claim(ShardEntry.Claim(host: leader, heads: [])))
    var machine = ShardMachine(host: host, weight: 0, now: 0)
    _ = machine.start()
    _ = machine.foundClaim(claim.bytes, at: 1, now: 0)
    for sequence in [3, 1] as [UInt64] {
      _ = machine.read(after: 1, [], first: 1, last: 3, at: 0)
      _ = machine.tick(at: 250_000_000)
      #expect(machine.read(after: 1, [], first: 1, last: 3, at: 250_000_000) == [])
      #expect(machine.tick(at: machine.deadline ?? 0) == [.ask(.gather)])
      let answer = ShardMachine.Gathered(
        epoch: 1, sequence: sequence, heads: [5], newHeads: [6], last: 3, lastEntry: nil)
      let outputs = machine.gathered(answer, at: 0)
      guard sequence == 1 else {  // another host has read the entries, and claims the shard
        #expect(outputs == [.ask(.read(after: 1))])
        continue
      }
      guard case .ask(.append(let bytes, isClaim: true, after: 3, let attempt))? = outputs.first else {
        throw NoAppend()
      }
      #expect(try ShardEntry(bytes).epoch == 2)
      #expect(machine.appended(attempt: attempt, .stored, at: 0).contains(.adopt([6], isGap: false)))
      #expect(machine.isLeading && machine.term == 4)
    }
  }

  // MARK: A leader that cannot append

  @Test func aLeaderMayNotFetchAfterAnAppendThatFailedUntilOneIsAcknowledged() throws {
    let second: UInt64 = 1_000_000_000
    var machine = try leading()
    var attempt = try #require(attempts(machine.submit([7], at: 0)).first)
    #expect(machine.mayFetch)
    for time in 1...3 as ClosedRange<UInt64> {  // a broker that is cut off answers reads, and stores nothing
      #expect(machine.appended(attempt: attempt, .unknown, at: time * second) == [.ask(.read(after: 1))])
      _ = machine.read(after: 1, [], first: 1, last: 1, at: time * second)
      #expect(machine.tick(at: (time + 1) * second).contains(.ask(.read(after: 1))))
      let again = attempts(machine.read(after: 1, [], first: 1, last: 1, at: (time + 1) * second))
      attempt = try #require(again.first)
      #expect(machine.isLeading && !machine.mayFetch, "after \(time) s")
      #expect(machine.maySubmit)  // published values follow
    }
    #expect(records(machine.appended(attempt: attempt, .stored, at: 5 * second)) == [[7]])
    #expect(machine.mayFetch)
  }

  // MARK: Own entries

  /// Found by seed 23: the second record waited for another one after it.
  @Test func anAcknowledgedRecordIsTakenOnceTheTailHasBroughtTheOneBeforeIt() throws {
    var machine = try leading()
    let first = try #require(machine.submit([7], at: 0).first)
    let second = attempts(machine.submit([8], at: 0))
    guard case .ask(.append(let bytes, _, after: 1, let attempt)) = first else { throw NoAppend() }
    #expect(records(machine.appended(attempt: second[0], .stored, at: 0)) == [])
    #expect(records(machine.receive(bytes, at: 2, now: 0)) == [[7], [8]])
    #expect(machine.appended(attempt: attempt, .stored, at: 0) == [])
    #expect(machine.isSettled && machine.mayFetch && machine.staleSince(at: .max / 2) == nil)
  }

  @Test func anAcknowledgedRecordIsTakenOnceTheOneBeforeItIsRead() throws {
    var machine = try leading()
    let first = try #require(machine.submit([7], at: 0).first)
    let second = attempts(machine.submit([8], at: 0))
    guard case .ask(.append(let bytes, _, after: 1, let attempt)) = first else { throw NoAppend() }
    _ = machine.appended(attempt: second[0], .stored, at: 0)
    #expect(machine.appended(attempt: attempt, .unknown, at: 0) == [.ask(.read(after: 1))])
    // A replica that lags behind answers.
    #expect(records(machine.read(after: 1, [(2, bytes)], first: 1, last: 2, at: 0)) == [[7], [8]])
    #expect(machine.isSettled)
  }

  private struct NoAppend: Error {}

  // MARK: A renewed claim

  /// A leader of a log that has nothing but its claim.
  private func leading() throws -> ShardMachine {
    let host = try #require(HostID([UInt8](repeating: 1, count: 16)))
    var machine = ShardMachine(host: host, weight: 0, now: 0)
    _ = machine.start()
    _ = machine.foundNoClaim(last: 0, at: 0)
    let claim = machine.gathered(
      .init(epoch: 0, sequence: 0, heads: [], newHeads: [], last: 0, lastEntry: nil), at: 0)
    for attempt in attempts(claim) { _ = machine.appended(attempt: attempt, .stored, at: 0) }
    try #require(machine.isLeading && machine.maySubmit)
    return machine
  }

  /// A leader that has renewed its claim, and submitted a record before the answer.
  private func renewing() throws -> (machine: ShardMachine, attempts: [UInt64]) {
    var machine = try leading()
    let renewal = attempts(machine.renew(heads: [], at: 0))
    let record = attempts(machine.submit([7], at: 0))
    try #require(renewal.count == 1 && record.count == 1)
    return (machine, renewal + record)
  }

  private func attempts(_ actions: [ShardMachine.Output]) -> [UInt64] {
    actions.compactMap { if case .ask(.append(_, _, _, let attempt)) = $0 { attempt } else { nil } }
  }

  private func records(_ actions: [ShardMachine.Output]) -> [[UInt8]] {
    actions.compactMap { if case .apply(let record, _) = $0 { record } else { nil } }
  }

  @Test func aRecordThatFollowsARenewedClaimIsOfItsTerm() throws {
    var (machine, attempts) = try renewing()
    let actions = attempts.flatMap { machine.appended(attempt: $0, .stored, at: 0) }
    #expect(records(actions) == [[7]] && machine.isSettled)
  }

  @Test func aRecordFollowsARenewedClaimThatIsAppendedAgainFurtherOn() throws {
    var (machine, former) = try renewing()
    #expect(machine.appended(attempt: former[0], .refused(last: 2), at: 0) == [.ask(.read(after: 1))])
    let again = machine.read(after: 1, [(2, [0])], first: 1, last: 2, at: 0)
    let actions = attempts(again).flatMap { machine.appended(attempt: $0, .stored, at: 0) }
    #expect(records(actions) == [[7]] && machine.isSettled && machine.term == 3)
  }
}
