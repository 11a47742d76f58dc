import TestSupport
import Testing

@testable import StreamSources

/// Bodies as servers encode them.
@Suite(.timeLimit(.minutes(10))) struct ContentCodingTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  private func url(_ query: String, text: String = "a text|and more") -> String {
    upstream.url("/coded/\(key)?text=\(Upstream.escaped(text))&\(query)")
  }

  @Test(arguments: ["", "&chunked=1"]) func severalGzipMembersAreOneBody(how: String) async throws {
    try await withSourceThread { thread in
      for more in ["", "&tail=0000"] {
        let fetched = try await thread.fetch(url("coding=gzip\(how)\(more)"))
        #expect(fetched.text == "a textand more", "\(fetched)")
      }
      let fetched = try await thread.fetch(url("coding=gzip\(how)", text: "||x|"))
      #expect(fetched.text == "x", "\(fetched)")
    }
  }

  @Test(arguments: ["zlib", "raw", "raw&tail=01020304"], ["", "&chunked=1"])
  func deflateMayLackZlibsHead(coding: String, how: String) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(url("coding=\(coding)\(how)"))
      #expect(fetched.text == "a text|and more", "\(fetched)")
    }
  }

  @Test(arguments: ["gzip", "zlib", "raw"], ["", "&chunked=1"])
  func aBodyThatIsCutOffIsAFailure(coding: String, how: String) async throws {
    try await withSourceThread { thread in
      let name = coding == "gzip" ? "gzip" : "deflate"
      for cut in 1...(coding == "raw" ? 2 : 9) {
        let fetched = try await thread.fetch(url("coding=\(coding)&cut=\(cut)\(how)"))
        #expect(fetched.failure == "the body, encoded with \(name), is cut off", "\(cut)")
      }
    }
  }

  @Test func aBodyOfOneByteIsCutOffAndAnEmptyOneIsNot() async throws {
    try await withSourceThread { thread in
      let one = try await thread.fetch(url("coding=none&names=gzip&tail=1f", text: ""))
      #expect(one.failure == "the body, encoded with gzip, is cut off")
      let none = try await thread.fetch(url("coding=none&names=gzip", text: ""))
      #expect(none.status == 200 && none.body.isEmpty)
    }
  }

  @Test(
    arguments: [
      "coding=none&names=gzip", "coding=none&names=deflate", "coding=gzip&tail=78", "coding=zlib&tail=78",
    ], [false, true])
  func aBodyThatIsNotWhatItSaysIsAFailure(query: String, pausing: Bool) async throws {
    try await withSourceThread { thread in
      let failure = try #require(try await thread.fetch(url(query, text: "hello hello"), pausing: pausing).failure)
      #expect(failure.hasPrefix("the body is not encoded with") && failure.hasSuffix(", as it says, or damaged"))
    }
  }

  @Test(arguments: [
    "identity", "aws-chunked", "UTF-8", "utf-8, none", "identity;UTF-8", ",,", "text/plain; charset=x",
  ])
  func aNameThatIsNoCodingLeavesTheBodyAsItIs(names: String) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(url("coding=none&names=\(Upstream.escaped(names))"))
      #expect(fetched.text == "a text|and more")
    }
  }

  @Test(arguments: ["GZIP", "x-gzip", " gzip , identity", "aws-chunked,gzip", "UTF-8;gzip", "\"gzip\""])
  func aCodingIsFoundAmongOtherNames(names: String) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(url("coding=gzip&names=\(Upstream.escaped(names))"))
      #expect(fetched.text == "a textand more")
    }
  }

  @Test(arguments: [
    "br": "the body has the Content-Encoding br", "gzip, ZSTD": "the body has the Content-Encoding zstd",
    "gzip,gzip": "the body has several content encodings", "deflate;gzip": "the body has several content encodings",
  ])
  func aCodingThatCannotBeDecodedIsNamed(names: String, failure: String) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(url("coding=gzip&names=\(Upstream.escaped(names))"))
      #expect(fetched.failure == failure)
    }
  }

  @Test func aTransferThatIsEncodedIsAFailure() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(url("coding=gzip&chunked=1&transfer=gzip&names=identity"))
      #expect(fetched.failure == "the response has a Transfer-Encoding other than chunked")
    }
  }

  @Test func gzipAndDeflateAreAskedForUnlessTheConfigurationSaysOtherwise() async throws {
    try await withSourceThread { thread in
      _ = try await thread.fetch(upstream.url("/count/\(key)"))
      #expect(try await thread.lastHeaders(key, at: upstream)["accept-encoding"] == "gzip, deflate")
      _ = try await thread.fetch(upstream.url("/count/\(key)")) {
        $0.headers = [HTTPHeader(name: "accept-encoding", value: "identity")]
      }
      #expect(try await thread.lastHeaders(key, at: upstream)["accept-encoding"] == "identity")
    }
  }

  @Test func aDiscardedBodyIsNotDecoded() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(url("coding=gzip&names=br"), plan: .discard)
      #expect(fetched.status == 200)
    }
  }

  @Test func halfALineOfABodyThatIsCutOffIsNoEvent() async throws {
    try await withSourceThread { thread in
      let reported = AsyncStream<SourceReport>.makeStream()
      let configuration = HTTPConfiguration(
        url: url("coding=gzip&cut=1", text: "one\ntwo\nthr"), retry: Backoff(first: .milliseconds(1)))
      let taker = Taker(.unlimited)
      HTTPStream(configuration, format: .lines).source(on: thread) { reported.continuation.yield($0) }.subscribe(taker)
      #expect(await taker.next(2) == ["one|two", "one|two"])
      let first = await reported.stream.first { _ in true }
      guard case .failing("the body, encoded with gzip, is cut off", attempt: 1, _)? = first else {
        Issue.record("\(String(describing: first))")
        return
      }
      taker.cancel()
    }
  }
}
