import Foundation
import StreamClient
import TestSupport
import Testing

/// What upstreams say of the next request, on the daemon itself.
@Suite(.timeLimit(.minutes(10))) struct PauseDaemonTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  /// Waits for a row of `$streams` with that message.
  private func waits(_ daemon: RestartedDaemon, _ message: (String) -> Bool) async throws {
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    defer { connection.close() }
    for try await event in connection.stream("$streams").values {
      let rows = try JSONDecoder().decode([Row].self, from: Data(event.data))
      if rows.contains(where: { $0.state == "waiting" && message($0.message ?? "") }) { return }
    }
  }

  /// Waits until the disk has a pause.
  private func untilStored(_ daemon: RestartedDaemon) async throws {
    try await daemon.eventually("it is stored") {
      (try? String(contentsOfFile: daemon.state + "/pauses", encoding: .utf8))?.isEmpty == false
    }
  }

  private struct Row: Decodable {
    let state: String
    let message: String?
  }

  @Test(arguments: [
    ("X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 3600", "rate limit of "),
    ("X-Poll-Interval: 3600", "X-Poll-Interval of "), ("Cache-Control: max-age=3600", "max-age of "),
  ]) func aPauseIsShownAndOutlivesAKillButNoReload(head: String, reason: String) async throws {
    let stream = """
      [streams.s]
      start = "always"
      keep = "disk"
      http = { url = "\(upstream.url(Upstream.raw(key, head, Array("1".utf8))))", every = "10ms", obey_max_age = true }

      """
    let daemon = try RestartedDaemon(hasManager: false)
    for round in 0..<2 {
      try await daemon.start(stream)
      // A host keeps its reason, a stream the time alone.
      let isSame = round == 0 || reason.hasPrefix("rate")
      let reason = isSame ? reason + upstream.authority : "the upstream has asked for it before the restart"
      try await waits(daemon) { $0.hasPrefix("waits until ") && $0.hasSuffix("Z: " + reason) }
      try await untilStored(daemon)
      #expect(try upstream.count(key) == 1)
      await daemon.kill()
    }
    try await daemon.start(stream)
    try await daemon.reload(stream)
    try await daemon.eventually("it asks again") { (try? upstream.count(key)) == 2 }
    #expect(await daemon.stop() == 0)
  }

  @Test func aRetryAfterOutlivesAKill() async throws {
    let stream = """
      [streams.s]
      start = "always"
      http = { url = "\(upstream.url("/status/\(key)?code=429&times=1&retry=86400"))", every = "10ms" }

      """
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(stream)
    try await daemon.eventually("it says so") { daemon.log.contains("HTTP 429 Too Many Requests (Retry-After: 1 day)") }
    try await untilStored(daemon)
    await daemon.kill()
    try await daemon.start(stream)
    try await waits(daemon) { $0.contains("(Retry-After)") || $0.hasPrefix("waits until ") }
    #expect(try upstream.count(key) == 1)
    #expect(await daemon.stop() == 0)
  }
}
