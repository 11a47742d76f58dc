import StreamClient
import TestSupport
import Testing

/// The built binary with WebSockets as its sources.
@Suite(.timeLimit(.minutes(10))) struct WebSocketDaemonTests {
  private let upstream: Upstream
  private let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  private func text(_ event: StreamEvent) -> String { String(decoding: event.data, as: UTF8.self) }

  private func url(_ query: String) -> String {
    "ws" + upstream.url("/websocket/\(key)?\(query)").dropFirst(4)
  }

  @Test func aHundredSubscribersCostOneConnection() async throws {
    let daemon = try await DaemonProcess(
      """
      [streams.s]
      type = "text/plain"
      websocket = { url = "\(url("echo=1"))", send = ["one", "two"] }
      replay = 10
      """)
    #expect(try upstream.count(key) == 0)
    let connection = try StreamConnection(socket: daemon.socket)
    for _ in 0..<100 {
      var events = connection.stream("s").values.makeAsyncIterator()
      for value in ["one", "two"] { #expect(try await events.next().map(text) == value) }
    }
    var catalogue = connection.stream("$streams").values.makeAsyncIterator()
    let row = try #require(try await catalogue.next().map(text))
    #expect(row.contains(#""source":"websocket""#), "\(row)")
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(try upstream.count(key) == 1)
    #expect(!daemon.log.contains("failing"))
  }

  @Test func eachTextOfAMessageIsAnEventIfThatIsConfigured() async throws {
    let message = #"{\"t\":1}\u001E{\"t\":2}\u001E"#
    let daemon = try await DaemonProcess(
      """
      [streams.s]
      websocket = { url = "\(url("echo=1"))", send = ["\(message)"], split = "json" }
      jq = ".t"
      replay = 10
      [streams.whole]
      websocket = { url = "\(url("echo=1"))", send = ["\(message)", "3"] }
      jq = "."
      replay = 10
      """)
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("s").values.makeAsyncIterator()
    for value in ["1", "2"] { #expect(try await events.next().map(text) == value) }
    var whole = connection.stream("whole").values.makeAsyncIterator()
    #expect(try await whole.next().map(text) == "3")
    #expect(try await daemon.logs("whole: event failed: more than one JSON text; split = \"json\""))
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(!daemon.log.contains(" s: event failed"))
  }

  @Test func aFailureAndItsEndAreInTheJournalAndInTheCatalogue() async throws {
    let daemon = try await DaemonProcess(
      """
      [streams.s]
      type = "text/plain"
      websocket = { url = "\(url("texts=%n&head=Sec-WebSocket-Protocol:%20v1"))" }
      retry = { first = "10ms", max = "20ms" }
      """)
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("s").values.makeAsyncIterator()
    let next = Task { try await events.next() }
    var catalogue = connection.stream("$streams").values.makeAsyncIterator()
    while let row = try await catalogue.next().map(text), !row.contains("a subprotocol, and none was offered") {}
    next.cancel()
    #expect(try await daemon.logs("s: source failing: the response has a subprotocol, and none was offered;"))
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func credentialsOfMessagesGoToNoOtherOrigin() async throws {
    let folder = try TemporaryFolder(["message": "s3cret"])
    let redirect = Upstream.redirect("a" + key, to: "ws" + upstream.otherURL("/websocket/\(key)?echo=1").dropFirst(4))
    func stream(_ name: String, _ more: String) -> String {
      """
      [streams.\(name)]
      type = "text/plain"
      websocket = { url = "ws\(upstream.url(redirect).dropFirst(4))", redirects = "any", \(more) }
      replay = 10
      """
    }
    let secret = "{ credential = \"message\" }"
    let daemon = try await DaemonProcess(
      [
        stream("sends", "send = [\"plain\", \(secret)]"),
        stream("beats", "heartbeat = { send = \(secret), every = \"1s\" }"), stream("plain", "send = [\"plain\"]"),
      ].joined(separator: "\n"), environment: ["CREDENTIALS_DIRECTORY=\(folder.path)"])
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("plain").values.makeAsyncIterator()
    #expect(try await events.next().map(text) == "plain")
    for name in ["sends", "beats"] {
      var events = connection.stream(name).values.makeAsyncIterator()
      let next = Task { try await events.next() }
      #expect(try await daemon.logs("\(name): source failing: redirected to http://127.0.0.1:"))
      next.cancel()
    }
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(try upstream.count(key) == 1 && !daemon.log.contains("s3cret"))
  }

  /// The text of a message that waits may be a credential; its stream has a type of JSON, which what is ignored is not.
  @Test func aConversationIsKeptOnEachConnection() async throws {
    let subscription = #"{"id":"1","type":"subscribe","payload":{"query":"subscription { x }"}}"#
    let folder = try TemporaryFolder(["subscription": subscription])
    func place(_ service: String) -> String { url("service=\(service)") }
    let daemon = try await DaemonProcess(
      """
      [streams.graphql]
      validate = "json"
      jq = 'select(.type == "next") | .payload.data.x'
      replay = 10
      [streams.graphql.websocket]
      url = "\(place("graphql"))"
      send = [
        '{"type":"connection_init"}',
        { text = { credential = "subscription" }, after = '.type == "connection_ack"' },
      ]
      answer = [{ to = '.type == "ping"', with = '{type: "pong"}' }]
      [streams.okx]
      validate = "json"
      jq = ".data[]"
      replay = 10
      websocket = { url = "\(place("okx"))", send = ['{"op":"subscribe"}', "ping"], ignore = ["pong"] }
      """, environment: ["CREDENTIALS_DIRECTORY=\(folder.path)"])
    let connection = try StreamConnection(socket: daemon.socket)
    for name in ["graphql", "okx"] {
      var events = connection.stream(name).values.makeAsyncIterator()
      for _ in 0..<2 { #expect(Int(text(try #require(await events.next()))) != nil) }
    }
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(!daemon.log.contains("failing") && !daemon.log.contains("failed"), "\(daemon.log)")
  }
}
