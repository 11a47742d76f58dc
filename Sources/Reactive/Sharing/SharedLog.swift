import Dispatch
import Synchronization

// How sharing works. One log holds the values; a reader is a position in it and a demand. Publishing appends once and
// tells each reader that there is something; readers read when and as far as they want. Replay and live are the same
// read, a slow reader costs no memory, and falling off the ring's end is the drop-oldest buffer that each subscription
// would otherwise keep for itself.
//
// The lock guards state only. Every transition is decided under it, together with what is to be called, and the calls
// (subscribe, request, cancel, readers) are made after unlocking. Two calls may therefore overtake one another; a
// generation number, raised with each connection and each end of one, tells whoever comes late that its connection is
// gone, and nothing that a late one says has an effect.
//
// A log keeps what it holds when it disconnects: the next subscriber gets that at once, while upstream starts anew.

/// When a shared log is subscribed to its upstream.
public enum ShareStart: Sendable, Equatable {
  /// From the first subscriber until `linger` after the last one has left; again with the next.
  case whileSubscribed(linger: Duration)
  /// From the first subscriber until upstream ends.
  case fromFirstSubscriber
  /// From ``SharedLog/start()`` until upstream ends.
  case always
}

/// How upstream is asked for values.
public enum UpstreamDemand: Sendable, Equatable {
  /// An upstream value is one element: as many are outstanding as the reader who wants most wants beyond the end. What
  /// was requested stays requested.
  case exact
  /// An upstream value is any number of elements: one is outstanding while some reader wants more than there is. Once
  /// nobody does, nothing more is requested.
  case oneAtATime
}

/// What becomes of the oldest elements when there is no room for new ones.
public enum LogOverflow: Sendable, Equatable {
  /// They are dropped: upstream waits for nobody.
  case dropOldest
  /// What a reader holds is kept, and upstream waits for the reader that is furthest behind. Only with
  /// ``UpstreamDemand/oneAtATime``.
  case waitForSlowest
}

/// One who reads a log by itself and wants to be told.
public protocol LogReader: AnyObject, Sendable {
  /// The log grew, ended, or was connected or disconnected. Called outside every lock, on the thread that did it; may
  /// be called without cause, and once more after ``SharedLog/detach(_:)``. Must return promptly.
  func logDidChange()
}

/// Calls a closure after a time, unless what it returns is cancelled before. May call from any thread.
public typealias Delay = @Sendable (Duration, @escaping @Sendable () -> Void) -> any Cancellable

