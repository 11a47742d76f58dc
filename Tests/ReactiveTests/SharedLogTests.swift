import Synchronization
import Testing

@testable import Reactive

/// A reader of batches, as an event loop is one. The test sets its demand; it counts notifications.
private final class LoopReader: LogReader {
  private let count = Atomic(0)
  var notifications: Int { count.load(ordering: .relaxed) }
  func logDidChange() { count.wrappingAdd(1, ordering: .relaxed) }
}

/// Each upstream value is a batch of elements.
private struct BatchStorage: ReplayStorage {
  private var memory = MemoryStorage<Int>(capacity: .max)
  var firstPosition: UInt64 { memory.firstPosition }
  var endPosition: UInt64 { memory.endPosition }
  mutating func append(_ batch: [Int]) { batch.forEach { memory.append($0) } }
  func element(at position: UInt64) -> Int { memory.element(at: position) }
}

@Suite struct SharedLogTests {
  private typealias BatchLog = SharedLog<BatchStorage, Never>

  private func batchLog(
    _ probe: Probe<[Int], Never>, start: ShareStart = .whileSubscribed(linger: .zero)
  ) -> BatchLog {
    let log = BatchLog(storage: BatchStorage(), start: start, demand: .oneAtATime)
    log.setUpstream(probe.eraseToAnyPublisher())
    return log
  }

  @Test func oneBatchIsOutstandingWhileAReaderHasDemand() {
    let probe = Probe<[Int], Never>()
    let log = batchLog(probe)
    let reader = LoopReader()
    log.attach(reader)
    log.subscriberJoined()
    #expect(probe.state.requested.isEmpty)
    log.reader(reader, requestedThrough: 3)
    log.reader(reader, requestedThrough: 4)
    #expect(probe.requested == .max(1))
    #expect(probe.send([1, 2]) == .max(1))
    #expect(probe.send([]) == .max(1))
    #expect(probe.send([3, 4]) == Subscribers.Demand.none)
    #expect(probe.requested == .max(3))
    #expect(log.read { storage, _ in (0..<4).map { storage.element(at: $0) } } == [1, 2, 3, 4])
  }

  @Test func retractedDemandIsNotRequested() {
    let probe = Probe<[Int], Never>()
    let log = batchLog(probe)
    let reader = LoopReader()
    log.attach(reader)
    log.subscriberJoined()
    log.reader(reader, requestedThrough: .max)
    log.reader(reader, requestedThrough: 0)
    #expect(probe.send([1]) == Subscribers.Demand.none)
    log.reader(reader, requestedThrough: 5)
    #expect(probe.requested == .max(2))
    log.detach(reader)
    #expect(probe.send([2]) == Subscribers.Demand.none)
  }

  @Test func demandThatElementsFromElsewhereHaveMetIsRetracted() {
    final class Upstream: Publisher, RetractableSubscription {
      typealias Output = [Int]
      typealias Failure = Never
      let signals = Mutex<[String]>([])
      func receive<S: Subscriber<[Int], Never>>(subscriber: S) { subscriber.receive(subscription: self) }
      func request(_ demand: Subscribers.Demand) { signals.withLock { $0.append("request") } }
      func retract() { signals.withLock { $0.append("retract") } }
      func cancel() {}
    }
    let upstream = Upstream()
    let log = BatchLog(storage: BatchStorage(), start: .whileSubscribed(linger: .zero), demand: .oneAtATime)
    log.setUpstream(upstream.eraseToAnyPublisher())
    let reader = LoopReader()
    log.attach(reader)
    log.subscriberJoined()
    log.reader(reader, requestedThrough: 2)
    log.append([1])
    #expect(upstream.signals.withLock(\.self) == ["request"])
    log.append([2, 3])
    #expect(upstream.signals.withLock(\.self) == ["request", "retract"])
    log.append([4])
    log.reader(reader, requestedThrough: 5)
    #expect(upstream.signals.withLock(\.self) == ["request", "retract", "request"])
  }

  @Test func demandFromBeforeTheConnectionIsRequested() {
    let probe = Probe<[Int], Never>()
    let log = batchLog(probe)
    let reader = LoopReader()
    log.attach(reader)
    log.reader(reader, requestedThrough: 1)
    #expect(probe.state.subscriptions == 0)
    log.subscriberJoined()
    #expect(probe.requested == .max(1))
  }

