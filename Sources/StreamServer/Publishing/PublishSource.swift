import StreamRuntime
import Events
import Reactive
import ReplayLog

// The flow of published values. Each REQUEST_CHANNEL has a queue in the `PublishSource` of its stream. A connection
// passes on the values of one read, one batch per channel. The thread that adds values or demand delivers while there
// are both, outside the lock, one thread at a time. A second thread leaves its values to the first. After some batches,
// the first passes the work to the loop of another publisher, so that no loop works for others for long. A stream that
// drops requests the next batch at once, so values pass within the read that brought them, and no queue fills. In a
// stream that waits for its slowest subscriber, values stay in the queues, which are limited by the publishers' credit.
//
// A batch is settled when the stream requests the next one. Until then its values count as held: they may wait for
// space in the log.

/// The source of a stream to which clients publish.
///
/// One value is a batch of events, which is one unit of demand. Operators can be placed between it and its stream:
/// `server.add(configuration, source: values.map { … }, publishSource: values)`. It has one subscriber at a time, and a
/// new one only when the server replaces the stream's pipeline. Any other one gets an empty publisher. It never
/// completes; when it is cancelled, its publishers receive the end of the stream. An operator that makes new batches
/// must keep their `checkpoint`: without it, a restarted stream has lost the numbers of named publishers.
///
/// Thread-safe. Without demand it holds the values that publishers send within their credit: about 4 MiB each.
public final class PublishSource: Publisher, Sendable {
  /// A batch: values of one publisher in order, of several publishers in turn.
  public typealias Output = EventBatch
  /// A failed publisher does not fail the stream.
  public typealias Failure = Never

  /// The status of one publisher's queue.
  struct PublishStatus {
    /// Values that the stream does not have yet.
    let heldCount: Int
    let heldBytes: Int
    /// Whether it is complete, and all its values are in the stream.
    let isDone: Bool
    /// Whether the stream accepts no values any more.
    let hasEnded: Bool
    /// The limit of its lead over the stream.
    let window: PublishWindow
    /// The number of its values that the stream is known to have stored.
    let storedCount: UInt64
    /// Whether some of its values are lost.
    let hasLostValues: Bool
    /// For a named publisher: the number of the last value that the stream has.
    let committedNumber: UInt64?

    /// The bytes by which it exceeds its window: its connection is not read until the stream has taken some.
    var excessBytes: Int { Swift.max(0, heldBytes - window.byteCount) }
  }

  /// Batches that one thread delivers in a row while others add values.
  private static let batchesInARow = 8

  fileprivate struct State {
    var separatesPublishers = false
    var isDirect = false
    var limits = EventLog.Limits()
    var hadSubscriber = false
    /// Raised with each replacement of the pipeline: signals of the former subscriber have no effect.
    var generation = 0
    /// Passes a batch to the subscriber.
    var receive: ((EventBatch) -> Subscribers.Demand)?
    var demand = Subscribers.Demand.none
    /// Whether a thread is inside `receive`.
    var isDelivering = false
    var publishers: [ObjectIdentifier: PublishQueue] = [:]
    /// Fire-and-forget values of all clients, and the values that a former process had left.
    let unconfirmed = PublishQueue(wake: nil)
    /// Queues with values, the next one first.
    var ready: [PublishQueue] = []
    /// Queues with values in the unsettled batch.
    var unsettled: [PublishQueue] = []
    /// Bytes of values of disconnected publishers, by `PublishQueue.weight`.
    var leftWeight = 0
    var hasEnded = false
    var isStopping = false
    /// Named publishers that are connected, or whose values wait.
    var named: [PublisherKey: PublishQueue] = [:]
    /// The last number of each named publisher, once the stream has stored all batches.
    var marks = PublisherMarks()
    /// Whether the stream's marks must be read first.
    var needsMarks = true
  }

  private let state = Locked(State())

  /// Creates the source of one stream.
  public init() {}

  /// Whether a batch has values of one publisher only, as `merge` requires.
  package var separatesPublishers: Bool {
    get { state.withLock { $0.separatesPublishers } }
    set { state.withLock { $0.separatesPublishers = newValue } }
  }

