import EventLoop

// Who holds up a stream that drops nothing. While a member rests, a clock looks every so often whether the source waits
// for the lane's slowest member, and whether that one still stands where it stood.

extension Lane {
  /// What the clock has seen so far.
  struct HoldUp {
    var timer: TimerID?
    /// Where the slowest member stands, and since when the source has been waiting for it; nil: it does not wait.
    var position: UInt64?
    var since: UInt64 = 0
    /// Of which that has been told.
    var told: ClientIdentity?
  }

  /// Between two looks, at most.
  private static let period = Duration.seconds(1)

  /// Looks from now on, for as long as a member rests.
  func watchHoldUp() {
    guard holdUp == nil, !worker.hasHandedOver else { return }
    holdUp = HoldUp()
    look()
  }

  func stopWatchingHoldUp() {
    if let timer = holdUp?.timer { worker.loop.cancel(timer) }
    forgetHolder()
    holdUp = nil
  }

  private func forgetHolder() {
    guard let told = holdUp?.told else { return }
    stream.release(told)
    holdUp?.told = nil
  }

  private var timeout: Duration? {
    if case .block(let timeout) = stream.configuration.overflow { timeout } else { nil }
  }

  private func look() {
    guard members.contains(where: { $0.state == .idle || $0.state == .blocked }) else { return stopWatchingHoldUp() }
    if stream.log.upstreamWaits(forReaderAt: held) {
      judge()
    } else {
      forgetHolder()
      holdUp?.position = nil
    }
    guard holdUp != nil else { return }  // whoever was cut off was the last
    let period = min(Self.period, worker.limits.holdUpTime / 4, (timeout ?? Self.period) / 4)
    holdUp?.timer = worker.loop.schedule(after: period) { [self] in look() }
  }

  /// The source waits for the slowest member.
  private func judge() {
    if holdUp?.position != held {
      forgetHolder()
      holdUp?.position = held
      holdUp?.since = worker.loop.now
    }
    let waited = Duration.nanoseconds(Int64(clamping: worker.loop.now - (holdUp?.since ?? 0)))
    let holders = members.filter { $0.cursor.position == held && ($0.state == .idle || $0.state == .blocked) }
    let unread = stream.log.read { storage, _ in storage.count(from: held, to: storage.endPosition) }
    // One that has everything and asks for no more keeps nobody waiting.
    guard let first = holders.first, unread > 0 else { return }
    if holdUp?.told == nil, waited >= worker.limits.holdUpTime {
      holdUp?.told = first.session.identity
      stream.note(.init(client: first.session.identity, unread: unread))
      worker.report(.clientHoldsUp(first.session.identity, stream: stream.name, unread: unread))
      worker.counters.holdUps.add(1, ordering: .relaxed)
    }
    guard let timeout, waited >= timeout else { return }
    // The end of one may be the end of its connection, and of others with it.
    for holder in holders where holder.state != .ended {
      worker.report(.clientCutOff(holder.session.identity, stream: stream.name, unread: unread))
      holder.session.fail(holder, .lagged, "held \"\(stream.name)\" up for \(timeout), \(unread) events behind")
    }
  }
}
