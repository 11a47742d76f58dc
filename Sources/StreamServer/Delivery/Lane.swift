import Reactive
import ReplayLog
import StreamRuntime
import Synchronization

/// The subscriptions to one stream on one event loop; the log's reader on that loop.
///
/// The log notifies a lane at most once per turn that it grew, however many subscriptions the lane has; the lane then
/// queues the ones that wait. Subscriptions without demand are visited at the stream's end, when it stalls, and to
/// measure the lag.
final class Lane: LogReader, @unchecked Sendable {  // loop-confined except for `logDidChange` and its two atomics
  let stream: ServedStream
  let counters: LaneCounters
  /// The worker, which lists the lane while the lane has members.
  let worker: Worker
  private(set) var members: [StreamSubscription] = []
  /// Members without a filter that wait.
  private var waiting: [StreamSubscription] = []
  /// Members with filters that wait: see `Lane+Filters`.
  var filterGroups: [ObjectIdentifier: FilterGroup] = [:]
  /// The timer of the markers, while a member has any: see `Lane+Markers`.
  var markerTimer: TimerID?
  /// The position before which the members' demand covers everything, as reported to the log: while it is past the
  /// log's end, the log requests more from the source.
  private var requestedThrough: UInt64 = 0
  /// In a lossless stream: the position of the slowest member, as reported to the log.
  private(set) var oldestUnread = UInt64.max
  /// The detection of stalls, in a lossless stream: see `Lane+Stalls`.
  var stallDetector: StallDetector?
  /// Whether a member waits: an append then wakes the loop.
  private let wantsWakeUp = Atomic(false)
  private let wakeUpPosted = Atomic(false)
  private let hasEnded = Atomic(false)

  init(stream: ServedStream, worker: Worker) {
    self.stream = stream
    self.worker = worker
    counters = stream.counters(of: worker)
  }

  var isEmpty: Bool { members.isEmpty }

  // MARK: From the log, on any thread

  func logDidChange() {
    if !wantsWakeUp.load(ordering: .sequentiallyConsistent) {
      // No member waits for events; the stream's end concerns the resting ones, too.
      guard stream.log.hasEnded, !hasEnded.exchange(true, ordering: .relaxed) else { return }
    }
    // Values published on this loop are sent at the end of the same turn.
    if worker.loop.isCurrent { return wakeUp() }
    guard !wakeUpPosted.exchange(true, ordering: .sequentiallyConsistent) else { return }
    worker.loop.execute { [self] in wakeUp() }
  }

  // MARK: On the loop

  /// Adds a subscription. In a lossless stream, its cursor moves to the oldest stored event if the one at the cursor
  /// was evicted meanwhile. The source may start within this call.
  func add(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    subscription.memberIndex = Int32(members.count)
    members.append(subscription)
    if members.count == 1 { stream.log.attach(self) }
    if subscription.machine.format.isMap { stream.mapReaders.add(1, ordering: .relaxed) }
    if subscription.hasMarkers { watchForMarkers() }
    let position = position(of: subscription)
    if stream.log.isLossless, position < oldestUnread {
      oldestUnread = stream.log.reader(self, oldestUnread: position)
      // A subscription that reads a state does not miss the events that the log has lost: see `EventBlock.fillState`.
      if subscription.extras?.reading == nil, oldestUnread != position {
        subscription.machine.move(to: Cursor(position: oldestUnread))
        subscription.machine.miss(
          Gap(stream.log.read { [oldestUnread] storage, _ in storage.missedEvents(from: position, to: oldestUnread) }))
      }
    }
    startDebt(of: subscription)
    raiseRequest(for: subscription)
    stream.log.subscriberJoined()
  }

  /// Adds a restored subscription. If the events at its cursor are lost, its turn handles that, as for any
  /// subscription that has fallen behind.
  func addRestored(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let cursor = subscription.cursor
    let first = stream.log.read { storage, _ in storage.firstPosition }
    if cursor.position < first, subscription.extras?.reading == nil {
      subscription.machine.move(to: Cursor(position: first))
    }
    add(subscription)
    subscription.machine.move(to: cursor)
  }

