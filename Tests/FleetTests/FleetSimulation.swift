import Events
import TaggedFields

@testable import Fleet

/// A deterministic world of a fleet: hosts with their logs, clients that subscribe and publish, and an engine, with
/// messages that are lost, repeated and late, kills, and clocks that differ.
struct FleetSimulation {
  /// What may go wrong.
  struct Faults {
    /// So many of 1,000 messages.
    var lost = 20
    var repeated = 20
    var kills = true
    /// The clocks of hosts differ by up to this, in microseconds.
    var clockDifference: UInt64 = 3_600_000_000
    /// The engine's logs lose their last entries.
    var restoresOldLog = false
    /// Half of the hosts have another definition of the streams.
    var hasOtherDefinitions = false
    /// Values are larger than one message.
    var hasLargeValues = false
  }

  private struct Message {
    var host: Int?  // nil: to the engine
    var run: Int
    var content: Content
    /// The number of a question to the engine, and of its outcomes: the first one counts, as the engine answers once.
    var question: UInt64?
  }

  private enum Content {
    case append([UInt8], shard: Int, after: UInt64, attempt: UInt64, from: Int)
    case appended(shard: Int, attempt: UInt64, ShardMachine.AppendResult)
    case tail([UInt8], shard: Int, UInt64)
    case readRequest(shard: Int, after: UInt64, from: Int)
    case entries(shard: Int, after: UInt64, FleetEntries?)
    case claimRequest(shard: Int, from: Int)
    case claim(shard: Int, FleetClaim?)
    case gather(shard: Int, from: Int)
    case gathered(shard: Int, [[UInt8]], FleetNewest?)
    case heartbeat([UInt8])
    case message([UInt8])
    case want([UInt8], stream: String, leader: HostID, from: Int)
    case wantAnswer(stream: String, leader: HostID, Bool)
    case interest(stream: String, from: Int)
    case interestAnswer(stream: String, Bool?)
    case publish(String)
    case fetch, tick, change, kill, restore
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
    var isAlive = true
    var run = 0
    var clock: UInt64 = 0
    var logs: [String: Log] = [:]
    var wanted: Set<String> = []
    var shown: Set<String> = []
    var fetched: Set<String> = []
    /// The number of its value under way.
    var published: [String: UInt64] = [:]
    var tickAt = UInt64.max
    /// Those to the engine without an outcome.
    var questions: Set<UInt64> = []
    /// When it could fetch each stream last.
    var mayFetchAt: [String: UInt64] = [:]
  }

  private(set) var violations: [String] = []
  private(set) var storedCount = 0
  private(set) var fetchCount = 0
  private var questionCount: UInt64 = 0
  private(set) var publishedCount = 0
  private(set) var terms = 0
  private var random: SeededRandom
  private let faults: Faults
  private var now: UInt64 = 0
  private var network = SimulatedNetwork<Message>()
  private var hosts: [Host] = []
  private var entries: [[[UInt8]]]
  private var nextEvent: UInt64 = 1
  /// Every event under its id, on whatever host.
  private var events: [String: [UInt64: Event]] = [:]
  /// Values whose publishers know that they are stored.
  private var confirmed: [String: Set<[UInt8]>] = [:]
  private var mayMiss = false
  /// When a stream was last wanted by any host.
  private var wantedAt: [String: UInt64] = [:]
  private var isCalm = false
  /// Whether nobody publishes any more.
  private var isQuiet = false

  private static let shardCount = 2
  private static let second: UInt64 = 1_000_000_000
  private static let streams: [(String, FleetMachine.Stream.Kind)] = [
    ("poll", .poll), ("feed", .continuous), ("values", .publish), ("more", .publish),
  ]

  init(seed: UInt64, hostCount: Int = 3, faults: Faults) {
    random = SeededRandom(state: seed)
    self.faults = faults
    entries = Array(repeating: [], count: Self.shardCount)
    for index in 0..<hostCount {
      let id = hostID()
      hosts.append(Host(machine: Self.machine(id), id: id))
      hosts[index].clock = faults.clockDifference > 0 ? random.below(faults.clockDifference) : 0
    }
    for index in hosts.indices { begin(index) }
  }

  private mutating func hostID() -> HostID {
    HostID((0..<16).map { _ in UInt8(truncatingIfNeeded: random.next()) })!
  }

