import Dispatch
import Synchronization

// How sharing works. One log holds the values; a reader is a position in it and a demand. Publishing appends once and
// notifies each reader; readers read when and as far as they want. Replay and live are the same read, a slow reader costs
// no memory, and falling off the ring's end is the drop-oldest buffer that each subscription would otherwise keep for
// itself.
//
// The lock guards state only. Every step is decided under it by a `SharingMachine`, and what the step returns (subscribe,
// request, cancel, notify) is performed after unlocking. Two calls may therefore overtake one another; the generation of
// a connection tells the later one that its connection is gone.
//
// A log keeps its elements when it disconnects: the next subscriber gets them at once, while upstream starts anew.

/// When a shared log is subscribed to its upstream.
public enum ShareStart: Sendable, Equatable {
  /// From the first subscriber until `linger` after the last one has left; again with the next.
  case whileSubscribed(linger: Duration)
  /// From the first subscriber until upstream ends.
  case fromFirstSubscriber
  /// From ``SharedLog/start()`` until upstream ends.
  case always
}

/// How upstream is requested for values.
@usableFromInline package enum UpstreamDemand: Sendable, Equatable {
  /// An upstream value is one element: outstanding demand equals the largest request of any reader past the log's end.
  /// What was requested stays requested.
  case exact
  /// An upstream value is any number of elements: one is outstanding while a reader requests more than there is. Once no
  /// reader does, nothing more is requested.
  case oneAtATime
}

/// What becomes of the oldest elements when there is no room for new ones.
@usableFromInline package enum LogOverflow: Sendable, Equatable {
  /// They are dropped: upstream waits for no reader.
  case dropOldest
  /// What a reader has not read is kept, and upstream waits for the reader that is furthest behind. Only with
  /// ``UpstreamDemand/oneAtATime``.
  case waitForSlowest
}

/// A reader that reads a log by itself and is notified of changes.
@usableFromInline package protocol LogReader: AnyObject, Sendable {
  /// The log grew, ended, or was connected or disconnected. Called outside every lock, on the thread that did it; may
  /// be called without cause, and once more after ``SharedLog/detach(_:)``. Must return promptly.
  func logDidChange()
}

/// Calls a closure after a time, unless what it returns is cancelled before. May call from any thread.
@usableFromInline package typealias Delay = @Sendable (Duration, @escaping @Sendable () -> Void) -> any Cancellable

/// Delays by Dispatch's monotonic clock, on a global queue.
@usableFromInline
@Sendable package func dispatchDelay(_ delay: Duration, _ body: @escaping @Sendable () -> Void) -> any Cancellable {
  // Not a work item: cancelled, that stays in the queue until its time.
  let source = DispatchSource.makeTimerSource(queue: .global())
  let nanoseconds = Int(clamping: Int128(delay / .nanoseconds(1)))
  source.setEventHandler {
    body()
    source.cancel()
  }
  source.schedule(deadline: .now() + .nanoseconds(nanoseconds))
  source.activate()
  return AnyCancellable { source.cancel() }
}

