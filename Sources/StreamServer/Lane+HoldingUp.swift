import StreamRuntime

// Who holds up a stream that drops nothing. While a member rests, a clock looks every so often whether the source waits for
// the lane's slowest members. For these the time adds up in which it does, as a debt, and each event that they take pays
// off the stream's pace: as much as one may take for an event. So a member that takes an event now and then does not begin
// anew with each, and one that keeps the pace never owes anything. Nothing else pays: the debt is cheap to keep, and
// members that take turns in holding the stream up owe the more for it.

extension Lane {
  /// What the clock has seen so far.
  struct HoldUp {
    var timer: TimerID?
    /// When it looked last, in nanoseconds on the loop's clock.
    var lookedAt: UInt64
    /// Of members that the source has waited for.
    var debts: [ObjectIdentifier: Debt] = [:]
    /// The client that the stream's state names.
    var noted: ClientIdentity?
  }

  /// What a member owes.
  struct Debt {
    /// Where it stood at the last look.
    var position: UInt64
    var owed = Duration.zero
    var isReported = false
  }

  /// Between two looks, at most.
  private static let period = Duration.seconds(1)

  /// Looks from now on, for as long as a member rests or owes something.
  func watchHoldUp() {
    guard holdUp == nil, !worker.hasHandedOver else { return }
    holdUp = HoldUp(lookedAt: worker.loop.now)
    look()
  }

  func stopWatchingHoldUp() {
    if let timer = holdUp?.timer { worker.loop.cancel(timer) }
    note(nil)
    holdUp = nil
  }

  /// A member leaves, and what it owes with it.
  func forgetDebt(of member: StreamSubscription) {
    holdUp?.debts[ObjectIdentifier(member)] = nil
  }

  /// - Parameter holder: the client that the source waits for, for longer than ordinary backpressure takes.
  private func note(_ holder: (client: ClientIdentity, unread: UInt64)?) {
    guard holdUp?.noted != holder?.client else { return }
    if let noted = holdUp?.noted { stream.release(noted) }
    holdUp?.noted = holder?.client
    if let holder { stream.note(.init(client: holder.client, unread: holder.unread)) }
  }

  private func rests(_ member: StreamSubscription) -> Bool { member.state == .idle || member.state == .blocked }

  private func look() {
    guard holdUp?.debts.isEmpty == false || members.contains(where: rests) else { return stopWatchingHoldUp() }
    guard case .block(let timeout, let pace) = stream.configuration.overflow else { return stopWatchingHoldUp() }
    let period = min(Self.period, worker.limits.holdUpTime / 4, (timeout ?? Self.period) / 4)
    judge(timeout, pace, longest: period * 2)
    guard holdUp != nil else { return }  // the last member was cut off
    holdUp?.timer = worker.loop.schedule(after: period) { [self] in look() }
  }

  /// - Parameter longest: counts of the time since the last look. A loop that was late is not the members' fault.
  private func judge(_ timeout: Duration?, _ pace: Duration, longest: Duration) {
    let now = worker.loop.now
    let elapsed = min(.nanoseconds(Int64(clamping: now - (holdUp?.lookedAt ?? now))), longest)
    holdUp?.lookedAt = now
    let unread = stream.log.read { storage, _ in storage.count(from: held, to: storage.endPosition) }
    // One that has everything and asks for no more keeps no source waiting.
    let waits = unread > 0 && stream.log.upstreamWaits(forReaderAt: held)
    var holder: StreamSubscription?
    var overdue: [StreamSubscription] = []
    for member in members where holdUp?.debts.isEmpty == false || waits && member.cursor.position == held {
      let holds = waits && member.cursor.position == held && rests(member)
      guard let debt = settle(member, holds: holds, elapsed, pace), holds else { continue }
      if debt.owed >= worker.limits.holdUpTime {
        if !debt.isReported { report(member, unread) }
        holder = holder ?? member
      }
      if let timeout, debt.owed >= timeout { overdue.append(member) }
    }
    note(holder.map { ($0.session.identity, unread) })
    // The end of one may be the end of its connection, and of others with it.
    for member in overdue where member.state != .ended {
      worker.report(.clientCutOff(member.session.identity, stream: stream.name, unread: unread))
      member.session.fail(
        member, .lagged, "held \"\(stream.name)\" up for \(timeout ?? .zero), \(unread) events behind")
    }
  }

  /// Brings a member's debt up to date.
  /// - Returns: nil for none, as for one that the source has just begun to wait for.
  private func settle(_ member: StreamSubscription, holds: Bool, _ elapsed: Duration, _ pace: Duration) -> Debt? {
    let key = ObjectIdentifier(member)
    let position = member.cursor.position
    guard var debt = holdUp?.debts[key] else {
      if holds { holdUp?.debts[key] = Debt(position: position) }
      return nil
    }
    let taken = Int(clamping: min(position - min(position, debt.position), 1 << 31))
    debt.owed = max(.zero, debt.owed + (holds ? elapsed : .zero) - pace * taken)
    debt.position = position
    if debt.owed < worker.limits.holdUpTime { debt.isReported = false }
    holdUp?.debts[key] = holds || debt.owed > .zero ? debt : nil
    return debt
  }

  private func report(_ member: StreamSubscription, _ unread: UInt64) {
    holdUp?.debts[ObjectIdentifier(member)]?.isReported = true
    worker.report(.clientHoldsUp(member.session.identity, stream: stream.name, unread: unread))
    worker.counters.holdUps.add(1, ordering: .relaxed)
  }
}
