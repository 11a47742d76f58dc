import Events
import FoundationEssentials
import HTTP
import RSocket
import ReplayLog
import StreamProtocol
import Testing

@testable import StreamServer

/// What is not JSON, in streams whose events are to be JSON.
@Suite struct ValidationTests {
  private static let lines = "Content-Type: application/x-ndjson"
  private static let sentence = #"the value is not JSON, which "p" requires"#

  private func malformed(_ harness: ServerHarness, _ name: String) throws -> UInt64 {
    let client = try WireClient.ready(harness.path)
    client.get("$streams", options: #"{"ids": false}"#)
    let rows = try JSONDecoder().decode([CatalogueEntry].self, from: Data(try client.event().data))
    let row = try #require(rows.first { $0.name == name })
    let statistics = try #require(harness.server.statistics.byStream.first { $0.name == name })
    #expect(row.malformed == statistics.malformed)
    let metrics = try HTTPWireClient(harness).fetch("/metrics").text
    #expect(metrics.contains("streamd_stream_malformed_total{stream=\"\(name)\"} \(statistics.malformed)\n"))
    return statistics.malformed
  }

  private func stored(_ harness: ServerHarness, _ name: String) throws -> [String] {
    let stream = try #require(harness.server.streams[name])
    return stream.log.read { storage, _ in
      (storage.firstPosition..<storage.endPosition).map { id -> String in
        unsafe String(decoding: storage.record(at: id)[EventLog.stampBytes...], as: UTF8.self)
      }
    }
  }

  @Test func whatIsNotJSONIsCountedWhereJSONIsExpected() async throws {
    try await withServer { harness in
      func send(_ name: String, _ change: (inout StreamConfiguration) -> Void) throws {
        let source = try harness.add(name, start: .always) {
          change(&$0)
          $0.replay = 9
        }
        harness.eventually { source.isSubscribed }
        for event in [#"{"k":"a"}"#, "k", #"{"k":"#, "1"] { source.send(Array(event.utf8)) }
        harness.eventually { harness.server.statistics.byStream.first { $0.name == name }?.eventsIn == 4 }
      }
      try send("json") { $0.type = "application/geo+json; charset=utf-8" }
      try send("text") { $0.type = "text/plain" }
      try send("keyed") { ($0.type, $0.key) = ("text/plain", KeyDefinition(key: ".k")) }
      try send("both") { $0.key = KeyDefinition(key: ".k") }
      try send("certain") { $0.jsonCheck = .none }
      try send("ends") { $0.jsonCheck = .ends }
      for (name, count) in [
        ("json", 2), ("text", 0), ("keyed", 2), ("both", 2), ("certain", 0), ("ends", 2),
      ] as [(String, UInt64)] {
        #expect(try malformed(harness, name) == count, "\(name)")
        #expect(try stored(harness, name).count == 4)
      }
      #expect(harness.server.statistics.malformed == 8)
    }
  }

  @Test func aPublishedValueThatIsNotJSONIsRefused() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.requiresJSON = true }
      let client = try WireClient.ready(harness.path)
      client.publish("p", Array("x".utf8))
      #expect(try client.receive() == .error(StreamID(1), .invalid, Self.sentence))
      client.publish("p", Array("1".utf8), id: 3)
      guard case .requestN = try client.receive() else {
        Issue.record("no credit")
        return
      }
      client.values(["2", "{", "3"].map { Array($0.utf8) }, id: 3)
      #expect(try client.receive() == .error(StreamID(3), .invalid, "value 3: \(Self.sentence)"))
      client.toss("p", Array("4".utf8), id: 5)
      client.toss("p", Array("y".utf8), id: 7)
      #expect(try client.isSilent())
      #expect(harness.server.statistics.droppedValues == 1)
      #expect(try stored(harness, "p") == ["1", "2", "4"])
      #expect(try malformed(harness, "p") == 3)
    }
  }

  @Test func aPOSTOfAValueThatIsNotJSONIsUnprocessable() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.requiresJSON = true }
      for (body, type, status, accepted, number) in [
        ("{\"a\":1}", "", 200, 1, 0), ("x", "", 422, 0, 1), ("", "", 422, 0, 1), ("[1", "", 422, 0, 1),
        ("1\r\n\r\n2\n 3 ", Self.lines, 200, 3, 0), ("4\n5\nx\n6\n", Self.lines, 422, 2, 3),
        ("\"a\n\"b\"", Self.lines, 422, 0, 1), ("7\n8x", Self.lines, 422, 1, 2), ("9\ntru", Self.lines, 422, 1, 2),
      ] as [(String, String, Int, Int, Int)] {
        let client = try HTTPWireClient(harness)
        client.post("/streams/p", body, type.isEmpty ? "Content-Type: text/plain" : type)
        let response = try client.response()
        #expect(response.status == status && response.text.contains("\"accepted\":\(accepted)"), "\(body): \(response)")
        guard status == 422 else { continue }
        let detail = (type.isEmpty ? "" : "value \(number): ") + Self.sentence.replacing("\"", with: "\\\"")
        #expect(response.text.contains("\"detail\":\"\(detail)\""), "\(body): \(response)")
      }
      #expect(try stored(harness, "p") == ["{\"a\":1}", "1", "2", " 3 ", "4", "5", "7", "9"])
      #expect(try malformed(harness, "p") == 7)
    }
  }

  @Test func aValueIsExaminedInTheSlicesInWhichItArrives() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.requiresJSON = true }
      for (end, status) in [("\"", 200), ("", 422)] {
        let body = "\"" + String(repeating: "aé\\n", count: 50_000) + end
        let client = try HTTPWireClient(harness)
        client.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        let bytes = Array(body.utf8)
        for start in stride(from: 0, to: bytes.count, by: 9973) {
          let chunk = bytes[start..<min(bytes.count, start + 9973)]
          client.send(Array("\(String(chunk.count, radix: 16))\r\n".utf8) + chunk + Array("\r\n".utf8))
        }
        client.send("0\r\n\r\n")
        #expect(try client.response().status == status)
      }
      // What cannot become JSON any more is not waited for.
      let client = try HTTPWireClient(harness)
      client.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n[1}")
      #expect(try client.response().status == 422)
    }
  }

  /// About 300 kB, which are examined in many slices.
  private static func large(_ key: String, end: String = "]}") -> String {
    "{\"k\":\"\(key)\",\"v\":[" + String(repeating: "[],", count: 100_000) + "0" + end
  }

  @Test func aLargePublishedValueIsExaminedBeforeWhatFollowsIt() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.requiresJSON = true }
      let client = try WireClient.ready(harness.path)
      let (good, bad) = (Self.large("a"), Self.large("b", end: "]"))
      client.publish("p", Array(good.utf8))
      client.values([good, "1", good, "2", bad, "3"].map { Array($0.utf8) })
      var frame = try client.receive()
      while case .requestN = frame { frame = try client.receive() }
      #expect(frame == .error(StreamID(1), .invalid, "value 6: \(Self.sentence)"))
      client.publish("p", Array(bad.utf8), id: 3)
      #expect(try client.receive() == .error(StreamID(3), .invalid, Self.sentence))
      client.publish("p", Array(good.utf8), isComplete: true, id: 5)
      #expect(try client.receive() == .payload(StreamID(5), Payload(), follows: false, isComplete: true, isNext: false))
      client.toss("p", Array(good.utf8), id: 7)
      client.toss("p", Array(bad.utf8), id: 9)
      client.toss("p", Array("4".utf8), id: 11)
      #expect(try client.isSilent())
      harness.eventually { harness.server.statistics.droppedValues == 1 }
      #expect(try stored(harness, "p") == [good, good, "1", good, "2", good, good, "4"])
      #expect(try malformed(harness, "p") == 3)
    }
  }

  @Test func aLargePublishedValueHasItsKey() async throws {
    try await withServer { harness in
      try harness.addPublished("p") {
        $0.key = KeyDefinition(key: ".k")
        $0.limits = .init(
          bytes: 8 << 20,
          state: .init(keys: 10, bytes: 8 << 20, keyDigest: 1) { event in
            var reader = EventKeyReader(KeyDefinition(key: ".k"))
            return unsafe reader?.key(of: event.bindMemory(to: UInt8.self).span)
          })
      }
      let client = try WireClient.ready(harness.path)
      client.publish("p", Array(Self.large("a").utf8))
      client.values(
        [Self.large("b"), #"{"k":"c"}"#, Self.large("d", end: "]"), Self.large("e")].map { Array($0.utf8) })
      client.toss("p", Array(Self.large("f").utf8), id: 3)
      let stream = try #require(harness.server.streams["p"])
      harness.eventually { stream.log.read { storage, _ in storage.appendedEvents } == 6 }
      let socket = try WebSocketClient(harness)
      socket.send(.setup(Setup()))
      let tossed = [(UInt32(1), Self.large("g")), (3, #"{"k":"h"}"#)].map { id, value in
        let payload = Payload(metadata: [1] + Array("p".utf8), data: Array(value.utf8))
        return WebSocketClient.encode(
          .request(StreamID(id), .fireAndForget, initialRequest: 0, payload, follows: false, isComplete: false))
      }
      socket.send(tossed.flatMap { WebSocketClient.message($0) })
      harness.eventually { stream.log.read { storage, _ in storage.appendedEvents } == 8 }
      let ids = try ["a", "b", "c", "d", "e", "f", "g", "h"].map { try stream.newestID(ofKey: $0).get() }
      let first = try #require(ids[0])
      #expect(ids == [first, first + 1, first + 2, nil, first + 4, first + 5, first + 6, first + 7])
      #expect(try malformed(harness, "p") == 1)
    }
  }

  @Test func valuesThatArriveDuringARestartAreValidatedBeforeTheyAreConfirmed() async throws {
    try await withTwoServers { first, next in
      // The former process accepted anything.
      for harness in [first, next] {
        try harness.addPublished("p") {
          ($0.limits, $0.replay, $0.requiresJSON) = (.init(events: 4), 4, harness === next)
          $0.overflow = .block(timeout: nil)
        }
      }
      let reader = try WireClient.ready(first.path)
      reader.subscribe("p", credit: 1)
      first.eventually { first.server.statistics.subscribers == 1 }
      let client = try HTTPWireClient(first)
      client.post("/streams/p", (1...20).map { $0 == 20 ? "x\n" : "\($0)\n" }.joined(), Self.lines)
      let partial = try ["[", "["].map { text in
        let partial = try HTTPWireClient(first)
        partial.send("POST /streams/p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n\(text)")
        return partial
      }
      #expect(try reader.events(1) == [[49]])
      first.eventually { first.server.statistics.eventsIn == 5 && first.server.statistics.publishers == 3 }
      try await first.handOver(to: next)
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      partial[0].send("1]")
      partial[1].send("1}")
      let response = try client.response()
      #expect(response.status == 422 && response.text.contains("\"accepted\":19"), "\(response)")
      #expect(try partial[0].response().text == "{\"accepted\":1}\n")
      #expect(try partial[1].response().status == 422)
      #expect(try malformed(next, "p") == 2)
    }
  }

  @Test func largeValuesAreStoredOnceOverARestartDuringTheirExamination() async throws {
    try await withTwoServers(ServerLimits(workers: 1)) { first, next in
      for harness in [first, next] { try harness.addPublished("p") { $0.requiresJSON = true } }
      let values = (0..<8).map { Self.large("\($0)") }
      let clients = try values.map { _ in try WireClient.ready(first.path) }
      for (index, client) in clients.enumerated() {
        client.publish("p", Array("\(index)".utf8))
        client.values([Array(values[index].utf8)], isComplete: true)
      }
      try await first.handOver(to: next)
      for client in clients {
        var frame = try client.receive()
        while case .requestN = frame { frame = try client.receive() }
        #expect(frame == .payload(StreamID(1), Payload(), follows: false, isComplete: true, isNext: false))
      }
      let all = try stored(first, "p") + stored(next, "p")
      #expect(all.sorted() == (values + (0..<8).map { "\($0)" }).sorted(), "\(all.map { $0.prefix(20) })")
    }
  }

  @Test func aChangeOfTheStreamAppliesToTheNextValue() async throws {
    try await withServer { harness in
      let source = try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", "x")
      #expect(try client.response().status == 200)
      var configuration = try #require(harness.server.streams["p"]).configuration
      configuration.requiresJSON = true
      _ = harness.server.change([StreamChange(configuration)], removing: [])
      client.post("/streams/p", "x")
      #expect(try client.response().status == 422)
      #expect(source.publisherCount == 0)
      #expect(try malformed(harness, "p") == 2)
    }
  }
}
