import StreamRuntime
import Events
import Reactive
import ReplayLog
import Synchronization
import Testing

@testable import StreamServer

/// The publish source alone: batches, order, wake-ups and windows.
@Suite struct PublishSourceTests {
  /// A stream that requests exactly what a test sets.
  final class Stream: Subscriber, Sendable {
    struct Seen {
      var batches: [EventBatch] = []
      var subscription: (any Subscription)?
      var isFinished = false
      /// The demand returned by each call.
      var more = Subscribers.Demand.none
      var isInside = false
      var overlaps = 0
    }
    let seen = Locked(Seen())

    init(_ publishSource: PublishSource, asksAgain: Bool = false) {
      seen.withLock { $0.more = asksAgain ? .max(1) : .none }
      publishSource.subscribe(self)
      if asksAgain { request(1) }
    }

    func receive(subscription: any Subscription) { seen.withLock { $0.subscription = subscription } }
    func receive(_ batch: EventBatch) -> Subscribers.Demand {
      seen.withLock {
        if $0.isInside { $0.overlaps += 1 }
        $0.isInside = true
      }
      return seen.withLock {
        $0.isInside = false
        $0.batches.append(batch)
        return $0.more
      }
    }
    func receive(completion: Subscribers.Completion<Never>) { seen.withLock { $0.isFinished = true } }

    var batches: [EventBatch] { seen.withLock { $0.batches } }
    var values: [[UInt8]] { batches.flatMap { $0 } }
    func request(_ count: Int) { seen.withLock { $0.subscription }?.request(.max(count)) }
    func cancel() { seen.withLock { $0.subscription }?.cancel() }
  }

  /// A publisher that counts the calls of its loop.
  final class Publisher: Sendable {
    let queue: PublishQueue
    private let publishSource: PublishSource
    private let calls: Calls

    private final class Calls: Sendable {
      let count = Atomic(0)
    }

    init(_ publishSource: PublishSource) throws {
      let calls = Calls()
      self.publishSource = publishSource
      self.calls = calls
      queue = try #require(publishSource.join { calls.count.add(1, ordering: .relaxed) })
    }

    @discardableResult
    func publish(_ values: [[UInt8]], isComplete: Bool = false) -> PublishSource.PublishStatus {
      publishSource.take(EventBatch(values), isComplete: isComplete, from: queue)
    }
    func status() -> PublishSource.PublishStatus { publishSource.status(of: queue) }
    func leave() { publishSource.leave(queue) }
    var callCount: Int { calls.count.load(ordering: .relaxed) }
  }

  private func publishSource(events: Int = 65536, bytes: Int = 8 << 20) -> PublishSource {
    let publishSource = PublishSource()
    publishSource.open(EventLog.Limits(events: events, bytes: bytes), largestEvent: bytes)
    return publishSource
  }

  @Test func oneUnitOfDemandDeliversOneBatchOfAllWaitingValues() throws {
    let publishSource = publishSource()
    let stream = Stream(publishSource)
    let publisher = try Publisher(publishSource)
    #expect(publisher.publish([[1], [2]]).heldCount == 2)
    #expect(publisher.publish([[3]]).heldBytes == 3)
    #expect(stream.batches.isEmpty)
    stream.request(1)
    #expect(stream.batches == [[[1], [2], [3]]])
  }

  @Test func aStreamThatRequestsAtOnceNeedsNoWakeUps() throws {
    let publishSource = publishSource()
    let stream = Stream(publishSource, asksAgain: true)
    let publisher = try Publisher(publishSource)
    for number in 1...5 {
      let standing = publisher.publish([[UInt8(number)]], isComplete: number == 5)
      #expect(standing.heldCount == 0 && standing.isDone == (number == 5))
    }
    #expect(stream.batches == (1...5).map { [[UInt8($0)]] })
    #expect(publisher.callCount == 0)
  }

  @Test func valuesCountAsHeldUntilTheNextRequest() throws {  // SEMANTICS 36
    let publishSource = publishSource()
    let stream = Stream(publishSource)
    let publisher = try Publisher(publishSource)
    stream.request(1)
    let standing = publisher.publish([[1], [2]], isComplete: true)
    #expect(stream.values == [[1], [2]])
    #expect(standing.heldCount == 2 && !standing.isDone)
    #expect(publisher.callCount == 0)
    stream.request(1)
    #expect(publisher.callCount == 1)
    #expect(publisher.status().isDone)
  }

