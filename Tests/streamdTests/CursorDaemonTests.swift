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
    events.compactMap { Int(String(decoding: $0.data, as: UTF8.self)) }
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
      if round % 4 == 0 { #expect(await daemon.stop() == 0) } else { await daemon.kill() }
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
    for count in [10, 40, 100] {
      try await daemon.start(stream)
      let events = try await daemon.events(count)
      #expect(numbers(events) == Array(1...count))
      await daemon.kill()
    }
  }
}
