import Locks
import Synchronization

/// The closures of a sink. Not copyable, so that a call retains nothing.
@usableFromInline struct SinkClosures<Input, Failure: Error, Answer>: ~Copyable {
  @usableFromInline let value: (Input) -> Answer
  @usableFromInline let completion: (Subscribers.Completion<Failure>) -> Void

  @inlinable init(
    _ value: @escaping (Input) -> Answer, _ completion: @escaping (Subscribers.Completion<Failure>) -> Void
  ) {
    (self.value, self.completion) = (value, completion)
  }

  /// A method, because the compiler copies a closure that is read from a property of a class in order to call it.
  @inlinable borrowing func take(_ input: Input) -> Answer { value(input) }
}

extension Subscribers {
  /// Requests unlimited values and passes them to closures, which it releases at the end.
  public final class Sink<Input, Failure: Error>: Subscriber, Cancellable, @unchecked Sendable, CustomStringConvertible
  {
    // Sendable: only the publisher calls the closures, and its signals are serial; the last caller that the slot counts
    // releases them. Calls by a subscription that drops its subscriber are not counted, because counting would cost
    // more than the call. They are only marked, which needs no atomic exchange, since they are serial.

    @safe @usableFromInline @exclusivity(unchecked) var closures: SinkClosures<Input, Failure, Void>
    @usableFromInline let upstream: UpstreamSlot
    /// Whether a value that is not counted is being delivered.
    @usableFromInline let isTaking = Atomic(false)

    /// Creates a sink for ``Publisher/subscribe(_:)->()``.
    @preconcurrency @inlinable public convenience init(
      receiveCompletion: @escaping @Sendable (Completion<Failure>) -> Void,
      receiveValue: @escaping @Sendable (Input) -> Void
    ) {
      self.init(receiveCompletion, receiveValue, isHeldByCancellable: false)
    }

    /// - Parameter isHeldByCancellable: Whether all references except upstream's are released after cancellation.
    @inlinable init(
      _ receiveCompletion: @escaping (Completion<Failure>) -> Void, _ receiveValue: @escaping (Input) -> Void,
      isHeldByCancellable: Bool
    ) {
      closures = SinkClosures(receiveValue, receiveCompletion)
      upstream = UpstreamSlot(asksWhetherItDrops: isHeldByCancellable)
    }

    /// Called with each value; does nothing after the end.
    public var receiveValue: (Input) -> Void { inside { closures.value } ?? { _ in } }

    /// Called once with the completion, unless cancelled before; does nothing after the end.
    public var receiveCompletion: (Completion<Failure>) -> Void { inside { closures.completion } ?? { _ in } }

    /// Stores the subscription and requests unlimited values.
    public func receive(subscription: any Subscription) {
      if upstream.attach(subscription) { subscription.request(.unlimited) }
    }

    /// Calls the closure; the demand is already unlimited.
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

    /// Calls the closure and releases the subscription.
    public func receive(completion: Completion<Failure>) {
      inside {
        guard upstream.finish() else { return }
        closures.completion(completion)
        if isTaking.load(ordering: .relaxed) { return }  // ended from inside a value's delivery
        upstream.word.bitwiseAnd(~UpstreamSlot.drops, ordering: .relaxed)  // no value is being delivered
      }
    }

    /// Ends the subscription; no closure is called afterwards.
    public func cancel() { inside { upstream.cancel() } }

    /// `Sink`.
    public var description: String { "Sink" }

    /// Runs `body` unless the subscription is over. The last caller to leave releases the closures, unless a value that
    /// is not counted may be in delivery.
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

  /// Requests unlimited values and assigns each to a property of an object.
  public final class Assign<Root, Input>: Subscriber, Cancellable, CustomStringConvertible {
    /// `Never`: no property can receive an error.
    public typealias Failure = Never
    /// The property.
    public let keyPath: ReferenceWritableKeyPath<Root, Input>
    private let target: Locked<Root?>
    private let upstream = UpstreamSlot()

    /// - Parameters:
    ///   - object: The object, held until the end.
    ///   - keyPath: The property that each value is assigned to.
    public init(object: Root, keyPath: ReferenceWritableKeyPath<Root, Input>) {
      target = Locked(object)
      self.keyPath = keyPath
    }

    /// The object; `nil` after the end.
    public var object: Root? { target.withLock { $0 } }

    /// Stores the subscription and requests unlimited values.
    public func receive(subscription: any Subscription) {
      if upstream.attach(subscription) { subscription.request(.unlimited) }
    }

    /// Assigns the value to the property.
    public func receive(_ input: Input) -> Demand {
      if upstream.isLive { object?[keyPath: keyPath] = input }
      return .none
    }

    /// Releases the object and the subscription.
    public func receive(completion: Completion<Never>) {
      if upstream.finish() { release() }
    }

    /// Ends the subscription and releases the object.
    public func cancel() {
      upstream.cancel()
      release()
    }

    /// `Assign`.
    public var description: String { "Assign" }

    /// Moves the object out of the lock first: releasing it may run a deinitialiser.
    private func release() { _ = target.withLock { $0.take() } }
  }
}

extension Publisher {
  /// Attaches closures with unlimited demand. They are released at the end.
  ///
  /// The publisher determines the thread on which they run. What is isolated to an actor must not be used there: the compiler
  /// warns. The actor reads ``values``, or the closure uses `MainActor.assumeIsolated` behind a scheduler of the main queue.
  ///
  /// - Returns: A cancellable that ends the subscription when it is cancelled or released.
  @preconcurrency @inlinable public func sink(
    receiveCompletion: @escaping @Sendable (Subscribers.Completion<Failure>) -> Void,
    receiveValue: @escaping @Sendable (Output) -> Void
  ) -> AnyCancellable {
    let sink = Subscribers.Sink(receiveCompletion, receiveValue, isHeldByCancellable: true)
    subscribe(sink)
    return AnyCancellable(sink)
  }
}

extension Publisher where Failure == Never {
  /// Attaches a closure with unlimited demand. It is released at the end. See ``sink(receiveCompletion:receiveValue:)`` for
  /// the thread on which it runs.
  ///
  /// - Returns: A cancellable that ends the subscription when it is cancelled or released.
  @preconcurrency @inlinable public func sink(receiveValue: @escaping @Sendable (Output) -> Void) -> AnyCancellable {
    sink(receiveCompletion: { _ in }, receiveValue: receiveValue)
  }

  /// Assigns each value to a property of `object`, which is held until the end.
  ///
  /// Demand: unlimited.
  ///
  /// - Returns: A cancellable that ends the subscription when it is cancelled or released.
  @inlinable public func assign<Root>(to keyPath: ReferenceWritableKeyPath<Root, Output>, on object: Root)
    -> AnyCancellable
  {
    let assign = Subscribers.Assign(object: object, keyPath: keyPath)
    subscribe(assign)
    return AnyCancellable(assign)
  }
}
