import Events
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

/// Sources with tokens.
@Suite(.timeLimit(.minutes(10))) struct OAuth2Tests {
  let upstream: Upstream
  let key = uniqueKey()
  let reports = Shared<[SourceReport]>([])
  /// A substitute for files.
  let files = Shared<[String: [UInt8]]>([:])

  init() throws { upstream = try Upstream.shared.get() }

  private func oauth2(_ query: String = "", grant: OAuth2.Grant = .clientCredentials) -> OAuth2 {
    OAuth2(tokenURL: upstream.url("/token/\(key)?\(query)"), clientID: "me", clientSecret: "s3cret/+&", grant: grant)
  }

  private var store: TokenStore {
    TokenStore(load: { [files] name in files.withLock { $0[name] } }) { [files] name, content, completed in
      files.withLock { $0[name] = content }
      completed(nil)
    }
  }

  private func poll(
    _ oauth2: OAuth2, _ query: String = "", store: TokenStore? = nil, on thread: SourceThread
  ) -> Source<HTTPPoll> {
    var configuration = HTTPConfiguration(
      url: upstream.url("/guarded/\(key)?\(query)"), retry: Backoff(first: .milliseconds(1), max: .milliseconds(2)))
    configuration.oauth2 = oauth2
    return HTTPPoll(configuration, every: .milliseconds(1)).source(on: thread, report: note) { $0.tokenStore = store }
  }

  private func note(_ report: SourceReport) { reports.withLock { $0.append(report) } }

  @Test func sourcesWithTheSameTableShareOneToken() async throws {
    try await withSourceThread { thread in
      for sendsForm in [false, true] {
        var oauth2 = oauth2()
        (oauth2.sendsSecretInForm, oauth2.scope) = (sendsForm, "a b")
        let takers = (0..<5).map { _ in Taker(.max(3)) }
        for taker in takers { poll(oauth2, on: thread).subscribe(taker) }
        for taker in takers { #expect(await taker.next(3).count == 3) }
        for taker in takers { taker.cancel() }
        let last = try upstream.granted(key).last
        #expect(last["grant_type"] == "client_credentials" && last["scope"] == "a b")
        #expect(last["client_secret"] == (sendsForm ? "s3cret/+&" : nil))
      }
      let granted = try upstream.granted(key)
      #expect(granted.requests == 2 && granted.refused == 0)
      #expect(reports.withLock { $0 }.isEmpty)
    }
  }

  @Test func aStreamingResponseHasATokenToo() async throws {
    try await withSourceThread { thread in
      var configuration = HTTPConfiguration(url: upstream.url("/guarded/\(key)"))
      configuration.oauth2 = oauth2()
      let taker = Taker(.max(1))
      HTTPStream(configuration, format: .lines).source(on: thread, report: note).subscribe(taker)
      #expect(await taker.next(1).count == 1)
      taker.cancel()
    }
  }

  @Test func aTokenIsRenewedOnceAfterA401() async throws {
    try await withSourceThread { thread in
      // The server forgets a token before the time that it has told.
      let taker = Taker(.unlimited)
      poll(oauth2("valid=0.2"), on: thread).subscribe(taker)
      while try upstream.granted(key).requests < 4 { _ = await taker.next(1) }
      taker.cancel()
      #expect(reports.withLock { $0 }.isEmpty)
      // No token is accepted: the status is the failure, and the token endpoint has no further requests.
      let before = try upstream.granted(key).requests
      let other = Taker(.unlimited)
      poll(oauth2("x=y"), "never=1", on: thread).subscribe(other)
      while reports.withLock({ $0.count }) < 20 { _ = try await thread.fetch(upstream.url("/seen/x")) }
      other.cancel()
      #expect(try upstream.granted(key).requests == before + 2)
      for case .failing(let sentence, _, _) in reports.withLock({ $0 }) { #expect(sentence == "HTTP 401 Unauthorized") }
    }
  }

  @Test(arguments: [
    ("500", "no token: HTTP 500 Internal Server Error, from "),
    ("{}", "no token: the answer has no access_token, from "),
    ("401", "no token: HTTP 401 Unauthorized, from "),
  ])
  func withoutATokenNoRequestIsSent(action: String, sentence: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      poll(oauth2("do=\(Upstream.escaped(action)),grant"), on: thread).subscribe(taker)
      _ = await taker.next(1)
      taker.cancel()
      let failures = reports.withLock { $0 }.compactMap { if case .failing(let text, _, _) = $0 { text } else { nil } }
      #expect(!failures.isEmpty && failures.allSatisfy { $0 == sentence + upstream.authority })
      let granted = try upstream.granted(key)
      #expect(granted.requests == 2 && granted.uses[""] == nil)
    }
  }

  @Test func theCodeOfARefusalIsShown() async throws {
    try await withSourceThread { thread in
      var oauth2 = oauth2()
      oauth2.clientSecret = "another"
      let taker = Taker(.unlimited)
      poll(oauth2, on: thread).subscribe(taker)
      while reports.withLock({ $0.isEmpty }) { _ = try await thread.fetch(upstream.url("/seen/x")) }
      taker.cancel()
      guard case .failing(let sentence, _, _)? = reports.withLock({ $0.first }) else { return }
      #expect(sentence == "no token: HTTP 401 Unauthorized (invalid_client), from \(upstream.authority)")
    }
  }

  @Test func aReplacedRefreshTokenIsUsedByTheNextProcess() async throws {
    for round in 1...4 {
      try await withSourceThread { thread in
        let taker = Taker(.max(1))
        poll(oauth2("rotate=1", grant: .refreshToken("first")), store: store, on: thread).subscribe(taker)
        #expect(await taker.next(1).count == 1)
        taker.cancel()
        let granted = try upstream.granted(key)
        #expect(granted.requests == round && granted.reused == 0 && granted.refused == 0)
      }
    }
    #expect(reports.withLock { $0 }.isEmpty)
    // The token of another credential is not used.
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      poll(oauth2("rotate=1", grant: .refreshToken("second")), store: store, on: thread).subscribe(taker)
      while reports.withLock({ $0.isEmpty }) { _ = try await thread.fetch(upstream.url("/seen/x")) }
      taker.cancel()
      #expect(try upstream.granted(key).last["refresh_token"] == "second")
    }
  }

  @Test func aRefreshTokenThatCannotBeStoredIsAFailureUntilItCan() async throws {
    try await withSourceThread { thread in
      let full = Shared(true)
      let store = TokenStore(load: { _ in nil }) { _, _, completed in
        completed(full.withLock { $0 } ? "No space left on device" : nil)
      }
      let taker = Taker(.unlimited)
      poll(oauth2("rotate=1", grant: .refreshToken("first")), store: store, on: thread).subscribe(taker)
      while reports.withLock({ $0.isEmpty }) { _ = try await thread.fetch(upstream.url("/seen/x")) }
      full.withLock { $0 = false }
      _ = await taker.next(1)
      taker.cancel()
      let granted = try upstream.granted(key)
      #expect(granted.requests == 1 && granted.uses[""] == nil)
      guard case .failing(let sentence, _, _)? = reports.withLock({ $0.first }) else { return }
      #expect(sentence.hasSuffix("the new one cannot be stored: No space left on device"))
    }
  }

  @Test func aTokenIsForTheOriginOfTheURLAlone() async throws {
    try await withSourceThread { thread in
      var configuration = HTTPConfiguration(
        url: upstream.url(Upstream.redirect("a" + key, to: upstream.otherURL("/count/\(key)"))), redirects: .any)
      configuration.oauth2 = oauth2()
      let taker = Taker(.max(1))
      HTTPPoll(configuration, every: .seconds(1)).source(on: thread, report: note).subscribe(taker)
      _ = await taker.next(1)
      taker.cancel()
      let (there, here) = (
        try await thread.lastHeaders(key, at: upstream), try await thread.lastHeaders("a" + key, at: upstream)
      )
      #expect(there["authorization"] == nil && here["authorization"] == "Bearer t1.\(key)")
    }
  }
}
