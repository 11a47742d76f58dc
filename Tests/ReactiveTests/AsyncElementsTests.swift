import Locks
import Reactive
import Testing

/// A sequence of the numbers below `count`, then a failure or the end. Counts the calls of `next()`.
struct Numbers: AsyncSequence, Sendable {
  typealias Failure = TestError
  final class Log: Sendable {
    struct State {
      var iterators = 0
      var calls = 0
      var isInside = false
      var overlaps = 0
      var cancels = 0
      var priorities: [TaskPriority] = []
    }
    private let locked = Locked(State())
    var state: State { locked.withLock { $0 } }
    func note(_ body: (inout State) -> Void) { locked.withLock { body(&$0) } }
  }

  var count = Int.max
  var failure: TestError?
  /// The index at which `next()` waits until its task is cancelled.
  var hangsAt = -1
  var suspends = false
  let log = Log()

  struct AsyncIterator: AsyncIteratorProtocol {
    let numbers: Numbers
    var index = 0

    mutating func next() async throws(TestError) -> Int? { try await next(isolation: nil) }

    mutating func next(isolation actor: isolated (any Actor)?) async throws(TestError) -> Int? {
      numbers.log.note { state in
        state.calls += 1
        if state.isInside { state.overlaps += 1 }
        state.isInside = true
        state.priorities.append(Task.currentPriority)
      }
      defer { numbers.log.note { $0.isInside = false } }
      if numbers.suspends { await Task.yield() }
      if index == numbers.hangsAt {
        while !Task.isCancelled { try? await Task.sleep(for: .seconds(600)) }
        numbers.log.note { $0.cancels += 1 }
        return nil
      }
      defer { index += 1 }
      if index < numbers.count { return index }
      if let failure = numbers.failure { throw failure }
      return nil
    }
  }

  func makeAsyncIterator() -> AsyncIterator {
    log.note { $0.iterators += 1 }
    return AsyncIterator(numbers: self)
  }
}

/// Waits until the condition holds; the suite's time limit ends a wait in vain.
func eventually(_ condition: () -> Bool) async {
  while !condition(), !Task.isCancelled { try? await Task.sleep(for: .milliseconds(1)) }
}

