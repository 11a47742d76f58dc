import Dispatch
import Reactive
import Testing

@Suite(.timeLimit(.minutes(10))) struct SchedulerTests {
  @Test func immediateSchedulerWorksInsideTheCall() {
    var count = 0
    let scheduler = ImmediateScheduler.shared
    scheduler.schedule { count += 1 }
    scheduler.schedule(after: scheduler.now.advanced(by: .seconds(5))) { count += 1 }
    let timer = scheduler.schedule(after: scheduler.now, interval: .seconds(5)) { count += 1 }
    timer.cancel()
    #expect(count == 3)
  }

  @Test func queueSchedulesOnItself() async {
    let queue = DispatchQueue(label: "test")
    await withCheckedContinuation { continuation in
      queue.schedule {
        dispatchPrecondition(condition: .onQueue(queue))
        continuation.resume()
      }
    }
  }

  @Test func queueSchedulesAfterADelay() async {
    let queue = DispatchQueue(label: "test")
    let start = queue.now
    await withCheckedContinuation { continuation in
      queue.schedule(after: start.advanced(by: .milliseconds(5))) { continuation.resume() }
    }
    #expect(start.distance(to: queue.now) >= .milliseconds(5))
  }

  @Test func queueRepeatsUntilCancelled() async {
    let queue = DispatchQueue(label: "test")
    let ticks = Recorder<Int, Never>()
    var timer: (any Cancellable)?
    await withCheckedContinuation { continuation in
      timer = queue.schedule(after: queue.now, interval: .milliseconds(1)) {
        _ = ticks.receive(1)
        if ticks.values.count == 3 { continuation.resume() }
      }
    }
    timer?.cancel()
    #expect(ticks.values.count >= 3)
  }

  @Test func cancelledDelayReleasesItsWork() async {
    final class Held: Sendable {}
    var held: Held? = Held()
    weak let watched = held
    let delay = dispatchDelay(.seconds(86400)) { [held] in _ = held }
    held = nil
    delay.cancel()
    while watched != nil, !Task.isCancelled { await Task.yield() }
  }

  @Test func timeSpansSaturate() {
    typealias Stride = DispatchQueue.SchedulerTimeType.Stride
    #expect(Stride.seconds(Int.max) == .nanoseconds(.max))
    #expect(Stride.seconds(1e30) == .nanoseconds(.max))
    #expect(Stride.seconds(0.5) == .milliseconds(500))
    #expect(Stride(.never) == .nanoseconds(.max))
  }

  @Test func distanceIsSigned() {
    let moment = DispatchQueue.SchedulerTimeType(DispatchTime(uptimeNanoseconds: 1000))
    let later = moment.advanced(by: .nanoseconds(500))
    #expect(moment.distance(to: later) == .nanoseconds(500))
    #expect(later.distance(to: moment) == .nanoseconds(-500))
  }
}
