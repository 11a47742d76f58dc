import Glibc
import StreamRuntime
import StreamServer

/// The number of descriptors that clients may use, so that the daemon's own are always available.
struct DescriptorBudget: Equatable {
  /// The limit of open descriptors (RLIMIT_NOFILE).
  let limit: Int
  /// Descriptors open at the start: standard streams and those that the service manager passes.
  let openCount: Int

  /// The daemon's own simultaneous descriptors: Dispatch (5), libcurl, the bus (3), the journal, signals, a listener,
  /// system streams, the state folder, files of the configuration and of users (6), the handover (8); a reserve of a
  /// dozen; and the connections over a limit that wait for their answer.
  private static let ownCount = 40 + RefusedConnections.capacity
  /// One descriptor for each view of a system stream. Reserved like those of sources: if descriptors are few, not in
  /// full.
  private static let viewCount = StreamServer.maximumViewCount

  /// The number of a template's streams whose sources have descriptors reserved.
  private static let reservedStreams = 100

  /// Descriptors of one event loop.
  private static let countPerLoop = 2

  /// Raises the limit to the system's maximum and counts the open descriptors.
  static func take() -> DescriptorBudget {
    var limit = rlimit()
    let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    guard unsafe getrlimit(resource, &limit) == 0 else { return DescriptorBudget(limit: 1024, openCount: 0) }
    limit.rlim_cur = limit.rlim_max
    unsafe setrlimit(resource, &limit)
    unsafe getrlimit(resource, &limit)
    return DescriptorBudget(limit: Int(clamping: limit.rlim_cur), openCount: countOpen())
  }

  /// The largest `max_connections` that leaves the daemon what it needs. If descriptors are few, clients get half of
  /// the free ones: sources rarely reach their maximum, and a source without a descriptor fails and retries.
  ///
  /// - Parameter loops: the number of event loops that serve clients.
  /// - Throws: when not even one client can be served.
  func connectionLimit(
    for streams: [Configuration.Stream], _ templates: [Configuration.Template] = [], loops: Int
  ) throws(SystemError) -> Int {
    let mapped = streams.count { $0.map }
    let free =
      limit - openCount - Self.ownCount - Self.countPerLoop * (loops + 2) - streams.count  // one log each
      - (mapped > 0 ? 2 * mapped + StreamServer.maximumMapDescriptors : 0)  // a region has two
    let sources = streams.reduce(0) { $0 + Self.most($1) } + templates.reduce(0) { $0 + Self.most($1) }
    let connections = max(free - Self.viewCount - sources, free / 2)
    guard connections > 0 else {
      throw SystemError(
        "RLIMIT_NOFILE", "(LimitNOFILE=) of \(limit), at least \(limit - free + 2) needed", code: EMFILE)
    }
    return connections
  }

  /// Maximum descriptors of one stream besides its log: another log, while it is replaced; and its processes,
  /// transfers, idle connections, and name lookups.
  private static func most(_ stream: Configuration.Stream) -> Int {
    // A region may be replaced, too.
    var count = (stream.map ? 3 + StreamServer.maximumWaitingPages : 1) + stream.source.section.descriptorCount
    if stream.jq != nil || stream.distinct != .no || stream.programKey != nil { count += 4 }
    return count
  }

  /// Maximum descriptors that are reserved for the streams of a template. More of them at a time may lack some, and retry.
  private static func most(_ template: Configuration.Template) -> Int {
    min(template.streams, reservedStreams) * most(template.sample)
  }

  private static func countOpen() -> Int {
    guard let folder = unsafe opendir("/proc/self/fd") else { return 16 }
    defer { unsafe closedir(folder) }
    var count = -3  // `.`, `..` and the folder's own descriptor
    while unsafe readdir(folder) != nil { count += 1 }
    return count
  }
}
