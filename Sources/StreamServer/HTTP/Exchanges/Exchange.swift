import CLinux
import Glibc
import HTTP
import StreamProtocol

/// The speaker of an HTTP connection for one request, from its head until the response is complete.
///
/// The `HTTPSpeaker` reads heads and keeps the order of requests; the exchange does everything else for its request. After
/// it, the `HTTPSpeaker` is the connection's speaker again, or a `LastResponse`.
class Exchange: Speaker {
  /// The speaker between the requests, with the unsent part of responses.
  final let http: HTTPSpeaker
  final let request: HTTPRequest

  init(_ request: HTTPRequest, on http: HTTPSpeaker) {
    (self.request, self.http) = (request, http)
    super.init(http.connection)
  }

  /// Whether the connection still has this exchange.
  final var isInProgress: Bool { connection.speaker === self }

  // MARK: Overridden

  /// Takes input after the request's head. Input of a later request waits.
  func read(_ bytes: Span<UInt8>, _ offset: inout Int) { http.stash(bytes, &offset) }

  /// Saves the exchange. It may end here instead.
  func save(to saved: inout SavedHTTP) {}

  // MARK: For the connection

  override var isEstablished: Bool { true }
  override var protocolName: String { http.protocolName }
  override var requestCount: Int { 1 }
  override var heldByteCount: Int { http.heldByteCount }
  override var holdsInput: Bool { true }
  override var hasOutbound: Bool { true }
  override var answerByteCount: Int { http.answerByteCount }
  override func takeAnswers() -> [UInt8] { http.takeAnswers() }

  override func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    unsafe http.process(bytes, until: deadline)
  }

  override func didSend(_ subscription: StreamSubscription, byteCount: Int, isAll: Bool) {
    if byteCount > 0 { http.sentAt = worker.loop.now }
  }

  override func leave() { connection.speak(http) }

  override func save(to saved: inout SavedConnection) {
    var record = SavedHTTP()
    save(to: &record)
    if isInProgress {
      record.save(request)
      http.save(record, to: &saved)
    } else {  // it was answered instead
      connection.speaker?.save(to: &saved)
    }
  }

  /// Answers with an error, or that there is no event (nil), instead of a response that has not begun.
  /// - Parameter id: the id of the subscription that the caller removes, if there is one.
  final func answer(_ rejection: Rejection?, insteadOf id: RequestID) {
    if connection.subscriptions[id] == nil { connection.endSubscriptions() }  // otherwise it is the only one
    if let rejection {
      http.respond(rejection, to: request)
    } else {
      http.respond(.noContent, to: request)
    }
  }
}

/// An exchange whose response has not begun.
class PendingResponse: Exchange {
  /// Waits for an event of a stream, or for its end. The subscription is the only one.
  final func awaitEvent(of stream: ServedStream, from start: SubscribeOptions.Start) {
    connection.subscribe(
      RequestID(1), to: stream, isSingle: true, .max(1), SubscribeOptions(from: start, onLag: .latest), as: .notice)
  }

  override func refuse(_ sentence: String) {
    connection.endSubscriptions()
    http.reject(Rejection(of: .init(.tooMuchInput, sentence)), of: [])
  }

  override func stop(_ failure: RequestFailure) {
    http.respond(Rejection(of: failure), to: request.keeping(false))
    connection.finishClosing()
  }
}

extension HTTPRequest {
  /// The same request; without `keeps`, the connection ends after it.
  func keeping(_ keeps: Bool) -> HTTPRequest {
    HTTPRequest(
      isHead: isHead, keepsConnection: keepsConnection && keeps, allowsChunks: allowsChunks,
      allowedOrigin: allowedOrigin)
  }
}

/// The connection's last response is complete. Once it is written, the connection's sending end is closed, and further
/// input is discarded. An immediate close would discard the bytes that the client has not read (RFC 9112, section 9.6), and
/// many clients read nothing before they have sent the whole body.
final class LastResponse: Exchange {
  /// Whether everything is written, and the sending end is closed.
  private var isDraining = false
  /// Whether input has come since the clock was set.
  private var hasRead = false
  /// When the connection is closed at the latest, on the loop's clock.
  private var end: UInt64 = 0

  init(on http: HTTPSpeaker) {
    super.init(
      HTTPRequest(isHead: false, keepsConnection: false, allowsChunks: false, allowedOrigin: nil), on: http)
  }

  override var requestCount: Int { 0 }
  override var holdsInput: Bool { !isDraining }
  override var hasOutbound: Bool { !isDraining }

  override func read(_ bytes: Span<UInt8>, _ offset: inout Int) {
    hasRead = hasRead || offset < bytes.count
    offset = bytes.count
  }

  override func didWriteAll() {
    guard !isDraining else { return }
    guard !connection.hasLostWriter else { return connection.close() }
    shutdown(connection.socket.raw, CInt(SHUT_WR))
    (isDraining, hasRead) = (true, false)
    end = worker.loop.now + UInt64(http.times.lingerTime.wholeNanoseconds)
    connection.setClock(after: http.times.drainTime)
    connection.resume(with: [])
  }

  override func timeIsOver() {
    guard isDraining else { return http.checkReading() }
    guard hasRead, worker.loop.now < end else { return connection.close() }
    hasRead = false
    connection.setClock(after: http.times.drainTime)
  }

  override func save(to saved: inout SavedHTTP) { saved.phase = .finishing }

  override func resume() {
    http.watchReading()
    if !connection.hasUnsent { didWriteAll() }
  }
}
