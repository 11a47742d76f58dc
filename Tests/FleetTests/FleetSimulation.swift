import Events
import TaggedFields

@testable import Fleet

/// A deterministic world of a fleet: hosts with their logs, clients that subscribe and publish, and an engine.
struct FleetSimulation {
  private enum Content {
    case append([UInt8], shard: Int, after: UInt64, attempt: UInt64, from: Int)
    case answer(ShardMachine.Answer, shard: Int)
    case tail([UInt8], shard: Int, UInt64)
    case readRequest(shard: Int, after: UInt64, from: Int)
    case claimRequest(shard: Int, from: Int)
    case gather(shard: Int, from: Int)
    case heartbeat([UInt8])
    case message([UInt8])
    case want([UInt8], stream: String, leader: HostID, from: Int, question: UInt64)
    case wantAnswer(stream: String, leader: HostID, Bool)
    case compare([UInt8], stream: String, leader: HostID, from: Int)
    case compareAnswer(stream: String, leader: HostID, [UInt8])
    case interest(stream: String, from: Int, isForPoll: Bool)
    case interestAnswer(stream: String, Bool?, isForPoll: Bool)
    case publish(String)
    case fetch, tick, change, kill, restore, heal
    /// A host, for a short time; nil: a leader, for longer than its lease.
    case cut(Int?)

    /// Whether it comes from another host, or from the log's tail.
    var isFromAfar: Bool {
      switch self {
      case .tail, .heartbeat, .message, .want, .compare: true
      default: false
      }
    }
  }

  private struct Event: Equatable {
    let time: UInt64
    let bytes: [UInt8]
  }

  /// What survives a kill of the host's process.
  private struct Log {
    var events: [UInt64: Event] = [:]
    var end: UInt64 = 0
    var position: ShardPosition?
  }

  private struct Host {
    var machine: FleetMachine
    var id: HostID
    var clock: UInt64 = 0
    var logs: [String: Log] = [:]
    var wanted: Set<String> = []
    var shown: Set<String> = []
    var fetched: Set<String> = []
    /// The number of its value under way.
    var published: [String: UInt64] = [:]
    var tickAt = UInt64.max
    /// When it could fetch each stream last.
    var mayFetchAt: [String: UInt64] = [:]
  }

  /// A host that is cut off from the others.
  private struct Cut {
    let host: Int
    let time: UInt64
    /// The entries of each shard that its broker has.
    let counts: [Int]
    /// The shards of which an append was not answered that the host has made since.
    var unanswered: Set<Int> = []
  }

  private(set) var violations: [String] = []
  private(set) var storedCount = 0
  private(set) var fetchCount = 0
  private(set) var publishedCount = 0
  private(set) var terms = 0
  private var network: SimulatedNetwork<Content>
  private var cut: Cut?
  /// The shards of which a leader was cut off, and has waited in vain for the answer to an append.
  private(set) var unansweredCount = 0
  private var hosts: [Host] = []
  private var shardLogs: [SimulatedLog]
  private var nextEvent: UInt64 = 1
  /// Every event under its id, on whatever host.
  private var events: [String: [UInt64: Event]] = [:]
  /// Values whose publishers know that they are stored.
  private var confirmed: [String: Set<[UInt8]>] = [:]
  private var mayMiss = false
  /// When a stream was last wanted by any host.
  private var wantedAt: [String: UInt64] = [:]
  /// Whether nobody publishes any more.
  private var isQuiet = false

  private static let shardCount = 2
  private static let second: UInt64 = 1_000_000_000
  private static let streams: [(String, FleetMachine.Stream.Kind)] = [
    ("poll", .poll), ("feed", .continuous), ("values", .publish), ("more", .publish),
  ]

