import Reactive
import Testing

/// The example of the page "Coming from Combine".
private struct Numbered<Upstream: Publisher>: CompositePublisher {
  let upstream: Upstream
  var body: some Publisher<(Int, Upstream.Output), Upstream.Failure> {
    nonisolated(unsafe) var count = 0
    return upstream.map { value in
      defer { count += 1 }
      return (count, value)
    }
  }
}

@Suite struct OperatorTests {
  @Test func rangesMayHaveAnyBounds() {
    func values(_ range: some RangeExpression<Int>) -> [[Int]] {
      let (subject, recorder) = (PassthroughSubject<Int, Never>(), Recorder<Int, Never>())
      subject.output(in: range).subscribe(recorder)
      for value in 0...3 { subject.send(value) }
      subject.send(completion: .finished)
      #expect(recorder.isEnded)
      nonisolated(unsafe) var known: [Int] = []
      _ = Just(0).output(in: range).sink { known.append($0) }
      return [recorder.values, known]
    }
    #expect(values(-1..<1) == [[0], [0]] && values(-3 ... -1) == [[], []] && values(-2...1) == [[0, 1], [0]])
    #expect(values(..<(-1)) == [[], []] && values(...(-1)) == [[], []] && values(...0) == [[0], [0]])
    #expect(values((-5)...) == [[0, 1, 2, 3], [0]] && values(2...) == [[2, 3], []])
    #expect(values(0 ... .max) == [[0, 1, 2, 3], [0]] && values(...Int.max) == [[0, 1, 2, 3], [0]])
    #expect(values(Int.min ... .max) == [[0, 1, 2, 3], [0]] && values(Int.max ... .max) == [[], []])
    #expect(values(Int.min ..< .max) == [[0, 1, 2, 3], [0]] && values(Int.max...) == [[], []])
    #expect(values(0..<0) == [[], []] && values(1..<3) == [[1, 2], []])
  }

