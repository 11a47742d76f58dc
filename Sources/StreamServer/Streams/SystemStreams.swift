import Dispatch
import Reactive
import ReplayLog
import StreamRuntime

/// What a client sees of the server's own streams.
enum Visibility: Hashable, Sendable {
  /// Everything: a client of the server's own user, and root.
  case all
  /// Streams that one of these rules lets in, and of other clients no more than their number. The rules are those of the
  /// streams that the client matches, so that clients with equal rights share one view.
  case admitted(Set<AccessRules.Rule>)

  func shows(_ stream: ServedStream) -> Bool { shows(stream.visibleTo) }

  /// - Parameter visibleTo: the rules of a stream.
  func shows(_ visibleTo: Set<AccessRules.Rule>) -> Bool {
    switch self {
    case .all: true
    case .admitted(let rules): !visibleTo.isDisjoint(with: rules)
    }
  }
}

/// The server's own streams. Clients of its own user and root share one view of each, which is in the table of streams.
/// Other clients get a view of what they may read or write, made on request and shared by clients with equal rights.
final class SystemStreams: Sendable {
  /// One of the streams, whatever of it is seen.
  fileprivate struct Kind {
    let name: String
    let description: String
    /// Between two looks while a client listens.
    let milliseconds: Int
    let render: @Sendable (Visibility) -> [UInt8]
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
    /// The rules of each stream.
    var rules: [String: Set<AccessRules.Rule>] = [:]
    /// What these name. Clients differ only in which of these they match.
    var named: Set<AccessRules.Rule> = [.anyone]
    var views: [Key: View] = [:]
    /// The least id of each view's first event, by the stream's name.
    var firstIDs: [String: UInt64] = [:]
  }

  private let state = Locked(State())
  private let maximumAge: Duration
  private let queue = DispatchQueue(label: "system streams")

  /// Bytes of a view's ring, at most; a value that is larger leaves the stream as it is.
  private static let ringBytes = 16 << 20
  /// Views at a time, beside the complete ones.
  private static let viewLimit = 64
  /// How long a view is kept that no client reads, in nanoseconds.
  private static let viewLifetime: UInt64 = 60_000_000_000

  /// - Parameter maximumAge: of what a client gets that asks.
  init(maximumAge: Duration) {
    self.maximumAge = maximumAge
  }

  /// Takes in another stream.
  /// - Parameter render: the value for those who see that, as JSON. Called on a queue for that.
  /// - Returns: the complete view; nil, with `errno` set, when there is no memory for its log.
  func add(
    _ name: String, _ description: String, everyMilliseconds milliseconds: Int,
    render: @escaping @Sendable (Visibility) -> [UInt8]
  ) -> ServedStream? {
    let kind = Kind(name: name, description: description, milliseconds: milliseconds, render: render)
    state.withLock { $0.kinds[name] = kind }
    return makeView(of: kind, .all)
  }

  private func makeView(of kind: Kind, _ visibility: Visibility) -> ServedStream? {
    let configuration = StreamConfiguration(
      name: kind.name, description: kind.description, source: "system",
      limits: .init(events: 64, bytes: Self.ringBytes), start: .whileSubscribed(linger: .zero))
    let firstID = max(EventLog.wallClock(), leastID(of: kind.name))
    guard let storage = EventLog(name: kind.name, limits: configuration.limits, firstID: firstID) else { return nil }
    let feed = SystemFeed(visibility, maximumAge: maximumAge, on: queue) { kind.render(visibility) }
    let stream = ServedStream(configuration, storage: storage, feed: feed)
    stream.log.setUpstream(feed.ticks(for: stream, everyMilliseconds: kind.milliseconds))
    return stream
  }

  /// The least id of a view's first event: a subscription that moves to another view gets no id twice.
  private func leastID(of name: String) -> UInt64 {
    let (least, views) = state.withLock { state in
      (state.firstIDs[name] ?? 0, state.views.filter { $0.key.name == name }.map(\.value.stream))
    }
    return views.reduce(least) { max($0, $1.log.read { storage, _ in storage.endPosition }) }
  }

