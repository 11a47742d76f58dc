import Dispatch
import StreamRuntime
import Synchronization
import Testing

@Suite struct WorkQueueTests {
  @Test func workRunsInOrderOneAtATime() {
    let queue = WorkQueue(label: "test")
    let done = Locked<[Int]>([])
    let isRunning = Atomic(false)
    let run: @Sendable () -> Void = {
      let wasRunning = isRunning.exchange(true, ordering: .acquiringAndReleasing)
      #expect(!wasRunning)
      isRunning.store(false, ordering: .releasing)
    }
    for number in 0..<1000 {
      queue.async {
        run()
        queue.assertOnQueue()
        done.withLock { $0.append(number) }
      }
      if number % 7 == 0 { _ = queue.syncIfIdle(run) }
    }
    queue.sync { #expect(done.withLock { $0 } == Array(0..<1000)) }
  }

  @Test func aThreadDoesNotWaitForWorkThatRuns() {
    let queue = WorkQueue(label: "test")
    let (began, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    queue.async {
      began.signal()
      mayEnd.wait()
    }
    began.wait()
    #expect(queue.syncIfIdle { true } == nil)
    mayEnd.signal()
    queue.sync {}
    #expect(queue.syncIfIdle { queue.assertOnQueue() } != nil)
  }

  @Test func delayedWorkRunsAfterItsDelay() async {
    let queue = WorkQueue(label: "test")
    let start = EventLoop.monotonicNow()
    await withCheckedContinuation { continuation in queue.async(after: .milliseconds(20)) { continuation.resume() } }
    #expect(EventLoop.monotonicNow() - start >= 20_000_000)
  }
}
