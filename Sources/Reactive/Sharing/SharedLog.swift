import Dispatch
import Locks
import Synchronization

// How sharing works. One log holds the values; a reader is a position in it and a demand. Publishing appends once and
// notifies each reader; readers read at their own pace. Replay and live delivery are the same read, a slow reader costs
// no memory, and reading from a ring that drops its oldest elements replaces a drop-oldest buffer for each
// subscription.
//
// The lock guards state only. A `SharingMachine` decides every step under it, and the actions that the step returns
// (subscribe, request, cancel, notify) are performed after unlocking. Two calls may therefore overtake one another; by
// the generation, the later call detects that its connection has ended.
//
// A log keeps its elements when it disconnects: the next subscriber receives them immediately, while upstream restarts.

/// The time at which a shared log subscribes to its upstream.
public enum ShareStart: Sendable, Equatable {
  /// From the first subscriber until `linger` after the last one has left; again on the next subscriber.
  case whileSubscribed(linger: Duration)
  /// From the first subscriber until upstream ends.
  case fromFirstSubscriber
  /// From `SharedLog.start()` until upstream ends.
  case always
}

/// The rule by which values are requested from upstream.
@usableFromInline package enum UpstreamDemand: Sendable, Equatable {
  /// An upstream value is one element: outstanding demand equals the largest request of any reader past the log's end.
  /// A request is never taken back.
  case exact
  /// An upstream value is any number of elements: one value is outstanding while a reader requests elements past the
  /// log's end. Without such a reader, no value is requested.
  case oneAtATime
}

/// The treatment of the oldest elements when new ones do not fit.
@usableFromInline package enum LogOverflow: Sendable, Equatable {
  /// The oldest elements are dropped: upstream waits for no reader.
  case dropOldest
  /// Unread elements are kept, and upstream waits for the reader that is furthest behind. Only with
  /// ``UpstreamDemand/oneAtATime``.
  case waitForSlowest
  /// The same. Elements that no reader has read are kept also while there is none: upstream waits for the first one.
  case waitForReader
}

/// A reader that reads a log itself and is notified of changes.
@usableFromInline package protocol LogReader: AnyObject, Sendable {
  /// Called when the log grew, ended, connected or disconnected: outside every lock, on the thread that caused the
  /// change. May be called without cause, and once more after `SharedLog.detach(_:)`. Must return promptly.
  func logDidChange()
}

/// Calls a closure after a delay, on any thread, unless the returned value is cancelled before.
@usableFromInline package typealias Delay = @Sendable (Duration, @escaping @Sendable () -> Void) -> any Cancellable

/// Delays by Dispatch's monotonic clock, on a global queue.
@usableFromInline
@Sendable package func dispatchDelay(_ delay: Duration, _ body: @escaping @Sendable () -> Void) -> any Cancellable {
  // Not a work item: a cancelled work item stays in the queue until its time.
  let source = DispatchSource.makeTimerSource(queue: .global())
  let nanoseconds = Int(clamping: Int128(delay / .nanoseconds(1)))
  source.setEventHandler {
    body()
    source.cancel()
  }
  source.schedule(deadline: .now() + .nanoseconds(nanoseconds))
  source.activate()
  return AnyCancellable(own { source.cancel() })
}

