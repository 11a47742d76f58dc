import Dispatch
import Reactive
import Testing

@Suite(.timeLimit(.minutes(10))) struct DispatchTimerTests {
  /// Waits for `count` ticks on `queue`; each other timer with this interval on it ticks meanwhile.
  private func wait(_ count: Int, on queue: DispatchQueue) async {
    _ = await values(of: Publishers.timer(queue: queue, interval: .milliseconds(2), times: .max(count)))
  }

  private func values(of timer: Publishers.DispatchTimer) async -> [DispatchTime] {
    let recorder = Recorder<DispatchTime, Never>()
    await withCheckedContinuation { continuation in
      timer.handleEvents(receiveOutput: { _ in }).subscribe(
        AnySubscriber(
          receiveSubscription: { recorder.receive(subscription: $0) }, receiveValue: { recorder.receive($0) },
          receiveCompletion: { completion in
            recorder.receive(completion: completion)
            continuation.resume()
          }))
    }
    return recorder.values
  }

  @Test func timerFinishesAfterItsTicks() async {
    let start = DispatchTime.now()
    let values = await values(of: Publishers.timer(interval: .milliseconds(2), times: .max(4)))
    #expect(values.count == 4)
    #expect(values == values.sorted() && values[0] >= start)
  }

  @Test func timerWithoutTicksFinishesImmediately() {
    let recorder = Recorder<DispatchTime, Never>(.none)
    Publishers.timer(interval: .seconds(1), times: .none).subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .finished])
  }

  @Test func ticksWithoutDemandAreDropped() async {
    let queue = DispatchQueue(label: "test")
    let recorder = Recorder<DispatchTime, Never>(.max(1))
    Publishers.timer(queue: queue, interval: .milliseconds(2)).subscribe(recorder)
    await wait(20, on: queue)
    #expect(recorder.values.count == 1)
    let atOnce = queue.sync {
      recorder.request(5)
      return recorder.values.count
    }
    #expect(atOnce == 1)
    await wait(20, on: queue)
    #expect(recorder.values.count == 6)
    recorder.cancel()
  }

  @Test func demandReturnedFromReceiveCounts() async {  // row 16
    let queue = DispatchQueue(label: "test")
    let recorder = Recorder<DispatchTime, Never>(.max(1)) { recorder, _ in
      dispatchPrecondition(condition: .onQueue(queue))
      return recorder.values.count < 3 ? .max(1) : .none
    }
    Publishers.timer(queue: queue, interval: .milliseconds(2)).subscribe(recorder)
    await wait(20, on: queue)
    #expect(recorder.values.count == 3)
    recorder.cancel()
  }

  @Test func cancelInsideReceiveStopsTheTimer() async {  // row 18
    let queue = DispatchQueue(label: "test")
    let recorder = Recorder<DispatchTime, Never> { recorder, _ in
      recorder.cancel()
      return .none
    }
    Publishers.timer(queue: queue, interval: .milliseconds(2), times: .max(1)).subscribe(recorder)
    await wait(20, on: queue)
    #expect(recorder.values.count == 1 && !recorder.isEnded)
  }

  @Test func cancelBeforeDemandStartsNoTimer() async {
    let queue = DispatchQueue(label: "test")
    let recorder = Recorder<DispatchTime, Never>(.none)
    Publishers.timer(queue: queue, interval: .milliseconds(2)).subscribe(recorder)
    recorder.cancel()
    recorder.request(5)
    await wait(20, on: queue)
    #expect(recorder.signals == [.subscribed])
  }

  @Test func sharedTimerTicksOnceForAll() async {
    let queue = DispatchQueue(label: "test")
    let shared = Publishers.timer(queue: queue, interval: .milliseconds(2), times: .max(5)).shareReplay(capacity: 5)
    let first = Recorder<DispatchTime, Never>()
    let second = Recorder<DispatchTime, Never>()
    shared.subscribe(first)
    shared.subscribe(second)
    await wait(50, on: queue)
    #expect(first.values.count == 5 && first.isEnded)
    #expect(first.signals == second.signals)
  }
}
