// What users owe a stream that drops nothing for the time in which its source has waited for subscriptions that have
// ended: else a client would begin anew by subscribing again. See `Lane+Stalls`.

/// What a member of a lane owes for the time in which the source waited and it took nothing, less its stream's pace for
/// each event that it took.
struct Debt {
  /// When it was noted first, in nanoseconds of the monotonic clock.
  let since: UInt64
  /// Where the member stood at the last look.
  private(set) var position: UInt64
  /// Its own. Of an heir also what heirs before it owed that left early.
  private(set) var own = Duration.zero
  /// What subscriptions of its user have left to it.
  private(set) var inherited = Duration.zero
  private(set) var hasInherited = false
  var isReported = false

  init(position: UInt64, since: UInt64) {
    (self.position, self.since) = (position, since)
  }

  /// Less than that is no debt of an heir: it has kept the pace, or has not had the time to.
  ///
  /// - Parameters:
  ///   - limit: the debt in question.
  ///   - period: between two looks at it.
  ///   - pace: what an event pays off.
  static func tolerance(for limit: Duration, period: Duration, pace: Duration) -> Duration {
    min(max(period, pace) * 2, limit / 2)
  }

  /// Whether it owes `limit`. Inherited debt counts once the member itself has let its source wait.
  func reaches(_ limit: Duration, tolerance: Duration) -> Bool {
    own + inherited >= limit && own >= (hasInherited ? tolerance : limit)
  }

  var isZero: Bool { own == .zero && inherited == .zero }

  /// Adds a time in which the member owed, and takes off what it has paid: first its own.
  mutating func settle(at position: UInt64, adding time: Duration, pace: Duration) {
    let taken = Int(clamping: min(position - min(position, self.position), 1 << 31))
    self.position = position
    let (due, paid) = (own + time, pace * taken)
    own = max(.zero, due - paid)
    inherited = max(.zero, inherited - max(.zero, paid - due))
  }

  /// Takes over what its user has owed.
  mutating func inherit(_ kept: UserDebts.Kept) {
    own += kept.own
    inherited += kept.inherited
    hasInherited = true
  }

  /// The member is cut off: the next one of its user has time to show that it keeps the pace.
  mutating func restart() {
    (own, inherited) = (.zero, own + inherited)
  }
}

/// What users owe one stream beside its subscriptions, in nanoseconds of the monotonic clock.
struct UserDebts {
  /// What one user owes.
  struct Kept {
    fileprivate(set) var own = Duration.zero
    fileprivate(set) var inherited = Duration.zero
    /// When it had none.
    fileprivate let since: UInt64
    /// Until when it has decayed.
    fileprivate var time: UInt64

    /// Less a tenth of the time since the last look.
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

  /// Users at a time; the one that owes least is forgotten for another.
  static let capacity = 1024

  private var users: [ClientUser: Kept] = [:]

  var count: Int { users.count }

  func owes(_ user: ClientUser, at now: UInt64) -> Bool { users[user]?.decayed(at: now) != nil }

  /// A member of the user has left.
  /// - Parameter limit: no user owes more of either kind.
  mutating func keep(_ debt: Debt, of user: ClientUser, at now: UInt64, limit: Duration) {
    guard !debt.isZero else { return }
    let former = users[user]?.decayed(at: now)
    var kept = former ?? Kept(since: now, time: now)
    // One that came after the debt, and left before a look could give it that, is an heir as well.
    let hasInherited = debt.hasInherited || former.map { debt.since >= $0.since } ?? false
    kept.inherited = min(limit, kept.inherited + debt.inherited + (hasInherited ? .zero : debt.own))
    kept.own = min(limit, kept.own + (hasInherited ? debt.own : .zero))
    users[user] = kept
    guard users.count > Self.capacity else { return }
    users = users.compactMapValues { $0.decayed(at: now) }
    if users.count > Self.capacity, let least = users.min(by: { $0.value.total < $1.value.total }) {
      users[least.key] = nil
    }
  }

  /// Takes out what the user owes, for a member of it.
  mutating func take(_ user: ClientUser, at now: UInt64) -> Kept? {
    users.removeValue(forKey: user)?.decayed(at: now)
  }
}
