import Glibc
import StreamClient
import TestSupport
import Testing

/// Polls with positions on the daemon itself: no event is lost or comes twice, whenever it is killed.
@Suite(.timeLimit(.minutes(10))) struct CursorDaemonTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  private func numbers(_ events: [StreamEvent]) -> [Int] {
    events.compactMap { Int(String(decoding: $0.data, as: UTF8.self).filter { $0 != "\n" }) }
  }

  private func telegram(_ more: String = "", jq: String = ".result[].message.number", total: Int) -> String {
    """
    [streams.s]
    jq = "\(jq)"
    start = "always"
    keep = "disk"
    replay = 10000
    retry = { first = "10ms", max = "50ms" }
    \(more)
    [streams.s.http]
    url = "\(upstream.url("/telegram/\(key)/getUpdates?total=\(total)"))"
    every = "5ms"
    cursor = { from = ".result[-1].update_id", add = 1, in = "query.offset" }
    query = { timeout = "50" }
    timeout = "70s"
    """
  }

  /// An offset confirms all updates before it, which the upstream then forgets.
  @Test func noUpdateOfTelegramIsLostOrRepeatedOverTwentyKills() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let configuration = telegram(total: 1000)
    for round in 1...20 {
      try await daemon.start(configuration)
      _ = try await daemon.events(round * 20)
      await daemon.kill()
      let told = try upstream.told(key)
      #expect(told.confirmed >= (round - 1) * 20 - 3)
    }
    try await daemon.start(configuration)
    let events = try await daemon.events(1000)
    #expect(numbers(events) == Array(1...1000))
    await daemon.kill()
  }

  @Test func anUpdateOfWhichNoEventIsMadeIsConfirmed() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let none = telegram(jq: "empty", total: 30)
    try await daemon.start(none)
    while try upstream.told(key).confirmed < 30 { try await Task.sleep(for: .milliseconds(2)) }
    await daemon.kill()
    // The position without an event is stored, too.
    try await daemon.start(telegram(total: 33))
    #expect(numbers(try await daemon.events(3)) == [31, 32, 33])
    await daemon.kill()
  }

  @Test func aReloadBeginsAtTheStartIfTheURLTheMethodOrTheCursorChanges() async throws {
    func stream(_ more: String, path: String = "?total=100") -> String {
      """
      [streams.s]
      jq = ".[]"
      start = "always"
      keep = "disk"
      replay = 10000
      http = { url = "\(upstream.url("/headed/\(key)\(path)"))", every = "1d", \(more) }
      """
    }
    let daemon = try RestartedDaemon(hasManager: false)
    let place = "header = \"X-Next\", in = \"header.X-After\""
    var expected = [1, 2, 3]
    try await daemon.start(stream("cursor = { \(place) }"))
    #expect(numbers(try await daemon.events(3)) == expected)
    // The other keys let the position stay.
    for (configuration, next) in [
      (stream("cursor = { \(place) }, headers = { A = \"b\" }"), [4, 5, 6]),
      (stream("cursor = { \(place) }, method = \"POST\", body = \"a\""), [1, 2, 3]),
      (stream("cursor = { \(place) }, method = \"POST\", body = \"b\""), [4, 5, 6]),
      (stream("cursor = { \(place), start = \"c50\" }, method = \"POST\", body = \"b\""), [51, 52, 53]),
      (stream("cursor = { \(place), start = \"c50\" }", path: "?total=200"), [51, 52, 53]),
    ] {
      try await daemon.reload(configuration)
      expected += next
      #expect(numbers(try await daemon.events(expected.count)) == expected, "\(configuration)")
    }
    await daemon.kill()
  }

  @Test func aGraphQLPostGoesOnInItsBodyAndOverAKill() async throws {
    let stream = """
      [streams.s]
      jq = ".data.orders.nodes[]"
      start = "always"
      keep = "disk"
      replay = 10000
      [streams.s.http]
      url = "\(upstream.url("/graphql/\(key)?total=100"))"
      every = "5ms"
      method = "POST"
      body = '{"query": "{ orders }", "variables": {"after": null}}'
      cursor = { from = ".data.orders.pageInfo.endCursor", in = "body./variables/after", pages = 4 }
      """
    let daemon = try RestartedDaemon(hasManager: false)
    for count in 1...20 {
      try await daemon.start(stream)
      let events = try await daemon.events(count * 5)
      #expect(numbers(events) == Array(1...count * 5))
      await daemon.kill()
    }
    // What a log has is not asked for again: a kill costs the one answer that it has not stored.
    let positions = try upstream.told(key).positions.filter { $0 != "c100" }
    #expect(Set(positions) == Set([""] + (1...33).map { "c\($0 * 3)" }) && positions.count <= 34 + 20, "\(positions)")
  }

  /// A page has the newest 30 events: no page comes twice, and no event is in none of them.
  @Test func noEventOfGitHubIsLostAndNoPageRepeatedOverTwentyKills() async throws {
    let stream = """
      [streams.s]
      start = "always"
      keep = "disk"
      replay = 10000
      http = { url = "\(upstream.url("/github/\(key)?list=1"))", every = "5ms" }
      """
    let daemon = try RestartedDaemon(hasManager: false)
    for count in 1...20 {
      try await daemon.start(stream)
      let pages = try await daemon.events(count * 3).map { event in
        String(decoding: event.data, as: UTF8.self).split(separator: "{\"id\": \"").compactMap {
          Int($0.prefix { $0.isNumber })
        }
      }
      for (page, next) in zip(pages, pages.dropFirst()) {
        #expect(next[0] > page[0] && next.last ?? 0 <= page[0] + 1, "\(page) and \(next)")
      }
      await daemon.kill()
    }
    let told = try upstream.listened(key)
    #expect(told.early == 0 && told.over == 0)
  }

  /// The stream stays failed over a kill and a restart, and a refresh begins it again.
  @Test(arguments: [false, true]) func aRequestThatIsNotRepeatedStaysSoOverRestarts(polls: Bool) async throws {
    func stream(_ body: String) -> String {
      let more = polls ? "every = \"5ms\"" : "stream = \"lines\""
      let url = upstream.url("/scripted/\(key)?do=drop")
      return """
        [streams.s]
        start = "always"
        retry = { first = "5ms", max = "5ms" }
        http = { url = "\(url)", method = "POST", body = "\(body)", idempotent = false, \(more) }
        """
    }
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    func fails(_ sentence: String) async throws {
      while try await !http(path, "GET", "/streams/$streams").body.contains(sentence) {
        try await Task.sleep(for: .milliseconds(5))
      }
    }
    for round in 0..<4 {
      try await daemon.start(stream("a"))
      try await fails(round == 0 ? "which is not repeated" : "the last request before the restart has failed")
      #expect(try upstream.asked(key).count == 1)
      if round % 2 == 0 { await daemon.kill() } else { #expect(await daemon.stop() == 0) }
    }
    try await daemon.start(stream("a"))
    try await fails("the last request before the restart has failed")
    let program = try ChildProcess(ChildProcess.built("streamctl"), ["--socket", path, "refresh", "s"])
    _ = await program.end()
    while try upstream.asked(key).count < 2 { try await Task.sleep(for: .milliseconds(5)) }
    // Another request is one that was never made.
    try await daemon.reload(stream("b"))
    while try upstream.asked(key).count < 3 { try await Task.sleep(for: .milliseconds(5)) }
    #expect(try upstream.asked(key).map { $0[2] } == ["a", "a", "b"])
    #expect(await daemon.stop() == 0)
  }
}
