import Glibc
import StreamClient
import TestSupport
import Testing

/// Where sources resume when the daemon was killed or stopped, on the daemon itself.
@Suite(.timeLimit(.minutes(10))) struct PositionTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  private func text(_ event: StreamEvent) -> String { String(decoding: event.data, as: UTF8.self) }

  @Test(arguments: ["", "jq = \"select(. % 3 > 0)\"\ndistinct = true\n"])
  func serverSentEventsAreNotLostOrRepeatedOverKillsAndStops(pipeline: String) async throws {
    let stream = """
      [streams.s]
      http = { url = "\(upstream.url("/numbers/\(key)?pause=0.002"))", stream = "sse" }
      start = "always"
      keep = "disk"
      replay = 10000
      \(pipeline)
      """
    let daemon = try RestartedDaemon(hasManager: false)
    for round in 1...4 {
      try await daemon.start(stream)
      _ = try await daemon.events(round * 100)
      if round % 2 == 0 { await daemon.kill() } else { #expect(await daemon.stop() == 0) }
    }
    try await daemon.start(stream)
    let numbers = try await daemon.events(500).map { Int(text($0)) }
    let expected = (1...2000).filter { pipeline.isEmpty || $0 % 3 > 0 }
    #expect(numbers == Array(expected.prefix(500)))
    #expect(await daemon.stop() == 0)
  }

  @Test(arguments: ["", "?tag=1"]) func aRestartDoesNotRepeatAnUnchangedPage(query: String) async throws {
    let url = upstream.url("/page/\(key)\(query)")
    func stream(_ keep: String, _ more: String = "") -> String {
      "[streams.s]\nhttp = { url = \"\(url)\", every = \"5ms\" }\nstart = \"always\"\nkeep = \"\(keep)\"\n\(more)"
    }
    func letPollsPass() async throws {
      let before = try upstream.count(key)
      while try upstream.count(key) < before + 4 { try await Task.sleep(for: .milliseconds(5)) }
    }
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(stream("disk"))
    let first = try await daemon.events(1)
    for _ in 0..<2 {
      await daemon.kill()
      try await daemon.start(stream("disk"))
      try await letPollsPass()
      #expect(try await daemon.events(1, from: .latest) == first)
    }
    // To another pipeline the page is new.
    await daemon.kill()
    try await daemon.start(stream("disk", "throttle = \"1ms\"\n"))
    #expect(try await daemon.events(2).map(text) == ["page", "page"])
    // A log that starts anew skips nothing.
    await daemon.kill()
    unlink(daemon.state + "/s.log")
    try await daemon.start(stream("disk"))
    #expect(try await daemon.events(1).map(text) == ["page"])
    await daemon.kill()
  }
}
