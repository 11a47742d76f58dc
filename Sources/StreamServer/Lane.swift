import Reactive
import ReplayLog
import StreamRuntime
import Synchronization

/// The subscribers of one stream on one event loop: the log's reader there.
///
/// The log tells a lane at most once per tick that it grew, however many subscribers the lane has; the lane then makes
/// those ready that wait for it. Subscribers without credit are in no list that anybody walks, but for the stream's end.
final class Lane: LogReader, @unchecked Sendable {  // loop-confined but for `logDidChange` and its two atomics
  let stream: ServedStream
  let counters: LaneCounters
  /// Which knows the lane for as long as it has members, and no longer.
  let worker: Worker
  private(set) var members: [StreamSubscription] = []
  private var waiting: [StreamSubscription] = []
  /// Of those members that have missed events and were not told.
  var gaps: [ObjectIdentifier: Gap] = [:]
  /// How far the members' credit reaches, as the log was told: while that is beyond its end, the source is asked for more.
  private var reach: UInt64 = 0
  /// Of a stream that drops nothing: the position of the member furthest behind, as the log was told.
  private(set) var held = UInt64.max
  /// Of the same: see `Lane+HoldingUp`.
  var holdUp: HoldUp?
  /// Somebody waits: an append wakes the loop up.
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
      // Nobody here waits for events. Only the stream's end concerns them all the same.
      guard stream.log.hasEnded, !hasEnded.exchange(true, ordering: .relaxed) else { return }
    }
    // What was published on this loop goes out at the end of the turn that brought it.
    if worker.loop.isCurrent { return wakeUp() }
    guard !wakeUpPosted.exchange(true, ordering: .sequentiallyConsistent) else { return }
    worker.loop.execute { [self] in wakeUp() }
  }

  // MARK: On the loop

  /// Takes a subscription in. The caller has placed its cursor, which moves on to the oldest event held if that has moved
  /// meanwhile; the source may start within this call.
  func add(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    subscription.memberIndex = Int32(members.count)
    members.append(subscription)
    if members.count == 1 { stream.log.attach(self) }
    if stream.log.isLossless, subscription.cursor.position < held {
      held = stream.log.reader(self, oldestUnread: subscription.cursor.position)
      let position = subscription.cursor.position
      subscription.machine.move(to: Cursor(position: held))
      if held != position {
        subscription.miss(Gap(stream.log.read { [held] storage, _ in storage.missedEvents(from: position, to: held) }))
      }
    }
    noteNewcomer(subscription)
    raiseReach(for: subscription)
    stream.log.subscriberJoined()
  }

  /// Takes in a subscription of the process before. Where the events at its cursor are gone its turn finds that, as of any
  /// other that fell behind.
  func addRestored(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let cursor = subscription.cursor
    let first = stream.log.read { storage, _ in storage.firstPosition }
    if cursor.position < first { subscription.machine.move(to: Cursor(position: first)) }
    add(subscription)
    subscription.machine.move(to: cursor)
  }

  /// Lets a subscription go; its state is `ended` already or becomes so.
  func remove(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    if subscription.state == .waiting { stopWaiting(subscription) }
    keepDebt(of: subscription)
    subscription.machine.end()
    subscription.tellGap()
    let last = members.removeLast()
    if last !== subscription {
      members[Int(subscription.memberIndex)] = last
      last.memberIndex = subscription.memberIndex
    }
    if members.isEmpty {
      stream.log.detach(self)
      reach = 0
      held = .max
      counters.lag.store(0, ordering: .relaxed)
      stopWatchingHoldUp()
    } else if reach > 0 && subscription.machine.requestedThrough == reach || subscription.cursor.position == held {
      worker.remeasure(self)
    }
    stream.log.subscriberLeft()
  }

  /// The client requested more.
  func request(_ demand: Subscribers.Demand, by subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let action = subscription.machine.request(demand)
    raiseReach(for: subscription)
    worker.perform(action, subscription)
  }

  /// The subscription's cursor has moved from `position`, past `count` events that were sent.
  func moved(_ subscription: StreamSubscription, from position: UInt64, past count: Int) {
    worker.loop.assertOnLoop()
    if position == held { worker.remeasure(self) }
    if count > 0, subscription.cursor.position - position != UInt64(count) { raiseReach(for: subscription) }
  }

  /// The subscription needs demand, or room in its socket.
  func rest() {
    worker.loop.assertOnLoop()
    if stream.log.isLossless { watchHoldUp() }
  }

  /// The subscription has all events before its cursor, where the log ended when it was looked at.
  func wait(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let position = subscription.cursor.position
    subscription.waitingIndex = Int32(waiting.count)
    waiting.append(subscription)
    guard waiting.count == 1 else { return }
    wantsWakeUp.store(true, ordering: .sequentiallyConsistent)
    // What came before that has woken nobody.
    let isLate = stream.log.read { storage, completion in completion != nil || storage.endPosition > position }
    if isLate { makeWaitingReady() }
  }

  private func stopWaiting(_ subscription: StreamSubscription) {
    let last = waiting.removeLast()
    guard last !== subscription else { return }
    waiting[Int(subscription.waitingIndex)] = last
    last.waitingIndex = subscription.waitingIndex
  }

  private func wakeUp() {
    worker.loop.assertOnLoop()
    // Cleared first: an append from here on posts the next wake-up, one before it is seen below.
    wakeUpPosted.store(false, ordering: .sequentiallyConsistent)
    if stream.log.hasEnded {
      for member in members where member.state == .idle { worker.perform(member.machine.logEnded(), member) }
    }
    makeWaitingReady()
  }

  /// A system stream has been brought up to date.
  func streamIsCurrent() {
    worker.loop.assertOnLoop()
    let newest = stream.log.read { storage, _ in storage.position(ofLast: 1) }
    for member in members {
      let action = member.machine.becameCurrent(newest: newest)
      guard action != .none else { continue }
      raiseReach(for: member)
      worker.perform(action, member)
    }
  }

  private func makeWaitingReady() {
    for subscription in waiting { worker.perform(subscription.machine.logGrew(), subscription) }
    waiting.removeAll(keepingCapacity: true)
    wantsWakeUp.store(false, ordering: .sequentiallyConsistent)
  }

  /// The subscription's credit reaches further than before: it was granted some, or moved past a gap.
  func raiseReach(for subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    guard subscription.machine.requestedThrough > reach else { return }
    reach = subscription.machine.requestedThrough
    stream.log.reader(self, requestedThrough: reach)
  }

  /// Whoever reached furthest has left, or whoever was furthest behind has moved: finds out who is it now. Once per turn,
  /// however many did.
  func remeasure() {
    worker.loop.assertOnLoop()
    guard !members.isEmpty else { return }
    let reach = members.reduce(0) { max($0, $1.machine.requestedThrough) }
    if reach != self.reach {
      self.reach = reach
      stream.log.reader(self, requestedThrough: reach)
    }
    guard stream.log.isLossless else { return }
    let held = members.reduce(.max) { min($0, $1.cursor.position) }
    if held != self.held {
      self.held = held
      stream.log.reader(self, oldestUnread: held)
    }
  }

  /// The stream goes on differently, and is not over, if it was. While its log is frozen.
  func adapt() {
    worker.loop.assertOnLoop()
    hasEnded.store(false, ordering: .relaxed)
    stopWatchingHoldUp()
    held = .max
    guard stream.log.isLossless, !members.isEmpty else { return }
    held = stream.log.reader(self, oldestUnread: members.reduce(.max) { min($0, $1.cursor.position) })
    watchHoldUp()
  }

  /// Finds the member furthest behind, for whoever looks at the counters.
  func measureLag() {
    worker.loop.assertOnLoop()
    let slowest = members.reduce(.max) { min($0, $1.cursor.position) }
    let lag = stream.log.read { storage, _ in storage.count(from: slowest, to: storage.endPosition) }
    counters.lag.store(lag, ordering: .relaxed)
  }

}
