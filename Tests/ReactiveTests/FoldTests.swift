import Reactive
import Testing

// Operators with one result, and operators that continue with another publisher. Demand, order and release are tested
// by the contract suite.
@Suite struct FoldTests {
  private func signals<P: Publisher>(of publisher: P) -> [Signal<P.Output>] where P.Output: Equatable & Sendable {
    let recorder = Recorder<P.Output, P.Failure>()
    publisher.subscribe(recorder)
    return recorder.signals
  }

  /// The only value before the completion.
  private func answer<P: Publisher>(of publisher: P) -> P.Output? where P.Output: Equatable & Sendable {
    let signals = signals(of: publisher)
    guard signals.count == 3, case .value(let value) = signals[1], signals[2] == .finished else { return nil }
    return value
  }

  @Test func foldsDeliverOneValue() {
    let numbers = [3, 1, 4, 1, 5].publisher
    #expect(answer(of: numbers.reduce(0, +)) == 14)
    #expect(answer(of: numbers.tryReduce(0) { $0 + $1 }) == 14)
    #expect(answer(of: numbers.collect()) == [3, 1, 4, 1, 5])
    #expect(answer(of: numbers.count()) == 5)
    #expect(answer(of: numbers.max()) == 5)
    #expect(answer(of: numbers.min()) == 1)
    #expect(answer(of: numbers.tryMin { $0 < $1 }) == 1)
    #expect(answer(of: numbers.last()) == 5)
    #expect(answer(of: numbers.last { $0 < 4 }) == 1)
    #expect(answer(of: numbers.tryLast { $0 > 3 }) == 5)
    #expect(signals(of: numbers.ignoreOutput()) == [.subscribed, .finished])
  }

  @Test func foldsOfNoValuesDeliverTheirInitialResultOrFinish() {
    let none = [Int]().publisher
    #expect(answer(of: none.reduce(7, +)) == 7)
    #expect(answer(of: none.collect()) == [])
    #expect(answer(of: none.count()) == 0)
    #expect(signals(of: none.max()) == [.subscribed, .finished])
    #expect(signals(of: none.last()) == [.subscribed, .finished])
    #expect(signals(of: none.collect(2)) == [.subscribed, .finished])
  }

  @Test func decisiveValueEndsAFold() {
    let probe = Probe<Int, Never>()
    let recorder = Recorder<Bool, Never>()
    probe.contains(2).subscribe(recorder)
    probe.send(1)
    probe.send(2)
    #expect(recorder.signals == [.subscribed, .value(true), .finished])
    #expect(probe.state.cancels == 1 && probe.requested == .unlimited)
    #expect(answer(of: [1, 2].publisher.contains(3)) == false)
    #expect(answer(of: [1, 2].publisher.contains { $0 > 1 }) == true)
    #expect(answer(of: [1, 2].publisher.allSatisfy { $0 > 1 }) == false)
    #expect(answer(of: [1, 2].publisher.tryAllSatisfy { $0 > 0 }) == true)
  }

  @Test func resultWaitsForDemand() {
    let recorder = Recorder<Int, Never>(.none)
    [1, 2].publisher.count().subscribe(recorder)
    #expect(recorder.signals == [.subscribed])
    recorder.request(1)
    #expect(recorder.signals == [.subscribed, .value(2), .finished])
  }

