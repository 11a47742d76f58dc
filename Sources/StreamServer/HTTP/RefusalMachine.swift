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
  /// The head of a request, as far as it has arrived.
  private var head: [UInt8] = []
  private var parser = RequestParser()

  init(_ sentence: String, _ rules: OriginRules?, date: String) {
    (self.sentence, self.rules, self.date) = (sentence, rules, date)
  }

  /// Whether the client speaks HTTP. It may send more bytes than are read.
  var isHTTP: Bool { !head.isEmpty }

  /// Takes bytes of the client, at least one.
  /// - Returns: the answer; nil while a part of a request's head is missing.
  mutating func receive(_ bytes: some Collection<UInt8>) -> [UInt8]? {
    guard let first = bytes.first, isHTTP || HTTPConnection.speaks(first) else { return error }
    head += bytes
    let all = head
    do throws(Rejection) {
      guard let request = try parser.parse(all.span) else { return nil }
      return try answer(to: request)
    } catch {
      return answer(error, to: HTTPRequest(malformed: head))
    }
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
