import TestSupport
import Testing

@testable import streamd

/// `websocket`.
struct ConfigurationWebSocketTests {
  private let folder: TemporaryFolder

  init() throws { folder = try TemporaryFolder(["login": "{\"op\":\"login\",\n\"key\":\"s3cret\"}\n", "token": "t"]) }

  private func errors(in more: String) -> [String] {
    errors(of: "url = \"wss://h/ws\"\n\(more)")
  }

  private func errors(of section: String) -> [String] {
    streamdTests.errors("[streams.s.websocket]\n\(section)", credentials: folder.path)
  }

  @Test func itHasTheKeysOfARequestAndItsOwn() throws {
    let configuration = try parse(
      """
      [http]
      user_agent = "me/1"
      [streams.s.websocket]
      url = "wss://h/ws"
      send = [
        '{"op":"subscribe"}', { credential = "login" }, { text = "x", after = ".ack" },
        { text = { credential = "token" }, after = '.type == "ack"' },
      ]
      answer = [{ to = ".ping", with = "{pong: .ping}" }]
      ignore = ["pong"]
      subprotocols = ["v2.example", "v1"]
      heartbeat = { send = "ping", every = "20s" }
      ping_every = "1s"
      idle_timeout = "60s"
      timeout = "5s"
      max_body = "1MiB"
      headers = { Origin = "https://h" }
      query = { a = "b" }
      bearer = { credential = "token" }
      proxy = "none"
      [streams.t]
      websocket.url = "ws://h"
      """, credentials: folder.path)
    var socket = Configuration.WebSocket()
    socket.http.url = "wss://h/ws"
    let login = Secret(name: "login", content: "{\"op\":\"login\",\n\"key\":\"s3cret\"}")
    let token = Secret(name: "token", content: "t")
    socket.messages = [
      .init(text: .plain("{\"op\":\"subscribe\"}")), .init(text: .secret(login)),
      .init(text: .plain("x"), after: ".ack"), .init(text: .secret(token), after: ".type == \"ack\""),
    ]
    socket.answers = [.init(to: ".ping", with: "{pong: .ping}")]
    socket.ignored = ["pong"]
    socket.subprotocols = ["v2.example", "v1"]
    socket.heartbeat = .init(text: .plain("ping"), every: .seconds(20))
    (socket.pingEvery, socket.idleTimeout, socket.http.timeout) = (.seconds(1), .seconds(60), .seconds(5))
    socket.http.maxBodyBytes = 1 << 20
    socket.http.headers = [.init(name: "Origin", value: .plain("https://h"))]
    socket.http.query = [.init(name: "a", value: .plain("b"))]
    socket.http.authorization = .bearer(Secret(name: "token", content: "t"))
    (socket.http.settings.userAgent, socket.http.settings.proxy) = ("me/1", .none)
    #expect(configuration.streams[0].source == .webSocket(socket))
    #expect(configuration.streams.map(\.source.kind) == ["websocket", "websocket"])
    #expect(configuration.streams[0].source.section.eventLimit?.key == "websocket.max_body")
  }