  /// Whether the stream has each batch when its delivery returns: no operator between holds it back.
  package var isDirect: Bool {
    get { state.withLock { $0.isDirect } }
    set { state.withLock { $0.isDirect = newValue } }
  }

  // MARK: Downstream

  /// Attaches the stream, or its pipeline.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == EventBatch, S.Failure == Never {
    attach(subscriber) { subscriber.receive($0) }
  }

  private func attach<S: Subscriber>(_ subscriber: S, _ receive: @escaping (EventBatch) -> Subscribers.Demand) {
    let taken = state.withLock { state -> Int? in
      guard !state.hadSubscriber else { return nil }
      state.hadSubscriber = true
      state.receive = receive
      return state.generation
    }
    guard let generation = taken else {
      subscriber.receive(subscription: Subscriptions.empty)
      return subscriber.receive(completion: .finished)
    }
    subscriber.receive(subscription: Link(publishSource: self, generation: generation))
  }

  /// The values of a publish source, each batch as `prepare` makes it: what a log subscribes to without a pipeline. It is
  /// as little as possible between the two, because there may be very many.
  struct Prepared: Publisher {
    typealias Output = EventBatch
    typealias Failure = StreamFailure
    let values: PublishSource
    let prepare: @Sendable (EventBatch) -> EventBatch

    func receive<S: Subscriber>(subscriber: S) where S.Input == EventBatch, S.Failure == StreamFailure {
      values.attach(subscriber) { [prepare] in subscriber.receive(prepare($0)) }
    }
  }

  private final class Link: Subscription {
    private let publishSource: PublishSource
    private let generation: Int
    init(publishSource: PublishSource, generation: Int) {
      (self.publishSource, self.generation) = (publishSource, generation)
    }
    func request(_ demand: Subscribers.Demand) {
      publishSource.drain { if $0.generation == generation { $0.demand += demand } }
    }
    func cancel() { publishSource.end(generation) }
  }

  /// The stream has cancelled: notifies the publishers, unless the server does.
  private func end(_ generation: Int) {
    let (subscriber, wakes) = state.withLock { state -> (Any?, [@Sendable () -> Void]) in
      guard state.generation == generation else { return (nil, []) }
      state.hasEnded = true
      state.unconfirmed.wake = nil
      defer { state.receive = nil }
      return (state.receive, state.isStopping ? [] : state.publishers.values.compactMap(\.wake))
    }
    _ = subscriber  // its deinit is foreign code, and must not run under the lock
    for wake in wakes { wake() }
  }

  // MARK: From the server

  /// - Parameters:
  ///   - limits: the limits of the stream's log.
  ///   - largestEvent: larger values of connected publishers are removed, and the publishers are notified.
  func open(_ limits: EventLog.Limits, largestEvent: Int) {
    let wakes = state.withLock { state in
      state.limits = limits
      let losers = state.publishers.values.filter { $0.discard(over: largestEvent) }
      state.ready.removeAll { $0.values.isEmpty }
      return losers.compactMap(\.wake)
    }
    for wake in wakes { wake() }
  }

  /// Lets named publishers join, at the start and after each ``interrupt()``.
  /// - Parameter checkpoint: the newest one in the log, or waiting for space in it, when no batch is in flight.
  func admitNamed(_ checkpoint: Checkpoint?) {
    drain { state in
      guard state.needsMarks else { return }
      state.needsMarks = false
      state.marks = PublisherMarks(checkpoint)
    }
  }

  /// Takes over the marks of a batch that was published on another host: in a stream that hosts share, publishers may
  /// change hosts. The marks of connected publishers are not discarded for it.
  package func learn(_ checkpoint: Checkpoint) {
    let marks = PublisherMarks(checkpoint)
    state.withLock { state in
      guard !state.needsMarks else { return }
      state.marks.raise(to: marks) { [named = state.named] in named[$0] != nil }
    }
  }

  /// Returns a batch of one publisher's values without those that the stream has already, with the marks of the stream
  /// after it. For streams that hosts share: no host knows their marks by itself.
  /// - Parameters:
  ///   - values: the values of a source that separates publishers.
  ///   - checkpoint: the checkpoint of the stream.
  package static let merge: @Sendable (_ values: EventBatch, _ checkpoint: Checkpoint?) -> EventBatch = {
    values, checkpoint in
    guard let (key, number) = PublisherMarks(values.checkpoint).newest else { return values }
    var marks = PublisherMarks(checkpoint)
    let stored = marks[key] ?? 0
    let missing = number > stored ? Int(clamping: Swift.min(number - stored, UInt64(values.count))) : 0
    if missing > 0 { marks.set(key, to: number) { _ in false } }
    var rest = EventBatch(values.suffix(missing))
    rest.checkpoint = marks.checkpoint
    return rest
  }

  /// The server stops and ends all requests itself.
  func stop() {
    state.withLock { $0.isStopping = true }
  }

  /// Detaches the pipeline, which is being replaced. Unsettled values may be lost; their publishers are notified.
  package func interrupt() {
    let (subscriber, wakes) = state.withLock { state in
      defer {
        (state.receive, state.demand, state.unsettled, state.hadSubscriber) = (nil, .none, [], false)
        state.generation += 1
        state.needsMarks = true
      }
      return (state.receive, state.discardUnsettled())
    }
    _ = subscriber  // its deinit is foreign code, and must not run under the lock
    for wake in wakes { wake() }
  }

  /// The stream cannot hold some of the values that it was given by a former process. Their publishers are notified.
  func discardUnsettled() {
    let wakes = state.withLock { state in
      defer { state.unsettled = [] }
      return state.discardUnsettled()
    }
    for wake in wakes { wake() }
  }

  // MARK: From one process to the next

  /// Removes and returns the values of disconnected publishers without a name, and those without confirmation. Named
  /// publishers send theirs again.
  func takeLeft() -> EventBatch {
    state.withLock { state in
      var values = EventBatch()
      for queue in state.ready where queue === state.unconfirmed || queue.isLeft && queue.key == nil {
        values += state.weigh(queue) { $0.withdraw() }
      }
      state.ready.removeAll { $0.values.isEmpty }
      return values
    }
  }

  /// Takes the values that a former process had left, before any others: those without confirmation stay in order.
  func restoreLeft(_ values: EventBatch) {
    var values = values
    values.checkpoint = nil
    state.withLock { state in
      if state.unconfirmed.append(values, isComplete: false) { state.ready.append(state.unconfirmed) }
    }
  }

  /// Bytes of values that the stream does not have yet, also of disconnected publishers.
  var heldBytes: Int {
    state.withLock { state in
      let left = (state.ready + state.unsettled).filter(\.isLeft)
      let queues = Dictionary((left + state.publishers.values).map { (ObjectIdentifier($0), $0) }) { first, _ in first }
      return queues.values.reduce(0) { $0 + $1.heldBytes }
    }
  }

  /// The number of connected publishers.
  var publisherCount: Int { state.withLock { $0.publishers.count } }

  // MARK: From publishers, each on its own loop

  /// - Parameters:
  ///   - unsettled: for a publisher that began in another process, its values that wait in the stream.
  ///   - wake: called outside the lock, on any thread: the loop must call ``deliver()`` and ``status(of:)``.
  /// - Returns: `nil` while values of disconnected publishers use all the space.
  func join(unsettled: UnsettledValues = .init(), wake: @escaping @Sendable () -> Void) -> PublishQueue? {
    let queue = PublishQueue(wake: wake, unsettled: unsettled)
    return state.withLock { state in
      guard state.hasRoom else { return nil }
      state.publishers[ObjectIdentifier(queue)] = queue
      if queue.isUnsettled { state.unsettled.append(queue) }
      return queue
    }
  }

  /// As above, for a named publisher.
  ///
  /// - Parameters:
  ///   - firstNumber: the number of its first unconfirmed value.
  ///   - isRestored: whether it began in another process, and the log has all values before `firstNumber`.
  ///   - unsettled: for a restored publisher, the values from `firstNumber` on that wait in the stream.
  /// - Returns: the queue, the number of the last value that the stream has, the number of the first value to send, and
  ///   whether the stream has a mark of the publisher.
  func join(
    _ key: PublisherKey, firstNumber: UInt64, isRestored: Bool = false, unsettled: UnsettledValues = .init(),
    wake: @escaping @Sendable () -> Void
  ) throws(PublishingObstacle) -> (queue: PublishQueue, committed: UInt64, next: UInt64, isKnown: Bool) {
    try state.withLock { state in
      Result { () throws(PublishingObstacle) in
        guard isRestored || !state.needsMarks else { throw .nameInUse }
        if let queue = state.named[key] {
          // Waiting values of the same name come first, and numbers have no gap.
          guard queue.wake == nil, firstNumber <= queue.acceptedNumber + 1 else { throw .nameInUse }
          state.leftWeight -= queue.weight
          queue.resume(wake: wake)
          state.publishers[ObjectIdentifier(queue)] = queue
          return (queue, queue.committedNumber, queue.acceptedNumber + 1, true)
        }
        guard state.hasRoom else { throw .noRoom }
        let free = PublisherMarks.capacity - state.named.count
        let count = state.named.keys.count { $0.user == key.user }
        // A restored publisher was admitted before: in another order the threshold could reject it.
        let hosts = key.user.standing == .host ? state.named.keys.count { $0.user.standing == .host } : nil
        guard isRestored ? free > 0 : ServerLimits.admitsOne(after: count, ofHosts: hosts, free: free) else {
          throw .tooManyNames(count: count, free: free)
        }
        let known = state.marks[key]
        let last = Swift.max(firstNumber - 1, known ?? 0)
        let queue = PublishQueue(wake: wake, key: key, after: last, unsettled: unsettled)
        state.named[key] = queue
        state.publishers[ObjectIdentifier(queue)] = queue
        if queue.isUnsettled { state.unsettled.append(queue) }
        return (queue, last, last + 1, known != nil)
      }
    }.get()
  }

  /// Whether it has publishers, or values that the stream does not have yet.
  var isInUse: Bool {
    state.withLock { !$0.publishers.isEmpty || !$0.ready.isEmpty || !$0.unsettled.isEmpty || $0.leftWeight > 0 }
  }

  /// The publisher has disconnected; its values stay.
  func leave(_ queue: PublishQueue) {
    state.withLock { state in
      guard state.publishers.removeValue(forKey: ObjectIdentifier(queue)) != nil else { return }
      // Most streams rarely have a publisher; its place would stay.
      if state.publishers.isEmpty { state.publishers = [:] }
      if let key = queue.key, queue.isDone { state.marks.finish(key) }
      queue.publisherLeft()
      state.leftWeight += queue.weight
      state.forgetIfDone(queue)
    }
  }

  /// Removes and returns the waiting values of the queue. Values of an unsettled batch stay.
  func withdraw(_ queue: PublishQueue) -> EventBatch {
    state.withLock { state in
      state.ready.removeAll { $0 === queue }
      return state.weigh(queue) { $0.withdraw() }
    }
  }

  /// The values of the queue that the stream was given, and has not stored.
  func unsettled(of queue: PublishQueue) -> UnsettledValues { state.withLock { _ in queue.unsettled } }

  /// Delivers before a handover, when no further values come. Settles the values that the stream has stored, although
  /// it requests no more.
  ///
  /// - Parameter isStreamFull: whether values that the stream was given wait for space.
  /// - Returns: whether values are on their way into the stream.
  func settle(isStreamFull: () -> Bool) -> Bool {
    deliver()
    let isFull = isStreamFull()
    let (isMoving, wakes) = state.withLock { state -> (Bool, [@Sendable () -> Void]) in
      if state.isDelivering || state.demand > .none && !state.ready.isEmpty { return (true, []) }
      guard !isFull else { return (false, []) }
      return state.isDirect ? (false, state.settle()) : (!state.unsettled.isEmpty, [])
    }
    for wake in wakes { wake() }
    return isMoving
  }

  /// Adds values, and delivers them if there is demand.
  func take(_ values: EventBatch, isComplete: Bool, from queue: PublishQueue) -> PublishStatus {
    drain { state in
      guard !state.hasEnded, queue.append(values, isComplete: isComplete) else { return }
      state.ready.append(queue)
    }
    return status(of: queue)
  }

  /// The status of a publisher's values. Its loop is notified of later changes.
  func status(of queue: PublishQueue) -> PublishStatus {
    state.withLock { state in
      let isDone = queue.observe()
      return PublishStatus(
        heldCount: queue.heldCount, heldBytes: queue.heldBytes, isDone: isDone,
        hasEnded: state.hasEnded && !state.isStopping, window: state.window, storedCount: queue.storedCount,
        hasLostValues: queue.hasLostValues,
        committedNumber: queue.key == nil ? nil : queue.committedNumber)
    }
  }

  /// Delivers on this thread, if there are values and demand.
  func deliver() { drain { _ in } }

  /// Takes values without confirmation, within the space.
  /// - Parameter wake: called outside the lock, on any thread: the loop must call ``deliver()``.
  /// - Returns: the number of taken values; the others are dropped.
  func takeUnconfirmed(_ values: EventBatch, wake: @escaping @Sendable () -> Void) -> Int {
    let largest = values.largestByteCount
    var count = 0
    drain { state in
      guard !state.hasEnded else { return }
      let window = state.window
      // One value has room if no other waits, however large it is.
      let fitting = (window.byteCount - state.unconfirmed.heldBytes) / Swift.max(1, largest)
      let room = Swift.min(
        window.valueCount(largestBytes: largest) - state.unconfirmed.heldCount,
        state.unconfirmed.heldCount == 0 ? Swift.max(1, fitting) : fitting)
      count = Swift.min(Swift.max(0, room), values.count)
      state.unconfirmed.wake = wake
      if state.unconfirmed.append(EventBatch(values.prefix(count)), isComplete: false) {
        state.ready.append(state.unconfirmed)
      }
    }
    return count
  }

  // MARK: Delivering

  /// The actions to perform outside the lock.
  private struct Step {
    var calls: [@Sendable () -> Void] = []
    var delivery: (receive: (EventBatch) -> Subscribers.Demand, batch: EventBatch)?
    var generation = 0
  }

  /// Makes a change, then delivers while there are values and demand, unless another thread does.
  private func drain(_ change: (inout State) -> Void) {
    var step = state.withLock { state in
      change(&state)
      return state.isDelivering ? Step() : Self.step(&state, after: 0)
    }
    var batchCount = 0
    while true {
      for call in step.calls { call() }
      guard let (receive, batch) = step.delivery else { return }
      let more = receive(batch)
      batchCount += 1
      step = state.withLock { [generation = step.generation] state in
        state.isDelivering = false
        if state.generation == generation { state.demand += more }
        return Self.step(&state, after: batchCount)
      }
    }
  }

  private static func step(_ state: inout State, after batchCount: Int) -> Step {
    var step = Step()
    guard state.demand > .none else { return step }
    if !state.unsettled.isEmpty { step.calls = state.settle() }
    guard let receive = state.receive, let next = state.ready.first else { return step }
    // Marks from before `interrupt` may include lost values.
    guard !state.needsMarks || state.named.isEmpty else { return step }
    if batchCount >= batchesInARow, let wake = next.wake {
      step.calls.append(wake)
      return step
    }
    state.demand -= 1
    state.isDelivering = true
    step.delivery = (receive, state.takeBatch())
    step.generation = state.generation
    return step
  }
}

