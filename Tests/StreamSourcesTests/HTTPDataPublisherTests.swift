import FoundationEssentials
import Reactive
import StreamSources
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct HTTPDataPublisherTests {
  private let upstream: Upstream

  init() throws { upstream = try Upstream.shared.get() }

  @Test func deliversDataAndResponseThenFinishes() async throws {
    let publisher = HTTPDataPublisher(url: upstream.url("/size/\(uniqueKey())?bytes=5"))
    var count = 0
    for try await (data, response) in publisher.values {
      #expect(data == Data("xxxxx".utf8))
      #expect(response.statusCode == 200 && response.url.hasPrefix("http://127.0.0.1:"))
      count += 1
    }
    #expect(count == 1)
  }

  @Test func composesAsInCombine() async throws {
    let key = uniqueKey()
    _ = try await HTTPDataPublisher(url: upstream.url("/count/\(key)")).values.first { _ in true }
    let headers = HTTPDataPublisher(url: upstream.url("/head/\(key)")).map(\.data)
      .tryMap { try JSONDecoder().decode([String: String].self, from: $0) }
    let agent = try await headers.values.first { _ in true }?["user-agent"]
    #expect(agent == "streamd")
  }

  @Test func eachSubscriberHasItsOwnRequestAtItsFirstDemand() async throws {
    let key = uniqueKey()
    let text = HTTPDataPublisher(url: upstream.url("/count/\(key)")).map { String(decoding: $0.data, as: UTF8.self) }
    var first = text.values.makeAsyncIterator()
    var second = text.values.makeAsyncIterator()
    #expect(try upstream.count(key) == 0)
    #expect(try await second.next() == "1\n")
    #expect(try await first.next() == "2\n")
  }

  @Test func anyStatusIsAResponse() async throws {
    let url = upstream.url("/status/\(uniqueKey())?code=404")
    let answer = try await HTTPDataPublisher(url: url).values.first { _ in true }
    #expect(answer?.response.statusCode == 404)
    #expect(answer?.data == Data("sorry".utf8))
  }

  @Test func failsWithAMessage() async throws {
    await expectFailure("url: not an http or https URL", of: HTTPDataPublisher(url: "ftp://127.0.0.1/"))
    let large = HTTPConfiguration(url: upstream.url("/size/\(uniqueKey())?bytes=2000"), maximumBodyBytes: 1024)
    await expectFailure("body over 1 KiB", of: HTTPDataPublisher(large))
    let chunked = HTTPConfiguration(
      url: upstream.url("/size/\(uniqueKey())?bytes=2000&chunked=1"), maximumBodyBytes: 1024)
    await expectFailure("body over 1 KiB", of: HTTPDataPublisher(chunked))
  }

  private func expectFailure(_ message: String, of publisher: HTTPDataPublisher) async {
    do {
      for try await value in publisher.values { Issue.record("\(value)") }
      Issue.record("no failure")
    } catch {
      #expect((error as? HTTPDataFailure)?.message == message)
    }
  }

  @Test func cancellingEndsTheTransfer() async throws {
    let key = uniqueKey()
    try await withSourceThread(transfersPerHost: 1) { thread in
      let hanging = HTTPDataPublisher(HTTPConfiguration(url: upstream.url("/hang/\(key)")), on: thread)
      let sink = hanging.sink(receiveCompletion: { _ in }, receiveValue: { _ in })
      while try upstream.count(key) == 0 { await Task.yield() }
      sink.cancel()
      // The only place of this host is free again.
      let next = HTTPDataPublisher(HTTPConfiguration(url: upstream.url("/size/\(key)?bytes=1")), on: thread)
      #expect(try await next.values.first { _ in true }?.data == Data("x".utf8))
    }
  }
}
