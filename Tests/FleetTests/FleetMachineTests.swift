import Events
import TaggedFields
import Testing

@testable import Fleet

@Suite struct FleetMachineTests {
  private let machine = FleetMachine(host: .random(), hostName: "a", shardCount: 1) { values, _ in values }

  private func stream(_ definition: UInt64 = 1) -> FleetMachine.Stream {
    .init(name: "s", definition: definition, kind: .continuous, canLead: true, end: 1)
  }

  /// Lets the host lead the shard of an empty log.
  private func lead() throws {
    var actions = machine.connected(at: 0)
    #expect(actions == [.ask(.findClaim, shard: 0)])
    actions = machine.answer(.findClaim(FleetClaim.none(last: 0)), shard: 0, at: 0, wallTime: 1000)
    #expect(actions == [.ask(.gather, shard: 0)])
    actions = machine.answer(.gather([], FleetNewest(last: 0, entry: nil)), shard: 0, at: 0, wallTime: 1000)
    guard case .ask(.append(_, isClaim: true, after: 0, let attempt), shard: 0)? = actions.first else {
      Issue.record("\(actions)")
      return
    }
    actions = machine.answer(.append(attempt: attempt, .stored), shard: 0, at: 0, wallTime: 1000)
    #expect(actions.contains(.report(.leads(shard: 0, term: 1))))
  }

  @Test func demandBeforeAStreamIsKnownIsNotForgotten() throws {
    #expect(machine.wants("s", true, at: 0) == [])
    let actions = machine.setStreams([stream()], at: 0)
    #expect(actions == [.showInterest(true, stream: "s", shard: 0)])
    try lead()
    #expect(machine.isFetched("s"))
  }

  /// A leader whose name was not heard is shown so.
  @Test func theIDOfAHostIsWrittenInHexadecimalDigits() {
    #expect(HostID(Array(0..<16)).map { "\($0)" } == "000102030405060708090a0b0c0d0e0f")
  }

  @Test func demandThatEndsBeforeAStreamIsKnownIsNotShown() {
    #expect(machine.wants("s", true, at: 0) == [] && machine.wants("s", false, at: 0) == [])
    #expect(machine.setStreams([stream()], at: 0) == [])
  }

  /// The host that wants it, or its broker, may have been cut off when the leader asked.
  @Test func aLeaderThatHeardOfNoDemandAsksAgain() throws {
    var poll = stream()
    poll.kind = .poll
    _ = machine.setStreams([poll], at: 0)
    try lead()
    #expect(machine.learned("s", isWanted: true, at: 0) == [.fetch(true, stream: "s")])
    #expect(machine.learned("s", isWanted: false, at: 0) == [.fetch(false, stream: "s")])
    #expect(!machine.tick(at: 29 * Self.second, wallTime: 1000).contains(.askInterest(stream: "s")))
    #expect(machine.tick(at: 30 * Self.second, wallTime: 1000).contains(.askInterest(stream: "s")))
    #expect(machine.learned("s", isWanted: false, at: 30 * Self.second) == [])
    #expect(!machine.tick(at: 89 * Self.second, wallTime: 1000).contains(.askInterest(stream: "s")))
    #expect(machine.tick(at: 90 * Self.second, wallTime: 1000).contains(.askInterest(stream: "s")))
  }

  /// One host may hang, and be asked in the place of others.
  @Test func aQuestionWithoutAnAnswerLeavesTheDemandAsItWas() throws {
    var poll = stream()
    poll.kind = .poll
    _ = machine.setStreams([poll], at: 0)
    try lead()
    for isWanted in [true, false] {
      _ = machine.learned("s", isWanted: isWanted, at: 0)
      #expect(machine.isWanted("s", answer: nil) == isWanted)
      #expect(machine.isWanted("s", answer: !isWanted) == !isWanted)
      #expect(machine.learned("s", isWanted: nil, at: 0) == [] && machine.isFetched("s") == isWanted)
      let isAsked = machine.tick(at: 5 * Self.second, wallTime: 1000).contains(.askInterest(stream: "s"))
      #expect(isAsked != isWanted, "a poll asks before each fetch")
    }
    _ = machine.wants("s", true, at: 0)
    #expect(machine.isWanted("s", answer: nil) && machine.isWanted("s", answer: false))
  }

