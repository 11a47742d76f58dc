import HTTP
import RSocket
import Reactive
import StreamProtocol
import StreamRuntime

/// A response whose body is the events of one stream or of several. It is the connection's last response.
///
/// Space in the socket is its credit: it demands everything while it can be written, and nothing while it cannot.
class StreamingResponse: Exchange {
  // The order saves memory: there may be very many responses.
  final let encoding: EventEncoding
  private let isChunked: Bool
  /// False: the response ends once it has sent all events that existed when it began.
  private let follows: Bool
  /// Whether the head is written: a failure cannot change the status any more.
  private var hasBegun = false
  /// Whether a part of an event was sent whose rest will not be.
  private var isCut = false
  private let firstName: String
  private let otherNames: [String]  // empty as a rule: an idle client costs no array
  /// Whether the only name is a pattern.
  private let isPattern: Bool
  /// Positions of subscriptions that have ended: the id of the last event sent, by their request IDs.
  private var ended: [RequestID: UInt64] = [:]
  /// If the request has made the stream.
  var made: MadeAnswer?
  /// With what the response ends, once the subscription that caused it is removed.
  private var ending: (reason: Reason, isClean: Bool)?

  /// Why a response ends.
  struct Reason {
    /// One word or sentence.
    let text: String
    /// nil: the response is complete.
    var failure: FailureReason?

    static let complete = Self(text: "complete")
    static let finished = Self(text: "finished")
  }

  /// - Parameter names: at least one.
  init(
    _ request: HTTPRequest, _ encoding: EventEncoding, isChunked: Bool, _ names: [String], follows: Bool,
    isPattern: Bool = false, on http: HTTPSpeaker
  ) {
    self.isPattern = isPattern
    (self.encoding, self.isChunked, self.follows) = (encoding, isChunked, follows)
    (firstName, otherNames) = (names[0], Array(names.dropFirst()))
    super.init(request, on: http)
  }

  /// The names of the streams, in the order of the request. The subscription to the first has the request ID 1, and so
  /// on.
  private var names: [String] { [firstName] + otherNames }
  override var requestCount: Int { 1 + otherNames.count }
  private var isEventStream: Bool { encoding.format == .serverSentEvents }
  /// Whether it shows that the connection is in use while there are no events.
  private var keepsAlive: Bool { isEventStream || isWebSocket }
  private var coding: EventFormat.BodyCoding {
    .init(isChunked: isChunked, isNamed: !otherNames.isEmpty || isPattern)
  }

  /// The start of a subscription of the response.
  struct Start {
    var from: SubscribeOptions.Start
    /// Events before the first one that the client has missed; nil: as `from` shows.
    var missed: Gap?
    /// The id from which a state is read.
    var first: UInt64 = 0
  }

  /// Subscribes to the next stream.
  /// - Returns: false if the subscription is refused. The refusal then is the response.
  func subscribe(
    to stream: ServedStream, _ index: Int, as encoding: EventEncoding, from start: Start, _ query: StreamQuery
  ) -> Bool {
    var options = SubscribeOptions(from: start.from, onLag: query.onLag, filter: query.filter, marker: query.marker)
    options.gaps = true
    connection.subscribe(
      RequestID(UInt32(index + 1)), to: stream, isSingle: false, query.count.map { .max($0) } ?? .unlimited, options,
      as: .body(encoding, coding), follows: follows, missed: start.missed, stateFrom: start.first)
    return isInProgress
  }

  /// Subscribes to an answer, of which nothing may be missing.
  /// - Returns: as above.
  func relay(_ stream: ServedStream) -> Bool {
    connection.subscribe(
      RequestID(1), to: stream, isSingle: false, .unlimited, SubscribeOptions(from: .replay, onLag: .fail),
      as: .body(encoding, coding))
    return isInProgress
  }

  /// Begins to read a pattern.
  /// - Parameter missed: as in `Start`.
  func read(
    _ pattern: NamePattern, _ options: SubscribeOptions, missed: Gap?
  ) throws(Connection.Refusal) {
    try connection.read(
      PatternReader(
        pattern, RequestID(1), .unlimited, options, as: .body(encoding, coding), follows: follows, missed: missed,
        on: connection))
    begin()
  }

  /// The reader of the pattern.
  private var reader: PatternReader? { connection.readers[RequestID(1)] }

  /// Writes the head: all subscriptions have begun.
  func begin() {
    http.limitSendBuffer()
    writeOpening()
    hasBegun = true
    if keepsAlive {
      http.sentAt = worker.loop.now
      connection.setClock(after: http.times.silence)
    }
    for subscription in connection.subscriptions where subscription.machine.demand == .none { finish(subscription) }
  }

  /// Writes what precedes the first event.
  func writeOpening() {
    head(positionBeforeFirstEvent).append(to: &http.output)
    if isEventStream, !encoding.isRelayed { write(ServerSentEvents.retry(milliseconds: 2000)) }
  }

