import HTTP
import RSocket
import StreamRuntime

/// The speaker of RSocket in binary messages: one frame each, without its length.
final class RSocketWebSocket: RSocketSpeaker, WebSocketSpeaker {
  var webSocket: WebSocketInput
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
    let restored = saved.flatMap {
      WebSocketInput(maximumMessageByteCount: maximumMessageBytes, .binary, restoring: $0)
    }
    webSocket = restored ?? WebSocketInput(maximumMessageByteCount: maximumMessageBytes, .binary)
    super.init(connection, machine: machine)
    worker.counts.webSocket.add(1, ordering: .relaxed)
    guard saved != nil, restored == nil else { return }
    self.machine.close(.connectionClose, "the saved state of this connection is not valid")
  }

  deinit { worker.counts.webSocket.subtract(1, ordering: .relaxed) }

  override var isWebSocket: Bool { true }
  override var protocolName: String { "websocket" }
  override var encoding: EventFormat.Encoding { .webSocket }
  override var heldByteCount: Int { super.heldByteCount + webSocket.heldByteCount }
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
    unsafe processFrames(bytes, until: deadline)
  }

  func receiveMessage(until deadline: UInt64) {
    let message = webSocket.takeMessage()
    var frame = [0, 8, 16].reversed().map { UInt8(truncatingIfNeeded: message.count >> $0) }
    frame += message
    unsafe frame.withUnsafeBytes { _ = unsafe super.process($0, until: deadline) }
  }

  func append(control frame: [UInt8]) { control += frame }

  func close(with frame: [UInt8]) {
    ending = frame
    connection.finishClosing()
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
    saved.webSocket = webSocket.saved
  }
}

extension HTTPSpeaker {
  /// Continues with RSocket in a WebSocket.
  func openRSocket(_ head: RequestHead) throws(Rejection) {
    try refuseParameters(of: head)
    let subprotocol = WebSocketHandshake.isOffered("rsocket", by: head) ? "rsocket" : nil
    output += try handshake(head, subprotocol: subprotocol)
    // Responses to requests before this one go first.
    connection.speak(RSocketWebSocket(connection, handshake: takeAnswers()))
    connection.setClock(after: worker.limits.handshakeTimeout)
  }
}
