import Synchronization

/// One result, worked out once, from the start, for all subscribers of whatever time.
public final class Future<Output, Failure: Error>: Publisher {
  /// To be called with the result. A second call does nothing.
  public typealias Promise = (Result<Output, Failure>) -> Void

  private let log = SharedLog<MemoryStorage<Output>, Failure>(
    storage: MemoryStorage(capacity: 1), start: .fromFirstSubscriber, demand: .exact)
  private let isFulfilled = Atomic(false)

  /// Begins at once.
  ///
  /// - Parameter attemptToFulfill: Called now. May call the promise before it returns, or later, on any thread.
  public init(_ attemptToFulfill: @escaping (@escaping Promise) -> Void) {
    attemptToFulfill { [self] result in
      if isFulfilled.exchange(true, ordering: .acquiringAndReleasing) { return }
      switch result {
      case .success(let output):
        log.append(output)
        log.finish(.finished)
      case .failure(let error): log.finish(.failure(error))
      }
    }
  }

  /// Delivers the value, once it is there and asked for, or the failure.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    LogCursor(log, subscriber, owner: nil, description: "Future", onLag: nil).begin(replay: 1)
  }

  private func result() async -> Result<Output, Failure> {
    await withCheckedContinuation { (continuation: CheckedContinuation<Unchecked<Result<Output, Failure>>, Never>) in
      func resume(_ result: Result<Output, Failure>) { continuation.resume(returning: Unchecked(value: result)) }
      subscribe(
        Subscribers.Sink(
          receiveCompletion: { if case .failure(let error) = $0 { resume(.failure(error)) } },
          receiveValue: { resume(.success($0)) }))
    }.value
  }
}

extension Future: @unchecked Sendable where Output: Sendable {}  // all state is in the log

extension Future where Failure == Never {
  /// The value, once it is there.
  public final var value: Output { get async { await result().get() } }
}

extension Future {
  /// The value, once it is there.
  public final var value: Output { get async throws { try await result().get() } }
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
