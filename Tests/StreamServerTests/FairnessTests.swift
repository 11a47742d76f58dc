import CLinux
import Events
import Glibc
import RSocket
import ReplayLog
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// What users whose identity costs nothing leave to others.
@Suite struct FairnessTests {
  private static func user(_ address: sockaddr_storage) -> ClientUser { ClientUser(address) }

  private static func ipv4(_ address: String) -> sockaddr_storage {
    var (storage, four) = (sockaddr_storage(), sockaddr_in())
    four.sin_family = sa_family_t(AF_INET)
    inet_pton(AF_INET, address, &four.sin_addr)
    withUnsafeMutableBytes(of: &storage) { target in withUnsafeBytes(of: four) { target.copyMemory(from: $0) } }
    return storage
  }

  private static func ipv6(_ address: String) -> sockaddr_storage {
    var (storage, six) = (sockaddr_storage(), sockaddr_in6())
    six.sin6_family = sa_family_t(AF_INET6)
    inet_pton(AF_INET6, address, &six.sin6_addr)
    withUnsafeMutableBytes(of: &storage) { target in withUnsafeBytes(of: six) { target.copyMemory(from: $0) } }
    return storage
  }

  @Test func allOfLoopbackIsOneUser() {
    for address in ["127.0.0.1", "127.0.0.2", "127.255.255.254"] {
      #expect(ClientUser(Self.ipv4(address)) == .loopback)
      #expect(ClientUser(Self.ipv6("::ffff:" + address)) == .loopback)
    }
    #expect(ClientUser(Self.ipv6("::1")) == .loopback)
    for address in [Self.ipv4("128.0.0.1"), Self.ipv4("10.127.0.1"), Self.ipv6("::2"), Self.ipv6("::ffff:10.0.0.1")] {
      #expect(ClientUser(address) != .loopback)
    }
  }

  /// Enters connections of different users until one is refused.
  private static func fill(
    _ accounts: UserAccounts, _ limits: ServerLimits, _ open: inout Int, _ user: (UInt32) -> ClientUser
  ) {
    for number in 0..<UInt32(limits.connections) + 1 {
      guard (try? accounts.enter(user(number), within: limits, besides: open)) != nil else { return }
      open += 1
    }
    Issue.record("no connection is refused")
  }

  /// A host with a large prefix of IPv6 has any number of users, and a user with subordinate ids has 65,536.
  @Test(arguments: [2, 3, 4, 8, 16, 64, 65536]) func usersThatCostNothingLeaveConnectionsToOthers(connections: Int) {
    let limits = ServerLimits(workers: 1, connections: connections)
    let accounts = UserAccounts()
    var open = 0
    Self.fill(accounts, limits, &open) { .ipv6(UInt64($0)) }
    #expect(open >= connections / 2 && open <= connections * 3 / 4)
    for user in [ClientUser.token("a"), .uid(1001)].prefix(connections - open) {
      #expect((try? accounts.enter(user, within: limits, besides: open)) != nil)
      open += 1
    }
    guard connections >= 16 else { return }
    Self.fill(accounts, limits, &open) { .uid(100_000 + $0) }
    #expect((try? accounts.enter(.uid(0), within: limits, besides: open)) != nil)
  }

  @Test func oneHostLeavesConnectionsToOtherHosts() throws {
    let limits = ServerLimits(workers: 1, connections: 16)
    let accounts = UserAccounts()
    var open = 0
    Self.fill(accounts, limits, &open) { _ in .ipv4(1) }
    _ = try accounts.enter(.ipv4(2), within: limits, besides: open)
    // A configured limit of one user does not raise that of all hosts.
    let given = ServerLimits(workers: 1, connections: 16, connectionsPerUser: 16)
    let others = UserAccounts()
    open = 0
    Self.fill(others, given, &open) { _ in .ipv4(1) }
    #expect(open <= 12)
  }

  @Test func hostsTogetherLeaveBytesToOthers() throws {
    let accounts = UserAccounts()
    for limits in [
      ServerLimits(inputBytes: 1 << 20, inputBytesPerUser: 1 << 19),
      ServerLimits(inputBytes: 1 << 20, inputBytesPerUser: 1 << 20),
    ] {
      var held = 0
      for number in 0..<10_000 {
        let host = try accounts.enter(.ipv6(UInt64(number)))
        if accounts.holdFilter(1024, host, within: limits) != nil { break }
        held += 1024
      }
      #expect(held > 400_000 && held <= 1 << 19)
      let user = try accounts.enter(.uid(1001))
      #expect(accounts.holdFilter(200_000, user, within: limits) == nil)
      accounts.releaseFilter(200_000, user)
      for number in 0..<held / 1024 { accounts.releaseFilter(1024, try accounts.enter(.ipv6(UInt64(number)))) }
    }
    #expect(accounts.filterBytes.load(ordering: .relaxed) == 0)
    // Users leave some to root.
    let limits = ServerLimits(inputBytes: 1 << 20, inputBytesPerUser: 1 << 20)
    #expect(limits.exceedsInputShare(1000, ofHosts: nil, ofAll: 1 << 20, .named))
    #expect(!limits.exceedsInputShare(1000, ofHosts: nil, ofAll: 1 << 20, .owner))
  }