  @Test func arraysHaveTheRequestedCountAndTheLastHasTheRest() {
    #expect(
      signals(of: (1...5).publisher.collect(2))
        == [.subscribed, .value([1, 2]), .value([3, 4]), .value([5]), .finished])
    let recorder = Recorder<[Int], Never>(.max(1))
    (1...5).publisher.collect(2).subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value([1, 2])])
  }

  @Test func arrayOfNoParticularCountHasAllValues() {
    #expect(signals(of: (1...5).publisher.collect(0)) == [.subscribed, .value([1, 2, 3, 4, 5]), .finished])
    let recorder = Recorder<[Int], Never>(.max(1))
    (1...5).publisher.collect(.byTimeOrCount(VirtualTimeScheduler(), .seconds(1), 0)).subscribe(recorder)
    #expect(recorder.signals == [.subscribed])
  }

  @Test func appendedAndPrependedValuesAreInOrder() {
    let both = [2, 3].publisher.append(4, 5).prepend([1]).append(Just(6))
    #expect(signals(of: both) == [.subscribed] + (1...6).map { .value($0) } + [.finished])
    let recorder = Recorder<Int, Never>(.max(3))
    both.subscribe(recorder)
    #expect(recorder.values == [1, 2, 3])
    recorder.request(2)
    #expect(recorder.values == [1, 2, 3, 4, 5])
  }

  @Test func suffixIsNotSubscribedToAfterAFailure() {
    let suffix = Probe<Int, TestError>()
    let failing = Fail<Int, TestError>(error: TestError()).append(suffix)
    #expect(signals(of: failing) == [.subscribed, .failed])
    #expect(suffix.state.subscriptions == 0)
  }

  @Test func catchContinuesWithTheOtherPublisher() {
    let failing = [1, 2].publisher.setFailureType(to: TestError.self).append(Fail(error: TestError()))
    #expect(
      signals(of: failing.catch { _ in [8, 9].publisher })
        == [.subscribed, .value(1), .value(2), .value(8), .value(9), .finished])
    #expect(signals(of: failing.replaceError(with: 7)) == [.subscribed, .value(1), .value(2), .value(7), .finished])
    #expect(signals(of: failing.tryCatch { throw $0 } as Publishers.TryCatch<_, Just<Int>>).last == .failed)
  }

  @Test func cancellationInsideCatchEndsTheSubscription() {
    let source = Probe<Int, TestError>()
    let (next, other) = (Probe<Int, Never>(), Probe<Int, any Error>())
    let caught = Recorder<Int, Never>()
    source.catch { _ in
      caught.cancel()
      return next
    }.subscribe(caught)
    source.send(completion: .failure(TestError()))
    let tried = Recorder<Int, any Error>()
    source.tryCatch { _ in
      tried.cancel()
      return other
    }.subscribe(tried)
    source.send(completion: .failure(TestError()))
    #expect(next.state.subscriptions == 0 && other.state.subscriptions == 0)
    #expect(caught.signals == [.subscribed] && tried.signals == [.subscribed])
  }

  @Test func retrySubscribesAgainUpToItsLimit() {
    let source = CountingSource(1, end: .failure(TestError()))
    #expect(signals(of: source.retry(2)) == [.subscribed, .value(0), .value(0), .value(0), .failed])
    #expect(source.subscriptions == 3)
  }

  @Test func unlimitedRetryOfAnImmediateFailureDoesNotRecurse() {  // row 17
    nonisolated(unsafe) var left = 100_000
    let failing = Deferred { () -> AnyPublisher<Int, TestError> in
      left -= 1
      return left > 0
        ? Fail(error: TestError()).eraseToAnyPublisher()
        : Just(1).setFailureType(to: TestError.self).eraseToAnyPublisher()
    }
    #expect(
      signals(of: Publishers.Retry(upstream: failing, retries: nil)) == [.subscribed, .value(1), .finished])
  }

  @Test func replaceEmptyAndReplaceErrorDeliverTheirValue() {
    #expect(signals(of: [Int]().publisher.replaceEmpty(with: 7)) == [.subscribed, .value(7), .finished])
    #expect(signals(of: [1].publisher.replaceEmpty(with: 7)) == [.subscribed, .value(1), .finished])
  }

  @Test func assertNoFailureStopsTheProgram() async {
    await #expect(processExitsWith: .failure) {
      _ = Fail<Int, TestError>(error: TestError()).assertNoFailure().sink { _ in }
    }
    #expect(signals(of: CountingSource(1).assertNoFailure()) == [.subscribed, .value(0), .finished])
  }
}
