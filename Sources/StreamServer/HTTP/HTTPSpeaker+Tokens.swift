import HTTP
import StreamProtocol
import StreamRuntime

// The users of requests over TCP: by a token, or by a ticket for one.

extension HTTPSpeaker {
  /// Gives the connection the user of the request's token or ticket, or of the client's host if the request has neither: a
  /// proxy may send the requests of several clients over one connection.
  func authenticate(_ head: RequestHead) throws(Rejection) {
    // A request that begins again, for which a stream was made, has its user.
    guard identity.credentials == nil, !worker.tokens.isEmpty, madeNames.isEmpty else { return }
    var token: ClientToken?
    if head.method != .options, !head.tickets.isEmpty {
      token = try user(ofTicketIn: head)
    } else if let secret = head.bearerToken {
      token = worker.tokens[secret.utf8]
      guard token != nil else { throw refusal(.invalidToken) }
    }
    if let sentence = connection.become(token) { throw Rejection(of: .init(.tooManyConnections, sentence)) }
  }

  /// Uses a ticket up, whatever the answer is.
  private func user(ofTicketIn head: RequestHead) throws(Rejection) -> ClientToken {
    guard head.method == .get else { throw Rejection(.methodNotAllowed, "a ticket is for one GET") }
    let tokens = head.tickets.map { worker.tokens.token(ofTicket: $0, isUsed: true) }
    guard tokens.count == 1, head.bearerToken == nil else {
      throw Rejection(.badRequest, "a request has a token or one ticket")
    }
    guard let token = tokens[0] else { throw refusal(.invalidTicket) }
    return token
  }

  /// Counts and reports that a request has no valid user.
  private func refusal(_ failure: RequestFailure) -> Rejection {
    connection.report(.init(nil, failure), isWithoutToken: true)
    var rejection = Rejection(of: failure)
    rejection.isReported = true
    return rejection
  }

  /// Answers with a ticket for the user of the request's token.
  func issueTicket(_ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    try refuseParameters(of: head)
    let needless: String? =
      identity.credentials != nil
      ? "over a Unix socket the kernel names the user of a request, which needs no ticket"
      : worker.tokens.isEmpty ? "the server has no tokens, so that no request needs a ticket" : nil
    if let needless {
      let rejection = Rejection(.methodNotAllowed, needless)
      countRefusal(rejection)
      return respond(rejection, to: request) { $0.add("Allow", "OPTIONS") }
    }
    guard let token = identity.token else {
      throw Rejection(.unauthorized, "a ticket is for the user of a token, which the request must have")
    }
    guard let ticket = worker.tokens.tickets.issue(to: token) else {
      let most = ClientTickets.mostOfUser
      throw Rejection(of: .init(.tooManyRequests, "\(identity.user) has \(most) open tickets already"))
    }
    let end = EventLoop.wallClock() + UInt64(ClientTickets.lifetime / .microseconds(1))
    let body = "{\"ticket\":\"\(ticket)\",\"expires\":\"\(timestamp(microsecondsSinceEpoch: end))\"}\n"
    respond(.ok, to: request, "application/json", Array(body.utf8)) { $0.add("Cache-Control", "no-store") }
  }
}

extension RequestHead {
  /// The values of the parameter `ticket`.
  var tickets: [String] { target.parameters.filter { $0.name == "ticket" }.map(\.value) }
}
