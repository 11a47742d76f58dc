import StreamProtocol
import Testing

@testable import streamd

/// What identifies a stream's definition among the hosts of a fleet.
struct DefinitionDigestTests {
  private static let poll = Configuration.HTTP(url: "http://h/", fetching: .poll(every: .seconds(1)))

  private func digest(
    _ source: Configuration.Source, _ change: (inout Configuration.Stream) -> Void = { _ in }
  ) -> UInt64 {
    var stream = Configuration.Stream(name: "s", source: source)
    change(&stream)
    return stream.definitionDigest
  }

  private func digest(_ change: (inout Configuration.HTTP) -> Void) -> UInt64 {
    var http = Self.poll
    change(&http)
    return digest(.http(http))
  }

  /// Another version of the daemon, or a host of another kind, must have the same ones: a change here would prevent the
  /// hosts of a fleet from leading each other's streams during an upgrade.
  @Test func digestsAreStable() {
    var all = Configuration.HTTP(url: "https://h/?a=b", fetching: .stream(.serverSentEvents, idleTimeout: .seconds(9)))
    all.eventForm = .envelope
    all.maxBodyBytes = 1000
    all.headers = [
      .init(name: "B", value: .plain("x")), .init(name: "A", value: .secret(Secret(name: "k", content: "?"))),
    ]
    all.query = [.init(name: "q", value: .plain("é"))]
    all.authorization = .basic(.init(user: "me", password: Secret(name: "p", content: "?")))
    all.unixSocket = "/s"
    all.settings.userAgent = "me/1"
    all.settings.redirects = .any
    let exec = Configuration.Exec(
      command: ["sensor", "--json"], environment: [.init(name: "T", value: .plain(""))], maxLineBytes: 7)
    #expect(digest(.timer(.init(every: .milliseconds(1500)))) == 0xbaec_30d1_0ede_6fe4)
    #expect(digest(.publish) == 0x296b_c2e2_bfe3_028c)
    #expect(digest(.http(Self.poll)) == 0xf449_92e9_f0cb_6821)
    #expect(digest(.http(all)) == 0xa823_c1fa_310b_1020)
    let transformed = digest(.exec(exec)) { ($0.jq, $0.distinct, $0.throttle) = (".a", .by(".b"), .seconds(1)) }
    #expect(transformed == 0xcff0_95a7_1762_1cd0)
  }

  @Test func everythingThatDecidesTheEventsChangesIt() {
    let (token, other) = (Secret(name: "a", content: "x"), Secret(name: "b", content: "x"))
    var digests: [UInt64] = [
      digest(.publish), digest(.timer(.init(every: .seconds(1)))), digest(.timer(.init(every: .seconds(2)))),
      digest(.http(Self.poll)),
      digest { $0.url = "https://h/" },
      digest { $0.fetching = .poll(every: .seconds(2)) },
      digest { $0.fetching = .stream(.serverSentEvents, idleTimeout: nil) },
      digest { $0.fetching = .stream(.lines, idleTimeout: nil) },
      digest { ($0.fetching, $0.eventForm) = (.stream(.serverSentEvents, idleTimeout: nil), .envelope) },
      digest { $0.maxBodyBytes = 1 << 20 },
      digest { $0.headers = [.init(name: "X", value: .plain("a"))] },
      digest { $0.headers = [.init(name: "X", value: .plain("b"))] },
      digest { $0.headers = [.init(name: "X", value: .secret(token))] },
      digest { $0.headers = [.init(name: "X", value: .secret(other))] },
      digest { $0.query = [.init(name: "X", value: .plain("a"))] },
      digest { $0.query = [.init(name: "X", value: .secret(token))] },
      digest { $0.authorization = .bearer(token) },
      digest { $0.authorization = .bearer(other) },
      digest { $0.authorization = .basic(.init(user: "u", password: token)) },
      digest { $0.authorization = .basic(.init(user: "v", password: token)) },
      digest { $0.authorization = .basic(.init(user: "u", password: other)) },
      digest { $0.unixSocket = "/s" },
      digest { $0.settings.userAgent = "me/1" },
      digest { $0.settings.redirects = .any },
      digest(.exec(.init(command: ["a", "b"]))), digest(.exec(.init(command: ["a b"]))),
      digest(.exec(.init(command: ["a"]))),
      digest(.exec(.init(command: ["a"], environment: [.init(name: "T", value: .plain("1"))]))),
      digest(.exec(.init(command: ["a"], environment: [.init(name: "T", value: .plain("2"))]))),
      digest(.exec(.init(command: ["a"], environment: [.init(name: "T", value: .secret(token))]))),
      digest(.exec(.init(command: ["a"], maxLineBytes: 2 << 20))),
      digest(.journal(.init())), digest(.journal(.init(matches: ["A=b"]))), digest(.journal(.init(directory: "/d"))),
      digest(.journal(.init(maxBodyBytes: 1))),
      digest(.exec(.init(command: ["a"], every: .seconds(1)))),
      digest(.exec(.init(command: ["a"], every: .seconds(1), hasLines: false))),
      digest(.exec(.init(command: ["a"], every: .seconds(2), hasLines: false))),
      digest(.exec(.init(command: ["a"], every: .seconds(1), hasLines: false, maxBodyBytes: 1))),
    ]
    let sockets: [(inout Configuration.WebSocket) -> Void] = [
      { _ in }, { $0.http.url = "wss://b/" }, { $0.messages = [.init(text: .plain("a"))] },
      { $0.messages = [.init(text: .plain("b"))] },
      { $0.messages = [.init(text: .plain("a"), after: ".a")] },
      { $0.messages = [.init(text: .plain("a"), after: ".b")] }, { $0.answers = [.init(to: ".a", with: ".b")] },
      { $0.answers = [.init(to: ".a", with: ".c")] }, { $0.ignored = ["a"] }, { $0.ignored = ["b"] },
      { $0.messages = [.init(text: .secret(token))] }, { $0.messages = [.init(text: .secret(other))] },
      { $0.subprotocols = ["a"] },
      { $0.heartbeat = .init(text: .plain("a"), every: .seconds(1)) },
      { $0.heartbeat = .init(text: .plain("a"), every: .seconds(2)) }, { $0.http.maxBodyBytes = 1 },
      { $0.http.headers = [.init(name: "X", value: .plain("a"))] }, { $0.http.authorization = .bearer(token) },
    ]
    digests += sockets.map { change in
      var socket = Configuration.WebSocket()
      change(&socket)
      return digest(.webSocket(socket))
    }
    let filter = try? EventFilter(.init("/a", .equals(1)))
    let peers: [(inout Configuration.Peer) -> Void] = [
      { _ in }, { $0.address = .unix("/b") }, { $0.stream = "a" }, { $0.filter = filter }, { $0.token = token },
      { $0.maxEventBytes = 1 },
    ]
    digests += peers.map { change in
      var peer = Configuration.Peer()
      change(&peer)
      return digest(.peer(peer))
    }
    let pipelines: [(inout Configuration.Stream) -> Void] = [
      { $0.jq = "." }, { $0.jq = ".a" }, { $0.distinct = .whole }, { $0.distinct = .by("true") },
      { $0.distinct = .by(".") },
      { $0.throttle = .seconds(1) }, { $0.throttle = .milliseconds(1) }, { $0.validate = .json },
    ]
    digests += pipelines.map { digest(.publish, $0) }
    #expect(Set(digests).count == digests.count)
  }

