/// The result of a stage for one value.
@usableFromInline enum Verdict<Output> {
  /// Deliver this value.
  case emit(Output)
  /// Deliver nothing and return the unit of demand that the value used.
  case skip
  /// Deliver nothing: the value is used later, or the operator has requested it for itself.
  case keep
  /// Deliver this value, if any, then finish and cancel upstream.
  case finish(last: Output?)
}

/// The behaviour of an operator for one subscription. Its closures capture the state; it needs no locks, because
/// signals are serial.
@usableFromInline struct Stage<Input, Output, Thrown: Error> {
  @usableFromInline let next: (Input) throws(Thrown) -> Verdict<Output>
  /// Returns a last value after upstream has finished. There must be demand for it.
  @usableFromInline let rest: (() throws(Thrown) -> Output?)?

  @inlinable init(
    _ next: @escaping (Input) throws(Thrown) -> Verdict<Output>, rest: (() throws(Thrown) -> Output?)? = nil
  ) {
    (self.next, self.rest) = (next, rest)
  }
}

extension Publishers {
  /// The shared part of operators that handle each upstream value immediately. The operator supplies only the result for
  /// a value; demand, cancellation and silence after the end are the same for all.
  public struct Staged<Upstream: Publisher, Output, Mode: FailureMode<Upstream.Failure>>: Operator {
    /// The subscriber's failure type: upstream's failure, or the error that a closure throws.
    public typealias Failure = Mode.Failure
    /// The upstream publisher.
    public let upstream: Upstream
    @usableFromInline let name: String
    @usableFromInline let mode: Mode
    @usableFromInline let isOver: Bool
    @usableFromInline let begin: () -> Stage<Upstream.Output, Output, Mode.Thrown>

    /// - Parameters:
    ///   - name: The operator's name, used as the description.
    ///   - isOver: True to finish the subscriber immediately and request nothing from upstream.
    ///   - begin: Starts a subscription.
    @inlinable init(
      _ upstream: Upstream, _ name: String, _ mode: Mode, isOver: Bool = false,
      begin: @escaping () -> Stage<Upstream.Output, Output, Mode.Thrown>
    ) {
      (self.upstream, self.name, self.mode, self.isOver, self.begin) = (upstream, name, mode, isOver, begin)
    }

    /// Attaches the subscriber to upstream through a new link.
    @inlinable @inline(__always) public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      upstream.subscribe(StageLink(begin(), mode, name, isOver: isOver, down: subscriber))
    }
  }
}

extension Publishers.Staged where Mode: Fallibility {
  /// Creates an operator without state.
  @inlinable init(
    _ upstream: Upstream, _ name: String,
    _ next: @escaping (Upstream.Output) throws(Mode.Thrown) -> Verdict<Output>
  ) {
    self.init(upstream, name, Mode()) { Stage(next) }
  }

  /// Creates an operator with state that each value may change.
  @inlinable init<State>(
    _ upstream: Upstream, _ name: String, from initial: State, isOver: Bool = false,
    _ next: @escaping (inout State, Upstream.Output) throws(Mode.Thrown) -> Verdict<Output>
  ) {
    self.init(upstream, name, Mode(), isOver: isOver) {
      var state = initial
      return Stage { value throws(Mode.Thrown) in try next(&state, value) }
    }
  }
}

/// The part that all stages share: the order of subscribing, the return of unused demand, a single cancellation from
/// any thread, silence after the end.
///
/// Its type names the values and the subscriber, but not upstream: types that name the whole pipeline in each link soon
/// exceed what the compiler specialises.
@usableFromInline final class StageLink<Input, Mode: FailureMode, Down: Subscriber>: Subscriber
where Mode.Failure == Down.Failure {
  @usableFromInline typealias Failure = Mode.UpstreamFailure
  @usableFromInline let upstream: UpstreamHandle
  @usableFromInline let stage: Stage<Input, Down.Input, Mode.Thrown>
  @usableFromInline let mode: Mode
  @usableFromInline let isOver: Bool
  @usableFromInline let down: Down

  @inlinable init(
    _ stage: Stage<Input, Down.Input, Mode.Thrown>, _ mode: Mode, _ name: String, isOver: Bool, down: Down
  ) {
    upstream = UpstreamHandle(name)
    (self.stage, self.mode, self.isOver, self.down) = (stage, mode, isOver, down)
  }

  /// Creates the link of an operator that requests what it needs for itself by its handle.
  @inlinable init(_ stage: Stage<Input, Down.Input, Mode.Thrown>, _ mode: Mode, _ handle: UpstreamHandle, down: Down) {
    (upstream, isOver) = (handle, false)
    (self.stage, self.mode, self.down) = (stage, mode, down)
  }

  @inlinable var combineIdentifier: CombineIdentifier { upstream.combineIdentifier }

  @inlinable func receive(subscription: any Subscription) {
    if isOver {
      guard upstream.refuse(subscription) else { return }
      down.receive(subscription: upstream)
      end(.finished)
    } else if upstream.slot.attach(subscription) {
      down.receive(subscription: upstream)
      upstream.didStart()
    }
  }

  @inlinable func receive(_ value: Input) -> Subscribers.Demand {
    guard upstream.slot.isLive else { return .none }
    do {
      switch try stage.next(value) {
      case .emit(let output): return down.receive(output)
      case .skip: return .max(1)
      case .keep: break
      case .finish(let last):
        let isEnd = upstream.slot.finish { subscription in
          if let last { _ = down.receive(last) }
          subscription?.cancel()
        }
        if isEnd { end(.finished) }
      }
    } catch {
      if upstream.slot.cancel() { end(.failure(mode.thrown(error))) }
    }
    return .none
  }

  @inlinable func receive(completion: Subscribers.Completion<Failure>) {
    guard upstream.slot.finish() else { return }
    do {
      if case .finished = completion, let last = try stage.rest?() ?? nil { _ = down.receive(last) }
      end(completion.mapFailure(mode.passed))
    } catch {
      end(.failure(mode.thrown(error)))
    }
  }

  /// Finishes, unless the subscriber has cancelled while receiving the last value.
  @inlinable func end(_ completion: Subscribers.Completion<Down.Failure>) {
    if !upstream.isCancelled { down.receive(completion: completion) }
  }
}
