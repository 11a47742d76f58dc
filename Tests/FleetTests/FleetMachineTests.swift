import Events
import Testing

@testable import Fleet

@Suite struct FleetMachineTests {
  private let machine = FleetMachine(host: .random(), hostName: "a", shardCount: 1) { values, _ in values }

  private func stream(_ definition: UInt64 = 1) -> FleetMachine.Stream {
    .init(name: "s", definition: definition, kind: .continuous, canLead: true, end: 1)
  }

  /// Lets the host lead the shard of an empty log.
  private func lead() throws {
    var actions = machine.connected(at: 0)
    #expect(actions == [.findClaim(shard: 0)])
    actions = machine.foundClaim(shard: 0, FleetClaim.none(last: 0), at: 0)
    #expect(actions == [.gather(shard: 0)])
    actions = machine.gathered(shard: 0, [], FleetNewest(last: 0, entry: nil), at: 0, wallTime: 1000)
    guard case .append(_, isClaim: true, shard: 0, after: 0, let attempt)? = actions.first else {
      Issue.record("\(actions)")
      return
    }
    actions = machine.appended(shard: 0, attempt: attempt, .stored, at: 0)
    #expect(actions.contains(.report(.leads(shard: 0, term: 1))))
  }

  @Test func demandBeforeAStreamIsKnownIsNotForgotten() throws {
    #expect(machine.wants("s", true, at: 0) == [])
    let actions = machine.setStreams([stream()], at: 0)
    #expect(actions == [.showInterest(true, stream: "s", shard: 0)])
    try lead()
    #expect(machine.isFetched("s"))
  }

  @Test func demandThatEndsBeforeAStreamIsKnownIsNotShown() {
    #expect(machine.wants("s", true, at: 0) == [] && machine.wants("s", false, at: 0) == [])
    #expect(machine.setStreams([stream()], at: 0) == [])
  }

  @Test func aChangedStreamStaysFetched() throws {
    _ = machine.setStreams([stream()], at: 0)
    try lead()
    #expect(machine.wants("s", true, at: 0).contains(.fetch(true, stream: "s")))
    #expect(machine.setStreams([stream(2)], at: 0) == [] && machine.isFetched("s"))
    #expect(machine.setStreams([], at: 0).contains(.fetch(false, stream: "s")) && !machine.isFetched("s"))
  }
}
