import Events
import TaggedFields

@testable import Fleet

/// A day of a fleet of many hosts, in short: what its hosts and brokers send, and what the hosts keep. The figures of
/// "SIZING" in streamd-fleet(7) are those of a fleet of 1,000 hosts.
///
/// All streams are polls with a new event in every interval, and clients of some hosts want each. The engine loses and
/// delays nothing. What all hosts receive is one entry in the network's queue, and the walk over the hosts is as short
/// as it can be: 1,000 hosts with 10,000 polls each 30 seconds receive 333,333 entries in a second.
struct FleetSizing {
  struct Scale {
    var hostCount = 30
    var streamCount = 200
    var shardCount = 4
    /// The virtual time.
    var seconds: UInt64 = 300
    var interval: UInt64 = 30
    var eventByteCount = 1024
    /// So many of 1,000 hosts want each stream.
    var wantedShare: UInt64 = 100
    var brokerCount = 3
    /// The oldest entries of a shard are removed beyond this size.
    var shardByteCount = 64 << 20
  }

  enum Content {
    case append([UInt8], isClaim: Bool, shard: Int, after: UInt64, attempt: UInt64, from: Int)
    case read(shard: Int, after: UInt64, from: Int)
    case findClaim(shard: Int, from: Int)
    case gather(shard: Int, from: Int)
    case answer(ShardMachine.Answer, shard: Int)
    /// To all hosts.
    case tail([UInt8], shard: Int, UInt64)
    case heartbeat([UInt8])
    case message(FleetTraffic.Kind, [UInt8], stream: String, leader: HostID, from: Int)
    case messageAnswer(FleetTraffic.Kind, [UInt8]?, stream: String, leader: HostID)
    case interest(stream: String, from: Int, isForPoll: Bool)
    case interestAnswer(stream: String, Bool?, isForPoll: Bool)
    case poll(String), tick, happen(Incident)
  }

  /// An incident of a day.
  enum Incident {
    case start(Int)
    /// The leader of this shard is killed, and begins anew after so many nanoseconds.
    case kill(leaderOf: Int, for: UInt64)
    /// The leader of this shard is restarted by its operator.
    case restart(leaderOf: Int, for: UInt64)
    /// A host is restarted.
    case restartHost(Int, for: UInt64)
  }

  struct Host {
    var machine: FleetMachine
    var id: HostID
    var isUp = false
    var tickAt = UInt64.max
    /// The streams whose sources run here: when they poll next, and their tick.
    var polls: [String: (due: UInt64, tick: UInt64)] = [:]
    /// The content of its logs while it is down: the end of each stream, and a position for each shard.
    var ends: [String: UInt64] = [:]
    var positions: [Int: ShardPosition] = [:]
  }

  let scale: Scale
  var violations: [String] = []
  var totals: Totals
  var network: SimulatedNetwork<Content>
  var hosts: [Host] = []
  var indices: [HostID: Int] = [:]
  var logs: [SimulatedLog]
  /// The hosts that listen to each stream's interest subject.
  var listeners: [String: Set<Int>] = [:]
  private let streams: [String]
  var event: [UInt8]

  /// The traffic and the counts so far.
  struct Totals {
    var traffic: FleetTraffic
    var counts = Counts()

    /// The differences to an earlier time.
    func since(_ earlier: Totals) -> Totals {
      Totals(traffic: traffic.since(earlier.traffic), counts: counts.since(earlier.counts))
    }
  }

  struct Counts {
    /// Entries that the brokers have stored: records with an event, without one, and claims.
    var records = 0, signsOfLife = 0, claims = 0
    var recordBytes = 0, claimBytes = 0
    /// Appends that the brokers have refused, and their bytes.
    var refused = 0, refusedBytes = 0
    /// Hosts that began to lead a shard, or have asked all others for their positions to do so.
    var terms = 0, gathers = 0
    /// Fetches, and those that a leader could not make at their time.
    var polls = 0, refusedPolls = 0
    /// Events that hosts have stored.
    var storedEvents = 0
    var ticks = 0
    /// Entries that hosts have received, and the processor time that they took, in nanoseconds.
    var deliveries = 0, deliveryTime: UInt64 = 0

    func since(_ earlier: Counts) -> Counts {
      Counts(
        records: records - earlier.records, signsOfLife: signsOfLife - earlier.signsOfLife,
        claims: claims - earlier.claims, recordBytes: recordBytes - earlier.recordBytes,
        claimBytes: claimBytes - earlier.claimBytes, refused: refused - earlier.refused,
        refusedBytes: refusedBytes - earlier.refusedBytes, terms: terms - earlier.terms,
        gathers: gathers - earlier.gathers, polls: polls - earlier.polls,
        refusedPolls: refusedPolls - earlier.refusedPolls, storedEvents: storedEvents - earlier.storedEvents,
        ticks: ticks - earlier.ticks, deliveries: deliveries - earlier.deliveries,
        deliveryTime: deliveryTime - earlier.deliveryTime)
    }
  }

  static let second: UInt64 = 1_000_000_000
  /// The time of a message from a host to the brokers, or from these to a host.
  static let delay: UInt64 = 1_000_000

  init(_ scale: Scale, seed: UInt64 = 1) {
    self.scale = scale
    network = SimulatedNetwork(seed: seed, hostCount: scale.hostCount, faults: Faults(lost: 0, repeated: 0))
    (network.isCalm, network.isOrdered) = (true, true)
    totals = Totals(traffic: FleetTraffic(hostCount: scale.hostCount, brokerCount: scale.brokerCount))
    logs = Array(repeating: SimulatedLog(), count: scale.shardCount)
    streams = (0..<scale.streamCount).map { Self.name($0) }
    event = [UInt8](repeating: 0x20, count: max(8, scale.eventByteCount))
    for _ in 0..<scale.hostCount {
      let id = hostID()
      hosts.append(Host(machine: machine(id), id: id))
    }
    planDay()
  }

