import HTTP
import StreamRuntime

/// The input of a WebSocket: its frames, as far as they have arrived.
struct WebSocketInput {
  private var decoder: WebSocketDecoder
  /// The received part of a message.
  private var message: [UInt8] = []
  /// The received part of a frame's header, or of a control frame.
  private var headerPart: [UInt8] = []

  init(maximumMessageByteCount: Int, _ messages: WebSocketDecoder.Messages) {
    decoder = WebSocketDecoder(maximumMessageByteCount: maximumMessageByteCount, peer: .client(messages))
  }

  /// - Returns: nil for a state that no connection can have.
  init?(maximumMessageByteCount: Int, _ messages: WebSocketDecoder.Messages, restoring saved: SavedWebSocket) {
    guard let decoder = saved.decoder(maximumMessageByteCount: maximumMessageByteCount, messages) else { return nil }
    (self.decoder, message, headerPart) = (decoder, saved.message, saved.headerPart)
  }

  var saved: SavedWebSocket { SavedWebSocket(decoder.saved, message: message, headerPart: headerPart) }
  var heldByteCount: Int { message.count + headerPart.count }
  /// Whether the message is text, which was not examined.
  var isText: Bool { decoder.isText }

  /// Removes and returns a complete message.
  mutating func takeMessage() -> [UInt8] {
    var taken: [UInt8] = []
    swap(&taken, &message)
    return taken
  }

  fileprivate mutating func takeHeaderPart() -> [UInt8] {
    var taken: [UInt8] = []
    swap(&taken, &headerPart)
    return taken
  }

  /// Reads until something is complete; keeps what is not.
  fileprivate mutating func next(
    in bytes: Span<UInt8>, from offset: inout Int
  ) throws(WebSocketDecoder.Violation) -> WebSocketDecoder.Step {
    let step = try decoder.next(in: bytes, from: &offset, message: &message)
    if step == .needsBytes {
      unsafe bytes.extracting(offset..<bytes.count).withUnsafeBytes { headerPart = unsafe Array($0) }
      offset = bytes.count
    }
    return step
  }
}

/// A speaker whose input is the frames of a WebSocket.
protocol WebSocketSpeaker: Speaker {
  var webSocket: WebSocketInput { get set }
  /// Whether no other input is processed for now.
  var isBusy: Bool { get }

  /// Receives the message, which it takes out of the input.
  func receiveMessage(until deadline: UInt64)
  /// Sends a control frame, which goes before messages.
  func append(control frame: [UInt8])
  /// Ends the connection with this frame. The client has closed it, or violates the protocol.
  func close(with frame: [UInt8])
}

extension WebSocketSpeaker {
  /// Processes frames. Parameters and result are those of `process`.
  func processFrames(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    let headerPart = webSocket.takeHeaderPart()
    guard !headerPart.isEmpty else { return unsafe read(bytes.bindMemory(to: UInt8.self).span, until: deadline) }
    let joined = unsafe headerPart + Array(bytes)
    return max(0, read(joined.span, until: deadline) - headerPart.count)
  }

  /// - Returns: the number of processed bytes.
  private func read(_ bytes: Span<UInt8>, until deadline: UInt64) -> Int {
    var (offset, stepCount) = (0, 0)
    do throws(WebSocketDecoder.Violation) {
      repeat {
        switch try webSocket.next(in: bytes, from: &offset) {
        case .needsBytes: return bytes.count
        case .message: receiveMessage(until: deadline)
        case .ping(let payload): append(control: WebSocketFrame.pong(payload))
        case .pong: break
        case .close(let code): close(with: WebSocketFrame.close(code))
        }
        stepCount += 1
      } while connection.speaker === self && connection.phase == .open && offset < bytes.count && !isBusy
        && stepCount < Slices.connectionFrames && EventLoop.monotonicNow() < deadline
    } catch {
      connection.drop(error.reason)
      close(with: WebSocketFrame.close(error.code, error.reason))
    }
    return connection.speaker === self && connection.phase == .open ? offset : bytes.count
  }
}