  @Test func aPublishersLoopIsNotifiedWhenHalfOfItsValuesAreTaken() throws {
    let publishSource = publishSource(events: 4)
    let stream = Stream(publishSource)
    let publisher = try Publisher(publishSource)
    publisher.publish((0..<16).map { [$0] })
    stream.request(1)
    stream.request(1)
    #expect(stream.batches.count == 2 && publisher.callCount == 0)
    stream.request(1)
    #expect(publisher.callCount == 1)
    stream.request(1)
    stream.request(1)
    #expect(publisher.callCount == 1)
    #expect(publisher.status().heldCount == 0)
    #expect(stream.values == (0..<16).map { [$0] })
  }

  @Test func publishersHaveEqualSharesOfEachBatch() throws {  // SEMANTICS 36
    let publishSource = publishSource(events: 16)
    let stream = Stream(publishSource)
    let publishers = try (0..<2).map { _ in try Publisher(publishSource) }
    publishers[0].publish((0..<100).map { [0, $0] })
    publishers[1].publish((0..<20).map { [1, $0] })
    for _ in 0..<3 { stream.request(1) }
    #expect(stream.batches.allSatisfy { $0.count == 16 })
    #expect(stream.batches[0].filter { $0[0] == 0 }.count == 8)
    #expect(stream.batches[2].filter { $0[0] == 1 }.count == 4)
    for _ in 0..<10 { stream.request(1) }
    for publisher in [UInt8(0), 1] {
      let numbers = stream.values.filter { $0[0] == publisher }.map { $0[1] }
      #expect(numbers == Array(0..<(publisher == 0 ? 100 : 20)))
    }
  }

  @Test func morePublishersThanABatchHasValuesTakeTurns() throws {
    let publishSource = publishSource(events: 2)
    let stream = Stream(publishSource)
    for number in 0..<5 { try Publisher(publishSource).publish([[UInt8(number)], [UInt8(number)]]) }
    for _ in 0..<5 { stream.request(1) }
    #expect(stream.values.map { $0[0] } == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4])
  }

  @Test func aBatchIsNoLargerThanTheBuffer() throws {
    let publishSource = publishSource(bytes: 4096)
    let stream = Stream(publishSource)
    let publisher = try Publisher(publishSource)
    publisher.publish((0..<4).map { [UInt8](repeating: $0, count: 3000) })
    stream.request(1)
    #expect(stream.values.count == 2)
    stream.request(1)
    #expect(stream.values.count == 4)
  }

  @Test func valuesOutliveTheirPublisher() throws {
    let publishSource = publishSource()
    let stream = Stream(publishSource)
    let publisher = try Publisher(publishSource)
    publisher.publish([[1]])
    publisher.leave()
    #expect(publishSource.publisherCount == 0)
    stream.request(2)
    #expect(stream.values == [[1]])
    #expect(publisher.callCount == 0)
  }

  @Test func valuesOfPublishersThatLeftAreLimited() throws {
    let publishSource = publishSource(bytes: 64 << 20)
    let stream = Stream(publishSource)
    let large = [UInt8](repeating: 0, count: 1 << 20)
    for _ in 0..<16 {
      let publisher = try Publisher(publishSource)
      publisher.publish([large])
      publisher.leave()
    }
    #expect(publishSource.join {} == nil)
    stream.request(2)
    #expect(publishSource.join {} != nil)
  }

  @Test func unconfirmedValuesWithoutSpaceAreDropped() {
    let publishSource = publishSource(events: 3)
    let stream = Stream(publishSource)
    #expect(publishSource.takeUnconfirmed([[1], [2]]) {} == 2)
    #expect(publishSource.takeUnconfirmed([[3], [4]]) {} == 1)
    #expect(publishSource.takeUnconfirmed([[5]]) {} == 0)
    stream.request(1)
    stream.request(1)
    #expect(publishSource.takeUnconfirmed([[6]]) {} == 1)
    stream.request(1)
    #expect(stream.values == [[1], [2], [3], [6]])
  }

  @Test func anUnconfirmedValueOfAnySizeHasSpaceIfNoOtherWaits() {
    let publishSource = publishSource(events: 100)
    let stream = Stream(publishSource)
    let large = [UInt8](repeating: 1, count: PublishWindow.bytes + 1)
    #expect(publishSource.takeUnconfirmed([large, large]) {} == 1)
    #expect(publishSource.takeUnconfirmed([[2]]) {} == 0)
    stream.request(1)
    stream.request(1)
    #expect(publishSource.takeUnconfirmed([[3]]) {} == 1)
    #expect(stream.values == [large, [3]])
  }

