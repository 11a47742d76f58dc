import Events
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

/// Requests with a method and a body.
@Suite(.timeLimit(.minutes(10))) struct HTTPRequestTests {
  let upstream: Upstream
  let key = uniqueKey()
  let reports = Shared<[SourceReport]>([])

  init() throws { upstream = try Upstream.shared.get() }

  private func configuration(_ path: String, _ change: (inout HTTPConfiguration) -> Void = { _ in })
    -> HTTPConfiguration
  {
    var configuration = HTTPConfiguration(
      url: upstream.url(path), retry: Backoff(first: .milliseconds(1), max: .milliseconds(2)))
    configuration.method = .post
    configuration.body = HTTPBody(Array("{\"a\": 1}".utf8))
    change(&configuration)
    return configuration
  }

  private func note(_ report: SourceReport) { reports.withLock { $0.append(report) } }

  @Test(arguments: HTTPMethod.allCases) func aRequestHasItsMethodItsBodyAndItsType(method: HTTPMethod) async throws {
    try await withSourceThread { thread in
      for body in method == .get ? [nil] : ["", "text", String(repeating: "x", count: 1 << 20)] {
        let fetched = try await thread.fetch(upstream.url("/scripted/\(key)?do=200")) { request in
          request.method = method
          request.body = body.map { HTTPBody(Array($0.utf8), type: "text/x; a=b") }
        }
        #expect(fetched.status == 200)
        let asked = try #require(try upstream.asked(key).last)
        #expect(
          asked[0] == method.rawValue && asked[1] == (body == nil ? "-" : "text/x; a=b") && asked[2] == body ?? "")
      }
      // A POST without a body has a length, and no type.
      _ = try await thread.fetch(upstream.url("/scripted/\(key)?do=200")) { $0.method = .post }
      let head = try await thread.lastHeaders(key, at: upstream)
      #expect(head["content-length"] == "0" && head["content-type"] == nil && head["expect"] == nil)
    }
  }

  @Test(arguments: [
    (HTTPMethod.post, 301, "GET"), (.post, 302, "GET"), (.post, 303, "GET"), (.post, 307, "POST"),
    (.post, 308, "POST"), (.put, 302, "PUT"), (.put, 303, "GET"), (.query, 301, "QUERY"),
  ])
  func aRedirectChangesTheMethodAsInBrowsers(method: HTTPMethod, code: Int, then: String) async throws {
    try await withSourceThread { thread in
      let target = Upstream.redirect("a" + key, to: "/scripted/\(key)?do=200", "&code=\(code)")
      let fetched = try await thread.fetch(upstream.url(target)) { request in
        (request.method, request.body) = (method, HTTPBody(Array("b".utf8)))
      }
      #expect(fetched.text == "1\n")
      #expect(
        try upstream.asked(key).first?.prefix(3) == [
          then, then == "GET" ? "-" : "application/json", then == "GET" ? "" : "b",
        ])
    }
  }

  @Test(arguments: [false, true]) func aSecretBodyDoesNotLeaveItsOrigin(isSecret: Bool) async throws {
    try await withSourceThread { thread in
      for (code, isSent) in [(307, !isSecret), (303, true)] {
        let target = Upstream.redirect("a" + key, to: upstream.otherURL("/scripted/\(key)?do=200"), "&code=\(code)")
        let fetched = try await thread.fetch(upstream.url(target)) { request in
          (request.method, request.redirects) = (.post, .any)
          request.body = HTTPBody(Array("b".utf8), isSecret: isSecret)
        }
        let sentence = "which may not receive the body: it is for the origin of url"
        #expect(isSent ? fetched.status == 200 : fetched.failure?.hasSuffix(sentence) == true)
      }
      #expect(try upstream.asked(key).filter { $0[2] == "b" }.count == (isSecret ? 0 : 1))
    }
  }

  @Test func aPostIsPolledAndRepeatedAfterFailures() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      HTTPPoll(configuration("/scripted/\(key)?do=500,drop,cut,429,200"), every: .milliseconds(1)).source(
        on: thread, report: note
      ).subscribe(taker)
      #expect(await taker.next(2) == ["5\n", "6\n"])
      taker.cancel()
      let asked = try upstream.asked(key)
      #expect(asked.prefix(6).allSatisfy { $0.prefix(3) == ["POST", "application/json", "{\"a\": 1}"] })
    }
  }

  @Test func aPostIsNotConditional() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      HTTPPoll(configuration("/page/\(key)?tag=1"), every: .milliseconds(1)).source(on: thread, report: note)
        .subscribe(taker)
      #expect(await taker.next(1) == ["page"])
      taker.request(.max(1))
      while try await thread.seen(key, at: upstream) ?? 0 < 4 {}
      #expect(try await thread.lastHeaders(key, at: upstream)["if-none-match"] == nil)
      taker.cancel()
    }
    #expect(reports.withLock { $0 }.isEmpty)
  }

  /// The failures of which the last one is not repeated.
  @Test(arguments: ["drop", "cut", "500", "503", "429,503r,404,drop", "open"])
  func aRequestThatMayHaveActedIsNotRepeatedBeforeARefresh(script: String) async throws {
    try await withSourceThread { thread in
      for isStream in [false, true] where script != "open" || isStream {
        let key = key + (isStream ? "s" : "p")
        let configuration = configuration("/scripted/\(key)?do=\(script),\(isStream ? "line" : "200")") {
          $0.isIdempotent = false
        }
        let (refresh, taker) = (SourceRefresh(), Taker(.unlimited))
        let halted = AsyncStream.makeStream(of: String.self)
        let report: @Sendable (SourceReport) -> Void = {
          if case .halted(let sentence) = $0 { halted.continuation.yield(sentence) }
        }
        if isStream {
          HTTPStream(configuration, format: .serverSentEvents).source(on: thread, report: report) {
            $0.refresh = refresh
          }
          .subscribe(taker)
        } else {
          HTTPPoll(configuration, every: .milliseconds(1)).source(on: thread, report: report) { $0.refresh = refresh }
            .subscribe(taker)
        }
        var sentences = halted.stream.makeAsyncIterator()
        #expect(await sentences.next()?.contains("is not repeated before a refresh") == true)
        let count = script.split(separator: ",").count
        // The end of all rests, as a reload makes it, does not begin it again.
        thread.endRests()
        _ = try await thread.fetch(upstream.url("/count/x\(key)"))
        #expect(try upstream.asked(key).count == count)
        refresh.perform { #expect($0 == nil) }
        _ = await taker.next(script == "open" ? 2 : 1)
        taker.cancel()
        #expect(try upstream.asked(key).count > count)
      }
    }
  }

  @Test func aRefusedConnectionAndARegularEndAreRepeatedInAnyCase() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      HTTPStream(configuration("/scripted/\(key)?do=line") { $0.isIdempotent = false }, format: .serverSentEvents)
        .source(on: thread, report: note).subscribe(taker)
      #expect(await taker.next(3) == ["1", "2", "3"])
      taker.cancel()
      #expect(reports.withLock { $0 }.isEmpty)
      let failed = AsyncStream.makeStream(of: Duration.self)
      let refused = HTTPPoll(
        configuration("") { ($0.url, $0.isIdempotent) = ("http://127.0.0.1:1", false) }, every: .seconds(1))
      let other = Taker(.unlimited)
      refused.source(
        on: thread, report: { if case .failing(_, _, let pause) = $0 { failed.continuation.yield(pause) } }
      )
      .subscribe(other)
      var pauses = failed.stream.makeAsyncIterator()
      for _ in 0..<3 { #expect(await pauses.next() != nil) }
      other.cancel()
    }
  }

  /// libcurl sends a request once more if the connection was idle before, and ends without an answer.
  @Test func noConnectionIsUsedTwiceForARequestThatIsSentOnce() async throws {
    try await withSourceThread { thread in
      for isIdempotent in [true, false] {
        let key = key + "\(isIdempotent)"
        for _ in 0..<2 {
          _ = try await thread.fetch(upstream.url("/scripted/\(key)?do=200,drop")) { request in
            (request.method, request.body) = (.post, HTTPBody([1]))
            request.isIdempotent = isIdempotent
          }
        }
        #expect(try upstream.asked(key).count == (isIdempotent ? 3 : 2))
      }
    }
  }

  @Test func aGetHasNoBody() {
    var configuration = HTTPConfiguration(url: "http://h/")
    configuration.body = HTTPBody([])
    #expect(configuration.problems == ["body: a GET has none"])
    (configuration.method, configuration.body) = (.post, HTTPBody([], type: "a\nb"))
    #expect(configuration.problems == ["body: its type has a control character in it"])
  }

  @Test func whichFailuresMayHaveActed() {
    let cases: [(status: Int?, retryAfter: Duration?, wasSent: Bool, mayHaveActed: Bool)] = [
      (nil, nil, false, false), (nil, nil, true, true), (200, nil, true, true), (204, nil, true, true),
      (302, nil, true, false), (303, nil, true, true), (307, nil, true, false), (400, nil, true, false),
      (429, .seconds(1), true, false), (500, .seconds(1), true, true), (503, nil, true, true),
      (503, .zero, true, false), (599, nil, true, true),
    ]
    for (status, retryAfter, wasSent, expected) in cases {
      var failure = SourceFailure("x", retryAfter: retryAfter)
      (failure.status, failure.wasSent) = (status, wasSent)
      #expect(failure.mayHaveActed == expected, "\(failure)")
    }
  }
}
