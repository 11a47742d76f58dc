import CLinux
import Glibc
import HTTP
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime

/// The speaker of HTTP: reads the heads of requests, answers most, and keeps their order. Other requests become
/// subscriptions and published values, whose results become responses.
///
/// One request is in progress at a time, and the input after it waits. While it is, its `Exchange` is the connection's
/// speaker, and this one has what outlasts it. A streaming response is the connection's last.
final class HTTPSpeaker: Speaker {
  /// A head of which a part has arrived.
  private final class PartialHead {
    var parser: RequestParser
    var bytes: [UInt8]

    init(_ parser: RequestParser, _ bytes: [UInt8]) { (self.parser, self.bytes) = (parser, bytes) }
  }

  /// The exchange of the request in progress; nil: the connection waits for a request, or for the rest of its head.
  private var exchange: Exchange? { connection.speaker as? Exchange }
  /// For the comments of an event stream, when bytes were last sent. For another response, when its client was last
  /// seen to read.
  var sentAt: UInt64 = 0
  private var partialHead: PartialHead?
  var output: [UInt8] = []
  /// Input after the request in progress, from the same read.
  private var pending: [UInt8] = []
  private(set) var hasRequested = false
  private var isProcessing = false
  /// The approximate number of bytes of its response that the client had not read at the last check.
  private var unreadByteCount: UInt32 = 0
  /// The streams that were made for the request in progress: none is made twice for it.
  var madeNames: Set<String> = []
  /// Keeps those until the others are made, too.
  var madeHolds: [StreamUse.Hold] = []
  /// The stream that was just not found, and that a template could make.
  var absentName: String?

  var times: HTTPTimes { worker.limits.http }
  /// While more than this is unsent, requests wait: a request of a few bytes may have a response of many.
  private static let outputLimit = 64 << 10
  /// The maximum bytes of a partial head: they suffice to see that it is too long.
  private static let partialHeadBytes = RequestParser.maximumHeadByteCount + 4096

  /// Whether the connection counts as a WebSocket.
  private var countsAsWebSocket = false

  override init(_ connection: Connection) {
    super.init(connection)
    worker.counts.http.add(1, ordering: .relaxed)
    if identity.credentials == nil { setTCPOptions() }
  }

  deinit {
    if countsAsWebSocket {
      worker.counts.webSocket.subtract(1, ordering: .relaxed)
    } else {
      worker.counts.http.subtract(1, ordering: .relaxed)
    }
  }

  /// The connection counts as a WebSocket from now on.
  func becomeWebSocket() {
    countsAsWebSocket = true
    worker.counts.http.subtract(1, ordering: .relaxed)
    worker.counts.webSocket.add(1, ordering: .relaxed)
  }

  /// Whether a connection that begins with this byte speaks HTTP. A method begins with a letter, even if only those with
  /// capital letters are known, and empty lines may precede it. A frame begins with its length, which for SETUP is less than
  /// 64 KiB.
  static func speaks(_ byte: UInt8) -> Bool {
    UInt8(ascii: "A")...UInt8(ascii: "Z") ~= byte & ~0x20 || byte == UInt8(ascii: "\r") || byte == UInt8(ascii: "\n")
  }

  /// Detects a client that has vanished: by unacknowledged bytes, or by probes of the system.
  private func setTCPOptions() {
    for (level, option, value) in [
      (CInt(IPPROTO_TCP), TCP_USER_TIMEOUT, 30_000), (SOL_SOCKET, SO_KEEPALIVE, 1),
    ] as [(CInt, CInt, CInt)] {
      var value = value
      unsafe setsockopt(connection.socket.raw, level, option, &value, socklen_t(MemoryLayout<CInt>.size))
    }
  }

  // MARK: Between two requests

  override var isEstablished: Bool { hasRequested }
  override var protocolName: String { "http" }
  override var heldByteCount: Int { pending.count + (partialHead?.bytes.count ?? 0) }
  override var holdsInput: Bool { !pending.isEmpty }
  override var answerByteCount: Int { output.count }

  override func takeAnswers() -> [UInt8] {
    var taken: [UInt8] = []
    swap(&taken, &output)
    return taken
  }

  override var hasOutbound: Bool { connection.hasUnsent }

  /// The requests of a client that reads nothing wait for no answer to be read.
  override func takeTurn() -> Bool {
    guard connection.hasLostReader, !pending.isEmpty else { return false }
    continueWithPending()
    return true
  }

  override func didWriteAll() {
    if connection.hasLostWriter, pending.isEmpty { connection.close() } else { continueWithPending() }
  }

