import Synchronization

extension Publishers {
  /// The shared part of operators that consume all values and deliver at most one result. Unlimited values are requested
  /// from upstream on subscription, independent of downstream demand; the result waits for demand.
  public struct Folded<Upstream: Publisher, Output, Mode: Fallibility<Upstream.Failure>>: Operator {
    /// The subscriber's failure type: upstream's failure, or the error that a closure throws.
    public typealias Failure = Mode.Failure
    /// The upstream publisher.
    public let upstream: Upstream
    @usableFromInline let name: String
    @usableFromInline let demand: Subscribers.Demand
    @usableFromInline let begin: () -> Stage<Upstream.Output, Output, Mode.Thrown>

    /// - Parameters:
    ///   - name: The operator's name, used as the description.
    ///   - demand: The demand sent to upstream.
    ///   - begin: Starts a subscription.
    @inlinable init(
      _ upstream: Upstream, _ name: String, requesting demand: Subscribers.Demand = .unlimited,
      begin: @escaping () -> Stage<Upstream.Output, Output, Mode.Thrown>
    ) {
      (self.upstream, self.name, self.demand, self.begin) = (upstream, name, demand, begin)
    }

    /// Attaches the subscriber to upstream through a new link.
    @inlinable @inline(__always) public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      upstream.subscribe(FoldLink(begin(), Mode(), name, requesting: demand, down: subscriber))
    }
  }
}

extension Publishers.Folded {
  /// Creates a fold whose result is known when upstream finishes.
  ///
  /// - Parameters:
  ///   - initial: The result of no values.
  ///   - change: Updates the result for each value.
  ///   - output: Returns the value to deliver for the final result, if any.
  @inlinable init<Result>(
    _ upstream: Upstream, _ name: String, from initial: Result,
    _ change: @escaping (inout Result, Upstream.Output) throws(Mode.Thrown) -> Void,
    output: @escaping (Result) throws(Mode.Thrown) -> Output?
  ) {
    self.init(upstream, name) {
      var result = initial
      return Stage { value throws(Mode.Thrown) in
        try change(&result, value)
        return .skip
      } rest: { () throws(Mode.Thrown) in
        try output(result)
      }
    }
  }

  /// Creates a fold that one value may decide.
  ///
  /// - Parameters:
  ///   - output: The value to deliver when no value has decided.
  ///   - isDecisive: Returns whether this value decides; the result is then `decision`.
  @inlinable init(
    _ upstream: Upstream, _ name: String, _ output: Output, unless decision: Output,
    _ isDecisive: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool
  ) {
    self.init(upstream, name) {
      Stage { value throws(Mode.Thrown) in
        try isDecisive(value) ? .finish(last: decision) : .skip
      } rest: { () throws(Mode.Thrown) in
        output
      }
    }
  }
}

/// A subscription that delivers at most one value and then the completion, once there is demand. Value and demand may
/// arrive in either order, from any thread; the second to arrive triggers the delivery. It holds no reference to the
/// fold.
@usableFromInline final class FoldSubscription<Down: Subscriber>: SubscriptionObject, CustomStringConvertible {
  /// The progress of the subscription: bits that are only ever set; the last one is only cleared.
  @usableFromInline enum Phase {
    @inlinable static var requested: UInt8 { 1 }
    @inlinable static var settled: UInt8 { 2 }
    @inlinable static var over: UInt8 { 4 }
    @inlinable static var cancelled: UInt8 { 8 }
    /// The subscriber is receiving its subscription.
    @inlinable static var starting: UInt8 { 16 }
  }

  @usableFromInline let upstream = UpstreamSlot()
  @usableFromInline let phase = Atomic<UInt8>(Phase.starting)
  /// Taken by the thread that sets `over`.
  @safe @usableFromInline @exclusivity(unchecked) var down: Down?
  @safe @usableFromInline @exclusivity(unchecked) var result: Down.Input?
  @usableFromInline let description: String

  @inlinable init(_ down: Down, _ description: String) { (self.down, self.description) = (down, description) }

