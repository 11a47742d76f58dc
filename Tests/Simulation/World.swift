import CSimulation
import Events
import Glibc
import RSocket
import Reactive
import StreamServer

@testable import streamd

/// A machine with a daemon, its service manager, its disk, its upstreams and its clients, and the steps that they take.
final class World {
  let seed: UInt64
  let folder: String
  /// Of the step that is under way.
  var random: Random
  /// How this run goes: drawn from the seed, and the same for each step.
  private let profile: Profile
  let limits: Machine.Limits
  let listener: CInt
  private let listenerName: String
  private(set) var boot = 1
  private(set) var streams: [StreamSpecification]
  private(set) var truths: [String: Truth] = [:]
  private(set) var feedsChanged: Set<String> = []
  private var machine: Machine!
  private var clients: [Client] = []
  private var clientCount = 0
  private var publishers: [NamedPublisher] = []
  /// Of each upstream: what it sends next.
  private var sequences: [String: (epoch: Int, next: UInt64)] = [:]
  var buffer = [UInt8](repeating: 0, count: 64 << 10)
  /// Threads' and queues' turns so far.
  private var turns = 0
  private var bystander: Client?
  /// Events that it has not got: the id, and the turn and the time at which it was there.
  private var owed: [(id: UInt64, turn: Int, time: UInt64)] = []
  private var journalWindow: (start: UInt64, lines: UInt64) = (0, 0)
  /// Connections of orderly clients may end without a reason of theirs.
  private var connectionsMayEnd = false

  static let systemStreams = ["$stats", "$streams"]

  /// What may happen in a run, and how often: runs differ more than steps do.
  private struct Profile {
    var weights: [Int] = []
    var hasFaults = false
    var setsClockBack = false
    var hasHostileClients = false
    var turnsPerStep = 8
    var clients = 6

    init(_ random: inout Random) {
      for (_, weight, isRare) in World.kinds {
        weights.append(isRare && random.chance(50) ? 0 : weight * random.pick([1, 1, 2, 4]))
      }
      hasFaults = random.chance(60)
      setsClockBack = random.chance(50)
      hasHostileClients = random.chance(60)
      turnsPerStep = random.pick([1, 4, 12, 40])
      clients = random.pick([2, 4, 8, 12])
    }
  }

  private enum Kind {
    case turn, pass, connect, subscribe, ask, grant, cancel, read, change, leave
    case emit, end
    case publish, values, complete, toss
    case noise, halfClose, repeatLast, flood
    case restart, kill, killSoon, losePower, reload, setClock, settle, faults
  }

  private static let kinds: [(kind: Kind, weight: Int, isRare: Bool)] = [
    (.turn, 60, false), (.pass, 20, false), (.connect, 12, false), (.subscribe, 24, false), (.ask, 4, false),
    (.grant, 24, false), (.cancel, 4, false), (.read, 20, false), (.change, 2, false), (.leave, 3, false),
    (.emit, 60, false), (.end, 1, true), (.publish, 8, false), (.values, 30, false), (.complete, 3, false),
    (.toss, 4, false), (.noise, 12, true), (.halfClose, 2, true), (.repeatLast, 2, true), (.flood, 4, true),
    (.restart, 3, true), (.kill, 2, true), (.killSoon, 2, true), (.losePower, 1, true), (.reload, 4, true),
    (.setClock, 2, true), (.settle, 2, false), (.faults, 4, true),
  ]

  init(seed: UInt64, folder: String) {
    (self.seed, self.folder) = (seed, folder)
    var random = Random(seed)
    profile = Profile(&random)
    var limits = Machine.Limits()
    limits.workers = random.pick([1, 1, 2])
    if random.chance(20) { limits.connections = 8 }
    self.limits = limits
    streams = ["s0", "s1", "s2"].map { .random($0, isPublished: false, &random) }
    streams += ["p0", "p1"].map { .random($0, isPublished: true, &random) }
    // What the bystander reads is always there.
    streams[0] = StreamSpecification("s0", isPublished: false)
    streams[0].start = .always
    sim_store_limit = random.chance(15) ? 20 : 64
    connectionsMayEnd = sim_store_limit < 64 || limits.connections < 24
    // Of one length, as the heap is to be the same in each run.
    listenerName = "sim-\(1_000_000_000 + Int(getpid()))"
    listener = sim_listen(listenerName)
    self.random = random
    for stream in streams {
      truths[stream.name] = Truth(stream.name)
      sequences[stream.name] = (0, 1)
    }
    for (index, stream) in ["p0", "p0", "p1"].enumerated() {
      publishers.append(NamedPublisher("n\(index)", user: Int64(StreamSpecification.users[index]), stream: stream))
    }
    setFaultRates()
  }

