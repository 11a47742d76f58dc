import Dispatch
import Reactive
import Testing

// Sharing with subjects, `Create` and pausable sinks.
@Suite struct ShareTests {
  @Test func shareSubscribesOnceWhileThereAreSubscribers() {  // rows 1, 3, 14
    let probe = Probe<Int, Never>()
    let shared = probe.share()
    let first = Recorder<Int, Never>()
    let second = Recorder<Int, Never>()
    shared.subscribe(first)
    shared.subscribe(second)
    probe.send(1)
    first.cancel()
    probe.send(2)
    #expect(probe.state.subscriptions == 1 && probe.state.cancels == 0 && probe.requested == .unlimited)
    second.cancel()
    #expect(probe.state.cancels == 1)
    #expect(first.values == [1] && second.values == [1, 2])
    let third = Recorder<Int, Never>()
    shared.subscribe(third)
    probe.send(3)
    #expect(probe.state.subscriptions == 2 && third.values == [3])
  }

  @Test func firstSubscriberOfShareReceivesAllValuesOfASynchronousSource() {  // rows 7, 14
    let recorder = Recorder<Int, Never>()
    let shared = (1...3).publisher.share()
    shared.subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .value(3), .finished])
    let late = Recorder<Int, Never>()
    shared.subscribe(late)
    #expect(late.signals == [.subscribed, .finished])
  }

  @Test func subscriberThatAttachesWhileConnectingSharesTheConnection() {
    let probe = Probe<Int, Never>()
    let second = Recorder<Int, Never>()
    nonisolated(unsafe) var attach: (() -> Void)?
    let shared = probe.handleEvents(receiveSubscription: { _ in attach.take()?() }).share()
    attach = { shared.subscribe(second) }
    let first = Recorder<Int, Never>()
    shared.subscribe(first)
    probe.send(1)
    #expect(first.values == [1] && second.values == [1] && probe.state.subscriptions == 1)
    first.cancel()
    #expect(probe.state.cancels == 0)
    second.cancel()
    #expect(probe.state.cancels == 1)
  }

  @Test func cancelWhileConnectingReleasesTheConnection() {  // row 4
    let recorder = Recorder<Int, Never> { recorder, _ in
      recorder.cancel()
      return .none
    }
    let probe = Probe<Int, Never> { $0.send(1) }
    probe.share().subscribe(recorder)
    #expect(probe.state.cancels == 1 && recorder.values == [1])
  }

  @Test func simultaneousSubscribersConnectOnceAndTheLastDisconnects() {  // rows 1, 2
    for _ in 0..<100 {
      let probe = Probe<Int, Never>()
      let shared = probe.share()
      DispatchQueue.concurrentPerform(iterations: 4) { _ in
        let recorder = Recorder<Int, Never>()
        shared.subscribe(recorder)
        recorder.cancel()
      }
      #expect(probe.state.subscriptions == probe.state.cancels)
    }
  }

  @Test func connectableDeliversNothingBeforeConnect() {
    let probe = Probe<Int, Never>()
    let connectable = probe.makeConnectable()
    let recorder = Recorder<Int, Never>()
    connectable.subscribe(recorder)
    #expect(probe.state.subscriptions == 0)
    let connection = connectable.connect()
    probe.send(1)
    connection.cancel()
    #expect(recorder.values == [1] && probe.state.cancels == 1)
  }

  @Test func multicastThroughAReplaySubjectReplays() {
    let subject = PassthroughSubject<Int, Never>()
    let shared = subject.multicast(subject: ReplaySubject(bufferSize: 2)).autoconnect()
    let early = Recorder<Int, Never>()
    shared.subscribe(early)
    (1...3).forEach(subject.send)
    let late = Recorder<Int, Never>()
    shared.subscribe(late)
    subject.send(completion: .finished)
    #expect(late.signals == [.subscribed, .value(2), .value(3), .finished])
    #expect(early.values == [1, 2, 3])
  }

  @Test func sharedSubscriptionIsReleased() {  // row 20
    weak var subscriber: Recorder<Int, Never>?
    let subject = PassthroughSubject<Int, Never>()
    let shared = subject.share()
    let subscription: (any Subscription)?
    do {
      let recorder = Recorder<Int, Never>()
      subscriber = recorder
      shared.subscribe(recorder)
      subscription = recorder.subscription
      recorder.cancel()
    }
    #expect(subscriber == nil)
    withExtendedLifetime(subscription) {}
  }
}

