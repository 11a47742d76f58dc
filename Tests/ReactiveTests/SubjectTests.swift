import Reactive
import Testing

@Suite struct SubjectTests {
  @Test func passthroughDropsValuesWithoutDemand() {
    let subject = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>(.max(1))
    subject.subscribe(recorder)
    subject.send(1)
    subject.send(2)
    recorder.request(1)
    subject.send(3)
    #expect(recorder.values == [1, 3])
  }

  @Test func passthroughCompletesSubscribersWithoutDemandAndLateOnes() {
    let subject = PassthroughSubject<Int, TestError>()
    let early = Recorder<Int, TestError>(.none)
    subject.subscribe(early)
    subject.send(1)
    subject.send(completion: .failure(TestError()))
    subject.send(2)
    let late = Recorder<Int, TestError>()
    subject.subscribe(late)
    #expect(early.signals == [.subscribed, .failed])
    #expect(late.signals == [.subscribed, .failed])
  }

  @Test func valuesSentInsideReceiveReachAllInOrder() {  // row 17
    let subject = PassthroughSubject<Int, Never>()
    let first = Recorder<Int, Never> { _, value in
      if value == 1 { (2...5).forEach(subject.send) }
      return .none
    }
    let second = Recorder<Int, Never>()
    subject.subscribe(first)
    subject.subscribe(second)
    subject.send(1)
    #expect(first.values == [1, 2, 3, 4, 5])
    #expect(second.values == [1, 2, 3, 4, 5])
  }

  @Test func endSentInsideReceiveFollowsTheValueForAll() {
    let subject = PassthroughSubject<Int, Never>()
    let first = Recorder<Int, Never> { _, _ in
      subject.send(completion: .finished)
      return .none
    }
    let second = Recorder<Int, Never>()
    let starved = Recorder<Int, Never>(.none)
    subject.subscribe(first)
    subject.subscribe(second)
    subject.subscribe(starved)
    subject.send(1)
    #expect(first.signals == [.subscribed, .value(1), .finished])
    #expect(second.signals == [.subscribed, .value(1), .finished])
    #expect(starved.signals == [.subscribed, .finished])
  }

  @Test func subscriptionInsideReceiveReceivesLaterValues() {
    let subject = PassthroughSubject<Int, Never>()
    let late = Recorder<Int, Never>()
    let recorder = Recorder<Int, Never> { _, value in
      if value == 1 { subject.subscribe(late) }
      return .none
    }
    subject.subscribe(recorder)
    subject.send(1)
    subject.send(2)
    #expect(recorder.values == [1, 2])
    #expect(late.values == [2])
  }

  @Test func releasedValueMaySendFromItsDeinitialiser() {  // row 18
    final class Noisy: Sendable {
      let gone: @Sendable () -> Void
      init(_ gone: @escaping @Sendable () -> Void) { self.gone = gone }
      deinit { gone() }
    }
    let echo = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>()
    echo.subscribe(recorder)
    let subject = ReplaySubject<Noisy, Never>(bufferSize: 1)
    subject.send(
      Noisy { [weak subject] in
        _ = subject?.bufferSize
        subject?.send(Noisy {})
        echo.send(1)
      })
    subject.send(Noisy {})
    #expect(recorder.values == [1])
  }

  @Test func subjectRequestsFromUpstreamOnTheFirstDemand() {
    let probe = Probe<Int, Never>()
    let subject = PassthroughSubject<Int, Never>()
    let relay = probe.subscribe(subject)
    #expect(probe.state.requested.isEmpty)
    let recorder = Recorder<Int, Never>(.max(1))
    subject.subscribe(recorder)
    #expect(probe.requested == .unlimited)
    probe.send(1)
    relay.cancel()
    probe.send(2)
    #expect(recorder.values == [1])
    #expect(probe.state.cancels == 1)
  }

