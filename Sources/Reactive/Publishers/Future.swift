import Synchronization

/// A publisher of one result, which is produced once, from creation on, for all subscribers, early or late.
public final class Future<Output, Failure: Error>: Publisher {
  /// A closure to call with the result, on any thread or in a task. A second call has no effect.
  public typealias Promise = @Sendable (Result<Output, Failure>) -> Void

  private let log = SharedLog<MemoryStorage<Output>, Failure>(
    storage: MemoryStorage(capacity: 1), start: .fromFirstSubscriber, demand: .exact)
  private let isFulfilled = Atomic(false)

  /// Starts immediately.
  ///
  /// - Parameter attemptToFulfill: Called in this initializer. May call the promise before it returns, or later, on any
  ///   thread.
  @preconcurrency public init(_ attemptToFulfill: @escaping @Sendable (@escaping Promise) -> Void) {
    let future = Unchecked(value: self)  // all state is in the log, which is thread-safe
    attemptToFulfill { future.value.fulfil($0) }
  }

  private func fulfil(_ result: Result<Output, Failure>) {
    if isFulfilled.exchange(true, ordering: .acquiringAndReleasing) { return }
    switch result {
    case .success(let output):
      log.append(output)
      log.finish(.finished)
    case .failure(let error): log.finish(.failure(error))
    }
  }

  /// Delivers the value when it is available and requested, or the failure.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    LogCursor(log, subscriber, owner: nil, description: "Future", onLag: nil).begin(replay: 1)
  }

  private func result() async -> Result<Output, Failure> {
    await withCheckedContinuation { (continuation: CheckedContinuation<Unchecked<Result<Output, Failure>>, Never>) in
      @Sendable func resume(_ result: Result<Output, Failure>) {
        continuation.resume(returning: Unchecked(value: result))
      }
      subscribe(
        Subscribers.Sink(
          receiveCompletion: { if case .failure(let error) = $0 { resume(.failure(error)) } },
          receiveValue: { resume(.success($0)) }))
    }.value
  }
}

extension Future: @unchecked Sendable where Output: Sendable {}  // all state is in the log

extension Future where Failure == Never {
  /// The value, when it is available.
  public final var value: Output { get async { await result().get() } }
}

extension Future {
  /// The value, when it is available.
  public final var value: Output { get async throws { try await result().get() } }
}

/// A publisher that is created for each subscriber.
public struct Deferred<DeferredPublisher: Publisher>: Publisher {
  /// The type of the publisher's values.
  public typealias Output = DeferredPublisher.Output
  /// The type of the publisher's failures.
  public typealias Failure = DeferredPublisher.Failure
  /// Creates the publisher.
  public let createPublisher: @Sendable () -> DeferredPublisher

  /// - Parameter createPublisher: Called for each subscriber.
  @preconcurrency public init(createPublisher: @escaping @Sendable () -> DeferredPublisher) {
    self.createPublisher = createPublisher
  }

  /// Attaches the subscriber to its own publisher.
  public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { createPublisher().subscribe(subscriber) }
}

extension Deferred: Sendable {}
