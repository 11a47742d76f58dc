import Glibc
import StreamRuntime

/// How many of the process's descriptors clients may take, so that what serves them always has its own.
struct DescriptorBudget: Equatable {
  /// RLIMIT_NOFILE.
  let limit: Int
  /// Open when the process begins: standard streams and what the service manager passes.
  let openCount: Int

  /// What the daemon itself has open at the same time: Dispatch (5), libcurl, the bus (3), the journal, signals, a
  /// listener, system streams, the state folder, files of the configuration and of users (6), what a restart hands over
  /// (8); and a dozen to spare.
  private static let ownCount = 40

  /// Descriptors of one event loop.
  private static let countPerLoop = 2

  /// Raises the limit as far as the system allows and measures what is open.
  static func take() -> DescriptorBudget {
    var limit = rlimit()
    let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    guard getrlimit(resource, &limit) == 0 else { return DescriptorBudget(limit: 1024, openCount: 0) }
    limit.rlim_cur = limit.rlim_max
    setrlimit(resource, &limit)
    getrlimit(resource, &limit)
    return DescriptorBudget(limit: Int(clamping: limit.rlim_cur), openCount: countOpen())
  }

  /// The largest `max_connections` that leaves the daemon what it needs. Sources need theirs only at worst: where there
  /// is little, they leave half of it to clients, and one that finds no descriptor fails and tries again.
  ///
  /// - Parameter loops: event loops that serve clients.
  /// - Throws: when there is none for a single client.
  func connectionLimit(for streams: [Configuration.Stream], loops: Int) throws(SystemError) -> Int {
    let free = limit - openCount - Self.ownCount - Self.countPerLoop * (loops + 2) - streams.count  // a log each
    let connections = max(free - streams.reduce(0) { $0 + Self.most($1) }, free / 2)
    guard connections > 0 else {
      throw SystemError(
        "RLIMIT_NOFILE", "(LimitNOFILE=) of \(limit), at least \(limit - free + 2) needed", code: EMFILE)
    }
    return connections
  }

  /// Descriptors that one stream has at most beside its log: another log, while it is replaced; and its processes,
  /// transfers, connections kept for the next, and name look-ups.
  private static func most(_ stream: Configuration.Stream) -> Int {
    var count = 1
    switch stream.source {
    case .http: count += 6
    case .exec: count += 8
    case .timer, .publish: break
    }
    if stream.jq != nil || stream.distinct != .no { count += 4 }
    return count
  }

  private static func countOpen() -> Int {
    guard let folder = opendir("/proc/self/fd") else { return 16 }
    defer { closedir(folder) }
    var count = -3  // `.`, `..` and the folder itself
    while readdir(folder) != nil { count += 1 }
    return count
  }
}
