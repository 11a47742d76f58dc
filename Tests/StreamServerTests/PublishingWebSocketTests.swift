import Dispatch
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

/// Values as messages of a WebSocket.
@Suite struct PublishingWebSocketTests {
  private func open(_ harness: ServerHarness, _ name: String = "p") throws -> WebSocketClient {
    try WebSocketClient(harness, at: "/streams/\(name)?publish=1")
  }

  private func text(_ text: String) -> [UInt8] { WebSocketClient.message(Array(text.utf8), opcode: 1) }

  /// Sends what the socket takes.
  /// - Returns: the number of bytes; -1 if it takes none.
  private func sendNow(_ bytes: ArraySlice<UInt8>, _ client: WebSocketClient) throws -> Int {
    let flags = CInt(MSG_DONTWAIT | MSG_NOSIGNAL)
    return bytes.withUnsafeBytes { send(client.http.wire.descriptor.raw, $0.baseAddress, $0.count, flags) }
  }

  /// Sends while the test reads.
  private func sendLater(_ bytes: [UInt8], by client: WebSocketClient) {
    DispatchQueue.global().async { [descriptor = client.http.wire.descriptor.raw] in
      var rest = bytes[...]
      while !rest.isEmpty {
        let count = rest.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
        guard count > 0 else { return }
        rest = rest.dropFirst(count)
      }
    }
  }

