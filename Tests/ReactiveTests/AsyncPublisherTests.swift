import Dispatch
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

  @Test func aFailureIsThrownOnceWithItsType() async {
    let probe = Probe<Int, TestError>()
    var iterator = probe.map { $0 + 1 }.filter { $0 > 0 }.values.makeAsyncIterator()
    probe.send(completion: .failure(TestError()))
    do throws(TestError) {
      let value = try await iterator.next()
      Issue.record("\(value as Any)")
    } catch {
      let failure: TestError = error
      #expect(failure == TestError())
    }
    let end = try? await iterator.next()
    #expect(end == .some(nil))
  }

  @Test func valuesOfASendablePublisherAreSendable() async {
    let values = (1...3).publisher.values
    let sum = await Task.detached { await values.reduce(0, +) }.value
    #expect(sum == 6)
  }

  @Test func valuesThatCameWithoutARequestKeepTheirOrder() async {
    let probe = Probe<Int, Never>()
    var iterator = probe.values.makeAsyncIterator()
    for number in 1...5 { probe.send(number) }
    probe.send(completion: .finished)
    for number in 1...5 { #expect(await iterator.next() == number) }
    #expect(await iterator.next() == nil)
  }

  @Test func aRequestBeforeTheSubscriptionIsMadeWhenItArrives() async {
    let queue = DispatchQueue(label: "late")
    queue.suspend()
    let task = Task { await (1...3).publisher.subscribe(on: queue).values.reduce(0, +) }
    for _ in 0..<100 { await Task.yield() }
    queue.resume()
    #expect(await task.value == 6)
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

  @Test func aCancelledTaskReceivesNoValueThatIsThereAlready() async {
    let probe = Probe<Int, Never>()
    let task = Task {
      var iterator = probe.values.makeAsyncIterator()
      probe.send(1)
      withUnsafeCurrentTask { $0?.cancel() }
      return await iterator.next()
    }
    #expect(await task.value == nil)
    #expect(probe.state.cancels == 1)
  }

  @Test func severalTasksShareAnIteratorOneAfterAnother() async {
    struct Shared: @unchecked Sendable { var iterator: AsyncPublisher<PassthroughSubject<Int, Never>>.Iterator }
    let subject = PassthroughSubject<Int, Never>()
    let shared = Shared(iterator: subject.values.makeAsyncIterator())
    let tasks = (0..<20).map { _ in
      Task {
        var iterator = shared.iterator
        return await iterator.next()
      }
    }
    let sender = Task {
      var number = 0
      while !Task.isCancelled {
        subject.send(number)
        number += 1
        await Task.yield()
      }
    }
    var seen: [Int?] = []
    for task in tasks { seen.append(await task.value) }
    sender.cancel()
    #expect(Set(seen.compactMap { $0 }).count == 20, "\(seen)")
  }

  @Test func aCancelledTaskEndsTheIteratorThatOthersAwait() async {
    struct Shared: @unchecked Sendable { var iterator: AsyncPublisher<Probe<Int, Never>>.Iterator }
    let probe = Probe<Int, Never>()
    let shared = Shared(iterator: probe.values.makeAsyncIterator())
    let tasks = (0..<3).map { _ in
      Task {
        var iterator = shared.iterator
        return await iterator.next()
      }
    }
    while probe.requested == .none, !Task.isCancelled { await Task.yield() }
    tasks[2].cancel()
    for task in tasks { #expect(await task.value == nil) }
    #expect(probe.state.cancels == 1)
  }

  @Test func aReleasedIteratorReleasesItsValuesAndCancels() async {
    final class Value: Sendable {}
    let probe = Probe<Value, Never>()
    weak var first: Value?
    weak var second: Value?
    do {
      var iterator = Optional(probe.values.makeAsyncIterator())
      let values = [Value(), Value()]
      (first, second) = (values[0], values[1])
      for value in values { probe.send(value) }
      _ = await iterator?.next()
      iterator = nil
    }
    #expect(probe.state.cancels == 1)
    #expect(first == nil && second == nil)
  }

  @MainActor @Test func valuesThatCannotBeSentArriveOnTheActorThatAwaits() async {
    final class Local { var count = 0 }
    let local = Local()
    for await value in [local, local].publisher.values { value.count += 1 }
    #expect(local.count == 2)
  }
}
