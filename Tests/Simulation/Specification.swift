import ReplayLog
import StreamProtocol
import StreamServer

@testable import streamd

/// What the configuration says of a stream, and what the simulation does with it.
struct StreamSpecification: Equatable, CustomStringConvertible {
  enum Keep { case no, memory, disk }

  /// What its events come from.
  enum Kind: Equatable {
    case clients
    /// The world itself, as the log's upstream.
    case world
    /// Server-sent events of the origin: each once, also over reconnections and restarts.
    case events
    /// A page of the origin, polled: each state of it at most once.
    case page
    /// The events of other streams, its bases.
    case derived(of: [String], where: Filter?)
    /// The events of a stream of another streamd, which is this one.
    case mirror(of: String, where: Filter?)

    var isHTTP: Bool { self == .events || self == .page }
    /// Whether its source resumes after a restart, whatever becomes of the world's epochs.
    var resumes: Bool { isHTTP || !bases.isEmpty }
    /// The streams whose events it has.
    var bases: [String] {
      switch self {
      case .derived(let bases, _): bases
      case .mirror(let base, _): [base]
      default: []
      }
    }
    var filter: Filter? {
      switch self {
      case .derived(_, let filter), .mirror(_, let filter): filter
      default: nil
      }
    }
    var isMirror: Bool { if case .mirror = self { true } else { false } }
    /// Whether a hostile client may have made its events.
    var mayHaveAnything: Bool { self == .clients || bases.contains { $0.hasPrefix("p") } }
  }

  let name: String
  let kind: Kind
  /// The media type of its events.
  var type = "application/json"
  var isText: Bool { type.hasPrefix("text/") }
  /// What its events are.
  var content = Content.Form.plain
  /// The path of the origin's socket; of a mirror, that of the other streamd.
  let origin: String
  /// Whether clients publish to it.
  var isPublished: Bool { kind == .clients }
  var isServed = true
  var keep = Keep.memory
  var events = 16
  var bytes = 16 << 10
  var replay = 4
  var blocks = false
  var blockTimeout: Duration? = .seconds(20)
  var onLag = LagPolicy.skip
  var start = Configuration.Start.subscribed
  var linger = Duration.zero
  var age: Duration?
  /// nil: it has no state.
  var keys: Keys?
  var maxKeys = 1000
  var stateBytes = 1 << 20
  /// Users that are admitted; nil: anyone.
  var readers: [UInt32]?
  var writers: [UInt32]?
  /// What the name of its template begins with; nil: the configuration has the stream itself.
  var template: String?

  /// Has all that another stream of its template has, but its name.
  mutating func take(_ other: Self) {
    (type, content, keep, events, bytes, replay) =
      (other.type, other.content, other.keep, other.events, other.bytes, other.replay)
    (blocks, blockTimeout, onLag) = (other.blocks, other.blockTimeout, other.onLag)
    (readers, writers) = (other.readers, other.writers)
  }

  init(_ name: String, _ kind: Kind, origin: String) { (self.name, self.kind, self.origin) = (name, kind, origin) }

  func admits(reader peer: Peer) -> Bool { Self.admits(readers, peer) }
  func admits(writer peer: Peer) -> Bool { Self.admits(writers, peer) }
  /// Whether the client sees that the stream exists.
  func isVisible(to peer: Peer) -> Bool { isServed && (admits(reader: peer) || isPublished && admits(writer: peer)) }

  private static func admits(_ users: [UInt32]?, _ peer: Peer) -> Bool {
    users.map { users in peer.user.map { users.contains($0) } ?? false } ?? true
  }

  private var source: Configuration.Source {
    switch kind {
    case .clients: .init(Configuration.Publish())
    case .world: .init(Configuration.Timer(every: .seconds(1)))
    case .events: http(.stream(.serverSentEvents, idleTimeout: nil))
    case .page: http(.poll(every: .milliseconds(500)))
    case .derived(let bases, _): .init(Configuration.Derived(bases: bases, filter: filter))
    case .mirror(let base, _): .init(Configuration.Peer(address: .unix(origin), stream: base, filter: filter))
    }
  }