  @Test func aLeaderAsksForTheDemandOfASourceThatTakesThePlaceOfAPoll() throws {
    var changed = stream()
    changed.kind = .poll
    _ = machine.setStreams([changed], at: 0)
    try lead()
    _ = machine.learned("s", isWanted: true, at: 0)
    _ = machine.setStreams([stream()], at: 0)
    #expect(machine.tick(at: 0, wallTime: 1000).contains(.askInterest(stream: "s")))
  }

  private func beat(of leader: HostID, isLast: Bool = false) -> [UInt8] {
    let heartbeat = ShardMachine.Heartbeat(epoch: 0, term: 1, last: 1, isLast: isLast)
    return RecordFields.bytes(
      of: HostHeartbeat(host: leader.bytes, shards: [.init(shard: 0, heartbeat: heartbeat)]))
  }

  /// Lets the host follow another one and tell it what it wants.
  /// - Returns: the other's claim.
  private func tell(_ leader: HostID) throws -> ShardEntry {
    let heads = ShardHeads([] as [StreamHead]).bytes()
    let claim = ShardEntry(epoch: 0, former: 0, content: .claim(ShardEntry.Claim(host: leader, heads: heads)))
    _ = machine.setStreams([stream()], at: 0)
    _ = machine.connected(at: 0)
    _ = machine.answer(.findClaim(.found(claim.bytes, sequence: 1)), shard: 0, at: 0, wallTime: 1000)
    #expect(tellCount(machine.wants("s", true, at: 0)) == 1)
    machine.wantArrived("s", leader: leader, true, at: 0)
    return claim
  }

  private func tellCount(_ actions: [FleetMachine.Action]) -> Int {
    actions.count { if case .want(_, "s", _) = $0 { true } else { false } }
  }