  /// The id before the first event of the response; nil: there is none, as at the beginning of a state.
  private var positionBeforeFirstEvent: UInt64? {
    guard let subscription = connection.subscriptions[RequestID(1)], subscription.cursor.position > 0 else {
      return nil
    }
    return subscription.cursor.position - 1
  }

  func head(_ position: UInt64?) -> ResponseHead {
    var head = http.responseHead(made?.isNew == true && !encoding.isRelayed ? .created : .ok, to: request, keeps: false)
    if made != nil { head.add("Location", "/streams/" + firstName) }
    head.addFields(ofEventsAs: encoding.format.mediaType)
    if isChunked { head.add("Transfer-Encoding", "chunked") }
    if connection.needsToken, names.contains(where: { $0.hasPrefix("$") }) { head.addChallenge() }
    if otherNames.isEmpty, let position { head.add("Last-Event-ID", String(position)) }
    return head
  }

  /// Adds a part of the body that is not an event.
  private func write(_ text: String) { Self.write(text, isChunked: isChunked, to: &http.output) }

  private static func write(_ text: String, isChunked: Bool, to output: inout [UInt8]) {
    ByteWriter.append(to: &output) { writer in
      if isChunked { Chunk.writeHeader(byteCount: text.utf8.count, to: &writer) }
      writer.append(text)
      if isChunked { Chunk.writeEnd(to: &writer) }
    }
  }

  // MARK: Sending

  /// Drops input: no request follows the connection's last one.
  override func read(_ bytes: Span<UInt8>, _ offset: inout Int) { offset = bytes.count }

  override func label(of subscription: StreamSubscription) -> EventLabel? {
    let index = Int(subscription.request.rawValue) - 1
    let ids = names.indices.map { index -> String in
      let request = RequestID(UInt32(index + 1))
      return String(connection.subscriptions[request]?.lastPosition ?? ended[request] ?? 0)
    }
    return EventLabel(
      name: names[index], before: ids[..<index].map { $0 + "," }.joined(),
      after: ids[(index + 1)...].map { "," + $0 }.joined())
  }

  override func didSend(_ subscription: StreamSubscription, byteCount: Int, isAll: Bool) {
    super.didSend(subscription, byteCount: byteCount, isAll: isAll)
    guard subscription.phase != .ended else { return }
    if subscription.machine.demand == .none || isAll && !follows { finish(subscription) }
  }

  /// The response has all events of the stream that were asked for.
  private func finish(_ subscription: StreamSubscription) {
    guard !isPattern else { return connection.remove(subscription) }
    ended[subscription.request] = subscription.lastPosition
    if connection.subscriptions.isOne { ending = (.complete, true) }
    connection.remove(subscription)
  }

  /// Shows that an idle connection is in use, unless events wait for space in the socket or for their turn.
  override func timeIsOver() {
    guard keepsAlive else { return }
    let (now, sentAt, longest) = (worker.loop.now, http.sentAt, http.times.silence)
    let silence = Duration.nanoseconds(Int64(now - min(now, sentAt)))
    guard silence >= longest else { return connection.setClock(after: longest - silence) }
    let isIdle = !connection.hasUnsent && !connection.isBlocked && !connection.isWithinEvent()
    if isIdle, connection.subscriptions.allSatisfy(\.mayBeWithoutEvents) {
      writeSign()
      http.sentAt = now
    }
    connection.setClock(after: longest)
  }

  /// Writes what shows that the connection is in use.
  func writeSign() {
    reader.map { $0.clock.measure($0) }
    let position = reader?.clock.position ?? 0
    write((position > 0 ? "id: \(position)\n" : "") + ServerSentEvents.comment)
  }

  // MARK: The end

  override func sendCompletion(_ id: RequestID) {
    guard let subscription = connection.subscriptions[id] else { return answer(nil, insteadOf: id) }
    ended[id] = subscription.lastPosition
    if connection.subscriptions.isOne { ending = (.finished, true) }
  }

  override func sendFailure(_ id: RequestID, _ failure: RequestFailure) {
    guard hasBegun else { return answer(Rejection(of: failure), insteadOf: id) }
    if connection.isWithinEvent() { isCut = true }
    // The client has all that it may have, and makes the request again.
    let isClean = [ErrorCode.rejected, .canceled].contains(ErrorCode(failure.reason).base)
    ending = (.init(failure), isClean)
    // A subscription that could not begin, or be restored, is not removed after this.
    if connection.subscriptions[id] == nil { didRemove() }
  }

  override func didRemove() {
    if let ending { return end(ending.reason, isClean: ending.isClean) }
    if let reader { didJoin(reader) }
  }

  override func append(answer: [UInt8]) { http.output += answer }

  override func didJoin(_ reader: PatternReader) {
    guard !follows, reader.hasAll, reader.members.isEmpty, isInProgress else { return }
    if reader.options.marker, reader.marker.sentAt == nil { reader.sendMarker() }
    end(.complete, isClean: true)
  }

  override func stop(_ failure: RequestFailure) {
    end(.init(failure), isClean: true, retry: Self.stopRetry)
    connection.finishClosing()
  }

