import StreamRuntime
import Reactive

// Which members hold up a stream that drops nothing. While a member rests, a clock looks every so often whether the source
// waits for the slowest members. For as long as it does, each member that rests with events unread owes the time, and each
// event that it takes pays off the stream's pace: as much as one may take for an event. So a member that takes an event now
// and then does not begin anew with each, and one that keeps the pace never owes anything. Nothing else pays: the debt is
// cheap to keep, and members that take turns in holding the stream up owe the more for it.
//
// Only the slowest members are reported and cut off: the source waits for no other. As those behind them owe as well, and
// the look after a cut comes soon, a row of members at different positions costs one timeout and some moments.
//
// What a member owes when it leaves stays with its user (`UserDebts`), decays at a tenth of the speed of time, and passes on
// to the next member of the user that rests so. An heir that keeps the pace is not cut off for that.

extension Lane {
  /// What the clock has seen so far.
  struct StallDetector {
    var timer: TimerID?
    /// When it looks next, and when it looked last, in nanoseconds on the loop's clock.
    var nextCheck = UInt64.max
    var lastCheck: UInt64
    /// Of members that have rested while the source waited.
    var debts: [ObjectIdentifier: Debt] = [:]
    /// The client that the stream's state names.
    var reportedHolder: ClientIdentity?
  }

  /// What there is to see at one moment.
  private struct Observation {
    let now: UInt64
    /// When the look before was.
    let before: UInt64
    let period: Duration
    let timeout: Duration?
    let pace: Duration
    /// The position of the slowest members of all lanes; nil while the source waits for none.
    let waitedFor: UInt64?
    /// The position of the newest event; nil when none is held.
    let newest: UInt64?

    func owes(_ member: StreamSubscription) -> Bool {
      // One that has everything and asks for no more keeps no source waiting.
      guard waitedFor != nil, let newest, member.cursor.position <= newest else { return false }
      return member.machine.isResting
    }

    /// Brings a debt up to date, by the time since the last look, or since the member was noted first.
    func settle(_ debt: inout Debt, of member: StreamSubscription) {
      // A loop that was late is not the members' fault.
      let time = min(.nanoseconds(Int64(clamping: now - min(now, max(before, debt.since)))), period * 2)
      debt.settle(at: member.cursor.position, adding: owes(member) ? time : .zero, pace: pace)
    }

    func reaches(_ limit: Duration, _ debt: Debt) -> Bool {
      debt.reaches(limit, tolerance: Debt.tolerance(for: limit, period: period, pace: pace))
    }
  }

  /// Between two looks, at most.
  private static let period = Duration.seconds(1)

  /// Between two looks, at least: after a cut, and while a member waits for its own. A look costs some 100 ns for each member.
  private var shortPeriod: Duration { .milliseconds(10) + .microseconds(members.count) }

  /// Looks from now on, for as long as a member rests or owes something.
  func watchForStalls() {
    worker.loop.assertOnLoop()
    guard stallDetector == nil, !worker.hasSaved else { return }
    stallDetector = StallDetector(lastCheck: worker.loop.now)
    check()
  }

  func stopWatchingForStalls() {
    if let timer = stallDetector?.timer { worker.loop.cancel(timer) }
    setHolder(nil)
    stallDetector = nil
  }

  /// A member is new: it may leave before it is looked at.
  func startDebt(of member: StreamSubscription) {
    guard let nextCheck = stallDetector?.nextCheck else { return }
    let now = worker.loop.now
    stallDetector?.debts[ObjectIdentifier(member)] = Debt(position: member.cursor.position, since: now)
    guard stream.debts.withLock({ $0.owes(member.connection.share.account.user, at: now) }) else { return }
    let shortPeriod = shortPeriod
    if nextCheck > now + UInt64(shortPeriod / .nanoseconds(1)) { scheduleCheck(after: shortPeriod) }
  }

  /// A member leaves, and its user owes for it. Before it has ended.
  func keepDebt(of member: StreamSubscription) {
    guard var debt = stallDetector?.debts.removeValue(forKey: ObjectIdentifier(member)),
      let observation = observe()
    else { return }
    observation.settle(&debt, of: member)
    keep(debt, of: member, observation)
  }

  private func keep(_ debt: Debt, of member: StreamSubscription, _ observation: Observation) {
    guard let timeout = observation.timeout else { return }
    stream.debts.withLock {
      $0.keep(debt, of: member.connection.share.account.user, at: observation.now, limit: timeout)
    }
  }

