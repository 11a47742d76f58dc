import Locks
import Testing

@testable import Reactive

// What consumers can do at the wrong moment. Also run under the thread sanitizer.
@Suite(.timeLimit(.minutes(10))) struct SharedSequenceRaceTests {
  private final class Value: Sendable {
    static let count = Locked(0)
    let number: Int
    init(_ number: Int) {
      self.number = number
      Self.count.withLock { $0 += 1 }
    }
    deinit { Self.count.withLock { $0 -= 1 } }
  }

  @Test(arguments: [SharedBuffering.bounded(1), .bounded(16), .unbounded])
  func aThousandConsumersReceiveEveryElement(_ buffering: SharedBuffering) async {
    let shared = Numbers(count: 100).shareReplay(buffering: buffering)
    let iterators = (0..<1000).map { _ in shared.makeAsyncIterator() }
    await withTaskGroup(of: Int.self) { group in
      for iterator in iterators {
        nonisolated(unsafe) let iterator = iterator
        group.addTask {
          var (iterator, next) = (iterator, 0)
          while let number = try? await iterator.next() {
            if number != next { return -1 }
            next += 1
          }
          return next
        }
      }
      for await count in group { #expect(count == 100) }
    }
  }

  @Test(arguments: SharedSequenceTests.policies, [nil, Duration.zero, .microseconds(50)])
  func consumersComeAndLeaveAtAnyMoment(_ buffering: SharedBuffering, linger: Duration?) async {
    let shared = Numbers(suspends: linger == nil).shareReplay(3, buffering: buffering, linger: linger)
    await withTaskGroup(of: Void.self) { group in
      for index in 0..<8 {
        group.addTask {
          for round in 0..<40 {
            let task = Task {
              var (iterator, last) = (shared.makeAsyncIterator(), -1)
              for _ in 0..<(index * 7 + round) % 23 {
                guard let number = try? await iterator.next() else { break }
                #expect(last == -1 || number == last + 1 + iterator.missed)
                last = number
                if number.isMultiple(of: 5) { await Task.yield() }
              }
            }
            if (index + round).isMultiple(of: 3) { task.cancel() }
            await task.value
          }
        }
      }
    }
  }

  @Test func tasksThatShareAnIteratorAreServedOneAfterAnother() async {
    let shared = Numbers(count: 400, suspends: true).shareReplay(buffering: .bounded(4))
    nonisolated(unsafe) let iterator = shared.makeAsyncIterator()
    var seen: [Int] = []
    await withTaskGroup(of: [Int].self) { group in
      for _ in 0..<4 {
        group.addTask {
          var (iterator, seen) = (iterator, [Int]())
          while let number = try? await iterator.next() { seen.append(number) }
          return seen
        }
      }
      for await part in group {
        #expect(part == part.sorted())
        seen += part
      }
    }
    #expect(seen.sorted() == Array(0..<400))
  }

  @Test func aCancelledTaskEndsTheIteratorThatOthersAwait() async {
    let numbers = Numbers(hangsAt: 0)
    let shared = numbers.shareReplay()
    nonisolated(unsafe) let iterator = shared.makeAsyncIterator()
    let tasks = (0..<3).map { _ in
      Task {
        var iterator = iterator
        return try? await iterator.next()
      }
    }
    await eventually { numbers.log.state.calls == 1 }
    tasks[2].cancel()
    for task in tasks { #expect(await task.value == nil) }
    #expect(numbers.log.state.cancels == 0)
  }

  @Test(arguments: SharedSequenceTests.policies) func elementsAreReleased(_ buffering: SharedBuffering) async {
    do {
      let values = Numbers(count: 500).map { Value($0) }
      let shared = values.shareReplay(2, buffering: buffering)
      await withTaskGroup(of: Void.self) { group in
        for index in 0..<5 {
          group.addTask {
            var (iterator, left) = (shared.makeAsyncIterator(), 100 * (index + 1))
            while left > 0, (try? await iterator.next()) != nil { left -= 1 }
          }
        }
      }
    }
    await eventually { Value.count.withLock { $0 } == 0 }
  }

  @Test func aBaseThatIgnoresCancellationDeliversNothingMore() async {
    let gate = Locked<CheckedContinuation<Void, Never>?>(nil)
    let base = AsyncStream<Int>(unfolding: {
      await withCheckedContinuation { continuation in gate.withLock { $0 = continuation } }
      return 1
    })
    let shared = base.shareReplay(linger: .zero)
    let task = Task { await shared.first { _ in true } }
    await eventually { gate.withLock { $0 } != nil }
    task.cancel()
    #expect(await task.value == nil)
    gate.withLock { $0.take() }?.resume()
    for _ in 0..<100 { await Task.yield() }
    #expect(gate.withLock { $0 } == nil)
  }

  @Test func consumersOfActorsStayOnThem() async {
    actor Counter {
      var sum = 0
      func add(_ shared: SharedSequence<Numbers>) async {
        var iterator = shared.makeAsyncIterator()
        while let number = try? await iterator.next() {
          self.preconditionIsolated()
          sum += number
        }
      }
    }
    let shared = Numbers(count: 100).shareReplay(100)
    let counters = (0..<5).map { _ in Counter() }
    await withTaskGroup(of: Void.self) { group in
      for counter in counters { group.addTask { await counter.add(shared) } }
    }
    for counter in counters { #expect(await counter.sum == 4950) }
  }
}