/// Shares at most one upstream with any number of readers through one storage of values.
///
/// Thread-safe. Upstream's signals may arrive on any thread, from inside `subscribe` and `request`, and from inside a
/// reader's callback.
@usableFromInline package final class SharedLog<Storage: ReplayStorage, Failure: Error>: @unchecked Sendable {
  // Sendable: all state is guarded; values reach one reader at a time under the subscriber contract.

  /// An element that has just been appended.
  @usableFromInline struct Newest {
    @usableFromInline let position: UInt64
    @usableFromInline let element: Storage.Element

    @inlinable init(_ position: UInt64, _ element: Storage.Element) {
      (self.position, self.element) = (position, element)
    }
  }

  /// A reader and the closure that notifies it. The closure receives the newest element if returning that costs
  /// nothing; a reader that waits for exactly that element then reads it without the lock.
  @usableFromInline struct AttachedReader {
    let reader: AnyObject
    @usableFromInline let notify: (Newest?) -> Void
  }

  /// The work that an append leaves to do outside the lock.
  @usableFromInline struct Appended {
    @usableFromInline let readers: [AttachedReader]
    @usableFromInline let newest: Newest?
    /// The element dropped for the new one; its deinitialiser is foreign code.
    @usableFromInline let dropped: Storage.Element?

    @inlinable init(readers: [AttachedReader], newest: Newest?, dropped: Storage.Element?) {
      (self.readers, self.newest, self.dropped) = (readers, newest, dropped)
    }
  }

  /// The actions that a step returned, and the objects that they concern.
  @usableFromInline struct Work {
    @usableFromInline let actions: SharingMachine.Actions
    @usableFromInline let readers: [AttachedReader]
    @usableFromInline let subscription: (any Subscription)?
    @usableFromInline let linger: (any Cancellable)?
    @usableFromInline let upstream: AnyPublisher<Storage.Input, Failure>?

    /// Takes the objects that the actions concern out of the state.
    @inlinable init(_ actions: SharingMachine.Actions, from state: inout State) {
      self.actions = actions
      readers = actions.notifies ? state.readers : []
      let concernsSubscription = actions.release != .keep || actions.retracts != nil || actions.requests != .none
      subscription = concernsSubscription ? state.subscription : nil
      linger = actions.cancelsLinger ? state.linger.take() : nil
      upstream = actions.connects != nil ? state.upstream : nil
      if actions.release != .keep { state.subscription = nil }
      if actions.completes { state.completion = state.pendingCompletion.take() }
    }
  }

  @usableFromInline struct State {
    @usableFromInline var machine: SharingMachine
    @usableFromInline var storage: Storage
    /// The completion that readers see.
    @usableFromInline var completion: Subscribers.Completion<Failure>?
    /// The completion that follows the waiting values.
    @usableFromInline var pendingCompletion: Subscribers.Completion<Failure>?
    /// Values that did not fit, or arrived while the log was frozen, oldest first: one, unless upstream sends without a
    /// request. The remainder of a value that fitted only in part is the first.
    @usableFromInline var waiting: [Storage.Input] = []
    /// The readers in the order of attaching. Copied for each notification, which costs nothing until it changes.
    @usableFromInline var readers: [AttachedReader] = []
    /// The storage's observer, which is notified of appends; one of the readers.
    var observer: (any LogReader)?
    @usableFromInline var upstream: AnyPublisher<Storage.Input, Failure>?
    /// `nil` until upstream has sent it.
    @usableFromInline var subscription: (any Subscription)?
    @usableFromInline var linger: (any Cancellable)?
  }

  @usableFromInline let state: Locked<State>
  let lossless: Atomic<Bool>
  /// Whether upstream waits for the slowest reader.
  package var isLossless: Bool { lossless.load(ordering: .acquiring) }
  let schedule: Delay
  /// The number of elements above its capacity that a storage may hold while readers are notified. It protects elements
  /// that readers have requested when a subscriber publishes from inside `receive`.
  @usableFromInline let slack: Int
  @usableFromInline let ended = Atomic(false)
  /// Whether there is a completion. For readers without demand; takes no lock.
  @inlinable package var hasEnded: Bool { ended.load(ordering: .acquiring) }

  /// Creates a log without an upstream.
  ///
  /// - Parameters:
  ///   - schedule: Measures the linger; a test supplies its own clock.
  ///   - slack: The number of elements above its capacity that a storage may hold while readers are notified.
  @usableFromInline package init(
    storage: Storage, start: ShareStart, demand: UpstreamDemand, overflow: LogOverflow = .dropOldest,
    schedule: @escaping Delay = dispatchDelay, slack: Int = 64
  ) {
    let machine = SharingMachine(start: start, demand: demand, overflow: overflow)
    state = Locked(State(machine: machine, storage: storage))
    lossless = Atomic(overflow != .dropOldest)
    (self.schedule, self.slack) = (schedule, slack)
    state.withLock { $0.observeAppends() }
  }

  // MARK: - Writing

  /// Appends one value that does not come from upstream, and notifies the readers. The log need not have an upstream,
  /// or a request to it. A request that no reader needs any more is retracted.
  /// - Returns: False, without any effect, after the end.
  @discardableResult @inlinable package func append(_ input: Storage.Input) -> Bool {
    let (isTaken, appended, mayRetract) = state.withLock { state in
      (state.machine.takesValues, state.append(input, from: nil, slack: slack), state.machine.mayRetract)
    }
    if let appended { notify(of: appended) }
    if mayRetract { step { $0.machine.appendedElsewhere($0.extent) } }
    return isTaken
  }

  /// Ends the log. Readers see the completion after their unread elements; a second call has no effect.
  @usableFromInline package func finish(_ completion: Subscribers.Completion<Failure>) {
    finish(completion, generation: nil)
  }

  /// - Parameter generation: The connection that ends; `nil` if the log ends.
  @usableFromInline func finish(_ completion: Subscribers.Completion<Failure>, generation: UInt64?) {
    step { state in
      guard let actions = state.machine.finish(generation) else { return .init() }
      state.pendingCompletion = completion
      return actions
    }
  }

  /// Notifies the readers of one append, then drops the elements that were kept only for the notification.
  @inlinable func notify(of appended: Appended) {
    for reader in appended.readers { reader.notify(appended.newest) }
    trim(afterNotifying: true)
  }

  /// Drops the elements above the capacity, unless readers are still being notified.
  ///
  /// - Parameter isNotified: Whether the readers have been notified of one more append.
  @inlinable func trim(afterNotifying isNotified: Bool = false) {
    var isNotified = isNotified
    while true {
      let (oldest, next, readers) = state.withLock { state -> (Storage.Element?, Storage.Element?, [AttachedReader]) in
        let mayTrim = isNotified ? state.machine.readersNotified() : state.machine.mayTrim
        guard mayTrim, let oldest = state.storage.dropExcess(sparing: 0) else { return (nil, nil, []) }
        return (oldest, state.storage.dropExcess(sparing: 0), state.completion == nil ? [] : state.readers)
      }
      isNotified = false
      _ = oldest
      for reader in readers { reader.notify(nil) }  // the completion may now be next for them
      if next == nil { return }
    }
  }

  // MARK: - Steps

  /// Takes a step under the lock and performs the actions it returns.
  @inlinable func step(_ body: (inout State) -> SharingMachine.Actions) { perform(decide(body)) }

  @inlinable func decide(_ body: (inout State) -> SharingMachine.Actions) -> Work {
    state.withLock { state in
      let actions = body(&state)
      if actions.completes { ended.store(true, ordering: .releasing) }
      return Work(actions, from: &state)
    }
  }

  /// Performs actions, which are foreign calls: outside the lock.
  @inlinable func perform(_ work: Work) {
    let actions = work.actions
    work.linger?.cancel()
    if actions.release == .cancel { work.subscription?.cancel() }
    for reader in work.readers { reader.notify(nil) }
    if actions.notifiesOfAppend { trim(afterNotifying: true) }
    if let generation = actions.connects, let upstream = work.upstream { connect(to: upstream, generation) }
    if let linger = actions.startsLinger { startLinger(linger) }
    if let generation = actions.retracts { retract(work.subscription, generation) }
    if actions.requests != .none { work.subscription?.request(actions.requests) }
  }

  // MARK: - Reading

  /// Runs `body` under the log's lock. It must not make foreign calls.
  ///
  /// - Parameter body: Receives the storage and the log's completion, `nil` before its end.
  @inlinable package func read<R>(_ body: (inout Storage, Subscribers.Completion<Failure>?) -> R) -> R {
    state.withLock { body(&$0.storage, $0.completion) }
  }

  /// Notifies the reader of changes from now on. The log holds the reader until ``detach(_:)``.
  ///
  /// Read the starting position after attaching: no change is then missed.
  package func attach(_ reader: any LogReader) { attach(reader) { _ in reader.logDidChange() } }

  /// - Parameter notify: Called in place of the reader's own method: a closure that is formed where the reader's type
  ///   is known is specialised for it.
  @usableFromInline func attach(_ reader: AnyObject, notify: @escaping (Newest?) -> Void) {
    state.withLock { state in
      state.readers.append(AttachedReader(reader: reader, notify: notify))
      state.machine.attach(ObjectIdentifier(reader))
    }
  }

  /// Stops notifying the reader and discards its requests.
  @usableFromInline package func detach(_ reader: any LogReader) {
    let detached = state.withLock { state -> AttachedReader? in
      guard state.machine.detach(ObjectIdentifier(reader)) else { return nil }
      return state.readers.firstIndex { $0.reader === reader }.map { state.readers.remove(at: $0) }
    }
    _ = detached  // may hold the last reference to the reader, whose deinitialiser must not run under the lock
    if isLossless { step { $0.drain() } }
  }

  /// Records that the reader requests every element before `position`: 0 for none, `.max` for all. May request values
  /// from upstream, which may deliver before this call returns. Has no effect for a reader that is not attached.
  @inlinable package func reader(_ reader: any LogReader, requestedThrough position: UInt64) {
    step { $0.machine.request(through: position, by: ObjectIdentifier(reader), $0.extent) }
  }

  /// Records that the reader has not read `position` and the elements after it; `.max`: it needs none. A log that drops
  /// elements keeps them once it becomes lossless; a lossless one may append, and request values from upstream, which may
  /// deliver before this call returns.
  ///
  /// - Returns: The position that is kept: `position`, or the oldest element if earlier ones have already been dropped.
  @discardableResult package func reader(_ reader: any LogReader, oldestUnread position: UInt64) -> UInt64 {
    var first = position
    step { state in
      guard state.machine.isLossless else {
        state.machine.setOldestUnread(position, of: ObjectIdentifier(reader))
        return .init()
      }
      first = max(position, state.storage.firstPosition)
      state.machine.setOldestUnread(position == .max ? .max : first, of: ObjectIdentifier(reader))
      return state.drain()
    }
    return first
  }

  /// The oldest unread element of the slowest reader, while upstream could send more but receives no request because
  /// subscribers do not read. Nil while upstream does not wait; always nil for a log that drops elements.
  package var positionUpstreamWaitsFor: UInt64? { state.withLock { $0.machine.positionUpstreamWaitsFor } }

  /// Whether a lossless log has no room for the next element, so that upstream is not asked.
  package var isHeld: Bool { state.withLock { !$0.waiting.isEmpty || $0.extent.isFull } }

  /// With one value at a time: whether upstream is asked for a value that has not arrived; nil while the log is
  /// connecting, frozen, suspended or shut down.
  package var isAwaitingUpstream: Bool? { state.withLock { $0.machine.isAwaitingUpstream } }
}

