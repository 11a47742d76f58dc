import CLinux
import Glibc
import HTTP

/// The work of an HTTP connection for one request, until the response is complete.
///
/// The connection reads heads, keeps the order of requests, and calls its exchange; the exchange does everything else
/// for its request. They refer to each other until the connection has another exchange or none
/// (`HTTPConnection.begin`). Confined to the connection's loop.
class Exchange {
  let connection: HTTPConnection
  let request: HTTPRequest

  init(_ request: HTTPRequest, on connection: HTTPConnection) {
    (self.request, self.connection) = (request, connection)
  }

  var worker: Worker { connection.worker }
  /// Whether the connection still has this exchange.
  var isInProgress: Bool { connection.exchange === self }

  // MARK: Overridden

  /// The number of live requests.
  var requestCount: Int { 1 }
  /// Bytes of the request that wait here.
  var heldByteCount: Int { 0 }
  /// Whether input is left in the socket.
  var holdsInput: Bool { true }
  /// The stream that it publishes to.
  var publishedStream: ServedStream? { nil }
  /// Whether the connection is needed though the client sends no more.
  var hasOutbound: Bool { true }

  /// Takes input after the request's head. Input of a later request waits.
  func read(_ bytes: Span<UInt8>, _ offset: inout Int) { connection.stash(bytes, &offset) }

  /// The client sends nothing more.
  func inputEnded() {}

  /// All unsent bytes are written.
  func didWriteAll() {}

  /// Does the work that waits for the turn of the client's user.
  /// - Returns: false if there was nothing.
  func takeTurn() -> Bool { false }

  /// The connection's timer has fired.
  func timeIsOver() {}

  /// A limit is exceeded: the connection ends, with the sentence if that can still be sent.
  func refuse(_ sentence: String) { connection.finishClosing() }

  /// The server stops: the response ends, then the connection.
  func stop(_ failure: RequestFailure) { connection.finishClosing() }

  /// The connection has ended.
  func leave() {}

  /// The client's access or the stream has changed.
  func reapplyWriteAccess() {}

  // MARK: Overridden by those with subscriptions

  /// A subscription to a notice has its first event.
  func answer(_ subscription: StreamSubscription) {}

  /// The label of a subscription's events in a response with several streams.
  func label(of subscription: StreamSubscription) -> EventLabel? { nil }

  /// A part of the body was sent, or there was nothing to send.
  /// - Parameter isAll: whether the log has nothing more.
  func didSend(_ subscription: StreamSubscription, isAll: Bool) {}

  /// The stream of a subscription has ended; the caller removes the subscription.
  func complete(_ id: RequestID) {}

  /// A subscription ends with an error, or cannot begin; the caller removes it.
  func fail(_ id: RequestID, _ failure: RequestFailure) {}

  /// A subscription is removed.
  func didRemove() {}

  // MARK: From one process to the next

  /// Saves the exchange. It may end here instead.
  func save(to saved: inout SavedHTTP) {}

  /// Begins to read and write in the next process.
  func resume() {}

  /// Answers with an error, or that there is no event (nil), instead of a response that has not begun.
  /// - Parameter id: the id of the subscription that the caller removes, if there is one.
  final func answer(_ rejection: Rejection?, insteadOf id: RequestID) {
    if connection.subscriptions[id] == nil { connection.endSubscriptions() }  // otherwise it is the only one
    if let rejection {
      connection.respond(rejection, to: request)
    } else {
      connection.respond(.noContent, to: request)
    }
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

  init(on connection: HTTPConnection) {
    super.init(
      HTTPRequest(isHead: false, keepsConnection: false, allowsChunks: false, allowedOrigin: nil), on: connection)
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
    end = worker.loop.now + UInt64(connection.times.lingerTime.wholeNanoseconds)
    connection.setClock(after: connection.times.drainTime)
    connection.resume(with: [])
  }

  override func timeIsOver() {
    guard isDraining else { return connection.checkReading() }
    guard hasRead, worker.loop.now < end else { return connection.close() }
    hasRead = false
    connection.setClock(after: connection.times.drainTime)
  }

  override func save(to saved: inout SavedHTTP) { saved.state = .finishing }

  override func resume() {
    connection.watchReading()
    if !connection.hasUnsent { didWriteAll() }
  }
}
