import StreamRuntime
import Systemd

/// The changes that replace one configuration by another at run time.
struct ConfigurationDifference: Equatable {
  /// A stream whose configuration changed, under the same name.
  struct Change: Equatable {
    let former: Configuration.Stream
    let stream: Configuration.Stream

    /// Whether the stream needs another feed, because its source with the secrets, its pipeline, the hosts that share
    /// it, or a size limit has changed.
    var hasOtherFeed: Bool {
      !stream.changes(from: former, applyingAt: .feed).isEmpty || stream.receivedForm != former.receivedForm
        || stream.programKey != former.programKey || stream.variables != former.variables
        // A log with a smaller limit interrupts its publish source, which the fleet has subscribed to.
        || stream.share == .fleet && stream.buffer != former.buffer
        || stream.source.section.limits(in: stream) != former.source.section.limits(in: former)
    }

    /// Whether the stream needs another log, because the place or the limits of its events, its keys, or the limits of
    /// its state have changed.
    var hasOtherLog: Bool {
      !stream.changes(from: former, applyingAt: .log).isEmpty || stream.share == .fleet && former.share != .fleet
    }
  }

  /// A template whose configuration changed, under the same name.
  struct TemplateChange: Equatable {
    let former: Configuration.Template
    let template: Configuration.Template
  }

  /// The streams of the new configuration.
  private(set) var streams: [Configuration.Stream]
  /// The number of unchanged streams.
  let unchangedCount: Int
  /// The changed streams in the order of the new configuration, like `added`.
  private(set) var changed: [Change]
  private(set) var added: [Configuration.Stream]
  /// The names of removed streams, in the order of the old configuration.
  private(set) var removed: [String]
  /// The templates of the new configuration.
  let templates: [Configuration.Template]
  let changedTemplates: [TemplateChange]
  /// The names of new templates, and of those that are gone.
  let addedTemplates: [String]
  let removedTemplates: [String]
  /// The new log level; nil: unchanged, and a level that was set over the bus stays.
  let logLevel: Journal.Priority?
  /// The new tokens; nil: unchanged.
  let tokens: [Configuration.Token]?
  /// The new addresses to listen on; nil: unchanged.
  let listen: [InternetAddress]?
  /// The new `http.max_per_host`; nil: unchanged.
  let maxPerHost: Int?
  /// The changed keys of `[server]` that take effect now, besides `listen`.
  let serverKeys: [String]
  /// The changed keys that take effect at the next start.
  let restartKeys: [String]
  /// The stream that cannot be shared with other hosts before a restart, because no `[cluster]` is in effect; nil: none.
  let unsharedStream: String?

  /// - Parameter old: the configuration in effect. A key that takes effect at a restart therefore differs until then.
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
    templates = new.templates
    let formerTemplates = Dictionary(uniqueKeysWithValues: old.templates.map { ($0.name.text, $0) })
    let templateNames = Set(new.templates.map(\.name.text))
    changedTemplates = new.templates.compactMap { template in
      formerTemplates[template.name.text].flatMap {
        $0 == template ? nil : TemplateChange(former: $0, template: template)
      }
    }
    addedTemplates = new.templates.map(\.name.text).filter { formerTemplates[$0] == nil }
    removedTemplates = old.templates.map(\.name.text).filter { !templateNames.contains($0) }
    logLevel = new.log.level == old.log.level ? nil : new.log.level
    tokens = new.tokens == old.tokens ? nil : new.tokens
    listen = new.server.listen == old.server.listen ? nil : new.server.listen
    maxPerHost = new.http.maxPerHost == old.http.maxPerHost ? nil : new.http.maxPerHost
    serverKeys = new.server.changes(from: old.server, applyingAt: .reload).filter { $0 != "listen" }.map {
      "server." + $0
    }
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

  /// The difference with streams that templates have made. One whose name is configured now is changed, not added.
  ///
  /// - Parameters:
  ///   - former: the streams as their templates have made them.
  ///   - new: those that remain, as their templates make them now.
  func including(_ former: [Configuration.Stream], _ new: [Configuration.Stream]) -> Self {
    var difference = self
    let kept = Dictionary(uniqueKeysWithValues: new.map { ($0.name, $0) })
    let configured = Dictionary(uniqueKeysWithValues: added.map { ($0.name, $0) })
    for former in former {
      guard let stream = configured[former.name] ?? kept[former.name] else {
        difference.removed.append(former.name)
        continue
      }
      if configured[former.name] == nil { difference.streams.append(stream) }
      if stream != former { difference.changed.append(Change(former: former, stream: stream)) }
    }
    let names = Set(former.map(\.name))
    difference.added.removeAll { names.contains($0.name) }
    return difference
  }

  /// The streams that are served already, and need no other log.
  var streamsWithTheirLogs: [Configuration.Stream] {
    let others = Set((added + changed.filter(\.hasOtherLog).map(\.stream)).map(\.name))
    return streams.filter { !others.contains($0.name) }
  }

  /// Derived streams with a base that gets another source or log, and so subscribes to its source anew. They subscribe
  /// to the base anew as well, also if they have ended with it. Otherwise a derived stream could end while its base
  /// continues.
  /// - Parameter others: the names of further streams that get another source.
  func renewed(besides others: Set<String> = []) -> [Configuration.Stream] {
    var names = others.union(changed.filter { $0.hasOtherFeed || $0.hasOtherLog }.map(\.stream.name))
    return streams.basesFirst.filter { stream in
      guard !names.isDisjoint(with: stream.bases) else { return false }
      names.insert(stream.name)
      return true
    }
  }

  /// The counts `20 unchanged, 1 changed, 1 added, 1 removed`, then other changes, such as
  /// `; listens on 127.0.0.1:7878; server.hosts, server.max_connections`.
  var summary: String {
    var parts = [
      "\(unchangedCount) unchanged, \(changed.count) changed, \(added.count) added, \(removed.count) removed"
    ]
    for (count, what) in [
      (changedTemplates.count, "changed"), (addedTemplates.count, "added"), (removedTemplates.count, "removed"),
    ] where count > 0 { parts.append("\(counted(count, "template")) \(what)") }
    if let listen {
      parts.append("listens on " + (listen.isEmpty ? "no address" : listen.map(\.description).joined(separator: ", ")))
    }
    if !serverKeys.isEmpty { parts.append(serverKeys.joined(separator: ", ")) }
    if let tokens { parts.append(counted(tokens.count, "token")) }
    return parts.joined(separator: "; ")
  }
}
