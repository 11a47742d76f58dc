import Events
import Glibc
import HTTP
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Responses that are open when the type of their stream changes: those that would have to write events in another way
/// than their head says end, so that the client asks again.
@Suite struct HTTPTypeChangeTests {
  private static let (json, text, image) = ("application/json", "text/plain", "image/png")

  /// Types before and after, a query, and what a client gets that makes the request again; nil: the response continues.
  private static let changes: [(String, String, String, Int?)] = [
    (json, image, "as=sse", 406), (text, image, "as=sse", 406), (json, text, "as=sse", nil),
    (text, json, "as=sse", nil), (json, text, "as=ndjson", 406), (json, image, "as=ndjson", 406),
    (json, "application/geo+json", "as=ndjson", nil), (json, text, "as=json-seq", 406),
    (json, image, "as=json-seq", 406), (json, text, "as=ndjson&ids=1", 200), (text, json, "as=ndjson&ids=1", 200),
    (text, image, "as=ndjson&ids=1", 200), (image, text, "as=json-seq&ids=1", 200),
    (text, "text/html", "as=ndjson&ids=1", nil), (image, "image/gif", "as=ndjson&ids=1", nil),
    (json, image, "as=raw", 200), (text, json, "as=raw", nil), (image, "image/gif", "as=raw", nil),
  ]

  private static func configuration(_ name: String, _ type: String) -> StreamConfiguration {
    StreamConfiguration(name: name, type: type, replay: 100, start: .always)
  }

  private static func change(_ harness: ServerHarness, _ name: String, to type: String) {
    #expect(harness.server.change([StreamChange(configuration(name, type))], removing: []).isEmpty)
  }

  /// Judges the rest of a response that has had the first of two events, `1` and `2`.
  private static func check(_ client: HTTPWireClient, _ query: String, _ type: String, ends: Bool, _ what: String)
    throws
  {
    var rest = ""
    while ends || !rest.contains("2"), let chunk = try client.chunkText() {
      if chunk.isEmpty {
        #expect(try ends && client.isAtEnd(), "\(what)")
        let end =
          "event: end\ndata: {\"reason\":\"the type of \\\"s\\\" is \(type) now\",\"type\":\"urn:streamd:type-changed\"}\n\n"
        #expect(rest == (query == "as=sse" ? end : ""), "\(what)")
        return
      }
      if !chunk.hasPrefix(":") { rest += chunk }
    }
    #expect(!ends && !rest.contains("end"), "\(what): \(rest)")
  }

  /// Begins a response, and reads the event `1`.
  private static func begin(_ harness: ServerHarness, _ query: String) throws -> HTTPWireClient {
    let client = try HTTPWireClient(harness)
    client.get("/streams/s?\(query)")
    #expect(try client.head()?.status == 200)
    if query == "as=sse" { _ = try client.chunk() }  // the time of the next try
    #expect(try client.chunk() != nil)
    return client
  }

  /// An event that fits the new type.
  private static func event(ends: Bool) -> [UInt8] { ends ? [0, 10, 13, 255] : [50] }

  @Test(arguments: changes + [(image, text, "as=raw", 200), (image, json, "as=raw", 200)])
  func aResponseEndsIfItCannotContinue(old: String, new: String, query: String, status: Int?) async throws {
    let (event, ends) = (Self.event(ends: status != nil), status != nil)
    try await withServer { harness in
      let source = try harness.add("s") { $0 = Self.configuration("s", old) }
      source.send([49])
      let client = try Self.begin(harness, query)
      Self.change(harness, "s", to: new)
      source.send(event)
      try Self.check(client, query, new, ends: ends, "\(old) to \(new), \(query)")
      let again = try HTTPWireClient(harness)
      again.get("/streams/s?\(query)")
      let head = try again.head()
      #expect(head?.status == status ?? 200)
    }
  }

  @Test(arguments: changes) func aResponseEndsIfTheNextServerCannotContinueIt(
    old: String, new: String, query: String, status: Int?
  ) async throws {
    let (event, ends) = (Self.event(ends: status != nil), status != nil)
    let next = try ServerHarness(ServerLimits(workers: 2), restores: true)
    try await withServer { first in
      let sources = try [(first, old), (next, new)].map { harness, type in
        let configuration = Self.configuration("s", type)
        let log = try #require(EventLog(name: "s", limits: configuration.limits, firstID: 1000))
        log.append(EventBatch([[49]]))
        let source = HandFedSource()
        try harness.server.add(configuration, log: log, source: source)
        return source
      }
      let client = try Self.begin(first, query)
      try await first.handOver(to: next)
      next.eventually { sources[1].isSubscribed }
      sources[1].send(event)
      try Self.check(client, query, new, ends: ends, "\(old) to \(new), \(query)")
    }
    await next.stop()
  }

  @Test func allStreamsOfAResponseEndWithOne() async throws {
    try await withServer { harness in
      let sources = try ["a", "s"].map { name in try harness.add(name) { $0 = Self.configuration(name, Self.text) } }
      let client = try HTTPWireClient(harness)
      client.get("/streams/a,s?as=sse")
      _ = try client.head()
      _ = try client.chunk()
      harness.eventually { harness.server.statistics.subscribers == 2 }
      Self.change(harness, "s", to: Self.image)
      for source in sources { source.send([255, 10]) }
      try Self.check(client, "as=sse", Self.image, ends: true, "two streams")
      harness.eventually { harness.server.statistics.subscribers == 0 }
    }
  }

  @Test func requestsOfRSocketContinue() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { $0 = Self.configuration("s", Self.json) }
      let (webSocket, plain) = (try WebSocketClient(harness), try WireClient.ready(harness.path))
      webSocket.send(.setup(Setup()))
      webSocket.subscribe("s", credit: 10)
      plain.subscribe("s", credit: 10)
      harness.eventually { harness.server.statistics.subscribers == 2 }
      Self.change(harness, "s", to: Self.image)
      source.send([0, 255])
      #expect(try webSocket.event() == [0, 255] && plain.events(1) == [[0, 255]])
    }
  }

  @Test func aWaitingRequestIsAnsweredInTheNewType() async throws {
    try await withServer { harness in
      let source = try harness.add("s") { $0 = Self.configuration("s", Self.json) }
      let client = try HTTPWireClient(harness)
      client.get("/streams/s?wait=60s")
      harness.eventually { harness.server.statistics.subscribers == 1 }
      Self.change(harness, "s", to: Self.image)
      source.send([0, 255])
      let response = try client.response()
      #expect(response["Content-Type"] == Self.image && response.body == [0, 255], "\(response)")
    }
  }
}
