@testable import Fleet

/// A deterministic world of one shard: hosts, and an engine whose answers are late, lost or refused.
struct ShardSimulation {
  private enum Content {
    case append([UInt8], after: UInt64, attempt: UInt64, from: Int)
    case commit([UInt8], attempt: UInt64, from: Int)
    case appended(attempt: UInt64, ShardMachine.AppendResult)
    case tail([UInt8], UInt64)
    case readRequest(after: UInt64, from: Int)
    case entries(after: UInt64, [(sequence: UInt64, bytes: [UInt8])], first: UInt64, last: UInt64)
    case claimRequest(from: Int)
    case claim([UInt8], UInt64)
    case noClaim(last: UInt64)
    case gatherRequest(from: Int)
    case gathered(ShardMachine.Gathered)
    case failed
    case beat(ShardMachine.Heartbeat)
    case submit
    case tick
    case kill, restore
  }

  private struct Host {
    var machine: ShardMachine
    /// The last record that was applied, and its sequence number.
    var applied: (record: UInt64, sequence: UInt64)?
    /// The id of the next event.
    var end: UInt64 = 1
    /// That of the next event to be submitted.
    var nextID: UInt64 = 1
    /// The event under each id.
    var events: [UInt64: UInt64] = [:]
    var tickAt = UInt64.max
  }

  /// What holds after an entry of the log.
  private struct Meaning {
    var epoch: UInt64 = 0
    var term: UInt64 = 0
    var parts: [UInt8]?
    var partCount: UInt32 = 0
    /// The record that the entry completes.
    var record: UInt64?
  }

  private(set) var violations: [String] = []
  private var network: SimulatedNetwork<Content>
  private var hosts: [Host] = []
  private var log: [[UInt8]] = []
  /// The entries of the log that were removed.
  private var removed: Set<Int> = []
  private var nextRecord: UInt64 = 1
  /// What holds after each entry of the log, by the rules as they are written.
  private var meanings: [Meaning] = []
  private(set) var terms = 0
  private(set) var appliedCount = 0

  private static let second: UInt64 = 1_000_000_000

  init(seed: UInt64, hostCount: Int = 3, faults: Faults) {
    network = SimulatedNetwork(seed: seed, hostCount: hostCount, faults: faults)
    for index in 0..<hostCount {
      hosts.append(Host(machine: machine(index)))
    }
    for index in hosts.indices { perform(hosts[index].machine.start(), by: index) }
  }

  private var faults: Faults { network.faults }
  private var now: UInt64 { network.now }
  private var alive: [Host] { hosts.indices.filter { network.isAlive($0) }.map { hosts[$0] } }

  private mutating func machine(_ index: Int) -> ShardMachine {
    let bytes = (0..<16).map { _ in UInt8(truncatingIfNeeded: network.random.next()) }
    return ShardMachine(
      host: HostID(bytes)!, weight: Double(network.random.below(1000)) / 1000, partByteCount: 64, now: now)
  }

  /// Runs for so many seconds with faults, then without until all is quiet, and checks that all hosts agree.
  mutating func run(seconds: UInt64) {
    for step in 0..<seconds * 10 {
      let time = step * Self.second / 10
      network.plan(.submit, for: network.anyHost(), after: time)
      network.planFaults(at: time, kill: .kill, restore: .restore)
    }
    turn(until: seconds * Self.second)
    network.isCalm = true
    for index in hosts.indices where !network.isAlive(index) { revive(index) }
    for second in 0..<40 as Range<UInt64> { network.plan(.submit, for: 0, after: second * Self.second) }
    turn(until: (seconds + 60) * Self.second)
    checkEnd()
  }

  private mutating func turn(until end: UInt64) {
    while violations.isEmpty, let message = network.next(until: end) { deliver(message.content, to: message.host) }
  }

  // MARK: Messages

  private mutating func deliver(_ content: Content, to host: Int?) {
    guard let index = host else { return serve(content) }
    if case .kill = content { return network.isAlive(index) ? network.kill(index) : revive(index) }
    guard network.isAlive(index) else { return }
    var outputs: [ShardMachine.Output] = []
    switch content {
    case .appended(let attempt, let result):
      outputs = hosts[index].machine.appended(attempt: attempt, result, at: now)
    case .tail(let bytes, let sequence): outputs = hosts[index].machine.receive(bytes, at: sequence, now: now)
    case .entries(let after, let entries, let first, let last):
      outputs = hosts[index].machine.read(after: after, entries, first: first, last: last, at: now)
    case .claim(let bytes, let sequence): outputs = hosts[index].machine.foundClaim(bytes, at: sequence, now: now)
    case .noClaim(let last): outputs = hosts[index].machine.foundNoClaim(last: last, at: now)
    case .gathered(let answer): outputs = hosts[index].machine.gathered(answer, at: now)
    case .failed: outputs = hosts[index].machine.readFailed(at: now)
    case .beat(let heartbeat): outputs = hosts[index].machine.hear(heartbeat, at: now)
    case .tick:
      guard hosts[index].tickAt <= now else { break }
      hosts[index].tickAt = .max
      outputs = hosts[index].machine.tick(at: now)
    case .submit: submit()
    case .append, .commit, .readRequest, .claimRequest, .gatherRequest, .kill, .restore: break
    }
    perform(outputs, by: index)
  }

