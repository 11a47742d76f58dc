import Locks
import Testing

@testable import Reactive

/// Reads a whole sequence; the failure becomes the last element, -1.
private func all<S: AsyncSequence<Int, TestError>>(_ sequence: S) async -> [Int] {
  var seen: [Int] = []
  do throws(TestError) { for try await number in sequence { seen.append(number) } } catch { seen.append(-1) }
  return seen
}

private typealias Shared = SharedSequence<Numbers>

extension SharedSequence.Iterator {
  /// Up to `count` elements.
  fileprivate mutating func take(_ count: Int) async -> [Element] {
    var seen: [Element] = []
    while seen.count < count, let element = try? await next() { seen.append(element) }
    return seen
  }
}

/// Gives other tasks the opportunity to do what they should not do.
private func settle() async { for _ in 0..<200 { await Task.yield() } }

@Suite(.timeLimit(.minutes(10))) struct SharedSequenceTests {
  static let policies: [SharedBuffering] = [
    .bounded(1), .bounded(16), .bounded(0), .newest(3), .oldest(3), .unbounded,
  ]

  @Test(arguments: policies) func theBaseIsIteratedOnceFromTheFirstNext(_ buffering: SharedBuffering) async {
    let numbers = Numbers(count: 100, suspends: true)
    let shared = numbers.shareReplay(buffering: buffering)
    var iterators = (0..<3).map { _ in shared.makeAsyncIterator() }
    await settle()
    #expect(numbers.log.state.iterators == 0)
    for index in iterators.indices { #expect(await iterators[index].take(1) == [0]) }
    #expect(numbers.log.state.iterators == 1 && numbers.log.state.overlaps == 0)
  }

  @Test func theTaskHasThePriorityOfTheFirstConsumer() async {
    for priority in [TaskPriority.high, .low] {
      let numbers = Numbers(count: 1)
      let shared = numbers.shareReplay()
      Task(priority: priority) { await all(shared) }  // not awaited, which would raise its priority
      await eventually { numbers.log.state.calls == 2 }
      #expect(numbers.log.state.priorities.first == priority)
    }
  }

  @Test(arguments: [SharedBuffering.bounded(1), .bounded(7), .bounded(16), .unbounded])
  func eachConsumerReceivesEveryElementInOrder(_ buffering: SharedBuffering) async {
    let shared = Numbers(count: 2000).shareReplay(buffering: buffering)
    let iterators = (0..<20).map { _ in shared.makeAsyncIterator() }
    await withTaskGroup(of: [Int].self) { group in
      for (index, iterator) in iterators.enumerated() {
        nonisolated(unsafe) let iterator = iterator
        group.addTask {
          var (iterator, seen) = (iterator, [Int]())
          while let number = try? await iterator.next() {
            seen.append(number)
            #expect(iterator.missed == 0)
            if index.isMultiple(of: 3), number.isMultiple(of: 5) { await Task.yield() }
          }
          return seen
        }
      }
      for await seen in group { #expect(seen == Array(0..<2000)) }
    }
  }

  @Test(arguments: [1, 2, 5, 16]) func boundedReadsAheadOfTheSlowestConsumer(limit: Int) async {
    let numbers = Numbers(suspends: true)
    let shared = numbers.shareReplay(buffering: .bounded(limit))
    var (fast, slow) = (shared.makeAsyncIterator(), shared.makeAsyncIterator())
    #expect(await fast.take(limit) == Array(0..<limit))
    await settle()
    #expect(numbers.log.state.calls == limit)
    let waiting = Task { [fast] in
      var fast = fast
      return await fast.take(1)
    }
    await settle()
    #expect(numbers.log.state.calls == limit)
    #expect(await slow.take(limit) == Array(0..<limit))
    #expect(await waiting.value == [limit])
    #expect(slow.missed == 0)
  }

  @Test(arguments: [SharedBuffering.newest(2), .oldest(2), .unbounded])
  func othersReadAheadOfTheFastestConsumerByOneElement(_ buffering: SharedBuffering) async {
    let numbers = Numbers(suspends: true)
    let shared = numbers.shareReplay(buffering: buffering)
    var (fast, slow) = (shared.makeAsyncIterator(), shared.makeAsyncIterator())
    for count in 1...20 {
      #expect(await fast.take(1) == [count - 1])
      await settle()
      #expect(numbers.log.state.calls == count + 1)
    }
    let expected =
      switch buffering {
      case .newest: [19, 20]
      case .oldest: [0, 1]
      default: Array(0...20)
      }
    #expect(await slow.take(1) == [expected[0]])
    #expect(slow.missed == expected[0])
    #expect(await slow.take(1) == [expected[1]])
    #expect(slow.missed == 0)
  }

  @Test func aConsumerThatKeepsTheOldestLearnsWhatItLostInBetween() async {
    let shared = Numbers(count: 10).shareReplay(buffering: .oldest(2))
    var (fast, slow) = (shared.makeAsyncIterator(), shared.makeAsyncIterator())
    _ = await fast.take(5)
    await settle()
    #expect(await slow.take(2) == [0, 1])
    #expect(await fast.take(10) == [5, 6, 7, 8, 9])
    #expect(await slow.take(1) == [6] && slow.missed == 4)
    #expect(await slow.take(1) == [7] && slow.missed == 0)
    #expect(await slow.take(1) == [])
  }

  @Test func aConsumerThatKeepsTheNewestLearnsWhatItLostInBetween() async {
    let shared = Numbers(count: 100).shareReplay(buffering: .newest(3))
    var (fast, slow) = (shared.makeAsyncIterator(), shared.makeAsyncIterator())
    #expect(await slow.take(1) == [0])
    #expect(await fast.take(100) == Array(0..<100))
    #expect(await slow.take(1) == [97] && slow.missed == 96)
    #expect(await slow.take(5) == [98, 99] && slow.missed == 0)
  }

  @Test(arguments: policies) func aNewConsumerFirstReceivesTheLastElements(_ buffering: SharedBuffering) async {
    let shared = Numbers(count: 100).shareReplay(4, buffering: buffering)
    var first = shared.makeAsyncIterator()
    #expect(await first.take(5) == [0, 1, 2, 3, 4])
    await settle()
    var second = shared.makeAsyncIterator()
    let seen = await second.take(4)
    #expect(seen == Array(seen[0]..<seen[0] + 4) && seen[3] >= 4, "\(seen)")
    #expect(second.missed == 0)
    async let rest = first.take(1000)
    let later = await second.take(1000)
    #expect(await rest.last == 99)
    #expect(later == later.sorted() && later.first.map { $0 > seen[3] } == true)
  }

  @Test func aLateConsumerDoesNotReceiveWhatASlowerOneHolds() async {
    let shared = Numbers(count: 10).shareReplay(buffering: .unbounded)
    var (fast, slow) = (shared.makeAsyncIterator(), shared.makeAsyncIterator())
    _ = await fast.take(10)
    #expect(await fast.take(1) == [])
    var late = shared.makeAsyncIterator()
    #expect(await late.take(1) == [])
    #expect(await slow.take(100) == Array(0..<10))
  }

  @Test(arguments: policies) func aCancelledOrReleasedConsumerLeavesAlone(_ buffering: SharedBuffering) async {
    let numbers = Numbers(hangsAt: 2)
    let shared = numbers.shareReplay(buffering: buffering)
    var stays = shared.makeAsyncIterator()
    let leaving = Task { await all(shared) }
    #expect(await stays.take(2) == [0, 1])
    await settle()
    leaving.cancel()
    #expect(await leaving.value.allSatisfy { $0 < 2 })
    _ = shared.makeAsyncIterator()
    await settle()
    #expect(numbers.log.state.cancels == 0 && numbers.log.state.iterators == 1)
  }

  @Test func aSlowConsumerThatLeavesReleasesTheOthers() async {
    let shared = Numbers(count: 50).shareReplay()
    var fast = shared.makeAsyncIterator()
    var slow = Optional(shared.makeAsyncIterator())
    #expect(slow?.missed == 0)
    nonisolated(unsafe) let same = fast
    let waiting = Task {
      var same = same
      return await same.take(100)
    }
    await settle()
    slow = nil
    #expect(await waiting.value == Array(0..<50))
    #expect(await fast.take(1) == [])
  }

  @Test(arguments: policies) func theFailureFollowsWhatAConsumerHasNotRead(_ buffering: SharedBuffering) async {
    let shared = Numbers(count: 3, failure: TestError()).shareReplay(2, buffering: buffering)
    async let first = all(shared)
    async let second = all(shared)
    #expect(await first.last == -1)
    #expect(await second.last == -1)
    #expect(await all(shared) == [1, 2, -1])
    var late = shared.makeAsyncIterator()
    _ = await late.take(2)
    await #expect(throws: TestError()) { try await late.next() }
    let end = try? await late.next()
    #expect(end == .some(nil))
  }

  @Test func theEndOutlivesLinger() async {
    let numbers = Numbers(count: 3)
    let shared = numbers.shareReplay(2, linger: .zero)
    #expect(await all(shared) == [0, 1, 2])
    await settle()
    #expect(await all(shared) == [1, 2])
    #expect(numbers.log.state.iterators == 1)
  }

  @Test func afterLingerTheNextConsumerIteratesTheBaseAnew() async {
    let clock = ManualClock()
    let numbers = Numbers(hangsAt: 3)
    let shared = Shared(
      numbers, capacity: 2, buffering: .bounded(1), linger: .seconds(5), schedule: clock.schedule)
    var iterator: Shared.Iterator? = shared.makeAsyncIterator()
    #expect(await iterator?.take(3) == [0, 1, 2])
    await eventually { numbers.log.state.calls == 4 }
    #expect(clock.all.isEmpty)
    iterator = nil
    #expect(clock.pending.map(\.delay) == [.seconds(5)])
    iterator = shared.makeAsyncIterator()
    #expect(clock.pending.isEmpty)
    #expect(await iterator?.take(2) == [1, 2])
    iterator = nil
    clock.all[0].body()  // it is late
    await settle()
    #expect(numbers.log.state.cancels == 0)
    clock.all[1].body()
    await eventually { numbers.log.state.cancels == 1 }
    iterator = shared.makeAsyncIterator()
    await settle()
    #expect(numbers.log.state.iterators == 1)
    #expect(await iterator?.take(3) == [0, 1, 2])
    #expect(numbers.log.state.iterators == 2)
    withExtendedLifetime(iterator) {}
  }

  @Test(arguments: policies) func withoutLingerTheIterationRestsAndLosesNothing(_ buffering: SharedBuffering) async {
    let (stream, feed) = AsyncStream<Int>.makeStream()
    for number in 0..<100 { feed.yield(number) }
    feed.finish()
    let shared = stream.shareReplay(buffering: buffering)
    var seen: [Int] = []
    while seen.count < 100 {
      var iterator = shared.makeAsyncIterator()
      seen += await iterator.take(7)
      #expect(iterator.missed == 0)
      if seen.count.isMultiple(of: 2) { await settle() }
    }
    #expect(seen == Array(0..<100))
  }

  @Test(arguments: policies) func theBaseIsCancelledWhenSequenceAndIteratorsAreGone(_ buffering: SharedBuffering) async
  {
    let numbers = Numbers(hangsAt: 1)
    weak var owner: Shared.Owner?
    weak var iteration: SharedIteration<Numbers>?
    do {
      var iterator: Shared.Iterator?
      do {
        let shared = numbers.shareReplay(3, buffering: buffering)
        (owner, iteration) = (shared.owner, shared.owner.iteration)
        iterator = shared.makeAsyncIterator()
      }
      #expect(await iterator?.take(1) == [0])
      await eventually { numbers.log.state.calls == 2 }
      #expect(numbers.log.state.cancels == 0)
      iterator = nil
    }
    #expect(owner == nil)
    await eventually { numbers.log.state.cancels == 1 && iteration == nil }
  }

  @Test(arguments: policies) func aRunThatRestsEndsWithTheSequence(_ buffering: SharedBuffering) async {
    weak var iteration: SharedIteration<Numbers>?
    do {
      let shared = Numbers().shareReplay(buffering: buffering)
      iteration = shared.owner.iteration
      var iterator: Shared.Iterator? = shared.makeAsyncIterator()
      _ = await iterator?.take(5)
      iterator = nil
      await settle()
    }
    await eventually { iteration == nil }
  }
}
