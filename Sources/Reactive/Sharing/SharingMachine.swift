// The rules of a shared log, without the log. `SharedLog` takes each step under its lock and performs what the step
// returns after unlocking.
//
// Three parts of the state change independently of one another, which is why none of them is nested in another:
// - the connection to upstream: none → connecting → connected → none. Its generation rises with each connection and each
//   end of one; a signal of another generation has no effect, so signals and calls may overtake one another.
// - the end: none → pending, while values wait → reached. Only a new upstream goes back.
// - frozen or not. Values that arrive meanwhile are set aside; nothing is requested.
//
// What always holds:
// - Exact demand never exceeds the largest request of a reader of this connection, minus the log's end at its start.
// - One at a time: nothing is requested while a value is outstanding, the log is frozen, values wait, a lossless log is
//   full, or no reader has requested an element past the end (`whileSubscribed`).
// - Nothing is appended while the log is frozen, after its end, or after its shutdown.
// - Upstream is cancelled at most once per connection, and only if it has not ended by itself.
// - A linger timer runs only while there is a connection and no subscriber.

/// Decides what a shared log does. A pure value: it holds positions and counts, never a lock, a storage, an element, a
/// subscription or a timer.
///
/// A step that moves values is two calls under one lock: the first says where a value goes, the second what the storage
/// made of it.
@usableFromInline struct SharingMachine: Equatable {
  /// The state of the storage when a step is taken.
  @usableFromInline struct Extent {
    /// Where the next element goes.
    let end: UInt64
    /// Whether a lossless log has no room for a single element.
    let isFull: Bool

    @usableFromInline init(end: UInt64, isFull: Bool) { (self.end, self.isFull) = (end, isFull) }
  }

  /// Where an upstream value goes.
  @usableFromInline enum Placement: Equatable {
    /// Nowhere: the log or the value's connection has ended.
    case discard
    /// Into the storage, which drops its oldest elements for it.
    case append
    /// Behind the values that wait; then as much as has room goes into the storage.
    case enqueue
    /// Behind the values that wait, until the log thaws.
    case setAside
  }

  /// What becomes of the subscription to upstream.
  @usableFromInline enum Release: Equatable { case keep, drop, cancel }

  /// A linger timer.
  @usableFromInline struct Linger: Equatable {
    let duration: Duration
    let id: UInt64
  }

  /// What the caller does after it has unlocked, in this order. Returned, never performed here.
  @usableFromInline struct Actions: Equatable {
    /// The end becomes visible to readers: the one thing to do before unlocking.
    @usableFromInline var completes = false
    /// The linger timer is cancelled, if there is one yet.
    @usableFromInline var cancelsLinger = false
    /// The subscription leaves the log.
    @usableFromInline var release = Release.keep
    /// Readers are notified.
    @usableFromInline var notifies = false
    /// The caller says when they have been (``SharingMachine/readersNotified()``), as an append waits for it.
    @usableFromInline var notifiesOfAppend = false
    /// Upstream is subscribed to, with this generation; then readers are notified.
    @usableFromInline var connects: UInt64?
    /// A linger timer starts.
    @usableFromInline var startsLinger: Linger?
    /// The outstanding request of this generation is retracted.
    @usableFromInline var retracts: UInt64?
    /// Upstream is requested for so much more.
    @usableFromInline var requests = Subscribers.Demand.none

    @usableFromInline init() {}
  }

  private struct Reader: Equatable {
    /// It has requested every element before this position: 0 for none, `.max` for all.
    var requestedThrough: UInt64 = 0
    /// Lossless logs: the first element that it has not read; `.max` for a reader that needs none.
    var oldestUnread = UInt64.max
  }

  private struct Connection: Equatable {
    enum Phase {
      case none  // can become: connecting
      case connecting  // upstream has not sent a subscription yet; can become: connected, none
      case connected  // can become: none
    }
    var generation: UInt64 = 0
    var phase = Phase.none
    /// Exact: upstream has been requested for everything before this position; `.max` for everything.
    var requestedThrough: UInt64 = 0
    /// Exact: the largest request of any reader during this connection.
    var largestRequest: UInt64 = 0
    /// One at a time: a value has been requested and has not arrived.
    var isOutstanding = false
    /// Upstream is inside `receive`: demand is the return value of that.
    var isReceiving = false
    var canRetract = false
  }

  private enum Ending {
    case none  // can become: pending, reached
    case pending  // behind the values that wait; can become: reached, none
    case reached  // can become: none
  }