  private static func bytes(_ number: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
  }
  private static func number(_ bytes: some Sequence<UInt8>) -> UInt64 {
    bytes.enumerated().reduce(0) { $0 | UInt64($1.element) << (8 * $1.offset) }
  }

  private mutating func ask(_ request: ShardMachine.Request, by index: Int) {
    let (question, failure): (Content, Content) =
      switch request {
      case .append(let bytes, _, let after, let attempt):
        (.append(bytes, after: after, attempt: attempt, from: index), .appended(attempt: attempt, .unknown))
      case .read(let after): (.readRequest(after: after, from: index), .failed)
      case .findClaim: (.claimRequest(from: index), .failed)
      case .gather: (.gatherRequest(from: index), .failed)
      }
    network.post(question, to: nil)
    // No answer in time. A late or repeated one may come before, or after.
    network.enqueue(failure, to: index, after: 2 * Self.second)
  }

  private mutating func perform(_ outputs: [ShardMachine.Output], by index: Int) {
    for output in outputs {
      switch output {
      case .ask(let request): ask(request, by: index)
      case .adopt(let heads, isGap: _): hosts[index].end = max(hosts[index].end, Self.number(heads))
      case .apply(let record, let position):
        apply(
          Self.number(record.prefix(8)), id: Self.number(record.dropFirst(8).prefix(8)), at: position.sequence,
          by: index)
      case .lead:
        terms += 1
        hosts[index].nextID = hosts[index].end
      case .resign, .hearAgain: break
      case .beat(let heartbeat):
        for other in hosts.indices where other != index { network.post(.beat(heartbeat), to: other) }
      case .stop: violations.append("host \(index) stopped")
      }
    }
    guard let deadline = hosts[index].machine.deadline, deadline < hosts[index].tickAt else { return }
    hosts[index].tickAt = deadline
    network.enqueue(.tick, to: index, after: deadline - min(now, deadline))
  }

  private mutating func submit() {
    for index in hosts.indices where network.isAlive(index) && hosts[index].machine.maySubmit {
      // The record has one part, or several.
      for _ in 0...network.random.below(3) where hosts[index].machine.maySubmit {
        var record = Self.bytes(nextRecord) + Self.bytes(hosts[index].nextID)
        hosts[index].nextID += 1
        if network.random.isOne(of: 10) { record += [UInt8](repeating: 7, count: 150) }
        nextRecord += 1
        perform(hosts[index].machine.submit(record, at: now), by: index)
      }
    }
  }

  private mutating func revive(_ index: Int) {
    hosts[index].machine = machine(index)
    network.revive(index)
    hosts[index].tickAt = .max
    (hosts[index].applied, hosts[index].end, hosts[index].events) = (nil, 1, [:])
    perform(hosts[index].machine.start(), by: index)
  }

  /// Faster than ids rise.
  private var clock: UInt64 { now / 1_000_000 }

  // MARK: The engine

