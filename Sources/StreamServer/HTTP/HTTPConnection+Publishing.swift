import Events
import HTTP
import Reactive
import StreamRuntime

/// A POST: its body is one value, or one value per line.
///
/// The values join the queue of a publisher. The socket is read while that holds few, so that the flow control of the
/// transport is the publisher's credit.
final class PublishingRequest {
  let request: HTTPRequest
  let stream: ServedStream
  let source: PublishSource
  let queue: PublishQueue
  /// Each line is a value.
  let hasLines: Bool
  fileprivate var decoder: BodyDecoder
  /// A value in part.
  fileprivate var part: [UInt8] = []
  /// The examination of that part, if the stream requires JSON: a large value is examined in slices.
  private var examination = JSONSyntax.Examination()
  fileprivate var arrived = EventBatch()
  /// Values that the source was given.
  fileprivate var count: UInt64 = 0
  fileprivate var status: PublishSource.PublishStatus?
  /// The most values that were in the stream when last looked at.
  fileprivate var stored: UInt64 = 0

  init(
    _ request: HTTPRequest, _ stream: ServedStream, _ source: PublishSource, _ queue: PublishQueue, hasLines: Bool,
    _ decoder: BodyDecoder
  ) {
    (self.request, self.stream, self.source, self.queue) = (request, stream, source, queue)
    (self.hasLines, self.decoder) = (hasLines, decoder)
  }

  /// Nothing more of the body will arrive: all of it is here, or it was cut off.
  var isComplete: Bool { decoder.isDone || isCut }
  /// The client has ended its sending side within the body.
  fileprivate var isCut = false
  /// Whether the next request can be told from this one's body.
  fileprivate var keepsConnection: Bool { request.keepsConnection && decoder.isDone }

  /// Bytes that wait here, and those beyond the publisher's share of its stream.
  var heldByteCount: Int { part.count + arrived.byteCount + (status?.excessBytes ?? 0) }

  /// Input is left in the socket until the stream has taken some values.
  var holdsInput: Bool {
    guard !isComplete, let status else { return isComplete }
    return status.heldBytes * 2 > status.window.byteCount
      || status.heldCount * 2 > PublishWindow.mostValues
  }

  func leave() { source.leave(queue) }

  /// Values that were withdrawn, to be given to the next process.
  fileprivate var withdrawn = EventBatch()

  func save(to saved: inout SavedHTTP) {
    saved.names = [.init(stream.name.utf8)]
    (saved.body, saved.hasLines, saved.part, saved.count) = (decoder.saved, hasLines, part, count)
    saved.values = withdrawn.map { .init($0) }
  }

  /// Why the stream of this process cannot hold a value that the former process read.
  fileprivate var refusal: Rejection?

  /// Values before one that the stream cannot hold are kept.
  fileprivate func restore(_ saved: SavedHTTP) {
    (part, count) = (saved.part, saved.count)
    do throws(Rejection) {
      for value in saved.values.map(\.bytes) {
        try checkSize(value.count)
        if stream.wantsJSON, !JSONSyntax.holds(for: value.span) { throw malformed() }
        arrived.append(value)
      }
      try checkSize(part.count, isWhole: false)
    } catch {
      refusal = error
    }
  }

  /// Takes a part of the body in.
  /// - Throws: 413 for a value that the stream cannot hold, 422 for one that is not JSON, if the stream requires that; what
  ///   comes before it is taken.
  fileprivate func take(_ bytes: Span<UInt8>) throws(Rejection) {
    guard hasLines else { return try append(bytes) }
    var start = 0
    for index in 0..<bytes.count where bytes[index] == UInt8(ascii: "\n") {
      try append(bytes.extracting(start..<index))
      try endLine()
      start = index + 1
    }
    try append(bytes.extracting(start..<bytes.count))
  }

