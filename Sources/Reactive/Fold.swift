/// What a fold does with the values of one subscription.
public struct Folding<Input, Output, Failure: Error> {
  /// Takes in a value: ``Verdict/skip`` to go on, or an end.
  @usableFromInline let take: (Input) -> Verdict<Output, Failure>
  /// Called when upstream has finished; gives the end.
  @usableFromInline let answer: () -> Verdict<Output, Failure>

  /// State that the closures need is what they capture; no locks, signals are serial.
  @inlinable
  public init(take: @escaping (Input) -> Verdict<Output, Failure>, answer: @escaping () -> Verdict<Output, Failure>) {
    (self.take, self.answer) = (take, answer)
  }
}

extension Folding {
  /// A result that each value changes.
  ///
  /// - Parameters:
  ///   - mode: Whether `change` may throw; what it throws is the failure.
  ///   - initial: The result of no value.
  ///   - answer: What is delivered of the result, if anything.
  @inlinable init<Mode: Fallibility, Result>(
    _ mode: Mode.Type, from initial: Result,
    _ change: @escaping (inout Result, Input) throws(Mode.Thrown) -> Void, answer: @escaping (Result) -> Output?
  ) where Mode.Failure == Failure {
    var result = initial
    self.init(
      take: { value in
        Mode.attempt { () throws(Mode.Thrown) in
          try change(&result, value)
          return .skip
        }
      }, answer: { .finish(last: answer(result)) })
  }
}

/// An operator that takes in every value and gives at most one answer. Upstream is asked for everything at once,
/// without any demand below; the answer waits for demand.
public protocol Fold<Output, Failure>: ValueOperator {
  /// Starts a subscription.
  func begin() -> Folding<Upstream.Output, Output, Failure>
}

extension Fold {
  /// Attaches the subscriber to upstream through a link of its own.
  @inlinable @inline(__always) public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    upstream.subscribe(FoldLink(begin(), failure: failure, down: subscriber))
  }
}

/// What never differs between folds.
@usableFromInline
final class FoldLink<Input, UpstreamFailure: Error, Down: Subscriber>: AnswerSubscription<Down>, Subscriber {
  @usableFromInline let upstream = UpstreamSlot()
  @usableFromInline let folding: Folding<Input, Down.Input, Down.Failure>
  private let failure: (UpstreamFailure) -> Down.Failure

  @usableFromInline init(
    _ folding: Folding<Input, Down.Input, Down.Failure>, failure: @escaping (UpstreamFailure) -> Down.Failure,
    down: Down
  ) {
    (self.folding, self.failure) = (folding, failure)
    super.init(down, "Fold")
  }

  @usableFromInline func receive(subscription: any Subscription) {
    guard upstream.attach(subscription) else { return }
    start()
    upstream.request(.unlimited)
  }

  @inlinable func receive(_ value: Input) -> Subscribers.Demand {
    guard upstream.isLive else { return .none }
    let verdict = folding.take(value)
    if case .skip = verdict { return .none }
    if upstream.cancel() { settle(verdict) }
    return .none
  }

  @usableFromInline func receive(completion: Subscribers.Completion<UpstreamFailure>) {
    guard upstream.finish() else { return }
    switch completion {
    case .finished: settle(folding.answer())
    case .failure(let error): end(.failure(failure(error)))
    }
  }

  @usableFromInline func settle(_ verdict: Verdict<Down.Input, Down.Failure>) {
    switch verdict {
    case .finish(let answer?): settle(answer)
    case .fail(let error): end(.failure(error))
    case .finish, .emit, .skip: end(.finished)
    }
  }

  @usableFromInline override func didCancel() { upstream.cancel() }
}
