import StreamRuntime
import Systemd

/// The changes that replace one configuration by another at run time.
struct ConfigurationDifference: Equatable {
  /// A stream whose configuration changed, under the same name.
  struct Change: Equatable {
    let former: Configuration.Stream
    let stream: Configuration.Stream

    /// Whether its feed changed: its source, the source's secrets, its pipeline, or with which hosts it is shared.
    var hasOtherFeed: Bool {
      !stream.changes(from: former, applyingAt: .feed).isEmpty || stream.validatesSource != former.validatesSource
        || stream.programKey != former.programKey || stream.pollsJSON != former.pollsJSON
        // A log with a smaller limit interrupts its publish source, which the fleet has subscribed to.
        || stream.share == .fleet && stream.buffer != former.buffer
        || Self.bodyLimit(of: stream) != Self.bodyLimit(of: former)
    }

    /// Depends on the buffer.
    private static func bodyLimit(of stream: Configuration.Stream) -> Int? {
      if case .http(let http) = stream.source { stream.maxBodyBytes(http) } else { nil }
    }

    /// Whether its events are stored elsewhere or with other limits, or its state is another one.
    var hasOtherLog: Bool {
      !stream.changes(from: former, applyingAt: .log).isEmpty || stream.share == .fleet && former.share != .fleet
    }
  }

  /// The streams of the new configuration.
  let streams: [Configuration.Stream]
  /// The number of unchanged streams.
  let unchangedCount: Int
  /// In the order of the new configuration, like `added`.
  let changed: [Change]
  let added: [Configuration.Stream]
  /// Names, in the order of the old configuration.
  let removed: [String]
  /// nil: unchanged. A level set over the bus then stays.
  let logLevel: Journal.Priority?
  /// nil: unchanged.
  let tokens: [Configuration.Token]?
  /// nil: unchanged.
  let listen: [InternetAddress]?
  /// As `http.max_per_host`; nil: unchanged.
  let maxPerHost: Int?
  /// The changed keys that take effect at the next start.
  let restartKeys: [String]
  /// The stream that cannot be shared with other hosts before a restart, because no `[cluster]` is in effect; nil: none.
  let unsharedStream: String?

  /// - Parameter old: the configuration in effect, so that a key which needs a restart differs until there was one.
  init(from old: Configuration, to new: Configuration) {
    streams = new.streams
    let former = Dictionary(uniqueKeysWithValues: old.streams.map { ($0.name, $0) })
    let names = Set(new.streams.map(\.name))
    changed = new.streams.compactMap { stream in
      former[stream.name].flatMap { $0 == stream ? nil : Change(former: $0, stream: stream) }
    }
    added = new.streams.filter { former[$0.name] == nil }
    removed = old.streams.map(\.name).filter { !names.contains($0) }
    unchangedCount = new.streams.count - changed.count - added.count
    logLevel = new.log.level == old.log.level ? nil : new.log.level
    tokens = new.tokens == old.tokens ? nil : new.tokens
    listen = new.server.listen == old.server.listen ? nil : new.server.listen
    maxPerHost = new.http.maxPerHost == old.http.maxPerHost ? nil : new.http.maxPerHost
    restartKeys =
      new.server.changes(from: old.server, applyingAt: .restart).map { "server." + $0 }
      + Self.clusterKeys(from: old.cluster, to: new.cluster)
    unsharedStream = old.cluster == nil ? new.streams.first { $0.share == .fleet }?.name : nil
  }

  /// The changed keys of `[cluster]`; the section if it was added or removed.
  private static func clusterKeys(from old: Configuration.Cluster?, to new: Configuration.Cluster?) -> [String] {
    guard let old, let new else { return old == new ? [] : ["cluster"] }
    return new.changes(from: old, applyingAt: .restart).map { "cluster." + $0 }
  }

  /// `20 unchanged, 1 changed, 1 added, 1 removed`, then what else has changed: `; listens on 127.0.0.1:7878`
  var summary: String {
    var parts = [
      "\(unchangedCount) unchanged, \(changed.count) changed, \(added.count) added, \(removed.count) removed"
    ]
    if let listen {
      parts.append("listens on " + (listen.isEmpty ? "no address" : listen.map(\.description).joined(separator: ", ")))
    }
    if let tokens { parts.append(counted(tokens.count, "token")) }
    return parts.joined(separator: "; ")
  }
}
