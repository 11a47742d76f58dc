import Events
import Reactive
import ReplayLog
import StreamRuntime
import Synchronization

/// Reads the log of one base of a derived stream.
///
/// While the derived stream's source is active, the reader counts as a subscriber of the base. It tells the base's log
/// which events it has not read. A base with `overflow = "block"` keeps these, as for a connected subscriber. The time
/// in which the base waits for the reader is a debt, as that of a subscriber (`Lane+Stalls`). At `block_timeout` the
/// unread events may be evicted.
///
/// The thread that creates a reader attaches it; after that, the loop owns it. The log calls `logDidChange` on any
/// thread, which uses only the atomics of the reader.
final class BaseReader: LogReader, @unchecked Sendable {  // confined as above
  /// The next event of the log, if it has one.
  enum Head: Equatable {
    case nothing
    /// - time: when the log stored the event, in microseconds since the Unix epoch.
    case event(time: UInt64)
    /// Events were lost before they were read.
    case loss(EventLoss, end: UInt64)
  }

  /// How many more events and bytes a batch takes.
  struct Limits: Equatable {
    private var count: Int
    /// Bytes of events as the derived stream's log stores them.
    private var bytes: Int
    /// Whether no event was taken. The first one may have any number of bytes.
    private(set) var isUnused = true

    init(count: Int, bytes: Int) { (self.count, self.bytes) = (count, bytes) }

    var isExhausted: Bool { count <= 0 || bytes <= 0 }

    /// - Parameter event: the event's bytes.
    mutating func take(_ event: Int) -> Bool {
      guard isUnused || count > 0 && Self.stored(event) <= bytes else { return false }
      (count, bytes, isUnused) = (count - 1, bytes - Self.stored(event), false)
      return true
    }

    /// The most bytes that a log needs for an event.
    private static func stored(_ event: Int) -> Int { event + 32 }
  }

  let base: ServedStream
  /// The derived stream's name.
  private let stream: String
  private let notify: @Sendable () -> Void
  private let next = Atomic<UInt64>(0)
  /// The position of the next event.
  var position: UInt64 { next.load(ordering: .relaxed) }
  /// The number of events that were read.
  private var readCount: UInt64 = 0
  private var requestedThrough: UInt64 = 0
  /// Which changes of the log concern the derived stream: new events, the log's end, and that the base may wait for
  /// this reader.
  private let wantsEvents = Atomic(false)
  private let hasSeenEnd = Atomic(false)
  private let isWatched = Atomic(false)
  /// The time in which the base waited for this reader.
  private var debt: Debt?
  private var checkedAt: UInt64 = 0
  private var isReleased = false
  private var isHolder = false

  /// - Parameters:
  ///   - stream: the derived stream's name.
  ///   - notify: called on any thread, when the log has changed in a way that concerns the derived stream.
  init(_ base: ServedStream, for stream: String, notify: @escaping @Sendable () -> Void) {
    (self.base, self.stream, self.notify) = (base, stream, notify)
  }

  func logDidChange() {
    let log = base.log
    if wantsEvents.load(ordering: .sequentiallyConsistent)
      || log.hasEnded && !hasSeenEnd.exchange(true, ordering: .relaxed)
      || log.isLossless && !isWatched.load(ordering: .relaxed)
    {
      notify()
    }
  }

  // MARK: By its maker, before the loop has it

  /// Begins to read. May start the base's source.
  /// - Parameter position: the position of the first event to read; nil: that of the oldest event.
  func attach(at position: UInt64?) {
    base.log.attach(self)
    place(at: position)
    base.log.subscriberJoined()
  }

  // MARK: On the loop

  /// Ends the reading. May stop the base's source.
  func detach() {
    setHolder(nil)
    base.log.detach(self)
    base.log.subscriberLeft()
    base.use?.end()
  }

  /// Sets the position; nil: that of the oldest event.
  func place(at position: UInt64?) {
    move(
      to: position
        ?? base.log.read { storage, _ in
          storage.dropExpired()
          return storage.skip(storage.firstPosition)
        })
  }

  /// Continues at a position.
  func move(to position: UInt64) {
    next.store(position, ordering: .relaxed)
    isReleased = false
    base.log.reader(self, oldestUnread: position)
  }

  /// Sets whether new events notify the derived stream.
  func setWantsEvents(_ isWanted: Bool) { wantsEvents.store(isWanted, ordering: .sequentiallyConsistent) }

  /// Requests the event at the position, or takes the request back.
  func setWantsMore(_ isWanted: Bool) {
    let position = isWanted ? position &+ 1 : 0
    guard position != requestedThrough else { return }
    requestedThrough = position
    base.log.reader(self, requestedThrough: position)
  }

