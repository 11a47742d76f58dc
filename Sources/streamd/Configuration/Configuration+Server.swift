import StreamRuntime
import StreamServer
import Systemd

extension Configuration {
  /// `[server]`: the socket and the limits of clients.
  struct Server: Sendable, Equatable {
    /// The path of the Unix socket: absolute, at most 107 bytes, as `sun_path` also has a NUL. Used when the service
    /// manager passes no socket.
    var socket = "/run/streamd/streamd.sock"
    /// The permission bits of `socket`, at most 0o777.
    var mode: UInt32 = 0o660
    /// Further addresses to listen on, over TCP; each once, at most 8.
    var listen: [InternetAddress] = []
    var limits = ServerLimits()
    /// Maximum bytes in memory of the buffers of all streams together; `nil`: see `MemoryBudget`.
    var memory: Int?
    /// The state directory, absolute; `nil`: the unit's StateDirectory=, else `/var/lib/streamd`.
    var state: String?

    /// The state directory if neither the configuration nor the unit sets one.
    static let standardState = "/var/lib/streamd"
  }

  /// `[log]`: the output to the journal or to standard error.
  struct Log: Sendable, Equatable {
    /// The least severe level that is written.
    var level = Journal.Priority.info
  }
}

extension Configuration.Server: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init("socket", \.socket, .path(upTo: 107), .restart),
    .init("mode", \.mode, .mode, .restart),
    .init("listen", \.listen, each: .internetAddress),
    .check { table, server in server.checkListen(table) },
    .init("workers", \.limits.workers, .count(0...1024), .restart),
    .init("max_connections", \.limits.connections, .count(1...1_048_576)),
    .init("max_connections_per_user", \.limits.connectionsPerUser, .count(1...1_048_576)),
    .init("max_requests_per_connection", \.limits.requestsPerConnection, .count(1...1_048_576)),
    .init("max_requests_per_user", \.limits.requestsPerUser, .count(1...1 << 30)),
    .init("max_request", \.limits.requestBytes, .size(1024...(16 << 20) - 1)),
    .init("max_input", \.limits.inputBytes, .size(1 << 20...1 << 40)),
    .init("max_input_per_user", \.limits.inputBytesPerUser, .size(1 << 20...1 << 40)),
    .init("max_lifetime", \.limits.lifetime, .duration()),
    .init("handshake_timeout", \.limits.handshakeTimeout, .duration()),
    .init(["hosts"], \.limits.httpHosts) { $1 = Set($0.values("hosts", .hostName) ?? []) },
    .init(["origins"], \.limits.httpOrigins) { $1 = Set($0.values("origins", .origin) ?? []) },
    .init("memory", \.memory, .size(1 << 20...1 << 50)),
    // The limit leaves room for the name of a file in the directory.
    .init("state", \.state, .path(upTo: 3072), .restart),
  ]

  /// Keeps the values of the keys that take effect at the next start.
  mutating func keepUntilRestart(of present: Self) {
    (socket, mode, state, limits.workers) = (present.socket, present.mode, present.state, present.limits.workers)
  }

  /// Adds the hosts and origins of a drop-in.
  mutating func addNames(of table: ConfigurationTable) {
    limits.httpHosts.formUnion(table.values("hosts", .hostName) ?? [])
    limits.httpOrigins.formUnion(table.values("origins", .origin) ?? [])
  }

  private func checkListen(_ table: ConfigurationTable) {
    if listen.count > 8 { table.addError("expected at most 8 addresses, got \(listen.count)", at: "listen") }
    if let twice = listen.first(where: { address in listen.count { $0 == address } > 1 }) {
      table.addError("expected each address once, got \"\(twice)\" twice", at: "listen")
    }
    if let address = listen.first(where: { !$0.isLoopback }), !table.holds("hosts") {
      table.addError(
        "expected hosts, the names of this server, with \"\(address)\", which other machines reach", at: "listen",
        lacking: ["hosts"])
    }
  }
}

extension Configuration.Log: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [.init("level", \.level, .priority)]
}

extension ConfigurationShape where Value == Journal.Priority {
  fileprivate static var priority: Self { choice { "\($0)" } }
}
