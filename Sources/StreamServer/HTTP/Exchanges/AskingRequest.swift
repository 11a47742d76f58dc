import HTTP
import ReplayLog
import StreamProtocol
import StreamRuntime

/// The stream of an answer, which the request of a response has made.
struct MadeAnswer {
  /// False: it was there.
  let isNew: Bool
}

/// A request of a client for an upstream, whose answer is a stream. Its body is read whole before the upstream is asked.
final class AskingRequest: PendingResponse {
  /// The answer for the client.
  enum Reply {
    /// The name of the stream.
    case name
    /// The stream.
    case events
    /// The answer as that of the upstream.
    case relayed
  }

  private let name: String
  private let type: String?
  private let reply: Reply
  private var decoder: BodyDecoder
  private var body: [UInt8] = []
  /// Whether the body is complete, and the stream is being made.
  private var isAsking = false

  fileprivate init(
    _ request: HTTPRequest, _ name: String, type: String?, _ decoder: BodyDecoder, _ reply: Reply, on http: HTTPSpeaker
  ) {
    (self.name, self.type, self.decoder, self.reply) = (name, type, decoder, reply)
    super.init(request, on: http)
  }

  override var heldByteCount: Int { http.heldByteCount + body.count }
  override var holdsInput: Bool { isAsking }

  override func read(_ bytes: Span<UInt8>, _ offset: inout Int) {
    guard !isAsking else { return http.stash(bytes, &offset) }
    do throws(Rejection) {
      loop: while true {
        switch try decoder.next(in: bytes, from: &offset) {
        case .data(let range):
          try checkSize(body.count + range.count)
          unsafe bytes.extracting(range).withUnsafeBytes { unsafe body.append(contentsOf: $0) }
        case .needsBytes: return connection.setClock(after: http.times.stallTime)
        case .end: break loop
        }
      }
    } catch {
      offset = bytes.count
      return end(error)
    }
    ask()
    if isInProgress { http.stash(bytes, &offset) }
  }

  fileprivate func checkSize(_ byteCount: Int) throws(Rejection) {
    let limit = worker.limits.requestBytes
    guard byteCount > limit else { return }
    throw Rejection(of: .init(.tooLarge, "the body has more than \(limit) bytes (max_request)"))
  }

  private func ask() {
    guard !body.isEmpty else { return end(.withoutBody) }
    isAsking = true
    connection.clearClock()
    connection.ask(name, StreamRequest(body: body, type: type)) { [weak self] failure, isNew in
      self?.answer(failure, isNew: isNew)
    }
  }

  private func answer(_ failure: RequestFailure?, isNew: Bool) {
    guard isInProgress else { return }
    body = []
    connection.speak(http)
    do throws(Rejection) {
      if let failure { throw http.rejection(.init(name, failure)) }
      try respond(MadeAnswer(isNew: isNew))
    } catch {
      http.countRefusal(error)
      http.respond(error, to: request)
    }
    connection.settle()
    _ = connection.flush()
  }

  private func respond(_ made: MadeAnswer) throws(Rejection) {
    if case .name = reply {
      return http.respond(
        made.isNew ? .created : .ok, to: request, "text/plain; charset=utf-8", Array("\(name)\n".utf8)
      ) {
        $0.add("Location", "/streams/" + name)
      }
    }
    let stream = try http.readableStream(name, adding: 1)
    if case .relayed = reply { return RelayedAnswer.begin(stream, made, request, on: http) }
    try http.beginStreaming(
      [stream], as: .serverSentEvents, request, try StreamQuery([]), lastEventID: nil, made: made)
  }

  private func end(_ rejection: Rejection) {
    http.countRefusal(rejection)
    http.respond(rejection, to: request.keeping(decoder.isDone))
  }

  // MARK: The end

  override func inputEnded() {
    if !isAsking { end(Rejection(.badRequest, "the request's body is cut off")) }
  }

  override func timeIsOver() {
    let time = http.times.stallTime.components.seconds
    end(Rejection(.requestTimeout, "the request's body did not arrive for \(time) s"))
  }

  /// The next process knows the stream if this one has made it: the same request then has it.
  override func save(to saved: inout SavedHTTP) {
    http.respond(Rejection(of: .notHandedOver), to: request.keeping(decoder.isDone))
  }
}

/// Waits for the first event of an answer, and relays it, or says what the upstream has said in its place.
final class RelayedAnswer: PendingResponse {
  private let made: MadeAnswer
  private let name: String

