/// All that `streamd.toml` says, checked: every number is in its range, every name is looked up, every secret is read.
///
/// Values only, nothing of it runs; two configurations that compare equal run the same.
struct Configuration: Sendable, Equatable {
  var server = Server()
  var log = Log()
  var http = Upstreams()
  /// In the order of the file. Names differ.
  var streams: [Stream] = []

  /// `[server]`: the socket and what one client may cost.
  struct Server: Sendable, Equatable {
    /// Absolute, at most 107 bytes (`sun_path` with its NUL). Used when the service manager passes no socket.
    var socket = "/run/streamd/streamd.sock"
    /// The permission bits of `socket`, at most 0o777.
    var mode: UInt32 = 0o660
    /// Event loops; 0: one per core.
    var workers = 0
    var maxConnections = 65536
    /// `nil`: what is free of `maxConnections` decides.
    var maxConnectionsPerUser: Int?
    var maxRequestsPerConnection = 256
    var maxRequestsPerUser = 65536
    /// Bytes of one reassembled request; at most 16 MiB - 1, the largest RSocket frame.
    var maxRequestBytes = 1 << 20
    /// Bytes that have arrived in part, or wait to be handled, and unread answers; of all connections, and of one user's.
    var maxInputBytes = 256 << 20
    var maxInputBytesPerUser = 128 << 20
    /// How long a client may be silent, whatever it announces.
    var maxLifetime = Duration.seconds(300)
    /// How long a client may take from connecting to SETUP.
    var handshakeTimeout = Duration.seconds(10)
    /// Bytes that the buffers of all streams may take in memory together; `nil`: see `MemoryBudget`.
    var memory: Int?
    /// Folder of what is kept on disk, absolute; `nil`: the unit's StateDirectory=, else `/var/lib/streamd`.
    var state: String?

    /// See `state`.
    static let standardState = "/var/lib/streamd"
  }

  /// `[log]`: what goes to the journal or to standard error.
  struct Log: Sendable, Equatable {
    var level = Level.info

    /// Least severe line that is still written. Most severe first, so that a level's place is its syslog priority.
    enum Level: String, CaseIterable, Sendable {
      case emergency, alert, critical, error, warning, notice, info, debug

      /// The priority of syslog(3): 0 (emergency) to 7 (debug).
      var priority: Int { Self.allCases.firstIndex(of: self) ?? 0 }
    }
  }
}