extension PublishSource.State {
  fileprivate var window: PublishWindow {
    PublishWindow(bufferEvents: limits.events, publisherCount: publishers.count)
  }

  /// The stream has stored its last batch.
  /// - Returns: the calls that notify the loops of publishers.
  fileprivate mutating func settle() -> [@Sendable () -> Void] {
    var wakes: [@Sendable () -> Void] = []
    for queue in unsettled {
      if weigh(queue, { $0.settle() }), let wake = queue.wake { wakes.append(wake) }
      forgetIfDone(queue)
    }
    unsettled.removeAll(keepingCapacity: true)
    return wakes
  }

  /// The values that the stream was given may be lost.
  /// - Returns: the calls that notify the loops of publishers.
  fileprivate mutating func discardUnsettled() -> [@Sendable () -> Void] {
    for queue in unsettled {
      weigh(queue) { $0.discardUnsettled() }
      forgetIfDone(queue)
    }
    ready.removeAll { $0.values.isEmpty }
    return unsettled.compactMap(\.wake)
  }

  /// Changes the values of a queue.
  fileprivate mutating func weigh<R>(_ queue: PublishQueue, _ change: (PublishQueue) -> R) -> R {
    guard queue.isLeft else { return change(queue) }
    leftWeight -= queue.weight
    defer { leftWeight += queue.weight }
    return change(queue)
  }

