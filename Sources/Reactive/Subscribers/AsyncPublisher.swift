import Locks
import Synchronization

/// A publisher's values as an asynchronous sequence, for `for await`, or for `for try await` if the publisher may fail.
///
/// Demand: one value at a time, requested when the value is awaited. The publisher determines the treatment of values
/// that it sends meanwhile: a subject drops them while the loop is busy. Put
/// ``Publisher/buffer(size:prefetch:whenFull:)`` before it to miss no value.
public struct AsyncPublisher<P: Publisher>: AsyncSequence {
  /// The type of the publisher's values.
  public typealias Element = P.Output
  /// The type of the publisher's failure, which the iterator throws.
  public typealias Failure = P.Failure
  /// The subscription of one consumer.
  public typealias Iterator = PublisherIterator<P.Output, P.Failure>
  @usableFromInline let publisher: P

  /// `publisher.values`
  @inlinable public init(_ publisher: P) { self.publisher = publisher }

  /// Subscribes. The subscription ends with the iterator, or with its task, which ends the loop.
  @inlinable public func makeAsyncIterator() -> Iterator { Iterator(intake: Intake(publisher)) }
}

extension AsyncPublisher: Sendable where P: Sendable {}

/// The former type of the values of a publisher that may fail.
@available(*, deprecated, renamed: "AsyncPublisher")
public typealias AsyncThrowingPublisher = AsyncPublisher

/// The subscription of one consumer. If several tasks await a value, the first of them receives the next one.
public struct PublisherIterator<Element, Failure: Error>: AsyncIteratorProtocol {
  @usableFromInline let intake: Intake<Element, Failure>

  @inlinable init(intake: Intake<Element, Failure>) { self.intake = intake }

  /// Requests the next value and waits for it; `nil` after the end, or when the task is cancelled.
  /// - Throws: The publisher's failure, once.
  @inlinable public mutating func next(
    isolation actor: isolated (any Actor)? = #isolation
  ) async throws(Failure) -> Element? { try await intake.inbox.next(isolation: actor) }

  /// Requests the next value and waits for it; `nil` after the end, or when the task is cancelled.
  /// - Throws: The publisher's failure, once.
  @inlinable public mutating func next() async throws(Failure) -> Element? { try await next(isolation: nil) }
}

extension Publisher {
  /// The values for `for await`, or for `for try await` if this publisher may fail; each is requested when it is awaited.
  @inlinable public var values: AsyncPublisher<Self> { AsyncPublisher(self) }
}

/// The subscription of one iterator. Cancels when it is released.
@usableFromInline final class Intake<Value, Failure: Error>: Sendable {
  @usableFromInline let inbox = Inbox<Value, Failure>()

  @inlinable init<P: Publisher>(_ publisher: P) where P.Output == Value, P.Failure == Failure {
    publisher.subscribe(inbox)
  }

  deinit { inbox.cancel() }
}

/// The values that have arrived and were not taken, and the task that waits for one.
@usableFromInline final class Inbox<Value, Failure: Error>: Subscriber, Sendable {
  @usableFromInline typealias Input = Value

  @usableFromInline struct State {
    /// The values that came without a request, behind the one of the handoff.
    var values = Fifo<Value>()
    var completion: Subscribers.Completion<Failure>?
  }

  @usableFromInline let handoff = Handoff<Value>()
  @usableFromInline let turns = Turns()
  @usableFromInline let upstream = UpstreamSlot()
  /// The number of values to request when the subscription arrives; -1 when it has arrived.
  @usableFromInline let early = Atomic(0)
  @usableFromInline let isCancelled = Atomic(false)
  private let state = Locked(State())

  @inlinable init() {}

  // MARK: - The task

  @inlinable func next(isolation actor: isolated (any Actor)?) async throws(Failure) -> Value? {
    var hasRequested = false
    if !turns.enter() {
      request()
      hasRequested = true
      await turns.wait(isolation: actor, onCancel: cancel)
    }
    defer { turns.leave() }
    if Task.isCancelled { cancel() }
    while true {
      switch handoff.take() {
      case .value(let value): return isCancelled.load(ordering: .acquiring) ? nil : value
      case .more: if let answer = look() { return try answer.get() }
      case .nothing:
        if hasRequested { await handoff.wait(isolation: actor, onCancel: cancel) } else { request() }
        hasRequested = true
      }
    }
  }

  /// Requests one value, now or when the subscription arrives.
  @inlinable func request() {
    if early.load(ordering: .acquiring) < 0 || !noteRequest() { upstream.request(.max(1)) }
  }

  /// - Returns: False if the subscription has arrived.
  @usableFromInline func noteRequest() -> Bool {
    var count = early.load(ordering: .acquiring)
    while count >= 0 {
      let (exchanged, current) = early.compareExchange(
        expected: count, desired: count + 1, ordering: .acquiringAndReleasing)
      if exchanged { return true }
      count = current
    }
    return false
  }

  /// Takes a value that came without a request, or the end. A failure is thrown once; after it, as after the end, the result
  /// is `nil`.
  ///
  /// - Returns: `nil` if there is neither.
  @usableFromInline func look() -> Result<Value?, Failure>? {
    let answer: Unchecked<Result<Value?, Failure>?> = state.withLock { state in
      if let value = state.values.popFirst() { return Unchecked(value: .success(value)) }
      switch state.completion {
      case nil: handoff.settle()
      case .finished: return Unchecked(value: .success(nil))
      case .failure(let error):
        state.completion = .finished
        return Unchecked(value: .failure(error))
      }
      return Unchecked(value: nil)
    }
    return answer.value
  }

  // MARK: - Upstream

  @usableFromInline func receive(subscription: any Subscription) {
    guard upstream.attach(subscription) else { return }
    let count = early.exchange(-1, ordering: .acquiringAndReleasing)
    if count > 0 { subscription.request(.max(count)) }
  }

  @inlinable func receive(_ value: Value) -> Subscribers.Demand {
    if !handoff.offer(value) { keep(value) }
    return .none
  }

  @usableFromInline func keep(_ value: Value) {
    state.withLock { if $0.completion == nil { $0.values.append(value) } }
    handoff.alert()
  }

  @usableFromInline func receive(completion: Subscribers.Completion<Failure>) {
    if upstream.finish() { end(completion) }
  }

  @usableFromInline func cancel() {
    isCancelled.store(true, ordering: .releasing)
    upstream.cancel()
    let values = state.withLock { state in
      defer { state.values = Fifo() }
      return state.values
    }
    _ = consume values
    end(.finished)
  }

  private func end(_ completion: Subscribers.Completion<Failure>) {
    state.withLock { if $0.completion == nil { $0.completion = completion } }
    handoff.alert()
  }
}
