import Events
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

/// Polls that continue at positions.
@Suite(.timeLimit(.minutes(10))) struct HTTPCursorTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  // MARK: Values

  private func found(_ value: String, _ change: (inout HTTPCursor) -> Void = { _ in }) -> Result<String?, SourceFailure>
  {
    var cursor = HTTPCursor(.program("."), in: .query("after"))
    change(&cursor)
    let answer = JQAnswer(
      outputs: value.isEmpty ? [] : value.split(separator: " ").map { .init(event: Array($0.utf8)) })
    return Result { () throws(SourceFailure) in
      try PollPosition(cursor).position(in: answer, of: []).map { ($0.isNumber ? "number " : "") + $0.text }
    }
  }

  private func refusal(_ what: String) -> Result<String?, SourceFailure> {
    .failure(SourceFailure("the position in the answer \(what); the one before stays"))
  }

  @Test func aPositionIsOneTextOrNumber() {
    #expect(found("") == .success(nil) && found("null") == .success(nil) && found(#""""#) == .success(nil))
    #expect(found("7") == .success("number 7") && found("-1.50e3") == .success("number -1.50e3"))
    #expect(found(#""a\u00e9\n""#) == .success("aé\n"))
    #expect(found(#""\#(String(repeating: "x", count: 1024))""#) == .success(String(repeating: "x", count: 1024)))
    #expect(found(#""\#(String(repeating: "x", count: 1025))""#) == refusal("is over 1 KiB"))
    #expect(found(#""\#(String(repeating: "x", count: 10 << 20))""#) == refusal("is over 1 KiB"))
    #expect(found("1 2") == refusal("is one text or number, cursor.from has several"))
    #expect(found("true") == refusal("is a text or a number, cursor.from has true or false"))
    #expect(found("[1]") == refusal("is a text or a number, cursor.from has an array or an object"))
    #expect(found(#""\ud800""#) == refusal("has half of a surrogate pair"))
    let failed = JQAnswer(failure: "Cannot index s3cret")
    let sentence = "cursor.from fails on the answer; the position stays"
    #expect(throws: SourceFailure(sentence)) {
      try PollPosition(HTTPCursor(.program("."), in: .query("a"))).position(in: failed, of: [])
    }
  }

  @Test func anAddendIsExactAndNeedsAnInteger() {
    func sum(_ value: String, _ addend: Int = 1) -> Result<String?, SourceFailure> {
      found(value) { $0.addend = addend }
    }
    #expect(sum("9007199254740993") == .success("number 9007199254740994"))
    #expect(sum("18446744073709551615") == .success("number 18446744073709551616"))
    #expect(
      sum(#""41""#) == .success("42") && sum("-1") == .success("number 0") && sum("0", -5) == .success("number -5"))
    #expect(sum("null") == .success(nil))
    for other in ["1.5", "1e3", #""x""#, #""+1""#, #""-""#, #""١""#] {
      #expect(sum(other) == refusal("is no integer, to which cursor.add could add"), "\(other)")
    }
    for digits in [String(repeating: "9", count: 1000), "\(Int128.max)"] {
      #expect(sum(digits) == refusal("is beyond 128 bits"))
    }
  }

  @Test func aFieldTakesNoControlCharacter() {
    let sentence = "has a control character, which the field X cannot have"
    for text in [#""a\nb""#, #""\u0000""#, #""\u007f""#] {
      #expect(found(text) { $0.place = .header("X") } == refusal(sentence))
      #expect(found(text) != refusal(sentence))
    }
  }

  private func applied(_ position: HTTPCursor.Position?, in place: HTTPCursor.Place, body: String = "") throws
    -> UpstreamRequest
  {
    var request = UpstreamRequest(url: try HTTPURL("http://u:p@h/a?b=c"), userAgent: "")
    request.body = HTTPBody(Array(body.utf8))
    try PollPosition(HTTPCursor(.program("."), in: place), at: position).apply(
      to: &request, adding: [HTTPQueryItem(name: "k", value: "v")])
    return request
  }

  @Test func aRequestHasThePositionAtItsPlaceAndTheOriginAlone() throws {
    #expect(try applied(nil, in: .query("o")).url.string == "http://h/a?b=c")
    let query = try applied(.init("ä&=\n"), in: .query("o"))
    #expect(query.url.string == "http://h/a?b=c&o=%c3%a4%26%3d%0a" && query.login?.user == "u")
    let header = try applied(.init("7"), in: .header("X-After"))
    #expect(header.headerLines.contains(Array("X-After: 7".utf8)))
    #expect(!header.sent(to: try HTTPURL("http://other/")).headerLines.contains(Array("X-After: 7".utf8)))
    let text = #"{"q": "{ \"after\" }", "v": {"after": null, "n": 1}}"#
    let body = try applied(.init("c\"1\n"), in: .body("/v/after"), body: text).body
    #expect(body?.bytes == Array(#"{"q": "{ \"after\" }", "v": {"after": "c\"1\n", "n": 1}}"#.utf8))
    #expect(body?.isSecret == true)
    #expect(
      try applied(.init("5", isNumber: true), in: .body("/v/n"), body: text).body?.bytes
        == Array(#"{"q": "{ \"after\" }", "v": {"after": null, "n": 5}}"#.utf8))
    #expect(throws: SourceFailure("the body has no text, number or null for the position")) {
      try applied(.init("5"), in: .body("/w"), body: text)
    }
    #expect(try applied(.init("/b?x=1"), in: .url).url.string == "http://h/b?x=1&k=v")
    #expect(throws: SourceFailure.self) { try applied(.init("//other/b"), in: .url) }
  }

  @Test(arguments: [
    (#"</b?x=1>; rel="next""#, "/b?x=1"), (#"<b>;rel=next"#, "/b"), (#"<?p=2>; REL="last NEXT""#, "/a?p=2"),
    (#"</x>; title="a, <b>; rel=next", </y>; rel=next"#, "/y"), (#"</x>; rel=prev; rel=next"#, nil),
    (#"</x>; title="\"; rel=next"#, nil), ("</x>, </y>", nil), ("<", nil), ("<a", nil), ("<>;rel=next", "/a"),
    (#"</b?k=s3cret&x=1&k>; rel="next""#, "/b?x=1"), ("</b?k=1>;rel=next", "/b"), ("<#f>; rel=next", "/a"),
  ]) func aLinkIsFollowedWithoutWhatTheConfigurationAdds(field: String, path: String?) throws {
    #expect(try link(field) == path)
  }

  private func link(_ field: String) throws -> String? {
    var head = UpstreamResponse(
      status: 200, url: "http://h/a", contentLength: nil, contentType: nil, entityTag: nil, lastModified: nil,
      retryAfter: nil)
    head.answer = ["Link": [field]]
    return try PollPosition(HTTPCursor(.link("next"), in: .url)).position(
      in: head, from: try HTTPURL("http://h").origin, without: [HTTPQueryItem(name: "k", value: "v")])?.text
  }

  @Test(arguments: [
    "<http://other/>;rel=next", "<https://h/>;rel=next", "<//h:81/>;rel=next", "<http://h@x/>;rel=next",
  ])
  func aLinkToAnotherOriginIsAFailure(field: String) {
    #expect(throws: SourceFailure("the position in the answer is a link to another origin; the one before stays")) {
      try link(field)
    }
  }

  @Test func theLastElementOfAnArrayIsExact() throws {
    let program = try JQProgram(".result[-1].update_id")
    for (text, value) in [
      (#"{"result":[{"update_id":9007199254740993},{"update_id":9007199254740995}]}"#, "9007199254740995"),
      (#"{"result":[{"update_id":1},{}]}"#, "null"), (#"{"result":[]}"#, "null"), (#"{"result":null}"#, "null"),
      (
        #"{"result":[[{"update_id":3}],{"update_id":4},{"a":[{"update_id":5}],"update_id":9007199254740993}]}"#,
        "9007199254740993"
      ),
    ] { #expect(try program.outputs(for: Array(text.utf8)) == [Array(value.utf8)], "\(text)") }
    #expect(JQTransform.roundsNumbers(".a[-2]") == JQProgram.roundsNumbers && !JQTransform.roundsNumbers(".a[-1].b"))
    let paths = try JQProgram(".[-1][-1]")
    #expect(try paths.outputs(for: Array("[[1],[2,9007199254740993]]".utf8)) == [Array("9007199254740993".utf8)])
  }

  // MARK: Polls

  private func poll(
    _ path: String, _ cursor: HTTPCursor, every: Duration = .milliseconds(1), on thread: SourceThread,
    _ change: (inout HTTPConfiguration) -> Void = { _ in }, with context: (inout SourceContext) -> Void = { _ in }
  ) -> Source<HTTPPoll> {
    var configuration = HTTPConfiguration(
      url: upstream.url(path), retry: Backoff(first: .milliseconds(1), max: .milliseconds(2)))
    configuration.cursor = cursor
    change(&configuration)
    let source: (inout SourceContext) -> Void = {
      $0.executable = testExecutable
      context(&$0)
    }
    return HTTPPoll(configuration, every: every).source(on: thread, with: source)
  }

  private let pages = ["[1, 2, 3]", "[4, 5, 6]", "[7, 8]"]

  @Test(arguments: ["linked", "headed", "graphql"]) func aPollContinuesAtThePositionOfEachAnswer(kind: String)
    async throws
  {
    try await withSourceThread { thread in
      var cursor =
        kind == "linked" ? HTTPCursor(.link("next"), in: .url) : HTTPCursor(.header("X-Next"), in: .header("X-After"))
      if kind == "graphql" {
        cursor = HTTPCursor(.program(".data.orders.pageInfo.endCursor"), in: .body("/variables/after"))
      }
      let taker = Taker(.unlimited)
      poll("/\(kind)/\(key)?total=8", cursor, on: thread) {
        guard kind == "graphql" else { return }
        ($0.method, $0.body) = (.post, HTTPBody(Array(#"{"variables": {"after": null}}"#.utf8)))
      }.subscribe(taker)
      let events = await taker.next(3)
      #expect(zip(events, pages).allSatisfy { $0.contains($1) }, "\(events)")
      taker.cancel()
      let told = try upstream.told(key)
      #expect(told.positions.prefix(3) == ["", "c3", "c6"])
    }
  }

  @Test func pagesFollowAtOnceWithinTheirNumberAndTheDemand() async throws {
    try await withSourceThread { thread in
      var cursor = HTTPCursor(.header("X-Next"), in: .query("after"))
      cursor.pages = 3
      cursor.start = .init("c3")
      let taker = Taker(.max(2))
      poll("/headed/\(key)?total=100", cursor, every: .seconds(86400), on: thread).subscribe(taker)
      #expect(await taker.next(2) == ["[4, 5, 6]", "[7, 8, 9]"])
      #expect(try upstream.told(key).positions == ["c3", "c6"])
      taker.request(.unlimited)
      #expect(await taker.next(1) == ["[10, 11, 12]"])
      _ = try await thread.fetch(upstream.url("/count/x\(key)"))
      #expect(try upstream.told(key).positions == ["c3", "c6", "c9"])
      taker.cancel()
    }
  }

  @Test func aPositionThatIsNoneFailsAndStays() async throws {
    try await withSourceThread { thread in
      let sentences = AsyncStream.makeStream(of: String.self)
      let taker = Taker(.unlimited)
      let answers = #"{"n":"a"},{"n":[]},{"n":true},no,{"m":1},{"n":""},{"n":"b"}"#
      poll(
        "/scripted/\(key)?do=\(Upstream.escaped(answers))", HTTPCursor(.program(".n"), in: .query("after")), on: thread
      ) {
        $0.content = .json
      } with: { context in
        let thread = context.thread
        context = SourceContext(on: thread) {
          if case .failing(let text, _, _) = $0 { sentences.continuation.yield(text) }
        }
        context.executable = testExecutable
      }.subscribe(taker)
      #expect(await taker.next(4) == [#"{"n":"a"}"#, #"{"m":1}"#, #"{"n":""}"#, #"{"n":"b"}"#])
      var told = sentences.stream.makeAsyncIterator()
      for _ in 0..<2 { #expect(await told.next()?.contains("is a text or a number") == true) }
      #expect(await told.next() == "cursor.from fails on the answer; the position stays")
      while try upstream.asked(key).count < 8 { _ = try await thread.fetch(upstream.url("/seen/x")) }
      taker.cancel()
      let paths = try upstream.asked(key).map { $0[3].split(separator: "&").dropFirst().joined() }
      #expect(paths.prefix(8) == ["", "after=a", "after=a", "after=a", "after=a", "after=a", "after=a", "after=b"])
    }
  }

  /// The log has the position with its events, and the next process continues there.
  @Test func thePositionIsStoredWithItsEvents() async throws {
    let checkpoint = Shared<Checkpoint?>(nil)
    var cursor = HTTPCursor(.header("X-Next"), in: .query("after"))
    func next(_ expected: String, body: String = "", pipeline: String = "") async throws {
      try await withSourceThread { thread in
        let taker = Taker(.max(1))
        poll("/headed/\(key)?total=100", cursor, on: thread) {
          ($0.method, $0.body) = (.post, HTTPBody(Array(body.utf8)))
        } with: {
          $0.checkpoint = { scope in scope == .event ? nil : checkpoint.withLock { $0 } }
          $0.pipeline = pipeline
        }.map { batch in
          checkpoint.withLock { $0 = batch.checkpoint ?? $0 }
          return batch
        }.subscribe(taker)
        #expect(await taker.next(1) == [expected])
        taker.cancel()
      }
    }
    try await next("[1, 2, 3]")
    try await next("[4, 5, 6]", body: "other")
    try await next("[7, 8, 9]", pipeline: "other")
    cursor.start = .init("c50")
    try await next("[51, 52, 53]")
    cursor.start = nil
    try await next("[1, 2, 3]")
  }
}

/// A program that has the processes of jq: the daemon.
private let testExecutable = (try? ChildProcess.built("streamd")) ?? ""