  @Test(arguments: ["connected", "heartbeat", "part"])
  func aHostThatIsConnectedOrHearsItsLeaderAgainTellsItAgainWhatItWants(sign: String) throws {
    let leader = HostID.random()
    let claim = try tell(leader)
    func hear(at time: UInt64) -> [FleetMachine.Action] {
      let part = ShardEntry(
        epoch: 0, former: ShardEntry.checksum(of: claim.bytes),
        content: .part(.init(term: 1, index: 0, isLast: true, bytes: [])))
      let actions =
        switch sign {
        case "connected": machine.connected(at: time)
        case "heartbeat": machine.heard(beat(of: leader), at: time)
        default: machine.received(part.bytes, shard: 0, at: 2, now: time)
        }
      return actions + machine.tick(at: time, wallTime: 1000)
    }
    #expect(tellCount(machine.tick(at: Self.second, wallTime: 1000)) == 0)
    if sign == "heartbeat" { #expect(tellCount(hear(at: 2 * Self.second)) == 0) }
    #expect(tellCount(hear(at: 6 * Self.second)) == 1)
  }

  /// After its last heartbeat, a leader counts as silent at once.
  @Test func aLeaderThatSaysAgainAndAgainThatItStopsIsToldOnceInTwoSecondsWhatAHostWants() throws {
    let leader = HostID.random()
    _ = try tell(leader)
    var count = 0
    for step in 0..<400 {
      let time = Self.second * UInt64(step) / 100
      let actions = machine.heard(beat(of: leader, isLast: true), at: time) + machine.tick(at: time, wallTime: 1000)
      count += tellCount(actions)
      if tellCount(actions) > 0 { machine.wantArrived("s", leader: leader, true, at: time) }
    }
    #expect(count == 1)
  }

  @Test func aChangedStreamStaysFetched() throws {
    _ = machine.setStreams([stream()], at: 0)
    try lead()
    #expect(machine.wants("s", true, at: 0).contains(.fetch(true, stream: "s")))
    #expect(machine.setStreams([stream(2)], at: 0) == [] && machine.isFetched("s"))
    #expect(machine.setStreams([], at: 0).contains(.fetch(false, stream: "s")) && !machine.isFetched("s"))
  }

  @Test func aLeaderKnowsTheHostsThatDefineAStreamOtherwiseUntilTheyNoLongerAsk() throws {
    _ = machine.setStreams([stream(2)], at: 0)
    try lead()
    func ask(_ host: HostID, named name: String, definition: UInt64, at time: UInt64) -> [UInt8]? {
      let message = FleetMessage(
        kind: .compare, sender: host.bytes, stream: "s", bytes: Array(name.utf8), definition: definition)
      let (actions, answer) = machine.receive(RecordFields.bytes(of: message), at: time, wallTime: 1000)
      #expect(actions == [])
      return answer
    }
    func others(at time: UInt64) -> [String]? { machine.status(of: "s", at: time)?.otherHosts }
    let hosts = (0..<100).map { _ in HostID.random() }
    #expect(ask(hosts[0], named: "b", definition: 1, at: 0) == [0, 0, 0, 0, 0, 0, 0, 2] && others(at: 1) == ["b"])
    #expect(ask(hosts[1], named: "c", definition: 2, at: 0) != nil && others(at: 1) == ["b"])
    #expect(others(at: 30 * Self.second) == [])
    #expect(ask(hosts[0], named: "b", definition: 2, at: 0) != nil && others(at: 1) == [])
    for host in hosts { _ = ask(host, named: String(repeating: "x", count: 300), definition: 9, at: 0) }
    #expect(others(at: 1) == Array(repeating: String(repeating: "x", count: 64), count: 64))
    // Those that no longer ask leave room for others.
    #expect(ask(.random(), named: "d", definition: 9, at: 40 * Self.second) != nil)
    #expect(others(at: 41 * Self.second) == ["d"])
    _ = machine.setStreams([stream(8)], at: 41 * Self.second)
    #expect(others(at: 41 * Self.second) == [])
  }

  @Test func aHostWithAnotherDefinitionThanTheLastRecordLetsOthersClaimTheShardBefore() throws {
    let heads = ShardHeads([StreamHead]()).bytes()
    let claim = ShardEntry(epoch: 1, former: 0, content: .claim(.init(host: .random(), heads: heads))).bytes
    let record = FleetRecord(stream: "s", definition: 1, firstID: 1, time: 1, events: [[1]])
    let part = ShardEntry.Part(term: 1, isLast: true, bytes: RecordFields.bytes(of: record))
    let entry = ShardEntry(epoch: 1, former: ShardEntry.checksum(of: claim), content: .part(part)).bytes
    _ = machine.setStreams([stream(2)], at: 0)
    _ = machine.connected(at: 0)
    _ = machine.answer(.findClaim(FleetClaim.found(claim, sequence: 1)), shard: 0, at: 0, wallTime: 0)
    let end = FleetEntries(entries: [], first: 1, last: 1)
    _ = machine.answer(.read(after: 1, end), shard: 0, at: 0, wallTime: 0)
    #expect(machine.received(entry, shard: 0, at: 2, now: 0).count == 1)
    var now: UInt64 = 0
    while now < 20 * Self.second, let due = machine.deadline {
      now = max(now, due)
      let actions = machine.tick(at: now, wallTime: 1000)
      if actions.contains(.ask(.gather, shard: 0)) { break }
    }
    #expect((8 * Self.second)...(10 * Self.second) ~= now, "\(now)")
  }

  @Test func aClaimLeavesOutTheLargestCheckpointsOnly() throws {
    let heads = (0..<300).map { number in
      var head = StreamHead(stream: "\(number)", time: 1)
      head.checkpoint = Checkpoint([UInt8](repeating: 7, count: number < 150 ? 20 : Checkpoint.maximumByteCount))
      return head
    }
    let bytes = ShardHeads(heads).bytes()
    #expect(bytes.count <= ShardHeads.byteCount)
    let read = try ShardHeads(bytes).heads
    #expect(read.count == 300 && read.allSatisfy { (Int($0.stream) ?? 0) >= 150 || $0.checkpoint != nil })
    #expect(read.count { $0.checkpoint != nil } > 250)
  }

  // MARK: Waiting records

  /// The records that are appended by these actions, with the attempts to answer for.
  private func appends(_ actions: [FleetMachine.Action]) throws -> [(record: FleetRecord, attempt: UInt64)] {
    try actions.compactMap { action in
      guard case .ask(.append(let bytes, isClaim: false, _, let attempt), shard: 0) = action,
        case .part(let part) = try ShardEntry(bytes).content
      else { return nil }
      return (try RecordFields.read(FleetRecord.self, from: part.bytes[...]), attempt)
    }
  }

  /// - Parameter last: the number of its last event; its checkpoint.
  private func fetch(_ numbers: ClosedRange<UInt8>) -> [FleetMachine.Action] {
    var batch = EventBatch(numbers.map { [$0] })
    batch.checkpoint = Checkpoint([numbers.upperBound])
    return machine.fetched(batch, of: "s", at: 0, wallTime: 1000)
  }

  private func leadAndFetch() throws {
    _ = machine.setStreams([stream()], at: 0)
    _ = machine.wants("s", true, at: 0)
    try lead()
  }

  @Test func batchesThatComeWhileRecordsAreUnderWayBecomeOneRecord() throws {
    try leadAndFetch()
    let first = try appends(fetch(1...1) + fetch(2...2))
    try #require(first.map(\.record.events) == [numbered([[1]]), numbered([[2]])])
    #expect(try appends(fetch(3...3) + fetch(4...6) + fetch(7...7)).isEmpty && machine.mayFetch("s"))
    let joined = try appends(
      machine.answer(.append(attempt: first[0].attempt, .stored), shard: 0, at: 0, wallTime: 1000))
    #expect(joined.map(\.record.events) == [numbered(EventBatch((3...7).map { [$0] }))])
    #expect(joined[0].record.firstID == first[1].record.firstID + 1)
    #expect(
      try appends(machine.answer(.append(attempt: first[1].attempt, .stored), shard: 0, at: 0, wallTime: 1000)).isEmpty)
  }

