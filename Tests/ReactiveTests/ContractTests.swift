import Dispatch
import Reactive
import Testing

// The obligations of every operator to its subscriber and its upstream, and the release of memory. Also run under the
// thread sanitizer.
@Suite(.timeLimit(.minutes(10))) struct ContractTests {
  @Test(arguments: OperatorCase.all, [true, false])
  func deliversExactlyTheRequestedValues(_ operation: OperatorCase, isPrompt: Bool) {  // rows 15, 16
    let source = CountingSource(40, isPrompt: isPrompt)
    let watcher = Watcher { $0.values.isMultiple(of: 5) ? .max(1) : .none }
    let attached = operation.attach(source, watcher)
    func settle() {
      source.pump()
      attached.settle()
    }
    settle()
    #expect(watcher.values == 0)
    for _ in 0..<10 {
      watcher.request(.max(1))
      settle()
    }
    watcher.request(.unlimited)
    settle()
    #expect(watcher.completions == 1)
    #expect(watcher.breaches == [])
  }

  /// Operators whose demand is not bounded by their subscriber's: their result depends on all values, they drop values
  /// without demand, or they have any number of upstreams.
  private static let takingEverything: Set = [
    "reduce", "collect", "count", "max", "max by", "min", "min by", "tryMax", "last", "last where",
    "tryLast where", "ignoreOutput", "contains where", "tryAllSatisfy", "merge of six", "merge of eight", "flatMap",
    "flatMap into publishers that never fail", "share", "multicast", "makeConnectable", "switchToLatest", "Create",
    "pausableSink", "debounce", "throttle", "collect by time", "buffer by request",
  ]

  @Test(arguments: OperatorCase.all)
  func requestsNoMoreThanItNeeds(_ operation: OperatorCase) {  // row 21
    let source = CountingSource(1000)
    let watcher = Watcher()
    let attached = operation.attach(source, watcher)
    watcher.request(.max(3))
    attached.settle()
    #expect((source.sent > 50) == Self.takingEverything.contains(operation.testDescription), "\(source.sent)")
  }

  @Test(arguments: OperatorCase.all)
  func subscriptionDescribesItselfByName(_ operation: OperatorCase) {
    let watcher = Watcher()
    let attached = operation.attach(CountingSource(1), watcher)
    attached.settle()
    #expect(watcher.subscriptionName.wholeMatch(of: /[A-Z][A-Za-z]+/) != nil, "\(watcher.subscriptionName)")
  }

  @Test(arguments: OperatorCase.all)
  func sendsNothingAfterTheEnd(_ operation: OperatorCase) {  // row 20
    let source = CountingSource(40)
    let watcher = Watcher(.unlimited)
    let attached = operation.attach(source, watcher)
    attached.settle()
    let values = watcher.values
    source.misbehave()
    watcher.request(.max(3))
    watcher.cancel()
    source.misbehave()
    attached.settle()
    #expect(watcher.values == values && watcher.completions == 1)
    #expect(watcher.breaches == [])
  }

  @Test(arguments: OperatorCase.all)
  func sendsNothingAfterCancel(_ operation: OperatorCase) {  // rows 4, 20
    let source = CountingSource(4, end: nil)
    let watcher = Watcher(.unlimited)
    let attached = operation.attach(source, watcher)
    attached.settle()
    watcher.cancel()
    watcher.cancel()
    #expect(source.cancels == source.subscriptions)
    watcher.request(.max(3))
    source.misbehave()
    attached.settle()
    #expect(watcher.completions <= 1)
    #expect(watcher.breaches == [])
  }

  @Test(arguments: OperatorCase.all)
  func endsOnceWhenUpstreamFails(_ operation: OperatorCase) {  // row 13
    let source = CountingSource(3, end: .failure(TestError()))
    let watcher = Watcher(.unlimited)
    operation.attach(source, watcher).settle()
    #expect(watcher.completions == 1)
    #expect(watcher.breaches == [])
  }

  @Test(arguments: OperatorCase.all)
  func endsWithoutDemandWhenUpstreamIsEmpty(_ operation: OperatorCase) {  // row 13
    let source = CountingSource(0)
    let watcher = Watcher()
    let attached = operation.attach(source, watcher)
    attached.settle()
    watcher.request(.max(1))
    attached.settle()
    watcher.request(.unlimited)
    attached.settle()
    #expect(watcher.completions == 1)
    #expect(watcher.breaches == [])
  }

  @Test(arguments: OperatorCase.all)
  func acceptsRequestsInsideReceive(_ operation: OperatorCase) {  // rows 17, 18
    let source = CountingSource(2000)
    let watcher = Watcher(.max(1)) { watcher in
      watcher.request(.max(1))
      return .none
    }
    operation.attach(source, watcher).settle()
    #expect(watcher.completions == 1)
    #expect(watcher.breaches == [])
  }

  @Test(arguments: OperatorCase.all)
  func stopsWhenCancelledInsideReceive(_ operation: OperatorCase) {  // row 18
    let source = CountingSource(40)
    let watcher = Watcher(.unlimited) { watcher in
      watcher.cancel()
      return .max(1)
    }
    operation.attach(source, watcher).settle()
    #expect(watcher.values <= 1)
    #expect(watcher.breaches == [])
  }

  @Test(arguments: OperatorCase.all)
  func acceptsASubscriberInsideReceive(_ operation: OperatorCase) {  // row 18
    let inner = Watcher(.unlimited)
    let outer = Watcher(.unlimited) { watcher in
      if watcher.values == 1 { operation.attach(CountingSource(40), inner).settle() }
      return .none
    }
    operation.attach(CountingSource(40), outer).settle()
    #expect(inner.completions == (outer.values > 0 ? 1 : 0) && inner.values == outer.values)
    #expect(inner.breaches == [] && outer.breaches == [])
  }

  @Test(arguments: OperatorCase.all, [true, false])
  func releasesSubscriberAndUpstreamAtTheEnd(_ operation: OperatorCase, isCancelled: Bool) {  // rows 18, 20
    let source = CountingSource(4, end: isCancelled ? nil : .finished)
    let watcher = Watcher(.unlimited)
    weak var subscriber: AnyObject?
    do {
      let attached = operation.attach(source, watcher)
      attached.settle()
      subscriber = attached.subscriber
      if isCancelled { watcher.cancel() }
      attached.settle()
    }
    source.forget()
    #expect(subscriber == nil)
    #expect(source.links.isEmpty)
    withExtendedLifetime(watcher) {}  // it holds the subscription
  }

  @Test(arguments: OperatorCase.all)
  func signalsFromSeveralThreadsDoNotOverlap(_ operation: OperatorCase) {  // rows 15, 17, 19
    let source = CountingSource(200, isPrompt: false)
    let watcher = Watcher()
    let attached = operation.attach(source, watcher)
    DispatchQueue.concurrentPerform(iterations: 3) { index in
      for _ in 0..<100 {
        if index > 0 { watcher.request(.max(1)) }
        source.pump()
      }
    }
    watcher.request(.unlimited)
    source.pump()
    attached.settle()
    #expect(watcher.completions == 1)
    #expect(watcher.breaches == [])
  }

  @Test(arguments: OperatorCase.all)
  func cancelMayOverlapSignals(_ operation: OperatorCase) {  // rows 4, 20
    for _ in 0..<20 {
      let source = CountingSource(50, end: nil, isPrompt: false)
      let watcher = Watcher(.unlimited)
      let attached = operation.attach(source, watcher)
      DispatchQueue.concurrentPerform(iterations: 2) { index in
        if index == 0 { source.pump() } else { watcher.cancelWhileSignalled() }
      }
      attached.settle()
      #expect(source.cancels == source.subscriptions)
      #expect(watcher.breaches == [])
    }
  }
}
