/// What a stage makes of one value.
@usableFromInline enum Verdict<Output> {
  /// Deliver this.
  case emit(Output)
  /// Deliver nothing for it; the unit of demand that it cost is given back.
  case skip
  /// Deliver this, if any, then finish, and cancel upstream.
  case finish(last: Output?)
}

/// What an operator does with the values of one subscription. State is what its closures capture; no locks, signals are
/// serial.
@usableFromInline struct Stage<Input, Output, Thrown: Error> {
  @usableFromInline let next: (Input) throws(Thrown) -> Verdict<Output>
  /// A last value when upstream has finished. Its demand must be there.
  @usableFromInline let rest: (() throws(Thrown) -> Output?)?

  @inlinable init(
    _ next: @escaping (Input) throws(Thrown) -> Verdict<Output>,
    rest: (() throws(Thrown) -> Output?)? = nil
  ) {
    (self.next, self.rest) = (next, rest)
  }
}

extension Publishers {
  /// An operator that answers each upstream value at once. It says only what it makes of a value; the rest (demand,
  /// cancellation, silence after the end) is the same for all. See ``OperatorKind`` for how to extend one of them.
  public struct Staged<Upstream: Publisher, Output, Mode: FailureMode<Upstream.Failure>, Kind>: Publisher {
    /// Upstream's failure as the subscriber sees it, or what a closure throws.
    public typealias Failure = Mode.Failure
    /// Where the values come from.
    public let upstream: Upstream
    @usableFromInline let name: String
    @usableFromInline let mode: Mode
    @usableFromInline let isOver: Bool
    @usableFromInline let begin: () -> Stage<Upstream.Output, Output, Mode.Thrown>

    /// - Parameters:
    ///   - name: For those who print.
    ///   - isOver: There is nothing to wait for: the subscriber is told the end at once, upstream is asked for nothing.
    ///   - begin: Starts a subscription.
    @inlinable init(
      _ upstream: Upstream, _ name: String, _ mode: Mode, isOver: Bool = false,
      begin: @escaping () -> Stage<Upstream.Output, Output, Mode.Thrown>
    ) {
      (self.upstream, self.name, self.mode, self.isOver, self.begin) = (upstream, name, mode, isOver, begin)
    }

    /// Attaches the subscriber to upstream through a link of its own.
    @inlinable @inline(__always) public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      upstream.subscribe(StageLink(begin(), mode, name, isOver: isOver, down: subscriber))
    }
  }
}

extension Publishers.Staged where Mode: Fallibility {
  /// One that remembers nothing.
  @inlinable init(
    _ upstream: Upstream, _ name: String,
    _ next: @escaping (Upstream.Output) throws(Mode.Thrown) -> Verdict<Output>
  ) {
    self.init(upstream, name, Mode()) { Stage(next) }
  }

  /// One that remembers something of the values before.
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

/// What never differs between stages: the subscribe order, refunded demand, cancelling once from any thread, silence
/// after the end.
///
/// Its type names values and the subscriber, not upstream: a type that names the whole pipeline in each link soon grows
/// past what the compiler is willing to specialise.
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

  @inlinable var combineIdentifier: CombineIdentifier { upstream.combineIdentifier }

  @inlinable func receive(subscription: any Subscription) {
    if isOver {
      guard upstream.refuse(subscription) else { return }
      down.receive(subscription: upstream)
      end(.finished)
    } else if upstream.slot.attach(subscription) {
      down.receive(subscription: upstream)
    }
  }

  @inlinable func receive(_ value: Input) -> Subscribers.Demand {
    guard upstream.slot.isLive else { return .none }
    do {
      switch try stage.next(value) {
      case .emit(let output): return down.receive(output)
      case .skip: return .max(1)
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

  /// The subscriber may have cancelled when it got the last value.
  @inlinable func end(_ completion: Subscribers.Completion<Down.Failure>) {
    if !upstream.isCancelled { down.receive(completion: completion) }
  }
}
