extension Configuration {
  /// `[cluster]`: the fleet of hosts that share streams with `Share.fleet`, and the brokers that connect them.
  struct Cluster: Sendable, Equatable {
    /// URLs of NATS servers: 1 to 16 of at most 512 bytes, all of scheme `nats` or all of scheme `tls`, without user,
    /// password and path.
    var servers: [String] = []
    /// The fleet's name: letters, digits, `-` and `_`; 1 to 64 bytes. Streams of JetStream and subjects begin with it.
    var name = ""
    /// The number of logs to which the fleet's streams are distributed, 1 to 256; the same on all hosts.
    var shards = 16
    /// The number of servers that store each log: 1, 3 or 5.
    var replicas = 3
    /// Maximum bytes of each log; the oldest records are removed. 16 MiB to 1 TiB.
    var shardBytes = 1 << 30
    /// How long a subscription waits for the event after which it resumes, while this host does not have it.
    var resumeWait = Duration.seconds(5)
    /// `nil`: the servers require none, or the client certificate is enough.
    var login: ClusterLogin?
    /// Path of a PEM file with the only trusted authorities, for TLS; `nil`: the system's.
    var authorities: String?
    /// The client certificate for TLS, with a key that has no passphrase; `nil`: none is sent.
    var identity: Identity?
  }

  /// How a host proves to the NATS servers which user it is.
  enum ClusterLogin: Sendable, Equatable {
    /// The content of a file of credentials, with several lines: a user's JWT and the seed of its key.
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

  /// The hosts with which a stream is shared.
  enum Share: String, CaseIterable, Sendable {
    /// None: the stream is for clients of this host.
    case host
    /// All hosts of the fleet, see `Cluster`.
    case fleet
  }

