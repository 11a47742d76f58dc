import HTTP
import StreamProtocol

/// A WebSocket with the events of one stream or of several. Each event is a message.
///
/// As in any streaming response, space in the socket is its credit.
final class EventWebSocket: StreamingResponse, WebSocketSpeaker {
  var webSocket: WebSocketInput
  /// The response that opens it; empty once it is written.
  private var handshake: [UInt8]

  /// - Parameters:
  ///   - names: at least one.
  ///   - input: of one that continues here.
  init(
    _ request: HTTPRequest, _ encoding: EventEncoding, _ names: [String], follows: Bool, isPattern: Bool,
    handshake: [UInt8] = [], _ input: WebSocketInput = WebSocketInput(maximumMessageByteCount: 0, .refused),
    on http: HTTPSpeaker
  ) {
    (webSocket, self.handshake) = (input, handshake)
    super.init(request, encoding, isChunked: false, names, follows: follows, isPattern: isPattern, on: http)
    http.becomeWebSocket()
  }

  override var isWebSocket: Bool { true }
  override var protocolName: String { "websocket" }
  override var holdsInput: Bool { false }
  override var hasOutbound: Bool { false }
  override var heldByteCount: Int { super.heldByteCount + webSocket.heldByteCount }
  var isBusy: Bool { false }

  override func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    unsafe processFrames(bytes, until: deadline)
  }

  func receiveMessage(until deadline: UInt64) { _ = webSocket.takeMessage() }

  func append(control frame: [UInt8]) { http.output += frame }

  func close(with frame: [UInt8]) {
    connection.endSubscriptions()
    http.output += frame
    http.endExchange(keeps: false)
  }

  override func writeOpening() {
    http.output += handshake
    handshake = []
  }

  override func writeSign() { http.output += WebSocketFrame.ping() }

  /// A close frame may follow a part of a message, and shows that the rest is missing.
  override func writeEnding(_ reason: Reason, isClean: Bool, isCut: Bool, retry milliseconds: Int?) {
    http.output += WebSocketFrame.close(reason.failure?.closeCode ?? 1000, reason.text)
  }

  override func refuse(_ sentence: String) { end(.init(.init(.tooMuchInput, sentence)), isClean: false) }

  // MARK: From one process to the next

  /// - Returns: nil for a state that no connection can have.
  static func input(_ saved: SavedWebSocket?) -> WebSocketInput? {
    saved.flatMap { WebSocketInput(maximumMessageByteCount: 0, .refused, restoring: $0) }
  }

  override func save(to saved: inout SavedHTTP) {
    super.save(to: &saved)
    saved.socket = webSocket.saved
  }
}

extension FailureReason {
  /// The code of the frame that closes a WebSocket. Source: docs/HTTP.md, "WebSockets".
  var closeCode: UInt16 {
    switch self {
    case .ended: 1000
    case .stopping: 1001
    case .mayNotRead, .mayNotWrite, .mayNotCommand, .takesNoValues, .takesNoMoreValues, .kicked, .tokenRemoved,
      .invalidToken, .invalidAuthentication, .invalidRequest, .unknownPosition, .noState, .noKey, .noEffect, .notJSON,
      .notMapped, .notMappable, .mapRemoved, .otherRequest:
      1008
    case .tooLarge, .requestTooLarge: 1009
    case .failed, .lagged, .eventLost, .stalled, .stateLost, .valuesLost: 1011
    case .restarting, .typeChanged, .nameInUse, .notConfigured: 1012
    case .notKept, .noSpace, .tooManyRequests, .tooManyViews, .tooManyPublishers, .tooManyMaps, .noDescriptors,
      .noMemory,
      .tooManyFilters, .filtersTooLarge, .noCapacity, .tooManyConnections, .tooMuchInput, .tooManyStreams:
      1013
    case .removed, .noStream: 4404
    }
  }
}
