import FoundationEssentials
import Glibc
import StreamClient
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

/// Two daemons, of which one has streams of the other.
@Suite(.timeLimit(.minutes(10))) struct PeerDaemonTests {
  private let a: RestartedDaemon
  private let b: RestartedDaemon

  init() throws { (a, b) = (try RestartedDaemon(), try RestartedDaemon()) }

  private var address: String { "unix:\(a.folder.path("s"))" }

  /// A stream of `b`.
  private func mirror(_ more: String = "", of keys: String = "", name: String = "s") -> String {
    "[streams.\(name)]\nstreamd = { address = \"\(address)\"\(keys) }\nretry = { first = \"10ms\", max = \"50ms\" }\n\(more)\n"
  }

  private func text(_ event: StreamEvent) -> String { String(decoding: event.data, as: UTF8.self) }

  private func ticks(_ events: [StreamEvent]) -> [Int] {
    events.compactMap { Int(text($0).dropFirst(8).prefix { $0.isNumber }) }
  }

  private func entry(_ name: String = "s", of daemon: RestartedDaemon) async throws -> CatalogueEntry {
    let catalogue = try await daemon.events(1, of: "$streams", from: .latest)[0].data
    let entries = try JSONDecoder().decode([CatalogueEntry].self, from: Data(catalogue))
    return try #require(entries.first { $0.name == name })
  }

  @Test func nothingIsFetchedThereWithoutCreditHere() async throws {
    let (upstream, key) = (try Upstream.shared.get(), uniqueKey())
    try await a.start(
      "[streams.s]\nhttp = { url = \"\(upstream.url("/count/\(key)"))\", every = \"20ms\" }\nlinger = \"0s\"\n")
    try await b.start(mirror("linger = \"0s\""))
    let connection = try StreamConnection(socket: b.folder.path("s"))
    let probe = CreditProbe()
    connection.stream("s", options: .init(from: .new)).subscribe(probe)
    try await Task.sleep(for: .milliseconds(100))
    #expect(try upstream.count(key) == 0)
    probe.request(1)
    #expect(text(await probe.next()).hasPrefix("1"))
    try await Task.sleep(for: .milliseconds(200))
    #expect(try upstream.count(key) == 1)
    probe.request(20)
    for _ in 0..<20 { _ = await probe.next() }
    // Credit for a few events in advance remained.
    var count = 0
    while try count <= 60 && upstream.count(key) != count {
      count = try upstream.count(key)
      try await Task.sleep(for: .milliseconds(500))
    }
    #expect(count <= 60)
    #expect(try await entry(of: b).source == "streamd")
    connection.close()
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
    #expect(!b.log.contains("failing"))
  }

  @Test(arguments: ["memory", "disk"]) func eachEventComesOnceOverKillsAndRestarts(keep: String) async throws {
    let always = "start = \"always\"\nkeep = \"\(keep)\"\n"
    let streams = mirror(always) + mirror(always + "jq = \".tick\"", of: ", stream = \"s\"", name: "ticks")
    try await a.start(keptStream(keep: keep))
    try await b.start(streams)
    var last: UInt64?
    for round in 0..<6 {
      last = try await b.events(100, from: last.map { .after(id: $0) } ?? .since("1970-01-01T00:00:00Z")).last?.id
      #expect(!b.log.contains("events missed"), "\(b.log)")
      let daemon = round % 2 == 0 ? a : b
      if round % 4 < 2 { await daemon.kill() } else { #expect(await daemon.stop() == 0) }
      if round == 0 { #expect(try await b.logs("source failing: the other streamd has closed the connection;")) }
      try await Task.sleep(for: .milliseconds(50))
      try await daemon.start(round % 2 == 0 ? keptStream(keep: keep) : streams)
    }
    last = try await b.events(100, from: .after(id: try #require(last))).last?.id
    let copies = try await b.events(700).map(text)
    #expect(copies == (try await a.events(700).map(text)))
    let ticks = try await b.events(700, of: "ticks").map(text)
    #expect(ticks == copies.map { String($0.dropFirst(8).prefix { $0.isNumber }) })
    #expect(!b.log.contains("events missed"), "\(b.log)")
    #expect(try await entry(of: b).missed == 0)
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
  }

  @Test func lostEventsAreAGapAndOneEntry() async throws {
    try await a.start("[streams.s]\ntimer.every = \"1ms\"\nstart = \"always\"\nbuffer = { events = 10 }\n")
    try await b.start(mirror("linger = \"0s\""))
    let first = try await b.events(5)
    _ = try await a.events(200)
    let events = try await b.events(300, from: .after(id: try #require(first.last?.id)))
    let numbers = ticks(first + events)
    #expect(zip(numbers, numbers.dropFirst()).allSatisfy { $0 < $1 })
    let missing = zip(ids(first + events), ids(first + events).dropFirst()).map { $1 - $0 - 1 }.reduce(0, +)
    #expect(missing > 0)
    #expect(try await b.logs(" of \"s\" of \(address), not read in time"))
    // The catalogue follows the stream.
    #expect(try await eventually { try await entry(of: b).missed ?? 0 >= missing })
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
  }

  @Test func aLogThatBeginsAnewIsAGap() async throws {
    let clock = "[streams.s]\ntimer.every = \"5ms\"\nstart = \"always\"\nkeep = \"no\"\n"
    try await a.start(clock)
    try await b.start(mirror("start = \"always\""))
    let before = try await b.events(20)
    await a.kill()
    try await a.start(clock)
    let id = try #require(before.last?.id)
    let connection = try StreamConnection(socket: b.folder.path("s"))
    defer { connection.close() }
    var isGap = false
    for try await event in connection.stream("s", options: .init(from: .after(id: id))).values {
      isGap = isGap || event.gap != nil
      if isGap { break }
    }
    #expect(isGap)
    #expect(
      try await b.logs("events missed: perhaps some of \"s\" of \(address), in which the last event that was read"))
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
  }

  @Test func aFilterAppliesThereAndMayChange() async throws {
    let clock = "[streams.clock]\ntimer.every = \"2ms\"\nstart = \"always\"\n"
    try await a.start(clock)
    func filtered(_ least: Int) -> String {
      mirror(
        "start = \"always\"", of: ", stream = \"clock\", where = { \"/tick\" = { ge = \(least) } }", name: "late")
    }
    try await b.start(filtered(50))
    let first = ticks(try await b.events(20, of: "late"))
    try await b.reload(filtered(5))
    #expect(try await b.logs("configuration reloaded: 0 unchanged, 1 changed"))
    let all = ticks(try await b.events(100, of: "late"))
    let base = ticks(try await a.events(200, of: "clock")).filter { $0 >= 50 }
    #expect(first == Array(base.prefix(20)) && all == Array(base.prefix(100)))
    #expect(!b.log.contains("events missed"))
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
  }

  @Test func aFailureHasAReasonAndAnEnd() async throws {
    let clock = "[streams.clock]\ntimer.every = \"5ms\"\n"
    let secret = "[streams.s]\ntimer.every = \"5ms\"\nread = [\"uid:4294967000\"]\n"
    try await a.start(clock + (getuid() == 0 ? "" : secret))
    try await b.start(mirror("start = \"always\""))
    let reason =
      getuid() == 0 ? "has no stream \"s\"" : "does not let this one read \"s\": see read of the stream there"
    #expect(try await b.logs("s: source failing: the other streamd \(reason);"))
    // The catalogue is made four times a second.
    #expect(try await eventually { try await entry(of: b).message?.hasPrefix("the other streamd \(reason)") == true })
    try await a.reload("[streams.s]\ntimer.every = \"5ms\"\n")
    #expect(try await b.events(10).count == 10)
    #expect(try await b.logs("s: source recovered after "))
    #expect(try await eventually { try await entry(of: b).state == "running" })
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
  }

  @Test func anEndedStreamIsAskedAgain() async throws {
    try await a.start("[streams.s]\ntimer = { every = \"1ms\", times = 3 }\nreplay = 100\n")
    try await b.start(mirror("start = \"always\"\nreplay = 100"))
    #expect(try await b.logs("s: source failing: the stream of the other streamd has ended;"))
    try await a.reload("[streams.s]\ntimer = { every = \"1ms\", times = 5 }\nreplay = 100\n")
    #expect(try await b.events(5).count == 5)
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
  }

  @Test func aRefreshConnectsAtOnce() async throws {
    try await b.start(
      mirror("start = \"always\"").replacing("first = \"10ms\", max = \"50ms\"", with: "first = \"5m\""))
    #expect(try await b.logs("s: source failing: cannot connect to \(address): No such file or directory;"))
    try await a.start("[streams.s]\ntimer.every = \"5ms\"\n")
    func refresh() async throws -> (code: CInt, errors: String) {
      let process = try ChildProcess(
        ChildProcess.built("streamctl"), ["--socket", b.folder.path("s"), "refresh", "s"])
      let text = await process.text(of: process.errors)
      return (await process.end(), text)
    }
    #expect(try await refresh() == (0, ""))
    #expect(try await b.events(3).count == 3)
    let (code, errors) = try await refresh()
    #expect(code != 0 && errors.contains("its source runs, and brings events as they come"))
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
  }

  @Test func aTokenAdmitsOverTCP() async throws {
    let address = uniqueAddress()
    for (daemon, token) in [(a, "right-0123456789"), (b, "wrong-0123456789")] {
      try daemon.folder.write(Array(token.utf8), to: "token")
    }
    try await a.start(
      "listen = [\"\(address)\"]\n[[tokens]]\nname = \"b\"\ncredential = \"token\"\nread = [\"*\"]\n"
        + "[streams.s]\ntimer = { every = \"2ms\" }\nread = [\"uid:0\"]\n",
      environment: ["CREDENTIALS_DIRECTORY=\(a.folder.path)"])
    let stream =
      "[streams.s]\nstreamd = { address = \"tcp:\(address)\", token = { credential = \"token\" } }\nstart = \"always\"\n"
      + "retry = { first = \"10ms\", max = \"50ms\" }\n"
    try await b.start(stream, environment: ["CREDENTIALS_DIRECTORY=\(b.folder.path)"])
    #expect(try await b.logs("s: source failing: the token is not valid for the other streamd;"))
    try b.folder.write(Array("right-0123456789".utf8), to: "token")
    try await b.reload(stream)
    #expect(try await b.logs("configuration reloaded: 0 unchanged, 1 changed"))
    #expect(try await b.events(10).count == 10)
    #expect(!b.log.contains("0123456789") && !a.log.contains("0123456789"))
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
  }

  /// `b` waits for its slowest subscriber, and `a` for `b`.
  @Test func nothingIsDroppedThroughTwoDaemons() async throws {
    let block = "overflow = \"block\"\nblock_timeout = \"never\"\nbuffer = { events = 100 }\n"
    try await a.start("[streams.s]\ntimer.every = \"1ms\"\n" + block)
    try await b.start(mirror(block))
    let connection = try StreamConnection(socket: b.folder.path("s"))
    let probe = CreditProbe()
    connection.stream("s", options: .init(from: .new)).subscribe(probe)
    var last: UInt64?
    for _ in 0..<4 {
      probe.request(300)
      for _ in 0..<300 {
        let event = await probe.next()
        if let last { #expect(event.id == last + 1) }
        last = event.id
      }
      try await Task.sleep(for: .milliseconds(1200))
    }
    #expect(try await entry(of: b).missed == 0)
    connection.close()
    #expect(await b.stop() == 0)
    #expect(await a.stop() == 0)
  }
}