  /// Sends the subscription to the subscriber.
  ///
  /// A request that arrives meanwhile is served here, where the subscriber's type is known: `request` is called
  /// through a type-erased reference and would be slow.
  @inlinable func start() {
    down?.receive(subscription: self)
    let before = phase.bitwiseAnd(~Phase.starting, ordering: .acquiringAndReleasing).oldValue
    if before & (Phase.requested | Phase.settled | Phase.over) == Phase.requested | Phase.settled { deliver() }
  }

  /// Stores the result. If there is none, the completion waits for demand in its place, unless the result type rules
  /// out a value.
  @inlinable func settle(_ result: Down.Input?) {
    if Down.Input.self == Never.self { return end(.finished) }
    self.result = result
    let before = set(Phase.settled)
    if before & Phase.over != 0 { self.result = nil }
    if before & (Phase.requested | Phase.starting) == Phase.requested { deliver() }
  }

  @inlinable
  func end(_ completion: Subscribers.Completion<Down.Failure>) { takeDown()?.receive(completion: completion) }

  @inlinable func deliver() {
    guard let down = takeDown() else { return }
    if let result = result.take() { _ = down.receive(result) }
    if phase.load(ordering: .acquiring) & Phase.cancelled == 0 { down.receive(completion: .finished) }
  }

  @inlinable func set(_ bits: UInt8) -> UInt8 { phase.bitwiseOr(bits, ordering: .acquiringAndReleasing).oldValue }

  @inlinable func takeDown() -> Down? { set(Phase.over) & Phase.over == 0 ? down.take() : nil }

  @inlinable override func request(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    if set(Phase.requested) & (Phase.requested | Phase.settled | Phase.starting) == Phase.settled { deliver() }
  }

  @inlinable override func cancel() {
    let before = set(Phase.over | Phase.cancelled)
    guard before & Phase.over == 0 else { return }
    _ = down.take()
    if before & Phase.settled != 0 { result = nil }
    upstream.cancel()
  }
}

/// The part that all folds share.
@usableFromInline
final class FoldLink<Input, Mode: FailureMode, Down: Subscriber>: Subscriber where Mode.Failure == Down.Failure {
  @usableFromInline typealias Failure = Mode.UpstreamFailure
  @usableFromInline let subscription: FoldSubscription<Down>
  @usableFromInline let stage: Stage<Input, Down.Input, Mode.Thrown>
  @usableFromInline let mode: Mode
  @usableFromInline let demand: Subscribers.Demand

  @inlinable init(
    _ stage: Stage<Input, Down.Input, Mode.Thrown>, _ mode: Mode, _ description: String,
    requesting demand: Subscribers.Demand, down: Down
  ) {
    (self.stage, self.mode, self.demand) = (stage, mode, demand)
    subscription = FoldSubscription(down, description)
  }

  @inlinable var combineIdentifier: CombineIdentifier { subscription.combineIdentifier }

  @inlinable func receive(subscription upstream: any Subscription) {
    guard subscription.upstream.attach(upstream) else { return }
    subscription.start()
    subscription.upstream.request(demand)
  }

  /// Handles a publisher that sends a value or a completion without a subscription.
  @inlinable func startIfNeeded() {
    if subscription.upstream.isAwaiting { receive(subscription: Subscriptions.empty) }
  }

  @inlinable func receive(_ value: Input) -> Subscribers.Demand {
    guard subscription.upstream.isLive else { return .none }
    startIfNeeded()
    do {
      if case .finish(let result) = try stage.next(value), subscription.upstream.cancel() {
        subscription.settle(result)
      }
    } catch {
      if subscription.upstream.cancel() { subscription.end(.failure(mode.thrown(error))) }
    }
    return .none
  }

  @inlinable func receive(completion: Subscribers.Completion<Failure>) {
    startIfNeeded()
    guard subscription.upstream.finish() else { return }
    if case .failure(let error) = completion { return subscription.end(.failure(mode.passed(error))) }
    do {
      subscription.settle(try stage.rest?() ?? nil)
    } catch {
      subscription.end(.failure(mode.thrown(error)))
    }
  }
}