  private let demand: UpstreamDemand
  private var start: ShareStart
  /// Whether upstream waits for the reader that is furthest behind.
  @usableFromInline private(set) var isLossless: Bool
  private var readers: [ObjectIdentifier: Reader] = [:]
  /// How many subscribers there are.
  private(set) var subscribers = 0
  private var connection = Connection()
  private var ending = Ending.none
  /// How many values wait for room or for the thaw.
  private var waiting = 0
  /// How many appends have not been notified to all readers yet.
  private var notifying = 0
  private var lingers: UInt64 = 0
  private var isLingering = false
  private var hasUpstream = false
  private(set) var isFrozen = false
  private var wasConnected = false
  private(set) var isShutDown = false
  private var isSuspended = false

  init(start: ShareStart, demand: UpstreamDemand, overflow: LogOverflow) {
    precondition(overflow == .dropOldest || demand == .oneAtATime, "only one at a time can wait for readers")
    (self.start, self.demand, isLossless) = (start, demand, overflow == .waitForSlowest)
  }

  /// Whether there is an upstream subscription, or one in the making.
  var isConnected: Bool { connection.phase != .none }

  // MARK: - Readers

  mutating func attach(_ reader: ObjectIdentifier) { readers[reader] = Reader() }

  /// - Returns: Whether it was attached.
  mutating func detach(_ reader: ObjectIdentifier) -> Bool { readers.removeValue(forKey: reader) != nil }

  /// A reader requests everything before `position`. Has no effect for one that is not attached.
  @usableFromInline
  mutating func request(through position: UInt64, by reader: ObjectIdentifier, _ log: Extent) -> Actions {
    var actions = Actions()
    guard let index = readers.index(forKey: reader) else { return actions }
    // What was requested exactly stays requested.
    let before = demand == .exact ? readers.values[index].requestedThrough : 0
    readers.values[index].requestedThrough = max(before, position)
    connection.largestRequest = max(connection.largestRequest, position)
    if position > log.end { request(&actions, log) } else { retract(&actions, log) }
    return actions
  }

  /// Lossless logs: the first element that a reader has not read. ``drained(appending:waiting:_:)`` is due. Has no effect
  /// for a reader that is not attached.
  mutating func setOldestUnread(_ position: UInt64, of reader: ObjectIdentifier) {
    readers[reader]?.oldestUnread = position
  }

  /// Lossless logs: the storage keeps everything from here on; `.max` for nothing.
  var oldestUnread: UInt64 { readers.values.reduce(.max) { min($0, $1.oldestUnread) } }

  /// The oldest unread element, while upstream could send more and is not requested to, because subscribers do not take
  /// what there is. Nil while upstream does not wait, and for a log that drops.
  var positionUpstreamWaitsFor: UInt64? {
    guard isLossless, !isFrozen, ending != .reached, subscribers > 0, connection.phase == .connected || waiting > 0,
      !connection.isOutstanding, !connection.isReceiving
    else { return nil }
    return oldestUnread == .max ? nil : oldestUnread
  }

  /// Readers have been notified of an append.
  ///
  /// - Returns: Whether nothing has to be kept for a notification any more.
  @usableFromInline mutating func readersNotified() -> Bool {
    notifying -= 1
    return notifying == 0
  }

  /// Whether nothing has to be kept for a notification.
  @usableFromInline var mayTrim: Bool { notifying == 0 }

  // MARK: - Subscribers

  /// A subscriber joins. Its reader is attached, and has requested what it wants.
  @usableFromInline mutating func subscriberJoined(_ log: Extent) -> Actions {
    var actions = Actions()
    subscribers += 1
    cancelLinger(&actions)
    if start != .always { connect(&actions, log) }
    return actions
  }

  /// A subscriber leaves: its reader has said before what it still wants.
  mutating func subscriberLeft(_ log: Extent) -> Actions {
    precondition(subscribers > 0, "more subscribers left than had joined")
    var actions = Actions()
    subscribers -= 1
    if subscribers == 0 { disconnect(&actions) } else { retract(&actions, log) }
    return actions
  }

  /// The timer was made.
  ///
  /// - Returns: Whether it is still needed; otherwise the caller cancels it.
  func needs(_ linger: Linger) -> Bool { isLingering && linger.id == lingers }

  /// The timer fired. One that is no longer needed has no effect.
  mutating func lingerEnded(_ linger: Linger) -> Actions {
    var actions = Actions()
    guard needs(linger) else { return actions }
    end(&actions, .cancel)
    actions.notifies = true
    return actions
  }

