import HTTP
import RSocket
import StreamRuntime

/// The speaker of RSocket in binary messages: one frame each, without its length.
final class WebSocketSpeaker: RSocketSpeaker {
  private var decoder: WebSocketDecoder
  /// The received part of a message.
  private var message: [UInt8] = []
  /// The received part of a frame's header, or of a control frame.
  private var headerPart: [UInt8] = []
  /// Answers to pings, which go before frames.
  private var control: [UInt8]
  /// The last frame, which goes after all others.
  private var ending: [UInt8] = []

  /// - Parameters:
  ///   - handshake: the response that opens the WebSocket, and any before it, to be written first.
  ///   - saved: the state of a connection that continues here; nil for a new one.
  init(
    _ connection: Connection, handshake: [UInt8] = [], machine: ConnectionMachine? = nil, saved: SavedWebSocket? = nil
  ) {
    control = handshake
    // The limit is that of a frame without a WebSocket. A longer message is refused before it is buffered.
    let maximumMessageBytes = connection.worker.limits.ofConnection.maximumFrameBytes
    decoder = WebSocketDecoder(maximumMessageByteCount: maximumMessageBytes)
    super.init(connection, machine: machine)
    worker.counts.webSocket.add(1, ordering: .relaxed)
    guard let saved else { return }
    if let decoder = saved.decoder(maximumMessageByteCount: maximumMessageBytes) {
      (self.decoder, message, headerPart) = (decoder, saved.message, saved.headerPart)
    } else {
      self.machine.close(.connectionClose, "the saved state of this connection is not valid")
    }
  }

  deinit { worker.counts.webSocket.subtract(1, ordering: .relaxed) }

  override var protocolName: String { "websocket" }
  override var encoding: EventFormat.Encoding { .webSocket }
  override var heldByteCount: Int { super.heldByteCount + message.count + headerPart.count }
  override var answerByteCount: Int { control.count + super.answerByteCount + ending.count }

  override func takeAnswers() -> [UInt8] {
    var bytes = control + Self.messages(of: super.takeAnswers())
    bytes += ending
    (control, ending) = ([], [])
    return bytes
  }

  /// Converts frames with lengths into messages.
  static func messages(of frames: [UInt8]) -> [UInt8] {
    guard !frames.isEmpty else { return [] }
    var bytes: [UInt8] = []
    bytes.reserveCapacity(frames.count + frames.count / 4)
    var offset = 0
    while offset + 3 <= frames.count {
      let count = Int(frames[offset]) << 16 | Int(frames[offset + 1]) << 8 | Int(frames[offset + 2])
      ByteWriter.append(to: &bytes) { WebSocketFrame.writeHeader(messageByteCount: count, to: &$0) }
      bytes += frames[offset + 3..<min(frames.count, offset + 3 + count)]
      offset += 3 + count
    }
    return bytes
  }

  override func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    guard !headerPart.isEmpty else { return unsafe read(bytes.bindMemory(to: UInt8.self).span, until: deadline) }
    let before = headerPart.count
    let joined = unsafe headerPart + Array(bytes)
    headerPart = []
    return max(0, read(joined.span, until: deadline) - before)
  }

  /// - Returns: the number of processed bytes.
  private func read(_ bytes: Span<UInt8>, until deadline: UInt64) -> Int {
    var (offset, messageCount) = (0, 0)
    do throws(WebSocketDecoder.Violation) {
      repeat {
        switch try decoder.next(in: bytes, from: &offset, message: &message) {
        case .needsBytes:
          unsafe bytes.extracting(offset..<bytes.count).withUnsafeBytes { headerPart = unsafe Array($0) }
          return bytes.count
        case .message: handleMessage(until: deadline)
        case .ping(let payload): control += WebSocketFrame.pong(payload)
        case .pong: break
        case .close(let code):
          ending = WebSocketFrame.close(code)
          connection.finishClosing()
        }
        messageCount += 1
      } while connection.phase == .open && offset < bytes.count && !isBusy
        && messageCount < Slices.connectionFrames && EventLoop.monotonicNow() < deadline
    } catch {
      connection.drop(error.reason)
      ending = WebSocketFrame.close(error.code, error.reason)
      connection.finishClosing()
    }
    return connection.phase == .open ? offset : bytes.count
  }

  private func handleMessage(until deadline: UInt64) {
    var frame = [0, 8, 16].reversed().map { UInt8(truncatingIfNeeded: message.count >> $0) }
    frame += message
    message = []
    unsafe frame.withUnsafeBytes { _ = unsafe super.process($0, until: deadline) }
  }

  override func refuse(_ sentence: String) {
    ending = WebSocketFrame.close(1008)
    super.refuse(sentence)
  }

  override func stop(_ failure: RequestFailure) {
    ending = WebSocketFrame.close(1001)
    super.stop(failure)
  }

  override func save(to saved: inout SavedConnection) {
    super.save(to: &saved)
    saved.webSocket = SavedWebSocket(decoder.saved, message: message, headerPart: headerPart)
  }
}

extension HTTPSpeaker {
  /// Continues as a WebSocket.
  func openWebSocket(_ head: RequestHead) throws(Rejection) {
    try refuseParameters(of: head)
    let accept = try WebSocketHandshake.accept(head)
    var response = ResponseHead(.switchingProtocols)
    response.add("Upgrade", "websocket")
    response.add("Connection", "Upgrade")
    response.add("Sec-WebSocket-Accept", accept)
    if WebSocketHandshake.isOffered("rsocket", by: head) { response.add("Sec-WebSocket-Protocol", "rsocket") }
    response.append(to: &output)
    // Responses to requests before this one go first.
    connection.speak(WebSocketSpeaker(connection, handshake: takeAnswers()))
    connection.setClock(after: worker.limits.handshakeTimeout)
  }
}
