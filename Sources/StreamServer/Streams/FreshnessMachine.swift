/// Decides whether a stream is stale: its source was asked, but for longer than a limit neither an event nor a
/// successful fetch has come. Works on observations and times; uses no log, clock or timer.
///
/// Nothing happens per event: a check compares the log's count of events with the count at the last check. Times are
/// nanoseconds of the monotonic clock, so that setting the wall clock has no effect. The time in which the source is
/// not asked does not count. When it is asked again, the time begins anew.
struct FreshnessMachine: Equatable, Sendable {
  /// The input of a check.
  struct Observation: Equatable {
    /// The number of events that the log has taken. A number that differs from the last one shows that an event has
    /// come.
    var events: UInt64
    /// The age of the newest event by the wall clock, in nanoseconds; nil: unknown. An age beyond the time since the
    /// last check is not used: the clock was set, or the event comes from another host. The event then counts as new.
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

  /// The part of the state that the next process continues. Both processes use the clock of the same boot.
  struct Saved: Equatable, Sendable {
    /// The machine's `provedAt`; 0: unknown.
    var provedAt: UInt64
    /// Since when the source has been asked; 0: it was not asked.
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

  /// - Parameter newestAge: the age of the newest event that the log has at the start; nil: unknown.
  init(limit: UInt64, events: UInt64, newestAge: UInt64?, at now: UInt64) {
    (self.limit, self.events, checkedAt) = (limit, events, now)
    provedAt = newestAge.flatMap { $0 <= now ? now - $0 : nil }
  }

  /// The time until the next check: an eighth of the limit, but from 50 ms to 1 s. A stream is found stale at most this
  /// much too late.
  var checkPeriod: UInt64 { min(1_000_000_000, max(50_000_000, limit / 8)) }

  /// Since when the stream is stale; nil: it is not.
  var staleSince: UInt64? {
    isStale ? countsFrom.map { $0.addingReportingOverflow(limit).overflow ? .max : $0 + limit } : nil
  }

  /// The start of the time without an event and a successful fetch.
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

  /// The state for the next process.
  var saved: Saved { Saved(provedAt: provedAt ?? 0, demandedSince: demandedSince ?? 0, isStale: isStale) }

  /// Continues the state of the previous process. Times that have not come yet are left out.
  mutating func restore(_ saved: Saved, at now: UInt64) {
    if 1...max(1, now) ~= saved.provedAt { provedAt = max(provedAt ?? 0, saved.provedAt) }
    guard 1...max(1, now) ~= saved.demandedSince else { return }
    (demandedSince, isStale) = (saved.demandedSince, saved.isStale)
  }
}