@Suite(.timeLimit(.minutes(10))) struct CreateTests {
  @Test func createDeliversAndCancels() {
    nonisolated(unsafe) var stopped = 0
    let created = Create<Int, Never> { subscriber in
      for number in [4, 2, 7] { subscriber.receive(number) }
      subscriber.receive(completion: .finished)
      subscriber.receive(9)
      return AnyCancellable { stopped += 1 }
    }
    let recorder = Recorder<Int, Never>()
    created.subscribe(recorder)
    #expect(recorder.signals == [.subscribed, .value(4), .value(2), .value(7), .finished])
    #expect(stopped == 1)
  }

  @Test func cancelStopsTheClosureOfCreate() {  // row 4
    nonisolated(unsafe) var stopped = 0
    nonisolated(unsafe) var receiver: Create<Int, Never>.Receiver?
    let recorder = Recorder<Int, Never>()
    Create<Int, Never> { subscriber in
      receiver = subscriber
      return AnyCancellable { stopped += 1 }
    }.subscribe(recorder)
    receiver?.receive(1)
    recorder.cancel()
    receiver?.receive(2)
    #expect(recorder.signals == [.subscribed, .value(1)] && stopped == 1)
  }

  @Test func valuesSentWithoutDemandAreDropped() {  // row 21
    nonisolated(unsafe) var receiver: Create<Int, Never>.Receiver?
    let recorder = Recorder<Int, Never>(.max(1))
    Create<Int, Never> { subscriber in
      receiver = subscriber
      return AnyCancellable {}
    }.subscribe(recorder)
    receiver?.receive(1)
    receiver?.receive(2)
    recorder.request(1)
    receiver?.receive(3)
    #expect(recorder.values == [1, 3])
  }

  @Test func workWithAContextWaitsForDemandAndEndsWithTheSubscription() async {
    let done = AsyncStream<Int>.makeStream()
    let created = Create<Int, Never> { subscriber, context in
      var number = 0
      while true {
        context.waitIfPaused()
        if context.cancelled { break }
        subscriber.receive(number)
        number += 1
      }
      done.continuation.yield(number)
    }
    let reached = AsyncStream<Void>.makeStream()
    let recorder = Recorder<Int, Never>(.max(3)) { recorder, value in
      if value == 2 { reached.continuation.yield() }
      if value == 5 { recorder.cancel() }
      return .none
    }
    created.subscribe(recorder)
    for await _ in reached.stream { break }
    #expect(recorder.values == [0, 1, 2])
    recorder.request(.unlimited)
    for await count in done.stream {
      #expect(count >= 6)
      break
    }
    #expect(recorder.values == [0, 1, 2, 3, 4, 5])
  }
}

@Suite struct PausableTests {
  @Test func pausedSinkReceivesNothingUntilResume() {  // row 31
    nonisolated(unsafe) var values: [Int] = []
    nonisolated(unsafe) var isFinished = false
    let sink = (1...4).publisher.pausableSink(
      receiveCompletion: { _ in isFinished = true },
      receiveValue: { value in
        values.append(value)
        return value.isMultiple(of: 2) == false
      })
    #expect(values == [1, 2] && sink.paused)
    sink.resume()
    #expect(values == [1, 2, 3, 4] && isFinished)
    sink.resume()
    sink.cancel()
  }

  @Test func pausingKeepsTheOutstandingDemand() {  // row 31
    let probe = Probe<Int, Never>()
    let sink = probe.pausableSink(receiveCompletion: { _ in }, receiveValue: { _ in false })
    #expect(probe.requested == .max(1))
    #expect(probe.send(1) == .none)
    sink.resume()
    #expect(!sink.paused && probe.requested == .max(2))
    sink.cancel()
    #expect(probe.state.cancels == 1)
  }
}
