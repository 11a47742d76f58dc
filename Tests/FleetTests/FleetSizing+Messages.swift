import Events
import TaggedFields

@testable import Fleet

/// The messages of the fleet: those of the hosts, and the brokers' part.
extension FleetSizing {
  mutating func deliver(_ message: SimulatedNetwork<Content>.Message) {
    guard let index = message.host else { return serve(message) }
    let machine = hosts[index].machine
    switch message.content {
    case .answer(let answer, let shard):
      perform(machine.answer(answer, shard: shard, at: now, wallTime: wallTime), by: index)
    case .messageAnswer(.wants, let answer, let stream, let leader):
      machine.wantArrived(stream, leader: leader, answer != nil, at: now)
      wait(index, for: machine.deadline)
    case .messageAnswer(_, let answer?, let stream, let leader): machine.compared(stream, with: leader, answer)
    case .interestAnswer(let stream, let isWanted, let isForPoll):
      if isForPoll, machine.isWanted(stream, answer: isWanted) { fetch(stream, by: index) }
      perform(machine.learned(stream, isWanted: isWanted, at: now), by: index)
    case .poll(let stream): poll(stream, by: index)
    case .tick:
      guard hosts[index].tickAt <= now else { break }
      hosts[index].tickAt = .max
      totals.counts.ticks += 1
      perform(machine.tick(at: now, wallTime: wallTime), by: index)
    default: break
    }
  }

  // MARK: Actions of hosts

  mutating func perform(_ actions: [FleetMachine.Action], by index: Int) {
    for action in actions { perform(action, by: index) }
    wait(index, for: hosts[index].machine.deadline)
  }

  private mutating func wait(_ index: Int, for deadline: UInt64?) {
    guard let deadline, deadline < hosts[index].tickAt else { return }
    hosts[index].tickAt = deadline
    network.enqueue(.tick, to: index, after: deadline - min(now, deadline))
  }

  private mutating func perform(_ action: FleetMachine.Action, by index: Int) {
    switch action {
    case .ask(let request, let shard): ask(request, of: shard, by: index)
    case .send(let bytes, to: .heartbeats):
      totals.traffic.send(.heartbeats, by: index, bytes.count)
      totals.traffic.pass(.heartbeats, from: totals.traffic.broker(of: index), bytes.count)
      network.enqueue(.heartbeat(bytes), to: nil, after: 2 * Self.delay)
    case .want(let bytes, let stream, let leader):
      ask(.message(.wants, bytes, stream: stream, leader: leader, from: index), of: leader, stream, by: index)
    case .compare(let bytes, let stream, let leader):
      ask(.message(.comparisons, bytes, stream: stream, leader: leader, from: index), of: leader, stream, by: index)
    case .askInterest(let stream): askInterest(in: stream, isForPoll: false, by: index)
    case .showInterest(let isShown, let stream, _):
      if isShown { listeners[stream, default: []].insert(index) } else { listeners[stream]?.remove(index) }
    case .store(let batch, _, _, _, _): totals.counts.storedEvents += batch.count
    case .fetch(true, let stream): begin(stream, by: index)
    case .fetch(false, let stream): hosts[index].polls[stream] = nil
    case .report(.leads): totals.counts.terms += 1
    case .report(.follows), .report(.newEpoch): break
    case .send, .stored, .report: violations.append("host \(index): \(action)")
    }
  }

  private mutating func ask(_ question: Content, of leader: HostID, _ stream: String, by index: Int) {
    guard case .message(let kind, let bytes, _, _, _) = question else { return }
    totals.traffic.send(kind, by: index, bytes.count)
    network.ask(
      question, orElse: .messageAnswer(kind, nil, stream: stream, leader: leader), after: Self.second, by: index)
  }

  private mutating func askInterest(in stream: String, isForPoll: Bool, by index: Int) {
    totals.traffic.send(.interest, by: index, 0)
    network.ask(
      .interest(stream: stream, from: index, isForPoll: isForPoll),
      orElse: .interestAnswer(stream: stream, nil, isForPoll: isForPoll), after: Self.second, by: index)
  }

  private mutating func ask(_ request: ShardMachine.Request, of shard: Int, by index: Int) {
    let (question, failure): (Content, ShardMachine.Answer) =
      switch request {
      case .append(let bytes, let isClaim, let after, let attempt):
        (
          .append(bytes, isClaim: isClaim, shard: shard, after: after, attempt: attempt, from: index),
          .append(attempt: attempt, .unknown)
        )
      case .read(let after): (.read(shard: shard, after: after, from: index), .read(after: after, nil))
      case .findClaim: (.findClaim(shard: shard, from: index), .findClaim(nil))
      case .gather: (.gather(shard: shard, from: index), .gather(nil, nil))
      }
    switch request {
    case .append(let bytes, _, _, _): totals.traffic.send(.appends, by: index, bytes.count)
    case .gather: totals.traffic.send(.positions, by: index, 0)
    case .read, .findClaim: break
    }
    network.ask(question, orElse: .answer(failure, shard: shard), after: 2 * Self.second, by: index)
  }

