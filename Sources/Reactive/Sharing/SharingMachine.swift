// The rules of a shared log, without the log. `SharedLog` takes each step under its lock and, after unlocking, performs
// the actions that the step returns.
//
// Three parts of the state change independently of one another, which is why none of them is nested in another:
// - the connection to upstream: none → connecting → connected → none. Its generation rises with each connection and each
//   end of one; a signal of another generation has no effect, so signals and calls may overtake one another.
// - the end: none → pending, while values wait → reached. Only a new upstream resets it to none.
// - frozen or not. Values that arrive meanwhile are set aside; nothing is requested.
//
// Invariants:
// - Exact demand never exceeds the largest request of a reader of this connection, minus the log's end at its start.
// - One at a time: nothing is requested while a value is outstanding, the log is frozen, values wait, a lossless log is
//   full, or no reader has requested an element past the end (`whileSubscribed`).
// - Nothing is appended while the log is frozen, after its end, or after its shutdown.
// - Upstream is cancelled at most once per connection, and only if it has not ended by itself.
// - A linger timer runs only while there is a connection and no subscriber.

/// Decides the actions of a shared log. A pure value: it holds positions and counts, but no lock, storage, element,
/// subscription or timer.
///
/// A step that moves values consists of two calls under one lock: the first returns where a value goes, the second
/// receives the storage's result.
@usableFromInline struct SharingMachine: Equatable {
  /// The extent of the storage when a step is taken.
  @usableFromInline struct Extent {
    /// The position of the next element.
    let end: UInt64
    /// Whether a lossless log has no room for a single element.
    let isFull: Bool

    @usableFromInline init(end: UInt64, isFull: Bool) { (self.end, self.isFull) = (end, isFull) }
  }

  /// The destination of an upstream value.
  @usableFromInline enum Placement: Equatable {
    /// Discarded: the log or the value's connection has ended.
    case discard
    /// Appended to the storage, which drops its oldest elements to make room.
    case append
    /// Queued behind the waiting values; as much as fits is then appended to the storage.
    case enqueue
    /// Queued behind the waiting values until the log thaws.
    case setAside
  }

  /// The treatment of the upstream subscription.
  @usableFromInline enum Release: Equatable { case keep, drop, cancel }

  /// A linger timer.
  @usableFromInline struct Linger: Equatable {
    let duration: Duration
    let id: UInt64
  }

  /// The actions that the caller performs after it has unlocked, in this order. Returned, never performed here.
  @usableFromInline struct Actions: Equatable {
    /// The completion becomes visible to readers: the one action that precedes unlocking.
    @usableFromInline var completes = false
    /// The linger timer, if it exists already, is cancelled.
    @usableFromInline var cancelsLinger = false
    /// Whether the subscription leaves the log, and whether it is cancelled.
    @usableFromInline var release = Release.keep
    /// Readers are notified.
    @usableFromInline var notifies = false
    /// The caller reports when readers were notified (``SharingMachine/readersNotified()``), because an append waits
    /// for it.
    @usableFromInline var notifiesOfAppend = false
    /// The log subscribes to upstream with this generation, then notifies readers.
    @usableFromInline var connects: UInt64?
    /// A linger timer starts.
    @usableFromInline var startsLinger: Linger?
    /// The outstanding request of this generation is retracted.
    @usableFromInline var retracts: UInt64?
    /// The additional demand that is requested from upstream.
    @usableFromInline var requests = Subscribers.Demand.none

    @usableFromInline init() {}
  }

  private struct Reader: Equatable {
    /// The reader has requested every element before this position: 0 for none, `.max` for all.
    var requestedThrough: UInt64 = 0
    /// The first element that the reader has not read, as far as it has reported one; `.max` if it needs none.
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
    /// With `exact` demand: every element before this position has been requested from upstream; `.max` for all.
    var requestedThrough: UInt64 = 0
    /// With `exact` demand: the largest request of any reader during this connection.
    var largestRequest: UInt64 = 0
    /// With one value at a time: a value has been requested and has not arrived.
    var isOutstanding = false
    /// Upstream is inside `receive`, whose return value carries the demand.
    var isReceiving = false
    var canRetract = false
    /// Nothing was requested since a retraction. Upstream may act on the retraction late, after values that are under
    /// way. It would then also retract the demand that their `receive` returned. Therefore the next demand is sent as a
    /// request, which follows the retraction.
    var isRetracted = false
  }

