import Dispatch
import Reactive
import Testing

/// Timed operators on virtual time, in milliseconds.
@Suite struct TimedTests {
  private let time = VirtualTimeScheduler()
  private let probe = Probe<Int, TestError>()
  private typealias Stride = VirtualTimeScheduler.SchedulerTimeType.Stride

  /// Sends each value the given number of milliseconds after the previous one.
  private func send(_ values: (after: Int, Int)...) {
    for (after, value) in values {
      if after > 0 { time.advance(by: .milliseconds(after)) }
      probe.send(value)
    }
  }

  private func subscribe<P: Publisher>(
    _ publisher: P, _ demand: Subscribers.Demand = .unlimited,
    onValue: @escaping (Recorder<P.Output, P.Failure>, P.Output) -> Subscribers.Demand = { _, _ in .none }
  ) -> Recorder<P.Output, P.Failure> where P.Output: Equatable & Sendable {
    let recorder = Recorder<P.Output, P.Failure>(demand, onValue: onValue)
    publisher.subscribe(recorder)
    return recorder
  }

  // MARK: receive(on:), delay

  @Test func receiveOnDeliversOnTheSchedulerInOrder() {
    let recorder = subscribe(probe.receive(on: time))
    #expect(recorder.signals == [.subscribed])
    send((0, 1), (0, 2))
    probe.send(completion: .failure(TestError()))
    #expect(recorder.signals == [.subscribed])
    time.advance()
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .failed])
    #expect(time.pendingCount == 0)
  }

  @Test func receiveOnPassesDemandUpstream() {  // row 16
    let recorder = subscribe(probe.receive(on: time), .max(2)) { _, value in value == 1 ? .max(3) : .none }
    #expect(probe.requested == .max(2))
    send((0, 1), (0, 2))
    time.advance()
    #expect(recorder.values == [1, 2] && probe.requested == .max(5))
  }

  @Test func scheduledValuesAreNotDeliveredAfterCancel() {
    let recorder = subscribe(probe.receive(on: time)) { recorder, _ in
      recorder.cancel()
      return .none
    }
    send((0, 1), (0, 2))
    time.advance()
    probe.send(3)
    probe.send(completion: .finished)
    time.advance()
    #expect(recorder.signals == [.subscribed, .value(1)] && probe.state.cancels == 1)
  }

  @Test func reentrantValuesKeepTheirOrder() {  // row 17
    let subject = PassthroughSubject<Int, Never>()
    let recorder = subscribe(subject.receive(on: ImmediateScheduler.shared)) { _, value in
      if value < 1000 { subject.send(value + 1) }
      return .none
    }
    subject.send(1)
    #expect(recorder.values == Array(1...1000))
  }

  @Test func delayPostponesValuesAndTheEnd() {
    let recorder = subscribe(probe.delay(for: .milliseconds(10), scheduler: time))
    send((0, 1), (4, 2))
    probe.send(completion: .finished)
    time.advance(by: .milliseconds(5))
    #expect(recorder.signals == [.subscribed])
    time.advance(by: .milliseconds(1))
    #expect(recorder.signals == [.subscribed, .value(1)])
    time.advance(by: .milliseconds(4))
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .finished])
  }

  @Test func cancelledDelayReleasesItsSubscriber() {
    final class Held: Equatable, Sendable {
      static func == (lhs: Held, rhs: Held) -> Bool { lhs === rhs }
    }
    weak var value: Held?
    weak var down: Recorder<Held, Never>?
    let subject = PassthroughSubject<Held, Never>()
    do {
      let recorder = subscribe(subject.delay(for: .seconds(86400), scheduler: time))
      let held = Held()
      subject.send(held)
      (value, down) = (held, recorder)
      recorder.cancel()
    }
    #expect(value == nil && time.pendingCount == 1)
    _ = down
  }

  // MARK: debounce, throttle

  @Test func debounceDeliversTheLastBeforeEachPause() {
    let recorder = subscribe(probe.debounce(for: .milliseconds(10), scheduler: time))
    #expect(probe.requested == .unlimited)
    send((0, 1), (4, 2), (9, 3))
    time.advance(by: .milliseconds(9))
    #expect(recorder.values == [])
    time.advance(by: .milliseconds(1))
    #expect(recorder.values == [3])
    send((50, 4))
    time.advance(by: .milliseconds(10))
    #expect(recorder.values == [3, 4])
  }

  @Test func debounceDropsValuesWithoutDemandAndTheWaitingValueAtTheEnd() {
    let recorder = subscribe(probe.debounce(for: .milliseconds(10), scheduler: time), .none)
    send((0, 1))
    time.advance(by: .milliseconds(10))
    recorder.request(2)
    time.advance(by: .milliseconds(50))
    #expect(recorder.signals == [.subscribed])
    send((0, 2))
    time.advance(by: .milliseconds(10))
    send((0, 3))
    probe.send(completion: .finished)
    time.advance()
    #expect(recorder.signals == [.subscribed, .value(2), .finished])
  }

  @Test func throttleDeliversImmediatelyThenOncePerInterval() {
    for latest in [true, false] {
      let recorder = subscribe(probe.throttle(for: .milliseconds(10), scheduler: time, latest: latest))
      send((0, 1))
      time.advance()
      send((1, 2), (1, 3), (1, 4))
      time.advance(by: .milliseconds(6))
      #expect(recorder.values == [1])
      time.advance(by: .milliseconds(1))
      #expect(recorder.values == [1, latest ? 4 : 2])
      send((30, 5))
      time.advance()
      #expect(recorder.values.last == 5)
      recorder.cancel()
    }
  }

  @Test func throttleFinishesAfterTheWaitingValue() {
    let recorder = subscribe(probe.throttle(for: .milliseconds(10), scheduler: time, latest: true), .max(2))
    send((0, 1))
    time.advance()
    send((5, 2))
    probe.send(completion: .finished)
    time.advance(by: .milliseconds(4))
    #expect(recorder.signals == [.subscribed, .value(1)])
    time.advance(by: .milliseconds(1))
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .finished])
  }

  @Test func throttleDropsValuesWithoutDemand() {
    let recorder = subscribe(probe.throttle(for: .milliseconds(10), scheduler: time, latest: false), .max(1))
    send((0, 1), (20, 2))
    time.advance(by: .milliseconds(20))
    recorder.request(1)
    send((0, 3))
    time.advance()
    #expect(recorder.values == [1, 3])
  }

  // MARK: timeout, measureInterval

  @Test func timeoutEndsAnUpstreamWithoutValues() {
    let recorder = subscribe(probe.timeout(.milliseconds(10), scheduler: time), .max(5))
    #expect(probe.requested == .max(5))
    send((9, 1), (9, 2))
    time.advance(by: .milliseconds(9))
    #expect(recorder.signals == [.subscribed, .value(1), .value(2)])
    time.advance(by: .milliseconds(1))
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .finished])
    #expect(probe.state.cancels == 1)
  }

  @Test func timeoutFailsWithTheCustomError() {
    let recorder = subscribe(probe.timeout(.milliseconds(10), scheduler: time) { TestError() })
    time.advance(by: .milliseconds(10))
    #expect(recorder.signals == [.subscribed, .failed] && probe.state.cancels == 1)
  }

  @Test func completionBeforeTheDeadlineIsPassedOn() {
    let recorder = subscribe(probe.timeout(.milliseconds(10), scheduler: time) { TestError() })
    send((5, 1))
    probe.send(completion: .finished)
    time.run()
    #expect(recorder.signals == [.subscribed, .value(1), .finished] && probe.state.cancels == 0)
  }

  @Test func firstIntervalStartsWithTheSubscription() {
    let measured = probe.measureInterval(using: time)
    time.advance(by: .seconds(1))
    let recorder = subscribe(measured, .max(2))
    #expect(probe.requested == .max(2))
    send((3, 1), (4, 1))
    #expect(recorder.values == [.milliseconds(3), .milliseconds(4)])
  }

  // MARK: collect

  @Test func collectByTimeDeliversAtWholeIntervals() {
    let recorder = subscribe(probe.collect(.byTime(time, .milliseconds(10))))
    #expect(probe.requested == .unlimited)
    send((1, 1), (8, 2))
    time.advance(by: .milliseconds(1))
    #expect(recorder.values == [[1, 2]])
    #expect(time.pendingCount == 0)
    send((25, 3))
    time.advance(by: .milliseconds(4))
    #expect(recorder.values == [[1, 2]])
    time.advance(by: .milliseconds(1))
    #expect(recorder.values == [[1, 2], [3]])
    send((0, 4))
    probe.send(completion: .finished)
    time.advance()
    #expect(recorder.signals.suffix(2) == [.value([4]), .finished])
  }

  @Test func collectByCountRequestsOnlyWhatItsArraysHold() {  // row 15
    let recorder = subscribe(probe.collect(.byTimeOrCount(time, .milliseconds(10), 3)), .max(1))
    #expect(probe.requested == .max(3))
    send((0, 1), (0, 2))
    time.advance(by: .milliseconds(10))
    #expect(recorder.values == [[1, 2]])
    recorder.request(1)
    #expect(probe.requested == .max(5))
    send((0, 3), (0, 4), (0, 5))
    time.advance()
    #expect(recorder.values == [[1, 2], [3, 4, 5]])
  }

  @Test func collectedArrayAndCompletionWaitForDemand() {  // row 13
    let recorder = subscribe(probe.collect(.byTimeOrCount(time, .milliseconds(10), 2)), .max(1))
    send((0, 1))
    time.advance(by: .milliseconds(10))
    send((0, 2))
    probe.send(completion: .finished)
    time.run()
    #expect(recorder.signals == [.subscribed, .value([1])])
    recorder.request(1)
    time.run()
    #expect(recorder.signals == [.subscribed, .value([1]), .value([2]), .finished])
  }

  @Test func failureDropsTheCollectedValues() {
    let recorder = subscribe(probe.collect(.byTime(time, .milliseconds(10))))
    send((0, 1))
    probe.send(completion: .failure(TestError()))
    time.run()
    #expect(recorder.signals == [.subscribed, .failed])
  }

  @Test func immediateSchedulerCollectsEachValueAlone() {
    let recorder = subscribe([1, 2].publisher.collect(.byTime(ImmediateScheduler.shared, 5)))
    #expect(recorder.signals == [.subscribed, .value([1]), .value([2]), .finished])
  }

  // MARK: subscribe(on:)

  @Test func overdueArrayIsDeliveredOnDemandWithoutFurtherWakeUps() {
    let recorder = Recorder<[Int], TestError>(.max(1))
    probe.collect(.byTime(time, .milliseconds(10))).subscribe(recorder)
    send((0, 1), (10, 2), (10, 3))
    time.advance(by: .milliseconds(10))
    #expect(recorder.values == [[1]] && time.pendingCount == 0)
    recorder.request(1)
    time.advance()
    #expect(recorder.values == [[1], [2, 3]] && time.pendingCount == 0)
  }

  @Test func collectWithoutDemandOnAStoppedClockTerminates() {
    let recorder = Recorder<[Int], TestError>(.max(1))
    probe.collect(.byTime(ImmediateScheduler.shared, 5)).subscribe(recorder)
    for value in 1...3 { probe.send(value) }
    recorder.request(1)
    #expect(recorder.values == [[1], [2, 3]])
  }

  @Test func clockSetBackDoesNotAffectTimeoutDebounceAndThrottle() {
    let clock = WallClock()
    let probe = PassthroughSubject<Int, TestError>()
    let limited = Recorder<Int, TestError>()
    let settled = Recorder<Int, TestError>()
    let thinned = Recorder<Int, TestError>()
    probe.timeout(.milliseconds(30), scheduler: clock).subscribe(limited)
    probe.debounce(for: .milliseconds(10), scheduler: clock).subscribe(settled)
    probe.throttle(for: .milliseconds(10), scheduler: clock, latest: true).subscribe(thinned)
    probe.send(0)
    clock.time.advance(by: .milliseconds(20))
    probe.send(1)
    clock.time.advance(by: .milliseconds(20))
    clock.setBack(milliseconds: 1000)
    for value in 2...3 {
      probe.send(value)
      clock.time.advance(by: .milliseconds(1))
    }
    #expect(limited.values == [0, 1, 2, 3] && settled.values == [0, 1])
    clock.time.advance(by: .milliseconds(20))
    #expect(!limited.isEnded && settled.values == [0, 1, 3] && thinned.values == [0, 1, 3])
  }

  @Test func clockSetBackKeepsTheDelayedEndBehindItsValues() {
    let clock = WallClock()
    let recorder = Recorder<Int, TestError>()
    probe.delay(for: .milliseconds(10), scheduler: clock).subscribe(recorder)
    probe.send(0)
    clock.time.advance(by: .milliseconds(5))
    probe.send(1)
    clock.setBack(milliseconds: 1000)
    probe.send(completion: .finished)
    clock.time.run()
    #expect(recorder.signals == [.subscribed, .value(0), .value(1), .finished])
  }

  @Test func subscribeOnCallsUpstreamOnTheScheduler() {
    let recorder = subscribe(probe.subscribe(on: time), .max(2))
    #expect(probe.state.subscriptions == 0)
    time.advance()
    #expect(probe.state.subscriptions == 1 && probe.requested == .max(2))
    probe.send(1)
    recorder.request(1)
    #expect(recorder.values == [1] && probe.requested == .max(2))
    recorder.cancel()
    probe.send(2)
    #expect(recorder.values == [1] && probe.state.cancels == 0)
    time.advance()
    #expect(probe.requested == .max(3) && probe.state.cancels == 1)
  }
}

