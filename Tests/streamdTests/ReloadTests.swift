import FoundationEssentials
import Glibc
import StreamClient
import StreamRuntime
import TestSupport
import Testing

/// SIGHUP, on the daemon itself.
@Suite(.timeLimit(.minutes(10))) struct ReloadTests {
  private func fed(_ name: String, _ url: String, _ more: String = "") -> String {
    """
    [streams.\(name)]
    http = { url = "\(url)", stream = "lines"\(more) }
    retry = { first = "10ms", max = "20ms" }

    """
  }

  /// Lines from an upstream that answers the test's key once, and for ever.
  private func endless(_ upstream: Upstream, _ key: String) -> String {
    upstream.url("/stream/\(key)?body=\(Upstream.escaped("line %n\n"))&end=hang")
  }

  private func subscriber(_ daemon: RestartedDaemon, _ stream: String) throws -> ChildProcess {
    try ChildProcess(
      ChildProcess.built("streamctl"),
      [
        "--socket", daemon.folder.path("s"), "sub", stream, "--format", "json", "--from", "1970-01-01T00:00:00Z",
        "--no-reconnect",
      ])
  }

  /// The id of the next line of `streamctl sub --format json`.
  private func id(_ client: ChildProcess) async throws -> UInt64 {
    let line = try #require(await client.line())
    return try #require(UInt64(line.dropFirst(6).prefix { $0 != "," }), "\(line)")
  }

  @Test func aReloadEndsRetryAfterWaits() async throws {
    let url = try Upstream.shared.get().url("/status/\(uniqueKey())?code=503&times=1&retry=86400")
    let stream = "[streams.s]\nhttp = { url = \"\(url)\", every = \"20ms\" }\nstart = \"always\"\n"
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(stream)
    try await daemon.eventually("it is asked to wait") { daemon.log.contains("source failing: HTTP 503") }
    try await daemon.reload(stream)
    #expect(try await daemon.events(1).map { String(decoding: $0.data, as: UTF8.self) } == ["2\n"])
    #expect(await daemon.stop() == 0)
  }

  @Test func unchangedStreamsKeepTheirUpstreamAndOthersChange() async throws {
    let upstream = try Upstream.shared.get()
    let (stays, changes, goes, comes) = (uniqueKey(), uniqueKey(), uniqueKey(), uniqueKey())
    let daemon = try RestartedDaemon(hasManager: false)
    let unchanged = fed("stays", endless(upstream, stays)) + keptStream("ticks", keep: "memory")
    try await daemon.start(
      unchanged + fed("changes", endless(upstream, changes)) + fed("goes", endless(upstream, goes)))
    let ticks = try subscriber(daemon, "ticks")
    let clients = try ["stays", "changes", "goes"].map { try subscriber(daemon, $0) }
    var last: [UInt64] = []
    for client in clients { last.append(try await id(client)) }
    let before = try await id(ticks)
    try await daemon.reload(
      unchanged + fed("changes", endless(upstream, changes), #", idle_timeout = "1h""#)
        + fed("comes", endless(upstream, comes)))
    #expect(try await daemon.logs("configuration reloaded: 2 unchanged, 1 changed, 1 added, 1 removed"))
    #expect(try await id(clients[1]) == last[1] + 1)
    #expect(await clients[2].end() != 0)
    #expect(await clients[2].text(of: clients[2].errors).contains(#""goes" is no longer served"#))
    #expect(try await daemon.events(1, of: "comes", from: .latest)[0].data == Array("line 1".utf8))
    for next in before + 1...before + 50 { #expect(try await id(ticks) == next) }
    #expect(try [stays, changes, goes, comes].map(upstream.count) == [1, 2, 1, 1])
    let catalogue = try await daemon.events(1, of: "$streams", from: .latest)[0].data
    let text = String(decoding: catalogue, as: UTF8.self)
    #expect(text.contains(#""name":"comes""#) && !text.contains(#""name":"goes""#))
    #expect(await daemon.stop() == 0)
  }

  @Test func aFileWithErrorsChangesNothingAndIsReported() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try await daemon.start(keptStream(keep: "no"))
    let client = try subscriber(daemon, "s")
    let first = try await id(client)
    try daemon.write("[streams.s]\ntimer = { evry = \"1s\" }\n[streams.t]\n")
    daemon.signal(SIGHUP)
    var told: [String] = []
    while told.last?.hasPrefix("READY=1") != true || !told.contains(where: { $0.hasPrefix("RELOADING") }) {
      told.append(try #require(manager.receive()))
    }
    let reloading = try #require(told.first { $0.hasPrefix("RELOADING=1\nMONOTONIC_USEC=") })
    let time = try #require(UInt64(reloading.dropFirst("RELOADING=1\nMONOTONIC_USEC=".count)))
    #expect(abs(Int64(time) - Int64(EventLoop.monotonicNow() / 1000)) < 60_000_000)
    let answer = try #require(told.last)
    #expect(
      answer.contains("; serving the previous configuration: \(daemon.folder.path("streamd.toml")):5")
    )
    #expect(answer.hasSuffix(#"evry: unknown key; did you mean "every"? (and 1 more error)"#))
    try await daemon.eventually("the journal has it") {
      daemon.log.split(separator: "\n").count { $0.contains("configuration not reloaded: ") } >= 2
    }
    for next in first + 1...first + 20 { #expect(try await id(client) == next) }
    try await daemon.reload(keptStream(keep: "no"))
    #expect(try await daemon.logs("configuration reloaded: 1 unchanged, 0 changed, 0 added, 0 removed"))
    #expect(await daemon.stop() == 0)
  }

  @Test func credentialsAreReadAgain() async throws {
    let upstream = try Upstream.shared.get()
    let (key, other) = (uniqueKey(), uniqueKey())
    let daemon = try RestartedDaemon(hasManager: false)
    func file(_ key: String, _ credential: String) -> String {
      fed(key, endless(upstream, key), #", bearer = { credential = "\#(credential)" }"#)
    }
    let streams = file(key, "token") + file(other, "other")
    try daemon.folder.write(Array("old".utf8), to: "token")
    try daemon.folder.write(Array("same".utf8), to: "other")
    try await daemon.start(streams, environment: ["CREDENTIALS_DIRECTORY=\(daemon.folder.path)"])
    let clients = try [key, other].map { try subscriber(daemon, $0) }
    for client in clients { _ = try await id(client) }
    try daemon.folder.write(Array("new".utf8), to: "token")
    try await daemon.reload(streams)
    #expect(try await daemon.logs("configuration reloaded: 1 unchanged, 1 changed, 0 added, 0 removed"))
    _ = try await id(clients[0])
    #expect(try upstream.count(other) == 1)
    let head = try ChildProcess("curl", ["--silent", upstream.url("/head/\(key)")])
    #expect(await head.text(of: head.output).contains("Bearer new"))
    #expect(await daemon.stop() == 0)
  }

  @Test func logsMoveWithTheConfigurationAndIDsNeverDecrease() async throws {
    let daemon = try RestartedDaemon()
    let other = keptStream("other", keep: "memory")
    try await daemon.start(other + keptStream(keep: "memory"))
    let client = try subscriber(daemon, "s")
    var last = try await id(client)
    try await daemon.eventually("two logs are kept") { daemon.keptLogs.sorted() == ["kept-log-0", "kept-log-1"] }
    let places = [
      ("memory", "16MiB", ["kept-log-0", "kept-log-2"]), ("disk", "16MiB", ["kept-log-0"]),
      ("disk", "8MiB", ["kept-log-0"]), ("no", "8MiB", ["kept-log-0"]),
      ("memory", "8MiB", ["kept-log-0", "kept-log-3"]), ("no", "8MiB", ["kept-log-0"]),
      ("disk", "8MiB", ["kept-log-0"]),
    ]
    for (keep, bytes, kept) in places {
      try await daemon.reload(other + keptStream(keep: keep, bytes: bytes))
      try await daemon.eventually("the manager keeps \(kept)") { daemon.keptLogs.sorted() == kept }
      #expect((access(daemon.state + "/s.log", F_OK) == 0) == (keep == "disk"))
      for next in last + 1...last + 20 { #expect(try await id(client) == next) }
      last += 20
    }
    // Removed, its file stays, and is found when the stream comes back; what the manager holds of one goes.
    try await daemon.reload("")
    let rest = await client.text(of: client.output)  // all that it had on its way
    #expect(await client.end() != 0)
    last += UInt64(rest.split(separator: "\n").count)
    try await daemon.eventually("nothing is kept") { daemon.keptLogs.isEmpty }
    #expect(access(daemon.state + "/s.log", F_OK) == 0)
    try await daemon.reload(keptStream(keep: "disk"))
    let again = try await daemon.events(100)
    #expect(ids(again) == Array(ids(again)[0]..<ids(again)[0] + 100))
    let newest = try #require(try await daemon.events(1, from: .new).first?.id)
    #expect(ids(again)[0] <= last && newest > last)
    // What was changed outlives a kill as what was there from the start.
    await daemon.kill()
    try await daemon.start(keptStream(keep: "disk"))
    #expect(try await daemon.events(100) == again)
    #expect(await daemon.stop() == 0)
  }

  @Test func keysThatNeedARestartAreReportedAndTheRestIsApplied() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "no"))
    #expect(!daemon.log.contains(": connected\n"))
    for _ in 0..<2 {
      try await daemon.reload("workers = 7\nmode = \"0600\"\n[log]\nlevel = \"debug\"\n" + keptStream(keep: "no"))
    }
    #expect(try await daemon.logs("log level is now debug, was info"))
    _ = try await daemon.events(1)
    try await daemon.eventually("each reload says what it does not change") {
      daemon.log.split(separator: "\n").count {
        $0.hasSuffix("takes effect after a restart: server.mode, server.workers")
      } == 2
    }
    #expect(try await daemon.logs(": connected\n"))
    #expect(await daemon.stop() == 0)
  }

  @Test func aStreamCannotBeSharedBeforeARestart() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "no"))
    try await daemon.reload(
      "[cluster]\nnats = [\"tls://n1:4222\"]\nname = \"prod\"\n" + keptStream(keep: "no") + "share = \"fleet\"\n")
    let sentence = "streams.s.share: share = \"fleet\" needs a restart, as the daemon was started without [cluster]"
    #expect(try await daemon.logs("configuration not reloaded: \(daemon.folder.path("streamd.toml")):12: \(sentence)"))
    #expect(await daemon.stop() == 0)
  }

  private struct Tick: Decodable { let tick: Int }

  @Test(arguments: ["memory", "disk"]) func ticksCountOnOverReloadsAndRestarts(keep: String) async throws {
    func clock(_ more: String) -> String {
      "[streams.clock]\ntimer.every = \"5ms\"\nstart = \"always\"\nreplay = 100\nkeep = \"\(keep)\"\n\(more)\n"
    }
    let daemon = try RestartedDaemon()
    try await daemon.start(clock(""))
    var seen: [Int] = []
    for step in 0..<4 {
      let from = UInt64(try await daemon.newest(of: "clock").id ?? 0)
      let ticks = try await daemon.events(5, of: "clock", from: .after(id: from)).map { event in
        try JSONDecoder().decode(Tick.self, from: Data(event.data)).tick
      }
      #expect(ticks.first ?? 0 > seen.last ?? 0, "step \(step): \(ticks) after \(seen)")
      seen += ticks
      switch step {
      case 0: try await daemon.reload(clock("retry.first = \"2s\""))  // another feed
      case 1:
        #expect(await daemon.stop() == 0)
        try await daemon.start(clock("jq = \".\""))
      case 2:
        await daemon.kill()
        try await daemon.start(clock("jq = \".\""))
      default: break
      }
    }
    #expect(await daemon.stop() == 0)
  }

  @Test func theLastOfManyReloadsApplies() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream("n0", keep: "no"))
    for number in 1...30 {
      try daemon.write(keptStream("n\(number)", keep: "no"))
      daemon.signal(SIGHUP)
    }
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    for try await catalogue in connection.stream("$streams").values
    where String(decoding: catalogue.data, as: UTF8.self).contains(#""name":"n30""#) { break }
    connection.close()
    daemon.signal(SIGHUP)
    #expect(await daemon.stop() == 0)
  }
}
