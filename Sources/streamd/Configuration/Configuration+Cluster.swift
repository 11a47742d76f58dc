extension Configuration {
  /// `[cluster]`: the fleet of hosts that share streams with `Share.fleet`, and the brokers that connect them.
  struct Cluster: Sendable, Equatable {
    /// URLs of NATS servers: 1 to 16 of at most 512 bytes, all of scheme `nats` or all of scheme `tls`, without user,
    /// password and path.
    var servers: [String]
    /// The fleet's name: letters, digits, `-` and `_`; 1 to 64 bytes. Streams of JetStream and subjects begin with it.
    var name: String
    /// The number of logs to which the fleet's streams are distributed, 1 to 256; the same on all hosts.
    var shards = 16
    /// The number of servers that store each log: 1, 3 or 5.
    var replicas = 3
    /// Maximum bytes of each log; the oldest records are removed. 16 MiB to 1 TiB.
    var shardBytes = 1 << 30
    /// `nil`: the servers require none, or the client certificate is enough.
    var login: ClusterLogin?
    /// Path of a PEM file with the only trusted authorities, for TLS; `nil`: the system's.
    var authorities: String?
    /// For TLS, with a key that has no passphrase; `nil`: no client certificate is sent.
    var identity: Identity?
  }

  /// How a host proves to the NATS servers which user it is.
  enum ClusterLogin: Sendable, Equatable {
    /// The content of a file of credentials: a user's JWT and the seed of its key, with lines.
    case creds(Secret)
    /// A user's public key, `U` and 55 characters more, and its seed, `SU` and 56 characters more.
    case nkey(String, seed: Secret)
    case user(Login)
    case token(Secret)

    /// The key in the file that has the secret.
    var key: String {
      switch self {
      case .creds: "creds"
      case .nkey: "nkey_seed"
      case .user: "password"
      case .token: "token"
      }
    }
  }

  /// With which hosts a stream is shared.
  enum Share: String, CaseIterable, Sendable {
    /// Clients of this host.
    case host
    /// All hosts of the fleet, see `Cluster`.
    case fleet
  }

  /// Maximum bytes of one event of a stream with `Share.fleet`: half of a record of the fleet, which also has the state of
  /// the stream's pipeline.
  static let maximumFleetEventBytes = 32 << 20
}
