import HTTP
import ReplayLog
import StreamRuntime

// The handover to another process: a response continues in the middle of a chunk, a body in the middle of a value.

extension HTTPSpeaker {
  func save(_ http: SavedHTTP, to saved: inout SavedConnection) {
    _ = connection.flush()
    var http = http
    (http.hasRequested, http.input) = (hasRequested, heldInput)
    saved.http = http
  }

  func restoreExchange(_ http: SavedHTTP, _ subscriptions: [SavedConnection.Subscription]) {
    let request = http.savedRequest
    switch http.phase {
    case .head: break
    case .finishing: connection.speak(LastResponse(on: self))
    case .waiting: WaitingResponse.restore(http, request, on: self)
    case .rendering: MetricsResponse.restore(http, request, on: self)
    case .publishing where http.socket != nil: PublishingWebSocket.restore(http, request, on: self)
    case .publishing: PublishingRequest.restore(http, request, on: self)
    case .streaming where http.flags & SavedHTTP.singleFlag != 0:
      SingleEventResponse.restore(http, request, subscriptions, on: self)
    case .streaming: StreamingResponse.restore(http, request, subscriptions, on: self)
    }
  }
}

extension SavedHTTP {
  mutating func save(_ request: HTTPRequest) {
    self.request = (request.isHead ? 1 : 0) | (request.keepsConnection ? 2 : 0) | (request.allowsChunks ? 4 : 0)
    allowedOrigin = Array((request.allowedOrigin ?? "").utf8)
  }

  /// The end of the exchange, as when the daemon stops; empty: only the connection's end shows it.
  /// - Parameter isWithinEvent: whether an event is sent in part.
  func ending(_ failure: RequestFailure, isWithinEvent: Bool) -> [UInt8] {
    if socket != nil { return WebSocketFrame.close(failure.reason.closeCode, failure.sentence) }
    switch phase {
    case .head, .finishing: return []
    case .waiting, .rendering, .publishing:
      let date = ResponseHead.date(secondsSinceEpoch: EventLoop.wallClock() / 1_000_000)
      let machine = RefusalMachine(failure.sentence, nil, reason: failure.reason, date: date)
      return machine.answer(to: savedRequest, accepted: phase == .publishing ? count : nil)
    case .streaming:
      guard !isWithinEvent, flags & Self.singleFlag == 0,
        case .body(let encoding, let coding)? = EventFormat(
          savedEncoding: self.encoding, ids: true, completes: false)?.encoding
      else { return [] }
      return StreamingResponse.ending(
        .init(failure), encoding, isChunked: coding.isChunked, retry: StreamingResponse.stopRetry)
    }
  }

  fileprivate var savedRequest: HTTPRequest {
    HTTPRequest(
      isHead: request & 1 != 0, keepsConnection: request & 2 != 0, allowsChunks: request & 4 != 0,
      allowedOrigin: allowedOrigin.isEmpty ? nil : String(decoding: allowedOrigin, as: UTF8.self))
  }
}
