import Reactive
import StreamRuntime

extension StreamConnection {
  /// Creates a subscriber that publishes its values to the stream called `name`, 1 to 255 bytes. For one publisher.
  ///
  /// - Parameters:
  ///   - name: the stream, 1 to 255 bytes.
  ///   - publisher: the name under which the sink outlives its connection, without lost or repeated values; `nil`: it
  ///     ends with its connection. Must be `nil` for a server other than streamd.
  ///   - receiveCompletion: called once, on the connection's loop, unless the sink is cancelled: `.finished` when the
  ///     server has confirmed that every value is in the stream.
  public func sink(
    to name: String, as publisher: PublisherName? = nil,
    receiveCompletion: @escaping (Subscribers.Completion<StreamError>) -> Void = { _ in }
  ) -> RemoteSink {
    RemoteSink(self, name: name, publisher: publisher, receiveCompletion: receiveCompletion)
  }

  /// Publishes the values of `publisher`, one event each, to the stream called `name`. Values are requested as the
  /// server grants credit.
  ///
  /// - Parameters:
  ///   - publisher: the values.
  ///   - name: the stream, 1 to 255 bytes.
  ///   - publisherName: as in ``sink(to:as:receiveCompletion:)``, also for `receiveCompletion`.
  ///   - receiveCompletion: called once, as there.
  /// - Returns: a cancellable that stops publishing when it is cancelled or released.
  public func publish<P: Publisher>(
    _ publisher: P, to name: String, as publisherName: PublisherName? = nil,
    receiveCompletion: @escaping (Subscribers.Completion<StreamError>) -> Void = { _ in }
  ) -> AnyCancellable where P.Output == [UInt8], P.Failure == Never {
    let sink = sink(to: name, as: publisherName, receiveCompletion: receiveCompletion)
    publisher.subscribe(sink)
    return AnyCancellable(sink)
  }

  /// Publishes the texts of `publisher` as UTF-8; see the form for bytes.
  public func publish<P: Publisher>(
    _ publisher: P, to name: String, as publisherName: PublisherName? = nil,
    receiveCompletion: @escaping (Subscribers.Completion<StreamError>) -> Void = { _ in }
  ) -> AnyCancellable where P.Output: StringProtocol, P.Failure == Never {
    publish(publisher.map(own { Array($0.utf8) }), to: name, as: publisherName, receiveCompletion: receiveCompletion)
  }

  /// Publishes the texts of `values` as UTF-8; see the form for bytes.
  public func publish<S: AsyncSequence>(
    _ values: S, to name: String, as publisher: PublisherName? = nil
  ) async throws(StreamError)
  where S.Element: StringProtocol, S.Failure == Never {
    try await publish(values, to: name, as: publisher) { Array($0.utf8) }
  }

  /// Publishes the elements of `values`, one event each, to the stream called `name`. Each element is awaited only when
  /// the server has granted credit for it.
  ///
  /// Returns when the server has confirmed that all are in the stream.
  /// - Throws: the failure; `.canceled` also when the task is cancelled.
  public func publish<S: AsyncSequence>(
    _ values: S, to name: String, as publisher: PublisherName? = nil
  ) async throws(StreamError)
  where S.Element == [UInt8], S.Failure == Never {
    try await publish(values, to: name, as: publisher) { $0 }
  }

  private func publish<S: AsyncSequence>(
    _ values: S, to name: String, as publisher: PublisherName?, bytes: (S.Element) -> [UInt8]
  ) async throws(StreamError) where S.Failure == Never {
    let demand = SinkDemand()
    let sink = sink(to: name, as: publisher) { demand.finish($0) }
    sink.receive(subscription: demand)
    let completion = await withTaskCancellationHandler {
      var iterator = values.makeAsyncIterator()
      while await demand.take() {
        guard let value = await iterator.next(isolation: #isolation) else {
          sink.receive(completion: .finished)
          break
        }
        _ = sink.receive(bytes(value))
      }
      return await demand.completion()
    } onCancel: {
      sink.cancel()
      demand.finish(.failure(.canceled("the task was cancelled")))
    }
    if case .failure(let error) = completion { throw error }
  }
}

/// The demand of a sink, which a task awaits.
private final class SinkDemand: Subscription, Sendable {
  private struct State {
    var demand = Subscribers.Demand.none
    var completion: Subscribers.Completion<StreamError>?
    var waiter: CheckedContinuation<Void, Never>?
  }

  private let state = Locked(State())

  func request(_ demand: Subscribers.Demand) { change { $0.demand += demand } }

  /// Called when the sink has failed. The sink reports the failure itself.
  func cancel() {}

  /// Stores the completion. The first call counts.
  func finish(_ completion: Subscribers.Completion<StreamError>) {
    change { $0.completion = $0.completion ?? completion }
  }

  private func change(_ body: (inout State) -> Void) {
    let waiter = state.withLock { state in
      body(&state)
      return state.waiter.take()
    }
    waiter?.resume()
  }

  /// - Returns: true if a value is requested, which counts as delivered from then on; false after the end.
  func take() async -> Bool {
    while true {
      let isWanted: Bool? = state.withLock { state in
        if state.completion != nil { return false }
        guard state.demand > .none else { return nil }
        state.demand -= 1
        return true
      }
      if let isWanted { return isWanted }
      await wait { $0.demand > .none || $0.completion != nil }
    }
  }

  func completion() async -> Subscribers.Completion<StreamError> {
    while true {
      if let completion = state.withLock({ $0.completion }) { return completion }
      await wait { $0.completion != nil }
    }
  }

  private func wait(until holds: @escaping (State) -> Bool) async {
    await withCheckedContinuation { continuation in
      let isReady = state.withLock { state in
        guard !holds(state) else { return true }
        state.waiter = continuation
        return false
      }
      if isReady { continuation.resume() }
    }
  }
}
