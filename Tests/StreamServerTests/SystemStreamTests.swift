import Dispatch
import Events
import FoundationEssentials
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Testing

@testable import StreamServer

@Suite struct SystemStreamTests {
  private struct Row: Decodable, Equatable {
    let name: String
    let description: String
    let type: String
    let source: String
    let state: String
    let message: String?
    let errors: Int
    let subscribers: Int
    let last_id: UInt64?
  }

  private func catalogue(_ data: [UInt8]) throws -> [Row] {
    try JSONDecoder().decode([Row].self, from: Data(data))
  }

  @Test func theCatalogueIsCurrentAtEachRequest() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      let source = try harness.add("b", start: .whileSubscribed(linger: .zero), status: status) {
        $0.description = "the second"
      }
      _ = try harness.add("a") {
        $0.type = "text/plain"; $0.source = "timer"
      }
      let client = try WireClient.ready(harness.path)
      client.get("$streams", options: #"{"ids": false}"#)
      let idle = try catalogue(try client.event().data)
      #expect(idle.map(\.name) == ["a", "b"])
      #expect(
        idle[0]
          == Row(
            name: "a", description: "", type: "text/plain", source: "timer", state: "running", message: nil,
            errors: 0, subscribers: 0, last_id: nil))
      #expect(idle[1].state == "idle")
      client.subscribe("b", credit: 5, id: 3)
      harness.eventually { source.isSubscribed }
      source.send([1])
      let event = try client.event()
      status.set(.failing("HTTP 503"))
      client.get("$streams", id: 5)
      let failing = try catalogue(try client.event().data)
      #expect(
        failing[1]
          == Row(
            name: "b", description: "the second", type: "application/json", source: "publisher", state: "failing",
            message: "HTTP 503", errors: 0, subscribers: 1, last_id: event.id))
      status.set(.waiting("example.org rests"))
      harness.server.countFailedEvents(of: "b", 1)
      client.get("$streams", id: 7)
      let waiting = try catalogue(try client.event().data)[1]
      #expect(waiting.state == "waiting" && waiting.message == "example.org rests" && waiting.errors == 1)
    }
  }

  @Test func aLateReportOfAReplacedSourceHasNoEffect() async throws {
    try await withServer { harness in
      let (former, next) = (SourceStatus(), SourceStatus())
      _ = try harness.add("s", status: former)
      former.set(.failing("HTTP 503"), of: .lastEvent)
      let client = try WireClient.ready(harness.path)
      func state(_ id: UInt32) throws -> String? {
        client.get("$streams", id: id)
        return try catalogue(client.event().data)[0].state
      }
      #expect(try state(1) == "failing")
      let feed = StreamChange.Feed(source: HandFedSource(), status: next)
      #expect(
        harness.server.change([StreamChange(StreamConfiguration(name: "s", start: .always), feed: feed)], removing: [])
          .isEmpty)
      former.set(.failing("HTTP 500"))
      #expect(try state(3) == "running")
      next.set(.waiting("example.org rests"), of: .source)
      next.set(.failing("exit 1"), of: .pipeline)
      #expect(try state(5) == "waiting", "the first part on the way that is not healthy")
    }
  }

  private func entries(_ client: WireClient, _ request: (WireClient) -> Void = { _ in }) throws -> [CatalogueEntry] {
    request(client)
    return try JSONDecoder().decode([CatalogueEntry].self, from: Data(client.event().data))
  }

  private static let shared = FleetStatus(isLeading: false, leader: "n2", term: 7, epoch: 1, lag: 3, staleSince: nil)

  @Test func theCatalogueShowsTheFleetOfSharedStreamsAndItsHostsToTheOwnerOnly() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      _ = try harness.add("shared", status: status)
      _ = try harness.add("alone")
      let client = try WireClient.ready(harness.path)
      status.fleet = Self.shared
      let seen = try entries(client) { $0.get("$streams") }
      #expect(seen.map(\.name) == ["alone", "shared"] && seen[0].fleet == nil && seen[1].message == nil)
      #expect(seen[1].fleet == .init(role: "follower", leader: "n2", term: 7, epoch: 1, lag: 3))
      let stranger = try entries(WireClient(harness.server, user: 1003)) { $0.get("$streams") }
      #expect(stranger[1].fleet == .init(role: "follower", term: 7, epoch: 1, lag: 3))
    }
  }

  @Test func theMessageOfAStaleStreamSaysSinceWhen() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      _ = try harness.add("s", status: status)
      let client = try WireClient.ready(harness.path)
      client.subscribe("$streams", credit: 100)
      #expect(try entries(client)[0].message == nil)
      var fleet = Self.shared
      fleet.staleSince = 1_767_225_600_000_000
      status.fleet = fleet
      let stale = try entries(client)[0]
      #expect(stale.state == "running" && stale.fleet?.staleSince == 1_767_225_600_000_000)
      #expect(stale.message == "stale since 2026-01-01T00:00:00Z: no leader is heard")
      status.set(.failing("HTTP 503"))
      #expect(
        try entries(client)[0].message == "HTTP 503; stale since 2026-01-01T00:00:00Z: no leader is heard")
      fleet.isLeading = true
      status.set(.healthy)
      status.fleet = fleet
      for _ in 0..<2 where try entries(client)[0].message?.hasSuffix("Z: the brokers do not confirm a record") == true {
        return
      }
      Issue.record("a leader without confirmation is not shown")
    }
  }

  @Test func theMessageSaysWhichHostsDefineAStreamOtherwise() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      _ = try harness.add("s", status: status)
      var fleet = Self.shared
      for (hosts, named) in [
        (["n2"], "n2"), (["n2", "n3"], "n2 and one other host"), (["n1", "n2", "n3"], "n1 and 2 other hosts"),
      ] {
        fleet.otherHosts = hosts
        status.fleet = fleet
        try harness.eventually {  // an answer may be a quarter of a second old
          let seen = try entries(WireClient.ready(harness.path)) { $0.get("$streams") }[0]
          return seen.message == "defined otherwise on \(named)" && seen.fleet?.otherHosts == UInt64(hosts.count)
        }
        let stranger = try entries(WireClient(harness.server, user: 1003)) { $0.get("$streams") }[0]
        #expect(stranger.message == "defined otherwise on another host")
      }
    }
  }

  @Test func aSharedStreamWaitsWhileTheBrokersCannotBeReached() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      _ = try harness.add("s", status: status)
      func entry(_ client: WireClient) throws -> CatalogueEntry { try entries(client) { $0.get("$streams") }[0] }
      status.fleet = Self.shared
      status.fleet?.outage = .init(since: 1_767_225_600_000_000, reason: "Connection refused")
      let sentence = "no connection to the fleet's brokers since 2026-01-01T00:00:00Z"
      let own = try entry(.ready(harness.path))
      #expect(own.state == "waiting" && own.message == sentence + " (Connection refused)")
      let stranger = try entry(WireClient(harness.server, user: 1003))
      #expect(stranger.state == "waiting" && stranger.message == sentence)
      #expect(harness.server.statistics.byStream.first?.state == "waiting")
      status.set(.failing("HTTP 500"))
      try harness.eventually {
        let entry = try entry(.ready(harness.path))
        return entry.state == "failing" && entry.message == "HTTP 500; \(sentence) (Connection refused)"
      }
      status.set(.healthy)
      status.fleet?.outage = nil
      try harness.eventually {
        let entry = try entry(.ready(harness.path))
        return entry.state == "running" && entry.message == nil
      }
    }
  }

  @Test func theLagAloneIsListedOnceInItsPeriod() {
    let status = SourceStatus()
    let period = SourceStatus.lagPeriod
    #expect(status.listedFleet(at: 0) == nil)
    var fleet = Self.shared
    func list(lag: UInt64, at now: UInt64) -> UInt64? {
      fleet.lag = lag
      status.fleet = fleet
      return status.listedFleet(at: now)?.lag
    }
    #expect(list(lag: 3, at: 1) == 3)
    #expect(list(lag: 9, at: 2) == 3 && list(lag: 0, at: period - 1) == 3)
    #expect(status.fleet?.lag == 0)
    #expect(list(lag: 5, at: period) == 5 && list(lag: 6, at: period + 1) == 5)
    fleet.term = 8
    #expect(list(lag: 7, at: period + 2) == 7, "with another change the present lag is listed")
    #expect(status.listedFleet(at: period + 3)?.term == 8)
    status.fleet = nil
    #expect(status.listedFleet(at: period + 4) == nil)
  }

  @Test func statisticsShowTheFleetsConnectionAndTheLag() async throws {
    try await withServer { harness in
      let status = SourceStatus()
      _ = try harness.add("s", status: status)
      func statistics() throws -> StatisticsSnapshot {
        let client = try WireClient.ready(harness.path)
        client.subscribe("$stats", credit: 1)
        return try JSONDecoder().decode(StatisticsSnapshot.self, from: Data(client.event().data))
      }
      let alone = try statistics()
      #expect(alone.fleet == nil && alone.byStream?[0].fleetLag == nil)
      status.fleet = Self.shared
      for (connection, text) in [
        (FleetConnection.disconnected("no route"), "not connected: no route"), (.connected, "connected"),
      ] {
        harness.server.fleetConnection = connection
        try harness.eventually { try statistics().fleet == text }
      }
      #expect(try statistics().byStream?[0].fleetLag == 3)
    }
  }

  @Test func aSubscriberOfTheCatalogueReceivesEachChange() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = try WireClient.ready(harness.path)
      client.subscribe("$streams", credit: 100)
      #expect(try catalogue(client.event().data)[0].subscribers == 0)
      client.subscribe("s", credit: 1, id: 3)
      #expect(try catalogue(client.event().data)[0].subscribers == 1)
      client.send(.cancel(StreamID(3)))
      #expect(try catalogue(client.event().data)[0].subscribers == 0)
    }
  }

  @Test func statisticsCountConnectionsEventsAndErrors() async throws {
    struct Stats: Decodable {
      let version: String
      let events_in: Int, events_out: Int, connections: Int, accepted: Int, streams: Int, bytes_in: Int
    }
    try await withServer { harness in
      let source = try harness.add("s") { $0.replay = 10 }
      source.send([1, 2], [3])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 100)
      _ = try client.events(2)
      client.subscribe("$stats", credit: 2, id: 3)
      let stats = try JSONDecoder().decode(Stats.self, from: Data(try client.event().data))
      #expect(stats.version == "1.2.3")
      #expect(stats.events_in == 2 && stats.bytes_in == 3 && stats.events_out >= 2)
      #expect(stats.connections == 1 && stats.accepted == 1 && stats.streams == 1)
      let next = try JSONDecoder().decode(Stats.self, from: Data(try client.event().data))
      #expect(next.events_out > stats.events_out)
    }
  }

  @Test func statisticsAreSeparateForEachStream() async throws {
    struct Stats: Decodable {
      struct Stream: Decodable, Equatable {
        var name: String, state: String
        var subscribers: Int, events_in: Int, bytes_in: Int, events_out: Int, bytes_out: Int
        var lag: Int?, newest: UInt64?
      }
      let by_stream: [Stream]
      let busy_microseconds: [UInt64]
      let uptime_microseconds: UInt64
    }
    try await withServer { harness in
      let source = try harness.add("s") { $0.replay = 10 }
      _ = try harness.add("quiet", start: .fromFirstSubscriber)
      source.send([1, 2], [3], [4], [5])
      let fast = try WireClient.ready(harness.path)
      fast.subscribe("s", credit: 100)
      _ = try fast.events(4)
      let slow = try WireClient.ready(harness.path)
      slow.subscribe("s", credit: 1)
      _ = try slow.events(1)
      let watcher = try WireClient.ready(harness.path)
      watcher.subscribe("$stats", credit: 1000)
      func next() throws -> Stats { try JSONDecoder().decode(Stats.self, from: Data(try watcher.event().data)) }
      var stats = try next()
      let first = stats.uptime_microseconds
      for _ in 0..<20 where stats.by_stream.last?.lag != 3 { stats = try next() }
      #expect(stats.uptime_microseconds > first)
      #expect(stats.busy_microseconds.count == 2 && stats.busy_microseconds.reduce(0, +) > 0)
      #expect(stats.by_stream.map(\.name) == ["quiet", "s"])
      #expect(
        stats.by_stream[0]
          == .init(
            name: "quiet", state: "idle", subscribers: 0, events_in: 0, bytes_in: 0, events_out: 0, bytes_out: 0,
            lag: 0,
            newest: nil))
      let busy = stats.by_stream[1]
      #expect(busy.state == "running" && busy.subscribers == 2)
      #expect(busy.events_in == 4 && busy.bytes_in == 5 && busy.events_out == 5 && busy.bytes_out > 5)
      #expect(busy.lag == 3 && busy.newest != nil)
      slow.send(.cancel(StreamID(1)))
      for _ in 0..<20 where stats.by_stream.last?.lag != 0 { stats = try next() }
      #expect(stats.by_stream[1].lag == 0)
      #expect(stats.by_stream[1].events_out == 5)
    }
  }

  private func names(_ client: WireClient, id: UInt32 = 1) throws -> [String] {
    client.get("$streams", id: id)
    return try catalogue(client.event().data).map(\.name)
  }

  @Test func theHistoryHasThePeriodsInWhichEventsCame() async throws {
    try await withServer { harness in
      let now = EventLoop.wallClock()
      for name in ["a", "b"] { _ = try harness.add(name) }
      var batch = EventBatch([[49], [50]])
      let period = RecentEvents.periodMicroseconds
      #expect(batch.setStamps(try #require(EventStamps(firstID: now + 60_000_000, time: now - 2 * period))))
      #expect(harness.server.append(batch, to: "b"))
      let client = try WireClient.ready(harness.path)
      client.get("$history", options: #"{"ids": false}"#)
      let history = try JSONDecoder().decode(HistorySnapshot.self, from: Data(try client.event().data))
      #expect(history.seconds == 5 && history.end % period == 0 && history.end > now - period)
      #expect(history.byStream.map(\.name) == ["a", "b"] && history.byStream[0].events == nil)
      let events = try #require(history.byStream[1].events)
      #expect(events.count >= 2 && events[0] == 2 && events.dropFirst().allSatisfy { $0 == 0 })
      #expect(history.byStream[1].bytes?.first == 2)
    }
  }

  @Test func aClientSeesTheStreamsThatItMayReadOrWrite() async throws {
    try await withServer { harness in
      _ = try harness.add("open")
      _ = try harness.add("finance") { $0.read = AccessRules([.user(1001)]) }
      _ = try harness.add("staff") { $0.read = AccessRules([.group(1002)]) }
      try harness.addPublished("inbox") {
        $0.read = .owner; $0.write = AccessRules([.user(1001)])
      }
      // No values can be published to a stream with another source.
      _ = try harness.add("feed") {
        $0.read = .owner; $0.write = AccessRules([.user(1001)])
      }
      let server = harness.server
      #expect(try names(WireClient(server, user: 1001)) == ["finance", "inbox", "open"])
      #expect(try names(WireClient(server, user: 1002)) == ["open", "staff"])
      #expect(try names(WireClient(server, user: 1003)) == ["open"])
      #expect(try names(WireClient(server, user: nil)) == ["open"])
      #expect(try names(WireClient(server, user: 0)) == ["feed", "finance", "inbox", "open", "staff"])
      #expect(try names(WireClient.ready(harness.path)) == ["feed", "finance", "inbox", "open", "staff"])
    }
  }

  @Test func onlyTheOwnerSeesWhichClientStallsAStream() async throws {
    try await withServer { harness in
      _ = try harness.add("s")
      let client = ClientIdentity(number: 7, credentials: .init(process: 4711, user: 1001, group: 1001))
      harness.server.streams["s"]?.setHolder(ServedStream.Holder(reader: .client(client), unread: 3))
      for (user, message) in [
        (0, "stalled by client 7 (uid 1001, pid 4711), 3 events behind"),
        (1002, "stalled by a subscriber, 3 events behind"),
      ] {
        let watcher = try WireClient(harness.server, user: UInt32(user))
        watcher.get("$streams")
        let row = try catalogue(watcher.event().data)[0]
        #expect(row.state == "blocked" && row.message == message)
      }
    }
  }

  @Test func statisticsAreSumsOverTheVisibleStreams() async throws {
    struct Stats: Decodable {
      struct Stream: Decodable { let name: String }
      let streams: Int, subscribers: Int, events_in: Int, bytes_in: Int
      let connections: Int?, accepted: Int?, writes: Int?
      let by_stream: [Stream]
    }
    try await withServer { harness in
      let open = try harness.add("open")
      let secret = try harness.add("secret") { $0.read = .owner }
      open.send([1, 2])
      secret.send([1], [2], [3])
      func stats(_ user: UInt32) throws -> Stats {
        let client = try WireClient(harness.server, user: user)
        client.get("$stats")
        return try JSONDecoder().decode(Stats.self, from: Data(client.event().data))
      }
      let theirs = try stats(1001)
      #expect(theirs.streams == 1 && theirs.by_stream.map(\.name) == ["open"])
      #expect(theirs.events_in == 1 && theirs.bytes_in == 2)
      #expect(theirs.connections == nil && theirs.accepted == nil && theirs.writes == nil)
      let all = try stats(0)
      #expect(all.streams == 2 && all.events_in == 4 && all.connections != nil)
    }
  }

  @Test func onlyTheOwnerMayReadTheConfiguration() async throws {
    try await withServer { harness in
      let report = ConfigurationReport(text: "[server]\n", error: "f:1: x", readAt: 7, restartKeys: ["server.mode"])
      let owners = [try WireClient.ready(harness.path), try WireClient(harness.server, user: 0)]
      owners[0].subscribe("$config", credit: 10, id: 5)
      #expect(try owners[0].event().data == Array("null".utf8))
      harness.server.show(report)
      for client in owners {
        if client === owners[1] { client.get("$config", id: 5) }
        #expect(try JSONDecoder().decode(ConfigurationReport.self, from: Data(client.event().data)) == report)
      }
      for user in [1001, nil] as [UInt32?] {
        let client = try WireClient(harness.server, user: user)
        client.subscribe("$config", credit: 10, id: 5)
        guard case .error(StreamID(5), .rejected, let text)? = try client.receive() else {
          Issue.record("not refused")
          continue
        }
        #expect(text.hasSuffix("may not read \"$config\""))
      }
      let web = try HTTPWireClient(harness.path)
      #expect(try web.fetch("/streams/$config").text.contains("restart_keys"))
    }
  }

  @Test func theOwnerSeesThatThePreviousConfigurationIsServed() async throws {
    struct Stats: Decodable { let configuration_error: String? }
    try await withServer { harness in
      func error(_ user: UInt32) throws -> String? {
        let client = try WireClient(harness.server, user: user)
        client.get("$stats")
        let stats = try JSONDecoder().decode(Stats.self, from: Data(client.event().data))
        return stats.configuration_error
      }
      let scraper = try HTTPWireClient(harness.path)
      func metric() throws -> String? {
        try scraper.fetch("/metrics").text.split(separator: "\n")
          .first { $0.hasPrefix("streamd_config_last_reload_successful ") }.map { String($0.suffix(1)) }
      }
      #expect(try metric() == nil && error(0) == nil)
      harness.server.show(ConfigurationReport(text: "", error: "f:1: x"))
      #expect(try metric() == "0" && error(0) == "f:1: x" && error(1001) == nil)
      harness.server.show(ConfigurationReport(text: ""))
      #expect(try metric() == "1" && error(0) == nil)
    }
  }

  @Test func onlyClientsWithEqualRightsShareAView() async throws {
    try await withServer { harness in
      _ = try harness.add("open")
      _ = try harness.add("finance") { $0.read = AccessRules([.user(1001)]) }
      let clients = try ([1001, 1002, 1003] as [UInt32]).map { user in
        let client = try WireClient(harness.server, user: user)
        client.subscribe("$streams", credit: 10)
        return (client, try client.event().id)
      }
      #expect(clients[1].1 == clients[2].1 && clients[0].1 != clients[1].1)
    }
  }

  /// Each set of rights has a view of its own, of which there are 64; that of clients without rights of their own is not
  /// among them.
  @Test func manyRightsLeaveTheViewThatEveryoneHas() async throws {
    try await withServer { harness in
      let users = 5000..<5070 as Range<UInt32>
      for user in users { _ = try harness.add("s\(user)") { $0.read = AccessRules([.user(user)]) } }
      var clients: [WireClient] = []
      var refusals = 0
      for user in users {
        let client = try WireClient(harness.server, user: user)
        client.subscribe("$streams", credit: 1)
        if case .error(StreamID(1), .rejected, let sentence) = try client.receive() {
          #expect(sentence == "too many views of \"$streams\"")
          refusals += 1
        }
        clients.append(client)
      }
      #expect(refusals == 6)
      let other = try WireClient(harness.server, user: 4_000_000)
      for (name, id) in [("$streams", 1), ("$stats", 3), ("$history", 5)] as [(String, UInt32)] {
        other.subscribe(name, credit: 1, id: id)
        _ = try other.event()
      }
    }
  }

  @Test func moreAccessIsVisibleWithoutANewRequest() async throws {
    try await withServer { harness in
      _ = try harness.add("open")
      _ = try harness.add("finance") { $0.read = .owner }
      let client = try WireClient(harness.server, user: 1001)
      client.subscribe("$streams", credit: 10)
      let before = try client.event()
      #expect(try catalogue(before.data).map(\.name) == ["open"])
      let other = try WireClient(harness.server, user: 1002)
      other.subscribe("$streams", credit: 10)
      _ = try other.event()
      let counting = try WireClient(harness.server, user: 1001)
      counting.subscribe("$streams", credit: 10, options: #"{"gaps":true}"#)
      #expect(try counting.payload().metadata.count == 16)
      let change = StreamConfiguration(name: "finance", start: .always, read: AccessRules([.user(1001)]))
      #expect(harness.server.change([StreamChange(change)], removing: []).isEmpty)
      let after = try client.event()
      #expect(try catalogue(after.data).map(\.name) == ["finance", "open"] && after.id > before.id)
      // Its ids are another view's, so the number of events in between is unknown.
      let metadata = try counting.payload().metadata
      #expect(metadata.count == 24 && metadata.dropFirst(16).allSatisfy { $0 == 0xFF })
      // And no longer once it has no access: the current rules apply.
      let back = StreamConfiguration(name: "finance", start: .always, read: .owner)
      #expect(harness.server.change([StreamChange(back)], removing: []).isEmpty)
      #expect(try catalogue(client.event().data).map(\.name) == ["open"])
      _ = try harness.add("new") { $0.read = AccessRules([.user(1002)]) }
      var seen: [String] = []
      for _ in 0..<10 where !seen.contains("new") { seen = try catalogue(other.event().data).map(\.name) }
      #expect(seen == ["new", "open"])
    }
  }

  /// Its head has the size of the event. The event of the new view has another size.
  @Test func aResponseWithoutAnyByteOfItsEventEndsWhenTheViewChanges() throws {
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let loop = server.loops[0]
    func add(_ name: String, _ read: AccessRules) throws {
      let configuration = StreamConfiguration(
        name: name, description: String(repeating: "x", count: 100_000), read: read)
      try server.add(configuration, source: Empty<EventBatch, StreamFailure>(completeImmediately: false))
    }
    try add("open", AccessRules())
    let client = try HTTPWireClient(server, user: 1001)
    while server.workers[0].allConnections.isEmpty { loop.runOneTurn() }
    let connection = try #require(server.workers[0].allConnections.first)
    client.get("/streams")
    while connection.sentByteCount < 100_000 { loop.runOneTurn() }
    #expect(try client.response().isComplete)
    let http = try #require(connection.speaker as? HTTPSpeaker)
    let view = try #require(server.systemStreams.view(of: "$streams", connection.visibility))
    http.respond(
      with: NewestEvent.newest(of: view).event, of: view,
      HTTPRequest(isHead: false, keepsConnection: true, allowsChunks: true, allowedOrigin: nil), isKnown: false)
    try add("granted", AccessRules([.user(1001)]))
    for _ in 0..<3 { loop.runOneTurn() }
    let response = try client.response()
    #expect(response.status == 200 && response.body.isEmpty && !response.isComplete, "\(response)")
  }

  @Test func aReplyIsSharedByRequestsWithinAQuarterOfASecond() async throws {
    let harness = try ServerHarness(systemStreamAge: .milliseconds(250))
    let start = EventLoop.monotonicNow()
    var values: Set<[UInt8]> = []
    let clients = try (0..<4).map { _ in try WireClient.ready(harness.path) }
    for round in 0..<100 as Range<UInt32> {
      for client in clients { client.get("$stats", id: round * 2 + 1) }
      for client in clients { values.insert(try client.event().data) }
    }
    let looks = (EventLoop.monotonicNow() - start) / 250_000_000 + 1
    #expect(values.count <= looks)
    await harness.stop()
  }

  @Test func requestsCancelledBeforeTheirReplyDoNotAffectOthers() async throws {
    try await withServer { harness in
      let client = try WireClient.ready(harness.path)
      for id in 0..<50 as Range<UInt32> {
        client.get("$stats", id: id * 2 + 1)
        client.send(.cancel(StreamID(id * 2 + 1)))
      }
      client.get("$stats", id: 1001)
      while case .payload(let id, _, _, true, _)? = try client.receive(), id != StreamID(1001) {}
      #expect(try client.isSilent())
    }
  }

  @Test func reservedAndUsedNamesAreRefused() async throws {
    try await withServer { harness in
      #expect(throws: StreamServer.AddStreamError.nameReserved("$x")) { _ = try harness.add("$x") }
      _ = try harness.add("s")
      #expect(throws: StreamServer.AddStreamError.nameTaken("s")) { _ = try harness.add("s") }
    }
  }

  @Test func anEventTooLargeForTheBufferIsDroppedAndReported() async throws {
    try await withServer { harness in
      let source = try harness.add("s") {
        $0.limits = .init(bytes: 4096); $0.replay = 5
      }
      source.send([UInt8](repeating: 0, count: 5000), [1])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s", credit: 5)
      #expect(try client.events(1) == [[1]])
      guard case .eventsTooLarge(stream: "s", count: 1, limit: 4072)? = harness.reports.first else {
        Issue.record("not reported: \(harness.reports)")
        return
      }
      #expect(harness.server.streams["s"]?.failedEvents == 1)
    }
  }

  @Test func viewsAreThreadSafe() throws {
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    DispatchQueue.concurrentPerform(iterations: 4000) { index in
      let visibility = Visibility.admitted([.user(UInt32(index % 40))])
      _ = server.systemStreams.view(of: index % 3 == 0 ? "$streams" : "$stats", visibility)
    }
  }

  @Test func idsOfViewsAreNotReused() throws {
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let views = server.systemStreams
    let seen = Visibility.admitted([.user(1000)])
    let first = try #require(views.view(of: "$streams", seen))
    let later = EventLoop.wallClock() + 1_000_000_000  // as before a clock was set back
    first.begin(after: StreamEnd(position: later))
    let second = try #require(views.view(of: "$streams", .admitted([.user(1001)])))
    #expect(second.log.read { storage, _ in storage.endPosition } >= later)
    #expect(views.add(StreamAccess(readableBy: [], visibleTo: [.user(1002)]), of: "x"))
    let third = try #require(views.view(of: "$streams", seen))
    #expect(third !== first && third.log.read { storage, _ in storage.endPosition } > later)
  }

  @Test func aWorkerIsNotifiedOnceForManyRequests() async throws {
    let calls = Locked(0)
    let queue = DispatchQueue(label: "looks")
    queue.suspend()
    let rendering = SystemRendering(.all, maximumAge: .seconds(60), on: queue, .value { _ in [1] })
    let configuration = StreamConfiguration(name: "$x")
    let storage = try #require(EventLog(name: "$x", limits: configuration.limits))
    let stream = ServedStream(configuration, storage: storage, rendering: rendering)
    let workers = [Asker(), Asker()]
    for index in 0..<100 {
      #expect(!rendering.isCurrent(in: stream, for: workers[index % 2]) { calls.withLock { $0 += 1 } })
    }
    queue.resume()
    queue.sync {}
    #expect(calls.withLock { $0 } == 2)
    #expect(rendering.isCurrent(in: stream, for: workers[0]) {})
  }

  private final class Asker {}

  @Test func onlyViewsThatShowedANowPrivateStreamAreReplaced() async throws {
    try await withServer { harness in
      _ = try harness.add("open")
      _ = try harness.add("secret") { $0.read = .owner }
      _ = try harness.add("finance") { $0.read = AccessRules([.user(1001), .user(1002)]) }
      func first(_ user: UInt32) throws -> (id: UInt64, names: [String]) {
        let client = try WireClient(harness.server, user: user)
        client.subscribe("$streams", credit: 10, options: #"{"from": "-1h"}"#)
        let (id, data) = try client.event()
        return (id, try catalogue(data).map(\.name))
      }
      #expect(try first(1001).names == ["finance", "open"] && first(1002).names == ["finance", "open"])
      let before = try first(1003)
      #expect(before.names == ["open"])
      let reader = try WireClient(harness.server, user: 1001)
      reader.subscribe("$streams", credit: 10)
      #expect(try catalogue(reader.event().data).map(\.name) == ["finance", "open"])
      let change = StreamConfiguration(name: "finance", start: .always, read: AccessRules([.user(1002)]))
      #expect(harness.server.change([StreamChange(change)], removing: []).isEmpty)
      #expect(try first(1001).names == ["open"] && first(1002).names == ["finance", "open"])
      #expect(try first(1003) == before)
      #expect(try catalogue(reader.event().data).map(\.name) == ["open"])
      // Nor does it contain events from before a stream was removed.
      #expect(harness.server.change([], removing: ["finance"]).isEmpty)
      #expect(try first(1002).names == ["open"])
    }
  }
}
