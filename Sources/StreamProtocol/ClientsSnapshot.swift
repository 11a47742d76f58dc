/// The object of `$clients`. Source of the meanings: `docs/WIRE.md`, "System streams".
package struct ClientsSnapshot: Codable, Equatable, Sendable {
  /// One connection.
  package struct Client: Codable, Equatable, Sendable {
    /// Counted from 1 since the start of the daemon.
    package var id: UInt64
    /// `rsocket`, `http` or `websocket`.
    package var `protocol`: String
    /// The user id of a client of a Unix socket.
    package var user: UInt32?
    package var process: Int32?
    /// The name of the process, from the kernel.
    package var command: String?
    /// The address of a client over TCP.
    package var address: String?
    /// The name of its token.
    package var token: String?
    /// Since when it is connected to this process, in microseconds since the Unix epoch.
    package var since: UInt64?
    /// Bytes written to its socket, of everything.
    package var bytesOut: UInt64
    /// The number of stored events that it has not been sent, of all its subscriptions.
    package var lag: UInt64 = 0
    /// The subscriptions with the most lag.
    package var subscriptions: [Subscription]?
    /// The streams that it publishes to, not all if there are many.
    package var publishes: [String]?
    /// The number of subscriptions and streams that are not shown.
    package var more: Int?

    package init(id: UInt64, `protocol`: String, bytesOut: UInt64) {
      (self.id, self.protocol, self.bytesOut) = (id, `protocol`, bytesOut)
    }

    private enum CodingKeys: String, CodingKey {
      case id, `protocol`, user, process, command, address, token, since, lag, subscriptions, publishes, more
      case bytesOut = "bytes_out"
    }
  }

  /// One request for events.
  package struct Subscription: Codable, Equatable, Sendable {
    package var stream: String
    /// The number of events that it has requested and not been sent; absent: unlimited.
    package var credit: UInt64?
    /// The number of stored events that it has not been sent, or, as a map's reader, not read.
    package var lag: UInt64
    /// Whether it is the demand of a map's reader; absent: no.
    package var map: Bool?

    package init(stream: String, credit: UInt64?, lag: UInt64, map: Bool? = nil) {
      (self.stream, self.credit, self.lag, self.map) = (stream, credit, lag, map)
    }
  }

  /// Sorted by number.
  package var clients: [Client]
  /// The number of connections that are not shown: those with the least lag.
  package var others: Int?

  package init(clients: [Client], others: Int?) { (self.clients, self.others) = (clients, others) }
}
