import CSimulation

@testable import StreamServer
@testable import streamd

// What must hold after each step, when all is at rest, and at the end.

extension World {
  func check() {
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
    checkUsers()
    checkTemplates()
    checkAnswers()
    machine.watchConnections()
    if bystander == nil {
      bystander = connect(as: .user(1000), .rsocket) as? RSocketClient
      owed = []
    }
    if let bystander, bystander.subscriptions.isEmpty { bystander.follow("s0") }
  }

  /// Each connection counts for its own user or host, which has no more than it may.
  private func checkUsers() {
    var counts: [ClientUser: Int] = [:]
    for (user, counted) in machine.connectionUsers {
      require(user == counted, "limits", "a connection of \(user) counts for \(counted)")
      counts[user, default: 0] += 1
    }
    for (user, count) in counts {
      require(
        count <= limits.perUser, "limits", "\(user) has \(count) connections, and may have \(limits.perUser)")
    }
  }

  /// Without faults, every client reads, and all that is there and wanted arrives.
  func settle() {
    finishReload()
    let former = sim_faults_on
    sim_faults_on = 0
    model?.isSlow = false
    defer {
      sim_faults_on = former
      model?.isSlow = true
    }
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
    let subscriptions = machine.subscriptions
    for subscription in subscriptions where subscription.hasCredit && subscription.state != "blocked" {
      require(
        subscription.position >= subscription.end, "every subscription is served",
        "a subscription to \(subscription.stream) is \(subscription.state) at \(subscription.position) of "
          + "\(subscription.end), with credit")
    }
    for stream in streams where stream.isServed && !stream.isPublished && !stream.blocks {
      guard let end = machine.end(of: stream.name),
        subscriptions.contains(where: { $0.stream == stream.name && $0.reach > end })
      else { continue }
      checkIsAsked(stream, for: stream)
    }
    checkDemand(subscriptions)
    checkAnswersAtRest()
    for client in clients where !client.isOver && !client.isLeaving {
      client.checkAtRest()
      for subscription in client.catalogues { checkCatalogue(subscription, of: client) }
    }
  }

  /// Demand on a derived stream is demand on its bases, and theirs on their upstreams; without any, nothing is asked.
  private func checkDemand(_ subscriptions: [Machine.Standing]) {
    let served = streams.filter(\.isServed)
    let wanted = Set(subscriptions.filter { $0.reach > $0.end }.map(\.stream))
    for stream in derivedStreams where stream.isServed && !stream.blocks {
      guard wanted.contains(stream.name) || stream.start == .always else { continue }
      // There may be too many connections for its own.
      guard !stream.kind.isMirror || limits.connections == Machine.Limits().connections else { continue }
      checkBases(of: stream)
    }
    for stream in served where stream.isIdle && !wanted.contains(stream.name) {
      let users = derivedStreams.filter { $0.isServed && $0.kind.bases.contains(stream.name) }
      guard users.allSatisfy({ $0.isIdle && !wanted.contains($0.name) }),
        let upstream = machine.upstreams[stream.name]
      else { continue }
      Report.shared.count("demand: none at rest, of \(users.isEmpty ? "a stream" : "a base")")
      require(
        upstream.demand == .none, "demand", "the source of \(stream.name) is asked for \(upstream.demand), for nobody")
    }
    for stream in derivedStreams where machine.hasEnded(stream.name) {
      require(
        stream.kind.bases.allSatisfy { machine.hasEnded($0) }, "derived streams",
        "\(stream.name) has ended, and not all of its bases")
    }
  }

  /// A derived stream of which more is wanted has read all of its bases, and these ask for more.
  private func checkBases(of stream: StreamSpecification) {
    let unread = truths[stream.name]?.derived?.unread ?? [:]
    require(
      unread.isEmpty, "derived streams",
      "more of \(stream.name) is wanted than there is, and it has not read \(unread.sorted { $0.key < $1.key })")
    Report.shared.count("derived streams: wanted at rest")
    for base in streams where stream.kind.bases.contains(base.name) && !base.blocks {
      checkIsAsked(base, for: stream)
    }
  }

  /// The source of a stream is asked for events, or has delivered all of them.
  /// - Parameter wanted: the stream of which more is wanted than there is.
  private func checkIsAsked(_ stream: StreamSpecification, for wanted: StreamSpecification) {
    if let upstream = machine.upstreams[stream.name], upstream.isSubscribed {
      require(
        upstream.demand > .none, "demand",
        "more of \(wanted.name) is wanted than there is, and the source of \(stream.name) is not asked")
    } else if let origin, stream.kind.isHTTP {
      checkUpstream(of: stream, origin)
    }
  }

