/// Writes the frames of a WebSocket, unmasked, as a server sends them. Source: RFC 6455, section 5.2.
public enum WebSocketFrame {
  enum Opcode: UInt8 {
    case continuation = 0
    case text = 1
    case binary = 2
    case close = 8
    case ping = 9
    case pong = 10

    var isControl: Bool { rawValue & 8 != 0 }
  }

  /// The maximum size of a frame's header.
  public static let maximumHeaderByteCount = 10
  /// The maximum size of the payload of a ping, pong or close.
  public static let maximumControlByteCount = 125

  /// Returns the size of the header of a binary message.
  /// - Parameter byteCount: the size of the message.
  public static func headerByteCount(messageByteCount byteCount: Int) -> Int {
    byteCount <= 125 ? 2 : byteCount <= 0xffff ? 4 : 10
  }

  /// Writes the header of a binary message, which must follow directly.
  public static func writeHeader(messageByteCount byteCount: Int, to writer: inout ByteWriter) {
    writeHeader(.binary, byteCount: byteCount, to: &writer)
  }

  /// Writes the header of a frame.
  /// - Parameter isLast: whether it is the only frame of its message, or the last one.
  static func writeHeader(_ opcode: Opcode, isLast: Bool = true, byteCount: Int, to writer: inout ByteWriter) {
    let lengthByteCount = headerByteCount(messageByteCount: byteCount) - 2
    writer.append((isLast ? 0x80 : 0) | opcode.rawValue)
    writer.append(lengthByteCount == 0 ? UInt8(byteCount) : lengthByteCount == 2 ? 126 : 127)
    for index in 0..<lengthByteCount {
      writer.append(UInt8(truncatingIfNeeded: byteCount >> (8 * (lengthByteCount - 1 - index))))
    }
  }

  /// Returns a text message.
  /// - Parameter bytes: valid UTF-8.
  public static func text(_ bytes: [UInt8]) -> [UInt8] {
    var frame: [UInt8] = []
    ByteWriter.append(to: &frame) { writer in writeText(to: &writer) { $0.append(bytes.span) } }
    return frame
  }

  /// Writes a text message.
  /// - Parameter write: writes its text, which is valid UTF-8; it is called twice, and the first call only counts.
  public static func writeText(to writer: inout ByteWriter, _ write: (inout ByteWriter) -> Void) {
    var counter = ByteWriter()
    write(&counter)
    writeHeader(.text, byteCount: counter.count, to: &writer)
    write(&writer)
  }

  /// Returns a frame of this type as a client sends it.
  ///
  /// - Parameter key: unpredictable, so that no text of a user can look like HTTP to a proxy on the way.
  public static func masked(_ frame: [UInt8], with key: UInt32) -> [UInt8] {
    let headerByteCount = frame[1] < 126 ? 2 : frame[1] == 126 ? 4 : 10
    let mask = (0..<4).map { UInt8(truncatingIfNeeded: key >> (8 * $0)) }
    var masked = frame[..<headerByteCount] + mask
    masked[1] |= 0x80
    for (index, byte) in frame[headerByteCount...].enumerated() { masked.append(byte ^ mask[index & 3]) }
    return Array(masked)
  }

  /// Returns the answer to a ping: the same bytes.
  public static func pong(_ payload: [UInt8]) -> [UInt8] { control(.pong, payload) }

  /// Returns a ping, which the peer must answer.
  public static func ping() -> [UInt8] { control(.ping, []) }

  /// Returns the frame that ends this direction; no other frame may follow.
  /// - Parameters:
  ///   - code: nil for none, as in the answer to a close frame without one.
  ///   - reason: as much of it as fits is sent.
  public static func close(_ code: UInt16?, _ reason: String = "") -> [UInt8] {
    guard let code else { return control(.close, []) }
    var payload = [UInt8(code >> 8), UInt8(truncatingIfNeeded: code)]
    for scalar in reason.unicodeScalars {
      let bytes = String(scalar).utf8
      guard payload.count + bytes.count <= maximumControlByteCount else { break }
      payload += bytes
    }
    return control(.close, payload)
  }

  private static func control(_ opcode: Opcode, _ payload: [UInt8]) -> [UInt8] {
    let payload = payload.prefix(maximumControlByteCount)
    return [0x80 | opcode.rawValue, UInt8(payload.count)] + payload
  }
}