  init(seed: UInt64, hostCount: Int = 3, faults: Faults) {
    network = SimulatedNetwork(seed: seed, hostCount: hostCount, faults: faults)
    shardLogs = Array(repeating: SimulatedLog(), count: Self.shardCount)
    for index in 0..<hostCount {
      let id = hostID()
      hosts.append(Host(machine: Self.machine(id), id: id))
      hosts[index].clock = faults.clockDifference > 0 ? network.random.below(faults.clockDifference) : 0
    }
    for index in hosts.indices { begin(index) }
  }

  private var faults: Faults { network.faults }
  private var now: UInt64 { network.now }
  private var alive: [Host] { hosts.indices.filter { network.isAlive($0) }.map { hosts[$0] } }
  /// Those that other hosts and brokers reach.
  private var reachable: [Host] { hosts.indices.filter { network.isAlive($0) && $0 != cut?.host }.map { hosts[$0] } }

  private mutating func hostID() -> HostID {
    HostID((0..<16).map { _ in UInt8(truncatingIfNeeded: network.random.next()) })!
  }

  private static func machine(_ id: HostID) -> FleetMachine {
    FleetMachine(host: id, hostName: "h", shardCount: shardCount, renewalRecordCount: 8) { values, _ in values }
  }

  /// A process of the host starts.
  private mutating func begin(_ index: Int) {
    let streams = Self.streams.map { name, kind in
      FleetMachine.Stream(
        name: name, definition: definition(on: index), kind: kind, canLead: true,
        end: hosts[index].logs[name]?.end ?? 0, position: hosts[index].logs[name]?.position)
    }
    perform(hosts[index].machine.setStreams(streams, at: now), by: index)
    perform(hosts[index].machine.connected(at: now), by: index)
    for (name, kind) in Self.streams where kind == .publish { publish(to: name, by: index) }
  }

  /// Runs for so many seconds with faults, then without until all is quiet, and checks what must hold.
  mutating func run(seconds: UInt64) {
    for step in 0..<seconds * 10 {
      let time = step * Self.second / 10
      for index in hosts.indices where step % 5 == 0 { network.plan(.fetch, for: index, after: time) }
      if network.random.isOne(of: 10) { network.plan(.change, for: network.anyHost(), after: time) }
      network.planFaults(at: time, kill: .kill, restore: .restore)
      if faults.cutsOff, step % 200 == 20 { network.plan(.cut(nil), for: nil, after: time) }
      if faults.cutsOff, step % 50 == 30 { network.plan(.cut(network.anyHost()), for: nil, after: time) }
    }
    turn(until: seconds * Self.second)
    network.isCalm = true
    for index in hosts.indices where !network.isAlive(index) { start(index) }
    for second in 0..<60 as Range<UInt64> {
      for index in hosts.indices { network.plan(.fetch, for: index, after: second * Self.second) }
      if 41..<60 ~= second { network.plan(.change, for: network.anyHost(), after: second * Self.second) }
    }
    // Demand that does not change is known, too.
    turn(until: (seconds + 40) * Self.second)
    checkDemand()
    turn(until: (seconds + 70) * Self.second)
    isQuiet = true
    turn(until: (seconds + 90) * Self.second)
    checkEnd()
  }

  private mutating func turn(until end: UInt64) {
    while violations.isEmpty, let message = network.next(until: end) { deliver(message) }
  }

  // MARK: Messages

  private func wallTime(_ index: Int) -> UInt64 { 1_000_000_000_000 + hosts[index].clock + now / 1000 }

