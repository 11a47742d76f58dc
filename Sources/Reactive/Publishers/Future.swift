/// One result, worked out once, from the start, for all subscribers of whatever time.
public final class Future<Output, Failure: Error>: Publisher {
  /// To be called with the result. A second call does nothing.
  public typealias Promise = (Result<Output, Failure>) -> Void

  private enum State {
    case waiting([ObjectIdentifier: Promise])
    case fulfilled(Result<Output, Failure>)
  }
  private let state = Guarded(State.waiting([:]))

  /// Begins at once.
  ///
  /// - Parameter attemptToFulfill: Called now. May call the promise before it returns, or later, on any thread.
  public init(_ attemptToFulfill: @escaping (@escaping Promise) -> Void) { attemptToFulfill(fulfill) }

  private func fulfill(_ result: Result<Output, Failure>) {
    let waiting = state.withLock { state -> [ObjectIdentifier: Promise] in
      guard case .waiting(let waiting) = state else { return [:] }
      state = .fulfilled(result)
      return waiting
    }
    for settle in waiting.values { settle(result) }
  }

  /// Delivers the value, once it is there and asked for, or the failure.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    let subscription = FutureSubscription(subscriber, self)
    subscription.start()
    whenFulfilled(ObjectIdentifier(subscription)) { result in
      switch result {
      case .success(let output): subscription.settle(output)
      case .failure(let error): subscription.end(.failure(error))
      }
    }
    if subscription.isOver { forget(ObjectIdentifier(subscription)) }  // cancelled before it was noted
  }

  private func whenFulfilled(_ who: ObjectIdentifier, _ settle: @escaping Promise) {
    let result = state.withLock { state -> Result<Output, Failure>? in
      switch state {
      case .fulfilled(let result): return result
      case .waiting(var waiting):
        waiting[who] = settle
        state = .waiting(waiting)
        return nil
      }
    }
    if let result { settle(result) }
  }

  fileprivate func forget(_ who: ObjectIdentifier) {
    let settle = state.withLock { state -> Promise? in
      guard case .waiting(var waiting) = state else { return nil }
      let settle = waiting.removeValue(forKey: who)
      state = .waiting(waiting)
      return settle
    }
    _ = settle  // holds a subscriber, whose end is not to come under the lock
  }
}

extension Future: @unchecked Sendable where Output: Sendable {}  // all state is guarded

/// Stands for one who awaits the value.
private final class FutureWaiter {}

extension Future {
  private func result() async -> Result<Output, Failure> {
    await withCheckedContinuation { (continuation: CheckedContinuation<Unchecked<Result<Output, Failure>>, Never>) in
      let waiter = FutureWaiter()
      whenFulfilled(ObjectIdentifier(waiter)) { result in
        withExtendedLifetime(waiter) { continuation.resume(returning: Unchecked(value: result)) }
      }
    }.value
  }
}

extension Future where Failure == Never {
  /// The value, once it is there.
  public final var value: Output { get async { await result().get() } }
}

extension Future {
  /// The value, once it is there.
  public final var value: Output { get async throws { try await result().get() } }
}

private final class FutureSubscription<Down: Subscriber>: AnswerSubscription<Down> {
  private let future: Future<Down.Input, Down.Failure>

  init(_ down: Down, _ future: Future<Down.Input, Down.Failure>) {
    self.future = future
    super.init(down, "Future")
  }

  override func didCancel() { future.forget(ObjectIdentifier(self)) }
}

/// A publisher that is made anew for each subscriber.
public struct Deferred<DeferredPublisher: Publisher>: Publisher {
  /// The same values.
  public typealias Output = DeferredPublisher.Output
  /// The same failures.
  public typealias Failure = DeferredPublisher.Failure
  /// Makes the publisher.
  public let createPublisher: () -> DeferredPublisher

  /// - Parameter createPublisher: Called for each subscriber.
  public init(createPublisher: @escaping () -> DeferredPublisher) { self.createPublisher = createPublisher }

  /// Attaches the subscriber to a publisher of its own.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { createPublisher().subscribe(subscriber) }
}
