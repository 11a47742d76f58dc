import Events
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct HTTPPollTests {
  let upstream: Upstream
  let key = uniqueKey()
  let reports = Shared<[SourceReport]>([])

  init() throws { upstream = try Upstream.shared.get() }

  func poll(
    _ path: String, every: Duration = .milliseconds(2), on thread: SourceThread,
    _ change: (inout HTTPConfiguration) -> Void = { _ in }
  ) -> Source<HTTPPoll> {
    var configuration = HTTPConfiguration(
      url: upstream.url(path),
      retry: Backoff(first: .milliseconds(1), max: .milliseconds(2)))
    change(&configuration)
    let reports = reports
    return HTTPPoll(configuration, every: every).source(on: thread) { report in reports.withLock { $0.append(report) } }
  }

  /// Waits until another source on the same thread has fetched this many times: long enough for a wrong fetch
  /// to be made. It uses another host, so it does not affect the test's own.
  func letTicksPass(_ count: Int, on thread: SourceThread) async {
    let taker = Taker(.unlimited)
    poll("", on: thread) { [url = upstream.otherURL("/count/clock\(key)")] in $0.url = url }.subscribe(taker)
    _ = await taker.next(count)
    taker.cancel()
  }

  /// The sentences of all failures reported so far.
  var sentences: [String] {
    reports.withLock { reports in
      reports.compactMap { if case .failing(let sentence, _, _) = $0 { sentence } else { nil } }
    }
  }

  @Test func eachFetchIsABatchOfOneUnchangedEvent() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      poll("/count/\(key)", on: thread).subscribe(taker)
      #expect(await taker.next(5) == ["1\n", "2\n", "3\n", "4\n", "5\n"])
      taker.cancel()
      #expect(reports.withLock { $0 }.isEmpty)
    }
  }

  @Test func eachAttemptIsToldWithItsAnswerItsBytesAndTheNextOne() async throws {
    try await withSourceThread { thread in
      let told = Shared<[SourceProgress]>([])
      let configuration = HTTPConfiguration(url: upstream.url("/count/\(key)"))
      let taker = Taker(.max(2))
      HTTPPoll(configuration, every: .milliseconds(2)).source(
        on: thread, with: { $0.progress = { progress in told.withLock { $0.append(progress) } } }
      ).subscribe(taker)
      #expect(await taker.next(2) == ["1\n", "2\n"])
      taker.cancel()
      let kinds = told.withLock { $0 }.compactMap { progress in
        switch progress {
        case .attempted: "attempted"
        case .answered(let status, let time): time > .zero ? "answered \(status)" : nil
        case .received(let count): "received \(count)"
        case .scheduled: nil
        }
      }
      let one = ["attempted", "answered 200", "received 2"]
      #expect(kinds == one + one)
    }
  }

  @Test func withoutDemandNoFetchIsMade() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.none)
      poll("/count/\(key)", on: thread).subscribe(taker)
      await letTicksPass(20, on: thread)
      let before = try await thread.seen(key, at: upstream)
      #expect(before == 0)
      taker.request(.max(3))
      #expect(await taker.next(3) == ["1\n", "2\n", "3\n"])
      await letTicksPass(20, on: thread)
      let after = try await thread.seen(key, at: upstream)
      #expect(after == 3)
      taker.request(.max(2))
      #expect(await taker.next(2) == ["4\n", "5\n"])
      taker.cancel()
    }
  }

  @Test func repeatedSubscriptionsCauseNoAdditionalFetches() async throws {
    try await withSourceThread { thread in
      let poll = poll("/count/\(key)", every: .seconds(3600), on: thread)
      for round in 0..<5 {
        let taker = Taker(.unlimited)
        poll.subscribe(taker)
        if round == 0 { #expect(await taker.next(1) == ["1\n"]) }
        await letTicksPass(3, on: thread)
        taker.cancel()
      }
      let seen = try await thread.seen(key, at: upstream)
      #expect(seen == 1)
    }
  }

  @Test func demandReturnedFromReceiveIsAdded() async throws {  // row 16
    try await withSourceThread { thread in
      let taker = Taker(.max(1)) { $0.count < 4 ? .max(1) : .none }
      poll("/count/\(key)", on: thread).subscribe(taker)
      #expect(await taker.next(4) == ["1\n", "2\n", "3\n", "4\n"])
      await letTicksPass(20, on: thread)
      let seen = try await thread.seen(key, at: upstream)
      #expect(seen == 4)
      taker.cancel()
    }
  }

  @Test func requestsInsideReceiveAreAdded() async throws {  // row 17
    try await withSourceThread { thread in
      let taker = Taker(.max(1)) { taker in
        if taker.count < 4 { taker.request(.max(1)) }
        return .none
      }
      poll("/count/\(key)", on: thread).subscribe(taker)
      #expect(await taker.next(4).count == 4)
      taker.cancel()
    }
  }

  @Test(arguments: ["tag", "date"]) func anUnchangedPageIsNoEventAndUsesNoDemand(by: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(3))
      poll("/version/\(key)?by=\(by)", on: thread).subscribe(taker)
      #expect(await taker.next(3) == ["version 0 after 1\n", "version 1 after 4\n", "version 2 after 7\n"])
      taker.cancel()
      #expect(reports.withLock { $0 }.isEmpty)
    }
  }

  @Test func aFailureIsReportedAndRetriedUntilItSucceeds() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      poll("/status/\(key)?code=503&times=3", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["4\n"])
      #expect(sentences == [String](repeating: "HTTP 503 Service Unavailable", count: 3))
      let (attempts, last) = reports.withLock { reports in
        let attempts = reports.compactMap { if case .failing(_, let attempt, _) = $0 { attempt } else { nil } }
        return (attempts, reports.last)
      }
      #expect(attempts == [1, 2, 3])
      #expect(last == .recovered(afterFailures: 3))
      taker.cancel()
    }
  }

  @Test func aValidatorThatIsTooLongIsNotSentAndReportedOnce() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      poll("/longtag/\(key)", on: thread).subscribe(taker)
      #expect(await taker.next(3) == ["1", "2", "3"])
      let headers = try await thread.lastHeaders(key, at: upstream)
      #expect(headers["if-none-match"] == nil)
      taker.cancel()
      let limited = "its ETag of more than 1024 bytes is not used: polls transfer the full response"
      #expect(reports.withLock { $0 } == [.limited(limited)])
    }
  }

  @Test(arguments: ["\"caf\u{E9}\"", "\"\u{FF}\u{C3}\""])
  func validatorsGoBackAsTheBytesThatCame(tag: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let path = Upstream.raw(key, "ETag: \(tag)\nLast-Modified: d\u{E9}cembre", Array("a".utf8))
      poll(path, on: thread).subscribe(taker)
      while try upstream.count(key) < 3 { await letTicksPass(1, on: thread) }
      taker.cancel()
      let headers = try await thread.lastHeaders(key, at: upstream)  // decoded as ISO 8859-1
      #expect(headers["if-none-match"] == tag && headers["if-modified-since"] == "d\u{E9}cembre")
    }
  }

  @Test func aByteOrderMarkIsNoPartOfAPage() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      poll(Upstream.raw(key, "", [0xEF, 0xBB, 0xBF] + Array("\u{FEFF}[1]\n".utf8)), on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["\u{FEFF}[1]\n"])
      taker.cancel()
    }
  }

  @Test(arguments: ["", " \r\n", "\u{FEFF}"])
  func anEmptyPageIsAFailureIfItIsToBeJSONAndWhiteSpaceElseAnEvent(page: String) async throws {
    try await withSourceThread { thread in
      let reported = AsyncStream<SourceReport>.makeStream()
      let configuration = HTTPConfiguration(url: upstream.url(Upstream.raw(key, "", Array(page.utf8))))
      let taker = Taker(.max(1))
      HTTPPoll(configuration, every: .milliseconds(1), isJSON: true).source(on: thread) {
        reported.continuation.yield($0)
      }.subscribe(taker)
      let first = await reported.stream.first { _ in true }
      guard case .failing("the body is empty, which is not JSON", attempt: 1, _)? = first else {
        Issue.record("\(String(describing: first))")
        return
      }
      #expect(taker.count == 0)
      taker.cancel()
      guard page == " \r\n" else { return }
      let other = Taker(.max(1))
      poll(Upstream.raw(key, "", Array(page.utf8)), on: thread).subscribe(other)
      #expect(await other.next(1) == [page])
      other.cancel()
    }
  }

  @Test func aPageThatAProxyHasTransformedIsAnEvent() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      poll(Upstream.raw(key, "", Array("1".utf8)) + "&code=203", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["1"])
      taker.cancel()
    }
  }

  @Test(arguments: [500, 404]) func aServerThatRefusesItsValidatorsIsSoonAskedWithoutAny(code: Int) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      poll("/stubborn/\(key)?code=\(code)", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["page"])
      func recoveries() -> Int {
        reports.withLock { $0.filter { if case .recovered = $0 { true } else { false } }.count }
      }
      while recoveries() < 2 { await letTicksPass(1, on: thread) }
      let failures = sentences.count
      await letTicksPass(20, on: thread)
      taker.cancel()
      #expect(sentences.count == failures)  // refused twice: none are sent any more
      #expect(failures == (code == 500 ? 6 : 2))
      #expect(sentences.last?.hasSuffix("; the next request is without validators") == true)
      #expect(taker.count == 1)
    }
  }

  @Test func aConnectionOnWhichAServerFailedIsNotUsedAgain() async throws {
    try await withSourceThread { thread in
      for (path, isKept) in [("/count/\(key)-kept", true), ("/status/\(key)-failed?code=502", false)] {
        let key = "\(key)-\(isKept ? "kept" : "failed")"
        _ = try await thread.fetch(upstream.url(path), plan: .discard)
        _ = try await thread.fetch(upstream.url("/count/\(key)"))
        let peers = try #require(try await thread.lastHeaders(key, at: upstream)["peers"]).split(separator: " ")
        #expect(peers.count == 2 && (peers[0] == peers[1]) == isKept, "\(peers)")
      }
    }
  }

  @Test func noContentIsNeitherAnEventNorAFailure() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      poll("/status/\(key)?code=204&times=5", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["6\n"])
      taker.cancel()
      #expect(reports.withLock { $0 }.isEmpty)
    }
  }

  @Test func repeatedBytesAreNoEventWhateverTheirValidators() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      poll("/thirds/\(key)", on: thread).subscribe(taker)
      #expect(await taker.next(4) == ["0", "1", "2", "3"])
      taker.cancel()
      let requests = try upstream.count(key)
      #expect(requests >= 10)
      #expect(reports.withLock { $0 }.isEmpty)
    }
  }

  @Test(arguments: [404, 418, 500]) func anUnexpectedStatusIsAFailure(code: Int) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      poll("/status/\(key)?code=\(code)", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["2\n"])
      #expect(sentences.first?.hasPrefix("HTTP \(code)") == true)
      taker.cancel()
    }
  }

  @Test(arguments: ["3600", "Fri, 31 Dec 2100 23:59:59 GMT"])
  func retryAfterIsObeyed(retry: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      let query = retry.replacing(" ", with: "%20")
      poll("/status/\(key)?code=429&retry=\(query)", on: thread).subscribe(taker)
      await letTicksPass(100, on: thread)
      guard case .failing(let sentence, attempt: 1, let delay) = reports.withLock({ $0.first }) else {
        Issue.record("not reported")
        return
      }
      #expect(sentence.hasPrefix("HTTP 429 Too Many Requests (Retry-After: "))
      let asked = retry == "3600" ? Duration.seconds(3600) : .seconds(86_400)  // a day at most
      #expect(delay >= asked && delay < asked + .seconds(1))
      let seen = try upstream.count(key)
      #expect(seen == 1)
      taker.cancel()
    }
  }

  @Test(arguments: [
    "/announce/KEY?bytes=1025", "/size/KEY?bytes=1025", "/size/KEY?bytes=1025&chunked", "/size/KEY?bytes=1000000&gzip",
  ])
  func aBodyOverTheLimitIsRefused(path: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      let reported = AsyncStream<SourceReport>.makeStream()
      let configuration = HTTPConfiguration(
        url: upstream.url(path.replacing("KEY", with: key)), maximumBodyBytes: 1024)
      HTTPPoll(configuration, every: .milliseconds(1)).source(on: thread) { reported.continuation.yield($0) }.subscribe(
        taker)
      guard case .failing("body over 1 KiB", attempt: 1, _) = await reported.stream.first(where: { _ in true }) else {
        Issue.record("not reported so")
        return
      }
      #expect(taker.count == 0)
      taker.cancel()
    }
  }

  @Test(arguments: ["", "&chunked", "&gzip"]) func aBodyOfTheLimitIsAccepted(how: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      poll("/size/\(key)?bytes=1024\(how)", on: thread) { $0.maximumBodyBytes = 1024 }.subscribe(taker)
      #expect(await taker.next(1).first?.count == 1024)
      taker.cancel()
    }
  }

  @Test func nothingIsDeliveredOrFetchedAfterCancel() async throws {  // rows 4, 20
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      poll("/count/\(key)", on: thread).subscribe(taker)
      _ = await taker.next(2)
      taker.cancel()
      taker.cancel()
      taker.request(.unlimited)
      await letTicksPass(5, on: thread)  // transfers in progress at the cancel have ended
      let (count, seen) = (taker.count, try await thread.seen(key, at: upstream))
      await letTicksPass(20, on: thread)
      let seenLater = try await thread.seen(key, at: upstream)
      #expect(taker.count == count)
      #expect(seenLater == seen)
    }
  }

  @Test func cancelInsideReceiveStopsDelivery() async throws {  // row 18
    try await withSourceThread { thread in
      let taker = Taker(.unlimited) { taker in
        if taker.count == 3 { taker.cancel() }
        return .unlimited
      }
      poll("/count/\(key)", on: thread).subscribe(taker)
      #expect(await taker.next(3).count == 3)
      await letTicksPass(20, on: thread)
      let seen = try await thread.seen(key, at: upstream)
      #expect(seen == 3)
      #expect(taker.count == 3)
    }
  }

  @Test func cancelEndsAHangingTransfer() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      poll("/hang/\(key)", on: thread).subscribe(taker)
      while try await thread.seen(key, at: upstream) == 0 {}
      taker.cancel()
      await letTicksPass(3, on: thread)
      #expect(taker.count == 0)
      #expect(reports.withLock { $0 }.isEmpty)
    }
  }

  @Test func demandAndCancelAreThreadSafe() async throws {  // row 19
    try await withSourceThread { thread in
      let takers = (0..<8).map { _ in Taker(.none) }
      for taker in takers { poll("/count/\(key)", on: thread).subscribe(taker) }
      await withTaskGroup(of: Void.self) { group in
        for taker in takers {
          for _ in 0..<10 { group.addTask { taker.request(.max(1)) } }
        }
      }
      for taker in takers { #expect(await taker.next(10).count == 10) }
      await withTaskGroup(of: Void.self) { group in
        for taker in takers { for _ in 0..<3 { group.addTask { taker.cancel() } } }
      }
      let seen = try await thread.seen(key, at: upstream)
      #expect(seen == 80)
    }
  }

  @Test func aSubscriptionCancelledBeforeItsDemandIsProcessedCausesNoFetch() async throws {  // row 4
    let thread = try SourceThread()
    let taker = Taker(.unlimited)
    poll("/count/\(key)", on: thread).subscribe(taker)
    taker.cancel()
    try thread.start()
    await letTicksPass(10, on: thread)
    let seen = try await thread.seen(key, at: upstream)
    #expect(seen == 0)
    #expect(taker.count == 0)
    thread.stop()
  }

  @Test func aUnixSocketIsPolled() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(2))
      poll("/count/\(key)", on: thread) { [path = upstream.unixSocket] in
        $0.url = "http://localhost/count/\(key)"
        $0.unixSocket = path
      }.subscribe(taker)
      #expect(await taker.next(2) == ["1\n", "2\n"])
      taker.cancel()
    }
  }

  @Test func anInvalidConfigurationIsReportedAtEachFetch() async throws {
    try await withSourceThread { thread in
      let reported = AsyncStream<SourceReport>.makeStream()
      let configuration = HTTPConfiguration(
        url: "ftp://user:secret@h/", retry: Backoff(first: .milliseconds(1)))
      let taker = Taker(.max(1))
      HTTPPoll(configuration, every: .milliseconds(1)).source(on: thread) { reported.continuation.yield($0) }.subscribe(
        taker)
      var attempts = 0
      for await report in reported.stream {
        attempts += 1
        guard case .failing("url: not an http or https URL", attempt: attempts, _) = report else {
          Issue.record("\(report)")
          return
        }
        if attempts == 3 { break }
      }
      taker.cancel()
    }
  }

  @Test func everyErrorOfAConfigurationIsReportedWithoutSecrets() {
    let configuration = HTTPConfiguration(
      url: "gopher://u:secret@h/", timeout: .zero, maximumBodyBytes: -1,
      headers: [HTTPHeader(name: "a b", value: ""), HTTPHeader(name: "X-Key", value: "secret\r\nInjected: 1")],
      bearer: "secret\n", login: HTTPLogin(user: "a:b", password: "secret"),
      query: [HTTPQueryItem(name: "", value: "secret")], unixSocket: String(repeating: "x", count: 108),
      route: .proxy(HTTPProxy(url: "http://u:secret@p")), userAgent: "a\nb")
    #expect(
      configuration.problems == [
        "url: not an http or https URL", "timeout: must be greater than zero",
        "maximum body: must not be negative", "headers: a name may have only letters, digits and !#$%&'*+-.^_`|~",
        "headers: X-Key has a control character in its value", "bearer: has a control character in it",
        "login: a user may not have a colon in it", "proxy: not a URL such as http://proxy.example.org:3128",
        "query: a name may not be empty",
        "user agent: has a control character in it", "unix socket: a path has 1 to 107 bytes",
      ])
    #expect(HTTPConfiguration(url: "http://h/").problems.isEmpty)
  }
}
