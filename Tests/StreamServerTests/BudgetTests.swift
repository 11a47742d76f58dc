import Events
import Glibc
import RSocket
import Reactive
import StreamRuntime
import Testing

@testable import StreamServer

/// Limits of what one client or user can cost the others.
@Suite struct BudgetTests {
  /// REQUEST_STREAM, encoded.
  private func request(_ name: String, id: UInt32) -> [UInt8] {
    var bytes: [UInt8] = []
    let payload = Payload(metadata: [UInt8(name.utf8.count)] + Array(name.utf8), data: [])
    Frame.request(StreamID(id), .stream, initialRequest: 1, payload, follows: false, isComplete: false)
      .encode(into: &bytes)
    return bytes
  }

  /// A server whose only loop is driven by hand.
  private func stoppedServer(_ report: @escaping @Sendable (ServerReport) -> Void = { _ in }) throws -> StreamServer {
    try StreamServer(limits: ServerLimits(workers: 1), report: report)
  }

  /// The loop sees a client's byte after the time for its handshake, and could begin to count again.
  @Test func theFirstByteProlongsNoHandshake() throws {
    var limits = ServerLimits(workers: 1)
    limits.handshakeTimeout = .milliseconds(50)
    let server = try StreamServer(limits: limits)
    let loop = server.loops[0]
    let client = try HTTPWireClient(server, user: 1001)
    while server.workers[0].allConnections.isEmpty { loop.runOneTurn() }
    usleep(60_000)
    client.send([0])
    loop.runOneTurn()
    loop.runOneTurn()
    #expect(server.statistics.connections == 0)
  }

  @Test func aTurnProcessesASliceOfInputAndTheRestFollowsInOrder() throws {
    let refused = Locked<[String]>([])
    let server = try stoppedServer {
      guard case .clientRefused(_, _, let reason) = $0 else { return }
      usleep(100)  // a request takes that long
      refused.withLock { $0.append(reason) }
    }
    let loop = server.loops[0]
    let client = try WireClient(server, user: 1001)
    for _ in 0..<3 { loop.runOneTurn() }
    client.send((0..<500).flatMap { request("no \($0)", id: UInt32($0) * 2 + 1) })
    var most = 0
    var turns = 0
    while refused.withLock({ $0.count }) < 500, turns < 1000 {
      let before = refused.withLock { $0.count }
      loop.runOneTurn()
      most = max(most, refused.withLock { $0.count } - before)
      turns += 1
    }
    // One slice as it comes, and those of the user in what waits: 4 ms of 100 us each, and as many as a slice begins.
    #expect(most <= 40 + 4)
    #expect(refused.withLock { $0 } == (0..<500).map { "no stream named \"no \($0)\"" })
  }

  @Test func requestsCancelledWhileTheSocketIsFullAreReleased() throws {
    let server = try stoppedServer()
    let loop = server.loops[0]
    try server.add(
      StreamConfiguration(name: "s", replay: 64, start: .always),
      source: [EventBatch(repeatElement([UInt8](repeating: 1, count: 60_000), count: 64))].publisher
        .setFailureType(to: StreamFailure.self).append(Empty(completeImmediately: false)))
    let client = try WireClient(server, user: 1001)
    client.send(.setup(Setup()))
    client.subscribe("s", credit: 0x7FFF_FFFF)
    for _ in 0..<20 { loop.runOneTurn() }
    let connection = try #require(server.workers[0].allConnections.first)
    #expect(connection.isBlocked)
    for round in 0..<20 {
      let ids = (0..<200).map { UInt32(3 + (round * 200 + $0) * 2) }
      for id in ids { client.subscribe("s", credit: 1, id: id) }
      for _ in 0..<100 { loop.runOneTurn() }
      #expect(server.statistics.subscribers == 201)
      for id in ids { client.send(.cancel(StreamID(id))) }
      for _ in 0..<100 { loop.runOneTurn() }
      #expect(server.statistics.subscribers == 1)
    }
    #expect(connection.extras?.blocked.count ?? 0 < 1000)
  }

