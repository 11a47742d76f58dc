import Events
import Testing

@testable import StreamSources

struct ThrottleMachineTests {
  private let second = Duration.seconds(1)

  private func bytes(_ texts: String...) -> EventBatch { EventBatch(texts.map { Array($0.utf8) }) }

  /// A machine that has delivered at time zero, and has no demand.
  private func delivered() -> ThrottleMachine {
    var machine = ThrottleMachine(interval: second)
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("a", "b"))
    #expect(machine.next(at: .zero) == .deliver(bytes("b")))
    return machine
  }

  @Test func theFirstBatchPassesAtOnceWithItsNewestEvent() {
    var machine = delivered()
    #expect(machine.next(at: .zero) == nil)
  }

  @Test func theNewestEventOfAnIntervalPassesAtItsEnd() {
    var machine = delivered()
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("c"))
    #expect(machine.next(at: .milliseconds(100)) == .begin(second))
    #expect(machine.next(at: .milliseconds(100)) == .ask)  // to know the newest
    #expect(machine.next(at: .milliseconds(100)) == nil)
    machine.receive(bytes("d"))
    #expect(machine.next(at: .milliseconds(999)) == .ask)
    #expect(machine.next(at: .milliseconds(999)) == nil)
    #expect(machine.next(at: second) == .deliver(bytes("d")))
    machine.request(.max(1))
    machine.receive(bytes("e"))
    #expect(machine.next(at: second) == .begin(.seconds(2)))
  }

  @Test func theNewestEventKeepsItsKey() {
    var machine = ThrottleMachine(interval: second)
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    func keyed(_ texts: String...) -> EventBatch {
      var batch = EventBatch(texts.map { Array($0.utf8) })
      batch.setKeys(texts.reduce(into: EventKeys()) { $0.append(EventKey(Array($1.utf8), isTombstone: true)) })
      return batch
    }
    machine.receive(keyed("a", "b"))
    #expect(machine.next(at: .zero) == .deliver(keyed("b")))
  }

  @Test func anEventAfterAQuietIntervalPassesAtOnce() {
    var machine = delivered()
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("c"))
    #expect(machine.next(at: .seconds(5)) == .deliver(bytes("c")))
  }

  @Test func withoutDemandNothingIsRequestedUpstream() {
    var machine = delivered()
    #expect(machine.next(at: .milliseconds(10)) == nil)
    #expect(machine.next(at: .seconds(9)) == nil)
  }

  @Test func aHeldEventWaitsForDemandAfterARetraction() {
    var machine = delivered()
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("c"))
    #expect(machine.next(at: .zero) == .begin(second))
    #expect(machine.next(at: .zero) == .ask)
    machine.retract()
    machine.receive(bytes("d"))
    #expect(machine.next(at: .seconds(3)) == nil)
    machine.request(.max(1))
    #expect(machine.next(at: .seconds(3)) == .deliver(bytes("d")))
  }

  @Test func emptyBatchesHaveNoEffect() {
    var machine = ThrottleMachine(interval: second)
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive([])
    #expect(machine.next(at: .zero) == .ask)
  }

  @Test func completionFollowsTheHeldEventAtItsTime() {
    var machine = delivered()
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("c"))
    machine.finish()
    #expect(machine.next(at: .zero) == .begin(second))
    #expect(machine.next(at: .zero) == nil)
    #expect(machine.next(at: second) == .deliver(bytes("c")))
    #expect(machine.next(at: second) == .finish)
    var idle = ThrottleMachine(interval: second)
    idle.finish()
    #expect(idle.next(at: .zero) == .finish)
  }

  @Test(arguments: [true, false]) func anOpenMachinePassesTheHeldEventAndEachBatchAtOnce(hasDemand: Bool) {
    var machine = delivered()
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("c"))
    #expect(machine.next(at: .zero) == .begin(second))
    #expect(machine.next(at: .zero) == .ask)
    if !hasDemand { machine.retract() }
    machine.isOpen = true
    #expect(machine.next(at: .milliseconds(100)) == .deliver(bytes("c")))
    #expect(machine.next(at: .milliseconds(100)) == nil)
    machine.receive(bytes("d"))
    #expect(machine.next(at: .milliseconds(200)) == .deliver(bytes("d")))
    machine.isOpen = false
    machine.request(.max(1))
    machine.receive(bytes("e"))
    #expect(machine.next(at: .seconds(1)) == .begin(.milliseconds(1200)))
  }

  @Test func anIntervalOutlivesASubscription() {
    var next = ThrottleMachine(interval: second)
    next.rest(until: delivered().due)
    next.request(.max(1))
    #expect(next.next(at: .zero) == .ask)
    next.receive(bytes("c"))
    #expect(next.next(at: .milliseconds(500)) == .begin(second))
  }
}
