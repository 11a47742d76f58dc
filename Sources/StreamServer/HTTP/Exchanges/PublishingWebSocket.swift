import Events
import HTTP
import RSocket
import StreamProtocol
import StreamRuntime

/// A WebSocket each of whose messages is a value for a stream. The server says how many values the stream has, once for those
/// that were read together, and which ones it refuses.
///
/// The socket is read while few of its values wait, and while its client reads the answers.
final class PublishingWebSocket: PublishingExchange, WebSocketSpeaker {
  var webSocket: WebSocketInput
  /// The number of messages.
  private var receivedCount: UInt64 = 0
  /// The number of values that the source was given, and of those that the stream had in the former process.
  private var (givenCount, storedBefore): (UInt64, UInt64) = (0, 0)
  /// The number of values in the last confirmation.
  private var confirmedCount: UInt64 = 0
  /// The value that is examined in slices. No other input is processed before it.
  private var examined: LargeValue?

  /// While more than this is unsent, no message is read: one of a few bytes may have an answer of many.
  private static let outputLimit = 64 << 10

  private init(_ request: HTTPRequest, _ publication: Publication, _ input: WebSocketInput, on http: HTTPSpeaker) {
    webSocket = input
    super.init(request, publication, on: http)
    http.becomeWebSocket()
  }

  /// Joins the publishers of a stream, and becomes the connection's exchange.
  /// - Parameter unsettled: of one that began in another process, the values that wait in the stream.
  static func begin(
    _ request: HTTPRequest, to stream: ServedStream, _ source: PublishSource, _ input: WebSocketInput? = nil,
    unsettled: UnsettledValues = .init(), on http: HTTPSpeaker
  ) throws(PublishingObstacle) -> PublishingWebSocket {
    let worker = http.worker
    guard let publication = Publication.begin(to: stream, source, unsettled: unsettled, on: worker.loop) else {
      throw .noRoom
    }
    let input = input ?? WebSocketInput(maximumMessageByteCount: worker.limits.ofConnection.maximumFrameBytes, .any)
    let publishing = PublishingWebSocket(request, publication, input, on: http)
    http.connection.speak(publishing)
    return publishing
  }

  override var isWebSocket: Bool { true }
  override var protocolName: String { "websocket" }
  override var hasOutbound: Bool { false }

  override var heldByteCount: Int { super.heldByteCount + webSocket.heldByteCount + (examined?.byteCount ?? 0) }

  override var holdsInput: Bool { publication.isAhead || isFull }
  var isBusy: Bool { examined != nil || isFull }
  private var isFull: Bool { connection.unsentByteCount > Self.outputLimit }

  // MARK: Input