extension SharedLog.State {
  @inlinable var extent: SharingMachine.Extent {
    .init(end: storage.endPosition, isFull: machine.isLossless && storage.isFull)
  }

  /// - Returns: `nil` if no element was appended.
  @inlinable mutating func append(
    _ input: Storage.Input, from generation: UInt64?, slack: Int
  ) -> SharedLog.Appended? {
    let end = storage.endPosition
    switch machine.valueArrived(generation) {
    case .discard: return nil
    case .append: storage.append(input)
    case .enqueue: if !enqueue(input) { return nil }
    case .setAside:
      waiting.append(input)
      return nil
    }
    machine.valueAppended(fromUpstream: generation != nil)
    // A value without elements, such as a position of upstream, concerns no reader.
    guard storage.endPosition > end else {
      return SharedLog.Appended(readers: observers, newest: nil, dropped: storage.dropExcess(sparing: slack))
    }
    let newest = storage.newestElement.map { SharedLog.Newest(storage.endPosition - 1, $0) }
    return SharedLog.Appended(readers: readers, newest: newest, dropped: storage.dropExcess(sparing: slack))
  }

  /// The storage's observer.
  @usableFromInline var observers: [SharedLog.AttachedReader] {
    guard let observer else { return [] }
    return readers.filter { $0.reader === observer }
  }