/// One upstream, or none, shared with any number of readers through one store of values.
///
/// Thread-safe. Signals from upstream may come from any thread, from inside `subscribe` and `request`, and from inside
/// a reader's callback.
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

  /// A reader, and how it is notified: with the newest element, where there is one and it costs nothing to hand out, so
  /// that a reader that waits for just that needs no lock to read it.
  @usableFromInline struct AttachedReader {
    let reader: AnyObject
    @usableFromInline let notify: (Newest?) -> Void
  }

  /// What an append leaves to be done outside the lock.
  @usableFromInline struct Appended {
    @usableFromInline let readers: [AttachedReader]
    @usableFromInline let newest: Newest?
    /// Made room; its end is foreign code.
    @usableFromInline let dropped: Storage.Element?

    @inlinable init(readers: [AttachedReader], newest: Newest?, dropped: Storage.Element?) {
      (self.readers, self.newest, self.dropped) = (readers, newest, dropped)
    }
  }

  /// What a step returned, and the objects that its actions concern.
  @usableFromInline struct Work {
    @usableFromInline let actions: SharingMachine.Actions
    @usableFromInline let readers: [AttachedReader]
    @usableFromInline let subscription: (any Subscription)?
    @usableFromInline let linger: (any Cancellable)?
    @usableFromInline let upstream: AnyPublisher<Storage.Input, Failure>?

    /// Takes out of the state what the actions concern.
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
    /// How the log has ended, as its readers see it.
    @usableFromInline var completion: Subscribers.Completion<Failure>?
    /// How it ends after the values that wait.
    @usableFromInline var pendingCompletion: Subscribers.Completion<Failure>?
    /// Values that had no room or came while the log was frozen, oldest first: one, unless upstream sends without a
    /// request. What is left of a value that had only partly room is the first.
    @usableFromInline var waiting: [Storage.Input] = []
    /// In the order of attaching. Copied for each notification, which costs nothing until it changes.
    @usableFromInline var readers: [AttachedReader] = []
    /// Notified of appends; one of the readers.
    var observer: (any LogReader)?
    @usableFromInline var upstream: AnyPublisher<Storage.Input, Failure>?
    /// `nil` until upstream has sent it.
    @usableFromInline var subscription: (any Subscription)?
    @usableFromInline var linger: (any Cancellable)?
  }

  @usableFromInline let state: Guarded<State>
  let lossless: Atomic<Bool>
  /// Whether upstream waits for the slowest reader.
  package var isLossless: Bool { lossless.load(ordering: .acquiring) }
  let schedule: Delay
  /// How many elements over its capacity a storage may hold while readers are notified. Protects those that have demand
  /// when a subscriber publishes from inside `receive`.
  @usableFromInline let slack: Int
  @usableFromInline let ended = Atomic(false)
  /// Whether there is a completion: for readers that have no demand and need not look closer. Takes no lock.
  @inlinable package var hasEnded: Bool { ended.load(ordering: .acquiring) }

  /// A log without an upstream yet.
  ///
  /// - Parameters:
  ///   - schedule: Measures the linger; a test gives a clock of its own.
  ///   - slack: How many elements over its capacity a storage may hold while readers are notified.
  @usableFromInline package init(
    storage: Storage, start: ShareStart, demand: UpstreamDemand, overflow: LogOverflow = .dropOldest,
    schedule: @escaping Delay = dispatchDelay, slack: Int = 64
  ) {
    let machine = SharingMachine(start: start, demand: demand, overflow: overflow)
    state = Guarded(State(machine: machine, storage: storage))
    lossless = Atomic(overflow == .waitForSlowest)
    (self.schedule, self.slack) = (schedule, slack)
    state.withLock { $0.observeAppends() }
  }

  // MARK: - Writing

  /// Appends one upstream value and notifies the readers. After the end it does nothing.
  @inlinable package func append(_ input: Storage.Input) {
    if let appended = state.withLock({ $0.append(input, from: nil, slack: slack) }) { notify(of: appended) }
  }

  /// Ends the log. Readers see it after what they have not read yet; a second end does nothing.
  @usableFromInline package func finish(_ completion: Subscribers.Completion<Failure>) {
    finish(completion, generation: nil)
  }

  /// - Parameter generation: The connection that ends, `nil` if the log does.
  @usableFromInline func finish(_ completion: Subscribers.Completion<Failure>, generation: UInt64?) {
    step { state in
      guard let actions = state.machine.finish(generation) else { return .init() }
      state.pendingCompletion = completion
      return actions
    }
  }

  /// Notifies the readers of one append, then drops what was kept only for them.
  @inlinable func notify(of appended: Appended) {
    for reader in appended.readers { reader.notify(appended.newest) }
    trim(afterNotifying: true)
  }

  /// Drops what is over the capacity, unless readers are still being notified.
  ///
  /// - Parameter isNotified: The readers have been notified of one more append.
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
      for reader in readers { reader.notify(nil) }  // nothing may be left between them and the end now
      if next == nil { return }
    }
  }

  // MARK: - Steps

  /// Takes a step under the lock, and performs what it returns.
  @inlinable func step(_ body: (inout State) -> SharingMachine.Actions) { perform(decide(body)) }

  @inlinable func decide(_ body: (inout State) -> SharingMachine.Actions) -> Work {
    state.withLock { state in
      let actions = body(&state)
      if actions.completes { ended.store(true, ordering: .releasing) }
      return Work(actions, from: &state)
    }
  }

  /// Calls out: outside the lock.
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

  /// Runs `body` under the log's lock. It must not call out.
  ///
  /// - Parameter body: Gets the storage and how the log ended, `nil` while it has not.
  @inlinable package func read<R>(_ body: (inout Storage, Subscribers.Completion<Failure>?) -> R) -> R {
    state.withLock { body(&$0.storage, $0.completion) }
  }

  /// Notifies the reader of changes from now on. It is held until ``detach(_:)``.
  ///
  /// Read the position to start at after attaching: nothing is missed then.
  package func attach(_ reader: any LogReader) { attach(reader) { _ in reader.logDidChange() } }

  /// - Parameter notify: Stands for the reader's own method: a closure that is formed where the reader's type is known is
  ///   compiled for it.
  @usableFromInline func attach(_ reader: AnyObject, notify: @escaping (Newest?) -> Void) {
    state.withLock { state in
      state.readers.append(AttachedReader(reader: reader, notify: notify))
      state.machine.attach(ObjectIdentifier(reader))
    }
  }

  /// The reader is no longer notified, and its requests are void.
  @usableFromInline package func detach(_ reader: any LogReader) {
    let detached = state.withLock { state -> AttachedReader? in
      guard state.machine.detach(ObjectIdentifier(reader)) else { return nil }
      return state.readers.firstIndex { $0.reader === reader }.map { state.readers.remove(at: $0) }
    }
    _ = detached  // may be the last to hold the reader, whose end must not come under the lock
    if isLossless { step { $0.drain() } }
  }

  /// The reader requests everything before `position`: 0 for nothing, `.max` for everything. May request of upstream,
  /// which may deliver before this returns. Does nothing for a reader that is not attached.
  @inlinable package func reader(_ reader: any LogReader, requestedThrough position: UInt64) {
    step { $0.machine.request(through: position, by: ObjectIdentifier(reader), $0.extent) }
  }

  /// Lossless logs: the reader has not read `position` and what follows; `.max`: it needs nothing. Does nothing for a
  /// log that drops. May append and request of upstream, which may deliver before this returns.
  ///
  /// - Returns: Where that begins: `position`, or the oldest element, when what came before that is gone already.
  @discardableResult package func reader(_ reader: any LogReader, oldestUnread position: UInt64) -> UInt64 {
    var first = position
    step { state in
      guard state.machine.isLossless else { return .init() }
      first = max(position, state.storage.firstPosition)
      state.machine.setOldestUnread(position == .max ? .max : first, of: ObjectIdentifier(reader))
      return state.drain()
    }
    return first
  }

  /// The oldest unread element of the slowest reader, while upstream could send more and is not requested to, because
  /// subscribers do not take what there is. Nil while upstream does not wait; always nil for a log that drops.
  package var positionUpstreamWaitsFor: UInt64? { state.withLock { $0.machine.positionUpstreamWaitsFor } }
}

