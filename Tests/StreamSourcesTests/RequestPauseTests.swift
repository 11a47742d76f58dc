import Events
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

/// When upstreams want the next request.
@Suite(.timeLimit(.minutes(10))) struct RequestPauseTests {
  let upstream: Upstream
  let key = uniqueKey()
  let reports = Shared<[SourceReport]>([])

  init() throws { upstream = try Upstream.shared.get() }

  /// 2026-01-02T10:32:00Z.
  private let now = 1_767_349_920_000

  private func fields(_ lines: [String]) -> (String) -> [String] {
    { name in
      lines.compactMap { line in
        let parts = line.split(separator: ":", maxSplits: 1)
        return parts[0].lowercased() == name.lowercased() ? String(parts[1].drop { $0 == " " }) : nil
      }
    }
  }

  @Test(arguments: [
    (["RateLimit: \"p\";r=0;t=2"], 2), (["RateLimit: \"p\";r=1;t=2"], nil), (["RateLimit: \"p\";r=0"], nil),
    (["RateLimit: \"a\";r=5;t=9, \"b\" ; r=0 ; t=3,\"c\";t=1;r=0"], 3), (["RateLimit: \"a,b;r=0;t=9\";r=1;t=2"], nil),
    (["RateLimit: \"a\\\",\";r=0;t=9"], 9), (["RateLimit: p;r=0;t=2;x=\"y\""], 2), (["RateLimit: \"p\";r=0;t=-5"], nil),
    (["RateLimit: \"p\";r=0;t=1e9"], nil), (["RateLimit: ,,;;\"\"=\\"], nil), (["RateLimit: \"p\";r=0;t=0"], nil),
    (["RateLimit: \"p\";r=0;t=999999999999999999"], 86400), (["RateLimit: \"p\";R=0;T=2"], nil),
    (["RateLimit: \"p\";r=0;t=2", "RateLimit: \"q\";r=0;t=7"], 7),
    (["RateLimit-Remaining: 0", "RateLimit-Reset: 30"], 30), (["RateLimit-Remaining: 1", "RateLimit-Reset: 30"], nil),
    (["RateLimit-Remaining: 0"], nil), (["RateLimit-Reset: 30"], nil),
    (["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 30"], 30),
    (["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767349980"], 60),
    (["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767349980.0"], 60),
    (["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767349980000"], 60),
    (["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2026-01-02T10:33:00Z"], 60),
    (["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1767349000"], nil),
    (["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: soon"], nil),
    (["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 99999999999"], 86400),
    (["X-RateLimit-Remaining: none", "X-RateLimit-Reset: 30"], nil),
    (["X-RateLimit-Remaining: 0", "X-RateLimit-Reset: \(String(repeating: "9", count: 100_000))"], nil),
  ]) func aRateLimitIsAPauseOnceNothingIsLeft(lines: [String], seconds: Int?) {
    let pause = RequestPause.rateLimit(fields(lines), at: now)
    #expect(pause == seconds.map { .seconds($0) })
  }

  @Test(arguments: [
    (["X-Poll-Interval: 60"], true, "60 X-Poll-Interval of h"), (["X-Poll-Interval: 0"], true, nil),
    (["X-Poll-Interval: never"], true, nil),
    (["X-Poll-Interval: 1000000000000000000"], true, "86400 X-Poll-Interval of h"),
    (["Cache-Control: private, MAX-AGE=\"90\"", "Age: 30"], true, "60 max-age of h"),
    (["Cache-Control: max-age=90"], false, nil), (["Cache-Control: max-age=5", "Age: 30"], true, nil),
    (["Cache-Control: s-maxage=90, max-age=-1"], true, nil),
    (["Cache-Control: max-age=90", "X-Poll-Interval: 100"], true, "100 X-Poll-Interval of h"),
  ]) func aSourcePausesAsItsUpstreamSays(lines: [String], obeysMaximumAge: Bool, expected: String?) {
    let pause = RequestPause.poll(fields(lines), obeysMaximumAge: obeysMaximumAge, host: "h")
    #expect(pause.map { "\($0.duration.wholeMilliseconds / 1000) \($0.reason)" } == expected)
  }

  @Test func aPauseSaysItsEndAndItsReason() {
    let pause = RequestPause(duration: .seconds(5), reason: "rate limit of api.example.org")
    #expect(pause.sentence(at: now) == "waits until 10:32:05Z: rate limit of api.example.org")
  }

  @Test func pausesOfMoreThanTenSecondsAreKept() {
    let saved = Shared<[[String: Int]]>([])
    let store = PauseStore(load: { ["old": 1, "host h": 1000] }) { ends in saved.withLock { $0.append(ends) } }
    let book = PauseBook(store)
    #expect(book.rest(of: "host h", at: 400) == .milliseconds(600) && book.rest(of: "host h", at: 1000) == nil)
    #expect(book.rest(of: "old", at: 400) == nil && book.rest(of: "x", at: 400) == nil)
    book.note(.seconds(10), of: "short", at: 500)
    book.note(.seconds(11), of: "long", at: 500)
    book.note(.seconds(11), of: "long", at: 500)
    book.note(nil, of: "long", at: 2000)
    book.note(nil, of: "other", at: 2000)
    book.note(.seconds(11), of: "long", at: 3000)
    book.clear()
    book.clear()
    #expect(saved.withLock { $0 } == [["host h": 1000], ["host h": 1000, "long": 11500], [:], ["long": 14000], [:]])
    #expect(PauseBook(PauseStore(load: { ["a": .max] }) { _ in }).rest(of: "a", at: 0) == .seconds(86400))
  }

  private func poll(
    _ path: String, every: Duration = .milliseconds(1), on thread: SourceThread,
    _ change: (inout HTTPConfiguration) -> Void = { _ in }, name: String? = nil
  ) -> Source<HTTPPoll> {
    var configuration = HTTPConfiguration(
      url: upstream.url(path), retry: Backoff(first: .milliseconds(1), max: .milliseconds(2)))
    change(&configuration)
    let reports = reports
    return HTTPPoll(configuration, every: every).source(
      on: thread, report: { report in reports.withLock { $0.append(report) } }, with: { $0.name = name })
  }

  @Test func theStreamsOfOneCredentialShareItsLimit() async throws {
    try await withSourceThread { thread in
      var takers: [Taker] = []
      for (path, token) in [("a", "one"), ("b", "one"), ("c", "two")] {
        let taker = Taker(.unlimited)
        poll("/github/\(key)?limit=4&window=0.5&\(path)=", on: thread) { $0.bearer = token }.subscribe(taker)
        takers.append(taker)
      }
      // Some windows pass.
      while try upstream.listened(key).requests < 17 { _ = await takers[2].next(1) }
      for taker in takers { taker.cancel() }
      let listened = try upstream.listened(key)
      // A request that was under way when nothing was left is not stopped.
      #expect(listened.over <= 3 && listened.early == 0, "\(listened)")
      let all = reports.withLock { $0 }.compactMap { if case .waiting(let reason) = $0 { reason } else { nil } }
      // On a slow machine, a request may wait for a place as well.
      let waits = all.filter { !$0.contains("max_per_host") }
      #expect(waits.allSatisfy { $0.hasSuffix("Z: rate limit of \(upstream.authority)") })
    }
  }

  @Test func aPollWaitsForItsIntervalAlone() async throws {
    try await withSourceThread { thread in
      let (slow, fast) = (Taker(.unlimited), Taker(.unlimited))
      poll("/github/\(key)?interval=0.4", on: thread).subscribe(slow)
      poll("/count/f\(key)", on: thread).subscribe(fast)
      _ = await slow.next(2)
      let between = fast.count
      slow.cancel()
      fast.cancel()
      let listened = try upstream.listened(key)
      #expect(listened.early == 0 && listened.requests <= 5 && between > 5, "\(listened)")
      let kinds = reports.withLock { $0 }.map {
        if case .waiting(let text) = $0 { String(text.dropFirst(21)) } else { "\($0)" }
      }
      #expect(Set(kinds) == [": X-Poll-Interval of \(upstream.authority)"])
    }
  }

  @Test func aLongPauseOutlivesTheProcess() async throws {
    let kept = Shared<[String: Int]>([:])
    let store = PauseStore(load: { kept.withLock { $0 } }) { ends in kept.withLock { $0 = ends } }
    func run(_ path: String, isWaiting: Bool) async throws {
      try await withSourceThread { thread in
        thread.keepPauses(in: store)
        let taker = Taker(.unlimited)
        poll(path, on: thread, name: "s").subscribe(taker)
        if isWaiting {
          _ = try await thread.fetch(upstream.otherURL("/count/x\(key)"))
          #expect(taker.count == 0)
        } else {
          #expect(await taker.next(1).count == 1)
        }
        taker.cancel()
      }
    }
    let raw = Upstream.raw(key, "X-Poll-Interval: 3600", [1])
    try await run(raw, isWaiting: false)
    #expect(kept.withLock { $0.keys.sorted() } == ["stream s"])
    try await run(raw, isWaiting: true)
    #expect(try upstream.count(key) == 1)
    kept.withLock { $0 = [:] }
    try await run(Upstream.raw(key, "RateLimit: \"p\";r=0;t=3600", [2]), isWaiting: false)
    #expect(kept.withLock { $0.keys.count } == 1 && kept.withLock { $0.keys.first?.hasPrefix("host ") } == true)
    try await run(raw, isWaiting: true)
    #expect(try upstream.count(key) == 2)
  }
}
