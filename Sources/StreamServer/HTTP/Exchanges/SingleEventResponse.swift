import HTTP
import StreamProtocol
import StreamRuntime

/// A response with one event of a known size, from the log or from the state. The event is too large to be copied. The
/// connection takes the next request after it.
final class SingleEventResponse: Exchange {
  private let name: String
  /// Whether a part of the event is missing. Only the connection's end can show that to the client.
  private var isCutOff = false
  /// Whether the connection ends with the response, at the latest after `drainTime`.
  private var isLast = false

  init(_ request: HTTPRequest, _ name: String, on http: HTTPSpeaker) {
    self.name = name
    super.init(request, on: http)
  }

  private static let encoding: EventFormat.Encoding = .body(
    EventEncoding(.raw, .binary, hasEnvelope: false)!, .init(isChunked: false, isNamed: false))

  /// - Parameter id: the id of the event, whose size the head has.
  func begin(on stream: ServedStream, from start: SubscribeOptions.Start, id: UInt64) {
    resume()
    connection.subscribe(
      RequestID(1), to: stream, isSingle: true, .max(1), SubscribeOptions(from: start, onLag: .fail),
      as: Self.encoding, stateFrom: id)
    // Another thread may have evicted the event: the size in the head would be that of another one.
    if connection.subscriptions[RequestID(1)].map({ $0.cursor.position != id }) == true { cutOff() }
  }

  /// Ends the response without the event, which does not exist any more.
  func cutOff() {
    guard isInProgress, let subscription = connection.subscriptions[RequestID(1)] else { return }
    isCutOff = true
    connection.remove(subscription)
  }

  override func sendCompletion(_ id: RequestID) { isCutOff = true }

  override func sendFailure(_ id: RequestID, _ failure: RequestFailure) {
    isCutOff = true
    // A subscription that could not begin, or be restored, is not removed after this.
    if connection.subscriptions[id] == nil { didRemove() }
  }

  override func didRemove() {
    guard connection.subscriptions.isEmpty else { return }
    guard !isLast else { return connection.finishClosing() }
    http.endExchange(keeps: !isCutOff && request.keepsConnection)
  }

  override func timeIsOver() { http.checkReading() }

  /// Lets the client read the rest of the event before the connection ends.
  override func stop(_ failure: RequestFailure) {
    isLast = true
    connection.setSecondClock(after: http.times.drainTime) { [connection] in connection.close() }
  }

  // MARK: From one process to the next

  override func save(to saved: inout SavedHTTP) {
    saved.phase = .streaming
    saved.names = [.init(name.utf8)]
    saved.encoding = EventFormat(Self.encoding, ids: true, completes: false).savedEncoding
    saved.flags = SavedHTTP.followsFlag | SavedHTTP.singleFlag
  }

  static func restore(
    _ saved: SavedHTTP, _ request: HTTPRequest, _ subscriptions: [SavedConnection.Subscription],
    on http: HTTPSpeaker
  ) {
    let name = saved.names.first.map { String(decoding: $0.bytes, as: UTF8.self) } ?? ""
    let response = SingleEventResponse(request, name, on: http)
    http.connection.speak(response)
    for saved in subscriptions where response.isInProgress { http.connection.restore(saved) }
    if http.connection.subscriptions.isEmpty, response.isInProgress { http.endExchange(keeps: false) }
  }

  override func resume() {
    http.limitSendBuffer()
    http.watchReading()
  }
}