  override func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    let count = unsafe processFrames(bytes, until: deadline)
    if examined != nil, isInProgress { connection.waitForTurn() }
    return count
  }

  override func takeTurn() -> Bool {
    guard examined == nil else {
      examine(until: EventLoop.monotonicNow() + Slices.connection)
      connection.settle()
      _ = connection.flush()
      if isInProgress, connection.phase == .open { connection.waitForTurn() }
      return true
    }
    return isFull && !connection.hasLostReader
  }

  override func finishTurns() { if examined != nil { examine(until: .max) } }

  func receiveMessage(until deadline: UInt64) {
    let (message, isText) = (webSocket.takeMessage(), webSocket.isText)
    receivedCount += 1
    guard !isText || message.span.validUTF8Count == message.count else {
      connection.drop("a text message is not valid UTF-8")
      return close(with: WebSocketFrame.close(1007, "message \(receivedCount) is not valid UTF-8"))
    }
    if let sentence = stream.emptiness(of: message.span) { return refuseValue(.init(.invalidRequest, sentence)) }
    examined = LargeValue(
      message, StreamID(1), to: stream, publication.source, isUnconfirmed: false, isComplete: false)
    guard examined == nil else { return }
    if let failure = stream.refusal(of: message.span) { return refuseValue(failure) }
    publication.arrived.append(message)
  }

  private func examine(until deadline: UInt64) {
    guard examined?.examine(until: deadline) == true, var value = examined else { return }
    examined = nil
    if value.isRefused { refuseValue(stream.refuseMalformed()) } else { publication.arrived += value.takeBatch() }
    finishProcessing()
  }

  private func refuseValue(_ failure: RequestFailure) {
    send { writer in
      writer.append("{\"error\":")
      writer.append(quoted: failure.sentence)
      writer.append(",\"reason\":")
      writer.append(quoted: failure.reason.name)
      writer.append(",\"value\":\(receivedCount)}")
    }
  }

  func append(control frame: [UInt8]) { http.output += frame }

  private func send(_ write: (inout ByteWriter) -> Void) {
    ByteWriter.append(to: &http.output) { WebSocketFrame.writeText(to: &$0, write) }
    http.sentAt = worker.loop.now
  }

  /// The values of one read are given to the stream together.
  override func finishProcessing() {
    guard isInProgress else { return }
    passOn()
    answer()
  }

  private func passOn() {
    givenCount += UInt64(publication.arrived.count)
    _ = publication.passOn(isComplete: false)
  }

  // MARK: Answers

  /// Confirms values, unless the client reads nothing: then the next confirmation has their number, too.
  override func answer() {
    if let obstacle = publication.obstacle {
      return end(connection.failure(obstacle, of: stream))
    }
    if !connection.isBlocked { confirm() }
    connection.watch()
  }

  private func confirm() {
    let count = storedBefore + (publication.status?.storedCount ?? 0)
    guard count > confirmedCount else { return }
    confirmedCount = count
    send { $0.append("{\"accepted\":\(count)}") }
  }

  override func didWriteAll() {
    confirm()
    if http.answerByteCount > 0 { _ = connection.flush() }
    connection.resume(with: [])
  }

  override func timeIsOver() {
    let silence = Duration.nanoseconds(Int64(worker.loop.now - min(worker.loop.now, http.sentAt)))
    guard silence >= http.times.silence else { return connection.setClock(after: http.times.silence - silence) }
    if !connection.hasUnsent, !connection.isBlocked {
      http.output += WebSocketFrame.ping()
      http.sentAt = worker.loop.now
    }
    connection.setClock(after: http.times.silence)
  }

  // MARK: The end

  func close(with frame: [UInt8]) {
    passOn()
    confirm()
    publication.leave()
    http.output += frame
    http.endExchange(keeps: false)
  }

  /// Ends it. The last confirmation has the number of all values that are in the stream.
  private func end(_ failure: RequestFailure) {
    _ = publication.source.withdraw(publication.queue)
    _ = publication.refresh()
    confirm()
    publication.leave()
    http.output += WebSocketFrame.close(failure.reason.closeCode, failure.sentence)
    http.endExchange(keeps: false)
  }

  override func refuse(_ sentence: String) { end(.init(.tooMuchInput, sentence)) }

  override func stop(_ failure: RequestFailure) {
    end(failure)
    connection.finishClosing()
  }

  override func leave() {
    if !publication.arrived.isEmpty { passOn() }
    super.leave()
  }

  override func reapplyWriteAccess() {
    guard let obstacle = publication.obstacle(for: connection) else { return }
    let failure = connection.failure(obstacle, of: stream)
    if obstacle.isRefusal { connection.report(.init(stream.name, failure)) }
    end(failure)
    _ = connection.flush()
  }

  // MARK: From one process to the next

  override func save(to saved: inout SavedHTTP) {
    let (values, unsettled, continues) = publication.withdraw()
    givenCount -= UInt64(values.count)
    guard continues else { return end(.notStored) }
    saved.phase = .publishing
    saved.names = [.init(stream.name.utf8)]
    (saved.socket, saved.count, saved.unsettled) = (webSocket.saved, givenCount, unsettled)
    (saved.receivedCount, saved.confirmedCount) = (receivedCount, confirmedCount)
    saved.values = values.map { .init($0) }
    publication.leave()
  }

  static func restore(_ saved: SavedHTTP, _ request: HTTPRequest, on http: HTTPSpeaker) {
    let name = saved.names.first.map { String(decoding: $0.bytes, as: UTF8.self) } ?? ""
    let limit = http.worker.limits.ofConnection.maximumFrameBytes
    guard
      let input = saved.socket.flatMap({ WebSocketInput(maximumMessageByteCount: limit, .any, restoring: $0) })
    else { return http.endDamagedWebSocket() }
    func refuse(_ failure: RequestFailure) {
      http.endWebSocket(failure.reason.closeCode, failure.sentence)
    }
    guard let stream = http.worker.streams[name] else { return refuse(.removed(name)) }
    do throws(PublishingObstacle) {
      let source = try http.connection.publishSource(of: stream)
      let publishing = try begin(request, to: stream, source, input, unsettled: saved.unsettled, on: http)
      publishing.restore(saved)
    } catch {
      refuse(http.connection.failure(error == .acceptsNoValues ? .acceptsNoMoreValues : error, of: stream))
    }
  }

  /// Values before one that the stream cannot hold are kept.
  private func restore(_ saved: SavedHTTP) {
    (receivedCount, givenCount, confirmedCount) = (saved.receivedCount, saved.count, saved.confirmedCount)
    storedBefore = saved.count - UInt64(saved.unsettled.count)
    for value in saved.values.map(\.bytes) {
      if let failure = stream.refusal(of: value.span) {
        passOn()
        return end(.init(.valuesLost, "a value that was received before a restart: \(failure.sentence)"))
      }
      publication.arrived.append(value)
    }
  }

  override func resume() {
    guard isInProgress else { return }
    http.sentAt = worker.loop.now
    connection.setClock(after: http.times.silence)
    passOn()
    answer()
  }
}
