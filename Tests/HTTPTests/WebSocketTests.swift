import Testing

@testable import HTTP

@Suite struct WebSocketTests {
  enum Found: Equatable {
    case message([UInt8])
    case text([UInt8])
    case ping([UInt8])
    case pong
    case close(UInt16?)
    case violation(UInt16)
  }

  /// A client's frame, with a mask unless told otherwise.
  private func frame(
    _ opcode: UInt8, _ payload: [UInt8], isLast: Bool = true, mask: [UInt8] = [0x12, 0, 0xff, 0x80],
    lengthByteCount: Int? = nil
  ) -> [UInt8] {
    let bytes = lengthByteCount ?? (payload.count <= 125 ? 0 : payload.count <= 0xffff ? 2 : 8)
    var frame = [(isLast ? 0x80 : 0) | opcode, 0x80 | (bytes == 0 ? UInt8(payload.count) : bytes == 2 ? 126 : 127)]
    for index in 0..<bytes { frame.append(UInt8(truncatingIfNeeded: payload.count >> (8 * (bytes - 1 - index)))) }
    return frame + mask + payload.enumerated().map { $1 ^ mask[$0 % 4] }
  }

  /// What a server reads; the decoder is saved and restored after each chunk.
  private func read(
    _ chunks: [ArraySlice<UInt8>], limit: Int, _ messages: WebSocketDecoder.Messages
  ) -> [Found] {
    var (decoder, message, unread, found) = (
      WebSocketDecoder(maximumMessageByteCount: limit, peer: .client(messages)), [UInt8](), [UInt8](), [Found]()
    )
    do throws(WebSocketDecoder.Violation) {
      for chunk in chunks {
        unread += chunk
        var isWaiting = false
        while !isWaiting {
          var offset = 0
          let step = try decoder.next(in: unread.span, from: &offset, message: &message)
          unread.removeFirst(offset)
          switch step {
          case .needsBytes: isWaiting = true
          case .message:
            found.append(decoder.isText ? .text(message) : .message(message))
            message = []
          case .ping(let payload): found.append(.ping(payload))
          case .pong: found.append(.pong)
          case .close(let code): found.append(.close(code))
          }
        }
        #expect(unread.count < 132)
        let restored = WebSocketDecoder(
          maximumMessageByteCount: limit, messages, restoring: decoder.saved, messageByteCount: message.count)
        guard let restored, restored == decoder else { preconditionFailure("\(decoder.saved) is not restored") }
        decoder = restored
      }
    } catch { found.append(.violation(error.code)) }
    return found
  }

  private func read(
    _ bytes: [UInt8], limit: Int = 1 << 20, _ messages: WebSocketDecoder.Messages = .binary
  ) -> [Found] {
    let whole = read([bytes[...]], limit: limit, messages)
    #expect(read(bytes.indices.map { bytes[$0...$0] }, limit: limit, messages) == whole)
    for split in bytes.indices where bytes.count < 1000 {
      #expect(read([bytes[..<split], bytes[split...]], limit: limit, messages) == whole)
    }
    return whole
  }

  @Test(arguments: [0, 1, 3, 4, 5, 7, 8, 9, 125, 126, 127, 65_535, 65_536])
  func messageIsUnmasked(byteCount: Int) {
    let payload = (0..<byteCount).map { UInt8(truncatingIfNeeded: $0 &* 7) }
    #expect(read(frame(2, payload) + frame(2, [1])) == [.message(payload), .message([1])])
  }

  @Test func fragmentsAreJoinedAroundControlFrames() {
    let bytes =
      frame(2, [1, 2, 3], isLast: false) + frame(9, [7]) + frame(0, [], isLast: false) + frame(10, [])
      + frame(0, [4, 5])
      + frame(2, [], isLast: false) + frame(0, [])
    #expect(read(bytes) == [.ping([7]), .pong, .message([1, 2, 3, 4, 5]), .message([])])
  }