  private func setFaultRates() {
    sim_switch_rate = random.pick([0, 1000, 10000])
    guard profile.hasFaults else { return }
    withUnsafeMutableBytes(of: &sim_fault_rate) { bytes in
      let rates = bytes.bindMemory(to: UInt32.self)
      for index in 0..<Int(SIM_FAULTS) where random.chance(40) {
        rates[index] = UInt32(random.pick([20, 200, 2000]))
      }
      for kind in [SIM_SEND_SHORT, SIM_RECV_SHORT, SIM_EPOLL_EINTR] where rates[Int(kind)] > 0 {
        rates[Int(kind)] = UInt32(random.pick([2000, 10000, 30000]))
      }
      rates[Int(SIM_LATE)] = min(rates[Int(SIM_LATE)], 200)
      let ending = [
        SIM_SEND_RESET, SIM_RECV_RESET, SIM_EPOLL_ADD, SIM_ACCEPT, SIM_MEMFD, SIM_SOCKETPAIR, SIM_PARCEL, SIM_STORE,
      ]
      for kind in ending where rates[Int(kind)] > 0 { connectionsMayEnd = true }
      // A disk that takes nothing, or a manager that keeps nothing, forgets ids where the clock goes back, too.
      if profile.setsClockBack {
        for kind in [SIM_DISK_FULL, SIM_SYNC, SIM_WRITE, SIM_RENAME, SIM_STORE] { rates[Int(kind)] = 0 }
      }
    }
  }

  func truth(of stream: String) -> Truth { truths[stream]! }
  func specification(of stream: String) -> StreamSpecification? { streams.first { $0.name == stream } }
  func publisher(_ name: String) -> NamedPublisher? { publishers.first { $0.name == name } }

  private var hasDiskFaults: Bool {
    withUnsafeBytes(of: sim_fault_rate) { bytes in
      let rates = bytes.bindMemory(to: UInt32.self)
      return [SIM_DISK_FULL, SIM_SYNC, SIM_WRITE, SIM_RENAME, SIM_STORE, SIM_MEMFD].contains {
        rates[Int($0)] > 0
      }
    }
  }

  // MARK: Steps

  func run(_ steps: [Int]) {
    begin()
    let total = profile.weights.reduce(0, +)
    for step in steps {
      Report.shared.step = step
      random = Random(seed &* 0x9e37_79b9_7f4a_7c15 ^ UInt64(step) &* 0xd6e8_feb8_6659_fd93)
      sim_seed(random.next())
      var place = random.below(total)
      var kind = Kind.turn
      for (index, weight) in profile.weights.enumerated() {
        place -= weight
        if place < 0 {
          kind = Self.kinds[index].kind
          break
        }
      }
      Report.shared.say("step \(step) at \(sim_now() / 1000) µs: \(kind), trace \(sim_trace() % 1_000_000)")
      perform(kind)
      afterStep()
      sim_trace_add(UInt64(step))
    }
    finish()
  }

  private func begin() {
    machine = Machine(self)
    sim_seed(random.next())
    startMachine()
    let client = connect(as: 1000, isOrderly: true)
    client?.isEager = true
    bystander = client
  }

  private func afterStep() {
    turn(profile.turnsPerStep)
    for client in clients where client.isEager || client === bystander { client.receive() }
    for client in clients { client.keepAlive() }
    clients.removeAll { $0.isOver }
    if sim_is_dead() != 0 {
      Report.shared.say("the process is killed in the middle")
      restartAfterDeath()
    }
    check()
  }

