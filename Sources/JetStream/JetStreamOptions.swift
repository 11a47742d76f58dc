/// How the hosts of a fleet reach NATS, and the properties of its logs.
package struct JetStreamOptions: Sendable {
  /// How a host authenticates itself to NATS. Secrets never appear in a message.
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

  /// The number that is compared when an entry is appended.
  package enum Fence: Sendable {
    /// The last sequence number of the whole log. Every replica compares it when it applies the entry.
    case log
    /// For tests that must fail: the last sequence number of the entry's subject. Only the leader compares it, before
    /// it proposes the entry to the replicas.
    case subject
  }

  /// nats:// or tls:// URLs without credentials, all with the same scheme.
  package var servers: [String]
  /// The name of the fleet: part of all subjects. 1 to 64 letters, digits, "-" and "_".
  package var fleet: String
  /// The number of logs, at least 1.
  package var shardCount: Int
  package var credentials = Credentials.none
  /// A PEM file of the only trusted authorities; nil: the system's.
  package var authoritiesFile: String?
  /// PEM files of the host's certificate chain and its key; both or none.
  package var certificateFile: String?
  package var keyFile: String?
  /// The number of brokers that store each log, 1 to 5. A new log gets this number; an existing log must have at least
  /// as many.
  package var replicaCount = 3
  /// The maximum size of a new log; above it the oldest entries are removed.
  package var bytesPerShard = 1 << 30
  /// The maximum wait for an answer: half of the shortest time in which brokers elect a leader, so that a request to
  /// the former leader is soon repeated.
  package var answerTimeout = Duration.seconds(2)
  /// The maximum time for the connection to one server. A message that cannot be written for this time closes the
  /// connection.
  package var connectTimeout = Duration.seconds(2)
  /// The connection is closed after about three intervals in which nothing arrives.
  package var pingInterval = Duration.seconds(2)
  package var fence = Fence.log
  /// The version of this program, which brokers show to their operators.
  package var version = ""

  package init(servers: [String], fleet: String, shardCount: Int) {
    (self.servers, self.fleet, self.shardCount) = (servers, fleet, shardCount)
  }

  /// The maximum size of a sent message, headers included; brokers must accept it. Precedent: NATS's default.
  static let maximumMessageByteCount = 1 << 20

  /// An error in the options, as a sentence without full stop; nil: there is none.
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

  /// Whether all servers use TLS.
  var usesTLS: Bool { servers.allSatisfy { $0.hasPrefix("tls:") } }
}
