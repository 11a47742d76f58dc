import Events
import HTTP
import Reactive
import StreamRuntime

/// A POST: its body is one value, or one value per line. It is answered once every value is in the stream.
///
/// The socket is read while few of its values wait, so that the flow control of the transport is the publisher's credit.
final class PublishingRequest: PublishingExchange {
  /// Whether each line is a value.
  private let hasLines: Bool
  private var decoder: BodyDecoder
  /// The received part of a value.
  private var part: [UInt8] = []
  /// The examination of that part, if the stream has JSON: a large value is examined in slices.
  private var examination = JSONSyntax.Examination()
  /// Whether that part can be the beginning of a JSON text.
  private var mayBeText = true
  /// Whether what has come of the body may be the beginning of a byte order mark, which is not part of a text.
  private var mayBeMark: Bool
  /// Whether values are examined.
  private let takesJSON: Bool
  /// Whether the head declares a charset of which only the ASCII characters are those of UTF-8.
  private var isASCII = false
  /// The examination of the key of a large part.
  private var key: KeyExamination?
  /// Why no more of the body is read: a value is refused, or the body is malformed or cut off. This is the answer when
  /// the values before it are in the stream.
  private var failure: Rejection?
  /// The number of values that the source was given.
  private var count: UInt64 = 0
  /// The number of values that the stream had in the former process.
  private var storedBefore: UInt64 = 0

  private init(
    _ request: HTTPRequest, _ publication: Publication, hasLines: Bool, _ decoder: BodyDecoder,
    on http: HTTPSpeaker
  ) {
    (self.hasLines, self.decoder) = (hasLines, decoder)
    takesJSON = publication.stream.configuration.takesJSON
    mayBeMark = EventEncoding.Content(ofType: publication.stream.configuration.type) != .binary
    super.init(request, publication, on: http)
  }

  /// Joins the publishers of a stream, and becomes the connection's exchange.
  /// - Parameter unsettled: of a request that began in another process, the values that wait in the stream.
  static func begin(
    _ request: HTTPRequest, to stream: ServedStream, _ source: PublishSource, hasLines: Bool, _ decoder: BodyDecoder,
    isASCII: Bool = false, unsettled: UnsettledValues = .init(), on http: HTTPSpeaker
  ) throws(Rejection) -> PublishingRequest {
    guard
      let publication = Publication.begin(to: stream, source, unsettled: unsettled, on: http.connection.worker.loop)
    else { throw http.rejection(.noRoom, of: stream) }
    let publishing = PublishingRequest(request, publication, hasLines: hasLines, decoder, on: http)
    publishing.isASCII = isASCII
    http.connection.speak(publishing)
    return publishing
  }

  /// Whether no more of the body will be read.
  private var isComplete: Bool { decoder.isDone || failure != nil }

  override var hasOutbound: Bool { isComplete }

  override var heldByteCount: Int { super.heldByteCount + part.count }

  /// Input is left in the socket until the stream has taken some values.
  override var holdsInput: Bool {
    isComplete || publication.isAhead
  }

  // MARK: The body

  /// Publishes an empty body, which is complete with the head.
  func readEmptyBody() {
    guard isComplete else { return }
    do throws(Rejection) {
      try finishBody()
      passOn()
      answer()
    } catch {
      end(error)
    }
  }

  /// Reads a part of the body, and answers when all values are in the stream.
  override func read(_ bytes: Span<UInt8>, _ offset: inout Int) {
    guard !isComplete else { return http.stash(bytes, &offset) }
    do throws(Rejection) {
      loop: while true {
        switch try decoder.next(in: bytes, from: &offset) {
        case .data(let range): try take(bytes.extracting(range))
        case .needsBytes: break loop
        case .end:
          try finishBody()
          break loop
        }
      }
    } catch {
      (failure, part, offset) = (error, [], bytes.count)
    }
    passOn()
    answer()
    if isInProgress, isComplete { http.stash(bytes, &offset) }
  }

  /// The client sends nothing more, and waits for the answer: it comes when the values before the cut are in the stream.
  override func inputEnded() {
    guard !isComplete else { return }
    failure = Rejection(.badRequest, "the request's body is cut off")
    part = []  // an incomplete value is dropped
    passOn()
    answer()
  }