  /// Appends as much as fits, behind the waiting values.
  ///
  /// - Returns: Whether the storage has accepted any element.
  @inlinable mutating func enqueue(_ input: Storage.Input) -> Bool {
    let end = storage.endPosition
    if machine.awaitsReader { storage.hold(from: max(machine.oldestUnread, storage.firstPosition)) }
    if waiting.isEmpty {
      guard let rest = storage.appendWhatFits(input) else { return true }
      waiting = [rest]
    } else {
      waiting.append(input)
    }
    machine.setWaiting(waiting.count)
    return storage.endPosition > end
  }

  /// Appends as much of the waiting values as fits after readers have read or left.
  mutating func drain() -> SharingMachine.Actions {
    guard machine.mayDrain else { return .init() }
    let appending = appendWaiting()
    return machine.drained(appending: appending, waiting: waiting.count, extent)
  }

  /// - Returns: Whether the storage has accepted any element.
  mutating func appendWaiting() -> Bool {
    // A reader may be at an element that another storage has dropped.
    storage.hold(from: max(machine.oldestUnread, storage.firstPosition))
    guard !waiting.isEmpty else { return false }
    let (end, inputs) = (storage.endPosition, waiting)
    waiting = []
    for (index, input) in inputs.enumerated() {
      guard let rest = storage.appendWhatFits(input) else { continue }
      waiting = [rest] + inputs[(index + 1)...]
      break
    }
    return storage.endPosition > end || waiting.count < inputs.count
  }

  /// Makes the storage's observer a reader, in place of the former storage's observer.
  mutating func observeAppends() {
    if let observer { readers.removeAll { $0.reader === observer } }
    observer = storage.appendObserver
    if let observer {
      readers.append(SharedLog.AttachedReader(reader: observer) { _ in observer.logDidChange() })
    }
  }
}
