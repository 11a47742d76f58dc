import Synchronization

/// A subscriber that stops requesting values by itself and continues on request.
public protocol Pausable {
  /// Whether it waits for ``resume()``.
  var paused: Bool { get }
  /// Continues, if it is paused.
  func resume()
}

/// Requests one value at a time until its closure returns false.
///
/// Pausing withholds new demand; a value that was already requested is still received.
public final class PausableSubscriber<Input, Failure: Error>: Subscriber, Pausable, Cancellable, @unchecked Sendable {
  // Sendable: only the publisher calls the closures, and its signals are serial; the last caller that the slot counts
  // releases them.

  /// The identifier of this subscriber.
  public let combineIdentifier = CombineIdentifier()
  @safe @exclusivity(unchecked) private var closures: SinkClosures<Input, Failure, Bool>
  private let upstream = UpstreamSlot()
  private let isPaused = Atomic(false)

  /// Creates a subscriber for ``Publisher/subscribe(_:)->()``.
  @preconcurrency public init(
    receiveValue: @escaping @Sendable (Input) -> Bool,
    receiveCompletion: @escaping @Sendable (Subscribers.Completion<Failure>) -> Void
  ) {
    closures = SinkClosures(receiveValue, receiveCompletion)
  }

  /// Called with each value; returns whether to request the next one. Returns false after the end.
  public var receiveValue: (Input) -> Bool { inside { closures.value } ?? { _ in false } }

  /// Called once with the completion, unless cancelled before; does nothing after the end.
  public var receiveCompletion: (Subscribers.Completion<Failure>) -> Void { inside { closures.completion } ?? { _ in } }

  /// Whether the closure has returned false and ``resume()`` has not been called since.
  public var paused: Bool { isPaused.load(ordering: .acquiring) }

  /// Requests the next value, if paused. Thread-safe.
  public func resume() {
    if isPaused.exchange(false, ordering: .acquiringAndReleasing) { upstream.request(.max(1)) }
  }

  /// Stores the subscription and requests one value.
  public func receive(subscription: any Subscription) {
    if upstream.attach(subscription) { subscription.request(.max(1)) }
  }

  /// Calls the closure; requests one more value if it returns true.
  public func receive(_ input: Input) -> Subscribers.Demand {
    let goesOn = inside {
      let goesOn = closures.value(input)
      if !goesOn { isPaused.store(true, ordering: .releasing) }
      return goesOn
    }
    return goesOn == true ? .max(1) : .none
  }

  /// Calls the closure, then releases it and the subscription.
  public func receive(completion: Subscribers.Completion<Failure>) {
    inside { if upstream.finish() { closures.completion(completion) } }
  }

  /// Ends the subscription; no closure is called afterwards.
  public func cancel() { inside { upstream.cancel() } }

  /// Runs `body` unless the subscription is over. The last caller to leave releases the closures.
  @discardableResult private func inside<R>(_ body: () -> R) -> R? {
    guard upstream.enter() else { return nil }
    defer { if upstream.leave() { closures = SinkClosures({ _ in false }, { _ in }) } }
    return body()
  }
}

extension Publisher {
  /// Attaches closures that receive one value at a time.
  ///
  /// - Parameters:
  ///   - receiveCompletion: Receives the completion.
  ///   - receiveValue: Returns whether to request the next value; if false, the next value is requested by
  ///     ``Pausable/resume()``.
  @preconcurrency public func pausableSink(
    receiveCompletion: @escaping @Sendable (Subscribers.Completion<Failure>) -> Void,
    receiveValue: @escaping @Sendable (Output) -> Bool
  ) -> any Pausable & Cancellable {
    let sink = PausableSubscriber(receiveValue: receiveValue, receiveCompletion: receiveCompletion)
    subscribe(sink)
    return sink
  }
}
