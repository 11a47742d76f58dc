import Reactive
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct HTTPStreamTests {
  let upstream: Upstream
  let key = uniqueKey()
  let reports = Shared<[SourceReport]>([])

  init() throws { upstream = try Upstream.shared.get() }

  private func stream(
    _ path: String, _ format: HTTPStreamFormat = .serverSentEvents, idleTimeout: Duration? = nil,
    on thread: SourceThread, _ change: (inout HTTPConfiguration) -> Void = { _ in }
  ) -> Source<HTTPStream> {
    var configuration = HTTPConfiguration(
      url: upstream.url(path), retry: Backoff(first: .milliseconds(1), max: .milliseconds(2)))
    change(&configuration)
    return HTTPStream(configuration, format: format, idleTimeout: idleTimeout).source(on: thread) { [reports] report in
      reports.withLock { $0.append(report) }
    }
  }

  private func path(_ body: String, _ more: String = "") -> String {
    "/stream/\(key)?body=\(Upstream.escaped(body))\(more)"
  }

  private var sentences: [String] {
    reports.withLock { $0.compactMap { if case .failing(let sentence, _, _) = $0 { sentence } else { nil } } }
  }

  /// Sends lines until all buffers on the way are full.
  /// - Returns: the number of written lines.
  private func untilTheServerWaits() throws -> Int {
    var before = -1
    var now = try upstream.count(key)
    while now != before {
      before = now
      for _ in 0..<20 { _ = try upstream.count("pace\(key)") }
      now = try upstream.count(key)
    }
    return now
  }

  @Test func linesOfOnePieceAreOneBatchAndAnEndedResponseIsRequestedAgain() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream(path("a%n\nb%n\n", "&type=text/plain"), .lines, on: thread).subscribe(taker)
      #expect(await taker.next(3) == ["a1|b1", "a2|b2", "a3|b3"])
      taker.cancel()
      #expect(sentences.isEmpty)
    }
  }

  @Test func aResponseThatAProxyHasTransformedIsTheStream() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      stream(Upstream.raw(key, "Content-Type: text/event-stream", Array("data: 1\n\n".utf8)) + "&code=203", on: thread)
        .subscribe(taker)
      #expect(await taker.next(1) == ["1"])
      taker.cancel()
    }
  }

  @Test func aReconnectSendsTheLastEventIDAndTheFirstRequestDoesNot() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      stream(path("id: n%n\ndata: %n\n\n"), on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["1"])
      let first = try await thread.lastHeaders(key, at: upstream)
      #expect(first["last-event-id"] == nil)
      #expect(first["accept"] == "text/event-stream" && first["cache-control"] == "no-store")
      taker.request(.max(1))
      #expect(await taker.next(1) == ["2"])
      let second = try await thread.lastHeaders(key, at: upstream)
      #expect(second["last-event-id"] == "n1")
      taker.cancel()
    }
  }

  @Test func anIDOf8KiBIsSentBackAndALongerOneLeavesTheOneBefore() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(6))  // each event needs more than half of what is read at once
      let (longest, tooLong) = (String(repeating: "i", count: 8 << 10), String(repeating: "j", count: (8 << 10) + 1))
      stream(path("id: \(longest)\ndata: x\n\nid: \(tooLong)\ndata: %n\n\n"), on: thread).subscribe(taker)
      #expect(await taker.next(6) == ["x", "1", "x", "2", "x", "3"])
      let headers = try await thread.lastHeaders(key, at: upstream)
      #expect(headers["last-event-id"] == longest)
      let limited =
        "an id of more than 8 KiB is not used: a reconnection sends the one before, and events may come again"
      #expect(reports.withLock { $0 } == [.limited(limited)])
      taker.cancel()
    }
  }

  @Test func aServerThatRefusesAnIDWithAnyStatusGetsNoneOnceThatIsProven() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream("/refuseid/\(key)?code=500", on: thread).subscribe(taker)
      #expect(await taker.next(2) == ["1", "8"])
      taker.cancel()
      let refused = "HTTP 500 Internal Server Error"
      #expect(
        sentences.prefix(6) == [
          refused, refused, refused, refused + "; the next request is without Last-Event-ID, as a test",
          "it responds without Last-Event-ID; the next request has it again",
          refused + "; the next request is without Last-Event-ID, so events may be missing",
        ])
    }
  }

  @Test func anEndedStreamIsNotReadAgainFromItsBeginning() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream("/refuseid/\(key)?code=204", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["1"])
      while sentences.count < 12 { try await Task.sleep(for: .milliseconds(1)) }
      taker.cancel()
      #expect(taker.count == 1 && sentences.allSatisfy { $0 == "HTTP 204 No Content" })
    }
  }

  @Test func aLongReconnectionTimeIsADayAtMostAndIsReported() async throws {
    try await withSourceThread { thread in
      for (retry, time) in [("3000000000", "1 day"), ("99999999999999999999", "1 day"), ("70000", "70 s")] {
        let taker = Taker(.unlimited)
        let reported = AsyncStream<SourceReport>.makeStream()
        let configuration = HTTPConfiguration(url: upstream.url(path("retry: \(retry)\ndata: %n\n\n")))
        HTTPStream(configuration, format: .serverSentEvents).source(on: thread) {
          reported.continuation.yield($0)
        }.subscribe(taker)
        _ = await taker.next(1)
        let report = await reported.stream.first { _ in true }
        #expect(report == .waiting("the server has asked for \(time) before the next request (retry)"))
        let before = try upstream.count(key)
        thread.endRests()  // as a reload does
        while try upstream.count(key) == before { try await Task.sleep(for: .milliseconds(1)) }
        taker.cancel()
      }
    }
  }

  @Test func aRefusedIDIsNotSentAgain() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream("/refuseid/\(key)?code=412", on: thread).subscribe(taker)
      #expect(await taker.next(2) == ["1", "3"])
      taker.cancel()
      #expect(
        sentences.first?.hasSuffix("; the next request is without Last-Event-ID, so events may be missing") == true)
    }
  }

  @Test func withoutDemandTheResponseIsNotRequested() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.none)
      stream(path("data: %n\n\n"), on: thread).subscribe(taker)
      let pace = Taker(.unlimited)
      stream("/stream/pace\(key)?body=x%0A&type=text/plain", .lines, on: thread).subscribe(pace)
      _ = await pace.next(5)
      pace.cancel()
      let seen = try await thread.seen(key, at: upstream)
      #expect(seen == 0)
      taker.cancel()
    }
  }

  @Test func withoutDemandTheServerIsSlowedDown() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      stream("/flood/\(key)", .lines, on: thread).subscribe(taker)
      _ = await taker.next(1)
      let now = try untilTheServerWaits()
      taker.request(.unlimited)
      while try upstream.count(key) < 2 * now { _ = await taker.next(100) }
      taker.cancel()
    }
  }

  @Test func aPausedResponseHasNoIdleTimeout() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      stream("/flood/\(key)", .lines, idleTimeout: .milliseconds(30), on: thread).subscribe(taker)
      _ = await taker.next(1)
      _ = try untilTheServerWaits()
      let before = sentences.filter { $0.contains("30 ms") }
      // Another response fails by its idle timeout several times: the time has passed.
      let quiet = Taker(.unlimited)
      stream("/stream/quiet\(key)?body=data:%n%0A%0A&end=hang", idleTimeout: .milliseconds(60), on: thread)
        .subscribe(quiet)
      #expect(await quiet.next(4) == ["1", "2", "3", "4"])
      quiet.cancel()
      #expect(sentences.filter { $0.contains("30 ms") } == before)
      taker.cancel()
    }
  }

  @Test func noContentIsAFailureThatIsRetried() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream("/status/\(key)?code=204&times=1000000", on: thread).subscribe(taker)
      while sentences.count < 3 { try await Task.sleep(for: .milliseconds(1)) }
      #expect(sentences.allSatisfy { $0 == "HTTP 204 No Content" })
      taker.cancel()
    }
  }

  @Test func theStartOfAResponseClearsTheFailure() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream("/recover/\(key)?times=2", on: thread).subscribe(taker)
      while reports.withLock({ $0.last }) != .recovered(afterFailures: 2) {
        try await Task.sleep(for: .milliseconds(1))
      }
      #expect(taker.count == 0)
      taker.cancel()
    }
  }

  @Test func anotherContentTypeIsAFailure() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream(path("data: a\n\n", "&type=text/html"), on: thread).subscribe(taker)
      while sentences.count < 2 { try await Task.sleep(for: .milliseconds(1)) }
      #expect(sentences[0] == "not an event stream: its Content-Type is not text/event-stream")
      #expect(taker.count == 0)
      taker.cancel()
    }
  }

  @Test func aSilentResponseFailsAndIsRequestedAgain() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream(path("data: %n\n\n", "&end=hang"), idleTimeout: .milliseconds(30), on: thread).subscribe(taker)
      #expect(await taker.next(2) == ["1", "2"])
      #expect(sentences.first == "no data within 30 ms")
      taker.cancel()
    }
  }

  @Test func aLateHeadIsAFailure() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream("/hang/\(key)", on: thread) { $0.timeout = .milliseconds(30) }.subscribe(taker)
      while sentences.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
      #expect(sentences.first == "no response from \(upstream.authority) within 30 ms")
      taker.cancel()
    }
  }

  @Test func anEventOverTheLimitIsAFailureThatNamesTheLimit() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      stream(path("data: 1234567\n\n"), on: thread) { $0.maximumBodyBytes = 5 }.subscribe(taker)
      stream(path("1234567\n", "&type=text/plain"), .lines, on: thread) { $0.maximumBodyBytes = 5 }.subscribe(taker)
      while !sentences.contains("event over 5 B") || !sentences.contains("line over 5 B") {
        try await Task.sleep(for: .milliseconds(1))
      }
      #expect(taker.count == 0)
      taker.cancel()
    }
  }

  @Test func eventsBeforeOneOverTheLimitAreDeliveredAlsoInOnePiece() async throws {
    try await withSourceThread { thread in
      let lines = path("a\nb\n1234567\n", "&type=text/plain")
      for stream in [
        stream(path("data: a\n\ndata: b\n\ndata: 1234567\n\n"), on: thread) { $0.maximumBodyBytes = 5 },
        stream(lines, .lines, on: thread) { $0.maximumBodyBytes = 5 },
      ] {
        let taker = Taker(.unlimited)
        stream.subscribe(taker)
        #expect(await taker.next(1) == ["a|b"])
        taker.cancel()
      }
    }
  }

  @Test func nothingIsDeliveredOrRequestedAfterCancel() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited) { taker in
        taker.cancel()
        return .unlimited
      }
      stream(path("data: %n\n\n"), on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["1"])
      let pace = Taker(.unlimited)
      stream("/stream/pace\(key)?body=x%0A&type=text/plain", .lines, on: thread).subscribe(pace)
      _ = await pace.next(5)
      pace.cancel()
      let seen = try await thread.seen(key, at: upstream)
      #expect(seen == 1 && taker.count == 1)
    }
  }
}
