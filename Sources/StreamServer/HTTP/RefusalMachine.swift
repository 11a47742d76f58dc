import HTTP
import RSocket
import StreamProtocol

/// The answer to a connection that is refused before it is served, in the protocol that its first bytes select. The
/// machine uses no socket and no clock.
struct RefusalMachine {
  /// The reason, as a sentence for the client.
  let sentence: String
  /// The same, for programs.
  let reason: FailureReason
  /// The rules for pages of the web that may read the answer; nil: no page of another site may.
  let rules: OriginRules?
  /// The time for a Date field.
  let date: String
  /// A client that sends one of these tokens, or a ticket of one, is not refused; nil: each client is.
  let tokens: ClientTokens?
  /// The token that the client has sent. Then there is no answer.
  private(set) var token: ClientToken?
  /// The head of a request, or a SETUP, as far as it has arrived, and what has followed.
  private(set) var head: [UInt8] = []
  /// Whether the client speaks HTTP. It may send more bytes than are read.
  private(set) var isHTTP = false
  private var parser = RequestParser()
  /// Reads the SETUP of a client that speaks RSocket: it says whether the client knows reasons, and may have a token.
  private var machine = ConnectionMachine()

  /// Maximum bytes of a SETUP that is read.
  private static let setupByteCount = 8 << 10

  init(
    _ sentence: String, _ rules: OriginRules?, reason: FailureReason = .tooManyConnections, date: String,
    tokens: ClientTokens? = nil
  ) {
    (self.sentence, self.rules, self.reason, self.date, self.tokens) = (sentence, rules, reason, date, tokens)
  }

  /// Takes bytes of the client, at least one.
  /// - Returns: the answer; nil while a part of a request's head, or of the SETUP, is missing, and for a client that has
  ///   sent a token.
  mutating func receive(_ bytes: some Collection<UInt8>) -> [UInt8]? {
    if head.isEmpty, let first = bytes.first { isHTTP = HTTPSpeaker.speaks(first) }
    guard isHTTP else { return receiveSetup(Array(bytes)) }
    head += bytes
    let all = head
    do throws(Rejection) {
      guard let request = try parser.parse(all.span) else { return nil }
      token = request.bearerToken.flatMap { tokens?[$0.utf8] }
      if token == nil, request.method == .get, let ticket = request.tickets.first {
        token = tokens?.token(ofTicket: ticket, isUsed: false)
      }
      return token == nil ? try answer(to: request) : nil
    } catch {
      return answer(error, to: HTTPRequest(malformed: head))
    }
  }

  private mutating func receiveSetup(_ bytes: [UInt8]) -> [UInt8]? {
    head += bytes
    var events: [ConnectionMachine.Event] = []
    unsafe bytes.withUnsafeBytes { bytes in
      var offset = 0
      while offset < bytes.count, events.isEmpty {
        let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[offset...])
        unsafe offset += machine.receive(rest, gathersValues: false, frameLimit: 1, into: &events)
      }
    }
    guard case .setup(let setup)? = events.first else {
      return events.isEmpty && head.count < Self.setupByteCount ? nil : error
    }
    machine.knowsReasons = FailureReason.areAnnounced(by: setup.payload.data)
    let secret = try? machine.metadataFormat.bearerToken(in: setup.payload.metadata)
    token = secret.flatMap { tokens?[$0] }
    return token == nil ? error : nil
  }

  /// The answer to a client that sends no more in time.
  var lateAnswer: [UInt8] { isHTTP ? answer(unavailable, to: HTTPRequest(malformed: head)) : error }

  /// The answer to a request whose head has been read.
  /// - Parameter accepted: for a publisher, the number of values that are in the stream.
  func answer(to request: HTTPRequest, accepted: UInt64? = nil) -> [UInt8] {
    answer(unavailable, accepted: accepted, to: request)
  }

  private var unavailable: Rejection { Rejection(of: .init(reason, sentence)) }

  private var error: [UInt8] {
    var machine = ConnectionMachine()
    machine.knowsReasons = self.machine.knowsReasons
    machine.close(ErrorCode(reason, over: .rejectedSetup), sentence)
    return machine.takeOutput()
  }

  private func answer(to head: RequestHead) throws(Rejection) -> [UInt8] {
    let request = HTTPRequest(head, allowedOrigin: try rules?.check(head))
    guard HTTPRequest.isForEvents(head) else { return answer(to: request, accepted: head.method == .post ? 0 : nil) }
    let body = ServerSentEvents.retryLater(unavailable)
    var response = ResponseHead(.ok, to: request, date: date, idleTime: nil)
    response.addFields(ofEventsAs: EventEncoding.Format.serverSentEvents.mediaType)
    return Self.bytes(of: response, body, to: request)
  }

  private func answer(_ rejection: Rejection, accepted: UInt64? = nil, to request: HTTPRequest) -> [UInt8] {
    var problem = Problem(rejection)
    problem.accepted = accepted
    var response = ResponseHead(rejection.status, to: request, date: date, idleTime: nil)
    response.add("Content-Type", Problem.mediaType)
    response.addFields(of: rejection)
    return Self.bytes(of: response, problem.body, to: request)
  }

  private static func bytes(of head: ResponseHead, _ body: [UInt8], to request: HTTPRequest) -> [UInt8] {
    var (head, bytes) = (head, [UInt8]())
    head.add("Content-Length", String(body.count))
    head.append(to: &bytes)
    return request.isHead ? bytes : bytes + body
  }
}
