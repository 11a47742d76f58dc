import HTTP
import Testing

@Suite struct EventEncodingTests {
  private let head = EventHead(id: 41, name: "a", microsecondsSinceEpoch: 1_767_323_045_678_901)

  private func encoding(
    _ format: EventEncoding.Format, _ content: EventEncoding.Content = .json, hasEnvelope: Bool = false
  ) -> EventEncoding { EventEncoding(format, content, hasEnvelope: hasEnvelope)! }

  /// The event's form; it must be the same in parts of any size, and its size must be known before.
  private func encoded(_ encoding: EventEncoding, _ head: EventHead, _ data: [UInt8]) -> [UInt8] {
    var next: Int?
    let whole = written { next = encoding.write(head, data.span, to: &$0) }
    #expect(next == data.count)
    #expect(encoding.byteCount(head, data.span) == whole.count)
    let again = written(room: whole.count) { next = encoding.write(head, data.span, to: &$0) }
    #expect(again == whole)
    #expect(next == data.count)
    for room in 1...whole.count + 40 { #expect(parts(encoding, head, data, room: room).map { $0 == whole } ?? true) }
    #expect(
      parts(encoding, head, data, room: EventEncoding.sufficientRoom(for: head)) == whole)
    return whole
  }

  /// The event's parts of at most `room` bytes, also as the data of chunks; nil if the room does not suffice.
  private func parts(_ encoding: EventEncoding, _ head: EventHead, _ data: [UInt8], room: Int) -> [UInt8]? {
    var (plain, chunks): ([UInt8], [UInt8]) = ([], [])
    var offset: Int? = 0
    repeat {
      let start = offset ?? 0
      plain += written(room: room) { offset = encoding.write(head, data.span, from: start, to: &$0) }
      let overhead = Chunk.maximumOverheadByteCount
      var next: Int?
      chunks += written(room: room + overhead) { next = encoding.writeChunk(head, data.span, from: start, to: &$0) }
      #expect(next == offset)
      guard let offset else { return nil }
      #expect(offset > start || data.isEmpty)
    } while offset != data.count
    checkFrames(encoding, head, data, room: room, plain)
    let head = request("Transfer-Encoding: chunked", line: "POST / HTTP/1.1").utf8
    let found = readRequests(head + chunks + Chunk.last.utf8, checkingSplits: false)
    #expect(found.dropFirst() == (plain.isEmpty ? [.end] : [.body(plain), .end]))
    return plain
  }