  /// Takes a part of the body in.
  /// - Throws: 413 for a value that the stream cannot hold, 422 for one that is not JSON, if the stream requires that;
  ///   the values before it are taken.
  private func take(_ bytes: Span<UInt8>) throws(Rejection) {
    guard hasLines else { return try append(bytes) }
    var start = 0
    for index in 0..<bytes.count where bytes[index] == UInt8(ascii: "\n") {
      try append(bytes.extracting(start..<index), isEnd: true)
      try endLine()
      start = index + 1
    }
    try append(bytes.extracting(start..<bytes.count))
  }

  /// - Parameter isEnd: whether the value ends behind the bytes, where it is examined anyway.
  private func append(_ bytes: Span<UInt8>, isEnd: Bool = false) throws(Rejection) {
    try checkSize(part.count + bytes.count, isWhole: false)
    if isASCII, !(unsafe bytes.withUnsafeBytes { unsafe $0.allSatisfy { $0 < 0x80 } }) { throw .otherCharset }
    unsafe bytes.withUnsafeBytes { unsafe part.append(contentsOf: $0) }
    if mayBeMark {
      guard part.count >= 3 || ![0xEF, 0xBB, 0xBF].starts(with: part) else { return }  // the rest of the mark may come
      mayBeMark = false
      part = Array(part.withoutByteOrderMark)
    }
    if takesJSON, !isEnd { try examine() }
    if part.count >= LargeValue.leastByteCount { examineKey() }
  }

  private func checkSize(_ byteCount: Int, isWhole: Bool = true) throws(Rejection) {
    guard let failure = stream.refusal(ofSize: byteCount, isWhole: isWhole) else { return }
    throw rejection(failure)
  }

  /// Examines the part of the value. What is no JSON is a value nevertheless if the stream does not require it, but several
  /// texts are none: a client meant several values.
  private func examine() throws(Rejection) {
    guard mayBeText else { return }
    let part = part
    mayBeText = examination.continues(in: part.span)
    if mayBeText { return }
    if examination.hasEnded, case .severalTexts? = JSONSyntax.fault(in: part.span) { throw severalTexts() }
    if stream.wantsJSON { throw malformed() }
  }

  private func severalTexts() -> Rejection {
    if stream.wantsJSON { _ = stream.refuseMalformed() }
    let remedy =
      hasLines ? "send each on a line of its own" : "send each as a line, with Content-Type: application/x-ndjson"
    let hint = "(curl needs --data-binary: -d removes line ends)"
    return rejection(.init(.notJSON, "the value is more than one JSON text: \(remedy) \(hint)"))
  }

  private func malformed() -> Rejection { rejection(stream.refuseMalformed()) }

  /// The rejection of a value. If lines are values, it names the number of the next one.
  private func rejection(_ failure: RequestFailure) -> Rejection {
    guard hasLines else { return Rejection(of: failure) }
    let number = count + UInt64(publication.arrived.count) + 1
    return Rejection(of: .init(failure.reason, "value \(number): \(failure.sentence)"))
  }

  /// Lines of white space, such as an empty one at the end, are not values.
  private func endLine() throws(Rejection) {
    if part.last == UInt8(ascii: "\r") { part.removeLast() }
    if !part.isWhiteSpace { try endValue() }
    examination.restart()
    (mayBeText, mayBeMark, key) = (true, false, nil)
    part.removeAll(keepingCapacity: true)
  }

  private func endValue() throws(Rejection) {
    if takesJSON { try examine() }
    if stream.wantsJSON, !(mayBeText && examination.isComplete) { throw malformed() }
    let part = part
    if let sentence = stream.emptiness(of: part.span) { throw Rejection(.badRequest, sentence) }
    guard key != nil else { return publication.arrived.append(part) }
    var value: [UInt8] = []
    swap(&value, &self.part)
    if let batch = key?.finish(value) { publication.arrived += batch }
  }

  private func examineKey() {
    if key == nil { key = KeyExamination(of: stream, publication.source) }
    let part = part
    key?.examine(part.span)
  }

  private func finishBody() throws(Rejection) {
    if hasLines { try endLine() } else { try endValue() }
    part = []
  }

  // MARK: The answer

  private func passOn() {
    count += UInt64(publication.arrived.count)
    _ = publication.passOn(isComplete: isComplete)
  }

