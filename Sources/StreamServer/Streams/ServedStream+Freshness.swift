import StreamRuntime

// Whether a stream is stale.

extension ServedStream {
  /// Checks from now on whether the stream is stale, if its configuration has a limit for that. One timer runs for as
  /// long as the stream is served with a limit.
  /// - Parameter loop: the loop of the timer.
  func watchFreshness(on loop: EventLoop, report: @escaping @Sendable (ServerReport) -> Void) {
    let limit = configuration.expectEvery.map { UInt64(max(0, $0.wholeNanoseconds)) }
    let now = EventLoop.monotonicNow()
    let (events, newestAge, _) = eventsSoFar
    let (starts, wasStale) = freshness.withLock { freshness -> (Bool, Bool) in
      guard let limit else {
        defer { freshness = nil }
        return (false, freshness?.machine.isStale == true)
      }
      guard freshness == nil else {
        freshness?.machine.limit = limit
        return (false, false)
      }
      let machine = FreshnessMachine(limit: limit, events: events, newestAge: newestAge, at: now)
      freshness = Freshness(machine: machine, id: now)
      return (true, false)
    }
    if wasStale { report(.streamNotStale(stream: name, isIdle: true)) }
    if starts { loop.execute { [self] in scheduleCheck(now, on: loop, report: report) } }
  }

  private func scheduleCheck(_ id: UInt64, on loop: EventLoop, report: @escaping @Sendable (ServerReport) -> Void) {
    guard let period = freshness.withLock({ $0?.id == id ? $0?.machine.checkPeriod : nil }) else { return }
    _ = loop.schedule(after: .nanoseconds(Int64(period))) { [weak self] in
      guard let self else { return }
      checkFreshness(report: report)
      scheduleCheck(id, on: loop, report: report)
    }
  }

  private func checkFreshness(report: (ServerReport) -> Void) {
    var survey = BaseSurvey()
    let observation = observation(&survey)
    let now = EventLoop.monotonicNow()
    let change = freshness.withLock { freshness -> FreshnessMachine.Change in
      defer { freshness?.update(at: now) }
      return freshness?.machine.check(observation, at: now) ?? .none
    }
    switch change {
    case .none: break
    case .stale: report(.streamStale(stream: name, limit: configuration.expectEvery ?? .zero))
    case .recovered: report(.streamNotStale(stream: name, isIdle: false))
    case .idle: report(.streamNotStale(stream: name, isIdle: true))
    }
  }

  private func observation(_ survey: inout BaseSurvey) -> FreshnessMachine.Observation {
    let (events, newestAge, hasEnded) = eventsSoFar
    let status = status
    var isDemanded = hasEnded ? false : log.isAwaitingUpstream
    // Only the leader's source is asked, for all hosts, and it alone sees fetches that find nothing new.
    if !hasEnded, let fleet = status.fleet, publishSource == nil {
      isDemanded = fleet.isLeading && status.isFleetSourceAsked
    }
    // The bases' proofs count as well: an event that the filter leaves out shows that the stream lacks none.
    let fetchedAt = [status.fetchedAt, survey.finding(on: self).basesProvedAt].compactMap { $0 }.max()
    return FreshnessMachine.Observation(
      events: events, newestAge: newestAge, fetchedAt: fetchedAt, isDemanded: isDemanded)
  }

  /// The number of appended events, the newest one's age in nanoseconds, and whether the stream has ended.
  private var eventsSoFar: (count: UInt64, newestAge: UInt64?, hasEnded: Bool) {
    let wallTime = EventLoop.wallClock()
    return log.read { storage, completion in
      let age = storage.newestTime.flatMap { $0 <= wallTime ? (wallTime - $0) &* 1000 : nil }
      return (storage.appendedEvents, age, completion != nil)
    }
  }

  /// When the newest event was last known to be the present one, and since when the stream is stale; microseconds since
  /// the Unix epoch. Without a limit the former is the time of the newest event or of the last fetch, whichever is
  /// later. The time of an event that lies in the future is left out.
  /// - Parameter newest: the time of the newest event.
  func freshTimes(newest: UInt64?, _ survey: inout BaseSurvey) -> (fresh: UInt64?, staleSince: UInt64?) {
    let observation = observation(&survey)
    let (now, wallTime) = (EventLoop.monotonicNow(), EventLoop.wallClock())
    func onWall(_ time: UInt64) -> UInt64 { wallTime - min(wallTime, (now - min(now, time)) / 1000) }
    let watched = freshness.withLock { freshness -> (UInt64?, UInt64?)? in
      freshness?.machine.observe(observation, at: now)
      return freshness.map { ($0.machine.provedAt, $0.stale?.wallTime) }
    }
    let ofBases = survey.finding(on: self).staleSince
    if let (provedAt, stale) = watched { return (provedAt.map(onWall), stale ?? ofBases) }
    let event = newest.flatMap { $0 <= wallTime ? $0 : nil }
    return ([event, observation.fetchedAt.map(onWall)].compactMap { $0 }.max(), ofBases)
  }

  /// The state for the next process; nil without a limit.
  var savedFreshness: FreshnessMachine.Saved? { freshness.withLock { $0?.machine.saved } }

  /// Continues the state of the previous process.
  func restore(_ saved: FreshnessMachine.Saved) {
    let now = EventLoop.monotonicNow()
    freshness.withLock { freshness in
      freshness?.machine.restore(saved, at: now)
      freshness?.update(at: now)
    }
  }
}
