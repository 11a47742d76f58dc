/// The frames of a WebSocket, without the server's code.
enum WebSocketFrames {
  /// The fields of a handshake. Key and answer are those of RFC 6455, section 1.3.
  static let handshake = [
    "Upgrade: websocket", "Connection: keep-alive, Upgrade", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
  ]

  static func isAnswer(_ head: ResponseReader.Head) -> Bool {
    head.status == 101 && head["upgrade"] == "websocket" && head["connection"] == "Upgrade"
      && head["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
  }

  /// Appends a frame of a client.
  static func append(
    _ opcode: UInt8, _ payload: [UInt8], isLast: Bool = true, to output: inout [UInt8], _ random: inout Random
  ) {
    output.append((isLast ? 0x80 : 0) | opcode)
    let (short, lengthBytes) = payload.count < 126 ? (payload.count, 0) : payload.count < 1 << 16 ? (126, 2) : (127, 8)
    output.append(0x80 | UInt8(short))
    for index in (0..<lengthBytes).reversed() { output.append(UInt8(truncatingIfNeeded: payload.count >> (8 * index))) }
    let mask = random.bytes(4)
    output += mask
    output += payload.enumerated().map { $1 ^ mask[$0 % 4] }
  }

  struct Frame {
    let opcode: UInt8
    let isLast: Bool
    let payload: Range<Int>
  }

  /// A frame of the server.
  /// - Returns: nil where more is needed.
  static func next(in bytes: UnsafeRawBufferPointer, from start: Int, client: String) -> Frame? {
    guard bytes.count - start >= 2 else { return nil }
    let (opcode, isLast, short) = (bytes[start] & 15, bytes[start] & 0x80 != 0, Int(bytes[start + 1]))
    require(
      bytes[start] & 0x70 == 0 && short < 128 && (opcode < 3 || 8...10 ~= opcode && isLast && short < 126), "frames",
      "\(client) got a frame of a WebSocket that begins with \(bytes[start]) \(short)")
    let lengthBytes = short < 126 ? 0 : short == 126 ? 2 : 8
    let payload = start + 2 + lengthBytes
    guard bytes.count >= payload else { return nil }
    let count = lengthBytes == 0 ? short : bytes[start + 2..<payload].reduce(0) { $0 << 8 | Int($1) }
    require(
      count > (lengthBytes == 8 ? 0xffff : lengthBytes == 2 ? 125 : -1) && count < 1 << 24, "frames",
      "\(client) got a frame of a WebSocket of \(count) bytes, with a length of \(lengthBytes) bytes")
    guard bytes.count >= payload + count else { return nil }
    return Frame(opcode: opcode, isLast: isLast, payload: payload..<payload + count)
  }
}