  /// With the checkpoint that `fetch` gives them.
  private func numbered(_ events: EventBatch) -> EventBatch {
    var events = events
    events.checkpoint = events.last.flatMap { Checkpoint($0) }
    return events
  }

  @Test func aFullRecordIsSubmittedAtOnceAndNothingIsFetchedWhileTwoMebibytesWait() throws {
    try leadAndFetch()
    let large = [UInt8](repeating: 0, count: 600 << 10)
    var count = 0
    while machine.mayFetch("s"), count < 100 {
      let records = try appends(machine.fetched([large], of: "s", at: 0, wallTime: 1000))
      #expect(records.allSatisfy { $0.record.events.count == 1 })
      count += 1
    }
    // 8 MiB are under way, and 2 MiB wait.
    #expect((17...19).contains(count))
  }

  @Test func aStreamOfRecordsDoesNotKeepALeaderFromRenewingItsClaim() throws {
    let machine = FleetMachine(host: .random(), hostName: "a", shardCount: 1, renewalRecordCount: 4) { values, _ in
      values
    }
    _ = machine.setStreams([stream()], at: 0)
    _ = machine.connected(at: 0)
    _ = machine.answer(.findClaim(FleetClaim.none(last: 0)), shard: 0, at: 0, wallTime: 1000)
    var attempts = machine.answer(.gather([], FleetNewest(last: 0, entry: nil)), shard: 0, at: 0, wallTime: 1000)
    _ = machine.wants("s", true, at: 0)
    var (claims, records) = (0, 0)
    for number in 0..<100 as Range<UInt8> {  // one is always under way, more are fetched
      guard case .ask(.append(_, let isClaim, _, let attempt), _)? = attempts.first else { break }
      (claims, records) = isClaim ? (claims + 1, records) : (claims, records + 1)
      attempts.removeFirst()
      attempts += machine.answer(.append(attempt: attempt, .stored), shard: 0, at: 0, wallTime: 1000).filter(isAppend)
      attempts += machine.fetched([[number]], of: "s", at: 0, wallTime: 1000).filter(isAppend)
    }
    #expect(claims + records == 100 && (10...25).contains(claims), "\(claims) claims, \(records) records")
  }