  @Test func countsMayBeAsLargeAsTheirType() {
    func values(_ publisher: some Publisher<Int, Never>) -> [Int] {
      nonisolated(unsafe) var values: [Int] = []
      _ = publisher.sink { values.append($0) }
      return values
    }
    let numbers = (0..<3).publisher.eraseToAnyPublisher()
    #expect(values(numbers.prefix(.max)) == [0, 1, 2] && values(numbers.dropFirst(.max)) == [])
    #expect(values(numbers.output(at: .max)) == [])
    #expect(values(numbers.collect(.max).flatMap(\.publisher)) == [0, 1, 2])
    #expect(values(numbers.buffer(size: .max, prefetch: .keepFull, whenFull: .dropNewest)) == [0, 1, 2])
    #expect(values(numbers.flatMap(maxPublishers: .max(.max)) { Just($0) }) == [0, 1, 2])
    nonisolated(unsafe) var attempts = 0
    let failing = Deferred { () -> AnyPublisher<Int, TestError> in
      attempts += 1
      return attempts < 5 ? Fail(error: TestError()).eraseToAnyPublisher() : Empty().eraseToAnyPublisher()
    }
    let recorder = Recorder<Int, TestError>()
    failing.retry(.min).subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .finished] && attempts == 5)
  }

  @Test func compositePublisherHasStateForEachSubscriber() {
    let numbered = Numbered(upstream: ["a", "b"].publisher).map { "\($0)\($1)" }
    #expect(signals(of: numbered) == [.subscribed, .value("0a"), .value("1b"), .finished])
    #expect(signals(of: numbered) == [.subscribed, .value("0a"), .value("1b"), .finished])
  }

  /// All signals that `publisher` sends to a subscriber with this demand.
  private func signals<P: Publisher>(
    of publisher: P, demand: Subscribers.Demand = .unlimited
  ) -> [Signal<P.Output>] where P.Output: Equatable & Sendable {
    let recorder = Recorder<P.Output, P.Failure>(demand)
    publisher.subscribe(recorder)
    return recorder.signals
  }

  @Test func mapDeliversTheResultsOfTheClosure() {
    #expect(signals(of: [1, 2].publisher.map { "\($0)" }) == [.subscribed, .value("1"), .value("2"), .finished])
  }

  @Test func tryMapFailsWithTheThrownErrorAndCancelsUpstream() {
    let probe = Probe<Int, Never>()
    let recorder = Recorder<Int, any Error>()
    probe.tryMap { value in if value == 2 { throw TestError() } else { value } }.subscribe(recorder)
    probe.send(1)
    probe.send(2)
    probe.send(3)
    probe.send(completion: .finished)
    #expect(recorder.signals == [.subscribed, .value(1), .failed])
    #expect(probe.state.cancels == 1)
  }

  @Test func omittedValuesUseNoDemand() {
    let even = (1...10).publisher.filter { $0.isMultiple(of: 2) }
    #expect(signals(of: even, demand: .max(2)) == [.subscribed, .value(2), .value(4)])
    let numbers = ["1", "x", "3", "4"].publisher.compactMap { Int($0) }
    #expect(signals(of: numbers, demand: .max(2)) == [.subscribed, .value(1), .value(3)])
    let changes = [1, 1, 2, 2, 3, 4].publisher.removeDuplicates()
    #expect(signals(of: changes, demand: .max(3)) == [.subscribed, .value(1), .value(2), .value(3)])
  }

  @Test func scanStartsAgainForEachSubscriber() {
    let sums = [1, 2, 3].publisher.scan(0, +)
    #expect(signals(of: sums) == [.subscribed, .value(1), .value(3), .value(6), .finished])
    #expect(signals(of: sums) == [.subscribed, .value(1), .value(3), .value(6), .finished])
  }

  @Test func prefixFinishesWithItsLastValue() {
    let probe = Probe<Int, Never>()
    let recorder = Recorder<Int, Never>()
    probe.prefix(2).subscribe(recorder)
    probe.send(1)
    probe.send(2)
    probe.send(3)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .finished])
    #expect(probe.state.cancels == 1)
  }

  @Test func prefixOfZeroFinishesImmediatelyAndRequestsNothing() {
    let probe = Probe<Int, Never>()
    let recorder = Recorder<Int, Never>()
    probe.prefix(0).subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .finished])
    #expect(probe.state.requested.isEmpty && probe.state.cancels == 1)
  }

  @Test func outputSelectsByIndex() {
    #expect(signals(of: (0..<9).publisher.output(in: 2..<4)) == [.subscribed, .value(2), .value(3), .finished])
    #expect(signals(of: (0..<9).publisher.output(in: 7...)) == [.subscribed, .value(7), .value(8), .finished])
    #expect(signals(of: (0..<9).publisher.output(at: 3)) == [.subscribed, .value(3), .finished])
  }

  @Test func firstFinishesWithTheFirstMatch() {
    #expect(signals(of: (1...5).publisher.first()) == [.subscribed, .value(1), .finished])
    #expect(signals(of: (1...5).publisher.first { $0 > 3 }, demand: .max(1)) == [.subscribed, .value(4), .finished])
    #expect(signals(of: (1...5).publisher.first { $0 > 9 }) == [.subscribed, .finished])
  }

  @Test func failuresAreMapped() {
    struct Other: Error, Equatable {}
    nonisolated(unsafe) var failure: Subscribers.Completion<Other>?
    let sink = Fail<Int, TestError>(error: TestError()).mapError { _ in Other() }
      .sink(receiveCompletion: { failure = $0 }, receiveValue: { _ in })
    sink.cancel()
    #expect(failure == .failure(Other()))
  }

  @Test func setFailureTypeChangesTheType() {
    let recorder = Recorder<Int, TestError>()
    Just(1).setFailureType(to: TestError.self).subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value(1), .finished])
  }

  @Test func handleEventsCallsItsClosuresBeforePassingSignalsOn() {
    nonisolated(unsafe) var log: [String] = []
    let recorder = Recorder<Int, Never>(.max(1)) { _, value in
      log.append("got \(value)")
      return value == 1 ? .max(1) : .none
    }
    let probe = Probe<Int, Never>()
    probe.handleEvents(
      receiveSubscription: { _ in log.append("subscription") }, receiveOutput: { log.append("value \($0)") },
      receiveCompletion: { _ in log.append("completion") }, receiveCancel: { log.append("cancel") },
      receiveRequest: { log.append("request \($0)") }
    ).subscribe(recorder)
    probe.send(1)
    recorder.cancel()
    recorder.cancel()
    probe.send(2)
    probe.send(completion: .finished)
    #expect(log == ["subscription", "request max(1)", "value 1", "got 1", "request max(1)", "cancel"])
  }
}