  override func timeIsOver() {
    guard let partialHead else { return waitForRequest() }
    reject(Rejection(.requestTimeout, "the request's head did not arrive in time"), of: partialHead.bytes)
    _ = connection.flush()
  }

  // MARK: Clients that do not read

  /// Starts to measure how much the client reads of a response that is complete in the log or in memory.
  func watchReading() {
    // First measured at the next check: most responses are read by then.
    (sentAt, unreadByteCount) = (worker.loop.now, .max)
    connection.setClock(after: min(times.idleTime, times.stallTime / Self.checks))
  }

  /// Closes the connection if its client has read nothing for the stall time; each read restarts it.
  func checkReading() {
    let count = countUnread()
    if count != unreadByteCount || !connection.isBlocked { (sentAt, unreadByteCount) = (worker.loop.now, count) }
    guard worker.loop.now - min(worker.loop.now, sentAt) < UInt64(times.stallTime / .nanoseconds(1)) else {
      connection.drop("did not read its response for \(times.stallTime.inUnits)")
      return connection.close()
    }
    connection.setClock(after: times.stallTime / Self.checks)
  }

  /// Between two requests: the client reads the former response, or is idle.
  private func waitForRequest() {
    guard !connection.hasUnsent else { return checkReading() }
    let idle = Duration.nanoseconds(Int64(worker.loop.now - min(worker.loop.now, sentAt)))
    if idle < times.idleTime { connection.setClock(after: times.idleTime - idle) } else { connection.close() }
  }

  /// The number of checks in a stall time.
  private static let checks = 4

  /// The unread bytes in memory and in the kernel, less the sent bytes of an event in the log. Only a difference
  /// between two results has a meaning.
  private func countUnread() -> UInt32 {
    var queued: CInt = 0
    _ = unsafe bytes_unread(connection.socket.raw, &queued)
    let sent = connection.subscriptions[RequestID(1)].map { $0.cursor.sentBytes } ?? 0
    return UInt32(truncatingIfNeeded: connection.unsentByteCount &+ Int(queued) &- sent)
  }

  // MARK: Input

