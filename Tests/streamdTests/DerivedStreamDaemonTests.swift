import FoundationEssentials
import Glibc
import StreamClient
import StreamProtocol
import TestSupport
import Testing

/// Streams that are made of streams, on the daemon itself.
@Suite(.timeLimit(.minutes(10))) struct DerivedStreamDaemonTests {
  private static func numbers(_ events: [StreamEvent]) -> [Int] {
    events.compactMap { Int(String(decoding: $0.data, as: UTF8.self).prefix { $0.isNumber }) }
  }

  private func derived(_ name: String, _ of: String, _ more: String = "") -> String {
    "[streams.\(name)]\nof = [\"\(of)\"]\n\(more)\n"
  }

  @Test func tenStreamsOfOnePageFetchItOnce() async throws {
    let upstream = try Upstream.shared.get()
    let key = uniqueKey()
    let daemon = try RestartedDaemon(hasManager: false)
    let streams = (0..<10).map { derived("d\($0)", "page", "linger = \"0s\"\nwhere = { \"\" = { ge = \($0) } }") }
    try await daemon.start(
      """
      [streams.page]
      http = { url = "\(upstream.url("/count/\(key)"))", every = "20ms" }
      linger = "0s"
      \(streams.joined())
      """)
    #expect(try upstream.count(key) == 0)
    // A fetch that is under way as the last reader leaves is ended, and the next one brings the next number.
    let held = try StreamConnection(socket: daemon.folder.path("s"))
    let reader = Task { for try await _ in held.stream("page").values {} }
    let all = try await withThrowingTaskGroup(of: [Int].self) { group in
      let socket = daemon.folder.path("s")
      for number in 0..<10 {
        group.addTask {
          let connection = try StreamConnection(socket: socket)
          defer { connection.close() }
          var events: [StreamEvent] = []
          for try await event in connection.stream("d\(number)").values {
            events.append(event)
            if events.count == 20 { break }
          }
          return Self.numbers(events)
        }
      }
      return try await group.reduce(into: [[Int]]()) { $0.append($1) }
    }
    #expect(all.count == 10)
    for numbers in all {
      #expect(numbers.count == 20 && zip(numbers, numbers.dropFirst()).allSatisfy { $0 + 1 == $1 })
    }
    // Each fetch is one event of the base.
    let fetched = try upstream.count(key)
    #expect(Self.numbers(try await daemon.events(fetched, of: "page")) == Array(1...fetched))
    held.close()
    _ = await reader.result
    let log = daemon.log
    #expect(await daemon.stop() == 0)
    #expect(!log.contains("missed"))
  }

  @Test func aStreamThatIsAddedWhileItsBaseChangesStoresWhatItHoldsAtAStop() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    func base(_ bytes: String) -> String {
      "[streams.s]\npublish = true\nkeep = \"disk\"\nbuffer = { bytes = \"\(bytes)\" }\n"
    }
    let options = "start = \"always\"\nkeep = \"disk\""
    // The second one has an event only after the first one has read it.
    let streams = base("2MiB") + derived("d", "s", options + "\nthrottle = \"1h\"") + derived("later", "s", options)
    func publish(_ value: String) async throws {
      let program = ["--socket", daemon.folder.path("s"), "pub", "s", value]
      #expect(await (try ChildProcess(ChildProcess.built("streamctl"), program)).end() == 0)
      #expect(try await daemon.events(Int(value)!, of: "later").last?.data == Array(value.utf8))
    }
    try await daemon.start(base("1MiB"))
    try await daemon.reload(streams)
    try await publish("1")
    try await publish("2")
    #expect(try await daemon.newest(of: "d").data == Array("1".utf8))
    #expect(await daemon.stop() == 0)
    try await daemon.start(streams)
    #expect(try await daemon.newest(of: "d").data == Array("2".utf8))
    #expect(await daemon.stop() == 0)
  }

  /// The derived stream, which asks for nothing, is at an id before the base's new log.
  @Test func aBaseThatBeginsAnewWaitsNoLongerThanItsTimeout() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let base = """
      [streams.s]
      publish = true
      keep = "no"
      overflow = "block"
      block_timeout = "200ms"
      buffer = { events = 4 }

      """
    func publish(_ value: String) async throws {
      let program = ["--socket", daemon.folder.path("s"), "pub", "s", value]
      #expect(await (try ChildProcess(ChildProcess.built("streamctl"), program)).end() == 0)
    }
    for process in 0..<2 {
      try await daemon.start(base + derived("d", "s", "keep = \"disk\"\nreplay = 10"))
      let connection = try StreamConnection(socket: daemon.folder.path("s"))
      let probe = CreditProbe()
      connection.stream("d").subscribe(probe)
      probe.request(1)
      if process == 0 { try await publish("1") }
      #expect(await probe.next().data == Array("1".utf8))
      if process == 1 { for value in 2...12 { try await publish("\(value)") } }
      connection.close()
      #expect(await daemon.stop() == 0)
    }
  }

  @Test func aReloadOfABlockingStreamLosesNothingOfItsBlockingBase() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    func streams(_ most: Int) -> String {
      let block = "overflow = \"block\"\nblock_timeout = \"never\"\n"
      return "[streams.s]\npublish = true\nbuffer = { events = 32 }\n\(block)"
        + derived("d", "s", "where = { \"\" = { lt = \(most) } }\nbuffer = { events = 8 }\n\(block)")
    }
    try await daemon.start(streams(10_000))
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    let probe = CreditProbe()
    connection.stream("d").subscribe(probe)
    probe.request(1)
    let publisher = try ChildProcess(
      ChildProcess.built("streamctl"), ["--socket", daemon.folder.path("s"), "pub", "s"], holdsInput: true)
    #expect(await publisher.write(Array((1...1000).map { "\($0)\n" }.joined().utf8)))
    publisher.endInput()
    var numbers = Self.numbers([await probe.next()])
    for round in 1...10 {
      try await daemon.reload(streams(10_000 + round))
      probe.request(20)
      for _ in 0..<20 { numbers += Self.numbers([await probe.next()]) }
    }
    probe.request(1000)
    while numbers.count < 1000 { numbers += Self.numbers([await probe.next()]) }
    #expect(numbers == Array(1...1000))
    #expect(await publisher.end() == 0)
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(!daemon.log.contains("events missed"), "\(daemon.log)")
  }

  @Test(arguments: ["memory", "disk"]) func eachEventHasItsEffectOnceOverKillsAndRestarts(keep: String) async throws {
    let daemon = try RestartedDaemon()
    let streams =
      derived("d", "s", "start = \"always\"\nkeep = \"\(keep)\"\njq = \".tick\"\ntype = \"application/json\"")
      + derived("even", "d", "start = \"always\"\nkeep = \"\(keep)\"\njq = \"select(. % 2 == 0)\"")
      + keptStream(keep: keep)
    var last: UInt64 = 0
    for round in 0..<4 {
      try await daemon.start(streams)
      last = try #require(await daemon.events(100, of: "even", from: round == 0 ? .replay : .after(id: last)).last?.id)
      if round % 2 == 0 { await daemon.kill() } else { #expect(await daemon.stop() == 0) }
    }
    try await daemon.start(streams)
    let ticks = Self.numbers(try await daemon.events(400, of: "d"))
    let even = Self.numbers(try await daemon.events(150, of: "even"))
    let base = try await daemon.events(400).map { event in
      try #require(Int(String(decoding: event.data, as: UTF8.self).dropFirst(8).prefix { $0.isNumber }))
    }
    #expect(ticks == base)
    #expect(even == Array(base.filter { $0 % 2 == 0 }.prefix(150)))
    #expect(!daemon.log.contains("events missed"), "\(daemon.log)")
    #expect(await daemon.stop() == 0)
  }

  @Test func aReloadAddsThemBeforeTheirBasesAndRemovesNoBaseAlone() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let clock = "[streams.clock]\ntimer.every = \"5ms\"\n"
    try await daemon.start(clock)
    let always = "start = \"always\""
    let chain = derived("c", "b", always) + derived("b", "a", always) + derived("a", "clock", always) + clock
    try await daemon.reload(chain)
    #expect(try await daemon.events(5, of: "c").count == 5)
    try await daemon.reload(derived("c", "b") + derived("b", "a") + clock)
    #expect(try await daemon.logs("streams.b.of: expected a stream of this configuration, got \"a\""))
    #expect(try await daemon.events(50, of: "c").count == 50)
    // It goes on with another base, which is added by the same reload.
    let before = try #require(try await daemon.events(1, of: "c", from: .latest).last?.id)
    try await daemon.reload(derived("c", "other", always) + clock + "[streams.other]\ntimer.every = \"5ms\"\n")
    #expect(try await daemon.logs("configuration reloaded: 1 unchanged, 1 changed, 1 added, 2 removed"))
    #expect(try await daemon.events(10, of: "c", from: .after(id: before)).count == 10)
    let catalogue = try await daemon.events(1, of: "$streams", from: .latest)[0].data
    let entries = try JSONDecoder().decode([CatalogueEntry].self, from: Data(catalogue))
    let entry = try #require(entries.first { $0.name == "c" })
    #expect(entry.source == "of" && entry.state == "running" && entry.missed == 0)
    #expect(await daemon.stop() == 0)
  }

  @Test func anEndedStreamGoesOnWithItsBase() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let rest = derived("e", "d", "replay = 100") + derived("d", "clock", "replay = 100")
    try await daemon.start("[streams.clock]\ntimer = { every = \"1ms\", times = 3 }\n" + rest)
    #expect(try await daemon.events(9, of: "e").count == 3)
    try await daemon.reload("[streams.clock]\ntimer = { every = \"1ms\", times = 4 }\n" + rest)
    #expect(try await daemon.events(7, of: "e").count >= 4)
    #expect(await daemon.stop() == 0)
  }

  /// Each event of the base becomes 1.5 MB, which jq answers in pieces.
  @Test func whoLeavesAmongTheResultsOfAnEventRepeatsNone() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let program = #"'.tick as $t | range(1500) as $i | "\($t) \($i) " + ("x" * 1000)'"#
    try await daemon.start(
      "[streams.clock]\ntimer = { every = \"1ms\", times = 5 }\nstart = \"always\"\n"
        + derived(
          "d", "clock",
          "linger = \"0s\"\nreplay = 60000\nbuffer = { bytes = \"16MiB\" }\njq = \(program)"))
    for count in [1, 100, 2000] { _ = try await daemon.events(count, of: "d") }
    let events = try await daemon.events(7500, of: "d").map { String(decoding: $0.data.prefix(8), as: UTF8.self) }
    #expect(Set(events).count == 7500)
    #expect(await daemon.stop() == 0)
  }

  @Test func lostEventsAreAGapAndOneEntry() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(
      "[streams.clock]\ntimer.every = \"1ms\"\nstart = \"always\"\nbuffer = { events = 10 }\n"
        + derived("d", "clock", "linger = \"0s\""))
    _ = try await daemon.events(5, of: "d")
    _ = try await daemon.events(200, of: "clock")
    let events = try await daemon.events(20, of: "d")
    #expect(zip(ids(events), ids(events).dropFirst()).contains { $0 + 1 < $1 })
    try await daemon.eventually("an entry") { daemon.log.contains("events missed: ") }
    #expect(try await daemon.logs("of \"clock\", not read in time"))
    #expect(await daemon.stop() == 0)
  }
}