  private func append(_ bytes: Span<UInt8>) throws(Rejection) {
    try checkSize(part.count + bytes.count, isWhole: false)
    let mayBeginWithMark = mayBeMark
    unsafe bytes.withUnsafeBytes { unsafe part.append(contentsOf: $0) }
    if mayBeginWithMark {
      guard !mayBeMark || part.isEmpty else { return }  // the rest of the mark may come
      part = Array(part.withoutByteOrderMark)
    }
    if stream.wantsJSON, !isExaminedWell() { throw malformed() }
  }

  /// Whether what there is of the first value may be the beginning of a byte order mark, which is no part of a text.
  private var mayBeMark: Bool {
    part.count < 3 && [0xEF, 0xBB, 0xBF].starts(with: part) && count == 0 && arrived.isEmpty
      && EventEncoding.Content(ofType: stream.configuration.type) != .binary
  }

  private func checkSize(_ byteCount: Int, isWhole: Bool = true) throws(Rejection) {
    guard let sentence = stream.valueError(ofSize: byteCount, isWhole: isWhole) else { return }
    throw rejection(.contentTooLarge, sentence)
  }

  private func malformed() -> Rejection { rejection(.unprocessableContent, stream.refuseMalformed()) }

  /// The rejection names the number of the next value.
  private func rejection(_ status: Status, _ sentence: String) -> Rejection {
    Rejection(status, hasLines ? "value \(count + UInt64(arrived.count) + 1): \(sentence)" : sentence)
  }

  /// Lines of white space, such as an empty one at the end, are no values.
  private func endLine() throws(Rejection) {
    if part.last == UInt8(ascii: "\r") { part.removeLast() }
    if !part.isWhiteSpace { try endValue() }
    examination.restart()
    part.removeAll(keepingCapacity: true)
  }

  private func endValue() throws(Rejection) {
    if stream.wantsJSON, !(isExaminedWell() && examination.isComplete) { throw malformed() }
    arrived.append(part)
  }

  private func isExaminedWell() -> Bool {
    let part = part
    return examination.continues(in: part.span)
  }

  /// The body has ended.
  fileprivate func finishBody() throws(Rejection) {
    if hasLines { try endLine() } else { try endValue() }
    part = []
  }

  /// The body ends within itself: a value in part is dropped.
  fileprivate func cut() {
    isCut = true
    part = []
  }

  /// Hands over what has arrived.
  fileprivate func passOn() {
    var values = EventBatch()
    swap(&values, &arrived)
    count += UInt64(values.count)
    update(source.take(values, isComplete: isComplete, from: queue))
  }

  fileprivate func update(_ status: PublishSource.PublishStatus) {
    self.status = status
    // A stream that has ended takes no values, and those that it was given before may be lost.
    if !status.hasLostValues, !status.hasEnded { stored = max(stored, count - UInt64(status.heldCount)) }
  }
}

// Publishing by POST: answered once every value is in the stream.

extension HTTPConnection {
  /// Further names of NDJSON, none of which is registered.
  static let otherLineTypes = [
    "application/ndjson", "application/jsonl", "application/jsonlines", "application/x-jsonlines",
  ]

  func receive(_ name: String, _ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    try refuseParameters(of: head)
    let stream = try visibleStream(name, adding: 1)
    guard let source = stream.publishSource else {
      let refusal = Refusal(name, .rejected("\"\(name)\" does not accept values"))
      report(refusal)
      return respond(Rejection(.methodNotAllowed, refusal.failure.sentence), to: request.withoutBody(of: head)) {
        $0.add("Allow", Self.readingMethods)
      }
    }
    guard admits(stream.configuration.write) else { throw rejection(mayNotWrite(stream)) }
    guard !head.hasContentCoding else {
      throw Rejection(.unsupportedMediaType, "the body has a Content-Encoding: publish the values without one")
    }
    guard head.framing != .none else {
      throw Rejection(.badRequest, "the request has no body: send a value, or Content-Length: 0 for an empty one")
    }
    let type = head["Content-Type"].flatMap { MediaType($0) }
    let hasLines =
      type.map { ([EventEncoding.Format.ndjson.mediaType] + Self.otherLineTypes).contains($0.name) } ?? false
    if case .length(let count) = head.framing, !hasLines, let sentence = stream.valueError(ofSize: Int(clamping: count))
    {
      throw Rejection(.contentTooLarge, sentence)
    }
    guard let queue = join(source) else {
      throw rejection(Refusal(name, .rejected("\"\(name)\" has no space: values of other publishers wait in it")))
    }
    worker.trace(identity, stream: name, "publishes")
    let publishing = PublishingRequest(
      request, stream, source, queue, hasLines: hasLines, BodyDecoder(head.framing))
    begin(.publishing(publishing))
    setClock(after: times.stallTime)
    if head.expectsContinue { output += "HTTP/1.1 100 Continue\r\n\r\n".utf8 }
    guard publishing.isComplete else { return }
    do throws(Rejection) {
      try publishing.finishBody()
      publishing.passOn()
      answer(publishing)
    } catch {
      end(publishing, error)
    }
  }