  @Test func whatMayDifferBetweenHostsDoesNotChangeIt() {
    let changes: [(inout Configuration.Stream) -> Void] = [
      { $0.name = "other" }, { $0.description = "x" }, { $0.type = "text/plain" }, { $0.replay = 7 },
      { $0.buffer = .init(events: 1, bytes: 4096, age: .seconds(1)) }, { $0.start = .always }, { $0.linger = .zero },
      { $0.expectEvery = .seconds(9) },
      { $0.onLag = .fail }, { $0.retry = .init(first: .seconds(2), max: .seconds(3)) }, { $0.keep = .disk },
      { $0.map = true }, { $0.share = .fleet }, { $0.lead = false }, { $0.read = [.user(1)] },
      { $0.write = [.user(1)] },
    ]
    for (index, change) in changes.enumerated() {
      #expect(digest(.http(Self.poll), change) == digest(.http(Self.poll)), "change \(index)")
    }
    let plain = digest(.http(Self.poll))
    #expect(digest { $0.timeout = .seconds(1) } == plain)
    #expect(digest { $0.settings.proxy = .server("http://p", nil) } == plain)
    #expect(digest { $0.settings.authorities = "/ca.pem" } == plain)
    #expect(digest { $0.settings.identity = .init(certificate: "/c", key: "/k") } == plain)
    #expect(
      digest { $0.fetching = .stream(.lines, idleTimeout: .seconds(1)) }
        == digest { $0.fetching = .stream(.lines, idleTimeout: nil) })
    let timer = Configuration.Timer(every: .seconds(2), leeway: .seconds(1))
    #expect(digest(.timer(timer)) == digest(.timer(.init(every: .seconds(2)))))
    var socket = Configuration.WebSocket()
    (socket.pingEvery, socket.idleTimeout, socket.http.timeout) = (.seconds(1), .seconds(2), .seconds(3))
    #expect(digest(.webSocket(socket)) == digest(.webSocket(.init())))
    // As the defaults are.
    #expect(digest { $0.maxBodyBytes = 8 << 20 } == plain)
    #expect(digest(.exec(.init(command: ["a"], maxLineBytes: 1 << 20))) == digest(.exec(.init(command: ["a"]))))
    let often = Configuration.Exec(command: ["a"], every: .seconds(1), hasLines: false)
    let slow = Configuration.Exec(
      command: ["a"], every: .seconds(1), hasLines: false, timeout: .seconds(99), maxBodyBytes: 8 << 20)
    #expect(digest(.exec(slow)) == digest(.exec(often)))
  }

  @Test func theContentOfASecretDoesNotChangeIt() {
    func digests(_ content: String) -> [UInt64] {
      let secret = Secret(name: "token", content: content)
      return [
        digest { $0.authorization = .bearer(secret) },
        digest { $0.authorization = .basic(.init(user: "u", password: secret)) },
        digest { $0.headers = [.init(name: "X", value: .secret(secret))] },
        digest { $0.query = [.init(name: "X", value: .secret(secret))] },
        digest(.exec(.init(command: ["a"], environment: [.init(name: "T", value: .secret(secret))]))),
      ]
    }
    #expect(digests("old") == digests("new"))
  }

  /// A table on one line is read in the order of its keys, and on several in the order of the lines.
  @Test func theOrderOfATableDoesNotChangeIt() throws {
    let head = "[streams.s.http]\nurl = \"http://h\"\nevery = \"1s\"\n"
    let one = try parse(head + "headers = { B = \"1\", A = \"2\" }\nquery = { b = \"1\", a = \"2\" }")
    let two = try parse(
      head + "[streams.s.http.query]\nb = \"1\"\na = \"2\"\n[streams.s.http.headers]\nB = \"1\"\nA = \"2\"")
    #expect(one.streams != two.streams)
    #expect(one.streams[0].definitionDigest == two.streams[0].definitionDigest)
  }
}
