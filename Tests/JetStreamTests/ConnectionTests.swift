import Fleet
import Glibc
import TestSupport
import Testing

@testable import JetStream

@Suite(.timeLimit(.minutes(10))) struct ConnectionTests {
  @Test func hostConnectsAgainAfterABrokerIsKilled() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    host.subscribe(to: .heartbeats) { _ in nil }
    #expect(await host.append([1], after: 0) == .stored)
    for count in 1...3 {
      let formerCount = host.reports.reasons.count
      broker.kill()
      #expect(await host.reaches { $0.reasons.count > formerCount })
      #expect(host.reports.reasons[formerCount].hasPrefix("the connection to NATS was lost: "))
      #expect(await host.append([2], after: 1) == .unknown)
      #expect(await host.read(after: 0) == nil)
      #expect(await host.findClaim() == nil)
      #expect(await host.newest() == nil)
      #expect(await host.ask([1], to: .heartbeats) == nil)
      try await broker.start()
      #expect(await host.isConnected(times: count + 1))
    }
    #expect(await host.read(after: 0)?.entries.map(\.bytes) == [[1]])
    #expect(await host.append([2], after: 1) == .stored)
  }

  @Test func hostThatStartsFirstConnectsOnceThereIsABroker() async throws {
    let port = try Broker.reservePort()
    var options = JetStreamOptions(servers: ["nats://127.0.0.1:\(port)"], fleet: "test", shardCount: 1)
    options.replicaCount = 1
    let host = try FleetHost(options)
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(host.reports.reasons.first?.hasPrefix("cannot connect to NATS: ") == true)
    let broker = try await Broker(port: port)
    #expect(await host.isConnected())
    #expect(host.reports.reasons.count == 1, "the same reason is reported once")
    withExtendedLifetime(broker) {}
  }

  @Test func brokerThatDoesNotAnswerCostsAnUnknownAnswerAndThenTheConnection() async throws {
    let broker = try await Broker()
    var options = options(broker)
    options.answerTimeout = .milliseconds(300)
    options.pingInterval = .milliseconds(500)
    let host = try FleetHost(options)
    #expect(await host.isConnected())
    let connections = host.reports.connections
    try broker.stop()
    #expect(await host.append([1], after: 0) == .unknown)
    #expect(await host.read(after: 0) == nil)
    #expect(await host.reaches { !$0.reasons.isEmpty })
    broker.resume()
    #expect(await host.isConnected(times: connections + 1))
  }

  @Test func hostConnectsToAServerThatIsThere() async throws {
    let broker = try await Broker()
    var options = options(broker)
    options.servers = ["nats://127.0.0.1:\(try Broker.reservePort())", broker.url, "nats://127.0.0.1:1"]
    let host = try FleetHost(options)
    #expect(await host.isConnected())
  }

  @Test func reasonsOfSeveralServersAreReportedInTheSameOrder() async throws {
    let silent = try FakeBroker(greeting: .init(text: "", isAll: true)) { _, _, _ in [] }
    defer { silent.stop() }
    let free = try Broker.reservePort()
    var options = JetStreamOptions(servers: ["nats://127.0.0.1:\(free)", silent.url], fleet: "test", shardCount: 1)
    options.connectTimeout = .seconds(30)
    let reasons = [
      (free, "127.0.0.1:\(free): Connection refused"),
      (silent.port, "127.0.0.1:\(silent.port): the server has closed the connection"),
    ].sorted { String($0.0) < String($1.0) }.map(\.1).joined(separator: ", ")
    for _ in 0..<4 {
      let host = try FleetHost(options)
      #expect(await host.reaches { !$0.reasons.isEmpty })
      #expect(host.reports.reasons.first == "cannot connect to NATS: \(reasons)")
    }
  }

  @Test func reconnectionsKeepNoDescriptors() async throws {
    // In a process of its own: other tests open descriptors, too.
    await #expect(processExitsWith: .success) {
      let broker = try await Broker()
      let host = try await connectedHost(broker)
      func reconnect(times: Int) async throws {
        for _ in 0..<times {
          let former = host.reports
          broker.kill()
          #expect(await host.reaches { $0.reasons.count > former.reasons.count })
          try await broker.start()
          #expect(await host.isConnected(times: former.connections + 1))
        }
      }
      func descriptorCount() -> Int { (0..<1024 as Range<CInt>).count { fcntl($0, F_GETFD) >= 0 } }
      try await reconnect(times: 1)
      let before = descriptorCount()
      try await reconnect(times: 5)
      // The last connection may be closed a moment later.
      #expect(try await eventually { descriptorCount() <= before })
    }
  }

  @Test func unusableOptionsAreReported() async throws {
    func reason(_ change: (inout JetStreamOptions) -> Void) async throws -> String? {
      var options = JetStreamOptions(servers: ["nats://127.0.0.1:1"], fleet: "test", shardCount: 1)
      change(&options)
      let host = try FleetHost(options)
      #expect(await host.reaches { !$0.reasons.isEmpty })
      #expect(await host.append([1], after: 0) == .unknown)
      return host.reports.reasons.first
    }
    #expect(try await reason { $0.fleet = "a.b" } == "the fleet's name is not 1 to 64 letters, digits, \"-\" and \"_\"")
    #expect(try await reason { $0.fleet = "" } == "the fleet's name is not 1 to 64 letters, digits, \"-\" and \"_\"")
    #expect(try await reason { $0.shardCount = 0 } == "a fleet has 1 to 1024 shards, not 0")
    #expect(try await reason { $0.servers = [] } == "no NATS server is given")
    #expect(
      try await reason { $0.servers = ["nats://me:secret@host:4222"] }
        == "a NATS server is not given as nats:// or tls:// with a host, and without credentials")
    #expect(
      try await reason { $0.servers.append("tls://host") } == "some NATS servers are given with tls:// and some without"
    )
  }

  @Test func brokerThatAcceptsOnlySmallMessagesIsReported() async throws {
    let broker = try await Broker("max_payload: 65536")
    let host = try FleetHost(options(broker))
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(
      host.reports.reasons.first
        == "NATS accepts messages of 65536 bytes at most (max_payload); a fleet requires 1048576")
  }

  @Test func passwordIsAcceptedAndNeverReported() async throws {
    let broker = try await Broker("authorization: { user: me, password: pass-word-1 }")
    var options = options(broker)
    options.credentials = .password(user: "me", password: "pass-word-1")
    let host = try FleetHost(options)
    #expect(await host.isConnected())
    options.credentials = .password(user: "me", password: "pass-word-2")
    let other = try FleetHost(options)
    #expect(await other.reaches { !$0.reasons.isEmpty })
    #expect(other.reports.reasons.first?.hasPrefix("cannot connect to NATS: Authorization Violation") == true)
    #expect(!other.reports.reasons.contains { $0.contains("pass-word") })
  }

  /// Those in streamd-fleet(7).
  @Test func hostNeedsNoOtherPermissions() async throws {
    let broker = try await Broker(
      """
      authorization: { users: [ { user: me, password: secret, permissions: {
        publish: ["streamd.test.>", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.MSG.GET.*",
          "$JS.API.DIRECT.GET.*"]
        subscribe: ["streamd.test.>"] } } ] }
      """)
    var options = options(broker)
    options.credentials = .password(user: "me", password: "secret")
    let host = try FleetHost(options)
    #expect(await host.isConnected(), "\(host.reports.reasons)")
    guard case FleetClaim.none(last: 0)? = await host.findClaim() else { return #expect(Bool(false)) }
    #expect(await host.append([1], isClaim: true, after: 0) == .stored)
    #expect(await host.append([2], after: 1) == .stored)
    guard case .found([1], sequence: 1)? = await host.findClaim() else { return #expect(Bool(false)) }
    #expect(await host.read(after: 0)?.entries.count == 2)
    #expect(await host.newest()?.entry == [2])
    #expect(await host.reaches { $0.tail.count == 2 })
    for subject in [FleetSubject.heartbeats, .positions(shard: 0), .interest(shard: 0, stream: "a"), .host(.random())] {
      #expect(await host.ask([1], to: subject) == [])
      host.subscribe(to: subject) { $0 }
      #expect(await host.reachesAnswers([1], to: subject, count: 1))
    }
    #expect(host.reports.reasons == [])
  }

  @Test func textOfTheServerThatContainsASecretIsNotReported() async throws {
    let broker = try await Broker(
      """
      authorization: { users: [
        { user: me, password: test.tail, permissions: { publish: ">", subscribe: { deny: "streamd.test.tail.>" } } } ] }
      """)
    var options = options(broker)
    options.credentials = .password(user: "me", password: "test.tail")
    let host = try FleetHost(options)
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(host.reports.reasons.first?.hasSuffix(": rejected") == true)
  }

  @Test func tokenIsAccepted() async throws {
    let broker = try await Broker("authorization: { token: some-token }")
    var options = options(broker)
    options.credentials = .token("some-token")
    let host = try FleetHost(options)
    #expect(await host.isConnected())
  }

  @Test func userWithoutJetStreamIsReported() async throws {
    let broker = try await Broker(
      "accounts: { A: { users: [{ user: me, password: secret }] }, B: { jetstream: enabled, users: [] } }")
    var options = options(broker)
    options.credentials = .password(user: "me", password: "secret")
    let host = try FleetHost(options)
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(host.reports.reasons.first?.contains("JetStream") == true, "\(host.reports.reasons)")
  }

  @Test func missingPermissionIsReported() async throws {
    let broker = try await Broker(
      """
      authorization: { users: [
        { user: me, password: secret, permissions: { publish: ">", subscribe: { deny: "streamd.test.tail.>" } } } ] }
      """)
    var options = options(broker)
    options.credentials = .password(user: "me", password: "secret")
    let host = try FleetHost(options)
    #expect(await host.reaches { !$0.reasons.isEmpty })
    #expect(
      host.reports.reasons.first?.contains("Permissions Violation for Subscription") == true,
      "\(host.reports.reasons)")
  }

  @Test func stoppedEngineCallsNothing() async throws {
    let broker = try await Broker()
    let host = try await connectedHost(broker)
    host.stop()
    broker.kill()
    try await Task.sleep(for: .milliseconds(300))
    #expect(host.reports.reasons.isEmpty)
  }
}
