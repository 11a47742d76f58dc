import StreamRuntime
import Synchronization
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct TransferTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  @Test func aBodyIsDeliveredUnchanged() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url("/count/\(key)"))
      #expect(fetched.status == 200)
      #expect(fetched.body == Array("1\n".utf8))
      #expect(fetched.heads == 1)
    }
  }

  @Test(arguments: ["", "&chunked", "&gzip"]) func aLargeBodyArrivesInPieces(how: String) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url("/size/\(key)?bytes=3000000\(how)"))
      #expect(fetched.body == [UInt8](repeating: UInt8(ascii: "x"), count: 3_000_000))
      #expect(fetched.pieces > 1)
    }
  }

  @Test(arguments: ["", "&chunked", "&gzip"]) func aPauseAtEveryPieceLosesNothing(how: String) async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url("/size/\(key)?bytes=300000\(how)"), pausing: true)
      #expect(fetched.body == [UInt8](repeating: UInt8(ascii: "x"), count: 300_000))
    }
  }

  @Test func connectionsAreReused() async throws {
    try await withSourceThread { thread in
      for _ in 0..<5 { _ = try await thread.fetch(upstream.url("/count/\(key)")) }
      let peers = try await thread.lastHeaders(key, at: upstream)["peers"]?.split(separator: " ") ?? []
      #expect(peers.count == 5 && Set(peers).count == 1)
    }
  }

  /// With that, libcurl would take all connections to the host for such that carry several requests at once.
  @Test func aResponseThatClaimsToBeHTTP2LetsNoRequestsShareAConnection() async throws {
    try await withSourceThread(transfersPerHost: 16) { thread in
      async let held = thread.fetch(upstream.url("/hold/\(key)"))
      while try await thread.seen(key, at: upstream) == 0 {}
      #expect(try await thread.fetch(upstream.url("/raw/claims\(key)?version=2.0&body=61")).text == "a")
      async let others = withThrowingTaskGroup(of: Fetched.self) { group in
        for _ in 0..<8 { group.addTask { try await thread.fetch(upstream.url("/count/others\(key)")) } }
        return try await group.reduce(into: Set<String>()) { $0.insert($1.text) }
      }
      // Those that share the connection of the first one get no response before it.
      for _ in 0..<40 { _ = try await thread.fetch(upstream.otherURL("/count/pace\(key)")) }
      _ = try await thread.fetch(upstream.otherURL("/release/\(key)"))
      #expect(try await held.text == "1\n")
      #expect(try await others == Set((1...8).map { "\($0)\n" }))
      let peer = try await thread.lastHeaders(key, at: upstream)["peers"]
      let peers = try await thread.lastHeaders("others\(key)", at: upstream)["peers"]?.split(separator: " ") ?? []
      #expect(peers.count == 8 && peer != nil && !peers.contains { $0 == peer! })
    }
  }

  /// A day at most is waited; that is for the sources.
  @Test(
    arguments: [
      ("7", 7...7), ("0", 0...0), (" 7 ", 7...7), ("007", 7...7), ("7, 9", 7...7), ("1.5", 1...1), ("-5", 0...0),
      ("99999999999999999999", .max ... .max), ("soon", 0...0), ("2026-11-25T11:00:50Z", nil),
      ("Sun, 06 Nov 1994 08:49:37 GMT", 0...0), ("Sun, 06 Nov 2094 08:49:37 GMT", 1_000_000...(.max)),
      ("Saturday, 06-Nov-60 08:49:37 GMT", 1_000_000...(.max)), ("Sat Nov  6 08:49:37 2060", 1_000_000...(.max)),
    ] as [(String, ClosedRange<Int64>?)])
  func retryAfterIsReadInEachOfItsForms(text: String, seconds: ClosedRange<Int64>?) async throws {
    try await withSourceThread { thread in
      let head = Array("Retry-After: \(text)".utf8).map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }
        .joined()
      let fetched = try await thread.fetch(upstream.url("/raw/\(key)?head=\(head)"))
      let time = try fetched.result.get().retryAfter
      #expect(
        time.map { seconds?.contains($0.components.seconds) == true } ?? (seconds == nil), "\(String(describing: time))"
      )
    }
  }

  @Test(arguments: [
    ("text/event-stream", true), ("Text/Event-Stream; charset=UTF-8", true), (" text/event-stream ;a=b", true),
    ("text/event-stream, text/event-stream", true), ("text/plain, text/event-stream;charset=utf-8", true),
    ("text/event-stream, text/plain", false), ("text/event-streams", false), ("text", false), ("", false), (nil, false),
  ])
  func theTypeOfAnEventStreamMayOccurTwice(type: String?, isEventStream: Bool) {
    let head = UpstreamResponse(
      status: 200, url: "", contentLength: nil, contentType: type, entityTag: nil, lastModified: nil, retryAfter: nil)
    #expect(head.isEventStream == isEventStream)
  }

  @Test func manyTransfersRunConcurrently() async throws {
    try await withSourceThread { thread in
      try await withThrowingTaskGroup(of: Fetched.self) { group in
        for _ in 0..<60 { group.addTask { try await thread.fetch(upstream.url("/count/\(key)")) } }
        var bodies = Set<String>()
        for try await fetched in group { bodies.insert(fetched.text) }
        #expect(bodies == Set((1...60).map { "\($0)\n" }))
      }
    }
  }

  @Test func aHangingTransferDoesNotDelayOthers() async throws {
    try await withSourceThread { thread in
      let hanging = try HTTPURL(upstream.url("/hang/\(key)"))
      thread.loop.execute {
        _ = thread.httpClient?.start(UpstreamRequest(url: hanging, userAgent: "test"), handler: Collector { _ in })
      }
      for _ in 0..<10 {
        let fetched = try await thread.fetch(upstream.url("/count/x\(key)"))
        #expect(fetched.status == 200)
      }
    }
  }

  @Test func anInformationalResponseIsNotTheHead() async throws {
    try await withSourceThread { thread in
      let fetched = try await thread.fetch(upstream.url("/early/\(key)"))
      #expect(fetched.heads == 1)
      #expect(try fetched.result.get().entityTag == "\"late\"")
    }
  }

  @Test func aUnixSocketReplacesTheHost() async throws {
    try await withSourceThread { thread in
      let path = upstream.unixSocket
      let fetched = try await thread.fetch("http://somewhere.invalid/count/\(key)") { $0.unixSocket = path }
      #expect(fetched.text == "1\n")
      let headers = try await thread.lastHeaders(key, at: upstream)
      #expect(headers["host"] == "somewhere.invalid")
    }
  }

  private static func useRelay(_ upstream: Upstream, _ key: String) async throws -> Bool {
    try await withSourceThread { thread in
      let path = upstream.unixSocket
      var isRight = true
      for count in [2, 1_000_000, 3] {
        let fetched = try await thread.fetch("http://h/size/\(key)?bytes=\(count)") { $0.unixSocket = path }
        isRight = isRight && fetched.body.count == count
      }
      let none = try await thread.fetch("http://a/") { $0.unixSocket = "/nowhere/s" }
      return isRight && none.failure == "could not connect to /nowhere/s: No such file or directory"
    }
  }

  @Test func aRelayOfAnOldKernelPassesPagesOfAnySize() async throws {
    await #expect(processExitsWith: .success) {
      LocalSocket.isOldKernelAssumed.store(true, ordering: .relaxed)
      guard try await Self.useRelay(Upstream.shared.get(), uniqueKey()) else { throw CancellationError() }
    }
  }

  @Test func aCancelledTransferMakesNoFurtherCalls() async throws {
    try await withSourceThread { thread in
      let ended = Atomic(false)
      let url = try HTTPURL(upstream.url("/hang/\(key)"))
      await withCheckedContinuation { continuation in
        thread.loop.execute {
          let collector = Collector { _ in ended.store(true, ordering: .relaxed) }
          let transfer = thread.httpClient?.start(UpstreamRequest(url: url, userAgent: "test"), handler: collector)
          transfer?.cancel()
          transfer?.cancel()
          continuation.resume()
        }
      }
      #expect(try await thread.fetch(upstream.url("/count/x\(key)")).status == 200)
      let hasEnded = ended.load(ordering: .relaxed)
      #expect(!hasEnded)
    }
  }
}
