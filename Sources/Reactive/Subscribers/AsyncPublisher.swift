import Locks
import Synchronization

/// A publisher's values as an asynchronous sequence, for `for await`.
///
/// Demand: one value at a time, requested when the value is awaited. The publisher determines the treatment of values
/// that it sends meanwhile: a subject drops them while the loop is busy. Put
/// ``Publisher/buffer(size:prefetch:whenFull:)`` before it to miss no value.
public struct AsyncPublisher<P: Publisher>: AsyncSequence where P.Failure == Never {
  /// The type of the publisher's values.
  public typealias Element = P.Output
  /// The subscription of one consumer.
  public typealias Iterator = PublisherIterator<P.Output, Never>
  private let publisher: P

  /// `publisher.values`
  public init(_ publisher: P) { self.publisher = publisher }

  /// Subscribes. The subscription ends with the iterator, or with its task, which ends the loop.
  public func makeAsyncIterator() -> Iterator { Iterator(intake: Intake(publisher)) }
}

/// The values and the failure of a publisher that may fail, for `for try await`.
///
/// Demand: one value at a time, requested when the value is awaited.
public struct AsyncThrowingPublisher<P: Publisher>: AsyncSequence {
  /// The type of the publisher's values.
  public typealias Element = P.Output
  /// The subscription of one consumer, which throws the publisher's failure once.
  public typealias Iterator = PublisherIterator<P.Output, any Error>
  private let publisher: P

  /// `publisher.values`
  public init(_ publisher: P) { self.publisher = publisher }

  /// Subscribes. The subscription ends with the iterator, or with its task, which ends the loop.
  public func makeAsyncIterator() -> Iterator { Iterator(intake: Intake(publisher.mapError { $0 as any Error })) }
}

/// The subscription of one consumer. If several tasks await a value, the first of them receives the next one.
public struct PublisherIterator<Element, Failure: Error>: AsyncIteratorProtocol {
  fileprivate let intake: Intake<Element, Failure>

  /// Requests the next value and waits for it; `nil` after the end, or when the task is cancelled.
  /// - Throws: The publisher's failure, once.
  public mutating func next(
    isolation actor: isolated (any Actor)? = #isolation
  ) async throws(Failure) -> Element? { try await intake.next(isolation: actor).get() }

  /// Requests the next value and waits for it; `nil` after the end, or when the task is cancelled.
  /// - Throws: The publisher's failure, once.
  public mutating func next() async throws(Failure) -> Element? { try await next(isolation: nil) }
}

extension Publisher where Failure == Never {
  /// The values for `for await`, each requested when it is awaited.
  public var values: AsyncPublisher<Self> { AsyncPublisher(self) }
}

extension Publisher {
  /// The values for `for try await`, each requested when it is awaited.
  public var values: AsyncThrowingPublisher<Self> { AsyncThrowingPublisher(self) }
}

/// The subscription of one iterator. Cancels when it is released.
private final class Intake<Value, Failure: Error>: Sendable {
  private let inbox = Inbox<Value, Failure>()

  init<P: Publisher>(_ publisher: P) where P.Output == Value, P.Failure == Failure { publisher.subscribe(inbox) }

  deinit { inbox.cancel() }

  func next(isolation actor: isolated (any Actor)?) async -> Result<Value?, Failure> {
    await withTaskCancellationHandler {
      await withCheckedContinuation(isolation: actor) { inbox.take($0) }
    } onCancel: {
      inbox.cancel()
    }.value
  }
}

/// The values that have arrived and were not taken, or the tasks that wait for them.
private final class Inbox<Value, Failure: Error>: Subscriber, Sendable {
  typealias Input = Value
  /// The publisher hands the value over, as to any subscriber.
  typealias Answer = Unchecked<Result<Value?, Failure>>
  typealias Waiter = CheckedContinuation<Answer, Never>

  private struct State {
    /// Values requested by a task whose wait was cancelled, or never requested.
    var values = Fifo<Value>()
    var completion: Subscribers.Completion<Failure>?
    var waiters = Fifo<Waiter>()
    var isSubscribed = false
  }
  private let state = Locked(State())
  private let upstream = UpstreamSlot()

  func take(_ waiter: Waiter) {
    let (answer, mayAsk) = state.withLock { state -> (Answer?, Bool) in
      if let value = state.values.popFirst() { return (Answer(value: .success(value)), false) }
      if let completion = state.completion { return (Self.answer(completion, &state), false) }
      state.waiters.append(waiter)
      return (nil, state.isSubscribed)
    }
    if let answer { waiter.resume(returning: answer) }
    if mayAsk { upstream.request(.max(1)) }
  }

  /// A failure is thrown once; after it, as after the end, the result is `nil`.
  private static func answer(_ completion: Subscribers.Completion<Failure>, _ state: inout State) -> Answer {
    guard case .failure(let error) = completion else { return Answer(value: .success(nil)) }
    state.completion = .finished
    return Answer(value: .failure(error))
  }

  func receive(subscription: any Subscription) {
    guard upstream.attach(subscription) else { return }
    let awaited = state.withLock { state in
      state.isSubscribed = true
      return state.waiters.count
    }
    if awaited > 0 { subscription.request(.max(awaited)) }
  }

  func receive(_ value: Value) -> Subscribers.Demand {
    let waiter = state.withLock { state -> Waiter? in
      guard state.completion == nil else { return nil }
      if state.waiters.isEmpty { state.values.append(value) }
      return state.waiters.popFirst()
    }
    waiter?.resume(returning: Answer(value: .success(value)))
    return .none
  }

  func receive(completion: Subscribers.Completion<Failure>) {
    if upstream.finish() { end(completion) }
  }

  func cancel() {
    upstream.cancel()
    let values = state.withLock { state in
      defer { state.values = Fifo() }
      return state.values
    }
    _ = consume values
    end(.finished)
  }

  private func end(_ completion: Subscribers.Completion<Failure>) {
    let answered = state.withLock { state in
      if state.completion == nil { state.completion = completion }
      var answered: [(Waiter, Answer)] = []
      while let completion = state.completion, let waiter = state.waiters.popFirst() {
        answered.append((waiter, Self.answer(completion, &state)))
      }
      return answered
    }
    for (waiter, answer) in answered { waiter.resume(returning: answer) }
  }
}