  private mutating func deliver(_ message: SimulatedNetwork<Content>.Message) {
    guard let index = message.host else { return serve(message) }
    if case .kill = message.content { return network.isAlive(index) ? kill(index) : start(index) }
    guard network.isAlive(index) else { return }
    if cut?.host == index, message.content.isFromAfar { return }
    let machine = hosts[index].machine
    var actions: [FleetMachine.Action] = []
    switch message.content {
    case .answer(let answer, let shard):
      if case .append(_, .unknown) = answer { noteUnanswered(shard, by: index) }
      actions = machine.answer(answer, shard: shard, at: now, wallTime: wallTime(index))
    case .tail(let bytes, let shard, let sequence):
      actions = machine.received(bytes, shard: shard, at: sequence, now: now)
    case .heartbeat(let bytes): actions = machine.heard(bytes, at: now)
    case .message(let bytes): actions = machine.receive(bytes, at: now, wallTime: wallTime(index)).actions
    case .want(let bytes, let stream, let leader, let sender, let question):
      let (next, answer) = machine.receive(bytes, at: now, wallTime: wallTime(index))
      if answer != nil {
        network.post(.wantAnswer(stream: stream, leader: leader, true), to: sender, question: question)
      }
      actions = next
    case .wantAnswer(let stream, let leader, let hasArrived):
      machine.wantArrived(stream, leader: leader, hasArrived, at: now)
    case .compare(let bytes, let stream, let leader, let sender):
      let answer = machine.receive(bytes, at: now, wallTime: wallTime(index)).answer
      if let answer { network.post(.compareAnswer(stream: stream, leader: leader, answer), to: sender) }
    case .compareAnswer(let stream, let leader, let answer): machine.compared(stream, with: leader, answer)
    case .interestAnswer(let stream, let isWanted, let isForPoll):
      if isForPoll, machine.isWanted(stream, answer: isWanted) { fetch(stream, by: index) }
      actions = machine.learned(stream, isWanted: isWanted, at: now)
    case .publish(let stream): if !isQuiet { publish(to: stream, by: index) }
    case .fetch: fetch(index)
    case .change: change(index)
    case .tick:
      guard hosts[index].tickAt <= now else { break }
      hosts[index].tickAt = .max
      actions = machine.tick(at: now, wallTime: wallTime(index))
    default: break
    }
    perform(actions, by: index)
  }

  private mutating func ask(_ request: ShardMachine.Request, of shard: Int, by index: Int) {
    let (question, failure): (Content, ShardMachine.Answer) =
      switch request {
      case .append(let bytes, _, let after, let attempt):
        (
          .append(bytes, shard: shard, after: after, attempt: attempt, from: index),
          .append(attempt: attempt, .unknown)
        )
      case .read(let after): (.readRequest(shard: shard, after: after, from: index), .read(after: after, nil))
      case .findClaim: (.claimRequest(shard: shard, from: index), .findClaim(nil))
      case .gather: (.gather(shard: shard, from: index), .gather(nil, nil))
      }
    network.ask(question, orElse: .answer(failure, shard: shard), after: 2 * Self.second, by: index)
  }

  private mutating func perform(_ actions: [FleetMachine.Action], by index: Int) {
    for action in actions {
      switch action {
      case .ask(let request, let shard): ask(request, of: shard, by: index)
      case .send where cut?.host == index: break
      case .send(let bytes, to: .heartbeats):
        for other in hosts.indices where other != index { network.post(.heartbeat(bytes), to: other) }
      case .send(let bytes, to: .host(let id)):
        if bytes.count > 1 << 20 { violations.append("a message of \(bytes.count) bytes") }
        if let other = hosts.firstIndex(where: { $0.id == id }) { network.post(.message(bytes), to: other) }
      case .send: violations.append("a message to nothing")
      case .want(let bytes, let stream, let leader):
        let question = network.expect(
          orElse: .wantAnswer(stream: stream, leader: leader, false), after: Self.second, by: index)
        if cut?.host != index, let other = hosts.firstIndex(where: { $0.id == leader }) {
          network.post(.want(bytes, stream: stream, leader: leader, from: index, question: question), to: other)
        }
      case .compare(let bytes, let stream, let leader):
        if cut?.host != index, let other = hosts.firstIndex(where: { $0.id == leader }) {
          network.post(.compare(bytes, stream: stream, leader: leader, from: index), to: other)
        }
      case .askInterest(let stream): askInterest(in: stream, isForPoll: false, by: index)
      case .showInterest(let isShown, let stream, _):
        if isShown { hosts[index].shown.insert(stream) } else { hosts[index].shown.remove(stream) }
      case .store(let batch, let stream, let firstID, let time, let position):
        store(batch, in: stream, firstID, time, position, by: index)
      case .fetch(let isOn, let stream):
        if isOn { hosts[index].fetched.insert(stream) } else { hosts[index].fetched.remove(stream) }
      case .stored(let stream):
        if let number = hosts[index].published[stream] {
          confirmed[stream, default: []].insert(value(number, of: index))
        }
        network.enqueue(.publish(stream), to: index, after: Self.second / 5)
      case .report(let report):
        switch report {
        case .leads: terms += 1
        case .missed: mayMiss = true
        case .damaged, .newerVersion: violations.append("host \(index): \(report)")
        case .conflict: if !faults.restoresOldLog { violations.append("host \(index): \(report)") }
        case .follows, .newEpoch: break
        }
      }
    }
    for (stream, _) in Self.streams where hosts[index].machine.mayFetch(stream) {
      hosts[index].mayFetchAt[stream] = now
      if let cut, cut.host == index, cut.unanswered.contains(hosts[index].machine.shard(of: stream)) {
        violations.append("host \(index) may fetch \(stream), and its log stores nothing")
      }
    }
    checkDeadline(of: hosts[index].machine)
    guard let deadline = hosts[index].machine.deadline, deadline < hosts[index].tickAt else { return }
    hosts[index].tickAt = deadline
    network.enqueue(.tick, to: index, after: deadline - min(now, deadline))
  }

