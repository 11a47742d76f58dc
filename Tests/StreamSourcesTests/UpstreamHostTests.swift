import Events
import Reactive
import TestSupport
import Testing

@testable import StreamSources

/// The budget per upstream host, against a real server. Its other port is another host.
@Suite(.timeLimit(.minutes(10))) struct UpstreamHostTests {
  let upstream: Upstream
  let key = uniqueKey()
  let reports = Shared<[SourceReport]>([])

  init() throws { upstream = try Upstream.shared.get() }

  private func poll(_ path: String, on thread: SourceThread) -> Source<HTTPPoll> {
    let configuration = HTTPConfiguration(url: upstream.url(path), retry: Backoff(first: .milliseconds(1)))
    return HTTPPoll(configuration, every: .milliseconds(2)).source(on: thread) { [reports] report in
      reports.withLock { $0.append(report) }
    }
  }

  /// Transfers that are in progress until `release`.
  private func hold(_ count: Int, on thread: SourceThread) async throws -> [Task<Fetched, any Error>] {
    let url = upstream.url("/hold/\(key)")
    let tasks = (0..<count).map { _ in Task { try await thread.fetch(url) } }
    while try upstream.count(key) < count { try await Task.sleep(for: .milliseconds(1)) }
    return tasks
  }

  private func release(on thread: SourceThread) async throws {
    _ = try await thread.fetch(upstream.otherURL("/release/\(key)"))
  }

  /// Fetches from the other host take place meanwhile.
  private func letTimePass(on thread: SourceThread) async throws {
    for _ in 0..<20 { _ = try await thread.fetch(upstream.otherURL("/count/pace\(key)")) }
  }

  @Test(arguments: [1, 4]) func transfersOfAHostAreLimitedToItsPlaces(places: Int) async throws {
    try await withSourceThread(transfersPerHost: places) { thread in
      let held = try await hold(places, on: thread)
      let url = upstream.url("/hold/\(key)")
      let waiting = (0..<3).map { _ in Task { try await thread.fetch(url) } }
      try await letTimePass(on: thread)
      #expect(try upstream.count(key) == places)
      try await release(on: thread)
      var bodies = Set<String>()
      for task in held + waiting { bodies.insert(try await task.value.text) }
      #expect(bodies == Set((1...places + 3).map { "\($0)\n" }))
    }
  }

  @Test func sourcesTakeTurns() async throws {
    try await withSourceThread(transfersPerHost: 1) { thread in
      let takers = (0..<5).map { _ in Taker(.max(10)) }
      for (number, taker) in takers.enumerated() { poll("/count/\(number)\(key)", on: thread).subscribe(taker) }
      for taker in takers { #expect(await taker.next(10).count == 10) }
      takers.forEach { $0.cancel() }
    }
  }

  @Test func streamingResponsesOccupyNoPlace() async throws {
    try await withSourceThread(transfersPerHost: 1) { thread in
      let url = upstream.url("/stream/\(key)?body=\(Upstream.escaped("data: %n\n\n"))&end=hang")
      let takers = (0..<6).map { _ in Taker(.unlimited) }
      for taker in takers {
        HTTPStream(HTTPConfiguration(url: url), format: .serverSentEvents).source(on: thread).subscribe(taker)
      }
      for taker in takers { #expect(await taker.next(1).count == 1) }
      takers.forEach { $0.cancel() }
    }
  }

  @Test func aTransferCancelledInTheQueueIsNeverRequested() async throws {
    try await withSourceThread(transfersPerHost: 1) { thread in
      let held = try await hold(1, on: thread)
      let taker = Taker(.unlimited)
      poll("/count/a\(key)", on: thread).subscribe(taker)
      try await letTimePass(on: thread)
      taker.cancel()
      try await release(on: thread)
      for task in held { #expect(try await task.value.text == "1\n") }
      #expect(try await thread.fetch(upstream.url("/count/b\(key)")).text == "1\n")
      #expect(try upstream.count("a\(key)") == 0)
    }
  }

  @Test func aTransferWithdrawnFromTheQueueIsRequestedAtTheNextDemand() async throws {
    try await withSourceThread(transfersPerHost: 1) { thread in
      let held = try await hold(1, on: thread)
      let (polled, read) = (Taker(.max(1)), Taker(.max(1)))
      poll("/count/a\(key)", on: thread).subscribe(polled)
      let url = upstream.url("/stream/b\(key)?body=\(Upstream.escaped("data: %n\n\n"))&end=hang")
      HTTPStream(HTTPConfiguration(url: url), format: .serverSentEvents).source(on: thread).subscribe(read)
      try await letTimePass(on: thread)
      polled.retract()
      read.retract()
      try await release(on: thread)
      for task in held { #expect(try await task.value.text == "1\n") }
      try await letTimePass(on: thread)
      #expect(try upstream.count("a\(key)") == 0)
      #expect(try upstream.count("b\(key)") == 0)
      polled.request(.max(1))
      read.request(.max(1))
      #expect(await polled.next(1) == ["1\n"])
      #expect(await read.next(1) == ["1"])
      polled.cancel()
      read.cancel()
    }
  }

  @Test func aTimeoutBeginsWithTheTransfer() async throws {
    try await withSourceThread(transfersPerHost: 1) { thread in
      let held = try await hold(1, on: thread)
      let url = upstream.url("/count/a\(key)")
      let waiting = Task { try await thread.fetch(url) { $0.timeout = .seconds(10) } }
      let endless = Task { try await thread.fetch(url) { ($0.timeout, $0.isEndless) = (.seconds(10), true) } }
      let hanging = try await thread.fetch(upstream.otherURL("/hang/b\(key)")) { $0.timeout = .seconds(10.1) }
      #expect(hanging.failure != nil)  // the others have been queued for that time
      try await release(on: thread)
      for task in held + [waiting, endless] { #expect(try await task.value.failure == nil) }
    }
  }

  @Test func retryAfterWaitsEndOnRequest() async throws {
    try await withSourceThread { thread in
      let reports = Shared<[SourceReport]>([])
      func poll(_ path: String) -> Taker {
        let taker = Taker(.unlimited)
        let configuration = HTTPConfiguration(
          url: upstream.url(path), retry: Backoff(first: .milliseconds(1), max: .milliseconds(2)))
        HTTPPoll(configuration, every: .milliseconds(5)).source(on: thread) { report in
          reports.withLock { $0.append(report) }
        }.subscribe(taker)
        return taker
      }
      func stream(_ path: String) -> Taker {
        let taker = Taker(.unlimited)
        HTTPStream(HTTPConfiguration(url: upstream.url(path)), format: .lines).source(on: thread) { report in
          reports.withLock { $0.append(report) }
        }.subscribe(taker)
        return taker
      }
      let rested = poll("/status/a\(key)?code=503&times=1&retry=86400")
      while reports.withLock({ $0.isEmpty }) { try await Task.sleep(for: .milliseconds(1)) }
      let alsoRested = stream("/count/b\(key)")
      thread.endRests()
      #expect(await rested.next(1) == ["2\n"])
      #expect(await alsoRested.next(1) == ["1"])
      let restedStream = stream("/status/c\(key)?code=503&times=1&retry=86400")
      while reports.withLock({ $0.count { if case .failing = $0 { true } else { false } } }) < 2 {
        try await Task.sleep(for: .milliseconds(1))
      }
      thread.endRests()
      #expect(await restedStream.next(1) == ["2"])
      for taker in [rested, alsoRested, restedStream] { taker.cancel() }
    }
  }

  @Test func aWaitThatALaterSubscriptionContinuesEndsOnRequest() async throws {
    try await withSourceThread { thread in
      func check(_ source: some Publisher<EventBatch, Never>, _ failed: () -> Bool, _ event: String) async throws {
        let first = Taker(.unlimited)
        source.subscribe(first)
        while !failed() { try await Task.sleep(for: .milliseconds(1)) }
        first.cancel()
        let second = Taker(.unlimited)
        source.subscribe(second)
        thread.endRests()
        #expect(await second.next(1) == [event])
        second.cancel()
      }
      let reports = Shared<[SourceReport]>([])
      func request(_ name: String) -> HTTPConfiguration {
        HTTPConfiguration(url: upstream.url("/status/\(name)\(key)?code=503&times=1&retry=86400"))
      }
      @Sendable func report(_ report: SourceReport) { reports.withLock { $0.append(report) } }
      let poll = HTTPPoll(request("a"), every: .milliseconds(5)).source(on: thread, report: report)
      try await check(poll, { reports.withLock { $0.count == 1 } }, "2\n")
      reports.withLock { $0 = [] }
      let lines = HTTPStream(request("b"), format: .lines).source(on: thread, report: report)
      try await check(lines, { reports.withLock { $0.count == 1 } }, "2")
    }
  }

  @Test func hostsThatRedirectToEachOtherDoNotDeadlock() async throws {
    try await withSourceThread(transfersPerHost: 1) { thread in
      let there = Upstream.redirect(key, to: upstream.otherURL("/count/a\(key)"), "&delay=0.01")
      let back = Upstream.redirect(key, to: upstream.url("/count/b\(key)"), "&delay=0.01")
      let urls = [upstream.url(there), upstream.otherURL(back)]
      try await withThrowingTaskGroup(of: Fetched.self) { group in
        for number in 0..<20 { group.addTask { try await thread.fetch(urls[number % 2]) { $0.redirects = .any } } }
        for try await fetched in group { #expect(fetched.status == 200) }
      }
    }
  }

  @Test func aUnixSocketIsItsOwnHost() async throws {
    try await withSourceThread(transfersPerHost: 1) { thread in
      let held = try await hold(1, on: thread)
      let fetched = try await thread.fetch(upstream.url("/count/a\(key)")) { [path = upstream.unixSocket] in
        $0.unixSocket = path
      }
      #expect(fetched.text == "1\n")
      try await release(on: thread)
      for task in held { #expect(try await task.value.text == "1\n") }
    }
  }

  @Test(arguments: [429, 503, 500]) func retryAfterAppliesToAllSourcesOfAHost(code: Int) async throws {
    try await withSourceThread { thread in
      let start = ContinuousClock.now
      let refused = try await thread.fetch(upstream.url("/status/\(key)?code=\(code)&retry=1"))
      #expect(refused.status == code)
      #expect(try await thread.fetch(upstream.otherURL("/count/b\(key)")).text == "1\n")
      #expect(try await thread.fetch(upstream.url("/count/a\(key)")).text == "1\n")
      #expect(ContinuousClock.now - start >= .seconds(1))
    }
  }

  @Test func waitingForAPlaceIsReported() async throws {
    try await withSourceThread(transfersPerHost: 1) { thread in
      let held = try await hold(1, on: thread)
      let taker = Taker(.max(1))
      poll("/count/a\(key)", on: thread).subscribe(taker)
      while reports.withLock({ $0.isEmpty }) { try await Task.sleep(for: .milliseconds(1)) }
      let reason = "\(upstream.authority) has max_per_host transfers in flight, 1"
      #expect(reports.withLock { $0 } == [.waiting(reason)])
      try await release(on: thread)
      #expect(await taker.next(1) == ["1\n"])
      #expect(reports.withLock { $0 } == [.waiting(reason), .recovered(afterFailures: 0)])
      for task in held { #expect(try await task.value.text == "1\n") }
      taker.cancel()
    }
  }

  @Test func waitingForRetryAfterIsReported() async throws {
    try await withSourceThread { thread in
      _ = try await thread.fetch(upstream.url("/status/\(key)?code=429&retry=3600"))
      let taker = Taker(.max(1))
      poll("/count/a\(key)", on: thread).subscribe(taker)
      while reports.withLock({ $0.isEmpty }) { try await Task.sleep(for: .milliseconds(1)) }
      taker.cancel()
      guard case .waiting(let reason) = reports.withLock({ $0.first }) else {
        Issue.record("\(reports.withLock { $0 })")
        return
      }
      #expect(reason.hasPrefix("rate-limited by \(upstream.authority) until 2"), "\(reason)")
      #expect(reason.split(separator: " ").dropLast().last?.count == "2026-11-20T18:00:00Z".count, "\(reason)")
    }
  }
}
