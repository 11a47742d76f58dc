import ReplayLog
import StreamProtocol
import StreamRuntime
import Synchronization

/// Whether a stream's source works, apart from whether there are subscriptions.
public enum SourceHealth: Equatable, Sendable {
  /// There is no known problem.
  case healthy
  /// There is demand, but the host of the upstream has no free transfer or is rate-limited; with the reason.
  case waiting(String)
  /// It fails and is retried; with the reason.
  case failing(String)
}

/// The state of a stream that the hosts of a fleet share.
public struct FleetStatus: Equatable, Sendable {
  /// Whether this host leads the stream: it fetches it, or takes published values in, for all hosts.
  public var isLeading: Bool
  /// The name of the leading host; nil: there is none.
  public var leader: String?
  /// The number of the leadership, which only rises within an epoch.
  public var term: UInt64
  /// Rises when the brokers have lost events, and ids continue above a gap.
  public var epoch: UInt64
  /// Records of the stream's shard that the leader has announced and this host does not have.
  public var lag: UInt64
  /// Since when this host does not know whether it has the newest event; microseconds since the Unix epoch; nil: it does.
  public var staleSince: UInt64?
  /// The names of the hosts that define the stream otherwise, as far as this host knows: the leader, or, for the leader, all
  /// others.
  public var otherHosts: [String]
  /// The present time without a connection to the brokers; nil: they can be reached.
  public var outage: Outage?

  /// A time without a connection to the fleet's brokers.
  public struct Outage: Equatable, Sendable {
    /// Microseconds since the Unix epoch.
    public let since: UInt64
    /// The last failure.
    public var reason: String

    /// Creates a description.
    public init(since: UInt64, reason: String) { (self.since, self.reason) = (since, reason) }
  }

  /// Creates a status.
  public init(
    isLeading: Bool, leader: String?, term: UInt64, epoch: UInt64, lag: UInt64, staleSince: UInt64?,
    otherHosts: [String] = [], outage: Outage? = nil
  ) {
    self.outage = outage
    (self.isLeading, self.leader, self.term, self.epoch) = (isLeading, leader, term, epoch)
    (self.lag, self.staleSince, self.otherHosts) = (lag, staleSince, otherHosts)
  }

  /// A sentence on the hosts with another definition; nil: there are none.
  package func difference(showsNames: Bool) -> String? {
    guard let first = otherHosts.first else { return nil }
    let rest = otherHosts.count - 1
    let more = rest == 0 ? "" : rest == 1 ? " and one other host" : " and \(rest) other hosts"
    return showsNames ? "defined otherwise on \(first)\(more)" : "defined otherwise on another host"
  }
}

/// Whether the brokers of the fleet can be reached.
public enum FleetConnection: Equatable, Sendable {
  /// The brokers can be reached.
  case connected
  /// The brokers cannot be reached, or not yet; with the reason.
  case disconnected(String)

  /// The text in `$stats`.
  var text: String {
    switch self {
    case .connected: "connected"
    case .disconnected(let reason): "not connected: \(reason)"
    }
  }
}

extension CatalogueEntry.Fleet {
  /// - Parameter showsNames: whether it names the leader.
  init(_ status: FleetStatus, showsNames: Bool) {
    self.init(
      role: status.isLeading ? "leader" : "follower", leader: showsNames ? status.leader : nil, term: status.term,
      epoch: status.epoch, lag: status.lag, staleSince: status.staleSince,
      otherHosts: status.otherHosts.isEmpty ? nil : UInt64(status.otherHosts.count))
  }
}

/// The health of the parts of a stream's feed. The server reads it for `$streams`. The feed after a change has its own
/// status, so that late reports of the former feed have no effect.
public final class SourceStatus: Sendable {
  /// The parts of a feed, in the order in which events pass.
  public enum Part: Int, CaseIterable, Sendable {
    /// The poll, stream, program, timer or publish source.
    case source
    /// The pipeline's process.
    case pipeline
    /// The newest event, which the pipeline may have failed on.
    case lastEvent
  }

  private struct State {
    var health = [SourceHealth](repeating: .healthy, count: Part.allCases.count)
    /// When a fetch last succeeded, and when the fetch before it did, in nanoseconds of the monotonic clock; nil: none
    /// did.
    var fetchedAt: UInt64?
    var formerlyFetchedAt: UInt64?
    var fleet: FleetStatus?
    /// The last status that was listed, and the period of its lag.
    var listedFleet: FleetStatus?
    var lagPeriod: UInt64 = 0
    var isFleetSourceAsked = false
    var figures = UpstreamFigures()
    var refresh: Refresh?
    var missed: UInt64?
    /// The bases of a derived stream.
    var derivation: Derivation?
  }

  private final class Noted {
    var state = State()
  }

  /// In an object, because there is nothing to note of most streams to which clients publish.
  private let noted = Locked<Noted?>(nil)
  private static let none = State()

  private func read<R>(_ body: (State) -> R) -> R { noted.withLock { body($0?.state ?? Self.none) } }

  private func write<R>(_ body: (inout State) -> R) -> R {
    noted.withLock { noted in
      let present = noted ?? Noted()
      noted = present
      return body(&present.state)
    }
  }

  /// Makes the source ask its upstream now. Calls its argument once, on any thread: with the reason why the source does
  /// not ask, as a sentence, or with nil.
  public typealias Refresh = @Sendable (_ completed: @escaping @Sendable (String?) -> Void) -> Void

  /// The minimum time between events of `$streams` that show nothing but other lags, in nanoseconds. The exact lag is in
  /// `$stats` and in the metrics.
  static let lagPeriod: UInt64 = 10_000_000_000