  @Test func currentValueDeliversTheNewestOnDemand() {
    let subject = CurrentValueSubject<Int, Never>(0)
    let recorder = Recorder<Int, Never>(.none)
    subject.subscribe(recorder)
    subject.value = 1
    subject.value += 1
    recorder.request(1)
    subject.send(3)
    subject.send(4)
    recorder.request(2)
    #expect(recorder.values == [2, 4])
    subject.send(5)
    #expect(recorder.values == [2, 4, 5])
  }

  @Test func currentValueSentInsideReceiveReachesAll() {
    let subject = CurrentValueSubject<Int, Never>(0)
    let first = Recorder<Int, Never> { _, value in
      if value < 3 { subject.send(value + 1) }
      return .none
    }
    let second = Recorder<Int, Never>()
    subject.subscribe(second)
    subject.subscribe(first)
    #expect(first.values == [0, 1, 2, 3])
    #expect(second.values == [0, 1, 2, 3])
    #expect(subject.value == 3)
  }

  @Test func currentValueIsDeliveredImmediatelyInsideReceive() {  // row 18
    let subject = CurrentValueSubject<Int, Never>(0)
    let late = Recorder<Int, Never>()
    var seen: [Int] = []
    let recorder = Recorder<Int, Never> { _, value in
      guard value == 1 else { return .none }
      subject.send(2)
      subject.subscribe(late)
      seen = late.values + [subject.value]
      subject.send(3)
      return .none
    }
    subject.subscribe(recorder)
    subject.send(1)
    #expect(seen == [2, 2])
    #expect(recorder.values == [0, 1, 2, 3])
    #expect(late.values == [2, 3])
  }

  @Test func demandInsideReceiveDeliversTheNewestAfterwards() {
    let subject = CurrentValueSubject<Int, Never>(0)
    let hesitant = Recorder<Int, Never>(.none)
    subject.subscribe(hesitant)
    let recorder = Recorder<Int, Never> { _, value in
      if value == 1 { hesitant.request(1) }
      return .none
    }
    subject.subscribe(recorder)
    subject.send(1)
    #expect(hesitant.values == [1])
  }

  @Test func replacedValueMaySendFromItsDeinitialiser() {  // row 18
    final class Noisy: Sendable {
      let gone: @Sendable () -> Void
      init(_ gone: @escaping @Sendable () -> Void) { self.gone = gone }
      deinit { gone() }
    }
    let subject = CurrentValueSubject<Noisy, Never>(Noisy {})
    nonisolated(unsafe) var count = 0
    let sink = subject.sink { _ in count += 1 }
    subject.send(Noisy { [weak subject] in subject?.send(Noisy {}) })
    subject.send(Noisy {})
    #expect(count == 4)
    sink.cancel()
  }

  @Test func cancelledSubscriberIsReleasedImmediately() {  // row 20
    let subject = PassthroughSubject<Int, Never>()
    weak var subscriber: Recorder<Int, Never>?
    var subscriptions: [any Subscription] = []
    for _ in 0..<10 {
      let recorder = Recorder<Int, Never>()
      subscriber = recorder
      subject.subscribe(recorder)
      if let subscription = recorder.subscription { subscriptions.append(subscription) }
      recorder.cancel()
    }
    #expect(subscriber == nil)
  }

  @Test func currentValueStaysReadableAfterTheEnd() {
    let subject = CurrentValueSubject<Int, Never>(1)
    let starved = Recorder<Int, Never>(.none)
    subject.subscribe(starved)
    subject.send(completion: .finished)
    subject.send(2)
    let late = Recorder<Int, Never>()
    subject.subscribe(late)
    #expect(subject.value == 1)
    #expect(starved.signals == [.subscribed, .finished])
    #expect(late.signals == [.subscribed, .finished])
  }

  @Test func replayDeliversTheLastValuesThenTheEnd() {
    let subject = ReplaySubject<Int, TestError>(bufferSize: 2)
    (1...4).forEach(subject.send)
    subject.send(completion: .failure(TestError()))
    let recorder = Recorder<Int, TestError>(.max(1))
    subject.subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value(3)])
    recorder.request(1)
    #expect(recorder.signals == [.subscribed, .value(3), .value(4), .failed])
  }
}