  private func isAppend(_ action: FleetMachine.Action) -> Bool {
    if case .ask(.append, _) = action { true } else { false }
  }

  private func publishing() -> FleetMachine.Stream {
    .init(name: "s", definition: 1, kind: .publish, canLead: true, end: 1)
  }

  @Test func valuesThatArriveWhileAnAppendIsUnresolvedAreAppendedWithoutRepetition() throws {
    _ = machine.setStreams([publishing()], at: 0)
    try lead()
    let first = try appends(machine.publish([[1]], to: "s", at: 0, wallTime: 1000))
    try #require(first.count == 1)
    let reading = machine.answer(.append(attempt: first[0].attempt, .unknown), shard: 0, at: 0, wallTime: 1000)
    #expect(reading == [.ask(.read(after: 1), shard: 0)])
    let sender = HostID.random()
    let record = FleetRecord(stream: "s", events: [[2]], sender: sender.bytes, number: 1)
    let message = FleetMessage(
      kind: .values, sender: sender.bytes, stream: "s", number: 1, isLast: true, bytes: RecordFields.bytes(of: record))
    for _ in 0..<2 {  // it is repeated
      let (actions, answer) = machine.receive(RecordFields.bytes(of: message), at: 0, wallTime: 1000)
      #expect(actions == [] && answer == [])
    }
    // The append was lost: it is made again, and the values follow it.
    _ = machine.answer(.read(after: 1, FleetEntries(entries: [], first: 1, last: 1)), shard: 0, at: 0, wallTime: 1000)
    var actions = machine.tick(at: Self.second, wallTime: 1000)
    #expect(actions.contains(.ask(.read(after: 1), shard: 0)))
    actions = machine.answer(
      .read(after: 1, FleetEntries(entries: [], first: 1, last: 1)), shard: 0, at: Self.second, wallTime: 1000)
    #expect(try appends(actions).map(\.record.events) == [[[1]], [[2]]])
  }

  @Test func aPollThatIsDueIsMadeOnceALogThatDidNotAcknowledgeAnAppendAcknowledgesAnother() throws {
    _ = machine.setStreams([stream()], at: 0)
    try lead()
    #expect(machine.admitsFetch("s") == nil)  // other hosts decide
    _ = machine.wants("s", true, at: 0)
    #expect(machine.admitsFetch("s") == true)
    guard case .ask(.append(let bytes, isClaim: false, after: 1, let attempt), shard: 0)? = fetch(1...1).first else {
      Issue.record("nothing is appended")
      return
    }
    #expect(machine.admitsFetch("s") == true)
    _ = machine.answer(.append(attempt: attempt, .unknown), shard: 0, at: 0, wallTime: 1000)
    #expect(machine.admitsFetch("s") == false)
    // It was stored: when, is not known.
    _ = machine.answer(
      .read(after: 1, FleetEntries(entries: [(2, bytes)], first: 1, last: 2)), shard: 0, at: 0, wallTime: 1000)
    let actions = machine.tick(at: Self.second, wallTime: 1000)
    #expect(actions.contains(.ask(.read(after: 2), shard: 0)) && machine.admitsFetch("s") == false)
    let sign = machine.answer(
      .read(after: 2, FleetEntries(entries: [], first: 1, last: 2)), shard: 0, at: Self.second, wallTime: 1000)
    #expect(machine.admitsFetch("s") == false)
    guard case .ask(.append(let empty, isClaim: false, after: 2, let last), shard: 0)? = sign.first,
      case .part(let part) = try ShardEntry(empty).content
    else {
      Issue.record("\(sign)")
      return
    }
    #expect(part.bytes.isEmpty && sign.count == 1)
    // The tail is faster than the acknowledgement.
    #expect(machine.received(empty, shard: 0, at: 3, now: Self.second) == [] && machine.admitsFetch("s") == false)
    _ = machine.answer(.append(attempt: last, .stored), shard: 0, at: Self.second, wallTime: 1000)
    #expect(machine.admitsFetch("s") == true)
  }

