// The stall time of users in a stream that drops nothing, from subscriptions that have ended: otherwise a client could
// reset it with a new subscription. See `Lane+Stalls`.

/// A member's stall time: the time in which the source waited and the member read nothing, less the stream's pace for
/// each event that it read.
struct Debt {
  /// The time of its creation, in nanoseconds of the monotonic clock.
  let since: UInt64
  /// The member's progress in events at the last check.
  private(set) var progress: UInt64
  /// The member's own stall time. For a member that has inherited, it includes the stall time of earlier heirs that
  /// ended early.
  private(set) var own = Duration.zero
  /// The stall time inherited from ended subscriptions of its user.
  private(set) var inherited = Duration.zero
  private(set) var hasInherited = false
  var isReported = false

  init(progress: UInt64, since: UInt64) {
    (self.progress, self.since) = (progress, since)
  }

  /// An heir with a smaller own debt does not fail: it has kept the pace, or has not had time to keep it.
  ///
  /// - Parameters:
  ///   - limit: the limit of the debt.
  ///   - period: the time between two checks.
  ///   - pace: the reduction per event.
  static func tolerance(for limit: Duration, period: Duration, pace: Duration) -> Duration {
    min(max(period, pace) * 2, limit / 2)
  }

  /// Whether it has reached `limit`. Inherited debt counts once the member itself has stalled the source.
  func reaches(_ limit: Duration, tolerance: Duration) -> Bool {
    own + inherited >= limit && own >= (hasInherited ? tolerance : limit)
  }

  var isZero: Bool { own == .zero && inherited == .zero }

  /// Adds stall time, and subtracts the pace for each event read: first from its own debt.
  mutating func settle(at progress: UInt64, adding time: Duration, pace: Duration) {
    let taken = Int(clamping: min(progress - min(progress, self.progress), 1 << 31))
    self.progress = progress
    let (due, paid) = (own + time, pace * taken)
    own = max(.zero, due - paid)
    inherited = max(.zero, inherited - max(.zero, paid - due))
  }

  /// Adds the debt that its user has kept.
  mutating func inherit(_ kept: UserDebts.Kept) {
    own += kept.own
    inherited += kept.inherited
    hasInherited = true
  }

  /// The member has failed: the next one of its user gets time to keep the pace.
  mutating func restart() {
    (own, inherited) = (.zero, own + inherited)
  }
}

/// The debts of users to one stream, from ended subscriptions; times in nanoseconds of the monotonic clock.
struct UserDebts {
  /// The debt of one user.
  struct Kept {
    fileprivate(set) var own = Duration.zero
    fileprivate(set) var inherited = Duration.zero
    /// The time of its first debt.
    fileprivate let since: UInt64
    /// The time up to which it has decayed.
    fileprivate var time: UInt64

    /// The debt, reduced by a tenth of the time since `time`.
    fileprivate func decayed(at now: UInt64) -> Kept? {
      let decay = Duration.nanoseconds(Int64(clamping: (now - min(now, time)) / 10))
      var kept = self
      kept.time = max(time, now)
      kept.inherited = max(.zero, inherited - decay)
      kept.own = max(.zero, own - max(.zero, decay - inherited))
      return kept.total > .zero ? kept : nil
    }

    fileprivate var total: Duration { own + inherited }
  }

  /// Maximum number of users; beyond it, the smallest debt is dropped, of hosts before that of others.
  static let capacity = 1024

  private var users: [ClientUser: Kept] = [:]

  var count: Int { users.count }

  func owes(_ user: ClientUser, at now: UInt64) -> Bool { users[user]?.decayed(at: now) != nil }

  /// Keeps the debt of a user's member that has ended.
  /// - Parameter limit: the maximum of either kind.
  mutating func keep(_ debt: Debt, of user: ClientUser, at now: UInt64, limit: Duration) {
    guard !debt.isZero else { return }
    let former = users[user]?.decayed(at: now)
    var kept = former ?? Kept(since: now, time: now)
    // A member that is newer than the debt, and ended before a check assigned it, is an heir as well.
    let hasInherited = debt.hasInherited || former.map { debt.since >= $0.since } ?? false
    kept.inherited = min(limit, kept.inherited + debt.inherited + (hasInherited ? .zero : debt.own))
    kept.own = min(limit, kept.own + (hasInherited ? debt.own : .zero))
    users[user] = kept
    guard users.count > Self.capacity else { return }
    users = users.compactMapValues { $0.decayed(at: now) }
    guard users.count > Self.capacity else { return }
    let hosts = users.filter { $0.key.standing == .host }
    let least = (hosts.isEmpty ? users : hosts).min { $0.value.total < $1.value.total }
    if let least { users[least.key] = nil }
  }

  /// Removes the user's debt, for a member that inherits it.
  mutating func take(_ user: ClientUser, at now: UInt64) -> Kept? {
    users.removeValue(forKey: user)?.decayed(at: now)
  }
}