  private mutating func askInterest(in stream: String, isForPoll: Bool, by index: Int) {
    network.ask(
      .interest(stream: stream, from: index, isForPoll: isForPoll),
      orElse: .interestAnswer(stream: stream, nil, isForPoll: isForPoll), after: 2 * Self.second, by: index)
  }

  // MARK: Hosts

  private mutating func kill(_ index: Int) {
    network.kill(index)
    (hosts[index].wanted, hosts[index].shown, hosts[index].fetched) = ([], [], [])
    (hosts[index].published, hosts[index].tickAt) = ([:], .max)
  }

  private mutating func start(_ index: Int) {
    hosts[index].id = hostID()
    hosts[index].machine = Self.machine(hosts[index].id)
    network.revive(index)
    begin(index)
  }

  /// A client comes or goes.
  private mutating func change(_ index: Int) {
    let (stream, kind) = Self.streams[Int(network.random.below(2))]
    guard kind != .publish else { return }
    let isWanted = !hosts[index].wanted.contains(stream)
    if isWanted { hosts[index].wanted.insert(stream) } else { hosts[index].wanted.remove(stream) }
    perform(hosts[index].machine.wants(stream, isWanted, at: now), by: index)
  }

  /// A tick of the sources of this host.
  private mutating func fetch(_ index: Int) {
    for (stream, kind) in Self.streams {
      if alive.contains(where: { $0.wanted.contains(stream) }) { wantedAt[stream] = now }
      guard hosts[index].fetched.contains(stream) else { continue }
      // At times more than are under way at once.
      for _ in 0...(network.random.isOne(of: 5) ? network.random.below(6) : 0) {
        if kind == .poll, hosts[index].machine.admitsFetch(stream) == nil {
          askInterest(in: stream, isForPoll: true, by: index)
        } else {
          fetch(stream, by: index)
        }
      }
    }
  }

  private mutating func fetch(_ stream: String, by index: Int) {
    guard hosts[index].machine.mayFetch(stream) else { return }
    // Answers, and a deposed leader's knowledge, are as late as the network allows.
    if network.isCalm, now > (wantedAt[stream] ?? 0) + 30 * Self.second {
      violations.append("\(stream) is fetched without demand")
    }
    fetchCount += 1
    var batch = EventBatch()
    for _ in 0...network.random.below(3) {
      batch.append(Self.bytes(nextEvent))
      nextEvent += 1
    }
    batch.checkpoint = Checkpoint(Self.bytes(nextEvent))
    perform(hosts[index].machine.fetched(batch, of: stream, at: now, wallTime: wallTime(index)), by: index)
  }

