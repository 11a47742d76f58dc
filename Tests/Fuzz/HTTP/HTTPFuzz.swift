// An input is two bytes of choices and then what a peer sends. The first byte's lowest two bits choose the subject
// (requests, WebSocket frames, encodings of an event, header fields), its other bits a variant. The second byte seeds
// the splits, and with encodings the room.

@testable import HTTP

/// Reads one input; a broken invariant traps.
func fuzzHTTP(_ input: UnsafeRawBufferPointer) {
  guard input.count >= 2 else { return }
  let bytes = [UInt8](input[2...])
  let (variant, seed) = (Int(input[0] >> 2), input[1])
  switch input[0] & 3 {
  case 0:
    let whole = Requests.read(bytes, splitSeed: nil)
    precondition(whole == Requests.read(bytes, splitSeed: UInt32(seed)), "a split made a difference")
    precondition(whole == Requests.read(bytes, splitSeed: 0), "single bytes made a difference")
    for case .head(let head) in whole { checkFields(of: head) }
  case 1:
    let messages: WebSocketDecoder.Messages = variant & 2 == 0 ? .binary : variant & 4 == 0 ? .any : .refused
    let limit = messages == .refused ? 0 : variant & 1 == 0 ? 100 : 1 << 20
    let whole = WebSocket.read(bytes, limit: limit, messages, splitSeed: nil)
    precondition(
      whole == WebSocket.read(bytes, limit: limit, messages, splitSeed: UInt32(seed)), "a split made a difference")
  case 2: checkEncodings(bytes, room: 1 + Int(seed), variant)
  default: checkTexts(bytes, variant)
  }
}

/// Calls `body` with pieces of `bytes` in order; seed 0 means single bytes, nil one piece.
private func forEachPiece(of bytes: [UInt8], _ seed: UInt32?, _ body: (ArraySlice<UInt8>) -> Void) {
  guard let seed else { return body(bytes[...]) }
  var (state, start) = (seed &* 2_654_435_761 | 1, 0)
  while start < bytes.count {
    state = state &* 1_664_525 &+ 1_013_904_223
    let count = seed == 0 ? 1 : 1 + Int(state >> 24) % 40
    body(bytes[start..<min(bytes.count, start + count)])
    start += count
  }
}

/// A server that keeps what is not consumed, and saves and restores the decoder of a body after each step.
private enum Requests {
  enum Found: Equatable {
    case head(RequestHead)
    case body([UInt8])
    case end
    case rejected(Rejection)
  }

  static func read(_ bytes: [UInt8], splitSeed: UInt32?) -> [Found] {
    var (parser, decoder, unread, found) = (RequestParser(), BodyDecoder?.none, [UInt8](), [Found]())
    forEachPiece(of: bytes, splitSeed) { piece in
      if case .rejected? = found.last { return }
      unread += piece
      do throws(Rejection) {
        while true {
          guard var body = decoder else {
            guard let head = try parser.parse(unread.span) else { return }
            unread.removeFirst(head.byteCount)
            found.append(.head(head))
            decoder = BodyDecoder(head.framing)
            continue
          }
          var offset = 0
          let step = try body.next(in: unread.span, from: &offset)
          decoder = BodyDecoder(body.saved)
          precondition(decoder == body, "a decoder is not restored")
          defer { unread.removeFirst(offset) }
          switch step {
          case .needsBytes:
            precondition(offset == unread.count, "bytes of a body are left")
            return
          case .end:
            found.append(.end)
            decoder = nil
          case .data(let range):
            precondition(range.upperBound == offset && !range.isEmpty, "data is not consumed")
            if case .body(let start)? = found.last {
              found[found.count - 1] = .body(start + unread[range])
            } else {
              found.append(.body([UInt8](unread[range])))
            }
          }
        }
      } catch { found.append(.rejected(error)) }
    }
    return found
  }
}