  @Test func aUserWithManyConnectionsGetsOneShare() throws {
    let refused = Locked<[UInt32]>([])
    let server = try stoppedServer {
      guard case .clientRefused(let client, _, _) = $0 else { return }
      usleep(100)
      refused.withLock { $0.append(client.credentials?.user ?? 0) }
    }
    let loop = server.loops[0]
    let greedy = try (0..<64).map { _ in try WireClient(server, user: 1001) }
    let modest = try WireClient(server, user: 1002)
    for _ in 0..<70 { loop.runOneTurn() }
    for client in greedy { client.send((0..<100).flatMap { request("a", id: UInt32($0) * 2 + 1) }) }
    for _ in 0..<3 { loop.runOneTurn() }
    for round in 0..<10 as Range<UInt32> {
      modest.send(request("b", id: round * 2 + 1))
      // At once, unless the machine is busy in the middle of the turn.
      for _ in 0..<5 where refused.withLock({ $0.count { $0 == 1002 } }) == round { loop.runOneTurn() }
      #expect(refused.withLock { $0.count { $0 == 1002 } } == Int(round) + 1)
    }
    #expect(refused.withLock { $0.count } < 64 * 100)
  }

  @Test func manySubscriptionsOfAUserDoNotDelayAnotherUser() throws {
    let server = try stoppedServer()
    let loop = server.loops[0]
    let (ours, theirs) = (HandFedSource(), HandFedSource())
    try server.add(StreamConfiguration(name: "a", start: .always), source: theirs)
    try server.add(StreamConfiguration(name: "b", start: .always), source: ours)
    let greedy = try (0..<32).map { _ in try WireClient(server, user: 1001) }
    let modest = try WireClient(server, user: 1002)
    for client in greedy { client.send((0..<200).flatMap { request("a", id: UInt32($0) * 2 + 1) }) }
    modest.subscribe("b", credit: 100)
    while server.statistics.subscribers < 32 * 200 + 1 { loop.runOneTurn() }
    theirs.send([1])
    ours.send([2])
    loop.runOneTurn()
    while server.statistics.byStream[1].eventsOut == 0 { loop.runOneTurn() }
    #expect(server.statistics.byStream[0].eventsOut < 32 * 200)
    #expect(try modest.event().data == [2])
    while server.statistics.byStream[0].eventsOut < 32 * 200 { loop.runOneTurn() }
  }

  @Test func everyOneOfManySubscriptionsOfAConnectionIsServed() throws {
    let server = try stoppedServer()
    let loop = server.loops[0]
    let (ours, theirs) = (HandFedSource(), HandFedSource())
    try server.add(StreamConfiguration(name: "a", start: .always), source: theirs)
    try server.add(StreamConfiguration(name: "b", start: .always), source: ours)
    let greedy = try WireClient(server, user: 1001)
    let modest = try WireClient(server, user: 1001)
    greedy.send((0..<200).flatMap { request("a", id: UInt32($0) * 2 + 1) })
    while server.statistics.subscribers < 200 { loop.runOneTurn() }
    modest.subscribe("b", credit: 100)
    while server.statistics.subscribers < 201 { loop.runOneTurn() }
    theirs.send([1])
    ours.send([2])
    // A turn in which the machine is busy may leave the other stream's news to the next one.
    func hasServed() -> Bool {
      let streams = server.statistics.byStream
      return streams[0].eventsOut == 200 && streams[1].eventsOut == 1
    }
    while !hasServed() { loop.runOneTurn() }
    #expect(try modest.event().data == [2])
    var served: [UInt32] = []
    for _ in 0..<200 {
      guard case .payload(let id, _, _, _, _)? = try greedy.receive() else { throw WireClient.Silence() }
      served.append(id.rawValue)
    }
    #expect(Set(served).count == 200)
    greedy.send(.cancel(StreamID(1)))
    greedy.send(.requestN(StreamID(3), 1))
    theirs.send([3])
    while server.statistics.byStream[0].eventsOut < 201 { loop.runOneTurn() }
    guard case .payload(StreamID(3), _, _, _, _)? = try greedy.receive() else { throw WireClient.Silence() }
  }

  @Test func aRequestCostsTheSameWithManySubscriptions() async throws {
    let count: UInt32 = 30_000
    try await withServer(ServerLimits(workers: 1, requestsPerConnection: Int(count) + 1)) { harness in
      _ = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      let start = EventLoop.monotonicNow()
      for first in stride(from: 0, to: count, by: 1000) {
        client.send((first..<first + 1000).flatMap { request("s", id: $0 * 2 + 1) })
      }
      harness.eventually { harness.server.statistics.subscribers == Int(count) }
      let subscribed = EventLoop.monotonicNow()
      for first in stride(from: 0, to: count, by: 1000) {
        var bytes: [UInt8] = []
        for number in first..<first + 1000 { Frame.requestN(StreamID(number * 2 + 1), 1).encode(into: &bytes) }
        client.send(bytes)
      }
      client.send(.keepalive(respond: true, position: 0, data: [1]))
      #expect(try client.receive() == .keepalive(respond: false, position: 0, data: [1]))
      // Iterating over the others for each would take fifty times as long.
      #expect(EventLoop.monotonicNow() - subscribed < 4 * (subscribed - start))
      for number in 0..<count { client.send(.cancel(StreamID(number * 2 + 1))) }
      harness.eventually { harness.server.statistics.subscribers == 0 }
    }
  }

