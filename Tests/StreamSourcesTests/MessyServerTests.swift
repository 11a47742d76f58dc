import Events
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

/// Servers and proxies that send what no request has asked for, or never end what they send.
@Suite(.timeLimit(.minutes(10))) struct MessyServerTests {
  private let address = uniqueAddress()
  private let listener: LineListener

  init() throws { listener = LineListener(try TCPSocket.listen(on: address)) }

  private var place: String { "\(address.host):\(address.port)" }

  private func response(_ body: String, _ status: String = "200 OK", length: Int? = nil) -> String {
    "HTTP/1.1 \(status)\r\nContent-Length: \(length ?? body.utf8.count)\r\n\r\n\(body)"
  }

  /// The next request on a connection.
  private func request(_ peer: LinePeer) async throws -> String {
    var text = ""
    while !text.hasSuffix("\r\n\r\n") {
      let byte = try await peer.receive(1)
      guard !byte.isEmpty else { throw SourceFailure("the connection has ended after \(text)") }
      text += byte
    }
    return text
  }

  @Test(arguments: [
    "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond", "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n",
    "rest",
  ])
  func whatComesBetweenTwoResponsesIsTheResponseToNoRequest(surplus: String) async throws {
    try await withSourceThread { thread in
      async let first = thread.fetch("http://\(place)/a")
      let peer = try await listener.accept()
      _ = try await request(peer)
      try await peer.send(response("a"))
      #expect(try await first.text == "a")
      try await peer.send(surplus)
      async let second = thread.fetch("http://\(place)/b")
      let other = try await listener.accept()
      #expect(try await request(other).hasPrefix("GET /b "))
      try await other.send(response("b"))
      #expect(try await second.text == "b")
      // The connection that is as it should be stays.
      async let third = thread.fetch("http://\(place)/c")
      #expect(try await request(other).hasPrefix("GET /c "))
      try await other.send(response("c"))
      #expect(try await third.text == "c")
    }
  }

  @Test(arguments: [5, 7]) func twoLengthsOfABodyAreAFailureUnlessTheyAreTheSame(other: Int) async throws {
    try await withSourceThread { thread in
      async let fetched = thread.fetch("http://\(place)/")
      let peer = try await listener.accept()
      _ = try await request(peer)
      try await peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: \(other)\r\n\r\nabcde")
      #expect(try await fetched.failure == (other == 5 ? nil : "the response has two different Content-Length fields"))
    }
  }

  @Test func aProxyWhoseAnswerDoesNotEndFailsAndHoldsUpNobody() async throws {
    try await withSourceThread { thread in
      let proxy = HTTPProxy(url: "http://\(place)")
      async let fetched = thread.fetch("https://upstream.invalid/") { $0.route = .proxy(proxy) }
      let peer = try await listener.accept()
      _ = try await request(peer)
      try await peer.send(response("", "407 Proxy Authentication Required", length: 99_999_999_999))
      try? await peer.send(String(repeating: "x", count: 10_000_000))
      #expect(try await fetched.failure == "more than 64 KiB came before the response")
    }
  }

  @Test(arguments: [
    ("", "the proxy PLACE closed the connection before the response was complete"),
    ("junk\r\n", "the proxy PLACE closed the connection before the response was complete"),
    ("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "the proxy PLACE answered HTTP 503 Service Unavailable"),
  ])
  func aProxyThatMakesNoTunnelIsNamed(answer: String, sentence: String) async throws {
    try await withSourceThread { thread in
      let proxy = HTTPProxy(url: "http://\(place)")
      async let fetched = thread.fetch("https://upstream.invalid/") { $0.route = .proxy(proxy) }
      var peer: LinePeer? = try await listener.accept()
      _ = try await request(peer!)
      try await peer!.send(answer)
      peer = nil  // closes it
      #expect(try await fetched.failure == sentence.replacing("PLACE", with: place))
    }
  }

  @Test func aHeaderLineMayBeTooLong() async throws {
    try await withSourceThread { thread in
      async let fetched = thread.fetch("http://\(place)/")
      let peer = try await listener.accept()
      _ = try await request(peer)
      try? await peer.send(
        "HTTP/1.1 200 OK\r\nContent-Security-Policy: \(String(repeating: "x", count: 150_000))\r\n\r\n")
      #expect(try await fetched.failure == "a header line of \(place) is over 100 KiB")
    }
  }

  /// The body of a refusal may go on for ever.
  @Test(arguments: ["401 Unauthorized", "429 Too Many Requests", "206 Partial Content"])
  func aRefusalWithoutAnEndIsAStatus(status: String) async throws {
    try await withSourceThread { thread in
      async let fetched = thread.fetch("http://\(place)/", plan: .discard) { $0.isEndless = true }
      let peer = try await listener.accept()
      _ = try await request(peer)
      try await peer.send(response("<html>", status, length: 1000))
      #expect(try await fetched.status.map { "\($0)" } == String(status.prefix(3)))
      try await peer.waitForEnd()
    }
  }

  @Test func aRefusalThatIsCutOffIsAStatus() async throws {
    try await withSourceThread { thread in
      async let fetched = thread.fetch("http://\(place)/", plan: .discard)
      var peer: LinePeer? = try await listener.accept()
      _ = try await request(peer!)
      try await peer!.send(response("<html>", "404 Not Found", length: 1000))
      peer = nil
      #expect(try await fetched.status == 404)
    }
  }

  @Test func aStreamThatIsCancelledHasNotFailed() async throws {
    let reports = Shared<[SourceReport]>([])
    try await withSourceThread { thread in
      let taker = Taker(.unlimited) { taker in
        taker.cancel()
        return .none
      }
      HTTPStream(HTTPConfiguration(url: "http://\(place)/"), format: .lines).source(on: thread) { report in
        reports.withLock { $0.append(report) }
      }.subscribe(taker)
      let peer = try await listener.accept()
      _ = try await request(peer)
      try await peer.send(response("1\n", length: 1000))
      #expect(await taker.next(1) == ["1"])
      try await peer.waitForEnd()
    }
    #expect(reports.withLock { $0.map { "\($0)" } } == [])
  }
}