  private enum Ending {
    case none  // can become: pending, reached
    case pending  // follows the waiting values; can become: reached, none
    case reached  // can become: none
  }

  private let demand: UpstreamDemand
  private var start: ShareStart
  /// Whether upstream waits for the slowest reader.
  @usableFromInline private(set) var isLossless: Bool
  /// The first element that no reader has read, in a log that keeps such elements; nil in others.
  private var firstUnread: UInt64?
  private var readers: [ObjectIdentifier: Reader] = [:]
  /// The number of subscribers.
  private(set) var subscribers = 0
  private var connection = Connection()
  private var ending = Ending.none
  /// The number of values that wait for room or for the thaw.
  private var waiting = 0
  /// The number of appends of which not all readers have been notified.
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
    (self.start, self.demand, isLossless) = (start, demand, overflow != .dropOldest)
    firstUnread = overflow == .waitForReader ? 0 : nil
  }

  /// Whether there is an upstream subscription, or one is being made.
  var isConnected: Bool { connection.phase != .none }

  // MARK: - Readers

  mutating func attach(_ reader: ObjectIdentifier) { readers[reader] = Reader() }

  /// - Returns: Whether it was attached.
  mutating func detach(_ reader: ObjectIdentifier) -> Bool { readers.removeValue(forKey: reader) != nil }

  /// Records that a reader requests every element before `position`. Has no effect for one that is not attached.
  @usableFromInline
  mutating func request(through position: UInt64, by reader: ObjectIdentifier, _ log: Extent) -> Actions {
    var actions = Actions()
    guard let index = readers.index(forKey: reader) else { return actions }
    // A request of exact demand is never reduced.
    let before = demand == .exact ? readers.values[index].requestedThrough : 0
    readers.values[index].requestedThrough = max(before, position)
    connection.largestRequest = max(connection.largestRequest, position)
    if position > log.end { request(&actions, log) } else { retract(&actions, log) }
    return actions
  }

  /// Records the first element that a reader has not read. For a lossless log the caller must then call
  /// ``drained(appending:waiting:_:)``. Has no effect for a reader that is not attached.
  mutating func setOldestUnread(_ position: UInt64, of reader: ObjectIdentifier) {
    guard readers[reader] != nil else { return }
    readers[reader]?.oldestUnread = position
    if let first = firstUnread, position != .max { firstUnread = max(first, position) }
  }

  /// Whether elements are kept that no reader has read, also while there is none.
  @usableFromInline var awaitsReader: Bool { firstUnread != nil }

  /// The first element that the storage must keep; `.max` for none, and for a log that drops elements.
  @usableFromInline var oldestUnread: UInt64 {
    isLossless ? readers.values.reduce(firstUnread ?? .max) { min($0, $1.oldestUnread) } : .max
  }

  /// The oldest unread element, while upstream could send more but receives no request because subscribers do not read.
  /// Nil while upstream does not wait, and for a log that drops elements.
  var positionUpstreamWaitsFor: UInt64? {
    guard isLossless, !isFrozen, ending != .reached, subscribers > 0, connection.phase == .connected || waiting > 0,
      !connection.isOutstanding, !connection.isReceiving
    else { return nil }
    return oldestUnread == .max ? nil : oldestUnread
  }

  /// Whether upstream is asked for a value that has not arrived; nil while that says nothing about the readers' demand:
  /// the log is connecting, frozen, suspended or shut down.
  var isAwaitingUpstream: Bool? {
    guard !isFrozen, !isSuspended, !isShutDown, connection.phase != .connecting else { return nil }
    return connection.phase == .connected && (connection.isOutstanding || connection.isReceiving)
  }

  /// Records that readers were notified of an append.
  ///
  /// - Returns: Whether no element must be kept for a notification any more.
  @usableFromInline mutating func readersNotified() -> Bool {
    notifying -= 1
    return notifying == 0
  }

  /// Whether no element must be kept for a notification.
  @usableFromInline var mayTrim: Bool { notifying == 0 }

  // MARK: - Subscribers

  /// Counts a subscriber that joins. Its reader must be attached and have sent its request.
  @usableFromInline mutating func subscriberJoined(_ log: Extent) -> Actions {
    var actions = Actions()
    subscribers += 1
    cancelLinger(&actions)
    if start != .always { connect(&actions, log) }
    return actions
  }

  /// Counts a subscriber that leaves. Its reader has reported its remaining request before.
  mutating func subscriberLeft(_ log: Extent) -> Actions {
    precondition(subscribers > 0, "more subscribers left than had joined")
    var actions = Actions()
    subscribers -= 1
    if subscribers == 0 { disconnect(&actions) } else { retract(&actions, log) }
    return actions
  }

  /// Reports that the timer was created.
  ///
  /// - Returns: Whether it is still needed; if not, the caller cancels it.
  func needs(_ linger: Linger) -> Bool { isLingering && linger.id == lingers }

  /// Reports that the timer fired. One that is no longer needed has no effect.
  mutating func lingerEnded(_ linger: Linger) -> Actions {
    var actions = Actions()
    guard needs(linger) else { return actions }
    end(&actions, .cancel)
    actions.notifies = true
    return actions
  }

  /// Disconnects after the last subscriber left, immediately or after the linger.
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

  /// Records that the log has an upstream.
  mutating func setUpstream() {
    precondition(!hasUpstream, "a log has one upstream")
    hasUpstream = true
  }

  /// Connects if the log does so without subscribers.
  @usableFromInline mutating func begin(_ log: Extent) -> Actions {
    var actions = Actions()
    if start == .always { connect(&actions, log) }
    return actions
  }

  /// Prevents connecting until ``resume(_:)``.
  mutating func suspend() { isSuspended = true }

  /// Connects, if there was a reason to since ``suspend()``. A second call has no effect.
  @usableFromInline mutating func resume(_ log: Extent) -> Actions {
    var actions = Actions()
    let isDue = isSuspended && (start == .always || subscribers > 0)
    isSuspended = false
    if isDue { connect(&actions, log) }
    return actions
  }

  /// Cancels upstream for good. This does not end the log.
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
    // A subscription that has not arrived yet is cancelled on arrival.
    if connection.phase == .connected { actions.release = release }
    connection = Connection(generation: connection.generation + 1)
  }

  // MARK: - Demand

  /// Records that a retraction is complete: the demand may be requested again.
  mutating func retracted(_ generation: UInt64, _ log: Extent) -> Actions {
    var actions = Actions()
    // A reader may have requested the value again before the retraction: a duplicate request is better than a missing
    // one.
    if connection.generation == generation {
      (connection.isOutstanding, connection.isReceiving, connection.isRetracted) = (false, false, true)
    }
    request(&actions, log)
    return actions
  }

  private mutating func request(_ actions: inout Actions, _ log: Extent) {
    guard connection.phase == .connected, !connection.isReceiving else { return }
    actions.requests = nextDemand(log)
    if actions.requests != .none { connection.isRetracted = false }
  }

  /// Retracts the outstanding request if there are subscribers and none requests more than the stored elements.
  private func retract(_ actions: inout Actions, _ log: Extent) {
    guard mayRetract, subscribers > 0, !isRequested(log) else { return }
    actions.retracts = connection.generation
  }

  /// Whether a request is outstanding that can be retracted.
  @usableFromInline var mayRetract: Bool {
    demand == .oneAtATime && connection.isOutstanding && connection.canRetract
  }

  private var runsFreely: Bool { if case .whileSubscribed = start { false } else { true } }

  /// With one value at a time: whether a value should be outstanding.
  private func isRequested(_ log: Extent) -> Bool {
    runsFreely || readers.values.contains { $0.requestedThrough > log.end }
  }

  /// Returns the demand to request now and counts it as requested.
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

  /// Records the subscription that upstream sent.
  ///
  /// - Parameter canRetract: Whether a request can be retracted.
  /// - Returns: `nil` if the caller must cancel the subscription.
  mutating func subscriptionArrived(_ generation: UInt64, canRetract: Bool, _ log: Extent) -> Actions? {
    guard connection.generation == generation, connection.phase == .connecting else { return nil }
    connection.phase = .connected
    connection.canRetract = canRetract
    var actions = Actions()
    request(&actions, log)
    return actions
  }

  /// Whether values are appended or wait: neither the end nor the shutdown has come.
  @usableFromInline var takesValues: Bool { ending == .none && !isShutDown }

  /// Decides about a value. If it is appended or enqueued, the caller must call ``valueAppended(fromUpstream:)`` or
  /// ``drained(appending:waiting:_:)``.
  ///
  /// - Parameter generation: The connection that sent the value; `nil` for another origin.
  @usableFromInline mutating func valueArrived(_ generation: UInt64?) -> Placement {
    if let generation {
      guard generation == connection.generation else { return .discard }
      connection.isOutstanding = false
    }
    guard takesValues else { return .discard }
    if isFrozen {
      waiting += 1
      return .setAside
    }
    return isLossless ? .enqueue : .append
  }

  /// Records that the storage has accepted a value or a part of it, before readers are notified.
  @usableFromInline mutating func valueAppended(fromUpstream: Bool) {
    notifying += 1
    if fromUpstream { connection.isReceiving = !connection.isRetracted }
  }

  /// Records that readers were notified of an append of another origin. The append may meet all their requests.
  @usableFromInline mutating func appendedElsewhere(_ log: Extent) -> Actions {
    var actions = Actions()
    retract(&actions, log)
    return actions
  }

  /// Records the number of values that wait for room.
  @usableFromInline mutating func setWaiting(_ count: Int) { waiting = count }

  /// Records that a value of this connection has been processed.
  ///
  /// - Parameter isStored: Whether the whole value is in the storage.
  /// - Returns: The demand to return to upstream. It also tells an upstream that counts its stored values that this one
  ///   is stored, even if the log was shut down since: a cancelled upstream sends nothing for it.
  @usableFromInline mutating func valueReceived(
    _ generation: UInt64, isStored: Bool, _ log: Extent
  ) -> Subscribers.Demand {
    guard connection.generation == generation else { return isShutDown && isStored ? .max(1) : .none }
    connection.isReceiving = false
    return connection.isRetracted ? .none : nextDemand(log)
  }

  /// Ends the log, or one of its connections.
  ///
  /// - Parameter generation: The connection that ends; `nil` if the log ends, which cancels upstream.
  /// - Returns: `nil` if there is no effect: the log, or this connection, has already ended.
  mutating func finish(_ generation: UInt64?) -> Actions? {
    guard ending == .none, !isShutDown, generation ?? connection.generation == connection.generation else { return nil }
    var actions = Actions()
    ending = isFrozen || waiting > 0 ? .pending : .reached
    actions.completes = ending == .reached
    actions.notifies = true
    end(&actions, generation == nil ? .cancel : .drop)
    return actions
  }

  // MARK: - Waiting values

  /// Whether waiting values may be appended as far as they fit.
  var mayDrain: Bool { !isFrozen && !isShutDown }

  /// Records that waiting values were appended as far as they fitted.
  ///
  /// - Parameters:
  ///   - appending: Whether the storage has accepted any element.
  ///   - count: The number of values that still wait.
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

  // MARK: - Freezing

  /// Stops appending. The new overflow takes effect immediately, the new start with the thaw.
  mutating func freeze(start: ShareStart, overflow: LogOverflow) {
    precondition(demand == .oneAtATime, "a log with exact demand cannot be frozen")
    precondition(!isFrozen, "the log is frozen already")
    (isFrozen, wasConnected) = (true, isConnected)
    self.start = start
    isLossless = overflow != .dropOldest
    firstUnread = overflow == .waitForReader ? firstUnread ?? 0 : nil
  }

  /// Sets another upstream for a frozen log; a former end is void.
  mutating func replaceUpstream() -> Actions {
    precondition(isFrozen, "only a frozen log changes its upstream")
    var actions = Actions()
    end(&actions, .cancel)
    (ending, hasUpstream) = (.none, true)
    return actions
  }

  /// Allows appending again. The caller appends the values that were set aside, then calls
  /// ``thawed(appending:waiting:_:)``.
  mutating func thaw() {
    precondition(isFrozen, "only a frozen log thaws")
    isFrozen = false
  }

  /// Does the same as ``drained(appending:waiting:_:)`` after the thaw, then connects or disconnects according to the
  /// start.
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
