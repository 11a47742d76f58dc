import CLinux
import Glibc
import HTTP
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime

/// A response whose body is events: of one stream or of several, until it ends.
final class StreamingResponse {
  let request: HTTPRequest
  let encoding: EventEncoding
  let isChunked: Bool
  private let firstName: String
  private let otherNames: [String]  // empty as a rule: an idle client costs no array
  /// False: ends once it has sent all that was there when it began.
  let follows: Bool
  /// The body has a known size: one event, after which the connection takes the next request.
  let isSingle: Bool
  /// The connection ends with the response, at the latest after a while.
  fileprivate(set) var isLast = false
  /// The head is written: a failure cannot change the status any more.
  fileprivate(set) var hasBegun = false
  /// Positions of subscriptions that have ended: the id of the last event sent, by their request IDs.
  fileprivate var ended: [RequestID: UInt64] = [:]
  /// Why the response is to end once the subscription that caused it is removed.
  fileprivate var ending: (reason: String, isClean: Bool)?
  /// A part of an event is sent, and its rest will not be.
  var isCut = false

  init(
    _ request: HTTPRequest, _ encoding: EventEncoding, isChunked: Bool, _ names: [String], follows: Bool,
    isSingle: Bool = false, hasBegun: Bool = false
  ) {
    (self.request, self.encoding, self.isChunked) = (request, encoding, isChunked)
    (firstName, otherNames) = (names[0], Array(names.dropFirst()))
    (self.follows, self.isSingle, self.hasBegun) = (follows, isSingle, hasBegun)
  }

  /// In the order of the request; the subscription to the first has the request ID 1, and so on. At least one.
  var names: [String] { [firstName] + otherNames }
  var streamCount: Int { 1 + otherNames.count }

  /// The id of the last event sent of a stream that has ended; 0 for one that has not.
  func endedPosition(of request: RequestID) -> UInt64 { ended[request] ?? 0 }

  func setEndedPosition(_ id: UInt64, of request: RequestID) { ended[request] = id }

  var isEventStream: Bool { encoding.format == .serverSentEvents }

  var coding: EventFormat.BodyCoding { .init(isChunked: isChunked, isNamed: streamCount > 1) }
}

// Space in the socket is the credit of a streaming response: it demands everything while it can be written, and nothing
// while it cannot. So the kernel's buffer is kept small: what waits there counts as sent.

extension HTTPConnection {
  /// What the kernel holds of unread events.
  private static let sendBufferBytes: CInt = 256 << 10

  func beginStreaming(
    _ streams: [ServedStream], as format: EventEncoding.Format, _ request: HTTPRequest, _ query: StreamQuery,
    lastEventID: String?
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
    let response = StreamingResponse(
      request, encodings[0], isChunked: request.allowsChunks, streams.map(\.name), follows: query.follows)
    if response.isEventStream, streams.count == 1, let position = positions?[0], Self.isRead(streams[0], position) {
      return respond(.noContent, to: request) { $0.add("Cache-Control", "no-store") }
    }
    if !response.isEventStream, query.follows {
      for (index, stream) in streams.enumerated() {
        let start = Self.start(positions?[index], query.from(ofStream: index), in: stream, isUnknown: false).from
        if let failure = Self.failure(of: stream, from: start) { throw Rejection(.badGateway, failure.message) }
      }
    }
    guard !request.isHead else {
      responseHead(for: response, nil).append(to: &output)
      return endExchange(keeps: false)
    }
    begin(.streaming(response))
    for (index, stream) in streams.enumerated() where response.ending == nil {
      guard case .streaming = exchange else { return }  // answered with an error
      let start = Self.start(positions?[index], query.from(ofStream: index), in: stream, isUnknown: isUnknown)
      var options = SubscribeOptions(
        from: start.from, onLag: query.onLag, filter: query.filter, marker: query.marker)
      options.gaps = true
      subscribe(
        RequestID(UInt32(index + 1)), to: stream, isSingle: false, query.count.map { .max($0) } ?? .unlimited, options,
        as: .body(encodings[index], response.coding), follows: query.follows, missed: start.missed,
        stateFrom: start.first)
    }
    guard case .streaming = exchange else { return }
    limitSendBuffer()
    responseHead(for: response, positionBeforeFirstEvent).append(to: &output)
    response.hasBegun = true
    if response.isEventStream {
      write(ServerSentEvents.retry(milliseconds: 2000), of: response)
      sentAt = worker.loop.now
      setClock(after: times.silence)
    }
    for subscription in subscriptions where subscription.machine.demand == .none { finish(subscription, response) }
  }

  private static func encodings(
    of streams: [ServedStream], as format: EventEncoding.Format, _ query: StreamQuery
  ) throws(Rejection) -> [EventEncoding] {
    var encodings: [EventEncoding] = []
    for stream in streams {
      let type = stream.configuration.type
      guard let encoding = EventEncoding(format, EventEncoding.Content(ofType: type), hasEnvelope: query.ids) else {
        throw Rejection(
          .notAcceptable,
          "events of \"\(stream.name)\" are \(type)"
            + (format == .raw ? ": ids=1 does not go with as=raw" : query.ids ? "" : ": add ids=1"))
      }
      encodings.append(encoding)
    }
    return encodings
  }