  private func perform(_ kind: Kind) {
    switch kind {
    case .turn: turn(1 + random.below(64))
    case .pass:
      let span = random.pick([100_000, 1_000_000, 20_000_000, 300_000_000, 2_000_000_000, 12_000_000_000])
      pass(UInt64(span))
    case .connect:
      guard clients.count < profile.clients else { return }
      let isOrderly = !profile.hasHostileClients || random.chance(60)
      _ = connect(as: random.chance(5) ? -1 : Int64(random.pick(StreamSpecification.users)), isOrderly: isOrderly)
    case .subscribe:
      orderly?.subscribe(random.chance(6) ? random.pick(Self.systemStreams) : random.pick(streams).name, &random)
    case .ask: orderly?.ask(random.chance(20) ? random.pick(Self.systemStreams) : random.pick(streams).name)
    case .grant: orderly?.grant(&random)
    case .cancel: orderly?.cancel(&random)
    case .read: random.maybe(clients)?.receive(atMost: random.pick([1, 50, 5000, .max]))
    case .change: if let client = random.maybe(clients), client !== bystander { client.isEager.toggle() }
    case .leave: if let client = random.maybe(clients), client !== bystander { client.close() }
    case .emit: emit()
    case .end: end()
    case .publish: publish()
    case .values: for client in clients.filter(\.isOrderly).shuffled(&random).prefix(2) { client.sendValues(&random) }
    case .complete: orderly?.completeChannel(&random)
    case .toss: orderly?.toss(to: random.pick(["p0", "p1"]), &random)
    case .noise: if let client = hostile { Noise.send(to: client, &random) }
    case .halfClose: hostile?.shutDown(random.pick([CInt(SHUT_WR), CInt(SHUT_RD), CInt(SHUT_RDWR)]))
    case .repeatLast: for _ in 0..<random.below(50) { hostile?.repeatLast() }
    case .flood: if let client = hostile { Noise.flood(client, &random) }
    case .restart: restart()
    case .kill: kill()
    case .killSoon:
      Report.shared.say("the process will be killed soon")
      sim_kill_later(UInt32(1 + random.below(60)))
      turn(64)
    case .losePower: losePower()
    case .reload: reload()
    case .setClock: setClock()
    case .settle: settle()
    case .faults:
      guard profile.hasFaults else { return }
      sim_faults_on = sim_faults_on == 0 ? 1 : 0
      Report.shared.say("faults are \(sim_faults_on == 0 ? "off" : "on")")
    }
  }

  private var orderly: Client? { random.maybe(clients.filter { $0.isOrderly && $0 !== bystander }) }
  private var hostile: Client? { random.maybe(clients.filter { !$0.isOrderly }) }

  private func turn(_ count: Int) {
    for _ in 0..<count {
      guard sim_run_one() != 0 else { return }
      turns += 1
    }
  }

  /// Lets time pass, in steps that those who have something to do then see.
  private func pass(_ nanoseconds: UInt64) {
    Report.shared.say("\(nanoseconds / 1000) µs pass")
    let end = sim_now() + nanoseconds
    for _ in 0..<200 {
      let next = sim_next_deadline()
      guard next < end else { break }
      if next > sim_now() { sim_pass(next - sim_now()) }
      turn(8)
      for client in clients { client.keepAlive() }
    }
    if end > sim_now() { sim_pass(end - sim_now()) }
  }

  // MARK: Clients

  @discardableResult
  private func connect(as user: Int64, isOrderly: Bool) -> Client? {
    let descriptor = sim_connect(listenerName, user, random.chance(30) ? 4608 : 0)
    guard descriptor >= 0 else { return nil }
    clientCount += 1
    let client = Client(clientCount, user: user, descriptor, isOrderly: isOrderly, self)
    Report.shared.say("\(client.name) connects\(isOrderly ? "" : ", and is hostile")")
    clients.append(client)
    return client
  }

  func connectionFailed(_ client: Client, _ code: ErrorCode, _ message: String) {
    let isExpected =
      connectionsMayEnd || client.isLeaving || code == .connectionClose
      || code == .rejectedSetup && message.contains("connections already")
    require(isExpected, "connections stay", "\(client.name) got \(code): \(message)")
  }

