extension Publishers {
  /// An operator that takes in every value and gives at most one answer. Upstream is asked for everything at once,
  /// without any demand below; the answer waits for demand.
  public struct Folded<Upstream: Publisher, Output, Mode: Fallibility<Upstream.Failure>, Kind>: Publisher {
    /// Upstream's failure as the subscriber sees it, or what a closure throws.
    public typealias Failure = Mode.Failure
    /// Where the values come from.
    public let upstream: Upstream
    @usableFromInline let name: String
    @usableFromInline let begin: () -> Stage<Upstream.Output, Output, Mode.Thrown>

    /// Attaches the subscriber to upstream through a link of its own.
    @inlinable @inline(__always) public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      upstream.subscribe(FoldLink(begin(), Mode(), name, down: subscriber))
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
    (self.upstream, self.name) = (upstream, name)
    begin = {
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
    (self.upstream, self.name) = (upstream, name)
    begin = {
      Stage { value throws(Mode.Thrown) in
        try isDecisive(value) ? .finish(last: decision) : .skip
      } rest: { () throws(Mode.Thrown) in
        answer
      }
    }
  }
}

/// What never differs between folds.
@usableFromInline
final class FoldLink<Input, Mode: FailureMode, Down: Subscriber>: AnswerSubscription<Down>, Subscriber
where Mode.Failure == Down.Failure {
  @usableFromInline typealias Failure = Mode.UpstreamFailure
  @usableFromInline let upstream = UpstreamSlot()
  @usableFromInline let stage: Stage<Input, Down.Input, Mode.Thrown>
  @usableFromInline let mode: Mode

  @usableFromInline
  init(_ stage: Stage<Input, Down.Input, Mode.Thrown>, _ mode: Mode, _ description: String, down: Down) {
    (self.stage, self.mode) = (stage, mode)
    super.init(down, description)
  }

  @usableFromInline func receive(subscription: any Subscription) {
    guard upstream.attach(subscription) else { return }
    start()
    upstream.request(.unlimited)
  }

  @inlinable func receive(_ value: Input) -> Subscribers.Demand {
    guard upstream.isLive else { return .none }
    do {
      if case .finish(let answer) = try stage.next(value), upstream.cancel() { settleOrEnd(answer) }
    } catch {
      if upstream.cancel() { end(.failure(mode.thrown(error))) }
    }
    return .none
  }

  @usableFromInline func receive(completion: Subscribers.Completion<Failure>) {
    guard upstream.finish() else { return }
    if case .failure(let error) = completion { return end(.failure(mode.passed(error))) }
    do { settleOrEnd(try stage.rest?() ?? nil) } catch { end(.failure(mode.thrown(error))) }
  }

  @usableFromInline func settleOrEnd(_ answer: Down.Input?) {
    if let answer { settle(answer) } else { end(.finished) }
  }

  @usableFromInline override func didCancel() { upstream.cancel() }
}
