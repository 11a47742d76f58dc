import StreamProtocol
import StreamRuntime
import Reactive

// The detection of members that stall a stream which drops nothing. While a member rests, a timer checks whether the
// source waits for the slowest members. While it does, the time accumulates as a debt of each resting member with
// unread events, and each event that a member reads reduces its debt by the stream's pace, the permitted time per
// event. A single event therefore does not reset the debt, and a member that keeps the pace has none. Nothing else
// reduces it: a debt is cheap to keep, and members that stall the stream in turn accumulate it.
//
// Only the slowest members are reported and fail: the source waits for no other. The other members accumulate debt,
// too, and the check after a failure follows soon. Several members at different positions therefore take little more
// than one timeout.
//
// The debt of a member that ends stays with its user (`UserDebts`), decays at a tenth of the speed of time, and is
// inherited by the next member of the user that stalls the stream. A member that inherits a debt and keeps the pace
// does not fail.

extension Lane {
  /// The state of the detection.
  struct StallDetector {
    var timer: TimerID?
    /// The times of the next and of the last check, in nanoseconds on the loop's clock.
    var nextCheck = UInt64.max
    var lastCheck: UInt64
    /// The debts of members that have rested while the source waited.
    var debts: [ObjectIdentifier: Debt] = [:]
    /// The client that this lane has reported to the stream.
    var reportedHolder: ClientIdentity?
  }

  /// The inputs of one check.
  private struct Observation {
    let now: UInt64
    /// The time of the previous check.
    let before: UInt64
    let period: Duration
    let timeout: Duration?
    let pace: Duration
    /// The position of the slowest members of all lanes; nil while the source waits for none.
    let waitedFor: UInt64?
    /// The position of the newest event; nil for an empty log.
    let newest: UInt64?

    /// - Parameter position: the position of the member.
    func owes(_ member: StreamSubscription, at position: UInt64) -> Bool {
      // A member without unread events does not stall the source.
      guard waitedFor != nil, let newest, position <= newest else { return false }
      return member.machine.isResting
    }

    /// Updates a debt by the time since the last check, or since the debt was created.
    ///
    /// - Parameters:
    ///   - owes: whether the member stalls the source.
    ///   - progress: the progress of the member.
    func settle(_ debt: inout Debt, owes: Bool, at progress: UInt64) {
      // A delay of the loop is not counted.
      let time = min(.nanoseconds(Int64(clamping: now - min(now, max(before, debt.since)))), period * 2)
      debt.settle(at: progress, adding: owes ? time : .zero, pace: pace)
    }

    func reaches(_ limit: Duration, _ debt: Debt) -> Bool {
      debt.reaches(limit, tolerance: Debt.tolerance(for: limit, period: period, pace: pace))
    }
  }

  /// Maximum time between two checks.
  private static let period = Duration.seconds(1)

  /// Minimum time between two checks: after a failure, and while another is due. A check takes about 100 ns per member.
  private var shortPeriod: Duration { .milliseconds(10) + .microseconds(members.count) }

  /// Starts the checks, which continue while a member rests or has a debt.
  func watchForStalls() {
    worker.loop.assertOnLoop()
    guard stallDetector == nil, !worker.isPaused else { return }
    stallDetector = StallDetector(lastCheck: worker.loop.now)
    check()
  }

  func stopWatchingForStalls() {
    if let timer = stallDetector?.timer { worker.loop.cancel(timer) }
    setHolder(nil)
    stallDetector = nil
  }

  /// A number that grows by one with each event that a member takes, also of a state, whose ids are not adjacent.
  private func progress(of member: StreamSubscription) -> UInt64 {
    position(of: member) &+ member.machine.notes.stateCount
  }

  /// Starts the debt of a new member, which may end before the next check.
  func startDebt(of member: StreamSubscription) {
    guard let nextCheck = stallDetector?.nextCheck else { return }
    let now = worker.loop.now
    stallDetector?.debts[ObjectIdentifier(member)] = Debt(progress: progress(of: member), since: now)
    guard stream.debts.withLock({ $0.owes(member.connection.share.account.user, at: now) }) else { return }
    let shortPeriod = shortPeriod
    if nextCheck > now + UInt64(shortPeriod / .nanoseconds(1)) { scheduleCheck(after: shortPeriod) }
  }