  /// Maximum bytes of one event of a stream with `Share.fleet`: half of a record of the fleet, which also has the state of
  /// the stream's pipeline.
  static let maximumFleetEventBytes = 32 << 20
}

extension Configuration.Cluster: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init(["nats"], \.servers, .restart, read: readServers),
    .init(required: "name", suchAs: "name = \"prod\"", \.name, .fleetName, .restart),
    .init("shards", \.shards, .count(1...256), .restart),
    .init("replicas", \.replicas, .replicas, .restart),
    .init("shard_bytes", \.shardBytes, .size(16 << 20...1 << 40), .restart),
    .init("resume_wait", \.resumeWait, .duration(from: .zero), .restart),
    .init(
      ["creds", "nkey", "nkey_seed", "token", "user", "password"], \.login, .restart,
      changes: { old, new in
        let keys = [old, new].compactMap { $0?.key }
        return keys.first == keys.last ? Array(keys.prefix(1)) : keys
      }, read: { table, login in login = readLogin(table) }),
    .init(["ca_file"], \.authorities, .restart) { $1 = $0.file("ca_file", label: "CERTIFICATE") },
    .init(
      ["client_certificate", "client_key"], \.identity, .restart,
      changes: { old, new in
        (old?.certificate == new?.certificate ? [] : ["client_certificate"])
          + (old?.key == new?.key ? [] : ["client_key"])
      }, read: readIdentity),
    .check { table, cluster in
      if cluster.servers.first?.lowercased().hasPrefix("nats:") == true {
        table.refuse(["ca_file", "client_certificate"], onlyWith: "servers of scheme tls")
      }
    },
  ]

  private static func readServers(_ table: ConfigurationTable, _ servers: inout [String]) {
    table.require("nats", suchAs: "nats = [\"tls://nats.example.org:4222\"]")
    servers = table.values("nats", .natsServer, mayBeEmpty: false) ?? []
    if servers.count > 16 {
      table.addError("expected at most 16 servers, got \(servers.count)", at: "nats")
    } else if Set(servers.map { $0.prefix { $0 != ":" }.lowercased() }).count > 1 {
      table.addError("expected servers of scheme nats or of scheme tls, got both", at: "nats")
    }
  }

  private static func readIdentity(_ table: ConfigurationTable, _ identity: inout Configuration.Identity?) {
    identity = table.certificateAndKey().map { Configuration.Identity(certificate: $0.certificate, key: $0.key) }
    if let identity, isEncrypted(identity.key) {
      table.addError(
        "expected a key without a passphrase", at: table.holds("client_key") ? "client_key" : "client_certificate")
    }
  }

  /// Whether a key in PEM has a passphrase, for which the TLS library would ask at the terminal.
  private static func isEncrypted(_ path: String) -> Bool {
    guard let text = try? readFile(at: path, limit: 16 << 20) else { return false }
    return String(decoding: text, as: UTF8.self).contains("ENCRYPTED")
  }

  /// `creds`, `nkey` with `nkey_seed`, `user` with `password`, or `token`.
  private static func readLogin(_ table: ConfigurationTable) -> Configuration.ClusterLogin? {
    let creds = table.secret(
      "creds", is: "a user's JWT and the seed of its key, as in a file of nsc", allowsLines: true
    ) { $0.contains("-BEGIN NATS USER JWT-") && $0.contains("-BEGIN USER NKEY SEED-") }
    let key = table.value(
      "nkey", .text("a user's public key, U and 55 letters and digits more") { isKey($0, prefix: "U", count: 56) },
      secret: true)
    let seed = table.secret("nkey_seed", is: "the seed of a user's key, SU and 56 letters and digits more") {
      isKey($0, prefix: "SU", count: 58)
    }
    let token = table.secret("token")
    let hasUser = table.holds("user") || table.holds("password")
    let user = hasUser ? table.login() : nil
    for (first, second) in [("nkey", "nkey_seed"), ("nkey_seed", "nkey")]
    where table.holds(first) && !table.holds(second) {
      table.addError("expected \(second) with \(first), got none", lacking: [second])
    }
    let ways =
      ["creds", "nkey", "token"].filter { table.holds($0) }
      + (hasUser ? [table.holds("user") ? "user" : "password"] : [])
    if ways.count > 1 {
      table.addError("expected one of creds, nkey, token and user, got \(ways.joined(separator: " and "))", at: ways[1])
    }
    return creds.map(Configuration.ClusterLogin.creds) ?? token.map(Configuration.ClusterLogin.token)
      ?? user.map(Configuration.ClusterLogin.user) ?? key.flatMap { key in seed.map { .nkey(key, seed: $0) } }
  }

  /// Whether `text` may be a key of NATS: base32 (RFC 4648), the type in its first letters.
  private static func isKey(_ text: String, prefix: String, count: Int) -> Bool {
    text.hasPrefix(prefix) && text.utf8.count == count
      && text.utf8.allSatisfy { (0x41...0x5a).contains($0) || (0x32...0x37).contains($0) }
  }
}

extension ConfigurationShape where Value == String {
  /// The URL of a NATS server.
  fileprivate static var natsServer: Self {
    Self { node throws(Expected) in
      let form = Expected("a URL such as \"tls://nats.example.org:4222\", without a path")
      let schemes = ["nats://", "tls://"]
      guard case .string(let text) = node.value, text.utf8.count <= 512, schemes.contains(where: text.hasPrefix) else {
        throw form
      }
      do throws(UpstreamURL.Fault) {
        try UpstreamURL.checkServer(text, schemes: schemes)
        return text
      } catch {
        switch error {
        case .noURL: throw form
        case .holdsCredentials:
          throw Expected("a URL without a user or password (use creds, nkey, token, or user and password)")
        case .holdsVariable: throw Expected("a URL without ${…} (no variable is replaced in it)")
        }
      }
    }
  }

  /// The name of a fleet, which is a part of subjects and of names of JetStream's streams.
  fileprivate static var fleetName: Self {
    text("a name of letters, digits, \"-\" and \"_\", at most 64 bytes") { $0.isName(upTo: 64, with: "-_") }
  }
}

extension ConfigurationShape where Value == Int {
  /// How many servers store a log. An even number would not let more of them fail.
  fileprivate static var replicas: Self {
    Self(write: { "\($0)" }) { node throws(Expected) in
      guard case .integer(let number) = node.value, [1, 3, 5].contains(number) else { throw Expected("1, 3 or 5") }
      return number
    }
  }
}