@Suite(.timeLimit(.minutes(10))) struct TimedConcurrencyTests {
  @Test func parallelQueueDeliversOneValueAtATimeInOrder() async {  // row 19
    let queue = DispatchQueue(label: "test", attributes: .concurrent)
    let subject = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>()
    await withCheckedContinuation { continuation in
      subject.receive(on: queue).handleEvents(receiveCompletion: { _ in continuation.resume() }).subscribe(recorder)
      for number in 0..<10_000 { subject.send(number) }
      subject.send(completion: .finished)
    }
    #expect(recorder.values == Array(0..<10_000))
  }

  @Test func concurrentSendAndCancel() {
    for _ in 0..<200 {
      let time = VirtualTimeScheduler()
      let subject = PassthroughSubject<Int, Never>()
      let recorder = Recorder<Int, Never>()
      subject.debounce(for: .milliseconds(1), scheduler: time).subscribe(recorder)
      DispatchQueue.concurrentPerform(iterations: 3) { index in
        switch index {
        case 0: for number in 0..<50 { subject.send(number) }
        case 1: for _ in 0..<50 { time.advance(by: .microseconds(500)) }
        default: recorder.cancel()
        }
      }
      let count = recorder.values.count
      time.run()
      #expect(recorder.values.count == count && !recorder.isEnded)
    }
  }
}