  /// The first bytes of a REQUEST_STREAM that announces `length` bytes.
  private func start(ofLength length: Int, _ count: Int) -> [UInt8] {
    var bytes: [UInt8] = [
      UInt8(length >> 16), UInt8(length >> 8 & 255), UInt8(length & 255), 0, 0, 0, 1, 6 << 2, 0, 0, 0, 0, 1,
    ]
    bytes += [UInt8](repeating: 0, count: count - bytes.count)
    return bytes
  }

  private func expectEnd(_ client: WireClient, _ sentence: String, sourceLocation: SourceLocation = #_sourceLocation)
    throws
  {
    #expect(
      try client.receive() == .error(.connection, .connectionError, sentence), sourceLocation: sourceLocation)
    #expect(try client.receive() == nil, sourceLocation: sourceLocation)
  }

  @Test func partialRequestsOfAUserHaveABudget() async throws {
    try await withServer(ServerLimits(workers: 2, inputBytesPerUser: 5 << 19)) { harness in
      _ = try harness.add("s")
      let accounts = harness.server.accounts
      let clients = try (0..<3).map { _ in try WireClient(harness.server, user: 1001) }
      let other = try WireClient(harness.server, user: 1002)
      for (number, client) in clients.prefix(2).enumerated() {
        client.send(start(ofLength: 1 << 20, 1_000_000))
        harness.eventually { accounts.heldBytes.load(ordering: .relaxed) >= (number + 1) * 990_000 }
      }
      other.send(start(ofLength: 1 << 20, 1_000_000))
      harness.eventually { accounts.heldBytes.load(ordering: .relaxed) >= 3 * 990_000 }
      clients[2].send(start(ofLength: 1 << 20, 1_000_000))
      try expectEnd(clients[2], "uid 1001 has more than 2621440 bytes of unprocessed data (max_input_per_user)")
      guard case .clientDropped? = harness.reports.last else { throw WireClient.Silence() }
      // The first requests are completed nevertheless: their names are unknown.
      for client in [clients[0], clients[1], other] {
        client.send([UInt8](repeating: 0, count: (1 << 20) + 3 - 1_000_000))
        guard case .error(StreamID(1), .invalid, _)? = try client.receive() else { throw WireClient.Silence() }
      }
      harness.eventually { accounts.heldBytes.load(ordering: .relaxed) == 0 }
    }
  }

  @Test func theBudgetOfPartialRequestsIsReturnedWhenClientsDisconnect() async throws {
    try await withServer { harness in
      let accounts = harness.server.accounts
      var clients = try (0..<20).map { _ in try WireClient.ready(harness.path) }
      for client in clients { client.send(start(ofLength: 1 << 20, 500_000)) }
      harness.eventually { accounts.heldBytes.load(ordering: .relaxed) >= 20 * 490_000 }
      clients = []
      harness.eventually { accounts.heldBytes.load(ordering: .relaxed) == 0 }
    }
  }

  @Test func partialRequestsOfAllClientsHaveABudget() async throws {
    try await withServer(ServerLimits(workers: 1, inputBytes: 1 << 20)) { harness in
      let first = try WireClient(harness.server, user: 1001)
      first.send(start(ofLength: 1 << 20, 400_000))
      let accounts = harness.server.accounts
      harness.eventually { accounts.heldBytes.load(ordering: .relaxed) >= 390_000 }
      let second = try WireClient(harness.server, user: 1002)
      second.send(start(ofLength: 1 << 20, 1_000_000))
      try expectEnd(second, "uid 1002 has more bytes of unprocessed data than are free of 1048576 (max_input)")
      harness.eventually { accounts.heldBytes.load(ordering: .relaxed) < 1 << 20 }
    }
  }

