/// How a fleet's hosts reach NATS, and what its logs are like.
package struct JetStreamOptions: Sendable {
  /// How a host proves to NATS what it is. Secrets never appear in a message.
  package enum Credentials: Sendable {
    case none
    case password(user: String, password: String)
    case token(String)
    /// The public key ("U…") and its seed ("SU…").
    case nkey(publicKey: String, seed: String)
    /// The content of a credentials file: a user's JWT and the seed of its key.
    case credentials(String)

    var secrets: [String] {
      switch self {
      case .none: []
      case .password(_, let password): [password]
      case .token(let token): [token]
      case .nkey(_, let seed): [seed]
      case .credentials(let content):
        content.split(whereSeparator: \.isNewline).filter { !$0.hasPrefix("-") && !$0.contains(" ") }.map(String.init)
      }
    }
  }

  /// What a log compares when an entry is appended.
  package enum Fence: Sendable {
    /// The last sequence number of the whole log, when the entry is applied: on all replicas alike.
    case log
    /// For tests that must fail: that of the entry's subject, which a leader checks only before it proposes the entry to
    /// the replicas.
    case subject
  }

  /// nats:// or tls://, all alike, without credentials.
  package var servers: [String]
  /// The name of the fleet: part of all subjects. 1 to 64 letters, digits, "-" and "_".
  package var fleet: String
  /// The number of logs, at least 1.
  package var shardCount: Int
  package var credentials = Credentials.none
  /// A PEM file of authorities that are trusted instead of the system's.
  package var authoritiesFile: String?
  /// PEM files of the host's certificate chain and its key; both or none.
  package var certificateFile: String?
  package var keyFile: String?
  /// How many brokers store each log, 1 to 5. For a log that does not exist yet, and the minimum for one that
  /// does.
  package var replicaCount = 3
  /// The maximum size of each log; then its oldest entries are removed. For a log that does not exist yet.
  package var bytesPerShard = 1 << 30
  /// When an answer is not waited for any longer. Half of the shortest time in which brokers elect a leader, so that what
  /// was sent to the former one is soon tried again.
  package var answerTimeout = Duration.seconds(2)
  /// The time for the connection to one server, and after which a message that cannot be written closes the connection.
  package var connectTimeout = Duration.seconds(2)
  /// The connection is closed after about three intervals without a sign of life.
  package var pingInterval = Duration.seconds(2)
  package var fence = Fence.log
  /// The version of this program, which brokers show to their operators.
  package var version = ""

  package init(servers: [String], fleet: String, shardCount: Int) {
    (self.servers, self.fleet, self.shardCount) = (servers, fleet, shardCount)
  }

  /// The size of the largest message that is sent, headers included: brokers must accept it. Precedent: NATS's default.
  static let maximumMessageByteCount = 1 << 20

  /// What is wrong with them: a sentence without its full stop; nil: nothing.
  package var problem: String? {
    let isPlain = { (byte: UInt8) in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
        true
      case _: false
      }
    }
    guard 1...64 ~= fleet.utf8.count, fleet.utf8.allSatisfy(isPlain) else {
      return "the fleet's name is not 1 to 64 letters, digits, \"-\" and \"_\""
    }
    guard 1...1024 ~= shardCount else { return "a fleet has 1 to 1024 shards, not \(shardCount)" }
    guard 1...5 ~= replicaCount else { return "a shard has 1 to 5 replicas, not \(replicaCount)" }
    guard bytesPerShard > 0 else { return "a shard of \(bytesPerShard) bytes stores nothing" }
    guard !servers.isEmpty else { return "no NATS server is given" }
    guard servers.allSatisfy({ NATSServer($0) != nil }) else {
      return "a NATS server is not given as nats:// or tls:// with a host, and without credentials"
    }
    guard usesTLS || !servers.contains(where: { $0.hasPrefix("tls:") }) else {
      return "some NATS servers are given with tls:// and some without"
    }
    guard (certificateFile == nil) == (keyFile == nil) else {
      return "a client certificate for NATS requires both its file and its key's"
    }
    return nil
  }

  /// Whether all servers are reached with TLS.
  var usesTLS: Bool { servers.allSatisfy { $0.hasPrefix("tls:") } }
}
