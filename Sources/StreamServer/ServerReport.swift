import StreamRuntime

/// A client, as log lines name it.
public struct ClientIdentity: Equatable, Sendable {
  /// Number of the connection, counted from 1 since the start.
  public let number: UInt64
  /// Nil for a client without credentials.
  public let credentials: PeerCredentials?
}

extension ClientIdentity {
  /// The subject of sentences about what its user may.
  public var user: String { credentials.map { "uid \($0.user)" } ?? "a client without credentials" }
}

extension ClientIdentity: CustomStringConvertible {
  /// `client 12 (uid 1000, pid 4711)`
  public var description: String {
    "client \(number)" + (credentials.map { " (uid \($0.user), pid \($0.process))" } ?? "")
  }
}

/// What the server reports to its owner; on the event loops, so the receiver must not block.
public enum ServerReport: Sendable {
  /// A request or a connection was turned away, with the sentence that the client got.
  case clientRefused(ClientIdentity, stream: String?, reason: String)
  /// A client broke the protocol or fell silent, and its connection was closed.
  case clientDropped(ClientIdentity, reason: String)
  /// A subscriber found its place gone; `lost` events never reached it.
  case clientLagged(ClientIdentity, stream: String, lost: UInt64)
  /// The source of a lossless stream waits for a subscription that stalls; once for each stall.
  case clientHoldsUp(ClientIdentity, stream: String, unread: UInt64)
  /// One that did so for the stream's whole timeout; its request has been ended.
  case clientCutOff(ClientIdentity, stream: String, unread: UInt64)
  /// Values that a client published by fire-and-forget were dropped: their stream waits for its subscribers.
  case valuesDropped(ClientIdentity, stream: String, count: Int)
  /// No more connections can be taken for the moment.
  case acceptingPaused(SystemError)
  /// The configured number of connections is reached.
  case connectionLimitReached(Int)
  /// The user of the client has so many connections, which is its configured number, or else its part while so many are
  /// left.
  case userConnectionLimitReached(ClientIdentity, Int, left: Int?)
  /// What a client does, such as `publishes`: for diagnosis, only where details are wanted.
  case clientActs(ClientIdentity, stream: String?, what: String)
  /// Events too large for their stream's buffer were dropped.
  case eventsTooLarge(stream: String, count: Int, limit: Int)
}