  override func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    isProcessing = true
    defer { isProcessing = false }
    var (offset, requestCount) = (0, 0)
    let span = unsafe bytes.bindMemory(to: UInt8.self).span
    repeat {
      if let exchange {
        exchange.read(span, &offset)
      } else if partialHead == nil, connection.unsentByteCount > Self.outputLimit {
        stash(span, &offset)
      } else {
        readHead(span, &offset)
        if connection.speaker?.isWebSocket == true { return offset }
      }
      requestCount += 1
    } while offset < span.count && connection.phase == .open && requestCount < Slices.connectionFrames
      && EventLoop.monotonicNow() < deadline
    return connection.phase == .open ? offset : span.count
  }

  /// A request that is cut off is answered. The part that has arrived takes effect, except for an incomplete value.
  override func inputEnded() {
    guard let partialHead else { return }
    reject(Rejection(.badRequest, "the request's head is cut off"), of: partialHead.bytes)
  }

  /// Continues with the requests that waited for the response before them, or for their client to read. Their input was
  /// held back, or was left at the end of a slice.
  private func continueWithPending() {
    var input: [UInt8] = []
    swap(&input, &pending)
    connection.resume(with: input)
  }

  /// Reads the body, or the frames, that have come while the stream of their request was made.
  func continueWithBody() {
    guard exchange is PublishingRequest || exchange?.isWebSocket == true, connection.phase == .open else { return }
    if !pending.isEmpty { continueWithPending() }
  }

  /// Keeps the input after the request in progress: one read at most, because no more is read meanwhile.
  func stash(_ bytes: Span<UInt8>, _ offset: inout Int) {
    defer { offset = bytes.count }
    unsafe bytes.extracting(offset..<bytes.count).withUnsafeBytes { unsafe pending.append(contentsOf: $0) }
  }

  private func readHead(_ bytes: Span<UInt8>, _ offset: inout Int) {
    do throws(Rejection) {
      let head: RequestHead?
      if let partialHead {
        let before = partialHead.bytes.count
        let count = min(bytes.count - offset, max(0, Self.partialHeadBytes - before))
        unsafe bytes.extracting(offset..<offset + count).withUnsafeBytes {
          unsafe partialHead.bytes.append(contentsOf: $0)
        }
        let all = partialHead.bytes
        head = try partialHead.parser.parse(all.span)
        offset += head.map { $0.byteCount - before } ?? count
      } else {
        var parser = RequestParser()
        let rest = bytes.extracting(offset..<bytes.count)
        head = try parser.parse(rest)
        if let head {
          offset += head.byteCount
        } else {
          partialHead = PartialHead(parser, unsafe rest.withUnsafeBytes { unsafe Array($0) })
          offset = bytes.count
          if hasRequested { connection.setClock(after: worker.limits.handshakeTimeout) }
        }
      }
      guard let head else { return }
      partialHead = nil
      hasRequested = true
      connection.clearClock()
      (madeNames, madeHolds) = ([], [])
      respond(to: head)
    } catch {
      let end = min(bytes.count, offset + HTTPRequest.startByteCount)
      let start =
        unsafe partialHead?.bytes ?? bytes.extracting(offset..<end).withUnsafeBytes { unsafe Array($0) }
      offset = bytes.count
      countRefusal(error)
      reject(error, of: start)
    }
  }

  // MARK: From one process to the next

  override func save(to saved: inout SavedConnection) { save(SavedHTTP(), to: &saved) }

  override func restore(_ saved: SavedConnection) {
    guard let http = saved.http else { return }
    (hasRequested, pending) = (http.hasRequested, Array(http.input.prefix(Self.heldInputBytes)))
    isProcessing = true  // nothing is written before all connections are restored
    restoreExchange(http, saved.subscriptions)
    isProcessing = false
  }

  /// A partial head, or the input after the request in progress.
  var heldInput: [UInt8] { partialHead?.bytes ?? pending }

  /// A partial head is read again, before the input that was read and not processed.
  override func resume() {
    if hasRequested { watchReading() } else { connection.setClock(after: worker.limits.handshakeTimeout) }
    if !pending.isEmpty { continueWithPending() }
  }

  /// The maximum bytes of one read and a partial head.
  private static let heldInputBytes = 128 << 10

  // MARK: Responses

  /// Counts a request that is refused before it reaches a stream, unless its report has counted it. A stream that has
  /// failed refuses nothing.
  func countRefusal(_ rejection: Rejection) {
    guard !rejection.isReported, rejection.status != .badGateway else { return }
    worker.counts.refused.add(1, ordering: .relaxed)
  }

  /// Answers input that is not a request, or a request whose end is not known. The connection ends.
  /// - Parameter head: the bytes of the request that have arrived, or the first of them.
  func reject(_ rejection: Rejection, of head: [UInt8]) {
    partialHead = nil
    hasRequested = true
    respond(rejection, to: HTTPRequest(malformed: head))
  }

  /// Answers with an error.
  func respond(
    _ rejection: Rejection, to request: HTTPRequest, accepted: UInt64? = nil,
    _ fields: (inout ResponseHead) -> Void = { _ in }
  ) {
    var problem = Problem(rejection)
    problem.accepted = accepted
    respond(rejection.status, to: request, Problem.mediaType, problem.body) { head in
      head.addFields(of: rejection)
      fields(&head)
    }
  }

  /// Answers a request; the next one may begin.
  ///
  /// - Parameters:
  ///   - type: the type of the body; nil: the response has neither a body nor the length of one.
  ///   - fields: adds the other fields.
  func respond(
    _ status: Status, to request: HTTPRequest, _ type: String? = nil, _ body: [UInt8] = [],
    _ fields: (inout ResponseHead) -> Void = { _ in }
  ) {
    var head = responseHead(status, to: request, keeps: request.keepsConnection)
    if let type {
      head.add("Content-Type", type)
      head.add("Content-Length", String(body.count))
    }
    fields(&head)
    head.append(to: &output)
    if !request.isHead { output += body }
    endExchange(keeps: request.keepsConnection)
  }

  /// The fields that every response has.
  func responseHead(_ status: Status, to request: HTTPRequest, keeps: Bool) -> ResponseHead {
    ResponseHead(status, to: request, date: worker.date(), idleTime: keeps ? times.idleTime : nil)
  }

  /// The request in progress is answered.
  func endExchange(keeps: Bool) {
    connection.speak(keeps ? self : LastResponse(on: self))
    watchReading()
    guard !isProcessing else { return }
    connection.settle()
    _ = connection.flush()
    guard connection.phase == .open else { return }
    if connection.hasUnsent { connection.watch() } else { connection.speaker?.didWriteAll() }
  }

  override func refuse(_ sentence: String) {
    reject(Rejection(of: .init(.tooMuchInput, sentence)), of: partialHead?.bytes ?? [])
  }
}