private enum WebSocket {
  enum Found: Equatable {
    case step(WebSocketDecoder.Step)
    case message([UInt8])
    case violation(WebSocketDecoder.Violation)
  }

  static func read(
    _ bytes: [UInt8], limit: Int, _ messages: WebSocketDecoder.Messages, splitSeed: UInt32?
  ) -> [Found] {
    var (unread, message, found) = ([UInt8](), [UInt8](), [Found]())
    var decoder: WebSocketDecoder? = WebSocketDecoder(maximumMessageByteCount: limit, peer: .client(messages))
    forEachPiece(of: bytes, splitSeed) { piece in
      if case .violation? = found.last { return }
      unread += piece
      do throws(WebSocketDecoder.Violation) {
        while var current = decoder {
          var offset = 0
          let step = try current.next(in: unread.span, from: &offset, message: &message)
          unread.removeFirst(offset)
          precondition(message.count <= limit, "a message exceeds its limit")
          if step == .message {
            precondition(messages == .any || messages == .binary && !current.isText, "a message is accepted")
            found.append(.message(message))
            message = []
          } else if step != .needsBytes {
            found.append(.step(step))
          }
          decoder = WebSocketDecoder(
            maximumMessageByteCount: limit, messages, restoring: current.saved, messageByteCount: message.count)
          precondition(decoder == current, "a decoder is not restored")
          if step == .needsBytes {
            precondition(unread.count < 132, "\(unread.count) bytes are left")
            return
          }
        }
      } catch { found.append(.violation(error)) }
    }
    return found
  }
}

private func written(room: Int, _ write: (inout ByteWriter) -> Void) -> [UInt8] {
  [UInt8](unsafeUninitializedCapacity: room) { buffer, count in
    var writer = ByteWriter(UnsafeMutableRawBufferPointer(buffer))
    write(&writer)
    count = writer.count
  }
}

/// Parts of any size are the same bytes, with and without chunks, and lines stay lines.
private func checkEncodings(_ data: [UInt8], room: Int, _ variant: Int) {
  let name = variant & 1 == 0 ? nil : String(decoding: data.prefix(5), as: UTF8.self)
  let head = EventHead(id: UInt64(variant), name: name, microsecondsSinceEpoch: UInt64(data.count) << 40)
  for format in EventEncoding.Format.allCases {
    for content in EventEncoding.Content.allCases {
      guard var encoding = EventEncoding(format, content, hasEnvelope: variant & 2 == 0) else { continue }
      if variant & 4 != 0 { encoding = encoding.ofOther }
      let whole = written(room: encoding.byteCount(head, data.span)) { writer in
        precondition(encoding.write(head, data.span, to: &writer) == data.count, "an event exceeds its size")
        precondition(writer.room == 0, "an event is smaller than its size")
      }
      if format == .raw {
        precondition(encoding.content == .binary || whole.last == 10, "a raw event does not end its line")
      } else if encoding.content == .text {
        precondition(String(validating: whole, as: UTF8.self) != nil, "a text is not valid UTF-8")
      }
      if format == .ndjson { precondition(whole.firstIndex(of: 10) == whole.count - 1, "an event has several lines") }
      var (offset, parts, chunks, frames) = (Int?.some(0), [UInt8](), [UInt8](), [UInt8]())
      repeat {
        let start = offset ?? 0
        parts += written(room: room) { offset = encoding.write(head, data.span, from: start, to: &$0) }
        chunks += written(room: room + Chunk.maximumOverheadByteCount) {
          let next = encoding.writeChunk(head, data.span, from: start, to: &$0)
          precondition(next == offset, "a chunk is another part")
        }
        frames += written(room: room + WebSocketFrame.maximumHeaderByteCount) {
          let next = encoding.writeFrame(head, data.span, from: start, to: &$0)
          precondition(next == offset, "a frame is another part")
        }
        precondition(offset ?? .max > start || data.isEmpty, "a part is empty")
      } while offset ?? data.count < data.count
      if offset == nil {
        precondition(room < EventEncoding.sufficientRoom(for: head), "the room must suffice")
        continue
      }
      precondition(parts == whole, "parts are not the whole")
      let request = [UInt8]("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".utf8)
      let found = Requests.read(request + chunks + Chunk.last.utf8, splitSeed: nil).dropFirst()
      precondition(found == (whole.isEmpty ? [.end] : [.body(whole), .end]), "chunks are not the whole")
      precondition(messages(of: frames) == [whole], "frames are not the whole")
    }
  }
}

