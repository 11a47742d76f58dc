import Dispatch
import Testing

@testable import Systemd

struct DroppingQueueTests {
  @Test func manyBlockedQueuesDoNotBlockAnother() {
    let stuck = DispatchSemaphore(value: 0)
    let queues = (0..<32).map { DroppingQueue(label: "stuck \($0)", limit: 1) }
    for queue in queues { #expect(queue.carry { stuck.wait() }) }
    #expect(DroppingQueue(label: "free", limit: 1).flush(within: .seconds(60)))
    for _ in queues { stuck.signal() }
    for queue in queues { #expect(queue.flush(within: .seconds(60))) }
  }

  @Test func callsOverTheLimitAreDroppedUntilThereIsSpace() {
    let stuck = DispatchSemaphore(value: 0)
    let queue = DroppingQueue(label: "full", limit: 2)
    #expect(queue.carry { stuck.wait() })
    #expect(queue.carry {})
    #expect(!queue.carry {})
    stuck.signal()
    #expect(queue.flush(within: .seconds(60)))
    #expect(queue.carry {})
  }
}
