import RSocket
import StreamProtocol

/// The reasons for the end of a connection to another streamd, as sentences. None has a text of the other side: it might be
/// the token that was sent to it.
extension PeerMachine.Ending {
  private init(_ sentence: String) { self.init(failure: SourceFailure(sentence)) }

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
  /// - Parameter id: the id after which it has resumed; nil: none, or events have come.
  init(_ code: ErrorCode, _ message: String, _ configuration: PeerConfiguration, resumedAfter id: UInt64?) {
    let name = configuration.stream
    switch FailureReason(code: code.rawValue, sentence: message) {
    case .noStream?: self.init("the other streamd has no stream \"\(name)\"")
    case .mayNotRead?:
      self.init("the other streamd does not let this one read \"\(name)\": see read of the stream there")
    case .unknownPosition?:
      guard let id else {
        self.init(ErrorCode.invalid)
        return
      }
      self.init("the other streamd has no event with the id \(id), after which this stream continues")
      isOfPosition = true
    case .stopping?, .restarting?: self.init("the other streamd has stopped")
    case _: self.init(code.base)
    }
  }

  /// The subscription has ended for another reason.
  private init(_ code: ErrorCode) {
    switch code {
    case .rejected: self.init("the other streamd refuses the subscription: a limit is reached there")
    case .invalid: self.init("the other streamd does not accept the subscription's options")
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
    switch code.base {
    case .rejectedSetup where FailureReason(code: code.rawValue, sentence: message) == .invalidToken:
      self.init("the token is not valid for the other streamd")
    case .rejectedSetup: self.init("the other streamd refuses the connection: a limit is reached there")
    case .connectionClose: self.init("the other streamd has closed the connection")
    case let code: self.init("the other side has closed the connection with \(code)")
    }
  }
}
