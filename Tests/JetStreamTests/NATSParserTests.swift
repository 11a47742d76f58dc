import Testing

@testable import JetStream

@Suite struct NATSParserTests {
  /// What a server sends, as text: one line for each operation.
  private func read(_ bytes: [UInt8], inPiecesOf count: Int = .max) throws(NATSFailure) -> [String] {
    var parser = NATSParser()
    var read: [String] = []
    var start = 0
    while start < bytes.count {
      let piece = Array(bytes[start...].prefix(count))
      start += piece.count
      var index = 0
      while let operation = try parser.next(in: piece, from: &index) { read.append(text(of: operation)) }
      #expect(index == piece.count)
    }
    return read
  }

  private func text(of operation: NATSOperation) -> String {
    switch operation {
    case .information(let information): "info \(information.maximumMessageByteCount) \(information.nonce ?? "-")"
    case .message(let message, let subscription):
      "\(subscription) \(message.subject) \(message.reply ?? "-") \(message.status.map(String.init) ?? "-") "
        + "\(message.sequence.map(String.init) ?? "-") \(String(decoding: message.bytes, as: UTF8.self))"
    case .ping: "ping"
    case .pong: "pong"
    case .accepted: "ok"
    case .refused(let reason): "refused \(reason)"
    }
  }

  static let conversation = """
    INFO {"max_payload":1048576,"nonce":"abc"}
    PING
    PONG
    +OK
    -ERR 'Stale Connection'
    MSG a.b 7 5
    hello
    MSG a.b 7 c.d 0

    HMSG a.b 8 c.d 37 39
    NATS/1.0
    x: y
    Nats-Sequence: 41

    ok
    HMSG a 4294967295 30 30
    NATS/1.0 503 No Responders


    HMSG a 1 12 13
    NATS/1.0

    x

    """

  @Test(arguments: [1, 2, 3, 7, 40, .max]) func conversationSurvivesAnySplit(count: Int) throws {
    let read = try read(Array(Self.conversation.replacing("\n", with: "\r\n").utf8), inPiecesOf: count)
    #expect(
      read == [
        "info 1048576 abc", "ping", "pong", "ok", "refused Stale Connection", "7 a.b - - - hello", "7 a.b c.d - - ",
        "8 a.b c.d - 41 ok", "4294967295 a - 503 - ", "1 a - - - x",
      ])
  }

  @Test(arguments: [
    "X\r\n", "\r\n", "\n", "PING\n", "PING \r\n", "ping\r\n", "PI\rNG\r\n", "MSG\r\n", "MSG a\r\n", "MSG a 1\r\n",
    "MSG a 1 1 1 1\r\n", "MSG a x 1\r\n", "MSG a -1 1\r\n", "MSG a 4294967296 1\r\n", "MSG a 1 +1\r\n",
    "MSG a 1 0x1\r\n",
    "MSG a 1 1.0\r\n", "MSG a 1 18446744073709551616\r\n", "MSG a 1 2097153\r\n", "HMSG a 1 1\r\n", "HMSG a 1 3 2\r\n",
    "HMSG a 1 b 1 1 1\r\n", "HMSG a 1 18446744073709551615 1\r\n", "MSG a 1 1\r\nx\n\n", "MSG a 1 1\r\nxx\r\n",
    "INFO\r\n", "INFO {} {}\r\n", "INFO \u{FFFD}\r\n",
  ])
  func whatTheProtocolDoesNotHaveIsAFailure(text: String) {
    for count in [1, .max] {
      #expect(throws: NATSFailure.self, "\(text)") { _ = try self.read(Array(text.utf8), inPiecesOf: count) }
    }
  }

  @Test func linesAreLimited() throws {
    func line(_ start: String, _ count: Int) -> [UInt8] {
      Array(start.utf8) + [UInt8](repeating: UInt8(ascii: " "), count: count - start.utf8.count - 2) + [0x0D, 0x0A]
    }
    #expect(try read(line("INFO {\"max_payload\":1}", 64 << 10), inPiecesOf: 1000) == ["info 1 -"])
    #expect(try read(line("-ERR x", 8 << 10), inPiecesOf: 1000).count == 1)
    #expect(throws: NATSFailure.self) { _ = try self.read(line("INFO {}", (64 << 10) + 1)) }
    #expect(throws: NATSFailure.self) { _ = try self.read(line("-ERR x", (8 << 10) + 1)) }
    // An endless one, too.
    #expect(throws: NATSFailure.self) { _ = try self.read([UInt8](repeating: 1, count: (8 << 10) + 1), inPiecesOf: 10) }
  }

  @Test func largestMessageIsRead() throws {
    let content = [UInt8](repeating: UInt8(ascii: "x"), count: 2 << 20)
    let bytes = Array("MSG a 1 \(2 << 20)\r\n".utf8) + content + Array("\r\nPING\r\n".utf8)
    let read = try read(bytes, inPiecesOf: 10_000)
    #expect(read.count == 2 && read[0].utf8.count == content.count + 10 && read[1] == "ping")
  }

  @Test(arguments: [
    ("", "0 -"), ("x", "0 -"), ("NATS/1.0", "0 -"), ("NATS/1.0\r\n", "0 -"), ("\r\n\r\n", "0 -"),
    ("NATS/1.0\r\n\r\n", "- -"), ("NATS/1.0 \r\n\r\n", "- -"), ("NATS/1.0 x\r\n\r\n", "0 -"),
    ("NATS/1.0 404 Not Found\r\n\r\n", "404 -"), ("NATS/1.0 99999999999999999999999\r\n\r\n", "0 -"),
    ("NATS/1.0\r\nNats-Sequence: 5\r\n\r\n", "- 5"), ("NATS/1.0\r\nNats-Sequence:5\r\n\r\n", "- 5"),
    ("NATS/1.0\r\nNats-Sequence: 5\r\nNats-Sequence: 6\r\n\r\n", "- 5"),
    ("NATS/1.0\r\nNats-Sequence\r\n\r\n", "- -"), ("NATS/1.0\r\nnats-sequence: 5\r\n\r\n", "- -"),
    ("NATS/1.0\r\nNats-Sequence: \r\n\r\n", "- -"), ("NATS/1.0\r\nNats-Sequence: -5\r\n\r\n", "- -"),
    ("NATS/1.0\r\nx\r\n: \r\n\n\n\r\r\nNats-Sequence: 5\r\n\r\n", "- 5"),
    ("NATS/1.0\r\nx: \(String(repeating: "y", count: 20_000))\r\n\r\n", "0 -"),
  ])
  func headersOfOthersCostTheirMessageOnly(headers: String, expected: String) throws {
    let count = headers.utf8.count
    let read = try read(Array("HMSG a 1 \(count) \(count + 2)\r\n\(headers)ok\r\nPING\r\n".utf8), inPiecesOf: 100)
    #expect(read == ["1 a - \(expected) ok", "ping"])
  }
}

extension NATSParser {
  fileprivate mutating func next(in bytes: [UInt8], from index: inout Int) throws(NATSFailure) -> NATSOperation? {
    try bytes.withUnsafeBufferPointer { bytes throws(NATSFailure) in
      try next(in: UnsafeRawBufferPointer(bytes), from: &index)
    }
  }
}