  @Test func violationsHaveTheirCodes() {
    #expect(read([0x82, 0x01, 0x00]) == [.violation(1002)])  // not masked
    for bit: UInt8 in [0x40, 0x20, 0x10] { #expect(read(frame(2 | bit, [])) == [.violation(1002)]) }
    #expect(read(frame(1, [0x61])) == [.violation(1003)])
    for opcode: UInt8 in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] { #expect(read(frame(opcode, [])) == [.violation(1002)]) }
    #expect(read(frame(9, [UInt8](repeating: 0, count: 126))) == [.violation(1002)])
    #expect(read(frame(8, [], isLast: false)) == [.violation(1002)])
    #expect(read(frame(0, [1])) == [.violation(1002)])
    #expect(read(frame(2, [1], isLast: false) + frame(2, [1])) == [.violation(1002)])
    #expect(read(frame(2, [1], lengthByteCount: 2)) == [.violation(1002)])
    #expect(read(frame(2, [UInt8](repeating: 0, count: 126), lengthByteCount: 8)) == [.violation(1002)])
    #expect(read([0x82, 0xff] + [UInt8](repeating: 0xff, count: 12)) == [.violation(1002)])
  }

  @Test func aServerThatTakesTextTakesBinaryToo() {
    let bytes =
      frame(1, [0xC3], isLast: false) + frame(9, []) + frame(0, [0xA9]) + frame(2, [0xFF]) + frame(1, [])
    #expect(read(bytes, .any) == [.ping([]), .text([0xC3, 0xA9]), .message([0xFF]), .text([])])
  }

  @Test func aServerThatTakesNoMessagesTakesControlFrames() {
    let control = frame(9, [1]) + frame(10, []) + frame(8, [3, 232])
    #expect(read(control, limit: 0, .refused) == [.ping([1]), .pong, .close(1000)])
    for opcode: UInt8 in [0, 1, 2] {
      #expect(read(frame(9, []) + frame(opcode, [1]), limit: 0, .refused) == [.ping([]), .violation(1008)])
      #expect(read([opcode, 0x80], limit: 0, .refused) == [.violation(1008)])
    }
    #expect(read([0x82, 0x00], limit: 0, .refused) == [.violation(1002)])
    var saved = WebSocketDecoder.Saved()
    saved.phase = 2
    #expect(WebSocketDecoder(maximumMessageByteCount: 0, .refused, restoring: saved, messageByteCount: 0) == nil)
  }

  @Test func messageIsLimitedBeforeItArrives() {
    #expect(read(frame(2, [1, 2, 3]), limit: 3) == [.message([1, 2, 3])])
    #expect(read([UInt8](frame(2, [1, 2, 3, 4]).prefix(6)), limit: 3) == [.violation(1009)])
    #expect(read(frame(2, [1, 2], isLast: false) + frame(0, [3, 4]), limit: 3) == [.violation(1009)])
    #expect(read([0x82, 0xff, 0x7f] + [UInt8](repeating: 0xff, count: 11), limit: 3) == [.violation(1009)])
  }

  @Test func closeFrameIsChecked() {
    #expect(read(frame(8, [])) == [.close(nil)])
    #expect(read(frame(8, [0x03, 0xe8] + [UInt8]("é".utf8))) == [.close(1000)])
    #expect(read(frame(8, [0x0b, 0xb8])) == [.close(3000)])
    #expect(read(frame(8, [0x03])) == [.violation(1002)])
    for code: [UInt8] in [
      [0x03, 0xe7], [0x03, 0xec], [0x03, 0xed], [0x03, 0xee], [0x03, 0xf7], [0x13, 0x88], [0, 0],
    ] {
      #expect(read(frame(8, code)) == [.violation(1002)])
    }
    #expect(read(frame(8, [0x03, 0xe8, 0xc3])) == [.violation(1007)])
  }

  @Test func restoredStateIsChecked() {
    func restored(_ phase: UInt8, _ left: UInt64, message: Int) -> WebSocketDecoder? {
      var saved = WebSocketDecoder.Saved()
      (saved.phase, saved.byteCountLeft) = (phase, left)
      return WebSocketDecoder(maximumMessageByteCount: 10, restoring: saved, messageByteCount: message)
    }
    let (idle, frame, betweenFrames) = (UInt8(0), UInt8(1), UInt8(2))
    #expect(restored(frame, 4, message: 6) != nil)
    #expect(restored(frame, 4, message: 7) == nil)
    #expect(restored(frame, .max, message: 0) == nil)
    #expect(restored(frame, 0, message: 0) == nil)
    #expect(restored(betweenFrames, 1, message: 0) == nil)
    #expect(restored(idle, 1, message: 0) == nil)
    #expect(restored(idle, 0, message: 1) == nil)
    #expect(restored(3, 0, message: 0) == nil)
    #expect(restored(betweenFrames, 0, message: 11) == nil)
  }

  @Test func serverWritesUnmaskedFramesWithShortHeaders() {
    for (byteCount, header) in [
      (0, [0x82, 0]), (125, [0x82, 125]), (126, [0x82, 126, 0, 126]), (65_535, [0x82, 126, 0xff, 0xff]),
      (65_536, [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] as [(Int, [UInt8])] {
      #expect(written { WebSocketFrame.writeHeader(messageByteCount: byteCount, to: &$0) } == header)
      #expect(WebSocketFrame.headerByteCount(messageByteCount: byteCount) == header.count)
    }
    #expect(WebSocketFrame.pong([1, 2]) == [0x8a, 2, 1, 2])
    #expect(WebSocketFrame.ping() == [0x89, 0])
    #expect(WebSocketFrame.close(nil) == [0x88, 0])
    #expect(WebSocketFrame.close(1002, "no") == [0x88, 4, 0x03, 0xea, 0x6e, 0x6f])
    let long = WebSocketFrame.close(1000, String(repeating: "é", count: 100))
    #expect(long.count == 2 + 124 && String(validating: long[4...], as: UTF8.self) != nil)
  }

  @Test func aClientsFramesAreTheServersWithAMask() {
    for byteCount in [0, 5, 125, 126, 65_535, 65_536] {
      let payload = (0..<byteCount).map { UInt8(ascii: "a") + UInt8($0 % 26) }
      let text = WebSocketFrame.masked(WebSocketFrame.text(payload), with: 0x80ff_0012)
      #expect(text.prefix(1) == [0x81] && Array(text.dropFirst()) == Array(frame(1, payload).dropFirst()))
    }
    #expect(WebSocketFrame.masked(WebSocketFrame.ping(), with: 0x0403_0201) == [0x89, 0x80, 1, 2, 3, 4])
    #expect(WebSocketFrame.masked(WebSocketFrame.pong([8, 8]), with: 0x0403_0201) == [0x8a, 0x82, 1, 2, 3, 4, 9, 10])
  }

  private func accepts(_ fields: [(String, String)], subprotocols: [String] = []) -> Bool? {
    let offer = WebSocketOffer(nonce: Array("the sample nonce".utf8), subprotocols: subprotocols)
    let answer = [
      ("Upgrade", "WebSocket"), ("Connection", "upgrade"), ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
    ]
    let all = answer.filter { field in !fields.contains { $0.0 == field.0 } } + fields.filter { $0.1 != "" }
    return try? offer.accepts { name in all.filter { $0.0 == name }.map(\.1) }
  }

  @Test func anOfferAcceptsOnlyTheAnswerToIt() {
    let offer = WebSocketOffer(nonce: Array("the sample nonce".utf8), subprotocols: ["a", "b"])
    let fields = Dictionary(uniqueKeysWithValues: offer.fields.map { ($0.name, $0.value) })
    #expect(fields["Sec-WebSocket-Key"] == "dGhlIHNhbXBsZSBub25jZQ==" && fields["Sec-WebSocket-Protocol"] == "a, b")
    #expect(accepts([]) == false)
    for field in ["Upgrade", "Connection", "Sec-WebSocket-Accept"] {
      for value in ["", "x"] { #expect(accepts([(field, value)]) == nil) }
    }
    #expect(accepts([("Connection", "keep-alive, Upgrade"), ("Upgrade", "h2c"), ("Upgrade", "websocket")]) == false)
    #expect(accepts([("Sec-WebSocket-Protocol", "a")]) == nil)
    #expect(accepts([], subprotocols: ["a", "b"]) == nil)
    #expect(accepts([("Sec-WebSocket-Protocol", " b")], subprotocols: ["a", "b"]) == false)
    #expect(accepts([("Sec-WebSocket-Protocol", "a, b")], subprotocols: ["a", "b"]) == nil)
    #expect(
      accepts([("Sec-WebSocket-Protocol", "a"), ("Sec-WebSocket-Protocol", "b")], subprotocols: ["a", "b"]) == nil)
    for (value, isCompressed) in [
      ("permessage-deflate", true),
      ("Permessage-Deflate;server_no_context_takeover ; client_no_context_takeover", true),
      ("permessage-deflate; server_max_window_bits=15", true),
      ("permessage-deflate; server_max_window_bits=\"8\"", true),
      ("permessage-deflate; server_max_window_bits", nil), ("permessage-deflate; server_max_window_bits=16", nil),
      ("permessage-deflate; client_max_window_bits=15", nil), ("permessage-deflate, permessage-deflate", nil),
      ("permessage-deflate; server_max_window_bits=9; server_max_window_bits=9", nil), ("x", nil), (";", nil),
      ("permessage-deflate; server_no_context_takeover=1", nil), ("", false), (" , \t", false),
      (",permessage-deflate", true),
    ] as [(String, Bool?)] {
      #expect(accepts([("Sec-WebSocket-Extensions", value)]) == isCompressed, "\(value)")
    }
  }

  @Test func digestsAreThoseOfTheStandards() {
    func hex(_ text: String) -> String {
      sha1([UInt8](text.utf8)).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
    #expect(hex("") == "da39a3ee5e6b4b0d3255bfef95601890afd80709")
    #expect(hex("abc") == "a9993e364706816aba3e25717850c26c9cd0d89d")
    #expect(
      hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") == "84983e441c3bd26ebaae4aa1f95129e5e54670f1")
    #expect(hex(String(repeating: "a", count: 1000)) == "291e9a6c66994949b57ba5e650361e98fc36b1ba")
    #expect(WebSocketHandshake.accept(key: "dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
  }

  private func handshake(_ replaced: (String, String) = ("", ""), line: String = "GET /rsocket HTTP/1.1") -> Result<
    String, Rejection
  > {
    let lines = [
      "Upgrade: h2c, WebSocket", "Connection: keep-alive, upgrade", "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ].map { $0 == replaced.0 ? replaced.1 : $0 }
    guard let head = readHead(request(lines.joined(separator: "\r\n"), line: line)) else {
      return .failure(.malformed("no head"))
    }
    return Result { () throws(Rejection) in try WebSocketHandshake.accept(head) }
  }

  private func status(_ result: Result<String, Rejection>) -> Status? {
    switch result {
    case .success: nil
    case .failure(let rejection): rejection.status
    }
  }

  @Test func handshakeIsChecked() {
    #expect(handshake() == .success("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))
    let version = "Sec-WebSocket-Version: 13"
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    #expect(status(handshake((version, "Sec-WebSocket-Version: 8"))) == .upgradeRequired)
    #expect(status(handshake((version, "A: b"))) == .upgradeRequired)
    #expect(status(handshake(("Upgrade: h2c, WebSocket", "Upgrade: h2c"))) == .upgradeRequired)
    #expect(status(handshake(("Connection: keep-alive, upgrade", "Connection: close"))) == .upgradeRequired)
    #expect(status(handshake(line: "GET /rsocket HTTP/1.0")) == .upgradeRequired)
    #expect(status(handshake(line: "POST /rsocket HTTP/1.1")) == .methodNotAllowed)
    #expect(status(handshake((key, "A: b"))) == .badRequest)
    for text in [
      "", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZR==", "dGhlIHNhbXBsZSBub25j=Q==", "dGhlIHNhbXBsZSBub25jZQ===",
    ] {
      #expect(status(handshake((key, "Sec-WebSocket-Key: \(text)"))) == .badRequest)
    }
    #expect(status(handshake((key, "\(key)\r\nContent-Length: 1"))) == .badRequest)
  }
}