  private static func machine(_ id: HostID) -> FleetMachine {
    FleetMachine(host: id, hostName: "h", shardCount: shardCount, renewalRecordCount: 8) { values, _ in values }
  }

  /// A process of the host starts.
  private mutating func begin(_ index: Int) {
    let streams = Self.streams.map { name, kind in
      FleetMachine.Stream(
        name: name, definition: faults.hasOtherDefinitions ? UInt64(index % 2) + 1 : 1, kind: kind, canLead: true,
        end: hosts[index].logs[name]?.end ?? 0)
    }
    let positions = hosts[index].logs.compactMapValues(\.position)
    perform(hosts[index].machine.setStreams(streams, positions: positions, at: now), by: index)
    perform(hosts[index].machine.connected(at: now), by: index)
    for (name, kind) in Self.streams where kind == .publish { publish(to: name, by: index) }
  }

  /// Runs for so many seconds with faults, then without until all is quiet, and checks what must hold.
  mutating func run(seconds: UInt64) {
    for step in 0..<seconds * 10 {
      let time = step * Self.second / 10
      for index in hosts.indices where step % 5 == 0 { post(after: time, to: index, .fetch, isLossy: false) }
      if random.isOne(of: 10) { post(after: time, to: anyHost(), .change, isLossy: false) }
      if faults.kills, random.isOne(of: 100) { post(after: time, to: anyHost(), .kill, isLossy: false) }
      if faults.restoresOldLog, random.isOne(of: 300) { post(after: time, to: nil, .restore, isLossy: false) }
    }
    turn(until: seconds * Self.second)
    isCalm = true
    for index in hosts.indices where !hosts[index].isAlive { start(index) }
    for second in 0..<60 as Range<UInt64> {
      for index in hosts.indices { post(after: second * Self.second, to: index, .fetch) }
      if second < 40 { post(after: second * Self.second, to: anyHost(), .change) }
    }
    turn(until: (seconds + 70) * Self.second)
    isQuiet = true
    turn(until: (seconds + 90) * Self.second)
    checkEnd()
  }

  private mutating func anyHost() -> Int { Int(random.below(UInt64(hosts.count))) }

  private mutating func turn(until end: UInt64) {
    while violations.isEmpty, let time = network.nextTime, time <= end {
      now = max(now, time)
      deliver(network.takeFirst().message)
    }
    now = max(now, end)
  }

  // MARK: Messages

  private mutating func post(
    after delay: UInt64, to host: Int?, _ content: Content, question: UInt64? = nil, isLossy: Bool = true
  ) {
    if isLossy, !isCalm {
      if random.below(1000) < faults.lost { return }
      if random.below(1000) < faults.repeated {
        enqueue(after: delay + random.below(3 * Self.second), to: host, content, question: question)
      }
    }
    enqueue(after: delay, to: host, content, question: question)
  }

  private mutating func enqueue(after delay: UInt64, to host: Int?, _ content: Content, question: UInt64? = nil) {
    let run = host.map { hosts[$0].run } ?? 0
    network.add(Message(host: host, run: run, content: content, question: question), at: now + delay)
  }

  /// A host asks the engine.
  /// - Parameters:
  ///   - failure: the outcome if no answer comes in time.
  ///   - timeout: for the answer.
  private mutating func ask(_ content: Content, orElse failure: Content, after timeout: UInt64, by index: Int) {
    questionCount += 1
    hosts[index].questions.insert(questionCount)
    post(after: delay(), to: nil, content, question: questionCount)
    enqueue(after: timeout, to: index, failure, question: questionCount)
  }

  /// Mostly a millisecond, sometimes seconds.
  private mutating func delay() -> UInt64 {
    isCalm || !random.isOne(of: 50) ? 500_000 + random.below(1_000_000) : random.below(6 * Self.second)
  }

  private func wallTime(_ index: Int) -> UInt64 { 1_000_000_000_000 + hosts[index].clock + now / 1000 }

