import HTTP
import StreamProtocol

// Plain WebSockets: events as messages, and messages as values.

extension HTTPSpeaker {
  /// Opens a WebSocket at a stream, at several, or at a pattern.
  func openWebSocket(at names: [String], _ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    let handshake = try handshake(head)
    var query = try StreamQuery(head.target.parameters)
    guard query.format == nil else {
      throw Rejection(.badRequest, "parameter \"as\" is not for a WebSocket, in which each event is a message")
    }
    query.format = .message
    guard query.publishes else { return try respond(with: names, request, query, head, handshake) }
    guard names.count == 1, NamePattern(names[0]) == nil else {
      throw Rejection(.badRequest, "a WebSocket publishes to one stream")
    }
    guard query.isOnlyForPublishing else {
      throw Rejection(.badRequest, "publish=1 takes no other parameter: the WebSocket has no events")
    }
    guard let (stream, source) = try publishedStream(names[0], request, head) else { return }
    do throws(PublishingObstacle) {
      let publishing = try PublishingWebSocket.begin(request, to: stream, source, on: self)
      worker.trace(identity, stream: stream.name, "publishes")
      output += handshake
      publishing.resume()
    } catch {
      throw rejection(error, of: stream)
    }
  }

  /// The response that opens a WebSocket.
  func handshake(_ head: RequestHead, subprotocol: String? = nil) throws(Rejection) -> [UInt8] {
    let accept = try WebSocketHandshake.accept(head)
    var response = ResponseHead(.switchingProtocols)
    response.add("Upgrade", "websocket")
    response.add("Connection", "Upgrade")
    response.add("Sec-WebSocket-Accept", accept)
    if let subprotocol { response.add("Sec-WebSocket-Protocol", subprotocol) }
    var bytes: [UInt8] = []
    response.append(to: &bytes)
    return bytes
  }

  /// Ends a WebSocket that continues here with a close frame.
  func endWebSocket(_ code: UInt16, _ reason: String) {
    output += WebSocketFrame.close(code, reason)
    connection.speak(LastResponse(on: self))
  }

  func endDamagedWebSocket() { endWebSocket(1011, "the saved state of this connection is not valid") }
}
