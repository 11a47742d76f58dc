extension Subscribers {
  /// Asks for everything and hands it to closures.
  public final class Sink<Input, Failure: Error>: Subscriber, Cancellable, @unchecked Sendable, CustomStringConvertible
  {
    // Sendable: the closures are called by the publisher alone, whose signals are serial.

    /// Called with each value.
    public let receiveValue: (Input) -> Void
    /// Called once, unless cancelled before.
    public let receiveCompletion: (Completion<Failure>) -> Void
    @usableFromInline let upstream = UpstreamSlot()

    /// A sink that is to be given to ``Publisher/subscribe(_:)->()``.
    public init(
      receiveCompletion: @escaping (Completion<Failure>) -> Void, receiveValue: @escaping (Input) -> Void
    ) {
      (self.receiveValue, self.receiveCompletion) = (receiveValue, receiveCompletion)
    }

    /// Takes the subscription and asks for everything.
    public func receive(subscription: any Subscription) {
      if upstream.attach(subscription) { subscription.request(.unlimited) }
    }

    /// Calls the closure; wants no more than the everything it asked for.
    @inlinable public func receive(_ input: Input) -> Demand {
      if upstream.isLive { receiveValue(input) }
      return .none
    }

    /// Calls the closure and lets go of the subscription.
    public func receive(completion: Completion<Failure>) {
      if upstream.finish() { receiveCompletion(completion) }
    }

    /// Ends the subscription; no closure is called any more.
    public func cancel() { upstream.cancel() }

    /// `Sink`.
    public var description: String { "Sink" }
  }

  /// Asks for everything and writes each value to a property of an object.
  public final class Assign<Root, Input>: Subscriber, Cancellable, CustomStringConvertible {
    /// `Never`: there is no property for an error.
    public typealias Failure = Never
    /// The property.
    public let keyPath: ReferenceWritableKeyPath<Root, Input>
    private let target: Guarded<Root?>
    private let upstream = UpstreamSlot()

    /// - Parameter object: Held until the end.
    public init(object: Root, keyPath: ReferenceWritableKeyPath<Root, Input>) {
      target = Guarded(object)
      self.keyPath = keyPath
    }

    /// The object; `nil` after the end.
    public var object: Root? { target.withLock { $0 } }

    /// Takes the subscription and asks for everything.
    public func receive(subscription: any Subscription) {
      if upstream.attach(subscription) { subscription.request(.unlimited) }
    }

    /// Writes the value to the property.
    public func receive(_ input: Input) -> Demand {
      if upstream.isLive { object?[keyPath: keyPath] = input }
      return .none
    }

    /// Lets go of the object and the subscription.
    public func receive(completion: Completion<Never>) {
      if upstream.finish() { release() }
    }

    /// Ends the subscription and lets go of the object.
    public func cancel() {
      upstream.cancel()
      release()
    }

    /// `Assign`.
    public var description: String { "Assign" }

    /// Moves the object out first: its end may run a deinitialiser, which must not find the lock held.
    private func release() { _ = target.withLock { $0.take() } }
  }
}

extension Publisher {
  /// Attaches closures, with unlimited demand.
  ///
  /// - Returns: Ends the subscription when cancelled or released.
  public func sink(
    receiveCompletion: @escaping (Subscribers.Completion<Failure>) -> Void, receiveValue: @escaping (Output) -> Void
  ) -> AnyCancellable {
    let sink = Subscribers.Sink(receiveCompletion: receiveCompletion, receiveValue: receiveValue)
    subscribe(sink)
    return AnyCancellable(sink)
  }
}

extension Publisher where Failure == Never {
  /// Attaches a closure, with unlimited demand.
  ///
  /// - Returns: Ends the subscription when cancelled or released.
  public func sink(receiveValue: @escaping (Output) -> Void) -> AnyCancellable {
    sink(receiveCompletion: { _ in }, receiveValue: receiveValue)
  }

  /// Writes each value to a property of `object`, which is held until the end.
  ///
  /// Demand: everything.
  ///
  /// - Returns: Ends the subscription when cancelled or released.
  public func assign<Root>(to keyPath: ReferenceWritableKeyPath<Root, Output>, on object: Root) -> AnyCancellable {
    let assign = Subscribers.Assign(object: object, keyPath: keyPath)
    subscribe(assign)
    return AnyCancellable(assign)
  }
}
