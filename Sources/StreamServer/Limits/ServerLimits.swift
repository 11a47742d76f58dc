import RSocket

/// The server's limits. Reaching one has a defined effect.
public struct ServerLimits: Equatable, Sendable {
  /// Event loops; 0: one per core.
  public var workers: Int
  /// Concurrent connections; a further one gets REJECTED_SETUP, or 503 over HTTP, and is closed.
  public var connections: Int
  /// Concurrent connections of one user; a further one ends in the same way. nil: three times the free
  /// `connections`, so that a single user gets three quarters of them, and later users a part of the rest.
  public var connectionsPerUser: Int?
  /// Concurrent requests of one connection; a further one is REJECTED.
  public var requestsPerConnection: Int
  /// Concurrent requests on all connections of one user; a further one is REJECTED.
  public var requestsPerUser: Int
  /// Bytes of one reassembled request; more is a CONNECTION_ERROR.
  public var requestBytes: Int
  /// Bytes of partial frames and requests, of input that waits to be processed, of replies that clients do not read,
  /// and of values beyond a publisher's share of its stream, on all connections. A connection that exceeds it gets
  /// CONNECTION_ERROR. Filters may have as many bytes again; a subscription that exceeds this is REJECTED.
  public var inputBytes: Int
  /// The same, on all connections of one user. If it is below `inputBytes`, a user also gets no more than is free of
  /// that: a single user half of it, and later users a part of the rest.
  public var inputBytesPerUser: Int
  /// Maximum silence of a client, regardless of its SETUP; it is then disconnected.
  public var lifetime: Duration
  /// Maximum time from the start of a connection to its SETUP; it is then closed.
  public var handshakeTimeout: Duration
  /// Names of this server in addition to addresses, `localhost` and, on Unix sockets, names without a dot: requests
  /// over HTTP for other hosts are refused, because a page of another site may have made them. In lower case, without
  /// ports.
  public var httpHosts: Set<String> = []
  /// How long a subscription to a stream of a fleet waits for the event after which it resumes, while this host does not
  /// have it.
  public var resumeWait = Duration.seconds(5)
  /// Origins of other sites whose pages may use the server over HTTP, such as `https://dashboard.example.org`.
  public var httpOrigins: Set<String> = []
  /// How long a handover waits for the queue that makes streams, and for the operators between publishers and their streams,
  /// such as a jq process.
  var settleTime = Duration.milliseconds(500)
  /// The times of clients that speak HTTP.
  var http = HTTPTimes()
  /// The longest time of a connection over a limit: until its first bytes select its protocol, and it is closed.
  var refusalTime = Duration.seconds(1)
  /// The duration of a lease, which is renewed at four fifths of it.
  var leaseTime = Duration.seconds(30)
  /// The stall time after which a stall of a lossless stream is reported, so that ordinary backpressure is not.
  var stallTime = Duration.seconds(5)
  /// After this time without a payload, a current subscription with that option is sent a marker.
  var markerInterval = Duration.seconds(10)
  /// Maximum age of an event of a system stream that answers a request. Equal to the period in which the catalogue
  /// is updated for subscriptions.
  var systemStreamAge = Duration.milliseconds(250)
  /// With more streams than that, the catalogue is updated less often, because each update takes long.
  var manyStreams = 1000
  /// The minimum time between two updates of the catalogue of so many streams.
  var manyStreamsAge = Duration.seconds(5)
  /// The number of consecutive connections on one loop. They often exchange events, and a value published by one
  /// reaches the others without a hop to another thread, which would double its delay.
  var neighbours: UInt64 = 4

  // A user's share of a total depends on its free part: a dynamic threshold, after Choudhury and Hahne,
  // "Dynamic queue length thresholds for shared-memory packet switches", 1998. Few users cannot use up a total. Hosts
  // are within the share of a user that is all of them.

  /// The connections that users of a standing can have together with all others: a sixteenth is for owners, 16 at most.
  func connections(for standing: ClientUser.Standing) -> Int {
    standing == .owner ? connections : connections - min(16, connections / 16)
  }

