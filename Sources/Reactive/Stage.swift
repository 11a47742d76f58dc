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
///
/// A value: each subscription works on a fresh copy, so state that starts with the operator is state per subscription.
/// No locks: the signals that reach it are serial.
public protocol Stage<Output, Failure>: Publisher {
  /// Where the values come from.
  associatedtype Upstream: Publisher
  /// Where the values come from.
  var upstream: Upstream { get }
  /// True when there is nothing to wait for: the subscriber is told the end at once, and upstream is asked for nothing.
  var isOver: Bool { get }
  /// What becomes of a value.
  mutating func next(_ value: Upstream.Output) -> Verdict<Output, Failure>
  /// Upstream's failure as the subscriber sees it.
  func failure(_ error: Upstream.Failure) -> Failure
}

extension Stage {
  /// Never over before the first value.
  public var isOver: Bool { false }

  /// Attaches the subscriber to upstream through a copy of this.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    upstream.subscribe(StageLink(self, subscriber))
  }
}

extension Stage where Failure == Upstream.Failure {
  /// The same failure.
  public func failure(_ error: Upstream.Failure) -> Failure { error }
}

extension Stage where Failure == any Error {
  /// The same failure, its type hidden.
  public func failure(_ error: Upstream.Failure) -> any Error { error }
}

extension Stage where Failure == Upstream.Failure, Upstream.Failure == any Error {
  /// The same failure.
  public func failure(_ error: any Error) -> any Error { error }
}

/// What never differs between stages: the subscribe order, refunded demand, cancelling once from any thread, silence
/// after the end.
final class StageLink<S: Stage, Down: Subscriber>: Subscriber, Subscription
where Down.Input == S.Output, Down.Failure == S.Failure {
  private let upstream = UpstreamSlot()
  private var stage: S  // touched by receive(_:) alone, which the contract makes serial
  private let down: Down

  init(_ stage: S, _ down: Down) {
    self.stage = stage
    self.down = down
  }

  func receive(subscription: any Subscription) {
    guard upstream.attach(subscription) else { return }
    down.receive(subscription: self)
    if stage.isOver, upstream.cancel() { down.receive(completion: .finished) }
  }

  func receive(_ value: S.Upstream.Output) -> Subscribers.Demand {
    guard upstream.isLive else { return .none }
    switch stage.next(value) {
    case .emit(let output): return down.receive(output)
    case .skip: return .max(1)
    case .finish(let last):
      if upstream.cancel() {
        if let last { _ = down.receive(last) }
        down.receive(completion: .finished)
      }
    case .fail(let error):
      if upstream.cancel() { down.receive(completion: .failure(error)) }
    }
    return .none
  }

  func receive(completion: Subscribers.Completion<S.Upstream.Failure>) {
    guard upstream.finish() else { return }
    down.receive(completion: completion.mapFailure(stage.failure))
  }

  func request(_ demand: Subscribers.Demand) {
    if !stage.isOver { upstream.request(demand) }
  }

  func cancel() { upstream.cancel() }
}