  /// Whether all events are read. Thread-safe.
  var isCurrent: Bool { base.log.read { storage, _ in position >= storage.endPosition } }

  /// Whether all events are read, and no more will come.
  var isAtEnd: Bool {
    base.log.hasEnded
      && base.log.read { storage, completion in completion != nil && position >= storage.endPosition }
  }

  /// Looks at the next event.
  func head() -> Head {
    base.log.read { storage, _ in
      storage.dropExpired()
      let position = position
      guard position <= storage.endPosition else {
        // Ids begin anew, because the log and the record of its ids were lost.
        return .loss(.possible, end: storage.skip(storage.firstPosition))
      }
      let next = storage.skip(max(position, storage.firstPosition))
      guard next == position else { return .loss(storage.loss(from: position, to: next), end: next) }
      return position < storage.endPosition ? .event(time: storage.time(of: position)) : .nothing
    }
  }

  /// Appends events to a batch within limits, none of which is later than `time`. Appends none where events were lost.
  /// - Parameter isSingle: whether the batch takes at most one event.
  func read(into batch: inout EventBatch, through time: UInt64, _ limits: inout Limits, isSingle: Bool) {
    let end = base.log.read { storage, _ -> UInt64 in
      var position = position
      guard position >= storage.firstPosition, position < storage.endPosition, storage.skip(position) == position
      else { return position }
      let runEnd = storage.endOfRun(from: position)
      let records = storage.records(in: position..<runEnd)
      while position < runEnd, storage.time(of: position) <= time, !isSingle || batch.isEmpty {
        let record = unsafe records[position]
        let byteCount = record.count - EventLog.stampBytes
        guard limits.take(byteCount) else { break }
        unsafe batch.append(UnsafeRawBufferPointer(rebasing: record[EventLog.stampBytes...]))
        position += 1
      }
      return position
    }
    guard end != position else { return }
    readCount &+= end &- position
    move(to: end)
  }

  // MARK: While the derived stream asks for nothing

  /// Checks whether the base waits for this reader, and releases the reader's events at the base's limit.
  ///
  /// - Parameters:
  ///   - start: since when the derived stream requests nothing, in nanoseconds of the monotonic clock; nil: it requests
  ///     events.
  ///   - stallTime: the time after which the base's state names the derived stream.
  /// - Returns: the time until the next check; nil: it is due when the log has changed.
  func checkStall(since start: UInt64?, at now: UInt64, stallTime: Duration) -> Duration? {
    let isLossless = base.log.isLossless
    isWatched.store(isLossless, ordering: .relaxed)
    guard isLossless, !isReleased, start != nil || debt != nil,
      case .block(let timeout, let pace) = base.configuration.overflow
    else {
      debt = nil
      setHolder(nil)
      return nil
    }
    let period = min(.seconds(1), stallTime / 4, (timeout ?? stallTime) / 4)
    // Its position is before the one that is waited for where the log has lost events.
    let owes = start != nil && base.log.positionUpstreamWaitsFor.map { position <= $0 } == true
    var debt = debt ?? Debt(progress: readCount, since: now)
    // A delay of the loop is not counted.
    let from = max(checkedAt, debt.since, start ?? now)
    let time = min(.nanoseconds(Int64(clamping: now - min(now, from))), period * 2)
    debt.settle(at: readCount, adding: owes ? time : .zero, pace: pace)
    checkedAt = now
    if let timeout, owes, debt.reaches(timeout, tolerance: .zero) {
      (isReleased, self.debt) = (true, nil)
      setHolder(nil)
      base.log.reader(self, oldestUnread: .max)
      return nil
    }
    self.debt = start != nil || debt.own > .zero ? debt : nil
    let isHolder = owes && debt.reaches(stallTime, tolerance: .zero)
    setHolder(isHolder ? base.log.read { storage, _ in storage.count(from: position, to: storage.endPosition) } : nil)
    return period
  }

  /// - Parameter unread: the number of events that are held for this reader; nil: the base does not wait for it.
  private func setHolder(_ unread: UInt64?) {
    guard (unread != nil) != isHolder else { return }
    isHolder.toggle()
    if let unread {
      base.setHolder(.init(reader: .stream(stream), unread: unread))
    } else {
      base.clearHolder(.stream(stream))
    }
  }
}

/// Keeps the events of a base from a position on, if the base has `overflow = "block"`. Thread-safe.
final class BaseHold: LogReader, Sendable {
  private let base: ServedStream

  init(_ base: ServedStream, from position: UInt64) {
    self.base = base
    base.log.attach(self)
    base.log.reader(self, oldestUnread: position)
  }

  func logDidChange() {}

  func end() { base.log.detach(self) }
}