  private func join(_ source: PublishSource) -> PublishQueue? {
    let reference = Reference(self)
    return source.join { [worker] in
      worker.loop.execute {
        source.deliver()
        reference.connection?.look(at: source)
      }
    }
  }

  /// Carried by other threads, looked into by the connection's loop alone.
  private final class Reference: @unchecked Sendable {
    private(set) weak var connection: HTTPConnection?
    init(_ connection: HTTPConnection) { self.connection = connection }
  }

  /// The stream has taken values.
  private func look(at source: PublishSource) {
    guard phase == .open, case .publishing(let publishing) = exchange, publishing.source === source else { return }
    publishing.update(source.status(of: publishing.queue))
    answer(publishing)
    settle()
    _ = flush()
  }

  /// Reads a part of the body, and answers when all values are in the stream.
  func read(_ publishing: PublishingRequest, _ bytes: Span<UInt8>, _ offset: inout Int) {
    guard !publishing.isComplete else { return }
    do throws(Rejection) {
      loop: while true {
        switch try publishing.decoder.next(in: bytes, from: &offset) {
        case .data(let range): try publishing.take(bytes.extracting(range))
        case .needsBytes: break loop
        case .end:
          try publishing.finishBody()
          break loop
        }
      }
      publishing.passOn()
      answer(publishing)
    } catch {
      publishing.passOn()
      offset = bytes.count
      end(publishing, error, isLast: true)
    }
  }

  /// Answers if there is an answer, or waits: for the rest of the body, or for room in the stream.
  private func answer(_ publishing: PublishingRequest) {
    guard let status = publishing.status else { return }
    let name = publishing.stream.name
    if status.hasEnded {
      end(publishing, Rejection(.serviceUnavailable, "\"\(name)\" has ended"), isLost: true)
    } else if status.hasLostValues {
      end(
        publishing, Rejection(.serviceUnavailable, "\"\(name)\" was changed before it had stored all values"),
        isLost: true)
    } else if status.isDone, publishing.isCut {
      end(publishing, Rejection(.badRequest, "the request's body is cut off"))
    } else if status.isDone {
      publishing.leave()
      begin(.head)
      respond(
        .ok, to: publishing.request, "application/json", Array("{\"accepted\":\(publishing.count)}\n".utf8)
      ) { $0.add("Cache-Control", "no-store") }
    } else {
      setClock(after: status.heldCount > 0 ? times.fullTime : times.stallTime)
      watch()
    }
  }

  /// The client sends nothing more, and waits for the answer: it comes when the values before the cut are in the stream.
  func cut(_ publishing: PublishingRequest) {
    publishing.cut()
    publishing.passOn()
    answer(publishing)
  }

  /// Ends the request with an error, which says how many values are in the stream.
  /// - Parameter isLost: values that are not there yet never will be.
  private func end(
    _ publishing: PublishingRequest, _ rejection: Rejection, isLost: Bool = false, isLast: Bool = false
  ) {
    let accepted = isLost ? publishing.stored : publishing.count
    publishing.leave()
    begin(.head)
    let request = HTTPRequest(
      isHead: false, keepsConnection: publishing.keepsConnection && !isLast,
      allowsChunks: publishing.request.allowsChunks, allowedOrigin: publishing.request.allowedOrigin)
    respond(rejection, to: request, accepted: accepted)
  }

