// Closures that use the state of an actor, and run elsewhere: the compiler warns at each line that says so, in both language
// modes. `run` checks it.
import Reactive

actor Counter {
  var count = 0
  func increment() { count += 1 }
  func start(_ numbers: AnyPublisher<Int, Never>) -> [AnyCancellable] {
    [
      numbers.sink { _ in self.count += 1 },  // warning
      numbers.sink(
        receiveCompletion: { _ in self.count = 0 },  // warning
        receiveValue: { _ in self.increment() }),  // warning
      numbers.sink { print($0) },
    ]
  }
}

actor Tally {
  var (count, limit) = (0, 3)
  func start(_ numbers: AnyPublisher<Int, Never>) -> [AnyPublisher<Int, Never>] {
    [
      numbers.map { $0 + self.count }.eraseToAnyPublisher(),  // warning
      numbers.filter { $0 < self.limit }.eraseToAnyPublisher(),  // warning
      numbers.compactMap { $0 < self.limit ? $0 : nil }.eraseToAnyPublisher(),  // warning
      numbers.scan(0) { $0 + $1 + self.count }.eraseToAnyPublisher(),  // warning
      numbers.removeDuplicates { $0 + self.count == $1 }.eraseToAnyPublisher(),  // warning
      numbers.prefix { $0 < self.limit }.eraseToAnyPublisher(),  // warning
      numbers.flatMap { Just($0 + self.count) }.eraseToAnyPublisher(),  // warning
      numbers.combineLatest(numbers) { $0 + $1 + self.count }.eraseToAnyPublisher(),  // warning
      numbers.tryMap { $0 + self.count }.replaceError(with: 0).eraseToAnyPublisher(),  // warning
      numbers.reduce(0) { $0 + $1 + self.count }.eraseToAnyPublisher(),  // warning
      numbers.handleEvents(receiveOutput: { self.count = $0 }).eraseToAnyPublisher(),  // warning
      Deferred { Just(self.count) }.eraseToAnyPublisher(),  // warning
      Future { $0(.success(self.count)) }.eraseToAnyPublisher(),  // warning
      Create { receiver, _ in receiver.receive(self.count) }.eraseToAnyPublisher(),  // warning
      numbers.map { $0 + 1 }.eraseToAnyPublisher(),
    ]
  }
  func clear() -> AnyCancellable { AnyCancellable { self.count = 0 } }  // warning
}

/// Operators can be handed to a task where the closures can.
func count(_ numbers: [Int]) -> Task<Int, Never> {
  let even = numbers.publisher.filter { $0 % 2 == 0 }.map { $0 / 2 }.scan(0, { $0 + $1 }).flatMap { Just($0) }
  return Task {
    var sum = 0
    for await number in even.values { sum += number }
    return sum
  }
}

@MainActor final class Model {
  var count = 0
  func start(_ numbers: AnyPublisher<Int, Never>) -> [AnyCancellable] {
    [
      numbers.sink { [weak self] in self?.count = $0 },  // warning
      numbers.sink { [weak self] number in
        // It stops the program with a sentence if it runs elsewhere.
        MainActor.assumeIsolated { self?.count = number }
      },
    ]
  }
}

func fulfil(_ promise: @escaping Future<Int, Never>.Promise) { Task { promise(.success(1)) } }