  /// The last subscriber has left: disconnects, now or after the linger.
  private mutating func disconnect(_ actions: inout Actions) {
    guard isConnected, case .whileSubscribed(let duration) = start else { return }
    if duration > .zero {
      lingers += 1
      isLingering = true
      actions.startsLinger = Linger(duration: duration, id: lingers)
    } else {
      end(&actions, .cancel)
      actions.notifies = true
    }
  }

  private mutating func cancelLinger(_ actions: inout Actions) {
    if isLingering { actions.cancelsLinger = true }
    isLingering = false
  }

  // MARK: - Connecting

  /// The log has an upstream from now on.
  mutating func setUpstream() {
    precondition(!hasUpstream, "a log has one upstream")
    hasUpstream = true
  }

  /// Connects, if the log does so without any subscriber.
  @usableFromInline mutating func begin(_ log: Extent) -> Actions {
    var actions = Actions()
    if start == .always { connect(&actions, log) }
    return actions
  }

  /// Nothing connects until ``resume(_:)``.
  mutating func suspend() { isSuspended = true }

  /// Connects, if there was a reason to since ``suspend()``. A second call has no effect.
  @usableFromInline mutating func resume(_ log: Extent) -> Actions {
    var actions = Actions()
    let isDue = isSuspended && (start == .always || subscribers > 0)
    isSuspended = false
    if isDue { connect(&actions, log) }
    return actions
  }

  /// Cancels upstream for good. The end is not reached by that.
  mutating func shutDown() -> Actions {
    var actions = Actions()
    isShutDown = true
    end(&actions, .cancel)
    return actions
  }

  private mutating func connect(_ actions: inout Actions, _ log: Extent) {
    guard hasUpstream, !isConnected, ending == .none, !isShutDown, !isSuspended, !isFrozen else { return }
    connection = Connection(
      generation: connection.generation + 1, phase: .connecting, requestedThrough: log.end,
      largestRequest: readers.values.reduce(0) { max($0, $1.requestedThrough) })
    actions.connects = connection.generation
  }

  private mutating func end(_ actions: inout Actions, _ release: Release) {
    cancelLinger(&actions)
    guard isConnected else { return }
    // One that has not come yet is cancelled when it comes.
    if connection.phase == .connected { actions.release = release }
    connection = Connection(generation: connection.generation + 1)
  }

  // MARK: - Demand

  /// What was retracted has been: it may be requested again.
  mutating func retracted(_ generation: UInt64, _ log: Extent) -> Actions {
    var actions = Actions()
    // A reader may have requested it again before it was taken back: it is requested rather twice than not at all.
    if connection.generation == generation { connection.isOutstanding = false }
    request(&actions, log)
    return actions
  }

  private mutating func request(_ actions: inout Actions, _ log: Extent) {
    guard connection.phase == .connected, !connection.isReceiving else { return }
    actions.requests = nextDemand(log)
  }

  /// Takes back the outstanding request, when there are subscribers and none of them wants more than there is.
  private func retract(_ actions: inout Actions, _ log: Extent) {
    guard demand == .oneAtATime, connection.isOutstanding, connection.canRetract, subscribers > 0, !isRequested(log)
    else { return }
    actions.retracts = connection.generation
  }

  private var runsFreely: Bool { if case .whileSubscribed = start { false } else { true } }

  /// One at a time: whether a value is to be on its way.
  private func isRequested(_ log: Extent) -> Bool {
    runsFreely || readers.values.contains { $0.requestedThrough > log.end }
  }

  /// What is to be requested now; counts as requested.
  private mutating func nextDemand(_ log: Extent) -> Subscribers.Demand {
    switch demand {
    case .exact:
      let wanted = runsFreely ? .max : connection.largestRequest
      guard wanted > connection.requestedThrough else { return .none }
      let count = wanted == .max ? nil : Int(exactly: wanted - connection.requestedThrough)
      connection.requestedThrough = wanted
      return count.map { .max($0) } ?? .unlimited
    case .oneAtATime:
      guard !connection.isOutstanding, !isFrozen, waiting == 0, !log.isFull, isRequested(log) else { return .none }
      connection.isOutstanding = true
      return .max(1)
    }
  }

  // MARK: - From upstream

  /// Upstream sent its subscription.
  ///
  /// - Parameter canRetract: Whether a request can be taken back.
  /// - Returns: `nil` for one that the caller has to cancel.
  mutating func subscriptionArrived(_ generation: UInt64, canRetract: Bool, _ log: Extent) -> Actions? {
    guard connection.generation == generation, connection.phase == .connecting else { return nil }
    connection.phase = .connected
    connection.canRetract = canRetract
    var actions = Actions()
    request(&actions, log)
    return actions
  }