  private mutating func deliver(_ message: Message) {
    guard let index = message.host else { return serve(message) }
    if case .kill = message.content { return hosts[index].isAlive ? kill(index) : start(index) }
    guard hosts[index].isAlive else { return }
    switch message.content {
    case .fetch: return fetch(index)
    case .change: return change(index)
    default: break
    }
    guard hosts[index].run == message.run else { return }
    if let question = message.question, hosts[index].questions.remove(question) == nil { return }
    let machine = hosts[index].machine
    var actions: [FleetMachine.Action] = []
    switch message.content {
    case .appended(let shard, let attempt, let result):
      actions = machine.appended(shard: shard, attempt: attempt, result, at: now)
    case .tail(let bytes, let shard, let sequence):
      actions = machine.received(bytes, shard: shard, at: sequence, now: now)
    case .entries(let shard, let after, let answer): actions = machine.read(shard: shard, after: after, answer, at: now)
    case .claim(let shard, let answer): actions = machine.foundClaim(shard: shard, answer, at: now)
    case .gathered(let shard, let answers, let newest):
      actions = machine.gathered(
        shard: shard, newest == nil ? nil : answers, newest, at: now, wallTime: wallTime(index))
    case .heartbeat(let bytes): actions = machine.heard(bytes, at: now)
    case .message(let bytes): actions = machine.receive(bytes, at: now, wallTime: wallTime(index)).actions
    case .want(let bytes, let stream, let leader, let sender):
      let (next, isKnown) = machine.receive(bytes, at: now, wallTime: wallTime(index))
      if isKnown { post(after: delay(), to: sender, .wantAnswer(stream: stream, leader: leader, true)) }
      actions = next
    case .wantAnswer(let stream, let leader, let hasArrived):
      machine.wantArrived(stream, leader: leader, hasArrived, at: now)
    case .interestAnswer(let stream, let isWanted): actions = machine.learned(stream, isWanted: isWanted, at: now)
    case .publish(let stream): if !isQuiet { publish(to: stream, by: index) }
    case .tick:
      guard hosts[index].tickAt <= now else { break }
      hosts[index].tickAt = .max
      actions = machine.tick(at: now, wallTime: wallTime(index))
    default: break
    }
    perform(actions, by: index)
  }

