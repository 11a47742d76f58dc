/// Reads the bytes of a WebSocket's peer: bytes in, messages out. It holds no bytes: the caller's buffer contains those
/// of an incomplete message.
///
/// Source: RFC 6455, sections 5 and 7; RFC 7692, section 6.
public struct WebSocketDecoder: Equatable, Sendable {
  /// The role of the other end.
  public enum Peer: Equatable, Sendable {
    /// Its frames are masked. No extensions are accepted.
    case client(Messages = .binary)
    /// Its frames are not masked. Text is accepted as well.
    /// - compresses: whether messages may be compressed. Those are not limited here: the caller limits what it inflates, and
    ///   takes the bytes of the message out of its buffer after each step.
    case server(compresses: Bool)
  }

  /// The messages that a server accepts.
  public enum Messages: Equatable, Sendable {
    case binary
    /// Text, which is not examined here, as well.
    case any
    /// None: control frames alone.
    case refused
  }

  /// What ``next(in:from:message:)`` found.
  public enum Step: Equatable, Sendable {
    /// More bytes are needed after the unread ones from the offset on, which are fewer than 132.
    case needsBytes
    /// The message is complete. The caller takes it, and empties the buffer before the next call.
    case message
    /// The peer wants a pong with these bytes, at most 125.
    case ping([UInt8])
    /// An unsolicited pong, or one for a ping of the server.
    case pong
    /// The peer closes the connection, with the code that it gave, if any. The answer is
    /// ``WebSocketFrame/close(_:_:)``; later bytes are to be ignored.
    case close(UInt16?)
  }

  /// The peer violated the protocol: the answer is ``WebSocketFrame/close(_:_:)``, then the connection ends.
  public struct Violation: Error, Equatable, Sendable {
    /// The status code. Source: RFC 6455, section 7.4.1.
    public let code: UInt16
    /// One sentence, at most 123 bytes.
    public let reason: String
  }

  /// What another process needs to continue, besides the bytes of the incomplete message.
  package struct Saved: Equatable, Sendable {
    /// The raw value of the phase.
    package var phase: UInt8 = 0
    /// Bytes left of the current frame.
    package var byteCountLeft: UInt64 = 0
    /// The mask of the next four bytes; the lowest byte is for the next one.
    package var mask: UInt32 = 0
    /// Whether the current frame is the message's last one.
    package var isLastFrame = false
    /// Whether the message is text.
    package var isText = false

    package init() {}
  }

  private struct Header {
    var opcode: WebSocketFrame.Opcode
    var isLast: Bool
    var isCompressed: Bool
    var byteCount: UInt64
    var mask: UInt32
    var headerByteCount: Int
  }

  private enum Phase: UInt8 {
    case idle  // before the first frame of a message; can become: frame
    case frame  // in a frame of a message; can become: betweenFrames, idle
    case betweenFrames  // after a frame that is not the message's last one; can become: frame
  }

  private var phase = Phase.idle
  private var byteCountLeft: UInt64 = 0
  private var mask: UInt32 = 0
  private var isLastFrame = false
  private let maximumMessageByteCount: Int
  private let peer: Peer
  /// Whether the current message, or the last one, is text, which is not examined here.
  public private(set) var isText = false
  /// Whether it is compressed.
  public private(set) var isCompressed = false

  /// Starts after the handshake.
  /// - Parameter maximumMessageByteCount: beyond it 1009, before any byte of the frame is buffered.
  public init(maximumMessageByteCount: Int, peer: Peer = .client()) {
    self.maximumMessageByteCount = maximumMessageByteCount
    self.peer = peer
  }