  /// Remembers how far the ids of views have come that are used no more.
  private func retire(_ views: some Sequence<View>) {
    for stream in views.map(\.stream) {
      // Its clients may get a few more events before they are in another view.
      let end = stream.log.read { storage, _ in storage.endPosition } + 1000
      state.withLock { $0.firstIDs[stream.name] = max($0.firstIDs[stream.name] ?? 0, end) }
    }
  }

  // MARK: From one process to the next

  /// The id that the next event of each stream would get, in the view that has got furthest.
  var ends: [String: UInt64] {
    let (views, firstIDs) = state.withLock { ($0.views.values.map(\.stream), $0.firstIDs) }
    let ends = views.map { ($0.name, $0.log.read { storage, _ in storage.endPosition }) }
    return firstIDs.merging(ends, uniquingKeysWith: max)
  }

  /// Views that are made from now on begin with these ids at least: those below were given by the process before.
  func begin(at ends: [String: UInt64]) {
    state.withLock { state in
      state.firstIDs = ends.filter { state.kinds[$0.key] != nil && $0.value < EventLog.idLimit }
    }
  }

  // MARK: What clients see

  /// What a client with these credentials sees.
  func visibility(for peer: PeerCredentials?, groups: () -> [UInt32]) -> Visibility {
    if AccessRules.owner.admit(peer, groups: { [] }) { return .all }
    var rules: Set<AccessRules.Rule> = [.anyone]
    if let peer { rules.formUnion([.user(peer.user), .group(peer.group)] + groups().map { .group($0) }) }
    return .admitted(rules.intersection(state.withLock { $0.named }))
  }

  /// The view of a system stream for those who see that.
  ///
  /// - Parameter former: not this one, whose ids have not come as far as those of another view; nil: any.
  /// - Returns: nil when there is no room for another one.
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
      // Another loop may have used one since `now`.
      var dropped = state.dropViews { $0.usedAt + Self.viewLifetime < now }
      if let former = state.views.removeValue(forKey: key) { dropped.append(former) }
      if state.views.count >= Self.viewLimit { dropped += state.dropViews { _ in true } }
      guard state.views.count < Self.viewLimit else { return (nil, dropped) }
      state.views[key] = View(stream: made, usedAt: now)
      return (made, dropped)
    }
    retire(dropped)
    return view
  }

  // MARK: When streams change

  /// A stream is new, and has these rules.
  /// - Returns: whether clients may see more of the streams than their views show: they have to get others.
  func add(_ rules: Set<AccessRules.Rule>, of stream: String) -> Bool {
    let dropped = state.withLock { state -> [View] in
      state.rules[stream] = rules
      let former = state.named
      state.named.formUnion(rules)
      return state.named == former ? [] : state.takeViews { _ in true }
    }
    retire(dropped)
    return !dropped.isEmpty
  }

  /// These are the rules of all streams. Views that have shown a stream, and may not show it any more, begin anew: what they
  /// hold is from before.
  /// - Returns: whether there are clients that have to get other views.
  func replaceRules(_ rules: [String: Set<AccessRules.Rule>]) -> Bool {
    let dropped = state.withLock { state -> [View] in
      let (former, formerlyNamed) = (state.rules, state.named)
      state.rules = rules
      state.named = rules.values.reduce(into: [.anyone]) { $0.formUnion($1) }
      guard state.named.isSubset(of: formerlyNamed) else { return state.takeViews { _ in true } }
      let changed = former.filter { rules[$0.key] != $0.value }
      return state.takeViews { key in
        changed.contains { key.visibility.shows($0.value) && !key.visibility.shows(rules[$0.key] ?? []) }
      }
    }
    retire(dropped)
    return !dropped.isEmpty
  }
}

extension SystemStreams.State {
  /// Takes out views that no client reads.
  fileprivate mutating func dropViews(_ isOld: (SystemStreams.View) -> Bool) -> [SystemStreams.View] {
    let unused = views.filter { isOld($0.value) && $0.value.stream.log.subscriberCount == 0 }
    for key in unused.keys { views[key] = nil }
    return Array(unused.values)
  }

  /// Takes out views: clients that ask from now on get others. Their end is not to come under the lock.
  fileprivate mutating func takeViews(_ isIncluded: (SystemStreams.Key) -> Bool) -> [SystemStreams.View] {
    let taken = views.filter { isIncluded($0.key) }
    for key in taken.keys { views[key] = nil }
    return Array(taken.values)
  }
}
