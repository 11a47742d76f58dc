/// What a stage makes of one value.
public enum Verdict<Output, Failure: Error> {
  /// Deliver this.
  case emit(Output)
  /// Deliver nothing for it; the unit of demand that it cost is given back.
  case skip
  /// Deliver this, if any, then finish, and cancel upstream.
  case finish(last: Output?)
  /// Fail and cancel upstream.
  case fail(Failure)
}

/// An operator that answers each upstream value at once. It says only what differs from other operators; the rest
/// (demand, cancellation, silence after the end) is the same for all.
public protocol Stage<Output, Failure>: ValueOperator {
  /// True when there is nothing to wait for: the subscriber is told the end at once, and upstream is asked for nothing.
  var isOver: Bool { get }
  /// Starts a subscription. State that it needs is what the returned closure captures; no locks, signals are serial.
  ///
  /// - Returns: What becomes of each value.
  func begin() -> (Upstream.Output) -> Verdict<Output, Failure>
}

extension Stage {
  /// Never over before the first value.
  public var isOver: Bool { false }

  /// Attaches the subscriber to upstream through a link of its own.
  @inlinable @inline(__always) public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    upstream.subscribe(StageLink(next: begin(), failure: failure, isOver: isOver, down: subscriber))
  }
}

/// What never differs between stages: the subscribe order, refunded demand, cancelling once from any thread, silence
/// after the end.
///
/// Its type names values and the subscriber, not upstream: a type that names the whole pipeline in each link soon grows
/// past what the compiler is willing to specialise.
@usableFromInline final class StageLink<Input, UpstreamFailure: Error, Down: Subscriber>: Subscriber {
  @usableFromInline let upstream = UpstreamHandle()
  @usableFromInline let next: (Input) -> Verdict<Down.Input, Down.Failure>
  @usableFromInline let failure: (UpstreamFailure) -> Down.Failure
  @usableFromInline let isOver: Bool
  @usableFromInline let rest: (() -> Down.Input?)?
  @usableFromInline let down: Down

  /// - Parameter rest: A last value when upstream has finished. Its demand must be there.
  @inlinable init(
    next: @escaping (Input) -> Verdict<Down.Input, Down.Failure>,
    failure: @escaping (UpstreamFailure) -> Down.Failure, isOver: Bool, rest: (() -> Down.Input?)? = nil, down: Down
  ) {
    (self.rest, self.next, self.failure, self.isOver, self.down) = (rest, next, failure, isOver, down)
  }

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
    switch next(value) {
    case .emit(let output): return down.receive(output)
    case .skip: return .max(1)
    case .finish(let last):
      if upstream.slot.cancel() {
        if let last { _ = down.receive(last) }
        end(.finished)
      }
    case .fail(let error):
      if upstream.slot.cancel() { end(.failure(error)) }
    }
    return .none
  }

  @inlinable func receive(completion: Subscribers.Completion<UpstreamFailure>) {
    guard upstream.slot.finish() else { return }
    if let rest, case .finished = completion, let last = rest() { _ = down.receive(last) }
    end(completion.mapFailure(failure))
  }

  /// The subscriber may have cancelled when it got the last value.
  @inlinable func end(_ completion: Subscribers.Completion<Down.Failure>) {
    if !upstream.isCancelled { down.receive(completion: completion) }
  }
}
