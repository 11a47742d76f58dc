import Reactive
import Testing

@Suite(.timeLimit(.minutes(10))) struct AsyncPublisherTests {
  @Test func valuesEndWithThePublisher() async {
    var seen: [Int] = []
    for await value in (1...5).publisher.values { seen.append(value) }
    #expect(seen == [1, 2, 3, 4, 5])
  }

  @Test func valuesAreRequestedWhenTheyAreAwaited() async {
    let probe = Probe<Int, Never>()
    var iterator = probe.values.makeAsyncIterator()
    #expect(probe.state.subscriptions == 1 && probe.state.requested.isEmpty)
    async let sent: Void = {
      for number in 1...3 {
        while probe.requested < .max(number), !Task.isCancelled { await Task.yield() }
        probe.send(number)
      }
    }()
    for number in 1...3 { #expect(await iterator.next() == number) }
    await sent
    #expect(probe.state.requested == [.max(1), .max(1), .max(1)])
  }

  @Test func aFailureIsThrownOnce() async throws {
    let probe = Probe<Int, TestError>()
    var iterator = probe.values.makeAsyncIterator()
    probe.send(completion: .failure(TestError()))
    await #expect(throws: TestError()) { try await iterator.next() }
    #expect(try await iterator.next() == nil)
  }

  @Test func endOfTheLoopCancels() async {
    let probe = Probe<Int, Never> { $0.send(1) }
    for await value in probe.values {
      #expect(value == 1)
      break
    }
    #expect(probe.state.cancels == 1)
  }

  @Test func cancellingTheTaskEndsTheLoopAndTheSubscription() async {
    let probe = Probe<Int, Never>()
    let task = Task {
      var count = 0
      for await _ in probe.values { count += 1 }
      return count
    }
    while probe.requested == .none, !Task.isCancelled { await Task.yield() }
    task.cancel()
    #expect(await task.value == 0)
    #expect(probe.state.cancels == 1)
  }

  @MainActor @Test func valuesThatCannotBeSentArriveOnTheActorThatAwaits() async {
    final class Local { var count = 0 }
    let local = Local()
    for await value in [local, local].publisher.values { value.count += 1 }
    #expect(local.count == 2)
  }
}
