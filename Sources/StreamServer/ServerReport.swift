import ReplayLog
import StreamRuntime

/// A client, as named in log entries.
public struct ClientIdentity: Equatable, Sendable {
  /// The connection's number, counted from 1 since the start.
  public let number: UInt64
  private var proof: Proof?

  /// One property for both kinds saves memory: each connection has one.
  private enum Proof: Equatable {
    case credentials(PeerCredentials)
    case token(ClientToken)
  }

  /// - Parameter token: without effect beside credentials.
  init(number: UInt64, credentials: PeerCredentials?, token: ClientToken? = nil) {
    self.number = number
    proof = credentials.map { .credentials($0) } ?? token.map { .token($0) }
  }

  /// The client's credentials, from the kernel; nil for a client without them.
  public var credentials: PeerCredentials? {
    if case .credentials(let credentials)? = proof { credentials } else { nil }
  }

  /// The client's token; nil for one without, or with credentials.
  public internal(set) var token: ClientToken? {
    get { if case .token(let token)? = proof { token } else { nil } }
    set { if credentials == nil { proof = newValue.map { .token($0) } } }
  }
}

extension ClientIdentity {
  /// The subject of messages about its user's access.
  public var user: String {
    credentials.map { "uid \($0.user)" } ?? token.map { "token \"\($0.name)\"" } ?? "a client without credentials"
  }

  /// - Parameter descriptor: the descriptor of the client's connection.
  func user(of descriptor: CInt) -> ClientUser {
    token.map { .token($0.name) } ?? ClientUser(credentials, of: descriptor)
  }
}

extension ClientIdentity: CustomStringConvertible {
  /// `client 12 (uid 1000, pid 4711)`
  public var description: String {
    "client \(number)"
      + (credentials.map { " (uid \($0.user), pid \($0.process))" } ?? token.map { " (token \($0.name))" } ?? "")
  }
}

/// An event that the server reports to its owner; on the event loops, so the receiver must not block.
public enum ServerReport: Sendable {
  /// A request or a connection was rejected, with the message that the client received.
  case clientRefused(ClientIdentity, stream: String?, reason: String)
  /// A client violated the protocol or was silent for too long, and its connection was closed.
  case clientDropped(ClientIdentity, reason: String)
  /// A subscription has fallen behind; `lost` events were not sent to it.
  case clientLagged(ClientIdentity, stream: String, lost: UInt64)
  /// The source of a lossless stream waits for a subscription that stalls; once for each stall.
  case clientHoldsUp(ClientIdentity, stream: String, unread: UInt64)
  /// A subscription stalled the stream for the timeout; its request was ended.
  case clientCutOff(ClientIdentity, stream: String, unread: UInt64)
  /// Values of fire-and-forget requests were dropped: their stream waits for its subscribers.
  case valuesDropped(ClientIdentity, stream: String, count: Int)
  /// No connections are accepted for the moment.
  case acceptingPaused(SystemError)
  /// The configured number of connections is reached.
  case connectionLimitReached(ClientIdentity, Int)
  /// The clients without credentials have this number of connections together, which is their share while `left` are
  /// free.
  case hostConnectionLimitReached(ClientIdentity, Int, left: Int)
  /// The client's user has reached its limit of connections: the configured one, or else its share while `left`
  /// connections are free.
  case userConnectionLimitReached(ClientIdentity, Int, left: Int?)
  /// A client's action, such as `publishes`: for diagnosis, only if details are enabled.
  case clientActs(ClientIdentity, stream: String?, what: String)
  /// What happens to the streams of a template, by the text of its name.
  case template(String, TemplateReport)
  /// Neither an event nor a successful fetch has come for longer than the stream's limit; once for each change.
  case streamStale(stream: String, limit: Duration)
  /// A stream is no longer stale: an event or a fetch has come, or its source is idle.
  case streamNotStale(stream: String, isIdle: Bool)
  /// The state of a stream's keys lacks events, and is refused; once for each change.
  case stateIncomplete(stream: String, KeyedState.Incompleteness)
  /// A state that was incomplete is complete: its limits were raised.
  case stateComplete(stream: String)
  /// There is no memory for a stream's map.
  case mapFailed(stream: String, SystemError)
  /// Events that waited for space in their stream are lost, because it was removed, or the server stops without a next
  /// process.
  case waitingEventsLost(stream: String, count: Int)
  /// Events too large for their stream's buffer were dropped.
  case eventsTooLarge(stream: String, count: Int, limit: Int)
}

/// What happens to the streams of a template.
public enum TemplateReport: Sendable, Equatable {
  /// A client has asked for a stream, which was made; for diagnosis.
  case made(stream: String)
  /// A stream was forgotten, or a client has deleted it; for diagnosis.
  case forgotten(stream: String)
  /// A client gets no stream, because too many are in use; at most once a minute.
  case full(reason: String)
}
