import Fleet
import Testing

@testable import JetStream

/// Three brokers that store everything three times.
final class BrokerCluster: Sendable {
  let brokers: [Broker]

  init() async throws {
    let ports = try (0..<3).map { _ in try Broker.reservePort() }
    let routes = ports.map { "\"nats://127.0.0.1:\($0)\"" }.joined(separator: ", ")
    var brokers: [Broker] = []
    for (index, port) in ports.enumerated() {
      brokers.append(
        try await Broker(
          """
          server_name: n\(index)
          cluster: { name: test, listen: "127.0.0.1:\(port)", routes: [\(routes)] }
          """))
    }
    self.brokers = brokers
  }

  var options: JetStreamOptions {
    var options = JetStreamOptions(servers: brokers.map(\.url), fleet: "test", shardCount: 2)
    options.answerTimeout = .seconds(10)
    return options
  }
}

@Suite(.timeLimit(.minutes(10)), .serialized) struct ClusterTests {
  @Test func oneOfRacingAppendsIsStoredByThreeBrokers() async throws {
    let cluster = try await BrokerCluster()
    var hosts: [FleetHost] = []
    for broker in cluster.brokers {
      var options = cluster.options
      options.servers = [broker.url]
      hosts.append(try FleetHost(options))
    }
    for host in hosts { #expect(await host.isConnected(), "\(host.reports.reasons)") }
    var last: UInt64 = 0
    for round in 0..<20 {
      let results = await withTaskGroup(of: (UInt8, ShardMachine.AppendResult).self) { [last] group in
        for index in 0..<12 {
          let host = hosts[index % 3]
          group.addTask { (UInt8(index), await host.append([UInt8(index)], isClaim: true, after: last)) }
        }
        return await group.reduce(into: []) { $0.append($1) }
      }
      let stored = results.filter { $0.1 == .stored }
      #expect(stored.count <= 1, "round \(round)")
      let read = await reachesEntries(hosts[round % 3], after: last)
      if let (value, _) = stored.first { #expect(read.map(\.bytes) == [[value]], "round \(round)") }
      last = read.last?.sequence ?? last
    }
    #expect(last > 10)
  }

  /// Entries after one that is known, once a replica that answers has them.
  private func reachesEntries(_ host: FleetHost, after: UInt64) async -> [(sequence: UInt64, bytes: [UInt8])] {
    for _ in 0..<600 {
      let read = await host.read(0, after: after)
      if let read, !read.entries.isEmpty || read.last == after { return read.entries }
      try? await Task.sleep(for: .milliseconds(50))
    }
    return []
  }

  @Test func acknowledgedEntriesRemainWhenBrokersAreKilled() async throws {
    let cluster = try await BrokerCluster()
    var options = cluster.options
    options.answerTimeout = .seconds(2)
    let host = try FleetHost(options)
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    var stored: [UInt64: [UInt8]] = [:]
    var after: UInt64 = 0
    var value: UInt8 = 0
    for victim in 0..<3 {
      let target = stored.count + 10
      cluster.brokers[victim].kill()
      for _ in 0..<3000 where stored.count < target {
        value &+= 1
        switch await host.append([value], after: after) {
        case .stored:
          after += 1
          stored[after] = [value]
        case .refused(let last): after = last  // of an append whose answer is missing
        case .unknown:
          try await Task.sleep(for: .milliseconds(100))
          if let newest = await host.newest() { after = newest.last }
        }
      }
      #expect(stored.count >= target)
      try await cluster.brokers[victim].start()
      // A broker that lags counts as one that is away: two of three would be.
      try await cluster.brokers[victim].catchesUp()
    }
    var found: [UInt64: [UInt8]] = [:]
    for _ in 0..<600 where !stored.allSatisfy({ found[$0.key] == $0.value }) {
      for entry in await host.read(0, after: 0)?.entries ?? [] { found[entry.sequence] = entry.bytes }
      try await Task.sleep(for: .milliseconds(50))
    }
    #expect(stored.allSatisfy { found[$0.key] == $0.value })
  }

  /// The control: with the fence that the test above is about, it fails.
  @Test func severalRacingAppendsAreStoredWithTheFenceOfASubject() async throws {
    let cluster = try await BrokerCluster()
    var hosts: [FleetHost] = []
    for broker in cluster.brokers {
      var options = cluster.options
      options.servers = [broker.url]
      options.fence = .subject
      hosts.append(try FleetHost(options))
    }
    for host in hosts { #expect(await host.isConnected(), "\(host.reports.reasons)") }
    var isBroken = false
    for _ in 0..<100 where !isBroken {
      guard let last = await hosts[0].newest()?.last else { continue }
      await withTaskGroup(of: Void.self) { group in
        for index in 0..<12 {
          let host = hosts[index % 3]
          group.addTask { _ = await host.append([UInt8(index)], isClaim: true, after: last) }
        }
      }
      if let newest = await hosts[0].newest()?.last, newest > last + 1 { isBroken = true }
    }
    #expect(isBroken)
  }
}