  private mutating func publish(to stream: String, by index: Int) {
    nextEvent += 1
    hosts[index].published[stream] = nextEvent
    publishedCount += 1
    perform(
      hosts[index].machine.publish([value(nextEvent, of: index)], to: stream, at: now, wallTime: wallTime(index)),
      by: index)
  }

  private func value(_ number: UInt64, of host: Int) -> [UInt8] {
    Self.bytes(number) + [UInt8](repeating: UInt8(host), count: faults.hasLargeValues && number % 20 == 0 ? 3 << 20 : 1)
  }

  private static func bytes(_ number: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
  }

  // MARK: The engine

  private mutating func serve(_ message: SimulatedNetwork<Content>.Message) {
    func answer(_ host: Int, _ content: Content) {
      network.post(content, to: host, question: message.question)
    }
    switch message.content {
    case .append(_, _, _, _, from: cut?.host), .gather(_, from: cut?.host), .interest(_, from: cut?.host, _): break
    case .append(let bytes, let shard, let after, let attempt, let host):
      let result = shardLogs[shard].append(bytes, after: after)
      answer(host, .answer(.append(attempt: attempt, result), shard: shard))
      guard result == .stored else { return }
      for other in hosts.indices { network.post(.tail(bytes, shard: shard, after + 1), to: other) }
    case .readRequest(let shard, let after, let host):
      let last = network.replicaEnd(of: count(of: shard, for: host))
      let entries = shardLogs[shard].read(after: after, upTo: last, limit: 50)
      answer(host, .answer(.read(after: after, entries), shard: shard))
    case .claimRequest(let shard, let host):
      answer(host, .answer(.findClaim(shardLogs[shard].findClaim(upTo: count(of: shard, for: host))), shard: shard))
    case .gather(let shard, let host):
      let answers = reachable.compactMap { $0.machine.positionAnswer(shard: shard, at: now) }
      answer(host, .answer(.gather(answers, shardLogs[shard].newest), shard: shard))
    case .interest(let stream, let host, let isForPoll):
      let isWanted = reachable.contains { $0.shown.contains(stream) }
      answer(host, .interestAnswer(stream: stream, isWanted, isForPoll: isForPoll))
    case .restore:
      guard !network.isCalm else { return }
      let shard = Int(network.random.below(UInt64(Self.shardCount)))
      shardLogs[shard].lose(network.lostCount(of: shardLogs[shard].last))
      mayMiss = true
    case .cut(let one):
      guard cut == nil, let host = one ?? hosts.indices.first(where: { leads($0) }) else { return }
      let seconds: UInt64 = one == nil ? 10 : 2
      cut = Cut(host: host, time: now, counts: shardLogs.map(\.last))
      network.plan(.heal, for: nil, after: seconds * Self.second)
    case .heal: cut = nil
    default: break
    }
  }

  private func leads(_ index: Int) -> Bool {
    network.isAlive(index) && Self.streams.contains { hosts[index].machine.isLeading($0.0) }
  }

  private func count(of shard: Int, for host: Int) -> Int {
    if let cut, cut.host == host { cut.counts[shard] } else { shardLogs[shard].last }
  }

  private mutating func noteUnanswered(_ shard: Int, by index: Int) {
    guard let cut, cut.host == index, now >= cut.time + 2 * Self.second else { return }
    self.cut?.unanswered.insert(shard)
    unansweredCount += 1
  }

  // MARK: What must hold

  /// No stream is due before its host says so.
  private mutating func checkDeadline(of machine: FleetMachine) {
    let due = machine.shards.values.flatMap(\.streams.values).map(\.deadline).min() ?? .max
    if machine.isStarted, machine.deadline ?? .max > due { violations.append("a stream is due at \(due), and no tick") }
  }

