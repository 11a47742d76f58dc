import TestSupport
import Testing

@testable import Fleet

@Suite struct ShardSimulationTests {
  private func run(_ seed: UInt64, _ faults: Faults, hostCount: Int = 3) -> ShardSimulation {
    var simulation = ShardSimulation(seed: seed, hostCount: hostCount, faults: faults)
    simulation.run(seconds: 60)
    return simulation
  }

  @Test(arguments: seeds(8))
  func hostsAgreeWithLostRepeatedAndLateMessagesAndKills(seed: UInt64) {
    let simulation = run(seed, .init())
    #expect(simulation.violations == [])
    #expect(simulation.terms > 0 && simulation.appliedCount > 50)
  }

  @Test(arguments: seeds(8))
  func hostsAgreeAfterTheLogHasLostItsLastEntries(seed: UInt64) {
    let simulation = run(seed, .init(restoresOldLog: true))
    #expect(simulation.violations == [])
  }

  @Test(arguments: seeds(8))
  func hostsAgreeAfterLastEntriesWereRemoved(seed: UInt64) {
    #expect(run(seed, .init(removesLastEntries: true)).violations == [])
  }

  @Test(arguments: seeds(8))
  func hostsAgreeIfAFifthOfAllMessagesIsLost(seed: UInt64) {
    #expect(run(seed, .init(lost: 200, repeated: 200), hostCount: 5).violations == [])
  }

  @Test func simulationFindsAFenceThatIsCheckedBeforeTheLogDecides() {
    #expect((0..<20).contains { !run($0, .init(hasBrokenFence: true)).violations.isEmpty })
  }
}
