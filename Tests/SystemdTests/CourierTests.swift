import Dispatch
import Testing

@testable import Systemd

struct CourierTests {
  @Test func manyStuckCouriersLeaveThreadsForTheNext() {
    let stuck = DispatchSemaphore(value: 0)
    let couriers = (0..<32).map { Courier(label: "stuck \($0)", limit: 1) }
    for courier in couriers { #expect(courier.carry { stuck.wait() }) }
    #expect(Courier(label: "free", limit: 1).flush(within: .seconds(60)))
    for _ in couriers { stuck.signal() }
    for courier in couriers { #expect(courier.flush(within: .seconds(60))) }
  }

  @Test func overTheLimitNothingIsTakenUntilThereIsRoomAgain() {
    let stuck = DispatchSemaphore(value: 0)
    let courier = Courier(label: "full", limit: 2)
    #expect(courier.carry { stuck.wait() })
    #expect(courier.carry {})
    #expect(!courier.carry {})
    stuck.signal()
    #expect(courier.flush(within: .seconds(60)))
    #expect(courier.carry {})
  }

  @Test(arguments: [(Duration.microseconds(1500), 1_500_000), (.seconds(Int64.max), 4_600_000_000_000_000_000)])
  func durationsBecomeNanosecondsWithoutOverflow(duration: Duration, nanoseconds: Int) {
    #expect(duration.nanoseconds == nanoseconds)
  }
}
