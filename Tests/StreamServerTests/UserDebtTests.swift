import Testing

@testable import StreamServer

/// The stall times of a lossless stream's subscriptions, and of their users.
@Suite struct UserDebtTests {
  private static let second: UInt64 = 1_000_000_000
  private static let limit = Duration.seconds(60)
  /// As with the defaults of the configuration.
  private static let tolerance = Debt.tolerance(for: limit, period: .seconds(1), pace: .seconds(1))

  private func debt(_ own: Duration, since: UInt64 = 0) -> Debt {
    var debt = Debt(progress: 0, since: since)
    debt.settle(at: 0, adding: own, pace: .zero)
    return debt
  }

  /// The debt of `user` for a new member.
  private func heir(_ debts: inout UserDebts, _ user: ClientUser = .uid(1), at now: UInt64) -> Debt? {
    debts.take(user, at: now).map {
      var debt = Debt(progress: 0, since: now)
      debt.inherit($0)
      return debt
    }
  }

  @Test func eventsReduceTheMembersOwnDebtFirstAndNotBelowZero() {
    var debts = UserDebts()
    debts.keep(debt(.seconds(30)), of: .uid(1), at: 0, limit: Self.limit)
    guard var heir = heir(&debts, at: 0) else { return #expect(Bool(false)) }
    heir.settle(at: 0, adding: .seconds(5), pace: .seconds(1))
    heir.settle(at: 8, adding: .seconds(1), pace: .seconds(1))
    #expect(heir.own == .zero && heir.inherited == .seconds(28))
    heir.settle(at: 1000, adding: .seconds(1), pace: .seconds(1))
    #expect(heir.isZero)
    // A member that is moved back changes nothing.
    heir.settle(at: 10, adding: .zero, pace: .seconds(1))
    #expect(heir.isZero)
  }

  @Test func ownDebtIsOverdueAtTheLimit() {
    #expect(!debt(.seconds(59)).reaches(Self.limit, tolerance: Self.tolerance))
    #expect(debt(.seconds(60)).reaches(Self.limit, tolerance: Self.tolerance))
  }

  @Test func inheritedDebtIsOverdueOnlyIfTheMemberStalls() throws {
    var debts = UserDebts()
    var cut = debt(.seconds(60))
    cut.restart()
    debts.keep(cut, of: .uid(1), at: 0, limit: Self.limit)
    var heir = try #require(heir(&debts, at: 0))
    for position in 0..<30 as Range<UInt64> {
      heir.settle(at: position * 2 + 2, adding: .seconds(1), pace: .milliseconds(500))
      #expect(!heir.reaches(Self.limit, tolerance: Self.tolerance))
    }
    for seconds in 1...3 {
      heir.settle(at: 60, adding: .seconds(1), pace: .milliseconds(500))
      #expect(heir.reaches(Self.limit, tolerance: Self.tolerance) == (seconds >= 2))
    }
  }

  @Test func aDebtDecaysAtATenthOfTheSpeedOfTime() throws {
    var debts = UserDebts()
    debts.keep(debt(.seconds(60)), of: .uid(1), at: 5 * Self.second, limit: Self.limit)
    #expect(debts.owes(.uid(1), at: 604 * Self.second) && !debts.owes(.uid(1), at: 605 * Self.second))
    #expect(!debts.owes(.uid(2), at: 0))
    let half = try #require(heir(&debts, at: 305 * Self.second))
    #expect(half.inherited == .seconds(30) && half.own == .zero)
    #expect(heir(&debts, at: 305 * Self.second) == nil)
    debts.keep(half, of: .uid(1), at: 305 * Self.second, limit: Self.limit)
    #expect(heir(&debts, at: 605 * Self.second) == nil)
  }

  /// Each takes one event, rests for ten seconds and ends; a check may see some of them, or none.
  @Test(arguments: [1, 2, 1000]) func repeatedSubscribingReachesTheLimit(seenEvery: Int) {
    var debts = UserDebts()
    var overdue = 0
    for round in 0..<20 as Range<Int> {
      let now = UInt64(round * 10) * Self.second
      var member = Debt(progress: 0, since: now)
      if round % seenEvery == 0, let kept = debts.take(.uid(1), at: now) { member.inherit(kept) }
      if member.reaches(Self.limit, tolerance: Self.tolerance) { overdue += 1 }
      member.settle(at: 1, adding: .seconds(10), pace: .milliseconds(1))
      debts.keep(member, of: .uid(1), at: now + 10 * Self.second, limit: Self.limit)
    }
    if seenEvery == 1 { #expect(overdue > 10) }
    if seenEvery == 2 { #expect(overdue > 5) }
    // The first one that a check sees is overdue.
    let last = heir(&debts, at: 200 * Self.second)
    #expect(last?.reaches(Self.limit, tolerance: Self.tolerance) == true)
  }

  /// A client with many resting subscriptions has not inherited its own debt.
  @Test func membersThatEndTogetherLeaveTimeToTheNext() throws {
    var debts = UserDebts()
    for _ in 0..<10 { debts.keep(debt(.seconds(40)), of: .uid(1), at: 50 * Self.second, limit: Self.limit) }
    let heir = try #require(heir(&debts, at: 50 * Self.second))
    #expect(heir.own == .zero && heir.inherited == Self.limit)
  }

  @Test func theNumberOfUsersIsLimitedAndTheLeastDebtIsDropped() {
    var debts = UserDebts()
    for user in 0..<2000 as Range<UInt32> {
      debts.keep(debt(.milliseconds(1000 + Int(user))), of: .uid(user), at: 0, limit: Self.limit)
    }
    #expect(debts.count == UserDebts.capacity)
    #expect(!debts.owes(.uid(0), at: 0) && debts.owes(.uid(1999), at: 0))
    // Decayed debts make space.
    debts.keep(debt(.seconds(1)), of: .uid(5000), at: 3600 * Self.second, limit: Self.limit)
    #expect(debts.count == 1)
    debts.keep(debt(.zero), of: .uid(5001), at: 3600 * Self.second, limit: Self.limit)
    #expect(debts.count == 1)
  }
}