  @Test func aHostThatStopsSubmitsWhatWaits() throws {
    try leadAndFetch()
    _ = fetch(1...1) + fetch(2...2) + fetch(3...3)
    #expect(try appends(machine.leave(at: 0)).map(\.record.events) == [numbered([[3]])])
  }

  @Test func whatWaitsIsForgottenWithTheLeadership() throws {
    try leadAndFetch()
    let first = try appends(fetch(1...1) + fetch(2...2) + fetch(3...3))
    #expect(
      machine.answer(.append(attempt: first[0].attempt, .refused(last: 0)), shard: 0, at: 0, wallTime: 1000).contains(
        .ask(.gather, shard: 0)))
    #expect(!machine.isLeading("s") && !machine.mayFetch("s"))
    #expect(try appends(machine.leave(at: 0)).isEmpty)
  }

  // MARK: Schedules

  private static let second: UInt64 = 1_000_000_000

  /// A leader that has fetched nothing but a schedule of 10 s to the next slot and 60 s of rest.
  /// - Returns: its entries.
  private func rest() throws -> [[UInt8]] {
    _ = machine.setStreams([stream()], at: 0)
    _ = machine.connected(at: 0)
    _ = machine.answer(.findClaim(FleetClaim.none(last: 0)), shard: 0, at: 0, wallTime: 1000)
    var entries: [[UInt8]] = []
    var actions = machine.answer(.gather([], FleetNewest(last: 0, entry: nil)), shard: 0, at: 0, wallTime: 1000)
    for _ in 0..<2 {
      guard case .ask(.append(let bytes, _, _, let attempt), _)? = actions.first else { break }
      entries.append(bytes)
      _ = machine.answer(.append(attempt: attempt, .stored), shard: 0, at: 0, wallTime: 1000)
      actions = machine.rests("s", FleetSchedule(slot: 10_000_000, rest: 60_000_000), at: 0, wallTime: 1000)
    }
    try #require(entries.count == 2)
    return entries
  }

  private func follower() -> FleetMachine {
    let machine = FleetMachine(host: .random(), hostName: "b", shardCount: 1) { values, _ in values }
    _ = machine.setStreams([stream()], at: 0)
    _ = machine.connected(at: 0)
    return machine
  }

  @Test func anotherHostHasTheScheduleWhateverItsWallClock() throws {
    let entries = try rest()
    let other = follower()
    _ = other.answer(.findClaim(.found(entries[0], sequence: 1)), shard: 0, at: 0, wallTime: 1000)
    let actions = other.received(entries[1], shard: 0, at: 2, now: 100 * Self.second)
    #expect(actions.allSatisfy { if case .store(let events, _, _, _, _) = $0 { events.isEmpty } else { true } })
    for wallTime in [0, 1000, 3_600_000_000] as [UInt64] {
      #expect(
        other.schedule(of: "s", at: 104 * Self.second, wallTime: wallTime)
          == FleetSchedule(slot: 6_000_000, rest: 56_000_000))
      #expect(other.schedule(of: "s", at: 115 * Self.second, wallTime: wallTime) == FleetSchedule(rest: 45_000_000))
      #expect(other.schedule(of: "s", at: 160 * Self.second, wallTime: wallTime) == FleetSchedule())
    }
    #expect(other.lastTime(of: "s") == nil)  // it is no event
  }

  @Test func aHostThatReadsTheScheduleLaterTakesTheWallClock() throws {
    let entries = try rest()
    let other = follower()
    _ = other.answer(.findClaim(.found(entries[0], sequence: 1)), shard: 0, at: 0, wallTime: 1000)
    _ = other.answer(
      .read(after: 1, FleetEntries(entries: [(2, entries[1])], first: 1, last: 2)), shard: 0, at: 100 * Self.second,
      wallTime: 1000)
    let time = 100 * Self.second
    #expect(other.schedule(of: "s", at: time, wallTime: 20_001_000) == FleetSchedule(rest: 40_000_000))
    // A clock that is late lets it wait for no longer than the record says.
    #expect(
      other.schedule(of: "s", at: time, wallTime: 0) == FleetSchedule(slot: 10_000_000, rest: 60_000_000))
  }

  @Test func aClaimHasTheSchedule() throws {
    let entries = try rest()
    let other = follower()
    _ = other.answer(.findClaim(.found(entries[0], sequence: 1)), shard: 0, at: 0, wallTime: 1000)
    _ = other.answer(.read(after: 1, FleetEntries(entries: [], first: 1, last: 1)), shard: 0, at: 0, wallTime: 1000)
    _ = other.received(entries[1], shard: 0, at: 2, now: 0)
    #expect(other.tick(at: 10 * Self.second, wallTime: 1000).contains(.ask(.gather, shard: 0)))
    let actions = other.answer(
      .gather([], FleetNewest(last: 2, entry: entries[1])), shard: 0, at: 10 * Self.second, wallTime: 1000)
    guard case .ask(.append(let claim, isClaim: true, _, let attempt), _)? = actions.first else {
      Issue.record("\(actions)")
      return
    }
    _ = other.answer(.append(attempt: attempt, .stored), shard: 0, at: 11 * Self.second, wallTime: 1000)
    #expect(other.isLeading("s"))
    #expect(
      other.schedule(of: "s", at: 11 * Self.second, wallTime: 3_600_000_000) == FleetSchedule(rest: 49_000_000))
    let third = follower()
    _ = third.answer(.findClaim(.found(claim, sequence: 3)), shard: 0, at: 0, wallTime: 1000)
    #expect(third.schedule(of: "s", at: 0, wallTime: 30_001_000) == FleetSchedule(rest: 30_000_000))
  }

  @Test func aRecordReadsAsItWasWrittenAndFormerVersionsSkipItsSchedule() throws {
    let record = FleetRecord(
      stream: "s", definition: 1, firstID: 2, time: 3, events: [[97]], schedule: FleetSchedule(slot: 4, rest: 5))
    let bytes = RecordFields.bytes(of: record)
    #expect(try RecordFields.read(FleetRecord.self, from: bytes[...]) == record)
    let former = try RecordFields.read(FormerRecord.self, from: bytes[...])
    #expect(former.stream == "s" && former.firstID == 2)
    var plain = record
    plain.schedule = FleetSchedule()
    #expect(RecordFields.bytes(of: plain).count < bytes.count)
    #expect(try RecordFields.read(FleetRecord.self, from: RecordFields.bytes(of: plain)[...]) == plain)
  }

  @Test func aRecordHasTheKeysThatAProgramHasComputed() throws {
    var record = FleetRecord(stream: "s", events: [[97], [98], [99]])
    record.events.setKeys(
      [EventKey([1, 2], isTombstone: true), nil, EventKey([3])].reduce(into: EventKeys(definition: 7)) { $0.append($1) }
    )
    let bytes = RecordFields.bytes(of: record)
    #expect(try RecordFields.read(FleetRecord.self, from: bytes[...]) == record)
  }

  /// As version 0.2 reads a record: nothing after field 8.
  private struct FormerRecord: TaggedRecord {
    var stream = ""
    var firstID: UInt64 = 0
    var number: UInt64 = 0

    mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
      try fields.field(1, &stream)
      try fields.field(3, &firstID)
      try fields.field(8, &number)
    }
  }
}
