import Dispatch
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime

/// The part of the system streams that a client sees.
enum Visibility: Hashable, Sendable {
  /// Everything, for clients of the server's own user and root.
  case all
  /// Streams that one of these rules admits, and only the number of other clients. The rules are those of the
  /// streams that the client matches, so that clients with equal rights share a view.
  case admitted(Set<AccessRules.Rule>)

  /// What every client sees.
  static let everyone = Visibility.admitted([.anyone])

  func shows(_ stream: ServedStream) -> Bool { self == .all || matches(stream.access.visibleTo) }

  func shows(_ rules: AccessRules) -> Bool { matches(rules.rules) }

  /// Whether it shows what is in the events of the stream.
  func showsEvents(of stream: ServedStream) -> Bool { matches(stream.access.readableBy) }

  /// Whether it shows anything of a stream under the first rules that it does not show under the second ones.
  func shows(_ access: StreamAccess, notUnder other: StreamAccess?) -> Bool {
    matches(access.visibleTo) && !matches(other?.visibleTo ?? [])
      || matches(access.readableBy) && !matches(other?.readableBy ?? [])
  }

  func matches(_ streamRules: Set<AccessRules.Rule>) -> Bool {
    switch self {
    case .all: true
    case .admitted(let rules): !streamRules.isDisjoint(with: rules)
    }
  }
}

/// The rules of a stream, as far as views of system streams depend on them.
struct StreamAccess: Equatable {
  /// Clients that match one of these may read the stream.
  let readableBy: Set<AccessRules.Rule>
  /// Clients that match one of these may read the stream or publish to it.
  let visibleTo: Set<AccessRules.Rule>
}

/// The system streams. Clients of the server's own user and root share one view of each, which is in the table of
/// streams. Other clients get a view of the streams that they may read or write. It is created on request, and clients
/// with equal rights share it.
final class SystemStreams: Sendable {
  /// Performs a command of a client. Calls its last argument once, on any thread, with nil if the command has an
  /// effect.
  typealias Commands =
    @Sendable (
      ControlCommand, ClientIdentity, _ completed: @escaping @Sendable (RequestFailure?) -> Void
    ) -> Void

  /// One system stream, independent of its views.
  fileprivate struct Kind {
    let name: String
    let description: String
    /// The update period while there are subscriptions.
    let milliseconds: Int
    /// The minimum time between two updates at present.
    let leastAge: @Sendable () -> Duration
    let read: AccessRules
    let content: SystemContent
  }

  fileprivate struct Key: Hashable {
    let name: String
    let visibility: Visibility
  }

  fileprivate struct View {
    let stream: ServedStream
    var usedAt: UInt64
  }

  fileprivate struct State {
    var kinds: [String: Kind] = [:]
    /// By the stream's name.
    var access: [String: StreamAccess] = [:]
    var lastAccess: StreamAccess?
    /// All rules in use. Clients differ only in the rules that they match.
    var named: Set<AccessRules.Rule> = [.anyone] { didSet { namedRules = AccessRules(named) } }
    private(set) var namedRules = AccessRules()
    var views: [Key: View] = [:]
    /// The minimum first id of new views, by the stream's name.
    var firstIDs: [String: UInt64] = [:]
    var commands: Commands?
  }

  private let state = Locked(State())
  private let maximumAge: Duration
  private let queue: DispatchQueue
  /// The metrics, which show what `$stats` shows.
  let metrics: MetricsCache

  /// Bytes of a view's ring; a larger value is not appended.
  private static let ringBytes = 16 << 20
  /// The limits of the view of a table. What is not used takes no memory.
  private static let (changesBytes, rowLimit, stateBytes) = (4 << 20, 400_000, 160 << 20)
  /// Maximum number of views besides the complete ones. The views of clients that match no rule but `*` are created
  /// even at this limit.
  fileprivate static let viewLimit = 64
  /// How long a view without subscriptions is kept, in nanoseconds.
  private static let viewLifetime: UInt64 = 60_000_000_000

  /// - Parameter maximumAge: the maximum age of an event that answers a request.
  init(maximumAge: Duration) {
    self.maximumAge = maximumAge
    queue = DispatchQueue(label: "system streams")
    metrics = MetricsCache(maximumAge: maximumAge, on: queue)
  }

