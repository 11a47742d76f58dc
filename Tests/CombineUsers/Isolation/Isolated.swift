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