  /// Removes a subscription and ends it.
  func remove(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    if subscription.phase == .waiting { stopWaiting(subscription) }
    leaveFilter(subscription)
    keepDebt(of: subscription)
    endState(of: subscription)
    if let timer = subscription.extras?.awaitTimer { worker.loop.cancel(timer) }
    subscription.machine.end()
    if subscription.machine.format.isMap { stream.mapReaders.subtract(1, ordering: .relaxed) }
    let last = members.removeLast()
    if last !== subscription {
      members[Int(subscription.memberIndex)] = last
      last.memberIndex = subscription.memberIndex
    }
    if members.isEmpty {
      stream.log.detach(self)
      requestedThrough = 0
      oldestUnread = .max
      counters.lag.store(0, ordering: .relaxed)
      stopWatchingForStalls()
      stopWatchingForMarkers()
    } else if requestedThrough > 0 && subscription.machine.requestedThrough == requestedThrough
      || isSlowest(at: position(of: subscription)) || subscription.extras?.verdicts != nil
    {
      worker.remeasure(self)
    }
    stream.log.subscriberLeft()
    stream.use?.end()
  }

  /// Releases the state of a subscription that has read all of it, or that ends.
  func endState(of subscription: StreamSubscription) {
    guard let reading = subscription.extras?.reading else { return }
    subscription.extras?.reading = nil
    stream.log.read { storage, _ in
      if let state = storage.state, state === reading.walk.state { state.finish(reading.walk) }
    }
  }

  /// The client requested more.
  func request(_ demand: Subscribers.Demand, by subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let action = subscription.machine.request(demand)
    raiseRequest(for: subscription)
    worker.perform(action, subscription)
  }

  /// A member has the credit of all members of its pattern.
  func lend(_ demand: Subscribers.Demand, to member: StreamSubscription) {
    let former = member.machine.requestedThrough
    member.machine.lend(demand)
    raiseRequest(for: member)
    if former == requestedThrough, member.machine.requestedThrough < former { worker.remeasure(self) }
  }

  /// The subscription's cursor has moved from `position`, past `count` payloads that were sent.
  func moved(_ subscription: StreamSubscription, from position: UInt64, past count: Int) {
    worker.loop.assertOnLoop()
    if isSlowest(at: position) { worker.remeasure(self) }
    guard count > 0 else { return }
    let distance = subscription.cursor.position - position
    if distance > UInt64(count) { raiseRequest(for: subscription) }
    // A marker takes credit and moves no cursor, so the demand covers less than before.
    if distance < UInt64(count) { worker.remeasure(self) }
  }

  /// The subscription's cursor has moved from `position`, over events that are not sent.
  func skipped(_ subscription: StreamSubscription, from position: UInt64) {
    if isSlowest(at: position) { worker.remeasure(self) }
    raiseRequest(for: subscription)
  }

  /// Whether a member at this position is the slowest one, in a lossless stream. Its position may be before
  /// `oldestUnread`: in a state, or where the log has lost events.
  func isSlowest(at position: UInt64) -> Bool { oldestUnread < .max && position <= oldestUnread }

  /// The subscription needs demand, or space in its socket.
  func rest() {
    worker.loop.assertOnLoop()
    if stream.log.isLossless { watchForStalls() }
  }

  /// The subscription has been sent all events: its cursor was at the log's end.
  func wait(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let position = subscription.cursor.position
    if let verdicts = subscription.extras?.verdicts {
      wait(subscription, inGroupOf: verdicts)
    } else {
      subscription.waitingIndex = Int32(waiting.count)
      waiting.append(subscription)
    }
    guard !wantsWakeUp.load(ordering: .relaxed) else { return }
    wantsWakeUp.store(true, ordering: .sequentiallyConsistent)
    // An append before that store has not woken the loop.
    let isLate = stream.log.read { storage, completion in completion != nil || storage.endPosition > position }
    if isLate { makeWaitingReady() }
  }

