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

  @Test func arithmeticOfTimesSaturates() {
    typealias Moment = DispatchQueue.SchedulerTimeType
    typealias Stride = Moment.Stride
    let (least, greatest) = (Stride.nanoseconds(.min), Stride.nanoseconds(.max))
    #expect(greatest + .nanoseconds(1) == greatest && least + .nanoseconds(-1) == least)
    #expect(least - .nanoseconds(1) == least && greatest - .nanoseconds(-1) == greatest && .zero - least == greatest)
    #expect(-least == greatest && -Stride.seconds(2) == .seconds(-2))
    #expect(greatest * greatest == greatest && least * greatest == least && least * least == greatest)
    #expect(greatest + least == .nanoseconds(-1))
    var sum = greatest
    sum += greatest
    #expect(sum == greatest)
    sum -= least
    #expect(sum == greatest)
    sum *= -2
    #expect(sum == least)
    #expect(Stride.seconds(.nan).magnitude == .max && Stride.seconds(-.infinity) == least)
    #expect((1e300 as Stride) == greatest && (-1e300 as Stride) == least)
    for count in [Int.min, .max] {
      #expect(Stride(.seconds(count)).magnitude == count && Stride(.microseconds(count)).magnitude == count)
    }
    let moments = [0, 1, 1000, UInt64(Int64.max), .max - 1, .max].map { Moment(DispatchTime(uptimeNanoseconds: $0)) }
    for moment in moments + [Moment(.distantFuture)] {
      for stride in [least, -1, 0, 1, greatest] { _ = moment.advanced(by: stride).distance(to: moment) }
      for other in moments { #expect((moment < other) == (moment.distance(to: other) > 0)) }
    }
    #expect(moments[2].advanced(by: greatest) == Moment(.distantFuture))
    typealias Still = ImmediateScheduler.SchedulerTimeType.Stride
    #expect((1e300 as Still).magnitude == .max && (-1e300 as Still).magnitude == .min && (2.9 as Still).magnitude == 2)
    #expect((Still(.max) + 1).magnitude == .max && (Still(.max) * -2).magnitude == .min)
  }

  /// As on a run loop, whose unit is a second.
  @Test func productOfIntervalsIsThatOfTheirSeconds() {
    typealias Stride = DispatchQueue.SchedulerTimeType.Stride
    #expect(Stride.seconds(10) * 2 == .seconds(20) && Stride.milliseconds(100) * 1.5 == .milliseconds(150))
    #expect(Stride.nanoseconds(15) * .nanoseconds(2) == .zero && Stride.seconds(-3) * 3 == .seconds(-9))
    var delay = Stride.milliseconds(250)
    delay *= 2
    #expect(delay == .milliseconds(500))
  }

  @Test func intervalsOfATimerMayHaveAnySign() async {
    let queue = DispatchQueue(label: "test")
    for interval in [Int.min, -1, 0, .max] {
      let (ticks, continuation) = AsyncStream<Void>.makeStream()
      let span = DispatchQueue.SchedulerTimeType.Stride.nanoseconds(interval)
      let timer = queue.schedule(after: queue.now, interval: span, tolerance: min(span, 0)) { continuation.yield() }
      for await _ in ticks { break }
      timer.cancel()
      let leeway = DispatchTimeInterval.seconds(min(interval, 0))
      let ticking = Publishers.timer(queue: queue, interval: .seconds(interval), leeway: leeway)
      for await _ in ticking.first().values {}
    }
  }

  @Test func distanceIsSigned() {
    let moment = DispatchQueue.SchedulerTimeType(DispatchTime(uptimeNanoseconds: 1000))
    let later = moment.advanced(by: .nanoseconds(500))
    #expect(moment.distance(to: later) == .nanoseconds(500))
    #expect(later.distance(to: moment) == .nanoseconds(-500))
  }
}
