import Reactive
import Testing

@Suite struct BufferTests {
  private let probe = Probe<Int, TestError>()
  private let recorder = Recorder<Int, TestError>(.none)

  @Test func keepFullRequestsAReplacementForEachDelivery() {
    probe.buffer(size: 3, prefetch: .keepFull, whenFull: .dropNewest).subscribe(recorder)
    #expect(probe.requested == .max(3))
    for value in 1...3 { probe.send(value) }
    #expect(recorder.values == [] && probe.requested == .max(3))
    recorder.request(2)
    #expect(recorder.values == [1, 2] && probe.requested == .max(5))
  }

  @Test func byRequestRequestsUnlimitedValues() {
    probe.buffer(size: 3, prefetch: .byRequest, whenFull: .dropNewest).subscribe(recorder)
    #expect(probe.requested == .unlimited)
  }

  @Test func fullBufferDropsTheNewestOrTheOldest() {
    probe.buffer(size: 2, prefetch: .byRequest, whenFull: .dropNewest).subscribe(recorder)
    for value in 1...4 { probe.send(value) }
    recorder.request(.unlimited)
    #expect(recorder.values == [1, 2])

    let other = Recorder<Int, TestError>(.none)
    probe.buffer(size: 2, prefetch: .byRequest, whenFull: .dropOldest).subscribe(other)
    for value in 1...4 { probe.send(value) }
    other.request(.unlimited)
    #expect(other.values == [3, 4])
  }

  @Test func customErrorFollowsTheBufferedValues() {  // row 13
    probe.buffer(size: 2, prefetch: .byRequest, whenFull: .customError { TestError() }).subscribe(recorder)
    for value in 1...4 { probe.send(value) }
    #expect(probe.state.cancels == 1)
    #expect(recorder.signals == [.subscribed])
    recorder.request(5)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .failed])
  }

  @Test func customErrorCancelsUpstreamWhileAValueIsDelivered() {  // rows 13, 18
    let recorder = Recorder<Int, TestError>(.none) { [probe] _, value in
      guard value == 1 else { return .none }
      probe.send(2)
      probe.send(3)
      #expect(probe.state.cancels == 1)
      probe.send(completion: .finished)
      return .none
    }
    probe.buffer(size: 1, prefetch: .byRequest, whenFull: .customError { TestError() }).subscribe(recorder)
    probe.send(1)
    recorder.request(1)
    recorder.request(1)
    #expect(recorder.signals == [.subscribed, .value(1), .value(2), .failed])
  }

  @Test func completionFollowsTheLastValueAndNeedsNoDemandWhenEmpty() {  // row 13
    probe.buffer(size: 2, prefetch: .byRequest, whenFull: .dropNewest).subscribe(recorder)
    probe.send(1)
    probe.send(completion: .finished)
    #expect(recorder.signals == [.subscribed])
    recorder.request(1)
    #expect(recorder.signals == [.subscribed, .value(1), .finished])
  }

  @Test func demandLetsMoreValuesPassThanTheSize() {
    let subject = PassthroughSubject<Int, Never>()
    let recorder = Recorder<Int, Never>(.max(4)) { _, value in
      if value == 1 { (2...5).forEach(subject.send) }
      return .none
    }
    subject.buffer(size: 1, prefetch: .byRequest, whenFull: .dropNewest).subscribe(recorder)
    subject.send(1)
    #expect(recorder.values == [1, 2, 3, 4])
    recorder.request(.max(1))
    #expect(recorder.values == [1, 2, 3, 4, 5])
  }

  @Test func cancelledBufferReleasesItsValues() {
    final class Held: Equatable, Sendable {
      static func == (lhs: Held, rhs: Held) -> Bool { lhs === rhs }
    }
    let subject = PassthroughSubject<Held, Never>()
    let recorder = Recorder<Held, Never>(.none)
    subject.buffer(size: 2, prefetch: .byRequest, whenFull: .dropNewest).subscribe(recorder)
    weak var value: Held?
    do {
      let held = Held()
      subject.send(held)
      value = held
    }
    #expect(value != nil)
    recorder.cancel()
    #expect(value == nil)
  }
}