  // MARK: Polls, as `PollMachine` makes them

  /// The first poll is made at once, or at the slot that the last record announces. A hash of the stream's name
  /// distributes the later ones.
  private mutating func begin(_ stream: String, by index: Int) {
    let slot = hosts[index].machine.schedule(of: stream, at: now, wallTime: wallTime).slot * 1000
    let interval = scale.interval * Self.second
    var random = SeededRandom(state: stream.utf8.reduce(0) { $0 &* 31 &+ UInt64($1) })
    let tick = slot > 0 ? now + slot : now + interval / 2 + random.below(interval / 2)
    plan(stream, by: index, at: slot > 0 ? now + slot : now, tick: tick)
  }

  private mutating func plan(_ stream: String, by index: Int, at due: UInt64, tick: UInt64) {
    hosts[index].polls[stream] = (due, tick)
    network.enqueue(.poll(stream), to: index, after: due - min(now, due))
  }

  private mutating func poll(_ stream: String, by index: Int) {
    guard let poll = hosts[index].polls[stream], poll.due == now else { return }
    switch hosts[index].machine.admitsFetch(stream) {
    case true?: fetch(stream, by: index)
    case nil: askInterest(in: stream, isForPoll: true, by: index)
    case false?:
      totals.counts.refusedPolls += 1
      plan(stream, by: index, at: now + Self.second / 10, tick: poll.tick)
    }
  }

  private mutating func fetch(_ stream: String, by index: Int) {
    guard let tick = hosts[index].polls[stream]?.tick else { return }
    let interval = scale.interval * Self.second
    var next = tick
    while next <= now { next += interval }
    plan(stream, by: index, at: next + network.random.below(interval / 20), tick: next)
    guard hosts[index].machine.mayFetch(stream) else { return }
    totals.counts.polls += 1
    for place in 0..<8 { event[place] = UInt8(truncatingIfNeeded: totals.counts.polls >> (8 * place)) }
    var batch = EventBatch(of: event)
    // The validators of a response, and digests of the page and its source.
    batch.checkpoint = Checkpoint([UInt8](repeating: 7, count: 90))
    perform(
      hosts[index].machine.fetched(
        batch, of: stream, FleetSchedule(slot: (next - now) / 1000), at: now, wallTime: wallTime),
      by: index)
  }

  // MARK: The brokers

  private mutating func serve(_ message: SimulatedNetwork<Content>.Message) {
    switch message.content {
    case .happen(let incident): happen(incident)
    case .tail(let entry, let shard, let sequence): deliver(entry, of: shard, at: sequence)
    case .heartbeat(let bytes): deliver(heartbeat: bytes)
    case .append(let bytes, let isClaim, let shard, let after, let attempt, let host):
      append(bytes, isClaim: isClaim, to: shard, after: after, attempt, from: host, message.question)
    case .read(let shard, let after, let host):
      let log = logs[shard]
      let found = log.read(after: after, upTo: log.last, limit: FleetEntries.maximumCount)
      // The log's extent, and one question for each entry, of which 16 are under way.
      note(.reads, by: host, found.entries.reduce(900) { $0 + $1.bytes.count }, count: found.entries.count + 1)
      answer(.answer(.read(after: after, found), shard: shard), to: host, message, after: 1 + found.entries.count / 16)
    case .findClaim(let shard, let host):
      let claim = logs[shard].findClaim(upTo: logs[shard].last)
      if case .found(let bytes, _) = claim { note(.reads, by: host, bytes.count) } else { note(.reads, by: host, 1100) }
      answer(.answer(.findClaim(claim), shard: shard), to: host, message)
    case .gather(let shard, let host): gather(shard, for: host, message)
    case .interest(let stream, let host, let isForPoll):
      let listener = listeners[stream]?.first
      if let listener {
        totals.traffic.receive(.interest, by: listener, 0)
        totals.traffic.send(.interest, by: listener, 0)
        totals.traffic.pass(.interest, from: host, and: listener)
      }
      totals.traffic.receive(.interest, by: host, 0)
      answer(.interestAnswer(stream: stream, listener != nil, isForPoll: isForPoll), to: host, message)
    case .message(let kind, let bytes, let stream, let leader, let host):
      forward(kind, bytes, stream, to: leader, from: host, message)
    default: break
    }
  }