  /// Renders metrics on the queue of the system streams.
  func setMetrics(
    _ render: @escaping @Sendable (MetricsCache.Key, DispatchQueue, @escaping @Sendable ([UInt8]) -> Void) -> Void
  ) {
    metrics.setRenderer { [queue] key, completed in render(key, queue, completed) }
  }

  /// Sets the function that performs commands.
  func setCommands(_ commands: @escaping Commands) { state.withLock { $0.commands = commands } }

  func perform(
    _ command: ControlCommand, for client: ClientIdentity,
    completed: @escaping @Sendable (RequestFailure?) -> Void
  ) {
    state.withLock { $0.commands }?(command, client, completed)
  }

  /// Adds a system stream.
  ///
  /// - Parameters:
  ///   - leastAge: the minimum time between two updates at present. Called often, on any thread.
  ///   - read: the clients that may read it.
  ///   - content: computed on the queue.
  /// - Returns: the complete view; nil, with `errno` set, if there is no memory for its log.
  func add(
    _ name: String, _ description: String, everyMilliseconds milliseconds: Int,
    leastAge: @escaping @Sendable () -> Duration = { .zero }, read: AccessRules, _ content: SystemContent
  ) -> ServedStream? {
    let kind = Kind(
      name: name, description: description, milliseconds: milliseconds, leastAge: leastAge, read: read, content: content
    )
    state.withLock { $0.kinds[name] = kind }
    return makeView(of: kind, .all)
  }

  private func makeView(of kind: Kind, _ visibility: Visibility) -> ServedStream? {
    var configuration = StreamConfiguration(
      name: kind.name, description: kind.description, source: "system",
      limits: .init(events: 64, bytes: Self.ringBytes), start: .whileSubscribed(linger: .zero), read: kind.read)
    if case .rows = kind.content {
      configuration.key = SystemContent.key
      configuration.limits = .init(
        events: 65536, bytes: Self.changesBytes,
        state: unsafe .init(keys: Self.rowLimit, bytes: Self.stateBytes, keyDigest: 1))
    }
    let firstID = max(EventLoop.wallClock(), leastID(of: kind.name))
    guard let storage = EventLog(name: kind.name, limits: configuration.limits, firstID: firstID) else { return nil }
    let rendering = SystemRendering(
      visibility, maximumAge: maximumAge, leastAge: kind.leastAge, on: queue, kind.content)
    let stream = ServedStream(configuration, storage: storage, rendering: rendering)
    stream.log.setUpstream(rendering.ticks(for: stream, everyMilliseconds: kind.milliseconds))
    return stream
  }

  /// The minimum first id of a new view, so that a subscription that moves between views receives no id twice.
  private func leastID(of name: String) -> UInt64 {
    let (least, views) = state.withLock { state in
      (state.firstIDs[name] ?? 0, state.views.filter { $0.key.name == name }.map(\.value.stream))
    }
    return views.reduce(least) { max($0, $1.log.read { storage, _ in storage.endPosition }) }
  }

  /// Records the last ids of views that are no longer used.
  private func retire(_ views: some Sequence<View>) {
    for stream in views.map(\.stream) {
      // Its subscriptions may receive a few more events before they move to another view.
      let end = stream.log.read { storage, _ in storage.endPosition } + 1000
      state.withLock { $0.firstIDs[stream.name] = max($0.firstIDs[stream.name] ?? 0, end) }
    }
  }

  // MARK: Handover

  /// The next id of each system stream: the highest of its views.
  var ends: [String: UInt64] {
    let (views, firstIDs) = state.withLock { ($0.views.values.map(\.stream), $0.firstIDs) }
    let ends = views.map { ($0.name, $0.log.read { storage, _ in storage.endPosition }) }
    return firstIDs.merging(ends, uniquingKeysWith: max)
  }

  /// Makes new views begin at these ids at least: the previous process assigned the ids below.
  func begin(at ends: [String: UInt64]) {
    state.withLock { state in
      state.firstIDs = ends.filter { state.kinds[$0.key] != nil && $0.value < EventLog.idLimit }
    }
  }

  // MARK: Views

  /// The visibility of a client with these credentials, or this token.
  func visibility(for peer: PeerCredentials?, token: ClientToken?, groups: () -> [UInt32]) -> Visibility {
    if AccessRules.owner.admit(peer, groups: { [] }) { return .all }
    return .admitted(state.withLock { $0.namedRules }.matching(peer, token: token, groups: groups))
  }