  private var filter: EventFilter? {
    try? kind.filter.map { try EventFilter(json: Array($0.json(for: name).utf8)) }
  }

  private func http(_ fetching: Configuration.HTTP.Fetching) -> Configuration.Source {
    .init(
      Configuration.HTTP(
        url: "http://origin/\(name)", fetching: fetching, timeout: .seconds(2), unixSocket: origin))
  }

  /// As the configuration file has it.
  var configuration: Configuration.Stream {
    var stream = Configuration.Stream(name: name, source: source)
    if kind.bases.isEmpty || kind.isMirror { stream.retry = .init(first: .milliseconds(100), max: .seconds(1)) }
    stream.replay = min(replay, events)
    stream.buffer = .init(events: events, bytes: bytes, age: age)
    stream.type = type
    stream.start = start
    stream.linger = linger
    stream.onLag = onLag
    stream.overflow = blocks ? .block : .drop
    stream.blockTimeout = blockTimeout
    if let keys { (stream.key, stream.maxKeys, stream.stateBytes) = (keys.definition, maxKeys, stateBytes) }
    stream.keep = keep == .no ? .no : keep == .memory ? .memory : .disk
    stream.read = readers.map { $0.map { .user($0) } } ?? [.anyone]
    stream.write = writers.map { $0.map { .user($0) } } ?? [.anyone]
    return stream
  }

  /// Whether its source is active only for subscribers.
  var isIdle: Bool { start == .subscribed && linger == .zero }

  /// Data bytes of the largest event.
  var largestEvent: Int { EventLog.Limits(configuration.buffer).maximumEventBytes }

  /// Whether a state may have no room for all that it needs.
  var isSmall: Bool { maxKeys < 1000 || stateBytes < 1 << 20 || keys?.member == .n }

  /// What differs from the defaults.
  var description: String {
    var parts: [String] = isServed ? [type, "\(content)"] : ["not served"]
    if !kind.bases.isEmpty {
      parts.append(
        "\(kind.isMirror ? "mirrors" : "of") \(kind.bases.joined(separator: " and "))"
          + "\(kind.filter.map { " where \($0)" } ?? "")")
    }
    if keep != .memory { parts.append("keep \(keep)") }
    parts.append("\(events) events, \(bytes) bytes\(age.map { ", \($0)" } ?? "")")
    if let keys { parts.append("\(keys), \(maxKeys) keys, \(stateBytes) bytes") }
    if blocks { parts.append("blocks, \(blockTimeout.map { "\($0)" } ?? "for ever")") }
    if start != .subscribed { parts.append("start \(start)") }
    if let readers { parts.append("readers \(readers)") }
    if let writers { parts.append("writers \(writers)") }
    return parts.joined(separator: ", ")
  }

  static let users: [UInt32] = [1000, 1001, 1002]

  /// Another one, as an operator may write it next.
  mutating func change(_ random: inout Random) {
    switch random.below(10) {
    case 0: readers = random.chance(50) ? nil : [random.pick(Self.users)]
    case 1: writers = random.chance(50) ? nil : [random.pick(Self.users)]
    case 2: events = random.pick([1, 2, 3, 8, 16, 64])
    case 3: bytes = random.pick([4096, 8192, 16 << 10, 160 << 10])
    case 4: keep = random.pick([.no, .memory, .memory, .disk, .disk])
    case 5: blocks.toggle()
    case 6: onLag = random.pick([.skip, .latest, .fail])
    // A mirror that nobody reads has no connection.
    case 7 where !kind.isMirror:
      start = random.pick([.subscribed, .subscribed, .first, .always])
      linger = random.pick([.zero, .zero, .seconds(5)])
    case 8 where type == "application/json" && content != .plain && content != .string: changeKeys(&random)
    default:
      blockTimeout = random.pick([nil, .seconds(5), .seconds(20)])
      replay = random.pick([0, 1, 4, 64])
      age = random.chance(80) ? nil : .seconds(30)
    }
  }