extension SharedLog.State {
  @inlinable var extent: SharingMachine.Extent {
    .init(end: storage.endPosition, isFull: machine.isLossless && storage.isFull)
  }

  /// - Returns: `nil` if nothing was appended.
  @inlinable mutating func append(
    _ input: Storage.Input, from generation: UInt64?, slack: Int
  ) -> SharedLog.Appended? {
    switch machine.valueArrived(generation) {
    case .discard: return nil
    case .append: storage.append(input)
    case .enqueue: if !enqueue(input) { return nil }
    case .setAside:
      waiting.append(input)
      return nil
    }
    machine.valueAppended(fromUpstream: generation != nil)
    let newest = storage.newestElement.map { SharedLog.Newest(storage.endPosition - 1, $0) }
    return SharedLog.Appended(readers: readers, newest: newest, dropped: storage.dropExcess(sparing: slack))
  }

  /// Appends as much as has room, behind the values that wait.
  ///
  /// - Returns: Whether the storage has taken anything.
  @inlinable mutating func enqueue(_ input: Storage.Input) -> Bool {
    let end = storage.endPosition
    if waiting.isEmpty {
      guard let rest = storage.appendWhatFits(input) else { return true }
      waiting = [rest]
    } else {
      waiting.append(input)
    }
    machine.setWaiting(waiting.count)
    return storage.endPosition > end
  }

  /// Appends as much of what waits as has room, now that readers have read on or left.
  mutating func drain() -> SharingMachine.Actions {
    guard machine.mayDrain else { return .init() }
    let appending = appendWaiting()
    return machine.drained(appending: appending, waiting: waiting.count, extent)
  }

  /// - Returns: Whether the storage has taken anything.
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

  /// The storage's observer becomes a reader, in place of that of the former storage.
  mutating func observeAppends() {
    if let observer { readers.removeAll { $0.reader === observer } }
    observer = storage.appendObserver
    if let observer {
      readers.append(SharedLog.AttachedReader(reader: observer) { _ in observer.logDidChange() })
    }
  }
}