  /// Removes a subscription from its waiting list.
  func stopWaiting(_ subscription: StreamSubscription) {
    if let verdicts = subscription.extras?.verdicts {
      filterGroups[ObjectIdentifier(verdicts)]?.remove(subscription)
    } else {
      Self.remove(subscription, from: &waiting)
    }
  }

  /// Removes a subscription from the list to which its `waitingIndex` belongs.
  static func remove(_ subscription: StreamSubscription, from list: inout [StreamSubscription]) {
    let last = list.removeLast()
    guard last !== subscription else { return }
    list[Int(subscription.waitingIndex)] = last
    last.waitingIndex = subscription.waitingIndex
  }

  private func wakeUp() {
    worker.loop.assertOnLoop()
    // Cleared first: an append from here on posts the next wake-up, one before it is seen below.
    wakeUpPosted.store(false, ordering: .sequentiallyConsistent)
    if stream.log.hasEnded {
      for member in members where member.phase == .idle { worker.perform(member.machine.logEnded(), member) }
    }
    makeWaitingReady()
  }

  /// A system stream was updated.
  func streamIsCurrent() {
    worker.loop.assertOnLoop()
    let newest = stream.log.read { storage, _ in storage.position(ofLast: 1) }
    for member in members {
      let action = member.machine.becameCurrent(newest: newest)
      guard action != .none else { continue }
      raiseRequest(for: member)
      worker.perform(action, member)
    }
  }

  private func makeWaitingReady() {
    for subscription in waiting { worker.perform(subscription.machine.logGrew(), subscription) }
    waiting.removeAll(keepingCapacity: true)
    wantsWakeUp.store(false, ordering: .sequentiallyConsistent)
    for group in filterGroups.values {
      if stream.log.hasEnded { wakeAll(group) } else { sendScout(of: group) }
    }
  }

  /// The subscription's demand covers more than before: the client requested more, or the cursor moved past a gap.
  func raiseRequest(for subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    raiseRequest(to: subscription.machine.requestedThrough)
  }

  func raiseRequest(to position: UInt64) {
    guard position > requestedThrough else { return }
    requestedThrough = position
    stream.log.reader(self, requestedThrough: requestedThrough)
  }

  /// Recomputes the furthest request and the oldest unread position after a member changed; once per turn.
  func remeasure() {
    worker.loop.assertOnLoop()
    guard !members.isEmpty else { return }
    let requestedThrough = members.reduce(0) { max($0, self.requestedThrough(of: $1)) }
    if requestedThrough != self.requestedThrough {
      self.requestedThrough = requestedThrough
      stream.log.reader(self, requestedThrough: requestedThrough)
    }
    guard stream.log.isLossless else { return }
    let oldestUnread = members.reduce(.max) { min($0, position(of: $1)) }
    if oldestUnread != self.oldestUnread { self.oldestUnread = stream.log.reader(self, oldestUnread: oldestUnread) }
  }

  /// The stream's configuration has changed; a stream that had ended continues. Called while its log is frozen.
  func adapt() {
    worker.loop.assertOnLoop()
    hasEnded.store(false, ordering: .relaxed)
    stopWatchingForStalls()
    oldestUnread = .max
    guard stream.log.isLossless, !members.isEmpty else { return }
    oldestUnread = stream.log.reader(self, oldestUnread: members.reduce(.max) { min($0, position(of: $1)) })
    watchForStalls()
  }

  /// The members are about to be saved: they keep their state, and no timer changes it any more.
  func stopForSaving() {
    stopWatchingForStalls()
    stopWatchingForMarkers()
    for group in filterGroups.values { group.settle() }
  }

  /// Measures the lag of the slowest member, for `$stats`.
  func measureLag() {
    worker.loop.assertOnLoop()
    let slowest = members.reduce(.max) { min($0, position(of: $1)) }
    let lag = stream.log.read { storage, _ in storage.count(from: slowest, to: storage.endPosition) }
    counters.lag.store(lag, ordering: .relaxed)
  }

}
