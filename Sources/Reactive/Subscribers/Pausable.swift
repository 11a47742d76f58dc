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
  // Sendable: the closures are called by the publisher alone, whose signals are serial, and released by the last caller
  // that the slot counts.

  /// Who this is.
  public let combineIdentifier = CombineIdentifier()
  @exclusivity(unchecked) private var closures: SinkClosures<Input, Failure, Bool>
  private let upstream = UpstreamSlot()
  private let isPaused = Atomic(false)

  /// A subscriber that is to be given to ``Publisher/subscribe(_:)->()``.
  public init(
    receiveValue: @escaping (Input) -> Bool,
    receiveCompletion: @escaping (Subscribers.Completion<Failure>) -> Void
  ) {
    closures = SinkClosures(receiveValue, receiveCompletion)
  }

  /// Called with each value; says whether to go on with the next one. Says no after the end.
  public var receiveValue: (Input) -> Bool { inside { closures.value } ?? { _ in false } }

  /// Called once, unless cancelled before; does nothing after the end.
  public var receiveCompletion: (Subscribers.Completion<Failure>) -> Void { inside { closures.completion } ?? { _ in } }

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
    let goesOn = inside {
      let goesOn = closures.value(input)
      if !goesOn { isPaused.store(true, ordering: .releasing) }
      return goesOn
    }
    return goesOn == true ? .max(1) : .none
  }

  /// Calls the closure and lets go of it and the subscription.
  public func receive(completion: Subscribers.Completion<Failure>) {
    inside { if upstream.finish() { closures.completion(completion) } }
  }

  /// Ends the subscription; no closure is called any more.
  public func cancel() { inside { upstream.cancel() } }

  /// Does this, unless all is over. The last one out releases the closures.
  @discardableResult private func inside<R>(_ body: () -> R) -> R? {
    guard upstream.enter() else { return nil }
    defer { if upstream.leave() { closures = SinkClosures({ _ in false }, { _ in }) } }
    return body()
  }
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
