import HTTP
import RSocket

/// The answer to a connection that is refused before it is served, in the protocol that its first bytes select. The
/// machine uses no socket and no clock.
struct RefusalMachine {
  /// The reason, as a sentence for the client.
  let sentence: String
  /// The rules for pages of the web that may read the answer; nil: no page of another site may.
  let rules: OriginRules?
  /// The time for a Date field.
  let date: String
  /// A client that sends one of these tokens is not refused; nil: each client is.
  let tokens: ClientTokens?
  /// The token that the client has sent. Then there is no answer.
  private(set) var token: ClientToken?
  /// The head of a request, or with tokens a SETUP, as far as it has arrived, and what has followed.
  private(set) var head: [UInt8] = []
  /// Whether the client speaks HTTP. It may send more bytes than are read.
  private(set) var isHTTP = false
  private var parser = RequestParser()
  private var machine = ConnectionMachine()

  /// Maximum bytes of a SETUP with a token.
  private static let setupByteCount = 8 << 10

  init(_ sentence: String, _ rules: OriginRules?, date: String, tokens: ClientTokens? = nil) {
    (self.sentence, self.rules, self.date, self.tokens) = (sentence, rules, date, tokens)
  }

  /// Takes bytes of the client, at least one.
  /// - Returns: the answer; nil while a part of a request's head, or of a SETUP with a token, is missing, and for a
  ///   client that has sent a token.
  mutating func receive(_ bytes: some Collection<UInt8>) -> [UInt8]? {
    if head.isEmpty, let first = bytes.first { isHTTP = HTTPConnection.speaks(first) }
    guard isHTTP else { return receiveSetup(Array(bytes)) }
    head += bytes
    let all = head
    do throws(Rejection) {
      guard let request = try parser.parse(all.span) else { return nil }
      token = request.bearerToken.flatMap { tokens?[$0.utf8] }
      return token == nil ? try answer(to: request) : nil
    } catch {
      return answer(error, to: HTTPRequest(malformed: head))
    }
  }

  private mutating func receiveSetup(_ bytes: [UInt8]) -> [UInt8]? {
    guard let tokens else { return error }
    head += bytes
    var events: [ConnectionMachine.Event] = []
    unsafe bytes.withUnsafeBytes {
      _ = unsafe machine.receive($0, gathersValues: false, frameLimit: 1, into: &events)
    }
    guard case .setup(let setup)? = events.first else {
      return events.isEmpty && head.count < Self.setupByteCount ? nil : error
    }
    let secret = try? machine.metadataFormat.bearerToken(in: setup.payload.metadata)
    token = secret.flatMap { tokens[$0] }
    return token == nil ? error : nil
  }

  /// The answer to a client that sends no more in time.
  var lateAnswer: [UInt8] { isHTTP ? answer(unavailable, to: HTTPRequest(malformed: head)) : error }

  /// The answer to a request whose head has been read.
  /// - Parameter accepted: for a publisher, the number of values that are in the stream.
  func answer(to request: HTTPRequest, accepted: UInt64? = nil) -> [UInt8] {
    answer(unavailable, accepted: accepted, to: request)
  }

  private var unavailable: Rejection { Rejection(.serviceUnavailable, sentence) }

  private var error: [UInt8] {
    var machine = ConnectionMachine()
    machine.close(.rejectedSetup, sentence)
    return machine.takeOutput()
  }

  private func answer(to head: RequestHead) throws(Rejection) -> [UInt8] {
    let request = HTTPRequest(head, allowedOrigin: try rules?.check(head))
    guard HTTPRequest.isForEvents(head) else { return answer(to: request, accepted: head.method == .post ? 0 : nil) }
    let body = ServerSentEvents.retryLater(reason: sentence)
    var response = ResponseHead(.ok, to: request, date: date, keeps: false)
    response.addFields(ofEventsAs: EventEncoding.Format.serverSentEvents.mediaType)
    return Self.bytes(of: response, body, to: request)
  }

  private func answer(_ rejection: Rejection, accepted: UInt64? = nil, to request: HTTPRequest) -> [UInt8] {
    var problem = Problem(rejection)
    problem.accepted = accepted
    var response = ResponseHead(rejection.status, to: request, date: date, keeps: false)
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