  /// Creates a status in which every part is healthy.
  public init() {}

  /// This host's part in a stream that hosts share; nil for others. Thread-safe.
  public var fleet: FleetStatus? {
    get { read { $0.fleet } }
    set { write { $0.fleet = newValue } }
  }

  /// `fleet` as `$streams` lists it. A status that differs in nothing but its lag is listed in the next period, which
  /// begins for all streams at the same time. Otherwise every record would be an event of `$streams`. Thread-safe.
  /// - Parameter now: nanoseconds of the monotonic clock.
  func listedFleet(at now: UInt64) -> FleetStatus? {
    guard fleet != nil else { return nil }
    return write { state in
      let period = now / Self.lagPeriod
      var unchanged = state.fleet
      if let lag = state.listedFleet?.lag { unchanged?.lag = lag }
      if unchanged != state.listedFleet || period != state.lagPeriod {
        (state.listedFleet, state.lagPeriod) = (state.fleet, period)
      }
      return state.listedFleet
    }
  }

  /// The health of the first part on an event's path that is not healthy.
  public var health: SourceHealth { read { $0.health.first { $0 != .healthy } ?? .healthy } }

  /// Sets the health of one part. If the pipeline fails, the last fetch does not count: its event may be the reason.
  /// Thread-safe.
  public func set(_ health: SourceHealth, of part: Part = .source) {
    if health == .healthy, noted.withLock({ $0 == nil }) { return }
    write { state in
      state.health[part.rawValue] = health
      if part != .source, case .failing = health { state.fetchedAt = state.formerlyFetchedAt }
    }
  }

  /// A fetch has succeeded: it has found an event, or that there is none since the last one. Has no effect while the
  /// pipeline fails, because the stream lacks an event then. Thread-safe.
  public func noteFetch() {
    let now = EventLoop.monotonicNow()
    write { state in
      guard state.health.dropFirst().allSatisfy({ $0 == .healthy }) else { return }
      (state.formerlyFetchedAt, state.fetchedAt) = (state.fetchedAt, now)
    }
  }

  /// When a fetch last succeeded, in nanoseconds of the monotonic clock; nil: none has, or the source does not fetch.
  var fetchedAt: UInt64? { read { $0.fetchedAt } }

  /// What is known of a derived stream's bases; nil for others. Thread-safe.
  var derivation: Derivation? {
    get { read { $0.derivation } }
    set { write { $0.derivation = newValue } }
  }

  // MARK: The upstream

  /// Sets how the source is made to ask its upstream, if it has one. Thread-safe.
  public func setRefresh(_ refresh: @escaping Refresh) {
    write { $0.refresh = refresh }
  }

  /// The function of `setRefresh`; nil: the source has no upstream. Thread-safe.
  var refresh: Refresh? { read { $0.refresh } }

  /// The figures of the source. This property and the functions below are thread-safe.
  public var upstream: UpstreamFigures { read { $0.figures } }

  /// A request is sent, or a program is started.
  public func noteAttempt() {
    write { state in
      state.figures.attempts += 1
      state.figures.nextAttempt = nil
    }
  }

  /// The head of a response has come.
  public func noteAnswer(status: Int, after time: Duration) {
    let now = EventLoop.wallClock()
    write { state in
      state.figures.latency.add(UInt64(max(0, time.wholeNanoseconds / 1000)))
      if status == 304 { state.figures.unchanged += 1 }
      if status == 304 || (200..<300).contains(status) { state.figures.lastAnswer = now }
    }
  }

  /// Bytes of a response or of a program's output were taken.
  public func noteReceived(byteCount: Int) { write { $0.figures.bytes += UInt64(byteCount) } }

  /// So many events were lost before the source could read them; 0: it would know of a loss.
  public func noteMissed(_ count: UInt64) { write { $0.missed = ($0.missed ?? 0) &+ count } }

  /// Events of its bases, or of its upstream, that were lost before the stream read them; nil: it would not know.
  var missed: UInt64? { derivation?.missed.load(ordering: .relaxed) ?? read { $0.missed } }

  /// The next attempt is due after this time.
  public func noteNextAttempt(after time: Duration) {
    let now = EventLoop.wallClock()
    write { $0.figures.nextAttempt = now &+ UInt64(max(0, time.wholeNanoseconds / 1000)) }
  }

  /// An attempt has failed; the next one is due after this time; nil: there is none before a refresh.
  public func noteFailure(nextAfter time: Duration?) {
    write { $0.figures.failures += 1 }
    if let time { noteNextAttempt(after: time) }
  }

  /// Continues the former feed's counters, and the time of its last fetch.
  func inherit(from former: SourceStatus) {
    let (time, earlier, missed) = (former.fetchedAt, former.upstream, former.missed)
    guard time != nil || missed != nil || earlier != UpstreamFigures() else { return }
    if let missed { derivation?.missed.add(missed, ordering: .relaxed) }
    write { state in
      state.figures.add(earlier)
      if let missed, let own = state.missed { state.missed = own &+ missed }
      (state.fetchedAt, state.formerlyFetchedAt) = (state.fetchedAt ?? time, time)
    }
  }

  /// Whether this host's source of a stream that hosts share is asked for an event. Set once a second.
  public var isFleetSourceAsked: Bool {
    get { read { $0.isFleetSourceAsked } }
    set { write { $0.isFleetSourceAsked = newValue } }
  }

  /// Makes every part healthy, because the source is resubscribed to.
  func reset() { for part in Part.allCases { set(.healthy, of: part) } }
}
