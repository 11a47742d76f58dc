import CAllocationCounter
import Dispatch
import Reactive

private struct Numbers: AsyncSequence, AsyncIteratorProtocol, Sendable {
  let count: Int
  private var number = 0

  init(count: Int) { self.count = count }

  func makeAsyncIterator() -> Numbers { self }
  mutating func next() async -> Int? { await next(isolation: nil) }
  mutating func next(isolation actor: isolated (any Actor)?) async -> Int? {
    guard number < count else { return nil }
    defer { number += 1 }
    return number
  }
}

/// The allocations of a shared iteration with all its tasks.
private func allocations(_ count: Int, to consumers: Int, _ buffering: SharedBuffering) -> Int {
  let done = DispatchSemaphore(value: 0)
  let before = allocation_count_of_all_threads()
  Task.detached {
    let sequence = Numbers(count: count).shareReplay(10, buffering: buffering)
    await withTaskGroup(of: Void.self) { group in
      for _ in 0..<consumers {
        let consumer = sequence.makeAsyncIterator()
        nonisolated(unsafe) let handedOver = consumer  // to the one task that uses it
        group.addTask {
          var iterator = handedOver
          while await iterator.next(isolation: nil) != nil {}
        }
      }
    }
    done.signal()
  }
  done.wait()
  return allocation_count_of_all_threads() - before
}

/// Checks that the number of allocations depends neither on the number of elements nor on what each consumer receives.
func checkSharedSequences() {
  for buffering in [SharedBuffering.bounded(1), .bounded(16), .newest(16), .oldest(16), .unbounded] {
    for consumers in [1, 10] {
      _ = allocations(1000, to: consumers, buffering)
      let few = allocations(1000, to: consumers, buffering)
      // A base that never suspends yields after every 64 elements; without a bound, elements are dropped many at a time.
      let allowed = few + steps / (buffering == .unbounded ? 5 : 25)
      judge(
        "shareReplay, \(buffering), \(consumers)", allocations(steps, to: consumers, buffering), allowed: allowed,
        of: "allocations for \(steps) elements")
    }
  }
}
