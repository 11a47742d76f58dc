import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct RedirectTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  @Test(arguments: [301, 302, 303, 307, 308]) func aRedirectIsFollowed(code: Int) async throws {
    try await withSourceThread { thread in
      let url = upstream.url(Upstream.redirect("a" + key, to: "/count/\(key)", "&code=\(code)"))
      let fetched = try await thread.fetch(url)
      #expect(fetched.text == "1\n")
      #expect(fetched.heads == 1)
      #expect(try fetched.result.get().url == upstream.url("/count/\(key)"))
    }
  }

  @Test(arguments: [100, 5_000_000]) func theBodyOfARedirectIsDiscarded(bytes: Int) async throws {
    try await withSourceThread { thread in
      let url = upstream.url(Upstream.redirect("a" + key, to: "/count/\(key)", "&bytes=\(bytes)"))
      let fetched = try await thread.fetch(url)
      #expect(fetched.text == "1\n")
    }
  }

  @Test(arguments: ["ftp://127.0.0.1/x", "file:///etc/passwd", "gopher://127.0.0.1:70/x"])
  func aRedirectToAnotherSchemeIsAFailure(target: String) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url(Upstream.redirect(key, to: target, "&retry=7")))
      #expect(fetched.failure == "redirected to a scheme other than http or https")
      #expect(fetched.result == .failure(SourceFailure(fetched.failure ?? "", retryAfter: .seconds(7))))
    }
  }

  @Test(arguments: HTTPRedirects.allCases) func aRedirectOutsideTheAllowedOriginsIsAFailure(redirects: HTTPRedirects)
    async throws
  {
    let home = upstream.url("")
    let targets = [home, upstream.otherURL(""), upstream.trustedURL("")]
    let allowed: [HTTPRedirects: [Bool]] = [
      .none: [false, false, false], .sameOrigin: [true, false, false], .https: [true, false, true],
      .any: [true, true, true],
    ]
    try await withSourceThread { thread in
      for (target, isAllowed) in zip(targets, try #require(allowed[redirects])) {
        let url = upstream.url(Upstream.redirect("a" + key, to: target + "/count/\(uniqueKey())"))
        let fetched = try await thread.fetch(url) { [authorities = upstream.file("authority.pem")] request in
          request.redirects = redirects
          request.trust.authorities = authorities
        }
        if isAllowed {
          #expect(fetched.text == "1\n", "\(target) \(fetched)")
        } else {
          #expect(fetched.failure == "redirected to \(target), which redirects = \"\(redirects.rawValue)\" forbids")
        }
      }
    }
  }

  @Test func byDefaultRedirectsToHTTPOrAnotherPortFail() async throws {
    try await withSourceThread { thread in
      for target in [
        upstream.url("/count/\(key)"), upstream.otherURL("/count/\(key)"), upstream.secureURL("/count/\(key)"),
      ] {
        let url = upstream.trustedURL(Upstream.redirect("a" + key, to: target))
        let fetched = try await thread.fetch(url) { [authorities = upstream.file("authority.pem")] request in
          request.trust.authorities = authorities
        }
        #expect(fetched.failure?.hasPrefix("redirected to http") == true)
      }
      let seen = try await thread.seen(key, at: upstream)
      #expect(seen == 0)
    }
  }

  @Test func aCookieLivesWithinOneFetch() async throws {
    try await withSourceThread { thread in
      for _ in 0..<2 {
        let fetched = try await thread.fetch(upstream.url("/wall/\(key)"))
        #expect(fetched.text == "wall=\(key)")
      }
      let seen = try await thread.seen(key, at: upstream)
      #expect(seen == 4)  // the second fetch had none at first
      let fetched = try await thread.fetch(upstream.url("/wall/\(key)")) {
        $0.headers = [HTTPHeader(name: "Cookie", value: "mine=1")]
      }
      #expect(fetched.text == "wall=\(key); mine=1")
    }
  }

  @Test func aCookieReturnsToItsOriginAndReachesNoOther() async throws {
    try await withSourceThread { thread in
      let other = uniqueKey()
      // Here, to another port of the same host, and back.
      let way = upstream.otherURL(Upstream.redirect(other, to: upstream.url("/wall/\(key)")))
      let fetched = try await thread.fetch(upstream.url("/wall/\(key)?to=\(Upstream.escaped(way))")) {
        $0.redirects = .any
      }
      #expect(fetched.text == "wall=\(key)")
      let cookie = try await thread.lastHeaders(other, at: upstream)["cookie"]
      #expect(cookie == nil)
    }
  }

  @Test func theBytesOfALocationArePercentEncoded() async throws {
    try await withSourceThread { thread in
      let hexadecimal = "Location: /count/\(key)/".utf8.map { String($0, radix: 16) }.joined()
      let head = hexadecimal + "e920c3a90109223c7f25"
      let fetched = try await thread.fetch(upstream.url("/raw/x\(key)?code=302&head=\(head)"))
      #expect(fetched.status == 200)
      let path = try await thread.lastHeaders(key, at: upstream)["path"]
      #expect(path == "/count/\(key)/%e9%20%c3%a9%01%09%22%3c%7f%")
    }
  }

  @Test func aRedirectToAnInvalidURLIsAFailure() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url(Upstream.redirect(key, to: "http://h:99999/")))
      #expect(fetched.failure == "redirected to something that is not a URL")
    }
  }

  @Test func circularRedirectsEnd() async throws {
    try await withSourceThread { thread in
      #expect(try await thread.fetch(upstream.url("/circle/\(key)")).failure == "more than 10 redirects")
      let seen = try await thread.seen(key, at: upstream)
      #expect(seen == 11)
    }
  }

  @Test func secretsAreSentOnlyToTheOriginOfTheURL() async throws {
    try await withSourceThread { thread in
      let url = upstream.url(Upstream.redirect("a" + key, to: upstream.otherURL("/count/\(key)")))
      let fetched = try await thread.fetch(url) { request in
        request.redirects = .any
        request.bearer = "secret"
        request.headers = [
          HTTPHeader(name: "X-Api-Key", value: "secret"), HTTPHeader(name: "Cookie", value: "secret"),
          HTTPHeader(name: "Accept", value: "application/json"),
        ]
        request.validators = Validators(url: request.url.string, entityTag: "\"secret\"", lastModified: nil)
      }
      #expect(fetched.text == "1\n")
      let home = try await thread.lastHeaders("a" + key, at: upstream)
      #expect(home["authorization"] == "Bearer secret")
      #expect(home["x-api-key"] == "secret")
      #expect(home["if-none-match"] == "\"secret\"")
      let away = try await thread.lastHeaders(key, at: upstream)
      #expect(away["accept"] == "application/json")
      #expect(away["user-agent"] == "test")
      #expect(!away.values.contains { $0.contains("secret") }, "\(away)")
    }
  }

  @Test func secretsAreSentOnRedirectsWithinTheOrigin() async throws {
    try await withSourceThread { thread in
      let url = upstream.url(Upstream.redirect("a" + key, to: "/count/\(key)"))
      _ = try await thread.fetch(url) { request in
        request.bearer = "secret"
        request.headers = [HTTPHeader(name: "X-Api-Key", value: "key"), HTTPHeader(name: "X-Empty", value: "")]
      }
      let headers = try await thread.lastHeaders(key, at: upstream)
      #expect(headers["authorization"] == "Bearer secret")
      #expect(headers["x-api-key"] == "key")
      #expect(headers["x-empty"] == "")
    }
  }

  @Test func aUserInTheURLIsSentOnlyToItsOrigin() async throws {
    try await withSourceThread { thread in
      let away = Upstream.redirect("b" + key, to: upstream.otherURL("/count/\(key)"))
      let url = upstream.url(Upstream.redirect("a" + key, to: away))
        .replacing("http://", with: "http://us%65r:pass@")
      let fetched = try await thread.fetch(url) { $0.redirects = .any }
      #expect(fetched.text == "1\n")
      for hop in ["a", "b"] {
        let headers = try await thread.lastHeaders(hop + key, at: upstream)
        #expect(headers["authorization"] == "Basic dXNlcjpwYXNz")
      }
      let headers = try await thread.lastHeaders(key, at: upstream)
      #expect(headers["authorization"] == nil)
    }
  }

  @Test func aLoginIsSentOnlyToTheOriginOfTheURL() async throws {
    try await withSourceThread { thread in
      let url = upstream.url(Upstream.redirect("a" + key, to: upstream.otherURL("/count/\(key)")))
      _ = try await thread.fetch(url) {
        $0.login = HTTPLogin(user: "us er", password: "pa:ss")
        $0.redirects = .any
      }
      let home = try await thread.lastHeaders("a" + key, at: upstream)
      #expect(home["authorization"] == "Basic dXMgZXI6cGE6c3M=")
      let away = try await thread.lastHeaders(key, at: upstream)
      #expect(away["authorization"] == nil)
    }
  }

  @Test(arguments: [true, false]) func aQueryIsAddedOnceAndNotToARedirect(isElsewhere: Bool) async throws {
    try await withSourceThread { thread in
      let target = isElsewhere ? upstream.otherURL("/count/\(key)") : "/count/\(key)"
      let configuration = HTTPConfiguration(
        url: upstream.url(Upstream.redirect("a" + key, to: target)),
        query: [HTTPQueryItem(name: "key", value: "se=c&r+e t/é"), HTTPQueryItem(name: "a b", value: "")])
      let query = try configuration.request(nil).url
      #expect(query.string.hasSuffix("&key=se%3dc%26r%2be%20t%2f%c3%a9&a%20b="), "\(query.string)")
      let fetched = try await thread.fetch(query.string) { $0.redirects = .any }
      #expect(fetched.text == "1\n")
      let home = try await thread.lastHeaders("a" + key, at: upstream)
      #expect(home["path"]?.contains("key=se%3dc%26r%2be%20t%2f%c3%a9") == true)
      let away = try await thread.lastHeaders(key, at: upstream)
      #expect(away["path"] == "/count/\(key)" && away["referer"] == nil)
    }
  }

  @Test func aQueryIsAddedToAURLWithoutOne() throws {
    let item = HTTPQueryItem(name: "a", value: "1")
    #expect(try HTTPURL("http://h/x", adding: [item]).string == "http://h/x?a=1")
    #expect(try HTTPURL("http://h/x?b=2#part", adding: [item, item]).string == "http://h/x?b=2&a=1&a=1")
  }

  @Test func validatorsAreSentOnlyToTheirURL() async throws {
    try await withSourceThread { thread in
      let url = upstream.url(Upstream.redirect("a" + key, to: "/version/\(key)?by=tag"))
      let first = try await thread.fetch(url)
      let validators = try #require(try first.result.get().validators)
      let second = try await thread.fetch(url) { $0.validators = validators }
      #expect(second.status == 304)
      #expect(second.body.isEmpty)
      let headers = try await thread.lastHeaders("a" + key, at: upstream)
      #expect(headers["if-none-match"] == nil)
    }
  }
}