  /// The id before the first event of the response; nil: the state begins with the event that it has.
  private var positionBeforeFirstEvent: UInt64? {
    guard let subscription = subscriptions[RequestID(1)], subscription.cursor.position > 0 else { return nil }
    return subscription.cursor.position - 1
  }

  private func responseHead(for response: StreamingResponse, _ position: UInt64?) -> ResponseHead {
    var head = responseHead(.ok, to: response.request, keeps: false)
    head.addFields(ofEventsAs: response.encoding.format.mediaType)
    if response.isChunked { head.add("Transfer-Encoding", "chunked") }
    if response.streamCount == 1, let position { head.add("Last-Event-ID", String(position)) }
    return head
  }

  /// The ids in a position: one for each stream of the response. Some libraries add theirs to those that they have sent
  /// before: the last ones count.
  /// - Returns: nil for anything else, such as an id of another server.
  private static func positions(_ text: String, count: Int) -> [UInt64]? {
    let parts = text.split(separator: ",", omittingEmptySubsequences: false)
    let ids = parts.suffix(count).compactMap { UInt64($0.drop { $0 == " " }) }
    return ids.count == count && parts.count % count == 0 ? ids : nil
  }

  /// Whether a client that has this event has all that there will ever be.
  private static func isRead(_ stream: ServedStream, _ position: UInt64) -> Bool {
    stream.log.read { storage, completion in completion == .finished && position &+ 1 >= storage.endPosition }
  }

  /// Why a stream has failed that has nothing to send from there on: the response would be an end without a reason.
  private static func failure(of stream: ServedStream, from start: SubscribeOptions.Start) -> StreamFailure? {
    stream.log.read { storage, completion in
      guard case .failure(let failure) = completion else { return nil }
      let position = try? start.position(in: storage, replay: stream.configuration.replay)
      return position == storage.endPosition ? failure : nil
    }
  }

  /// Where a response begins: after an event that is still to come, now, as far as that is a loss that can be reported.
  /// - Parameter isUnknown: the client has read events of which it is not known which ones.
  private static func start(
    _ position: UInt64?, _ wanted: SubscribeOptions.Start?, in stream: ServedStream, isUnknown: Bool
  ) -> (from: SubscribeOptions.Start, missed: Gap?, first: UInt64) {
    if isUnknown { return (wanted ?? .replay, .unknown, 0) }
    // No event has the id 0: what is not held before the first event is no loss of a client that begins there.
    guard let position, position > 0 || wanted != .state else {
      return (wanted ?? .replay, wanted == .after(id: 0) ? Gap.none : nil, 0)
    }
    return stream.log.read { storage, _ in
      let isKnown = position < storage.endPosition
      let isNextHeld =
        isKnown && position + 1 >= storage.firstPosition && storage.skip(position + 1) == position + 1
      guard wanted == .state, !isNextHeld else {
        return isKnown ? (.after(id: position), nil, 0) : (.new, .unknown, 0)
      }
      // The client has read the state up to there, or also later events. With all tombstones since then, it has every
      // key's newest event once it has read the rest of the state.
      let isContinued = isKnown && storage.state?.hasTombstones(from: position + 1) == true
      return isContinued ? (.state, nil, position + 1) : (.state, .unknown, 0)
    }
  }

  /// One event of a known size, from the log or from the state.
  func sendEvent(_ id: UInt64, of stream: ServedStream, _ request: HTTPRequest, fromState: Bool = false) {
    guard let raw = EventEncoding(.raw, .binary, hasEnvelope: false) else { return }
    let response = StreamingResponse(
      request, raw, isChunked: false, [stream.name], follows: true, isSingle: true, hasBegun: true)
    begin(.streaming(response))
    watchReading()
    let start: SubscribeOptions.Start = fromState ? .state : id > 0 ? .after(id: id - 1) : .replay
    limitSendBuffer()
    subscribe(
      RequestID(1), to: stream, isSingle: true, .max(1), SubscribeOptions(from: start, onLag: .fail),
      as: .body(raw, response.coding), stateFrom: id)
    // Another thread may have evicted the event: the size in the head would be that of another one.
    if subscriptions[RequestID(1)].map({ $0.cursor.position != id }) == true { cutOff(id) }
  }

  /// Ends a response with an event that is not there any more.
  func cutOff(_ id: UInt64) {
    guard case .streaming(let response) = exchange, let subscription = subscriptions[RequestID(1)] else { return }
    response.ending = ("event \(id) was evicted", false)
    remove(subscription)
  }

  func limitSendBuffer() {
    var size = Self.sendBufferBytes / 2  // the kernel doubles it
    unsafe setsockopt(socket.raw, SOL_SOCKET, SO_SNDBUF, &size, socklen_t(MemoryLayout<CInt>.size))
  }