  /// Keeps the debt of a member for its user, before the member ends.
  func keepDebt(of member: StreamSubscription) {
    guard var debt = stallDetector?.debts.removeValue(forKey: ObjectIdentifier(member)),
      let observation = observe()
    else { return }
    let owes = observation.owes(member, at: position(of: member))
    observation.settle(&debt, owes: owes, at: progress(of: member))
    keep(debt, of: member, observation)
  }

  private func keep(_ debt: Debt, of member: StreamSubscription, _ observation: Observation) {
    guard let timeout = observation.timeout else { return }
    stream.debts.withLock {
      $0.keep(debt, of: member.connection.share.account.user, at: observation.now, limit: timeout)
    }
  }

  /// - Parameter holder: the client that stalls the source for longer than ordinary backpressure.
  private func setHolder(_ holder: (client: ClientIdentity, unread: UInt64)?) {
    guard stallDetector?.reportedHolder != holder?.client else { return }
    if let reportedHolder = stallDetector?.reportedHolder { stream.clearHolder(.client(reportedHolder)) }
    stallDetector?.reportedHolder = holder?.client
    if let holder { stream.setHolder(.init(reader: .client(holder.client), unread: holder.unread)) }
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
    if stallDetector != nil { scheduleCheck(after: pause) }  // otherwise the last member has failed
  }

  private func scheduleCheck(after pause: Duration) {
    if let timer = stallDetector?.timer { worker.loop.cancel(timer) }
    stallDetector?.nextCheck = worker.loop.now + UInt64(pause / .nanoseconds(1))
    stallDetector?.timer = worker.loop.schedule(after: pause) { [self] in check() }
  }

  /// - Returns: the time until the next check.
  private func evaluate(_ observation: Observation) -> Duration {
    stallDetector?.lastCheck = observation.now
    let unread = stream.log.read { storage, _ in storage.count(from: oldestUnread, to: storage.endPosition) }
    let stallTime = worker.limits.stallTime
    let isSourceHeld = observation.waitedFor == oldestUnread
    var holder: StreamSubscription?
    var overdue: [StreamSubscription] = []
    var isRow = false
    for member in members where stallDetector?.debts.isEmpty == false || observation.waitedFor != nil {
      let position = position(of: member)
      let owes = observation.owes(member, at: position)
      let holds = owes && isSourceHeld && isSlowest(at: position)
      guard let debt = settle(member, owes: owes, observation), owes else { continue }
      if holds, observation.reaches(stallTime, debt) {
        if !debt.isReported { report(member, unread) }
        holder = holder ?? member
      }
      guard let timeout = observation.timeout, observation.reaches(timeout, debt) else { continue }
      if holds { overdue.append(member) } else { isRow = true }  // due once another member has failed
    }
    setHolder(holder.map { ($0.connection.identity, unread) })
    // The failure of one member may close its connection and end others.
    for member in overdue where member.phase != .ended {
      stallDetector?.debts[ObjectIdentifier(member)]?.restart()
      worker.report(.clientCutOff(member.connection.identity, stream: stream.name, unread: unread))
      member.connection.fail(
        member,
        .init(.stalled, "stalled \"\(stream.name)\" for \(observation.timeout ?? .zero), \(unread) events behind"))
    }
    return overdue.isEmpty && !isRow ? observation.period : min(observation.period, shortPeriod)
  }

  /// Updates a member's debt.
  /// - Returns: nil for none.
  private func settle(_ member: StreamSubscription, owes: Bool, _ observation: Observation) -> Debt? {
    let key = ObjectIdentifier(member)
    var debt: Debt
    if let known = stallDetector?.debts[key] {
      debt = known
      observation.settle(&debt, owes: owes, at: progress(of: member))
    } else {
      guard owes else { return nil }
      debt = Debt(progress: progress(of: member), since: observation.now)
    }
    let user = member.connection.share.account.user
    if owes, let kept = stream.debts.withLock({ $0.take(user, at: observation.now) }) { debt.inherit(kept) }
    if !debt.reaches(worker.limits.stallTime, tolerance: .zero) { debt.isReported = false }
    if owes || debt.own > .zero {
      stallDetector?.debts[key] = debt
    } else {
      stallDetector?.debts[key] = nil
      keep(debt, of: member, observation)  // the kept debt decays
    }
    return debt
  }

  private func report(_ member: StreamSubscription, _ unread: UInt64) {
    stallDetector?.debts[ObjectIdentifier(member)]?.isReported = true
    worker.report(.clientHoldsUp(member.connection.identity, stream: stream.name, unread: unread))
    worker.counters.holdUps.add(1, ordering: .relaxed)
  }
}
