// Operators that observe signals.

extension Publishers {
  /// Calls closures for signals, requests and cancellation, and passes all on unchanged.
  public struct HandleEvents<Upstream: Publisher>: Operator {
    /// The upstream publisher.
    public let upstream: Upstream
    /// Called before the subscription is passed on.
    public var receiveSubscription: (@Sendable (any Subscription) -> Void)?
    /// Called before each value is passed on.
    public var receiveOutput: (@Sendable (Upstream.Output) -> Void)?
    /// Called before the completion is passed on.
    public var receiveCompletion: (@Sendable (Subscribers.Completion<Failure>) -> Void)?
    /// Called when the subscriber cancels, before upstream is cancelled.
    public var receiveCancel: (@Sendable () -> Void)?
    /// Called for each request before it is passed on. The demand that `receive` returns also counts, unless it is
    /// none.
    public var receiveRequest: (@Sendable (Subscribers.Demand) -> Void)?
    /// Called in place of ``receiveRequest`` for the demand that `receive` returns.
    @usableFromInline var receiveReturned: (@Sendable (Subscribers.Demand) -> Void)?

    /// `upstream.handleEvents(…)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, receiveSubscription: (@Sendable (any Subscription) -> Void)? = nil,
      receiveOutput: (@Sendable (Upstream.Output) -> Void)? = nil,
      receiveCompletion: (@Sendable (Subscribers.Completion<Upstream.Failure>) -> Void)? = nil,
      receiveCancel: (@Sendable () -> Void)? = nil, receiveRequest: (@Sendable (Subscribers.Demand) -> Void)?
    ) {
      (self.upstream, self.receiveSubscription, self.receiveOutput) = (upstream, receiveSubscription, receiveOutput)
      (self.receiveCompletion, self.receiveCancel) = (receiveCompletion, receiveCancel)
      self.receiveRequest = receiveRequest
    }

    /// Attaches the subscriber to upstream; the closures observe the signals between them.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      upstream.subscribe(
        EventLink(
          EventHandle(receiveRequest, receiveCancel), receiveSubscription, receiveOutput, receiveCompletion,
          receiveReturned ?? receiveRequest, subscriber))
    }
  }
}

/// Calls the closures and passes signals on. It does not hold the publisher.
@usableFromInline final class EventLink<Down: Subscriber>: Subscriber {
  @usableFromInline typealias Input = Down.Input
  @usableFromInline typealias Failure = Down.Failure
  @usableFromInline let handle: EventHandle
  @usableFromInline let receiveSubscription: ((any Subscription) -> Void)?
  @usableFromInline let receiveOutput: ((Input) -> Void)?
  @usableFromInline let receiveCompletion: ((Subscribers.Completion<Failure>) -> Void)?
  /// Called for the demand that the subscriber returns from `receive`.
  @usableFromInline let receiveReturned: ((Subscribers.Demand) -> Void)?
  @usableFromInline let down: Down

  @inlinable init(
    _ handle: EventHandle, _ receiveSubscription: ((any Subscription) -> Void)?, _ receiveOutput: ((Input) -> Void)?,
    _ receiveCompletion: ((Subscribers.Completion<Failure>) -> Void)?,
    _ receiveReturned: ((Subscribers.Demand) -> Void)?, _ down: Down
  ) {
    (self.handle, self.down) = (handle, down)
    (self.receiveSubscription, self.receiveOutput) = (receiveSubscription, receiveOutput)
    (self.receiveCompletion, self.receiveReturned) = (receiveCompletion, receiveReturned)
  }

  @inlinable var combineIdentifier: CombineIdentifier { handle.combineIdentifier }

  @inlinable func receive(subscription: any Subscription) {
    guard handle.slot.attach(subscription) else { return }
    receiveSubscription?(subscription)
    down.receive(subscription: handle)
  }

  @inlinable func receive(_ value: Input) -> Subscribers.Demand {
    guard handle.slot.isLive else { return .none }
    receiveOutput?(value)
    let more = down.receive(value)
    if more != .none { receiveReturned?(more) }
    return more
  }

  @inlinable func receive(completion: Subscribers.Completion<Failure>) {
    guard handle.slot.finish() else { return }
    receiveCompletion?(completion)
    down.receive(completion: completion)
  }
}

@usableFromInline final class EventHandle: UpstreamHandle {
  @usableFromInline let receiveRequest: ((Subscribers.Demand) -> Void)?
  @usableFromInline let receiveCancel: (() -> Void)?

  @usableFromInline init(_ receiveRequest: ((Subscribers.Demand) -> Void)?, _ receiveCancel: (() -> Void)?) {
    (self.receiveRequest, self.receiveCancel) = (receiveRequest, receiveCancel)
    super.init("HandleEvents")
  }

  @usableFromInline override func request(_ demand: Subscribers.Demand) {
    receiveRequest?(demand)
    slot.request(demand)
  }

  @usableFromInline override func cancel() {
    if slot.isLive { receiveCancel?() }
    super.cancel()
  }
}

extension Publisher {
  /// Calls closures for signals, requests and cancellation, each before it is passed on. Demand: passed upstream
  /// unchanged.
  @preconcurrency @inlinable public func handleEvents(
    receiveSubscription: (@Sendable (any Subscription) -> Void)? = nil,
    receiveOutput: (@Sendable (Output) -> Void)? = nil,
    receiveCompletion: (@Sendable (Subscribers.Completion<Failure>) -> Void)? = nil,
    receiveCancel: (@Sendable () -> Void)? = nil,
    receiveRequest: (@Sendable (Subscribers.Demand) -> Void)? = nil
  ) -> Publishers.HandleEvents<Self> {
    Publishers.HandleEvents(
      upstream: self, receiveSubscription: receiveSubscription, receiveOutput: receiveOutput,
      receiveCompletion: receiveCompletion, receiveCancel: receiveCancel, receiveRequest: receiveRequest)
  }
}
