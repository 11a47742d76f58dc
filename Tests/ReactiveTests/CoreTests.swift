import Reactive
import Testing

@Suite struct CoreTests {
  @Test func sinkReceivesAllValuesThenTheCompletion() {
    nonisolated(unsafe) var log: [String] = []
    let sink = [1, 2, 3].publisher.sink(
      receiveCompletion: { log.append("\($0)") }, receiveValue: { log.append("\($0)") })
    withExtendedLifetime(sink) { #expect(log == ["1", "2", "3", "finished"]) }
  }

  @Test func releasingTheCancellableEndsTheSubscription() {
    let subject = PassthroughSubject<Int, Never>()
    nonisolated(unsafe) var values: [Int] = []
    var sinks: Set<AnyCancellable> = []
    subject.sink { values.append($0) }.store(in: &sinks)
    subject.send(1)
    sinks.removeAll()
    subject.send(2)
    #expect(values == [1])
  }

  @Test func cancellingTwiceCancelsOnce() {  // row 4
    nonisolated(unsafe) var count = 0
    let cancellable = AnyCancellable { count += 1 }
    cancellable.cancel()
    cancellable.cancel()
    #expect(count == 1)
  }

  @Test func cancellablesCanBeKeptInAnArray() {
    nonisolated(unsafe) var count = 0
    var kept: [AnyCancellable] = []
    AnyCancellable { count += 1 }.store(in: &kept)
    #expect(count == 0)
    kept = []
    #expect(count == 1)
  }

  @Test func sequenceDeliversOnlyRequestedValues() {  // row 15
    let recorder = Recorder<Int, Never>(.max(2))
    (1...4).publisher.subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2)])
    recorder.request(2)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .value(3), .value(4), .finished])
  }

  @Test func demandReturnedFromReceiveIsAdditional() {  // row 16
    let recorder = Recorder<Int, Never>(.max(1)) { _, value in value < 3 ? .max(1) : .none }
    (1...5).publisher.subscribe(recorder)
    #expect(recorder.values == [1, 2, 3])
  }

  @Test func requestInsideReceiveDoesNotRecurse() {  // row 17; the recorder traps if signals overlap
    let recorder = Recorder<Int, Never>(.max(1)) { recorder, _ in
      recorder.request(1)
      return .none
    }
    (0..<100_000).publisher.subscribe(recorder)
    #expect(recorder.values.count == 100_000)
    #expect(recorder.isEnded)
  }

  @Test func cancelInsideReceiveStopsImmediately() {  // row 18
    let recorder = Recorder<Int, Never> { recorder, value in
      if value == 2 { recorder.cancel() }
      return .none
    }
    (1...5).publisher.subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2)])
  }

  @Test func emptySequenceFinishesWithoutDemand() {  // row 13
    let recorder = Recorder<Int, Never>(.none)
    [Int]().publisher.subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .finished])
  }

  @Test func justDeliversOnTheFirstDemandThenFinishes() {
    let recorder = Recorder<Int, Never>(.none)
    Just(7).subscribe(recorder)
    #expect(recorder.signals == [.subscribed])
    recorder.request(1)
    #expect(recorder.signals == [.subscribed, .value(7), .finished])
  }

  @Test func emptyAndFailCompleteImmediately() {
    let ended = Recorder<Int, TestError>()
    Empty<Int, TestError>().subscribe(ended)
    #expect(ended.signals == [.subscribed, .finished])
    let silent = Recorder<Int, TestError>()
    Empty<Int, TestError>(completeImmediately: false).subscribe(silent)
    #expect(silent.signals == [.subscribed])
    let failed = Recorder<Int, TestError>()
    Fail<Int, TestError>(error: TestError()).subscribe(failed)
    #expect(failed.signals == [.subscribed, .failed])
  }

  @Test func erasedPublisherKeepsDemand() {
    let recorder = Recorder<Int, Never>(.max(2))
    (1...4).publisher.eraseToAnyPublisher().eraseToAnyPublisher().subscribe(AnySubscriber(recorder))
    #expect(recorder.values == [1, 2])
  }

  @Test func subscriberAcceptsOneSubscription() {
    let first = Probe<Int, Never>()
    let second = Probe<Int, Never>()
    let sink = Subscribers.Sink<Int, Never>(receiveCompletion: { _ in }, receiveValue: { _ in })
    first.subscribe(sink)
    second.subscribe(sink)
    #expect(first.state.cancels == 0)
    #expect(second.state.cancels == 1)
  }

  @Test func subscriptionThatArrivesAfterCancelIsCancelled() {  // row 4
    let probe = Probe<Int, Never>()
    let sink = Subscribers.Sink<Int, Never>(receiveCompletion: { _ in }, receiveValue: { _ in })
    sink.cancel()
    probe.subscribe(sink)
    #expect(probe.state.cancels == 1)
    #expect(probe.state.requested.isEmpty)
  }

  @Test func assignWritesTheProperty() {
    final class Target { var value = 0 }
    let target = Target()
    let cancellable = [1, 2].publisher.assign(to: \.value, on: target)
    withExtendedLifetime(cancellable) { #expect(target.value == 2) }
  }

  @Test func nothingIsRetainedAfterTheEnd() {  // row 20
    final class Token: Sendable {}
    weak var finished: Token?
    weak var cancelled: Token?
    let subject = PassthroughSubject<Int, Never>()
    do {
      let token = Token()
      finished = token
      _ = [1].publisher.map { $0 }.filter { _ in true }.sink { _ in _ = token }
      let other = Token()
      cancelled = other
      subject.map { $0 }.removeDuplicates().sink { _ in _ = other }.cancel()
    }
    #expect(finished == nil)
    #expect(cancelled == nil)
  }
}