  private func checkUpstream(of stream: StreamSpecification, _ origin: Origin) {
    guard let truth = truths[stream.name], !truth.mayLeaveOut, let newest = truth.newest(of: stream.name) else {
      return
    }
    require(
      newest == origin.count(of: stream.name), "upstream events arrive",
      "\(stream.name) has event \(newest) of its upstream, which has \(origin.count(of: stream.name))")
  }

  private func checkCatalogue(_ subscription: Subscription, of client: Client) {
    let visible = visible(to: client.peer)
    guard subscription.credit > 0, let shown = subscription.shown else { return }
    let made = machine.madeStreams.filter { visible.contains(Self.shown($0)) }
    let expected = visible.filter { !$0.contains("/") }.union(made)
    require(
      shown == expected, "system streams",
      "$streams shows \(client.name) \(shown.sorted()), and there are \(expected.sorted())")
  }

  /// Makes a stream that drops nothing wait for a client that has read one event of it, or of its state.
  private func stall() {
    let candidates = streams.filter {
      $0.isServed && $0.kind == .world && $0.blocks && $0.blockTimeout != nil && !machine.hasEnded($0.name)
    }
    let keyed = candidates.filter { $0.keys != nil }
    guard let stream = random.maybe(keyed.isEmpty ? candidates : keyed),
      let client = holder(of: stream)
    else { return }
    client.isEager = true
    client.follow(stream.name)
    func emitSome(_ count: Int) {
      for _ in 0..<count where !machine.waits(stream.name) {
        turn(64)
        client.receive()
        emit(stream.name)
      }
    }
    emitSome(3)
    client.hold(stream.name, isFromState: stream.keys != nil)
    emitSome(100)
    if machine.waits(stream.name) { Report.shared.count("stalls: \(stream.keys == nil ? "events" : "a state")") }
  }

  /// Lets a client read the rest of a state of which it has one event, once the log has lost what came after it.
  private func overtake() {
    let candidates = streams.filter {
      $0.isServed && $0.kind == .world && !$0.blocks && $0.keys != nil && !machine.hasEnded($0.name)
    }
    guard let stream = random.maybe(candidates), let client = holder(of: stream) else { return }
    client.isEager = true
    client.follow(stream.name)
    func emitSome(_ count: Int) {
      for _ in 0..<count {
        turn(64)
        client.receive()
        emit(stream.name)
      }
    }
    emitSome(10)
    client.hold(stream.name, isFromState: true)
    emitSome(4 + stream.events)
    Report.shared.count("states that are overtaken")
    client.grantAll()
    settle()
  }

  /// A stream that drops nothing waits for no client longer than its timeout; all is at rest.
  private func checkStalls() {
    let stalled = streams.filter { $0.isServed && $0.blocks && $0.blockTimeout != nil }
    guard let longest = stalled.compactMap(\.blockTimeout).max() else { return }
    let end = sim_now() + UInt64(longest * 3 / .nanoseconds(1)) + 10_000_000_000
    while sim_now() < end, stalled.contains(where: { machine.waits($0.name) }) {
      sim_pass(500_000_000)
      turn(500)
      for client in clients where client.isOrderly { client.receive() }
      for client in clients { client.keepAlive() }
      if sim_is_dead() != 0 { return }
    }
    for stream in stalled {
      require(
        !machine.waits(stream.name), "stalls end",
        "\(stream.name) waits for a client longer than \(stream.blockTimeout!)")
    }
  }

  /// The end: all clients leave, and nothing of theirs is left.
  func finish() {
    Report.shared.step += 1
    Report.shared.say("the end")
    sim_kill_later(0)
    finishReload()
    if sim_is_dead() != 0 { restartAfterDeath() }
    settle()
    stall()
    checkStalls()
    overtake()
    for client in clients { client.close() }
    clients = []
    bystander = nil
    owed = []
    sim_faults_on = 0
    checkShares()
    var idle = 0
    while idle < 100 {
      let before = turns
      turn(1)
      if turns == before {
        idle += 1
        sim_pass(100_000_000)
      }
    }
    let statistics = machine.server.statistics
    require(
      statistics.connections == 0 && statistics.subscribers == machine.readersOfBases && statistics.publishers == 0
        && machine.subscriptions.isEmpty, "clients leave nothing",
      "\(statistics.connections) connections, \(statistics.subscribers) subscribers, \(statistics.publishers) publishers"
    )
    let remaining = machine.remainingConnections
    require(
      remaining.isEmpty, "memory is released", "connections that ended remain: \(remaining.joined(separator: ", "))")
    require(machine.heldBytes == 0, "clients leave nothing", "\(machine.heldBytes) bytes are still held for clients")
    machine.stop(handingOver: false)
    machine.end()
    origin?.close()
    model?.close()
    Report.shared.end()
  }
}
