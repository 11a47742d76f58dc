import CLinux
import Glibc
import HTTP
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime

// The beginning of a streaming response.

extension HTTPSpeaker {
  func beginStreaming(
    _ streams: [ServedStream], as format: EventEncoding.Format, _ request: HTTPRequest, _ query: StreamQuery,
    lastEventID: String?, _ handshake: [UInt8] = [], made: MadeAnswer? = nil
  ) throws(Rejection) {
    let positions = lastEventID.flatMap { Self.positions($0, count: streams.count) }
    let isUnknown = lastEventID != nil && positions == nil
    guard !isUnknown || format == .serverSentEvents else {
      let wanted = streams.count == 1 ? "an event id" : "\(streams.count) event ids, separated by commas"
      throw Rejection(.badRequest, "Last-Event-ID must be \(wanted)")
    }
    let encodings = try Self.encodings(of: streams, as: format, query)
    guard !query.marker || format == .serverSentEvents || query.ids else {
      throw Rejection(.badRequest, format == .raw ? "marker=1 does not go with as=raw" : "marker=1 requires ids=1")
    }
    let isEventStream = format == .serverSentEvents
    if isEventStream, streams.count == 1, let position = positions?[0], Self.isRead(streams[0], position) {
      return respond(.noContent, to: request) { $0.add("Cache-Control", "no-store") }
    }
    if !isEventStream, query.follows {
      for (index, stream) in streams.enumerated() {
        let start = Self.start(positions?[index], query.from(ofStream: index), in: stream, query, isUnknown: false)
        if let failure = Self.failure(of: stream, from: start.from) {
          throw Rejection(of: .init(.failed, failure.message))
        }
      }
    }
    let response = response(request, encodings[0], streams.map(\.name), follows: query.follows, handshake)
    response.made = made
    guard !request.isHead else {
      response.head(nil).append(to: &output)
      return endExchange(keeps: false)
    }
    connection.speak(response)
    for (index, stream) in streams.enumerated() {
      let start = Self.start(positions?[index], query.from(ofStream: index), in: stream, query, isUnknown: isUnknown)
      guard response.subscribe(to: stream, index, as: encodings[index], from: start, query) else { return }
    }
    response.begin()
  }

  /// A response with events, or a WebSocket with them.
  func response(
    _ request: HTTPRequest, _ encoding: EventEncoding, _ names: [String], follows: Bool, isPattern: Bool = false,
    _ handshake: [UInt8]
  ) -> StreamingResponse {
    encoding.format == .message
      ? EventWebSocket(
        request, encoding, names, follows: follows, isPattern: isPattern, handshake: handshake, on: self)
      : StreamingResponse(
        request, encoding, isChunked: request.allowsChunks, names, follows: follows, isPattern: isPattern, on: self)
  }

  private static func encodings(
    of streams: [ServedStream], as format: EventEncoding.Format, _ query: StreamQuery
  ) throws(Rejection) -> [EventEncoding] {
    var encodings: [EventEncoding] = []
    var contents: [String: EventEncoding.Content] = [:]
    for stream in streams {
      let type = stream.configuration.type
      let content = contents[type] ?? EventEncoding.Content(ofType: type)
      contents[type] = content
      guard let encoding = EventEncoding(format, content, hasEnvelope: query.ids) else {
        let other = EventEncoding(format, content, hasEnvelope: !query.ids)
        let hint = other == nil ? "" : query.ids ? ": ids=1 does not go with it" : ": add ids=1"
        throw Rejection(.notAcceptable, "events of \"\(stream.name)\" are \(type)\(hint)")
      }
      encodings.append(encoding)
    }
    return encodings
  }

  /// The ids in a position: one for each stream of the response. Some libraries append new ids to those that they have
  /// sent before: the last ones count.
  /// - Returns: nil for other text, such as an id of another server.
  private static func positions(_ text: String, count: Int) -> [UInt64]? {
    let parts = text.split(separator: ",", omittingEmptySubsequences: false)
    let ids = parts.suffix(count).compactMap { UInt64($0.drop { $0 == " " }) }
    return ids.count == count && parts.count % count == 0 ? ids : nil
  }

  /// Whether a client that has this event has all events of a stream that has finished.
  private static func isRead(_ stream: ServedStream, _ position: UInt64) -> Bool {
    stream.log.read { storage, completion in completion == .finished && position &+ 1 >= storage.endPosition }
  }

  /// The failure of a stream that has no events from the start on; nil: it has some, or has not failed. A response
  /// would end at once, without a reason.
  private static func failure(of stream: ServedStream, from start: SubscribeOptions.Start) -> StreamFailure? {
    stream.log.read { storage, completion in
      guard case .failure(let failure) = completion else { return nil }
      let position = try? start.position(in: storage, replay: stream.configuration.replay)
      return position == storage.endPosition ? failure : nil
    }
  }

  /// The start of a subscription. If the client's last event is one that the log does not have yet, the subscription
  /// begins now, and reports a gap of unknown size.
  /// - Parameter isUnknown: whether the client has read events without a known position.
  private static func start(
    _ position: UInt64?, _ wanted: SubscribeOptions.Start?, in stream: ServedStream, _ query: StreamQuery,
    isUnknown: Bool
  ) -> StreamingResponse.Start {
    if isUnknown { return .init(from: wanted ?? .replay, missed: .unknown) }
    // No event has the id 0: a client that begins there does not miss the events that are no longer held.
    guard let position, position > 0 || wanted != .state else {
      return .init(from: wanted ?? .replay, missed: wanted == .after(id: 0) ? Gap.none : nil)
    }
    return stream.log.read { storage, _ in
      let isKnown = position < storage.endPosition
      let isNextHeld =
        isKnown && position + 1 >= storage.firstPosition && storage.skip(position + 1) == position + 1
      guard wanted == .state, !isNextHeld else {
        let awaits = query.follows && stream.configuration.isOfFleet && position <= EventLog.stampedIDLimit
        return isKnown || awaits ? .init(from: .after(id: position)) : .init(from: .new, missed: .unknown)
      }
      // The client has read the state up to this position, and maybe later events. If the state has all tombstones
      // since then, the client has the newest event of each key once it has read the rest of the state.
      let isContinued = isKnown && storage.state?.hasTombstones(from: position + 1) == true
      return isContinued ? .init(from: .state, first: position + 1) : .init(from: .state, missed: .unknown)
    }
  }

  /// Limits the kernel's send buffer. Events in it count as sent: it is small, so that unread events wait in the log.
  func limitSendBuffer() {
    var size = Self.sendBufferBytes / 2  // the kernel doubles it
    unsafe setsockopt(connection.socket.raw, SOL_SOCKET, SO_SNDBUF, &size, socklen_t(MemoryLayout<CInt>.size))
  }

  private static let sendBufferBytes: CInt = 256 << 10
}
