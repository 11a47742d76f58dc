import Reactive
import Testing

// Publishers without an upstream.
@Suite struct SourceTests {
  @Test func futureRunsOnce() {
    nonisolated(unsafe) var count = 0
    nonisolated(unsafe) var promise: Future<Int, TestError>.Promise?
    let future = Future<Int, TestError> {
      count += 1
      promise = $0
    }
    let early = Recorder<Int, TestError>()
    let hesitant = Recorder<Int, TestError>(.none)
    let gone = Recorder<Int, TestError>()
    future.subscribe(early)
    future.subscribe(hesitant)
    future.subscribe(gone)
    gone.cancel()
    promise?(.success(7))
    promise?(.failure(TestError()))
    let late = Recorder<Int, TestError>()
    future.subscribe(late)
    #expect(early.signals == [.subscribed, .value(7), .finished] && late.signals == early.signals)
    #expect(hesitant.signals == [.subscribed] && gone.signals == [.subscribed])
    hesitant.request(1)
    #expect(hesitant.signals == early.signals && count == 1)
  }

  @Test func futureFailsWithoutDemand() {  // row 13
    let recorder = Recorder<Int, TestError>(.none)
    Future<Int, TestError> { $0(.failure(TestError())) }.subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .failed])
  }

  @Test func futureReleasesCancelledSubscribers() {  // row 20
    let future = Future<Int, Never> { _ in }
    weak var subscriber: Recorder<Int, Never>?
    do {
      let recorder = Recorder<Int, Never>()
      subscriber = recorder
      future.subscribe(recorder)
      recorder.cancel()
    }
    #expect(subscriber == nil)
  }

  @Test func futureCanBeAwaited() async throws {
    #expect(await Future<Int, Never> { $0(.success(1)) }.value == 1)
    await #expect(throws: TestError.self) {
      try await Future<Int, TestError> { $0(.failure(TestError())) }.value
    }
  }

  @Test func deferredCreatesAPublisherForEachSubscriber() {
    nonisolated(unsafe) var count = 0
    let deferred = Deferred { () -> Just<Int> in
      count += 1
      return Just(count)
    }
    for round in 1...2 {
      let recorder = Recorder<Int, Never>()
      deferred.subscribe(recorder)
      #expect(recorder.signals == [.subscribed, .value(round), .finished])
    }
  }

  @Test func recordIsDeliveredOnDemand() {
    let record = Record<Int, TestError> {
      $0.receive(1)
      $0.receive(2)
      $0.receive(completion: .failure(TestError()))
    }
    let recorder = Recorder<Int, TestError>(.max(1))
    record.subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value(1)])
    recorder.request(1)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .failed])
    #expect(record.recording.output == [1, 2])
  }

  @Test func optionalAndResultDeliverTheirValue() {
    let some = Recorder<Int, Never>()
    Optional(1).publisher.subscribe(some)
    #expect(some.signals == [.subscribed, .value(1), .finished])
    let none = Recorder<Int, Never>(.none)
    Int?.none.publisher.subscribe(none)
    #expect(none.signals == [.subscribed, .finished])
    let success = Recorder<Int, TestError>()
    Result<Int, TestError>.success(1).publisher.subscribe(success)
    #expect(success.signals == [.subscribed, .value(1), .finished])
    let failure = Recorder<Int, TestError>(.none)
    Result<Int, TestError>.failure(TestError()).publisher.subscribe(failure)
    #expect(failure.signals == [.subscribed, .failed])
  }
}
