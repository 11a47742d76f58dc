import Testing

@testable import StreamRuntime

@Suite struct TimerQueueTests {
  @Test func actionsAreDueInTheOrderOfTheirDeadlines() {
    var queue = TimerQueue()
    var fired: [UInt64] = []
    for deadline in [50, 10, 40, 20, 30] as [UInt64] {
      _ = queue.schedule(at: deadline) { fired.append(deadline) }
    }
    while let action = queue.popDue(at: 35) { action() }
    #expect(fired == [10, 20, 30])
    #expect(queue.nextDeadline() == 40)
    #expect(queue.count == 2)
  }

  @Test func aCancelledActionNeverRunsAndItsIdIsNotReused() {
    var queue = TimerQueue()
    var fired: [String] = []
    let first = queue.schedule(at: 1) { fired.append("first") }
    queue.cancel(first)
    _ = queue.schedule(at: 1) { fired.append("second") }
    queue.cancel(first)
    while let action = queue.popDue(at: 1) { action() }
    #expect(fired == ["second"])
  }

  @Test func repeatedRearmingDoesNotGrowTheHeap() {
    var queue = TimerQueue()
    var last = queue.schedule(at: 1) {}
    for deadline in 2..<100_000 as Range<UInt64> {
      queue.cancel(last)
      last = queue.schedule(at: deadline) {}
    }
    #expect(queue.count == 1)
    #expect(queue.heap.count <= 130)
    #expect(queue.nextDeadline() == 99_999)
  }
}
