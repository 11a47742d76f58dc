import Events
import Testing

@testable import StreamSources

struct JQMachineTests {
  private func bytes(_ texts: String...) -> EventBatch { EventBatch(texts.map { Array($0.utf8) }) }

  @Test func withoutDemandNothingIsRequested() {
    var machine = JQMachine()
    #expect(machine.next(at: .zero) == nil)
  }

  @Test func aUnitOfDemandIsOneResultingBatch() {
    var machine = JQMachine()
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    #expect(machine.next(at: .zero) == nil)
    machine.receive(bytes("a", "b"))
    #expect(machine.next(at: .zero) == .begin(bytes("a", "b")))
    #expect(machine.next(at: .zero) == nil)
    machine.answered([])
    machine.answered([])
    #expect(machine.next(at: .zero) == .ask)  // it had no result
    machine.receive([])
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("c", "d"))
    #expect(machine.next(at: .zero) == .begin(bytes("c", "d")))
    machine.answered(bytes("1", "2"))
    #expect(machine.next(at: .zero) == nil)
    machine.answered(bytes("3"))
    #expect(machine.next(at: .zero) == .deliver(bytes("1", "2", "3")))
    #expect(machine.next(at: .zero) == nil)
  }

  @Test func unlimitedDemandRequestsOneBatchAtATime() {
    var machine = JQMachine()
    machine.request(.unlimited)
    for _ in 0..<3 {
      #expect(machine.next(at: .zero) == .ask)
      #expect(machine.next(at: .zero) == nil)
      machine.receive(bytes("a"))
      #expect(machine.next(at: .zero) == .begin(bytes("a")))
      #expect(machine.next(at: .zero) == nil)
      machine.answered(bytes("b"))
      #expect(machine.next(at: .zero) == .deliver(bytes("b")))
    }
  }

  @Test func finishedResultsWaitForDemandAfterARetraction() {
    var machine = JQMachine()
    machine.request(.max(3))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("a"))
    #expect(machine.next(at: .zero) == .begin(bytes("a")))
    machine.retract()
    machine.answered(bytes("b"))
    #expect(machine.next(at: .zero) == nil)
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .deliver(bytes("b")))
    #expect(machine.next(at: .zero) == nil)
  }

  @Test func aBatchThatArrivesAfterARetractionIsNotLost() {
    var machine = JQMachine()
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    machine.retract()
    machine.receive(bytes("a"))
    #expect(machine.next(at: .zero) == nil)
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .begin(bytes("a")))
  }

  @Test func completionFollowsTheWaitingResults() {
    var machine = JQMachine()
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("a"))
    machine.finish()
    #expect(machine.next(at: .zero) == .begin(bytes("a")))
    #expect(machine.next(at: .zero) == nil)
    machine.retract()
    machine.answered(bytes("b"))
    #expect(machine.next(at: .zero) == nil)
    machine.request(.max(1))
    #expect(machine.next(at: .zero) == .deliver(bytes("b")))
    #expect(machine.next(at: .zero) == .finish)
  }

  @Test func completionNeedsNoDemand() {
    var machine = JQMachine()
    machine.finish()
    #expect(machine.next(at: .zero) == .finish)
  }

  @Test func aLargeResultIsDeliveredInPieces() {
    var machine = JQMachine()
    machine.request(.max(2))
    #expect(machine.next(at: .zero) == .ask)
    machine.receive(bytes("a", "b"))
    #expect(machine.next(at: .zero) == .begin(bytes("a", "b")))
    let much: EventBatch = [[UInt8](repeating: 0, count: JQMachine.pieceBytes)]
    machine.answered(much)
    #expect(machine.next(at: .zero) == .deliver(much))
    #expect(machine.next(at: .zero) == nil)
    machine.answered(bytes("c"))
    #expect(machine.next(at: .zero) == .deliver(bytes("c")))
  }
}