  /// Continues with a state from ``saved``, which may have been damaged.
  /// - Parameters:
  ///   - messages: those of the peer, a client.
  ///   - messageByteCount: the size of the incomplete message.
  /// - Returns: nil for a state that no decoder can have, and for a message that exceeds the maximum.
  package init?(
    maximumMessageByteCount: Int, _ messages: Messages = .binary, restoring saved: Saved, messageByteCount: Int
  ) {
    guard let phase = Phase(rawValue: saved.phase), phase != .idle || messageByteCount == 0,
      (phase == .frame) == (saved.byteCountLeft > 0), messageByteCount <= maximumMessageByteCount,
      saved.byteCountLeft <= maximumMessageByteCount - messageByteCount, messages != .refused || phase == .idle
    else { return nil }
    self.init(maximumMessageByteCount: maximumMessageByteCount, peer: .client(messages))
    (self.phase, byteCountLeft, mask, isLastFrame) = (phase, saved.byteCountLeft, saved.mask, saved.isLastFrame)
    isText = saved.isText
  }

  /// The state between two inputs.
  package var saved: Saved {
    var saved = Saved()
    (saved.phase, saved.byteCountLeft, saved.mask, saved.isLastFrame, saved.isText) = (
      phase.rawValue, byteCountLeft, mask, isLastFrame, isText
    )
    return saved
  }

  /// Reads until something is complete.
  ///
  /// - Parameters:
  ///   - offset: where to continue in `bytes`; set to the first byte that is not consumed. The caller passes the later
  ///   bytes again, followed by new ones.
  ///   - message: bytes of the message are appended.
  /// - Throws: a violation; nothing can be read any more.
  /// - Complexity: O(bytes), independent of the splits.
  public mutating func next(
    in bytes: Span<UInt8>, from offset: inout Int, message: inout [UInt8]
  ) throws(Violation) -> Step {
    while true {
      switch phase {
      case .frame:
        let count = Int(min(byteCountLeft, UInt64(bytes.count - offset)))
        unmask(bytes.extracting(offset..<offset + count), into: &message)
        offset += count
        byteCountLeft -= UInt64(count)
        guard byteCountLeft == 0 else { return .needsBytes }
        phase = isLastFrame ? .idle : .betweenFrames
        if isLastFrame { return .message }
      case .idle, .betweenFrames:
        guard let header = try readHeader(bytes, at: offset) else { return .needsBytes }
        switch header.opcode {
        case .text, .binary, .continuation:
          if header.opcode != .continuation { (isText, isCompressed) = (header.opcode == .text, header.isCompressed) }
          try checkData(header, messageByteCount: message.count)
          offset += header.headerByteCount
          (phase, byteCountLeft, mask, isLastFrame) = (.frame, header.byteCount, header.mask, header.isLast)
        case .ping, .pong, .close:
          let start = offset + header.headerByteCount
          guard header.byteCount <= bytes.count - start else { return .needsBytes }
          var payload: [UInt8] = []
          mask = header.mask
          unmask(bytes.extracting(start..<start + Int(header.byteCount)), into: &payload)
          offset = start + payload.count
          return try step(header.opcode, payload)
        }
      }
    }
  }

  private func checkData(_ header: Header, messageByteCount: Int) throws(Violation) {
    switch (phase, header.opcode == .continuation) {
    case (.idle, true): throw Violation(code: 1002, reason: "a continuation frame without a message to continue")
    case (.betweenFrames, false): throw Violation(code: 1002, reason: "a new message within a fragmented one")
    case (.idle, false), (.betweenFrames, true), (.frame, _): break
    }
    guard isCompressed || header.byteCount <= maximumMessageByteCount - min(messageByteCount, maximumMessageByteCount)
    else {
      throw Violation(code: 1009, reason: "the message exceeds \(maximumMessageByteCount) bytes")
    }
  }

  /// The messages that the peer may send as a client; nil: it is a server.
  private var clientMessages: Messages? { if case .client(let messages) = peer { messages } else { nil } }

