import FoundationEssentials
import Glibc
import StreamClient
import StreamProtocol
import TestSupport
import Testing

/// Streams of templates, on the daemon itself.
@Suite(.timeLimit(.minutes(10))) struct TemplateDaemonTests {
  private static func template(_ name: String = "s/{x}", _ keep: String = "memory", _ more: String = "") -> String {
    "[streams.\"\(name)\"]\npublish = true\nreplay = 100\nkeep = \"\(keep)\"\n\(more)\n"
  }

  /// Publishes a value; the manager reads meanwhile.
  private func publish(_ value: String, to stream: String, on daemon: RestartedDaemon) async throws {
    let program = ["--socket", daemon.folder.path("s"), "pub", stream, value]
    let publisher = try ChildProcess(ChildProcess.built("streamctl"), program)
    try await daemon.eventually("it is published") { !isRunning(publisher.id) }
    #expect(await publisher.end() == 0)
  }

  /// Stops the daemon; the manager reads meanwhile.
  private func stop(_ daemon: RestartedDaemon) async throws {
    daemon.signal(SIGTERM)
    #expect(try await daemon.end() == 0)
  }

  private func texts(_ events: [StreamEvent]) -> [String] { events.map { String(decoding: $0.data, as: UTF8.self) } }

  private func names(_ daemon: RestartedDaemon) async throws -> [String] {
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    defer { connection.close() }
    for try await event in connection.stream("$streams").values {
      return try JSONDecoder().decode([CatalogueEntry].self, from: Data(event.data)).map(\.name)
    }
    return []
  }

  @Test(arguments: ["memory", "disk"]) func theyOutliveKillsAndRestartsWithTheirEvents(keep: String) async throws {
    let daemon = try RestartedDaemon()
    let configuration = Self.template("s/{x}", keep)
    try await daemon.start(configuration)
    for name in ["s/a", "s/b"] { try await publish("1", to: name, on: daemon) }
    var last: UInt64 = 0
    for (round, isKill) in [true, false, true].enumerated() {
      if isKill { await daemon.kill() } else { try await stop(daemon) }
      try await daemon.start(configuration)
      #expect(try await names(daemon) == ["s/a", "s/b"])
      try await publish("\(round + 2)", to: "s/a", on: daemon)
      let events = try await daemon.events(round + 2, of: "s/a")
      #expect(texts(events) == (1...round + 2).map(String.init))
      #expect(events.last?.id ?? 0 > last)
      last = events.last?.id ?? 0
    }
    #expect(await daemon.stop() == 0)
  }

  @Test func aForgottenStreamTakesItsEventsAndItsFileWithIt() async throws {
    let daemon = try RestartedDaemon()
    let configuration =
      Self.template("m/{x}", "memory", "forget = \"50ms\"") + Self.template("d/{x}", "disk", "forget = \"50ms\"")
    try await daemon.start(configuration)
    try await publish("1", to: "m/a", on: daemon)
    try await publish("1", to: "d/a", on: daemon)
    while try await !names(daemon).isEmpty {}
    // The streams are not served any more before their logs go, both in one step of the daemon's queue.
    try await daemon.eventually("the file is gone") { access(daemon.state + "/d%2Fa.log", F_OK) != 0 }
    try await publish("1", to: "d/b", on: daemon)
    await daemon.kill()
    try await daemon.start(configuration)
    #expect(try await names(daemon).allSatisfy { $0 == "d/b" })
    // The same name begins anew, with higher ids.
    try await publish("2", to: "d/a", on: daemon)
    #expect(await daemon.stop() == 0)
  }

  /// Its streams have more events than the memory can hold.
  @Test func streamsTakeNoMoreThanTheMemoryOfTheConfiguration() async throws {
    let daemon = try RestartedDaemon()
    try await daemon.start(
      "memory = \"1MiB\"\n" + Self.template("s/{x}", "memory", "forget = \"never\""))
    let value = String(repeating: "1", count: 60_000)
    for number in 0..<10 { try await publish(value, to: "s/\(number)", on: daemon) }
    let names = try await names(daemon)
    #expect(names.contains("s/9") && !names.contains("s/0"))
    #expect((3..<9).contains(names.count))
    #expect(try await daemon.events(1, of: "s/9").count == 1)
    #expect(await daemon.stop() == 0)
  }

  @Test func aSubscriberStaysOverARestartAlsoWithoutALog() async throws {
    let daemon = try RestartedDaemon()
    try daemon.makeListener()
    let configuration = Self.template("s/{x}", "no")
    try await daemon.start(configuration)
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    defer { connection.close() }
    var events = connection.stream("s/a").values.makeAsyncIterator()
    try await publish("1", to: "s/a", on: daemon)
    #expect(try await events.next()?.data == Array("1".utf8))
    try await stop(daemon)
    try await daemon.start(configuration)
    #expect(try await names(daemon) == ["s/a"])
    try await publish("2", to: "s/a", on: daemon)
    #expect(try await events.next()?.data == Array("2".utf8))
    #expect(await daemon.stop() == 0)
  }

  @Test func aReloadChangesTheStreamsOfItsTemplatesAndKeepsTheirSubscribers() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(Self.template("s/{x}", "no") + Self.template("t/{x}", "no"))
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    defer { connection.close() }
    var (events, others) = (
      connection.stream("s/a").values.makeAsyncIterator(), connection.stream("t/a").values.makeAsyncIterator()
    )
    try await publish("1", to: "s/a", on: daemon)
    try await publish("1", to: "t/a", on: daemon)
    #expect(try await events.next()?.data == Array("1".utf8))
    #expect(try await others.next()?.data == Array("1".utf8))
    // Another log, another name of the parameter, and a limit below what there is.
    try await daemon.reload(Self.template("s/{y}", "disk", "streams = 1\nbuffer = { bytes = \"1MiB\" }"))
    #expect(try await names(daemon) == ["s/a"])
    #expect(access(daemon.state + "/s%2Fa.log", F_OK) == 0)
    do {
      _ = try await others.next()
      Issue.record("it is served still")
    } catch {}
    try await publish("2", to: "s/a", on: daemon)
    #expect(try await events.next()?.data == Array("2".utf8))
    // A configured stream takes the name over.
    try await daemon.reload("[streams.\"s/a\"]\npublish = true\nkeep = \"disk\"\n" + Self.template("s/{y}", "disk"))
    try await publish("3", to: "s/a", on: daemon)
    #expect(try await events.next()?.data == Array("3".utf8))
    #expect(await daemon.stop() == 0)
    #expect(!daemon.log.contains("rror"), "\(daemon.log)")
  }

  @Test func aNameMayBeForItsUserAlone() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(
      Self.template("inbox/{user}", "no", "read = [\"user:{user}\"]\nwrite = [\"*\"]"))
    let user = String(cString: try #require(getpwuid(getuid())).pointee.pw_name)
    try await publish("1", to: "inbox/\(user)", on: daemon)
    #expect(texts(try await daemon.events(1, of: "inbox/\(user)")) == ["1"])
    for other in ["daemon", "no-such-user"] {
      try await publish("1", to: "inbox/\(other)", on: daemon)
      await #expect(throws: StreamError.self) { try await daemon.events(1, of: "inbox/\(other)") }
    }
    #expect(await daemon.stop() == 0)
  }

  @Test func aStreamOfATemplateMayBeMadeOfAnother() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(
      """
      \(Self.template("s/{x}", "no"))
      [streams."high/{x}"]
      of = ["s/{x}"]
      where = { "/n" = { gt = 3 } }
      [streams.fixed]
      of = ["s/fixed"]
      """)
    #expect(try await names(daemon) == ["fixed", "s/fixed"])
    for value in [1, 5, 2, 7] { try await publish("{\"n\":\(value)}", to: "s/a", on: daemon) }
    #expect(texts(try await daemon.events(2, of: "high/a")) == ["{\"n\":5}", "{\"n\":7}"])
    try await publish("{}", to: "s/fixed", on: daemon)
    #expect(texts(try await daemon.events(1, of: "fixed")) == ["{}"])
    #expect(await daemon.stop() == 0)
  }
}
