import RSocket

/// The server's bounds. Each has a defined answer when it is reached.
public struct ServerLimits: Equatable, Sendable {
  /// Event loops; 0: one per core.
  public var workers: Int
  /// Connections at a time; a further one gets REJECTED_SETUP and is closed.
  public var connections: Int
  /// Connections at a time of one user; a further one gets REJECTED_SETUP and is closed. nil: three times as many as are free
  /// of `connections`, so that one user alone gets three quarters of them, and those that come then a part of the rest.
  public var connectionsPerUser: Int?
  /// Requests at a time on one connection; one more is REJECTED.
  public var requestsPerConnection: Int
  /// Requests at a time on all connections of one user; one more is REJECTED.
  public var requestsPerUser: Int
  /// Bytes of one reassembled request; more is a CONNECTION_ERROR.
  public var requestBytes: Int
  /// Bytes of frames and requests that have arrived in part, of input that waits to be handled, of answers that clients do
  /// not read, and of values beyond a publisher's share of its stream, on all connections; one that wants more gets
  /// CONNECTION_ERROR.
  public var inputBytes: Int
  /// The same, on all connections of one user. Below `inputBytes`, a user gets no more than is free of those either: one
  /// user alone half of them, and those that come then a part of the rest.
  public var inputBytesPerUser: Int
  /// How long a client may be silent, whatever its SETUP says; it is closed then.
  public var lifetime: Duration
  /// How long a new connection may take to send SETUP before it is closed.
  public var handshakeTimeout: Duration
  /// Names of this server in addition to addresses, `localhost` and, on Unix sockets, names without a dot: requests over
  /// HTTP for other hosts are refused, as a page of another site may have made them. With small letters, without ports.
  public var httpHosts: Set<String> = []
  /// Origins of other sites whose pages may use the server over HTTP, such as `https://dashboard.example.org`.
  public var httpOrigins: Set<String> = []
  /// What a lease is given for; renewed at four fifths of it.
  var leaseTime = Duration.seconds(30)
  /// How long a subscription may stall a lossless stream before that is reported: ordinary
  /// backpressure is no news.
  var stallTime = Duration.seconds(5)
  /// How old an answer of the server's own streams may be: so long it is shared by all that ask. As often as the catalogue
  /// is looked at for those that listen.
  var systemStreamAge = Duration.milliseconds(250)
  /// So many connections that come one after the other share a loop. They often have to do with each other, and what one
  /// publishes reaches the others without a hop to another thread, which would take as long as all the rest of its way.
  var neighbours: UInt64 = 4

  // What one user may have of a total depends on how much of that is free: a dynamic threshold, after Choudhury and Hahne,
  // "Dynamic queue length thresholds for shared-memory packet switches", 1998. So a few users cannot take it all.

  /// Whether a user that has `count` connections may have another, while `free` are free. One without any may.
  func admitsConnection(ofUserWith count: Int, free: Int) -> Bool {
    count == 0 || count < connectionsPerUser ?? 3 * free
  }

  /// Whether a user has more than its part of `inputBytes`.
  /// - Parameter total: what all users have.
  func exceedsInputShare(_ bytes: Int, ofAll total: Int) -> Bool {
    inputBytesPerUser < inputBytes ? bytes > inputBytes - total : total > inputBytes
  }

  var ofConnection: ConnectionLimits {
    ConnectionLimits(maximumRequestBytes: requestBytes, maximumRequests: requestsPerConnection)
  }

  /// The defaults of the daemon's configuration file.
  public init(
    workers: Int = 0, connections: Int = 65536, connectionsPerUser: Int? = nil, requestsPerConnection: Int = 256,
    requestsPerUser: Int = 65536, requestBytes: Int = 1 << 20, inputBytes: Int = 256 << 20,
    inputBytesPerUser: Int = 128 << 20, lifetime: Duration = .seconds(300), handshakeTimeout: Duration = .seconds(10)
  ) {
    self.workers = workers
    self.connections = connections
    self.connectionsPerUser = connectionsPerUser
    self.requestsPerConnection = requestsPerConnection
    self.requestsPerUser = requestsPerUser
    self.requestBytes = requestBytes
    self.inputBytes = inputBytes
    self.inputBytesPerUser = inputBytesPerUser
    self.lifetime = lifetime
    self.handshakeTimeout = handshakeTimeout
  }
}