  private mutating func changeKeys(_ random: inout Random) {
    if keys == nil || random.chance(40) { keys = random.chance(15) ? nil : .random(&random) }
    maxKeys = random.pick([1, 3, 1000, 1000])
    stateBytes = random.pick([4096, 16 << 10, 1 << 20, 1 << 20])
  }

  static func random(
    _ name: String, _ kind: Kind, origin: String, _ profile: Profile, _ random: inout Random
  ) -> Self {
    var made = Self(name, kind, origin: origin)
    made.type = random.pick(["application/json", "application/json", "text/plain", "text/plain", "image/png"])
    made.content = random.pick([.plain, .plain, .plain, .plain, .string, .object, .object, .mixed])
    if random.chance(profile.keyedStreams) {
      (made.type, made.content) = ("application/json", random.pick([.object, .object, .mixed]))
      made.keys = .random(&random)
    }
    made.events = random.pick([1, 3, 16, 16])
    for _ in 0..<random.below(8) { made.change(&random) }
    if made.keys != nil, random.chance(profile.slowStates) {
      (made.events, made.keep) = (random.pick([1, 2, 3, 8]), random.pick([.no, .memory, .disk]))
      // A state with little room keeps former events for a slow reader only for a while.
      made.stateBytes = random.pick([8192, 16 << 10, 1 << 20])
    }
    if random.chance(profile.blockingStreams) {
      (made.blocks, made.blockTimeout) = (true, random.pick([nil, .seconds(5), .seconds(5), .seconds(20)]))
    }
    if random.chance(profile.largeEvents) {
      made.bytes = 160 << 10
      // A reader that is slow enough is overtaken in the middle of an event.
      if random.chance(70) { made.start = .always }
    }
    if random.chance(70) { made.readers = nil }
    if random.chance(70) { made.writers = nil }
    return made
  }

  /// A stream that is derived from one of the others, or from several. Its events are of the kinds that theirs are.
  static func random(
    _ name: String, derivedFrom streams: [Self], _ profile: Profile, _ random: inout Random
  ) -> Self {
    var choices = [["s0"]]
    if name == "d1" {
      let other = profile.hasOrigin ? "e0" : "s2"
      choices = [["s1"], ["s1", "p0"], ["s0", "p0", "s1"], ["s1", other], [other, "s1"]]
    }
    let names = random.pick(choices)
    let bases = streams.filter { names.contains($0.name) }
    let isJSON = bases.contains { $0.content != .plain }
    let filter = isJSON && random.chance(50) ? Filter.random(&random) : nil
    var made = Self.random(name, .derived(of: names, where: filter), origin: streams[0].origin, profile, &random)
    let hasObjects = bases.contains { [.object, .mixed].contains($0.content) }
    made.content = hasObjects ? .mixed : .plain
    if bases.contains(where: \.isText) { (made.type, made.content) = ("text/plain", .plain) }
    if made.content == .plain { made.keys = nil }
    return made
  }

  /// A stream with the events of another one, as if that were another streamd's.
  /// - Parameter path: of the other streamd's socket.
  static func random(
    _ name: String, mirroring stream: Self, at path: String, _ profile: Profile, _ random: inout Random
  ) -> Self {
    let filters: [Filter?] = stream.content == .plain ? [nil] : [nil, .random(&random)]
    var made = Self.random(name, .mirror(of: stream.name, where: random.pick(filters)), origin: path, profile, &random)
    (made.type, made.content) = (stream.type, stream.content)
    if made.content == .plain { made.keys = nil }
    (made.start, made.linger) = (.subscribed, .zero)
    return made
  }
}