/// Delays by Dispatch's monotonic clock, on a global queue.
@Sendable public func dispatchDelay(_ delay: Duration, _ body: @escaping @Sendable () -> Void) -> any Cancellable {
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
public final class SharedLog<Storage: ReplayStorage, Failure: Error>: @unchecked Sendable {
  // Sendable: all state is guarded; values reach one reader at a time under the subscriber contract.

  /// An element that has just been appended.
  @usableFromInline struct Newest {
    @usableFromInline let position: UInt64
    @usableFromInline let element: Storage.Element

    @inlinable init(_ position: UInt64, _ element: Storage.Element) {
      (self.position, self.element) = (position, element)
    }
  }

  /// A reader, and how it is told: with the newest element, where there is one and it costs nothing to hand out, so
  /// that a reader that waits for just that needs no lock to read it.
  @usableFromInline struct AttachedReader {
    let reader: AnyObject
    @usableFromInline let tell: (Newest?) -> Void
  }

  @usableFromInline struct State {
    @usableFromInline var storage: Storage
    @usableFromInline var completion: Subscribers.Completion<Failure>?
    /// In the order of attaching. Copied for each round of telling, which costs nothing until it changes.
    @usableFromInline var readers: [AttachedReader] = []
    /// How far each attached reader wants to read.
    var wants: [ObjectIdentifier: UInt64] = [:]
    /// What had no room, and how the log ends after that. See `SharedLog+Holding`.
    @usableFromInline var overflow: Overflow?
    /// What came while nothing may be appended. See `SharedLog+Changing`.
    @usableFromInline var frozen: Frozen?
    var start: ShareStart
    /// How many appends have not told all readers yet.
    @usableFromInline var telling = 0
    var subscribers = 0
    @usableFromInline var connection = Connection()
    var upstream: AnyPublisher<Storage.Input, Failure>?
    var linger: (any Cancellable)?
    @usableFromInline var isShutDown = false
    var isSuspended = false
  }

  @usableFromInline let state: Guarded<State>
  let demand: UpstreamDemand
  let lossless: Atomic<Bool>
  /// Whether upstream waits for the slowest reader.
  public var isLossless: Bool { lossless.load(ordering: .acquiring) }
  let schedule: Delay
  /// How many elements over its capacity a storage may hold while readers are being told. Protects those who have
  /// demand when a subscriber publishes from inside `receive`.
  @usableFromInline let slack: Int
  @usableFromInline let ended = Atomic(false)
  /// Whether there is a completion: for those who have no demand and need not look closer. Takes no lock.
  @inlinable public var hasEnded: Bool { ended.load(ordering: .acquiring) }

  init(
    storage: Storage, start: ShareStart, demand: UpstreamDemand, overflow: LogOverflow = .dropOldest,
    schedule: @escaping Delay = dispatchDelay, slack: Int
  ) {
    precondition(overflow == .dropOldest || demand == .oneAtATime, "who waits for readers asks for one at a time")
    state = Guarded(State(storage: storage, overflow: overflow == .waitForSlowest ? Overflow() : nil, start: start))
    self.demand = demand
    lossless = Atomic(overflow == .waitForSlowest)
    (self.schedule, self.slack) = (schedule, slack)
  }

  /// A log without an upstream yet.
  ///
  /// - Parameter schedule: Measures the linger; a test gives a clock of its own.
  public convenience init(
    storage: Storage, start: ShareStart, demand: UpstreamDemand, overflow: LogOverflow = .dropOldest,
    schedule: @escaping Delay = dispatchDelay
  ) {
    self.init(storage: storage, start: start, demand: demand, overflow: overflow, schedule: schedule, slack: 64)
  }

  // MARK: - Writing

  /// Appends one upstream value and tells the readers. After the end it does nothing.
  @inlinable public func append(_ input: Storage.Input) {
    let (readers, newest, dropped) = state.withLock { $0.append(input, slack: slack) }
    _ = dropped
    if let readers { tell(readers, newest) }
  }

  /// Ends the log. Readers see it after what they have not read yet; a second end does nothing.
  public func finish(_ completion: Subscribers.Completion<Failure>) { finish(completion, generation: nil) }

  /// - Parameter generation: The connection that ends, `nil` if the log does.
  @usableFromInline func finish(_ completion: Subscribers.Completion<Failure>, generation: UInt64?) {
    let (subscription, linger, readers) = state.withLock {
      state -> ((any Subscription)?, (any Cancellable)?, [AttachedReader]) in
      guard state.completion == nil, state.overflow?.completion == nil, state.frozen?.completion == nil,
        !state.isShutDown, generation ?? state.connection.generation == state.connection.generation
      else { return (nil, nil, []) }
      if state.frozen != nil {
        state.frozen?.completion = completion
      } else if state.overflow?.isEmpty == false {
        state.overflow?.completion = completion
      } else {
        state.completion = completion
        ended.store(true, ordering: .releasing)
      }
      return (state.connection.end(), state.linger.take(), state.readers)
    }
    linger?.cancel()
    if generation == nil { subscription?.cancel() }
    for reader in readers { reader.tell(nil) }
  }

  /// Tells the readers of one append, then drops what was kept only for them.
  @inlinable func tell(_ readers: [AttachedReader], _ newest: Newest? = nil) {
    for reader in readers { reader.tell(newest) }
    trim(told: 1)
  }

  /// Drops what is over the capacity, unless readers are still being told.
  ///
  /// - Parameter told: How many appends all readers have been told of.
  @inlinable func trim(told: Int = 0) {
    var told = told
    var more = true
    while more {
      let (oldest, next, readers) = state.withLock { state -> (Storage.Element?, Storage.Element?, [AttachedReader]) in
        state.telling -= told
        guard state.telling == 0, let oldest = state.storage.dropExcess(sparing: 0) else { return (nil, nil, []) }
        return (oldest, state.storage.dropExcess(sparing: 0), state.completion == nil ? [] : state.readers)
      }
      told = 0
      _ = oldest
      more = next != nil
      for reader in readers { reader.tell(nil) }  // nothing may be left between them and the end now
    }
  }

  // MARK: - Reading

  /// Runs `body` under the log's lock. It must not call out.
  ///
  /// - Parameter body: Gets the storage and how the log ended, `nil` while it has not.
  @inlinable public func read<R>(_ body: (inout Storage, Subscribers.Completion<Failure>?) -> R) -> R {
    state.withLock { body(&$0.storage, $0.completion) }
  }

  /// The reader is told of changes from now on. It is held until ``detach(_:)``.
  ///
  /// Read the position to start at after attaching: nothing is missed then.
  public func attach(_ reader: any LogReader) { attach(reader) { _ in reader.logDidChange() } }

  /// - Parameter tell: Stands for the reader's own method: a closure that is formed where the reader's type is known is
  ///   compiled for it.
  @usableFromInline func attach(_ reader: AnyObject, tell: @escaping (Newest?) -> Void) {
    state.withLock { state in
      state.readers.append(AttachedReader(reader: reader, tell: tell))
      state.wants[ObjectIdentifier(reader)] = 0
    }
  }

  /// The reader is no longer told, and wants nothing any more.
  public func detach(_ reader: any LogReader) {
    let detached = state.withLock { state -> AttachedReader? in
      guard state.wants.removeValue(forKey: ObjectIdentifier(reader)) != nil else { return nil }
      return state.readers.firstIndex { $0.reader === reader }.map { state.readers.remove(at: $0) }
    }
    _ = detached  // may be the last to hold the reader, whose end is not to come under the lock
    if isLossless { self.reader(reader, holdsFrom: .max) }
  }

  /// The reader wants everything before `position`: 0 for nothing, `.max` for everything. May ask upstream, which may
  /// deliver before this returns. Does nothing for a reader that is not attached.
  public func reader(_ reader: any LogReader, wantsThrough position: UInt64) {
    let isMore = state.withLock { state in
      guard let before = state.wants[ObjectIdentifier(reader)] else { return false }
      // Exact demand only rises: what was requested stays requested.
      state.wants[ObjectIdentifier(reader)] = demand == .exact ? max(before, position) : position
      state.connection.wanted = max(state.connection.wanted, position)
      return position > state.storage.endPosition
    }
    guard isMore else { return retractWhatNobodyWants() }
    request()
  }
}

extension SharedLog.State {
  /// - Returns: Who is to be told, `nil` if nothing was appended, and of what; and what had to make room, to be released
  ///   outside the lock.
  @inlinable mutating func append(
    _ input: Storage.Input, slack: Int
  ) -> (readers: [SharedLog.AttachedReader]?, newest: SharedLog.Newest?, dropped: Storage.Element?) {
    guard completion == nil, !isShutDown else { return (nil, nil, nil) }
    if frozen != nil {
      setAside(input)
      return (nil, nil, nil)
    }
    if overflow == nil {
      storage.append(input)
    } else if !appendWhatFits(input) {
      return (nil, nil, nil)
    }
    telling += 1
    let newest = storage.newestElement.map { SharedLog.Newest(storage.endPosition - 1, $0) }
    return (readers, newest, storage.dropExcess(sparing: slack))
  }
}
