import Reactive
import Testing

@Suite struct DemandTests {
  typealias Demand = Subscribers.Demand

  @Test func sumsSaturateAtUnlimited() {  // row 15
    #expect(Demand.max(2) + .max(3) == .max(5))
    #expect(Demand.max(.max) + .max(1) == .unlimited)
    #expect(Demand.max(.max) * 2 == .unlimited)
    #expect(Demand.max(1) + .unlimited == .unlimited)
  }

  @Test func unlimitedStaysUnlimited() {  // row 15
    #expect(Demand.unlimited - .max(5) == .unlimited)
    #expect(Demand.unlimited - .unlimited == .unlimited)
    #expect(Demand.unlimited * 0 == .unlimited)
    #expect(Demand.unlimited - 7 == .unlimited)
    #expect(Demand.unlimited.max == nil)
  }

  @Test func differencesEndAtNone() {  // row 15
    #expect(Demand.max(2) - .max(3) == .none)
    #expect(Demand.max(2) - 3 == .none)
    #expect(Demand.max(2) + -3 == .none)
    #expect(Demand.max(2) - .unlimited == .none)
    #expect(Demand.max(2) - -3 == .max(5))
  }

  @Test func comparesWithCounts() {
    #expect(Demand.max(3) == 3 && 3 == Demand.max(3))
    #expect(Demand.max(3) > 2 && 2 < Demand.max(3))
    #expect(Demand.unlimited > Int.max && Demand.unlimited != Int.max)
    #expect(Demand.none > -1)
    #expect(Demand.max(3) < .unlimited)
    #expect(Demand.max(3) <= 3 && Demand.max(3) >= 3)
  }

  @Test func negativeDemandTraps() async {
    await #expect(processExitsWith: .failure) { _ = Subscribers.Demand.max(-1) }
    await #expect(processExitsWith: .failure) { _ = Subscribers.Demand.max(1) * -1 }
  }

  @Test func describesItself() {
    #expect("\(Demand.max(3))" == "max(3)")
    #expect("\(Demand.unlimited)" == "unlimited")
  }
}