  func connectionEnded(_ client: Client) {
    Report.shared.say("\(client.name) is at its connection's end")
    if client === bystander { (bystander, owed) = (nil, []) }
    guard client.isOrderly, !client.isLeaving, !connectionsMayEnd else { return }
    require(mayEndNow, "connections stay", "\(client.name) has lost its connection")
  }

  /// Connections end that nobody closed: the process has just been killed, or the server stops.
  private var mayEndNow = false

  func received(_ id: UInt64, of stream: String, by client: Client) {
    if client === bystander { owed.removeAll { $0.id <= id } }
  }

  // MARK: Upstreams and publishers

  private func emit() {
    let candidates = streams.filter { (machine.upstreams[$0.name]?.demand ?? .none) > .none }
    guard let stream = random.maybe(candidates), let upstream = machine.upstreams[stream.name] else { return }
    var batch = EventBatch()
    let count = random.pick([1, 1, 1, 2, 5, 40])
    for _ in 0..<count {
      let (epoch, number) = sequences[stream.name]!
      sequences[stream.name]!.next += 1
      let size = random.chance(90) ? random.below(400) : random.below(stream.largestEvent)
      batch.append(Content(stream.name, epoch, number).bytes(count: min(size, stream.largestEvent)))
    }
    Report.shared.say("\(stream.name) has \(count) events, \(batch.byteCount) bytes")
    upstream.send(batch)
    if stream.name == "s0", let bystander,
      let subscription = bystander.subscriptions.values.first(where: {
        $0.stream == "s0" && $0.credit >= Client.unlimited && $0.last != nil
      }), let end = machine.end(of: "s0"), end - 1 > subscription.last!
    {
      owed.append((end - 1, turns, sim_now()))
    }
  }

  private func end() {
    let candidates = streams.filter { $0.name != "s0" && machine.upstreams[$0.name]?.isSubscribed == true }
    guard let stream = random.maybe(candidates) else { return }
    Report.shared.say("the source of \(stream.name) ends")
    machine.upstreams[stream.name]?.finish(random.chance(50) ? .finished : .failure(StreamFailure("it is over")))
  }

  private func publish() {
    let idle = publishers.filter { $0.connection == nil }
    if random.chance(60), let publisher = random.maybe(idle) {
      let client =
        clients.first { $0.isOrderly && $0.user == publisher.user } ?? connect(as: publisher.user, isOrderly: true)
      client?.publish(to: publisher.stream, publisher, &random)
    } else {
      orderly?.publish(to: random.pick(["p0", "p1"]), nil, &random)
    }
  }

  // MARK: The process

  private func startMachine() {
    for attempt in 0..<6 {
      let former = sim_faults_on
      if attempt >= 2 { sim_faults_on = 0 }
      defer { sim_faults_on = former }
      machine = Machine(self)
      do {
        try machine.start()
        if sim_is_dead() == 0 { break }
      } catch {
        Report.shared.say("the process ends before it serves: \(error)")
      }
      Report.shared.count("starts that failed")
      machine.end()
      connectionsAreGone()
      require(attempt < 5, "progress", "no process gets as far as serving")
    }
    for client in clients { for stream in streams { client.review(stream) } }
  }

  /// Connections are gone, but nothing else that was kept.
  private func connectionsAreGone() {
    mayEndNow = true
    // What is left, and then the end.
    for client in clients + clients { client.receive() }
    clients.removeAll { $0.isOver }
    mayEndNow = false
  }

  private func change(_ percent: Int) {
    guard random.chance(percent) else { return }
    let former = streams
    for index in 1..<streams.count where random.chance(40) { streams[index].change(&random) }
    noteChanges(from: former)
  }