/// The messages that a client reads.
private func messages(of frames: [UInt8]) -> [[UInt8]] {
  var decoder = WebSocketDecoder(maximumMessageByteCount: .max, peer: .server(compresses: false))
  var (offset, message, found) = (0, [UInt8](), [[UInt8]]())
  while let step = try? decoder.next(in: frames.span, from: &offset, message: &message), step == .message {
    found.append(message)
    message = []
  }
  precondition(offset == frames.count, "a frame is malformed")
  return found
}

private func checkFields(of head: RequestHead) {
  _ = (head.keepsConnection, head.expectsContinue, head.hasContentCoding, try? WebSocketHandshake.accept(head))
  _ = try? OriginRules(isUnixSocket: true).check(head)
  precondition(!head.target.path.utf8.contains { $0.isControl }, "a path has a control character")
  let hasPlus = head.target.parameters.contains { ($0.name + $0.value).utf8.contains(UInt8(ascii: "+")) }
  precondition(
    !hasPlus || String(decoding: head.bytes, as: UTF8.self).lowercased().contains("%2b"), "a plus sign is not decoded")
  precondition(head.target.path.hasPrefix("/") || head.target.path == "*", "a path has no slash")
  check(head.authority)
}

private func check(_ authority: Authority) {
  let host = authority.kind == .ipv6 ? "[\(authority.host)]" : authority.host
  let text = authority.port.map { "\(host):\($0)" } ?? host
  precondition(Authority(text) == authority, "\(text) is another authority")
}

private let offered = ["text/plain; version=0.0.4", "text/event-stream", "application/json"].compactMap {
  MediaType($0)
}

/// Texts of header fields, and states from a damaged handover.
private func checkTexts(_ bytes: [UInt8], _ variant: Int) {
  let text = String(decoding: bytes, as: UTF8.self)
  if let authority = Authority(text) { check(authority) }
  _ = EntityTag(eventID: 1).isNamed(by: text)
  _ = MediaType.preferred(text, among: offered)
  _ = OriginRules.isOrigin("http://" + text, of: Authority())
  var response = ResponseHead(.ok)
  response.add("X", text)
  var output: [UInt8] = []
  response.append(to: &output)
  precondition(output.filter { $0 == 13 }.count == 3 && output.filter { $0 == 10 }.count == 3, "a value has a line end")
  precondition(String(validating: Problem(.badRequest, text).body, as: UTF8.self) != nil, "a problem is not UTF-8")

  let number = bytes.prefix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
  var saved = BodyDecoder.Saved()
  (saved.phase, saved.byteCountLeft, saved.lineByteCount) = (UInt8(variant), number, UInt16(truncatingIfNeeded: number))
  var offset = 0
  if var decoder = BodyDecoder(saved) {
    precondition(decoder.saved == saved, "a state changed")
    while let step = try? decoder.next(in: bytes.span, from: &offset), step != .needsBytes, step != .end {}
  }
  var other = WebSocketDecoder.Saved()
  (other.phase, other.byteCountLeft, other.mask) = (UInt8(variant & 3), number, UInt32(truncatingIfNeeded: number))
  if var decoder = WebSocketDecoder(maximumMessageByteCount: 1 << 16, restoring: other, messageByteCount: bytes.count) {
    var (message, offset) = (bytes, 0)
    while let step = try? decoder.next(in: bytes.span, from: &offset, message: &message), step != .needsBytes {
      if step == .message { message = [] }
    }
  }
}
