import Dispatch
import Synchronization
import Testing

@testable import Reactive

// Several threads. Also run under the thread sanitizer; the recorders trap if signals overlap.
@Suite struct ConcurrencyTests {
  private func concurrently(_ count: Int, _ body: @Sendable (Int) -> Void) {
    DispatchQueue.concurrentPerform(iterations: count, execute: body)
  }

  @Test func simultaneousFirstSubscribersConnectOnce() {  // row 1
    for _ in 0..<200 {
      let probe = Probe<Int, Never>()
      let shared = probe.shareReplay(1)
      let recorders = (0..<4).map { _ in Recorder<Int, Never>() }
      concurrently(4) { shared.subscribe(recorders[$0]) }
      #expect(probe.state.subscriptions == 1)
      #expect(shared.log.subscriberCount == 4)
      probe.send(1)
      for recorder in recorders { #expect(recorder.signals == [.subscribed, .value(1)]) }
    }
  }

  @Test func subscribersThatJoinDuringAStreamMissNothing() {  // rows 12, 19
    for _ in 0..<20 {
      let subject = ReplaySubject<Int, Never>(bufferSize: .max)
      let recorders = (0..<3).map { _ in Recorder<Int, Never>() }
      concurrently(4) { index in
        if index > 0 { return subject.subscribe(recorders[index - 1]) }
        (0..<1000).forEach(subject.send)
        subject.send(completion: .finished)
      }
      for recorder in recorders { #expect(recorder.values == Array(0..<1000) && recorder.isEnded) }
    }
  }

  @Test func severalSendersReachASubscriberOneAtATime() {  // row 19
    let subject = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>()
    subject.subscribe(recorder)
    concurrently(4) { sender in
      for number in 0..<1000 { subject.send(sender * 1000 + number) }
    }
    for sender in 0..<4 {
      #expect(recorder.values.filter { $0 / 1000 == sender } == Array(sender * 1000..<(sender + 1) * 1000))
    }
  }

  @Test func requestsFromSeveralThreadsAddUp() {  // row 15
    let recorder = Recorder<Int, Never>(.none)
    let shared = (0..<100_000).publisher.shareReplay(capacity: .max)
    shared.subscribe(recorder)
    concurrently(4) { _ in
      for _ in 0..<500 { recorder.request(2) }
    }
    #expect(recorder.values == Array(0..<4000))
  }

  @Test func cancelFromAnotherThreadEndsDelivery() {  // rows 4, 20
    for _ in 0..<100 {
      let subject = PassthroughSubject<Int, Never>()
      let shared = subject.shareReplay(4)
      let recorder = Recorder<Int, Never>()
      shared.map { $0 }.subscribe(recorder)
      concurrently(2) { index in
        if index == 0 { (0..<100).forEach(subject.send) } else { recorder.cancel() }
      }
      let count = recorder.values.count
      subject.send(1)
      #expect(recorder.values.count == count)
      #expect(!shared.log.isConnected)
    }
  }

  @Test func concurrentSubscribingAndCancellingLeavesNoSubscription() {  // row 2
    let probe = Probe<Int, Never>()
    let shared = probe.shareReplay(2)
    concurrently(4) { _ in
      for _ in 0..<500 {
        let recorder = Recorder<Int, Never>()
        shared.subscribe(recorder)
        recorder.cancel()
      }
    }
    #expect(shared.log.subscriberCount == 0 && !shared.log.isConnected)
    #expect(probe.state.subscriptions == probe.state.cancels)
    let recorder = Recorder<Int, Never>()
    shared.subscribe(recorder)
    probe.send(1)
    #expect(recorder.values == [1])
  }

  @Test func lingerThatEndsWhileSubscribersJoinDisconnectsNone() {  // row 2
    let clock = ManualClock()
    let probe = Probe<Int, Never>()
    let shared = Publishers.ShareReplay(
      upstream: probe, capacity: 1, start: .whileSubscribed(linger: .seconds(1)), schedule: clock.schedule)
    for _ in 0..<300 {
      let first = Recorder<Int, Never>()
      shared.subscribe(first)
      first.cancel()
      let second = Recorder<Int, Never>()
      concurrently(2) { index in
        if index == 0 { clock.all.last?.body() } else { shared.subscribe(second) }
      }
      #expect(shared.log.isConnected)
      let count = second.values.count
      probe.send(1)
      #expect(second.values.count == count + 1)
      second.cancel()
      clock.all.last?.body()
      #expect(!shared.log.isConnected)
    }
  }

  @Test func endReachesAllSubscribersThatJoinMeanwhile() {  // rows 5, 13
    for _ in 0..<200 {
      let subject = PassthroughSubject<Int, TestError>()
      let shared = subject.shareReplay(capacity: 3, start: .fromFirstSubscriber)
      let recorders = (0..<3).map { _ in Recorder<Int, TestError>() }
      shared.subscribe(recorders[0])
      subject.send(1)
      concurrently(3) { index in
        if index > 0 { return shared.subscribe(recorders[index]) }
        subject.send(completion: .failure(TestError()))
      }
      for recorder in recorders { #expect(recorder.signals == [.subscribed, .value(1), .failed]) }
    }
  }

  @Test func newSubscribersOfACurrentValueReceiveItOnceAndAllLaterValues() {  // rows 12, 19
    for _ in 0..<50 {
      let subject = CurrentValueSubject<Int, Never>(0)
      let recorders = (0..<3).map { _ in Recorder<Int, Never>() }
      concurrently(4) { index in
        if index == 0 { return (1...200).forEach(subject.send) }
        subject.subscribe(recorders[index - 1])
        #expect(!recorders[index - 1].values.isEmpty)
      }
      subject.send(201)
      for recorder in recorders {
        let first = recorder.values.first ?? 0
        #expect(recorder.values == Array(first...201))
      }
    }
  }

  @Test func concurrentDemandForACurrentValueIsNotLost() {  // row 15
    for _ in 0..<50 {
      let subject = CurrentValueSubject<Int, Never>(0)
      let recorder = Recorder<Int, Never>(.none)
      subject.subscribe(recorder)
      concurrently(2) { index in
        for number in 1...100 {
          if index == 0 { subject.send(number) } else { recorder.request(1) }
        }
      }
      recorder.request(1)
      #expect(recorder.values.last == 100 && recorder.values.count <= 101)
    }
  }

  @Test func subscribersJoinAndLeaveWhileASubjectSends() {  // rows 4, 20
    let subject = PassthroughSubject<Int, Never>()
    let steady = Recorder<Int, Never>()
    subject.subscribe(steady)
    concurrently(3) { index in
      for number in 0..<500 {
        if index == 0 {
          subject.send(number)
        } else {
          let recorder = Recorder<Int, Never>()
          subject.subscribe(recorder)
          recorder.cancel()
        }
      }
    }
    #expect(steady.values == Array(0..<500))
  }

  @Test func concurrentCancellationsCancelUpstreamOnce() {  // row 4
    for _ in 0..<200 {
      let probe = Probe<Int, Never>()
      let recorder = Recorder<Int, Never>()
      probe.map { $0 }.subscribe(recorder)
      concurrently(3) { index in
        if index == 0 { recorder.request(1) } else { recorder.cancel() }
      }
      #expect(probe.state.cancels == 1)
    }
  }
}