  func timeIsOver(for publishing: PublishingRequest) {
    let status = publishing.source.status(of: publishing.queue)
    guard status.heldCount > 0 else {
      return end(
        publishing,
        Rejection(.requestTimeout, "the request's body did not arrive for \(times.stallTime.components.seconds) s"))
    }
    abandon(publishing, "\"\(publishing.stream.name)\" was full for \(times.fullTime.components.seconds) s")
  }

  /// Withdraws the values that wait for room: the answer says exactly how many are in the stream.
  /// - Parameter isLast: the connection ends with the answer.
  func abandon(_ publishing: PublishingRequest, _ sentence: String, isLast: Bool = false) {
    publishing.count -= UInt64(publishing.source.withdraw(publishing.queue).count)
    end(publishing, Rejection(.serviceUnavailable, sentence), isLast: isLast)
  }

  /// Takes back the values that wait for room, for the next process. Those that the stream was given are its own to save:
  /// unless something between it and the publishers may still hold them.
  func withdraw(_ publishing: PublishingRequest) {
    publishing.withdrawn = publishing.source.withdraw(publishing.queue)
    publishing.count -= UInt64(publishing.withdrawn.count)
    let held = publishing.source.status(of: publishing.queue).heldCount
    guard held > 0, !publishing.stream.hasAll(of: publishing.source) else { return publishing.leave() }
    publishing.update(publishing.source.status(of: publishing.queue))
    end(
      publishing, Rejection(.serviceUnavailable, "streamd restarts before the stream has stored all values"),
      isLost: true)
  }

  func restorePublishing(_ saved: SavedHTTP, _ request: HTTPRequest) {
    let name = saved.names.first.map { String(decoding: $0.bytes, as: UTF8.self) } ?? ""
    var last = request
    do throws(Rejection) {
      guard let decoder = BodyDecoder(saved.body) else {
        throw Rejection(.internalServerError, "the saved state of this request is not valid")
      }
      last = HTTPRequest(
        isHead: false, keepsConnection: request.keepsConnection && decoder.isDone, allowsChunks: request.allowsChunks,
        allowedOrigin: request.allowedOrigin)
      let stream = try visibleStream(name, adding: 0)
      guard let source = stream.publishSource else {
        throw Rejection(.methodNotAllowed, "\"\(name)\" no longer accepts values")
      }
      guard admits(stream.configuration.write) else { throw rejection(mayNotWrite(stream)) }
      guard let queue = join(source) else {
        throw Rejection(.serviceUnavailable, "\"\(name)\" has no space: values of other publishers wait in it")
      }
      let publishing = PublishingRequest(request, stream, source, queue, hasLines: saved.hasLines, decoder)
      publishing.restore(saved)
      begin(.publishing(publishing))
    } catch {
      respond(error, to: last, accepted: saved.count)
    }
  }

  /// Continues a request of another process.
  func resume(_ publishing: PublishingRequest) {
    publishing.passOn()
    if let refusal = publishing.refusal { end(publishing, refusal) } else { answer(publishing) }
  }

  func reapplyPublishingAccess() {
    guard phase == .open, case .publishing(let publishing) = exchange else { return }
    let stream = publishing.stream
    if worker.streams[stream.name] !== stream {
      end(publishing, Rejection(.notFound, "\"\(stream.name)\" is no longer served"), isLost: true)
    } else if stream.publishSource !== publishing.source {
      end(publishing, Rejection(.methodNotAllowed, "\"\(stream.name)\" no longer accepts values"), isLost: true)
    } else if !admits(stream.configuration.write) {
      end(publishing, rejection(mayNotWrite(stream)))
    }
    _ = flush()
  }
}