  /// What a change of configuration may cost.
  private func noteChanges(from former: [StreamSpecification]) {
    for (old, new) in zip(former, streams) where old != new {
      Report.shared.say("\(new.name) is now \(new)")
      if old.isServed != new.isServed || new.keep == .no { truths[new.name]?.isKept = false }
      if new.largestEvent < old.largestEvent { truths[new.name]?.mayLeaveOut = true }
      if new.largestEvent != old.largestEvent || old.isServed != new.isServed || old.blocks != new.blocks
        || old.keep != new.keep
      {
        newEpoch(new.name)
      }
      if new.events < old.events || new.bytes < old.bytes || old.blocks != new.blocks || old.isServed != new.isServed {
        truths[new.name]?.losses += 1
      }
    }
  }

  private func newEpoch(_ stream: String) {
    sequences[stream]!.epoch += 1
    truths[stream]?.forgetMakers()
    if specification(of: stream)?.isPublished == false { truths[stream]?.epoch = sequences[stream]!.epoch }
  }

  private func restart() {
    Report.shared.say("the service restarts")
    Report.shared.count("restarts")
    machine.stop(handingOver: true)
    guard sim_is_dead() == 0 else { return restartAfterDeath() }
    machine.end()
    logsAreGone()
    // Those for which there was no room.
    let allowed = connectionsMayEnd
    connectionsMayEnd = true
    for client in clients where client.isEager { client.receive() }
    connectionsMayEnd = allowed
    change(60)
    logsAreGone()
    startMachine()
  }

  /// Logs that begin anew, or may: nothing keeps them, or what does has failed.
  private func logsAreGone() {
    for stream in streams where stream.keep == .no || hasDiskFaults || sim_store_limit < 64 {
      truths[stream.name]?.losses += 1
      truths[stream.name]?.forgetMakers()
      truths[stream.name]?.isKept = false
    }
  }

  private func kill() {
    Report.shared.say("the process is killed")
    sim_kill()
    restartAfterDeath()
  }

  private func restartAfterDeath() {
    Report.shared.count("kills")
    machine.end()
    connectionsAreGone()
    for stream in streams { newEpoch(stream.name) }
    logsAreGone()
    change(30)
    logsAreGone()
    startMachine()
  }

  private func losePower() {
    Report.shared.say("the machine loses power")
    Report.shared.count("losses of power")
    sim_kill()
    machine.end()
    connectionsAreGone()
    sim_lose_power()
    sim_store_clear()
    boot += 1
    for truth in truths.values { truth.losePower() }
    for publisher in publishers { publisher.losePower() }
    for stream in streams { newEpoch(stream.name) }
    startMachine()
  }

  private func reload() {
    let former = streams
    feedsChanged = []
    for index in 1..<streams.count where random.chance(40) {
      if random.chance(12) {
        streams[index].isServed.toggle()
      } else {
        streams[index].change(&random)
        if !streams[index].isPublished, random.chance(20) { feedsChanged.insert(streams[index].name) }
      }
    }
    guard former != streams else { return }
    Report.shared.say("the configuration is reloaded")
    Report.shared.count("reloads")
    noteChanges(from: former)
    for name in feedsChanged { newEpoch(name) }
    machine.reload(from: former, to: streams)
    feedsChanged = []
    guard sim_is_dead() == 0 else {
      // Where logs were about to be moved.
      for (old, new) in zip(former, streams) where old != new { truths[new.name]?.isKept = false }
      return
    }
    for client in clients { for stream in streams { client.review(stream) } }
  }

  private func setClock() {
    let spans: [Int64] = [1_000_000_000, 3600_000_000_000, 86_400_000_000_000 * 30]
    let span = random.pick(spans) * (profile.setsClockBack && random.chance(60) ? -1 : 1)
    Report.shared.say("the wall clock is set \(span < 0 ? "back" : "forward") by \(abs(span) / 1_000_000_000) s")
    Report.shared.count("clock set")
    sim_set_wall(span)
  }

  // MARK: What must hold