  /// Reads a frame's header, but only once it is complete.
  private func readHeader(_ bytes: Span<UInt8>, at offset: Int) throws(Violation) -> Header? {
    guard bytes.count - offset >= 2 else { return nil }
    let (first, second) = (bytes[offset], bytes[offset + 1])
    let isCompressed = first & 0x40 != 0
    guard first & 0x30 == 0, !isCompressed || peer == .server(compresses: true) && (1...2).contains(first & 0x0f) else {
      throw Violation(code: 1002, reason: "a reserved bit is set")
    }
    let messages = clientMessages
    guard first & 0x0f != 1 || messages != .binary else {
      throw Violation(code: 1003, reason: "only binary messages are accepted")
    }
    guard let opcode = WebSocketFrame.Opcode(rawValue: first & 0x0f) else {
      throw Violation(code: 1002, reason: "the opcode is reserved")
    }
    guard (second & 0x80 != 0) == (messages != nil) else {
      throw Violation(
        code: 1002, reason: messages != nil ? "a frame of the client is not masked" : "a frame of the server is masked")
    }
    guard opcode.isControl || messages != .refused else {
      throw Violation(code: 1008, reason: "a message without publish=1, which opens a WebSocket that publishes")
    }
    let (length, isLast) = (second & 0x7f, first & 0x80 != 0)
    guard !opcode.isControl || (isLast && length <= 125) else {
      throw Violation(code: 1002, reason: "a control frame is fragmented or longer than 125 bytes")
    }
    let lengthByteCount = length < 126 ? 0 : length == 126 ? 2 : 8
    let maskByteCount = messages != nil ? 4 : 0
    guard bytes.count - offset >= 2 + lengthByteCount + maskByteCount else { return nil }
    var byteCount: UInt64 = 0
    for index in 0..<lengthByteCount { byteCount = byteCount << 8 | UInt64(bytes[offset + 2 + index]) }
    guard lengthByteCount == 0 || byteCount > (lengthByteCount == 2 ? 125 : 0xffff), byteCount <= UInt64(Int64.max)
    else {
      throw Violation(code: 1002, reason: "a frame's length is not encoded in as few bytes as possible")
    }
    var mask: UInt32 = 0
    for index in 0..<maskByteCount { mask |= UInt32(bytes[offset + 2 + lengthByteCount + index]) << (8 * index) }
    return Header(
      opcode: opcode, isLast: isLast, isCompressed: isCompressed,
      byteCount: lengthByteCount == 0 ? UInt64(length) : byteCount, mask: mask,
      headerByteCount: 2 + lengthByteCount + maskByteCount)
  }

  private func step(_ opcode: WebSocketFrame.Opcode, _ payload: [UInt8]) throws(Violation) -> Step {
    switch opcode {
    case .ping: return .ping(payload)
    case .pong: return .pong
    case .close:
      guard !payload.isEmpty else { return .close(nil) }
      guard payload.count >= 2 else { throw Violation(code: 1002, reason: "a close frame has half a status code") }
      let code = UInt16(payload[0]) << 8 | UInt16(payload[1])
      switch code {
      case 1000...1003, 1007...1014, 3000...4999: break
      default: throw Violation(code: 1002, reason: "a close frame has an invalid status code")
      }
      guard String(validating: payload[2...], as: UTF8.self) != nil else {
        throw Violation(code: 1007, reason: "the reason in a close frame is not valid UTF-8")
      }
      return .close(code)
    case .text, .binary, .continuation: preconditionFailure("\(opcode) is not a control frame")
    }
  }

  /// Appends the bytes, unmasked, and rotates the mask by their number.
  private mutating func unmask(_ bytes: Span<UInt8>, into buffer: inout [UInt8]) {
    let start = buffer.count
    unsafe bytes.withUnsafeBytes { unsafe buffer.append(contentsOf: $0) }
    let wide = UInt64(mask) << 32 | UInt64(mask)
    unsafe buffer.withUnsafeMutableBytes { buffer in
      var index = start
      while index + 8 <= buffer.count {
        let word = UInt64(littleEndian: unsafe buffer.loadUnaligned(fromByteOffset: index, as: UInt64.self))
        unsafe buffer.storeBytes(of: (word ^ wide).littleEndian, toByteOffset: index, as: UInt64.self)
        index += 8
      }
      for offset in 0..<buffer.count - index {
        unsafe buffer[index + offset] ^= UInt8(truncatingIfNeeded: wide >> UInt64(8 * offset))
      }
    }
    let shift = UInt32(bytes.count % 4 * 8)
    mask = mask >> shift | mask << (32 - shift)  // a shift by 32 yields 0
  }
}