  private init(_ request: HTTPRequest, _ name: String, _ made: MadeAnswer, on http: HTTPSpeaker) {
    (self.name, self.made) = (name, made)
    super.init(request, on: http)
  }

  static func begin(_ stream: ServedStream, _ made: MadeAnswer, _ request: HTTPRequest, on http: HTTPSpeaker) {
    let answer = RelayedAnswer(request, stream.name, made, on: http)
    http.connection.speak(answer)
    http.connection.clearClock()
    answer.awaitEvent(of: stream, from: .replay)
  }

  /// The stream has an event.
  override func answer(_ subscription: StreamSubscription) {
    let stream = subscription.lane.stream
    connection.remove(subscription)
    let encoding = stream.configuration.hasEnvelopes ? EventEncoding.relayedWithNames : .relayed
    let response = StreamingResponse(
      request, encoding, isChunked: request.allowsChunks, [name], follows: true, on: http)
    response.made = made
    connection.speak(response)
    if response.relay(stream) { response.begin() }
  }

  override func sendCompletion(_ id: RequestID) {
    http.respond(.ok, to: request, EventEncoding.Format.serverSentEvents.mediaType, [])
  }

  override func sendFailure(_ id: RequestID, _ failure: RequestFailure) {
    guard failure.reason == .failed,
      case .failure(let failure)? = worker.streams[name]?.log.read({ _, completion in completion }),
      let refusal = failure.refusal, ![204, 304].contains(refusal.status)
    else { return answer(Rejection(of: failure), insteadOf: id) }
    http.respond(with: refusal, of: name, to: request)
  }

  /// A restart ends the answer in any case.
  override func save(to saved: inout SavedHTTP) {
    connection.endSubscriptions()
    http.respond(Rejection(of: .notHandedOver), to: request)
  }
}

extension Rejection {
  fileprivate static var withoutBody: Self {
    Self(of: .init(.invalidRequest, "the request has no body, which is what the upstream is asked"))
  }
}

extension HTTPSpeaker {
  /// PUT or POST of a request whose answer is a stream.
  func ask(_ name: String, _ head: RequestHead, _ origin: String?, isRelayed: Bool = false) throws(Rejection) {
    if !isRelayed { try refuseParameters(of: head) }
    let request = HTTPRequest(
      isHead: false, keepsConnection: head.keepsConnection, allowsChunks: head.version == .http11, allowedOrigin: origin
    )
    do throws(Connection.Refusal) {
      // The rights are known before the body is read.
      _ = try connection.neededStream(name, for: .asking)
      try connection.checkRequests(of: name, adding: 1)
    } catch {
      throw rejection(error)
    }
    guard !head.hasContentCoding else {
      throw Rejection(.unsupportedMediaType, "the body has a Content-Encoding: send it without one")
    }
    var reply = isRelayed ? AskingRequest.Reply.relayed : .name
    let types = ["text/plain", EventEncoding.Format.serverSentEvents.mediaType].compactMap { MediaType($0) }
    if !isRelayed, MediaType.preferred(head["Accept"], among: types) == 1 { reply = .events }
    let type = head["Content-Type"].map { String($0.prefix(255)) }
    let asking = AskingRequest(request, name, type: type, BodyDecoder(head.framing), reply, on: self)
    if case .length(let count) = head.framing { try asking.checkSize(Int(clamping: count)) }
    connection.speak(asking)
    worker.trace(identity, stream: name, "asks")
    connection.setClock(after: times.stallTime)
    if head.expectsContinue { output += "HTTP/1.1 100 Continue\r\n\r\n".utf8 }
    if head.framing == .none || head.framing == .length(0) {
      var offset = 0
      let nothing: [UInt8] = []
      asking.read(nothing.span, &offset)
    }
  }

  /// Answers as an upstream has answered.
  fileprivate func respond(with refusal: StreamFailure.Refusal, of name: String, to request: HTTPRequest) {
    let status = min(max(refusal.status, 200), 599)
    var head = ResponseHead(code: status, Status(rawValue: status)?.title ?? "Upstream")
    head.addFields(to: request, date: worker.date(), idleTime: request.keepsConnection ? times.idleTime : nil)
    if !refusal.type.isEmpty { head.add("Content-Type", refusal.type) }
    head.add("Content-Length", String(refusal.body.count))
    head.add("Cache-Control", "no-store")
    head.add("Location", "/streams/" + name)
    head.addSandbox()
    head.append(to: &output)
    output += refusal.body
    endExchange(keeps: request.keepsConnection)
  }
}