  /// - Parameter holder: the client that the source waits for, for longer than ordinary backpressure takes.
  private func setHolder(_ holder: (client: ClientIdentity, unread: UInt64)?) {
    guard stallDetector?.reportedHolder != holder?.client else { return }
    if let reportedHolder = stallDetector?.reportedHolder { stream.clearHolder(reportedHolder) }
    stallDetector?.reportedHolder = holder?.client
    if let holder { stream.setHolder(.init(client: holder.client, unread: holder.unread)) }
  }

  /// - Returns: nil for a stream that drops.
  private func observe() -> Observation? {
    guard case .block(let timeout, let pace) = stream.configuration.overflow else { return nil }
    let now = worker.loop.now
    return Observation(
      now: now, before: stallDetector?.lastCheck ?? now,
      period: min(Self.period, worker.limits.stallTime / 4, (timeout ?? Self.period) / 4), timeout: timeout,
      pace: pace, waitedFor: stream.log.positionUpstreamWaitsFor,
      newest: stream.log.read { storage, _ in
        storage.firstPosition < storage.endPosition ? storage.position(ofLast: 1) : nil
      })
  }

  private func check() {
    guard stallDetector?.debts.isEmpty == false || members.contains(where: \.machine.isResting)
    else { return stopWatchingForStalls() }
    guard let seen = observe() else { return stopWatchingForStalls() }
    let pause = evaluate(seen)
    if stallDetector != nil { scheduleCheck(after: pause) }  // else the last member was cut off
  }

  private func scheduleCheck(after pause: Duration) {
    if let timer = stallDetector?.timer { worker.loop.cancel(timer) }
    stallDetector?.nextCheck = worker.loop.now + UInt64(pause / .nanoseconds(1))
    stallDetector?.timer = worker.loop.schedule(after: pause) { [self] in check() }
  }

  /// - Returns: when to look again.
  private func evaluate(_ observation: Observation) -> Duration {
    stallDetector?.lastCheck = observation.now
    let unread = stream.log.read { storage, _ in storage.count(from: oldestUnread, to: storage.endPosition) }
    let stallTime = worker.limits.stallTime
    let isSlowest = observation.waitedFor == oldestUnread
    var holder: StreamSubscription?
    var overdue: [StreamSubscription] = []
    var isRow = false
    for member in members where stallDetector?.debts.isEmpty == false || observation.waitedFor != nil {
      let owes = observation.owes(member)
      let holds = owes && isSlowest && member.cursor.position == oldestUnread
      guard let debt = settle(member, owes: owes, observation), owes else { continue }
      if holds, observation.reaches(stallTime, debt) {
        if !debt.isReported { report(member, unread) }
        holder = holder ?? member
      }
      guard let timeout = observation.timeout, observation.reaches(timeout, debt) else { continue }
      if holds { overdue.append(member) } else { isRow = true }  // its turn comes with the end of another
    }
    setHolder(holder.map { ($0.connection.identity, unread) })
    // The end of one may be the end of its connection, and of others with it.
    for member in overdue where member.state != .ended {
      stallDetector?.debts[ObjectIdentifier(member)]?.restart()
      worker.report(.clientCutOff(member.connection.identity, stream: stream.name, unread: unread))
      member.connection.fail(
        member, .lagged("stalled \"\(stream.name)\" for \(observation.timeout ?? .zero), \(unread) events behind"))
    }
    return overdue.isEmpty && !isRow ? observation.period : min(observation.period, shortPeriod)
  }

  /// Brings a member's debt up to date.
  /// - Returns: nil for none.
  private func settle(_ member: StreamSubscription, owes: Bool, _ observation: Observation) -> Debt? {
    let key = ObjectIdentifier(member)
    var debt: Debt
    if let known = stallDetector?.debts[key] {
      debt = known
      observation.settle(&debt, of: member)
    } else {
      guard owes else { return nil }
      debt = Debt(position: member.cursor.position, since: observation.now)
    }
    let user = member.connection.share.account.user
    if owes, let kept = stream.debts.withLock({ $0.take(user, at: observation.now) }) { debt.inherit(kept) }
    if !debt.reaches(worker.limits.stallTime, tolerance: .zero) { debt.isReported = false }
    if owes || debt.own > .zero {
      stallDetector?.debts[key] = debt
    } else {
      stallDetector?.debts[key] = nil
      keep(debt, of: member, observation)  // it decays there
    }
    return debt
  }

  private func report(_ member: StreamSubscription, _ unread: UInt64) {
    stallDetector?.debts[ObjectIdentifier(member)]?.isReported = true
    worker.report(.clientHoldsUp(member.connection.identity, stream: stream.name, unread: unread))
    worker.counters.holdUps.add(1, ordering: .relaxed)
  }
}