  private mutating func answer(
    _ answer: Content, to host: Int, _ message: SimulatedNetwork<Content>.Message, after roundTrips: Int = 1
  ) {
    network.enqueue(answer, to: host, after: UInt64(roundTrips) * Self.delay, question: message.question)
  }

  /// A host asks the brokers, and they answer.
  private mutating func note(_ kind: FleetTraffic.Kind, by host: Int, _ byteCount: Int, count: Int = 1) {
    totals.traffic.send(kind, by: host, 0, count: count)
    totals.traffic.receive(kind, by: host, byteCount, count: count)
  }

  private mutating func append(
    _ bytes: [UInt8], isClaim: Bool, to shard: Int, after: UInt64, _ attempt: UInt64, from host: Int,
    _ question: UInt64?
  ) {
    let (own, leader) = (totals.traffic.broker(of: host), totals.traffic.broker(ofShard: shard))
    totals.traffic.pass(.appends, from: own, to: leader, bytes.count)
    let result = logs[shard].append(bytes, after: after)
    totals.traffic.receive(.appends, by: host, 36)
    totals.traffic.pass(.appends, from: leader, to: own, 36)
    network.enqueue(
      .answer(.append(attempt: attempt, result), shard: shard), to: host, after: 2 * Self.delay, question: question)
    guard result == .stored else {
      totals.counts.refused += 1
      totals.counts.refusedBytes += bytes.count
      return
    }
    logs[shard].limit(toBytes: scale.shardByteCount)
    if isClaim {
      totals.counts.claims += 1
      totals.counts.claimBytes += bytes.count
    } else if bytes.count < 100 {
      totals.counts.signsOfLife += 1
    } else {
      totals.counts.records += 1
      totals.counts.recordBytes += bytes.count
    }
    totals.traffic.pass(.appends, from: leader, bytes.count)  // to the other replicas
    totals.traffic.pass(.entries, from: leader, bytes.count)  // to the hosts of the other brokers
    network.enqueue(.tail(bytes, shard: shard, after + 1), to: nil, after: 2 * Self.delay)
  }

  private mutating func gather(_ shard: Int, for host: Int, _ message: SimulatedNetwork<Content>.Message) {
    var answers: [[UInt8]] = []
    totals.counts.gathers += 1
    for index in hosts.indices where hosts[index].isUp {
      guard let answer = hosts[index].machine.positionAnswer(shard: shard, at: now) else { continue }
      answers.append(answer)
      totals.traffic.receive(.positions, by: index, 0)
      totals.traffic.send(.positions, by: index, answer.count)
      totals.traffic.receive(.positions, by: host, answer.count)
    }
    note(.reads, by: host, 900 + (logs[shard].newest.entry?.count ?? 0) * 4 / 3, count: 2)
    // The host waits for more answers than there are hosts.
    answer(.answer(.gather(answers, logs[shard].newest), shard: shard), to: host, message, after: 300)
  }

  /// A message from one host to another.
  private mutating func forward(
    _ kind: FleetTraffic.Kind, _ bytes: [UInt8], _ stream: String, to leader: HostID, from host: Int,
    _ message: SimulatedNetwork<Content>.Message
  ) {
    guard let index = indices[leader] else { return }
    totals.traffic.receive(kind, by: index, bytes.count)
    totals.traffic.pass(kind, from: totals.traffic.broker(of: host), to: totals.traffic.broker(of: index), bytes.count)
    let (actions, reply) = hosts[index].machine.receive(bytes, at: now, wallTime: wallTime)
    perform(actions, by: index)
    guard let reply else { return }
    totals.traffic.send(kind, by: index, reply.count)
    totals.traffic.receive(kind, by: host, reply.count)
    totals.traffic.pass(kind, from: totals.traffic.broker(of: index), to: totals.traffic.broker(of: host), reply.count)
    answer(.messageAnswer(kind, reply, stream: stream, leader: leader), to: host, message)
  }

  // MARK: Messages to all hosts

  private mutating func deliver(_ entry: [UInt8], of shard: Int, at sequence: UInt64) {
    let start = ProcessFigures.processorTime
    for index in hosts.indices where hosts[index].isUp {
      totals.traffic.receive(.entries, by: index, entry.count)
      let machine = hosts[index].machine
      for action in machine.received(entry, shard: shard, at: sequence, now: now) { perform(action, by: index) }
      // The entry changes when this shard is due, and no other one.
      wait(index, for: machine.shards[shard]?.deadline)
    }
    totals.counts.deliveries += upCount
    totals.counts.deliveryTime += ProcessFigures.processorTime - start
  }

  private mutating func deliver(heartbeat: [UInt8]) {
    for index in hosts.indices where hosts[index].isUp {
      totals.traffic.receive(.heartbeats, by: index, heartbeat.count)
      perform(hosts[index].machine.heard(heartbeat, at: now), by: index)
    }
  }
}