  /// The next batch. Each publisher with values gets an equal share of it, in turn, and another share while there is
  /// room; the queues that were served move behind the others.
  fileprivate mutating func takeBatch() -> EventBatch {
    // A batch with marks must fit into the log at once, so that its values and marks are committed together.
    let ringBytes = named.isEmpty ? limits.bytes : limits.bytes / 4
    let mostValues = max(1, min(PublishWindow.mostValues, limits.events, ringBytes / PublishWindow.leastValueBytes))
    let mostBytes = min(PublishWindow.bytes / 4, ringBytes)
    let queueCount = separatesPublishers ? 1 : ready.count
    let share = (count: max(1, mostValues / queueCount), byteCount: mostBytes / queueCount)
    var batch = EventBatch()
    var byteCount = 0
    var served = 0
    var hasNewMarks = false
    while served < (separatesPublishers ? 1 : ready.count), batch.count < mostValues, byteCount < mostBytes {
      let queue = ready[served]
      let room = named.isEmpty ? Int.max : mostBytes - byteCount
      if !batch.isEmpty, !queue.fits(room) { break }
      served += 1
      if !queue.isUnsettled { unsettled.append(queue) }
      byteCount += queue.take(min(share.count, mostValues - batch.count), share.byteCount, room, into: &batch)
      if let key = queue.key {
        marks.set(key, to: queue.takenNumber) { [named] in named[$0] != nil }
        hasNewMarks = true
      }
      if !queue.values.isEmpty { ready.append(queue) }
    }
    ready.removeFirst(served)
    if hasNewMarks { batch.checkpoint = marks.checkpoint }
    return batch
  }