  private mutating func serve(_ content: Content) {
    switch content {
    case .append(let bytes, let after, let attempt, let host):
      guard after == log.count else {
        return answer(host, .appended(attempt: attempt, .refused(last: UInt64(log.count))))
      }
      guard faults.hasBrokenFence else { return append(bytes, attempt, from: host) }
      network.enqueue(
        .commit(bytes, attempt: attempt, from: host), to: nil, after: network.random.below(20_000_000))
    case .commit(let bytes, let attempt, let host): append(bytes, attempt, from: host)
    case .readRequest(let after, let host):
      let last = network.replicaEnd(of: log.count)
      let start = min(Int(clamping: after), last)
      let end = min(last, start + 50)
      let found = (start..<end).filter { !removed.contains($0) }.map { (UInt64($0 + 1), log[$0]) }
      answer(
        host,
        .entries(
          after: after, found, first: log.isEmpty ? 0 : 1, last: UInt64(last))
      )
    case .claimRequest(let host):
      let claim = log.indices.last { place in
        guard !removed.contains(place), case .claim = (try? ShardEntry(log[place]))?.content else { return false }
        return true
      }
      answer(host, claim.map { .claim(log[$0], UInt64($0 + 1)) } ?? .noClaim(last: UInt64(log.count)))
    case .gatherRequest(let host):
      let machines = alive.map(\.machine)
      let epoch = machines.compactMap(\.epoch).max() ?? 0
      let sequence = machines.filter { $0.epoch == epoch }.compactMap(\.lastSequence).max() ?? 0
      let lost = machines.map(\.lost).max(by: <) ?? (0, 0)
      let end = alive.map(\.end).max() ?? 0
      answer(
        host,
        .gathered(
          .init(
            epoch: epoch, sequence: sequence, lost: lost, heads: Self.bytes(end), newHeads: Self.bytes(max(end, clock)),
            last: UInt64(log.count), lastEntry: removed.contains(log.count - 1) ? nil : log.last)))
    case .restore:
      guard !network.isCalm else { return }
      if faults.removesLastEntries {
        // Hosts that have not read a claim cannot follow until it is renewed, which the hosts here do not do.
        if let last = log.last, case .part = (try? ShardEntry(last))?.content { removed.insert(log.count - 1) }
        return
      }
      log.removeLast(network.lostCount(of: log.count))
      meanings.removeLast(meanings.count - log.count)
      for index in hosts.indices { hosts[index].applied = nil }
    case .appended, .tail, .entries, .claim, .noClaim, .gathered, .failed, .beat, .submit, .tick, .kill: break
    }
  }

  private mutating func append(_ bytes: [UInt8], _ attempt: UInt64, from host: Int) {
    meanings.append(meaning(of: bytes))
    log.append(bytes)
    answer(host, .appended(attempt: attempt, .stored))
    for other in hosts.indices { network.post(.tail(bytes, UInt64(log.count)), to: other) }
  }

  private mutating func answer(_ host: Int, _ content: Content) { network.post(content, to: host) }

  // MARK: What must hold

  /// The rules of the log, applied to its next entry.
  private func meaning(of bytes: [UInt8]) -> Meaning {
    var meaning = meanings.last ?? Meaning()
    meaning.record = nil
    guard let entry = try? ShardEntry(bytes), entry.former == log.last.map({ ShardEntry.checksum(of: $0) }) ?? 0 else {
      return meaning
    }
    switch entry.content {
    case .claim where entry.epoch >= meaning.epoch:
      (meaning.epoch, meaning.term, meaning.parts) = (entry.epoch, UInt64(log.count + 1), nil)
    case .part(let part) where entry.epoch == meaning.epoch && part.term == meaning.term:
      if part.index == 0 { (meaning.parts, meaning.partCount) = ([], 0) }
      guard meaning.parts != nil, part.index == meaning.partCount else {
        meaning.parts = nil
        break
      }
      meaning.parts? += part.bytes
      meaning.partCount += 1
      if part.isLast {
        meaning.record = Self.number((meaning.parts ?? []).prefix(8))
        meaning.parts = nil
      }
    case .claim, .part: break
    }
    return meaning
  }

  private mutating func apply(_ record: UInt64, id: UInt64, at sequence: UInt64, by index: Int) {
    appliedCount += 1
    // The host has another event under this id, or none and will not have it.
    if id >= hosts[index].end {
      for other in alive where other.events[id] ?? record != record {
        violations.append("host \(index) has \(record) under id \(id), another host \(other.events[id] ?? 0)")
      }
      (hosts[index].events[id], hosts[index].end) = (record, id + 1)
    } else if !faults.losesEntries {
      violations.append("host \(index) applied \(record) with id \(id), and is at \(hosts[index].end)")
    }
    guard !faults.losesEntries else { return }
    let place = Int(sequence) - 1
    guard meanings.indices.contains(place), meanings[place].record == record else {
      return violations.append("host \(index) applied \(record), which is not at \(sequence) of the log")
    }
    if let former = hosts[index].applied {
      if sequence <= former.sequence { violations.append("host \(index) applied \(record) again") }
      if place > former.sequence, let missed = meanings[Int(former.sequence)..<place].compactMap(\.record).first {
        violations.append("host \(index) applied \(record) at \(sequence) without \(missed)")
      }
    }
    hosts[index].applied = (record, sequence)
  }

  private mutating func checkEnd() {
    guard violations.isEmpty else { return }
    let leaders = hosts.filter { $0.machine.isLeading }.count
    if leaders != 1 { violations.append("\(leaders) hosts lead in the end") }
    for (index, last) in hosts.map(\.machine.lastSequence).enumerated() where last != UInt64(log.count) {
      violations.append("host \(index) is at \(last ?? 0) of \(log.count)")
    }
    let records = meanings.compactMap(\.record)
    if Set(records).count != records.count { violations.append("a record is in the log twice") }
  }
}
