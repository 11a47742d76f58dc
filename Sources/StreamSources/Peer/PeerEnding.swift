import RSocket

/// The reasons for the end of a connection to another streamd, as sentences. None has a text of the other side: it might be
/// the token that was sent to it.
extension PeerMachine.Ending {
  private init(_ sentence: String) { self.init(failure: HTTPFailure(sentence)) }

  /// The stream's source there has ended for good, or until a reload.
  static let completed = Self("the stream of the other streamd has ended")
  static let withoutID = Self("events come without an id: the other side is no streamd")
  static let outOfOrder = Self("an event has come again, or out of order")
  static let silent = Self("the other streamd has sent nothing for \(PeerMachine.patience.inWords)")
  static let unanswered = Self("the other streamd has not answered within \(PeerMachine.patience.inWords)")
  static let closed = Self("the other streamd has closed the connection")
  static let unread = Self("the other streamd does not read what is sent to it")

  /// The subscription has ended.
  ///
  /// - Parameter lastID: the id after which it has resumed or continued.
  init(_ code: ErrorCode, _ message: String, _ configuration: PeerConfiguration, after lastID: UInt64?) {
    let name = configuration.stream
    switch code {
    case .rejected where message == "no stream named \"\(name)\"":
      self.init("the other streamd has no stream \"\(name)\"")
    case .rejected where message.hasSuffix(" may not read \"\(name)\""):
      self.init("the other streamd does not let this one read \"\(name)\": see read of the stream there")
    case .rejected: self.init("the other streamd refuses the subscription: a limit is reached there")
    case .invalid where message.hasSuffix(", the limit of the receiver"):
      self.init(failure: .over(configuration.maximumEventBytes, "event"))
    case .invalid:
      if let lastID, message == "no event has the id \(lastID) yet" {
        self.init("the other streamd has no event with the id \(lastID), after which this stream continues")
        isOfPosition = true
      } else {
        self.init("the other streamd does not accept the subscription's options")
      }
    case .canceled where message.hasPrefix("streamd is "): self.init("the other streamd has stopped")
    case .canceled: self.init("the other streamd has ended the subscription")
    case .lagged: self.init("the other streamd has ended the subscription, because its events were not read in time")
    case .applicationError: self.init("the stream of the other streamd has failed")
    case _: self.init("the other streamd has ended the subscription with \(code)")
    }
  }

  /// The connection has ended.
  ///
  /// - Parameter isByPeer: whether the other side has closed it; otherwise it has violated the protocol.
  init(closedWith code: ErrorCode, _ message: String, byPeer isByPeer: Bool) {
    guard isByPeer else {
      self.init("the other side violates the protocol: \(message)")
      return
    }
    switch code {
    case .rejectedSetup where message == "the token is not valid":
      self.init("the token is not valid for the other streamd")
    case .rejectedSetup: self.init("the other streamd refuses the connection: a limit is reached there")
    case .connectionClose: self.init("the other streamd has closed the connection")
    case _: self.init("the other side has closed the connection with \(code)")
    }
  }
}