  /// The bytes that they can have: a sixteenth is for owners.
  func inputBytes(for standing: ClientUser.Standing) -> Int {
    standing == .owner ? inputBytes : inputBytes - inputBytes / 16
  }

  /// Whether a user with `count` of something may have another one.
  ///
  /// - Parameters:
  ///   - hosts: for a host, those of all hosts; else nil.
  ///   - free: those that are free.
  ///   - given: the configured limit of one user; nil: three times those that are free.
  static func admitsOne(after count: Int, ofHosts hosts: Int?, free: Int, given: Int? = nil) -> Bool {
    guard free > 0, let hosts else { return free > 0 && (count == 0 || count < given ?? 3 * free) }
    guard hosts == 0 || hosts < 3 * (free - 1) else { return false }
    return count == 0 || count < given ?? 3 * free - hosts
  }

  /// Why a client gets no connection, as a sentence, and the report of it.
  func connectionRefusal(
    of client: ClientIdentity, for reason: UserAccounts.Refusal
  ) -> (sentence: String, report: ServerReport) {
    switch reason {
    case .full:
      (
        "the server has \(connections) connections already (max_connections)",
        .connectionLimitReached(client, connections)
      )
    case .share(let count, let free, isOfAllHosts: true):
      (
        "the clients without credentials have \(count) connections together already, "
          + "with \(free) of \(connections) left (max_connections)",
        .hostConnectionLimitReached(client, count, left: free)
      )
    case .share(let count, let free, isOfAllHosts: false):
      (
        "\(client.user) has \(count) connections already"
          + (connectionsPerUser != nil
            ? " (max_connections_per_user)" : ", with \(free) of \(connections) left (max_connections)"),
        .userConnectionLimitReached(client, count, left: connectionsPerUser == nil ? free : nil)
      )
    }
  }

  /// Whether a user exceeds its share of `inputBytes`.
  ///
  /// - Parameters:
  ///   - hosts: for a host, the bytes of all hosts, which leave as many free; else nil.
  ///   - total: the bytes of all users.
  func exceedsInputShare(
    _ bytes: Int, ofHosts hosts: Int?, ofAll total: Int, _ standing: ClientUser.Standing
  ) -> Bool {
    let free = inputBytes(for: standing) - total
    guard inputBytesPerUser < inputBytes else { return free < hosts ?? 0 }
    return bytes > free - (hosts ?? 0)
  }

  var ofConnection: ConnectionLimits {
    ConnectionLimits(maximumRequestBytes: requestBytes, maximumRequests: requestsPerConnection)
  }

  /// Takes over the limits that can change while the server runs: all but the number of loops, and the times that no
  /// client sees.
  mutating func change(to new: ServerLimits) {
    (connections, connectionsPerUser) = (new.connections, new.connectionsPerUser)
    (requestsPerConnection, requestsPerUser) = (new.requestsPerConnection, new.requestsPerUser)
    requestBytes = new.requestBytes
    (inputBytes, inputBytesPerUser) = (new.inputBytes, new.inputBytesPerUser)
    (lifetime, handshakeTimeout) = (new.lifetime, new.handshakeTimeout)
    (httpHosts, httpOrigins) = (new.httpHosts, new.httpOrigins)
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

/// The times of clients that speak HTTP; tests shorten them.
struct HTTPTimes: Equatable {
  /// The longest time between two requests, in whole seconds.
  var idleTime = Duration.seconds(60)
  /// The longest time in which a client neither sends nor reads more of the exchange in progress.
  var stallTime = Duration.seconds(30)
  /// The longest time for which a stream may have no space for a published value.
  var fullTime = Duration.seconds(60)
  /// After this silence an event stream sends a comment. Precedent: the example in the WHATWG text, 15 s.
  var silence = Duration.seconds(15)
  /// A client that sends nothing for so long after its last response is disconnected.
  var drainTime = Duration.seconds(1)
  /// The longest time for which a client may send after its last response, such as the rest of a body. Precedent: nginx's
  /// `lingering_time`, 30 s.
  var lingerTime = Duration.seconds(30)
  /// An event loop that is in one turn for this time is stuck, as for the watchdog. A turn takes some milliseconds.
  var stuckTime = Duration.seconds(5)
}
