import Synchronization

extension Publishers {
  /// An operator that takes in every value and gives at most one answer. Upstream is asked for everything at once,
  /// without any demand below; the answer waits for demand.
  public struct Folded<Upstream: Publisher, Output, Mode: Fallibility<Upstream.Failure>, Kind>: Publisher {
    /// Upstream's failure as the subscriber sees it, or what a closure throws.
    public typealias Failure = Mode.Failure
    /// Where the values come from.
    public let upstream: Upstream
    @usableFromInline let name: String
    @usableFromInline let demand: Subscribers.Demand
    @usableFromInline let begin: () -> Stage<Upstream.Output, Output, Mode.Thrown>

    /// - Parameters:
    ///   - name: For those who print.
    ///   - demand: What upstream is asked for.
    ///   - begin: Starts a subscription.
    @inlinable init(
      _ upstream: Upstream, _ name: String, asking demand: Subscribers.Demand = .unlimited,
      begin: @escaping () -> Stage<Upstream.Output, Output, Mode.Thrown>
    ) {
      (self.upstream, self.name, self.demand, self.begin) = (upstream, name, demand, begin)
    }

    /// Attaches the subscriber to upstream through a link of its own.
    @inlinable @inline(__always) public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      upstream.subscribe(FoldLink(begin(), Mode(), name, asking: demand, down: subscriber))
    }
  }
}

extension Publishers.Folded {
  /// An answer that is known at the end.
  ///
  /// - Parameters:
  ///   - initial: The result of no value.
  ///   - change: What each value does to the result.
  ///   - answer: What is delivered of the result, if anything.
  @inlinable init<Result>(
    _ upstream: Upstream, _ name: String, from initial: Result,
    _ change: @escaping (inout Result, Upstream.Output) throws(Mode.Thrown) -> Void,
    answer: @escaping (Result) throws(Mode.Thrown) -> Output?
  ) {
    self.init(upstream, name) {
      var result = initial
      return Stage { value throws(Mode.Thrown) in
        try change(&result, value)
        return .skip
      } rest: { () throws(Mode.Thrown) in
        try answer(result)
      }
    }
  }

  /// An answer that one value may decide.
  ///
  /// - Parameters:
  ///   - answer: What is delivered when no value has decided.
  ///   - isDecisive: Whether this value decides that it is `decision`.
  @inlinable init(
    _ upstream: Upstream, _ name: String, _ answer: Output, unless decision: Output,
    _ isDecisive: @escaping (Upstream.Output) throws(Mode.Thrown) -> Bool
  ) {
    self.init(upstream, name) {
      Stage { value throws(Mode.Thrown) in
        try isDecisive(value) ? .finish(last: decision) : .skip
      } rest: { () throws(Mode.Thrown) in
        answer
      }
    }
  }
}

/// A subscription that delivers at most one value, and then the end, once there is demand. Value and demand may come in
/// either order, from any thread; whoever comes second delivers. It holds nothing of the fold.
@usableFromInline final class FoldSubscription<Down: Subscriber>: SubscriptionObject, CustomStringConvertible {
  /// What has happened so far: bits that are only ever set, but for the last.
  @usableFromInline enum Phase {
    @inlinable static var wanted: UInt8 { 1 }
    @inlinable static var answered: UInt8 { 2 }
    @inlinable static var over: UInt8 { 4 }
    @inlinable static var cancelled: UInt8 { 8 }
    /// The subscriber is being given its subscription.
    @inlinable static var starting: UInt8 { 16 }
  }

  @usableFromInline let upstream = UpstreamSlot()
  @usableFromInline let phase = Atomic<UInt8>(Phase.starting)
  /// Taken by the one who sets `over`.
  @usableFromInline @exclusivity(unchecked) var down: Down?
  @usableFromInline @exclusivity(unchecked) var answer: Down.Input?
  @usableFromInline let description: String

  @inlinable init(_ down: Down, _ description: String) { (self.down, self.description) = (down, description) }

  /// Gives the subscriber its subscription.
  ///
  /// A request that comes meanwhile is answered from here, where the subscriber's type is known: `request` is called
  /// where it is not, and would be slow.
  @inlinable func start() {
    down?.receive(subscription: self)
    let before = phase.bitwiseAnd(~Phase.starting, ordering: .acquiringAndReleasing).oldValue
    if before & (Phase.wanted | Phase.answered | Phase.over) == Phase.wanted | Phase.answered { deliver() }
  }

  /// The answer has come. When there is none, the end waits for demand in its place, unless there never is one.
  @inlinable func settle(_ answer: Down.Input?) {
    if Down.Input.self == Never.self { return end(.finished) }
    self.answer = answer
    let before = set(Phase.answered)
    if before & Phase.over != 0 { self.answer = nil }
    if before & (Phase.wanted | Phase.starting) == Phase.wanted { deliver() }
  }

  @inlinable
  func end(_ completion: Subscribers.Completion<Down.Failure>) { takeDown()?.receive(completion: completion) }

  @inlinable func deliver() {
    guard let down = takeDown() else { return }
    if let answer = answer.take() { _ = down.receive(answer) }
    if phase.load(ordering: .acquiring) & Phase.cancelled == 0 { down.receive(completion: .finished) }
  }

  @inlinable func set(_ bits: UInt8) -> UInt8 { phase.bitwiseOr(bits, ordering: .acquiringAndReleasing).oldValue }

  @inlinable func takeDown() -> Down? { set(Phase.over) & Phase.over == 0 ? down.take() : nil }

  @inlinable override func request(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    if set(Phase.wanted) & (Phase.wanted | Phase.answered | Phase.starting) == Phase.answered { deliver() }
  }

  @inlinable override func cancel() {
    let before = set(Phase.over | Phase.cancelled)
    guard before & Phase.over == 0 else { return }
    _ = down.take()
    if before & Phase.answered != 0 { answer = nil }
    upstream.cancel()
  }
}

/// What never differs between folds.
@usableFromInline
final class FoldLink<Input, Mode: FailureMode, Down: Subscriber>: Subscriber where Mode.Failure == Down.Failure {
  @usableFromInline typealias Failure = Mode.UpstreamFailure
  @usableFromInline let subscription: FoldSubscription<Down>
  @usableFromInline let stage: Stage<Input, Down.Input, Mode.Thrown>
  @usableFromInline let mode: Mode
  @usableFromInline let demand: Subscribers.Demand

  @inlinable init(
    _ stage: Stage<Input, Down.Input, Mode.Thrown>, _ mode: Mode, _ description: String,
    asking demand: Subscribers.Demand,
    down: Down
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

  /// For a publisher that has an answer, or an end, without having sent a subscription.
  @inlinable func startIfNeeded() {
    if subscription.upstream.isAwaiting { receive(subscription: Subscriptions.empty) }
  }

  @inlinable func receive(_ value: Input) -> Subscribers.Demand {
    guard subscription.upstream.isLive else { return .none }
    startIfNeeded()
    do {
      if case .finish(let answer) = try stage.next(value), subscription.upstream.cancel() {
        subscription.settle(answer)
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