  @Test func demandDuringANotificationIsReturned() {
    final class Eager: LogReader {
      let log: BatchLog
      init(_ log: BatchLog) { self.log = log }
      func logDidChange() { log.reader(self, requestedThrough: log.read { storage, _ in storage.endPosition + 1 }) }
    }
    let probe = Probe<[Int], Never>()
    let log = batchLog(probe)
    let reader = Eager(log)
    log.attach(reader)
    log.subscriberJoined()
    #expect(probe.requested == .max(1))
    for batch in 1...3 { #expect(probe.send([batch]) == .max(1)) }
    #expect(probe.requested == .max(4))
  }

  @Test func unlimitedLogRequestsAgainAfterEachBatch() {
    let probe = Probe<[Int], Never>()
    let log = batchLog(probe, start: .always)
    #expect(probe.state.subscriptions == 0)
    log.start()
    log.start()
    #expect(probe.state.subscriptions == 1)
    #expect(probe.requested == .max(1))
    #expect(probe.send([1]) == .max(1))
  }

  @Test func readersAreNotifiedOncePerBatchAndNotAfterDetaching() {
    let log = BatchLog(storage: BatchStorage(), start: .always, demand: .oneAtATime)
    let reader = LoopReader()
    log.attach(reader)
    log.append([1, 2, 3])
    #expect(reader.notifications == 1)
    log.finish(.finished)
    #expect(reader.notifications == 2)
    log.append([4])
    log.finish(.finished)
    #expect(reader.notifications == 2)
    log.detach(reader)
    #expect(log.read { storage, _ in storage.endPosition } == 3)
  }

  @Test func readersAreNotifiedOfTheConnection() {
    let probe = Probe<[Int], Never>()
    let log = batchLog(probe)
    let reader = LoopReader()
    log.attach(reader)
    log.subscriberJoined()
    #expect(reader.notifications == 1 && log.isConnected)
    log.subscriberLeft()
    #expect(reader.notifications == 2 && !log.isConnected)
  }

  @Test func shutDownCancelsWithoutACompletion() {
    let probe = Probe<[Int], Never>()
    let log = batchLog(probe)
    log.subscriberJoined()
    log.shutDown()
    log.shutDown()
    probe.send(completion: .finished)
    log.append([1])
    log.subscriberJoined()
    #expect(probe.state.cancels == 1 && probe.state.subscriptions == 1)
    #expect(log.read { storage, completion in completion == nil && storage.endPosition == 0 })
  }

  /// Shuts its log down when it is notified.
  private final class EndingReader: LogReader {
    let log: BatchLog
    init(_ log: BatchLog) { self.log = log }
    func logDidChange() { log.shutDown() }
  }

  /// Otherwise a publisher whose stream is removed at that moment is told that its value is lost.
  @Test func demandTellsThatAValueIsStoredAlthoughTheLogWasShutDownMeanwhile() {
    let probe = Probe<[Int], Never>()
    let log = batchLog(probe, start: .always)
    log.start()
    let reader = EndingReader(log)
    log.attach(reader)
    #expect(probe.send([1]) == .max(1) && probe.state.cancels == 1)
    #expect(probe.send([2]) == Subscribers.Demand.none)
    #expect(log.read { storage, _ in storage.endPosition } == 1)
    log.detach(reader)
  }

  @Test func finishingALogCancelsItsUpstream() {
    let probe = Probe<[Int], Never>()
    let log = batchLog(probe)
    log.subscriberJoined()
    log.finish(.finished)
    #expect(probe.state.cancels == 1 && !log.isConnected)
  }

  @Test func memoryStorageIsARing() {
    var storage = MemoryStorage<Int>(capacity: 3)
    for value in 0..<10 {
      storage.append(value)
      while storage.dropExcess(sparing: 0) != nil {}
    }
    #expect(storage.firstPosition == 7 && storage.endPosition == 10)
    #expect((7..<10).map { storage.element(at: $0) } == [7, 8, 9])
  }

  @Test func memoryStorageExceedsItsCapacityByTheSlackOnly() {
    var storage = MemoryStorage<Int>(capacity: 1)
    for value in 0..<5 { storage.append(value) }
    #expect(storage.dropExcess(sparing: 3) == 0)
    #expect(storage.dropExcess(sparing: 3) == nil)
    #expect(storage.dropExcess(sparing: 0) == 1)
  }

  @Test func readingOutsideTheStorageTraps() async {
    await #expect(processExitsWith: .failure) { _ = MemoryStorage<Int>(capacity: 3).element(at: 0) }
    await #expect(processExitsWith: .failure) { _ = MemoryStorage<Int>(capacity: -1) }
  }
}