  @Test func connectionsOfAUserAreLimitedAndLeaveSpaceForOthers() async throws {
    try await withServer(ServerLimits(workers: 1, connections: 4)) { harness in
      var clients = try (0..<3).map { _ in try WireClient(harness.server, user: 1001) }
      for client in clients { #expect(try client.isSilent()) }
      let rejected = try WireClient(harness.server, user: 1001)
      #expect(
        try rejected.receive()
          == .error(
            .connection, .rejectedSetup, "uid 1001 has 3 connections already, with 1 of 4 left (max_connections)"))
      #expect(try WireClient(harness.server, user: 1002).isSilent())
      guard case .userConnectionLimitReached(let client, 3, left: 1)? = harness.reports.last else {
        throw WireClient.Silence()
      }
      #expect(client.credentials?.user == 1001)
      clients.removeLast()
      harness.eventually { harness.server.statistics.connections < 3 }
      #expect(try WireClient(harness.server, user: 1001).isSilent())
    }
  }

  @Test func twoUsersAtTheirConnectionLimitsLeaveSpaceForAThird() async throws {
    try await withServer(ServerLimits(workers: 1, connections: 16)) { harness in
      var clients: [WireClient] = []
      func connect(_ user: UInt32) throws -> Bool {
        let client = try WireClient(harness.server, user: user)
        clients.append(client)
        client.send(.keepalive(respond: true, position: 0, data: [1]))
        return try client.receive() == .keepalive(respond: false, position: 0, data: [1])
      }
      var counts: [Int] = []
      for user in [1001, 1002] as [UInt32] {
        counts.append(0)
        while try connect(user) { counts[counts.count - 1] += 1 }
      }
      #expect(counts == [12, 3])
      #expect(try connect(0))
      #expect(try !connect(1003))  // none is left
      guard case .connectionLimitReached(_, 16)? = harness.reports.last else { throw WireClient.Silence() }
    }
  }

