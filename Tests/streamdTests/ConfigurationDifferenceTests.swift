import Events
import StreamRuntime
import StreamServer
import Testing

@testable import streamd

@Suite struct ConfigurationDifferenceTests {
  private func stream(
    _ name: String, _ change: (inout Configuration.Stream) -> Void = { _ in }
  ) -> Configuration.Stream {
    var stream = Configuration.Stream(name: name, source: .timer(.init(every: .seconds(1))))
    change(&stream)
    return stream
  }

  private func fetched(_ name: String, token: String) -> Configuration.Stream {
    stream(name) {
      $0.source = .http(
        .init(
          url: "http://localhost/", fetching: .poll(every: .seconds(1)),
          authorization: .bearer(Secret(name: "token", content: token))))
    }
  }

  private func difference(
    _ old: [Configuration.Stream], _ new: [Configuration.Stream]
  ) -> ConfigurationDifference {
    ConfigurationDifference(from: Configuration(streams: old), to: Configuration(streams: new))
  }

  @Test func streamsAreComparedByName() {
    let found = difference(
      [stream("stays"), stream("goes"), stream("becomes another"), stream("moves")],
      [stream("moves"), stream("comes"), stream("becomes another") { $0.replay = 7 }, stream("stays")])
    #expect(found.unchangedCount == 2)
    #expect(found.changed.map(\.stream.name) == ["becomes another"] && found.changed[0].former.replay == 1)
    #expect(found.added == [stream("comes")])
    #expect(found.removed == ["goes"])
    #expect(found.summary == "2 unchanged, 1 changed, 1 added, 1 removed")
    #expect(found.logLevel == nil && found.maxPerHost == nil && found.restartKeys.isEmpty)
  }

  @Test func theSummaryHasChangedAddressesAndTokens() throws {
    func configuration(_ listen: [String]) throws -> Configuration {
      var configuration = Configuration(streams: [stream("stays")])
      configuration.server.listen = try listen.map { try #require(InternetAddress($0)) }
      return configuration
    }
    let (none, one) = (try configuration([]), try configuration(["127.0.0.1:7878"]))
    let rest = "1 unchanged, 0 changed, 0 added, 0 removed"
    #expect(ConfigurationDifference(from: none, to: one).summary == rest + "; listens on 127.0.0.1:7878")
    #expect(ConfigurationDifference(from: one, to: none).summary == rest + "; listens on no address")
    #expect(ConfigurationDifference(from: one, to: one).summary == rest)
  }

  @Test func aLargerBufferForPagesReplacesTheSource() {
    func change(_ fetching: Configuration.HTTP.Fetching) -> ConfigurationDifference.Change {
      let source = Configuration.Source.http(.init(url: "http://localhost/", fetching: fetching))
      let old = stream("s") { ($0.source, $0.buffer.bytes) = (source, 65536) }
      let new = stream("s") { ($0.source, $0.buffer.bytes) = (source, 1 << 20) }
      return difference([old], [new]).changed[0]
    }
    #expect(change(.poll(every: .seconds(1))).hasOtherFeed)
    #expect(!change(.stream(.lines, idleTimeout: nil)).hasOtherFeed)
  }

  @Test func anotherBufferReplacesTheFeedOfASharedStreamOnly() {
    for share in Configuration.Share.allCases {
      let old = stream("s") { ($0.source, $0.share) = (.publish, share) }
      let new = stream("s") { ($0.source, $0.share, $0.buffer.bytes) = (.publish, share, 1 << 20) }
      #expect(difference([old], [new]).changed[0].hasOtherFeed == (share == .fleet))
    }
  }

  @Test func aChangedFeedReplacesTheSource() {
    func change(_ change: (inout Configuration.Stream) -> Void) -> ConfigurationDifference.Change {
      difference([stream("s")], [stream("s", change)]).changed[0]
    }
    #expect(change { $0.jq = "." }.hasOtherFeed)
    #expect(change { $0.distinct = .whole }.hasOtherFeed)
    #expect(change { $0.throttle = .seconds(1) }.hasOtherFeed)
    #expect(change { $0.validate = .json }.hasOtherFeed)
    // Paths are read where the events enter the log.
    #expect(change { $0.key = KeyDefinition(key: ".a | .b") }.hasOtherFeed)
    #expect(!change { $0.key = KeyDefinition(key: ".a.b", tombstone: ".gone") }.hasOtherFeed)
    #expect(change { $0.retry.first = .seconds(2) }.hasOtherFeed)
    #expect(change { $0.source = .publish }.hasOtherFeed)
    #expect(change { $0.share = .fleet }.hasOtherFeed)
    #expect(change { $0.lead = false }.hasOtherFeed)
    #expect(!change { $0.source = .publish }.hasOtherLog)
    for change in [
      change { $0.read = [.user(1)] }, change { $0.start = .always }, change { $0.overflow = .block },
      change { $0.map = true },
    ] {
      #expect(!change.hasOtherFeed && !change.hasOtherLog)
    }
    let key = KeyDefinition(key: ".a")
    for change in [
      change { $0.keep = .disk }, change { $0.buffer.age = .seconds(1) }, change { $0.key = key },
      difference([stream("s") { $0.key = key }], [stream("s") { ($0.key, $0.maxKeys) = (key, 7) }]).changed[0],
      difference([stream("s") { $0.key = key }], [stream("s") { ($0.key, $0.stateBytes) = (key, 1 << 20) }]).changed[0],
    ] {
      #expect(!change.hasOtherFeed && change.hasOtherLog)
    }
  }

  @Test func aChangedSecretIsAChange() {
    let found = difference([fetched("s", token: "old")], [fetched("s", token: "new")])
    #expect(found.changed.count == 1 && found.changed[0].hasOtherFeed)
    #expect(difference([fetched("s", token: "old")], [fetched("s", token: "old")]).unchangedCount == 1)
  }

  @Test func limitsOfClientsChangeAtAReload() {
    var new = Configuration()
    (new.server.limits.connections, new.server.limits.httpHosts) = (7, ["streams"])
    let found = ConfigurationDifference(from: Configuration(), to: new)
    #expect(found.serverKeys == ["server.max_connections", "server.hosts"] && found.restartKeys.isEmpty)
    #expect(found.summary.hasSuffix("; server.max_connections, server.hosts"))
  }

  @Test func keysThatNeedARestartAreListed() {
    var new = Configuration()
    new.server.limits.workers = 7
    new.server.state = "/srv"
    new.log.level = .debug
    new.http.maxPerHost = 9
    let found = ConfigurationDifference(from: Configuration(), to: new)
    #expect(found.restartKeys == ["server.workers", "server.state"])
    #expect(found.logLevel == .debug && found.maxPerHost == 9)
  }

  @Test func aClusterTakesEffectAfterARestart() {
    func keys(_ old: Configuration.Cluster?, _ new: Configuration.Cluster?) -> [String] {
      ConfigurationDifference(from: Configuration(cluster: old), to: Configuration(cluster: new)).restartKeys
    }
    let cluster = Configuration.Cluster(servers: ["tls://a"], name: "a")
    #expect(keys(nil, cluster) == ["cluster"] && keys(cluster, nil) == ["cluster"])
    #expect(keys(nil, nil) == [] && keys(cluster, cluster) == [])
    var other = cluster
    other.servers = ["tls://b"]
    other.login = .token(Secret(name: "t", content: "1"))
    #expect(keys(cluster, other) == ["cluster.nats", "cluster.token"])
    var third = other
    third.login = .token(Secret(name: "t", content: "2"))
    #expect(keys(other, third) == ["cluster.token"])
    third.login = .user(.init(user: "u", password: Secret(name: "t", content: "1")))
    #expect(keys(other, third) == ["cluster.token", "cluster.password"])
  }

  @Test func everyKeyOfTheClusterSectionIsCompared() {
    let cluster = Configuration.Cluster(servers: ["tls://a"], name: "a")
    let other = Configuration.Cluster(
      servers: ["tls://b"], name: "b", shards: 1, replicas: 1, shardBytes: 16 << 20,
      resumeWait: .zero, login: .token(Secret(name: "t", content: "1")), authorities: "/a",
      identity: .init(certificate: "/c", key: "/k"))
    #expect(
      other.changes(from: cluster, applyingAt: .restart) == [
        "nats", "name", "shards", "replicas", "shard_bytes", "resume_wait", "token", "ca_file", "client_certificate",
        "client_key",
      ])
  }