  /// Reads confirmations up to this number.
  private func confirm(_ client: WebSocketClient, _ count: Int, sourceLocation: SourceLocation = #_sourceLocation)
    throws
  {
    var last = 0
    while last < count {
      let text = try #require(try client.text(sourceLocation: sourceLocation), sourceLocation: sourceLocation)
      #expect(text.hasPrefix("{\"accepted\":") && text.hasSuffix("}"), "\(text)", sourceLocation: sourceLocation)
      let next = Int(text.dropFirst(12).dropLast()) ?? 0
      #expect(next > last && next <= count, "\(text) after \(last)", sourceLocation: sourceLocation)
      last = max(last + 1, next)
    }
  }

  @Test func eachMessageIsAValueAndIsConfirmed() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.type = "application/octet-stream" }
      let client = try open(harness)
      client.send(text("a"))
      try confirm(client, 1)
      client.send(
        WebSocketClient.message([0xFF, 0]) + WebSocketClient.message([1], isLast: false)
          + WebSocketClient.message([9], opcode: 9) + WebSocketClient.message([2], opcode: 0))
      var (accepted, hasPong) = (1, false)
      while accepted < 3 || !hasPong {
        let (opcode, payload) = try #require(try client.message())
        if opcode == 10 { hasPong = payload == [9] } else { accepted = Int(payload[12]) - 48 }
      }
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("p", credit: 9)
      #expect(try reader.events(3) == [[97], [0xFF, 0], [1, 2]])
      client.send(WebSocketClient.message([], opcode: 8))
      #expect(try client.closing() == .init([]))
      harness.eventually { harness.server.statistics.publishers == 0 }
    }
  }

  @Test func valuesThatAreReadTogetherAreConfirmedOnce() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      try harness.addPublished("p")
      let client = try open(harness)
      client.send((1...1000).flatMap { text("\($0)") } + WebSocketClient.message([], opcode: 8))
      var (confirmations, last) = (0, "")
      while let (opcode, payload) = try client.message(), opcode != 8 {
        (confirmations, last) = (confirmations + 1, String(decoding: payload, as: UTF8.self))
      }
      #expect(last == "{\"accepted\":1000}" && confirmations <= 100, "\(confirmations) \(last)")
    }
  }

  @Test func aRefusedValueIsNamedAndTheConnectionStays() async throws {
    try await withServer { harness in
      try harness.addPublished("p") {
        $0.requiresJSON = true
        $0.limits = .init(events: 10, bytes: 100_000)
      }
      let client = try open(harness)
      let large = "\"" + String(repeating: "a", count: 90_000)
      for (value, reason) in [
        ("1", nil), ("no json", "not-json"), ("", "invalid-request"), (" \n", "invalid-request"), ("2", nil),
        (String(repeating: "1", count: 200_000), "too-large"), (large, "not-json"), (large + "\"", nil),
        ("1 2", "not-json"),
      ] as [(String, String?)] {
        client.send(text(value))
        let answer = try #require(try client.text())
        if let reason {
          #expect(answer.hasPrefix("{\"error\":\""), "\(answer)")
          #expect(answer.contains("\"reason\":\"\(reason)\",\"value\":"), "\(answer)")
        } else {
          #expect(answer.hasPrefix("{\"accepted\":"), "\(answer)")
        }
      }
      client.send(text("no") + text("3"))
      var answers: Set<String> = []
      while answers.count < 2 { answers.insert(try #require(try client.text())) }
      #expect(answers.contains("{\"accepted\":4}"), "\(answers)")
      #expect(answers.contains { $0.hasSuffix("\"reason\":\"not-json\",\"value\":10}") }, "\(answers)")
    }
  }

  @Test(
    arguments: [
      (WebSocketClient.message([0xC3], opcode: 1), 1007), (WebSocketClient.message([0x61, 0xFF], opcode: 1), 1007),
      ([0x82, 0xFF, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0], 1009),
      ([0x81, 0xFF, 0x80, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], 1002),
      ([0x82, 0xFF, 0x7F, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0], 1009), ([0x82, 0x01, 0x00], 1002),
      ([0x02, 0x80, 0, 0, 0, 0, 0x02, 0x80, 0, 0, 0, 0], 1002), ([0x83, 0x80, 0, 0, 0, 0], 1002),
      ([0xC1, 0x80, 0, 0, 0, 0], 1002), ([0x80, 0x80, 0, 0, 0, 0], 1002), ([0x09, 0x80, 0, 0, 0, 0], 1002),
      ([0x89, 0xFE, 0, 126, 0, 0, 0, 0], 1002), ([0x88, 0x81, 0, 0, 0, 0, 1], 1002),
      ([0x88, 0x83, 0, 0, 0, 0, 3, 232, 255], 1007),
      ([0x01, 0x81, 0, 0, 0, 0, 0xC3, 0x89, 0x80, 0, 0, 0, 0, 0x80, 0x81, 0, 0, 0, 0, 0xC3], 1007),
    ] as [([UInt8], Int)]) func aViolationClosesAfterTheValuesBeforeIt(bytes: [UInt8], code: Int) async throws
  {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try open(harness)
      client.send(text("1") + bytes)
      try confirm(client, 1)
      #expect(try client.closing()?.code == code)
      harness.eventually {
        harness.server.statistics.connections == 0 && harness.server.statistics.publishers == 0
          && harness.server.statistics.eventsIn == 1
      }
    }
  }

  /// Half of a character in each of two frames is valid.
  @Test func aCharacterMayBeDividedBetweenFrames() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.type = "text/plain" }
      let client = try open(harness)
      client.send(
        WebSocketClient.message([0xC3], opcode: 1, isLast: false) + WebSocketClient.message([0xA9], opcode: 0))
      try confirm(client, 1)
    }
  }

  @Test func aStreamThatIsFullHoldsItsPublisherBack() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      try harness.addPublished("p") {
        ($0.limits, $0.replay, $0.overflow) = (.init(events: 4), 4, .block(timeout: nil))
      }
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("p", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let client = try open(harness)
      let values = (1...20_000).flatMap { text("\($0)") }
      var sent = 0
      try harness.eventually {
        let count = try sendNow(values[sent...], client)
        if count > 0 { sent += count }
        return count < 0 || sent == values.count
      }
      #expect(harness.server.statistics.eventsIn <= 6)
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      let rest = Array(values[sent...])
      sendLater(rest, by: client)
      #expect(try reader.events(20_000).last == Array("20000".utf8))
      try confirm(client, 20_000)
    }
  }

  /// Its memory is bounded, and what it sends is stored.
  @Test func aClientThatReadsNoAnswersIsHeldBack() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      try harness.addPublished("p") { $0.requiresJSON = true }
      let client = try WebSocketClient(harness, at: "/streams/p?publish=1", receiveBuffer: 4096)
      let values = (1...100_000).flatMap { _ in text("x") }
      var (sent, stalls) = (0, 0)
      while sent < values.count, stalls < 200 {
        let count = try sendNow(values[sent...], client)
        if count > 0 { (sent, stalls) = (sent + count, 0) } else { stalls += 1 }
        if count < 0 { usleep(1000) }
      }
      #expect(sent < values.count, "everything was read")
      let rest = Array(values[sent...])
      sendLater(rest + text("1"), by: client)
      var count = 0
      while let answer = try client.text(), answer != "{\"accepted\":1}" { count += 1 }
      #expect(count == 100_000)
    }
  }

  @Test func whatEndsItSaysHowManyValuesAreInTheStream() async throws {
    try await withServer { harness in
      for (index, (end, code)) in [("removed", 4404), ("denied", 1008)].enumerated() {
        let name = "p\(index)"
        try harness.addPublished(name)
        let client = try open(harness, name)
        client.send(text("1"))
        try confirm(client, 1)
        var terms = StreamConfiguration(name: name, source: "publish")
        terms.write = AccessRules([.user(4_000_000)])
        if end == "removed" {
          #expect(harness.server.change([], removing: [name]).isEmpty)
        } else {
          #expect(harness.server.change([StreamChange(terms)], removing: []).isEmpty)
        }
        let closing = try #require(try client.closing())
        #expect(closing.code == code && !closing.reason.isEmpty, "\(end): \(closing)")
      }
    }
  }

  @Test func silenceIsBrokenByPings() async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.silence = .milliseconds(30)
    try await withServer(limits) { harness in
      try harness.addPublished("p")
      let client = try open(harness)
      for _ in 0..<2 { #expect(try client.message()! == (9, [])) }
      client.send(WebSocketClient.message([], opcode: 10) + text("1"))
      while let (opcode, payload) = try client.message(), opcode == 9 || payload != Array("{\"accepted\":1}".utf8) {
        #expect(opcode == 9 && payload.isEmpty)
      }
    }
  }

  @Test func aStopClosesIt() async throws {
    let harness = try ServerHarness()
    try harness.addPublished("p")
    let client = try open(harness)
    client.send(text("1"))
    try confirm(client, 1)
    await harness.stop()
    #expect(try client.closing()?.code == 1001)
  }

  @Test func aValueInPartIsDroppedWithItsConnection() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try open(harness)
      client.send(text("1") + WebSocketClient.message([0x32], opcode: 1).dropLast())
      client.http.closeWriting()
      harness.eventually { harness.server.statistics.connections == 0 && harness.server.statistics.publishers == 0 }
      #expect(harness.server.statistics.eventsIn == 1)
    }
  }

  // MARK: From one process to the next

  @Test func itContinuesInTheMiddleOfAMessage() async throws {
    let bytes = text("ä1") + WebSocketClient.message([7], opcode: 9) + text("23")
    try await withTwoServers { first, next in
      for harness in [first, next] { try harness.addPublished("p") }
      let clients = try bytes.indices.map { cut in
        let client = try open(first)
        client.send(Array(bytes[..<cut]))
        return client
      }
      first.eventually { first.server.statistics.connections == bytes.count }
      usleep(50_000)
      try await first.handOver(to: next)
      for (cut, client) in zip(bytes.indices, clients) {
        client.send(Array(bytes[cut...]))
        var (accepted, hasPong) = (0, false)
        while accepted < 2 || !hasPong {
          let (opcode, payload) = try #require(try client.message())
          if opcode == 10 { hasPong = true } else { accepted = Int(payload[12]) - 48 }
        }
      }
      next.eventually { first.server.statistics.eventsIn + next.server.statistics.eventsIn == UInt64(2 * bytes.count) }
    }
  }

  @Test func valuesThatWaitForRoomAreConfirmedByTheNextServer() async throws {
    try await withTwoServers { first, next in
      for harness in [first, next] {
        try harness.addPublished("p") {
          ($0.limits, $0.replay, $0.overflow) = (.init(events: 4), 4, .block(timeout: nil))
        }
      }
      let reader = try WireClient.ready(first.path)
      reader.subscribe("p", credit: 1)
      first.eventually { first.server.statistics.subscribers == 1 }
      let client = try open(first)
      client.send((1...20).flatMap { text("\($0)") })
      #expect(try reader.events(1) == [[49]])
      first.eventually { first.server.statistics.eventsIn == 5 }
      try await first.handOver(to: next)
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      client.send(text(""))
      var texts: [String] = []
      while !texts.contains("{\"accepted\":20}") || !texts.contains(where: { $0.hasSuffix("\"value\":21}") }) {
        texts.append(try #require(try client.text()))
        if texts.count > 25 { break }
      }
      #expect(texts.filter { $0.contains("accepted") }.count <= 20, "\(texts)")
      var last: [UInt8] = []
      while last != Array("20".utf8) { last = try reader.event().data }
    }
  }

  @Test func whatTheNextServerDoesNotTakeIsClosed() async throws {
    try await withTwoServers { first, next in
      for name in ["gone", "other", "denied"] { try first.addPublished(name) }
      _ = try next.add("other")
      try next.addPublished("denied") { $0.write = AccessRules([.user(4_000_000)]) }
      let clients = try ["gone", "other", "denied"].map { try open(first, $0) }
      for client in clients {
        client.send(text("1"))
        try confirm(client, 1)
      }
      try await first.handOver(to: next)
      for (client, code) in zip(clients, [4404, 1008, 1008]) { #expect(try client.closing()?.code == code) }
    }
  }
}
