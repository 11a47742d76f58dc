import Dispatch
import Reactive
import Testing

/// Accepts what can be handed to a task.
private func hand<P: Publisher & Sendable>(_ publisher: P) -> P { publisher }

struct SendableTests {
  @Test func operatorsWithoutClosuresCanBeHandedToATask() async {
    let subject = CurrentValueSubject<Int, Never>(1)
    let other = (1...3).publisher
    _ = hand(subject.dropFirst().first().merge(with: other).combineLatest(other).zip(subject).collect().count())
    _ = hand(subject.prefix(untilOutputFrom: other).append(other).retry(1).replaceEmpty(with: 1).last().ignoreOutput())
    _ = hand(subject.receive(on: DispatchQueue.main).delay(for: 1, scheduler: DispatchQueue.main))
    let numbers = hand(other.dropFirst())
    #expect(await Task.detached { await numbers.values.reduce(0, +) }.value == 5)
  }

  @Test func anErasedPublisherCanBeHandedToATaskAndStoredInASendableType() async {
    struct Model: Sendable { let numbers: AnyPublisher<Int, Never> }
    let model = Model(numbers: (1...3).publisher.map { $0 * 2 }.filter { $0 > 2 }.eraseToAnyPublisher())
    #expect(await Task.detached { await model.numbers.values.reduce(0, +) }.value == 10)
  }

  @Test func aPromiseCanBeCalledFromATask() async {
    let future = Future<Int, Never> { promise in Task { promise(.success(7)) } }
    #expect(await future.value == 7)
  }
}