  /// Whether the values of disconnected publishers leave space for another publisher.
  fileprivate var hasRoom: Bool {
    leftWeight + max(0, unconfirmed.weight - PublishWindow.bytes) < PublishWindow.totalBytes
  }

  /// Removes a disconnected named publisher without waiting values.
  fileprivate mutating func forgetIfDone(_ queue: PublishQueue) {
    if let key = queue.key, queue.wake == nil, queue.heldCount == 0, named[key] === queue { named[key] = nil }
  }
}

/// How far one publisher may be ahead of its stream: its credit, and its values that wait in the publish source.
struct PublishWindow {
  /// The stream's limit of events: no publisher is further ahead, so that a lossless stream with a small buffer
  /// limits its publishers to it.
  let bufferEvents: Int
  /// The number of connected publishers of the stream.
  let publisherCount: Int

  /// The maximum number of values of one publisher, however small they are.
  static let mostValues = 4096
  /// The number of values of a new publisher: their sizes are unknown.
  static let firstValues = 128
  /// The maximum bytes of one publisher, if all its values are as large as the largest recent one. About 20 times a
  /// client's socket buffer, so that no publisher waits for a round trip.
  static let bytes = 4 << 20
  /// The maximum bytes of all publishers of a stream together.
  static let totalBytes = 16 << 20
  /// The minimum bytes that a value counts as, for its place in the queue and in the log.
  static let leastValueBytes = 64

  /// The maximum bytes of one publisher's values that wait, regardless of its credit: it may have been granted before
  /// the values grew or other publishers joined.
  var byteCount: Int { min(Self.bytes, Self.totalBytes / max(1, publisherCount)) }

  /// The number of values that one publisher may be ahead, at least 1.
  func valueCount(largestBytes: Int) -> Int {
    max(1, min(Self.mostValues, bufferEvents, byteCount / max(Self.leastValueBytes, largestBytes)))
  }
}
