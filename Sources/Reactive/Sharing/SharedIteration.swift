import Locks
import Synchronization

// How an asynchronous sequence is shared. One buffer holds the elements; a consumer is a position in it. The task that
// iterates the base appends an element under a lock, then offers it to each consumer without one: a consumer that waits for
// it, or has read everything before it, finds it in its slot. A consumer that is further behind looks under the lock, and
// takes up to 32 elements at once.
//
// The base is read on while the buffering allows it. With `bounded`, the run watches one consumer that is too slow, by a bit
// in the word of that consumer's progress. When this consumer has advanced, it looks for another one that is too slow, which
// the run watches then, or wakes the run. So a step of a consumer costs one atomic addition, however many there are.
//
// Locks guard state only: the base, the elements' deinitialisers and the executors of tasks are foreign code and run outside.

/// One run of a base: from the first `next()` until its end, or until there was no consumer for the linger.
@usableFromInline final class SharedRun: Sendable {
  /// Whether a consumer has called `next()`.
  @usableFromInline let hasBegun = Atomic(false)
  /// Tells the run's task that it may read on, or is over.
  @usableFromInline let change = Handoff<Never>()
}

/// Iterates a base once for any number of readers.
@usableFromInline final class SharedIteration<Base: AsyncSequence & Sendable>: @unchecked Sendable
where Base.Element: Sendable {
  // Sendable: all state is guarded, and `makeTask` forms a task that captures a type alone.

  /// The result of a look for an element under the lock.
  @usableFromInline enum Found {
    /// Something in its batch or in its slot, now or later.
    case look
    case item(SharedItem<Base.Element>)
    case end(Result<Base.Element?, Base.Failure>)
  }

  struct State {
    var elements: SharedElements<Base.Element>
    var readers: [SharedReader<Base>] = []
    /// With ``SharedBuffering/bounded(_:)``: whether the base is read on when half of the elements have been read.
    var isFull = false
    /// `nil` until there was a consumer, and after the linger.
    var run: SharedRun?
    var task: Task<Void, Never>?
    var completion: Subscribers.Completion<Base.Failure>?
    var lingers: UInt64 = 0
    var timer: (any Cancellable)?
    var isShutDown = false
  }

  @usableFromInline let base: Base
  @usableFromInline let buffering: SharedBuffering
  /// Whether the fastest consumer decides when the base is read on.
  @usableFromInline let followsFastest: Bool
  /// The number of newest elements that a consumer keeps; `.max` if it loses none or others.
  @usableFromInline let newestLimit: UInt64
  private let oldestLimit: Int?
  private let linger: Duration?
  private let schedule: Delay
  /// The position of the next element, for readers without the lock.
  @usableFromInline let end = Atomic<UInt64>(0)
  /// The base is read on when the watched consumer is at this position.
  let resumption = Atomic<UInt64>(0)
  private let state: Locked<State>
  /// `run(_:)`, specialised where the types are known.
  private let makeTask: (SharedIteration, SharedRun) -> Task<Void, Never>

  @inlinable convenience init(
    _ base: Base, _ capacity: Int, _ buffering: SharedBuffering, linger: Duration?, schedule: @escaping Delay
  ) {
    self.init(base, capacity, buffering, linger, schedule) { iteration, run in
      // The type of the base's iterator need not be Sendable.
      let body = Unchecked<() async -> Void>(value: { await iteration.iterate(run) })
      return Task.detached(priority: Task.currentPriority) { await body.value() }
    }
  }

  @usableFromInline init(
    _ base: Base, _ capacity: Int, _ buffering: SharedBuffering, _ linger: Duration?, _ schedule: @escaping Delay,
    makeTask: @escaping (SharedIteration, SharedRun) -> Task<Void, Never>
  ) {
    (self.base, self.buffering, self.linger, self.schedule) = (base, buffering, linger, schedule)
    self.makeTask = makeTask
    followsFastest = !buffering.isBounded
    newestLimit = if case .newest = buffering { UInt64(buffering.limit ?? 1) } else { .max }
    oldestLimit = if case .oldest = buffering { buffering.limit } else { nil }
    state = Locked(State(elements: SharedElements(replaying: capacity, buffering)))
  }

  // MARK: - Consumers

  @usableFromInline func makeReader() -> SharedReader<Base> {
    let (reader, timer) = state.withLock { state in
      let run = state.run ?? SharedRun()
      let (position, batch, replayed) = state.elements.join(isOnly: state.readers.isEmpty)
      let reader = SharedReader(self, run, at: position, batch, replayed: replayed)
      if state.completion != nil { reader.handoff.alert() }
      state.run = run
      state.readers.append(reader)
      return (reader, state.timer.take())
    }
    timer?.cancel()
    reader.run.change.alert()
    return reader
  }

  /// Begins to iterate the base for the first `next()` of any consumer.
  @usableFromInline func begin(_ run: SharedRun) {
    guard !run.hasBegun.exchange(true, ordering: .acquiringAndReleasing) else { return }
    let task = makeTask(self, run)
    let isOver = state.withLock { state in
      let isOver = state.run !== run || state.isShutDown
      if !isOver, state.completion == nil { state.task = task }
      return isOver
    }
    if isOver { task.cancel() }
  }

  func remove(_ reader: SharedReader<Base>) {
    let (removed, ending) = state.withLock { state -> (SharedReader<Base>?, UInt64?) in
      guard let index = state.readers.firstIndex(where: { $0 === reader }) else { return (nil, nil) }
      let removed = state.readers.remove(at: index)
      removed.isAttached = false
      state.elements.left(at: removed.position)
      guard state.readers.isEmpty, state.run?.hasBegun.load(ordering: .acquiring) == true, state.completion == nil
      else {
        return (removed, nil)
      }
      state.lingers += 1
      return (removed, state.lingers)
    }
    guard let removed else { return }
    removed.run.change.alert()
    if let ending, let linger { startLinger(ending, linger) }
  }

  private func startLinger(_ number: UInt64, _ duration: Duration) {
    guard duration > .zero else { return lingerEnded(number) }
    let timer = schedule(duration) { [weak self] in self?.lingerEnded(number) }
    let isNeeded = state.withLock { state in
      guard state.lingers == number, state.readers.isEmpty, !state.isShutDown else { return false }
      state.timer = timer
      return true
    }
    if !isNeeded { timer.cancel() }
  }

  private func lingerEnded(_ number: UInt64) {
    let dropped = state.withLock { state -> (SharedRun?, Task<Void, Never>?, MemoryStorage<Base.Element>)? in
      guard state.lingers == number, state.readers.isEmpty, state.completion == nil else { return nil }
      state.timer = nil
      return (state.run.take(), state.task.take(), state.elements.removeAll())
    }
    dropped?.1?.cancel()
    dropped?.0?.change.alert()
  }

  /// Cancels the task for good. There are no consumers.
  @usableFromInline func shutDown() {
    let (run, task, timer) = state.withLock { state in
      state.isShutDown = true
      return (state.run.take(), state.task.take(), state.timer.take())
    }
    timer?.cancel()
    task?.cancel()
    run?.change.alert()
  }

  // MARK: - Reading

  /// Whether a consumer has lost the element at a position, because newer ones have replaced it.
  @inlinable func isLost(_ position: UInt64) -> Bool {
    newestLimit != .max && end.load(ordering: .acquiring) - position > newestLimit
  }

  /// Finds what a reader's slot does not carry.
  @usableFromInline func look(for reader: SharedReader<Base>) -> Found {
    state.withLock { state in
      guard reader.isAttached else { return .end(.success(nil)) }
      if oldestLimit != nil {
        if let item = reader.takeOldest() { return .item(item) }
      } else if let first = state.elements.read(from: reader.position, into: &reader.batch) {
        reader.skip(to: first)
        let isLast = first + UInt64(reader.batch.count) == state.elements.end
        if isLast, state.completion == nil { reader.handoff.settle() }
        return .look
      }
      switch state.completion {
      case nil:
        if oldestLimit == nil { reader.handoff.settle() }
        return .look
      case .finished: return .end(.success(nil))
      case .failure(let error): return .end(.failure(error))
      }
    }
  }

  // MARK: - The run

  @inlinable func iterate(_ run: SharedRun) async {
    var iterator = base.makeAsyncIterator()
    var count = 0
    do throws(Base.Failure) {
      while await isWanted(run) {
        guard let element = try await iterator.next(isolation: nil) else { return finish(.finished, run) }
        append(element, run)
        count &+= 1
        // A base that never suspends leaves the thread to other tasks now and then.
        if count & 63 == 0 { await Task.yield() }
      }
    } catch { finish(.failure(error), run) }
  }

  /// Waits until the base may be read on.
  ///
  /// - Returns: False if the run is over.
  @usableFromInline func isWanted(_ run: SharedRun) async -> Bool {
    while true {
      run.change.settle()
      let decision = state.withLock { state -> Bool? in state.run === run ? mayRead(&state) : nil }
      guard let decision else { return false }
      if decision { return true }
      await run.change.wait(isolation: nil)
    }
  }

  /// Whether the base may be read on. If a consumer prevents it, the run watches that one.
  private func mayRead(_ state: inout State) -> Bool {
    guard !state.readers.isEmpty else { return false }
    let end = state.elements.end
    guard buffering.isBounded, let limit = buffering.limit else {
      // Not `contains`: where the type is not known, a step of an iterator allocates.
      for index in state.readers.indices {
        let reader = state.readers[index]
        if oldestLimit == nil ? reader.position == end : reader.handoff.isEmpty { return true }
      }
      return false
    }
    let unread = UInt64(state.isFull ? limit / 2 : limit - 1)
    let place = end - min(end, unread)
    resumption.store(place, ordering: .releasing)
    state.isFull = false
    // The newest consumer first: it is resumed last, and so it is likely to be the slowest.
    var index = state.readers.count
    while index > 0, !state.isFull {
      index -= 1
      state.isFull = state.readers[index].watch(until: place)
    }
    return !state.isFull
  }

  /// Looks for another consumer that prevents reading on, or wakes the run.
  @usableFromInline func watchedReaderAdvanced(_ reader: SharedReader<Base>, to position: UInt64) {
    guard position >= resumption.load(ordering: .acquiring) else { return }
    let wakes = state.withLock { state in
      reader.endWatch()
      return mayRead(&state)
    }
    if wakes { reader.run.change.alert() }
  }

  @usableFromInline func append(_ element: Base.Element, _ run: SharedRun) {
    var (position, readers) = (UInt64(0), [SharedReader<Base>]())
    var dropped = SharedElements<Base.Element>.Dropped()
    state.withLock { state in
      guard state.run === run else { return }
      (position, readers) = (state.elements.end, state.readers)
      dropped = state.elements.append(element) {
        var slowest: UInt64?
        for index in readers.indices { slowest = min(slowest ?? .max, readers[index].position) }
        return slowest
      }
      end.store(state.elements.end, ordering: .releasing)
    }
    for index in readers.indices { readers[index].offer(element, at: position, isOldest: oldestLimit) }
    _ = dropped  // their deinitialisers are foreign code
  }

  @usableFromInline func finish(_ completion: Subscribers.Completion<Base.Failure>, _ run: SharedRun) {
    let (readers, timer) = state.withLock { state -> ([SharedReader<Base>], (any Cancellable)?) in
      guard state.run === run else { return ([], nil) }
      (state.completion, state.task) = (completion, nil)
      return (state.readers, state.timer.take())
    }
    timer?.cancel()
    for reader in readers { reader.handoff.alert() }
  }
}
