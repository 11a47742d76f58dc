import Glibc
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct FailureTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  @Test func aResponseThatTakesTooLongIsAFailure() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url("/hang/\(key)")) { $0.timeout = .milliseconds(50) }
      #expect(fetched.failure == "no complete response from \(upstream.authority) within 50 ms")
    }
  }

  /// Each response is within the timeout, both together are not.
  @Test func theTimeoutIncludesRedirects() async throws {
    try await withSourceThread { thread in
      let second = Upstream.redirect(key, to: "/count/\(key)", "&delay=0.3")
      let first = upstream.url(Upstream.redirect(key, to: second, "&delay=0.3"))
      let fetched = try await thread.fetch(first) { $0.timeout = .milliseconds(500) }
      #expect(fetched.failure == "no complete response from \(upstream.authority) within 500 ms")
    }
  }

  @Test func aConnectionThatClosesMidBodyIsAFailure() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url("/cut/\(key)"))
      #expect(fetched.failure == "\(upstream.authority) closed the connection before the response was complete")
    }
  }

  @Test(arguments: [
    ("Nothing", "", "a header has no colon"), ("A: \0b", "", "a header has a NUL byte"),
    ("Content-Length: x1", "", "its Content-Length is not a number"),
    ("Transfer-Encoding: chunked", "zz\r\n1\r\n", "its chunks cannot be decoded"),
    ("Transfer-Encoding: chunked", "2\r\nabc\r\n", "its chunks cannot be decoded"),
  ])
  func aMalformedResponseIsAFailureThatSaysWhatIsWrong(head: String, body: String, flaw: String) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url(Upstream.raw(key, head, Array(body.utf8))))
      #expect(fetched.failure == "the response of \(upstream.authority) is malformed: \(flaw)")
    }
  }

  @Test func aPortWithoutAServerIsNamed() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch("http://user:secret@127.0.0.1:1/path?token=secret")
      #expect(fetched.failure == "could not connect to 127.0.0.1:1: Connection refused")
    }
  }

  @Test func aSocketWithoutAServerIsNamed() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch("http://a/") { $0.unixSocket = "/nowhere/s" }
      #expect(fetched.failure == "could not connect to /nowhere/s: No such file or directory")
    }
  }

  @Test func anUnknownHostIsNamed() async throws {
    try await withSourceThread { thread in
      let host = String(repeating: "x", count: 64)  // one byte too long for a name: no server is queried
      let fetched = try await thread.fetch("http://user:secret@\(host)/secret")
      #expect(fetched.failure == "could not resolve host \(host)")
    }
  }

  @Test func anUntrustedCertificateIsRefused() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.secureURL("/count/\(key)"))
      let failure = try #require(fetched.failure)
      #expect(failure.hasPrefix("TLS with \(upstream.secureAuthority) failed: "), "\(failure)")
      #expect(failure.contains("certificate"), "\(failure)")
    }
  }

  @Test(arguments: [10, 100_000]) func endlessHeadersAreAFailure(count: Int) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url("/headers/\(key)?count=\(count)"))
      #expect(fetched.failure == (count == 10 ? nil : "headers over 256 KiB"))
    }
  }

  @Test func aHeadCanBeRefused() async throws {
    try await withSourceThread { thread in
      let url = upstream.url("/announce/\(key)?bytes=100000000000")
      let fetched = try await thread.fetch(url, plan: .refuse(SourceFailure("no")))
      #expect(fetched.failure == "no")
      #expect(fetched.body.isEmpty)
    }
  }

  @Test(arguments: [10, 64 << 10, 10_000_000]) func aDiscardedBodyIsNotAFailure(bytes: Int) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url("/size/\(key)?bytes=\(bytes)&chunked"), plan: .discard)
      #expect(fetched.status == 200)
      #expect(fetched.body.isEmpty)
    }
  }

  @Test(arguments: [
    ("ftp://h/", "not an http or https URL"), ("file:///etc/passwd", "not an http or https URL"),
    ("no scheme at all", "not a valid URL"), ("", "not a valid URL"), ("http://", "not a valid URL"),
    ("http://h:99999/", "not a valid URL"), ("gopher://user:secret@h/", "not an http or https URL"),
  ])
  func anInvalidURLIsRefusedWithoutRepeatingIt(text: String, sentence: String) {
    #expect(throws: SourceFailure(sentence)) { _ = try HTTPURL(text) }
  }

  @Test func aURLIsParsed() throws {
    let url = try HTTPURL("HTTPS://us%65r:p%40ss@Example.ORG/a/../b?q=1#part")
    #expect(url.string == "https://example.org/b?q=1" || url.string == "https://Example.ORG/b?q=1")
    #expect(url.user == "user")
    #expect(url.password == "p@ss")
    #expect(url.origin == HTTPURL.Origin(scheme: "https", host: "example.org", port: "443"))
    #expect(url.origin.authority == "example.org")
    #expect(try HTTPURL("http://h:8080/").origin.authority == "h:8080")
    #expect(try HTTPURL("../c?x", relativeTo: url).string.hasSuffix("/c?x"))
    #expect(try HTTPURL("//other/c", relativeTo: url).string == "https://other/c")
  }
}