  private mutating func perform(_ actions: [FleetMachine.Action], by index: Int) {
    let timeout = 2 * Self.second
    for action in actions {
      switch action {
      case .append(let bytes, _, let shard, let after, let attempt):
        ask(
          .append(bytes, shard: shard, after: after, attempt: attempt, from: index),
          orElse: .appended(shard: shard, attempt: attempt, .unknown), after: timeout, by: index)
      case .read(let shard, let after):
        ask(
          .readRequest(shard: shard, after: after, from: index),
          orElse: .entries(shard: shard, after: after, nil), after: timeout, by: index)
      case .findClaim(let shard):
        ask(.claimRequest(shard: shard, from: index), orElse: .claim(shard: shard, nil), after: timeout, by: index)
      case .gather(let shard):
        ask(.gather(shard: shard, from: index), orElse: .gathered(shard: shard, [], nil), after: timeout, by: index)
      case .send(let bytes, to: .heartbeats):
        for other in hosts.indices where other != index { post(after: delay(), to: other, .heartbeat(bytes)) }
      case .send(let bytes, to: .host(let id)):
        if bytes.count > 1 << 20 { violations.append("a message of \(bytes.count) bytes") }
        if let other = hosts.firstIndex(where: { $0.id == id }) { post(after: delay(), to: other, .message(bytes)) }
      case .send: violations.append("a message to nothing")
      case .want(let bytes, let stream, let leader):
        if let other = hosts.firstIndex(where: { $0.id == leader }) {
          post(after: delay(), to: other, .want(bytes, stream: stream, leader: leader, from: index))
        }
        enqueue(after: timeout / 2, to: index, .wantAnswer(stream: stream, leader: leader, false))
      case .askInterest(let stream, _):
        ask(
          .interest(stream: stream, from: index), orElse: .interestAnswer(stream: stream, nil), after: timeout,
          by: index)
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
        enqueue(after: Self.second / 5, to: index, .publish(stream))
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
    }
    guard let deadline = hosts[index].machine.deadline, deadline < hosts[index].tickAt else { return }
    hosts[index].tickAt = deadline
    enqueue(after: deadline - min(now, deadline), to: index, .tick)
  }

  // MARK: Hosts

  private mutating func kill(_ index: Int) {
    hosts[index].isAlive = false
    hosts[index].run += 1
    (hosts[index].wanted, hosts[index].shown, hosts[index].fetched) = ([], [], [])
    (hosts[index].published, hosts[index].tickAt, hosts[index].questions) = ([:], .max, [])
  }

  private mutating func start(_ index: Int) {
    hosts[index].id = hostID()
    hosts[index].machine = Self.machine(hosts[index].id)
    hosts[index].isAlive = true
    begin(index)
  }

  /// A client comes or goes.
  private mutating func change(_ index: Int) {
    let (stream, kind) = Self.streams[Int(random.below(2))]
    guard kind != .publish else { return }
    let isWanted = !hosts[index].wanted.contains(stream)
    if isWanted { hosts[index].wanted.insert(stream) } else { hosts[index].wanted.remove(stream) }
    perform(hosts[index].machine.wants(stream, isWanted, at: now), by: index)
  }

  /// A tick of the sources of this host.
  private mutating func fetch(_ index: Int) {
    for (stream, _) in Self.streams {
      if hosts.contains(where: { $0.isAlive && $0.wanted.contains(stream) }) { wantedAt[stream] = now }
      guard hosts[index].fetched.contains(stream) else { continue }
      // At times more than are under way at once.
      for _ in 0...(random.isOne(of: 5) ? random.below(6) : 0) where hosts[index].machine.mayFetch(stream) {
        fetch(stream, by: index)
      }
    }
  }

  private mutating func fetch(_ stream: String, by index: Int) {
    // Answers, and a deposed leader's knowledge, are as late as the network allows.
    if isCalm, now > (wantedAt[stream] ?? 0) + 30 * Self.second {
      violations.append("\(stream) is fetched without demand")
    }
    fetchCount += 1
    var batch = EventBatch()
    for _ in 0...random.below(3) {
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

  private mutating func serve(_ message: Message) {
    func answer(_ host: Int, _ content: Content) {
      post(after: delay(), to: host, content, question: message.question)
    }
    switch message.content {
    case .append(let bytes, let shard, let after, let attempt, let host):
      let last = UInt64(entries[shard].count)
      guard after == last else { return answer(host, .appended(shard: shard, attempt: attempt, .refused(last: last))) }
      entries[shard].append(bytes)
      answer(host, .appended(shard: shard, attempt: attempt, .stored))
      for other in hosts.indices { post(after: delay(), to: other, .tail(bytes, shard: shard, last + 1)) }
    case .readRequest(let shard, let after, let host):
      // A replica that lags behind may answer.
      let count = entries[shard].count
      let last = isCalm || !random.isOne(of: 10) ? count : Int(random.below(UInt64(count + 1)))
      let start = min(Int(clamping: after), last)
      let found = (start..<min(last, start + 50)).map { (UInt64($0 + 1), entries[shard][$0]) }
      answer(
        host,
        .entries(
          shard: shard, after: after, FleetEntries(entries: found, first: count == 0 ? 0 : 1, last: UInt64(last))))
    case .claimRequest(let shard, let host):
      let place = entries[shard].indices.last {
        if case .claim = (try? ShardEntry(entries[shard][$0]))?.content { true } else { false }
      }
      let claim = place.map { FleetClaim.found(entries[shard][$0], sequence: UInt64($0 + 1)) }
      answer(host, .claim(shard: shard, claim ?? FleetClaim.none(last: UInt64(entries[shard].count))))
    case .gather(let shard, let host):
      let answers = hosts.filter(\.isAlive).compactMap { $0.machine.positionAnswer(shard: shard) }
      let newest = FleetNewest(last: UInt64(entries[shard].count), entry: entries[shard].last)
      answer(host, .gathered(shard: shard, answers, newest))
    case .interest(let stream, let host):
      answer(host, .interestAnswer(stream: stream, hosts.contains { $0.isAlive && $0.shown.contains(stream) }))
    case .restore:
      guard !isCalm else { return }
      let shard = Int(random.below(UInt64(Self.shardCount)))
      entries[shard].removeLast(Int(random.below(UInt64(min(entries[shard].count, 20) + 1))))
      mayMiss = true
    default: break
    }
  }

  // MARK: What must hold

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
    }
  }
}