  @Test(arguments: [
    ("send = \"text\"", ".send: expected a list, got a string"),
    ("send = [5]", ".send: expected a text of 1 to 65536 bytes, got a number"),
    ("send = [\"\"]", ".send: expected a text of 1 to 65536 bytes, got a string"),
    (
      "send = [\"\(String(repeating: "a", count: 70_000))\"]",
      ".send: expected a text of 1 to 65536 bytes, got a string of 70000 bytes"
    ),
    ("send = [{}]", ".send: expected { credential = \"name\" }, got no credential"),
    (
      "send = [{ credential = \"none\" }]",
      ".send.credential: the credential \"none\" cannot be read: No such file or directory; "
        + "the unit passes it with LoadCredential=none in [Service] (systemctl edit streamd), after a restart"
    ),
    ("send = [{ after = \".\" }]", ".send: expected text, got none"),
    ("send = [{ text = \"\" }]", ".send.text: expected a text of 1 to 65536 bytes, got a string"),
    (
      "send = [{ text = \"a\", after = \".a[\" }]",
      ".send.after: not a jq program: syntax error, unexpected $end"
    ),
    (
      "send = [{ text = \"a\", after = \"\" }]",
      ".send.after: expected a jq program such as '.type == \"connection_ack\"', got \"\""
    ),
    ("answer = { to = \".a\", with = \".b\" }", ".answer: expected a list, got a table"),
    ("answer = [5]", ".answer: expected a list of { to = \"program\", with = \"program\" }, got an array"),
    ("answer = [{ to = \".a\" }]", ".answer: expected with, got none"),
    (
      "answer = [{ to = \".a\", with = \"{\" }]", ".answer.with: not a jq program: syntax error, unexpected $end"
    ),
    (
      "answer = [{ to = \".a\", with = \".b\", after = \".\" }]",
      ".answer.after: unknown key; expected one of: to, with"
    ),
    ("ignore = \"pong\"", ".ignore: expected a list, got \"pong\""),
    ("send = [{ credential = \"token\", x = 1 }]", ".send.x: unknown key; expected one of: after, credential, text"),
    ("subprotocols = [\"a b\"]", ".subprotocols: expected the name of a subprotocol, got \"a b\""),
    ("subprotocols = [\"a\", \"a\"]", ".subprotocols: expected each subprotocol once"),
    ("heartbeat = \"ping\"", ".heartbeat: expected { send = \"text\", every = \"20s\" }, got a string"),
    ("heartbeat = { send = \"ping\" }", ".heartbeat: expected every, got none"),
    (
      "heartbeat = { send = 5, every = \"1s\" }",
      ".heartbeat.send: expected a string or { credential = \"name\" }, got a number"
    ),
    (
      "heartbeat = { send = \"a\", every = \"1ms\" }",
      ".heartbeat.every: expected a duration from 1s to 365d, got \"1ms\""
    ),
    ("ping_every = \"999ms\"", ".ping_every: expected a duration from 1s to 365d, got \"999ms\""),
    ("ping_evry = \"9s\"", ".ping_evry: unknown key; did you mean \"ping_every\"?"),
    ("headers = { Upgrade = \"x\" }", ".headers: expected no header Upgrade: it belongs to the handshake"),
    ("headers = { Content-Length = \"5\" }", ".headers: expected no Content-Length: it follows from the body"),
    ("headers = { Accept = \"x\", accept = \"y\" }", ".headers: expected a header once, got Accept and accept"),
    (
      "headers = { sec-websocket-Key = \"x\" }",
      ".headers: expected no header sec-websocket-Key: it belongs to the handshake"
    ),
    (
      "headers = { Sec-WebSocket-Protocol = \"x\" }",
      ".headers: expected subprotocols in place of the header Sec-WebSocket-Protocol"
    ),
    (
      "stream = \"sse\"",
      ".stream: unknown key; stream belongs in [streams.s.exec] or in [streams.s.http] or in [streams.s.streamd]"
    ),
  ])
  func errorsHaveLineAndKey(text: String, sentence: String) {
    #expect(errors(in: text) == ["test.toml:3: streams.s.websocket\(sentence)"])
  }

  @Test func theURLHasAWebSocketsScheme() {
    let form = "expected a URL such as \"wss://stream.example.org/\", got"
    #expect(errors(of: "url = \"https://h/\"") == ["test.toml:2: streams.s.websocket.url: \(form) \"https://h/\""])
    #expect(
      errors(of: "url = \"wss://u:p@h/\"") == [
        "test.toml:2: streams.s.websocket.url: expected a URL without a user or password; "
          + "use basic, bearer, headers or query with a credential"
      ])
    #expect(
      errors(of: "").first
        == "test.toml:1: streams.s.websocket: expected url, such as url = \"wss://stream.example.org/\", got none")
  }

  @Test func aMessageMustFitIntoTheBuffer() {
    let text = "[streams.s]\nbuffer = { bytes = \"1MiB\" }\nwebsocket = { url = \"ws://h\", max_body = \"2MiB\" }\n"
    #expect(streamdTests.errors(text).first?.contains("expected websocket.max_body of at most buffer.bytes") == true)
  }

  @Test func severalSourcesSplitTextsOfJSON() throws {
    let configuration = try parse(
      """
      [streams]
      a.websocket = { url = "ws://h", split = "json" }
      b.http = { url = "http://h", every = "1s", split = "json" }
      c.socket = { address = "udp:127.0.0.1:5000", split = "json" }
      d.exec = { command = ["true"], split = "json" }
      e.websocket = { url = "ws://h" }
      f.socket = { address = "udp:127.0.0.1:5001", split = "lines" }
      """)
    #expect(configuration.streams.map(\.source.section.splitsTexts) == [true, true, true, true, false, false])
    #expect(
      errors(in: "split = \"lines\"") == [
        "test.toml:3: streams.s.websocket.split: expected \"none\" or \"json\", got \"lines\""
      ])
  }
}