  /// A value arrived. If it was appended or enqueued, ``valueAppended(fromUpstream:)`` or ``drained(appending:waiting:_:)``
  /// is due.
  ///
  /// - Parameter generation: Of the connection that it comes from; `nil` if it comes from elsewhere.
  @usableFromInline mutating func valueArrived(_ generation: UInt64?) -> Placement {
    if let generation {
      guard generation == connection.generation else { return .discard }
      connection.isOutstanding = false
    }
    guard ending == .none, !isShutDown else { return .discard }
    if isFrozen {
      waiting += 1
      return .setAside
    }
    return isLossless ? .enqueue : .append
  }

  /// The storage has taken a value, or something of it, and readers are about to be notified.
  @usableFromInline mutating func valueAppended(fromUpstream: Bool) {
    notifying += 1
    if fromUpstream { connection.isReceiving = true }
  }

  /// So many values wait for room.
  @usableFromInline mutating func setWaiting(_ count: Int) { waiting = count }

  /// All has been done about a value of that connection.
  ///
  /// - Returns: The demand that upstream gets for it.
  @usableFromInline mutating func valueReceived(_ generation: UInt64, _ log: Extent) -> Subscribers.Demand {
    guard connection.generation == generation else { return .none }
    connection.isReceiving = false
    return nextDemand(log)
  }

  /// The log, or a connection of it, ends.
  ///
  /// - Parameter generation: Of the connection that ends; `nil` if the log ends, which cancels upstream.
  /// - Returns: `nil` if that has no effect: all is over, or the connection was.
  mutating func finish(_ generation: UInt64?) -> Actions? {
    guard ending == .none, !isShutDown, generation ?? connection.generation == connection.generation else { return nil }
    var actions = Actions()
    ending = isFrozen || waiting > 0 ? .pending : .reached
    actions.completes = ending == .reached
    actions.notifies = true
    end(&actions, generation == nil ? .cancel : .drop)
    return actions
  }

  // MARK: - Values that wait

  /// Whether values that wait may be appended, as far as there is room.
  var mayDrain: Bool { !isFrozen && !isShutDown }

  /// Values that waited have been appended, as far as there was room.
  ///
  /// - Parameters:
  ///   - appending: Whether the storage has taken anything.
  ///   - count: How many still wait.
  mutating func drained(appending: Bool, waiting count: Int, _ log: Extent) -> Actions {
    var actions = Actions()
    guard mayDrain else { return actions }
    drain(&actions, appending, count)
    request(&actions, log)
    return actions
  }

  private mutating func drain(_ actions: inout Actions, _ appending: Bool, _ count: Int) {
    waiting = count
    if appending {
      notifying += 1
      (actions.notifies, actions.notifiesOfAppend) = (true, true)
    }
    if ending == .pending, count == 0 {
      ending = .reached
      (actions.completes, actions.notifies) = (true, true)
    }
  }

  // MARK: - Frozen

  /// Nothing is appended from now on. The new overflow holds from now on, the new start from the thaw on.
  mutating func freeze(start: ShareStart, overflow: LogOverflow) {
    precondition(demand == .oneAtATime, "what was requested exactly cannot be requested again")
    precondition(!isFrozen, "a log is frozen once at a time")
    (isFrozen, wasConnected) = (true, isConnected)
    self.start = start
    isLossless = overflow == .waitForSlowest
    if !isLossless { for reader in readers.keys { readers[reader]?.oldestUnread = .max } }
  }

  /// A frozen log gets another upstream; an end that it had is void.
  mutating func replaceUpstream() -> Actions {
    precondition(isFrozen, "only a frozen log changes its upstream")
    var actions = Actions()
    end(&actions, .cancel)
    (ending, hasUpstream) = (.none, true)
    return actions
  }

  /// Values may be appended again. ``thawed(appending:waiting:_:)`` is due once those that were set aside have been.
  mutating func thaw() {
    precondition(isFrozen, "only a frozen log thaws")
    isFrozen = false
  }

  /// As ``drained(appending:waiting:_:)``, after the thaw: connects or disconnects, as the start says.
  mutating func thawed(appending: Bool, waiting count: Int, _ log: Extent) -> Actions {
    var actions = Actions()
    if mayDrain { drain(&actions, appending, count) }
    actions.notifies = true
    cancelLinger(&actions)
    if start == .always || subscribers > 0 || start == .fromFirstSubscriber && wasConnected { connect(&actions, log) }
    if subscribers == 0 { disconnect(&actions) }
    request(&actions, log)
    retract(&actions, log)
    return actions
  }
}