  /// Answers if the request is finished. Otherwise waits for the rest of the body, or for room in the stream.
  override func answer() {
    guard let status = publication.status else { return }
    if let obstacle = publication.obstacle {
      end(http.rejection(obstacle, of: stream), isLost: true)
    } else if status.isDone, let failure {
      end(failure)
    } else if status.isDone {
      publication.leave()
      http.respond(.ok, to: request, "application/json", Array("{\"accepted\":\(count)}\n".utf8)) {
        $0.add("Cache-Control", "no-store")
      }
    } else {
      let times = http.times
      connection.setClock(after: status.heldCount > 0 ? times.fullTime : times.stallTime)
      connection.watch()
    }
  }

  /// Ends the request with an error, which says how many values are in the stream.
  ///
  /// - Parameters:
  ///   - isLost: whether the values that the stream does not have yet are lost.
  ///   - isLast: whether the connection ends with the answer.
  private func end(_ rejection: Rejection, isLost: Bool = false, isLast: Bool = false) {
    if isLost {
      _ = publication.source.withdraw(publication.queue)
      count = storedBefore + publication.refresh().storedCount
    }
    publication.leave()
    let keeps = decoder.isDone && failure == nil && !isLast
    http.respond(rejection, to: request.keeping(keeps), accepted: count)
  }

  override func timeIsOver() {
    let times = http.times
    guard publication.refresh().heldCount > 0 else {
      return end(
        Rejection(.requestTimeout, "the request's body did not arrive for \(times.stallTime.components.seconds) s"))
    }
    abandon(.init(.noSpace, "\"\(stream.name)\" was full for \(times.fullTime.components.seconds) s"))
  }

  /// Withdraws the values that the stream was not given: the answer says exactly how many are in the stream, or wait in
  /// it for room.
  private func abandon(_ reason: RequestFailure, isLast: Bool = false) {
    let withdrawn = publication.source.withdraw(publication.queue)
    count -= UInt64(withdrawn.count)
    // A value that is refused has all the ones before it in the stream.
    let failure = withdrawn.isEmpty ? failure : nil
    end(failure ?? Rejection(of: reason), isLast: isLast)
  }

  override func refuse(_ sentence: String) { abandon(.init(.tooMuchInput, sentence), isLast: true) }

  /// Values that wait in the stream are lost if the daemon stops.
  override func stop(_ failure: RequestFailure) {
    if connection.worker.isStopping {
      end(Rejection(of: failure), isLost: true)
    } else {
      abandon(failure, isLast: true)
    }
    connection.finishClosing()
  }

  override func reapplyWriteAccess() {
    guard let obstacle = publication.obstacle(for: connection) else { return }
    end(http.rejection(obstacle, of: stream), isLost: !obstacle.isRefusal)
    _ = connection.flush()
  }

  // MARK: From one process to the next

  override func save(to saved: inout SavedHTTP) {
    let (values, unsettled, continues) = publication.withdraw()
    count -= UInt64(values.count)
    guard continues, !isASCII else {
      return end(Rejection(of: .notStored), isLost: true)
    }
    publication.leave()
    saved.phase = .publishing
    saved.names = [.init(stream.name.utf8)]
    (saved.body, saved.hasLines, saved.part, saved.count) = (decoder.saved, hasLines, part, count)
    saved.unsettled = unsettled
    saved.failure = failure
    saved.values = values.map { .init($0) }
  }

  static func restore(_ saved: SavedHTTP, _ request: HTTPRequest, on http: HTTPSpeaker) {
    let name = saved.names.first.map { String(decoding: $0.bytes, as: UTF8.self) } ?? ""
    var last = request
    do throws(Rejection) {
      guard let decoder = BodyDecoder(saved.body) else {
        throw Rejection(.internalServerError, "the saved state of this request is not valid")
      }
      last = request.keeping(decoder.isDone && saved.failure == nil)
      let stream = try http.visibleStream(name, adding: 0)
      let source: PublishSource
      do throws(PublishingObstacle) {
        source = try http.connection.publishSource(of: stream)
      } catch {
        throw http.rejection(error == .acceptsNoValues ? .acceptsNoMoreValues : error, of: stream)
      }
      let publishing = try begin(
        request, to: stream, source, hasLines: saved.hasLines, decoder, unsettled: saved.unsettled, on: http)
      publishing.restore(saved)
    } catch {
      // A stream that is gone has not taken the values that wait in it.
      let isGone = http.connection.worker.streams[name] == nil
      http.respond(
        error, to: last, accepted: saved.count - (isGone ? UInt64(saved.unsettled.count) : 0))
    }
  }

