import Reactive
import Testing

@Suite struct VirtualTimeSchedulerTests {
  private let time = VirtualTimeScheduler()

  @Test func runsWorkInTheOrderOfTime() {
    var order: [Int] = []
    time.schedule(after: time.now.advanced(by: .seconds(2))) { order.append(2) }
    time.schedule(after: time.now.advanced(by: .seconds(1))) {
      order.append(1)
      time.schedule { order.append(11) }
    }
    time.schedule { order.append(0) }
    #expect(order == [])
    time.advance()
    #expect(order == [0])
    time.advance(by: .seconds(1))
    #expect(order == [0, 1, 11])
    time.run()
    #expect(order == [0, 1, 11, 2] && time.pendingCount == 0)
  }

  @Test func nowIsTheTimeOfTheWork() {
    let start = time.now
    var seen: [VirtualTimeScheduler.SchedulerTimeType.Stride] = []
    let timer = time.schedule(after: start.advanced(by: .seconds(1)), interval: .seconds(2)) {
      seen.append(start.distance(to: time.now))
    }
    time.advance(by: .seconds(6))
    #expect(seen == [.seconds(1), .seconds(3), .seconds(5)])
    #expect(start.distance(to: time.now) == .seconds(6))
    timer.cancel()
    time.advance(by: .seconds(6))
    #expect(seen.count == 3 && time.pendingCount == 0)
  }
}
