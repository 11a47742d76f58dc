import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// Values that come by POST.
@Suite struct HTTPPublishingTests {
  /// What is in a stream.
  private static func values(_ harness: ServerHarness, _ name: String) throws -> [String] {
    let stream = try #require(harness.server.streams[name])
    return stream.log.read { storage, _ in
      (storage.firstPosition..<storage.endPosition).map { id -> String in
        unsafe String(decoding: storage.record(at: id)[EventLog.stampBytes...], as: UTF8.self)
      }
    }
  }

  private static let lines = "Content-Type: application/x-ndjson"

  @Test func aBodyIsOneValueOrOnePerLine() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", "one\ntwo\n")
      let response = try client.response()
      #expect(response.status == 200 && response.text == "{\"accepted\":1}\n")
      #expect(response["Content-Type"] == "application/json" && response["Cache-Control"] == "no-store")
      #expect(try Self.values(harness, "p") == ["one\ntwo\n"])
      client.post("/streams/p", "1\n2\r\n\n3", Self.lines)
      #expect(try client.response().text == "{\"accepted\":3}\n")
      client.post("/streams/p", "", Self.lines)
      #expect(try client.response().text == "{\"accepted\":0}\n")
      #expect(try Self.values(harness, "p") == ["one\ntwo\n", "1", "2", "3"])
      #expect(harness.server.statistics.publishers == 0)
    }
  }

  @Test(arguments: ["application/json", "text/plain", "application/octet-stream"])
  func anEmptyBodyIsNoEventAndInJSONNeitherIsWhiteSpace(type: String) async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.type = type }
      for body in ["", " ", "\r\n\t "] {
        let client = try HTTPWireClient(harness)
        client.post("/streams/p", body)
        let response = try client.response()
        let isRefused = body.isEmpty || type == "application/json"
        #expect(response.status == (isRefused ? 400 : 200), "\(response)")
        #expect(
          !isRefused || response.text.contains("no event") && response.text.contains("\"accepted\":0"), "\(response)")
      }
      let client = try HTTPWireClient(harness)
      client.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
      #expect(try client.response().status == 400)
      let other = try HTTPWireClient(harness)
      other.send(
        "POST /streams/p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n")
      #expect(try other.response().status == 200)
      #expect(try Self.values(harness, "p") == (type == "application/json" ? ["1"] : [" ", "\r\n\t ", "1"]))
    }
  }

  /// `curl -d @file` removes the line ends of a file.
  @Test(arguments: [
    (#"{"a":1}{"a":2}{"a":3}"#, 422), ("1 2 3", 422), ("[1][2]", 422), ("{\"a\":1}\n{\"a\":2}\n", 422),
    (#""a""b""#, 422),
    ("{\"a\":1}\u{1e}", 422), (#"[{},{}]"#, 200), (#"{"a":"}{"}"#, 200), ("1\n", 200), ("one two", 200), ("1 x", 200),
  ])
  func severalJSONTextsAreNotOneValue(body: String, status: Int) async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      try harness.addPublished("t") { $0.type = "text/plain" }
      for type in ["application/x-www-form-urlencoded", "application/json", "application/x-ndjson"] {
        if type.hasSuffix("ndjson"), body.contains("\n") { continue }
        let client = try HTTPWireClient(harness)
        client.post("/streams/p", body, "Content-Type: \(type)")
        let response = try client.response()
        #expect(response.status == status, "\(response)")
        guard status == 422 else { continue }
        #expect(
          response.text.contains("more than one JSON text") && response.text.contains("--data-binary"), "\(response)")
        let other = try HTTPWireClient(harness)
        other.post("/streams/t", body, "Content-Type: text/plain")
        #expect(try other.response().status == 200)
      }
      #expect(try Self.values(harness, "p").isEmpty == (status == 422))
      let pieces = try HTTPWireClient(harness)
      pieces.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
      for byte in body.utf8 { pieces.send("1\r\n\(Character(Unicode.Scalar(byte)))\r\n") }
      pieces.send("0\r\n\r\n")
      #expect(try pieces.response().status == status)
    }
  }

  @Test(arguments: [
    ("text/plain; charset=ISO-8859-1", "abc", 200), ("text/plain;charset=\"iso-8859-1\"", "gr\u{fc}n", 415),
    ("application/json; charset=windows-1252", "\"\u{fc}\"", 415), ("application/json; charset=utf-16", "1", 415),
    ("application/json; charset=utf-8", "\"\u{fc}\"", 200), ("application/json; charset=Shift_JIS", "1", 415),
    ("multipart/form-data; boundary=a", "--a--", 415), ("text/html", "1", 200),
  ])
  func aBodyInAnotherCharsetIsNotStored(type: String, body: String, status: Int) async throws {
    try await withServer { harness in
      for (name, streamType) in [("json", "application/json"), ("text", "text/plain"), ("any", "image/png")] {
        try harness.addPublished(name) { $0.type = streamType }
        let client = try HTTPWireClient(harness)
        client.post("/streams/\(name)", body, "Content-Type: \(type)")
        let response = try client.response()
        #expect(response.status == (name == "any" ? 200 : status), "\(response)")
        #expect(try Self.values(harness, name) == (response.status == 200 ? [body] : []))
      }
    }
  }

  @Test(arguments: ["gzip", "x-gzip", "deflate", "GZIP", "identity, gzip", "utf-8", "aws-chunked", "identity;q=1"])
  func aBodyWithAContentCodingIsNotStored(coding: String) async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      client.send(
        "POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: \(coding)\r\nContent-Length: 3\r\n"
          + "Expect: 100-continue\r\n\r\n")
      let response = try client.response()
      #expect(response.status == 415 && response["Accept-Encoding"] == "identity", "\(response)")
      #expect(response["Connection"] == "close" && response.text.contains("Content-Encoding"), "\(response)")
      #expect(response.text.contains("\"accepted\":0}"), "\(response)")
      #expect(try client.isAtEnd() && Self.values(harness, "p") == [])
      #expect(harness.server.statistics.refused == 1)
    }
  }

  @Test(arguments: [
    "application/x-ndjson", "application/ndjson", "application/jsonl", "application/jsonlines",
    "application/x-jsonlines", "Application/X-NDJSON; charset=utf-8",
  ])
  func eachLineIsAValueUnderEveryNameOfNDJSON(type: String) async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", "1\n2\n", "Content-Type: \(type)")
      #expect(try client.response().text == "{\"accepted\":2}\n")
    }
  }

  @Test func aByteOrderMarkAndLinesOfWhiteSpaceAreNoPartOfValues() async throws {
    try await withServer { harness in
      try harness.addPublished("p") { $0.type = "application/json" }
      try harness.addPublished("b") { $0.type = "application/octet-stream" }
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", "\u{FEFF}[1]\n \n\t\r\n[2]\r\n\u{FEFF}[3]\n  ", Self.lines)
      #expect(try client.response().text == "{\"accepted\":3}\n")
      client.post("/streams/p", "\u{FEFF}\n", Self.lines)
      #expect(try client.response().text == "{\"accepted\":0}\n")
      for name in ["p", "b"] {
        client.post("/streams/\(name)", "\u{FEFF}[4]")
        #expect(try client.response().status == 200)
      }
      #expect(try Self.values(harness, "p") == ["[1]", "[2]", "\u{FEFF}[3]", "[4]"])
      #expect(try Self.values(harness, "b") == ["\u{FEFF}[4]"])
    }
  }

  @Test(arguments: ["identity", "Identity", "", ",", "identity, identity"])
  func aBodyWithoutACodingMaySayThat(coding: String) async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", "abc", "Content-Encoding: \(coding)")
      #expect(try client.response().status == 200 && Self.values(harness, "p") == ["abc"])
    }
  }

  @Test func aChunkedBodyMayBeCutAnywhere() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      let text =
        "POST /streams/p HTTP/1.1\r\nHost: localhost\r\n\(Self.lines)\r\nTransfer-Encoding: chunked\r\n\r\n"
        + "4;a=\"b;c\"\r\nab\nc\r\n3\r\nd\ne\r\n0000\r\nTrailer: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
      for byte in text.utf8 { client.send([byte]) }
      #expect(try client.response().text == "{\"accepted\":3}\n")
      #expect(try client.response().text == "ok\n")
      for _ in 0..<3 { client.send(text) }
      for _ in 0..<3 {
        #expect(try client.response().text == "{\"accepted\":3}\n" && client.response().text == "ok\n")
      }
      #expect(try Self.values(harness, "p").suffix(3) == ["ab", "cd", "e"])
    }
  }

  @Test func aClientMayAskBeforeItSends() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      _ = try harness.add("s")
      let client = try HTTPWireClient(harness)
      client.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
      #expect(try client.response().status == 100)
      client.send("abc")
      #expect(try client.response().text == "{\"accepted\":1}\n")
      for (target, length, status) in [
        ("/streams/s", "3", 405), ("/streams/none", "3", 404), ("/streams/p", "99999999999", 413),
        ("/streams/p?as=sse", "3", 400),
      ] {
        let client = try HTTPWireClient(harness)
        client.send(
          "POST \(target) HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(length)\r\nExpect: 100-continue\r\n\r\n")
        let response = try client.response()
        #expect(response.status == status && response["Connection"] == "close", "\(response)")
        #expect(response.text.contains("\"accepted\":0}"), "\(response)")
        #expect(try client.isAtEnd())
      }
    }
  }

  @Test func aPeerThatSendsNothingMoreIsAnswered() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let client = try HTTPWireClient(harness)
      client.get("/healthz")
      client.post("/streams/p", "a")
      client.closeWriting()
      #expect(try client.response().text == "ok\n" && client.response().text == "{\"accepted\":1}\n")
      #expect(try client.isAtEnd() && Self.values(harness, "p") == ["a"])
    }
  }

  /// The answer to a request that is cut off.
  private static func checkCut(_ client: HTTPWireClient, accepted: Int, _ what: String) throws {
    let response = try client.response()
    #expect(response.status == 400 && response["Connection"] == "close", "\(what): \(response)")
    #expect(response.text.contains("\"accepted\":\(accepted)}"), "\(what): \(response)")
    #expect(response.text.contains("the request's body is cut off"), "\(what): \(response)")
    #expect(try client.isAtEnd(), "\(what)")
  }

  @Test func aBodyThatIsCutOffIsAnsweredWithTheNumberOfItsValues() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      let value = try HTTPWireClient(harness)
      value.post("/streams/p", "whole")
      value.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc")
      value.closeWriting()
      #expect(try value.response().text == "{\"accepted\":1}\n")
      try Self.checkCut(value, accepted: 0, "a value")
      let lines = try HTTPWireClient(harness)
      lines.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\n\(Self.lines)\r\nContent-Length: 9\r\n\r\nx\ny\nz")
      lines.closeWriting()
      try Self.checkCut(lines, accepted: 2, "lines")
      // What is not whole is no value.
      #expect(try Self.values(harness, "p") == ["whole", "x", "y"])
      harness.eventually { harness.server.statistics.connections == 0 }
      #expect(harness.server.statistics.publishers == 0)
    }
  }

  @Test func aChunkedBodyMayBeCutOffAnywhere() async throws {
    try await withServer { harness in
      try harness.addPublished("p")
      // Each with the number of lines that end in it or before.
      let pieces = [
        ("2\r\nx", 0), ("\n", 1), ("\r\n3;a=b\r\ny", 1), ("\n", 2), ("z\r\n1\r\n", 2), ("\n", 3),
        ("\r\n0\r\nX: y\r\n\r", 3),
      ]
      let head = Array(
        "POST /streams/p HTTP/1.1\r\nHost: a\r\n\(Self.lines)\r\nTransfer-Encoding: chunked\r\n\r\n".utf8)
      var (sent, lineCount) = ([UInt8](), 0)
      for (text, countAfter) in pieces {
        let piece = Array(text.utf8)
        for end in piece.indices {
          let client = try HTTPWireClient(harness)
          let body = sent + piece[..<end]
          client.send(head + body)
          client.closeWriting()
          try Self.checkCut(client, accepted: lineCount, String(decoding: body, as: UTF8.self))
        }
        (sent, lineCount) = (sent + piece, countAfter)
      }
      let whole = try HTTPWireClient(harness)
      whole.send(head + sent + [UInt8(ascii: "\n")])
      whole.closeWriting()
      #expect(try whole.response().text == "{\"accepted\":3}\n")
    }
  }

  @Test(arguments: [false, true]) func aLargeValueThatArrivesInPartsHasItsKey(isDirect: Bool) async throws {
    try await withServer { harness in
      try harness.addPublished("p") {
        $0.key = KeyDefinition(key: ".k")
        $0.limits = .init(
          bytes: 8 << 20,
          state: .init(keys: 10, bytes: 8 << 20, keyDigest: 1) { event in
            var reader = EventKeyReader(KeyDefinition(key: ".k"))
            return unsafe reader?.key(of: event.bindMemory(to: UInt8.self).span)
          })
      }.isDirect = isDirect
      func large(_ key: String, end: String = "]}") -> String {
        "{\"k\":\"\(key)\",\"v\":[" + String(repeating: "[],", count: 100_000) + "0" + end
      }
      let client = try HTTPWireClient(harness)
      for (body, type) in [
        (large("one"), "Content-Type: application/json"),
        (
          [large("two"), #"{"k":"small"}"#, "", large("none", end: "]"), large("three") + "\r"].joined(separator: "\n"),
          Self.lines
        ),
        ("\u{FEFF}" + large("four"), "Content-Type: application/json"),
      ] {
        client.post("/streams/p", body, type)
        #expect(try client.response().status == 200)
      }
      let stream = try #require(harness.server.streams["p"])
      let ids = try ["one", "two", "small", "none", "three", "four"].map { try stream.newestID(ofKey: $0).get() }
      let first = try #require(ids[0])
      #expect(ids == [first, first + 1, first + 2, nil, first + 4, first + 5])
      #expect(stream.keying.malformed.load(ordering: .relaxed) == 1)
    }
  }

  @Test func aValueThatTheStreamCannotHoldIsTooLarge() async throws {
    try await withServer { harness in
      try harness.addPublished("p") {
        $0.limits = .init(events: 10, bytes: 4096)
        $0.replay = 10
      }
      let largest = try #require(harness.server.streams["p"]).configuration.limits.maximumEventBytes
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", String(repeating: "a", count: largest))
      #expect(try client.response().status == 200)
      client.post("/streams/p", "a\nb\n" + String(repeating: "c", count: largest + 1) + "\nd\n", Self.lines)
      let response = try client.response()
      #expect(response.status == 413 && response.text.contains("\"accepted\":2"), "\(response)")
      // Its size is not known: it is not read to its end.
      let sentence = #"value 3: the value is too large for \"p\", whose limit is \#(largest) bytes"#
      #expect(response.text.contains("\"detail\":\"\(sentence)\""), "\(response)")
      #expect(try client.isAtEnd())
      #expect(try Self.values(harness, "p").suffix(2) == ["a", "b"])
      let chunked = try HTTPWireClient(harness)
      chunked.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
      chunked.send("\(String(largest + 1, radix: 16))\r\n" + String(repeating: "a", count: largest + 1))
      let refusal = try chunked.response()
      #expect(refusal.status == 413 && refusal.text.contains("\"detail\":\"the value is too large"), "\(refusal)")
      let announced = try HTTPWireClient(harness)
      announced.request("POST", "/streams/p", ["Content-Length: 5000"])
      #expect(try announced.response().text.contains("\"detail\":\"a value of 5000 bytes is too large"))
      let bodyless = try HTTPWireClient(harness)
      bodyless.request("POST", "/streams/p")
      #expect(try bodyless.response().status == 400)
    }
  }

  /// A stream that drops nothing, with a subscriber that takes one event.
  private static func addLossless(_ harness: ServerHarness, bytes: Int = 64 << 20) throws -> WireClient {
    try harness.addPublished("p") {
      $0.limits = .init(events: 4, bytes: bytes)
      $0.replay = 4
      $0.overflow = .block(timeout: nil)
    }
    let reader = try WireClient.ready(harness.path)
    reader.subscribe("p", credit: 1)
    harness.eventually { harness.server.statistics.subscribers == 1 }
    return reader
  }

  private static let twentyLines = (1...20).map { "\($0)\n" }.joined()

  @Test func valuesAreConfirmedWhenTheStreamHasThem() async throws {
    try await withServer { harness in
      let reader = try Self.addLossless(harness)
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", Self.twentyLines, Self.lines)
      client.get("/healthz")
      #expect(try reader.events(1) == [Array("1".utf8)])
      #expect(try reader.isSilent() && !client.wire.hasInput)
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      #expect(try reader.events(19).count == 19)
      #expect(try client.response().text == "{\"accepted\":20}\n" && client.response().text == "ok\n")
    }
  }

  @Test func aStreamThatIsFullStoresWhatCameBeforeTheCut() async throws {
    try await withServer { harness in
      let reader = try Self.addLossless(harness)
      let (whole, cut) = (try HTTPWireClient(harness), try HTTPWireClient(harness))
      whole.post("/streams/p", Self.twentyLines, Self.lines)
      whole.closeWriting()
      #expect(try reader.events(1) == [Array("1".utf8)])
      harness.eventually { harness.server.statistics.eventsIn == 5 }
      cut.send(
        "POST /streams/p HTTP/1.1\r\nHost: a\r\n\(Self.lines)\r\nContent-Length: 999\r\n\r\n\(Self.twentyLines)21")
      cut.closeWriting()
      #expect(try reader.isSilent() && !whole.wire.hasInput && !cut.wire.hasInput)
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      #expect(try reader.events(39).count == 39)
      #expect(try whole.response().text == "{\"accepted\":20}\n" && whole.isAtEnd())
      try Self.checkCut(cut, accepted: 20, "twenty lines and a part")
    }
  }

  /// A value after them that is refused does not say that they are there.
  @Test(arguments: ["", String(repeating: "a", count: 8192)])
  func anAnswerSaysHowManyValuesAreInAStreamThatStaysFull(end: String) async throws {
    var limits = ServerLimits(workers: 1)
    limits.http.fullTime = .milliseconds(50)
    try await withServer(limits) { harness in
      let reader = try Self.addLossless(harness, bytes: 4096)
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", Self.twentyLines + end, Self.lines)
      let response = try client.response()
      #expect(response.status == 503 && response["Retry-After"] != nil && response.isComplete)
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      harness.eventually { harness.server.statistics.publishers == 0 }
      // The values that the answer counts are in the stream, and no other.
      let accepted = try #require((1...20).last { response.text.contains("\"accepted\":\($0)}") }, "\(response)")
      #expect(try reader.events(accepted).last == Array(String(accepted).utf8))
      #expect(try reader.isSilent())
      if end.isEmpty { #expect(try client.fetch("/healthz").status == 200) }
    }
  }

  /// The values that wait in the stream enter it after the client has gone.
  @Test func aKickIsAnsweredWithTheNumberOfValuesThatTheStreamHasOrGets() async throws {
    try await withServer { harness in
      let reader = try Self.addLossless(harness)
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", Self.twentyLines, Self.lines)
      harness.eventually { harness.server.statistics.eventsIn == 5 }
      let administrator = try WireClient.ready(harness.path)
      administrator.get("$control", options: #"{"kick": 2}"#)
      _ = try administrator.receive()
      let response = try client.response()
      #expect(response.status == 503 && response.text.contains("an operator has ended this connection"))
      #expect(try client.isAtEnd())
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      let accepted = try #require((1...20).last { response.text.contains("\"accepted\":\($0)}") }, "\(response)")
      #expect(try reader.events(accepted).last == Array(String(accepted).utf8))
      #expect(try reader.isSilent())
    }
  }

  @Test func aStreamThatChangesUnderARequest() async throws {
    try await withServer { harness in
      try harness.addPublished("removed")
      try harness.addPublished("revoked")
      var clients: [HTTPWireClient] = []
      for name in ["removed", "revoked"] {
        let client = try HTTPWireClient(harness)
        client.send(
          "POST /streams/\(name) HTTP/1.1\r\nHost: localhost\r\n\(Self.lines)\r\nContent-Length: 100\r\n\r\na\nb\nc")
        clients.append(client)
      }
      harness.eventually { harness.server.statistics.eventsIn == 4 }
      var configuration = StreamConfiguration(name: "revoked", source: "publish", replay: 65536)
      configuration.write = AccessRules([.user(4711)])
      #expect(harness.server.change([StreamChange(configuration)], removing: ["removed"]).isEmpty)
      for (client, status) in zip(clients, [404, 403]) {
        let response = try client.response()
        #expect(response.status == status && response.text.contains("\"accepted\":2"), "\(response)")
        #expect(try client.isAtEnd())
      }
      harness.eventually { harness.server.statistics.publishers == 0 }
    }
  }

  @Test func aStreamThatHasEndedTakesNoValues() async throws {
    try await withServer { harness in
      let source = PublishSource()
      try harness.server.add(
        StreamConfiguration(name: "p", source: "publish"),
        source: source.prefix(1).setFailureType(to: StreamFailure.self), publishSource: source)
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", "a")  // the stream ends with it, before the value is known to be stored
      #expect(try client.response().text.contains("\"accepted\":0"))
      client.post("/streams/p", "b")
      let response = try client.response()
      #expect(response.status == 503 && response.text.contains("has ended"), "\(response)")
      #expect(response.text.contains("\"accepted\":0"))
      #expect(try Self.values(harness, "p") == ["a"])
    }
  }

  @Test func valuesThatAChangeMayHaveLostAreNotConfirmed() async throws {
    try await withServer { harness in
      func isFull(_ configuration: inout StreamConfiguration) {
        (configuration.limits, configuration.replay) = (.init(events: 4), 4)
        configuration.overflow = .block(timeout: nil)
      }
      let source = try harness.addPublished("p", isFull)
      let reader = try WireClient.ready(harness.path)
      reader.subscribe("p", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      let client = try HTTPWireClient(harness)
      client.post("/streams/p", Self.twentyLines, Self.lines)
      harness.eventually { harness.server.statistics.eventsIn == 5 }
      var configuration = StreamConfiguration(name: "p", source: "publish", replay: 65536)
      isFull(&configuration)
      let feed = StreamChange.Feed(source: source.setFailureType(to: StreamFailure.self), publishSource: source)
      #expect(harness.server.change([StreamChange(configuration, feed: feed)], removing: []).isEmpty)
      let response = try client.response()
      #expect(response.status == 503 && response.text.contains("was changed before it had stored all values"))
      // The first batch; the second one waits in the stream in part, and the rest is not taken.
      #expect(response.text.contains("\"accepted\":4}"), "\(response)")
      let last = try HTTPWireClient(harness)
      last.post("/streams/p", "last")
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      var values: [String] = []
      while values.last != "last" { values.append(String(decoding: try reader.event().data, as: UTF8.self)) }
      #expect(values.dropLast().allSatisfy { Int($0)! <= 8 }, "\(values)")
    }
  }

  @Test(arguments: [OverflowPolicy.block(timeout: nil), .drop])
  func waitingValuesThatAChangeLeavesNoRoomForAreNotConfirmed(overflow: OverflowPolicy) async throws {
    try await withServer { harness in
      let reader = try Self.addLossless(harness)
      let client = try HTTPWireClient(harness)
      let large = String(repeating: "a", count: 8192)
      client.post("/streams/p", (1...8).map { "\($0)\n" }.joined() + large, Self.lines)
      harness.eventually { harness.server.statistics.eventsIn == 5 }
      let other = try HTTPWireClient(harness)
      other.post("/streams/p", large)
      harness.eventually { harness.server.statistics.publishers == 2 }
      await harness.endTurns()  // after the head, the value is read in the same turn
      var configuration = StreamConfiguration(name: "p", source: "publish", replay: 4)
      configuration.limits = .init(events: 4, bytes: 4096)
      configuration.overflow = overflow
      let limits = configuration.limits
      let change = StreamChange(configuration) { try #require(EventLog(name: "p", limits: limits, takingOver: $0)) }
      #expect(harness.server.change([change], removing: []).isEmpty)
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      let response = try client.response()
      #expect(response.status == 503 && response.text.contains("was changed before it had stored all values"))
      #expect(response.text.contains("\"accepted\":4}"), "\(response)")
      let refused = try other.response()
      #expect(refused.status == 503 && refused.text.contains("\"accepted\":0}"), "\(refused)")
    }
  }

  @Test(arguments: [
    ("Content-Type: application/x-ndjson\r\nContent-Length: 99999", String(repeating: "a", count: 8192), 413),
    ("Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked", "", 400),
  ])
  func anErrorInABodyIsAnsweredWhenTheValuesBeforeItAreInTheStream(fields: String, end: String, status: Int)
    async throws
  {
    try await withServer { harness in
      let reader = try Self.addLossless(harness, bytes: 4096)
      let client = try HTTPWireClient(harness)
      let lines = Self.twentyLines
      let body = end.isEmpty ? "\(String(lines.utf8.count, radix: 16))\r\n\(lines)\r\nno size\r\n" : lines + end
      client.send("POST /streams/p HTTP/1.1\r\nHost: a\r\n\(fields)\r\n\r\n\(body)")
      #expect(try reader.events(1) == [Array("1".utf8)])
      harness.eventually { harness.server.statistics.eventsIn == 5 }
      #expect(try reader.isSilent() && !client.wire.hasInput)
      reader.send(.requestN(StreamID(1), 0x7FFF_FFFF))
      #expect(try reader.events(19).count == 19)
      let response = try client.response()
      #expect(response.status == status && response.text.contains("\"accepted\":20}"), "\(response)")
      #expect(try client.isAtEnd())
    }
  }

  @Test func whatAServerThatStopsSaysOfTheValues() async throws {
    let harness = try ServerHarness()
    let reader = try Self.addLossless(harness)
    let client = try HTTPWireClient(harness)
    client.post("/streams/p", Self.twentyLines, Self.lines)
    let partial = try HTTPWireClient(harness)
    partial.send("POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc")
    partial.closeWriting()
    harness.eventually { harness.server.statistics.eventsIn == 5 }
    await harness.stop()
    withExtendedLifetime(reader) {}
    let response = try client.response()
    // The second batch, of which a part waits, is not counted.
    #expect(response.status == 503 && response.text.contains("\"accepted\":4}"), "\(response)")
  }

  /// The answers before the value would fill the output, if there were one.
  @Test func aValueIsStoredThoughItsClientReadsNothing() async throws {
    try await withServer(ServerLimits(workers: 1)) { harness in
      try harness.addPublished("p")
      try harness.add("page") { $0.type = "text/plain" }.send([UInt8](repeating: 65, count: 60_000))
      let client = try HTTPWireClient(harness)
      shutdown(client.wire.descriptor.raw, CInt(SHUT_RD))
      func get(_ target: String) -> String { "GET \(target) HTTP/1.1\r\nHost: localhost\r\n\r\n" }
      client.send(
        get("/streams/page") + String(repeating: get("/healthz"), count: 60)
          + "POST /streams/p HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1")
      harness.eventually { harness.server.statistics.eventsIn == 2 }
      #expect(try Self.values(harness, "p") == ["1"])
    }
  }
}