  @Test func aConfiguredLimitAllowsAUserAllConnections() async throws {
    try await withServer(ServerLimits(workers: 1, connections: 4, connectionsPerUser: 4)) { harness in
      let clients = try (0..<4).map { _ in try WireClient(harness.server, user: 1001) }
      for client in clients { #expect(try client.isSilent()) }
    }
    try await withServer(ServerLimits(workers: 1, connections: 4, connectionsPerUser: 2)) { harness in
      let clients = try (0..<2).map { _ in try WireClient(harness.server, user: 1001) }
      for client in clients { #expect(try client.isSilent()) }
      let refusal = try WireClient(harness.server, user: 1001).receive()
      let sentence = "uid 1001 has 2 connections already (max_connections_per_user)"
      #expect(refusal == .error(.connection, .rejectedSetup, sentence))
      guard case .userConnectionLimitReached(_, 2, left: nil)? = harness.reports.last else {
        throw WireClient.Silence()
      }
    }
  }

  @Test func usersAtTheirInputBudgetsLeaveSpaceForAnother() async throws {
    try await withServer(ServerLimits(workers: 2, inputBytes: 4_600_000, inputBytesPerUser: 3 << 20)) { harness in
      let accounts = harness.server.accounts
      var clients: [WireClient] = []
      /// Partial requests of 950 kB, in buffers of up to 1.05 MB, until one exceeds the limit.
      func fill(_ user: UInt32, _ count: Int) throws {
        for _ in 0..<count {
          let before = accounts.heldBytes.load(ordering: .relaxed)
          clients.append(try WireClient(harness.server, user: user))
          clients.last?.send(start(ofLength: 1 << 20, 950_000))
          harness.eventually { accounts.heldBytes.load(ordering: .relaxed) >= before + 940_000 }
        }
        clients.append(try WireClient(harness.server, user: user))
        clients.last?.send(start(ofLength: 1 << 20, 950_000))
        let sentence = "uid \(user) has more bytes of unprocessed data than are free of 4600000 (max_input)"
        try expectEnd(clients[clients.count - 1], sentence)
      }
      try fill(1001, 2)
      try fill(1002, 1)
      let other = try WireClient(harness.server, user: 0)
      other.send(start(ofLength: 300_000, 200_000))
      harness.eventually { accounts.heldBytes.load(ordering: .relaxed) >= 3 * 940_000 + 190_000 }
      other.send([UInt8](repeating: 0, count: 300_003 - 200_000))
      let answer = try other.receive()
      guard case .error(StreamID(1), .invalid, _)? = answer else {
        Issue.record("expected an error of the request, got \(String(describing: answer))")
        return
      }
    }
  }

  @Test func anInputBudgetEqualToTheTotalAllowsAUserAllOfIt() async throws {
    try await withServer(ServerLimits(workers: 2, inputBytes: 4_600_000, inputBytesPerUser: 4_600_000)) { harness in
      let clients = try (0..<4).map { _ in try WireClient(harness.server, user: 1001) }
      for client in clients { client.send(start(ofLength: 1 << 20, 950_000)) }
      harness.eventually { harness.server.accounts.heldBytes.load(ordering: .relaxed) >= 4 * 940_000 }
      #expect(harness.server.statistics.connections == 4 && clients.allSatisfy { !$0.hasInput })
    }
  }

  @Test func requestsOfAUserAreLimited() async throws {
    try await withServer(ServerLimits(workers: 1, requestsPerUser: 5)) { harness in
      _ = try harness.add("s")
      let clients = try (0..<2).map { _ in try WireClient(harness.server, user: 1001) }
      for id in [1, 3, 5] as [UInt32] { clients[0].subscribe("s", credit: 1, id: id) }
      #expect(try clients[0].isSilent())
      for id in [1, 3] as [UInt32] { clients[1].subscribe("s", credit: 1, id: id) }
      #expect(try clients[1].isSilent())
      clients[1].subscribe("s", credit: 1, id: 5)
      let refusal = try clients[1].receive()
      #expect(refusal == .error(StreamID(5), .rejected, "uid 1001 has 5 requests already"))
      clients[0].send(.cancel(StreamID(1)))
      #expect(try clients[0].isSilent())
      clients[1].subscribe("s", credit: 1, id: 7)
      #expect(try clients[1].isSilent())
      let other = try WireClient(harness.server, user: 1002)
      other.subscribe("s", credit: 1)
      #expect(try other.isSilent())
    }
  }

  @Test func theServersMaximumLifetimeLimitsSilence() async throws {
    try await withServer(ServerLimits(workers: 1, lifetime: .milliseconds(100))) { harness in
      let client = try WireClient.ready(harness.path, Setup(maximumLifetime: .seconds(1 << 20)))
      #expect(try client.receive() == nil)
      guard case .clientDropped(_, "silent for 100ms, the longest allowed")? = harness.reports.last else {
        Issue.record("not reported: \(harness.reports)")
        return
      }
    }
  }

  @Test func usersWithoutCredentialsAreDistinguishedByAddress() {
    var four = sockaddr_in()
    four.sin_family = sa_family_t(AF_INET)
    four.sin_addr.s_addr = 0x0102_0304
    var six = sockaddr_in6()
    six.sin6_family = sa_family_t(AF_INET6)
    func user<Address>(_ address: Address) -> ClientUser {
      var storage = sockaddr_storage()
      withUnsafeMutableBytes(of: &storage) { target in
        withUnsafeBytes(of: address) { target.copyMemory(from: $0) }
      }
      return ClientUser(storage)
    }
    withUnsafeMutableBytes(of: &six.sin6_addr) { $0.copyBytes(from: [0x20, 1, 0xd, 0xb8, 0, 0, 0, 1]) }
    let host = user(six)
    withUnsafeMutableBytes(of: &six.sin6_addr) { $0[15] = 9 }
    #expect(user(six) == host)
    withUnsafeMutableBytes(of: &six.sin6_addr) { $0[7] = 2 }
    #expect(user(six) != host)
    withUnsafeMutableBytes(of: &six.sin6_addr) {
      $0.copyBytes(from: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 4, 3, 2, 1])
    }
    #expect(user(six) == user(four) && user(four) != host)
    #expect(ClientUser(nil, of: -1) == .unknown)
  }

  @Test func unprocessedInputIsHandedOver() async throws {
    let server = try stoppedServer { _ in usleep(100) }
    let loop = server.loops[0]
    let client = try WireClient(server, user: 1001)
    for _ in 0..<3 { loop.runOneTurn() }
    client.send((0..<400).flatMap { request("no \($0)", id: UInt32($0) * 2 + 1) })
    loop.runOneTurn()
    let saved = Locked<SavedConnections?>(nil)
    server.save { connections in saved.withLock { $0 = connections } }
    while saved.withLock({ $0 == nil }) { loop.runOneTurn() }
    let connections = try #require(saved.withLock { $0 })
    #expect(connections.connections[0].input.count > 0)
    let next = try ServerHarness(ServerLimits(workers: 1), restores: true)
    let descriptors = connections.descriptors.map { fcntl($0, F_DUPFD_CLOEXEC, 0) }
    let arrived = try SavedConnections(state: connections.state(ofFirst: 1), descriptors)
    await next.restore(arrived)
    for number in 0..<400 as Range<UInt32> {
      let expected = Frame.error(StreamID(number * 2 + 1), .rejected, "no stream named \"no \(number)\"")
      #expect(try client.receive() == expected)
    }
    await next.stop()
  }
}
