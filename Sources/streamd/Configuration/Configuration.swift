import StreamRuntime

/// The content of `streamd.toml`, checked: every number is in its range, every name is looked up, every secret is read.
///
/// Values only; two equal configurations have the same effect.
struct Configuration: Sendable, Equatable {
  var server = Server()
  var log = Log()
  var http = Upstreams()
  /// `nil`: no stream is shared with other hosts.
  var cluster: Cluster?
  /// In the order of the file. Names are unique, and so are the secrets.
  var tokens: [Token] = []
  /// In the order of the file. Names are unique.
  var streams: [Stream] = []

  /// `[server]`: the socket and the limits of clients.
  struct Server: Sendable, Equatable {
    /// Absolute, at most 107 bytes (`sun_path` with its NUL). Used when the service manager passes no socket.
    var socket = "/run/streamd/streamd.sock"
    /// The permission bits of `socket`, at most 0o777.
    var mode: UInt32 = 0o660
    /// Addresses of TCP to listen on, besides; each once, at most 8.
    var listen: [InternetAddress] = []
    /// Event loops; 0: one per core.
    var workers = 0
    var maxConnections = 65536
    /// `nil`: limited by the free part of `maxConnections`.
    var maxConnectionsPerUser: Int?
    var maxRequestsPerConnection = 256
    var maxRequestsPerUser = 65536
    /// Maximum bytes of one reassembled request; at most 16 MiB - 1, the largest RSocket frame.
    var maxRequestBytes = 1 << 20
    /// Maximum bytes of partial and waiting input and of unread replies; for all connections, and for one user's.
    var maxInputBytes = 256 << 20
    var maxInputBytesPerUser = 128 << 20
    /// Maximum time of silence of a client, whatever it announces.
    var maxLifetime = Duration.seconds(300)
    /// Maximum time from a client's connection to its SETUP.
    var handshakeTimeout = Duration.seconds(10)
    /// Names of this server for HTTP, in addition to addresses and local names; with small letters, without ports.
    var hosts: [String] = []
    /// Origins of other sites whose pages may use the server over HTTP.
    var origins: [String] = []
    /// Maximum bytes in memory of the buffers of all streams together; `nil`: see `MemoryBudget`.
    var memory: Int?
    /// The state directory, absolute; `nil`: the unit's StateDirectory=, else `/var/lib/streamd`.
    var state: String?

    /// See `state`.
    static let standardState = "/var/lib/streamd"
  }

  /// `[log]`: the output to the journal or to standard error.
  struct Log: Sendable, Equatable {
    var level = Level.info

    /// The least severe level that is written. Most severe first, so that a level's index is its syslog priority.
    enum Level: String, CaseIterable, Sendable {
      case emergency, alert, critical, error, warning, notice, info, debug

      /// The priority of syslog(3): 0 (emergency) to 7 (debug).
      var priority: Int { Self.allCases.firstIndex(of: self) ?? 0 }
    }
  }
}
