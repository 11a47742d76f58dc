import FoundationEssentials
import RSocket
import ReplayLog
import Testing

@testable import StreamServer

@Suite struct NewestStreamTests {
  private struct Entry: Decodable, Equatable {
    let name: String
    let bytes: Int
    var text: String?
    var cut: Bool?
  }

  private struct Snapshot: Decodable {
    let by_stream: [Entry]
  }

  private func newest(_ client: WireClient, id: UInt32 = 1) throws -> [Entry] {
    client.get("$newest", options: #"{"ids": false}"#, id: id)
    return try JSONDecoder().decode(Snapshot.self, from: Data(try client.event().data)).by_stream
  }

  @Test(arguments: [
    ("{\"a\":\n   1}", "{\"a\": 1}", false), ("", "", false), (" \t ", "", false),
    (String(repeating: "é", count: 60), String(repeating: "é", count: 60), false),
    (String(repeating: "é", count: 61), String(repeating: "é", count: 60), true),
    (String(repeating: "\u{10000}", count: 200_000), String(repeating: "\u{10000}", count: 60), true),
    ("a" + String(repeating: " ", count: 500) + "b", "a ", true),
  ])
  func itHasHowTheNewestEventBegins(event: String, text: String, isCut: Bool) async throws {
    try await withServer { harness in
      _ = try harness.add("empty")
      for (name, type) in [("bytes", "application/octet-stream"), ("texts", "text/plain")] {
        let source = try harness.add(name) { $0.type = type }
        source.send([1])
        source.send(Array(event.utf8))
      }
      let count = event.utf8.count
      #expect(
        try newest(WireClient.ready(harness.path)) == [
          Entry(name: "bytes", bytes: count),
          Entry(name: "texts", bytes: count, text: text, cut: isCut ? true : nil),
        ])
    }
  }

  @Test func onlyReadersSeeIt() async throws {
    try await withServer { harness in
      try harness.addPublished("inbox") {
        $0.read = AccessRules([.user(1001)]); $0.write = AccessRules([.user(1002)])
      }
      #expect(harness.server.append(.init([[49]]), to: "inbox"))
      let server = harness.server
      #expect(try newest(WireClient(server, user: 1001)).map(\.name) == ["inbox"])
      #expect(try newest(WireClient(server, user: 1002)) == [])
      let change = StreamConfiguration(
        name: "inbox", start: .always, read: AccessRules([.user(1003)]),
        write: AccessRules([.user(1001), .user(1002)]))
      #expect(harness.server.change([StreamChange(change)], removing: []).isEmpty)
      #expect(try newest(WireClient(server, user: 1001)) == [])
      let client = try WireClient(server, user: 1001)
      client.subscribe("$newest", credit: 10, options: #"{"from":-10}"#)
      #expect(String(decoding: try client.event().data, as: UTF8.self) == #"{"by_stream":[]}"#)
    }
  }
}
