import Reactive
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct WebSocketSourceTests {
  let upstream: Upstream
  let key = uniqueKey()
  let reports = Shared<[SourceReport]>([])

  init() throws { upstream = try Upstream.shared.get() }

  private func source(
    _ query: String, at base: String? = nil, on thread: SourceThread,
    _ change: (inout WebSocketConfiguration) -> Void = { _ in }
  ) -> Source<WebSocketSource> {
    let url = (base ?? upstream.url("/websocket/\(key)")) + "?" + query
    var configuration = WebSocketConfiguration(
      HTTPConfiguration(
        url: "ws" + url.dropFirst(4), maximumBodyBytes: 100_000,
        retry: Backoff(first: .milliseconds(1), max: .milliseconds(2))))
    change(&configuration)
    return WebSocketSource(configuration).source(on: thread) { [reports] report in
      reports.withLock { $0.append(report) }
    }
  }

  private var sentences: [String] {
    reports.withLock { $0.compactMap { if case .failing(let sentence, _, _) = $0 { sentence } else { nil } } }
  }

  /// The frames that the upstream has received: number of the connection, opcode, payload.
  private func spoken(_ thread: SourceThread) async throws -> String {
    try await thread.fetch(upstream.url("/spoken/\(key)")).text
  }

  /// The first failure of a source.
  private func failure(
    _ query: String, at base: String? = nil, _ change: @Sendable (inout WebSocketConfiguration) -> Void = { _ in }
  ) async throws -> String? {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(query, at: base, on: thread, change).subscribe(taker)
      try await until { !sentences.isEmpty }
      taker.cancel()
      return sentences.first
    }
  }

  private func until(_ condition: () async throws -> Bool) async throws {
    guard try await eventually(condition) else { throw SourceFailure("hangs") }
  }

  private func hex(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  @Test func messagesOfOnePieceAreOneBatchAndTheRequestAsksForNothingElse() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source("texts=a|b", on: thread) {
        $0.request.bearer = "secret"
        $0.request.query = [HTTPQueryItem(name: "token", value: "x y")]
      }.subscribe(taker)
      #expect(await taker.next(1) == ["a|b"])
      let head = try await thread.lastHeaders(key, at: upstream)
      #expect(head["upgrade"] == "websocket" && head["connection"] == "Upgrade")
      #expect(head["sec-websocket-version"] == "13" && head["sec-websocket-extensions"] == "permessage-deflate")
      #expect(head["authorization"] == "Bearer secret" && head["path"]?.hasSuffix("texts=a|b&token=x%20y") == true)
      for name in ["expect", "transfer-encoding", "content-length", "accept-encoding", "sec-websocket-protocol"] {
        #expect(head[name] == nil, "\(name)")
      }
      taker.cancel()
      #expect(sentences.isEmpty)
    }
  }

  @Test func textsAreSentInOrderAfterEachOpening() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source("echo=1&texts=%n", on: thread) { $0.messages = ["one", "two"] }.subscribe(taker)
      var events: [String] = []
      while events.count < 3 { events += await taker.next(1)[0].split(separator: "|").map(String.init) }
      #expect(events == ["1", "one", "two"])
      taker.cancel()
      let again = Taker(.unlimited)
      source("echo=1&texts=%n", on: thread) { $0.messages = ["one", "two"] }.subscribe(again)
      events = []
      while events.count < 3 { events += await again.next(1)[0].split(separator: "|").map(String.init) }
      #expect(events == ["2", "one", "two"])
      again.cancel()
    }
  }

  @Test func aSubscriptionThatEndsClosesTheConnectionWith1000() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      source("texts=a", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["a"])
      taker.cancel()
      try await until { try await spoken(thread) == #"[[1, 8, "03e8"]]"# }
    }
  }

  @Test func pingsAreAnswered() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source("send=89026869", on: thread).subscribe(taker)
      try await until { try await spoken(thread) == #"[[1, 10, "6869"]]"# }
      taker.cancel()
    }
  }

  @Test func withoutDemandTheServerIsSlowedDownAndThenTheConnectionIsClosedUntilDemand() async throws {
    try await withSourceThread { thread in
      let message = hex([0x82, 126, 0x03, 0xe8] + [UInt8](repeating: 0x61, count: 1000))
      let taker = Taker(.max(1))
      source("repeat=" + message, on: thread) { $0.pingEvery = .milliseconds(500) }.subscribe(taker)
      _ = await taker.next(1)
      var (before, now) = (-1, try upstream.count(key))
      while now != before {  // the server waits, and is then closed
        before = now
        try await Task.sleep(for: .milliseconds(1000))
        now = try upstream.count(key)
      }
      #expect(taker.count == 1)
      let head = try await thread.lastHeaders(key, at: upstream)
      #expect(head["peers"]?.split(separator: " ").count == 1)
      taker.request(.max(1))
      _ = await taker.next(1)
      let again = try await thread.lastHeaders(key, at: upstream)
      #expect(again["peers"]?.split(separator: " ").count == 2)
      taker.cancel()
      #expect(sentences.isEmpty)
    }
  }

  @Test func aRegularCloseIsNoFailureAndTheConnectionIsMadeAgain() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source("send=\(hex([0x81, 1, 0x61, 0x88, 2, 0x03, 0xe8]))", on: thread).subscribe(taker)
      #expect(await taker.next(3) == ["a", "a", "a"])
      taker.cancel()
      #expect(sentences.isEmpty)
      // The upstream may note the answer of one connection after it has taken the next one.
      try await until {
        let frames = try await spoken(thread)
        return frames.contains(#"[1, 8, "03e8"]"#) && frames.contains(#"[2, 8, "03e8"]"#)
      }
    }
  }

  @Test func aFailureIsReportedAndItsEndToo() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source("texts=a&end=cut", on: thread).subscribe(taker)
      #expect(await taker.next(2) == ["a", "a"])
      taker.cancel()
      #expect(sentences.first == "the upstream has ended the connection without a close frame")
      #expect(reports.withLock { $0 }.contains(.recovered(afterFailures: 1)))
    }
  }

  @Test(arguments: [
    (401, "HTTP 401 Unauthorized"), (403, "HTTP 403 Forbidden"), (404, "HTTP 404 Not Found"),
    (500, "HTTP 500 Internal Server Error"), (200, "HTTP 200 instead of a WebSocket"),
    (204, "HTTP 204 No Content instead of a WebSocket"),
  ])
  func aRefusedHandshakeIsAFailureThatSaysSo(status: Int, sentence: String) async throws {
    #expect(try await failure("times=1000&code=\(status)", at: upstream.url("/status/\(key)")) == sentence)
  }

  @Test func anUpstreamThatEndsTheConnectionInPlaceOfAResponseHasFailed() async throws {
    let sentence = try await failure("sizes=none")  // the server fails
    #expect(sentence == "\(upstream.authority) did not reply with HTTP")
  }

  @Test func retryAfterIsObeyed() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source("times=1000&code=429&retry=3600", at: upstream.url("/status/\(key)"), on: thread).subscribe(taker)
      try await until { !reports.withLock { $0.isEmpty } }
      let pause: Duration? = reports.withLock {
        if case .failing("HTTP 429 Too Many Requests (Retry-After: 1 h)", 1, let pause)? = $0.first {
          pause
        } else {
          nil
        }
      }
      #expect(pause.map { $0 >= .seconds(3600) } == true)
      taker.cancel()
      thread.endRests()  // the server is used by other tests
    }
  }

  @Test(arguments: [
    ("accept=wrong", "does not have the Sec-WebSocket-Accept that belongs to the request"),
    ("head=Sec-WebSocket-Accept:%20twice", "does not have the Sec-WebSocket-Accept that belongs to the request"),
    ("head=Sec-WebSocket-Protocol:%20x", "has a subprotocol, and none was offered"),
    ("head=Sec-WebSocket-Extensions:%20x", "has a WebSocket extension that was not offered"),
  ])
  func aBadHandshakeIsAFailure(query: String, reason: String) async throws {
    #expect(try await failure("texts=a&" + query) == "the response \(reason)")
  }

  @Test func theServerMustChooseAnOfferedSubprotocol() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      source("texts=a&head=Sec-WebSocket-Protocol:%20v2", on: thread) { $0.subprotocols = ["v1", "v2"] }.subscribe(
        taker)
      #expect(await taker.next(1) == ["a"])
      let head = try await thread.lastHeaders(key, at: upstream)
      #expect(head["sec-websocket-protocol"] == "v1, v2")
      taker.cancel()
    }
    #expect(
      try await failure("texts=a") { $0.subprotocols = ["v1"] } == "the response has none of the offered subprotocols")
  }

  @Test func violationsAreAnsweredWithTheirCodes() async throws {
    for (bytes, code) in [
      ([0x81, 0x81, 0, 0, 0, 0, 0x61], "03ea"), ([0x81, 1, 0xff], "03ef"),
      ([0x82, 127, 0, 0, 0, 0, 0, 2, 0, 0], "03f1"), ([0xc1, 0], "03ea"),
    ] as [([UInt8], String)] {
      let key = uniqueKey()
      try await withSourceThread { thread in
        let taker = Taker(.unlimited)
        source("send=" + hex(bytes), at: upstream.url("/websocket/\(key)"), on: thread) {
          $0.request.retry = Backoff(first: .seconds(3600), max: .seconds(3600))
        }
        .subscribe(taker)
        let spokenAt = upstream.url("/spoken/\(key)")
        try await until { try await thread.fetch(spokenAt).text == "[[1, 8, \"\(code)\"]]" }
        taker.cancel()
      }
    }
    #expect(sentences.count == 4)
  }

  @Test(arguments: ["deflate=1", "deflate=final", "drip=1", "early=1", "deflate=1&drip=1"])
  func messagesAreReadInEveryForm(form: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source("texts=one|two|two&sizes=60000&" + form, on: thread).subscribe(taker)
      var events: [String] = []
      while events.count < 4 { events += await taker.next(1)[0].split(separator: "|").map(String.init) }
      #expect(events == ["one", "two", "two", String(repeating: "x", count: 60_000)])
      taker.cancel()
      #expect(sentences.isEmpty)
    }
  }

  @Test func compressedMessagesHaveTheSameLimitAndEachBatchNeedsDemand() async throws {
    try await withSourceThread { thread in
      // 8 messages of 90,000 bytes arrive in one piece of less than 1 KiB.
      let taker = Taker(.max(1))
      source("deflate=1&sizes=" + (0..<8).map { _ in "90000" }.joined(separator: "|"), on: thread).subscribe(taker)
      var count = await taker.next(1)[0].split(separator: "|").count
      #expect(count < 8)
      while count < 8 {
        taker.request(.max(1))
        count += await taker.next(1)[0].split(separator: "|").count
      }
      taker.cancel()
    }
    #expect(try await failure("deflate=1&sizes=50000000") == "message over 100000 B")
  }

  @Test(arguments: [false, true]) func nothingIsLostWhileNobodyWantsIt(isSecure: Bool) async throws {
    try await withSourceThread { thread in
      let sizes = (0..<40).map { "\(90_000 + $0)" }
      let base = isSecure ? upstream.trustedURL("/websocket/\(key)") : upstream.url("/websocket/\(key)")
      let taker = Taker(.max(1))
      source("sizes=" + sizes.joined(separator: "|"), at: base, on: thread) {
        $0.request.trust.authorities = upstream.file("authority.pem")
      }.subscribe(taker)
      var events: [String] = []
      while events.count < sizes.count {
        events += await taker.next(1)[0].split(separator: "|").map { "\($0.utf8.count)" }
        try await Task.sleep(for: .milliseconds(5))
        taker.request(.max(1))
      }
      #expect(events == sizes)
      taker.cancel()
      #expect(sentences.isEmpty)
    }
  }

  @Test func redirectsFollowTheRulesOfHTTP() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      let target = "/websocket/\(key)?texts=a"
      let redirect = upstream.url("/redirect/\(key)")
      source("to=" + Upstream.escaped(target), at: redirect, on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["a"])
      taker.cancel()
    }
    let elsewhere = Upstream.escaped(upstream.otherURL("/websocket/\(key)"))
    let sentence = try await failure("to=" + elsewhere, at: upstream.url("/redirect/\(key)"))
    #expect(sentence?.hasSuffix("which redirects = \"same-origin\" forbids") == true)
  }

  @Test(arguments: ["ws://", "WSS://", "//"]) func aRedirectMayNameAWebSocket(scheme: String) async throws {
    let upstream = upstream
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      let isSecure = scheme != "ws://"
      let target =
        isSecure ? upstream.trustedURL("/websocket/\(key)?texts=a") : upstream.url("/websocket/\(key)?texts=a")
      let to = Upstream.escaped(scheme + target.drop { $0 != "/" }.dropFirst(2))
      let base = isSecure ? upstream.trustedURL("/redirect/\(key)") : upstream.url("/redirect/\(key)")
      source("to=" + to, at: base, on: thread) { $0.request.trust.authorities = upstream.file("authority.pem") }
        .subscribe(taker)
      #expect(await taker.next(1) == ["a"])
      taker.cancel()
      #expect(sentences.isEmpty)
    }
  }

  /// Another port, and the same host over TLS.
  @Test(arguments: [false, true]) func whatIsSentStaysAtTheOriginOfTheURL(isSecure: Bool) async throws {
    let upstream = upstream
    let target = isSecure ? upstream.trustedURL("/websocket/\(key)") : upstream.otherURL("/websocket/\(key)")
    let changes: [@Sendable (inout WebSocketConfiguration) -> Void] = [
      { $0.messages = ["secret"] }, { $0.heartbeat = ("secret", .milliseconds(5)) },
    ]
    for change in changes {
      let sentence = try await failure(
        "to=" + Upstream.escaped(target + "?texts=a"), at: upstream.url("/redirect/a\(key)")
      ) {
        $0.request.redirects = isSecure ? .https : .any
        $0.request.trust.authorities = upstream.file("authority.pem")
        change(&$0)
      }
      let origin = try HTTPURL(target).origin
      #expect(
        sentence
          == "redirected to \(origin.scheme)://\(origin.authority), which may not receive the credentials that are sent "
          + "as messages: they are for the origin of url")
    }
    #expect(try upstream.count(key) == 0)  // it was not even asked
  }

  @Test func publicTextsFollowARedirectAndSecretsOfTheHeadDoNot() async throws {
    let upstream = upstream
    try await withSourceThread { thread in
      let target = Upstream.escaped(upstream.mutualURL("/websocket/\(key)?texts=a"))
      let untrusted = try await failure("to=" + target, at: upstream.trustedURL("/redirect/a\(key)")) {
        $0.request.redirects = .any
        $0.request.trust = HTTPTrust(
          authorities: upstream.file("authority.pem"),
          identity: HTTPIdentity(certificate: upstream.file("client.pem"), key: upstream.file("client.key")))
      }
      // How a server says that it misses the certificate depends on time.
      #expect(try untrusted != nil && upstream.count(key) == 0, "\(untrusted ?? "")")
      let taker = Taker(.unlimited)
      let other = Upstream.escaped(upstream.otherURL("/websocket/\(key)?texts=a"))
      source("to=" + other, at: upstream.url("/redirect/b\(key)"), on: thread) {
        $0.request.redirects = .any
        ($0.request.bearer, $0.request.query) = ("secret", [HTTPQueryItem(name: "token", value: "secret")])
        $0.request.headers = [HTTPHeader(name: "X-Key", value: "secret"), HTTPHeader(name: "Cookie", value: "secret")]
        ($0.messages, $0.heartbeat, $0.messagesArePublic) = (["one"], ("two", .milliseconds(5)), true)
      }.subscribe(taker)
      #expect(await taker.next(1) == ["a"])
      try await until { try await spoken(thread).hasPrefix(#"[[1, 1, "6f6e65"], [1, 1, "74776f"]"#) }
      let head = try await thread.lastHeaders(key, at: upstream)
      #expect(!head.values.contains { $0.contains("secret") }, "\(head)")
      taker.cancel()
    }
  }

  @Test func theWayIsThatOfHTTP() async throws {
    let upstream = upstream
    for (base, change) in [
      (upstream.trustedURL("/websocket/\(key)"), { $0.trust.authorities = upstream.file("authority.pem") }),
      (
        upstream.mutualURL("/websocket/\(key)"),
        {
          $0.trust.authorities = upstream.file("authority.pem")
          $0.trust.identity = HTTPIdentity(certificate: upstream.file("client.pem"), key: upstream.file("client.key"))
        }
      ),
      (upstream.url("/websocket/\(key)"), { $0.unixSocket = upstream.unixSocket }),
      (upstream.url("/websocket/\(key)"), { $0.route = .proxy(HTTPProxy(url: upstream.proxy)) }),
      (
        upstream.url("/websocket/\(key)"),
        {
          let login = HTTPLogin(user: "me", password: "proxy pass")
          $0.route = .proxy(HTTPProxy(url: upstream.lockedProxy, login: login))
        }
      ),
    ] as [(String, (inout HTTPConfiguration) -> Void)] {
      try await withSourceThread { thread in
        let taker = Taker(.unlimited)
        source("texts=a&echo=1", at: base, on: thread) {
          change(&$0.request)
          $0.messages = ["b"]
        }.subscribe(taker)
        var events: [String] = []
        while events.count < 2 { events += await taker.next(1)[0].split(separator: "|").map(String.init) }
        #expect(events == ["a", "b"])
        taker.cancel()
      }
    }
    #expect(sentences.isEmpty)
    let untrusted = try await failure("texts=a", at: upstream.secureURL("/websocket/\(key)"))
    #expect(untrusted?.hasPrefix("TLS with ") == true)
    let refused = try await failure("texts=a") { $0.request.route = .proxy(HTTPProxy(url: upstream.lockedProxy)) }
    #expect(refused != nil)
  }

  @Test func aConnectionWithoutMessagesFailsAfterTheIdleTimeout() async throws {
    let sentence = try await failure("texts=a") { $0.idleTimeout = .milliseconds(50) }
    #expect(sentence == "no message within 50 ms")
  }

  @Test func aHeartbeatIsSent() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source("texts=a", on: thread) { $0.heartbeat = ("beat", .milliseconds(5)) }.subscribe(taker)
      let beat = #"[1, 1, "62656174"]"#
      try await until { try await spoken(thread).hasPrefix("[\(beat), \(beat), \(beat)") }
      taker.cancel()
    }
  }

  @Test func floodsOfPingsAndEmptyFragmentsBlockNoOtherSource() async throws {
    try await withSourceThread { thread in
      let (pings, fragments) = (uniqueKey(), uniqueKey())
      let flooded = [Taker(.unlimited), Taker(.unlimited)]
      let ping = hex([UInt8]((0..<1000).flatMap { _ in [0x89, 0] as [UInt8] }))
      let fragment = hex([0x01, 0] + [UInt8](repeating: 0, count: 4000))
      source("repeat=" + ping, at: upstream.url("/websocket/\(pings)"), on: thread).subscribe(flooded[0])
      source("repeat=" + String(fragment.dropFirst(4)), at: upstream.url("/websocket/\(fragments)"), on: thread) {
        $0.request.retry = Backoff(first: .milliseconds(1), max: .milliseconds(1))
      }.subscribe(flooded[1])
      try await until { try upstream.count(pings) > 100 && upstream.count(fragments) > 1 }
      let taker = Taker(.max(1))
      source("texts=a", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["a"])
      for taker in flooded + [taker] { taker.cancel() }
    }
  }
}