  /// Ends the response.
  ///
  /// - Parameters:
  ///   - isClean: whether the client has all that it may have. Otherwise the body stays without an end, so that a
  ///     client sees that it is incomplete. An event stream gives the reason instead.
  ///   - milliseconds: the time after which the client connects again.
  final func end(_ reason: Reason, isClean: Bool, retry milliseconds: Int? = nil) {
    if connection.isWithinEvent() { isCut = true }
    connection.endSubscriptions()
    writeEnding(reason, isClean: isClean, isCut: isCut, retry: milliseconds)
    http.endExchange(keeps: false)
  }

  /// Writes what follows the last event. Within an event, nothing follows the sent part: a reason would become a line of the
  /// event. The client of an event stream ignores an incomplete event.
  func writeEnding(_ reason: Reason, isClean: Bool, isCut: Bool, retry milliseconds: Int?) {
    guard !isCut, isClean || isEventStream else { return }
    http.output += Self.ending(reason, encoding, isChunked: isChunked, retry: milliseconds)
  }

  /// The bytes that end a body after a whole event.
  static func ending(
    _ reason: Reason, _ encoding: EventEncoding, isChunked: Bool, retry milliseconds: Int?
  ) -> [UInt8] {
    var bytes: [UInt8] = []
    // A relayed response that is not complete ends without an end.
    guard !encoding.isRelayed || reason.failure == nil else { return [] }
    if encoding.format == .serverSentEvents, !encoding.isRelayed {
      if let milliseconds {
        write(ServerSentEvents.retry(milliseconds: milliseconds), isChunked: isChunked, to: &bytes)
      }
      write(ServerSentEvents.end(reason: reason.text, type: reason.failure?.type), isChunked: isChunked, to: &bytes)
    }
    if isChunked { bytes += Chunk.last.utf8 }
    return bytes
  }

  /// The time after which the client of a daemon that stops connects again, in milliseconds.
  static let stopRetry = 30_000

  // MARK: From one process to the next

  override func save(to saved: inout SavedHTTP) {
    saved.phase = .streaming
    saved.names = names.map { .init($0.utf8) }
    saved.encoding = EventFormat(.body(encoding, coding), ids: true, completes: false).savedEncoding
    saved.flags = (follows ? SavedHTTP.followsFlag : 0) | (isPattern ? SavedHTTP.patternFlag : 0)
    saved.ended = names.indices.map { index in
      ended[RequestID(UInt32(index + 1))].map { .init(String($0).utf8) } ?? .init()
    }
  }

  static func restore(
    _ saved: SavedHTTP, _ request: HTTPRequest, _ subscriptions: [SavedConnection.Subscription],
    on http: HTTPSpeaker
  ) {
    guard let format = EventFormat(savedEncoding: saved.encoding, ids: true, completes: false),
      case .body(let encoding, let coding) = format.encoding, !saved.names.isEmpty
    else { return http.connection.speak(LastResponse(on: http)) }
    let names = saved.names.map { String(decoding: $0.bytes, as: UTF8.self) }
    let (follows, isPattern) = (
      saved.flags & SavedHTTP.followsFlag != 0, saved.flags & SavedHTTP.patternFlag != 0
    )
    let response: StreamingResponse
    if encoding.format != .message {
      response = StreamingResponse(
        request, encoding, isChunked: coding.isChunked, names, follows: follows, isPattern: isPattern, on: http)
    } else if let input = EventWebSocket.input(saved.socket) {
      response = EventWebSocket(
        request, encoding, names, follows: follows, isPattern: isPattern, input, on: http)
    } else {
      return http.endDamagedWebSocket()
    }
    response.hasBegun = true
    for (index, item) in saved.ended.prefix(saved.names.count).enumerated() {
      guard let id = UInt64(String(decoding: item.bytes, as: UTF8.self)) else { continue }
      response.ended[RequestID(UInt32(index + 1))] = id
    }
    http.connection.speak(response)
    // A subscription that cannot be restored ends the response.
    response.isCut = subscriptions.contains { $0.cursor.sentBytes > 0 }
    for saved in subscriptions where response.isInProgress { http.connection.restore(saved) }
    response.isCut = false
    if subscriptions.isEmpty, !response.isPattern, response.isInProgress { response.end(.complete, isClean: true) }
  }

  override func resume() {
    http.limitSendBuffer()
    http.sentAt = worker.loop.now
    timeIsOver()
  }
}

extension StreamingResponse.Reason {
  init(_ failure: RequestFailure) { self.init(text: failure.sentence, failure: failure.reason) }
}

extension StreamSubscription {
  /// Whether the subscription may have been sent everything. Events that wait for one with a filter may not fit the
  /// filter.
  fileprivate var mayBeWithoutEvents: Bool {
    switch phase {
    case .idle, .waiting, .updating, .ended: true
    case .ready, .serving, .standby, .blocked: extras?.verdicts != nil
    }
  }
}