  private static func name(_ stream: Int) -> String { "exchange.quotes.\(stream)" }

  private mutating func hostID() -> HostID {
    HostID((0..<16).map { _ in UInt8(truncatingIfNeeded: network.random.next()) })!
  }

  private func machine(_ id: HostID) -> FleetMachine {
    FleetMachine(host: id, hostName: "host-1000.example.org", shardCount: scale.shardCount) { values, _ in values }
  }

  var now: UInt64 { network.now }
  var wallTime: UInt64 { 1_700_000_000_000_000 + now / 1000 }
  var upCount: Int { hosts.count(where: \.isUp) }
  /// The bytes of the entries that the brokers keep.
  var logByteCount: Int { logs.reduce(0) { $0 + $1.byteCount } }
  var leadingCount: Int { hosts.count { host in host.isUp && host.machine.shards.values.contains(where: \.isLeading) } }
  /// The streams that a client of any host wants.
  var wantedCount: Int { listeners.values.count { !$0.isEmpty } }
  /// Hosts that listen to streams: each host counts once for each stream.
  var listenerCount: Int { listeners.values.reduce(0) { $0 + $1.count } }

  /// The streams that are not the same on all hosts.
  var differingStreams: [String] {
    streams.filter { stream in
      Set(hosts.filter(\.isUp).map { $0.machine.find(stream)?.1.definition.end }).count > 1
    }
  }

  // MARK: The day

  /// The hosts start one after the other; the first one leads all shards until it is killed. Then the shards have
  /// different leaders, of which some are killed or restarted. One host joins late, and some of the others are
  /// restarted. In the last fifth nothing happens.
  private mutating func planDay() {
    let percent = scale.seconds * Self.second / 100
    func plan(_ incident: Incident, at time: UInt64) { network.plan(.happen(incident), for: nil, after: time) }
    for index in 0..<scale.hostCount - 1 {
      plan(.start(index), at: 2 * percent * UInt64(index) / UInt64(scale.hostCount))
    }
    plan(.kill(leaderOf: 0, for: 2 * percent), at: 8 * percent)
    plan(.kill(leaderOf: 0, for: 8 * percent), at: 30 * percent)
    plan(.kill(leaderOf: 1, for: 8 * percent), at: 30 * percent)
    plan(.start(scale.hostCount - 1), at: 45 * percent)
    plan(.restart(leaderOf: 2, for: percent), at: 55 * percent)
    for index in 0..<min(10, scale.hostCount / 4) as Range<Int> {
      plan(.restartHost(index * 3, for: percent), at: (60 + UInt64(index)) * percent)
    }
  }

  /// Runs until this part of the day has passed.
  mutating func run(untilPercent percent: UInt64) {
    let end = scale.seconds * Self.second / 100 * percent
    while violations.isEmpty, now < end {
      let second = min(end, (now / Self.second + 1) * Self.second)
      while let message = network.next(until: second) { deliver(message) }
      totals.traffic.endSecond()
    }
  }

  mutating func happen(_ incident: Incident) {
    switch incident {
    case .start(let index): start(index)
    case .kill(let shard, let time):
      if let leader = leader(of: shard) { stop(leader, for: time) }
    case .restart(let shard, let time):
      guard let leader = leader(of: shard) else { return }
      perform(hosts[leader].machine.leave(at: now), by: leader)
      stop(leader, for: time)
    case .restartHost(let index, let time): if hosts[index].isUp { stop(index, for: time) }
    }
  }

  private func leader(of shard: Int) -> Int? {
    hosts.indices.first { hosts[$0].isUp && hosts[$0].machine.shards[shard]?.isLeading == true }
  }

  private mutating func start(_ index: Int) {
    hosts[index].id = hostID()
    let machine = machine(hosts[index].id)
    hosts[index].machine = machine
    hosts[index].isUp = true
    indices[hosts[index].id] = index
    network.revive(index)
    let streams = streams.enumerated().map { number, name in
      FleetMachine.Stream(
        name: name, definition: UInt64(number + 1), kind: .poll, canLead: true, end: hosts[index].ends[name] ?? 0,
        position: hosts[index].positions[machine.shard(of: name)])
    }
    perform(machine.setStreams(streams, at: now), by: index)
    perform(machine.connected(at: now), by: index)
    for (number, stream) in streams.enumerated() where wants(index, number) {
      perform(machine.wants(stream.name, true, at: now), by: index)
    }
  }

  /// Whether a client of the host wants the stream.
  private func wants(_ host: Int, _ stream: Int) -> Bool {
    var random = SeededRandom(state: UInt64(host) << 32 | UInt64(stream))
    return random.below(1000) < scale.wantedShare
  }

  private mutating func stop(_ index: Int, for time: UInt64) {
    network.kill(index)
    let shards = hosts[index].machine.shards
    hosts[index].ends = [:]
    for stream in shards.values.flatMap(\.streams.values) { hosts[index].ends[stream.name] = stream.definition.end }
    hosts[index].positions = shards.compactMapValues { $0.machine.position?.saved }
    (hosts[index].isUp, hosts[index].tickAt, hosts[index].polls) = (false, .max, [:])
    indices[hosts[index].id] = nil
    for (number, stream) in streams.enumerated() where wants(index, number) { listeners[stream]?.remove(index) }
    network.plan(.happen(.start(index)), for: nil, after: time)
  }
}
