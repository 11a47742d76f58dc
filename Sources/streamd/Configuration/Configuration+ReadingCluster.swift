extension ConfigurationReader {
  /// Reads `[cluster]`.
  ///
  /// - Returns: `nil`, after recording an error, without a server or a name.
  func cluster(_ table: ConfigurationTable) -> Configuration.Cluster? {
    let servers = servers(table)
    if !table.holds("name") {
      table.addError("expected name, such as name = \"prod\", got none", lacking: ["name"])
    }
    let name = table.value("name", .fleetName)
    var cluster = Configuration.Cluster(servers: servers ?? [], name: name ?? "")
    cluster.shards = table.value("shards", .count(1...256), default: cluster.shards)
    cluster.replicas = table.value("replicas", .replicas, default: cluster.replicas)
    cluster.shardBytes = table.value("shard_bytes", .size(16 << 20...1 << 40), default: cluster.shardBytes)
    cluster.login = clusterLogin(table)
    cluster.authorities = file("ca_file", table, label: "CERTIFICATE")
    cluster.identity = certificateAndKey(table).map { Configuration.Identity(certificate: $0.certificate, key: $0.key) }
    if let key = cluster.identity?.key, isEncrypted(key) {
      table.addError(
        "expected a key without a passphrase", at: table.holds("client_key") ? "client_key" : "client_certificate")
    }
    for key in ["ca_file", "client_certificate"]
    where table.holds(key) && servers?.first?.lowercased().hasPrefix("nats:") == true {
      table.addError("expected \(key) only with servers of scheme tls", at: key)
    }
    return servers == nil || name == nil ? nil : cluster
  }

  /// Whether a key in PEM has a passphrase, for which the library would ask at the terminal.
  private func isEncrypted(_ path: String) -> Bool {
    guard let text = try? readFile(at: path, limit: 16 << 20) else { return false }
    return String(decoding: text, as: UTF8.self).contains("ENCRYPTED")
  }

  private func servers(_ table: ConfigurationTable) -> [String]? {
    if !table.holds("nats") {
      table.addError("expected nats, such as nats = [\"tls://nats.example.org:4222\"], got none", lacking: ["nats"])
    }
    guard let servers = table.values("nats", .natsServer) else { return nil }
    if servers.count > 16 {
      table.addError("expected at most 16 servers, got \(servers.count)", at: "nats")
    } else if Set(servers.map { $0.prefix { $0 != ":" }.lowercased() }).count > 1 {
      table.addError("expected servers of scheme nats or of scheme tls, got both", at: "nats")
    }
    return servers.isEmpty ? nil : servers
  }

  /// `creds`, `nkey` with `nkey_seed`, `user` with `password`, or `token`.
  private func clusterLogin(_ table: ConfigurationTable) -> Configuration.ClusterLogin? {
    let creds = secret(
      "creds", table, is: "a user's JWT and the seed of its key, as in a file of nsc", allowsLines: true
    ) { $0.contains("-BEGIN NATS USER JWT-") && $0.contains("-BEGIN USER NKEY SEED-") }
    let key = table.value(
      "nkey", .text("a user's public key, U and 55 letters and digits more") { isKey($0, prefix: "U", count: 56) },
      secret: true)
    let seed = secret("nkey_seed", table, is: "the seed of a user's key, SU and 56 letters and digits more") {
      isKey($0, prefix: "SU", count: 58)
    }
    let token = secret("token", table, is: "a token") { _ in true }
    let hasUser = table.holds("user") || table.holds("password")
    let user = hasUser ? login(table) : nil
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
  private func isKey(_ text: String, prefix: String, count: Int) -> Bool {
    text.hasPrefix(prefix) && text.utf8.count == count
      && text.utf8.allSatisfy { (0x41...0x5a).contains($0) || (0x32...0x37).contains($0) }
  }

  /// Reads `key = { credential = "name" }`, of which the content must satisfy `isValid`; `what` describes it.
  private func secret(
    _ key: String, _ table: ConfigurationTable, is what: String, allowsLines: Bool = false,
    where isValid: (String) -> Bool
  ) -> Secret? {
    table.table(key, expecting: "{ credential = \"name\" }") { table in
      guard let secret = secret(table, allowsLines: allowsLines) else { return nil }
      if unread == nil, !isValid(secret.content) {
        table.addError("expected \(what); the credential \"\(secret.name)\" has something else", at: "credential")
      }
      return secret
    }
  }

  // MARK: Streams

  /// Reads the keys with which a stream is shared with other hosts, after all others but the source's.
  func checkSharing(_ stream: Configuration.Stream, _ table: ConfigurationTable) {
    guard stream.share == .fleet else {
      // After an error in share, its default is no reason for another one.
      if table.holds("lead"), table.text("share") ?? "host" == "host" {
        table.addError("expected lead only with share = \"fleet\"", at: "lead", lacking: ["share"])
      }
      return
    }
    if !hasCluster {
      table.addError("expected share = \"fleet\" only with the section [cluster] in the main file", at: "share")
    }
    if stream.overflow == .block {
      table.addError(
        "expected overflow = \"drop\" with share = \"fleet\": no stream waits for the clients of another host",
        at: "overflow")
    }
    if case .timer(let timer) = stream.source, timer.times != nil {
      table.addError(
        "expected no timer.times with share = \"fleet\": a stream of a fleet does not complete", at: "timer")
    }
    if stream.source == .publish {
      for key in ["distinct", "throttle"] where key == "distinct" ? stream.distinct != .no : stream.throttle != nil {
        table.addError(
          "expected no \(key) with publish and share = \"fleet\": it would apply to the values of each host alone",
          at: key)
      }
    }
    if let (key, bytes) = stream.sourceEventLimit, bytes > Configuration.maximumFleetEventBytes {
      table.addError(
        "expected \(key) of at most 32MiB with share = \"fleet\", got \(bytes) bytes: a larger event does not fit into a "
          + "record of the fleet", at: key.hasPrefix("http") ? "http" : "exec")
    }
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
    text("a name of letters, digits, \"-\" and \"_\", at most 64 bytes") { text in
      (1...64).contains(text.utf8.count)
        && text.unicodeScalars.allSatisfy {
          $0.isASCII && ($0.properties.isAlphabetic || "0123456789-_".unicodeScalars.contains($0))
        }
    }
  }
}

extension ConfigurationShape where Value == Int {
  /// How many servers store a log. With an even number, no more of them may fail.
  fileprivate static var replicas: Self {
    Self(write: { "\($0)" }) { node throws(Expected) in
      guard case .integer(let number) = node.value, [1, 3, 5].contains(number) else { throw Expected("1, 3 or 5") }
      return number
    }
  }
}
