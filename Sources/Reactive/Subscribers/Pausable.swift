import Synchronization

/// Something that stops taking values by itself and goes on when told to.
public protocol Pausable {
  /// Whether it waits to be told.
  var paused: Bool { get }
  /// Goes on, if it waits.
  func resume()
}

/// Asks for one value at a time, until its closure has had enough for now.
///
/// Pausing withholds new demand; a value that was asked for already is still taken.
public final class PausableSubscriber<Input, Failure: Error>: Subscriber, Pausable, Cancellable, @unchecked Sendable {
  // Sendable: the closures are called by the publisher alone, whose signals are serial.

  /// Who this is.
  public let combineIdentifier = CombineIdentifier()
  /// Called with each value; says whether to go on with the next one.
  public let receiveValue: (Input) -> Bool
  /// Called once, unless cancelled before.
  public let receiveCompletion: (Subscribers.Completion<Failure>) -> Void
  private let upstream = UpstreamSlot()
  private let isPaused = Atomic(false)

  /// A subscriber that is to be given to ``Publisher/subscribe(_:)->()``.
  public init(
    receiveValue: @escaping (Input) -> Bool,
    receiveCompletion: @escaping (Subscribers.Completion<Failure>) -> Void
  ) {
    (self.receiveValue, self.receiveCompletion) = (receiveValue, receiveCompletion)
  }

  /// Whether it has had enough and was not told to resume yet.
  public var paused: Bool { isPaused.load(ordering: .acquiring) }

  /// Asks for the next value, if paused. Thread-safe.
  public func resume() {
    if isPaused.exchange(false, ordering: .acquiringAndReleasing) { upstream.request(.max(1)) }
  }

  /// Takes the subscription and asks for one value.
  public func receive(subscription: any Subscription) {
    if upstream.attach(subscription) { subscription.request(.max(1)) }
  }

  /// Calls the closure; asks for one more if that says so.
  public func receive(_ input: Input) -> Subscribers.Demand {
    guard upstream.isLive else { return .none }
    if receiveValue(input) { return .max(1) }
    isPaused.store(true, ordering: .releasing)
    return .none
  }

  /// Calls the closure and lets go of the subscription.
  public func receive(completion: Subscribers.Completion<Failure>) {
    if upstream.finish() { receiveCompletion(completion) }
  }

  /// Ends the subscription; no closure is called any more.
  public func cancel() { upstream.cancel() }
}

extension Publisher {
  /// Attaches closures that take one value at a time.
  ///
  /// - Parameter receiveValue: Says whether to go on; if not, nothing more is asked for until
  ///   ``Pausable/resume()``.
  public func pausableSink(
    receiveCompletion: @escaping (Subscribers.Completion<Failure>) -> Void,
    receiveValue: @escaping (Output) -> Bool
  ) -> any Pausable & Cancellable {
    let sink = PausableSubscriber(receiveValue: receiveValue, receiveCompletion: receiveCompletion)
    subscribe(sink)
    return sink
  }
}