  @Test func aStreamIsSharedWithAFleetOnlyIfTheClusterIsInEffect() {
    let shared = stream("s") { $0.share = .fleet }
    let cluster = Configuration.Cluster(servers: ["tls://a"], name: "a")
    func unshared(_ old: Configuration, _ new: Configuration) -> String? {
      ConfigurationDifference(from: old, to: new).unsharedStream
    }
    let new = Configuration(cluster: cluster, streams: [stream("t"), shared])
    #expect(unshared(Configuration(streams: [stream("s")]), new) == "s")
    #expect(unshared(Configuration(cluster: cluster, streams: []), new) == nil)
    #expect(unshared(Configuration(), Configuration(cluster: cluster, streams: [stream("t")])) == nil)
  }

  @Test func everyKeyOfTheServerSectionIsCompared() {
    var limits = ServerLimits(
      workers: 1, connections: 1, connectionsPerUser: 1, requestsPerConnection: 1, requestsPerUser: 1,
      requestBytes: 1024, inputBytes: 1 << 20, inputBytesPerUser: 1 << 20, lifetime: .seconds(1),
      handshakeTimeout: .seconds(1))
    (limits.httpHosts, limits.httpOrigins) = (["a"], ["http://a"])
    let other = Configuration.Server(
      socket: "/s", mode: 0, listen: [InternetAddress("127.0.0.1:1")].compactMap { $0 }, limits: limits, memory: 1,
      state: "/")
    #expect(
      other.changes(from: Configuration.Server(), applyingAt: .reload) == [
        "listen", "max_connections", "max_connections_per_user", "max_requests_per_connection",
        "max_requests_per_user", "max_request", "max_input", "max_input_per_user", "max_lifetime", "handshake_timeout",
        "hosts", "origins", "memory",
      ])
    #expect(
      other.changes(from: Configuration.Server(), applyingAt: .restart) == ["socket", "mode", "workers", "state"])
    #expect(other.changes(from: other, applyingAt: .restart).isEmpty)
  }
}