  /// Adds a part of the body that is no event.
  private func write(_ text: String, of response: StreamingResponse) {
    ByteWriter.append(to: &output) { writer in
      if response.isChunked { Chunk.writeHeader(byteCount: text.utf8.count, to: &writer) }
      writer.append(text)
      if response.isChunked { Chunk.writeEnd(to: &writer) }
    }
  }

  // MARK: While it goes out

  func makeLabel(of subscription: StreamSubscription) -> EventLabel? {
    guard case .streaming(let response) = exchange else { return nil }
    let index = Int(subscription.request.rawValue) - 1
    let ids = response.names.indices.map { index -> String in
      let request = RequestID(UInt32(index + 1))
      return String(subscriptions[request]?.lastPosition ?? response.ended[request] ?? 0)
    }
    return EventLabel(
      name: response.names[index], before: ids[..<index].map { $0 + "," }.joined(),
      after: ids[(index + 1)...].map { "," + $0 }.joined())
  }

  func continueAfter(_ subscription: StreamSubscription, isAll: Bool) {
    sentAt = worker.loop.now
    guard case .streaming(let response) = exchange, subscription.state != .ended, !response.isSingle else { return }
    if subscription.machine.demand == .none || isAll && !response.follows { finish(subscription, response) }
  }

  /// The response has all events of the stream that were asked for.
  private func finish(_ subscription: StreamSubscription, _ response: StreamingResponse) {
    response.ended[subscription.request] = subscription.lastPosition
    if subscriptions.isOne { response.ending = ("complete", true) }
    remove(subscription)
  }

  /// Shows that an idle event stream is alive.
  func keepAlive(_ response: StreamingResponse) {
    guard response.isEventStream else { return }
    let silence = Duration.nanoseconds(Int64(worker.loop.now - min(worker.loop.now, sentAt)))
    guard silence >= times.silence else { return setClock(after: times.silence - silence) }
    if !hasUnsent, !isWithinEvent() {
      write(ServerSentEvents.comment, of: response)
      sentAt = worker.loop.now
    }
    setClock(after: times.silence)
  }

  // MARK: The end

  func completeStream(_ request: RequestID) {
    guard case .streaming(let response) = exchange, let subscription = subscriptions[request] else {
      return fail(request, Rejection(.noContent, ""))
    }
    response.ended[request] = subscription.lastPosition
    if subscriptions.isOne { response.ending = ("finished", true) }
  }

  func failStream(_ request: RequestID, _ failure: RequestFailure) {
    guard case .streaming(let response) = exchange, response.hasBegun else {
      return fail(request, Rejection(of: failure))
    }
    if isWithinEvent() { response.isCut = true }
    switch failure {
    case .unknownStream, .forbidden, .rejected, .canceled: response.ending = (failure.sentence, true)
    case .invalid, .lagged, .failed: response.ending = (failure.sentence, false)
    }
    // A subscription that could not begin, or be restored, is not removed after this.
    if subscriptions[request] == nil { endIfDue() }
  }

  /// The request ends with an error before its response has begun.
  private func fail(_ id: RequestID, _ rejection: Rejection) {
    let request: HTTPRequest
    switch exchange {
    case .waiting(let response): request = response.request
    case .streaming(let response): request = response.request
    case .rendering, .publishing, .head, .finishing, .draining: return
    }
    begin(.head)
    if subscriptions[id] == nil { endSubscriptions() }  // otherwise the caller removes the only one
    guard rejection.status != .noContent else { return respond(.noContent, to: request) }
    respond(rejection, to: request)
  }

  func endIfDue() {
    guard case .streaming(let response) = exchange else { return }
    if response.isSingle {
      guard subscriptions.isEmpty else { return }
      guard !response.isLast else { return finishClosing() }
      // A part of the event is missing: only the connection's end can say so.
      endExchange(keeps: response.ending == nil && response.request.keepsConnection)
    } else if let ending = response.ending {
      end(response, ending.reason, isClean: ending.isClean)
    }
  }

  /// Lets the client read the rest of a single event before the connection ends.
  func finish(_ response: StreamingResponse) {
    response.isLast = true
    setSecondClock(after: times.drainTime) { [self] in close() }
  }

  /// Ends a streaming response. One that ends within an event has nothing after that part: a reason would be taken for a
  /// line of the event, and an event stream's client ignores an event that is not complete.
  ///
  /// - Parameters:
  ///   - isClean: the client has all that it may have. Otherwise the body stays without an end, so that a client sees that
  ///     it is not complete; an event stream gives the reason instead.
  ///   - milliseconds: after that long the client is to connect again.
  func end(_ response: StreamingResponse, _ reason: String, isClean: Bool, retry milliseconds: Int? = nil) {
    if isWithinEvent() { response.isCut = true }
    endSubscriptions()
    guard !response.isCut else { return endExchange(keeps: false) }
    if response.isEventStream {
      if let milliseconds { write(ServerSentEvents.retry(milliseconds: milliseconds), of: response) }
      write(ServerSentEvents.end(reason: reason), of: response)
    }
    if response.isChunked, isClean || response.isEventStream { output += Chunk.last.utf8 }
    endExchange(keeps: false)
  }
}