  @Test func anEndedSourceReleasesItsUnconfirmedPublishers() {
    final class Owner: Sendable {}
    let publishSource = publishSource()
    let stream = Stream(publishSource)
    weak var owner: Owner?
    do {
      let new = Owner()
      owner = new
      #expect(publishSource.takeUnconfirmed([[1]]) { withExtendedLifetime(new) {} } == 1)
    }
    stream.cancel()
    #expect(owner == nil)
  }

  @Test func valuesPublishedInsideADeliveryFollowIt() throws {  // SEMANTICS 17, 18, 19
    let publishSource = publishSource()
    let publisher = try Publisher(publishSource)
    let depth = Locked((now: 0, most: 0))
    var values: [[UInt8]] = []
    var subscription: (any Subscription)?
    let stream = AnySubscriber<EventBatch, Never>(
      receiveSubscription: { subscription = $0 },
      receiveValue: { batch in
        depth.withLock { $0 = ($0.now + 1, max($0.most, $0.now + 1)) }
        values += batch
        if values.count < 100 { publisher.publish([[UInt8(values.count)]]) }
        subscription?.request(.max(1))
        depth.withLock { $0.now -= 1 }
        return .none
      })
    publishSource.subscribe(stream)
    subscription?.request(.max(1))
    publisher.publish([[0]])
    while values.count < 100 { publishSource.deliver() }
    #expect(values == (0..<100).map { [UInt8($0)] })
    #expect(depth.withLock { $0.most } == 1)
  }

  @Test func aDeliveringThreadPassesOnTheWorkAfterSomeBatches() throws {
    let publishSource = publishSource()
    let publisher = try Publisher(publishSource)
    var count = 0
    let stream = AnySubscriber<EventBatch, Never>(
      receiveSubscription: { $0.request(.max(1)) },
      receiveValue: { _ in
        count += 1
        publisher.publish([[0]])
        _ = publisher.status()
        return .max(1)
      })
    publishSource.subscribe(stream)
    publisher.publish([[0]])
    #expect(count == 8)
    #expect(publisher.callCount > 0)
  }

  @Test func valuesFromManyThreadsArriveOnceAndInOrder() async throws {
    let publishSource = publishSource(events: 64)
    let stream = Stream(publishSource, asksAgain: true)
    await withTaskGroup(of: Void.self) { group in
      for number in 0..<4 {
        group.addTask {
          guard let publisher = try? Publisher(publishSource) else { return }
          for round in 0..<250 { publisher.publish([[UInt8(number), UInt8(round)]]) }
          publisher.publish([], isComplete: true)
          while !publisher.status().isDone { publishSource.deliver() }
          publisher.leave()
        }
      }
      group.addTask { for _ in 0..<500 { stream.request(1) } }
    }
    #expect(stream.seen.withLock { $0.overlaps } == 0)
    for number in 0..<4 {
      #expect(stream.values.filter { $0[0] == number }.map { $0[1] } == Array(0..<250))
    }
  }

  @Test func theWindowIsLimitedByBytesBufferAndPublishers() {
    func window(_ largest: Int, events: Int = 65536, publishers: Int = 1) -> Int {
      PublishWindow(bufferEvents: events, publisherCount: publishers).valueCount(largestBytes: largest)
    }
    #expect(window(10) == 4096)
    #expect(window(4096) == 1024)
    #expect(window(1 << 20) == 4)
    #expect(window(16 << 20) == 1)
    #expect(window(10, events: 16) == 16)
    #expect(window(10, publishers: 64) == 4096)
    #expect(window(1024, publishers: 64) == 256)
    #expect(window(10, publishers: 1 << 20) == 1)
  }

  @Test func anEndedStreamNotifiesItsPublishersAndAcceptsNothing() throws {
    let publishSource = publishSource()
    let stream = Stream(publishSource)
    let publisher = try Publisher(publishSource)
    publisher.publish([[1]])
    stream.cancel()
    #expect(publisher.callCount == 1)
    #expect(publisher.status().hasEnded)
    #expect(!publisher.publish([[2]], isComplete: true).isDone)
    #expect(publishSource.takeUnconfirmed([[3]]) {} == 0)
    #expect(stream.batches.isEmpty)
  }

  @Test func aSecondSubscriberGetsAnEmptyPublisher() {
    let publishSource = publishSource()
    let first = Stream(publishSource)
    let second = Stream(publishSource)
    #expect(!first.seen.withLock { $0.isFinished })
    #expect(second.seen.withLock { $0.isFinished })
  }
}
