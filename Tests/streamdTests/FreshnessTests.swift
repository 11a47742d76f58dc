import FoundationEssentials
import Glibc
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

/// `expect_every` and `streamctl check`, on the daemon itself.
@Suite(.timeLimit(.minutes(10))) struct FreshnessTests {
  private let upstream: Upstream
  private let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  /// A stream of one line, after which its server is silent.
  private var silent: String {
    """
    [streams.silent]
    http = { url = "\(upstream.url("/stream/\(key)?body=line%0A&end=hang"))", stream = "lines" }
    start = "always"
    expect_every = "200ms"

    """
  }

  private func polled(_ name: String, _ query: String = "", _ more: String = "") -> String {
    """
    [streams.\(name)]
    http = { url = "\(upstream.url("/page/\(name)-\(key)\(query)"))", every = "20ms" }
    start = "always"
    expect_every = "3s"
    \(more)

    """
  }

  private func streamctl(_ daemon: RestartedDaemon, _ arguments: String...) async throws -> (CInt, String) {
    let process = try ChildProcess(
      ChildProcess.built("streamctl"), ["--socket", daemon.folder.path("s")] + arguments)
    let output = await process.text(of: process.output)
    return (await process.end(), output)
  }

  private func entry(_ name: String, of daemon: RestartedDaemon) async throws -> CatalogueEntry? {
    let text = try await streamctl(daemon, "list", "--json").1
    return try JSONDecoder().decode([CatalogueEntry].self, from: Data(text.utf8)).first { $0.name == name }
  }

  private func staleSince(_ name: String, of daemon: RestartedDaemon) async throws -> UInt64 {
    for _ in 0..<600 {
      if let time = try await entry(name, of: daemon)?.staleSince { return time }
      try await Task.sleep(for: .milliseconds(50))
    }
    throw SystemError("stale", daemon.log, code: ETIMEDOUT)
  }

  @Test func unchangedPagesAreFreshAndASilentServerIsNot() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(
      silent + polled("tagged", "?tag=1") + polled("untagged")
        + polled("piped", "", "jq = \".\"\ntype = \"application/json\"")
        + "[streams.idle]\ntimer.every = \"1ms\"\nexpect_every = \"100ms\"\n")
    let began = EventLoop.monotonicNow()
    let since = try await staleSince("silent", of: daemon)
    let message = try #require(try await entry("silent", of: daemon)?.message)
    #expect(message.hasPrefix("stale since 2") && message.hasSuffix("expect_every, 200ms"))
    // The pages are older than that, and were fetched since.
    while EventLoop.monotonicNow() < began + 5_000_000_000 { try await Task.sleep(for: .milliseconds(50)) }
    for name in ["tagged", "untagged"] {
      #expect(try await entry(name, of: daemon)?.staleSince == nil)
      #expect(try await streamctl(daemon, "check", name, "--max-age", "3s").0 == 0, "\(name)")
    }
    // Its pipeline fails on the page, which is no JSON: an unchanged page proves nothing.
    #expect(try await staleSince("piped", of: daemon) > 0)
    #expect(try await entry("idle", of: daemon)?.staleSince == nil)
    #expect(try await staleSince("silent", of: daemon) == since)
    for name in ["silent", "piped"] { #expect(try await daemon.logs("\(name): stale: ")) }
    #expect(daemon.log.components(separatedBy: ": stale: ").count == 3, "\(daemon.log)")
    let metrics = try await streamctl(daemon, "get", "$stats").1
    #expect(metrics.contains("\"fresh\":") && metrics.contains("\"stale_since\":\(since)"))
    #expect(await daemon.stop() == 0)
  }

  @Test func stalenessOutlivesReloadsAndRestartsAndIsReportedOnce() async throws {
    func silent(_ more: String = "", expecting: String = "expect_every = \"200ms\"") -> String {
      "[streams.silent]\npublish = true\n\(expecting)\n\(more)\n"
    }
    let daemon = try RestartedDaemon()
    try daemon.makeListener()
    try await daemon.start(silent())
    let since = try await staleSince("silent", of: daemon)
    try await daemon.reload(silent("description = \"x\""))
    #expect(try await staleSince("silent", of: daemon) == since)
    // Another feed has proved nothing yet.
    try await daemon.reload(silent("jq = \".\""))
    #expect(try await staleSince("silent", of: daemon) == since)
    #expect(daemon.log.components(separatedBy: ": stale: ").count == 2)
    #expect(!daemon.log.contains("no longer stale"))
    daemon.signal(SIGTERM)
    _ = try await daemon.end()
    try await daemon.start(silent("jq = \".\""))
    try await Task.sleep(for: .milliseconds(500))
    let again = try await staleSince("silent", of: daemon)
    // The clocks of both processes were read at different moments.
    #expect(again > since - 1_000_000 && again < since + 1_000_000)
    #expect(!daemon.log.contains(": stale: "), "\(daemon.log)")
    #expect(!daemon.log.contains("no longer stale"))
    try await daemon.reload(silent(expecting: ""))
    try await daemon.eventually("it is not stale") {
      daemon.log.contains("no longer stale: its source is not asked for events now")
    }
    while try await entry("silent", of: daemon)?.staleSince != nil { try await Task.sleep(for: .milliseconds(50)) }
    #expect(await daemon.stop() == 0)
  }

  @Test func anEventEndsStaleness() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start("[streams.news]\npublish = true\nexpect_every = \"200ms\"\n")
    _ = try await staleSince("news", of: daemon)
    #expect(try await streamctl(daemon, "pub", "news", "1").0 == 0)
    try await daemon.eventually("it has recovered") { daemon.log.contains("news: no longer stale") }
    #expect(await daemon.stop() == 0)
  }

  @Test func checkIsForMonitoring() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(
      silent + "[streams.news]\npublish = true\n[streams.idle]\ntimer.every = \"1h\"\n"
        + "[streams.ticks]\ntimer.every = \"10ms\"\nstart = \"always\"\n")
    _ = try await staleSince("silent", of: daemon)
    let stale = try await streamctl(daemon, "check", "silent")
    #expect(stale.0 == 2 && stale.1.hasPrefix("CRITICAL: silent is running, fresh "), "\(stale)")
    let fresh = try await streamctl(daemon, "check", "ticks", "--max-age", "60s")
    #expect(
      fresh.0 == 0 && fresh.1.hasPrefix("OK: ticks is running, fresh ") && fresh.1.hasSuffix("s;;60\n"), "\(fresh)")
    let idle = try await streamctl(daemon, "check", "idle", "--max-age", "60s")
    #expect(idle == (1, "WARNING: idle is idle, its age is unknown\n"))
    #expect(try await streamctl(daemon, "check", "news", "--max-age", "60s").0 == 2)
    #expect(try await streamctl(daemon, "check", "news").0 == 0)
    let none = try await streamctl(daemon, "check", "none", "--json")
    #expect(none.0 == 3 && none.1.contains(#""verdict":"unknown""#))
    #expect(await daemon.stop() == 0)
    let gone = try await streamctl(daemon, "check", "ticks")
    #expect(gone.0 == 3 && gone.1.hasPrefix("UNKNOWN: "), "\(gone)")
  }
}