@Suite(.timeLimit(.minutes(10))) struct AsyncElementsTests {
  @Test func elementsAndTheEndArriveInOrder() async {
    let recorder = Recorder<Int, TestError>()
    Numbers(count: 3).publisher.subscribe(recorder)
    await eventually { recorder.isEnded }
    #expect(recorder.signals == [.subscribed, .value(0), .value(1), .value(2), .finished])
  }

  @Test func aFailureArrivesWithItsType() async {
    let failures = Locked<[TestError]>([])
    let sink = Numbers(count: 1, failure: TestError()).publisher.sink { completion in
      if case .failure(let error) = completion { failures.withLock { $0.append(error) } }
    } receiveValue: { _ in
    }
    await eventually { failures.withLock { $0.count } == 1 }
    sink.cancel()
  }

  @Test func nextIsCalledOnlyWhileThereIsDemandAndOneAtATime() async {
    let numbers = Numbers(suspends: true)
    let recorder = Recorder<Int, TestError>(.none)
    numbers.publisher.subscribe(recorder)
    for _ in 0..<50 { await Task.yield() }
    #expect(numbers.log.state.iterators == 0)
    for total in [1, 3, 6] {
      recorder.request(total - recorder.values.count)
      await eventually { recorder.values.count == total }
      for _ in 0..<50 { await Task.yield() }
      #expect(recorder.values == Array(0..<total) && numbers.log.state.calls == total)
    }
    recorder.request(.unlimited)
    await eventually { recorder.values.count > 500 }
    recorder.cancel()
    #expect(numbers.log.state.overlaps == 0)
  }

  @Test func demandThatReceiveReturnsIsMet() async {
    let recorder = Recorder<Int, TestError>(.max(1)) { _, value in value < 9 ? .max(1) : .none }
    Numbers().publisher.subscribe(recorder)
    await eventually { recorder.values.count == 10 }
    for _ in 0..<50 { await Task.yield() }
    #expect(recorder.values == Array(0...9))
    recorder.cancel()
  }

  @Test func theTaskHasThePriorityOfTheCaller() async {
    for priority in [TaskPriority.high, .low] {
      let numbers = Numbers(count: 1)
      // Not awaited, which would raise its priority.
      Task(priority: priority) { numbers.publisher.subscribe(Recorder<Int, TestError>()) }
      await eventually { numbers.log.state.calls == 2 }
      #expect(numbers.log.state.priorities.first == priority)
    }
  }

  @Test func cancellingCancelsTheTaskAndReleasesTheSubscriber() async {
    let numbers = Numbers(hangsAt: 2)
    weak var released: Recorder<Int, TestError>?
    do {
      let recorder = Recorder<Int, TestError>()
      released = recorder
      numbers.publisher.subscribe(recorder)
      await eventually { recorder.values.count == 2 }
      recorder.cancel()
      recorder.cancel()
      await eventually { numbers.log.state.cancels == 1 }
      #expect(recorder.signals == [.subscribed, .value(0), .value(1)])
      recorder.request(1)
    }
    await eventually { released == nil }
  }

  @Test func aSubscriptionThatIsCancelledBeforeDemandBeginsNothing() async {
    let numbers = Numbers()
    let recorder = Recorder<Int, TestError>(.none)
    numbers.publisher.subscribe(recorder)
    recorder.cancel()
    recorder.request(5)
    for _ in 0..<50 { await Task.yield() }
    #expect(recorder.signals == [.subscribed] && numbers.log.state.iterators == 0)
  }

  @Test func cancellingInsideReceiveEndsDelivery() async {
    let numbers = Numbers()
    let recorder = Recorder<Int, TestError> { recorder, value in
      if value == 3 { recorder.cancel() }
      return .none
    }
    numbers.publisher.subscribe(recorder)
    await eventually { recorder.values.count == 4 }
    for _ in 0..<50 { await Task.yield() }
    #expect(recorder.values == [0, 1, 2, 3] && numbers.log.state.calls == 4)
  }

  @Test func aMillionElementsThatAreThereOverflowNoStack() async {
    let count = Locked(0)
    let recorder = AnySubscriber<Int, TestError>(
      receiveSubscription: { $0.request(.max(1)) },
      receiveValue: { _ in
        count.withLock { $0 += 1 }
        return .max(1)
      },
      receiveCompletion: { _ in count.withLock { $0 = -$0 } })
    Numbers(count: 1_000_000).publisher.subscribe(recorder)
    await eventually { count.withLock { $0 } == -1_000_000 }
  }

  @Test func sequencesThatNeverSuspendLeaveTheThreadsToOtherTasks() async {
    let sinks = (0..<64).map { _ in
      let recorder = Recorder<Int, TestError>(.none)
      let endless = Numbers().publisher.map { _ in 0 }.filter { _ in false }
      endless.subscribe(recorder)
      recorder.request(.unlimited)
      return recorder
    }
    for _ in 0..<100 { await Task.yield() }
    for sink in sinks { sink.cancel() }
  }

  @Test func aPublisherOfValuesIsTheSequenceAgain() async {
    #expect(await (1...100).publisher.values.publisher.values.reduce(0, +) == 5050)
  }

  @Test func subscribersHaveIterationsOfTheirOwn() async {
    let numbers = Numbers(count: 3)
    let recorders = (0..<3).map { _ in Recorder<Int, TestError>() }
    for recorder in recorders { numbers.publisher.subscribe(recorder) }
    for recorder in recorders { await eventually { recorder.isEnded } }
    #expect(numbers.log.state.iterators == 3 && recorders.allSatisfy { $0.values == [0, 1, 2] })
  }
}
