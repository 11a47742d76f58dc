import Reactive
import StreamRuntime
import Synchronization

extension RemoteStream {
  /// The stream's events for `for try await`. The awaited event and up to 16 more are requested from the server; at
  /// most those 16 wait here. A slow loop delays no other stream.
  ///
  /// Each iterator has its own subscription, made when it awaits its first value. The subscription is cancelled when
  /// the iterator is released, or when its task is cancelled, which ends the loop.
  public var values: Values { Values(request: request) }

  /// The events of one remote stream; see ``RemoteStream/values``.
  public struct Values: AsyncSequence, Sendable {
    /// One event.
    public typealias Element = StreamEvent
    /// The failure, thrown after the events that precede it.
    public typealias Failure = StreamError

    let request: RemoteRequest

    /// Creates an iterator with its own subscription, made by the first `next()`.
    public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(intake: EventIntake(request)) }

    /// The position of one consumer in the stream; must not be shared between tasks.
    public struct AsyncIterator: AsyncIteratorProtocol {
      let intake: EventIntake

      /// The next event; `nil` once the stream has ended or the task is cancelled.
      public mutating func next(
        isolation actor: isolated (any Actor)? = #isolation
      ) async throws(StreamError) -> StreamEvent? {
        try await intake.next(isolation: actor)
      }
    }
  }
}

extension RemoteValue {
  /// Requests the value and waits for it.
  /// - Throws: the reason why there is no value; `.canceled` also when the task is cancelled or the response is empty.
  public var value: StreamEvent {
    get async throws(StreamError) {
      guard let event = try await EventIntake(request).next() else { throw .canceled("the request returned no value") }
      return event
    }
  }
}

/// The subscription of one task: events wait here between the loop that receives them and the task that takes them.
/// Cancels when it is released.
final class EventIntake: Sendable {
  private let queue: EventQueue
  private let subscription: any QueueSubscription

  convenience init(_ request: RemoteRequest, capacity: Int = 16) {
    self.init(capacity: capacity) { RemoteSubscription(request, $0) }
  }

  /// - Parameter makeSubscription: for the queue.
  init(capacity: Int, _ makeSubscription: (EventQueue) -> any QueueSubscription) {
    queue = EventQueue(capacity: capacity)
    subscription = makeSubscription(queue)
  }

  deinit { subscription.cancel() }

  func next(isolation actor: isolated (any Actor)? = #isolation) async throws(StreamError) -> StreamEvent? {
    if queue.begin() { subscription.start(queue) }
    let result = await withTaskCancellationHandler {
      await withCheckedContinuation(isolation: actor) { queue.take($0) }
    } onCancel: {
      subscription.cancel()
      queue.finish(.finished, discarding: true)
    }
    let refill = queue.takeRefill()
    if refill > 0 { subscription.request(.max(refill)) }
    return try result.get()
  }
}

/// The subscription of a task's queue.
protocol QueueSubscription: Subscription, Sendable {
  func start(_ queue: EventQueue)
}

extension RemoteSubscription: QueueSubscription where Down == EventQueue {}
extension MapSubscription: QueueSubscription where Down == EventQueue {}

/// The events that have arrived and were not taken, or the task that waits for one.
final class EventQueue: Subscriber, Sendable {
  typealias Input = StreamEvent
  typealias Failure = StreamError
  typealias Waiter = CheckedContinuation<Result<StreamEvent?, StreamError>, Never>

  private struct State {
    var hasBegun = false
    /// At most ``EventQueue/capacity``.
    var events: [StreamEvent] = []
    /// The number of events taken since the last request to the server.
    var refill = 0
    var completion: Subscribers.Completion<StreamError>?
    var waiter: Waiter?
  }

  private let state = Locked(State())

  /// The largest number of events requested and not taken; refilled at half.
  private let capacity: Int

  init(capacity: Int) { self.capacity = capacity }

  /// - Returns: true the first time.
  func begin() -> Bool {
    state.withLock { state in
      defer { state.hasBegun = true }
      return !state.hasBegun
    }
  }

  func take(_ waiter: Waiter) {
    let result: Result<StreamEvent?, StreamError>? = state.withLock { state in
      precondition(state.waiter == nil, "one iterator, awaited by two tasks at once")
      if !state.events.isEmpty {
        state.refill += 1
        return .success(state.events.removeFirst())
      }
      if let completion = state.completion { return Self.result(of: completion, in: &state) }
      state.waiter = waiter
      return nil
    }
    if let result { waiter.resume(returning: result) }
  }

  /// Returns the number of events to request, once it justifies a frame.
  func takeRefill() -> Int {
    state.withLock { state in
      guard state.refill >= capacity / 2, state.completion == nil else { return 0 }
      defer { state.refill = 0 }
      return state.refill
    }
  }

  func receive(subscription: any Subscription) {
    subscription.request(.max(capacity))
  }

  func receive(_ event: StreamEvent) -> Subscribers.Demand {
    let waiter: Waiter? = state.withLock { state in
      guard state.completion == nil else { return nil }
      guard let waiter = state.waiter.take() else {
        state.events.append(event)
        return nil
      }
      state.refill += 1
      return waiter
    }
    waiter?.resume(returning: .success(event))
    return .none
  }

  func receive(completion: Subscribers.Completion<StreamError>) {
    finish(completion, discarding: false)
  }

  /// - Parameter discarding: whether waiting events are dropped, as for a cancelled task.
  func finish(_ completion: Subscribers.Completion<StreamError>, discarding: Bool) {
    let (waiter, result): (Waiter?, Result<StreamEvent?, StreamError>) = state.withLock { state in
      if discarding { state.events = [] }
      if state.completion == nil || discarding { state.completion = completion }
      guard let waiter = state.waiter.take() else { return (nil, .success(nil)) }
      return (waiter, Self.result(of: completion, in: &state))
    }
    waiter?.resume(returning: result)
  }

  /// A failure is thrown once; after it, as after the end, the result is `nil`.
  private static func result(
    of completion: Subscribers.Completion<StreamError>, in state: inout State
  ) -> Result<StreamEvent?, StreamError> {
    guard case .failure(let error) = completion else { return .success(nil) }
    state.completion = .finished
    return .failure(error)
  }
}