  /// The view of a system stream for a visibility.
  ///
  /// - Parameter former: a view that must not be returned, because its ids are too low for the client; nil: each may
  ///   be.
  /// - Returns: nil at the limit of views.
  func view(of name: String, _ visibility: Visibility, inPlaceOf former: ServedStream? = nil) -> ServedStream? {
    let key = Key(name: name, visibility: visibility)
    let now = EventLoop.monotonicNow()
    let (known, kind) = state.withLock { state -> (ServedStream?, Kind?) in
      state.views[key]?.usedAt = now
      return (state.views[key]?.stream, state.kinds[name])
    }
    if let known, known !== former { return known }
    guard let kind, let made = makeView(of: kind, visibility) else { return nil }
    let (view, dropped) = state.withLock { state -> (ServedStream?, [View]) in
      if let known = state.views[key], known.stream !== former { return (known.stream, []) }
      // Another loop may have used a view since `now`.
      var dropped = state.dropViews { $0.usedAt + Self.viewLifetime < now }
      if let former = state.views.removeValue(forKey: key) { dropped.append(former) }
      if visibility != .everyone {
        if state.views.count >= Self.viewLimit { dropped += state.dropViews { _ in true } }
        guard state.views.count < Self.viewLimit else { return (nil, dropped) }
      }
      state.views[key] = View(stream: made, usedAt: now)
      return (made, dropped)
    }
    retire(dropped)
    return view
  }

  // MARK: Changes of streams

  /// The number of system streams, independent of their views.
  var count: Int { state.withLock { $0.kinds.count } }

  /// Adds the rules of a new stream.
  /// - Returns: whether clients may see more streams than their views show, and must move to new views.
  func add(_ access: StreamAccess, of stream: String) -> Bool {
    let dropped = state.withLock { state -> [View] in
      // One set in memory for all streams that are added with the same rules, one after the other.
      if state.lastAccess != access { state.lastAccess = access }
      state.access[stream] = state.lastAccess
      guard !access.visibleTo.isSubset(of: state.named) else { return [] }
      state.named.formUnion(access.visibleTo)
      return state.takeViews { _ in true }
    }
    retire(dropped)
    return !dropped.isEmpty
  }

  /// Removes the rules of a stream that is gone. Views that have shown it stay: nobody has lost a right.
  func remove(_ stream: String) { state.withLock { $0.access[stream] = nil } }

  /// Replaces the rules of all streams, and keeps others. Views that have shown a stream which they may no longer show are dropped,
  /// because their logs contain it.
  /// - Returns: whether clients must move to new views.
  func replaceRules(_ access: [String: StreamAccess], keeping others: Set<AccessRules.Rule>) -> Bool {
    let dropped = state.withLock { state -> [View] in
      let (former, formerlyNamed) = (state.access, state.named)
      // Templates stay; no stream has a name with a brace.
      let access = access.merging(former.filter { $0.key.contains("{") }) { $1 }
      state.access = access
      state.named = access.values.reduce(into: others.union([.anyone])) { $0.formUnion($1.visibleTo) }
      guard state.named.isSubset(of: formerlyNamed) else { return state.takeViews { _ in true } }
      let changed = former.filter { access[$0.key] != $0.value }
      return state.takeViews { key in
        changed.contains { key.visibility.shows($0.value, notUnder: access[$0.key]) }
      }
    }
    retire(dropped)
    metrics.dropAll()
    return !dropped.isEmpty
  }
}

extension SystemStreams.State {
  /// Removes views without subscriptions.
  fileprivate mutating func dropViews(_ isOld: (SystemStreams.View) -> Bool) -> [SystemStreams.View] {
    let unused = views.filter { isOld($0.value) && $0.value.stream.log.subscriberCount == 0 }
    for key in unused.keys { views[key] = nil }
    return Array(unused.values)
  }

  /// Removes views: later requests get new ones. They must be released outside the lock.
  fileprivate mutating func takeViews(_ isIncluded: (SystemStreams.Key) -> Bool) -> [SystemStreams.View] {
    let taken = views.filter { isIncluded($0.key) }
    for key in taken.keys { views[key] = nil }
    return Array(taken.values)
  }
}

extension StreamServer {
  /// Maximum number of views of system streams, each of which has a descriptor. The complete views and those of
  /// `Visibility.everyone` are counted in addition to the limit.
  package static let maximumViewCount = SystemStreams.viewLimit + 16
}