  private func check() {
    require(
      machine.heldBytes <= Machine.inputBytes + (1 << 20), "memory",
      "clients have \(machine.heldBytes) bytes under way, and may have \(Machine.inputBytes)")
    require(machine.mostBlocked <= 128, "memory", "a connection has \(machine.mostBlocked) requests waiting for room")
    if let late = owed.first {
      require(
        turns - late.turn < 3000 || sim_now() - late.time < 2_000_000_000, "a bystander is served",
        "event \(late.id) has waited for \(turns - late.turn) turns and \((sim_now() - late.time) / 1_000_000) ms")
    }
    if sim_now() - journalWindow.start > 10_000_000_000 { journalWindow = (sim_now(), sim_journal_lines) }
    require(sim_journal_lines - journalWindow.lines < 3000, "few log lines", "3000 lines in the journal within 10 s")
    for subscription in machine.subscriptions { Report.shared.count("state: \(subscription.state)") }
    if bystander == nil {
      bystander = connect(as: 1000, isOrderly: true)
      owed = []
    }
    if let bystander, bystander.subscriptions.isEmpty { bystander.follow("s0") }
  }

  /// Without faults, everybody reads, and all that is there and wanted arrives.
  private func settle() {
    let former = sim_faults_on
    sim_faults_on = 0
    defer { sim_faults_on = former }
    var rounds = 0
    var idle = 0
    while idle < 40 {
      rounds += 1
      require(rounds < 3000, "progress", "the server is never at rest")
      let before = turns
      turn(500)
      for client in clients where client.isOrderly { client.receive() }
      if turns == before {
        idle += 1
        sim_pass(100_000_000)
      }
      for client in clients { client.keepAlive() }
      if sim_is_dead() != 0 { return }
    }
    // A hostile client reads nothing, and one that closed the half in which it would get something gets nothing.
    for subscription in machine.subscriptions where subscription.hasCredit && subscription.state != "blocked" {
      require(
        subscription.position >= subscription.end, "everybody is served",
        "a subscription to \(subscription.stream) is \(subscription.state) at \(subscription.position) of "
          + "\(subscription.end), with credit")
    }
    for stream in streams where stream.isServed && !stream.isPublished && !stream.blocks {
      guard let upstream = machine.upstreams[stream.name], upstream.isSubscribed, let end = machine.end(of: stream.name)
      else { continue }
      let isWanted = machine.subscriptions.contains { $0.stream == stream.name && $0.reach > end }
      require(
        !isWanted || upstream.demand > .none, "demand",
        "subscribers want more of \(stream.name) than there is, and its source is not asked")
    }
  }

  /// The end: all clients leave, and nothing of theirs is left.
  private func finish() {
    Report.shared.step += 1
    Report.shared.say("the end")
    sim_kill_later(0)
    settle()
    for client in clients { client.close() }
    clients = []
    bystander = nil
    owed = []
    sim_faults_on = 0
    var idle = 0
    while idle < 100 {
      if sim_run_one() == 0 {
        idle += 1
        sim_pass(100_000_000)
      }
    }
    let statistics = machine.server.statistics
    require(
      statistics.connections == 0 && statistics.subscribers == 0 && statistics.publishers == 0
        && machine.subscriptions.isEmpty, "clients leave nothing",
      "\(statistics.connections) connections, \(statistics.subscribers) subscribers, \(statistics.publishers) publishers"
    )
    require(machine.heldBytes == 0, "clients leave nothing", "\(machine.heldBytes) bytes are still held for clients")
    machine.stop(handingOver: false)
    machine.end(wasStopped: true)
    Report.shared.end()
  }
}

extension Array {
  fileprivate func shuffled(_ random: inout Random) -> [Element] { random.shuffled(self) }
}

extension Client {
  /// As the bystander does: reads a stream, all of it.
  func follow(_ stream: String) {
    let id = UInt32(1 + 2 * 100_000 + 2 * received)
    subscriptions[id] = Subscription(
      stream: stream, gaps: true, ids: true, fails: false, isOne: false, after: nil, credit: Self.unlimited)
    var bytes: [UInt8] = []
    guard let metadata = try? MetadataFormat.composite.metadata(route: stream) else { return }
    Frame.request(
      StreamID(id), .stream, initialRequest: UInt32(Self.unlimited),
      Payload(metadata: metadata, data: Array(#"{"gaps":true}"#.utf8)), follows: false, isComplete: false
    ).encode(into: &bytes)
    send(raw: bytes)
  }
}