  /// The event as the frames of one message.
  private func checkFrames(
    _ encoding: EventEncoding, _ head: EventHead, _ data: [UInt8], room: Int, _ plain: [UInt8]
  ) {
    let overhead = WebSocketFrame.maximumHeaderByteCount
    var (message, offset, count) = ([UInt8](), 0, 0)
    repeat {
      var next: Int?
      let frame = written(room: room + overhead) { next = encoding.writeFrame(head, data.span, from: offset, to: &$0) }
      guard let next else { return #expect(Bool(false), "a frame has no room") }
      let (isFirst, isLast) = (count == 0, next == data.count)
      let kind: UInt8 = encoding.hasEnvelope || encoding.content != .binary ? 1 : 2
      #expect(frame[0] == (isLast ? 0x80 : 0) | (isFirst ? kind : 0))
      message += frame.dropFirst(frame[1] < 126 ? 2 : frame[1] == 126 ? 4 : 10)
      (offset, count) = (next, count + 1)
    } while offset < data.count
    #expect(message == plain)
  }

  private func text(_ encoding: EventEncoding, _ head: EventHead, _ data: String) -> String {
    String(decoding: encoded(encoding, head, [UInt8](data.utf8)), as: UTF8.self)
  }

  @Test(arguments: [
    (#"{"event":"message","data":{"a":1}}"#, "data: {\"a\":1}\n\n"),
    (#"{"event":"delta","id":"7\"","data":[1,2]}"#, "event: delta\ndata: [1,2]\n\n"),
    (#"{"event":"message","data":"[DONE]"}"#, "data: [DONE]\n\n"),
    (#"{"event":"message","data":"a\nb"}"#, "data: \"a\\nb\"\n\n"),
    (#"{"event":"a","data":"x\\"}"#, "event: a\ndata: \"x\\\\\"\n\n"),
    (#"{"event":"a","data":""}"#, "event: a\ndata: \n\n"), (#"{"event":"a"#, "data: {\"event\":\"a\n\n"),
    (#"{"event":"a","data":"#, "data: {\"event\":\"a\",\"data\":\n\n"), (#"{"a":1}"#, "data: {\"a\":1}\n\n"),
    ("[\r\n1]", "data: [\ndata: 1]\n\n"),
  ])
  func eventsAreRelayedAsTheUpstreamSendsThem(data: String, form: String) {
    #expect(text(.relayedWithNames, head, data) == form)
    #expect(text(.relayed, head, data.hasPrefix("{") ? "{}" : data) == (data.hasPrefix("{") ? "data: {}\n\n" : form))
  }

  @Test(arguments: [
    ("", "data: \n\n"), ("a", "data: a\n\n"), ("a\nb", "data: a\ndata: b\n\n"), ("a\r\nb", "data: a\ndata: b\n\n"),
    ("a\rb", "data: a\ndata: b\n\n"), ("a\r\r\n\n\rb", "data: a\ndata: \ndata: \ndata: \ndata: b\n\n"),
    ("\n", "data: \ndata: \n\n"), ("\r\n", "data: \ndata: \n\n"), ("\r", "data: \ndata: \n\n"),
    (" a:b", "data:  a:b\n\n"),
    ("0123456789abcdef\n0123456\r\n0123456", "data: 0123456789abcdef\ndata: 0123456\ndata: 0123456\n\n"),
  ])
  func linesOfAnEventBecomeFields(data: String, form: String) {
    #expect(text(encoding(.serverSentEvents, .text), EventHead(), data) == form)
    #expect(text(encoding(.serverSentEvents, .json), head, data) == "id: 41\nevent: a\n" + form)
  }

  @Test func lineFeedAfterAPartThatEndsWithAReturnIsSkipped() {
    let data = [UInt8]("a\r\nb\n\n".utf8)
    for (offset, form) in [
      (1, "\ndata: b\ndata: \ndata: \n\n"), (2, "b\ndata: \ndata: \n\n"), (5, "\ndata: \n\n"), (6, ""),
    ] {
      let part = written { _ = encoding(.serverSentEvents).write(head, data.span, from: offset, to: &$0) }
      #expect(String(decoding: part, as: UTF8.self) == form)
    }
  }

  @Test func namesAndPositionsCannotAddFields() {
    let head = EventHead(position: "a=1\nb\r\u{0}c", name: "x\ndata: y")
    #expect(text(encoding(.serverSentEvents), head, "d") == "id: a=1 b  c\nevent: x data: y\ndata: d\n\n")
    let envelope = text(encoding(.ndjson, hasEnvelope: true), EventHead(name: "\"\n\\\u{1}é"), "1")
    #expect(
      envelope
        == "{\"stream\":\"\\\"\\n\\\\\\u0001é\",\"id\":null,\"time\":\"1970-01-01T00:00:00.000000Z\",\"data\":1}\n")
  }

  @Test func linesOfJSONBecomeOneLine() {
    #expect(text(encoding(.ndjson), head, "{\r\n\"a\":\n1}") == "{  \"a\": 1}\n")
    #expect(text(encoding(.ndjson), head, "") == "\n")
    #expect(text(encoding(.jsonSequence), head, "{\n1\u{1e}}") == "\u{1e}{\n1 }\n")
    #expect(text(encoding(.raw, .binary), head, "a\r\n\u{0}") == "a\r\n\u{0}")
  }

  @Test(arguments: [EventEncoding.Content.json, .text]) func rawEventsOfTextEndLines(content: EventEncoding.Content) {
    for (data, line) in [
      ("a", "a\n"), ("", "\n"), ("a\n", "a\n"), ("a\r\n", "a\r\n"), ("a\nb", "a\nb\n"), ("\n", "\n"),
    ] {
      #expect(text(encoding(.raw, content), head, data) == line)
    }
  }

  @Test func envelopeEmbedsJSONAndQuotesText() {
    let start = "{\"stream\":\"a\",\"id\":41,\"time\":\"2026-01-02T03:04:05.678901Z\","
    #expect(text(encoding(.ndjson, .json, hasEnvelope: true), head, "[1,\n2]") == start + "\"data\":[1, 2]}\n")
    #expect(text(encoding(.jsonSequence, .json, hasEnvelope: true), head, "1") == "\u{1e}" + start + "\"data\":1}\n")
    #expect(text(encoding(.ndjson, .text, hasEnvelope: true), head, "") == start + "\"data\":\"\"}\n")
    let escapes = text(encoding(.ndjson, .text, hasEnvelope: true), head, "\"\\\n\r\t\u{0}\u{1f}\u{7f}aé€😀")
    #expect(escapes == start + "\"data\":\"\\\"\\\\\\n\\r\\t\\u0000\\u001f\u{7f}aé€😀\"}\n")
  }

  @Test func binaryDataIsBase64() {
    let start = "{\"id\":1,\"time\":\"1970-01-01T00:00:00.000001Z\",\"data_base64\":\""
    for (data, digits) in [
      ("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="),
      ("foobar", "Zm9vYmFy"),
    ] {
      let head = EventHead(id: 1, microsecondsSinceEpoch: 1)
      #expect(text(encoding(.ndjson, .binary, hasEnvelope: true), head, data) == start + digits + "\"}\n")
    }
    let all = encoded(
      encoding(.ndjson, .binary, hasEnvelope: true), EventHead(id: 1, microsecondsSinceEpoch: 1), [0xfb, 0xff, 0xbf])
    #expect(String(decoding: all, as: UTF8.self) == start + "+/+/" + "\"}\n")
  }

  @Test func otherThanJSONIsAStringOrBase64() {
    for (format, start) in [(EventEncoding.Format.ndjson, ""), (.jsonSequence, "\u{1e}")] {
      let other = encoding(format).ofOther
      #expect(text(other, head, "1,\"a\"\n") == start + "\"1,\\\"a\\\"\\n\"\n")
      #expect(text(other, head, "") == start + "\"\"\n")
      let enveloped = encoding(format, hasEnvelope: true)
      #expect(enveloped.ofOther == encoding(format, .binary, hasEnvelope: true))
    }
    for format in [EventEncoding.Format.ndjson, .jsonSequence] {
      let text = encoding(format, .text, hasEnvelope: true)
      #expect(text.required == .text && text.ofOther == encoding(format, .binary, hasEnvelope: true))
    }
    for other in [
      encoding(.serverSentEvents), encoding(.raw), encoding(.jsonSequence, .binary, hasEnvelope: true),
    ] { #expect(other.required == nil && other.ofOther == other) }
  }

  /// A response can continue with events of another type if they are written in the same way.
  @Test func encodingsThatWriteTheSameAreEqual() {
    #expect(encoding(.serverSentEvents, .json) == encoding(.serverSentEvents, .text))
    #expect(encoding(.raw, .json) == encoding(.raw, .text) && encoding(.raw, .text) != encoding(.raw, .binary))
    #expect(encoding(.ndjson, .json, hasEnvelope: true).with(.text) == encoding(.ndjson, .text, hasEnvelope: true))
    #expect(encoding(.ndjson).with(.text) == nil && encoding(.serverSentEvents).with(.binary) == nil)
  }

  @Test(
    arguments: [
      [0x80], [0xc0, 0xaf], [0xc2], [0xc2, 0x41], [0xe0, 0x80, 0x80], [0xe2, 0x82], [0xe2, 0x82, 0xe2, 0x82, 0xac],
      [0xed, 0xa0, 0x80], [0xf0, 0x80, 0x80, 0x80], [0xf0, 0x9f, 0x98], [0xf4, 0x90, 0x80, 0x80], [0xf5, 0x80],
      [0xff, 0xfe],
      [0xf0, 0x9f, 0x98, 0x80], [0xee, 0x80, 0x80], [0xef, 0xbf, 0xbd], [0xf1, 0x80, 0x80, 0x41],
      [0x63, 0x61, 0x66, 0xe9], [0xe9, 0x63, 0xc3, 0xa9, 0xf0, 0x9f, 0x98, 0xf0, 0x9f, 0x98, 0x80, 0xc3],
    ] as [[UInt8]])
  func invalidUTF8IsReplacedAsInSwift(input: [UInt8]) {
    let text = String(decoding: input, as: UTF8.self)
    let form = encoded(encoding(.ndjson, .text, hasEnvelope: true), EventHead(id: 1), input)
    let start = "{\"id\":1,\"time\":\"1970-01-01T00:00:00.000000Z\",\"data\":\""
    #expect(String(decoding: form, as: UTF8.self) == start + text + "\"}\n")
    let events = encoding(.serverSentEvents, .text)
    let twice: [UInt8] = input + [13] + input + [10]
    let cases: [([UInt8], String)] = [(input, text), (twice, "\(text)\ndata: \(text)\ndata: ")]
    for (data, lines) in cases {
      #expect(encoded(events, EventHead(id: 1), data) == [UInt8]("id: 1\ndata: \(lines)\n\n".utf8))
      // An event with an id of 16 digits has a path of its own.
      let line = "id: 1767323045678901\ndata: \(lines)\n\n"
      let chunk = written { _ = events.writeChunk(EventHead(id: 1_767_323_045_678_901), data.span, to: &$0) }
      #expect(String(decoding: chunk, as: UTF8.self) == "\(String(line.utf8.count, radix: 16))\r\n\(line)\r\n")
    }
  }

  @Test func contentThatAFormatCannotRepresentIsRefused() {
    #expect(EventEncoding(.serverSentEvents, .binary, hasEnvelope: true) == nil)
    #expect(EventEncoding(.ndjson, .text, hasEnvelope: false) == nil)
    #expect(EventEncoding(.jsonSequence, .binary, hasEnvelope: false) == nil)
    #expect(EventEncoding(.raw, .json, hasEnvelope: true) == nil)
    #expect(EventEncoding(.serverSentEvents, .json, hasEnvelope: true)?.hasEnvelope == false)
  }

  @Test func largeEventIsWrittenInPartsOfABoundedSize() {
    let data = [UInt8]((0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
    for encoding in [encoding(.serverSentEvents, .text), encoding(.ndjson, .text, hasEnvelope: true), encoding(.raw)] {
      var (offset, joined, count) = (0, [UInt8](), 0)
      repeat {
        joined += written(room: 64 << 10) { offset = encoding.write(head, data.span, from: offset, to: &$0) ?? -1 }
        count += 1
      } while offset < data.count
      #expect(joined == written { _ = encoding.write(head, data.span, to: &$0) })
      #expect(count <= joined.count / (64 << 10) + 1)
    }
  }

  @Test(arguments: [0, 9, 999_999_999_999_999, 1_000_000_000_000_000, 9_999_999_999_999_999, 10_000_000_000_000_000])
  func chunkOfAServerSentEventIsThatOfItsParts(firstID: UInt64) {
    for id in (0..<40).map({ firstID &+ $0 &* 234_567_890_123 }) { checkChunk(of: id, [1, 2, 3]) }
    // An id of 16 digits is written together with up to 4066 bytes.
    let counts = [0, 1, 7, 8, 9, 63, 64, 226, 227] + (String(firstID).utf8.count == 16 ? [1024, 4066, 4067] : [])
    for count in counts {
      let data = line(of: count)
      checkChunk(of: firstID, data)
      for place in Set([0, count / 2, count - 1]) where place >= 0 && count > 0 {
        for lineEnd: UInt8 in [10, 13] {
          var lines = data
          lines[place] = lineEnd
          checkChunk(of: firstID, lines)
        }
      }
    }
  }

  @Test func chunkOfALargeServerSentEventIsThatOfItsParts() {
    var data = line(of: 70_000)
    (data[0], data[35_000], data[69_999]) = (10, 13, 10)
    checkChunk(of: 1_000_000_000_000_000, data)
  }

  private func line(of count: Int) -> [UInt8] {
    [UInt8]((0..<count).map { UInt8(truncatingIfNeeded: $0 % 200 + 32) })
  }

  private func checkChunk(of id: UInt64, _ data: [UInt8]) {
    let encoding = encoding(.serverSentEvents, .text)
    let event = written { _ = encoding.write(EventHead(id: id), data.span, to: &$0) }
    #expect(event.starts(with: "id: \(id)\ndata: ".utf8))
    let chunk = written { _ = encoding.writeChunk(EventHead(id: id), data.span, to: &$0) }
    #expect(chunk == [UInt8](String(event.count, radix: 16).utf8) + [13, 10] + event + [13, 10], "\(data.count)")
  }

  @Test func chunkOfAnEventHasTheFewestDigits() {
    let data = [UInt8]("123456789012345".utf8)
    let chunk = written { _ = encoding(.ndjson).writeChunk(EventHead(), data.span, to: &$0) }
    #expect(String(decoding: chunk, as: UTF8.self) == "10\r\n123456789012345\n\r\n")
    #expect(Chunk.byteCount(dataByteCount: 16) == chunk.count)
    let none: [UInt8] = []
    var next: Int?
    let empty = written { next = encoding(.raw, .binary).writeChunk(EventHead(), none.span, to: &$0) }
    #expect(next == 0 && empty.isEmpty)
  }

  @Test func partsOfAnEventStreamThatAreNoEventsAreComplete() {
    #expect(ServerSentEvents.comment == ":\n\n")
    #expect(ServerSentEvents.retry(milliseconds: 2000) == "retry: 2000\n\n")
  }

  @Test func aMessageIsTheEventOrItsEnvelopeWithoutALineEnd() {
    let head = EventHead(id: 41, microsecondsSinceEpoch: 1_767_323_045_678_901)
    let start = #"{"id":41,"time":"2026-01-02T03:04:05.678901Z","#
    for (content, hasEnvelope, data, form) in [
      (.json, false, "{\r\n}", "{\r\n}"), (.text, false, "a\n€", "a\n€"), (.json, false, "", ""),
      (.json, true, "{\n}", start + "\"data\":{\n}}"), (.text, true, "a\n", start + #""data":"a\n"}"#),
      (.binary, true, "abcd", start + #""data_base64":"YWJjZA=="}"#), (.binary, false, "abcd", "abcd"),
    ] as [(EventEncoding.Content, Bool, String, String)] {
      #expect(text(encoding(.message, content, hasEnvelope: hasEnvelope), head, data) == form)
    }
    let broken = encoded(encoding(.message, .json), head, [0x61, 0xC3, 0x62, 0xE2, 0x82])
    #expect(broken == Array("a\u{FFFD}b\u{FFFD}".utf8))
    #expect(encoded(encoding(.message, .binary), head, [0xFF, 0]) == [0xFF, 0])
    var marker = written { encoding(.message, .json, hasEnvelope: true).writeMarker(head, to: &$0) }
    #expect(String(decoding: marker, as: UTF8.self) == String(start.dropLast()) + #","caught_up":true}"#)
    marker = written { WebSocketFrame.writeText(to: &$0) { $0.append("é") } }
    #expect(marker == WebSocketFrame.text(Array("é".utf8)) && marker == [0x81, 2, 0xC3, 0xA9])
  }
}
