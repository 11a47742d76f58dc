import Fleet
import Testing

@testable import JetStream

/// Options for one broker.
func options(_ broker: Broker, fleet: String = "test", shards: Int = 1) -> JetStreamOptions {
  var options = JetStreamOptions(servers: [broker.url], fleet: fleet, shardCount: shards)
  options.replicaCount = 1
  options.answerTimeout = .seconds(30)
  options.connectTimeout = .seconds(30)
  options.pingInterval = .seconds(30)
  return options
}

/// A host that is connected to one broker.
func connectedHost(_ broker: Broker, shards: Int = 1) async throws -> FleetHost {
  let host = try FleetHost(options(broker, shards: shards))
  try #require(await host.isConnected(), "\(host.reports.reasons)")
  return host
}

@Suite(.timeLimit(.minutes(10))) struct LogTests {
  @Test func appendIsStoredAfterTheExpectedEntryOnly() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    #expect(await host.append([1], after: 5) == .refused(last: 0))
    #expect(await host.append([1], isClaim: true, after: 0) == .stored)
    #expect(await host.append([1], after: 0) == .refused(last: 1))
    #expect(await host.append([2], after: 1) == .stored)
    #expect(await host.append([3], after: 1) == .refused(last: 2))
    #expect(await host.append([3], after: 7) == .refused(last: 2))
    #expect(await host.append([3], after: 2) == .stored)
  }

  @Test(arguments: [0, 3] as [UInt64]) func oneOfRacingAppendsIsStored(after: UInt64) async throws {
    let broker = try await Broker()
    var hosts: [FleetHost] = []
    for _ in 0..<4 { hosts.append(try await connectedHost(broker)) }
    for sequence in 0..<after { #expect(await hosts[0].append([0], after: sequence) == .stored) }
    let results = await withTaskGroup(of: ShardMachine.AppendResult.self) { group in
      for index in 0..<64 {
        let host = hosts[index % hosts.count]
        group.addTask { await host.append([UInt8(index)], isClaim: index % 2 == 0, after: after) }
      }
      return await group.reduce(into: []) { $0.append($1) }
    }
    #expect(results.filter { $0 == .stored }.count == 1)
    #expect(results.filter { $0 == .refused(last: after + 1) }.count == 63)
  }

  @Test func readReturnsEntriesInOrder() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    let empty = try #require(await host.read(after: 0))
    #expect(empty.entries.isEmpty && empty.last == 0)
    for number in 0..<40 as Range<UInt64> { #expect(await host.append([UInt8(number)], after: number) == .stored) }
    let all = try #require(await host.read(after: 0))
    #expect(all.entries.map(\.sequence) == Array(1...40) && all.entries.map(\.bytes) == (0..<40).map { [$0] })
    #expect(all.first == 1 && all.last == 40)
    let rest = try #require(await host.read(after: 38))
    #expect(rest.entries.map(\.sequence) == [39, 40] && rest.last == 40)
    let none = try #require(await host.read(after: 40))
    #expect(none.entries.isEmpty && none.first == 1 && none.last == 40)
  }

  @Test func readEndsAtItsLimits() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    let large = [UInt8](repeating: 7, count: 1_000_000)
    for sequence in 0..<10 as Range<UInt64> { #expect(await host.append(large, after: sequence) == .stored) }
    let first = try #require(await host.read(after: 0))
    #expect(first.entries.count == 9 && first.last == 10 && first.entries.allSatisfy { $0.bytes == large })
    for sequence in 10..<310 as Range<UInt64> { #expect(await host.append([1], after: sequence) == .stored) }
    let next = try #require(await host.read(after: 10))
    #expect(next.entries.map(\.sequence) == Array(11...266) && next.last == 310)
  }

  @Test func severalReadsAtOnceAreAnswered() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker, shards: 8)
    for shard in 0..<8 { #expect(await host.append([UInt8(shard)], to: shard, after: 0) == .stored) }
    let found = await withTaskGroup(of: [UInt8]?.self) { group in
      for shard in 0..<8 { group.addTask { await host.read(shard, after: 0)?.entries.first?.bytes } }
      return await group.reduce(into: []) { $0.append($1 ?? []) }
    }
    #expect(found.sorted { $0.lexicographicallyPrecedes($1) } == (0..<8).map { [UInt8($0)] })
  }

  @Test func readSkipsRemovedEntries() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    for number in 0..<60 as Range<UInt64> { #expect(await host.append([UInt8(number)], after: number) == .stored) }
    for sequence in 10...40 {
      #expect(
        await host.request("$JS.API.STREAM.MSG.DELETE.streamd-test-0", "{\"seq\":\(sequence)}")?
          .contains("\"success\":true") == true)
    }
    let all = try #require(await host.read(after: 0))
    #expect(all.entries.map(\.sequence) == Array(1...9) + Array(41...60) && all.first == 1 && all.last == 60)
    _ = await host.request("$JS.API.STREAM.PURGE.streamd-test-0", "{\"seq\":50}")
    let rest = try #require(await host.read(after: 0))
    #expect(rest.entries.map(\.sequence) == Array(50...60) && rest.first == 50)
    _ = await host.request("$JS.API.STREAM.PURGE.streamd-test-0", "")
    let none = try #require(await host.read(after: 0))
    #expect(none.entries.isEmpty && none.first == 61 && none.last == 60)
    #expect(await host.newest()?.last == 60)
    #expect(await host.newest()?.entry == nil)
    #expect(await host.append([1], after: 60) == .stored)
  }

  /// A machine alone in its fleet, on a clock that each turn moves by 100 ms.
  private final class LoneMachine {
    let machine = FleetMachine(host: .random(), hostName: "a", shardCount: 1) { values, _ in values }
    private let host: FleetHost
    private var now: UInt64
    private var stored: [UInt64] = []

    init(_ host: FleetHost, at now: UInt64) { (self.host, self.now) = (host, now) }

    private var wallTime: UInt64 { 1_000_000 + now / 1000 }

    /// - Returns: whether it leads its shard, within a minute.
    func lead() async -> Bool {
      await perform(
        machine.setStreams(
          [.init(name: "s", definition: 1, kind: .continuous, canLead: true, end: 0)], at: now)
          + machine.connected(at: now))
      for _ in 0..<600 where !machine.isLeading("s") {
        now += 100_000_000
        await perform(machine.tick(at: now, wallTime: wallTime))
      }
      return machine.isLeading("s")
    }

    /// - Returns: the id of an event that it appends; nil: none.
    func append(_ event: UInt8) async -> UInt64? {
      await perform(machine.fetched([[event]], of: "s", at: now, wallTime: wallTime))
      return stored.last
    }

    private func perform(_ actions: [FleetMachine.Action]) async {
      for action in actions {
        switch action {
        case .ask(let request, let shard):
          await perform(machine.answer(host.answer(request, of: shard), shard: shard, at: now, wallTime: wallTime))
        case .store(_, _, let firstID, _, _): stored.append(firstID)
        default: break
        }
      }
    }
  }

  @Test(arguments: [[3], [2, 3]]) func removedLastEntriesDoNotKeepAHostFromLeading(removed: [Int]) async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    let former = LoneMachine(host, at: 0)
    try #require(await former.lead())
    let first = try #require(await former.append(1))
    #expect(await former.append(2) == first + 1)
    for sequence in removed {
      #expect(
        await host.request("$JS.API.STREAM.MSG.DELETE.streamd-test-0", "{\"seq\":\(sequence)}")?
          .contains("\"success\":true") == true)
    }
    let next = LoneMachine(host, at: 100_000_000_000)
    #expect(await next.lead())
    // The ids of what was removed are not used again.
    #expect(await next.append(3) ?? 0 > first + 1)
  }

  @Test func readOfEvictedEntriesBeginsWithTheOldest() async throws {
    let broker = try await Broker()
    var options = options(broker)
    options.bytesPerShard = 100_000
    let host = try FleetHost(options)
    try #require(await host.isConnected())
    let entry = [UInt8](repeating: 1, count: 10_000)
    for sequence in 0..<30 as Range<UInt64> { #expect(await host.append(entry, after: sequence) == .stored) }
    let kept = try #require(await host.read(after: 2))
    let first = try #require(kept.entries.first?.sequence)
    #expect(first > 15 && kept.first == first && kept.entries.map(\.sequence) == Array(first...30))
  }

  @Test func newestClaimIsFound() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    guard case FleetClaim.none(last: 0)? = await host.findClaim() else { return #expect(Bool(false)) }
    #expect(await host.append([1], after: 0) == .stored)
    guard case FleetClaim.none(last: 1)? = await host.findClaim() else { return #expect(Bool(false)) }
    #expect(await host.append([2], isClaim: true, after: 1) == .stored)
    #expect(await host.append([3], isClaim: true, after: 2) == .stored)
    #expect(await host.append([4], after: 3) == .stored)
    guard case .found([3], sequence: 3)? = await host.findClaim() else { return #expect(Bool(false)) }
  }

  @Test func newestEntryIsReturned() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    let empty = try #require(await host.newest())
    #expect(empty.last == 0 && empty.entry == nil)
    let entry = (0..<1000).map { UInt8(truncatingIfNeeded: $0) }
    #expect(await host.append(entry, after: 0) == .stored)
    let newest = try #require(await host.newest())
    #expect(newest.last == 1 && newest.entry == entry)
  }

  @Test func tailArrivesAtAllHosts() async throws {
    let broker = try await Broker()
    let hosts = [try await connectedHost(broker, shards: 3), try await connectedHost(broker, shards: 3)]
    #expect(await hosts[0].append([1], isClaim: true, to: 2, after: 0) == .stored)
    #expect(await hosts[1].append([2], to: 2, after: 1) == .stored)
    #expect(await hosts[1].append([3], to: 0, after: 0) == .stored)
    for host in hosts {
      #expect(await host.reaches { $0.tail.count >= 3 })
      let tail = host.reports.tail.sorted { ($0.shard, $0.sequence) < ($1.shard, $1.sequence) }
      #expect(
        tail == [
          .init(shard: 0, sequence: 1, bytes: [3]), .init(shard: 2, sequence: 1, bytes: [1]),
          .init(shard: 2, sequence: 2, bytes: [2]),
        ])
    }
  }

  @Test func lostLogsAreMadeAgain() async throws {
    let broker = try await Broker()
    // A broker that starts may not answer the first question: the host asks again after this time.
    var patient = options(broker, shards: 2)
    patient.answerTimeout = .seconds(2)
    let host = try FleetHost(patient)
    try #require(await host.isConnected(), "\(host.reports.reasons)")
    #expect(await host.append([1], after: 0) == .stored)
    broker.kill()
    try broker.wipe()
    try await broker.start()
    #expect(await host.isConnected(times: 2))
    #expect(await host.newest()?.last == 0)
    #expect(await host.append([2], after: 0) == .stored)
    // Without a new connection, once a question has shown it.
    #expect(await host.request("$JS.API.STREAM.DELETE.streamd-test-0", "")?.contains("\"success\":true") == true)
    var newest: FleetNewest?
    for _ in 0..<600 where newest == nil {
      newest = await host.newest()
      try await Task.sleep(for: .milliseconds(20))
    }
    #expect(newest?.last == 0)
    #expect(await host.append([3], after: 0) == .stored)
    #expect(host.reports.connections == 2)
  }

  @Test func anotherNumberOfShardsIsReported() async throws {
    let broker = try await Broker()
    let first = try FleetHost(options(broker, shards: 2))
    try #require(await first.isConnected(), "\(first.reports.reasons)")
    for (shards, reason) in [
      (1, "streamd-test-0 cannot be used: it is one of 2 shards, and this host has cluster.shards = 1"),
      (3, " cannot be used: it is one of 2 shards, and this host has cluster.shards = 3"),
    ] {
      let second = try FleetHost(options(broker, shards: shards))
      #expect(await second.reaches { !$0.reasons.isEmpty })
      #expect(second.reports.reasons.first?.hasSuffix(reason) == true, "\(second.reports.reasons)")
      #expect(second.reports.connections == 0)
    }
    let third = await first.request("$JS.API.STREAM.INFO.streamd-test-2", "")
    #expect(third?.contains("stream not found") == true, "the host with three shards has made the third log")
    // One of an earlier version, or of an operator, does not say it.
    let old = await first.request("$JS.API.STREAM.INFO.streamd-test-0", "")
    #expect(old?.contains("\"description\":\"Records of a streamd fleet. Shards: 2\"") == true)
    let again = try FleetHost(options(broker, shards: 2))
    #expect(await again.isConnected())
  }

  @Test func streamOfAnotherConfigurationIsReportedAndNotChanged() async throws {
    let broker = try await Broker()
    let first = try await connectedHost(broker)
    let made = await first.request(
      "$JS.API.STREAM.CREATE.streamd-other-0", #"{"name":"streamd-other-0","subjects":["streamd.other.log.0.>"]}"#)
    #expect(made?.contains("\"error\"") == false)
    let second = try FleetHost(options(broker, fleet: "other"))
    #expect(await second.reaches { !$0.reasons.isEmpty })
    #expect(
      second.reports.reasons.first == "the JetStream stream streamd-other-0 cannot be used: allow_direct is not set")
    #expect(second.reports.connections == 0)
    let after = await first.request("$JS.API.STREAM.INFO.streamd-other-0", "")
    #expect(after?.contains("\"allow_direct\":false") == true)
  }
}
