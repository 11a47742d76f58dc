import Synchronization

/// What a sink calls. Not copyable, so that a call retains nothing.
@usableFromInline struct SinkClosures<Input, Failure: Error, Answer>: ~Copyable {
  @usableFromInline let value: (Input) -> Answer
  @usableFromInline let completion: (Subscribers.Completion<Failure>) -> Void

  @inlinable init(
    _ value: @escaping (Input) -> Answer, _ completion: @escaping (Subscribers.Completion<Failure>) -> Void
  ) {
    (self.value, self.completion) = (value, completion)
  }

  /// As a method, since of a closure read from a property of a class the compiler makes a copy to call it.
  @inlinable borrowing func take(_ input: Input) -> Answer { value(input) }
}

extension Subscribers {
  /// Asks for everything and hands it to closures, which it lets go of at the end.
  public final class Sink<Input, Failure: Error>: Subscriber, Cancellable, @unchecked Sendable, CustomStringConvertible
  {
    // Sendable: the closures are called by the publisher alone, whose signals are serial, and released by the last
    // caller that the slot counts. Calls on behalf of a subscription that drops its subscriber are not counted: that
    // would cost more than the call. The publisher's own calls are noted, which needs no exchange, since they are serial.

    @usableFromInline @exclusivity(unchecked) var closures: SinkClosures<Input, Failure, Void>
    @usableFromInline let upstream: UpstreamSlot
    /// A value that is not counted is under way.
    @usableFromInline let isTaking = Atomic(false)

    /// A sink that is to be given to ``Publisher/subscribe(_:)->()``.
    @inlinable public convenience init(
      receiveCompletion: @escaping (Completion<Failure>) -> Void, receiveValue: @escaping (Input) -> Void
    ) {
      self.init(receiveCompletion, receiveValue, isHeldByCancellable: false)
    }

    /// - Parameter isHeldByCancellable: It is let go of when it was cancelled, by all but upstream.
    @inlinable init(
      _ receiveCompletion: @escaping (Completion<Failure>) -> Void, _ receiveValue: @escaping (Input) -> Void,
      isHeldByCancellable: Bool
    ) {
      closures = SinkClosures(receiveValue, receiveCompletion)
      upstream = UpstreamSlot(asksWhetherItDrops: isHeldByCancellable)
    }

    /// Called with each value; does nothing after the end.
    public var receiveValue: (Input) -> Void { inside { closures.value } ?? { _ in } }

    /// Called once, unless cancelled before; does nothing after the end.
    public var receiveCompletion: (Completion<Failure>) -> Void { inside { closures.completion } ?? { _ in } }

    /// Takes the subscription and asks for everything.
    public func receive(subscription: any Subscription) {
      if upstream.attach(subscription) { subscription.request(.unlimited) }
    }

    /// Calls the closure; wants no more than the everything it asked for.
    @inlinable public func receive(_ input: Input) -> Demand {
      let word = upstream.word.load(ordering: .acquiring)
      if word & (UpstreamSlot.over | UpstreamSlot.drops) == UpstreamSlot.drops {
        let isNested = isTaking.load(ordering: .relaxed)
        isTaking.store(true, ordering: .relaxed)
        closures.take(input)
        isTaking.store(isNested, ordering: .relaxed)
        if !isNested, upstream.word.load(ordering: .acquiring) == UpstreamSlot.over { release() }
      } else {
        receiveCounted(input)
      }
      return .none
    }

    @inline(never) @usableFromInline func receiveCounted(_ input: Input) {
      guard upstream.enter() else { return }
      closures.value(input)
      if upstream.leave() { release() }
    }

    /// Calls the closure and lets go of the subscription.
    public func receive(completion: Completion<Failure>) {
      inside {
        guard upstream.finish() else { return }
        closures.completion(completion)
        if isTaking.load(ordering: .relaxed) { return }  // an end from inside a value, which releases the closures
        upstream.word.bitwiseAnd(~UpstreamSlot.drops, ordering: .relaxed)  // no value is under way
      }
    }

    /// Ends the subscription; no closure is called any more.
    public func cancel() { inside { upstream.cancel() } }

    /// `Sink`.
    public var description: String { "Sink" }

    /// Does this, unless all is over. The last one out releases the closures, unless a value may be under way that is
    /// not counted.
    @discardableResult private func inside<R>(_ body: () -> R) -> R? {
      guard upstream.enter() else { return nil }
      defer {
        let isCounted = upstream.word.load(ordering: .relaxed) & UpstreamSlot.drops == 0
        if upstream.leave(), isCounted { release() }
      }
      return body()
    }

    @inline(never) @usableFromInline func release() { closures = SinkClosures({ _ in }, { _ in }) }
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
  /// Attaches closures, with unlimited demand. They are let go of at the end.
  ///
  /// - Returns: Ends the subscription when cancelled or released.
  @inlinable public func sink(
    receiveCompletion: @escaping (Subscribers.Completion<Failure>) -> Void, receiveValue: @escaping (Output) -> Void
  ) -> AnyCancellable {
    let sink = Subscribers.Sink(receiveCompletion, receiveValue, isHeldByCancellable: true)
    subscribe(sink)
    return AnyCancellable(sink)
  }
}

extension Publisher where Failure == Never {
  /// Attaches a closure, with unlimited demand. It is let go of at the end.
  ///
  /// - Returns: Ends the subscription when cancelled or released.
  @inlinable public func sink(receiveValue: @escaping (Output) -> Void) -> AnyCancellable {
    sink(receiveCompletion: { _ in }, receiveValue: receiveValue)
  }

  /// Writes each value to a property of `object`, which is held until the end.
  ///
  /// Demand: everything.
  ///
  /// - Returns: Ends the subscription when cancelled or released.
  @inlinable public func assign<Root>(to keyPath: ReferenceWritableKeyPath<Root, Output>, on object: Root)
    -> AnyCancellable
  {
    let assign = Subscribers.Assign(object: object, keyPath: keyPath)
    subscribe(assign)
    return AnyCancellable(assign)
  }
}
