import Reactive
import Testing

// Properties of every operator that programs written for Combine depend on.
extension ContractTests {
  /// A current value that does not change is delivered once, also when demand returns several times.
  @Test(arguments: OperatorCase.all)
  func deliversEachCurrentValueOnce(_ operation: OperatorCase) {
    let subject = CurrentValueSubject<Int, TestError>(1)
    let watcher = Watcher()
    let attached = operation.attach(CountingSource(standingFor: subject), watcher)
    func request(_ count: Int) {
      for _ in 0..<count {
        watcher.request(.max(1))
        attached.settle()
      }
    }
    for value in 2...4 {
      request(20)
      let values = watcher.values
      request(20)
      #expect(watcher.values == values)
      subject.value = value
    }
    #expect(watcher.breaches == [])
  }

  enum Ending: CaseIterable { case finished, failed, cancelled }

  /// Also if upstream retains its subscriber and the program retains the cancellable.
  @Test(arguments: OperatorCase.all, Ending.allCases)
  func sinkReleasesItsClosures(_ operation: OperatorCase, ending: Ending) {
    final class Token {}
    let ends: [Ending: Subscribers.Completion<TestError>] = [.finished: .finished, .failed: .failure(TestError())]
    let source = CountingSource(4, end: ends[ending])
    weak var token: Token?
    var held: AnyCancellable?
    do {
      let captured = Token()
      token = captured
      let (sink, settle) = operation.sink(source) { _ in _ = captured }
      settle()
      if ending == .cancelled { sink.cancel() }
      settle()
      held = sink
    }
    #expect(token == nil)
    withExtendedLifetime((source, held)) {}
  }

  /// Operators that subscribe to upstream again, or whose closure captures it.
  private static let needingUpstream: Set = [
    "retry", "shareReplay", "catch with the same", "tryCatch", "append a publisher", "prepend a publisher", "flatMap",
    "flatMap one at a time", "switchToLatest",
  ]

  @Test(arguments: OperatorCase.all.filter { !needingUpstream.contains($0.testDescription) })
  func subscriptionDoesNotHoldThePublisher(_ operation: OperatorCase) {
    let subject = PassthroughSubject<Int, TestError>()
    let watcher = Watcher(.unlimited)
    weak var publisher: CountingSource?
    var settle: (() -> Void)?
    do {
      let source = CountingSource(standingFor: subject)
      publisher = source
      let attached = operation.attach(source, watcher)
      attached.settle()
      subject.send(0)
      settle = attached.settle
    }
    #expect(publisher == nil)
    settle?()
    subject.send(1)
    subject.send(completion: .finished)
    settle?()
    #expect(watcher.completions == 1)
    #expect(watcher.breaches == [])
  }

  /// Values without a subscription are delivered as with one.
  @Test(arguments: OperatorCase.all)
  func deliversWithoutASubscription(_ operation: OperatorCase) {
    func signals(from source: CountingSource) -> [String] {
      var signals: [String] = []
      let (sink, settle) = operation.sink(source) { signals.append($0) }
      settle()
      sink.cancel()
      return signals
    }
    let expected = signals(from: CountingSource(8))
    #expect(signals(from: CountingSource(standingFor: WithoutSubscription(count: 8))) == expected)
    #expect(!expected.isEmpty)
  }
}
