import TestSupport
import Testing

@testable import Fleet

@Suite struct FleetSimulationTests {
  private func run(_ seed: UInt64, _ faults: Faults, hostCount: Int = 3) -> FleetSimulation {
    var simulation = FleetSimulation(seed: seed, hostCount: hostCount, faults: faults)
    simulation.run(seconds: 60)
    return simulation
  }

  @Test(arguments: seeds(5))
  func allHostsHaveTheSameEventsUnderTheSameIDsAndValuesAreStoredOnce(seed: UInt64) {
    let simulation = run(seed, .init())
    #expect(simulation.violations == [])
    #expect(simulation.terms > 0 && simulation.storedCount > 100, "\(simulation.storedCount)")
    #expect(simulation.fetchCount > 10 && simulation.publishedCount > 50)
  }

  /// The seeds besides the first five have found defects.
  @Test(arguments: Array(seeds(5)) + [23, 29, 47])
  func noIDIsUsedTwiceAfterTheLogHasLostItsLastEntries(seed: UInt64) {
    #expect(run(seed, .init(kills: false, clockDifference: 0, restoresOldLog: true)).violations == [])
  }

  @Test(arguments: seeds(5))
  func hostsAgreeIfATenthOfAllMessagesIsLostAndDefinitionsDiffer(seed: UInt64) {
    #expect(run(seed, .init(lost: 100, repeated: 100, hasOtherDefinitions: true), hostCount: 5).violations == [])
  }

  /// In the seed besides the first five a leader asked for demand while the host that had it was cut off.
  @Test(arguments: Array(seeds(5)) + [17])
  func aLeaderThatIsCutOffDoesNotFetchAfterAnAppendWithoutAnAnswer(seed: UInt64) {
    let simulation = run(seed, .init(kills: false, cutsOff: true))
    #expect(simulation.violations == [] && simulation.unansweredCount > 0)
  }

  @Test(arguments: seeds(1))
  func valuesLargerThanAMessageAreStoredOnce(seed: UInt64) {
    #expect(run(seed, .init(hasLargeValues: true)).violations == [])
  }
}