  /// Values before one that the stream cannot hold are kept.
  private func restore(_ saved: SavedHTTP) {
    (part, count, failure) = (saved.part, saved.count, saved.failure)
    mayBeMark = mayBeMark && count == 0 && saved.values.isEmpty && part.count < 3
    storedBefore = saved.count - UInt64(saved.unsettled.count)
    do throws(Rejection) {
      for value in saved.values.map(\.bytes) {
        try checkSize(value.count)
        if stream.wantsJSON, !JSONSyntax.holds(for: value.span) { throw malformed() }
        publication.arrived.append(value)
      }
      try checkSize(part.count, isWhole: false)
    } catch {
      (failure, part) = (error, [])
    }
  }

  override func resume() {
    passOn()
    answer()
  }
}

extension Rejection {
  fileprivate static var otherCharset: Self {
    Self(.unsupportedMediaType, "the body's charset is not UTF-8: publish the values in UTF-8")
  }
}

extension HTTPSpeaker {
  /// Further names of NDJSON, none of which is registered.
  static let otherLineTypes = [
    "application/ndjson", "application/jsonl", "application/jsonlines", "application/x-jsonlines",
  ]

  func receive(_ name: String, _ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    try refuseParameters(of: head)
    guard let (stream, source) = try publishedStream(name, request, head) else { return }
    guard !head.hasContentCoding else {
      throw Rejection(.unsupportedMediaType, "the body has a Content-Encoding: publish the values without one")
    }
    guard head.framing != .none else { throw Rejection(.badRequest, "the request has no body: send a value") }
    let type = head["Content-Type"].flatMap { MediaType($0) }
    let isASCII = try mustBeASCII(type, for: stream)
    let hasLines =
      type.map { ([EventEncoding.Format.ndjson.mediaType] + Self.otherLineTypes).contains($0.name) } ?? false
    if case .length(let count) = head.framing, !hasLines, let failure = stream.refusal(ofSize: Int(clamping: count)) {
      throw Rejection(of: failure)
    }
    let publishing = try PublishingRequest.begin(
      request, to: stream, source, hasLines: hasLines, BodyDecoder(head.framing), isASCII: isASCII, on: self)
    worker.trace(identity, stream: name, "publishes")
    connection.setClock(after: times.stallTime)
    if head.expectsContinue { output += "HTTP/1.1 100 Continue\r\n\r\n".utf8 }
    publishing.readEmptyBody()
  }

  /// The stream that a request publishes to, and its source.
  /// - Returns: nil if the stream is being made: the request begins again then.
  func publishedStream(
    _ name: String, _ request: HTTPRequest, _ head: RequestHead
  ) throws(Rejection) -> (ServedStream, PublishSource)? {
    let stream: ServedStream
    do throws(Rejection) {
      stream = try visibleStream(name, adding: 1)
    } catch {
      guard absentName.take() != nil else { throw error }
      try make(name, forValuesOf: request, head)
      return nil
    }
    do throws(PublishingObstacle) {
      return (stream, try connection.publishSource(of: stream))
    } catch {
      throw rejection(error, of: stream)
    }
  }

  /// Whether only the ASCII characters of a body of this type can be published: it has another charset than UTF-8, and
  /// nothing is converted.
  /// - Throws: for a type that is no single value, and for a charset whose ASCII characters are other bytes.
  private func mustBeASCII(_ type: MediaType?, for stream: ServedStream) throws(Rejection) -> Bool {
    guard let type, EventEncoding.Content(ofType: stream.configuration.type) != .binary else { return false }
    guard !type.name.hasPrefix("multipart/") else {
      throw Rejection(
        .unsupportedMediaType, "the body has parts (multipart): send the value itself (curl: --data-binary)")
    }
    guard let charset = type.charset, !["utf-8", "utf8"].contains(charset) else { return false }
    let families = ["us-ascii", "ascii", "iso-8859-", "iso8859-", "latin", "windows-125", "cp125", "koi8-"]
    guard families.contains(where: { charset.hasPrefix($0) }) else { throw .otherCharset }
    return true
  }

  /// The response for an obstacle.
  func rejection(_ obstacle: PublishingObstacle, of stream: ServedStream) -> Rejection {
    let failure = connection.failure(obstacle, of: stream)
    return obstacle.isRefusal ? rejection(.init(stream.name, failure)) : Rejection(of: failure)
  }
}
