import Events
import Glibc
import HTTP
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Events as messages of a WebSocket.
@Suite struct EventWebSocketTests {
  /// A stream with these events.
  @discardableResult
  private func add(
    _ harness: ServerHarness, _ name: String, _ events: [UInt8]..., type: String = "application/json",
    _ change: (inout StreamConfiguration) -> Void = { _ in }
  ) throws -> HandFedSource {
    let source = try harness.add(name) {
      ($0.type, $0.replay) = (type, 100)
      change(&$0)
    }
    if !events.isEmpty { source.send(batch: events) }
    return source
  }

  private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

  // MARK: Messages

  @Test func eachEventIsAMessageOfTheKindOfItsStream() async throws {
    try await withServer { harness in
      try add(harness, "json", bytes(#"{"a":"é"}"#), bytes("no\njson"), [0x22, 0xFF, 0x22], [])
      try add(harness, "text", bytes("a\r\nb"), [0x61, 0xC3, 0x62, 0xF0, 0x9F], type: "text/plain")
      try add(harness, "binary", [0xFF, 0], [], type: "image/png")
      let json = try WebSocketClient(harness, at: "/streams/json")
      #expect(try json.text() == #"{"a":"é"}"# && json.text() == "no\njson" && json.text() == "\"\u{FFFD}\"")
      #expect(try json.text() == "")
      let text = try WebSocketClient(harness, at: "/streams/text")
      #expect(try text.text() == "a\r\nb" && text.text() == "a\u{FFFD}b\u{FFFD}")
      let binary = try WebSocketClient(harness, at: "/streams/binary")
      #expect(try binary.whole()! == (false, [0xFF, 0]) && binary.whole()! == (false, []))
    }
  }

  @Test func anEnvelopeIsThatOfALineWithoutItsEnd() async throws {
    try await withServer { harness in
      try add(harness, "json", bytes("{\n}"), bytes("no json"))
      try add(harness, "text", bytes("é\n"), [0xFF], type: "text/plain")
      try add(harness, "binary", [0xFF, 0], type: "image/png")
      for name in ["json", "text", "binary"] {
        let response = try HTTPWireClient(harness).fetch("/streams/\(name)?as=ndjson&ids=1&follow=0")
        let lines = response.text.split(separator: "\n").map(String.init)
        let client = try WebSocketClient(harness, at: "/streams/\(name)?ids=1&follow=0")
        for line in lines {
          let text = try #require(try client.text())
          #expect(text.replacing("\n", with: " ") == line && text.hasPrefix("{\"id\":"), "\(text) \(line)")
        }
        #expect(!lines.isEmpty)
        #expect(try client.closing()?.code == 1000)
      }
    }
  }

  @Test func severalStreamsAndPatternsNameTheStreamOfEachEvent() async throws {
    try await withServer { harness in
      let sources = [try add(harness, "a/1", bytes("1")), try add(harness, "a/2", bytes("2"))]
      let both = try WebSocketClient(harness, at: "/streams/a/1,a/2?ids=1&from=latest,latest")
      let all = try WebSocketClient(harness, at: "/streams/a/*?ids=1&marker=1")
      for client in [both, all] {
        let texts = [try #require(try client.text()), try #require(try client.text())].sorted()
        #expect(texts[0].hasPrefix(#"{"stream":"a/1","id":"#) && texts[0].hasSuffix(#""data":1}"#), "\(texts)")
        #expect(texts[1].hasPrefix(#"{"stream":"a/2","id":"#) && texts[1].hasSuffix(#""data":2}"#), "\(texts)")
        #expect(texts[0].contains("\"position\"") == (client === all))
      }
      #expect(try all.text()?.hasSuffix(#""caught_up":true}"#) == true)
      sources[0].send(bytes("3"))
      #expect(try both.text()?.hasSuffix(#""data":3}"#) == true && all.text()?.hasSuffix(#""data":3}"#) == true)
    }
  }

  @Test func theParametersAreThoseOfAStreamingResponse() async throws {
    try await withServer { harness in
      try add(harness, "s", bytes("1"), bytes("2"), bytes("3"))
      for (query, wanted) in [
        ("follow=0", ["1", "2", "3"]), ("last=2&follow=0", ["2", "3"]), ("from=-1&follow=0", ["3"]),
        ("count=2", ["1", "2"]), (#"where={"":{"ge":2}}&follow=0"#, ["2", "3"]), ("from=new&follow=0", []),
        ("as=&ids=0", nil),
      ] as [(String, [String]?)] {
        let target = "/streams/s?\(query)".replacing("\"", with: "%22")
        guard let wanted else {
          let client = try HTTPWireClient(harness)
          client.send(WebSocketClient.handshake(at: target))
          #expect(try client.response().status == 400)
          continue
        }
        let client = try WebSocketClient(harness, at: target)
        for text in wanted { #expect(try client.text() == text, "\(query)") }
        #expect(try client.closing() == .init([3, 232] + bytes("complete")), "\(query)")
      }
      let first = try HTTPWireClient(harness).fetch("/streams/s?as=ndjson&ids=1&follow=0").text
      let id = try #require(first.dropFirst(6).split(separator: ",").first)
      let client = try WebSocketClient(harness, at: "/streams/s?lastEventID=\(id)&follow=0")
      #expect(try client.text() == "2")
    }
  }

  @Test func eventsThatAreMissingAreReportedBeforeTheNextOne() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try add(harness, "s") { $0.limits = .init(events: 4) }
      let client = try WebSocketClient(harness, at: "/streams/s?ids=1&from=new", receiveBuffer: 4096)
      let other = try WebSocketClient(harness, at: "/streams/s?from=new", receiveBuffer: 4096)
      harness.eventually { harness.server.statistics.subscribers == 2 }
      // One frame each, so that none is in part in the socket when it leaves the buffer.
      let large = [0x22] + [UInt8](repeating: 0x61, count: 20_000) + [0x22]
      for _ in 0..<200 { source.send(large) }
      source.send(bytes("1"))
      var (lost, events) = (0, 0)
      while let text = try client.text() {
        if text.hasPrefix("{\"lost\":") { lost += Int(text.dropFirst(8).dropLast()) ?? 0 } else { events += 1 }
        if text.hasSuffix("\"data\":1}") { break }
      }
      #expect(lost > 0 && events + lost == 201, "\(events) \(lost)")
      // Without ids a message is an event.
      while let text = try other.text(), text != "1" { #expect(text.utf8.count == large.count) }
    }
  }

  @Test func aMarkerShowsThatAClientIsCurrent() async throws {
    try await withServer { harness in
      try add(harness, "s", bytes("1"))
      let client = try WebSocketClient(harness, at: "/streams/s?ids=1&marker=1")
      #expect(try client.text()?.hasSuffix("\"data\":1}") == true)
      let marker = try #require(try client.text())
      #expect(marker.hasPrefix("{\"id\":") && marker.hasSuffix(",\"caught_up\":true}"), "\(marker)")
    }
  }

  @Test func aLargeEventIsOneMessageInSeveralFrames() async throws {
    try await withServer { harness in
      let text = String(repeating: "aé€😀", count: 100_000)
      try add(harness, "text", bytes(text), bytes("1"), type: "text/plain")
      try add(harness, "json", bytes("\"\(text)\""), bytes("1"))
      for (target, data) in [("text", text), ("json", "\"\(text)\""), ("json?ids=1", "\"\(text)\"")] {
        let client = try WebSocketClient(harness, at: "/streams/\(target)", receiveBuffer: 4096)
        let whole = try #require(try client.text())
        #expect(target.hasSuffix("ids=1") ? whole.hasSuffix(",\"data\":\(data)}") : whole == data)
        #expect(try client.text()?.contains("1") == true)
      }
    }
  }

  // MARK: The handshake

  @Test func aRefusedHandshakeHasTheStatusThatAGETWouldHave() async throws {
    try await withServer { harness in
      try add(harness, "s", bytes("1"))
      try add(harness, "closed", bytes("1")) { $0.read = AccessRules([.user(4_000_000)]) }
      try harness.addPublished("inbox") { $0.write = AccessRules([.user(4_000_000)]) }
      try add(harness, "failed").finish(.failure(StreamFailure("no more")))
      harness.eventually { harness.server.streams["failed"]?.log.hasEnded == true }
      for (target, status) in [
        ("none", 404), ("closed", 403), ("s,closed?ids=1", 403), ("s,none?ids=1", 404), ("s,s?ids=1", 400),
        ("s?from=0x", 400), ("s?marker=1", 400), ("s?as=sse", 400), ("s?wait=1s", 400), ("s?key=1", 400),
        ("s?where=1", 400), ("s?nothing=1", 400), ("s?from=99999999999999999", 400), ("s,closed", 403),
        ("s,inbox", 400),
        ("*", 400), ("failed", 502), ("s?publish=1", 405), ("none?publish=1", 404), ("inbox?publish=1", 403),
        ("s?publish=2", 400), ("inbox?publish=1&ids=1", 400), ("s,inbox?publish=1", 400), ("s*?publish=1", 400),
      ] {
        let client = try HTTPWireClient(harness)
        client.send(WebSocketClient.handshake(at: "/streams/\(target)"))
        let response = try client.response()
        #expect(response.status == status, "\(target): \(response)")
        #expect(response["Content-Type"] == "application/problem+json", "\(target): \(response)")
        #expect((response["Allow"] != nil) == (status == 405), "\(target): \(response)")
        #expect(try client.fetch("/healthz").status == 200, "the connection stays: \(target)")
      }
      for (fields, status) in [
        (["Sec-WebSocket-Version: 8"], 426), (["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAA"], 400),
        (["Sec-WebSocket-Version: 13"], 400),
        (
          ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Origin: http://a.example"],
          403
        ),
      ] {
        let client = try HTTPWireClient(harness)
        client.request("GET", "/streams/s", ["Upgrade: websocket", "Connection: Upgrade"] + fields)
        #expect(try client.response().status == status, "\(fields)")
      }
      let plain = try HTTPWireClient(harness)
      #expect(try plain.fetch("/streams/s?publish=1").status == 400)
    }
  }

  /// An EventSource would get 200, and ask again.
  @Test func atALimitTheHandshakeIsRefusedWhateverItAccepts() async throws {
    try await withServer(ServerLimits(workers: 1, requestsPerUser: 1)) { harness in
      try add(harness, "s", bytes("1"))
      let client = try WebSocketClient(harness, at: "/streams/s")
      #expect(try client.text() == "1")
      let other = try HTTPWireClient(harness)
      other.send(WebSocketClient.handshake(at: "/streams/s", "Accept: text/event-stream"))
      let response = try other.response()
      #expect(response.status == 503 && response["Retry-After"] != nil, "\(response)")
    }
  }

  @Test func noSubprotocolAndNoExtensionIsChosen() async throws {
    try await withServer { harness in
      try add(harness, "s", bytes("1"))
      let client = try HTTPWireClient(harness)
      client.send(
        WebSocketClient.handshake(
          at: "/streams/s", "Sec-WebSocket-Protocol: rsocket, mqtt", "Sec-WebSocket-Extensions: permessage-deflate"))
      let head = try #require(try client.head())
      #expect(head.status == 101 && head["Sec-WebSocket-Protocol"] == nil && head["Sec-WebSocket-Extensions"] == nil)
      #expect(try WebSocketClient(client).text() == "1")
    }
  }

  // MARK: Control frames

  @Test func silenceLasts15Seconds() { #expect(ServerLimits(workers: 1).http.silence == .seconds(15)) }

  @Test func pingsAreAnsweredAndSilenceIsBroken() async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.silence = .milliseconds(30)
    try await withServer(limits) { harness in
      try add(harness, "s", bytes("1"))
      let client = try WebSocketClient(harness, at: "/streams/s", early: WebSocketClient.message([7], opcode: 9))
      var seen: Set<UInt8> = []
      while seen != [1, 9, 10] {
        let (opcode, payload) = try #require(try client.message())
        #expect(opcode != 10 || payload == [7])
        seen.insert(opcode)
      }
      client.send(WebSocketClient.message([], opcode: 10))
      #expect(harness.server.statistics.subscribers == 1)
    }
  }

  @Test func eachPingOfAPieceIsAnsweredInOrder() async throws {
    try await withServer { harness in
      try add(harness, "s", bytes("1"))
      try harness.addPublished("p")
      for target in ["s", "p?publish=1"] {
        let client = try WebSocketClient(harness, at: "/streams/\(target)")
        if target == "s" { #expect(try client.text() == "1") }
        let payloads = [0, 1, 125].map { [UInt8](repeating: 0xFF, count: $0) }
        let pings = payloads.flatMap {
          WebSocketClient.message($0, opcode: 9) + WebSocketClient.message($0, opcode: 10)
        }
        client.send(pings)
        for byte in pings { client.send([byte]) }
        for payload in payloads + payloads { #expect(try client.message()! == (10, payload), "\(target)") }
      }
    }
  }

  @Test func aClientThatClosesGetsItsCodeBack() async throws {
    try await withServer { harness in
      try add(harness, "s", bytes("1"))
      for payload in [[], [3, 232], [15, 160] + bytes("bye")] as [[UInt8]] {
        let client = try WebSocketClient(harness, at: "/streams/s")
        #expect(try client.text() == "1")
        for byte in WebSocketClient.message(payload, opcode: 8) { client.send([byte]) }
        #expect(try client.closing() == .init(Array(payload.prefix(2))))
      }
      let gone = try WebSocketClient(harness, at: "/streams/s")
      #expect(try gone.text() == "1")
      gone.http.closeWriting()
      harness.eventually { harness.server.statistics.connections == 0 && harness.server.statistics.subscribers == 0 }
    }
  }

  @Test(
    arguments: [
      ([0x82, 0x80, 0, 0, 0, 0], 1008), ([0x01, 0x80, 0, 0, 0, 0], 1008), ([0x82, 0x01, 0x00], 1002),
      ([0xC2, 0x80, 0, 0, 0, 0], 1002), ([0x83, 0x80, 0, 0, 0, 0], 1002), ([0x80, 0x80, 0, 0, 0, 0], 1008),
      ([0x09, 0x80, 0, 0, 0, 0], 1002), ([0x89, 0xFE, 0, 126, 0, 0, 0, 0], 1002), ([0x88, 0x81, 0, 0, 0, 0, 1], 1002),
      ([0x88, 0x83, 0, 0, 0, 0, 3, 232, 255], 1007), ([0x82, 0xFF, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 1008),
      ([0x89, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1002),
    ] as [([UInt8], Int)]) func aViolationOrAMessageClosesWithItsCode(bytes: [UInt8], code: Int) async throws
  {
    try await withServer { harness in
      try add(harness, "s")
      let client = try WebSocketClient(harness, at: "/streams/s")
      client.send(bytes)
      #expect(try client.closing()?.code == code)
      harness.eventually { harness.server.statistics.connections == 0 && harness.server.statistics.subscribers == 0 }
    }
  }

  // MARK: The end

  @Test(arguments: ["ended", "failed", "removed", "denied", "typed"]) func theCodeSaysWhyItEnds(reason: String)
    async throws
  {
    try await withServer { harness in
      let source = try add(harness, "s", bytes("1"))
      let client = try WebSocketClient(harness, at: "/streams/s")
      #expect(try client.text() == "1")
      var terms = StreamConfiguration(name: "s")
      switch reason {
      case "ended": source.finish()
      case "failed": source.finish(.failure(StreamFailure("no more")))
      case "removed": #expect(harness.server.change([], removing: ["s"]).isEmpty)
      case "denied":
        terms.read = AccessRules([.user(4_000_000)])
        #expect(harness.server.change([StreamChange(terms)], removing: []).isEmpty)
      default:
        terms.type = "image/png"
        #expect(harness.server.change([StreamChange(terms)], removing: []).isEmpty)
      }
      let codes = ["ended": 1000, "failed": 1011, "removed": 4404, "denied": 1008, "typed": 1012]
      let closing = try #require(try client.closing())
      #expect(closing.code == codes[reason] && !closing.reason.isEmpty, "\(closing)")
    }
  }

  @Test func aKickClosesAPlainWebSocketWith1008() async throws {
    try await withServer { harness in
      try add(harness, "s", bytes("1"))
      try harness.addPublished("p")
      for target in ["s", "p?publish=1"] {
        let client = try WebSocketClient(harness, at: "/streams/\(target)")
        let number = harness.server.statistics.accepted
        let operatorClient = try WireClient.ready(harness.path)
        operatorClient.get("$control", options: "{\"kick\": \(number)}")
        #expect(try client.closing() == .init([3, 240] + bytes("an operator has ended this connection")), "\(target)")
      }
      harness.eventually { harness.server.statistics.publishers == 0 && harness.server.statistics.subscribers == 0 }
    }
  }

  @Test func everyReasonHasACodeThatAPeerMaySend() {
    for reason in FailureReason.allCases {
      let code = reason.closeCode
      #expect([1000, 1001, 1008, 1009, 1011, 1012, 1013, 4404].contains(code), "\(reason): \(code)")
    }
  }

  /// A client that lags, and one whose event leaves the buffer while it is sent: a close frame may follow a part of a message.
  @Test func aCloseFrameFollowsAPartOfAMessage() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      for query in ["from=new&on_lag=fail", "from=new", "from=new&ids=1"] {
        let name = "s\(query.utf8.count)"
        let source = try add(harness, name, type: "text/plain") { $0.limits = .init(events: 4, bytes: 4 << 20) }
        let client = try WebSocketClient(harness, at: "/streams/\(name)?\(query)", receiveBuffer: 4096)
        harness.eventually { harness.server.statistics.subscribers == 1 }
        source.send([UInt8](repeating: 65, count: 1_000_000))
        harness.eventually { harness.server.statistics.bytesOut > 0 }
        while !(await harness.isBlocked()) { usleep(1000) }
        for _ in 0..<8 { source.send([UInt8](repeating: 66, count: 1_000_000)) }
        let closing = try #require(try client.closing())
        #expect(closing.code == 1011, "\(query): \(closing)")
        harness.eventually { harness.server.statistics.connections == 0 }
      }
    }
  }

  @Test func aServerThatStopsClosesAPlainWebSocketWith1001() async throws {
    let harness = try ServerHarness()
    try add(harness, "s", bytes("1"))
    let client = try WebSocketClient(harness, at: "/streams/s")
    #expect(try client.text() == "1")
    await harness.stop()
    #expect(try client.closing() == .init([3, 233] + bytes("streamd is stopping")))
  }

  // MARK: Demand and counts

  @Test func aClientThatDoesNotReadDemandsNothing() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      let source = try harness.add("s", start: .whileSubscribed(linger: .zero)) { $0.type = "text/plain" }
      let client = try WebSocketClient(harness, at: "/streams/s", receiveBuffer: 4096)
      harness.eventually { source.demand > .none }
      let large = [UInt8](repeating: 65, count: 100_000)
      var count = 0
      while source.demand > .none, count < 1000 {
        source.send(large)
        count += 1
        usleep(1000)
      }
      #expect(count < 100, "\(count) events")
      for _ in 0..<count { #expect(try client.text()?.utf8.count == large.count) }
      harness.eventually { source.demand > .none }
    }
  }

  @Test func itCountsAsAWebSocketAndAsARequestOfItsUser() async throws {
    try await withServer { harness in
      try add(harness, "s", bytes("1"))
      let client = try WebSocketClient(harness, at: "/streams/s")
      #expect(try client.text() == "1")
      let metrics = try HTTPWireClient(harness).fetch("/metrics").text
      #expect(metrics.contains("streamd_connections{protocol=\"websocket\"} 1\n"), "\(metrics.prefix(3000))")
      #expect(metrics.contains("streamd_connections{protocol=\"http\"} 1\n"))
      client.send(WebSocketClient.message([], opcode: 8))
      _ = try client.closing()
      harness.eventually { harness.server.statistics.connections == 0 }
      #expect(
        try HTTPWireClient(harness).fetch("/metrics").text.contains("streamd_connections{protocol=\"websocket\"} 0\n"))
    }
  }
}