  /// A socket over TCP from an address of loopback.
  private static func connect(to address: InternetAddress, from source: String) throws -> WireClient {
    let raw = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    let client = WireClient(taking: raw)
    var own = ipv4(source)
    let length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isBound = withUnsafePointer(to: &own) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(raw, $0, length) }
    }
    guard isBound == 0 else { throw SystemError("bind") }
    var peer = ipv4(address.description.split(separator: ":").first.map(String.init) ?? "")
    withUnsafeMutableBytes(of: &peer) { $0.storeBytes(of: UInt16(27878).bigEndian, toByteOffset: 2, as: UInt16.self) }
    let isConnected = withUnsafePointer(to: &peer) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.connect(raw, $0, length) }
    }
    guard isConnected == 0 else { throw SystemError("connect") }
    return client
  }

  @Test func addressesOfLoopbackLeaveTheServerToItsUsers() async throws {
    try await withServer(ServerLimits(workers: 2, connections: 8)) { harness in
      let address = try harness.listenOnTCP()
      var hosts: [WireClient] = []
      for number in 2..<18 {
        let client = try Self.connect(to: address, from: "127.0.0.\(number)")
        client.send(.setup(Setup(maximumLifetime: .seconds(300))))
        hosts.append(client)
      }
      harness.eventually { harness.server.statistics.accepted == 16 && harness.server.statistics.refused > 0 }
      #expect(harness.server.statistics.connections <= 6)
      let user = try WireClient(harness.server, user: 1001)
      user.send(.keepalive(respond: true, position: 0, data: [1]))
      #expect(try user.receive() == .keepalive(respond: false, position: 0, data: [1]))
      // Root sees the clients, and ends one of them.
      let root = try WireClient.ready(harness.path)
      root.get("$clients")
      let clients = String(decoding: try root.event().data, as: UTF8.self)
      #expect(clients.contains("\"user\":1001"))
      let web = try HTTPWireClient(harness)
      #expect(try web.fetch("/clients").status == 200)
    }
  }

  @Test func aTokenAdmitsAHostWhereAddressesHaveTakenTheirShare() async throws {
    try await withServer(ServerLimits(workers: 2, connections: 8)) { harness in
      harness.server.setTokens([ClientToken(name: "alice", secret: "alice-0123456789")])
      try harness.add("s") { $0.replay = 1 }.send([0x31])
      let address = try harness.listenOnTCP()
      var hosts: [WireClient] = []
      while harness.server.statistics.refused == 0, hosts.count < 9 {
        hosts.append(try WireClient(address))
        hosts.last?.send(.keepalive(respond: true, position: 0, data: [1]))
        guard case .keepalive? = try hosts.last?.receive() else { break }
      }
      #expect(harness.server.statistics.refused == 1)
      let strangers = try HTTPWireClient(address)
      strangers.get("/streams/s")
      #expect(try strangers.response().status == 503)
      // In two parts: the connection waits for the rest.
      let web = try HTTPWireClient(address)
      web.send("GET /streams/s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ali")
      web.send("ce-0123456789\r\n\r\n")
      #expect(try web.response().status == 200)
      #expect(try web.fetch("/streams/s", "Authorization: Bearer alice-0123456789").status == 200)
      let client = try WireClient(address, token: "alice-0123456789")
      try client.read("s")
      #expect(try client.event().data == [0x31])
      let wrong = try WireClient(address, token: "alice-9876543210")
      guard case .error(.connection, .rejectedSetup, let sentence)? = try wrong.receive() else {
        throw WireClient.Silence()
      }
      #expect(sentence.hasPrefix("the clients without credentials have ") || sentence.contains("connections already"))
      #expect(await harness.users[.token("alice")] == 2)
      #expect(harness.server.statistics.refused == 3)
    }
  }

  @Test func hostsLeavePlacesForRefusalsToOthers() async throws {
    var limits = ServerLimits(workers: 1, connections: 1)
    limits.refusalTime = .seconds(600)
    try await withServer(limits) { harness in
      let address = try harness.listenOnTCP()
      let first = try WireClient(harness.server, user: 1001)
      first.send(.keepalive(respond: true, position: 0, data: [1]))
      _ = try first.receive()
      let silent = try WireClient(harness.path)
      harness.eventually { harness.server.statistics.refused == 1 }
      let hosts = try (0..<40).map { _ in try TCPSocket.connect(to: address).release() }
      defer { for host in hosts { close(host) } }
      harness.eventually { harness.server.statistics.refused == 41 }
      #expect(!silent.hasInput)
    }
  }

  // MARK: Turns

  @Test func aUserWaitsForOneSliceOfAllHosts() {
    var round = UserRound<UserShare>()
    let hosts = UserAccount(.unknown)
    for number in 0..<1000 { round.append(UserShare(UserAccount(.ipv6(UInt64(number)), hosts: hosts))) }
    for user in [ClientUser.uid(1001), .uid(0)] {
      round.append(UserShare(UserAccount(user)))
      let next = (0..<3).compactMap { _ in round.popFirst() }
      #expect(next.contains { $0.account.user == user })
      for share in next where share.account.hosts != nil { round.append(share) }
    }
    var count = 0
    while round.popFirst() != nil { count += 1 }
    #expect(count == 1000 && round.isEmpty)
  }

  /// The loop may deliver ready descriptors in several turns: a user has one slice for all of them.
  @Test func timeOnArrivalIsForAllDescriptorsThatWereReadyAtOnce() {
    var time = ArrivalTime()
    let first = time.isLeft(in: 1)
    time.spend(Slices.arriving)
    let (again, later) = (time.isLeft(in: 1), time.isLeft(in: 2))
    #expect(first && !again && later)
  }

  // MARK: Tables

  @Test func hostsThatPublishTakeNoMarkOfAnotherUser() {
    var marks = PublisherMarks()
    func key(_ user: ClientUser) -> PublisherKey { PublisherKey(Array("p".utf8), of: user) }
    marks.set(key(.uid(0)), to: 7) { _ in false }
    marks.set(key(.uid(1001)), to: 7) { _ in false }
    marks.set(key(.token("a")), to: 7) { _ in false }
    for number in 0..<1000 { marks.set(key(.ipv6(UInt64(number))), to: 1) { _ in false } }
    #expect(marks[key(.uid(1001))] == 7 && marks[key(.token("a"))] == 7)
    for number in 0..<1000 { marks.set(key(.uid(100_000 + UInt32(number))), to: 1) { _ in false } }
    #expect(marks[key(.uid(0))] == 7)
  }

  @Test func debtsOfHostsReplaceNoDebtOfAnotherUser() {
    var debts = UserDebts()
    var debt = Debt(progress: 0, since: 0)
    debt.settle(at: 0, adding: .seconds(1), pace: .zero)
    debts.keep(debt, of: .uid(1001), at: 0, limit: .seconds(60))
    debt.settle(at: 0, adding: .seconds(9), pace: .zero)
    for number in 0..<2 * UserDebts.capacity { debts.keep(debt, of: .ipv6(UInt64(number)), at: 0, limit: .seconds(60)) }
    #expect(debts.owes(.uid(1001), at: 0) && debts.count <= UserDebts.capacity)
  }

  @Test func rootGetsAMapWhereOtherUsersHaveTakenAll() {
    let maps = MapsInFlight()
    for number in 0..<200 as Range<UInt64> {
      _ = maps.add(of: number, .uid(100_000 + UInt32(number)), to: -1, .init())
    }
    #expect(maps.add(of: 300, .uid(1001), to: -1, .init()) != nil)
    #expect(maps.add(of: 301, .uid(0), to: -1, .init()) == nil)
  }

  // MARK: Groups

  @Test func oneOfVeryManyGroupsAdmits() {
    let groups = (0..<65536 as Range<UInt32>).map { 100_000 + $0 }
    let peer = PeerCredentials(process: 1, user: 1001, group: 1001)
    let rules = AccessRules([.group(165_535), .group(7), .user(7)])
    #expect(rules.admit(peer, groups: { groups }) && !rules.admit(peer, groups: { [] }))
    #expect(rules.matching(peer, token: nil, groups: { groups }) == [.group(165_535)])
    let all = AccessRules([.anyone, .group(1001), .user(1001), .token("a")])
    #expect(all.matching(peer, token: nil, groups: { [] }) == [.anyone, .group(1001), .user(1001)])
  }
}
