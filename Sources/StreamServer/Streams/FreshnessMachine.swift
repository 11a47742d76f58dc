/// Decides whether a stream is stale: neither an event nor a fetch that found it unchanged has come for longer than a
/// limit, although its source was asked. Works on observations and times; uses no log, clock or timer.
///
/// Nothing happens per event: a check compares the log's count of events with that of the check before. Times are
/// nanoseconds of the monotonic clock, so that a wall clock which is set changes nothing. The time in which the source is
/// not asked does not count; it begins anew when the source is asked again.
struct FreshnessMachine: Equatable, Sendable {
  /// What a check sees.
  struct Observation: Equatable {
    /// The number of events that the log has taken; any other number than before shows that one has come.
    var events: UInt64
    /// The age of the newest event by the wall clock, in nanoseconds; nil: unknown. Used within the time since the last
    /// check only: beyond it the clock was set, or the event is of another host, and has come just now.
    var newestAge: UInt64?
    /// When a fetch last succeeded; nil: none has.
    var fetchedAt: UInt64?
    /// Whether the source is asked for an event; nil: a change of the stream is under way, which decides nothing.
    var isDemanded: Bool?
  }

  /// What has changed.
  enum Change: Equatable {
    case none
    /// It is stale now.
    case stale
    /// An event or a successful fetch has come, or the limit is longer.
    case recovered
    /// The source is not asked any more, so the stream is no longer stale.
    case idle
  }

  /// The part of the state that the next process continues. Both use the clock of the same boot.
  struct Saved: Equatable, Sendable {
    /// 0: unknown.
    var provedAt: UInt64
    /// 0: the source was not asked.
    var demandedSince: UInt64
    var isStale: Bool
  }

  /// The maximum time without an event and a successful fetch, in nanoseconds.
  var limit: UInt64
  /// When an event or a successful fetch was last known to have come; nil: unknown.
  private(set) var provedAt: UInt64?
  /// Since when the source has been asked without a pause; nil: it is not asked.
  private var demandedSince: UInt64?
  private var events: UInt64
  private var checkedAt: UInt64
  private(set) var isStale = false

  /// - Parameter newestAge: of the newest event that the log has at the start; nil: unknown.
  init(limit: UInt64, events: UInt64, newestAge: UInt64?, at now: UInt64) {
    (self.limit, self.events, checkedAt) = (limit, events, now)
    provedAt = newestAge.flatMap { $0 <= now ? now - $0 : nil }
  }

  /// How long until the next check: short enough that a stream is stale at most an eighth of its limit too late, and not
  /// more than a second.
  var checkPeriod: UInt64 { min(1_000_000_000, max(50_000_000, limit / 8)) }

  /// Since when the stream is stale; nil: it is not.
  var staleSince: UInt64? {
    isStale ? countsFrom.map { $0.addingReportingOverflow(limit).overflow ? .max : $0 + limit } : nil
  }

  /// When the time without a sign of life began.
  private var countsFrom: UInt64? { demandedSince.map { max($0, provedAt ?? 0) } }

  /// Takes an observation in, without a decision.
  mutating func observe(_ observation: Observation, at now: UInt64) {
    if observation.events != events {
      let age = observation.newestAge.flatMap { $0 <= now - min(now, checkedAt) ? $0 : nil } ?? 0
      provedAt = max(provedAt ?? 0, now - min(now, age))
      events = observation.events
    }
    if let fetchedAt = observation.fetchedAt { provedAt = max(provedAt ?? 0, min(fetchedAt, now)) }
    checkedAt = max(checkedAt, now)
  }

  /// Takes an observation in and decides.
  mutating func check(_ observation: Observation, at now: UInt64) -> Change {
    observe(observation, at: now)
    guard let isDemanded = observation.isDemanded else { return .none }
    demandedSince = isDemanded ? demandedSince ?? now : nil
    let wasStale = isStale
    isStale = countsFrom.map { now > $0 && now - $0 > limit } ?? false
    switch (wasStale, isStale) {
    case (false, true): return .stale
    case (true, false): return isDemanded ? .recovered : .idle
    case (false, false), (true, true): return .none
    }
  }

  /// For the next process.
  var saved: Saved { Saved(provedAt: provedAt ?? 0, demandedSince: demandedSince ?? 0, isStale: isStale) }

  /// Continues the state of the previous process. Times that have not come yet are left out.
  mutating func restore(_ saved: Saved, at now: UInt64) {
    if 1...max(1, now) ~= saved.provedAt { provedAt = max(provedAt ?? 0, saved.provedAt) }
    guard 1...max(1, now) ~= saved.demandedSince else { return }
    (demandedSince, isStale) = (saved.demandedSince, saved.isStale)
  }
}