  private mutating func store(
    _ batch: EventBatch, in stream: String, _ firstID: UInt64, _ time: UInt64, _ position: ShardPosition, by index: Int
  ) {
    var log = hosts[index].logs.removeValue(forKey: stream) ?? Log()
    for (offset, bytes) in batch.enumerated() {
      let (id, event) = (firstID + UInt64(offset), Event(time: time, bytes: bytes))
      guard id >= log.end else {  // as EventLog
        if !faults.restoresOldLog, log.events[id] != event {
          violations.append("host \(index) has another \(stream) \(id)")
        }
        continue
      }
      if log.end > 0, id > log.end, !mayMiss { violations.append("host \(index) misses \(stream) \(log.end)..<\(id)") }
      if let other = events[stream]?[id], other != event {
        violations.append("host \(index) has \(stream) \(id) as \(event), another host as \(other)")
      }
      events[stream, default: [:]][id] = event
      log.events[id] = event
      log.end = id + 1
      storedCount += 1
    }
    log.position = position
    hosts[index].logs[stream] = log
  }

  private mutating func checkEnd() {
    guard violations.isEmpty else { return }
    checkDemand()
    for (stream, _) in Self.streams {
      let ends = Set(hosts.map { $0.logs[stream]?.end ?? 0 })
      if ends.count > 1 { violations.append("the hosts are at \(ends.sorted()) of \(stream)") }
      let values = events[stream]?.values.map(\.bytes) ?? []
      // A value that the engine has lost is sent again, and may be on some host.
      if !faults.restoresOldLog, Set(values).count != values.count { violations.append("\(stream) has an event twice") }
      let lost = confirmed[stream]?.subtracting(values) ?? []
      if !lost.isEmpty, !faults.restoresOldLog {
        violations.append("\(lost.count) confirmed values of \(stream) are lost")
      }
    }
    for (index, host) in hosts.enumerated() {
      for (stream, _) in Self.streams {
        let status = host.machine.status(of: stream, at: now)
        if status?.staleSince != nil || status?.lag ?? 1 > 0 {
          violations.append("host \(index): \(stream) is \(status.map { "\($0)" } ?? "unknown")")
        }
        if host.machine.isLeading(stream), now > (host.mayFetchAt[stream] ?? 0) + Self.second {
          violations.append("host \(index) leads \(stream), and may not fetch it")
        }
      }
    }
    for stream in Self.streams.map(\.0) {
      let leaders = hosts.filter { $0.machine.status(of: stream, at: now)?.isLeading == true }.count
      if leaders != 1 { violations.append("\(leaders) hosts lead \(stream) in the end") }
      checkDefinitions(of: stream)
    }
  }

  private mutating func checkDemand() {
    for (stream, _) in Self.streams where hosts.contains(where: { $0.wanted.contains(stream) }) {
      guard !hosts.contains(where: { $0.fetched.contains(stream) }) else { continue }
      violations.append("\(stream) is wanted, and not fetched")
    }
  }

  private func definition(on index: Int) -> UInt64 { faults.hasOtherDefinitions ? UInt64(index % 2) + 1 : 1 }

  /// A follower knows the difference if the last record shows one, and the leader then knows it, too.
  private mutating func checkDefinitions(of stream: String) {
    let states = hosts.map { $0.machine.status(of: stream, at: now) }
    guard let leader = states.firstIndex(where: { $0?.isLeading == true }) else { return }
    var differing = 0
    for (index, host) in hosts.enumerated() where index != leader {
      let last = host.machine.shards[host.machine.shard(of: stream)]?.heads[stream]?.definition ?? 0
      let isOther = ![0, definition(on: index)].contains(last) && definition(on: index) != definition(on: leader)
      if isOther { differing += 1 }
      if states[index]?.otherHosts.isEmpty == isOther {
        violations.append("host \(index) of \(leader): \(stream) is \(isOther ? "" : "not ")of another definition")
      }
    }
    if states[leader]?.otherHosts.count != differing {
      violations.append(
        "leader \(leader): \(differing) hosts define \(stream) otherwise, not \(states[leader]?.otherHosts ?? [])")
    }
  }
}
